"""Page bodies that the kernel reads and an engine does not: refused, since they are published as they are."""

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
    edited,
    get,
    groups,
    joined,
    pages,
    put,
    split,
    told,
    written,
)
from tests.support.parquet.lies import field
from tests.support.parquet.pages import RLE_DICTIONARY, Page, dictionary, longs, page, rebuilt, run
from tests.support.verify.staged import codes, metadata, observe_file, parquet

pytestmark = pytest.mark.usefixtures("kernel")

DELTA_BINARY_PACKED = 5
ZSTD = 6
ONES = run(4, 1)


def file(kind: Any, arrow: Any, values: list[Any], **options: Any) -> tuple[bytes, TableMetadata]:
    """A file of one column, without compression and dictionary unless it is asked for."""
    chosen: dict[str, Any] = {"compression": "none", "use_dictionary": False, **options}
    data = pa.table({"x": pa.array(values, arrow)}, schema=pa.schema([field("x", arrow, 1)]))
    return parquet(data, **chosen), metadata(column(1, "x", kind))


def found(*made_of: Page) -> list[str]:
    """What is found of four longs in these pages, with either kind of storage."""
    data, table = file("long", pa.int64(), [1, 2, 3, 4])
    made = rebuilt(data, {0: made_of})
    (first, second) = (codes(observe_file(made, table, rewrite=rewrite).findings) for rewrite in (True, False))
    assert first == second
    return first


NOTHING = page(0, b"", b"")
WHOLE = page(4, longs(1, 2, 3, 4), ONES)


def test_a_first_page_without_values_is_refused() -> None:
    """PyArrow takes it for the end of the column."""
    assert found(WHOLE) == []
    assert found(WHOLE, NOTHING) == []
    assert found(NOTHING, WHOLE) == ["parquet_ambiguous"]


def test_pages_without_values_are_not_published() -> None:
    """PyArrow writes some, and stops at those that are inside a row."""
    data, table = file("long", pa.int64(), [1, 2, 3, 4])
    staged = rebuilt(data, {0: [page(2, longs(1, 2), run(2, 1)), NOTHING, page(2, longs(3, 4), run(2, 1)), NOTHING]})
    recipe = observe_file(staged, table, rewrite=True).recipe
    assert recipe is not None
    published = splice(recipe, staged)
    assert [get(get(head, 5), 1) for head, _ in pages(published, 0)] == [2, 2]
    assert pq.read_table(pa.BufferReader(published))["x"].to_pylist() == [1, 2, 3, 4]


def test_a_first_page_without_values_inside_a_list_is_refused_where_the_producers_footer_is_published() -> None:
    """PyArrow takes a first one for the end of the column; the Steward's own file leaves it out."""
    item = pa.list_(field("element", pa.int64(), 2))
    listed = {"type": "list", "element-id": 2, "element": "long", "element-required": False}
    honest, table = file(listed, item, [[1], [2]])
    nothing, whole = page(0, b"", b"", b""), page(2, longs(1, 2), run(2, 3), run(2, 0))
    data = rebuilt(honest, {0: [nothing, whole]})
    assert codes(observe_file(data, table, footer_published=True).findings) == ["parquet_ambiguous"]
    assert codes(observe_file(rebuilt(honest, {0: [whole, nothing]}), table, footer_published=True).findings) == []
    copied = observe_file(data, table, rewrite=True)
    assert copied.recipe is not None
    assert pq.read_table(pa.BufferReader(splice(copied.recipe, data)))["x"].to_pylist() == [[1], [2]]


def test_differences_of_a_page_of_nulls_are_none() -> None:
    """Polars looks for as many as the page says."""
    rest = page(2, longs(3, 4), run(2, 1))

    def nulls(count: int) -> Page:
        return page(2, bytes([128, 1, 4, count, 0]), run(2, 0), encoding=DELTA_BINARY_PACKED)

    assert found(nulls(0), rest) == []
    assert found(nulls(2), rest) == ["parquet_ambiguous"]


