"""The text of a bearer token, its secret type, and the hash that the Steward keeps of it."""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import Final

from pvdm.errors import Code, InputError
from pvdm.model.secret import Secret

TOKEN_PREFIX: Final = "pvdm_"  # noqa: S105 - what a token begins with, so that scanners find a leaked one
TOKEN_MAX_CHARACTERS: Final = 4_096
_RANDOM_BYTES: Final = 32
# The form that RFC 6750 gives a bearer token: nothing in it can end a header.
_FORM: Final = re.compile(rb"[A-Za-z0-9._~+/-]+=*")


class AccessToken(Secret):
    """A token's text; it is not printed, compared, pickled or formatted."""

    __slots__ = ()

    def __init__(self, text: str) -> None:
        given: object = text
        material = given.encode("utf-8", "replace") if isinstance(given, str) else b""
        # A traceback may show the locals of the frame that raises: the text must not be among them.
        del text, given
        super().__init__(material)
        del material
        if len(self._material) > TOKEN_MAX_CHARACTERS or not _FORM.fullmatch(self._material):
            raise InputError(
                Code.TOKEN_MALFORMED,
                "the token cannot be accepted",
                expected=f"1 to {TOKEN_MAX_CHARACTERS} characters of a bearer token",
                got="something else",
            )

    @property
    def text(self) -> str:
        """The text itself; take it only where it is handed over."""
        return self._material.decode("ascii")


def draw_token_text() -> str:
    """The text of a new token: 256 random bits after the prefix."""
    return TOKEN_PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)


def token_sha256(text: str) -> str:
    """What the ledger keeps of a token."""
    return hashlib.sha256(text.encode()).hexdigest()
