"""Parquet files with one false claim (a lie) about their own values, and the honest files they were made from.

`field_ids.py` names the ids of the fields.
"""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.lake.metadata import Doc, column
from tests.support.parquet.edit import (
    BINARY,
    COLUMN_INDEX,
    I32,
    I64,
    LIST,
    OFFSET_INDEX,
    STRUCT,
    TRUE,
    Struct,
    columns,
    edit_footer,
    edit_page_index,
    edit_pages,
    get,
    groups,
    join_footer,
    metadata_of,
    parse,
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
    DataPageV2Field,
    DictionaryPageField,
    Encoding,
    EncodingStatsField,
    FooterField,
    GroupField,
    OffsetIndexField,
    PageField,
    PageLocationField,
    PageType,
    SizeStatisticsField,
    StatisticsField,
)
from tests.support.verify.staged import NAME, metadata, parquet

BOOLEAN: Final = TRUE  # the wire type; `serialize` replaces it by that of the value
ROWS: Final = 60
LISTED: Final[Doc] = {"type": "list", "element-id": 8, "element": "long", "element-required": False}
INSIDE: Final[Doc] = {"type": "struct", "fields": [column(10, "floor", "int")]}
COLUMNS: Final[tuple[Doc, ...]] = (
    column(1, "id"),
    column(2, "town", "string"),
    column(3, "price", "decimal(20, 2)"),
    column(4, "ratio", "double"),
    column(5, "flag", "boolean"),
    column(6, "day", "date"),
    column(7, "tags", LISTED),
    column(9, "place", INSIDE),
)
TABLE: Final = metadata(*COLUMNS)
# The position of each leaf column in the footer.
ID, TOWN, PRICE, RATIO, FLAG, DAY, TAG, FLOOR = range(8)
STATISTICS, INDEX, BLOOM = "parquet_statistics_lie", "parquet_page_index_lies", "parquet_bloom_filter_lies"
ENCODINGS, SORTING, UNVERIFIED = "parquet_encodings_lie", "parquet_sorting_lies", "parquet_claim_unverified"


def field(name: str, kind: Any, number: int) -> Any:
    """An Arrow field with the Iceberg field id `number`."""
    return pa.field(name, kind, metadata={NAME: str(number)})


def rows() -> pa.Table:
    """Rows with columns of several orders. The last row of each row group has only an id."""
    fields = [
        field("id", pa.int64(), 1),
        field("town", pa.string(), 2),
        field("price", pa.decimal128(20, 2), 3),
        field("ratio", pa.float64(), 4),
        field("flag", pa.bool_(), 5),
        field("day", pa.date32(), 6),
        field("tags", pa.list_(field("element", pa.int64(), 8)), 7),
        field("place", pa.struct([field("floor", pa.int32(), 10)]), 9),
    ]
    values = [
        {"id": at}
        if at % 30 == 29
        else {
            "id": at,
            "town": f"town {at % 7:02}",
            "price": Decimal(at - 30) / 4,
            "ratio": float(at % 11) - 5,
            "flag": at % 3 == 0,
            "day": dt.date(2026, 1, 1) + dt.timedelta(days=at),
            "tags": [at, None, at * 2] if at % 2 else [],
            "place": {"floor": at % 5} if at % 4 else None,
        }
        for at in range(ROWS)
    ]
    return pa.Table.from_pylist(values, schema=pa.schema(fields))


def file(data: pa.Table | None = None, **options: Any) -> bytes:
    """A file of PyArrow with two row groups of three pages, or with other options."""
    given: dict[str, Any] = {"row_group_size": 30, "write_page_index": True, "max_rows_per_page": 10, **options}
    return parquet(rows() if data is None else data, **given)


HONEST: Final = file()
PLAIN: Final = file(use_dictionary=False)
FILTERED: Final = file(bloom_filter_options={"id": {"ndv": 100, "fpp": 0.01}, "town": {"ndv": 100, "fpp": 0.01}})
SORTED: Final = file(sorting_columns=[pq.SortingColumn(0)])
ONE: Final = file(rows().select(["id"]), row_group_size=ROWS, write_page_index=False)
ONE_V2: Final = file(rows().select(["id"]), row_group_size=ROWS, write_page_index=False, data_page_version="2.0")
ONE_TEXT_V2: Final = file(rows().select(["town"]), row_group_size=ROWS, write_page_index=False, data_page_version="2.0")
ONE_TEXT: Final = file(rows().select(["town"]), row_group_size=ROWS, write_page_index=False)


