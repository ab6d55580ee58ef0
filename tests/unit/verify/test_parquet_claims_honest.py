"""Files of PyArrow and DuckDB are accepted with any options; a changed statistic is refused unless it is true."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.for_each import for_each
from tests.support.lake.metadata import column
from tests.support.parquet.edit import BINARY, I64, edit_footer, put, statistics
from tests.support.parquet.lies import COLUMNS, ROWS, TABLE, field, file, rows
from tests.support.verify.staged import metadata, observe_file

pytestmark = pytest.mark.usefixtures("kernel")
FILTERS: dict[str, Any] = {name: {"ndv": 100, "fpp": 0.05} for name in ("id", "town", "price", "ratio", "day")}

OPTIONS: dict[str, dict[str, Any]] = {
    "nothing said": {"write_statistics": False, "write_page_index": False},
    "no dictionary": {"use_dictionary": False},
    "pages of version 2": {"data_page_version": "2.0"},
    "pages of version 2 without a dictionary": {"data_page_version": "2.0", "use_dictionary": False},
    "statistics in page headers": {"write_page_index": False},
    "one page": {"max_rows_per_page": ROWS, "row_group_size": ROWS},
    "small pages inside rows": {"data_page_size": 1, "write_batch_size": 1, "write_page_index": False},
    "a small dictionary": {"dictionary_pagesize_limit": 1, "write_batch_size": 2},
    "filters": {"bloom_filter_options": FILTERS},
    "filters without a dictionary": {"bloom_filter_options": FILTERS, "use_dictionary": False},
    "sorted": {"sorting_columns": [pq.SortingColumn(0)]},
    "decimals as whole numbers": {"store_decimal_as_integer": True},
    "delta encodings": {
        "use_dictionary": False,
        "column_encoding": {
            "id": "DELTA_BINARY_PACKED",
            "town": "DELTA_BYTE_ARRAY",
            "price": "DELTA_BYTE_ARRAY",
            "ratio": "BYTE_STREAM_SPLIT",
            "flag": "RLE",
            "day": "DELTA_BINARY_PACKED",
        },
        "bloom_filter_options": FILTERS,
    },
    "lengths apart": {"use_dictionary": False, "column_encoding": {"town": "DELTA_LENGTH_BYTE_ARRAY"}},
    "gzip": {"compression": "gzip"},
    "raw lz4": {"compression": "lz4"},
    "zstd": {"compression": "zstd"},
    "nothing compressed": {"compression": "none"},
    "checksums": {"write_page_checksum": True},
}


@for_each("name", OPTIONS)
def test_a_file_of_pyarrow_is_accepted(name: str) -> None:
    assert observe_file(file(**OPTIONS[name]), TABLE).findings == ()


@for_each("name", OPTIONS)
def test_a_file_of_pyarrow_without_rows_is_accepted(name: str) -> None:
    """Some columns of such a file have a dictionary page, others no page at all."""
    assert observe_file(file(rows().slice(0, 0), **OPTIONS[name]), TABLE).findings == ()


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_file_of_duckdb_is_accepted(version: str, tmp_path: Path) -> None:
    """DuckDB writes distinct counts, bloom filters, and the deprecated statistics fields for texts too."""
    given_rows = rows().append_column("word", pa.array([f"é{at}" for at in range(ROWS)]))
    ids = (
        "{id: 1, town: 2, price: 3, ratio: 4, flag: 5, day: 6, tags: {__duckdb_field_id: 7, element: 8},"
        " place: {__duckdb_field_id: 9, floor: 10}, word: 11}"
    )
    with duckdb.connect() as connection:
        connection.register("given_rows", given_rows)
        for name, query in {"all": "from given_rows", "none": "from given_rows where id < 0"}.items():
            path = tmp_path / f"{name}.parquet"
            connection.sql(f"copy ({query}) to '{path}' (field_ids {ids}, parquet_version {version})")
            table = metadata(*COLUMNS, column(11, "word", "string"))
            assert observe_file(path.read_bytes(), table).findings == ()


KINDS: dict[str, tuple[str, Any, Any]] = {
    "long": ("long", pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "int": ("int", pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "string": ("string", pa.string(), st.text(max_size=12)),
    "binary": ("binary", pa.binary(), st.binary(max_size=12)),
    "double": ("double", pa.float64(), st.floats()),
    "float": ("float", pa.float32(), st.floats(width=32)),
    "boolean": ("boolean", pa.bool_(), st.booleans()),
    "fixed": ("fixed[3]", pa.binary(3), st.binary(min_size=3, max_size=3)),
    "decimal": ("decimal(30, 3)", pa.decimal128(30, 3), st.decimals(-(10**9), 10**9, places=3, allow_nan=False)),
}


@st.composite
def tables(draw: st.DrawFn) -> tuple[pa.Table, Any]:
    """A table with a column of some type and one of lists of this type, and its metadata."""
    name = draw(st.sampled_from(sorted(KINDS)))
    iceberg, arrow, values = KINDS[name]
    few = st.sampled_from(draw(st.lists(values, min_size=1, max_size=3)))
    value = st.none() | draw(st.sampled_from([values, few]))
    flat = draw(st.lists(value, max_size=40))
    nested = draw(st.lists(st.none() | st.lists(value, max_size=4), min_size=len(flat), max_size=len(flat)))
    kind = pa.list_(field("element", arrow, 3))
    example = pa.Table.from_arrays(
        [pa.array(flat, arrow), pa.array(nested, kind)], schema=pa.schema([field("v", arrow, 1), field("l", kind, 2)])
    )
    listed = {"type": "list", "element-id": 3, "element": iceberg, "element-required": False}
    return example, metadata(column(1, "v", iceberg), column(2, "l", listed))


def options() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "row_group_size": st.integers(1, 50),
            "max_rows_per_page": st.integers(1, 50),
            "write_page_index": st.booleans(),
            "use_dictionary": st.booleans(),
            "dictionary_pagesize_limit": st.sampled_from([1, 30, 1_000_000]),
            "write_batch_size": st.sampled_from([1, 7, 1024]),
            "data_page_size": st.sampled_from([1, 50, 1_000_000]),
            "data_page_version": st.sampled_from(["1.0", "2.0"]),
            "compression": st.sampled_from(["none", "snappy", "zstd"]),
            "write_statistics": st.booleans(),
        }
    )


@settings(max_examples=150, deadline=None)
@given(tables(), options())
def test_any_file_of_pyarrow_is_accepted(example: tuple[pa.Table, Any], writer_options: dict[str, Any]) -> None:
    data, table = example
    assert observe_file(file(data, **writer_options), table).findings == ()


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.none() | st.integers(-5, 5), min_size=1, max_size=20),
    st.sampled_from([1, 2, 3, 5, 6]),
    st.integers(-5, 5),
)
def test_a_changed_statistic_is_refused_unless_it_is_true(values: list[int | None], number: int, other: int) -> None:
    example = pa.Table.from_arrays([pa.array(values, pa.int64())], schema=pa.schema([field("id", pa.int64(), 1)]))
    data = file(example, row_group_size=100)
    other = abs(other) if number == 3 else other  # the decoder refuses a negative count
    kind, value = (I64, other) if number == 3 else (BINARY, struct.pack("<q", other))
    changed = edit_footer(data, lambda footer: put(statistics(footer, 0), number, kind, value))
    present = [each for each in values if each is not None]
    least, greatest = min(present, default=math.nan), max(present, default=math.nan)
    right = {1: greatest, 2: least, 3: values.count(None), 5: greatest, 6: least}[number]
    expected = [] if other == right else ["parquet_statistics_lie"]
    assert [each.code for each in observe_file(changed, metadata(column(1, "id"))).findings] == expected
