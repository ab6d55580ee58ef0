"""Bounds of uuids: Java compares uuids as signed numbers, so bounds that no row has hide rows from Spark."""

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
    edit_footer,
    edit_page_index,
    get,
    put,
    statistics,
)
from tests.support.parquet.lies import field
from tests.support.verify.staged import metadata, observe_file, parquet

pytestmark = pytest.mark.usefixtures("kernel")

TABLE = metadata(column(1, "id"), column(2, "x", "uuid"))
LEAST, GREATEST = bytes([0x10]) * 16, bytes([0x7F]) * 16
LAST = bytes([0xFF]) * 16


def add_uuid_annotation(footer: Struct) -> None:
    put(get(footer, 2)[1][2], 10, STRUCT, [[14, STRUCT, []]])


def file_of_uuids(values: Sequence[bytes | None], *, annotated: bool = True) -> bytes:
    schema = pa.schema([field("id", pa.int64(), 1), field("x", pa.binary(16), 2)])
    arrays: list[Any] = [pa.array(range(len(values)), pa.int64()), pa.array(values, pa.binary(16))]
    table = pa.Table.from_arrays(arrays, schema=schema)
    data = parquet(table, store_schema=False, use_dictionary=False, write_page_index=True)
    return edit_footer(data, add_uuid_annotation) if annotated else data


def with_statistic(data: bytes, number: int, value: bytes) -> bytes:
    """The file with another value in this field of its statistics."""

    def change(footer: Struct) -> None:
        fields = statistics(footer, 1)
        drop(fields, 1, 2, 7, 8)
        put(fields, number, BINARY, value)

    return edit_footer(data, change)


def codes_of(data: bytes) -> list[str]:
    return [each.code for each in observe_file(data, TABLE).findings]


@pytest.mark.parametrize("annotated", [True, False])
def test_bounds_of_uuids_that_are_no_values_are_refused(annotated: bool) -> None:
    """With a greatest value that is negative for Java, Spark found no row. With a least of one byte DuckDB hung."""
    honest = file_of_uuids([LEAST, GREATEST, None], annotated=annotated)
    assert codes_of(honest) == codes_of(with_statistic(honest, 5, GREATEST)) == []
    for number, value in ((5, LAST), (5, GREATEST + b"\0"), (6, LEAST[:1]), (6, b"")):
        assert codes_of(with_statistic(honest, number, value)) == ["parquet_statistics_lie"]


def test_page_bounds_of_uuids_that_are_no_values_are_refused() -> None:
    honest = file_of_uuids([LEAST, GREATEST, None])

    def change(index: Struct) -> None:
        get(index, 3)[1][0] = LAST

    assert codes_of(edit_page_index(honest, COLUMN_INDEX, 1, change)) == ["parquet_page_index_lies"]
    assert codes_of(edit_page_index(honest, COLUMN_INDEX, 1, lambda _: None)) == []


def test_a_rebuilt_entry_has_no_bounds_of_uuids() -> None:
    """With bounds of different signs Spark would skip every file."""
    found = observe_file(file_of_uuids([LEAST, LAST]), TABLE).data_file
    assert found is not None
    assert set(found.lower_bounds or IdMap()) == set(found.upper_bounds or IdMap()) == {1}
    assert (found.value_counts or IdMap())[2] == 2