@dataclass(frozen=True, slots=True)
class Lie:
    """A file with one lie, the honest file, and the expected finding: its code, column and row group.

    Without a column the finding names the file, and without a group no row group.
    """

    code: str
    data: bytes
    honest: bytes
    column: str = ""
    group: int | None = 0


def long_bytes(value: int) -> bytes:
    """A 64-bit value as statistics have it."""
    return struct.pack("<q", value)


def statistics_lie(
    number: int, kind: int, value: Any, leaf: int, name: str, honest: bytes = HONEST, group: int = 0
) -> Lie:
    """Set the field `number` of a column chunk's statistics. `leaf` is the column's position, `name` its path."""
    data = edit_footer(honest, lambda footer: put(statistics(footer, leaf, group), number, kind, value))
    return Lie(STATISTICS, data, honest, name, group)


def chunk_lie(change: Callable[[Struct], None], code: str, leaf: int, name: str, honest: bytes = HONEST) -> Lie:
    """Change the metadata of a column chunk."""
    data = edit_footer(honest, lambda footer: change(metadata_of(columns(groups(footer)[0])[leaf])))
    return Lie(code, data, honest, name)


def index_lie(kind: int, leaf: int, name: str, change: Callable[[Struct], None], honest: bytes = HONEST) -> Lie:
    """Change the column index or offset index of a column chunk."""
    return Lie(INDEX, edit_page_index(honest, kind, leaf, change), honest, name)


def set_element(number: int, at: int, value: Any) -> Callable[[Struct], None]:
    """A change that sets element `at` of the list in field `number`."""

    def change(found: Struct) -> None:
        get(found, number)[1][at] = value

    return change


def set_page_location(number: int, value: int, page: int = 1) -> Callable[[Struct], None]:
    """A change of an offset index that sets the field `number` of one page's location."""

    def change(found: Struct) -> None:
        each = get(found, OffsetIndexField.PAGE_LOCATIONS)[1][page]
        kind = next(kind for known, kind, _ in each if known == number)
        put(each, number, kind, value)

    return change


def header_lie(
    honest: bytes, number: int, change: Callable[[Struct], None], code: str = STATISTICS, name: str = "id"
) -> Lie:
    """Change the last page's header; `number` is the field of the page header with the header of this page type."""

    def change_last(pages: list[tuple[Struct, bytes]]) -> None:
        header, _ = pages[-1]
        change(get(header, number))

    return Lie(code, edit_pages(honest, change_last), honest, name)


def sorted_dictionary_lie() -> Lie:
    """A dictionary that is marked as sorted, and is not."""
    honest = edit_pages(ONE_TEXT, lambda _: None)
    backwards = file(
        pa.Table.from_arrays([pa.array(["b", "a"])], schema=pa.schema([field("town", pa.string(), 2)])),
        write_page_index=False,
    )

    def change(pages: list[tuple[Struct, bytes]]) -> None:
        header, _ = pages[0]
        put(get(header, PageField.DICTIONARY_PAGE_HEADER), DictionaryPageField.IS_SORTED, BOOLEAN, value=True)

    assert edit_pages(honest, change)  # its dictionary is in order, so it may say so
    return Lie(STATISTICS, edit_pages(backwards, change), backwards, "town")


def filter_range(footer: Struct, leaf: int = ID) -> tuple[int, int]:
    """The place and the length of a column's bloom filter."""
    fields = metadata_of(columns(groups(footer)[0])[leaf])
    return get(fields, ColumnField.BLOOM_FILTER_OFFSET), get(fields, ColumnField.BLOOM_FILTER_LENGTH)


def empty_filter_lie(leaf: int, name: str, honest: bytes = FILTERED) -> Lie:
    """A bloom filter without any bit set, so that it excludes every value."""
    body, footer = split_footer(honest)
    at, length = filter_range(footer, leaf)
    _, start = parse(body, at)
    end = at + length
    return Lie(BLOOM, join_footer(body[:start] + b"\0" * (end - start) + body[end:], footer), honest, name)


def filter_header_lie(change: Callable[[Struct], None]) -> Lie:
    """A bloom filter with a changed header, which is appended before the footer."""
    body, footer = split_footer(FILTERED)
    at, length = filter_range(footer)
    header, start = parse(body, at)
    change(header)
    new = serialize(header) + body[start : at + length]
    fields = metadata_of(columns(groups(footer)[0])[ID])
    put(fields, ColumnField.BLOOM_FILTER_OFFSET, I64, len(body))
    put(fields, ColumnField.BLOOM_FILTER_LENGTH, I32, len(new))
    return Lie(BLOOM, join_footer(body + new, footer), FILTERED, "id")