@pytest.mark.parametrize(("filling", "expected"), [(0b00, []), (0b10, []), (0b11, ["parquet_ambiguous"])])
def test_what_fills_up_indices_is_an_index_too(filling: int, expected: list[str]) -> None:
    """Polars looks up all of a packed run before it filters."""
    last = filling << 6
    indices = bytes([2, 3, 0b10_01_00_01, last])
    assert found(dictionary(3, longs(7, 8, 9)), page(4, indices, ONES, encoding=RLE_DICTIONARY)) == expected


def test_indices_in_more_packed_groups_than_are_needed_are_looked_at_too() -> None:
    indices = bytes([2, 5, 0b10_01_00_01, 0, 0, 0b11])
    assert found(dictionary(3, longs(7, 8, 9)), page(4, indices, ONES, encoding=RLE_DICTIONARY)) == [
        "parquet_ambiguous"
    ]


@pytest.mark.parametrize(("bits", "expected"), [(27, []), (28, ["parquet_ambiguous"]), (31, ["parquet_ambiguous"])])
def test_a_window_that_java_does_not_open_is_refused(bits: int, expected: list[str]) -> None:
    """Spark reads no page of Zstandard whose frame asks for more than 128 MiB, however short the page."""
    data, table = file("long", pa.int64(), [1, 2, 3, 4])
    head, body = page(4, longs(1, 2, 3, 4), ONES)
    first = struct.pack("<IBB", 0xFD2FB528, 0, 10 << 3) + struct.pack("<I", 8 << 3 | 1)[:3] + body[:8]
    second = struct.pack("<IBB", 0xFD2FB528, 0, bits - 10 << 3)
    second += struct.pack("<I", len(body) - 8 << 3 | 1)[:3] + body[8:]
    skipped = struct.pack("<II", 0x184D2A53, 3) + b"abc"
    for frames in (first + second, skipped + first + second):
        put(head, 3, I32, len(frames))
        made = edited(rebuilt(data, {0: [(head, frames)]}), zstandard)
        assert codes(observe_file(made, table, rewrite=True).findings) == expected


def zstandard(footer: Any) -> None:
    put(told(columns(groups(footer)[0])[0]), 4, I32, ZSTD)


def test_zstandard_as_writers_have_it_is_accepted() -> None:
    for options in ({}, {"compression_level": 19}, {"data_page_version": "2.0"}):
        data, table = file("long", pa.int64(), [*range(9_000), None], compression="zstd", **options)
        assert observe_file(data, table, rewrite=True).findings == ()


def as_decimal(element: Any, physical: int, length: int | None) -> None:
    """Makes a decimal of 38 digits of an element of the schema."""
    put(element, 1, I32, physical)
    drop(element, 2)
    if length is not None:
        put(element, 2, I32, length)
    put(element, 6, I32, 5)
    put(element, 7, I32, 2)
    put(element, 8, I32, 38)
    put(element, 10, STRUCT, [[5, STRUCT, [[1, I32, 2], [2, I32, 38]]]])


def test_a_decimal_of_any_length_is_refused() -> None:
    """Iceberg has no such form, and Spark's vectorized reader stops at it."""
    data, _ = file("binary", pa.binary(), [b"1"] * 4)

    def change(footer: Any) -> None:
        as_decimal(get(footer, 2)[1][1], 6, None)

    made = edited(rebuilt(data, {0: [page(4, b"\1\0\0\0\7" * 4, ONES)]}), change)
    for rewrite in (True, False):
        got = observe_file(made, metadata(column(1, "x", "decimal(38, 2)")), rewrite=rewrite)
        assert codes(got.findings) == ["parquet_ambiguous"]


