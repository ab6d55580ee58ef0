"""The forms of identifiers, judged before they reach a table."""

from __future__ import annotations

import re
from typing import Final

from pvdm.errors import InputError

_WORKLOAD: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")
_WORKLOAD_WORDS: Final = "1 to 128 letters (a to z), digits, dots, underscores and hyphens"
_HEX: Final = re.compile(r"[0-9a-f]+")
_SNAPSHOT: Final = re.compile(r"0|[1-9][0-9]{0,18}")
NAME_MAX_CHARACTERS: Final = 1024
REASON_MAX_CHARACTERS: Final = 4096


def workload_id(value: str) -> str:
    """1 to 128 letters, digits, dots, underscores and hyphens."""
    return value if _WORKLOAD.fullmatch(value) else _refuse("workload id", _WORKLOAD_WORDS, value)


def random_id(value: str, what: str) -> str:
    """128 random bits: 32 lower-case hexadecimal digits (attempt ids, nonces, token ids)."""
    return value if len(value) == 32 and _HEX.fullmatch(value) else _refuse(what, "32 hexadecimal digits", value)


def sha256(value: str, what: str) -> str:
    """64 lower-case hexadecimal digits."""
    return value if len(value) == 64 and _HEX.fullmatch(value) else _refuse(what, "64 hexadecimal digits", value)


def snapshot_id(value: str) -> str:
    """A decimal number without leading zeros."""
    return value if _SNAPSHOT.fullmatch(value) else _refuse("snapshot id", "a decimal number", value)


def name(value: str, what: str, *, most: int = NAME_MAX_CHARACTERS) -> str:
    """Some text, not too long, without a NUL (which PostgreSQL cannot store)."""
    if 0 < len(value) <= most and "\x00" not in value:
        return value
    return _refuse(what, f"1 to {most} characters without NUL", value)


def reason(value: str) -> str:
    """Why something was done, for those who read the step log."""
    if len(value) <= REASON_MAX_CHARACTERS and "\x00" not in value:
        return value
    return _refuse("reason", f"at most {REASON_MAX_CHARACTERS} characters without NUL", value)


def _refuse(what: str, expected: str, got: str) -> str:
    raise InputError("identifier_invalid", f"the {what} cannot be accepted", expected=expected, got=ascii(got[:80]))