def sorting_column(leaf: int, descending: bool = False) -> Struct:
    """A SortingColumn: the column's position, whether it descends, and whether nulls are first."""
    return [[1, I32, leaf], [2, BOOLEAN, descending], [3, BOOLEAN, False]]


def sorting_lie(leaf: int, *, descending: bool = False) -> Lie:
    """Claim that the first row group is sorted by a column."""

    def change(footer: Struct) -> None:
        put(groups(footer)[0], GroupField.SORTING_COLUMNS, LIST, (STRUCT, [sorting_column(leaf, descending)]))

    return Lie(SORTING, edit_footer(HONEST, change), HONEST, ["id", "town"][leaf])


def share_index_place(footer: Struct) -> None:
    """Let the column index of the first column be at the place of the second column's offset index."""
    first, other = columns(groups(footer)[0])[:2]
    put(first, COLUMN_INDEX, I64, get(other, OFFSET_INDEX))


def drop_plain_encoding(fields: Struct) -> None:
    """Name only RLE and RLE_DICTIONARY as encodings, although some pages are PLAIN."""
    put(fields, ColumnField.ENCODINGS, LIST, (I32, [Encoding.RLE, Encoding.RLE_DICTIONARY]))


def drop_counts_of_plain_pages(fields: Struct) -> None:
    """Remove the counts of PLAIN data pages from the page counts by encoding; the dictionary page is PLAIN too."""
    stats = get(fields, ColumnField.ENCODING_STATS)[1]
    stats[:] = [
        each
        for each in stats
        if get(each, EncodingStatsField.ENCODING) != Encoding.PLAIN
        or get(each, EncodingStatsField.PAGE_TYPE) == PageType.DICTIONARY_PAGE
    ]


# Its first pages are dictionary-encoded. The dictionary gets too large, so the others are plain.
MIXED: Final = file(
    pa.Table.from_arrays(
        [pa.array([f"{at:0200}" for at in range(3_000)])], schema=pa.schema([field("town", pa.string(), 2)])
    ),
    row_group_size=3_000,
    dictionary_pagesize_limit=1_000,
    max_rows_per_page=500,
    write_batch_size=100,
)

