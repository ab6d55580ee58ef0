"""Small files that ask for much: what they would take is told, and refused, before anything is made of it."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pvdm.digest.parquet import read_batches
from pvdm.errors import VerificationError
from pvdm.lake.format.schema.logical import to_model
from pvdm.verify.findings import Finding
from tests.support.lake.metadata import column
from tests.support.parquet.edit import (
    COLUMN_INDEX,
    I32,
    I64,
    LIST,
    Raw,
    Struct,
    columns,
    drop,
    get,
    groups,
    index_edited,
    joined,
    put,
    split,
    told,
    varint,
    with_variants,
)
from tests.support.parquet.edit import written as bytes_of
from tests.support.parquet.pages import RLE_DICTIONARY, Page, dictionary, longs, page, rebuilt, run
from tests.support.verify.staged import NAME, metadata, observe_file, parquet

pytestmark = pytest.mark.usefixtures("kernel")

DELTA_LENGTH_BYTE_ARRAY, DELTA_BYTE_ARRAY = 6, 7
ZSTD = 6
TEXT = metadata(column(1, "x", "string"))
NUMBER = metadata(column(1, "x", "long"))
LISTED = metadata(
    column(1, "x", {"type": "list", "element-id": 2, "element": "long", "element-required": False}),
)
PACK: Any = pa.Codec("zstd")


def file(values: Sequence[Any], kind: pa.DataType) -> bytes:
    schema = pa.schema([pa.field("x", kind, metadata={NAME: "1"})])
    table = pa.Table.from_arrays([pa.array(values, kind)], schema=schema)
    return parquet(table, store_schema=False, use_dictionary=False, compression="none")


def listed(rows: Sequence[Any]) -> bytes:
    return file(rows, pa.list_(pa.field("element", pa.int64(), metadata={NAME: "2"})))


def counted(data: bytes, rows: int) -> bytes:
    body, footer = split(data)
    put(footer, 3, I64, rows)
    put(groups(footer)[0], 3, I64, rows)
    return joined(body, footer)


def packed(made: Sequence[Page]) -> list[Page]:
    """The pages in Zstandard."""
    found: list[Page] = []
    for header, content in made:
        small = PACK.compress(content, asbytes=True)
        head: Struct = [list(each) for each in header]
        put(head, 3, I32, len(small))
        found.append((head, small))
    return found


def in_zstd(data: bytes) -> bytes:
    body, footer = split(data)
    put(told(columns(groups(footer)[0])[0]), 4, I32, ZSTD)
    return joined(body, footer)


def findings(data: bytes, table: Any, rows: int) -> Sequence[Finding]:
    return observe_file(data, table, record_count=rows).findings


def codes(data: bytes, table: Any, rows: int) -> list[str]:
    return [each.code for each in findings(data, table, rows)]


def lengths(count: int, first: int, step: int) -> bytes:
    """Lengths of which each is by a step longer than the last, in one block that takes no bits."""
    block = -(-count // 128) * 128
    return varint(block) + varint(1) + varint(count) + varint(2 * first) + varint(2 * step) + b"\0"


@pytest.mark.parametrize(("count", "wanted"), [(2, []), (3, ["parquet_unreadable"]), (2**40, ["parquet_unreadable"])])
@pytest.mark.parametrize("encoding", [DELTA_LENGTH_BYTE_ARRAY, DELTA_BYTE_ARRAY])
def test_lengths_are_no_more_than_the_values_of_their_page(encoding: int, count: int, wanted: list[str]) -> None:
    """A decoder sets memory aside for as many as are told, and ends the process where there is none."""
    honest = file(["a", "b"], pa.string())
    begun = lengths(count, 0, 0) if encoding == DELTA_BYTE_ARRAY else b""
    made = page(2, begun + lengths(count, 1, 0) + b"a" * min(count, 9), run(2, 1), encoding=encoding)
    data = rebuilt(honest, {0: [made]})
    assert codes(data, TEXT, 2) == wanted
    if wanted:
        with pytest.raises(VerificationError, match="x"):
            list(read_batches(data, to_model(TEXT.current_schema)))


@pytest.mark.parametrize(("count", "wanted"), [(1_000, []), (50_000, ["parquet_too_large"])])
def test_texts_that_grow_from_one_to_the_next_are_counted_as_they_are_decoded(count: int, wanted: list[str]) -> None:
    values = lengths(count, 0, 1) + lengths(count, 1, 0) + b"a" * count
    made = packed([page(count, values, run(count, 1), encoding=DELTA_BYTE_ARRAY)])
    data = counted(in_zstd(rebuilt(file(["a"], pa.string()), {0: made})), count)
    assert codes(data, TEXT, count) == wanted


def elements(rows: Sequence[int]) -> bytes:
    """A list of sevens for each row, so long, in pages that end anywhere."""
    made = [dictionary(1, longs(7))]
    for length in rows:
        for start in range(0, length, 100_000_000):
            count = min(length - start, 100_000_000)
            first = run(1, 0) + run(count - 1, 1) if start == 0 else run(count, 1)
            made.append(page(count, b"\0" + varint(count << 1), run(count, 3), first, encoding=RLE_DICTIONARY))
    return counted(rebuilt(listed([[1]]), {0: made}), len(rows))


def test_a_row_that_is_long_beside_short_ones_is_told_by_its_own_length() -> None:
    """On average a row has few elements; the one that has nearly all of them is read at once."""
    assert codes(elements([200_000_000, *[2] * 30]), LISTED, 31) == ["parquet_too_large"]
    assert codes(elements([200, *[2] * 30]), LISTED, 31) == []


def test_a_file_of_very_many_pages_is_refused() -> None:
    """Something is kept of each, which is more than the page has."""
    header, content = page(1, longs(5), run(1, 1))
    one = bytes_of(header) + content
    for count, wanted in ((9, []), (1_000_001, ["parquet_too_large"])):
        data = rebuilt(file([5], pa.int64()), {0: [(header, content + one * (count - 1))]})
        body, footer = split(data)
        put(told(columns(groups(footer)[0])[0]), 5, I64, count)
        assert codes(counted(joined(body, footer), count), NUMBER, count) == wanted


@pytest.mark.parametrize(("count", "wanted"), [(1_000, []), (45_000_000, ["parquet_too_large"])])
def test_a_dictionary_is_counted_with_what_is_kept_of_its_values(count: int, wanted: list[str]) -> None:
    made = packed(
        [
            dictionary(count, b"\0" * (8 * count)),
            page(2, b"\0" + varint(2 << 1), run(2, 1), encoding=RLE_DICTIONARY),
        ]
    )
    assert codes(in_zstd(rebuilt(file([0, 0], pa.int64()), {0: made})), NUMBER, 2) == wanted


def test_a_file_of_more_rows_than_are_listed_is_not_read() -> None:
    """A few bytes can stand for any number of rows; each of them would be hashed."""
    many = [page(100_000_000, b"\0" + varint(100_000_000 << 1), run(100_000_000, 1), encoding=RLE_DICTIONARY)] * 1_000
    data = counted(rebuilt(file([7], pa.int64()), {0: [dictionary(1, longs(7)), *many]}), 100_000_000_000)
    (only,) = findings(data, NUMBER, 2)
    assert (only.code, only.failure.value, only.expected) == (
        "record_count_lies",
        "metadata",
        "100000000000 rows, as the file declares",
    )


def test_rows_beyond_those_of_the_footer_are_not_waited_for() -> None:
    count = 40_000
    rows = page(count, b"\0" + varint(count << 1), run(count, 3), run(count, 0), encoding=RLE_DICTIONARY)
    data = counted(rebuilt(listed([[1]]), {0: [dictionary(1, longs(7)), rows]}), 3)
    (only,) = findings(data, LISTED, 3)
    assert (only.code, only.expected) == ("parquet_rows_lie", "629 rows, as the pages hold")
    with pytest.raises(VerificationError) as caught:
        list(read_batches(data, to_model(LISTED.current_schema)))
    assert (caught.value.reason, caught.value.expected) == (only.code, "6 rows, as the pages hold")


def test_a_file_of_very_many_row_groups_is_refused() -> None:
    body, footer = split(file([5, 6], pa.int64()))
    (first,) = groups(footer)
    empty: Struct = [list(each) for each in first]
    chunk: Struct = [[2, I64, 0], [3, 12, [list(each) for each in told(columns(first)[0])]]]
    drop(get(chunk, 3), 8, 11, 12, 13, 14, 15, 16)
    for number in (5, 6, 7):
        put(get(chunk, 3), number, I64, 0)
    put(empty, 1, LIST, (12, [chunk]))
    for number in (2, 3, 6):
        put(empty, number, I64, 0)
    for count, wanted in ((9, []), (32_767, ["parquet_too_large"])):
        listed_groups = b"\xfc" + varint(count + 1) + bytes_of(first) + bytes_of(empty) * count
        put(footer, 4, LIST, Raw(listed_groups))
        assert codes(joined(body, footer), NUMBER, 2) == wanted


def test_elements_without_end_are_refused() -> None:
    """A few bytes stand for a row of a hundred million nulls, and rows for any number of them."""

    def nulls(rows: int, elements: int) -> bytes:
        one = page(elements, b"", run(elements, 2), run(1, 0) + run(elements - 1, 1))
        return counted(rebuilt(listed([[1]]), {0: [one] * rows}), rows)

    (only,) = findings(nulls(43, 100_000_000), LISTED, 43)
    assert (only.code, only.expected, only.got) == (
        "parquet_too_large",
        "a number of elements of at most 4294967296",
        "4300000000",
    )
    assert codes(nulls(43, 1_000), LISTED, 43) == []


def text_in_every_row(size: int, pages: Sequence[int]) -> bytes:
    """One text, named by all rows of each page."""
    named = [page(rows, b"\0" + varint(rows << 1), run(rows, 1), encoding=RLE_DICTIONARY) for rows in pages]
    made = packed([dictionary(1, struct.pack("<I", size) + b"a" * size), *named])
    return counted(in_zstd(rebuilt(file(["a"], pa.string()), {0: made})), sum(pages))


def test_text_without_end_is_refused() -> None:
    """Each row would be hashed with all of it."""
    many = 263_000
    (only,) = findings(text_in_every_row(2**20, [many]), TEXT, many)
    assert (only.code, only.expected) == ("parquet_too_large", "a number of bytes of text of at most 274877906944")
    assert codes(text_in_every_row(2**20, [50, 50]), TEXT, 100) == []


JUDGED = """
import pathlib, sys
from bench.memory import own_peak_memory_mb
from tests.support.lake.metadata import column
from tests.support.verify.staged import metadata, observe_file
data, table = pathlib.Path(sys.argv[1]).read_bytes(), metadata(column(1, "x", "string"))
before = own_peak_memory_mb()
assert observe_file(data, table, record_count=int(sys.argv[2])).findings == ()
print(own_peak_memory_mb() - before)
"""


def test_ends_of_pages_take_no_more_memory_than_what_is_said_of_them(tmp_path: Path) -> None:
    """Both ends of every page are this text: kept whole they were hundreds of times the file's largest page."""
    size_mb, pages = 4, 100
    place = tmp_path / "x.parquet"
    place.write_bytes(text_in_every_row(size_mb * 2**20, [1] * pages))
    command = [sys.executable, "-c", JUDGED, str(place), str(pages)]
    child = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    assert float(child.stdout) < size_mb * pages


