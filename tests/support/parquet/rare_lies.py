"""More Parquet files with one false claim (a lie): claims that writers seldom make, and annotations of types.

`field_ids.py` names the ids of the fields.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from tests.support.parquet.edit import (
    BINARY,
    BYTE,
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
    edit_footer,
    get,
    groups,
    join_footer,
    metadata_of,
    pages,
    put,
    serialize,
    split_footer,
    statistics,
)
from tests.support.parquet.field_ids import (
    BloomFilterField,
    ColumnField,
    ColumnIndexField,
    DataPageField,
    Encoding,
    EncodingStatsField,
    FooterField,
    GroupField,
    OffsetIndexField,
    PageField,
    PageLocationField,
    PageType,
    SchemaField,
    StatisticsField,
)
from tests.support.parquet.lies import (
    BLOOM,
    BOOLEAN,
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
    chunk_lie,
    empty_filter_lie,
    field,
    file,
    filter_header_lie,
    filter_range,
    header_lie,
    index_lie,
    set_element,
    sorting_column,
)
from tests.support.parquet.pages import long_page, longs, page, page_v2, rebuild, run

AMBIGUOUS: Final = "parquet_ambiguous"
# Fields of the union LogicalType.
DECIMAL_TYPE, INTEGER_TYPE, UNKNOWN_TYPE = 5, 10, 11
OLD_BOUNDS: Final = (
    StatisticsField.MAX,
    StatisticsField.MIN,
    StatisticsField.IS_MAX_VALUE_EXACT,
    StatisticsField.IS_MIN_VALUE_EXACT,
)
"""Fields that would contradict a changed bound."""


def column_file(name: str, number: int, values: Any, **options: Any) -> bytes:
    """A file with one column, whose field id is `number`, and one row group."""
    schema = pa.schema([field(name, values.type, number)])
    given: dict[str, Any] = {"row_group_size": 1_000, "write_page_index": False, "store_schema": False, **options}
    return file(pa.Table.from_arrays([values], schema=schema), **given)


TEXT_V1: Final = column_file("town", 2, pa.array(["é1", "é2"] * 10), use_dictionary=False)
TEXT_INDEX: Final = column_file("town", 2, pa.array(["é1", "é2"] * 10), write_page_index=True)


def text_bound_lie(number: int, value: bytes) -> Lie:
    """A least or greatest text that is right as bytes, but is not UTF-8. `number` is its field in the statistics."""

    def change(footer: Struct) -> None:
        drop(statistics(footer, 0), *OLD_BOUNDS)
        put(statistics(footer, 0), number, BINARY, value)

    return Lie(STATISTICS, edit_footer(TEXT_V1, change), TEXT_V1, "town")


def set_invalid_least_text(page: Struct) -> None:
    """Set the least value in a page's statistics to bytes that are not UTF-8."""
    drop(get(page, DataPageField.STATISTICS), *OLD_BOUNDS)
    put(get(page, DataPageField.STATISTICS), StatisticsField.MIN_VALUE, BINARY, b"\xc3")


def page_counts_lie(change: Callable[[list[Struct]], Any]) -> Lie:
    """Change the page counts by encoding of the file with two encodings."""
    return chunk_lie(lambda fields: change(get(fields, ColumnField.ENCODING_STATS)[1]), ENCODINGS, 0, "town", MIXED)


def plain_page_count(stats: list[Struct]) -> Struct:
    """The entry for PLAIN data pages."""
    return next(
        each
        for each in stats
        if get(each, EncodingStatsField.PAGE_TYPE) == PageType.DATA_PAGE
        and get(each, EncodingStatsField.ENCODING) == Encoding.PLAIN
    )


def page_count(encoding: Encoding, count: int) -> Struct:
    """An entry that counts data pages of an encoding."""
    return [
        [EncodingStatsField.PAGE_TYPE, I32, PageType.DATA_PAGE],
        [EncodingStatsField.ENCODING, I32, encoding],
        [EncodingStatsField.COUNT, I32, count],
    ]


