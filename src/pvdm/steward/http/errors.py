"""Errors as responses: their status, and their form in the Steward's own API and in Iceberg's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pvdm.api.errors import kind_of, public_error
from pvdm.errors import Code, InputError, NotAllowedError, PvdmError, UnavailableError

RETRY_AFTER_SECONDS: Final = 5
ALLOW_DETAIL: Final = "allow"

Headers = tuple[tuple[str, str], ...]

_STATUS_BY_KIND: Final[Mapping[str, int]] = {
    "conflict": 409,
    "rolled_back": 409,
    "segment_ended": 409,
    "input": 400,
    "verification": 422,
    "not_allowed": 403,
    "state_unknown": 500,
    "unavailable": 503,
    "bug": 500,
}
_STATUS_BY_CODE: Final[Mapping[str, int]] = {
    Code.METHOD_NOT_ALLOWED: 405,
    Code.BODY_TOO_SLOW: 408,
    Code.CONTENT_TYPE_WRONG: 415,
    Code.RATE_LIMITED: 429,
    Code.TOO_MANY_REQUESTS_AT_ONCE: 429,
}
_UNUSABLE_TOKEN_CODES: Final = {Code.TOKEN_UNKNOWN, Code.TOKEN_REVOKED, Code.TOKEN_ROTATED, Code.TOKEN_EXPIRED}
TOKEN_CODES: Final = frozenset({Code.TOKEN_MISSING, Code.TOKEN_MALFORMED} | _UNUSABLE_TOKEN_CODES)

# Status and Iceberg exception for these codes and reasons. For all others they depend on the error's kind.
_CATALOG_RESPONSES: Final[Mapping[str, tuple[int, str]]] = {
    Code.NAMESPACE_UNKNOWN: (404, "NoSuchNamespaceException"),
    Code.TABLE_UNKNOWN: (404, "NoSuchTableException"),
    Code.VIEW_UNKNOWN: (404, "NoSuchViewException"),
    Code.WAREHOUSE_UNKNOWN: (404, "NotFoundException"),
    Code.ROUTE_UNKNOWN: (404, "NotFoundException"),
    Code.METHOD_NOT_ALLOWED: (405, "UnsupportedOperationException"),
    Code.ALREADY_EXISTS: (409, "AlreadyExistsException"),
    "view_dialect_twice": (400, "IllegalArgumentException"),  # the type that Iceberg's Java client expects
    Code.METADATA_FILE_MISSING: (404, "NotFoundException"),
    # The configured folders are not those of the tables. The caller cannot change that, so it is no client error.
    Code.METADATA_FILE_FOREIGN: (503, "ServiceUnavailableException"),
    Code.NAMESPACE_NOT_EMPTY: (409, "NamespaceNotEmptyException"),
    "namespace_properties_overlap": (422, "UnprocessableEntityException"),
    Code.BODY_TOO_SLOW: (408, "BadRequestException"),
    "body_too_large": (413, "BadRequestException"),
    Code.CONTENT_TYPE_WRONG: (415, "BadRequestException"),
}
_CATALOG_BY_KIND: Final[Mapping[str, tuple[int, str]]] = {
    "conflict": (409, "CommitFailedException"),
    "rolled_back": (409, "CommitFailedException"),
    "segment_ended": (409, "CommitFailedException"),
    "input": (400, "BadRequestException"),
    "not_allowed": (403, "ForbiddenException"),
    "state_unknown": (500, "CommitStateUnknownException"),
    "verification": (500, "InternalServerError"),
    "bug": (500, "InternalServerError"),
}

# An input error whose reason begins with one of these is sent as Iceberg's ValidationException.
_VALIDATION_PREFIXES: Final = ("staging_", "view_", "schema_", "spec_", "sort_", "snapshot_", "format_")


def status_of(error: BaseException) -> int:
    """The HTTP status of the error."""
    kind = kind_of(error)
    if not isinstance(error, PvdmError) or kind == "bug":
        return _STATUS_BY_KIND[kind]
    if isinstance(error, NotAllowedError) and error.code in TOKEN_CODES:
        return 401
    if isinstance(error, InputError | UnavailableError) and error.code in _STATUS_BY_CODE:
        return _STATUS_BY_CODE[error.code]
    if isinstance(error, InputError) and error.reason.endswith(("_unknown", "_too_large")):
        return 404 if error.reason.endswith("_unknown") else 413
    return _STATUS_BY_KIND[kind]


def error_document(error: BaseException, request_id: str) -> dict[str, object]:
    """The value of `error` in the body of an error response."""
    return {**public_error(error).to_json(), "kind": kind_of(error), "request_id": request_id}


def error_headers(error: BaseException, status: int, challenge: str = "Bearer") -> Headers:
    """The headers that a status needs: how to authenticate (`challenge`), which methods are allowed, when to retry."""
    details: Mapping[str, str | int] = error.details if isinstance(error, PvdmError) else {}
    match status:
        case 401:
            return (("www-authenticate", challenge),)
        case 405:
            return (("allow", str(details.get(ALLOW_DETAIL, ""))),)
        case 429 | 503:
            return (("retry-after", str(details.get("retry_after_seconds", RETRY_AFTER_SECONDS))),)
        case _:
            return ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error as an HTTP response."""

    status: int
    headers: Headers
    body: bytes


def refusal(error: BaseException, request_id: str) -> Refusal:
    """The error in the form of the Steward's own API."""
    status = status_of(error)
    return Refusal(status, error_headers(error, status), error_body(error, request_id))


def error_body(error: BaseException, request_id: str) -> bytes:
    """The body of an error response of the Steward's own API, in ASCII only."""
    return json.dumps({"error": error_document(error, request_id)}).encode()


def catalog_refusal(error: BaseException) -> Refusal:
    """The error in Iceberg's form; the message includes the hint, since clients show only the message."""
    status, exception = _status_and_type(error)
    public = public_error(error)
    # For a missing file the message is Iceberg's own, since people search for it.
    missing = public.code == Code.METADATA_FILE_MISSING
    message = f"Failed to open input stream for file: {public.expected}" if missing else str(public)
    text = message if public.hint is None else f"{message}. {public.hint[:1].upper()}{public.hint[1:]}"
    document = {"message": text, "type": exception, "code": status, "pvdm-code": public.reason}
    return Refusal(status, error_headers(error, status), json.dumps({"error": document}).encode())


def _status_and_type(error: BaseException) -> tuple[int, str]:
    """The HTTP status and the name of Iceberg's exception."""
    code, reason = (error.code, error.reason) if isinstance(error, PvdmError) else ("", "")
    kind = kind_of(error)
    response = _CATALOG_RESPONSES.get(reason) or _CATALOG_RESPONSES.get(code)
    if kind != "bug" and response is not None:
        return response
    if kind == "not_allowed" and code in TOKEN_CODES:
        return 401, "NotAuthorizedException"
    if kind == "unavailable":
        status = status_of(error)
        return status, "TooManyRequestsException" if status == 429 else "ServiceUnavailableException"
    if isinstance(error, InputError) and reason.startswith(_VALIDATION_PREFIXES):
        return 400, "ValidationException"
    return _CATALOG_BY_KIND[kind]
