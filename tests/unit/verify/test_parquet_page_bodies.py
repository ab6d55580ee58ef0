"""Page bodies that the kernel reads but some engine cannot: they are refused, because they are published unchanged."""

from __future__ import annotations

import copy
import struct
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pvdm.digest.parquet import splice
from pvdm.lake.format.table.metadata import TableMetadata
from tests.support.lake.metadata import column
from tests.support.parquet.edit import (
    I32,
    I64,
    LIST,
    STRUCT,
    columns,
    drop,
    edit_footer,
    get,
    groups,
    join_footer,
    metadata_of,
    pages,
    put,
    serialize,
    split_footer,
)
from tests.support.parquet.lies import field
from tests.support.parquet.pages import RLE_DICTIONARY, Page, dictionary_page, longs, page, rebuild, run
from tests.support.verify.staged import codes, metadata, observe_file, parquet

pytestmark = pytest.mark.usefixtures("kernel")

DELTA_BINARY_PACKED = 5
ZSTD = 6
ONES = run(4, 1)


def file_and_table(kind: Any, arrow: Any, values: list[Any], **options: Any) -> tuple[bytes, TableMetadata]:
    """A file of one column `x`, by default without compression and dictionary, and the metadata of its table."""
    chosen: dict[str, Any] = {"compression": "none", "use_dictionary": False, **options}
    data = pa.table({"x": pa.array(values, arrow)}, schema=pa.schema([field("x", arrow, 1)]))
    return parquet(data, **chosen), metadata(column(1, "x", kind))


def codes_of(*new_pages: Page) -> list[str]:
    """The codes of the findings in a file with these pages, equal with and without a rewrite of the file."""
    data, table = file_and_table("long", pa.int64(), [1, 2, 3, 4])
    changed = rebuild(data, {0: new_pages})
    (first, second) = (codes(observe_file(changed, table, rewrite=rewrite).findings) for rewrite in (True, False))
    assert first == second
    return first


EMPTY = page(0, b"", b"")
ALL_VALUES = page(4, longs(1, 2, 3, 4), ONES)


def test_a_first_page_without_values_is_refused() -> None:
    """PyArrow reads it as the end of the column."""
    assert codes_of(ALL_VALUES) == []
    assert codes_of(ALL_VALUES, EMPTY) == []
    assert codes_of(EMPTY, ALL_VALUES) == ["parquet_ambiguous"]


def test_pages_without_values_are_not_published() -> None:
    """PyArrow writes such pages, but stops reading at one that is inside a row."""
    data, table = file_and_table("long", pa.int64(), [1, 2, 3, 4])
    staged = rebuild(data, {0: [page(2, longs(1, 2), run(2, 1)), EMPTY, page(2, longs(3, 4), run(2, 1)), EMPTY]})
    recipe = observe_file(staged, table, rewrite=True).recipe
    assert recipe is not None
    published = splice(recipe, staged)
    assert [get(get(head, 5), 1) for head, _ in pages(published, 0)] == [2, 2]
    assert pq.read_table(pa.BufferReader(published))["x"].to_pylist() == [1, 2, 3, 4]


def test_a_first_page_without_values_inside_a_list_is_refused_where_the_producers_footer_is_published() -> None:
    """PyArrow reads it as the end of the column; the Steward's own file leaves it out."""
    item = pa.list_(field("element", pa.int64(), 2))
    listed = {"type": "list", "element-id": 2, "element": "long", "element-required": False}
    honest, table = file_and_table(listed, item, [[1], [2]])
    nothing, whole = page(0, b"", b"", b""), page(2, longs(1, 2), run(2, 3), run(2, 0))
    data = rebuild(honest, {0: [nothing, whole]})
    assert codes(observe_file(data, table, footer_published=True).findings) == ["parquet_ambiguous"]
    assert codes(observe_file(rebuild(honest, {0: [whole, nothing]}), table, footer_published=True).findings) == []
    copied = observe_file(data, table, rewrite=True)
    assert copied.recipe is not None
    assert pq.read_table(pa.BufferReader(splice(copied.recipe, data)))["x"].to_pylist() == [[1], [2]]


