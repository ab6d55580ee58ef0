"""One table of the Steward's catalog over Iceberg's REST protocol: its document, and commits to it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import quote

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

Document: TypeAlias = dict[str, Any]
"""A table's metadata in JSON; `lake.format` judges it."""

# The catalog's refusals come in Iceberg's form, whatever their status.
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

    def load(self) -> Document:
        """The table's metadata document, as the token's bearer may see it."""
        call = Call("GET", self._path, also_answers=_REFUSALS)
        return self._wire.ask(call, lambda answer: _metadata(answer, "the table"))

    def commit(self, requirements: Sequence[object], updates: Sequence[object]) -> Document:
        """The document after these updates, made at once and only if every requirement holds."""
        content = json.dumps({"requirements": list(requirements), "updates": list(updates)}).encode()
        look = "load the table: the new snapshot is among its snapshots or not"
        call = Call("POST", self._path, look, content=content, repeatable=False, also_answers=_REFUSALS)
        return self._wire.ask(call, lambda answer: _metadata(answer, "the commit"))


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
    value = parse(require_json(answer, what), what)
    if answer.status >= 400:
        return _refusal(value)
    found = Reading(value, what).value("metadata")
    if not isinstance(found, dict):
        raise unreadable(what, "a metadata document", "something else")
    return found


def _refusal(value: object) -> PvdmError:
    """The catalog's own words; its code stands beside Iceberg's."""
    fields = Reading(value, "the catalog's error").reading("error")
    code = fields.text("pvdm-code") if fields.has("pvdm-code") else "catalog_refused"
    kind = _KINDS.get(fields.text("type"), PvdmError)
    return kind(code, fields.text("message")[:4_096])
