"""Encodings that readers take apart in different ways: each page gives our decoder rows, and others other ones.

What Spark with Iceberg's reader, DuckDB and PyArrow made of it stands beside it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from tests.support.lake.metadata import Doc, column
from tests.support.parquet.edit import I32, I64, LIST, columns, groups, joined, put, split, told, varint
from tests.support.parquet.pages import page, rebuilt, run
from tests.support.verify.staged import NAME, codes, metadata, observe_file, parquet

pytestmark = pytest.mark.usefixtures("kernel")

RLE, DELTA_BINARY_PACKED, DELTA_LENGTH_BYTE_ARRAY, DELTA_BYTE_ARRAY = 3, 5, 6, 7
AMBIGUOUS = ["parquet_ambiguous"]
# 128 for Java, which has 32 bits for it and shifts the last five back to the front.
LONG_BLOCK = bytes([0x80, 0x81, 0x80, 0x80, 0x80, 0x10])


def made(kind: pa.DataType, values: bytes, count: int, encoding: int) -> bytes:
    """A file of one column without nulls, of one page."""
    one: dict[Any, Any] = {pa.bool_(): True, pa.string(): "a"}
    field = pa.field("x", kind, nullable=False, metadata={NAME: "1"})
    rows = pa.Table.from_arrays([pa.array([one.get(kind, 1)], kind)], schema=pa.schema([field]))
    honest = parquet(rows, store_schema=False, use_dictionary=False, compression="none")
    body, footer = split(rebuilt(honest, {0: [page(count, values, encoding=encoding)]}))
    for each in (footer, groups(footer)[0]):
        put(each, 3, I64, count)
    put(told(columns(groups(footer)[0])[0]), 2, LIST, (I32, [0, 3, encoding]))
    return joined(body, footer)


def found(kind: str, data: bytes, count: int) -> list[str]:
    return codes(observe_file(data, metadata(column(1, "x", kind)), record_count=count).findings)


def differences(*, block: bytes = varint(128), minis: bytes = b"\1", count: bytes = varint(200)) -> bytes:
    """200 numbers in two blocks, each one more than the last."""
    return block + minis + count + b"\0" + b"\2\0" + b"\2\0" + b"\0" * 300


@pytest.mark.parametrize(("kind", "name"), [(pa.int64(), "long"), (pa.int32(), "int")])
def test_differences_have_numbers_of_one_length(kind: pa.DataType, name: str) -> None:
    """Spark saw another row from the 129th on: for it a block ended there, and for us it went on."""
    assert found(name, made(kind, differences(), 200, DELTA_BINARY_PACKED), 200) == []
    for lie in (
        differences(block=LONG_BLOCK),
        differences(minis=b"\x81\0"),
        differences(count=b"\xc8\x81\0"),
        differences(count=varint(201)),
    ):
        assert found(name, made(kind, lie, 200, DELTA_BINARY_PACKED), 200) == AMBIGUOUS


@pytest.mark.parametrize("encoding", [DELTA_LENGTH_BYTE_ARRAY, DELTA_BYTE_ARRAY])
def test_so_have_the_lengths_of_texts(encoding: int) -> None:
    def lengths(count: int = 2, *, block: bytes = varint(128)) -> bytes:
        return block + b"\1" + varint(count) + b"\2" + b"\0\0"

    begun = varint(128) + b"\1\2\0\0\0" if encoding == DELTA_BYTE_ARRAY else b""
    assert found("string", made(pa.string(), begun + lengths() + b"ab", 2, encoding), 2) == []
    for lie in (lengths(1), lengths(block=LONG_BLOCK)):
        assert found("string", made(pa.string(), begun + lie + b"ab", 2, encoding), 2) != []


@pytest.mark.parametrize(
    "runs",
    [
        b"\0" + run(1, 1) + run(3, 0),  # DuckDB: false, true, false, false; Spark: true four times
        run(2, 1) + b"\1" + run(2, 0),
        run(2, 1) + b"\x84\x80\x80\x80\x10\0",
        run(3, 1),
    ],
    ids=["a run of nothing", "packed nothing", "more than Java counts", "too few"],
)
def test_booleans_in_runs_are_runs_of_something(runs: bytes) -> None:
    def flags(given: bytes) -> bytes:
        return made(pa.bool_(), struct.pack("<I", len(given)) + given, 4, RLE)

    assert found("boolean", flags(run(1, 1) + run(3, 0)), 4) == []
    assert found("boolean", flags(runs), 4) != []


def nanoseconds(values: Sequence[Any], **options: Any) -> bytes:
    element = pa.field("element", pa.timestamp("ns"), metadata={NAME: "2"})
    field = pa.field("x", pa.list_(element), metadata={NAME: "1"})
    rows = pa.Table.from_arrays([pa.array(values, field.type)], schema=pa.schema([field]))
    return parquet(rows, store_schema=False, write_statistics=False, **options)


def test_times_of_96_bits_are_refused_in_a_list_too() -> None:
    """DuckDB has microseconds of them."""
    listed: Doc = {"type": "list", "element-id": 2, "element": "timestamp_ns", "element-required": False}
    table = metadata(column(1, "x", listed), version=3)
    for options, wanted in (({}, []), ({"use_deprecated_int96_timestamps": True}, ["parquet_type_unsupported"])):
        data = nanoseconds([[1_577_836_800_000_000_001], None], **options)
        assert codes(observe_file(data, table).findings) == wanted
