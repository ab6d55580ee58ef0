"""Format 3 on real Spark: variants, defaults set by Iceberg's Java API, and row lineage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import pvdm
from pvdm import Chunk, Committed, Coordinator, Outcome, RolledBack, VerificationFailed
from pvdm.lake.read.entries import listed_manifests, live_entries
from pvdm.lake.read.scan import plan_scan
from pvdm.model.role import Role
from pvdm.verify.fetch import Files
from tests.support.lake.scans import rows_of
from tests.support.oracles.engines import consumer_catalog
from tests.support.steward.shop import BY_DAY, ROWS, Disk, Shop, contract, shop_at, table_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.usefixtures("kernel", "compiled_queries"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:pyiceberg"),
]
V3 = "using iceberg tblproperties ('format-version'='3')"
SHREDDED = (
    "'write.parquet.shred-variants'='true', 'write.parquet.variant-inference-buffer-size'='5', 'format-version'='3'"
)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with shop_at(tmp_path_factory.mktemp("edge")) as made:
        yield made


def add_operator_catalog(shop: Shop) -> str:
    """Add a catalog with an operator's token to the Spark session. Returns the catalog's name."""
    lake = f"edge_{shop.steward.url.rpartition(':')[2]}"
    pvdm.spark_session(shop.steward, Role.OPERATOR, "*", name=lake)
    return lake


def sql(shop: Shop, spark: SparkSession, *statements: str) -> list[Any]:
    """Run the statements, with LAKE replaced by the catalog's name. Returns the rows of the last one."""
    lake = add_operator_catalog(shop)
    found: list[Any] = []
    for statement in statements:
        found = [tuple(row) for row in spark.sql(statement.replace("LAKE", lake)).collect()]
    return found


def publish(shop: Shop, spark: SparkSession, target: str, source: str) -> Outcome:
    shop.protect(contract(target).replace("raw.orders", source))
    with Coordinator(shop.steward, spark) as coordinator:
        return coordinator.execute_workload(target, table=target)


def rows_by_pvdm(shop: Shop, table: str) -> list[dict[str, Any]]:
    metadata = shop.metadata(table, Role.OPERATOR)
    return rows_of(plan_scan(metadata, metadata.current_snapshot, Files()))


def test_variants_are_published_without_bounds_and_read_by_spark(shop: Shop, spark: SparkSession) -> None:
    sql(
        shop,
        spark,
        f"create table LAKE.raw.things (id bigint, v variant, s struct<w: variant>) {V3}",
        'insert into LAKE.raw.things select id, parse_json(concat(\'{"a":\', id, \',"b":[1, 2.5, null, "x"]}\')),'
        " named_struct('w', to_variant_object(named_struct('t', timestamp'2026-11-15 01:02:03'))) from range(20)",
        "insert into LAKE.raw.things values (100, null, null), (101, parse_json('null'), named_struct('w', null))",
        f"create table LAKE.sales.things (id bigint, v variant, s struct<w: variant>) {V3}",
    )
    outcome = publish(shop, spark, "sales.things", "raw.things")
    assert isinstance(outcome, Committed), outcome
    query = "select id, v is null, to_json(v), s is null, to_json(s.w) from LAKE.{}.things order by id"
    seen = [sql(shop, spark, query.format(each)) for each in ("raw", "sales")]
    assert seen[0] == seen[1]
    assert len(seen[0]) == 22
    metadata = shop.metadata("sales.things")
    assert metadata.current_snapshot is not None
    for entry in live_entries(metadata, metadata.current_snapshot, Disk()):
        assert set(entry.data_file.lower_bounds or ()) == {1}
    catalog = consumer_catalog(shop.steward.url, shop.steward.token_for(Role.CONSUMER, "sales").text)
    with pytest.raises(Exception, match="variant"):
        catalog.load_table("sales.things")  # PyIceberg does not load a table with variants (docs/types.md)


def test_a_shredded_variant_is_refused_in_the_source_and_on_the_branch(shop: Shop, spark: SparkSession) -> None:
    rows = 'select id, parse_json(concat(\'{"a":\', id, \',"b":"x"}\')) from range(20)'
    sql(
        shop,
        spark,
        f"create table LAKE.raw.shreds (id bigint, v variant) using iceberg tblproperties ({SHREDDED})",
        f"insert into LAKE.raw.shreds {rows}",
        f"create table LAKE.sales.from_shreds (id bigint, v variant) {V3}",
        f"create table LAKE.raw.wholes (id bigint, v variant) {V3}",
        f"insert into LAKE.raw.wholes {rows}",
        f"create table LAKE.sales.into_shreds (id bigint, v variant) using iceberg tblproperties ({SHREDDED})",
    )
    source = publish(shop, spark, "sales.from_shreds", "raw.shreds")
    assert isinstance(source, RolledBack), source
    tried = source.chunks[0].attempt
    assert tried is not None
    assert tried.refusal is not None
    assert (tried.refusal.reason, tried.refusal.got) == ("source_unusable", "typed_value beside them")
    staged = publish(shop, spark, "sales.into_shreds", "raw.wholes")
    assert isinstance(staged, VerificationFailed), staged
    attempt = staged.chunks[0].attempt
    assert attempt is not None
    assert [each.code for each in attempt.findings] == ["variant_shredded"]


