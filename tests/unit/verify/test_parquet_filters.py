"""Bloom filters that are true, and by which engines do not find a value all the same: they ask for other bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from tests.support.lake.metadata import column
from tests.support.parquet.edit import I32, STRUCT, Struct, edited, get, put
from tests.support.parquet.lies import field
from tests.support.verify.staged import metadata, observe_file, parquet

pytestmark = pytest.mark.usefixtures("kernel")

FILTER: dict[str, Any] = {"x": {"ndv": 100, "fpp": 0.0001}}


def filtered(values: Sequence[Any], kind: pa.DataType, *, by_dictionary: bool, **options: Any) -> bytes:
    schema = pa.schema([field("x", kind, 1)])
    table = pa.Table.from_arrays([pa.array(values, kind)], schema=schema)
    made: dict[str, Any] = {"bloom_filter_options": FILTER, "store_schema": False, **options}
    return parquet(table, use_dictionary=by_dictionary, **made)


def codes(data: bytes, kind: str) -> list[str]:
    return [each.code for each in observe_file(data, metadata(column(1, "x", kind))).findings]


def as_decimal(footer: Struct) -> None:
    element = get(footer, 2)[1][1]
    for number, value in ((6, 5), (7, 2), (8, 20)):
        put(element, number, I32, value)
    put(element, 10, STRUCT, [[5, STRUCT, [[1, I32, 2], [2, I32, 20]]]])


@pytest.mark.parametrize("by_dictionary", [True, False])
@pytest.mark.parametrize(
    ("width", "kind", "wanted"),
    [
        (9, pa.binary(9), []),
        (16, pa.binary(16), ["parquet_claim_unverified"]),
    ],
)
def test_a_filter_of_decimals_is_one_of_the_bytes_that_iceberg_asks_for(
    width: int, kind: pa.DataType, wanted: list[str], by_dictionary: bool
) -> None:
    """Spark found no row by `d = 1.25` in the wider ones: Iceberg hashes the fewest bytes that 20 digits need, 9."""
    values = [number.to_bytes(width, "big", signed=True) for number in (125, 250, 99_999)]
    data = filtered(values, kind, by_dictionary=by_dictionary, write_statistics=False)
    assert codes(edited(data, as_decimal), "decimal(20, 2)") == wanted
    without = filtered(values, kind, by_dictionary=by_dictionary, write_statistics=False, bloom_filter_options=None)
    assert codes(edited(without, as_decimal), "decimal(20, 2)") == []


@pytest.mark.parametrize("by_dictionary", [True, False])
@pytest.mark.parametrize(("kind", "name"), [(pa.float64(), "double"), (pa.float32(), "float")])
def test_a_filter_that_has_a_negative_zero_has_zero_too(kind: pa.DataType, name: str, by_dictionary: bool) -> None:
    """Neither Spark nor DuckDB finds the row by `x = 0.0` otherwise, and both say that it holds."""
    refused = ["parquet_bloom_filter_lies"]
    assert codes(filtered([-0.0, 1.0], kind, by_dictionary=by_dictionary), name) == refused
    for values in ([-0.0, 0.0, 1.0], [0.0, 1.0]):
        assert codes(filtered(values, kind, by_dictionary=by_dictionary), name) == []
