"""Parquet files that are honest but for one claim about their own values, and the honest files they were made of."""

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
    Struct,
    columns,
    edited,
    get,
    groups,
    index_edited,
    joined,
    parse,
    put,
    repaged,
    split,
    statistics,
    told,
    written,
)
from tests.support.verify.staged import NAME, metadata, parquet

BOOLEAN: Final = 1
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
# Where each leaf stands in the footer.
ID, TOWN, PRICE, RATIO, FLAG, DAY, TAG, FLOOR = range(8)
STATISTICS, INDEX, BLOOM = "parquet_statistics_lie", "parquet_page_index_lies", "parquet_bloom_filter_lies"
ENCODINGS, SORTING, UNVERIFIED = "parquet_encodings_lie", "parquet_sorting_lies", "parquet_claim_unverified"


def field(name: str, kind: Any, number: int) -> Any:
    return pa.field(name, kind, metadata={NAME: str(number)})


def rows() -> pa.Table:
    """Every kind of order; the last row of each row group has no value but its id."""
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
    made = [
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
    return pa.Table.from_pylist(made, schema=pa.schema(fields))


def file(data: pa.Table | None = None, **options: Any) -> bytes:
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
    """A file with one lie, the file without it, and how it is refused; the place that is named, if one is."""

    code: str
    data: bytes
    honest: bytes
    column: str = ""
    group: int | None = 0


def long(value: int) -> bytes:
    return struct.pack("<q", value)


def stated(number: int, kind: int, value: Any, leaf: int, name: str, honest: bytes = HONEST, group: int = 0) -> Lie:
    """Another value of one field of a chunk's statistics."""
    data = edited(honest, lambda footer: put(statistics(footer, leaf, group), number, kind, value))
    return Lie(STATISTICS, data, honest, name, group)


def chunked(change: Callable[[Struct], None], code: str, leaf: int, name: str, honest: bytes = HONEST) -> Lie:
    """Another word of the footer about a chunk."""
    data = edited(honest, lambda footer: change(told(columns(groups(footer)[0])[leaf])))
    return Lie(code, data, honest, name)


def indexed(kind: int, leaf: int, name: str, change: Callable[[Struct], None], honest: bytes = HONEST) -> Lie:
    return Lie(INDEX, index_edited(honest, kind, leaf, change), honest, name)


def listed(number: int, at: int, value: Any) -> Callable[[Struct], None]:
    """Another element of a list."""

    def change(found: Struct) -> None:
        get(found, number)[1][at] = value

    return change


def located(number: int, value: int, page: int = 1) -> Callable[[Struct], None]:
    """Another number of one page's place."""

    def change(found: Struct) -> None:
        each = get(found, 1)[1][page]
        kind = next(kind for known, kind, _ in each if known == number)
        put(each, number, kind, value)

    return change


def headed(
    honest: bytes, holder: int, change: Callable[[Struct], None], code: str = STATISTICS, name: str = "id"
) -> Lie:
    """Another word in the header of the last page."""

    def changed(found: list[tuple[Struct, bytes]]) -> None:
        change(get(found[-1][0], holder))

    return Lie(code, repaged(honest, changed), honest, name)


def dictionary_said_sorted() -> Lie:
    honest = repaged(ONE_TEXT, lambda _: None)
    backwards = file(
        pa.Table.from_arrays([pa.array(["b", "a"])], schema=pa.schema([field("town", pa.string(), 2)])),
        write_page_index=False,
    )

    def change(found: list[tuple[Struct, bytes]]) -> None:
        put(get(found[0][0], 7), 3, BOOLEAN, value=True)

    assert repaged(honest, change)  # in order, it may say so
    return Lie(STATISTICS, repaged(backwards, change), backwards, "town")


def filter_place(footer: Struct, leaf: int = ID) -> tuple[int, int]:
    fields = told(columns(groups(footer)[0])[leaf])
    return get(fields, 14), get(fields, 15)


def filter_emptied(leaf: int, name: str, honest: bytes = FILTERED) -> Lie:
    """A filter that has no value at all."""
    body, footer = split(honest)
    at, length = filter_place(footer, leaf)
    _, start = parse(body, at)
    return Lie(BLOOM, joined(body[:start] + b"\0" * (at + length - start) + body[at + length :], footer), honest, name)


def filter_header(change: Callable[[Struct], None]) -> Lie:
    """A filter whose header says something else, behind everything."""
    body, footer = split(FILTERED)
    at, length = filter_place(footer)
    header, start = parse(body, at)
    change(header)
    new = written(header) + body[start : at + length]
    fields = told(columns(groups(footer)[0])[ID])
    put(fields, 14, I64, len(body))
    put(fields, 15, I32, len(new))
    return Lie(BLOOM, joined(body + new, footer), FILTERED, "id")


def sorted_by(leaf: int, *, descending: bool = False) -> Lie:
    def change(footer: Struct) -> None:
        each = [[1, I32, leaf], [2, 1, descending], [3, 1, False]]
        put(groups(footer)[0], 4, LIST, (STRUCT, [each]))

    return Lie(SORTING, edited(HONEST, change), HONEST, ["id", "town"][leaf])


def two_parts(footer: Struct) -> None:
    """The column index of one column where the offset index of another lies."""
    first, other = columns(groups(footer)[0])[:2]
    put(first, COLUMN_INDEX, I64, get(other, OFFSET_INDEX))


def codec(number: int) -> Callable[[Struct], None]:
    return lambda fields: put(fields, 4, I32, number)


def all_plain(fields: Struct) -> None:
    """As if every page went by the dictionary, where some are plain."""
    put(fields, 2, LIST, (I32, [3, 8]))


def all_by_dictionary(fields: Struct) -> None:
    stats = get(fields, 13)[1]
    stats[:] = [each for each in stats if get(each, 2) != 0 or get(each, 1) == 2]


MIXED: Final = file(
    pa.Table.from_arrays(
        [pa.array([f"{at:0200}" for at in range(3_000)])], schema=pa.schema([field("town", pa.string(), 2)])
    ),
    row_group_size=3_000,
    dictionary_pagesize_limit=1_000,
    max_rows_per_page=500,
    write_batch_size=100,
)

LIES: Final[dict[str, Lie]] = {
    "a greatest value too small": stated(5, BINARY, long(3), ID, "id"),
    "a greatest value too large": stated(5, BINARY, long(10**6), ID, "id", group=1),
    "a least value too large": stated(6, BINARY, long(5), ID, "id"),
    "a least value too small": stated(6, BINARY, long(-5), ID, "id"),
    "an old greatest value": stated(1, BINARY, long(3), ID, "id"),
    "an old least value": stated(2, BINARY, long(3), ID, "id"),
    "an old greatest text": stated(1, BINARY, b"a", TOWN, "town"),
    "a value of another width": stated(5, BINARY, long(28) + b"\0", ID, "id"),
    "no nulls": stated(3, I64, 0, TOWN, "town"),
    "nulls that are not there": stated(3, I64, 29, ID, "id"),
    "distinct values": stated(4, I64, 6, TOWN, "town"),
    "a greatest text too small": stated(5, BINARY, b"town 05", TOWN, "town"),
    "a greatest text said exact": stated(5, BINARY, b"town 07", TOWN, "town"),
    "a least text too large": stated(6, BINARY, b"town 01", TOWN, "town"),
    "a least text that is no start": stated(6, BINARY, b"tow ", TOWN, "town"),
    "a decimal": stated(5, BINARY, (-31 * 25).to_bytes(9, "big", signed=True), PRICE, "price"),
    "a double": stated(5, BINARY, struct.pack("<d", 1.0), RATIO, "ratio"),
    "a double that is none": stated(5, BINARY, struct.pack("<d", float("nan")), RATIO, "ratio"),
    "a boolean": stated(5, BINARY, b"\0", FLAG, "flag"),
    "a date": stated(5, BINARY, struct.pack("<i", 0), DAY, "day"),
    "a greatest value inside a list": stated(5, BINARY, long(3), TAG, "tags.list.element"),
    "nulls inside a list": stated(3, I64, 0, TAG, "tags.list.element"),
    "a greatest value inside a struct": stated(5, BINARY, struct.pack("<i", 1), FLOOR, "place.floor"),
    "nulls inside a struct": stated(3, I64, 0, FLOOR, "place.floor"),
    "the bytes of a text": chunked(lambda c: put(get(c, 16), 1, I64, 1), STATISTICS, TOWN, "town"),
    "levels": chunked(lambda c: put(get(c, 16), 3, LIST, (I64, [0, 30])), STATISTICS, TOWN, "town"),
    "levels of a list": chunked(
        lambda c: put(get(c, 16), 2, LIST, (I64, [58, 0])), STATISTICS, TAG, "tags.list.element"
    ),
    "geospatial statistics": chunked(lambda c: put(c, 17, STRUCT, []), UNVERIFIED, ID, "id"),
    "distinct values without a dictionary": Lie(
        UNVERIFIED, edited(PLAIN, lambda footer: put(statistics(footer, ID), 4, I64, 30)), PLAIN, "id"
    ),
    "a page's greatest value": headed(ONE, 5, lambda page: put(get(page, 5), 5, BINARY, long(3))),
    "a page's nulls": headed(ONE, 5, lambda page: put(get(page, 5), 3, I64, 1)),
    "a page's distinct values": headed(ONE, 5, lambda page: put(get(page, 5), 4, I64, 1), UNVERIFIED),
    "the nulls of a page of version 2": headed(
        ONE_TEXT_V2, 8, lambda page: put(page, 2, I32, 0), "parquet_rows_lie", "town"
    ),
    "the rows of a page of version 2": headed(ONE_V2, 8, lambda page: put(page, 3, I32, 9), "parquet_rows_lie"),
    "a page of nulls": indexed(COLUMN_INDEX, ID, "id", listed(1, 1, value=True)),
    "a page without nulls": indexed(COLUMN_INDEX, TOWN, "town", listed(5, 2, 0)),
    "a page's greatest value in the index": indexed(COLUMN_INDEX, ID, "id", listed(3, 1, long(12))),
    "a page's least value in the index": indexed(COLUMN_INDEX, ID, "id", listed(2, 1, long(15))),
    "a page's greatest text in the index": indexed(COLUMN_INDEX, TOWN, "town", listed(3, 1, b"town 01")),
    "a page's greatest value inside a list": indexed(COLUMN_INDEX, TAG, "tags.list.element", listed(3, 1, long(12))),
    "an order of the pages": indexed(COLUMN_INDEX, ID, "id", lambda found: put(found, 4, I32, 2)),
    "an order that is none": indexed(COLUMN_INDEX, ID, "id", lambda found: put(found, 4, I32, 7)),
    "levels of the pages": indexed(
        COLUMN_INDEX, TOWN, "town", lambda found: put(found, 7, LIST, (I64, [0, 10, 0, 10, 0, 10]))
    ),
    "pages of the index that are not there": indexed(
        COLUMN_INDEX, ID, "id", lambda found: get(found, 1)[1].append(True)
    ),
    "a page elsewhere": indexed(OFFSET_INDEX, ID, "id", located(1, 5)),
    "a page of another size": indexed(OFFSET_INDEX, ID, "id", located(2, 5)),
    "a page of other rows": indexed(OFFSET_INDEX, ID, "id", located(3, 5)),
    "a page that is not listed": indexed(OFFSET_INDEX, ID, "id", lambda found: get(found, 1)[1].pop()),
    "the bytes of a page's texts": indexed(OFFSET_INDEX, TOWN, "town", listed(2, 1, 5)),
    "two indexes in one place": Lie("parquet_ambiguous", edited(HONEST, two_parts), HONEST, group=None),
    "a filter without numbers": filter_emptied(ID, "id"),
    "a filter without texts": filter_emptied(TOWN, "town"),
    "a filter without plain numbers": filter_emptied(
        ID, "id", file(use_dictionary=False, bloom_filter_options={"id": {"ndv": 100, "fpp": 0.01}})
    ),
    "a filter of another size": filter_header(lambda header: put(header, 1, I32, 32)),
    "a filter of another kind": filter_header(lambda header: put(header, 2, STRUCT, [[2, STRUCT, []]])),
    "a filter of another hash": filter_header(lambda header: put(header, 3, STRUCT, [[2, STRUCT, []]])),
    "encodings": chunked(all_plain, ENCODINGS, 0, "town", MIXED),
    "the encodings of pages": chunked(all_by_dictionary, ENCODINGS, 0, "town", MIXED),
    "a sorted dictionary": dictionary_said_sorted(),
    "rows sorted by a text": sorted_by(TOWN),
    "rows sorted backwards": sorted_by(ID, descending=True),
    "a codec that Spark lacks": Lie(
        "parquet_codec_unsupported", file(compression="brotli"), file(compression="zstd"), "id"
    ),
    "dates of another calendar": Lie(
        "parquet_ambiguous",
        edited(
            HONEST,
            lambda footer: get(footer, 5)[1].append(
                [[1, BINARY, b"org.apache.spark.legacyDateTime"], [2, BINARY, b""]]
            ),
        ),
        HONEST,
        group=None,
    ),
}
