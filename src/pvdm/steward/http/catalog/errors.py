"""Errors of the catalog as Iceberg's clients read them: `{"error": {"message", "type", "code"}}`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from pvdm.api.errors import kind_of, public_error
from pvdm.errors import Code, InputError, PvdmError
from pvdm.steward.http.errors import TOKEN_CODES, Refusal, error_headers, status_of

# It gets Iceberg's own message, which people search for.
_FILE_MISSING: Final = Code.METADATA_FILE_MISSING
# Codes that have a status and a type of their own; all others go by the kind of the error.
_BY_CODE: Final[Mapping[str, tuple[int, str]]] = {
    Code.NAMESPACE_UNKNOWN: (404, "NoSuchNamespaceException"),
    Code.TABLE_UNKNOWN: (404, "NoSuchTableException"),
    Code.VIEW_UNKNOWN: (404, "NoSuchViewException"),
    Code.WAREHOUSE_UNKNOWN: (404, "NotFoundException"),
    Code.ROUTE_UNKNOWN: (404, "NotFoundException"),
    Code.METHOD_NOT_ALLOWED: (405, "UnsupportedOperationException"),
    Code.NAMESPACE_EXISTS: (409, "AlreadyExistsException"),
    Code.TABLE_EXISTS: (409, "AlreadyExistsException"),
    Code.TABLE_UUID_TAKEN: (409, "AlreadyExistsException"),
    Code.VIEW_EXISTS: (409, "AlreadyExistsException"),
    Code.VIEW_UUID_TAKEN: (409, "AlreadyExistsException"),
    Code.NAME_OF_TABLE: (409, "AlreadyExistsException"),
    Code.NAME_OF_VIEW: (409, "AlreadyExistsException"),
    # Java's client expects this type.
    Code.VIEW_DIALECT_TWICE: (400, "IllegalArgumentException"),
    Code.REQUIREMENT_TABLE_EXISTS: (409, "AlreadyExistsException"),
    _FILE_MISSING: (404, "NotFoundException"),
    # The Steward's folders are not those of its tables: the caller cannot change that.
    Code.METADATA_FILE_FOREIGN: (503, "ServiceUnavailableException"),
    Code.NAMESPACE_NOT_EMPTY: (409, "NamespaceNotEmptyException"),
    Code.NAMESPACE_PROPERTIES_OVERLAP: (422, "UnprocessableEntityException"),
    Code.BODY_TOO_SLOW: (408, "BadRequestException"),
    Code.BODY_TOO_LARGE: (413, "BadRequestException"),
    Code.CONTENT_TYPE_WRONG: (415, "BadRequestException"),
}
_BY_KIND: Final[Mapping[str, tuple[int, str]]] = {
    "conflict": (409, "CommitFailedException"),
    "rolled_back": (409, "CommitFailedException"),
    "input": (400, "BadRequestException"),
    "not_allowed": (403, "ForbiddenException"),
    "state_unknown": (500, "CommitStateUnknownException"),
    "verification": (500, "InternalServerError"),
    "bug": (500, "InternalServerError"),
}

_INVALID: Final = ("staging_", "view_", "schema_", "spec_", "sort_", "snapshot_", "format_")


def refusal(error: BaseException) -> Refusal:
    """The error with its status, its type and its sentence; the hint is part of it, since clients show nothing else."""
    status, kind = _status_and_type(error)
    shown = public_error(error)
    message = f"Failed to open input stream for file: {shown.expected}" if shown.code == _FILE_MISSING else str(shown)
    text = message if shown.hint is None else f"{message}. {shown.hint[:1].upper()}{shown.hint[1:]}"
    inner = {"message": text, "type": kind, "code": status, "pvdm-code": shown.reason}
    return Refusal(status, error_headers(error, status), json.dumps({"error": inner}).encode())


def _status_and_type(error: BaseException) -> tuple[int, str]:
    code = error.reason if isinstance(error, PvdmError) else ""
    kind = kind_of(error)
    if kind != "bug" and code in _BY_CODE:
        return _BY_CODE[code]
    if kind == "not_allowed" and code in TOKEN_CODES:
        return 401, "NotAuthorizedException"
    if kind == "unavailable":
        status = status_of(error)
        return status, "TooManyRequestsException" if status == 429 else "ServiceUnavailableException"
    if isinstance(error, InputError) and code.startswith(_INVALID):
        return 400, "ValidationException"
    return _BY_KIND[kind]
