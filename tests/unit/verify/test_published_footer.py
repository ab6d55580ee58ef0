"""Files that are published with the producer's own footer: what one engine reads differently is refused.

Each file passes where the Steward writes the footer itself, so the rule that is tested is the only one that stops it.
"""

from __future__ import annotations

import base64
import decimal
import struct
import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tests.support.lake.metadata import column
from tests.support.parquet.edit import (
    BINARY,
    COLUMN_INDEX,
    I64,
    STRUCT,
    Struct,
    columns,
    drop,
    edited,
    get,
    groups,
    index_edited,
    put,
    repaged,
    told,
)
from tests.support.parquet.footers import HONEST, LONGS, PLAIN, ROWS, SCHEMA, field, require_accepted, require_refused
from tests.support.verify.staged import metadata, parquet

pytestmark = pytest.mark.usefixtures("kernel")

OFFSET, ORDINAL, TOTAL_BYTE_SIZE = 5, 7, 2


def with_group(number: int, kind: int, value: int, group: int = 1) -> bytes:
    return edited(HONEST, lambda footer: put(groups(footer)[group], number, kind, value))


def with_column(number: int, value: int) -> bytes:
    return edited(HONEST, lambda footer: put(told(columns(groups(footer)[0])[1]), number, I64, value))


# --- places and sizes


@pytest.mark.parametrize("offset", [0, 4, 1 << 40])
def test_a_file_offset_that_is_not_the_first_columns_start_is_refused(offset: int) -> None:
    """Trino takes a row group only if this offset lies in its split."""
    require_refused("parquet_ambiguous", with_group(OFFSET, I64, offset), LONGS)


def test_a_row_group_without_a_file_offset_is_accepted() -> None:
    require_accepted(edited(HONEST, lambda footer: drop(groups(footer)[1], OFFSET)), LONGS)
    require_accepted(HONEST, LONGS)


@pytest.mark.parametrize(
    "file",
    [
        pytest.param(with_group(TOTAL_BYTE_SIZE, I64, -1), id="total_byte_size"),
        pytest.param(with_column(6, -1), id="total_uncompressed_size"),
        pytest.param(with_column(10, -1), id="index_page_offset"),
        pytest.param(edited(HONEST, lambda f: put(columns(groups(f)[0])[1], 2, I64, -1)), id="file_offset of a chunk"),
    ],
)
def test_a_negative_size_or_offset_is_refused(file: bytes) -> None:
    require_refused("parquet_ambiguous", file, LONGS)


def with_ordinals(*ordinals: int) -> bytes:
    def edit(footer: Struct) -> None:
        for group, ordinal in zip(groups(footer), ordinals, strict=False):
            put(group, ORDINAL, 4, ordinal)

    return edited(HONEST, edit)


def test_an_ordinal_that_is_not_the_row_groups_position_is_refused() -> None:
    require_refused("parquet_ambiguous", with_ordinals(0, 0), LONGS)
    require_accepted(with_ordinals(0, 1), LONGS)


def test_an_ordinal_of_some_row_groups_alone_is_refused() -> None:
    """DataFusion cannot read it."""
    require_refused("parquet_ambiguous", with_ordinals(0), LONGS)


def test_a_key_value_without_a_key_is_refused() -> None:
    """PyArrow and DuckDB cannot read a footer without a required field."""

    def edit(pair: Struct) -> bytes:
        return edited(HONEST, lambda footer: put(told(columns(groups(footer)[0])[0]), 8, 9, (STRUCT, [pair])))

    require_refused("parquet_ambiguous", edit([[2, BINARY, b"value"]]), LONGS)
    require_accepted(edit([[1, BINARY, b"key"], [2, BINARY, b"value"]]), LONGS)


def test_a_key_value_of_the_file_without_a_value_is_refused() -> None:
    """Trino cannot open the file; of a column's own pairs it reads none."""
    pair: Struct = [[1, BINARY, b"key"]]
    require_refused("parquet_ambiguous", edited(HONEST, lambda footer: put(footer, 5, 9, (STRUCT, [pair]))), LONGS)
    whole: Struct = [*pair, [2, BINARY, b"value"]]
    require_accepted(edited(HONEST, lambda footer: put(footer, 5, 9, (STRUCT, [whole]))), LONGS)
    of_column = edited(HONEST, lambda footer: put(told(columns(groups(footer)[0])[0]), 8, 9, (STRUCT, [pair])))
    require_accepted(of_column, LONGS)


@pytest.mark.parametrize("number", [7, 8])
def test_a_scale_or_a_precision_alone_is_refused(number: int) -> None:
    """Polars cannot read it."""
    require_refused("parquet_ambiguous", edited(HONEST, lambda footer: put(get(footer, 2)[1][1], number, 5, 3)), LONGS)


@pytest.mark.parametrize("numbers", [(1, 2, 5, 6, 7, 8), (2, 6, 8), (1, 5, 7), (6,), (5,)])
def test_ends_of_some_row_groups_alone_are_refused(numbers: tuple[int, ...]) -> None:
    """DataFusion takes the ends that are there for those of the file, and loses rows."""

    def without(*at: int) -> bytes:
        def edit(footer: Struct) -> None:
            for group in at:
                drop(get(told(columns(groups(footer)[group])[1]), 12), *numbers)

        return edited(HONEST, edit)

    require_refused("parquet_statistics_lie", without(1), LONGS)
    require_accepted(without(0, 1), LONGS)


