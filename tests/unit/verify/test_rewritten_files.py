"""The file that the Steward publishes: the staged page bodies with page headers, indexes and footer of its own."""

from __future__ import annotations

import io
import struct
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from pvdm.digest.parquet import read_batches, splice
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.verify import observed
from pvdm.verify.observed import FileObservation
from tests.support.for_each import for_each
from tests.support.lake.metadata import column
from tests.support.parquet.edit import (
    BINARY,
    I64,
    LIST,
    STRUCT,
    columns,
    edit_footer,
    get,
    groups,
    metadata_of,
    pages,
    parse,
    put,
    serialize,
    split_footer,
    statistics,
    with_variants,
)
from tests.support.parquet.lies import FILTERED, HONEST, SORTED, TABLE, field, file, rows
from tests.support.rows.one_column import variants
from tests.support.verify.staged import metadata, observe_file, parquet

pytestmark = pytest.mark.usefixtures("kernel")

OPTIONS: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "pages of version 2": {"data_page_version": "2.0"},
    "no dictionary": {"use_dictionary": False},
    "no statistics": {"write_statistics": False, "write_page_index": False},
    "gzip": {"compression": "gzip"},
    "zstd": {"compression": "zstd"},
    "lz4": {"compression": "lz4"},
    "no compression": {"compression": "none"},
    "checksums": {"write_page_checksum": True},
    "one row group": {"row_group_size": 60},
    "decimals as integers": {"store_decimal_as_integer": True},
    "without Arrow's schema": {"store_schema": False},
    "byte streams": {"use_dictionary": False, "column_encoding": {"ratio": "BYTE_STREAM_SPLIT"}},
    "deltas": {"use_dictionary": False, "column_encoding": {"id": "DELTA_BINARY_PACKED"}},
}


def publish_file(data: bytes, table: TableMetadata = TABLE) -> tuple[bytes, FileObservation]:
    """The file that is published for these staged bytes, and the observation with its entry."""
    found = observe_file(data, table, rewrite=True)
    assert found.findings == ()
    assert found.recipe is not None
    return splice(found.recipe, data), found


def kernel_rows(data: bytes, table: TableMetadata = TABLE) -> list[dict[str, Any]]:
    return [row for batch in read_batches(data, to_model(table.current_schema)) for row in batch.to_pylist()]


def arrow_rows(data: bytes) -> list[dict[str, Any]]:
    return pq.read_table(pa.BufferReader(data)).to_pylist()


@pytest.mark.parametrize("name", OPTIONS)
def test_every_reader_reads_the_staged_rows(name: str, tmp_path: Any) -> None:
    staged = file(**OPTIONS[name])
    published, _ = publish_file(staged)
    assert kernel_rows(published) == kernel_rows(staged)
    assert arrow_rows(published) == arrow_rows(staged) == rows().to_pylist()
    path = tmp_path / "published.parquet"
    path.write_bytes(published)
    found_rows = duckdb.sql(f"select * from read_parquet('{path}')").to_arrow_table().to_pylist()
    assert found_rows == rows().to_pylist()


@for_each("name", OPTIONS)
def test_publishing_a_published_file_changes_nothing(name: str) -> None:
    published, _ = publish_file(file(**OPTIONS[name]))
    assert publish_file(published)[0] == published


@for_each("name", OPTIONS)
def test_the_page_bodies_equal_the_staged_ones(name: str) -> None:
    staged = file(**OPTIONS[name])
    published, _ = publish_file(staged)
    for group in range(len(groups(split_footer(staged)[1]))):
        for leaf in range(8):
            ours, theirs = pages(published, leaf, group), pages(staged, leaf, group)
            assert [body for _, body in ours] == [body for _, body in theirs]


