"""Our scan of tables that Spark wrote and evolved, and Spark's scan of deletes that we wrote: the same rows."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pvdm.lake.format.manifest.entry import FileContent, ManifestContent
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.read.entries import listed_manifests
from pvdm.lake.read.scan import Scan, plan_scan
from pvdm.model.role import Role
from pvdm.model.schema import Field, Kind, PrimitiveType, Schema
from pvdm.verify.fetch import Files
from tests.support.catalog.http import Lake as Served
from tests.support.catalog.http import lake_at
from tests.support.lake.metadata import column, schema
from tests.support.lake.scans import Lake, identity_spec, rows_of, table_of
from tests.support.spark.session import as_role
from tests.support.steward.notary import RealTime

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("kernel")

MERGE_ON_READ = ", ".join(f"'write.{each}.mode'='merge-on-read'" for each in ("delete", "update", "merge"))


def metadata_of(lake: Served, name: str) -> TableMetadata:
    answer = lake.caller().done("GET", f"/namespaces/sales/tables/{name}")
    return TableMetadata.parse(Files().read(answer["metadata-location"], max_bytes=10**8))


def scan_of(metadata: TableMetadata, snapshot_id: int | None = None) -> Scan:
    found = metadata.current_snapshot if snapshot_id is None else metadata.snapshot(snapshot_id)
    return plan_scan(metadata, found, Files())


def rows_by_pvdm(scan: Scan) -> list[str]:
    return sorted(repr(plain(row)) for row in rows_of(scan))


def rows_by_spark(spark: SparkSession, relation: str) -> list[str]:
    return sorted(repr(plain(row.asDict(recursive=True))) for row in spark.sql(f"select * from {relation}").collect())


def plain(value: Any) -> Any:
    """Floats by their bits, NaN as one; a map is a dictionary, not its pairs."""
    if isinstance(value, list) and all(isinstance(each, tuple) for each in value):
        value = dict(value)
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack(">d", value).hex()
    return value


def test_an_evolved_table_with_position_deletes_is_read_as_spark_reads_it(spark: SparkSession, tmp_path: Path) -> None:
    with lake_at(tmp_path, clock=RealTime()) as lake:
        me = as_role(spark, lake, Role.PRODUCER)
        table = f"{me}.sales.t"

        def run(*statements: str) -> None:
            for statement in statements:
                spark.sql(statement.replace("TABLE", table))

        run(
            "create table TABLE (id int, gone string, amount decimal(9,2), f float, region string,"
            " place struct<town:string>, tags map<string,int>) using iceberg partitioned by (region)"
            f" tblproperties ('format-version'='2', {MERGE_ON_READ})",
            "insert into TABLE select cast(id as int), 'x', cast(id as decimal(9,2)) / 4, cast(id as float) / 3,"
            " case when id % 3 = 0 then null else concat('r', id % 3) end, named_struct('town', concat('t', id)),"
            " map('k', cast(id as int)) from range(60)",
            "insert into TABLE values (100, 'y', 1.25, float('NaN'), 'r1', null, null)",
            "delete from TABLE where id % 10 = 3",
        )
        before = metadata_of(lake, "t")
        assert rows_by_pvdm(scan_of(before)) == rows_by_spark(spark, table)
        run(
            "alter table TABLE add column new string",
            "alter table TABLE rename column amount to price",
            "alter table TABLE drop column gone",
            "alter table TABLE alter column id type bigint",
            "alter table TABLE alter column f type double",
            "alter table TABLE alter column price type decimal(12,2)",
            "alter table TABLE add column place.zip int",
            "alter table TABLE add column gone date after id",
            "insert into TABLE values (5000000000, date'2026-01-01', 3.50, double('-0.0'), 'r2',"
            " named_struct('town', 'n', 'zip', 7), map('a', 1, 'b', null), 'fresh')",
            "merge into TABLE t using (select id from range(0, 40, 2) union all select 200) s on t.id = s.id"
            " when matched and t.id % 4 = 0 then delete when matched then update set t.new = 'merged', t.price = 9"
            " when not matched then insert (id, region) values (s.id, 'r9')",
            "alter table TABLE set tblproperties ('write.delete.granularity'='partition')",
            "delete from TABLE where id in (41, 45, 46, 100)",
            "alter table TABLE add partition field bucket(4, id)",
            "insert into TABLE select id, null, 0, 0, 'r1', null, null, 'late' from range(300, 320)",
            "delete from TABLE where id in (301, 305, 50)",
            "alter table TABLE drop partition field region",
            "insert into TABLE (id, region) values (400, null)",
            "update TABLE set new = 'end' where id in (400, 52, 302)",
        )
        after = metadata_of(lake, "t")
        found = scan_of(after)
        deletes = {delete for file in found.files for delete in file.deletes}
        assert {delete.content for delete in deletes} == {FileContent.POSITION_DELETES}
        assert {delete.referenced is None for delete in deletes} == {True, False}, "of one file and of several"
        assert after.current_snapshot is not None
        listed = listed_manifests(after, after.current_snapshot, Files())
        assert len({each.partition_spec_id for each in listed if each.content is ManifestContent.DATA}) == 3
        assert rows_by_pvdm(found) == rows_by_spark(spark, table)
        for snapshot in after.snapshots[::4]:
            wanted = rows_by_spark(spark, f"{table} version as of {snapshot.snapshot_id}")
            assert rows_by_pvdm(scan_of(after, snapshot.snapshot_id)) == wanted


def test_a_table_of_format_3_is_read_with_row_ids_in_its_files(spark: SparkSession, tmp_path: Path) -> None:
    with lake_at(tmp_path, clock=RealTime()) as lake:
        table = f"{as_role(spark, lake, Role.PRODUCER)}.sales.t"
        spark.sql(f"create table {table} (id bigint, n int) using iceberg tblproperties ('format-version'='3')")
        spark.sql(f"insert into {table} select id, 1 from range(30)")
        spark.sql(f"update {table} set n = 2 where id % 2 = 0")  # writes row ids beside the columns
        assert rows_by_pvdm(scan_of(metadata_of(lake, "t"))) == rows_by_spark(spark, table)


COLUMNS = Schema(
    tuple(
        Field(name, PrimitiveType(kind), field_id=at)
        for at, (name, kind) in enumerate(
            (("row", Kind.LONG), ("name", Kind.STRING), ("f", Kind.DOUBLE), ("g", Kind.FLOAT)), start=1
        )
    )
)
DOC = schema(0, column(1, "row"), column(2, "name", "string"), column(3, "f", "double"), column(4, "g", "float"))
NANS = [struct.unpack(">d", bytes.fromhex(bits))[0] for bits in ("7ff8000000000000", "fff8000000000005")]
FLOATS = [None, *NANS, 0.0, -0.0, 1.5, math.inf]


def every_row(first: int, name: str | None) -> list[dict[str, Any]]:
    made = [{"name": name, "f": f, "g": g} for f in FLOATS for g in FLOATS]
    return [{"row": first + at, **row} for at, row in enumerate(made)]


def deletes_of_many_kinds(folder: Path) -> Iterator[Lake]:
    """Tables whose deletes look at nulls, NaN and zeros, at sequence numbers, and at partitions."""
    for number, ids in enumerate(([3], [4], [3, 4], [2, 3])):
        lake = Lake(folder / f"t{number}", (DOC,), specs={0: [], 1: identity_spec(2, "name")})
        lake.folder.mkdir(parents=True)
        for at, name in enumerate((None, "a", "b")):
            lake.data(table_of(COLUMNS, every_row(100 * at, name)), sequence=1 + at, spec=1, partition={1000: name})
        whole = lake.data(table_of(COLUMNS, every_row(1_000, "a")), sequence=2)
        only = Schema(tuple(field for field in COLUMNS.fields if field.field_id in ids))
        keys = [{"name": name, "f": f, "g": g} for name, f, g in ((None, None, NANS[1]), ("a", -0.0, 0.0))]
        lake.equalities(table_of(only, keys), ids, sequence=3)
        for name, f, g in (("a", 1.5, None), ("b", 0.0, 1.5)):
            near = table_of(only, [{"name": name, "f": f, "g": g}])
            lake.equalities(near, ids, sequence=3, spec=1, partition={1000: name})
        lake.positions([(whole, 7), ("file:///elsewhere", 0)], sequence=2)
        lake.positions([(whole, 8), ("file:///elsewhere", 0)], sequence=1)
        yield lake


def folder_catalog(spark: SparkSession, folder: Path) -> str:
    """The name of a catalog whose tables are the folders in `warehouse`."""
    name = f"files{folder.name.replace('-', '_')}"
    for key, value in {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "hadoop",
        ".warehouse": str(folder / "warehouse"),
        ".cache-enabled": "false",
    }.items():
        spark.conf.set(f"spark.sql.catalog.{name}{key}", value)
    return name


def show_in_spark(spark: SparkSession, catalog: str, lake: Lake) -> list[str]:
    """The rows that Spark shows of a table that lies in the catalog's `db`."""
    (lake.folder / "metadata").mkdir()
    (lake.folder / "metadata" / "v1.metadata.json").write_bytes(lake.metadata().to_bytes())
    (lake.folder / "metadata" / "version-hint.text").write_text("1")
    return rows_by_spark(spark, f"{catalog}.db.{lake.folder.name}")


def test_equality_deletes_remove_the_rows_that_icebergs_own_reader_removes(spark: SparkSession, tmp_path: Path) -> None:
    name = folder_catalog(spark, tmp_path)
    for lake in deletes_of_many_kinds(tmp_path / "warehouse" / "db"):
        found = rows_by_pvdm(scan_of(lake.metadata()))
        assert found == show_in_spark(spark, name, lake)
        files = 4  # of each table, with one row for each pair of floats
        assert 0 < len(found) < files * len(FLOATS) ** 2