def test_statistics_without_a_count_of_nulls_are_refused() -> None:
    """DataFusion takes a missing count for zero, and finds no null."""

    def edit(footer: Struct) -> None:
        for group in groups(footer):
            drop(get(told(columns(group)[1]), 12), 3)

    require_refused("parquet_statistics_lie", edited(HONEST, edit), LONGS)


def test_a_size_of_values_that_have_none_is_refused() -> None:
    """PyArrow cannot read it."""

    def edit(footer: Struct) -> None:
        put(told(columns(groups(footer)[0])[1]), 16, STRUCT, [[1, I64, 0]])

    require_refused("parquet_statistics_lie", edited(HONEST, edit), LONGS)


def test_a_row_group_of_nulls_alone_needs_no_ends() -> None:
    rows = pa.table({"id": [1, 2, 3, None, None, None], "b": range(ROWS)}, schema=SCHEMA)
    require_accepted(parquet(rows, row_group_size=3), LONGS)


# --- ends of values of a fixed length

FIXED = metadata(column(1, "id", "fixed[4]"))
DECIMALS = metadata(column(1, "id", "decimal(9, 2)"))
FIXED_ROWS = pa.table(
    {"id": [struct.pack(">i", at) for at in range(ROWS)]}, schema=pa.schema([field(1, "id", pa.binary(4))])
)
DECIMAL_ROWS = pa.table(
    {"id": [decimal.Decimal(at) for at in range(ROWS)]}, schema=pa.schema([field(1, "id", pa.decimal128(9, 2))])
)


def fixed_file(table: pa.Table) -> bytes:
    return parquet(table, use_dictionary=False, compression="none", write_page_index=True)