UNKNOWN_CHOICE: Final[Struct] = [[2, STRUCT, []]]
"""A choice that does not exist: a filter's algorithm and its hash have only choice 1."""
LIES: Final[dict[str, Lie]] = {
    "a greatest value too small": statistics_lie(StatisticsField.MAX_VALUE, BINARY, long_bytes(3), ID, "id"),
    "a greatest value too large": statistics_lie(
        StatisticsField.MAX_VALUE, BINARY, long_bytes(10**6), ID, "id", group=1
    ),
    "a least value too large": statistics_lie(StatisticsField.MIN_VALUE, BINARY, long_bytes(5), ID, "id"),
    "a least value too small": statistics_lie(StatisticsField.MIN_VALUE, BINARY, long_bytes(-5), ID, "id"),
    "an old greatest value": statistics_lie(StatisticsField.MAX, BINARY, long_bytes(3), ID, "id"),
    "an old least value": statistics_lie(StatisticsField.MIN, BINARY, long_bytes(3), ID, "id"),
    "an old greatest text": statistics_lie(StatisticsField.MAX, BINARY, b"a", TOWN, "town"),
    "a value of another width": statistics_lie(StatisticsField.MAX_VALUE, BINARY, long_bytes(28) + b"\0", ID, "id"),
    "no nulls": statistics_lie(StatisticsField.NULL_COUNT, I64, 0, TOWN, "town"),
    "nulls that are not there": statistics_lie(StatisticsField.NULL_COUNT, I64, 29, ID, "id"),
    "distinct values": statistics_lie(StatisticsField.DISTINCT_COUNT, I64, 6, TOWN, "town"),
    "a greatest text too small": statistics_lie(StatisticsField.MAX_VALUE, BINARY, b"town 05", TOWN, "town"),
    "a greatest text said exact": statistics_lie(StatisticsField.MAX_VALUE, BINARY, b"town 07", TOWN, "town"),
    "a least text too large": statistics_lie(StatisticsField.MIN_VALUE, BINARY, b"town 01", TOWN, "town"),
    "a least text that is no start": statistics_lie(StatisticsField.MIN_VALUE, BINARY, b"tow ", TOWN, "town"),
    "a decimal": statistics_lie(
        StatisticsField.MAX_VALUE, BINARY, (-31 * 25).to_bytes(9, "big", signed=True), PRICE, "price"
    ),
    "a double": statistics_lie(StatisticsField.MAX_VALUE, BINARY, struct.pack("<d", 1.0), RATIO, "ratio"),
    "a double that is none": statistics_lie(
        StatisticsField.MAX_VALUE, BINARY, struct.pack("<d", float("nan")), RATIO, "ratio"
    ),
    "a boolean": statistics_lie(StatisticsField.MAX_VALUE, BINARY, b"\0", FLAG, "flag"),
    "a date": statistics_lie(StatisticsField.MAX_VALUE, BINARY, struct.pack("<i", 0), DAY, "day"),
    "a greatest value inside a list": statistics_lie(
        StatisticsField.MAX_VALUE, BINARY, long_bytes(3), TAG, "tags.list.element"
    ),
    "nulls inside a list": statistics_lie(StatisticsField.NULL_COUNT, I64, 0, TAG, "tags.list.element"),
    "a greatest value inside a struct": statistics_lie(
        StatisticsField.MAX_VALUE, BINARY, struct.pack("<i", 1), FLOOR, "place.floor"
    ),
    "nulls inside a struct": statistics_lie(StatisticsField.NULL_COUNT, I64, 0, FLOOR, "place.floor"),
    "the bytes of a text": chunk_lie(
        lambda c: put(get(c, ColumnField.SIZE_STATISTICS), SizeStatisticsField.UNENCODED_BYTE_ARRAY_DATA_BYTES, I64, 1),
        STATISTICS,
        TOWN,
        "town",
    ),
    "levels": chunk_lie(
        lambda c: put(
            get(c, ColumnField.SIZE_STATISTICS), SizeStatisticsField.DEFINITION_LEVEL_HISTOGRAM, LIST, (I64, [0, 30])
        ),
        STATISTICS,
        TOWN,
        "town",
    ),
    "levels of a list": chunk_lie(
        lambda c: put(
            get(c, ColumnField.SIZE_STATISTICS), SizeStatisticsField.REPETITION_LEVEL_HISTOGRAM, LIST, (I64, [58, 0])
        ),
        STATISTICS,
        TAG,
        "tags.list.element",
    ),
    "geospatial statistics": chunk_lie(
        lambda c: put(c, ColumnField.GEOSPATIAL_STATISTICS, STRUCT, []), UNVERIFIED, ID, "id"
    ),
    "distinct values without a dictionary": Lie(
        UNVERIFIED,
        edit_footer(PLAIN, lambda footer: put(statistics(footer, ID), StatisticsField.DISTINCT_COUNT, I64, 30)),
        PLAIN,
        "id",
    ),
    "a page's greatest value": header_lie(
        ONE,
        PageField.DATA_PAGE_HEADER,
        lambda page: put(get(page, DataPageField.STATISTICS), StatisticsField.MAX_VALUE, BINARY, long_bytes(3)),
    ),
    "a page's nulls": header_lie(
        ONE,
        PageField.DATA_PAGE_HEADER,
        lambda page: put(get(page, DataPageField.STATISTICS), StatisticsField.NULL_COUNT, I64, 1),
    ),
    "a page's distinct values": header_lie(
        ONE,
        PageField.DATA_PAGE_HEADER,
        lambda page: put(get(page, DataPageField.STATISTICS), StatisticsField.DISTINCT_COUNT, I64, 1),
        UNVERIFIED,
    ),
    "the nulls of a page of version 2": header_lie(
        ONE_TEXT_V2,
        PageField.DATA_PAGE_HEADER_V2,
        lambda page: put(page, DataPageV2Field.NUM_NULLS, I32, 0),
        "parquet_rows_lie",
        "town",
    ),
    "the rows of a page of version 2": header_lie(
        ONE_V2,
        PageField.DATA_PAGE_HEADER_V2,
        lambda page: put(page, DataPageV2Field.NUM_ROWS, I32, 9),
        "parquet_rows_lie",
    ),
    "a page of nulls": index_lie(COLUMN_INDEX, ID, "id", set_element(ColumnIndexField.NULL_PAGES, 1, value=True)),
    "a page without nulls": index_lie(COLUMN_INDEX, TOWN, "town", set_element(ColumnIndexField.NULL_COUNTS, 2, 0)),
    "a page's greatest value in the index": index_lie(
        COLUMN_INDEX, ID, "id", set_element(ColumnIndexField.MAX_VALUES, 1, long_bytes(12))
    ),
    "a page's least value in the index": index_lie(
        COLUMN_INDEX, ID, "id", set_element(ColumnIndexField.MIN_VALUES, 1, long_bytes(15))
    ),
    "a page's greatest text in the index": index_lie(
        COLUMN_INDEX, TOWN, "town", set_element(ColumnIndexField.MAX_VALUES, 1, b"town 01")
    ),
    "a page's greatest value inside a list": index_lie(
        COLUMN_INDEX, TAG, "tags.list.element", set_element(ColumnIndexField.MAX_VALUES, 1, long_bytes(12))
    ),
    "an order of the pages": index_lie(
        COLUMN_INDEX, ID, "id", lambda found: put(found, ColumnIndexField.BOUNDARY_ORDER, I32, 2)
    ),
    "an order that is none": index_lie(
        COLUMN_INDEX, ID, "id", lambda found: put(found, ColumnIndexField.BOUNDARY_ORDER, I32, 7)
    ),
    "levels of the pages": index_lie(
        COLUMN_INDEX,
        TOWN,
        "town",
        lambda found: put(found, ColumnIndexField.DEFINITION_LEVEL_HISTOGRAMS, LIST, (I64, [0, 10, 0, 10, 0, 10])),
    ),
    "pages of the index that are not there": index_lie(
        COLUMN_INDEX, ID, "id", lambda found: get(found, ColumnIndexField.NULL_PAGES)[1].append(True)
    ),
    "a page elsewhere": index_lie(OFFSET_INDEX, ID, "id", set_page_location(PageLocationField.OFFSET, 5)),
    "a page of another size": index_lie(
        OFFSET_INDEX, ID, "id", set_page_location(PageLocationField.COMPRESSED_PAGE_SIZE, 5)
    ),
    "a page of other rows": index_lie(OFFSET_INDEX, ID, "id", set_page_location(PageLocationField.FIRST_ROW_INDEX, 5)),
    "a page that is not listed": index_lie(
        OFFSET_INDEX, ID, "id", lambda found: get(found, OffsetIndexField.PAGE_LOCATIONS)[1].pop()
    ),
    "the bytes of a page's texts": index_lie(
        OFFSET_INDEX, TOWN, "town", set_element(OffsetIndexField.UNENCODED_BYTE_ARRAY_DATA_BYTES, 1, 5)
    ),
    "two indexes in one place": Lie("parquet_ambiguous", edit_footer(HONEST, share_index_place), HONEST, group=None),
    "a filter without numbers": empty_filter_lie(ID, "id"),
    "a filter without texts": empty_filter_lie(TOWN, "town"),
    "a filter without plain numbers": empty_filter_lie(
        ID, "id", file(use_dictionary=False, bloom_filter_options={"id": {"ndv": 100, "fpp": 0.01}})
    ),
    "a filter of another size": filter_header_lie(lambda header: put(header, BloomFilterField.NUM_BYTES, I32, 32)),
    "a filter of another kind": filter_header_lie(
        lambda header: put(header, BloomFilterField.ALGORITHM, STRUCT, UNKNOWN_CHOICE)
    ),
    "a filter of another hash": filter_header_lie(
        lambda header: put(header, BloomFilterField.HASH, STRUCT, UNKNOWN_CHOICE)
    ),
    "encodings": chunk_lie(drop_plain_encoding, ENCODINGS, 0, "town", MIXED),
    "the encodings of pages": chunk_lie(drop_counts_of_plain_pages, ENCODINGS, 0, "town", MIXED),
    "a sorted dictionary": sorted_dictionary_lie(),
    "rows sorted by a text": sorting_lie(TOWN),
    "rows sorted backwards": sorting_lie(ID, descending=True),
    "a codec that Spark lacks": Lie(
        "parquet_codec_unsupported", file(compression="brotli"), file(compression="zstd"), "id"
    ),
    "dates of another calendar": Lie(
        "parquet_ambiguous",
        edit_footer(
            HONEST,
            lambda footer: get(footer, FooterField.KEY_VALUE_METADATA)[1].append(
                [[1, BINARY, b"org.apache.spark.legacyDateTime"], [2, BINARY, b""]]
            ),
        ),
        HONEST,
        group=None,
    ),
}
