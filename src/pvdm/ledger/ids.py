"""Checks of texts before they are stored. Each check returns its text or raises: `identifier_invalid`, unless noted."""

from __future__ import annotations

import re
from typing import Final, NoReturn

from pvdm.errors import Code

_WORKLOAD: Final = re.compile(r"(?!\.+\Z)[A-Za-z0-9._-]{1,128}")  # not dots alone: clients remove them from a path
_WORKLOAD_RULE: Final = "1 to 128 letters (A to Z, a to z), digits, dots, underscores and hyphens, not dots alone"
_HEX: Final = re.compile(r"[0-9a-f]+")
_SNAPSHOT: Final = re.compile(r"0|[1-9][0-9]{0,18}")
NAME_MAX_CHARACTERS: Final = 1024
REASON_MAX_CHARACTERS: Final = 4096


def require_workload_id(value: str) -> str:
    """1 to 128 letters (A to Z, a to z), digits, dots, underscores and hyphens, not dots alone."""
    return value if _WORKLOAD.fullmatch(value) else _refuse("workload id", _WORKLOAD_RULE, value)


def require_random_id(value: str, what: str) -> str:
    """128 random bits as 32 lower-case hexadecimal digits: attempt ids, nonces, token ids."""
    return value if len(value) == 32 and _HEX.fullmatch(value) else _refuse(what, "32 hexadecimal digits", value)


def require_sha256(value: str, what: str) -> str:
    """64 lower-case hexadecimal digits."""
    return value if len(value) == 64 and _HEX.fullmatch(value) else _refuse(what, "64 hexadecimal digits", value)


def require_snapshot_id(value: str) -> str:
    """A decimal number of at most 19 digits, without leading zeros."""
    return value if _SNAPSHOT.fullmatch(value) else _refuse("snapshot id", "a decimal number", value)


def require_name(value: str, what: str, *, most: int = NAME_MAX_CHARACTERS) -> str:
    """A text of 1 to `most` characters without NUL, which PostgreSQL cannot store."""
    if 0 < len(value) <= most and "\x00" not in value:
        return value
    return _refuse(what, f"1 to {most} characters without NUL", value)


def require_text_size(text: str, most: int, reason: str) -> str:
    """A text of at most `most` bytes in UTF-8. Raises `record_too_large` with this reason if there are more."""
    if (size := len(text.encode())) > most:
        raise Code.RECORD_TOO_LARGE(reason=reason, expected=f"at most {most} bytes", got=str(size))
    return text


def require_reason(value: str) -> str:
    """A text of limited length without NUL, perhaps empty: the reason of a change, for readers of the step log."""
    if len(value) <= REASON_MAX_CHARACTERS and "\x00" not in value:
        return value
    return _refuse("reason", f"at most {REASON_MAX_CHARACTERS} characters without NUL", value)


def _refuse(what: str, expected: str, got: str) -> NoReturn:
    raise Code.IDENTIFIER_INVALID(f"the {what} cannot be accepted", expected=expected, got=ascii(got[:80]))
