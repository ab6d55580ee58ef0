"""The roles of the Steward's callers, and the bearer tokens by which the Steward recognizes callers."""

from __future__ import annotations

import hashlib
import re
import secrets
from enum import StrEnum
from typing import Final

from pvdm.errors import Code, InputError
from pvdm.model.secret import Secret

TOKEN_PREFIX: Final = "pvdm_"  # noqa: S105 - the start of every token, so that scanners find a leaked one
TOKEN_MAX_CHARACTERS: Final = 4_096
_RANDOM_BYTES: Final = 32
# The form of a bearer token in RFC 6750. It has no character that could end an HTTP header.
_FORM: Final = re.compile(rb"[A-Za-z0-9._~+/-]+=*")


class Role(StrEnum):
    """The role of a caller. Each role has its own tokens."""

    PRODUCER = "producer"
    PUBLISHER = "publisher"
    CONSUMER = "consumer"
    ATTESTOR = "attestor"
    OPERATOR = "operator"
    AUDITOR = "auditor"
    WORKER = "worker"  # a process of the Steward's Spark application: it exchanges a job's handle for keys
    STEWARD = "steward"  # the Steward's own jobs: they see all of a table and maintain its staging branches


class AccessToken(Secret):
    """The text of a token. It is not printed, compared, pickled or formatted."""

    __slots__ = ()

    def __init__(self, text: str) -> None:
        given: object = text
        material = given.encode("utf-8", "replace") if isinstance(given, str) else b""
        # A traceback may show the locals of the frame that raises: the text must not be among them.
        del text, given
        super().__init__(material)
        del material
        if len(self._material) > TOKEN_MAX_CHARACTERS or not _FORM.fullmatch(self._material):
            expected = f"1 to {TOKEN_MAX_CHARACTERS} characters of a bearer token"
            message = "the token cannot be accepted"
            raise InputError(Code.TOKEN_MALFORMED, message, expected=expected, got="something else")

    @property
    def text(self) -> str:
        """The text itself. Use it only to send the token."""
        return self._material.decode("ascii")


def draw_token_text() -> str:
    """The text of a new token: 256 random bits after the prefix."""
    return TOKEN_PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)


def token_sha256(text: str) -> str:
    """The hash of a token, which the ledger stores instead of the token."""
    return hashlib.sha256(text.encode()).hexdigest()
