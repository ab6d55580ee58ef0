"""Filters by zeros, NaN and uuids on real Spark, through Iceberg and Parquet; and copies of every NaN."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pvdm
from pvdm import Committed, Coordinator, Outcome
from pvdm.digest import Engine, Plan, reference_engine
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.paths import parse_location
from pvdm.lake.read.entries import live_entries
from pvdm.model.filter.bind import bind
from pvdm.model.filter.text import parse_expression
from pvdm.model.projection import ProjectionName, content
from pvdm.model.role import Role
from pvdm.model.schema import Field, Kind, PrimitiveType, Schema
from pvdm.physical.spark import condition
from pvdm.verify.filtering import filter_rows
from tests.support.oracles.filters import float_filters, keeps
from tests.support.steward.shop import Disk, Shop, contract, shop_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.usefixtures("kernel", "compiled_queries")

SCHEMA = Schema(
    (
        Field("id", PrimitiveType(Kind.LONG)),
        Field("f", PrimitiveType(Kind.FLOAT)),
        Field("d", PrimitiveType(Kind.DOUBLE)),
    )
)
NAN = math.nan
FILES: list[list[float | None]] = [
    [-0.0],
    [0.0],
    [NAN],
    [None],
    [-0.0, 1.5],
    [1.5, NAN],
    [-1.5, -0.0],
    # A dictionary without 0.0 between bounds on either side of it.
    [-1.5, 1.5, -0.0] * 20,
    [math.inf, -math.inf, 0.0],
]
"""Values of single files: what bounds, dictionaries and partitions leave out is another file each time."""
LAYOUTS = [
    ("plain", "d"),
    *(pytest.param(name, kind, marks=pytest.mark.long) for name, kind in (("by_float", "f"), ("by_double", "d"))),
    pytest.param("files", "f", marks=pytest.mark.long),
]


def rows_of(values: list[float | None], start: int) -> pa.Table:
    ids = range(start, start + len(values))
    arrays: list[Any] = [pa.array(ids, pa.int64()), pa.array(values, pa.float32()), pa.array(values, pa.float64())]
    return pa.Table.from_arrays(arrays, names=list(SCHEMA.names))


def all_files() -> list[pa.Table]:
    starts = [sum(map(len, FILES[:at])) for at in range(len(FILES))]
    return [rows_of(values, start) for values, start in zip(FILES, starts, strict=True)]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with shop_at(tmp_path_factory.mktemp("floats")) as made:
        yield made


def operator(shop: Shop) -> str:
    lake = f"floats_{shop.steward.url.rpartition(':')[2]}"
    pvdm.spark_session(shop.steward, Role.OPERATOR, "*", name=lake)
    return lake


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder: Path = tmp_path_factory.mktemp("parquet")
    found = []
    for at, rows in enumerate(all_files()):
        path = str(folder / f"{at}.parquet")
        pq.write_table(rows, path)
        found.append(path)
    return found


def union_all(frames: Sequence[DataFrame]) -> DataFrame:
    """The union of all frames as a balanced tree: Spark analyzes everything below each union again."""
    if len(frames) == 1:
        return frames[0]
    half = len(frames) // 2
    return union_all(frames[:half]).union(union_all(frames[half:]))


@pytest.fixture(scope="module")
def frames(shop: Shop, spark: SparkSession, paths: list[str]) -> dict[str, DataFrame]:
    """The rows in every layout; Spark writes a file of its own for each file that it reads."""
    lake = operator(shop)
    rows = union_all([spark.read.parquet(path) for path in paths])
    found = {"files": spark.read.parquet(*paths)}
    for name, partitioned in (("plain", ""), ("by_float", "partitioned by (f)"), ("by_double", "partitioned by (d)")):
        spark.sql(f"create table {lake}.raw.{name} (id bigint, f float, d double) using iceberg {partitioned}")
        rows.writeTo(f"{lake}.raw.{name}").append()
        found[name] = spark.table(f"{lake}.raw.{name}")
    return found


@pytest.mark.parametrize(("layout", "column"), LAYOUTS)
def test_every_comparison_keeps_the_rows_that_the_steward_keeps(
    frames: dict[str, DataFrame], layout: str, column: str
) -> None:
    from pyspark.sql import functions

    texts = float_filters(column)
    bound = [bind(parse_expression(text), SCHEMA, {}) for text in texts]
    (batch,) = pa.concat_tables(all_files()).combine_chunks().to_batches()
    rows = batch.to_pylist()
    got: dict[int, list[int]] = {at: [] for at in range(len(texts))}
    # In one query, but each filter with a scan of its own: what is pushed down is a filter's own.
    asked = [
        frames[layout].where(condition(each)).select(functions.lit(at).alias("filter"), "id")
        for at, each in enumerate(bound)
    ]
    for row in union_all(asked).collect():
        got[row["filter"]].append(row["id"])
    for at, (text, each) in enumerate(zip(texts, bound, strict=True)):
        expected = [row["id"] for row in rows if keeps(each, row)]
        assert (text, sorted(got[at])) == (text, expected)
        assert (text, filter_rows(batch, each).column("id").to_pylist()) == (text, expected)


def test_no_comparison_of_floats_is_pushed_down_to_a_source(frames: dict[str, DataFrame]) -> None:
    """Sources order floats by their bits and leave NaN out of bounds; other columns are still pushed down."""
    for layout in ("plain", "files"):
        where = bind(parse_expression("d >= 0 and f in (0, 1) and id > 3"), SCHEMA, {})
        plan = frames[layout].where(condition(where))._jdf.queryExecution().executedPlan().toString()
        pushed = re.search(r"PushedFilters: \[(.*?)\]|, filters=(.*?), runtimeFilters", plan)
        assert pushed is not None, plan
        pushed_filters = pushed[1] or pushed[2]
        assert "GreaterThan(id,3)" in pushed_filters or "id > 3" in pushed_filters
        assert re.search(r"\b[fd] *(>|<|=|!|IN)|[A-Z]\w*\([fd],", pushed_filters) is None


def run(shop: Shop, spark: SparkSession, table: str) -> Outcome:
    with Coordinator(shop.steward, spark) as coordinator:
        return coordinator.execute_workload(f"{table}-1", table=table)


def published(shop: Shop, table: str) -> list[pa.Table]:
    metadata = shop.metadata(table)
    if metadata.current_snapshot is None:
        return []
    entries = live_entries(metadata, metadata.current_snapshot, Disk())
    return [pq.ParquetFile(parse_location(entry.data_file.file_path).local).read() for entry in entries]


SAMPLE = ("equal_to_negative", "not_among", "in_ranges")
"""The copies that `make test` makes; `make test-long` makes all."""
COPIES = {
    "equal": ("d = 0.0", ""),
    "equal_to_negative": ("f = -0.0", ""),
    "not_equal": ("d != -0.0", ""),
    "less": ("d < 0", ""),
    "less_or_equal": ("f <= 0", ""),
    "greater": ("d > 0", ""),
    "greater_or_equal": ("d >= -0.0", ""),
    "among": ("f in (0, 1.5)", ""),
    "not_among": ("d not in (0, 1.5)", ""),
    "in_ranges": ("true", "chunking:\n  by: range\n  column: d\n  bounds: ['0', '1.5']"),
    "in_partitions": ("true", "chunking:\n  by: partition\n  columns: [d]"),
}


@pytest.mark.parametrize(
    "name", [name if name in SAMPLE else pytest.param(name, marks=pytest.mark.long) for name in COPIES]
)
@pytest.mark.usefixtures("frames")
def test_an_honest_copy_by_a_comparison_of_floats_passes(shop: Shop, spark: SparkSession, name: str) -> None:
    where, chunking = COPIES[name]
    target = f"sales.{name}"
    spark.sql(f"create table {operator(shop)}.{target} (id bigint, f float, d double) using iceberg partitioned by (d)")
    more = [chunking, "atomicity: workload"] if chunking else []
    shop.protect(contract(target, *more, where=f'"{where}"').replace("raw.orders", "raw.by_double"))
    outcome = run(shop, spark, target)
    assert isinstance(outcome, Committed), outcome
    expression = bind(parse_expression(where), SCHEMA, {})
    rows = pa.concat_tables(all_files()).to_pylist()
    seen = [repr(row) for part in published(shop, target) for row in part.to_pylist()]
    assert sorted(seen) == sorted(repr(row) for row in rows if keeps(expression, row))


SINGLES = [struct.pack("<I", bits) for bits in (0x7FC00000, 0xFFC00000, 0x7F800001, 0x7FC12345, 0xFFFFFFFF, 1 << 31, 0)]
DOUBLES = [
    struct.pack("<Q", bits)
    for bits in (0x7FF8 << 48, 0xFFF8 << 48, 0x7FF0 << 48 | 1, 0x7FF8 << 48 | 0xABC, 2**64 - 1, 1 << 63, 0)
]


def array_of(kind: pa.DataType, values: list[bytes]) -> Any:
    """An array from the bits of its values, which no conversion changes."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(b"".join(values))])


