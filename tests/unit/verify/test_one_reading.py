"""Files that engines read as different rows, or that only our decoder can read: each is refused.

Our decoder read the honest rows from each of them. Comments say what other readers returned.
"""

from __future__ import annotations

import copy
import gzip
import io
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.for_each import for_each
from tests.support.lake.metadata import Doc, column
from tests.support.parquet.edit import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    Raw,
    Struct,
    columns,
    drop,
    edit_footer,
    edit_pages,
    get,
    groups,
    join_footer,
    parse,
    put,
    serialize,
    split_footer,
)
from tests.support.parquet.edit import metadata_of as chunk_fields
from tests.support.parquet.pages import RLE_DICTIONARY, dictionary_page, longs, page, page_v2, rebuild, run
from tests.support.verify.staged import NAME, metadata, observe_file, parquet

pytestmark = pytest.mark.usefixtures("kernel")

TABLE = metadata(column(1, "id"), column(2, "a", "double"), column(3, "b", "double"))


def table(a: Sequence[float], names: Sequence[str] = ("id", "a", "b")) -> pa.Table:
    fields = [
        pa.field(name, kind, metadata={NAME: str(at)})
        for at, (name, kind) in enumerate(zip(names, (pa.int64(), pa.float64(), pa.float64()), strict=True), 1)
    ]
    arrays: list[Any] = [pa.array(range(6), pa.int64()), pa.array(a), pa.array([100.0 + at for at in range(6)])]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def file_of(data: pa.Table, **options: Any) -> bytes:
    return parquet(data, store_schema=False, use_dictionary=False, compression="none", **options)


HONEST = file_of(table([0.0, 1.0, 2.0, 3.0, 4.0, 5.0]))
FORGED = file_of(table([9.0] * 6))
TWO_GROUPS = file_of(table([0.0, 1.0, 2.0, 3.0, 4.0, 5.0]), row_group_size=3)


def codes_of(data: bytes, schema: Any = TABLE) -> list[str]:
    return [each.code for each in observe_file(data, schema, record_count=6).findings]


def second_column(footer: Struct, group: int = 0) -> Struct:
    """The footer's metadata of column `a`."""
    return chunk_fields(columns(groups(footer)[group])[1])


def pages_of_second_column(data: bytes) -> bytes:
    body, footer = split_footer(data)
    start = get(second_column(footer), 9)
    return body[start : start + get(second_column(footer), 7)]


def test_unambiguous_files_are_accepted() -> None:
    one_page, large_page = file_of_one_page("2.0"), with_page_size(54)
    assert codes_of(HONEST) == codes_of(TWO_GROUPS) == codes_of(large_page) == codes_of(one_page) == []
    # Java's writers declare levels as bit-packed (4) that a page does not have.
    absent_levels, snappy = with_level_encoding(4), [with_snappy_size(0, version) for version in ("1.0", "2.0")]
    assert codes_of(BY_DICTIONARY) == codes_of(absent_levels) == codes_of(snappy[0]) == codes_of(snappy[1]) == []
    assert codes_of(page_of_gzip(gzip.compress)) == codes_of(page_of_gzip(two_streams)) == []
    plain_dictionary, one_group, streams = with_dictionary_encoding(2), indices_in_groups(1), byte_streams_and(b"")
    assert codes_of(plain_dictionary) == codes_of(one_group) == codes_of(streams) == []


def two_page_offsets(kind: int) -> bytes:
    """The data's offset leads to forged pages; the dictionary's leads to honest ones, which only our decoder used."""
    body, footer = split_footer(FORGED)
    put(second_column(footer), 11, kind, len(body))
    return join_footer(body + pages_of_second_column(HONEST), footer)


def with_offset_twice() -> bytes:
    body, footer = split_footer(FORGED)
    fields = second_column(footer)
    at = next(at for at, each in enumerate(fields) if each[0] == 9)
    fields.insert(at, [9, I64, len(body)])
    return join_footer(body + pages_of_second_column(HONEST), footer)


def with_groups_twice() -> bytes:
    body, footer = split_footer(HONEST)
    at = next(at for at, each in enumerate(footer) if each[0] == 4)
    footer.insert(at, copy.deepcopy(footer[at]))
    return join_footer(body, footer)


