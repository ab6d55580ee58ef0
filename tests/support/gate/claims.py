"""Contracts with claims, sources that are created again, and renamed columns, for tests of claims.

A claim is the part of a target that an append workload reserves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog

from pvdm.api.work import AttemptView
from pvdm.client import StewardClient
from pvdm.errors import PvdmError
from pvdm.model.role import Role
from tests.support.steward.leases import open_attempt
from tests.support.steward.pipeline import RAW, REASON, ROWS, SCHEMA, Line, Row, contract

TARGET = "sales.orders"
SECONDS = 60.0
FIRST, SECOND = "2026-11-13", "2026-11-14"
BY_DATE = "parameters:\n  date:\n    type: date"
BY_TOWN = "parameters:\n  town:\n    type: string"
Doc = dict[str, Any]


def daily(*more: str, uuid: str | None = None, column: str = "day", **boundary: str) -> str:
    """A contract whose workloads each publish and claim one day; `uuid` is that of the source."""
    boundary.setdefault("where", f"{column} = ${{date}}")
    boundary.setdefault("claim", f"{{column: {column}}}")
    return with_source_uuid(contract(BY_DATE, *more, **boundary), uuid)


def with_source_uuid(text: str, uuid: str | None) -> str:
    """The contract with the UUID of its source."""
    if uuid is None:
        return text
    return text.replace("    table: raw.orders\n", f"    table: raw.orders\n    uuid: {uuid}\n")


def source_uuid(line: Line, name: str = "orders") -> str:
    return line.scene.table_state(name, RAW).row.table_uuid


def recreate_source(line: Line, how: str, rows: Sequence[Row] = ROWS) -> str:
    """Drop or rename the source, and create it again with these rows, as a full reload does; returns its new UUID."""
    tables, grant = line.notary.catalog.tables, line.scene.grant()
    if how == "dropped":
        tables.drop(grant, RAW, "orders")
    else:
        tables.rename(grant, (RAW, "orders"), (RAW, "orders_old"))
    line.scene.make(levels=RAW)
    line.write(rows)
    return source_uuid(line)


def approve(line: Line, text: str, updates: Sequence[Doc] = ()) -> None:
    """Sign and submit a migration to another contract, with these updates of the table."""
    line.scene.migrate(line.scene.migration(list(updates), contract=text))


def publish(
    line: Line,
    client: StewardClient,
    workload_id: str,
    rows: Sequence[Row],
    parameters: dict[str, str],
    names: Sequence[str] = SCHEMA.names,
) -> AttemptView:
    """Open a workload of one chunk, stage rows for it, and wait until its attempt has ended."""
    client.open_workload(workload_id, TARGET, parameters)
    return stage(line, client, workload_id, rows, names)


def stage(
    line: Line,
    client: StewardClient,
    workload_id: str,
    rows: Sequence[Row],
    names: Sequence[str] = SCHEMA.names,
    *,
    chunk_id: str = "all",
) -> AttemptView:
    """Stage rows in a new attempt at a chunk, and wait until the attempt has ended."""
    attempt = open_attempt(client, workload_id, chunk_id, REASON)
    if rows:
        line.stage(client, attempt, rows, names)
    client.staged(attempt.attempt_id)
    return client.await_attempt(attempt.attempt_id, seconds=SECONDS)


def visible_ids(line: Line) -> list[int]:
    """The ids that a consumer reads of the target."""
    catalog = RestCatalog("lake", uri=f"{line.url}/catalog", token=line.token(Role.CONSUMER).text)
    return sorted(row["id"] for row in catalog.load_table(("sales", "orders")).scan().to_arrow().to_pylist())


def refused_opening(client: StewardClient, workload_id: str, parameters: dict[str, str]) -> PvdmError:
    """The error of opening the workload, which must be refused."""
    with pytest.raises(PvdmError) as caught:
        client.open_workload(workload_id, TARGET, parameters)
    return caught.value


def schema_of(columns: Sequence[tuple[int, str, str]], schema_id: int = 1) -> list[Doc]:
    """Updates that give a table these columns: id, name and type of each."""
    fields = [{"id": number, "name": name, "required": False, "type": kind} for number, name, kind in columns]
    schema = {"type": "struct", "schema-id": schema_id, "fields": fields}
    return [
        {"action": "add-schema", "schema": schema},
        {"action": "set-current-schema", "schema-id": -1},
    ]
