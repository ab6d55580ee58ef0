"""Files that engines read as different rows, or that only our decoder reads: each is refused, whatever its rows are.

Every one of these gave the honest rows to the digest. What Spark with Iceberg's reader made of it stands beside it.
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
    edited,
    get,
    groups,
    joined,
    parse,
    put,
    repaged,
    split,
    written,
)
from tests.support.parquet.edit import told as said
from tests.support.parquet.pages import RLE_DICTIONARY, dictionary, longs, page, page_v2, rebuilt, run
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


def file(data: pa.Table, **options: Any) -> bytes:
    return parquet(data, store_schema=False, use_dictionary=False, compression="none", **options)


HONEST = file(table([0.0, 1.0, 2.0, 3.0, 4.0, 5.0]))
FORGED = file(table([9.0] * 6))
TWO_GROUPS = file(table([0.0, 1.0, 2.0, 3.0, 4.0, 5.0]), row_group_size=3)


def codes(data: bytes, schema: Any = TABLE) -> list[str]:
    return [each.code for each in observe_file(data, schema, record_count=6).findings]


def second(footer: Struct, group: int = 0) -> Struct:
    """What the footer says of column `a`."""
    return said(columns(groups(footer)[group])[1])


def pages_of(data: bytes) -> bytes:
    body, footer = split(data)
    start = get(second(footer), 9)
    return body[start : start + get(second(footer), 7)]


def test_honest_files_have_one_reading() -> None:
    assert codes(HONEST) == codes(TWO_GROUPS) == codes(page_size(54)) == codes(one_page("2.0")) == []
    # Java calls levels bit-packed that are not there.
    assert codes(BY_DICTIONARY) == codes(flat_levels(4)) == codes(snappy(0, "1.0")) == codes(snappy(0, "2.0")) == []
    assert codes(gzipped(gzip.compress)) == codes(gzipped(two_streams)) == []
    assert codes(dictionary_encoded(2)) == codes(cut_run(1)) == codes(split_stream(b"")) == []


def two_places(kind: int) -> bytes:
    """Forged pages where the data begins; a dictionary offset that leads to honest ones, read by us alone."""
    body, footer = split(FORGED)
    put(second(footer), 11, kind, len(body))
    return joined(body + pages_of(HONEST), footer)


def offset_twice() -> bytes:
    body, footer = split(FORGED)
    fields = second(footer)
    at = next(at for at, each in enumerate(fields) if each[0] == 9)
    fields.insert(at, [9, I64, len(body)])
    return joined(body + pages_of(HONEST), footer)


def groups_twice() -> bytes:
    body, footer = split(HONEST)
    at = next(at for at, each in enumerate(footer) if each[0] == 4)
    footer.insert(at, copy.deepcopy(footer[at]))
    return joined(body, footer)


def without_columns() -> bytes:
    """Rows of nothing: Spark and DuckDB end with an error, and PyIceberg finds nulls."""
    _, footer = split(HONEST)
    elements = get(footer, 2)[1]
    put(elements[0], 5, I32, 0)
    del elements[1:]
    drop(footer, 7)
    group = groups(footer)[0]
    columns(group).clear()
    put(group, 2, I64, 0)
    drop(group, *({each[0] for each in group} - {1, 2, 3}))
    return joined(b"PAR1", footer)


def paths_swapped(footer: Struct) -> None:
    first, other = (said(each) for each in columns(groups(footer)[0])[1:])
    paths = get(first, 3), get(other, 3)
    put(first, 3, LIST, paths[1])
    put(other, 3, LIST, paths[0])


def group_size(size: int) -> Callable[[Struct], None]:
    return lambda footer: put(groups(footer)[0], 6, I64, size)


def elsewhere(footer: Struct) -> None:
    for each in columns(groups(footer)[0]):
        put(each, 1, BINARY, b"other.parquet")


def one_place(footer: Struct) -> None:
    put(said(columns(groups(footer)[0])[2]), 9, I64, get(second(footer), 9))


def columns_backwards() -> bytes:
    """The first column stands last, so the middle of the last row group may lie behind the end of the file."""
    body, footer = split(TWO_GROUPS)
    turned = b"PAR1"
    for group in groups(footer):
        for each in reversed(columns(group)):
            fields = said(each)
            start, size = get(fields, 9), get(fields, 7)
            put(fields, 9, I64, len(turned))
            turned += body[start : start + size]
    return joined(turned, footer)


def packed_levels() -> bytes:
    """A page that says so of its levels; Iceberg's vectors take every page's for runs."""
    body, footer = split(HONEST)
    start = get(second(footer), 9)
    header, end = parse(body, start)
    put(get(header, 5), 3, I32, 4)
    assert len(written(header)) == end - start
    return joined(body[:start] + written(header) + body[end:], footer)


def dictionary_twice() -> bytes:
    """A second dictionary among the data pages: refused by some, taken for the new one by others."""
    many = table([float(at % 2) for at in range(6)])
    body, footer = split(parquet(many, store_schema=False, use_dictionary=["a"], compression="none"))
    fields = second(footer)
    start, first, size = get(fields, 11), get(fields, 9), get(fields, 7)
    pages = body[start:first] + body[start : start + size]
    put(fields, 11, I64, len(body))
    put(fields, 9, I64, len(body) + first - start)
    put(fields, 7, I64, len(pages))
    group = groups(footer)[0]
    put(group, 6, I64, sum(get(said(each), 7) for each in columns(group)))
    return joined(body + pages, footer)


def field_id(number: bytes) -> bytes:
    """Another form of the second column's id, which is 2."""
    return edited(HONEST, lambda footer: put(get(footer, 2)[1][2], 9, I32, Raw(number)))


