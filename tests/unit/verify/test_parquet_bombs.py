"""Small files that would take much memory or time to read: they are refused before they do."""

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
    edit_page_index,
    get,
    groups,
    join_footer,
    metadata_of,
    put,
    split_footer,
    varint,
    with_variants,
)
from tests.support.parquet.edit import serialize as bytes_of
from tests.support.parquet.pages import RLE_DICTIONARY, Page, dictionary_page, longs, page, rebuild, run
from tests.support.verify.staged import NAME as FIELD_ID
from tests.support.verify.staged import metadata, observe_file, parquet

pytestmark = pytest.mark.usefixtures("kernel")

DELTA_LENGTH_BYTE_ARRAY, DELTA_BYTE_ARRAY = 6, 7
ZSTD = 6
TEXT = metadata(column(1, "x", "string"))
NUMBER = metadata(column(1, "x", "long"))
LISTED = metadata(
    column(1, "x", {"type": "list", "element-id": 2, "element": "long", "element-required": False}),
)
PACK: Any = pa.Codec("zstd")


def file_of(values: Sequence[Any], kind: pa.DataType) -> bytes:
    schema = pa.schema([pa.field("x", kind, metadata={FIELD_ID: "1"})])
    table = pa.Table.from_arrays([pa.array(values, kind)], schema=schema)
    return parquet(table, store_schema=False, use_dictionary=False, compression="none")


def list_file(rows: Sequence[Any]) -> bytes:
    return file_of(rows, pa.list_(pa.field("element", pa.int64(), metadata={FIELD_ID: "2"})))


def set_row_count(data: bytes, rows: int) -> bytes:
    body, footer = split_footer(data)
    put(footer, 3, I64, rows)
    put(groups(footer)[0], 3, I64, rows)
    return join_footer(body, footer)


def compress_pages(new_pages: Sequence[Page]) -> list[Page]:
    """The same pages, compressed with Zstandard."""
    found: list[Page] = []
    for header, content in new_pages:
        small = PACK.compress(content, asbytes=True)
        head: Struct = [list(each) for each in header]
        put(head, 3, I32, len(small))
        found.append((head, small))
    return found


def set_zstd(data: bytes) -> bytes:
    body, footer = split_footer(data)
    put(metadata_of(columns(groups(footer)[0])[0]), 4, I32, ZSTD)
    return join_footer(body, footer)


def first_entry(count: int) -> bytes:
    """`count` indices of the dictionary's first entry: the bit width 0, and one run."""
    return b"\0" + varint(count << 1)


def findings_of(data: bytes, table: Any, rows: int) -> Sequence[Finding]:
    return observe_file(data, table, record_count=rows).findings


def codes_of(data: bytes, table: Any, rows: int) -> list[str]:
    return [each.code for each in findings_of(data, table, rows)]


