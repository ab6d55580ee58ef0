"""Correct bloom filters with which engines do not find a value, because they look up the hash of other bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from tests.support.lake.metadata import column
from tests.support.parquet.edit import I32, STRUCT, Struct, edit_footer, get, put
from tests.support.parquet.lies import field
from tests.support.verify.staged import metadata, observe_file, parquet

pytestmark = pytest.mark.usefixtures("kernel")

FILTER: dict[str, Any] = {"x": {"ndv": 100, "fpp": 0.0001}}


def file_with_filter(values: Sequence[Any], kind: pa.DataType, *, by_dictionary: bool, **options: Any) -> bytes:
    schema = pa.schema([field("x", kind, 1)])
    table = pa.Table.from_arrays([pa.array(values, kind)], schema=schema)
    writer_options: dict[str, Any] = {"bloom_filter_options": FILTER, "store_schema": False, **options}
    return parquet(table, use_dictionary=by_dictionary, **writer_options)


def codes_of(data: bytes, kind: str) -> list[str]:
    return [each.code for each in observe_file(data, metadata(column(1, "x", kind))).findings]


def set_decimal(footer: Struct) -> None:
    element = get(footer, 2)[1][1]
    for number, value in ((6, 5), (7, 2), (8, 20)):
        put(element, number, I32, value)
    put(element, 10, STRUCT, [[5, STRUCT, [[1, I32, 2], [2, I32, 20]]]])


@pytest.mark.parametrize("by_dictionary", [True, False])
@pytest.mark.parametrize(
    ("width", "kind", "expected"),
    [
        (9, pa.binary(9), []),
        (16, pa.binary(16), ["parquet_claim_unverified"]),
    ],
)
def test_a_filter_of_decimals_is_accepted_only_for_the_bytes_that_iceberg_hashes(
    width: int, kind: pa.DataType, expected: list[str], by_dictionary: bool
) -> None:
    """Iceberg looks up the hash of the fewest bytes for 20 digits, which are 9. So Spark found no row by `d = 1.25`."""
    values = [number.to_bytes(width, "big", signed=True) for number in (125, 250, 99_999)]
    data = file_with_filter(values, kind, by_dictionary=by_dictionary, write_statistics=False)
    assert codes_of(edit_footer(data, set_decimal), "decimal(20, 2)") == expected
    options: dict[str, Any] = {"write_statistics": False, "bloom_filter_options": None}
    without = file_with_filter(values, kind, by_dictionary=by_dictionary, **options)
    assert codes_of(edit_footer(without, set_decimal), "decimal(20, 2)") == []


@pytest.mark.parametrize("by_dictionary", [True, False])
@pytest.mark.parametrize(("kind", "name"), [(pa.float64(), "double"), (pa.float32(), "float")])
def test_a_filter_with_negative_zero_but_not_zero_is_refused(kind: pa.DataType, name: str, by_dictionary: bool) -> None:
    """With such a filter Spark and DuckDB do not find the row by `x = 0.0`, though both evaluate it as true."""
    refused = ["parquet_bloom_filter_lies"]
    assert codes_of(file_with_filter([-0.0, 1.0], kind, by_dictionary=by_dictionary), name) == refused
    for values in ([-0.0, 0.0, 1.0], [0.0, 1.0]):
        assert codes_of(file_with_filter(values, kind, by_dictionary=by_dictionary), name) == []