def test_the_entry_describes_the_published_file() -> None:
    published, found = publish_file(HONEST)
    footer = pq.read_metadata(pa.BufferReader(published))
    assert found.data_file is not None
    assert found.data_file.file_size_in_bytes == len(published)
    starts = [
        min(each for each in (first.dictionary_page_offset, first.data_page_offset) if each is not None)
        for first in (footer.row_group(at).column(0) for at in range(footer.num_row_groups))
    ]
    assert list(found.data_file.split_offsets or ()) == starts
    sizes = dict(found.data_file.column_sizes or {})
    assert sizes[1] == sum(footer.row_group(at).column(0).total_compressed_size for at in range(footer.num_row_groups))


def test_key_values_filters_and_sort_orders_of_the_producer_are_not_published() -> None:
    def change(footer: Any) -> None:
        put(footer, 6, BINARY, b"parquet-mr version 1.0.0 (build x)")
        put(footer, 5, LIST, (STRUCT, [[[1, BINARY, b"secret"], [2, BINARY, b"word"]]]))

    published, _ = publish_file(edit_footer(FILTERED, change))
    footer = pq.read_metadata(pa.BufferReader(published))
    assert footer.metadata is None
    assert footer.created_by == "pvdm version 0.1.0"
    assert b"secret" not in published
    for group in groups(split_footer(published)[1]):
        for chunk in columns(group):
            assert not {14, 15, 16} & {number for number, _, _ in metadata_of(chunk)}
    assert all(number != 4 for group in groups(split_footer(publish_file(SORTED)[0])[1]) for number, _, _ in group)


def test_page_headers_have_only_the_fields_that_a_decoder_needs() -> None:
    staged = file(write_page_checksum=True)
    for head, _ in pages(publish_file(staged)[0], 1):
        assert {number for number, _, _ in head} <= {1, 2, 3, 5, 7}
        inner = get(head, 5) if any(number == 5 for number, _, _ in head) else get(head, 7)
        assert {number for number, _, _ in inner} <= {1, 2, 3, 4}


def test_statistics_are_exact() -> None:
    published, _ = publish_file(HONEST)
    footer = pq.read_metadata(pa.BufferReader(published))
    table = rows()
    for group in range(2):
        part = table.slice(30 * group, 30)
        for leaf, name in enumerate(["id", "town", "price", "ratio", "flag", "day"]):
            found: Any = footer.row_group(group).column(leaf).statistics
            ends: Any = pc.min_max(part[name]).as_py()
            assert (found.min, found.max) == (ends["min"], ends["max"]), name
            assert found.null_count == part[name].null_count
        assert footer.row_group(group).column(6).statistics is None


def test_missing_statistics_are_written() -> None:
    published, _ = publish_file(file(write_statistics=False, write_page_index=False))
    chunk: Any = pq.read_metadata(pa.BufferReader(published)).row_group(0).column(0)
    assert (chunk.statistics.min, chunk.statistics.max) == (0, 29)
    assert chunk.has_column_index


def one_column_file(kind: Any, arrow: Any, values: list[Any], **options: Any) -> tuple[bytes, TableMetadata]:
    table = metadata(column(1, "x", kind))
    return parquet(pa.table({"x": pa.array(values, arrow)}, schema=pa.schema([field("x", arrow, 1)])), **options), table


def bounds_of(data: bytes) -> tuple[Any, Any] | None:
    found = statistics(split_footer(data)[1], 0)
    numbers = {number: value for number, _, value in found}
    return (numbers[6], numbers[5]) if 5 in numbers else None


def test_bounds_at_a_zero_include_both_zeros() -> None:
    published, _ = publish_file(*one_column_file("double", pa.float64(), [0.0, -0.0]))
    assert bounds_of(published) == (struct.pack("<d", -0.0), struct.pack("<d", 0.0))


def test_a_column_with_nan_has_no_bounds() -> None:
    published, _ = publish_file(*one_column_file("double", pa.float64(), [1.0, float("nan")]))
    assert bounds_of(published) is None