def one_page(version: str = "1.0") -> bytes:
    return file(table([0.0] * 6).select(["a"]), data_page_version=version)


def flat_levels(encoding: int) -> bytes:
    """A column outside of lists, whose page says this of repetition levels that it has not."""
    return repaged(one_page(), lambda found: put(get(found[-1][0], 5), 4, I32, encoding))


def snappy(size: int, version: str) -> bytes:
    """A page of Snappy that tells so many bytes more than it has."""
    made = parquet(table([0.0] * 6).select(["a"]), store_schema=False, data_page_version=version)

    def change(found: list[tuple[Struct, bytes]]) -> None:
        put(found[-1][0], 2, I32, get(found[-1][0], 2) + size)

    return repaged(made, change)


def header_twice() -> bytes:
    """The header of a page that tells two sizes: the first counts for some, the last for others."""
    return repaged(one_page(), lambda found: found[-1][0].insert(1, [2, I32, 50]))


def first_page_elsewhere(footer: Struct) -> None:
    """The data begins inside of the dictionary, as the footer has it."""
    fields = said(columns(groups(footer)[0])[0])
    put(fields, 9, I64, get(fields, 11) + 1)


BY_DICTIONARY = parquet(table([0.0] * 6).select(["a"]), store_schema=False)


def flags_without_a_type() -> bytes:
    """The number of booleans is that of nothing; nobody else can read it."""
    flags = pa.table({"a": pa.array([True] * 6)}, schema=pa.schema([pa.field("a", pa.bool_(), metadata={NAME: "2"})]))
    return edited(file(flags), lambda footer: drop(said(columns(groups(footer)[0])[0]), 1))


def page_size(size: Any, version: str = "1.0") -> bytes:
    """A page that tells this size for what it is when opened; 54 it is."""
    return repaged(one_page(version), lambda found: put(found[-1][0], 2, I32, size))


def two_kinds(version: str) -> bytes:
    """A page with two headers: of the second our decoder took the length of the levels, and so many bytes as they are.

    Everybody else opens the page, and finds other values.
    """
    raw = longs(24, 1, 2)
    # Of the bytes as Snappy: 24 bytes, each but the last twelve after a mark of its own.
    body = raw + b"\0" + b"\x2c" + bytes(4) + longs(777)
    first, second = page(3, raw), page_v2(3, 3, b"", repetition=raw)
    head = [[1, I32, 0 if version == "1.0" else 3], [2, I32, 24], [3, I32, len(body)]]
    header: Struct = [*head, *first[0][3:], [8, STRUCT, [*get(second[0], 8)[:-1], [7, 1, True]]]]
    required = pa.schema([pa.field("id", pa.int64(), nullable=False, metadata={NAME: "1"})])
    made = rebuilt(file(pa.table({"id": [24, 1, 2]}, schema=required)), {0: [(header, body)]})
    return edited(made, lambda footer: put(said(columns(groups(footer)[0])[0]), 4, I32, 1))


def gzipped(pack: Callable[[bytes], bytes]) -> bytes:
    """A page of gzip."""
    made = one_page()

    def change(found: list[tuple[Struct, bytes]]) -> None:
        header, content = found[-1]
        packed = pack(content)
        put(header, 3, I32, len(packed))
        found[-1] = header, packed

    data = repaged(made, change)
    return edited(data, lambda footer: put(said(columns(groups(footer)[0])[0]), 4, I32, 2))


