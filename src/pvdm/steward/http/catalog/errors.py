"""Errors of the catalog as Iceberg's clients read them: `{"error": {"message", "type", "code"}}`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from pvdm.api.errors import kind_of, public_error
from pvdm.errors import InputError, PvdmError
from pvdm.steward.http.errors import TOKEN_CODES, Refusal, error_headers, status_of

# It gets Iceberg's own message, which people search for.
_FILE_MISSING: Final = "metadata_file_missing"
# Codes that have a status and a type of their own; all others go by the kind of the error.
_BY_CODE: Final[Mapping[str, tuple[int, str]]] = {
    "namespace_unknown": (404, "NoSuchNamespaceException"),
    "table_unknown": (404, "NoSuchTableException"),
    "view_unknown": (404, "NoSuchViewException"),
    "warehouse_unknown": (404, "NotFoundException"),
    "route_unknown": (404, "NotFoundException"),
    "method_not_allowed": (405, "UnsupportedOperationException"),
    "operation_unsupported": (406, "UnsupportedOperationException"),
    "namespace_exists": (409, "AlreadyExistsException"),
    "table_exists": (409, "AlreadyExistsException"),
    "table_uuid_taken": (409, "AlreadyExistsException"),
    "view_exists": (409, "AlreadyExistsException"),
    "view_uuid_taken": (409, "AlreadyExistsException"),
    "name_of_table": (409, "AlreadyExistsException"),
    "name_of_view": (409, "AlreadyExistsException"),
    # Java's client expects this type.
    "view_dialect_twice": (400, "IllegalArgumentException"),
    "requirement_table_exists": (409, "AlreadyExistsException"),
    _FILE_MISSING: (404, "NotFoundException"),
    # The Steward's folders are not those of its tables: the caller cannot change that.
    "metadata_file_foreign": (503, "ServiceUnavailableException"),
    "namespace_not_empty": (409, "NamespaceNotEmptyException"),
    "namespace_properties_overlap": (422, "UnprocessableEntityException"),
    "body_too_slow": (408, "BadRequestException"),
    "body_too_large": (413, "BadRequestException"),
    "content_type_wrong": (415, "BadRequestException"),
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
    inner = {"message": text, "type": kind, "code": status, "pvdm-code": shown.code}
    return Refusal(status, error_headers(error, status), json.dumps({"error": inner}).encode())


def _status_and_type(error: BaseException) -> tuple[int, str]:
    code = error.code if isinstance(error, PvdmError) else ""
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
