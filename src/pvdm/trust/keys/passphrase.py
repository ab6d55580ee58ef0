"""What a person or a configuration types to open a key home: a secret like the keys behind it."""

from __future__ import annotations

from typing import Final

from pvdm.errors import Code
from pvdm.model.secret import Secret

PASSPHRASE_MAX_BYTES: Final = 1_024


class Passphrase(Secret):
    """A passphrase or PIN."""

    __slots__ = ()

    def __init__(self, text: str) -> None:
        super().__init__(text.encode())
        del text
        if not 1 <= len(self._material) <= PASSPHRASE_MAX_BYTES:
            raise Code.PASSPHRASE_INVALID(
                "the passphrase cannot be accepted",
                expected=f"1 to {PASSPHRASE_MAX_BYTES} bytes",
                got=f"{len(self._material)} bytes",
            )
