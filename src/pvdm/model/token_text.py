"""The text of a bearer token, and the hash by which the Steward knows it; both sides may draw one."""

from __future__ import annotations

import hashlib
import secrets
from typing import Final

TOKEN_PREFIX: Final = "pvdm_"  # noqa: S105 - what a token begins with, so that scanners find a leaked one
_RANDOM_BYTES: Final = 32


def draw_token_text() -> str:
    """The text of a new token: 256 random bits after the prefix."""
    return TOKEN_PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)


def token_sha256(text: str) -> str:
    """What the ledger keeps of a token."""
    return hashlib.sha256(text.encode()).hexdigest()
