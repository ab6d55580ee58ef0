"""Files with a false claim about their values that only one check finds: without it they would be accepted."""

from __future__ import annotations

import copy
import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from pvdm.verify.findings import Finding
from tests.support.for_each import for_each
from tests.support.parquet.edit import (
    COLUMN_INDEX,
    I32,
    I64,
    LIST,
    OFFSET_INDEX,
    STRUCT,
    Struct,
    columns,
    drop,
    edit_footer,
    edit_pages,
    get,
    groups,
    join_footer,
    metadata_of,
    pages,
    put,
    split_footer,
    statistics,
)
from tests.support.parquet.lies import (
    BOOLEAN,
    FILTERED,
    FLAG,
    HONEST,
    ID,
    INDEX,
    MIXED,
    ONE_TEXT,
    ROWS,
    SORTING,
    STATISTICS,
    TABLE,
    TAG,
    TOWN,
    UNVERIFIED,
    Lie,
    empty_filter_lie,
    field,
    file,
    filter_range,
    rows,
)
from tests.support.verify.staged import observe_file

pytestmark = pytest.mark.usefixtures("kernel")
AMBIGUOUS = "parquet_ambiguous"
RLE, RLE_DICTIONARY = 3, 8
BIT_WIDTH = b"\1"
Page = tuple[Struct, bytes]


def one_column(name: str, number: int, values: Any, **options: Any) -> bytes:
    """A file of one column and one page, without statistics and indexes."""
    table = pa.Table.from_arrays([values], schema=pa.schema([field(name, values.type, number)]))
    silent = {"write_page_index": False, "write_statistics": False, "use_dictionary": False}
    whole: dict[str, Any] = {"row_group_size": 1_000, "compression": "none", "store_schema": False}
    return edit_pages(file(table, **{**whole, **silent, **options}), lambda _: None)


def data_page(count: int, content: bytes, encoding: int = 0) -> Page:
    """The header and content of a data page of version 1."""
    head = [[1, I32, count], [2, I32, encoding], [3, I32, RLE], [4, I32, RLE]]
    return [[1, I32, 0], [2, I32, len(content)], [3, I32, len(content)], [5, STRUCT, head]], content


def replace_pages(data: bytes, new_pages: Sequence[Page]) -> bytes:
    """The file of one column with these pages in place of its own, and without statistics."""

    def change(found: list[Page]) -> None:
        found[:] = new_pages

    def remove_claims(footer: Struct) -> None:
        drop(metadata_of(columns(groups(footer)[0])[0]), 12, 13, 16)

    return edit_footer(edit_pages(data, change), remove_claims)


LONGS = one_column("id", 1, pa.array([3, 1, 2]))
TEXTS = one_column("town", 2, pa.array(["b", "a"]))
NOTHING = one_column("town", 2, pa.array([None, None], pa.string()), write_statistics=True)


def level_run(count: int, level: int) -> bytes:
    """`count` equal definition levels in one run, after the length of the run's bytes."""
    return struct.pack("<IBB", 2, count << 1, level)


def page_with_another_value(honest: bytes, more: bytes, name: str) -> Lie:
    """A page that has one more value than its levels say."""
    ((head, content),) = pages(honest)
    return Lie(AMBIGUOUS, replace_pages(honest, [data_page(get(get(head, 5), 1), content + more)]), honest, name)


def sorted_without_an_order() -> Lie:
    """A dictionary that is said to be sorted, of the type for nulls only, which has no order."""

    def build(*, in_order: bool) -> bytes:
        values = struct.pack("<qq", 1, 2)
        head = [[1, I32, 2], [2, I32, 0], [3, BOOLEAN, in_order]]
        dictionary: Struct = [[1, I32, 2], [2, I32, len(values)], [3, I32, len(values)], [7, STRUCT, head]]
        data = replace_pages(LONGS, [(dictionary, values), data_page(3, level_run(3, 0) + BIT_WIDTH, RLE_DICTIONARY)])

        def change(footer: Struct) -> None:
            put(get(footer, 2)[1][1], 10, STRUCT, [[11, STRUCT, []]])
            put(metadata_of(columns(groups(footer)[0])[0]), 2, LIST, (I32, [0, RLE, RLE_DICTIONARY]))

        return edit_footer(data, change)

    return Lie(STATISTICS, build(in_order=True), build(in_order=False), "id")


def dictionary_size(data: bytes) -> int:
    found: int = get(get(pages(data)[0][0], 7), 1)
    return found


def change_distinct_count(honest: bytes, count: int, code: str) -> Lie:
    return Lie(code, edit_footer(honest, lambda footer: put(statistics(footer, 0), 4, I64, count)), honest, "town")


