"""Claims that one check alone holds to the values: with it out of the way, each of these files would pass."""

from __future__ import annotations

import copy
import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from pvdm.verify.findings import Finding
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
    edited,
    get,
    groups,
    joined,
    pages,
    put,
    repaged,
    split,
    statistics,
    told,
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
    field,
    file,
    filter_emptied,
    filter_place,
    rows,
)
from tests.support.verify.staged import observe_file

pytestmark = pytest.mark.usefixtures("kernel")
AMBIGUOUS = "parquet_ambiguous"
RLE, RLE_DICTIONARY = 3, 8
BIT_WIDTH = b"\1"
Page = tuple[Struct, bytes]


def one_column(name: str, number: int, values: Any, **options: Any) -> bytes:
    """A file of one column and one page, which says nothing of its values."""
    made = pa.Table.from_arrays([values], schema=pa.schema([field(name, values.type, number)]))
    given: dict[str, Any] = {"write_page_index": False, "write_statistics": False, "use_dictionary": False, **options}
    return repaged(file(made, row_group_size=1_000, compression="none", store_schema=False, **given), lambda _: None)


def data_page(count: int, content: bytes, encoding: int = 0) -> Page:
    """A page of the first version."""
    head = [[1, I32, count], [2, I32, encoding], [3, I32, RLE], [4, I32, RLE]]
    return [[1, I32, 0], [2, I32, len(content)], [3, I32, len(content)], [5, STRUCT, head]], content


def with_pages(data: bytes, made: Sequence[Page]) -> bytes:
    """The file of one column with these pages instead of its own."""

    def change(found: list[Page]) -> None:
        found[:] = made

    def silent(footer: Struct) -> None:
        drop(told(columns(groups(footer)[0])[0]), 12, 13, 16)

    return edited(repaged(data, change), silent)


LONGS = one_column("id", 1, pa.array([3, 1, 2]))
TEXTS = one_column("town", 2, pa.array(["b", "a"]))
NOTHING = one_column("town", 2, pa.array([None, None], pa.string()), write_statistics=True)


def levels(count: int, level: int) -> bytes:
    """So many definition levels in one run, with their length before them."""
    return struct.pack("<IBB", 2, count << 1, level)


def longer_page(honest: bytes, more: bytes, name: str) -> Lie:
    """A value behind the last one of which the levels tell."""
    ((head, content),) = pages(honest)
    return Lie(AMBIGUOUS, with_pages(honest, [data_page(get(get(head, 5), 1), content + more)]), honest, name)


def sorted_without_an_order() -> Lie:
    """The type that has nothing but nulls has no order that a dictionary could stand in."""

    def made(*, in_order: bool) -> bytes:
        values = struct.pack("<qq", 1, 2)
        head = [[1, I32, 2], [2, I32, 0], [3, BOOLEAN, in_order]]
        dictionary: Struct = [[1, I32, 2], [2, I32, len(values)], [3, I32, len(values)], [7, STRUCT, head]]
        data = with_pages(LONGS, [(dictionary, values), data_page(3, levels(3, 0) + BIT_WIDTH, RLE_DICTIONARY)])

        def change(footer: Struct) -> None:
            put(get(footer, 2)[1][1], 10, STRUCT, [[11, STRUCT, []]])
            put(told(columns(groups(footer)[0])[0]), 2, LIST, (I32, [0, RLE, RLE_DICTIONARY]))

        return edited(data, change)

    return Lie(STATISTICS, made(in_order=True), made(in_order=False), "id")


def in_the_dictionary(data: bytes) -> int:
    found: int = get(get(pages(data)[0][0], 7), 1)
    return found


def distinct(honest: bytes, count: int, code: str) -> Lie:
    return Lie(code, edited(honest, lambda footer: put(statistics(footer, 0), 4, I64, count)), honest, "town")


def filter_of_booleans() -> Lie:
    """A filter of another column, without their values."""
    body, footer = split(FILTERED)
    at, length = filter_place(footer)
    fields = told(columns(groups(footer)[0])[FLAG])
    put(fields, 14, I64, len(body))
    put(fields, 15, I32, length)
    return Lie("parquet_bloom_filter_lies", joined(body + body[at : at + length], footer), FILTERED, "flag")