def test_a_page_of_nulls_with_a_count_of_differences_is_refused() -> None:
    """Polars reads as many differences as the page declares."""
    rest = page(2, longs(3, 4), run(2, 1))

    def nulls(count: int) -> Page:
        return page(2, bytes([128, 1, 4, count, 0]), run(2, 0), encoding=DELTA_BINARY_PACKED)

    assert codes_of(nulls(0), rest) == []
    assert codes_of(nulls(2), rest) == ["parquet_ambiguous"]


@pytest.mark.parametrize(("filling", "expected"), [(0b00, []), (0b10, []), (0b11, ["parquet_ambiguous"])])
def test_an_invalid_index_in_the_padding_of_a_packed_run_is_refused(filling: int, expected: list[str]) -> None:
    """Polars looks up every index of a packed run, also those of the padding."""
    last = filling << 6
    indices = bytes([2, 3, 0b10_01_00_01, last])
    assert codes_of(dictionary_page(3, longs(7, 8, 9)), page(4, indices, ONES, encoding=RLE_DICTIONARY)) == expected


def test_an_invalid_index_in_an_unneeded_packed_group_is_refused() -> None:
    indices = bytes([2, 5, 0b10_01_00_01, 0, 0, 0b11])
    assert codes_of(dictionary_page(3, longs(7, 8, 9)), page(4, indices, ONES, encoding=RLE_DICTIONARY)) == [
        "parquet_ambiguous"
    ]


@pytest.mark.parametrize(("bits", "expected"), [(27, []), (28, ["parquet_ambiguous"]), (31, ["parquet_ambiguous"])])
def test_a_zstandard_window_that_java_refuses_is_refused(bits: int, expected: list[str]) -> None:
    """Spark cannot read a page whose Zstandard frame declares a window above 128 MiB, even if the page is short."""
    data, table = file_and_table("long", pa.int64(), [1, 2, 3, 4])
    head, body = page(4, longs(1, 2, 3, 4), ONES)
    first = struct.pack("<IBB", 0xFD2FB528, 0, 10 << 3) + struct.pack("<I", 8 << 3 | 1)[:3] + body[:8]
    second = struct.pack("<IBB", 0xFD2FB528, 0, bits - 10 << 3)
    second += struct.pack("<I", len(body) - 8 << 3 | 1)[:3] + body[8:]
    skipped = struct.pack("<II", 0x184D2A53, 3) + b"abc"
    for frames in (first + second, skipped + first + second):
        put(head, 3, I32, len(frames))
        changed = edit_footer(rebuild(data, {0: [(head, frames)]}), set_zstandard)
        assert codes(observe_file(changed, table, rewrite=True).findings) == expected


def set_zstandard(footer: Any) -> None:
    put(metadata_of(columns(groups(footer)[0])[0]), 4, I32, ZSTD)


def test_zstandard_pages_of_pyarrow_are_accepted() -> None:
    for options in ({}, {"compression_level": 19}, {"data_page_version": "2.0"}):
        data, table = file_and_table("long", pa.int64(), [*range(9_000), None], compression="zstd", **options)
        assert observe_file(data, table, rewrite=True).findings == ()


def as_decimal(element: Any, physical: int, length: int | None) -> None:
    """Change an element of the schema to a decimal of 38 digits."""
    put(element, 1, I32, physical)
    drop(element, 2)
    if length is not None:
        put(element, 2, I32, length)
    put(element, 6, I32, 5)
    put(element, 7, I32, 2)
    put(element, 8, I32, 38)
    put(element, 10, STRUCT, [[5, STRUCT, [[1, I32, 2], [2, I32, 38]]]])


def test_a_decimal_of_variable_length_is_refused() -> None:
    """Iceberg has no such form, and Spark's vectorized reader stops at it."""
    data, _ = file_and_table("binary", pa.binary(), [b"1"] * 4)

    def change(footer: Any) -> None:
        as_decimal(get(footer, 2)[1][1], 6, None)

    changed = edit_footer(rebuild(data, {0: [page(4, b"\1\0\0\0\7" * 4, ONES)]}), change)
    for rewrite in (True, False):
        observed = observe_file(changed, metadata(column(1, "x", "decimal(38, 2)")), rewrite=rewrite)
        assert codes(observed.findings) == ["parquet_ambiguous"]