def foreign_filter_of_booleans() -> Lie:
    """A column of booleans with the bloom filter of another column."""
    body, footer = split_footer(FILTERED)
    at, length = filter_range(footer)
    fields = metadata_of(columns(groups(footer)[0])[FLAG])
    put(fields, 14, I64, len(body))
    put(fields, 15, I32, length)
    return Lie("parquet_bloom_filter_lies", join_footer(body + body[at : at + length], footer), FILTERED, "flag")


def index_with_another_byte(kind: int) -> Lie:
    """A page index with one byte after its fields."""
    body, footer = split_footer(HONEST)
    chunk = columns(groups(footer)[0])[ID]
    at, length = get(chunk, kind), get(chunk, kind + 1)
    put(chunk, kind, I64, len(body))
    put(chunk, kind + 1, I32, length + 1)
    return Lie(INDEX, join_footer(body + body[at : at + length] + b"\0", footer), HONEST, "id")


def file_sorted_by(column: int) -> bytes:
    def change(footer: Struct) -> None:
        put(groups(footer)[0], 4, LIST, (STRUCT, [[[1, I32, column], [2, BOOLEAN, False], [3, BOOLEAN, False]]]))

    return edit_footer(HONEST, change)


def header_with_a_field_twice() -> Lie:
    """A page header with two counts of values: our decoder uses the last, other readers the first."""
    ((head, content),) = pages(LONGS)
    other = copy.deepcopy(next(each for each in head if each[0] == 5))
    put(other[2], 1, I32, 1)
    at = next(at for at, each in enumerate(head) if each[0] == 5)
    return Lie(AMBIGUOUS, replace_pages(LONGS, [([*head[:at], other, *head[at:]], content)]), LONGS, "id")


def first_page_inside_the_dictionary() -> Lie:
    """The footer's offset of the first data page is inside the dictionary page."""

    def change(footer: Struct) -> None:
        fields = metadata_of(columns(groups(footer)[0])[0])
        put(fields, 9, I64, get(fields, 9) - 1)

    return Lie(AMBIGUOUS, edit_footer(ONE_TEXT, change), ONE_TEXT, "town")


def fewer_values_than_rows() -> Lie:
    """A column of 50 values beside one of 60 (ROWS); each count in the footer agrees with the column's own pages."""

    def build(count: int) -> bytes:
        table = rows().select(["id", "town"]).slice(0, count)
        return file(table, row_group_size=ROWS, write_page_index=False, use_dictionary=False)

    honest = build(ROWS)
    (body, footer), (more, other) = split_footer(honest), split_footer(build(50))
    group, short = groups(footer)[0], columns(groups(other)[0])[TOWN]
    put(metadata_of(short), 9, I64, get(metadata_of(short), 9) + len(body))
    columns(group)[TOWN] = short
    put(group, 6, I64, sum(get(metadata_of(each), 7) for each in columns(group)))
    return Lie("parquet_rows_lie", join_footer(body + more, footer), honest, "town")


EDGES: dict[str, Lie] = {
    "a number more than levels": page_with_another_value(LONGS, struct.pack("<q", 9), "id"),
    "a text more than levels": page_with_another_value(TEXTS, struct.pack("<I", 1) + b"c", "town"),
    "a dictionary in order without one": sorted_without_an_order(),
    "distinct values where there is none": change_distinct_count(NOTHING, 1, STATISTICS),
    "distinct values of the dictionary alone": change_distinct_count(MIXED, dictionary_size(MIXED), UNVERIFIED),
    "a filter without plain texts": empty_filter_lie(
        TOWN, "town", file(use_dictionary=False, bloom_filter_options={"town": {"ndv": 100, "fpp": 0.01}})
    ),
    "a filter of booleans": foreign_filter_of_booleans(),
    "a column index with a byte more": index_with_another_byte(COLUMN_INDEX),
    "an offset index with a byte more": index_with_another_byte(OFFSET_INDEX),
    "rows sorted by a column that is not there": Lie(SORTING, file_sorted_by(99), HONEST),
    "a page header with a field twice": header_with_a_field_twice(),
    "fewer values than rows": fewer_values_than_rows(),
    "data inside the dictionary": first_page_inside_the_dictionary(),
}


def findings(data: bytes) -> tuple[Finding, ...]:
    return observe_file(data, TABLE).findings


@for_each("name", EDGES)
def test_a_false_claim_that_only_one_check_finds_is_refused(name: str) -> None:
    lie = EDGES[name]
    (finding,) = findings(lie.data)
    assert finding.code == lie.code
    assert finding.message.startswith(f"column '{lie.column}'" if lie.column else "the file")


@for_each("name", EDGES)
def test_the_same_file_without_the_false_claim_is_accepted(name: str) -> None:
    assert findings(EDGES[name].honest) == ()


def test_an_order_by_elements_of_a_list_is_refused() -> None:
    (finding,) = findings(file_sorted_by(TAG))
    assert finding.code == UNVERIFIED
    assert finding.message == "column 'tags.list.element', row group 0: sorting_columns does not hold"
    assert finding.expected == "columns outside lists and maps"
