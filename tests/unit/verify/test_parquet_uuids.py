"""Uuids, which Java compares with a sign: ends that are no values hide rows from Spark, and so do bounds of entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from pvdm.lake.format.manifest.entry import IdMap
from tests.support.lake.metadata import column
from tests.support.parquet.edit import (
    BINARY,
    COLUMN_INDEX,
    STRUCT,
    Struct,
    drop,
    edited,
    get,
    index_edited,
    put,
    statistics,
)
from tests.support.parquet.lies import field
from tests.support.verify.staged import metadata, observe_file, parquet

pytestmark = pytest.mark.usefixtures("kernel")

TABLE = metadata(column(1, "id"), column(2, "x", "uuid"))
LEAST, GREATEST = bytes([0x10]) * 16, bytes([0x7F]) * 16
LAST = bytes([0xFF]) * 16


def annotated(footer: Struct) -> None:
    put(get(footer, 2)[1][2], 10, STRUCT, [[14, STRUCT, []]])


def uuids(values: Sequence[bytes | None], *, named: bool = True) -> bytes:
    schema = pa.schema([field("id", pa.int64(), 1), field("x", pa.binary(16), 2)])
    arrays: list[Any] = [pa.array(range(len(values)), pa.int64()), pa.array(values, pa.binary(16))]
    table = pa.Table.from_arrays(arrays, schema=schema)
    data = parquet(table, store_schema=False, use_dictionary=False, write_page_index=True)
    return edited(data, annotated) if named else data


def said(data: bytes, number: int, value: bytes) -> bytes:
    """Statistics with another end."""

    def change(footer: Struct) -> None:
        told = statistics(footer, 1)
        drop(told, 1, 2, 7, 8)
        put(told, number, BINARY, value)

    return edited(data, change)


def codes(data: bytes) -> list[str]:
    return [each.code for each in observe_file(data, TABLE).findings]


@pytest.mark.parametrize("named", [True, False])
def test_the_ends_of_uuids_are_values(named: bool) -> None:
    """By a greatest that is negative for Java Spark found no row; DuckDB hung at a least of one byte."""
    honest = uuids([LEAST, GREATEST, None], named=named)
    assert codes(honest) == codes(said(honest, 5, GREATEST)) == []
    for number, value in ((5, LAST), (5, GREATEST + b"\0"), (6, LEAST[:1]), (6, b"")):
        assert codes(said(honest, number, value)) == ["parquet_statistics_lie"]


def test_the_ends_of_pages_of_uuids_are_values() -> None:
    honest = uuids([LEAST, GREATEST, None])

    def change(index: Struct) -> None:
        get(index, 3)[1][0] = LAST

    assert codes(index_edited(honest, COLUMN_INDEX, 1, change)) == ["parquet_page_index_lies"]
    assert codes(index_edited(honest, COLUMN_INDEX, 1, lambda _: None)) == []


def test_an_entry_has_no_bounds_of_uuids() -> None:
    """With uuids of both signs between them Spark looks into no file at all."""
    found = observe_file(uuids([LEAST, LAST]), TABLE).data_file
    assert found is not None
    assert set(found.lower_bounds or IdMap()) == set(found.upper_bounds or IdMap()) == {1}
    assert (found.value_counts or IdMap())[2] == 2
