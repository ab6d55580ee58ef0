"""One table of the Steward's catalog over Iceberg's REST protocol: its metadata, and commits to it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, TypeAlias, TypeVar
from urllib.parse import quote

from pydantic import Field

from pvdm import fault
from pvdm.api.base import ResponseModel
from pvdm.client.responses import ERROR_TEXT_MAX_CHARACTERS, parse, read_error, read_response, unreadable
from pvdm.client.steward import StewardClient
from pvdm.client.wire import Call, Response, require_json
from pvdm.errors import (
    Code,
    ConflictError,
    InputError,
    NotAllowedError,
    PvdmError,
    StateUnknownError,
    UnavailableError,
    VerificationError,
)
from pvdm.lake.format.json_document import parse_json
from pvdm.lake.stores.s3_client import REGION, S3Settings, settings_from_config

Document: TypeAlias = dict[str, Any]  # a table's metadata in JSON; numbers keep their spelling, for `lake.format`

_M = TypeVar("_M", bound=ResponseModel)
_LEVEL_SEPARATOR: Final = "\x1f"  # between the levels of a namespace, in Iceberg's REST protocol
_ERROR_CLASSES: Final[Mapping[str, type[PvdmError]]] = {
    "AlreadyExistsException": ConflictError,
    "BadRequestException": InputError,
    "CommitFailedException": ConflictError,
    "CommitStateUnknownException": StateUnknownError,
    "ForbiddenException": NotAllowedError,
    "InternalServerError": VerificationError,
    "NoSuchNamespaceException": InputError,
    "NoSuchTableException": InputError,
    "NotAuthorizedException": NotAllowedError,
    "ServiceUnavailableException": UnavailableError,
    "TooManyRequestsException": UnavailableError,
    "ValidationException": InputError,
}


class _TableResponse(ResponseModel):
    metadata: Document


class _ConfigResponse(ResponseModel):
    config: dict[str, str]


class _CredentialsResponse(ResponseModel):
    credentials: Annotated[tuple[_ConfigResponse, ...], Field(alias="storage-credentials")]


class _CatalogConfigResponse(ResponseModel):
    defaults: dict[str, str]


class _CatalogErrorView(ResponseModel):
    type: str | None = None
    message: str
    pvdm_code: Annotated[str | None, Field(alias="pvdm-code")] = None


class _CatalogErrorResponse(ResponseModel):
    error: _CatalogErrorView


class TableClient:
    """A table by the levels of its namespace and its name, with the rights of a client's token."""

    def __init__(self, client: StewardClient, levels: Sequence[str], name: str) -> None:
        self._wire = client._wire
        self._path = f"{_tables_path(levels)}/{quote(name, safe='')}"

    def load(self, *, heads_only: bool = False) -> Document:
        """The table's metadata, as the token's role may see it; with `heads_only`, only heads of branches and tags."""
        call = _call("GET", self._path, query=(("snapshots", "refs"),) if heads_only else ())
        fault.point("client.before_load")
        document = self._wire.send(call, lambda response: _read_metadata(response, "the table"))
        fault.point("client.after_load")
        return document

    def storage(self) -> S3Settings:
        """The settings for the table's files in an object store, with vended credentials if there are any."""
        load, vended = _call("GET", self._path), _call("GET", f"{self._path}/credentials")
        config = self._wire.send(load, lambda response: _read_as(_ConfigResponse, response, "the table")).config
        found = self._wire.send(vended, lambda response: _read_as(_CredentialsResponse, response, "the credentials"))
        for credentials in found.credentials:
            config = config | credentials.config
        return settings_from_config(config)

    def commit(self, requirements: Sequence[object], updates: Sequence[object]) -> Document:
        """Commit the updates if every requirement holds; returns the new metadata."""
        lost_hint = "load the table: the new snapshot is among its snapshots or not"
        body = {"requirements": list(requirements), "updates": list(updates)}
        fault.point("client.before_commit")
        call = _call("POST", self._path, lost_hint, content=json.dumps(body).encode(), repeatable=False)
        document = self._wire.send(call, lambda response: _read_metadata(response, "the commit"))
        fault.point("client.after_commit")
        return document


def create_namespace(client: StewardClient, levels: Sequence[str], properties: Mapping[str, str]) -> None:
    """Create a namespace. Raises `ConflictError` if it exists."""
    body = {"namespace": list(levels), "properties": dict(properties)}
    _create(client, "/catalog/v1/namespaces", body, "load the namespace: it exists or it does not")


def create_table(client: StewardClient, levels: Sequence[str], request: Mapping[str, object]) -> None:
    """Create a table from Iceberg's `CreateTableRequest`. Raises `ConflictError` if it exists."""
    _create(client, _tables_path(levels), request, "load the table: it exists or it does not")


def _create(client: StewardClient, path: str, body: Mapping[str, object], lost_hint: str) -> None:
    call = _call("POST", path, lost_hint, content=json.dumps(body).encode(), repeatable=False)
    client._wire.send(call, lambda response: require_json(response, "the catalog's answer"))


def uses_object_store(client: StewardClient) -> bool:
    """Whether the Steward's tables are in an object store, for which engines need a library."""
    call, what = _call("GET", "/catalog/v1/config"), "the catalog's configuration"
    return REGION in client._wire.send(call, lambda response: _read_as(_CatalogConfigResponse, response, what)).defaults


def _call(method: str, path: str, lost_hint: str = "", **others: Any) -> Call:
    """A call of the catalog, whose errors are in Iceberg's form."""
    return Call(method, path, lost_hint, read_refusal=_read_refusal, **others)


def _tables_path(levels: Sequence[str]) -> str:
    """The path of a namespace's tables."""
    return f"/catalog/v1/namespaces/{quote(_LEVEL_SEPARATOR.join(levels), safe='')}/tables"


def split_name(table: str) -> tuple[tuple[str, ...], str]:
    """Split `namespace.name` into the levels of the namespace and the name of the table."""
    *levels, name = table.split(".")
    if not levels or not all((*levels, name)):
        raise Code.IDENTIFIER_INVALID(reason="table_name_invalid", got=ascii(table)[:80])
    return tuple(levels), name


def _read_metadata(response: Response, what: str) -> Document:
    body = require_json(response, what)
    try:
        value = parse_json(body, what=what)
    except InputError as error:
        raise unreadable(what, "one JSON value", error.reason) from None
    return read_response(_TableResponse, value).metadata


def _read_as(model: type[_M], response: Response, what: str) -> _M:
    return read_response(model, parse(require_json(response, what), what))


def _read_refusal(response: Response) -> PvdmError:
    """Read an error in Iceberg's form; or in the Steward's own form, which it uses for invalid HTTP on every path."""
    error = read_response(_CatalogErrorResponse, parse(response.body, "the catalog's error")).error
    if error.type is None:
        return read_error(response.body, request_id=response.request_id)
    error_class = _ERROR_CLASSES.get(error.type, PvdmError)
    return error_class(error.pvdm_code or "catalog_refused", error.message[:ERROR_TEXT_MAX_CHARACTERS])