@pytest.mark.parametrize(("least", "greatest", "wanted"), [(9, 9, []), (9, 8, ["parquet_page_index_lies"])])
def test_ends_that_are_cut_compare_with_longer_ones(least: int, greatest: int, wanted: list[str]) -> None:
    """An index whose ends are longer than what is kept where nothing is said of a page."""
    texts = [f"{'a' * 200}{number}" for number in range(10)] * 3
    kind = pa.schema([pa.field("x", pa.string(), metadata={NAME: "1"})])
    made = pa.Table.from_arrays([pa.array(texts)], schema=kind)
    data = parquet(made, store_schema=False, use_dictionary=False, write_page_index=True, max_rows_per_page=10)

    def change(found: Struct) -> None:
        get(found, 2)[1][0] = b"a" * 200
        get(found, 3)[1][0] = f"{'a' * 200}{greatest}".encode()
        get(found, 3)[1][1] = f"{'a' * 200}{least}".encode()

    assert codes(index_edited(data, COLUMN_INDEX, 0, change), TEXT, 30) == wanted


@pytest.mark.parametrize(("names", "wanted"), [(1_000, []), (17_000_000, ["parquet_too_large"])])
def test_a_variant_is_counted_with_what_is_made_of_its_names(names: int, wanted: list[str]) -> None:
    """Each of so many empty ones has a place of four bytes, and several times that while a variant is read."""
    kind = pa.struct(
        [pa.field("metadata", pa.binary(), nullable=False), pa.field("value", pa.binary(), nullable=False)]
    )
    fields = [pa.field("v", kind, metadata={NAME: "1"})]
    parts = {"metadata": b"\xc1" + struct.pack("<I", names) + b"\0" * (4 * names + 4), "value": b"\0"}
    made = pa.Table.from_arrays([pa.array([parts], kind)], schema=pa.schema(fields))
    data = with_variants(parquet(made, store_schema=False, use_dictionary=False, write_statistics=False), "v")
    assert codes(data, metadata(column(1, "v", "variant"), version=3), 1) == wanted