def split_count(stats: list[Struct]) -> None:
    """Count the PLAIN data pages in two entries."""
    first = plain_page_count(stats)
    stats.append(page_count(Encoding.PLAIN, 1))
    put(first, EncodingStatsField.COUNT, I32, get(first, EncodingStatsField.COUNT) - 1)


def add_negative_count(stats: list[Struct]) -> None:
    """Count -1 pages of another encoding."""
    stats.append(page_count(Encoding.DELTA_BINARY_PACKED, -1))


def add_zero_count(stats: list[Struct]) -> None:
    """Count no pages of another encoding."""
    stats.append(page_count(Encoding.DELTA_BINARY_PACKED, 0))


def floor_file(kind: Any, values: list[int | None]) -> bytes:
    """A file with the column `place.floor`, without statistics."""
    place = pa.struct([field("floor", kind, 10)])
    places = pa.array([{"floor": each} for each in values], place)
    return column_file("place", 9, places, write_statistics=False)


def annotate(data: bytes, logical: Struct, converted: int | None, element: int = 2) -> bytes:
    """The file with another annotation of one schema element: the new form (`logical`) and perhaps the old one."""

    def change(footer: Struct) -> None:
        each = get(footer, FooterField.SCHEMA)[1][element]
        drop(each, SchemaField.CONVERTED_TYPE)
        put(each, SchemaField.LOGICAL_TYPE, STRUCT, logical)
        if converted is not None:
            put(each, SchemaField.CONVERTED_TYPE, I32, converted)

    return edit_footer(data, change)


def narrow_integer_lie(bits: int, converted: int, values: list[int | None], honest: Any) -> Lie:
    """Numbers beyond the range of the annotated type: PyArrow and DuckDB truncate them, Spark shows them."""
    bit_width, is_signed = [1, BYTE, bits], [2, BOOLEAN, True]
    logical: Struct = [[INTEGER_TYPE, STRUCT, [bit_width, is_signed]]]
    data = annotate(floor_file(pa.int32(), values), logical, converted)
    return Lie(AMBIGUOUS, data, floor_file(honest, [1, 2]), "place.floor")


def precision_lie() -> Lie:
    """A decimal with more digits than the annotated precision."""
    digits = 8
    values = pa.array([10**9, 5]).cast(pa.decimal128(20, 0)).cast(pa.decimal128(20, 2))
    honest = column_file("price", 3, values, write_statistics=False)

    def change(footer: Struct) -> None:
        element = get(footer, FooterField.SCHEMA)[1][1]
        put(element, SchemaField.PRECISION, I32, digits)
        decimal_type = get(get(element, SchemaField.LOGICAL_TYPE), DECIMAL_TYPE)
        put(decimal_type, 2, I32, digits)  # its precision

    return Lie(AMBIGUOUS, edit_footer(honest, change), honest, "price")


def unknown_type_file(values: list[int | None]) -> bytes:
    """A file whose column has the annotation UNKNOWN, a type with only nulls."""
    return annotate(floor_file(pa.int32(), values), [[UNKNOWN_TYPE, STRUCT, []]], None)


def with_key_value(key: bytes, value: bytes) -> bytes:
    """The honest file with one more pair of key-value metadata."""
    return edit_footer(
        HONEST,
        lambda footer: get(footer, FooterField.KEY_VALUE_METADATA)[1].append([[1, BINARY, key], [2, BINARY, value]]),
    )


ZEROS: Final = column_file(
    "ratio", 4, pa.array([1.0] * 10 + [0.0] * 10 + [-0.0] * 10), write_page_index=True, use_dictionary=False
)


def zero_bound_lie(number: int, page: int, value: float) -> Lie:
    """Another zero as a page's least or greatest value. Java orders -0.0 before 0.0, and would skip the page."""
    return index_lie(COLUMN_INDEX, 0, "ratio", set_element(number, page, struct.pack("<d", value)), ZEROS)


def index_place_lie(change: Callable[[Struct], None], code: str, name: str, honest: bytes) -> Lie:
    """Change the fields of the first column chunk, which has the places of its page indexes."""
    return Lie(code, edit_footer(honest, lambda footer: change(columns(groups(footer)[0])[0])), honest, name)


