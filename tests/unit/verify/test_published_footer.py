"""Files that are published with the producer's own footer: a footer that one engine reads differently is refused.

Each of these files is accepted if the Steward writes the footer itself. So only the tested rule refuses it.
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

from tests.support.for_each import for_each
from tests.support.lake.metadata import column
from tests.support.parquet.edit import (
    BINARY,
    COLUMN_INDEX,
    I64,
    STRUCT,
    Struct,
    columns,
    drop,
    edit_footer,
    edit_page_index,
    edit_pages,
    get,
    groups,
    metadata_of,
    put,
)
from tests.support.parquet.footers import HONEST, LONGS, PLAIN, ROWS, SCHEMA, field, require_accepted, require_refused
from tests.support.verify.staged import metadata, parquet

pytestmark = pytest.mark.usefixtures("kernel")

OFFSET, ORDINAL, TOTAL_BYTE_SIZE = 5, 7, 2


def set_in_group(number: int, kind: int, value: int, group: int = 1) -> bytes:
    return edit_footer(HONEST, lambda footer: put(groups(footer)[group], number, kind, value))


def set_in_column(number: int, value: int) -> bytes:
    return edit_footer(HONEST, lambda footer: put(metadata_of(columns(groups(footer)[0])[1]), number, I64, value))


# --- offsets and sizes


@pytest.mark.parametrize("offset", [0, 4, 1 << 40])
def test_a_file_offset_that_is_not_the_first_columns_start_is_refused(offset: int) -> None:
    """Trino reads a row group only if this offset is in its split."""
    require_refused("parquet_ambiguous", set_in_group(OFFSET, I64, offset), LONGS)


def test_a_row_group_without_a_file_offset_is_accepted() -> None:
    require_accepted(edit_footer(HONEST, lambda footer: drop(groups(footer)[1], OFFSET)), LONGS)
    require_accepted(HONEST, LONGS)


@for_each(
    "file",
    [
        pytest.param(set_in_group(TOTAL_BYTE_SIZE, I64, -1), id="total_byte_size"),
        pytest.param(set_in_column(6, -1), id="total_uncompressed_size"),
        pytest.param(set_in_column(10, -1), id="index_page_offset"),
        pytest.param(
            edit_footer(HONEST, lambda f: put(columns(groups(f)[0])[1], 2, I64, -1)), id="file_offset of a chunk"
        ),
    ],
)
def test_a_negative_size_or_offset_is_refused(file: bytes) -> None:
    require_refused("parquet_ambiguous", file, LONGS)


def set_ordinals(*ordinals: int) -> bytes:
    def edit(footer: Struct) -> None:
        for group, ordinal in zip(groups(footer), ordinals, strict=False):
            put(group, ORDINAL, 4, ordinal)

    return edit_footer(HONEST, edit)


def test_an_ordinal_that_is_not_the_row_groups_position_is_refused() -> None:
    require_refused("parquet_ambiguous", set_ordinals(0, 0), LONGS)
    require_accepted(set_ordinals(0, 1), LONGS)


def test_ordinals_of_some_row_groups_only_are_refused() -> None:
    """DataFusion cannot read it."""
    require_refused("parquet_ambiguous", set_ordinals(0), LONGS)


def test_a_key_value_without_a_key_is_refused() -> None:
    """PyArrow and DuckDB cannot read a footer without a required field."""

    def edit(pair: Struct) -> bytes:
        pairs = (STRUCT, [pair])
        return edit_footer(HONEST, lambda footer: put(metadata_of(columns(groups(footer)[0])[0]), 8, 9, pairs))

    require_refused("parquet_ambiguous", edit([[2, BINARY, b"value"]]), LONGS)
    require_accepted(edit([[1, BINARY, b"key"], [2, BINARY, b"value"]]), LONGS)


def test_a_key_value_of_the_file_without_a_value_is_refused() -> None:
    """Trino cannot open such a file; it does not read the key-values of columns."""
    pair: Struct = [[1, BINARY, b"key"]]
    require_refused("parquet_ambiguous", edit_footer(HONEST, lambda footer: put(footer, 5, 9, (STRUCT, [pair]))), LONGS)
    whole: Struct = [*pair, [2, BINARY, b"value"]]
    require_accepted(edit_footer(HONEST, lambda footer: put(footer, 5, 9, (STRUCT, [whole]))), LONGS)
    pairs = (STRUCT, [pair])
    of_column = edit_footer(HONEST, lambda footer: put(metadata_of(columns(groups(footer)[0])[0]), 8, 9, pairs))
    require_accepted(of_column, LONGS)


@pytest.mark.parametrize("number", [7, 8])
def test_a_scale_or_precision_of_a_long_column_is_refused(number: int) -> None:
    """Polars cannot read it."""
    data = edit_footer(HONEST, lambda footer: put(get(footer, 2)[1][1], number, 5, 3))
    require_refused("parquet_ambiguous", data, LONGS)


@for_each("numbers", [(1, 2, 5, 6, 7, 8), (2, 6, 8), (1, 5, 7), (6,), (5,)])
def test_bounds_in_some_row_groups_only_are_refused(numbers: tuple[int, ...]) -> None:
    """DataFusion uses the bounds of some row groups as those of the whole file, and loses rows."""

    def remove_bounds(*at: int) -> bytes:
        def edit(footer: Struct) -> None:
            for group in at:
                drop(get(metadata_of(columns(groups(footer)[group])[1]), 12), *numbers)

        return edit_footer(HONEST, edit)

    require_refused("parquet_statistics_lie", remove_bounds(1), LONGS)
    require_accepted(remove_bounds(0, 1), LONGS)


def test_statistics_without_a_count_of_nulls_are_refused() -> None:
    """DataFusion reads a missing count as zero, and finds no null."""

    def edit(footer: Struct) -> None:
        for group in groups(footer):
            drop(get(metadata_of(columns(group)[1]), 12), 3)

    require_refused("parquet_statistics_lie", edit_footer(HONEST, edit), LONGS)


def test_a_size_of_texts_in_a_column_of_longs_is_refused() -> None:
    """PyArrow cannot read it."""

    def edit(footer: Struct) -> None:
        put(metadata_of(columns(groups(footer)[0])[1]), 16, STRUCT, [[1, I64, 0]])

    require_refused("parquet_statistics_lie", edit_footer(HONEST, edit), LONGS)


def test_a_row_group_of_nulls_only_needs_no_bounds() -> None:
    rows = pa.table({"id": [1, 2, 3, None, None, None], "b": range(ROWS)}, schema=SCHEMA)
    require_accepted(parquet(rows, row_group_size=3), LONGS)


# --- bounds of values of a fixed length

FIXED = metadata(column(1, "id", "fixed[4]"))
DECIMALS = metadata(column(1, "id", "decimal(9, 2)"))
FIXED_ROWS = pa.table(
    {"id": [struct.pack(">i", at) for at in range(ROWS)]}, schema=pa.schema([field(1, "id", pa.binary(4))])
)
DECIMAL_ROWS = pa.table(
    {"id": [decimal.Decimal(at) for at in range(ROWS)]}, schema=pa.schema([field(1, "id", pa.decimal128(9, 2))])
)


def file_of(table: pa.Table) -> bytes:
    return parquet(table, use_dictionary=False, compression="none", write_page_index=True)


def change_footer_bound(number: int, change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    def edit(footer: Struct) -> None:
        statistics = get(metadata_of(columns(groups(footer)[0])[0]), 12)
        put(statistics, number, BINARY, change(get(statistics, number)))
        drop(statistics, 7, 8)

    return lambda data: edit_footer(data, edit)


def change_page_bound(change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    def edit(pages: list[tuple[Struct, bytes]]) -> None:
        head = get(pages[0][0], 5)
        put(head, 5, STRUCT, [[5, BINARY, change(struct.pack(">i", ROWS - 1))]])

    return lambda data: edit_pages(data, edit)


def change_index_bound(change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    def edit(index: Struct) -> None:
        kind, (bound,) = get(index, 3)
        put(index, 3, 9, (kind, [change(bound)]))

    return lambda data: edit_page_index(data, COLUMN_INDEX, 0, edit)


def longer(bound: bytes) -> bytes:
    return bound + b"\xff"


def shorter(bound: bytes) -> bytes:
    return bound[:-1] + bytes([bound[-1]]) if len(bound) < 2 else bound[:-2] + bytes([bound[-2] + 1])


def sign_extended(bound: bytes) -> bytes:
    return (b"\xff" if bound[0] & 0x80 else b"\0") + bound


@pytest.mark.parametrize("change", [longer, shorter])
@pytest.mark.parametrize("place", [lambda each: change_footer_bound(5, each), change_page_bound, change_index_bound])
def test_a_bound_of_fixed_values_of_another_length_is_refused(place: Any, change: Any) -> None:
    """PyArrow reads only its first bytes, so filters lose rows."""
    code = "parquet_page_index_lies" if place is change_index_bound else "parquet_statistics_lie"
    require_refused(code, place(change)(file_of(FIXED_ROWS)), FIXED)
    require_accepted(place(lambda bound: bound)(file_of(FIXED_ROWS)), FIXED)


@pytest.mark.parametrize(
    "place",
    [lambda each: change_footer_bound(5, each), lambda each: change_footer_bound(6, each), change_index_bound],
)
def test_a_bound_of_decimals_that_is_longer_than_the_type_is_refused(place: Any) -> None:
    code = "parquet_page_index_lies" if place is change_index_bound else "parquet_statistics_lie"
    require_refused(code, place(sign_extended)(file_of(DECIMAL_ROWS)), DECIMALS)
    require_accepted(place(lambda bound: bound)(file_of(DECIMAL_ROWS)), DECIMALS)


def test_cut_bounds_of_long_fixed_values_in_a_column_index_are_accepted() -> None:
    """Writers in Java and Rust cut bounds at 64 bytes."""
    rows = pa.table({"id": [bytes([at]) * 80 for at in range(ROWS)]}, schema=pa.schema([field(1, "id", pa.binary(80))]))
    cut_bound = change_index_bound(lambda bound: bound[:63] + bytes([bound[63] + 1]))(file_of(rows))
    require_accepted(cut_bound, metadata(column(1, "id", "fixed[80]")))


# --- types by which engines filter


def test_a_decimal_of_fewer_digits_than_the_tables_is_refused() -> None:
    """PyIceberg cannot filter by it."""
    require_refused("cast_refused", file_of(DECIMAL_ROWS), metadata(column(1, "id", "decimal(12, 2)")))


def test_a_bloom_filter_of_32_bits_for_a_long_column_is_refused() -> None:
    """Trino looks up the hash of the 64-bit value, and misses rows."""
    rows = pa.table({"id": range(ROWS)}, schema=pa.schema([field(1, "id", pa.int32())]))
    with_filter = parquet(rows, bloom_filter_options={"id": True})
    require_refused("parquet_claim_unverified", with_filter, metadata(column(1, "id")))
    require_accepted(with_filter, metadata(column(1, "id", "int")))
    require_accepted(parquet(rows), metadata(column(1, "id")))


@pytest.mark.parametrize(("arrow", "kind"), [(pa.binary(), "binary"), (pa.binary(4), "fixed[4]")])
def test_a_bloom_filter_of_bytes_is_refused(arrow: pa.DataType, kind: str) -> None:
    """DuckDB hashes another form of bytes, and finds no row."""
    rows = pa.table({"id": [b"abcd"] * ROWS}, schema=pa.schema([field(1, "id", arrow)]))
    table = metadata(column(1, "id", kind))
    require_refused("parquet_claim_unverified", parquet(rows, bloom_filter_options={"id": True}), table)
    require_accepted(parquet(rows), table)


# --- Arrow's own schema


def set_arrow_schema(schema: pa.Schema, *, times: int = 1) -> bytes:
    text = base64.b64encode(schema.serialize().to_pybytes())
    return set_arrow_text(text, times=times)


def set_arrow_text(text: bytes, *, times: int = 1) -> bytes:
    pair = [[1, BINARY, b"ARROW:schema"], [2, BINARY, text]]
    return edit_footer(PLAIN, lambda footer: put(footer, 5, 9, (STRUCT, [pair] * times)))


def arrow_schema_of(kind: pa.DataType, **metadata: str) -> pa.Schema:
    return pa.schema([field(1, "id", kind, **metadata), SCHEMA.field("b")])


@for_each(
    "schema",
    [
        pytest.param(pa.schema([SCHEMA.field("b"), SCHEMA.field("id")]), id="other order"),
        pytest.param(pa.schema([SCHEMA.field("id")]), id="a column less"),
        pytest.param(arrow_schema_of(pa.duration("us")), id="duration"),
        pytest.param(arrow_schema_of(pa.timestamp("us")), id="timestamp"),
        pytest.param(arrow_schema_of(pa.uint64()), id="unsigned"),
        pytest.param(pa.schema([field(2, "id", pa.int64()), SCHEMA.field("b")]), id="another id"),
        pytest.param(arrow_schema_of(pa.int64(), **{"ARROW:extension:name": "arrow.opaque"}), id="an extension"),
    ],
)
def test_an_arrow_schema_that_contradicts_the_file_is_refused(schema: pa.Schema) -> None:
    require_refused("parquet_ambiguous", set_arrow_schema(schema), LONGS)


def test_an_arrow_schema_that_is_invalid_or_repeated_is_refused() -> None:
    require_refused("parquet_ambiguous", set_arrow_text(b"AAAA"), LONGS)
    require_refused("parquet_ambiguous", set_arrow_text(b"not base64"), LONGS)
    require_refused("parquet_ambiguous", set_arrow_schema(SCHEMA, times=2), LONGS)


def test_the_key_of_geoparquet_is_refused() -> None:
    """DuckDB reads the binary columns that the key names as geometries."""

    def set_key(key: bytes) -> bytes:
        pair = [[1, BINARY, key], [2, BINARY, b"{}"]]
        return edit_footer(PLAIN, lambda footer: put(footer, 5, 9, (STRUCT, [pair])))

    require_refused("parquet_ambiguous", set_key(b"geo"), LONGS)
    require_accepted(set_key(b"pandas"), LONGS)


def test_an_arrow_schema_with_another_layout_of_the_same_types_is_accepted() -> None:
    require_accepted(set_arrow_schema(SCHEMA), LONGS)
    require_accepted(set_arrow_schema(arrow_schema_of(pa.dictionary(pa.int32(), pa.int64()))), LONGS)
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
