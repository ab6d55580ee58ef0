"""One table of the Steward's catalog over Iceberg's REST protocol: its document, and commits to it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, TypeAlias, TypeVar
from urllib.parse import quote

from pydantic import Field

from pvdm.api.base import ResponseModel
from pvdm.client.responses import parse, read_error, read_response, unreadable
from pvdm.client.steward import StewardClient
from pvdm.client.wire import Answer, Call, require_json
from pvdm.errors import (
    ConflictError,
    InputError,
    NotAllowedError,
    PvdmError,
    StateUnknownError,
    UnavailableError,
    VerificationError,
)
from pvdm.lake.format.json.document import parse_json
from pvdm.lake.stores.client_settings import REGION, settings_of
from pvdm.lake.stores.s3_client import S3Settings

Document: TypeAlias = dict[str, Any]
"""A table's metadata in JSON, its numbers as they are spelled; `lake.format` judges it."""

_M = TypeVar("_M", bound=ResponseModel)
# The catalog's refusals come in Iceberg's form, whatever their status; those that are left out may be tried again.
_REFUSALS: Final = frozenset(range(400, 600)) - {401, 429, 502, 503, 504}
_SEPARATOR: Final = "\x1f"
_KINDS: Final[Mapping[str, type[PvdmError]]] = {
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
    """A table, with the rights of a client's token."""

    def __init__(self, client: StewardClient, levels: Sequence[str], name: str) -> None:
        self._wire = client._wire
        namespace = quote(_SEPARATOR.join(levels), safe="")
        self._path = f"/catalog/v1/namespaces/{namespace}/tables/{quote(name, safe='')}"

    def load(self, *, heads_only: bool = False) -> Document:
        """The table's metadata document, as the token's bearer may see it.

        With `heads_only` it lists the snapshots that refs point to, and not the history behind them.
        """
        query = (("snapshots", "refs"),) if heads_only else ()
        call = Call("GET", self._path, query=query, also_answers=_REFUSALS, refusal=_refused)
        return self._wire.ask(call, lambda answer: _read_metadata(answer, "the table"))

    def storage(self) -> S3Settings:
        """How the bearer reaches the table's files in an object store, with credentials where some are vended."""
        load = Call("GET", self._path, also_answers=_REFUSALS, refusal=_refused)
        config = self._wire.ask(load, lambda answer: _read_as(_ConfigResponse, answer, "the table")).config
        vended = Call("GET", f"{self._path}/credentials", also_answers=_REFUSALS, refusal=_refused)
        found = self._wire.ask(vended, lambda answer: _read_as(_CredentialsResponse, answer, "the credentials"))
        for own in found.credentials:
            config = config | own.config
        return settings_of(config)

    def commit(self, requirements: Sequence[object], updates: Sequence[object]) -> Document:
        """The document after these updates, made at once and only if every requirement holds."""
        content = json.dumps({"requirements": list(requirements), "updates": list(updates)}).encode()
        look = "load the table: the new snapshot is among its snapshots or not"
        call = Call(
            "POST", self._path, look, content=content, repeatable=False, also_answers=_REFUSALS, refusal=_refused
        )
        return self._wire.ask(call, lambda answer: _read_metadata(answer, "the commit"))


def uses_object_store(client: StewardClient) -> bool:
    """Whether the Steward's tables lie in an object store; engines need a library for it."""
    call = Call("GET", "/catalog/v1/config", also_answers=_REFUSALS, refusal=_refused)
    what = "the catalog's configuration"
    return REGION in client._wire.ask(call, lambda answer: _read_as(_CatalogConfigResponse, answer, what)).defaults


def split_name(table: str) -> tuple[tuple[str, ...], str]:
    """Namespace and name of `namespace.name`."""
    *levels, name = table.split(".")
    if not levels or not all((*levels, name)):
        raise InputError(
            "table_name_invalid",
            "the table's name cannot be accepted",
            expected="namespace.name",
            got=ascii(table)[:80],
        )
    return tuple(levels), name


def _read_metadata(answer: Answer, what: str) -> Document | PvdmError:
    body = require_json(answer, what)
    if answer.status >= 400:
        return _catalog_error(answer)
    try:
        value = parse_json(body, what=what)
    except InputError as error:
        raise unreadable(what, "one JSON value", error.code) from None
    return read_response(_TableResponse, value).metadata


def _read_as(model: type[_M], answer: Answer, what: str) -> _M | PvdmError:
    body = require_json(answer, what)
    return _catalog_error(answer) if answer.status >= 400 else read_response(model, parse(body, what))


def _refused(answer: Answer) -> PvdmError:
    """The error of a last try; the Steward's own limits answer in its own envelope, even for the catalog's paths."""
    error = read_response(_CatalogErrorResponse, parse(answer.body, "the catalog's error")).error
    if error.type is None:
        return read_error(answer.body, request_id=answer.request_id)
    return _catalog_error(answer)


def _catalog_error(answer: Answer) -> PvdmError:
    """The catalog's own error; its code is beside Iceberg's."""
    error = read_response(_CatalogErrorResponse, parse(answer.body, "the catalog's error")).error
    kind = _KINDS.get(error.type or "", PvdmError)
    return kind(error.pvdm_code or "catalog_refused", error.message[:4_096])