TAGS: Final = column_file(
    "tags",
    7,
    pa.array([[1], [3, 4]], pa.list_(field("element", pa.int64(), 8))),
    use_dictionary=False,
    compression="none",
)


def page_location(offset: int, size: int, first_row: int) -> Struct:
    """An entry of an offset index."""
    return [
        [PageLocationField.OFFSET, I64, offset],
        [PageLocationField.COMPRESSED_PAGE_SIZE, I32, size],
        [PageLocationField.FIRST_ROW_INDEX, I64, first_row],
    ]


def second_page_inside_a_row(*, indexed: bool) -> Lie:
    """A second page that begins inside a row. This is allowed only without an offset index and in version 1.

    The pages of version 2 have a count of rows.
    """
    inside = rebuild(TAGS, {0: [long_page([3, 3], [0, 0], 1, 3), long_page([3], [1], 4)]})
    if not indexed:
        first = page_v2(2, 2, longs(1, 3), run(2, 3), run(2, 0))
        second = page_v2(1, 0, longs(4), run(1, 3), run(1, 1))
        return Lie("parquet_rows_lie", rebuild(TAGS, {0: [first, second]}), TAGS, "tags.list.element")
    body, footer = split_footer(inside)
    chunk = columns(groups(footer)[0])[0]
    fields = metadata_of(chunk)
    at, size = get(fields, ColumnField.DATA_PAGE_OFFSET), get(fields, ColumnField.TOTAL_COMPRESSED_SIZE)
    head, content = pages(inside)[0]
    first_size = len(serialize(head)) + len(content)
    first_place = page_location(at, first_size, 0)
    second_place = page_location(at + first_size, size - first_size, 2)
    index = serialize([[OffsetIndexField.PAGE_LOCATIONS, LIST, (STRUCT, [first_place, second_place])]])
    put(chunk, OFFSET_INDEX, I64, len(body))
    put(chunk, OFFSET_INDEX + 1, I32, len(index))
    return Lie(INDEX, join_footer(body + index, footer), inside, "tags.list.element")


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


def order_lie(honest: bytes, order: int) -> Lie:
    """Set the order of the pages (0 none, 1 ascending, 2 descending) in a column index."""
    return index_lie(
        COLUMN_INDEX, 0, "id", lambda found: put(found, ColumnIndexField.BOUNDARY_ORDER, I32, order), honest
    )


HALF_NULLS: Final = column_file("town", 2, pa.array(["a"] * 10 + [None] * 10), write_page_index=True)
NULLS: Final = unknown_type_file([None])


def bound_without_order_lie() -> Lie:
    """A greatest value for the type UNKNOWN, whose values have no order."""

    def change(footer: Struct) -> None:
        put(
            metadata_of(columns(groups(footer)[0])[0]),
            ColumnField.STATISTICS,
            STRUCT,
            [[StatisticsField.MAX_VALUE, BINARY, b"\0" * 4]],
        )

    return Lie(UNVERIFIED, edit_footer(NULLS, change), NULLS, "place.floor")


ONE_NULL: Final = column_file("town", 2, pa.array([None, None], pa.string()))
STORED: Final = column_file("id", 1, pa.array([1, 2]), use_dictionary=False, compression="none")
STORED_TEXT: Final = column_file("town", 2, pa.array(["a", "b"]), use_dictionary=False, compression="none")
PLAIN_FILTER: Final = file(use_dictionary=False, bloom_filter_options={"town": {"ndv": 100, "fpp": 0.01}})


def distinct_count_lie(count: int, honest: bytes, code: str) -> Lie:
    """Claim a number of distinct values."""
    data = edit_footer(honest, lambda footer: put(statistics(footer, 0), StatisticsField.DISTINCT_COUNT, I64, count))
    return Lie(code, data, honest, "town")


def more_values_lie(honest: bytes, name: str, values: bytes) -> Lie:
    """A page with one value more than its levels say."""
    return Lie(AMBIGUOUS, rebuild(honest, {0: [page(2, values, run(2, 1))]}), honest, name)