def without_columns() -> bytes:
    """Rows without columns: Spark and DuckDB end with an error, and PyIceberg reads nulls."""
    _, footer = split_footer(HONEST)
    elements = get(footer, 2)[1]
    put(elements[0], 5, I32, 0)
    del elements[1:]
    drop(footer, 7)
    group = groups(footer)[0]
    columns(group).clear()
    put(group, 2, I64, 0)
    drop(group, *({each[0] for each in group} - {1, 2, 3}))
    return join_footer(b"PAR1", footer)


def swap_paths(footer: Struct) -> None:
    first, other = (chunk_fields(each) for each in columns(groups(footer)[0])[1:])
    paths = get(first, 3), get(other, 3)
    put(first, 3, LIST, paths[1])
    put(other, 3, LIST, paths[0])


def set_group_size(size: int) -> Callable[[Struct], None]:
    return lambda footer: put(groups(footer)[0], 6, I64, size)


def set_other_file(footer: Struct) -> None:
    for each in columns(groups(footer)[0]):
        put(each, 1, BINARY, b"other.parquet")


def set_equal_offsets(footer: Struct) -> None:
    put(chunk_fields(columns(groups(footer)[0])[2]), 9, I64, get(second_column(footer), 9))


def with_columns_backwards() -> bytes:
    """The first column is stored last. So the computed middle of the last row group may be after the file's end."""
    body, footer = split_footer(TWO_GROUPS)
    reordered = b"PAR1"
    for group in groups(footer):
        for each in reversed(columns(group)):
            fields = chunk_fields(each)
            start, size = get(fields, 9), get(fields, 7)
            put(fields, 9, I64, len(reordered))
            reordered += body[start : start + size]
    return join_footer(reordered, footer)


def with_packed_levels() -> bytes:
    """A page that declares its levels as bit-packed; Iceberg's vectorized reader reads every page's levels as runs."""
    body, footer = split_footer(HONEST)
    start = get(second_column(footer), 9)
    header, end = parse(body, start)
    put(get(header, 5), 3, I32, 4)
    assert len(serialize(header)) == end - start
    return join_footer(body[:start] + serialize(header) + body[end:], footer)


def with_dictionary_twice() -> bytes:
    """A second dictionary among the data pages: some readers refuse it, others replace the first one by it."""
    many = table([float(at % 2) for at in range(6)])
    body, footer = split_footer(parquet(many, store_schema=False, use_dictionary=["a"], compression="none"))
    fields = second_column(footer)
    start, first, size = get(fields, 11), get(fields, 9), get(fields, 7)
    pages = body[start:first] + body[start : start + size]
    put(fields, 11, I64, len(body))
    put(fields, 9, I64, len(body) + first - start)
    put(fields, 7, I64, len(pages))
    group = groups(footer)[0]
    put(group, 6, I64, sum(get(chunk_fields(each), 7) for each in columns(group)))
    return join_footer(body + pages, footer)


def with_field_id(number: bytes) -> bytes:
    """The field id of the second column, which is 2, in another encoded form."""
    return edit_footer(HONEST, lambda footer: put(get(footer, 2)[1][2], 9, I32, Raw(number)))


def file_of_one_page(version: str = "1.0") -> bytes:
    return file_of(table([0.0] * 6).select(["a"]), data_page_version=version)


def with_level_encoding(encoding: int) -> bytes:
    """A column outside of lists whose page declares this encoding for repetition levels that it does not have."""
    return edit_pages(file_of_one_page(), lambda found: put(get(found[-1][0], 5), 4, I32, encoding))


def with_snappy_size(size: int, version: str) -> bytes:
    """A page of Snappy that declares `size` bytes more than it has."""
    honest = parquet(table([0.0] * 6).select(["a"]), store_schema=False, data_page_version=version)

    def change(found: list[tuple[Struct, bytes]]) -> None:
        put(found[-1][0], 2, I32, get(found[-1][0], 2) + size)

    return edit_pages(honest, change)


def with_size_twice() -> bytes:
    """A page header with two sizes: some readers use the first, others the last."""
    return edit_pages(file_of_one_page(), lambda found: found[-1][0].insert(1, [2, I32, 50]))


