"""What was published through pvdm reads the same in Spark, PyIceberg and DuckDB: ends, counts, filters and all rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from pyiceberg.table import Table

import pvdm
from pvdm import Committed, Coordinator
from pvdm.model.role import Role
from pvdm.model.statements.core import Operation
from pvdm.physical.small import SmallStager
from pvdm.physical.stager import Destination
from tests.support.catalog.http import Caller
from tests.support.lake.metadata import column, schema
from tests.support.oracles.engines import (
    FLOAT_COLUMNS,
    NAMES,
    ORDERED_COLUMNS,
    QUESTIONS,
    ROWS,
    ROWS_OF_OLD_SCHEMA,
    SCHEMA,
    Engines,
    arrow_table,
    consumer_catalog,
    known_ends,
    metadata_location,
    plain_rows,
    scanned_ends,
)
from tests.support.steward.http import bearer
from tests.support.steward.shop import Shop, contract, shop_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# PyIceberg's own.
pytestmark = [
    pytest.mark.usefixtures("compiled_queries"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:pyiceberg"),
]
Doc = dict[str, Any]

# By name: format version, source column and transform.
PARTITIONED: Mapping[str, tuple[int, int, str]] = {
    "by_identity": (2, 10, "identity"),
    "by_bucket": (3, 1, "bucket[3]"),
    "by_truncate": (2, 10, "truncate[8]"),
    "by_truncate_number": (3, 3, "truncate[100]"),
    "by_year": (2, 7, "year"),
    "by_month": (3, 8, "month"),
    "by_day": (2, 9, "day"),
    "by_hour": (3, 8, "hour"),
}
# By name: format version and rows. The last chunk of `chunks` has no row.
MORE: Mapping[str, tuple[int, Sequence[Doc]]] = {
    "chunks": (3, ROWS),
    "nothing": (2, ()),
    "evolved": (2, (*ROWS_OF_OLD_SCHEMA, *ROWS)),
    "evolved_3": (3, (*ROWS_OF_OLD_SCHEMA, *ROWS)),
}
TABLES = (*PARTITIONED, *MORE)
# One time transform and one table with older files are in `make test`; the others are made by the same code.
LONG = ("by_bucket", "by_truncate_number", "by_year", "by_month", "by_hour", "evolved")


def make(shop: Shop, name: str, version: int, spec: tuple[int, str] | None = None, fields: Doc = SCHEMA) -> None:
    """An empty table, in `raw` or in `sales`."""
    namespace, table = name.split(".")
    listed = [] if spec is None else [{"name": "p", "source-id": spec[0], "transform": spec[1], "field-id": 1000}]
    with httpx.Client(base_url=shop.steward.url) as http:
        Caller(http, bearer(shop.steward.token_for(Role.OPERATOR).text)).make(
            table,
            namespace=namespace,
            **{
                "schema": fields,
                "partition-spec": {"spec-id": 0, "fields": listed},
                "properties": {"format-version": str(version)},
            },
        )


def write(shop: Shop, name: str, rows: Sequence[Doc], names: Sequence[str] = NAMES) -> None:
    """Rows on `main` of a table that is not protected."""
    token = shop.steward.token_for(Role.OPERATOR, "*")
    location = shop.metadata(name, Role.OPERATOR).location
    to = Destination(shop.steward.url, name, "main", location, "none", "none", "0" * 32, token, Operation.APPEND)
    with shop.client(Role.OPERATOR, "*") as client:
        SmallStager(client).stage(lambda: arrow_table(rows, names), to)


def evolve(shop: Shop, spark: SparkSession, name: str) -> None:
    """A table that had other columns and another partition when its first rows came."""
    first = schema(
        0,
        column(1, "junk", "string"),
        column(2, "town_once", "string"),
        column(3, "id", "int"),
        column(4, "day", "date"),
    )
    make(shop, f"sales.{name}", MORE[name][0], (4, "identity"), first)
    lake = f"own_{shop.steward.url.rpartition(':')[2]}"
    pvdm.spark_session(shop.steward, Role.OPERATOR, "*", name=lake)
    values = ", ".join(
        f"('junk', {'null' if row['town'] is None else repr(row['town'])}, {row['id']}, null)"
        for row in ROWS_OF_OLD_SCHEMA
    )
    spark.sql(f"insert into {lake}.sales.{name} values {values}")
    for change in (
        "drop column junk",
        "rename column town_once to town",
        "alter column id type bigint",
        "add columns (flag boolean, small int, ratio float, amount double, price decimal(12, 2), made timestamp_ntz,"
        " seen timestamp, code binary, place struct<hall: string>, tags array<string>, counts map<string, bigint>)",
        "add column place.floor int first",
        "replace partition field p with bucket(2, id) as q",
        "add partition field truncate(4, town)",
    ):
        spark.sql(f"alter table {lake}.sales.{name} {change}")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A Steward with the source of every table."""
    with shop_at(tmp_path_factory.mktemp("engines")) as made:
        make(made, "raw.things", 2)
        write(made, "raw.things", ROWS[:70])
        write(made, "raw.things", ROWS[70:])
        yield made