@pytest.mark.parametrize(("length", "expected"), [(16, []), (17, ["parquet_ambiguous"]), (32, ["parquet_ambiguous"])])
def test_a_decimal_of_more_bytes_than_readers_hold_is_refused(length: int, expected: list[str]) -> None:
    """PyArrow and Polars read decimals of up to 16 bytes."""
    data, _ = file("fixed[16]", pa.binary(16), [bytes(16)] * 4)
    table = metadata(column(1, "x", "decimal(38, 2)"))

    def change(footer: Any) -> None:
        as_decimal(get(footer, 2)[1][1], 7, length)

    values = b"".join(number.to_bytes(length, "big", signed=True) for number in (-1, 0, 1, 10**37))
    made = edited(rebuilt(data, {0: [page(4, values, ONES)]}), change)
    for rewrite in (True, False):
        assert codes(observe_file(made, table, rewrite=rewrite).findings) == expected


MAP: Any = {"type": "map", "key-id": 2, "key": "string", "value-id": 3, "value": "string", "value-required": False}


@pytest.mark.parametrize(("repetition", "expected"), [(0, []), (1, ["parquet_ambiguous"])])
def test_optional_keys_of_a_map_are_refused(repetition: int, expected: list[str]) -> None:
    """PyArrow opens no file that has them."""
    kind = pa.map_(field("key", pa.string(), 2).with_nullable(False), field("value", pa.string(), 3))
    schema = pa.schema([field("m", kind, 1)])
    pairs = pa.table({"m": pa.array([[("k", "v")]], kind)}, schema=schema)
    data = parquet(pairs, compression="none", use_dictionary=False)
    definition = run(1, 2 + repetition)
    key = page(1, b"\1\0\0\0k", definition, run(1, 0))

    def change(footer: Any) -> None:
        put(get(footer, 2)[1][3], 3, I32, repetition)

    made = edited(rebuilt(data, {0: [key]}), change)
    for rewrite in (True, False):
        got = observe_file(made, metadata(column(1, "m", MAP)), rewrite=rewrite, record_count=1)
        assert codes(got.findings) == expected


def test_names_that_differ_by_case_alone_are_refused() -> None:
    """DuckDB shows the values of the first one for both."""
    table = metadata(column(1, "id"), column(2, "ID"))
    data = pa.table({"x": [1], "y": [2]}, schema=pa.schema([field("x", pa.int64(), 1), field("y", pa.int64(), 2)]))
    assert codes(observe_file(parquet(data), table, rewrite=True).findings) == ["parquet_names_collide"]


@pytest.mark.parametrize(("groups", "expected"), [(3_800, []), (4_300, ["parquet_too_large"])])
def test_a_footer_that_would_be_too_long_to_be_read_again_is_refused(groups: int, expected: list[str]) -> None:
    """The staged file calls its columns as it likes, the published one as the table does, in every row group."""
    names = [f"{'-' * 1_022}x{at}" for at in range(4)]
    schema = pa.schema([field(f"x{at}", pa.int64(), at + 1) for at in range(4)])
    data = parquet(pa.table([pa.array(range(groups))] * 4, schema=schema), row_group_size=1, use_dictionary=False)
    table = metadata(*(column(at, name) for at, name in enumerate(names, 1)))
    assert codes(observe_file(data, table, rewrite=True).findings) == expected


@pytest.mark.parametrize(("count", "expected"), [(500_000, []), (500_001, ["parquet_too_large"])])
def test_a_file_of_more_pages_than_are_kept_in_mind_is_refused(count: int, expected: list[str]) -> None:
    """Of each page more is kept than it has in the file: of 12 MB of pages 140 MB."""
    data, table = file("boolean", pa.bool_(), [True])
    head, body = page(1, b"\1", run(1, 1))
    # The body of the first page has all others, so that they need not be put together one by one.
    more = (written(head) + body) * (count - 1)
    chunk, footer = split(rebuilt(data, {0: [(head, body + more)]}))
    (group,) = groups(footer)
    put(group, 3, I64, count)
    put(told(columns(group)[0]), 5, I64, count)
    second = copy.deepcopy(group)
    put(told(columns(second)[0]), 9, I64, len(chunk))
    put(footer, 3, I64, 2 * count)
    put(footer, 4, LIST, (STRUCT, [group, second]))
    made = joined(chunk + chunk[4:], footer)
    assert codes(observe_file(made, table, rewrite=True).findings) == expected
    assert codes(observe_file(made, table).findings) == []