def move_first_page(footer: Struct) -> None:
    """Set the footer's offset of the data to a byte inside the dictionary."""
    fields = chunk_fields(columns(groups(footer)[0])[0])
    put(fields, 9, I64, get(fields, 11) + 1)


BY_DICTIONARY = parquet(table([0.0] * 6).select(["a"]), store_schema=False)


def booleans_without_a_type() -> bytes:
    """A file of booleans without its type in the footer: the number of booleans is 0. No other reader can read it."""
    flags = pa.table({"a": pa.array([True] * 6)}, schema=pa.schema([pa.field("a", pa.bool_(), metadata={NAME: "2"})]))
    return edit_footer(file_of(flags), lambda footer: drop(chunk_fields(columns(groups(footer)[0])[0]), 1))


def with_page_size(size: Any, version: str = "1.0") -> bytes:
    """A page that declares this uncompressed size; the true one is 54."""
    return edit_pages(file_of_one_page(version), lambda found: put(found[-1][0], 2, I32, size))


def page_of_two_kinds(version: str) -> bytes:
    """A page with headers of both versions: by the second one our decoder read the first bytes without decompression.

    Other readers decompress the page, and read other values.
    """
    raw = longs(24, 1, 2)
    # Read as Snappy, these bytes are a stream of 24 bytes; its last part has the value 777.
    body = raw + b"\0" + b"\x2c" + bytes(4) + longs(777)
    first, second = page(3, raw), page_v2(3, 3, b"", repetition=raw)
    head = [[1, I32, 0 if version == "1.0" else 3], [2, I32, 24], [3, I32, len(body)]]
    header: Struct = [*head, *first[0][3:], [8, STRUCT, [*get(second[0], 8)[:-1], [7, 1, True]]]]
    required = pa.schema([pa.field("id", pa.int64(), nullable=False, metadata={NAME: "1"})])
    data = rebuild(file_of(pa.table({"id": [24, 1, 2]}, schema=required)), {0: [(header, body)]})
    return edit_footer(data, lambda footer: put(chunk_fields(columns(groups(footer)[0])[0]), 4, I32, 1))


def page_of_gzip(pack: Callable[[bytes], bytes]) -> bytes:
    """A file whose last page is compressed by `pack`, and declared as gzip."""
    honest = file_of_one_page()

    def change(found: list[tuple[Struct, bytes]]) -> None:
        header, content = found[-1]
        packed = pack(content)
        put(header, 3, I32, len(packed))
        found[-1] = header, packed

    data = edit_pages(honest, change)
    return edit_footer(data, lambda footer: put(chunk_fields(columns(groups(footer)[0])[0]), 4, I32, 2))


def two_streams(content: bytes) -> bytes:
    return gzip.compress(content[:9]) + gzip.compress(content[9:])


def gzip_with_a_name(content: bytes) -> bytes:
    """A gzip stream with a file name in its header."""
    packed = gzip.compress(content, mtime=0)
    return packed[:3] + b"\x08" + packed[4:10] + b"name\0" + packed[10:]


def with_dictionary_encoding(number: int) -> bytes:
    """A dictionary page that declares this encoding for its values, which are plain."""
    data = edit_pages(BY_DICTIONARY, lambda found: put(get(found[0][0], 7), 2, I32, number))
    return edit_footer(data, lambda footer: drop(chunk_fields(columns(groups(footer)[0])[0]), 13))


def indices_in_groups(groups_: int) -> bytes:
    """Indices in a packed run of `groups_` groups of eight; the page has the bytes of one group."""
    indices = page(6, bytes([1, groups_ << 1 | 1, 0b101010]), run(6, 1), encoding=RLE_DICTIONARY)
    return rebuild(file_of(table([0.0] * 6).select(["id"])), {0: [dictionary_page(2, longs(1, 2)), indices]})


def byte_streams_and(more: bytes) -> bytes:
    """A page in the encoding BYTE_STREAM_SPLIT, with these bytes after its streams."""
    honest = parquet(
        table([0.0] * 6).select(["a"]),
        store_schema=False,
        compression="none",
        use_dictionary=False,
        column_encoding={"a": "BYTE_STREAM_SPLIT"},
    )

    def change(found: list[tuple[Struct, bytes]]) -> None:
        header, content = found[-1]
        for number in (2, 3):
            put(header, number, I32, len(content) + len(more))
        found[-1] = header, content + more

    return edit_pages(honest, change)


