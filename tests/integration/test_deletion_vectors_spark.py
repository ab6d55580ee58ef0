"""Deletion vectors of a source: Spark's are published as every engine reads them, those that lie are refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

import pvdm
from pvdm import Committed, Coordinator, Outcome, RolledBack
from pvdm.errors import InputError
from pvdm.lake.paths import parse_location
from pvdm.lake.read.scan import Scan, plan_scan
from pvdm.model.role import Role
from pvdm.model.schema import Field, Kind, PrimitiveType, Schema
from pvdm.verify.fetch import Files
from tests.support.lake.metadata import column, schema
from tests.support.lake.puffin import Listed, add_vectors
from tests.support.lake.scans import Lake, rows_of, table_of
from tests.support.oracles.engines import consumer_catalog, duckdb_connection, metadata_location
from tests.support.steward.shop import Shop, contract, shop_at
from tests.support.steward.shop import table_of as rows_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# PyIceberg's own.
pytestmark = [pytest.mark.usefixtures("kernel"), pytest.mark.filterwarnings("ignore::DeprecationWarning:pyiceberg")]
MERGE_ON_READ = ", ".join(f"'write.{each}.mode'='merge-on-read'" for each in ("delete", "update", "merge"))
# The ids that the deletes in the fixture `shop` leave.
LEFT = sorted(set(range(200)) - set(range(3, 200, 10)) - {4, 97, 98})


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Shop]:
    """A shop with the source `raw.marked`: two data files, with deletion vectors of three deletes."""
    with shop_at(tmp_path_factory.mktemp("vectors")) as made:
        name = f"{operator(made)}.raw.marked"
        spark.sql(
            f"create table {name} (id bigint, day date, town string) using iceberg"
            f" tblproperties ('format-version'='3', {MERGE_ON_READ})"
        )
        spark.sql(f"insert into {name} select id, date'2026-11-13', concat('t', id) from range(0, 200, 1, 2)")
        spark.sql(f"delete from {name} where id % 10 = 3")
        spark.sql(f"delete from {name} where id in (4, 97)")
        spark.sql(f"delete from {name} where id in (98)")
        yield made


def operator(shop: Shop) -> str:
    lake = f"marked_{shop.steward.url.rpartition(':')[2]}"
    pvdm.spark_session(shop.steward, Role.OPERATOR, "*", name=lake)
    return lake


def scan_of(shop: Shop, table: str) -> Scan:
    metadata = shop.metadata(table, Role.OPERATOR)
    return plan_scan(metadata, metadata.current_snapshot, Files())


def publish(shop: Shop, name: str, spark: SparkSession | None) -> Outcome:
    """Publish `raw.marked` to a new table: by Spark, or without it by a small job that returns the right rows."""
    shop.make(f"sales.{name}", version=3)
    shop.protect(contract(f"sales.{name}").replace("raw.orders", "raw.marked"))
    with Coordinator(shop.steward, spark) as coordinator:
        return coordinator.execute_workload(name, None if spark else job, table=f"sales.{name}")


def job(*_: object) -> pa.Table:
    return rows_table([(each, "2026-11-13", f"t{each}") for each in LEFT])


def engines(shop: Shop, spark: SparkSession, table: str, where: str) -> dict[str, list[int]]:
    """The ids that each engine finds, as a consumer."""
    token = shop.steward.token_for(Role.CONSUMER, "sales").text
    lake = f"seen_{shop.steward.url.rpartition(':')[2]}"
    pvdm.spark_session(shop.steward, Role.CONSUMER, "sales", name=lake)
    duck = duckdb_connection()
    base = metadata_location(shop.steward.url, token, table)
    scan = consumer_catalog(shop.steward.url, token).load_table(table).scan(row_filter=where)
    found = {
        "spark": [row[0] for row in spark.sql(f"select id from {lake}.{table} where {where}").collect()],
        "duckdb": [row[0] for row in duck.execute(f"select id from iceberg_scan('{base}') where {where}").fetchall()],
        "pyiceberg": scan.to_arrow()["id"].to_pylist(),
    }
    duck.close()
    return {name: sorted(int(str(each)) for each in ids) for name, ids in found.items()}


def test_a_source_with_vectors_is_published_as_every_engine_reads_it(shop: Shop, spark: SparkSession) -> None:
    scan = scan_of(shop, "raw.marked")
    assert [delete.is_vector for file in scan.files for delete in file.deletes] == [True, True]
    assert sorted(row["id"] for row in rows_of(scan)) == LEFT
    outcome = publish(shop, "marked", spark)
    assert isinstance(outcome, Committed), outcome
    for where, holds in (("id >= 0", lambda _: True), ("id >= 90 and id < 110", lambda each: 90 <= each < 110)):
        right = [each for each in LEFT if holds(each)]
        assert engines(shop, spark, "sales.marked", where) == dict.fromkeys(("spark", "duckdb", "pyiceberg"), right)


def test_a_source_whose_puffin_footer_hides_a_vector_is_refused_and_published_once_it_is_restored(shop: Shop) -> None:
    path = parse_location(scan_of(shop, "raw.marked").files[0].deletes[0].location).local
    honest = path.read_bytes()
    path.write_bytes(with_empty_footer(honest))
    outcome = publish(shop, "hidden", None)
    assert isinstance(outcome, RolledBack), outcome
    attempt = outcome.chunks[0].attempt
    assert attempt is not None
    assert attempt.reason is not None
    assert attempt.reason.startswith("source_unusable")
    assert "does not list the deletion vector" in attempt.reason
    assert shop.visible_rows("sales.hidden") == []
    path.write_bytes(honest)
    with Coordinator(shop.steward) as coordinator:
        mended = coordinator.repair("hidden", job, reason="the file is back")
    assert isinstance(mended, Committed), mended
    assert sorted(row[0] for row in shop.visible_rows("sales.hidden")) == LEFT


def with_empty_footer(data: bytes) -> bytes:
    """The Puffin file with a footer that lists no blob, padded to the same length."""
    size = int.from_bytes(data[-12:-8], "little")
    start = len(data) - 12 - size
    return data[:start] + json.dumps({"blobs": []}).encode().ljust(size) + data[start + size :]


COLUMNS = Schema((Field("id", PrimitiveType(Kind.LONG), field_id=1),))
HIDDEN, STRAY, HONEST = "hidden", "stray", "honest"


def write_lake(folder: Path, kind: str) -> Lake:
    """A hundred rows, of which half are marked by a vector that only some readers see, or that all see."""
    lake = Lake(folder, (schema(0, column(1, "id")),), version=3)
    folder.mkdir(parents=True)
    location = lake.data(table_of(COLUMNS, [{"id": each} for each in range(100)]))
    other = lake.data(table_of(COLUMNS, [{"id": each} for each in range(100, 102)]))
    half = Listed(location, range(50), shown=kind != HIDDEN)
    blobs = [Listed(other, [0]), half]
    add_vectors(lake, blobs, named=[0] if kind == STRAY else [0, 1])
    metadata = lake.metadata()
    (folder / "metadata").mkdir()
    (folder / "metadata" / "v1.metadata.json").write_bytes(metadata.to_bytes())
    (folder / "metadata" / "version-hint.text").write_text("1")
    return lake


@pytest.mark.parametrize(
    ("kind", "by_manifest", "by_footer", "code"),
    # 102 rows. One vector deletes 1 row of the second file; the vector in question deletes 50 of the first one.
    [
        (HIDDEN, 51, 101, "deletion_vector_unlisted"),
        (STRAY, 101, 51, "deletion_vector_stray"),
        (HONEST, 51, 51, None),
    ],
)
def test_a_vector_that_only_some_readers_see_fools_one_of_them_and_is_refused(
    spark: SparkSession, tmp_path: Path, kind: str, by_manifest: int, by_footer: int, code: str | None
) -> None:
    name = f"files{tmp_path.name.replace('-', '_')}"
    options: dict[str, Any] = {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "hadoop",
        ".warehouse": str(tmp_path / "warehouse"),
        ".cache-enabled": "false",
    }
    for key, value in options.items():
        spark.conf.set(f"spark.sql.catalog.{name}{key}", value)
    folder = tmp_path / "warehouse" / "db" / kind
    lake = write_lake(folder, kind)
    assert spark.table(f"{name}.db.{kind}").count() == by_manifest
    seen = StaticTable.from_metadata(str(folder / "metadata" / "v1.metadata.json")).scan().to_arrow()
    assert seen.num_rows == by_footer
    if code is None:
        assert len(lake.rows()) == by_manifest
    else:
        with pytest.raises(InputError) as caught:
            lake.rows()
        assert caught.value.reason == code