def boolean_filter_lie() -> Lie:
    """The bloom filter of another column, for a boolean column."""
    body, footer = split_footer(FILTERED)
    at, length = filter_range(footer)
    fields = metadata_of(columns(groups(footer)[0])[FLAG])
    put(fields, ColumnField.BLOOM_FILTER_OFFSET, I64, len(body))
    put(fields, ColumnField.BLOOM_FILTER_LENGTH, I32, length)
    return Lie("parquet_bloom_filter_lies", join_footer(body + body[at : at + length], footer), FILTERED, "flag")


def longer_index_lie() -> Lie:
    """A column index with one byte more, which its length includes."""
    body, footer = split_footer(HONEST)
    chunk = columns(groups(footer)[0])[ID]
    at, length = get(chunk, COLUMN_INDEX), get(chunk, COLUMN_INDEX + 1)
    put(chunk, COLUMN_INDEX, I64, len(body))
    put(chunk, COLUMN_INDEX + 1, I32, length + 1)
    return Lie(INDEX, join_footer(body + body[at : at + length] + b"\0", footer), HONEST, "id")


def sorting_columns_lie(numbers: list[int], code: str, name: str) -> Lie:
    """Claim that the first row group is sorted by these leaf columns."""

    def change(footer: Struct) -> None:
        listed = [sorting_column(number) for number in numbers]
        put(groups(footer)[0], GroupField.SORTING_COLUMNS, LIST, (STRUCT, listed))

    return Lie(code, edit_footer(HONEST, change), HONEST, name)


def many_encodings_lie() -> Lie:
    """A list of more encodings than exist. An element has one byte in the file, but takes more memory in a reader."""

    def change(fields: Struct) -> None:
        _, known = get(fields, ColumnField.ENCODINGS)
        put(fields, ColumnField.ENCODINGS, LIST, (I32, [*known, *[Encoding.PLAIN] * 64]))

    lie = chunk_lie(change, AMBIGUOUS, ID, "")
    return Lie(AMBIGUOUS, lie.data, lie.honest, group=None)


