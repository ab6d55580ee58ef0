"""The Steward's error envelope, brought back as the error it was: the same class, code, words and next step."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pvdm.client.reading import Reading, parse, unreadable
from pvdm.errors import (
    ConflictError,
    InputError,
    NotAllowedError,
    PvdmError,
    RolledBackError,
    StateUnknownError,
    UnavailableError,
    VerificationError,
    comparison,
)

ERROR_TEXT_MAX_CHARACTERS: Final = 4_096
ERROR_DETAILS_MAX: Final = 64

KINDS: Final = MappingProxyType(
    {
        "input": InputError,
        "verification": VerificationError,
        "rolled_back": RolledBackError,
        "conflict": ConflictError,
        "not_allowed": NotAllowedError,
        "state_unknown": StateUnknownError,
        "unavailable": UnavailableError,
        "bug": PvdmError,
    }
)

_CODE: Final = re.compile(r"[a-z0-9_]{1,64}")
_DETAIL: Final = re.compile(r"[a-z0-9_]{1,64}")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
# What the constructor of an error takes by these names is no detail.
_RESERVED: Final = frozenset({"self", "code", "message", "expected", "got", "hint"})


def read_error(body: bytes, *, request_id: str) -> PvdmError:
    """The error of an answer's body; the request id is among its details."""
    envelope = Reading(parse(body, "the error"), "the error's envelope")
    return error_of(envelope.value("error"), request_id=request_id)


def error_of(value: object, *, request_id: str) -> PvdmError:
    """The error of one envelope."""
    fields = Reading(value, "the error")
    code, name = fields.text("code"), fields.text("kind")
    if not _CODE.fullmatch(code):
        raise unreadable("the code of the error", _CODE.pattern, "another string")
    if name not in KINDS:
        raise unreadable("the kind of the error", ", ".join(KINDS), "another string")
    expected, got, hint = (_optional(fields, key) for key in ("expected", "got", "hint"))
    message = _without_tail(_plain(fields.text("message")), expected, got)
    details = _details(fields.value("details") if fields.has("details") else {})
    given = fields.text("request_id") if fields.has("request_id") else request_id
    details["request_id"] = _plain(given)[:64]
    return KINDS[name](code, message, expected=expected, got=got, hint=hint, **details)


def _optional(fields: Reading, key: str) -> str | None:
    return _plain(fields.text(key)) if fields.has(key) else None


def _plain(text: str) -> str:
    """Not too long, and nothing in it that steers a terminal."""
    return _CONTROL.sub("�", text[:ERROR_TEXT_MAX_CHARACTERS])


def _without_tail(message: str, expected: str | None, got: str | None) -> str:
    """The envelope's message ends with what was expected and got; the error adds that itself."""
    tail = comparison(expected, got)
    return message.removesuffix(f": {tail}") if tail else message


def _details(value: object) -> dict[str, str | int]:
    """Words and whole numbers; a detail of another kind is for a newer client."""
    found: dict[str, str | int] = {}
    if not isinstance(value, Mapping):
        return found
    for name, detail in list(value.items())[:ERROR_DETAILS_MAX]:
        if not _DETAIL.fullmatch(name) or name in _RESERVED:
            continue
        if isinstance(detail, str):
            found[name] = _plain(detail)
        elif isinstance(detail, int) and not isinstance(detail, bool):
            found[name] = detail
    return found