def nans() -> pa.Table:
    singles, doubles = array_of(pa.float32(), SINGLES), array_of(pa.float64(), DOUBLES)
    rows = len(SINGLES)
    offsets: Any = pa.array(range(rows + 1), pa.int32())
    texts: Any = pa.array(["k"] * rows)
    arrays: list[Any] = [
        pa.array(range(rows), pa.int64()),
        singles,
        doubles,
        pa.ListArray.from_arrays(offsets, doubles),
        pa.MapArray.from_arrays(offsets, texts, singles),
        pa.MapArray.from_arrays(offsets, doubles, texts),
        pa.StructArray.from_arrays([doubles, singles], names=["d", "f"]),
    ]
    return pa.Table.from_arrays(arrays, names=["id", "f", "d", "l", "m", "k", "s"])


def bits_of(rows: pa.Table, name: str) -> bytes:
    held: Any = rows.column(name).combine_chunks()
    found: bytes = held.buffers()[1].to_pybytes()
    return found


def test_sparks_copy_of_every_nan_passes_and_zeros_keep_their_sign(
    shop: Shop, spark: SparkSession, kernel: Engine
) -> None:
    lake = operator(shop)
    columns = (
        "id bigint, f float, d double, l array<double>, m map<string, float>, k map<double, string>,"
        " s struct<d: double, f: float>"
    )
    for table in ("raw.nans", "sales.nans"):
        spark.sql(f"create table {lake}.{table} ({columns}) using iceberg")
    shop.write_table(nans(), "raw.nans")
    shop.protect(contract("sales.nans").replace("raw.orders", "raw.nans"))
    outcome = run(shop, spark, "sales.nans")
    assert isinstance(outcome, Committed), outcome
    (copy,) = published(shop, "sales.nans")
    copy = copy.sort_by("id")
    one_nan, nan_count = struct.pack("<Q", 0x7FF8 << 48), 5  # the first five of DOUBLES are NaNs
    assert bits_of(copy, "d") == b"".join([one_nan] * nan_count + DOUBLES[nan_count:])
    assert bits_of(nans(), "d") == b"".join(DOUBLES)
    schema = to_model(shop.metadata("sales.nans").current_schema)
    plan = Plan(schema, (content(schema),))
    encoded = [
        engine.encode(plan, ProjectionName.CONTENT, each)
        for engine in (kernel, reference_engine())
        for rows in (nans(), copy)
        for each in rows.combine_chunks().to_batches()
    ]
    assert all(each == encoded[0] for each in encoded)
    assert len(set(encoded[0])) == len(SINGLES)