def test_a_column_has_bounds_in_every_row_group_with_values_or_in_none() -> None:
    """DataFusion uses the bounds of some row groups as those of the whole file."""
    data, table = one_column_file("double", pa.float64(), [1.0, 2.0, float("nan"), 7.0, None, None], row_group_size=2)
    assert groups_with_bounds(publish_file(data, table)[0]) == [False] * 3
    data, table = one_column_file("double", pa.float64(), [1.0, 2.0, 3.0, 7.0, None, None], row_group_size=2)
    assert groups_with_bounds(publish_file(data, table)[0]) == [True, True, False]


def groups_with_bounds(data: bytes) -> list[bool]:
    footer: Any = pq.read_metadata(pa.BufferReader(data))
    return [footer.row_group(at).column(0).statistics.has_min_max for at in range(footer.num_row_groups)]


def test_a_text_of_64_bytes_or_more_has_no_bounds() -> None:
    assert bounds_of(publish_file(*one_column_file("string", pa.string(), ["a" * 63]))[0]) == (b"a" * 63, b"a" * 63)
    assert bounds_of(publish_file(*one_column_file("string", pa.string(), ["a" * 64, "b"]))[0]) is None


@pytest.mark.parametrize(
    ("kind", "arrow", "values"),
    [
        ("uuid", pa.binary(16), [bytes(16)]),
        ("fixed[3]", pa.binary(3), [b"abc"]),
        ("binary", pa.binary(), [b"abc"]),
    ],
)
def test_bytes_have_no_bounds(kind: str, arrow: Any, values: list[Any]) -> None:
    published, _ = publish_file(*one_column_file(kind, arrow, values))
    assert bounds_of(published) is None


def test_a_wide_decimal_has_bounds_of_its_own_length() -> None:
    values = [Decimal("-1.25"), Decimal("99.50")]
    published, _ = publish_file(*one_column_file("decimal(30, 2)", pa.decimal128(30, 2), values))
    low, high = bounds_of(published) or (b"", b"")
    assert [int.from_bytes(each, "big", signed=True) for each in (low, high)] == [-125, 9950]
    assert len(low) == len(high) == 13


def test_columns_have_the_names_and_the_order_of_the_table() -> None:
    table = metadata(column(1, "order id"), column(2, "town", "string"))
    data = pa.table(
        {"b": pa.array(["x"]), "a": pa.array([7])},
        schema=pa.schema([field("b", pa.string(), 2), field("a", pa.int64(), 1)]),
    )
    published, _ = publish_file(parquet(data), table)
    assert arrow_rows(published) == [{"order_x20id": 7, "town": "x"}]


def test_two_columns_with_one_escaped_name_are_refused() -> None:
    table = metadata(column(1, "a b"), column(2, "a_x20b"))
    data = pa.table({"x": [1], "y": [2]}, schema=pa.schema([field("x", pa.int64(), 1), field("y", pa.int64(), 2)]))
    (finding,) = observe_file(parquet(data), table, rewrite=True).findings
    assert finding.code == "parquet_names_collide"


MAP: Any = {"type": "map", "key-id": 2, "key": "string", "value-id": 3, "value": "string", "value-required": False}


def test_swapped_names_of_the_children_of_a_map_are_corrected() -> None:
    table = metadata(column(1, "m", MAP))
    kind = pa.map_(field("key", pa.string(), 2).with_nullable(False), field("value", pa.string(), 3))
    staged = parquet(pa.table({"m": pa.array([[("k", "v")]], kind)}, schema=pa.schema([field("m", kind, 1)])))

    def swap(footer: Any) -> None:
        elements = get(footer, 2)[1]
        put(elements[3], 4, BINARY, b"value")
        put(elements[4], 4, BINARY, b"key")
        for chunk, name in zip(columns(groups(footer)[0]), (b"value", b"key"), strict=True):
            path = get(metadata_of(chunk), 3)[1]
            path[-1] = name

    published, _ = publish_file(edit_footer(staged, swap), table)
    footer = pq.read_metadata(pa.BufferReader(published))
    assert [footer.schema.column(at).path for at in range(2)] == ["m.key_value.key", "m.key_value.value"]
    assert arrow_rows(published) == [{"m": [("k", "v")]}]