def test_pvdm_reads_defaults_set_by_the_java_api_as_spark_does(shop: Shop, spark: SparkSession) -> None:
    made = "(id bigint, s struct<a: int>, l array<struct<x: int>>)"
    sql(
        shop,
        spark,
        f"create table LAKE.raw.early {made} {V3}",
        f"create table LAKE.sales.late {made} {V3}",
        "insert into LAKE.raw.early select id, named_struct('a', 1), array(named_struct('x', 2)) from range(5)",
        "insert into LAKE.raw.early values (5, null, null)",
    )
    for table in ("raw.early", "sales.late"):
        add_defaults(spark, f"{add_operator_catalog(shop)}.{table}")
        sql(shop, spark, f"refresh table LAKE.{table}")
    # For a column that the INSERT does not name, Iceberg writes the write default. For `i` it differs from the initial
    # default.
    sql(shop, spark, "insert into LAKE.raw.early (id, f) values (6, float('-0.0'))")
    query = "select * from LAKE.{} order by id"
    spark_rows = sql(shop, spark, query.format("raw.early"))
    # Columns from position 3 on: i, n, b, dt, ts, tz, dec, f, dd, bin. Dates and times are compared below.
    first = spark_rows[0]
    assert first[3:6] == (7, "x", True)
    assert first[10:] == (1.5, 2.5, b"\x01\x02")
    assert [plain(row) for row in sorted(rows_by_pvdm(shop, "raw.early"), key=lambda row: row["id"])] == [
        plain(row.asDict(recursive=True))
        for row in spark.sql(query.format("raw.early").replace("LAKE", add_operator_catalog(shop))).collect()
    ]
    outcome = publish(shop, spark, "sales.late", "raw.early")
    assert isinstance(outcome, Committed), outcome
    assert sql(shop, spark, query.format("sales.late")) == spark_rows


def plain(row: dict[str, Any]) -> str:
    """The row as text, with zoned times without their zone, as Spark's session shows them."""
    return repr({**row, "tz": row["tz"] and row["tz"].replace(tzinfo=None)})


def add_defaults(spark: SparkSession, name: str) -> None:
    """Columns with initial defaults, two of them inside a struct and a list; one has another write default."""
    jvm: Any = spark._jvm
    types, literal = jvm.org.apache.iceberg.types.Types, jvm.org.apache.iceberg.expressions.Literal
    update = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name).updateSchema()
    zoned, plain_time, decimal = (
        types.TimestampType.withZone(),
        types.TimestampType.withoutZone(),
        types.DecimalType.of(9, 2),
    )
    moment = "2026-11-15T01:02:03.000004"
    for column, kind, value in (
        ("i", types.IntegerType.get(), literal.of(7)),
        ("n", types.StringType.get(), literal.of("x")),
        ("b", types.BooleanType.get(), literal.of(True)),
        ("dt", types.DateType.get(), literal.of("2026-11-15").to(types.DateType.get())),
        ("ts", plain_time, literal.of(moment).to(plain_time)),
        ("tz", zoned, literal.of(f"{moment}+00:00").to(zoned)),
        ("dec", decimal, literal.of("1.25").to(decimal)),
        ("f", types.FloatType.get(), literal.of(1.5).to(types.FloatType.get())),
        ("dd", types.DoubleType.get(), literal.of(2.5)),
        ("bin", types.BinaryType.get(), literal.of(bytearray(b"\x01\x02"))),
    ):
        update.addColumn(column, kind, value)
    update.addColumn("s", "c", types.IntegerType.get(), "inside a struct", literal.of(9))
    update.addColumn("l.element", "y", types.IntegerType.get(), "inside a list", literal.of(8))
    update.updateColumnDefault("i", literal.of(70))
    update.commit()


LINEAGE = "select id, _row_id, _last_updated_sequence_number from LAKE.{} order by id"
OLD = (
    "insert into LAKE.TABLE select 1000 + id, date'2026-11-13', 'a' from range(10)",
    "insert into LAKE.TABLE select 2000 + id, date'2026-12-01', 'a' from range(10)",
    # Copy-on-write puts row ids into the files, merge-on-read makes deletion vectors.
    "update LAKE.TABLE set town = 'b' where id % 3 = 0",
    "alter table LAKE.TABLE set tblproperties ('write.delete.mode'='merge-on-read')",
    "delete from LAKE.TABLE where id in (1004, 2004)",
)