def publish(shop: Shop, spark: SparkSession, name: str) -> None:
    """Make the table `sales.NAME` and publish its rows."""
    if name in PARTITIONED:
        version, source, transform = PARTITIONED[name]
        make(shop, f"sales.{name}", version, (source, transform))
    elif name.startswith("evolved"):
        evolve(shop, spark, name)
    else:
        make(shop, f"sales.{name}", MORE[name][0])
    chunks = ("chunking:\n  by: partition\n  columns: [flag]", "atomicity: workload") if name == "chunks" else ()
    where = {"where": "id < -10000"} if name == "nothing" else {}
    shop.protect(contract(f"sales.{name}", *chunks, **where).replace("raw.orders", "raw.things"))
    with Coordinator(shop.steward, spark) as coordinator:
        outcome = coordinator.execute_workload(name, table=f"sales.{name}")
    assert isinstance(outcome, Committed), (name, outcome)


@pytest.fixture(scope="module")
def published() -> set[str]:
    """The names of the tables whose rows are published."""
    return set()


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.long) if name in LONG else name for name in TABLES])
def table_name(request: pytest.FixtureRequest, shop: Shop, spark: SparkSession, published: set[str]) -> str:
    """The name of a table, whose rows are published before its first test."""
    name = str(request.param)
    if name not in published:
        publish(shop, spark, name)
        published.add(name)
    return name


@pytest.fixture
def table(shop: Shop, table_name: str) -> Table:
    catalog = consumer_catalog(shop.steward.url, shop.steward.token_for(Role.CONSUMER, "sales").text)
    found: Table = catalog.load_table(("sales", table_name))
    return found


@pytest.fixture
def engines(shop: Shop, spark: SparkSession, table_name: str, table: Table) -> Iterator[Engines]:
    lake = f"read_{shop.steward.url.rpartition(':')[2]}"
    pvdm.spark_session(shop.steward, Role.CONSUMER, "sales", name=lake)
    token = shop.steward.token_for(Role.CONSUMER, "sales").text
    base = metadata_location(shop.steward.url, token, f"sales.{table_name}")
    made = Engines(spark, f"{lake}.sales.{table_name}", table, base)
    yield made
    made.close()


def rows_of(table_name: str) -> Sequence[Doc]:
    return MORE[table_name][1] if table_name in MORE else ROWS


def test_every_engine_reads_the_same(table_name: str, engines: Engines, table: Table) -> None:
    rows = rows_of(table_name)
    assert engines.rows() == dict.fromkeys(("spark", "duckdb", "pyiceberg"), plain_rows(rows))
    assert engines.counts() == dict.fromkeys(("spark", "duckdb", "pyiceberg"), len(rows))
    assert engines.ends(ORDERED_COLUMNS) == dict.fromkeys(("spark", "duckdb"), known_ends(rows, ORDERED_COLUMNS))
    assert scanned_ends(table, ORDERED_COLUMNS) == known_ends(rows, ORDERED_COLUMNS)
    for column_name in FLOAT_COLUMNS:
        # Some engines give NaN as the greatest value. A question in QUESTIONS asks for the rows with NaN.
        found = engines.ends([column_name], f"not isnan({column_name})")
        assert found == dict.fromkeys(("spark", "duckdb"), known_ends(rows, [column_name]))
    wrong: dict[tuple[str, str], list[int]] = {}
    by_spark = engines.ids_by_spark(QUESTIONS)
    for question, ids_by_spark in zip(QUESTIONS, by_spark, strict=True):
        right = sorted(row["id"] for row in rows if question.holds(row))
        by_engine = {"spark": ids_by_spark, **engines.ids_by_others(question)}
        wrong |= {(question.spark, name): ids for name, ids in by_engine.items() if ids != right}
    assert wrong == {}


@pytest.mark.parametrize("table_name", ["nothing"], indirect=True)
def test_a_published_zero_row_workload_is_a_snapshot_without_files(shop: Shop, table_name: str) -> None:
    head = shop.metadata(f"sales.{table_name}").current_snapshot
    assert head is not None
    assert (head.parent_id, head.summary["total-data-files"], head.summary["total-records"]) == (None, "0", "0")