def test_a_variant_is_published_with_its_annotation() -> None:
    """The field number of this annotation is too large for the short form of a Thrift field header."""
    table = metadata(column(1, "v", "variant"), version=3)
    values = variants(b"\x0c\x05", None, b"\x0c\x07")
    data = pa.table({"v": values}, schema=pa.schema([field("v", values.type, 1)]))
    staged = with_variants(parquet(data, store_schema=False), "v")
    published, _ = publish_file(staged, table)
    assert get(get(split_footer(published)[1], 2)[1][1], 10) == [[16, STRUCT, [[1, 3, 1]]]]
    assert kernel_rows(published, table) == kernel_rows(staged, table)
    assert publish_file(published, table)[0] == published


def test_a_row_group_has_its_offset_and_ordinal() -> None:
    def change(footer: Any) -> None:
        put(groups(footer)[1], 5, I64, 4)

    published, _ = publish_file(edit_footer(HONEST, change))
    _, footer = split_footer(published)
    first = [get(metadata_of(columns(group)[0]), 11) for group in groups(footer)]
    assert [get(group, 5) for group in groups(footer)] == first
    assert [get(group, 7) for group in groups(footer)] == [0, 1]


def test_bytes_between_pages_are_not_published() -> None:
    """Bytes outside of pages were not proved."""
    body, footer = split_footer(HONEST)
    hidden = body + b"hidden bytes"
    data = hidden + serialize(footer) + struct.pack("<I", len(serialize(footer))) + b"PAR1"
    published, _ = publish_file(data)
    assert b"hidden bytes" not in published


def test_a_row_group_without_rows_is_left_out() -> None:
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, rows().schema) as writer:
        writer.write_table(rows().slice(0, 0))
        writer.write_table(rows())
    published, found = publish_file(sink.getvalue())
    assert pq.read_metadata(pa.BufferReader(published)).num_row_groups == 1
    assert found.data_file is not None
    assert len(found.data_file.split_offsets or ()) == 1


def test_a_file_without_rows_is_published() -> None:
    published, found = publish_file(file(rows().slice(0, 0)))
    assert pq.read_metadata(pa.BufferReader(published)).num_rows == 0
    assert found.data_file is not None
    assert found.data_file.record_count == 0


def test_a_file_whose_published_form_is_above_the_fetch_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The staged file is below the limit. With the Steward's indexes it is not, and the gate could not hash it."""
    staged = file(write_statistics=False, write_page_index=False)
    published, _ = publish_file(staged)
    monkeypatch.setattr(observed, "FETCH_SIZE_MAX_BYTES", len(published))
    assert publish_file(staged)[0] == published
    monkeypatch.setattr(observed, "FETCH_SIZE_MAX_BYTES", len(published) - 1)
    found = observe_file(staged, TABLE, rewrite=True)
    assert [each.code for each in found.findings] == ["parquet_too_large"]
    assert (found.data_file, found.recipe) == (None, None)


def test_a_narrower_decimal_is_refused() -> None:
    data, _ = one_column_file("decimal(9, 2)", pa.decimal128(9, 2), [Decimal("1.25")])
    (finding,) = observe_file(data, metadata(column(1, "x", "decimal(18, 2)")), rewrite=True).findings
    assert finding.code == "cast_refused"


def test_the_published_footer_passes_the_checks_of_a_producers_footer() -> None:
    """The file is accepted also if its footer is checked as a producer's."""
    published, _ = publish_file(HONEST)
    assert observe_file(published, TABLE).findings == ()
    _, footer = split_footer(published)
    assert serialize(footer) == serialize(parse(serialize(footer))[0])