def footer_end(number: int, change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    def edit(footer: Struct) -> None:
        statistics = get(told(columns(groups(footer)[0])[0]), 12)
        put(statistics, number, BINARY, change(get(statistics, number)))
        drop(statistics, 7, 8)

    return lambda data: edited(data, edit)


def page_end(change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    def edit(pages: list[tuple[Struct, bytes]]) -> None:
        head = get(pages[0][0], 5)
        put(head, 5, STRUCT, [[5, BINARY, change(struct.pack(">i", ROWS - 1))]])

    return lambda data: repaged(data, edit)


def index_end(change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    def edit(index: Struct) -> None:
        kind, (end,) = get(index, 3)
        put(index, 3, 9, (kind, [change(end)]))

    return lambda data: index_edited(data, COLUMN_INDEX, 0, edit)


def longer(end: bytes) -> bytes:
    return end + b"\xff"


def shorter(end: bytes) -> bytes:
    return end[:-1] + bytes([end[-1]]) if len(end) < 2 else end[:-2] + bytes([end[-2] + 1])


def sign_extended(end: bytes) -> bytes:
    return (b"\xff" if end[0] & 0x80 else b"\0") + end


@pytest.mark.parametrize("change", [longer, shorter])
@pytest.mark.parametrize("place", [lambda each: footer_end(5, each), page_end, index_end])
def test_an_end_of_fixed_values_that_is_not_as_long_as_the_type_is_refused(place: Any, change: Any) -> None:
    """PyArrow reads the first bytes of it, so that filters lose rows."""
    code = "parquet_page_index_lies" if place is index_end else "parquet_statistics_lie"
    require_refused(code, place(change)(fixed_file(FIXED_ROWS)), FIXED)
    require_accepted(place(lambda end: end)(fixed_file(FIXED_ROWS)), FIXED)


@pytest.mark.parametrize("place", [lambda each: footer_end(5, each), lambda each: footer_end(6, each), index_end])
def test_an_end_of_decimals_that_is_longer_than_the_type_is_refused(place: Any) -> None:
    code = "parquet_page_index_lies" if place is index_end else "parquet_statistics_lie"
    require_refused(code, place(sign_extended)(fixed_file(DECIMAL_ROWS)), DECIMALS)
    require_accepted(place(lambda end: end)(fixed_file(DECIMAL_ROWS)), DECIMALS)


def test_a_column_index_of_long_fixed_values_may_be_cut() -> None:
    """Writers in Java and Rust cut at 64 bytes."""
    rows = pa.table({"id": [bytes([at]) * 80 for at in range(ROWS)]}, schema=pa.schema([field(1, "id", pa.binary(80))]))
    cut = index_end(lambda end: end[:63] + bytes([end[63] + 1]))(fixed_file(rows))
    require_accepted(cut, metadata(column(1, "id", "fixed[80]")))


# --- types by which engines filter


def test_a_decimal_of_fewer_digits_than_the_tables_is_refused() -> None:
    """PyIceberg cannot filter by it."""
    require_refused("cast_refused", fixed_file(DECIMAL_ROWS), metadata(column(1, "id", "decimal(12, 2)")))


def test_a_bloom_filter_of_32_bits_for_a_long_column_is_refused() -> None:
    """Trino asks it for the hash of 64 bits, and misses rows."""
    rows = pa.table({"id": range(ROWS)}, schema=pa.schema([field(1, "id", pa.int32())]))
    filtered = parquet(rows, bloom_filter_options={"id": True})
    require_refused("parquet_claim_unverified", filtered, metadata(column(1, "id")))
    require_accepted(filtered, metadata(column(1, "id", "int")))
    require_accepted(parquet(rows), metadata(column(1, "id")))


@pytest.mark.parametrize(("arrow", "kind"), [(pa.binary(), "binary"), (pa.binary(4), "fixed[4]")])
def test_a_bloom_filter_of_bytes_is_refused(arrow: pa.DataType, kind: str) -> None:
    """DuckDB hashes another form of bytes, and finds no row."""
    rows = pa.table({"id": [b"abcd"] * ROWS}, schema=pa.schema([field(1, "id", arrow)]))
    table = metadata(column(1, "id", kind))
    require_refused("parquet_claim_unverified", parquet(rows, bloom_filter_options={"id": True}), table)
    require_accepted(parquet(rows), table)


# --- Arrow's own schema


def with_arrow_schema(schema: pa.Schema, *, times: int = 1) -> bytes:
    text = base64.b64encode(schema.serialize().to_pybytes())
    return with_arrow_text(text, times=times)


def with_arrow_text(text: bytes, *, times: int = 1) -> bytes:
    pair = [[1, BINARY, b"ARROW:schema"], [2, BINARY, text]]
    return edited(PLAIN, lambda footer: put(footer, 5, 9, (STRUCT, [pair] * times)))


def arrow_of(kind: pa.DataType, **metadata: str) -> pa.Schema:
    return pa.schema([field(1, "id", kind, **metadata), SCHEMA.field("b")])


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param(pa.schema([SCHEMA.field("b"), SCHEMA.field("id")]), id="other order"),
        pytest.param(pa.schema([SCHEMA.field("id")]), id="a column less"),
        pytest.param(arrow_of(pa.duration("us")), id="duration"),
        pytest.param(arrow_of(pa.timestamp("us")), id="timestamp"),
        pytest.param(arrow_of(pa.uint64()), id="unsigned"),
        pytest.param(pa.schema([field(2, "id", pa.int64()), SCHEMA.field("b")]), id="another id"),
        pytest.param(arrow_of(pa.int64(), **{"ARROW:extension:name": "arrow.opaque"}), id="an extension"),
    ],
)
def test_an_arrow_schema_that_contradicts_the_file_is_refused(schema: pa.Schema) -> None:
    require_refused("parquet_ambiguous", with_arrow_schema(schema), LONGS)


def test_an_arrow_schema_that_cannot_be_decoded_or_stands_twice_is_refused() -> None:
    require_refused("parquet_ambiguous", with_arrow_text(b"AAAA"), LONGS)
    require_refused("parquet_ambiguous", with_arrow_text(b"not base64"), LONGS)
    require_refused("parquet_ambiguous", with_arrow_schema(SCHEMA, times=2), LONGS)


def test_the_key_of_geoparquet_is_refused() -> None:
    """DuckDB makes geometries of the binary columns that it names."""

    def keyed(key: bytes) -> bytes:
        pair = [[1, BINARY, key], [2, BINARY, b"{}"]]
        return edited(PLAIN, lambda footer: put(footer, 5, 9, (STRUCT, [pair])))

    require_refused("parquet_ambiguous", keyed(b"geo"), LONGS)
    require_accepted(keyed(b"pandas"), LONGS)


def test_an_arrow_schema_with_another_layout_of_the_same_types_is_accepted() -> None:
    require_accepted(with_arrow_schema(SCHEMA), LONGS)
    require_accepted(with_arrow_schema(arrow_of(pa.dictionary(pa.int32(), pa.int64()))), LONGS)
    kinds: dict[str, list[Any]] = {
        "string": [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())],
        "binary": [pa.binary(), pa.large_binary(), pa.binary_view()],
        "timestamptz": [pa.timestamp("us", "UTC"), pa.timestamp("us", "+00:00")],
        "uuid": [pa.uuid()],
    }
    for kind, layouts in kinds.items():
        for layout in layouts:
            values = [uuid.UUID(int=at).bytes for at in range(ROWS)] if kind == "uuid" else [None] * ROWS
            array = pa.array(values, pa.binary(16)).cast(layout) if kind == "uuid" else pa.array(values, layout)
            rows = pa.Table.from_arrays([array], schema=pa.schema([field(1, "id", layout)]))
            require_accepted(parquet(rows), metadata(column(1, "id", kind)))


def test_an_arrow_schema_with_another_zone_than_utc_is_refused() -> None:
    """PyIceberg cannot read it."""
    rows = pa.table({"id": [None] * ROWS}, schema=pa.schema([field(1, "id", pa.timestamp("us", "Europe/Berlin"))]))
    require_refused("parquet_ambiguous", parquet(rows), metadata(column(1, "id", "timestamptz")))