def packed_lengths(count: int, first: int, step: int) -> bytes:
    """`count` lengths from `first` on, each longer by `step`, in one delta-encoded block without bits for values."""
    block = -(-count // 128) * 128
    # Of the delta encoding: block size, miniblocks, count, first value and least delta (doubled: zigzag), bit width 0.
    return varint(block) + varint(1) + varint(count) + varint(2 * first) + varint(2 * step) + b"\0"


@pytest.mark.parametrize(("count", "expected"), [(2, []), (3, ["parquet_unreadable"]), (2**40, ["parquet_unreadable"])])
@pytest.mark.parametrize("encoding", [DELTA_LENGTH_BYTE_ARRAY, DELTA_BYTE_ARRAY])
def test_more_lengths_than_values_of_the_page_are_refused(encoding: int, count: int, expected: list[str]) -> None:
    """A decoder allocates memory for the declared number of lengths, and aborts the process if there is too little."""
    honest = file_of(["a", "b"], pa.string())
    prefix_lengths = packed_lengths(count, 0, 0) if encoding == DELTA_BYTE_ARRAY else b""
    values = prefix_lengths + packed_lengths(count, 1, 0) + b"a" * min(count, 9)
    data = rebuild(honest, {0: [page(2, values, run(2, 1), encoding=encoding)]})
    assert codes_of(data, TEXT, 2) == expected
    if expected:
        with pytest.raises(VerificationError, match="x"):
            list(read_batches(data, to_model(TEXT.current_schema)))


@pytest.mark.parametrize(("count", "expected"), [(1_000, []), (50_000, ["parquet_too_large"])])
def test_delta_encoded_texts_are_counted_by_their_decoded_size(count: int, expected: list[str]) -> None:
    values = packed_lengths(count, 0, 1) + packed_lengths(count, 1, 0) + b"a" * count
    new_pages = compress_pages([page(count, values, run(count, 1), encoding=DELTA_BYTE_ARRAY)])
    data = set_row_count(set_zstd(rebuild(file_of(["a"], pa.string()), {0: new_pages})), count)
    assert codes_of(data, TEXT, count) == expected


def file_of_lists(rows: Sequence[int]) -> bytes:
    """A file with a list of sevens in each row, of these lengths. Pages may end inside a row."""
    new_pages = [dictionary_page(1, longs(7))]
    for length in rows:
        for start in range(0, length, 100_000_000):
            count = min(length - start, 100_000_000)
            repetition = run(1, 0) + run(count - 1, 1) if start == 0 else run(count, 1)
            new_pages.append(page(count, first_entry(count), run(count, 3), repetition, encoding=RLE_DICTIONARY))
    return set_row_count(rebuild(list_file([[1]]), {0: new_pages}), len(rows))


def test_a_very_long_row_among_short_ones_is_refused() -> None:
    """The long row has nearly all elements, and a row is always read as a whole."""
    assert codes_of(file_of_lists([200_000_000, *[2] * 30]), LISTED, 31) == ["parquet_too_large"]
    assert codes_of(file_of_lists([200, *[2] * 30]), LISTED, 31) == []


def test_a_file_of_very_many_pages_is_refused() -> None:
    """For each page more memory is used than the page has bytes."""
    header, content = page(1, longs(5), run(1, 1))
    one = bytes_of(header) + content
    for count, expected in ((9, []), (1_000_001, ["parquet_too_large"])):
        # Further pages are bytes behind the first: a million objects in Python would be slow.
        data = rebuild(file_of([5], pa.int64()), {0: [(header, content + one * (count - 1))]})
        body, footer = split_footer(data)
        put(metadata_of(columns(groups(footer)[0])[0]), 5, I64, count)
        assert codes_of(set_row_count(join_footer(body, footer), count), NUMBER, count) == expected


@pytest.mark.parametrize(("count", "expected"), [(1_000, []), (45_000_000, ["parquet_too_large"])])
def test_a_dictionary_is_counted_with_the_memory_for_its_values(count: int, expected: list[str]) -> None:
    new_pages = compress_pages(
        [
            dictionary_page(count, b"\0" * (8 * count)),
            page(2, first_entry(2), run(2, 1), encoding=RLE_DICTIONARY),
        ]
    )
    assert codes_of(set_zstd(rebuild(file_of([0, 0], pa.int64()), {0: new_pages})), NUMBER, 2) == expected


def test_a_file_of_more_rows_than_are_listed_is_not_read() -> None:
    """A few bytes can encode any number of rows, and each row would be hashed."""
    many = [page(100_000_000, first_entry(100_000_000), run(100_000_000, 1), encoding=RLE_DICTIONARY)] * 1_000
    data = set_row_count(rebuild(file_of([7], pa.int64()), {0: [dictionary_page(1, longs(7)), *many]}), 100_000_000_000)
    (finding,) = findings_of(data, NUMBER, 2)
    assert (finding.code, finding.failure.value, finding.expected) == (
        "record_count_lies",
        "metadata",
        "100000000000 rows, as the file declares",
    )


def test_reading_ends_soon_after_the_rows_of_the_footer() -> None:
    count = 40_000
    rows = page(count, first_entry(count), run(count, 3), run(count, 0), encoding=RLE_DICTIONARY)
    data = set_row_count(rebuild(list_file([[1]]), {0: [dictionary_page(1, longs(7)), rows]}), 3)
    (finding,) = findings_of(data, LISTED, 3)
    # Both readers stop after the first batch with too many rows; their batches have different sizes.
    assert (finding.code, finding.expected) == ("parquet_rows_lie", "629 rows, as the pages hold")
    with pytest.raises(VerificationError) as caught:
        list(read_batches(data, to_model(LISTED.current_schema)))
    assert (caught.value.reason, caught.value.expected) == (finding.code, "6 rows, as the pages hold")


def test_a_file_of_very_many_row_groups_is_refused() -> None:
    body, footer = split_footer(file_of([5, 6], pa.int64()))
    (first,) = groups(footer)
    empty: Struct = [list(each) for each in first]
    chunk: Struct = [[2, I64, 0], [3, 12, [list(each) for each in metadata_of(columns(first)[0])]]]
    drop(get(chunk, 3), 8, 11, 12, 13, 14, 15, 16)
    for number in (5, 6, 7):
        put(get(chunk, 3), number, I64, 0)
    put(empty, 1, LIST, (12, [chunk]))
    for number in (2, 3, 6):
        put(empty, number, I64, 0)
    for count, expected in ((9, []), (32_767, ["parquet_too_large"])):
        listed_groups = b"\xfc" + varint(count + 1) + bytes_of(first) + bytes_of(empty) * count
        put(footer, 4, LIST, Raw(listed_groups))
        assert codes_of(join_footer(body, footer), NUMBER, 2) == expected


def test_too_many_elements_of_lists_are_refused() -> None:
    """A few bytes encode a row of a hundred million nulls, and a file may have many such rows."""

    def nulls(rows: int, row_length: int) -> bytes:
        one = page(row_length, b"", run(row_length, 2), run(1, 0) + run(row_length - 1, 1))
        return set_row_count(rebuild(list_file([[1]]), {0: [one] * rows}), rows)

    (finding,) = findings_of(nulls(43, 100_000_000), LISTED, 43)
    assert (finding.code, finding.expected, finding.got) == (
        "parquet_too_large",
        "a number of elements of at most 4294967296",
        "4300000000",
    )
    assert codes_of(nulls(43, 1_000), LISTED, 43) == []


def file_of_one_text(size: int, pages: Sequence[int]) -> bytes:
    """A file with one text of this size in every row; `pages` has the number of rows of each page."""
    named = [page(rows, first_entry(rows), run(rows, 1), encoding=RLE_DICTIONARY) for rows in pages]
    new_pages = compress_pages([dictionary_page(1, struct.pack("<I", size) + b"a" * size), *named])
    return set_row_count(set_zstd(rebuild(file_of(["a"], pa.string()), {0: new_pages})), sum(pages))


def test_too_much_text_is_refused() -> None:
    """The whole text would be hashed for each row."""
    many = 263_000
    (finding,) = findings_of(file_of_one_text(2**20, [many]), TEXT, many)
    expected = "a number of bytes of text of at most 274877906944"
    assert (finding.code, finding.expected) == ("parquet_too_large", expected)
    assert codes_of(file_of_one_text(2**20, [50, 50]), TEXT, 100) == []


VERIFY_PROGRAM = """
import pathlib, sys
from bench.memory import own_peak_memory_mb
from tests.support.lake.metadata import column
from tests.support.verify.staged import metadata, observe_file
data, table = pathlib.Path(sys.argv[1]).read_bytes(), metadata(column(1, "x", "string"))
before = own_peak_memory_mb()
assert observe_file(data, table, record_count=int(sys.argv[2])).findings == ()
print(own_peak_memory_mb() - before)
"""


def test_bounds_of_pages_without_statistics_are_not_kept_whole_in_memory(tmp_path: Path) -> None:
    """The least and greatest value of every page is this long text. All together they would take 800 MB."""
    size_mb, pages = 4, 100
    path = tmp_path / "x.parquet"
    path.write_bytes(file_of_one_text(size_mb * 2**20, [1] * pages))
    command = [sys.executable, "-c", VERIFY_PROGRAM, str(path), str(pages)]
    child = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    assert float(child.stdout) < size_mb * pages


@pytest.mark.parametrize(("least", "greatest", "expected"), [(9, 9, []), (9, 8, ["parquet_page_index_lies"])])
def test_long_bounds_of_an_index_are_compared_whole(least: int, greatest: int, expected: list[str]) -> None:
    """Values are kept one byte longer than the longest declared bound, and at least 64 bytes."""
    texts = [f"{'a' * 200}{number}" for number in range(10)] * 3
    kind = pa.schema([pa.field("x", pa.string(), metadata={FIELD_ID: "1"})])
    table = pa.Table.from_arrays([pa.array(texts)], schema=kind)
    data = parquet(table, store_schema=False, use_dictionary=False, write_page_index=True, max_rows_per_page=10)

    def change(found: Struct) -> None:
        get(found, 2)[1][0] = b"a" * 200
        get(found, 3)[1][0] = f"{'a' * 200}{greatest}".encode()
        get(found, 3)[1][1] = f"{'a' * 200}{least}".encode()

    assert codes_of(edit_page_index(data, COLUMN_INDEX, 0, change), TEXT, 30) == expected


@pytest.mark.parametrize(("names", "expected"), [(1_000, []), (17_000_000, ["parquet_too_large"])])
def test_a_variant_is_counted_with_the_memory_for_its_names(names: int, expected: list[str]) -> None:
    """Each empty name has an offset of four bytes in the file, and needs several times that while it is read."""
    kind = pa.struct(
        [pa.field("metadata", pa.binary(), nullable=False), pa.field("value", pa.binary(), nullable=False)]
    )
    fields = [pa.field("v", kind, metadata={FIELD_ID: "1"})]
    parts = {"metadata": b"\xc1" + struct.pack("<I", names) + b"\0" * (4 * names + 4), "value": b"\0"}
    table = pa.Table.from_arrays([pa.array([parts], kind)], schema=pa.schema(fields))
    data = with_variants(parquet(table, store_schema=False, use_dictionary=False, write_statistics=False), "v")
    assert codes_of(data, metadata(column(1, "v", "variant"), version=3), 1) == expected