def longer_index(kind: int) -> Lie:
    """A page index of one byte more than its fields have."""
    body, footer = split(HONEST)
    chunk = columns(groups(footer)[0])[ID]
    at, length = get(chunk, kind), get(chunk, kind + 1)
    put(chunk, kind, I64, len(body))
    put(chunk, kind + 1, I32, length + 1)
    return Lie(INDEX, joined(body + body[at : at + length] + b"\0", footer), HONEST, "id")


def sorted_by(column: int) -> bytes:
    def change(footer: Struct) -> None:
        put(groups(footer)[0], 4, LIST, (STRUCT, [[[1, I32, column], [2, BOOLEAN, False], [3, BOOLEAN, False]]]))

    return edited(HONEST, change)


def header_twice() -> Lie:
    """Two words on the page's values, of which our decoder takes the last and others the first."""
    ((head, content),) = pages(LONGS)
    other = copy.deepcopy(next(each for each in head if each[0] == 5))
    put(other[2], 1, I32, 1)
    at = next(at for at, each in enumerate(head) if each[0] == 5)
    return Lie(AMBIGUOUS, with_pages(LONGS, [([*head[:at], other, *head[at:]], content)]), LONGS, "id")


def data_inside_the_dictionary() -> Lie:
    """The first data page is not where the footer has it, and a reader that begins there finds something else."""

    def change(footer: Struct) -> None:
        fields = told(columns(groups(footer)[0])[0])
        put(fields, 9, I64, get(fields, 9) - 1)

    return Lie(AMBIGUOUS, edited(ONE_TEXT, change), ONE_TEXT, "town")


def fewer_values_than_rows() -> Lie:
    """A column of fifty values beside one of sixty, and each count of the footer is that of its own pages."""

    def made(count: int) -> bytes:
        given = rows().select(["id", "town"]).slice(0, count)
        return file(given, row_group_size=ROWS, write_page_index=False, use_dictionary=False)

    honest = made(ROWS)
    (body, footer), (more, other) = split(honest), split(made(50))
    group, short = groups(footer)[0], columns(groups(other)[0])[TOWN]
    put(told(short), 9, I64, get(told(short), 9) + len(body))
    columns(group)[TOWN] = short
    put(group, 6, I64, sum(get(told(each), 7) for each in columns(group)))
    return Lie("parquet_rows_lie", joined(body + more, footer), honest, "town")


EDGES: dict[str, Lie] = {
    "a number more than levels": longer_page(LONGS, struct.pack("<q", 9), "id"),
    "a text more than levels": longer_page(TEXTS, struct.pack("<I", 1) + b"c", "town"),
    "a dictionary in order without one": sorted_without_an_order(),
    "distinct values where there is none": distinct(NOTHING, 1, STATISTICS),
    "distinct values of the dictionary alone": distinct(MIXED, in_the_dictionary(MIXED), UNVERIFIED),
    "a filter without plain texts": filter_emptied(
        TOWN, "town", file(use_dictionary=False, bloom_filter_options={"town": {"ndv": 100, "fpp": 0.01}})
    ),
    "a filter of booleans": filter_of_booleans(),
    "a column index with a byte more": longer_index(COLUMN_INDEX),
    "an offset index with a byte more": longer_index(OFFSET_INDEX),
    "rows sorted by a column that is not there": Lie(SORTING, sorted_by(99), HONEST),
    "a page header with a field twice": header_twice(),
    "fewer values than rows": fewer_values_than_rows(),
    "data inside the dictionary": data_inside_the_dictionary(),
}


def findings(data: bytes) -> tuple[Finding, ...]:
    return observe_file(data, TABLE).findings


@pytest.mark.parametrize("name", EDGES)
def test_a_lie_that_only_one_check_sees_is_refused(name: str) -> None:
    lie = EDGES[name]
    (only,) = findings(lie.data)
    assert only.code == lie.code
    assert only.message.startswith(f"column '{lie.column}'" if lie.column else "the file")


@pytest.mark.parametrize("name", EDGES)
def test_the_same_file_without_that_lie_passes(name: str) -> None:
    assert findings(EDGES[name].honest) == ()


def test_an_order_by_what_is_inside_a_list_is_refused_as_such() -> None:
    (only,) = findings(sorted_by(TAG))
    assert only.code == UNVERIFIED
    assert only.message == "column 'tags.list.element', row group 0: sorting_columns does not hold"
    assert only.expected == "columns outside lists and maps"