UUIDS = [UUID(int=0), UUID(int=1), UUID(int=2**127), UUID(int=2**128 - 1), UUID(int=2**127 - 1)]


@pytest.mark.parametrize("comparison", [f"= '{UUIDS[2]}'", f"in ('{UUIDS[1]}', '{UUIDS[3]}')", f"!= '{UUIDS[4]}'"])
def test_an_honest_copy_by_a_comparison_of_uuids_passes(shop: Shop, spark: SparkSession, comparison: str) -> None:
    """Iceberg compares uuids with a sign, and a file's statistics order them without."""
    number = len(shop.made)
    columns = (("id", "long"), ("u", "uuid"))
    for table in (f"raw.uuids_{number}", f"sales.uuids_{number}"):
        shop.make(table, columns=columns)
    for size in (1, 5):
        values = [each.bytes for each in UUIDS[-size:]]
        ids = pa.array(range(10 * size, 10 * size + size), pa.int64())
        rows = pa.Table.from_arrays([ids, pa.array(values, pa.binary(16))], names=["id", "u"])
        shop.write_table(rows, f"raw.uuids_{number}")
    text = contract(f"sales.uuids_{number}", where=f'"u {comparison}"').replace("raw.orders", f"raw.uuids_{number}")
    shop.protect(text)
    outcome = run(shop, spark, f"sales.uuids_{number}")
    assert isinstance(outcome, Committed), outcome
    expression = bind(parse_expression(f"u {comparison}"), Schema((Field("u", PrimitiveType(Kind.UUID)),)), {})
    expected = [each for size in (1, 5) for each in UUIDS[-size:] if keeps(expression, {"u": each})]
    assert sum(part.num_rows for part in published(shop, f"sales.uuids_{number}")) == len(expected)
