"""Counts and bounds of a file against those computed from its values, for random tables of every type."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pvdm.lake.format.schema.bounds import is_ordered, order_key
from pvdm.lake.format.schema.logical import to_model, type_to_iceberg
from pvdm.lake.format.schema.single_value import encode_value
from pvdm.model.schema import DecimalType, FixedType, Type
from tests.property.test_transforms import KINDS, plain, values
from tests.support.lake.metadata import Doc, column
from tests.support.lake.scans import table_of
from tests.support.verify.staged import metadata, observe_file, parquet

FULL = {"write.metadata.metrics.default": "full"}
Rows = Sequence[Any]


class Facts(NamedTuple):
    """What a manifest entry says about a column."""

    values: int
    nulls: int
    nans: int | None
    lower: bytes | None
    upper: bytes | None


@st.composite
def tables(draw: st.DrawFn) -> tuple[Sequence[Type], Rows, dict[str, Any]]:
    """Types of columns, rows of their values, and how the file is written."""
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4))
    size = draw(st.integers(0, 8))
    rows = [tuple(draw(st.none() | values(kind)) for kind in kinds) for _ in range(size)]
    options = {
        "row_group_size": draw(st.integers(1, 4)),
        "compression": draw(st.sampled_from(["none", "zstd"])),
        "use_dictionary": draw(st.booleans()),
        "data_page_version": draw(st.sampled_from(["1.0", "2.0"])),
    }
    return kinds, rows, options


def expected(kind: Type, cells: Sequence[Any]) -> Facts:
    """The facts of a column with these cells."""
    present = [value for value in cells if value is not None]
    floats = str(kind) in ("float", "double")
    numbers = [value for value in present if not (floats and math.isnan(value))]
    ordered = sorted(numbers, key=lambda value: order_key(kind, value))
    low, high = (ordered[0], ordered[-1]) if ordered and is_ordered(kind) else (None, None)
    if floats:
        # A bound that is a zero has the sign with which it contains both zeros.
        low, high = -0.0 if low == 0 else low, 0.0 if high == 0 else high
    ends = [None if end is None else encode_value(kind, end) for end in (low, high)]
    nans = len(present) - len(numbers) if floats else None
    return Facts(len(cells), len(cells) - len(present), nans, ends[0], ends[1])


def facts(table: Any, data: bytes) -> Mapping[int, Facts]:
    """The facts that verification computes for the file, by column id."""
    found = observe_file(data, table)
    assert found.findings == ()
    file = found.data_file
    assert file is not None
    maps: list[Mapping[int, Any]] = [
        file.value_counts or {},
        file.null_value_counts or {},
        file.nan_value_counts or {},
        file.lower_bounds or {},
        file.upper_bounds or {},
    ]
    return {each: Facts._make(known.get(each) for known in maps) for each in file.value_counts or {}}


@pytest.mark.usefixtures("kernel")
@given(case=tables())
def test_counts_and_bounds_are_those_of_the_values(case: tuple[Sequence[Type], Rows, dict[str, Any]]) -> None:
    kinds, rows, options = case
    fields = [column(at + 1, f"c{at}", type_to_iceberg(kind)) for at, kind in enumerate(kinds)]
    table = metadata(*fields, properties=FULL, version=3)
    made = [{f"c{at}": plain(value) for at, value in enumerate(row)} for row in rows]
    data = parquet(table_of(to_model(table.current_schema), made), **options)
    assert facts(table, data) == {at + 1: expected(kind, [row[at] for row in rows]) for at, kind in enumerate(kinds)}


@st.composite
def nested(draw: st.DrawFn) -> tuple[Type, list[Any]]:
    """A type, and rows of which each is null, a struct of null, or a struct of a value with a list beside it."""
    kind = draw(st.sampled_from(KINDS))
    row = st.none() | st.tuples(st.none() | values(kind), st.none() | st.lists(st.integers(0, 9), max_size=3))
    return kind, draw(st.lists(row, max_size=6))


@pytest.mark.usefixtures("kernel")
@given(case=nested())
def test_a_null_struct_counts_as_a_null_of_each_field(case: tuple[Type, list[Any]]) -> None:
    kind, rows = case
    inner: Doc = {"type": "list", "element-id": 5, "element": "long", "element-required": False}
    struct: Doc = {"type": "struct", "fields": [column(2, "v", type_to_iceberg(kind)), column(4, "l", inner)]}
    table = metadata(column(1, "s", struct), properties=FULL, version=3)
    made = [{"s": None if row is None else {"v": plain(row[0]), "l": row[1]}} for row in rows]
    data = parquet(table_of(to_model(table.current_schema), made))
    assert facts(table, data) == {2: expected(kind, [None if row is None else row[0] for row in rows])}


def narrower() -> Iterator[tuple[pa.DataType, str, Sequence[Any], tuple[bytes, bytes]]]:
    long = [number.to_bytes(8, "little", signed=True) for number in (-2, 7)]
    yield pa.int32(), "long", [7, -2], (long[0], long[1])
    yield pa.int8(), "int", [7, -2], ((-2).to_bytes(4, "little", signed=True), (7).to_bytes(4, "little"))
    yield pa.decimal128(5, 2), "decimal(9,2)", [1], (b"\x64", b"\x64")


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("case", [*narrower()], ids=lambda case: f"{case[0]} as {case[1]}")
def test_bounds_of_a_narrower_file_are_those_of_the_tables_type(case: tuple[Any, ...]) -> None:
    arrow, iceberg, rows, ends = case
    fields: list[Any] = [pa.field("v", arrow, metadata={"PARQUET:field_id": "1"})]
    arrays: list[Any] = [pa.array(rows, arrow)]
    data = parquet(pa.Table.from_arrays(arrays, schema=pa.schema(fields)))
    table = metadata(column(1, "v", iceberg), properties=FULL)
    observed = facts(table, data)[1]
    assert (observed.lower, observed.upper) == ends


def test_decimals_and_fixed_are_among_the_types_that_are_tried() -> None:
    assert {type(kind) for kind in KINDS} >= {DecimalType, FixedType}
