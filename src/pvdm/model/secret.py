"""Secret bytes that do not show themselves: no printing, comparing, pickling or copying into an exception."""

from __future__ import annotations

from typing import Final, NoReturn

from pvdm.errors import InputError

KEY_BYTES: Final = 32
EPOCH_MAX: Final = 2**63 - 1


class DigestKey:
    """The 32-byte key of one projection's digest, with the epoch of the root it was derived from."""

    __slots__ = ("_material", "epoch")

    def __init__(self, material: bytes, *, epoch: int) -> None:
        if len(material) != KEY_BYTES:
            raise InputError(
                "key_length",
                "the digest key has the wrong length",
                expected=f"{KEY_BYTES} bytes",
                got=str(len(material)),
            )
        if not 0 <= epoch <= EPOCH_MAX:
            raise InputError("epoch_invalid", "the epoch cannot be accepted", expected="0 to 2^63-1", got=str(epoch))
        self._material = bytes(material)
        self.epoch = epoch

    def reveal(self) -> bytes:
        """The bytes themselves; call it only where they are handed to a hash."""
        return self._material

    def __repr__(self) -> str:
        return f"DigestKey(epoch={self.epoch})"

    def __eq__(self, other: object) -> NoReturn:
        raise TypeError("secret keys are not compared")

    def __hash__(self) -> NoReturn:
        raise TypeError("secret keys are not hashed")

    def __reduce__(self) -> NoReturn:
        raise TypeError("secret keys are not pickled")

    def __format__(self, spec: str) -> NoReturn:
        raise TypeError("secret keys are not formatted")