AMBIGUOUS: dict[str, bytes] = {
    # Spark and PyArrow cannot read these.
    "a dictionary in the encoding of indices": with_dictionary_encoding(8),
    "a run of indices that ends behind its page": indices_in_groups(2),
    "more bytes than the streams of a column have": byte_streams_and(bytes(8)),
    "some bytes more than the streams of a column have": byte_streams_and(b"x"),
    "a page of two kinds": page_of_two_kinds("1.0"),  # Spark, PyArrow and DuckDB: 777 instead of 2
    "a page of two kinds, of version 2": page_of_two_kinds("2.0"),
    "a page of gzip with a name": page_of_gzip(gzip_with_a_name),  # DuckDB: unreadable
    "a number in a longer form": with_field_id(b"\x84\x00"),
    # Java shifts the last byte by 35 modulo 32. So Spark reads 6, and has the values under another column.
    "a number that is 2 for some and 6 for others": with_field_id(b"\x84\x80\x80\x80\x80\x01"),
    "a number that its field cannot hold": with_field_id(b"\x84\x80\x80\x80\x10"),
    "a number of a page header in a longer form": with_page_size(Raw(b"\xec\x00")),
    "a number of a row group in a longer form": edit_footer(
        HONEST, lambda footer: put(groups(footer)[0], 3, I64, Raw(b"\x8c\x00"))
    ),
    "a size of a page twice": with_size_twice(),
    "a first page where there is none": edit_footer(BY_DICTIONARY, move_first_page),
    # DuckDB cannot read these.
    "levels that are not there in an encoding for values": with_level_encoding(2),
    "a page of Snappy of another size": with_snappy_size(4, "1.0"),
    "a page of Snappy of another size, of version 2": with_snappy_size(4, "2.0"),
    "two sizes of a page without compression": with_page_size(5),
    "two sizes of a page of version 2 without compression": with_page_size(5, "2.0"),
    "bit-packed levels": with_packed_levels(),
    "a dictionary twice": with_dictionary_twice(),
    "a dictionary behind the data": two_page_offsets(I64),  # Spark and PyArrow: the forged values
    "a dictionary offset of another wire type": two_page_offsets(I32),  # Spark, PyArrow and DuckDB: the forged values
    "an offset twice": with_offset_twice(),
    "row groups twice": with_groups_twice(),
    "rows without a column": without_columns(),
    "paths of two columns swapped": edit_footer(HONEST, swap_paths),  # Spark: both columns swapped
    "a row group that is larger than its file": edit_footer(HONEST, set_group_size(10**9)),  # Spark: no rows
    "a row group of a negative size": edit_footer(HONEST, set_group_size(-(10**6))),  # Spark: no rows
    "pages in another file": edit_footer(HONEST, set_other_file),  # DuckDB: unreadable
    "two columns with one name": file_of(table([0.0] * 6, ("id", "a", "a"))),  # Spark: unreadable
    # PyArrow: unreadable
    "another physical type": edit_footer(HONEST, lambda footer: put(second_column(footer), 1, I32, 2)),
    "two columns in one place": edit_footer(HONEST, set_equal_offsets),
    "columns backwards": with_columns_backwards(),
}


@for_each("name", AMBIGUOUS)
def test_an_ambiguous_file_is_refused(name: str) -> None:
    assert codes_of(AMBIGUOUS[name]) == ["parquet_ambiguous"]


def test_pyarrow_reads_other_rows_of_such_a_file_than_the_digest() -> None:
    """This is why such files are refused: PyArrow, like Spark, reads the forged pages."""
    found = pq.ParquetFile(io.BytesIO(AMBIGUOUS["a dictionary behind the data"])).read()
    assert found.column("a").to_pylist() == [9.0] * 6


def test_a_column_chunk_without_a_type_is_refused() -> None:
    assert codes_of(booleans_without_a_type(), metadata(column(2, "a", "boolean"))) == ["parquet_ambiguous"]


