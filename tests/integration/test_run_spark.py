"""Workloads on real Spark: a DataFrame is staged on the attempt's branch, verified from its files, and published."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import sys
import threading
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pvdm
from pvdm import Chunk, Committed, Coordinator, Outcome, RolledBack, VerificationFailed
from pvdm.errors import InputError
from pvdm.model.role import Role
from tests.support.spark.session import rows
from tests.support.steward.shop import BY_DAY, COLUMNS, ROWS, Shop, contract, shop_at, table_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SORTED = sorted(ROWS, key=repr)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with shop_at(tmp_path_factory.mktemp("shop")) as made:
        yield made


def run(shop: Shop, spark: SparkSession, table: str, build: Any = None, **more: Any) -> Outcome:
    with Coordinator(shop.steward, spark) as coordinator:
        return coordinator.execute_workload(f"{table}-1", build, table=table, **more)


def consumed(shop: Shop, spark: SparkSession, table: str) -> list[Any]:
    """All rows as Spark shows them to a consumer."""
    pvdm.spark_session(shop.steward, Role.CONSUMER, "sales", name=f"shop_{shop.steward.url.rpartition(':')[2]}")
    name = f"shop_{shop.steward.url.rpartition(':')[2]}.{table}"
    return rows(spark.sql(f"select id, cast(day as string), town from {name}"))


def test_a_clean_backfill_of_an_empty_partitioned_table_is_published(shop: Shop, spark: SparkSession) -> None:
    shop.make("sales.clean", ((2, "day", "identity"), (1, "id_bucket", "bucket[2]")))
    shop.protect(contract("sales.clean"))
    outcome = run(shop, spark, "sales.clean")
    assert isinstance(outcome, Committed), outcome
    assert consumed(shop, spark, "sales.clean") == SORTED
    assert shop.branches("sales.clean") == set()
    left = [row[0] for row in spark.sql("set").collect() if re.match(r"spark\.sql\.catalog\.pvdm_[0-9a-f]{32}", row[0])]
    assert left == []


def test_a_partition_value_with_a_slash_is_published(shop: Shop, spark: SparkSession) -> None:
    """Spark writes `%2F` into a path for it, which the Steward refuses. So the catalog turns such paths off."""
    shop.make("raw.slashed")
    shop.write([(1, "2026-01-01", "Europe/Vienna"), (2, "2026-01-01", "N/A")], "raw.slashed")
    shop.make("sales.slashed", ((3, "town", "identity"),))
    shop.protect(contract("sales.slashed").replace("table: raw.orders", "table: raw.slashed"))
    outcome = run(shop, spark, "sales.slashed")
    assert isinstance(outcome, Committed), outcome
    assert [row[2] for row in consumed(shop, spark, "sales.slashed")] == ["Europe/Vienna", "N/A"]


def test_chunks_of_an_empty_table_are_staged_beside_each_other(shop: Shop, spark: SparkSession) -> None:
    """At the second write the table has a snapshot, but no branch of this attempt. Spark alone would refuse it."""
    shop.make("sales.chunks", BY_DAY, version=3)
    shop.protect(
        contract(
            "sales.chunks",
            "chunking:\n  by: partition\n  columns: [day]",
            "atomicity: workload",
            where="town != 'Bonn'",
        )
    )
    outcome = run(shop, spark, "sales.chunks")
    assert isinstance(outcome, Committed), outcome
    assert len(outcome.chunks) > 1
    assert consumed(shop, spark, "sales.chunks") == [row for row in SORTED if row[2] not in ("Bonn", None)]


def test_a_column_that_the_source_got_after_its_last_snapshot_is_read_as_null(shop: Shop, spark: SparkSession) -> None:
    """The first step of docs/schema-changes.md, by Spark; no row of the source is rewritten."""
    shop.make("raw.aged")
    shop.write(ROWS, "raw.aged")
    shop.make("sales.aged", columns=(*COLUMNS, ("channel", "string")))
    name = f"aged_{shop.steward.url.rpartition(':')[2]}"
    pvdm.spark_session(shop.steward, Role.OPERATOR, "*", name=name)
    spark.sql(f"ALTER TABLE {name}.raw.aged ADD COLUMN channel string")
    text = contract("sales.aged", where="channel is null").replace("table: raw.orders", "table: raw.aged")
    shop.protect(text)
    outcome = run(shop, spark, "sales.aged")
    assert isinstance(outcome, Committed), outcome
    assert rows(spark.sql(f"select id, channel from {name}.sales.aged")) == [(row[0], None) for row in SORTED]


def test_dropped_rows_end_with_3_and_consumers_see_what_they_saw(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.make("sales.lossy", BY_DAY)
    shop.protect(contract("sales.lossy"))
    module = types.ModuleType("lossy_job")
    module.build = lambda _, chunk: chunk.rows().where("id < 5")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lossy_job", module)
    words = ["run", "sales.lossy", "--workload-id", "lossy-1", "--job", "lossy_job:build", "--json"]
    code, output = shop.command(words)
    assert code == 3, output
    found = json.loads(output)
    assert (found["outcome"], found["chunks"][0]["classes"]) == ("VERIFICATION_FAILED", ["missing"])
    assert consumed(shop, spark, "sales.lossy") == []


def test_an_interrupted_write_is_rolled_back_and_leaves_no_file(shop: Shop, spark: SparkSession) -> None:
    # Without partitions nothing is shuffled before it is written, and with small row groups it is written soon.
    shop.make("sales.stopped", write_parquet_row__group__size__bytes="65536")
    shop.protect(contract("sales.stopped"))
    begun, place = threading.Event(), shop.staging_place("sales.stopped")

    def endless(spark: SparkSession, chunk: Chunk) -> DataFrame:
        begun.set()
        return spark.range(0, 10**14, 1, 2).selectExpr("id", "date'2026-11-14' as day", "cast(id as string) as town")

    def stop() -> None:
        begun.wait(60)
        for _ in range(300):
            if any(place.rglob("*.parquet")):
                break
            threading.Event().wait(0.1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop).start()
    outcome = run(shop, spark, "sales.stopped", endless)
    assert isinstance(outcome, RolledBack), outcome
    assert outcome.error.reason == "attempt_interrupted"
    for _ in range(100):
        if not shop.branches("sales.stopped") and not shop.staged_files("sales.stopped"):
            break
        threading.Event().wait(0.1)
    assert (shop.branches("sales.stopped"), shop.staged_files("sales.stopped")) == (set(), [])
    with shop.client() as client:
        assert client.orphans("sales.stopped") == ()
    assert isinstance(run(shop, spark, "sales.stopped"), Committed)


@pytest.mark.parametrize(
    ("spec", "partition"),
    [
        ((2, "day", "identity"), "{day: '2026-11-14'}"),
        ((2, "day_month", "month"), f"{{day_month: {(2026 - 1970) * 12 + 10}}}"),
        ((3, "town_bucket", "bucket[1]"), "{town_bucket: 0}"),
    ],
)
def test_a_declared_partition_is_replaced(
    shop: Shop, spark: SparkSession, spec: tuple[int, str, str], partition: str
) -> None:
    table = f"sales.days_{spec[2].partition('[')[0]}"
    shop.make(table, (spec,))
    shop.write([(9, "2026-10-13", "old"), (10, "2026-11-14", "old")], table)
    where = "day = '2026-11-14' and town is not null"
    shop.protect(contract(table, operation="overwrite-partitions", where=where, partition=partition))
    outcome = run(shop, spark, table)
    assert isinstance(outcome, Committed), outcome
    kept = [] if "bucket" in spec[2] else [(9, "2026-10-13", "old")]
    assert consumed(shop, spark, table) == sorted([*kept, *ROWS[3:]], key=repr)


def test_an_overwrite_replaces_what_was_there(shop: Shop, spark: SparkSession) -> None:
    for table, operation in (("sales.all", "overwrite"), ("sales.dynamic", "overwrite-partitions")):
        shop.make(table, BY_DAY)
        shop.write([(9, "2026-10-13", "old"), (10, "2026-11-14", "old")], table)
        shop.protect(contract(table, operation=operation))
        outcome = run(shop, spark, table)
        assert isinstance(outcome, Committed), outcome
    assert consumed(shop, spark, "sales.all") == SORTED
    assert consumed(shop, spark, "sales.dynamic") == sorted([(9, "2026-10-13", "old"), *ROWS], key=repr)


@pytest.mark.parametrize(
    ("select", "code"),
    [
        ("id, day", "rows_columns_differ"),
        ("id, day, town, 1 as more", "rows_columns_differ"),
        ("cast(id as double) as id, day, town", "rows_type_differs"),
        ("id, cast(day as timestamp) as day, town", "rows_type_differs"),
    ],
)
def test_rows_that_do_not_fit_are_refused(shop: Shop, spark: SparkSession, select: str, code: str) -> None:
    if "sales.unfit" not in shop.made:
        shop.make("sales.unfit")
        shop.protect(contract("sales.unfit"))
    with pytest.raises(InputError) as caught:
        run(shop, spark, "sales.unfit", lambda _, chunk: chunk.rows().selectExpr(*select.split(", ")))
    assert caught.value.reason == code


def test_rows_are_widened_and_go_by_name(shop: Shop, spark: SparkSession) -> None:
    shop.make("sales.widened")
    shop.protect(contract("sales.widened"))
    outcome = run(
        shop,
        spark,
        "sales.widened",
        lambda _, chunk: chunk.rows().selectExpr("town", "cast(id as int) as id", "day"),
    )
    assert isinstance(outcome, Committed), outcome


def test_a_job_that_returns_no_frame_is_refused(shop: Shop, spark: SparkSession) -> None:
    shop.make("sales.frameless")
    shop.protect(contract("sales.frameless"))
    with pytest.raises(InputError) as caught:
        run(shop, spark, "sales.frameless", lambda *_: [1])
    assert caught.value.reason == "rows_not_a_frame"


def test_a_source_chunked_by_files_is_read_as_it_was_pinned(shop: Shop, spark: SparkSession) -> None:
    shop.make("sales.files")
    shop.protect(contract("sales.files", "chunking:\n  by: files\n  max-size: 1"))
    with shop.client() as client:
        opened = client.open_workload("sales.files-1", "sales.files", {})
    shop.write([(6, "2026-11-15", "late")])
    outcome = run(shop, spark, "sales.files")
    assert isinstance(outcome, Committed), outcome
    assert opened.chunk_count == 1
    assert consumed(shop, spark, "sales.files") == SORTED


def test_a_branch_that_an_unmodified_job_staged_is_published(shop: Shop, spark: SparkSession) -> None:
    shop.make("sales.adopted")
    shop.protect(contract("sales.adopted", where="id < 6"))
    lake = f"lake_{shop.steward.url.rpartition(':')[2]}"
    pvdm.spark_session(shop.steward, Role.PRODUCER, "sales", name=lake)
    spark.sql(f"alter table {lake}.sales.adopted create branch etl")
    spark.sql(f"insert into {lake}.sales.adopted.branch_etl select * from {lake}.raw.orders where id < 6")
    code, output = shop.command(["publish", "sales.adopted", "etl", "--workload-id", "adopted-1"])
    assert code == 0, output
    assert "COMMITTED" in output
    assert consumed(shop, spark, "sales.adopted") == SORTED


def test_a_failed_chunk_is_repaired(shop: Shop, spark: SparkSession) -> None:
    shop.make("sales.repaired")
    shop.protect(contract("sales.repaired", where="id < 6"))
    outcome = run(shop, spark, "sales.repaired", lambda _, chunk: chunk.rows().union(chunk.rows()))
    assert isinstance(outcome, VerificationFailed)
    code, output = shop.command(["repair", "sales.repaired-1", "--reason", "the union was one too many"])
    assert code == 0, output
    assert consumed(shop, spark, "sales.repaired") == SORTED


def test_files_listed_in_a_source_manifest_are_published(shop: Shop, spark: SparkSession) -> None:
    listed = []
    for at, part in enumerate((ROWS[:2], ROWS[2:])):
        path = shop.folder / f"part-{at}.parquet"
        pq.write_table(with_ids(table_of(part)), path, store_schema=False)
        data = path.read_bytes()
        listed.append({"path": f"file://{path}", "size": len(data), "sha256": hashlib.sha256(data).hexdigest()})
    fields = [{"id": at, "name": name, "required": False, "type": kind} for at, (name, kind) in enumerate(COLUMNS, 1)]
    schema = {"type": "struct", "schema-id": 0, "fields": fields}
    manifest = shop.folder / "source.json"
    manifest.write_text(json.dumps({"kind": "pvdm/source-files/v1", "schema": schema, "files": listed}))
    shop.make("sales.from_files")
    text = contract("sales.from_files", "chunking:\n  by: files\n  max-size: 1", where="id > 1")
    shop.protect(text.replace("    table: raw.orders\n", f"    files:\n      manifest: file://{manifest}\n"))
    outcome = run(shop, spark, "sales.from_files")
    assert isinstance(outcome, Committed), outcome
    assert len(outcome.chunks) == 2
    assert consumed(shop, spark, "sales.from_files") == SORTED[1:]
    manifest.write_text(manifest.read_text() + " ")
    with Coordinator(shop.steward, spark) as coordinator:
        changed = coordinator.execute_workload("sales.from_files-1", table="sales.from_files")
    assert isinstance(changed, Committed)  # nothing is left to read


def with_ids(table: pa.Table) -> pa.Table:
    """The columns with the ids that the table's files have."""
    fields = [field.with_metadata({"PARQUET:field_id": str(at)}) for at, field in enumerate(table.schema, 1)]
    return table.cast(pa.schema(fields))
