"""Encoded pages that readers decode differently: our decoder reads other rows than another reader, so they are refused.

Comments say what Spark with Iceberg's reader, DuckDB and PyArrow returned.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from tests.support.for_each import for_each
from tests.support.lake.metadata import Doc, column
from tests.support.parquet.edit import (
    I32,
    I64,
    LIST,
    columns,
    groups,
    join_footer,
    metadata_of,
    put,
    split_footer,
    varint,
)
from tests.support.parquet.pages import page, rebuild, run
from tests.support.verify.staged import NAME, codes, metadata, observe_file, parquet

pytestmark = pytest.mark.usefixtures("kernel")

RLE, DELTA_BINARY_PACKED, DELTA_LENGTH_BYTE_ARRAY, DELTA_BYTE_ARRAY = 3, 5, 6, 7
AMBIGUOUS = ["parquet_ambiguous"]
# A number that Java reads as 128: it shifts the last byte of an int by 35 modulo 32, which sets the same bit again.
LONG_BLOCK = bytes([0x80, 0x81, 0x80, 0x80, 0x80, 0x10])


def file_of_one_page(kind: pa.DataType, values: bytes, count: int, encoding: int) -> bytes:
    """A file of one column without nulls and one page with these encoded values."""
    one: dict[Any, Any] = {pa.bool_(): True, pa.string(): "a"}
    field = pa.field("x", kind, nullable=False, metadata={NAME: "1"})
    rows = pa.Table.from_arrays([pa.array([one.get(kind, 1)], kind)], schema=pa.schema([field]))
    honest = parquet(rows, store_schema=False, use_dictionary=False, compression="none")
    body, footer = split_footer(rebuild(honest, {0: [page(count, values, encoding=encoding)]}))
    for each in (footer, groups(footer)[0]):
        put(each, 3, I64, count)
    put(metadata_of(columns(groups(footer)[0])[0]), 2, LIST, (I32, [0, 3, encoding]))
    return join_footer(body, footer)


def codes_of(kind: str, data: bytes, count: int) -> list[str]:
    return codes(observe_file(data, metadata(column(1, "x", kind)), record_count=count).findings)


def delta_numbers(*, block: bytes = varint(128), minis: bytes = b"\1", count: bytes = varint(200)) -> bytes:
    """The delta encoding of 200 ascending numbers in two blocks."""
    return block + minis + count + b"\0" + b"\2\0" + b"\2\0" + b"\0" * 300


@pytest.mark.parametrize(("kind", "name"), [(pa.int64(), "long"), (pa.int32(), "int")])
def test_delta_headers_with_ambiguous_numbers_are_refused(kind: pa.DataType, name: str) -> None:
    """Spark read other rows from the 129th on: for Spark a block ended there, for our decoder it did not."""
    assert codes_of(name, file_of_one_page(kind, delta_numbers(), 200, DELTA_BINARY_PACKED), 200) == []
    for other in (
        delta_numbers(block=LONG_BLOCK),
        delta_numbers(minis=b"\x81\0"),
        delta_numbers(count=b"\xc8\x81\0"),
        delta_numbers(count=varint(201)),
    ):
        assert codes_of(name, file_of_one_page(kind, other, 200, DELTA_BINARY_PACKED), 200) == AMBIGUOUS


@pytest.mark.parametrize("encoding", [DELTA_LENGTH_BYTE_ARRAY, DELTA_BYTE_ARRAY])
def test_delta_headers_of_text_lengths_with_ambiguous_numbers_are_refused(encoding: int) -> None:
    def lengths(count: int = 2, *, block: bytes = varint(128)) -> bytes:
        return block + b"\1" + varint(count) + b"\2" + b"\0\0"

    prefix_lengths = varint(128) + b"\1\2\0\0\0" if encoding == DELTA_BYTE_ARRAY else b""
    assert codes_of("string", file_of_one_page(pa.string(), prefix_lengths + lengths() + b"ab", 2, encoding), 2) == []
    for other in (lengths(1), lengths(block=LONG_BLOCK)):
        assert codes_of("string", file_of_one_page(pa.string(), prefix_lengths + other + b"ab", 2, encoding), 2) != []


@for_each(
    "runs",
    [
        b"\0" + run(1, 1) + run(3, 0),  # DuckDB: false, true, false, false; Spark: true four times
        run(2, 1) + b"\1" + run(2, 0),
        run(2, 1) + b"\x84\x80\x80\x80\x10\0",
        run(3, 1),
    ],
    ids=["a run of nothing", "packed nothing", "more than Java counts", "too few"],
)
def test_empty_or_invalid_runs_of_booleans_are_refused(runs: bytes) -> None:
    def flags(run_bytes: bytes) -> bytes:
        return file_of_one_page(pa.bool_(), struct.pack("<I", len(run_bytes)) + run_bytes, 4, RLE)

    assert codes_of("boolean", flags(run(1, 1) + run(3, 0)), 4) == []
    assert codes_of("boolean", flags(runs), 4) != []


def file_of_nanoseconds(values: Sequence[Any], **options: Any) -> bytes:
    element = pa.field("element", pa.timestamp("ns"), metadata={NAME: "2"})
    field = pa.field("x", pa.list_(element), metadata={NAME: "1"})
    rows = pa.Table.from_arrays([pa.array(values, field.type)], schema=pa.schema([field]))
    return parquet(rows, store_schema=False, write_statistics=False, **options)


def test_timestamps_of_96_bits_in_a_list_are_refused() -> None:
    """DuckDB reads them as microseconds."""
    listed: Doc = {"type": "list", "element-id": 2, "element": "timestamp_ns", "element-required": False}
    table = metadata(column(1, "x", listed), version=3)
    for options, expected in (({}, []), ({"use_deprecated_int96_timestamps": True}, ["parquet_type_unsupported"])):
        data = file_of_nanoseconds([[1_577_836_800_000_000_001], None], **options)
        assert codes(observe_file(data, table).findings) == expected