RARE_LIES: Final[dict[str, Lie]] = {
    "a count of values where there is none": distinct_count_lie(1, ONE_NULL, STATISTICS),
    "a count of values that go by the dictionary in part": distinct_count_lie(5, MIXED, UNVERIFIED),
    "a filter without plain texts": empty_filter_lie(TOWN, "town", PLAIN_FILTER),
    "a filter of booleans": boolean_filter_lie(),
    "a number more than the levels say": more_values_lie(STORED, "id", longs(1, 2, 3)),
    "a text more than the levels say": more_values_lie(STORED_TEXT, "town", b"\1\0\0\0a\1\0\0\0b\1\0\0\0c"),
    "an index that does not fill its bytes": longer_index_lie(),
    "rows sorted by a column twice": sorting_columns_lie([ID, ID], SORTING, "id"),
    "rows sorted by a list": sorting_columns_lie([TAG], UNVERIFIED, "tags.list.element"),
    "rows sorted by no column": sorting_columns_lie([99], SORTING, ""),
    "more encodings than there are": many_encodings_lie(),
    "a least text that is no text": text_bound_lie(StatisticsField.MIN_VALUE, b"\xc3"),
    "a greatest text that is no text": text_bound_lie(StatisticsField.MAX_VALUE, b"\xff"),
    "an old least text that is no text": text_bound_lie(StatisticsField.MIN, b"\xc3"),
    "a page's least text that is no text": header_lie(
        TEXT_V1, PageField.DATA_PAGE_HEADER, set_invalid_least_text, name="town"
    ),
    "a least text in the index that is no text": index_lie(
        COLUMN_INDEX, 0, "town", set_element(ColumnIndexField.MIN_VALUES, 0, b"\xc3"), TEXT_INDEX
    ),
    "a greatest text in the index that is no text": index_lie(
        COLUMN_INDEX, 0, "town", set_element(ColumnIndexField.MAX_VALUES, 1, b"\xff"), TEXT_INDEX
    ),
    "pages of another type among the encodings": page_counts_lie(
        lambda stats: put(plain_page_count(stats), EncodingStatsField.PAGE_TYPE, I32, PageType.INDEX_PAGE)
    ),
    "an encoding twice": page_counts_lie(split_count),
    "an encoding of less than no page": page_counts_lie(add_negative_count),
    "an encoding of no page": page_counts_lie(add_zero_count),
    "numbers beyond eight bits": narrow_integer_lie(8, 15, [1, 300], pa.int8()),
    "numbers below eight bits": narrow_integer_lie(8, 15, [-129, 3], pa.int8()),
    "numbers beyond sixteen bits": narrow_integer_lie(16, 16, [1, 70_000], pa.int16()),
    "digits beyond the precision": precision_lie(),
    "values of the type that has none": Lie(AMBIGUOUS, unknown_type_file([1]), NULLS, "place.floor"),
    "an end of a type without an order": bound_without_order_lie(),
    "times of another calendar": Lie(
        AMBIGUOUS, with_key_value(b"org.apache.spark.legacyINT96", b""), HONEST, group=None
    ),
    "dates of an old Spark": Lie(
        AMBIGUOUS,
        with_key_value(b"org.apache.spark.version", b"2.4.8"),
        with_key_value(b"org.apache.spark.version", b"4.0.1"),
        group=None,
    ),
    "dates of a Spark that sorts as an old one": Lie(
        AMBIGUOUS,
        with_key_value(b"org.apache.spark.version", b"10.0.0"),
        with_key_value(b"org.apache.spark.version", b"3.0.0"),
        group=None,
    ),
    "a least zero above a value": zero_bound_lie(ColumnIndexField.MIN_VALUES, 2, 0.0),
    "a greatest zero below a value": zero_bound_lie(ColumnIndexField.MAX_VALUES, 1, -0.0),
    "an offset index without a length": index_place_lie(
        lambda chunk: drop(chunk, OFFSET_INDEX + 1), INDEX, "id", HONEST
    ),
    "a column index without an offset": index_place_lie(lambda chunk: drop(chunk, COLUMN_INDEX), INDEX, "id", HONEST),
    "a filter said to be shorter": chunk_lie(
        lambda fields: put(fields, ColumnField.BLOOM_FILTER_LENGTH, I32, 40), BLOOM, ID, "id", FILTERED
    ),
    "a filter without a place": chunk_lie(
        lambda fields: drop(fields, ColumnField.BLOOM_FILTER_OFFSET), BLOOM, ID, "id", FILTERED
    ),
    "a page of version 2 that begins inside a row": second_page_inside_a_row(indexed=False),
    "a page of the index that begins inside a row": second_page_inside_a_row(indexed=True),
    "a value of a page of nulls": index_lie(
        COLUMN_INDEX,
        0,
        "town",
        set_element(ColumnIndexField.MIN_VALUES, 1, b"x"),
        column_file("town", 2, pa.array(["a"] * 10 + [None] * 10), write_page_index=True),
    ),
    "too few least values": index_lie(
        COLUMN_INDEX, ID, "id", lambda found: get(found, ColumnIndexField.MIN_VALUES)[1].pop()
    ),
    "too few greatest values": index_lie(
        COLUMN_INDEX, ID, "id", lambda found: get(found, ColumnIndexField.MAX_VALUES)[1].pop()
    ),
    "an order that only the least values have": order_lie(LEAST_RISES, 1),
    "an order that only the greatest values have": order_lie(GREATEST_RISES, 1),
    "an order that nobody knows": order_lie(FALLING, 3),
    "repetition levels of the pages": index_lie(
        COLUMN_INDEX,
        TAG,
        "tags.list.element",
        lambda found: put(found, ColumnIndexField.REPETITION_LEVEL_HISTOGRAMS, LIST, (I64, [10, 0] * 3)),
    ),
    "numbers of the index in a longer form": index_lie(
        COLUMN_INDEX, ID, "id", lambda found: put(found, ColumnIndexField.BOUNDARY_ORDER, I32, Raw(b"\x82\x00"))
    ),
    "numbers of a filter in a longer form": filter_header_lie(
        lambda header: put(header, BloomFilterField.NUM_BYTES, I32, Raw(b"\x80\x81\x00"))
    ),
}
