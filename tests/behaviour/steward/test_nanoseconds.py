"""Publishes timestamps with nanoseconds, which Spark can neither read nor write, without a JVM."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import pyarrow as pa
import pytest

from pvdm import Committed, Coordinator, Outcome, VerificationFailed
from pvdm.lake.format.manifest.entry import DataFile
from pvdm.lake.format.schema.single_value import decode_value
from pvdm.lake.read.entries import live_entries
from pvdm.model.role import Role
from pvdm.model.schema import Kind, PrimitiveType
from pvdm.model.statements.core import Operation
from pvdm.physical.small import SmallStager
from pvdm.physical.stager import Destination
from tests.support.catalog.http import Caller
from tests.support.lake.metadata import column, schema
from tests.support.oracles.engines import consumer_catalog
from tests.support.steward.http import bearer
from tests.support.steward.shop import Disk, Shop, contract, shop_at

# The warnings are PyIceberg's own.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:pyiceberg")
Doc = dict[str, Any]
SCHEMA = schema(0, column(1, "id"), column(2, "at", "timestamp_ns"), column(3, "seen", "timestamptz_ns"))
DAY = 86_400_000_000_000
# A day's last nanosecond, the first two of the next day, the last one before 1970, and null.
TICKS: tuple[int | None, ...] = (DAY * 20_000 - 1, DAY * 20_000, DAY * 20_000 + 1, -1, None)
ROWS = tuple((number, TICKS[number % 5], TICKS[(number + 1) % 5]) for number in range(10))
# The name of the table, and field id and transform of its partition column.
SPECS: tuple[tuple[str, int, str], ...] = (
    ("by_day", 2, "day"),
    ("by_hour", 3, "hour"),
    ("by_bucket", 2, "bucket[3]"),
    ("by_itself", 3, "identity"),
)


def arrow_table(rows: Sequence[tuple[int, int | None, int | None]]) -> pa.Table:
    kinds: tuple[Any, ...] = (pa.int64(), pa.timestamp("ns"), pa.timestamp("ns", "UTC"))
    columns: list[Any] = [pa.array([row[at] for row in rows], kind) for at, kind in enumerate(kinds)]
    return pa.Table.from_arrays(columns, names=["id", "at", "seen"])


def create_table(shop: Shop, name: str, spec: Sequence[Doc] = ()) -> None:
    namespace, table = name.split(".")
    with httpx.Client(base_url=shop.steward.url) as http:
        Caller(http, bearer(shop.steward.token_for(Role.OPERATOR).text)).make(
            table,
            namespace=namespace,
            **{
                "schema": SCHEMA,
                "partition-spec": {"spec-id": 0, "fields": list(spec)},
                "properties": {"format-version": "3"},
            },
        )


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with shop_at(tmp_path_factory.mktemp("nanoseconds")) as made:
        create_table(made, "raw.ticks")
        token = made.steward.token_for(Role.OPERATOR, "*")
        location = made.metadata("raw.ticks", Role.OPERATOR).location
        url = made.steward.url
        source = Destination(url, "raw.ticks", "main", location, "none", "none", "0" * 32, token, Operation.APPEND)
        with made.client(Role.OPERATOR, "*") as client:
            SmallStager(client).stage(lambda: arrow_table(ROWS), source)
        yield made


def publish(shop: Shop, name: str, rows: Sequence[Any] = ROWS, *, spec: Sequence[Doc] = ()) -> Outcome:
    create_table(shop, f"sales.{name}", spec)
    shop.protect(contract(f"sales.{name}").replace("raw.orders", "raw.ticks"))
    with Coordinator(shop.steward) as coordinator:
        return coordinator.execute_workload(name, lambda *_: arrow_table(rows), table=f"sales.{name}")


def data_files(shop: Shop, name: str) -> list[DataFile]:
    metadata = shop.metadata(f"sales.{name}")
    assert metadata.current_snapshot is not None
    return [entry.data_file for entry in live_entries(metadata, metadata.current_snapshot, Disk())]


def test_bounds_are_exact_to_the_nanosecond(shop: Shop) -> None:
    outcome = publish(shop, "plain")
    assert isinstance(outcome, Committed), outcome
    (file,) = data_files(shop, "plain")
    for field_id, kind in ((2, Kind.TIMESTAMP_NS), (3, Kind.TIMESTAMPTZ_NS)):
        assert file.lower_bounds is not None
        assert file.upper_bounds is not None
        assert file.null_value_counts is not None
        ends = [bounds[field_id] for bounds in (file.lower_bounds, file.upper_bounds)]
        assert [decode_value(PrimitiveType(kind), each) for each in ends] == [-1, DAY * 20_000 + 1]
        assert file.null_value_counts[field_id] == 2


def test_pyiceberg_reads_every_nanosecond_of_what_was_published(shop: Shop) -> None:
    outcome = publish(shop, "read", spec=[{"name": "p", "source-id": 2, "transform": "day", "field-id": 1000}])
    assert isinstance(outcome, Committed), outcome
    catalog = consumer_catalog(shop.steward.url, shop.steward.token_for(Role.CONSUMER, "sales").text)
    table = catalog.load_table("sales.read")
    for where, wanted in (("id >= 0", ROWS), ("at is null", [row for row in ROWS if row[1] is None])):
        found: Any = table.scan(row_filter=where).to_arrow()
        seen = [found.column(name).cast(pa.int64()).to_pylist() for name in ("id", "at", "seen")]
        assert sorted(zip(*seen, strict=True)) == list(wanted), where


@pytest.mark.parametrize(("name", "source", "transform"), SPECS)
def test_partitions_of_nanoseconds_are_derived_and_published(
    shop: Shop, name: str, source: int, transform: str
) -> None:
    spec = [{"name": "p", "source-id": source, "transform": transform, "field-id": 1000}]
    outcome = publish(shop, name, spec=spec)
    assert isinstance(outcome, Committed), outcome
    assert sum(file.record_count for file in data_files(shop, name)) == len(ROWS)
    if transform == "day":
        assert sorted(file.partition[1000] for file in data_files(shop, name) if file.partition[1000] is not None) == [
            -1,
            19_999,
            20_000,
        ]


def test_one_nanosecond_more_is_another_row(shop: Shop) -> None:
    changed = [(number, at if at is None or number != 3 else at + 1, seen) for number, at, seen in ROWS]
    outcome = publish(shop, "changed", changed)
    assert isinstance(outcome, VerificationFailed), outcome
    assert outcome.error.details["classes"] == "modified"