def two_streams(content: bytes) -> bytes:
    return gzip.compress(content[:9]) + gzip.compress(content[9:])


def named(content: bytes) -> bytes:
    """A stream with a name before it."""
    packed = gzip.compress(content, mtime=0)
    return packed[:3] + b"\x08" + packed[4:10] + b"name\0" + packed[10:]


def dictionary_encoded(number: int) -> bytes:
    """A dictionary that says this of its values, which are plain."""
    made = repaged(BY_DICTIONARY, lambda found: put(get(found[0][0], 7), 2, I32, number))
    return edited(made, lambda footer: drop(said(columns(groups(footer)[0])[0]), 13))


def cut_run(groups_: int) -> bytes:
    """Indices in so many groups of eight, of which the page has one."""
    indices = page(6, bytes([1, groups_ << 1 | 1, 0b101010]), run(6, 1), encoding=RLE_DICTIONARY)
    return rebuilt(file(table([0.0] * 6).select(["id"])), {0: [dictionary(2, longs(1, 2)), indices]})


def split_stream(more: bytes) -> bytes:
    """Numbers whose bytes are in streams, with bytes that belong to none."""
    made = parquet(
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

    return repaged(made, change)


AMBIGUOUS: dict[str, bytes] = {
    # Spark and PyArrow cannot read these.
    "a dictionary in the encoding of indices": dictionary_encoded(8),
    "a run of indices that ends behind its page": cut_run(2),
    "more bytes than the streams of a column have": split_stream(bytes(8)),
    "some bytes more than the streams of a column have": split_stream(b"x"),
    "a page of two kinds": two_kinds("1.0"),  # Spark, PyArrow and DuckDB: 777 instead of 2
    "a page of two kinds, of version 2": two_kinds("2.0"),
    "a page of gzip with a name": gzipped(named),  # DuckDB: unreadable
    "a number in a longer form": field_id(b"\x84\x00"),
    # Java shifts the bits that are too many back to the front: 6 for Spark, and the values under another column.
    "a number that is 2 for some and 6 for others": field_id(b"\x84\x80\x80\x80\x80\x01"),
    "a number that its field cannot hold": field_id(b"\x84\x80\x80\x80\x10"),
    "a number of a page header in a longer form": page_size(Raw(b"\xec\x00")),
    "a number of a row group in a longer form": edited(
        HONEST, lambda footer: put(groups(footer)[0], 3, I64, Raw(b"\x8c\x00"))
    ),
    "a size of a page twice": header_twice(),
    "a first page where there is none": edited(BY_DICTIONARY, first_page_elsewhere),
    # DuckDB cannot read these.
    "levels that are not there in an encoding for values": flat_levels(2),
    "a page of Snappy of another size": snappy(4, "1.0"),
    "a page of Snappy of another size, of version 2": snappy(4, "2.0"),
    "two sizes of a page without compression": page_size(5),
    "two sizes of a page of version 2 without compression": page_size(5, "2.0"),
    "bit-packed levels": packed_levels(),
    "a dictionary twice": dictionary_twice(),
    "a dictionary behind the data": two_places(I64),  # Spark and PyArrow: the forged values
    "a dictionary offset of another wire type": two_places(I32),  # Spark, PyArrow and DuckDB: the forged values
    "an offset twice": offset_twice(),
    "row groups twice": groups_twice(),
    "rows without a column": without_columns(),
    "paths of two columns swapped": edited(HONEST, paths_swapped),  # Spark: both columns swapped
    "a row group that is larger than its file": edited(HONEST, group_size(10**9)),  # Spark: no rows
    "a row group of a negative size": edited(HONEST, group_size(-(10**6))),  # Spark: no rows
    "pages in another file": edited(HONEST, elsewhere),  # DuckDB: unreadable
    "two columns with one name": file(table([0.0] * 6, ("id", "a", "a"))),  # Spark: unreadable
    "another physical type": edited(HONEST, lambda footer: put(second(footer), 1, I32, 2)),  # PyArrow: unreadable
    "two columns in one place": edited(HONEST, one_place),
    "columns backwards": columns_backwards(),
}


@for_each("name", AMBIGUOUS)
def test_a_file_that_has_two_readings_is_refused(name: str) -> None:
    assert codes(AMBIGUOUS[name]) == ["parquet_ambiguous"]


def test_what_we_digest_of_such_a_file_is_not_what_others_read() -> None:
    """The reason for all this: PyArrow, like Spark, reads the forged pages."""
    found = pq.ParquetFile(io.BytesIO(AMBIGUOUS["a dictionary behind the data"])).read()
    assert found.column("a").to_pylist() == [9.0] * 6


def test_a_chunk_that_tells_no_type_is_refused() -> None:
    assert codes(flags_without_a_type(), metadata(column(2, "a", "boolean"))) == ["parquet_ambiguous"]


def test_an_encrypted_column_of_a_plain_footer_is_refused() -> None:
    def encrypt(footer: Struct) -> None:
        put(columns(groups(footer)[0])[1], 8, STRUCT, [[1, STRUCT, []]])

    assert codes(edited(HONEST, encrypt)) == ["parquet_encrypted"]


@pytest.mark.parametrize("values", [-1, 0, 3, 7])
def test_a_column_that_counts_other_values_than_its_pages_is_refused(values: int) -> None:
    assert codes(edited(HONEST, lambda footer: put(second(footer), 5, I64, values))) == ["parquet_rows_lie"]


@pytest.mark.parametrize("rows", [(0, 6), (2, 4), (-1, 7)])
def test_rows_that_the_footer_moves_to_another_row_group_are_found(rows: tuple[int, int]) -> None:
    def move(footer: Struct) -> None:
        for group, count in zip(groups(footer), rows, strict=True):
            put(group, 3, I64, count)

    assert codes(edited(TWO_GROUPS, move)) == ["parquet_rows_lie"]


def test_rows_of_a_list_that_lie_in_another_row_group_are_found() -> None:
    """Its values add up over the file, and every count of the footer is that of the pages."""
    listed: Doc = {"type": "list", "element-id": 3, "element": "long", "element-required": False}
    schema = metadata(column(1, "id"), column(2, "tags", listed))
    kind = pa.list_(pa.field("element", pa.int64(), metadata={NAME: "3"}))
    fields = [pa.field("id", pa.int64(), metadata={NAME: "1"}), pa.field("tags", kind, metadata={NAME: "2"})]

    def made(size: int) -> tuple[bytes, Struct]:
        arrays: list[Any] = [pa.array(range(6), pa.int64()), pa.array([[at] for at in range(6)], kind)]
        return split(file(pa.Table.from_arrays(arrays, schema=pa.schema(fields)), row_group_size=size))

    def moved(body: bytes, footer: Struct, by: int) -> list[Struct]:
        for group in groups(footer):
            for chunk in columns(group):
                put(said(chunk), 9, I64, get(said(chunk), 9) + by)
        return groups(footer)

    (body, footer), (more, other) = made(3), made(4)
    ours, theirs = groups(footer), moved(more, other, len(body))
    assert codes(joined(body, footer), schema) == []
    for group, donor in zip(ours, theirs, strict=True):
        columns(group)[1] = columns(donor)[1]
        put(group, 6, I64, sum(get(said(each), 7) for each in columns(group)))
    assert codes(joined(body + more, footer), schema)[0] in ("parquet_rows_lie", "parquet_unreadable")


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("timestamp", pa.array([1_000] * 6, pa.timestamp("ms"))),  # Spark's vectors: a thousandth of it
        ("timestamptz", pa.array([1_000] * 6, pa.timestamp("ms", "UTC"))),
        ("timestamp", pa.array([1] * 6, pa.date32())),  # the others: unreadable for Spark
        ("time", pa.array([1] * 6, pa.time32("ms"))),
        ("long", pa.array([2**31] * 6, pa.uint32())),
        ("int", pa.array([1] * 6, pa.uint8())),
        ("float", pa.array([1.0] * 6, pa.float16())),
        ("double", pa.array([0.1] * 6, pa.float32())),  # DuckDB: `v > 0.1` without a row of them, `v = 0.1` with all
    ],
)
def test_a_type_that_iceberg_has_not_for_the_column_is_refused_in_a_list_too(kind: str, values: pa.Array[Any]) -> None:
    listed: Doc = {"type": "list", "element-id": 2, "element": kind, "element-required": False}
    element = pa.field("element", values.type, metadata={NAME: "2"})
    nested = pa.ListArray.from_arrays(pa.array(range(7), pa.int32()), values, type=pa.list_(element))
    for doc, array in ((kind, values), (listed, nested)):
        schema = pa.schema([pa.field("v", array.type, metadata={NAME: "1"})])
        data = file(pa.Table.from_arrays([array], schema=schema))
        assert codes(data, metadata(column(1, "v", doc))) == ["cast_refused"]
