"""More files with one lie each: of what is seldom written, and of what types say of their values."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from tests.support.parquet.edit import (
    BINARY,
    COLUMN_INDEX,
    I32,
    I64,
    LIST,
    OFFSET_INDEX,
    STRUCT,
    Raw,
    Struct,
    columns,
    drop,
    edited,
    get,
    groups,
    joined,
    pages,
    put,
    split,
    statistics,
    told,
    written,
)
from tests.support.parquet.lies import (
    BLOOM,
    ENCODINGS,
    FILTERED,
    FLAG,
    HONEST,
    ID,
    INDEX,
    MIXED,
    SORTING,
    STATISTICS,
    TAG,
    TOWN,
    UNVERIFIED,
    Lie,
    chunked,
    field,
    file,
    filter_emptied,
    filter_header,
    filter_place,
    headed,
    indexed,
    listed,
)
from tests.support.parquet.pages import longs, nested, page, page_v2, rebuilt, run

AMBIGUOUS: Final = "parquet_ambiguous"


def column_file(name: str, number: int, values: Any, **options: Any) -> bytes:
    """A file of one column and one row group."""
    schema = pa.schema([field(name, values.type, number)])
    given: dict[str, Any] = {"row_group_size": 1_000, "write_page_index": False, "store_schema": False, **options}
    return file(pa.Table.from_arrays([values], schema=schema), **given)


TEXT_V1: Final = column_file("town", 2, pa.array(["é1", "é2"] * 10), use_dictionary=False)
TEXT_INDEX: Final = column_file("town", 2, pa.array(["é1", "é2"] * 10), write_page_index=True)


def text_end(number: int, value: bytes) -> Lie:
    """An end of text which holds byte by byte, and is no text."""

    def change(footer: Struct) -> None:
        drop(statistics(footer, 0), 1, 2, 7, 8)
        put(statistics(footer, 0), number, BINARY, value)

    return Lie(STATISTICS, edited(TEXT_V1, change), TEXT_V1, "town")


def page_text(page: Struct) -> None:
    drop(get(page, 5), 1, 2, 7, 8)
    put(get(page, 5), 6, BINARY, b"\xc3")


def counted(change: Callable[[list[Struct]], Any]) -> Lie:
    """Other counts of the encodings of pages."""
    return chunked(lambda fields: change(get(fields, 13)[1]), ENCODINGS, 0, "town", MIXED)


def plain_pages(stats: list[Struct]) -> Struct:
    return next(each for each in stats if get(each, 1) == 0 and get(each, 2) == 0)


def in_two(stats: list[Struct]) -> None:
    first = plain_pages(stats)
    stats.append([[1, I32, 0], [2, I32, 0], [3, I32, 1]])
    put(first, 3, I32, get(first, 3) - 1)


def negative(stats: list[Struct]) -> None:
    stats.append([[1, I32, 0], [2, I32, 5], [3, I32, -1]])


def none_of_it(stats: list[Struct]) -> None:
    stats.append([[1, I32, 0], [2, I32, 5], [3, I32, 0]])


def floors(kind: Any, values: list[int | None]) -> bytes:
    inside = pa.struct([field("floor", kind, 10)])
    made = pa.array([{"floor": each} for each in values], inside)
    return column_file("place", 9, made, write_statistics=False)


def annotated(data: bytes, logical: Struct, converted: int | None, element: int = 2) -> bytes:
    """The same values with another annotation."""

    def change(footer: Struct) -> None:
        each = get(footer, 2)[1][element]
        drop(each, 6)
        put(each, 10, STRUCT, logical)
        if converted is not None:
            put(each, 6, I32, converted)

    return edited(data, change)


def short(bits: int, converted: int, values: list[int | None], honest: Any) -> Lie:
    """Numbers beyond those of the annotation: PyArrow and DuckDB cut them, Spark shows them."""
    logical: Struct = [[10, STRUCT, [[1, 3, bits], [2, 1, True]]]]
    return Lie(
        AMBIGUOUS, annotated(floors(pa.int32(), values), logical, converted), floors(honest, [1, 2]), "place.floor"
    )


def digits() -> Lie:
    """A decimal with more digits than the file says."""
    values = pa.array([10**9, 5]).cast(pa.decimal128(20, 0)).cast(pa.decimal128(20, 2))
    honest = column_file("price", 3, values, write_statistics=False)

    def change(footer: Struct) -> None:
        element = get(footer, 2)[1][1]
        put(element, 8, I32, 8)
        put(get(element, 10)[0][2], 2, I32, 8)

    return Lie(AMBIGUOUS, edited(honest, change), honest, "price")


def nothing_said_of(values: list[int | None]) -> bytes:
    """A column of the type that has nothing but nulls."""
    return annotated(floors(pa.int32(), values), [[11, STRUCT, []]], None)


def keyed(key: bytes, value: bytes) -> bytes:
    return edited(HONEST, lambda footer: get(footer, 5)[1].append([[1, BINARY, key], [2, BINARY, value]]))


ZEROS: Final = column_file(
    "ratio", 4, pa.array([1.0] * 10 + [0.0] * 10 + [-0.0] * 10), write_page_index=True, use_dictionary=False
)


def zero(number: int, page: int, value: float) -> Lie:
    """Java takes -0 in the index for less than 0, and passes over the page."""
    return indexed(COLUMN_INDEX, 0, "ratio", listed(number, page, struct.pack("<d", value)), ZEROS)


def chunk_said(change: Callable[[Struct], None], code: str, name: str, honest: bytes) -> Lie:
    return Lie(code, edited(honest, lambda footer: change(columns(groups(footer)[0])[0])), honest, name)


TAGS: Final = column_file(
    "tags",
    7,
    pa.array([[1], [3, 4]], pa.list_(field("element", pa.int64(), 8))),
    use_dictionary=False,
    compression="none",
)


def second_page_inside_a_row(*, indexed: bool) -> Lie:
    """With an index, or with a count of rows, a page must begin with a row."""
    inside = rebuilt(TAGS, {0: [nested([3, 3], [0, 0], 1, 3), nested([3], [1], 4)]})
    if not indexed:
        first = page_v2(2, 2, longs(1, 3), run(2, 3), run(2, 0))
        second = page_v2(1, 0, longs(4), run(1, 3), run(1, 1))
        return Lie("parquet_rows_lie", rebuilt(TAGS, {0: [first, second]}), TAGS, "tags.list.element")
    body, footer = split(inside)
    chunk = columns(groups(footer)[0])[0]
    at, size = get(told(chunk), 9), get(told(chunk), 7)
    head, content = pages(inside)[0]
    long = len(written(head)) + len(content)
    places = [[[1, I64, at], [2, I32, long], [3, I64, 0]], [[1, I64, at + long], [2, I32, size - long], [3, I64, 2]]]
    made = written([[1, LIST, (STRUCT, places)]])
    put(chunk, OFFSET_INDEX, I64, len(body))
    put(chunk, OFFSET_INDEX + 1, I32, len(made))
    return Lie(INDEX, joined(body + made, footer), inside, "tags.list.element")


FALLING: Final = column_file(
    "id", 1, pa.array([9] * 10 + [5] * 10 + [1] * 10), write_page_index=True, use_dictionary=False
)
# The least values rise, the greatest do not; and the other way round.
LEAST_RISES: Final = column_file(
    "id", 1, pa.array([1, 9] * 5 + [2, 5] * 5 + [3, 4] * 5), write_page_index=True, use_dictionary=False
)
GREATEST_RISES: Final = column_file(
    "id", 1, pa.array([5, 6] * 5 + [4, 7] * 5 + [3, 8] * 5), write_page_index=True, use_dictionary=False
)


def ordered(honest: bytes, order: int) -> Lie:
    return indexed(COLUMN_INDEX, 0, "id", lambda found: put(found, 4, I32, order), honest)


HALF_NULLS: Final = column_file("town", 2, pa.array(["a"] * 10 + [None] * 10), write_page_index=True)
NULLS: Final = nothing_said_of([None])


def end_without_an_order() -> Lie:
    def change(footer: Struct) -> None:
        put(told(columns(groups(footer)[0])[0]), 12, STRUCT, [[5, BINARY, b"\0" * 4]])

    return Lie(UNVERIFIED, edited(NULLS, change), NULLS, "place.floor")


ONE_NULL: Final = column_file("town", 2, pa.array([None, None], pa.string()))
STORED: Final = column_file("id", 1, pa.array([1, 2]), use_dictionary=False, compression="none")
STORED_TEXT: Final = column_file("town", 2, pa.array(["a", "b"]), use_dictionary=False, compression="none")
PLAIN_FILTER: Final = file(use_dictionary=False, bloom_filter_options={"town": {"ndv": 100, "fpp": 0.01}})


def distinct(count: int, honest: bytes, code: str) -> Lie:
    data = edited(honest, lambda footer: put(statistics(footer, 0), 4, I64, count))
    return Lie(code, data, honest, "town")


def more_values(honest: bytes, name: str, values: bytes) -> Lie:
    """A page with a value more than its levels say."""
    return Lie(AMBIGUOUS, rebuilt(honest, {0: [page(2, values, run(2, 1))]}), honest, name)


def filter_of_flags() -> Lie:
    """A filter of another column for booleans, without their values."""
    body, footer = split(FILTERED)
    at, length = filter_place(footer)
    fields = told(columns(groups(footer)[0])[FLAG])
    put(fields, 14, I64, len(body))
    put(fields, 15, I32, length)
    return Lie("parquet_bloom_filter_lies", joined(body + body[at : at + length], footer), FILTERED, "flag")


def index_longer() -> Lie:
    """A byte behind the column index that is said to belong to it."""
    body, footer = split(HONEST)
    chunk = columns(groups(footer)[0])[ID]
    at, length = get(chunk, COLUMN_INDEX), get(chunk, COLUMN_INDEX + 1)
    put(chunk, COLUMN_INDEX, I64, len(body))
    put(chunk, COLUMN_INDEX + 1, I32, length + 1)
    return Lie(INDEX, joined(body + body[at : at + length] + b"\0", footer), HONEST, "id")


def sorting(numbers: list[int], code: str, name: str) -> Lie:
    def change(footer: Struct) -> None:
        each = [[[1, I32, number], [2, 1, False], [3, 1, False]] for number in numbers]
        put(groups(footer)[0], 4, LIST, (STRUCT, each))

    return Lie(code, edited(HONEST, change), HONEST, name)


def many_encodings() -> Lie:
    """Memory goes by the elements of a list, and each has a byte."""
    made = chunked(lambda fields: put(fields, 2, LIST, (I32, [*get(fields, 2)[1], *[0] * 64])), AMBIGUOUS, ID, "")
    return Lie(AMBIGUOUS, made.data, made.honest, group=None)


RARE: Final[dict[str, Lie]] = {
    "a count of values where there is none": distinct(1, ONE_NULL, STATISTICS),
    "a count of values that go by the dictionary in part": distinct(5, MIXED, UNVERIFIED),
    "a filter without plain texts": filter_emptied(TOWN, "town", PLAIN_FILTER),
    "a filter of booleans": filter_of_flags(),
    "a number more than the levels say": more_values(STORED, "id", longs(1, 2, 3)),
    "a text more than the levels say": more_values(STORED_TEXT, "town", b"\1\0\0\0a\1\0\0\0b\1\0\0\0c"),
    "an index that does not fill its bytes": index_longer(),
    "rows sorted by a column twice": sorting([ID, ID], SORTING, "id"),
    "rows sorted by a list": sorting([TAG], UNVERIFIED, "tags.list.element"),
    "rows sorted by no column": sorting([99], SORTING, ""),
    "more encodings than there are": many_encodings(),
    "a least text that is no text": text_end(6, b"\xc3"),
    "a greatest text that is no text": text_end(5, b"\xff"),
    "an old least text that is no text": text_end(2, b"\xc3"),
    "a page's least text that is no text": headed(TEXT_V1, 5, page_text, name="town"),
    "a least text in the index that is no text": indexed(COLUMN_INDEX, 0, "town", listed(2, 0, b"\xc3"), TEXT_INDEX),
    "a greatest text in the index that is no text": indexed(COLUMN_INDEX, 0, "town", listed(3, 1, b"\xff"), TEXT_INDEX),
    "pages of another type among the encodings": counted(lambda stats: put(plain_pages(stats), 1, I32, 1)),
    "an encoding twice": counted(in_two),
    "an encoding of less than no page": counted(negative),
    "an encoding of no page": counted(none_of_it),
    "numbers beyond eight bits": short(8, 15, [1, 300], pa.int8()),
    "numbers below eight bits": short(8, 15, [-129, 3], pa.int8()),
    "numbers beyond sixteen bits": short(16, 16, [1, 70_000], pa.int16()),
    "digits beyond the precision": digits(),
    "values of the type that has none": Lie(AMBIGUOUS, nothing_said_of([1]), NULLS, "place.floor"),
    "an end of a type without an order": end_without_an_order(),
    "times of another calendar": Lie(AMBIGUOUS, keyed(b"org.apache.spark.legacyINT96", b""), HONEST, group=None),
    "dates of an old Spark": Lie(
        AMBIGUOUS,
        keyed(b"org.apache.spark.version", b"2.4.8"),
        keyed(b"org.apache.spark.version", b"4.0.1"),
        group=None,
    ),
    "dates of a Spark that sorts as an old one": Lie(
        AMBIGUOUS,
        keyed(b"org.apache.spark.version", b"10.0.0"),
        keyed(b"org.apache.spark.version", b"3.0.0"),
        group=None,
    ),
    "a least zero above a value": zero(2, 2, 0.0),
    "a greatest zero below a value": zero(3, 1, -0.0),
    "an offset index without a length": chunk_said(lambda chunk: drop(chunk, OFFSET_INDEX + 1), INDEX, "id", HONEST),
    "a column index without an offset": chunk_said(lambda chunk: drop(chunk, COLUMN_INDEX), INDEX, "id", HONEST),
    "a filter said to be shorter": chunked(lambda fields: put(fields, 15, I32, 40), BLOOM, ID, "id", FILTERED),
    "a filter without a place": chunked(lambda fields: drop(fields, 14), BLOOM, ID, "id", FILTERED),
    "a page of version 2 that begins inside a row": second_page_inside_a_row(indexed=False),
    "a page of the index that begins inside a row": second_page_inside_a_row(indexed=True),
    "a value of a page of nulls": indexed(
        COLUMN_INDEX,
        0,
        "town",
        listed(2, 1, b"x"),
        column_file("town", 2, pa.array(["a"] * 10 + [None] * 10), write_page_index=True),
    ),
    "too few least values": indexed(COLUMN_INDEX, ID, "id", lambda found: get(found, 2)[1].pop()),
    "too few greatest values": indexed(COLUMN_INDEX, ID, "id", lambda found: get(found, 3)[1].pop()),
    "an order that only the least values have": ordered(LEAST_RISES, 1),
    "an order that only the greatest values have": ordered(GREATEST_RISES, 1),
    "an order that nobody knows": ordered(FALLING, 3),
    "repetition levels of the pages": indexed(
        COLUMN_INDEX, TAG, "tags.list.element", lambda found: put(found, 6, LIST, (I64, [10, 0] * 3))
    ),
    "numbers of the index in a longer form": indexed(
        COLUMN_INDEX, ID, "id", lambda found: put(found, 4, I32, Raw(b"\x82\x00"))
    ),
    "numbers of a filter in a longer form": filter_header(lambda header: put(header, 1, I32, Raw(b"\x80\x81\x00"))),
}