def test_an_encrypted_column_of_a_plain_footer_is_refused() -> None:
    def encrypt(footer: Struct) -> None:
        put(columns(groups(footer)[0])[1], 8, STRUCT, [[1, STRUCT, []]])

    assert codes_of(edit_footer(HONEST, encrypt)) == ["parquet_encrypted"]


@for_each("values", [-1, 0, 3, 7])
def test_a_column_with_another_count_of_values_than_its_pages_is_refused(values: int) -> None:
    assert codes_of(edit_footer(HONEST, lambda footer: put(second_column(footer), 5, I64, values))) == [
        "parquet_rows_lie"
    ]


@pytest.mark.parametrize("rows", [(0, 6), (2, 4), (-1, 7)])
def test_row_counts_that_are_moved_between_row_groups_are_found(rows: tuple[int, int]) -> None:
    def move(footer: Struct) -> None:
        for group, count in zip(groups(footer), rows, strict=True):
            put(group, 3, I64, count)

    assert codes_of(edit_footer(TWO_GROUPS, move)) == ["parquet_rows_lie"]


def test_pages_of_a_list_with_rows_of_another_row_group_are_found() -> None:
    """The values add up over the whole file, and every count in the footer agrees with the pages."""
    listed: Doc = {"type": "list", "element-id": 3, "element": "long", "element-required": False}
    schema = metadata(column(1, "id"), column(2, "tags", listed))
    kind = pa.list_(pa.field("element", pa.int64(), metadata={NAME: "3"}))
    fields = [pa.field("id", pa.int64(), metadata={NAME: "1"}), pa.field("tags", kind, metadata={NAME: "2"})]

    def build(size: int) -> tuple[bytes, Struct]:
        arrays: list[Any] = [pa.array(range(6), pa.int64()), pa.array([[at] for at in range(6)], kind)]
        return split_footer(file_of(pa.Table.from_arrays(arrays, schema=pa.schema(fields)), row_group_size=size))

    def shift_offsets(body: bytes, footer: Struct, by: int) -> list[Struct]:
        for group in groups(footer):
            for chunk in columns(group):
                put(chunk_fields(chunk), 9, I64, get(chunk_fields(chunk), 9) + by)
        return groups(footer)

    (body, footer), (more, other) = build(3), build(4)
    ours, theirs = groups(footer), shift_offsets(more, other, len(body))
    assert codes_of(join_footer(body, footer), schema) == []
    for group, donor in zip(ours, theirs, strict=True):
        columns(group)[1] = columns(donor)[1]
        put(group, 6, I64, sum(get(chunk_fields(each), 7) for each in columns(group)))
    assert codes_of(join_footer(body + more, footer), schema)[0] in ("parquet_rows_lie", "parquet_unreadable")


@for_each(
    ("kind", "values"),
    [
        ("timestamp", pa.array([1_000] * 6, pa.timestamp("ms"))),  # Spark's vectorized reader: a thousandth
        ("timestamptz", pa.array([1_000] * 6, pa.timestamp("ms", "UTC"))),
        ("timestamp", pa.array([1] * 6, pa.date32())),  # the others: unreadable for Spark
        ("time", pa.array([1] * 6, pa.time32("ms"))),
        ("long", pa.array([2**31] * 6, pa.uint32())),
        ("int", pa.array([1] * 6, pa.uint8())),
        ("float", pa.array([1.0] * 6, pa.float16())),
        ("double", pa.array([0.1] * 6, pa.float32())),  # DuckDB: `v > 0.1` without a row of them, `v = 0.1` with all
    ],
)
def test_a_type_that_iceberg_does_not_allow_is_refused_also_in_a_list(kind: str, values: pa.Array[Any]) -> None:
    listed: Doc = {"type": "list", "element-id": 2, "element": kind, "element-required": False}
    element = pa.field("element", values.type, metadata={NAME: "2"})
    nested = pa.ListArray.from_arrays(pa.array(range(7), pa.int32()), values, type=pa.list_(element))
    for doc, array in ((kind, values), (listed, nested)):
        schema = pa.schema([pa.field("v", array.type, metadata={NAME: "1"})])
        data = file_of(pa.Table.from_arrays([array], schema=schema))
        assert codes_of(data, metadata(column(1, "v", doc))) == ["cast_refused"]
