"""The error envelope: the status of an error, and the one place where an error becomes a response."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pvdm.api.errors import kind_of, public_error
from pvdm.errors import Code, InputError, NotAllowedError, PvdmError, UnavailableError

RETRY_AFTER_SECONDS: Final = 5
RETRY_DETAIL: Final = "retry_after_seconds"
ALLOW_DETAIL: Final = "allow"

Headers = tuple[tuple[str, str], ...]

_STATUSES: Final[Mapping[str, int]] = {
    "conflict": 409,
    "rolled_back": 409,
    "input": 400,
    "verification": 422,
    "not_allowed": 403,
    "state_unknown": 500,
    "unavailable": 503,
    "bug": 500,
}
_BY_CODE: Final[Mapping[str, int]] = {
    Code.METHOD_NOT_ALLOWED: 405,
    Code.BODY_TOO_SLOW: 408,
    Code.CONTENT_TYPE_WRONG: 415,
    Code.RATE_LIMITED: 429,
    Code.TOO_MANY_REQUESTS_AT_ONCE: 429,
}
TOKEN_CODES: Final = frozenset(
    {
        Code.TOKEN_MISSING,
        Code.TOKEN_MALFORMED,
        Code.TOKEN_UNKNOWN,
        Code.TOKEN_REVOKED,
        Code.TOKEN_ROTATED,
        Code.TOKEN_EXPIRED,
    }
)


def status_of(error: BaseException) -> int:
    """The HTTP status of the error."""
    kind = kind_of(error)
    if not isinstance(error, PvdmError) or kind == "bug":
        return _STATUSES[kind]
    if isinstance(error, NotAllowedError) and error.code in TOKEN_CODES:
        return 401
    if isinstance(error, InputError | UnavailableError) and error.code in _BY_CODE:
        return _BY_CODE[error.code]
    if isinstance(error, InputError) and error.reason.endswith("_unknown"):
        return 404
    if isinstance(error, InputError) and error.reason.endswith("_too_large"):
        return 413
    return _STATUSES[kind]


def error_document(error: BaseException, request_id: str) -> dict[str, object]:
    """The inner part of the envelope."""
    return {**public_error(error).to_json(), "kind": kind_of(error), "request_id": request_id}


def error_headers(error: BaseException, status: int, challenge: str = "Bearer") -> Headers:
    """What a status asks for beside the body: how to authenticate, what is allowed, when to come back."""
    details: Mapping[str, str | int] = error.details if isinstance(error, PvdmError) else {}
    match status:
        case 401:
            return (("www-authenticate", challenge),)
        case 405:
            return (("allow", str(details.get(ALLOW_DETAIL, ""))),)
        case 429 | 503:
            return (("retry-after", str(details.get(RETRY_DETAIL, RETRY_AFTER_SECONDS))),)
        case _:
            return ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error on its way out."""

    status: int
    headers: Headers
    body: bytes


def refusal(error: BaseException, request_id: str) -> Refusal:
    """The error as the Steward's own API tells it."""
    status = status_of(error)
    return Refusal(status, error_headers(error, status), error_body(error, request_id))


def error_body(error: BaseException, request_id: str) -> bytes:
    """The whole envelope; ASCII only, so that no odd character can spoil it."""
    return json.dumps({"error": error_document(error, request_id)}).encode()