def create_table_with_history(shop: Shop, spark: SparkSession, table: str) -> list[Any]:
    """Create a table of format 3 with updates and deletes; returns id, row id and sequence number of each row."""
    made = "(id bigint, day date, town string) using iceberg partitioned by (day)"
    sql(shop, spark, f"create table LAKE.{table} {made} tblproperties ('format-version'='3')")
    sql(shop, spark, *(each.replace("TABLE", table) for each in OLD))
    return sql(shop, spark, LINEAGE.format(table))


def require_unique(shop: Shop, table: str, rows: list[Any]) -> None:
    ids = [row[1] for row in rows]
    assert None not in ids
    assert len(set(ids)) == len(ids)
    following = shop.metadata(table, Role.OPERATOR).next_row_id
    assert following is not None
    assert max(ids) < following


def by_day(_spark: object, chunk: Chunk) -> pa.Table:
    """The source's rows of the chunk's day, or all where it is the only one."""
    day = chunk.chunk_id.partition("=")[2]
    return table_of([row for row in ROWS if chunk.chunk_id == "all" or row[1] == day])


def run(shop: Shop, target: str, *more: str, **boundary: str) -> None:
    """Publish the rows of the source with a small job: row ids do not depend on who stages."""
    shop.protect(contract(target, *more, **boundary))
    with Coordinator(shop.steward) as coordinator:
        outcome = coordinator.execute_workload(target, by_day, table=target)
    assert isinstance(outcome, Committed), outcome


BY_CHUNKS = "chunking:\n  by: partition\n  columns: [day]"


def test_appends_leave_every_row_its_id_and_give_new_rows_new_ones(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pvdm.metadata.gate.publication.MERGE_FROM", 2)
    before = create_table_with_history(shop, spark, "sales.grown")
    used = shop.metadata("sales.grown", Role.OPERATOR).next_row_id or 0
    run(shop, "sales.grown", BY_CHUNKS)
    sql(shop, spark, "refresh table LAKE.sales.grown")
    after = sql(shop, spark, LINEAGE.format("sales.grown"))
    assert [row for row in after if row[0] >= 1000] == before
    fresh = [row for row in after if row[0] < 1000]
    assert len(fresh) == 5
    assert min(row[1] for row in fresh) >= used
    require_unique(shop, "sales.grown", after)
    metadata = shop.metadata("sales.grown")
    assert metadata.current_snapshot is not None
    listed = listed_manifests(metadata, metadata.current_snapshot, Disk())
    own = [each for each in listed if each.added_snapshot_id == metadata.current_snapshot_id]
    # One manifest has the second day's file; one has the first day's file, merged with older files.
    assert [each.existing_files_count for each in own] == [0, 3]


def test_rows_of_a_table_that_came_from_format_2_get_ids_once_and_keep_them(shop: Shop, spark: SparkSession) -> None:
    shop.make("sales.raised", BY_DAY)
    sql(
        shop,
        spark,
        "insert into LAKE.sales.raised select 1000 + id, date'2026-12-01', 'a' from range(4)",
        "insert into LAKE.sales.raised select 2000 + id, date'2026-12-02', 'a' from range(4)",
        "alter table LAKE.sales.raised set tblproperties ('format-version'='3')",
    )
    run(shop, "sales.raised", BY_CHUNKS)
    sql(shop, spark, "refresh table LAKE.sales.raised")
    first, *_, last = (each.snapshot_id for each in shop.metadata("sales.raised").snapshots[-2:])
    seen = [sql(shop, spark, LINEAGE.format(f"sales.raised version as of {each}")) for each in (first, last)]
    assert [row for row in seen[1] if row[0] in {each[0] for each in seen[0]}] == seen[0]
    assert [row[0] for row in seen[1]] == [1, 2, 3, 4, 5, *range(1000, 1004), *range(2000, 2004)]
    require_unique(shop, "sales.raised", seen[1])


def test_an_overwrite_leaves_the_rows_beside_it_their_ids_and_their_deletes(shop: Shop, spark: SparkSession) -> None:
    before = create_table_with_history(shop, spark, "sales.turned")
    used = shop.metadata("sales.turned", Role.OPERATOR).next_row_id or 0
    run(shop, "sales.turned", operation="overwrite-partitions")
    sql(shop, spark, "refresh table LAKE.sales.turned")
    after = sql(shop, spark, LINEAGE.format("sales.turned"))
    assert [row for row in after if row[0] >= 1000] == [row for row in before if row[0] >= 2000]
    fresh = [row for row in after if row[0] < 1000]
    assert len(fresh) == 5
    assert min(row[1] for row in fresh) >= used
    require_unique(shop, "sales.turned", after)
    metadata = shop.metadata("sales.turned")
    assert metadata.current_snapshot is not None
    live = list(live_entries(metadata, metadata.current_snapshot, Disk()))
    assert len([entry for entry in live if entry.data_file.is_deletion_vector]) == 1, (
        "only the deletion vector of the other partition is left"
    )