@pytest.mark.parametrize(("length", "expected"), [(16, []), (17, ["parquet_ambiguous"]), (32, ["parquet_ambiguous"])])
def test_a_decimal_of_more_than_16_bytes_is_refused(length: int, expected: list[str]) -> None:
    """PyArrow and Polars read decimals of up to 16 bytes."""
    data, _ = file_and_table("fixed[16]", pa.binary(16), [bytes(16)] * 4)
    table = metadata(column(1, "x", "decimal(38, 2)"))

    def change(footer: Any) -> None:
        as_decimal(get(footer, 2)[1][1], 7, length)

    values = b"".join(number.to_bytes(length, "big", signed=True) for number in (-1, 0, 1, 10**37))
    changed = edit_footer(rebuild(data, {0: [page(4, values, ONES)]}), change)
    for rewrite in (True, False):
        assert codes(observe_file(changed, table, rewrite=rewrite).findings) == expected


MAP: Any = {"type": "map", "key-id": 2, "key": "string", "value-id": 3, "value": "string", "value-required": False}


@pytest.mark.parametrize(("repetition", "expected"), [(0, []), (1, ["parquet_ambiguous"])])
def test_optional_keys_of_a_map_are_refused(repetition: int, expected: list[str]) -> None:
    """PyArrow cannot open a file with optional keys."""
    kind = pa.map_(field("key", pa.string(), 2).with_nullable(False), field("value", pa.string(), 3))
    schema = pa.schema([field("m", kind, 1)])
    pairs = pa.table({"m": pa.array([[("k", "v")]], kind)}, schema=schema)
    data = parquet(pairs, compression="none", use_dictionary=False)
    definition = run(1, 2 + repetition)
    key = page(1, b"\1\0\0\0k", definition, run(1, 0))

    def change(footer: Any) -> None:
        put(get(footer, 2)[1][3], 3, I32, repetition)

    changed = edit_footer(rebuild(data, {0: [key]}), change)
    for rewrite in (True, False):
        observed = observe_file(changed, metadata(column(1, "m", MAP)), rewrite=rewrite, record_count=1)
        assert codes(observed.findings) == expected


def test_names_that_differ_by_case_alone_are_refused() -> None:
    """DuckDB returns the values of the first column for both."""
    table = metadata(column(1, "id"), column(2, "ID"))
    data = pa.table({"x": [1], "y": [2]}, schema=pa.schema([field("x", pa.int64(), 1), field("y", pa.int64(), 2)]))
    assert codes(observe_file(parquet(data), table, rewrite=True).findings) == ["parquet_names_collide"]


@pytest.mark.parametrize(("groups", "expected"), [(3_800, []), (4_300, ["parquet_too_large"])])
def test_a_file_whose_published_footer_would_be_too_long_is_refused(groups: int, expected: list[str]) -> None:
    """The staged file has short column names, the published one has the table's long names in every row group."""
    names = [f"{'-' * 1_022}x{at}" for at in range(4)]
    schema = pa.schema([field(f"x{at}", pa.int64(), at + 1) for at in range(4)])
    data = parquet(pa.table([pa.array(range(groups))] * 4, schema=schema), row_group_size=1, use_dictionary=False)
    table = metadata(*(column(at, name) for at, name in enumerate(names, 1)))
    assert codes(observe_file(data, table, rewrite=True).findings) == expected


@pytest.mark.long
@pytest.mark.parametrize(
    ("count", "rewrite", "expected"),
    [(500_001, True, ["parquet_too_large"]), (500_000, True, []), (500_001, False, [])],
)
def test_a_file_of_more_pages_than_a_rewrite_keeps_in_memory_is_refused(
    count: int, rewrite: bool, expected: list[str]
) -> None:
    """More memory is used for a page than it has bytes: 140 MB for 12 MB of pages."""
    data, table = file_and_table("boolean", pa.bool_(), [True])
    head, body = page(1, b"\1", run(1, 1))
    # The body of the first page contains all other pages, so that they need not be built one by one.
    more = (serialize(head) + body) * (count - 1)
    chunk, footer = split_footer(rebuild(data, {0: [(head, body + more)]}))
    (group,) = groups(footer)
    put(group, 3, I64, count)
    put(metadata_of(columns(group)[0]), 5, I64, count)
    second = copy.deepcopy(group)
    put(metadata_of(columns(second)[0]), 9, I64, len(chunk))
    put(footer, 3, I64, 2 * count)
    put(footer, 4, LIST, (STRUCT, [group, second]))
    changed = join_footer(chunk + chunk[4:], footer)
    assert codes(observe_file(changed, table, rewrite=rewrite).findings) == expected
