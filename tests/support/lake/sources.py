"""Source tables for tests that are not about sources: a contract is refused if its source cannot be used."""

from __future__ import annotations

from typing import Any

from pvdm.catalog.commit import Change
from pvdm.errors import InputError
from pvdm.lake.format.json_document import dump_json, parse_json
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.ledger.record.tokens import Grant
from pvdm.model.contract import parse_contract
from pvdm.steward.notary import Notary
from tests.support.catalog.core import request


def empty_source(notary: Notary, grant: Grant) -> str:
    """The UUID of `raw.orders`, which most contracts name. It is created without rows if it does not exist."""
    catalog, levels, name = notary.catalog, ("raw",), "orders"
    try:
        return str(catalog.states.get(levels, name).row.table_uuid)
    except InputError:
        catalog.namespaces.create(grant, levels, {"pvdm.domain": "sales"})
        catalog.tables.create(grant, levels, {"name": name, **request(2)})
        return str(catalog.states.get(levels, name).row.table_uuid)


def provide_source(notary: Notary, grant: Grant, contract: str, like: TableMetadata) -> None:
    """Create the contract's source, without rows and with the target's columns, if it does not exist.

    Its namespace must exist, or be `raw`, which is created too.
    """
    try:
        table = parse_contract(contract.encode()).boundary.source.table
    except InputError:
        return  # the Steward refuses such a contract with the reason
    if table is None:
        return
    *levels, name = table.split(".")
    catalog = notary.catalog
    try:
        catalog.namespaces.get(grant, tuple(levels))
    except InputError:
        if levels != ["raw"]:
            return
        catalog.namespaces.create(grant, tuple(levels), {"pvdm.domain": "sales"})
    try:
        catalog.states.get(tuple(levels), name)
    except InputError:
        body: Any = {"name": name, "schema": _schema(like), "properties": {"format-version": str(like.format_version)}}
        catalog.tables.create(grant, tuple(levels), body)


def follow_target(notary: Notary, grant: Grant, contract: str, after: TableMetadata) -> None:
    """Give a source without rows the columns of the target's next metadata."""
    table = parse_contract(contract.encode()).boundary.source.table
    if table is None:
        return
    *levels, name = table.split(".")
    try:
        found = notary.catalog.states.get(tuple(levels), name)
    except InputError:
        return
    if found.metadata.snapshots or found.metadata.current_schema.meaning == after.current_schema.meaning:
        return
    updates: Any = [
        {"action": "add-schema", "schema": _schema(after)},
        {"action": "set-current-schema", "schema-id": -1},
    ]
    notary.catalog.tables.commit(grant, [Change(tuple(levels), name, (), updates)])


def _schema(metadata: TableMetadata) -> Any:
    return parse_json(dump_json(dict(metadata.current_schema.raw)))
