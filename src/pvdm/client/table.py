"""One table of the Steward's catalog over Iceberg's REST protocol: its document, and commits to it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from pvdm.client.errors import error_of
from pvdm.client.reading import Reading, parse, unreadable
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
        return self._wire.ask(call, lambda answer: _metadata(answer, "the table"))

    def storage(self) -> S3Settings:
        """How the bearer reaches the table's files in an object store, with credentials where some are vended."""
        load = Call("GET", self._path, also_answers=_REFUSALS, refusal=_refused)
        config = self._wire.ask(load, lambda answer: _config(answer, "the table"))
        vended = Call("GET", f"{self._path}/credentials", also_answers=_REFUSALS, refusal=_refused)
        for own in self._wire.ask(vended, lambda answer: _credentials(answer, "the credentials")):
            config |= own
        return settings_of(config)

    def commit(self, requirements: Sequence[object], updates: Sequence[object]) -> Document:
        """The document after these updates, made at once and only if every requirement holds."""
        content = json.dumps({"requirements": list(requirements), "updates": list(updates)}).encode()
        look = "load the table: the new snapshot is among its snapshots or not"
        call = Call(
            "POST", self._path, look, content=content, repeatable=False, also_answers=_REFUSALS, refusal=_refused
        )
        return self._wire.ask(call, lambda answer: _metadata(answer, "the commit"))


def create_namespace(client: StewardClient, levels: Sequence[str], properties: Mapping[str, str]) -> None:
    """Create a namespace; raises `ConflictError` where it exists."""
    body = {"namespace": list(levels), "properties": dict(properties)}
    _create(client, "/catalog/v1/namespaces", body, "load the namespace: it exists or it does not")


def create_table(client: StewardClient, levels: Sequence[str], request: Mapping[str, object]) -> None:
    """Create a table from Iceberg's `CreateTableRequest`; raises `ConflictError` where it exists."""
    namespace = quote(_SEPARATOR.join(levels), safe="")
    _create(client, f"/catalog/v1/namespaces/{namespace}/tables", request, "load the table: it exists or it does not")


def _create(client: StewardClient, path: str, body: Mapping[str, object], look: str) -> None:
    content = json.dumps(body).encode()
    call = Call("POST", path, look, content=content, repeatable=False, also_answers=_REFUSALS, refusal=_refused)
    client._wire.ask(call, lambda answer: _created(answer, "the catalog's answer"))


def uses_object_store(client: StewardClient) -> bool:
    """Whether the Steward's tables lie in an object store; engines need a library for it."""
    call = Call("GET", "/catalog/v1/config", also_answers=_REFUSALS, refusal=_refused)
    return REGION in client._wire.ask(call, lambda answer: _defaults(answer, "the catalog's configuration"))


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


def _metadata(answer: Answer, what: str) -> Document | PvdmError:
    body = require_json(answer, what)
    if answer.status >= 400:
        return _refusal(parse(body, what))
    try:
        value = parse_json(body, what=what)
    except InputError as error:
        raise unreadable(what, "one JSON value", error.code) from None
    found = Reading(value, what).value("metadata")
    if not isinstance(found, dict):
        raise unreadable(what, "a metadata document", "something else")
    return found


def _created(answer: Answer, what: str) -> PvdmError | None:
    value = parse(require_json(answer, what), what)
    return _refusal(value) if answer.status >= 400 else None


def _config(answer: Answer, what: str) -> dict[str, str] | PvdmError:
    value = parse(require_json(answer, what), what)
    if answer.status >= 400:
        return _refusal(value)
    return _texts(Reading(value, what).value("config"), what)


def _credentials(answer: Answer, what: str) -> list[dict[str, str]] | PvdmError:
    value = parse(require_json(answer, what), what)
    if answer.status >= 400:
        return _refusal(value)
    listed = Reading(value, what).items("storage-credentials", lambda each: Reading(each, what).value("config"))
    return [_texts(each, what) for each in listed]


def _defaults(answer: Answer, what: str) -> dict[str, str] | PvdmError:
    value = parse(require_json(answer, what), what)
    if answer.status >= 400:
        return _refusal(value)
    return _texts(Reading(value, what).value("defaults"), what)


def _texts(found: object, what: str) -> dict[str, str]:
    if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
        raise unreadable(what, "texts by their names", "something else")
    return dict(found)


def _refused(answer: Answer) -> PvdmError:
    """A refusal at the last try; a door before the catalog refuses in the Steward's own form."""
    value = parse(answer.body, "the catalog's error")
    fields = Reading(value, "the catalog's error").reading("error")
    if not fields.has("type"):
        return error_of(Reading(value, "the catalog's error").value("error"), request_id=answer.request_id)
    return _refusal(value)


def _refusal(value: object) -> PvdmError:
    """The catalog's own words; its code stands beside Iceberg's."""
    fields = Reading(value, "the catalog's error").reading("error")
    code = fields.text("pvdm-code") if fields.has("pvdm-code") else "catalog_refused"
    kind = _KINDS.get(fields.text("type"), PvdmError)
    return kind(code, fields.text("message")[:4_096])
