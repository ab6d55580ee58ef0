"""A workload reads columns that the source got after its newest snapshot as they were when the workload was opened."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pvdm.lake.format.manifest.entry import DataFile
from pvdm.lake.paths import parse_location
from pvdm.ledger.work import chunks
from pvdm.ledger.work.attempts import Attempt
from pvdm.model.role import Role
from pvdm.model.statements.verdict import Outcome
from tests.support.gate.approvals import scene_at
from tests.support.ledger.databases import memory_folder
from tests.support.verify.attempts import RAW, ROWS, SALES, SCHEMA, Bench, Row, arrow, contract, write
from tools.proof_kit import SECOND

CHANNEL = {"id": 4, "name": "channel", "required": False, "type": "string"}
"""Optional, without a default: rows from before it have null in it."""
CHANNEL_AGAIN = {**CHANNEL, "id": 5, "initial-default": "web", "write-default": "web"}
"""Another column of the same name: rows from before it have its default."""
BY_ID = "chunking:\n  by: range\n  column: id\n  bounds: [50]\n"


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as made:
        yield made.resolve()


def add_column(bench: Bench, column: dict[str, Any]) -> None:
    """Give the source this column beside its own."""
    schema = {"type": "struct", "schema-id": 0, "fields": [*SCHEMA["fields"], column]}
    bench.commit(
        "orders", RAW, [{"action": "add-schema", "schema": schema}, {"action": "set-current-schema", "schema-id": -1}]
    )


def drop_column(bench: Bench) -> None:
    """Give the source its first schema again, without the column."""
    bench.commit("orders", RAW, [{"action": "set-current-schema", "schema-id": 0}])


@contextlib.contextmanager
def protected_bench(folder: Path, contract_text: str) -> Iterator[Bench]:
    """A source with rows and, since its last snapshot, a column `channel`; a protected target that has it too."""
    with scene_at(folder) as scene:
        operator, tables = scene.grant(), scene.notary.catalog.tables
        tables.drop(operator, RAW, "orders")
        format_3 = {"properties": {"format-version": "3"}}
        tables.create(operator, RAW, {"name": "orders", "schema": SCHEMA, **format_3})
        target = {**SCHEMA, "fields": [*SCHEMA["fields"], CHANNEL]}
        tables.create(operator, SALES, {"name": "sums", "schema": target, **format_3})
        bench = Bench(scene, folder)
        place = parse_location(bench.state("orders", RAW).metadata.location).local
        bench.write_snapshot("orders", RAW, "main", [write(place / "data" / "0.parquet", ROWS)])
        add_column(bench, CHANNEL)
        scene.protect(scene.protection("sums", contract=contract_text))
        scene.stand.time.pass_by(SECOND)
        yield bench


def change_source(bench: Bench) -> None:
    """Drop the column and add another one of its name."""
    drop_column(bench)
    add_column(bench, CHANNEL_AGAIN)
    bench.scene.stand.time.pass_by(SECOND)


def begin_attempt(bench: Bench, chunk_id: str = "all") -> Attempt:
    producer = bench.scene.grant(Role.PRODUCER, "sales")
    bench.workloads.open(producer, "work", "sales.sums", {})
    return bench.workloads.next_attempt(producer, "work", chunk_id, "first")


def stage(bench: Bench, attempt: Attempt, rows: tuple[Row, ...], channel: str | None) -> None:
    prefix = parse_location(attempt.prefix).local
    path = prefix / "data" / "part.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    field = pa.field("channel", pa.string(), metadata={"PARQUET:field_id": "4"})
    table = arrow(rows).append_column(field, pa.array([channel] * len(rows), pa.string()))
    pq.write_table(table, path)
    file = DataFile(
        file_path=f"file://{path}",
        file_format="PARQUET",
        record_count=len(rows),
        file_size_in_bytes=path.stat().st_size,
    )
    bench.write_snapshot("sums", SALES, attempt.branch, [file], home=prefix / "metadata", role=Role.PRODUCER)


def verify_outcome(bench: Bench, attempt: Attempt) -> Outcome:
    """Hand in and verify the attempt; returns PASS or FAIL."""
    return bench.verify(bench.hand_in(attempt)).verdict.outcome


def test_rows_that_were_right_when_they_were_staged_pass_after_the_source_changed(folder: Path) -> None:
    with protected_bench(folder, contract()) as bench:
        attempt = begin_attempt(bench)
        stage(bench, attempt, ROWS, None)
        change_source(bench)
        assert verify_outcome(bench, attempt) is Outcome.PASS


def test_the_second_chunk_has_the_intent_that_the_first_one_had(folder: Path) -> None:
    with protected_bench(folder, contract() + BY_ID) as bench:
        producer = bench.scene.grant(Role.PRODUCER, "sales")
        bench.workloads.open(producer, "work", "sales.sums", {})
        with bench.scene.notary.ledger.read() as unit:
            first, second = [each.chunk_id for each in chunks.list_by_workload(unit, "work")][:2]
        attempt = begin_attempt(bench, first)
        stage(bench, attempt, ROWS[:50], None)
        assert verify_outcome(bench, attempt) is Outcome.PASS
        change_source(bench)
        attempt = begin_attempt(bench, second)
        stage(bench, attempt, ROWS[50:], "web")
        assert verify_outcome(bench, attempt) is Outcome.FAIL


def test_a_filter_over_a_replaced_column_selects_the_same_rows_as_at_the_opening(folder: Path) -> None:
    """With the default of the new column no row would be selected, and an attempt without rows would pass."""
    contract_text = contract().replace("  operation: append\n", "  operation: append\n  where: channel is null\n")
    with protected_bench(folder, contract_text) as bench:
        attempt = begin_attempt(bench)
        change_source(bench)
        core = bench.verify(bench.hand_in(attempt))
        assert (core.verdict.outcome, core.rows.intent) == (Outcome.FAIL, len(ROWS))


def test_a_column_that_the_source_lost_since_is_still_read(folder: Path) -> None:
    with protected_bench(folder, contract()) as bench:
        attempt = begin_attempt(bench)
        drop_column(bench)
        stage(bench, attempt, ROWS, None)
        assert verify_outcome(bench, attempt) is Outcome.PASS
