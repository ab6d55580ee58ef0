"""Parquet files whose leaf columns disagree about their common struct, list or map: readers use one or the other.

Comments say what other readers returned for such a file.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.for_each import for_each
from tests.support.lake.metadata import Doc, column
from tests.support.parquet.lies import field
from tests.support.parquet.pages import Page, dictionary_page, long_page, longs, page, rebuild, run, runs
from tests.support.verify.staged import NAME, metadata, observe_file, parquet

pytestmark = pytest.mark.usefixtures("kernel")

PAIR = pa.struct([field("a", pa.int64(), 2), field("b", pa.int64(), 3)])
IN_PAIR: Doc = {"type": "struct", "fields": [column(2, "a"), column(3, "b")]}
LIST = pa.list_(field("element", pa.int64(), 2))
IN_LIST: Doc = {"type": "list", "element-id": 2, "element": "long", "element-required": False}
PAIRS = pa.list_(field("element", PAIR, 4))
IN_PAIRS: Doc = {"type": "list", "element-id": 4, "element": IN_PAIR, "element-required": False}
KEY: Any = pa.field("key", pa.int64(), nullable=False, metadata={NAME: "2"})
MAP = pa.map_(KEY, field("value", pa.int64(), 3))
IN_MAP: Doc = {"type": "map", "key-id": 2, "key": "long", "value-id": 3, "value": "long", "value-required": False}

Chunks = Mapping[int, Sequence[Page]]


def build_file(kind: Any, rows: Sequence[Any], chunks: Chunks) -> bytes:
    """A file of one column, with these pages for each leaf column."""
    table = pa.Table.from_arrays([pa.array(rows, kind)], schema=pa.schema([field("v", kind, 1)]))
    return rebuild(parquet(table, store_schema=False, use_dictionary=False, compression="none"), chunks)


def findings_of(data: bytes, doc: Doc | str) -> list[tuple[str, str]]:
    return [(each.code, each.message) for each in observe_file(data, metadata(column(1, "v", doc))).findings]


def ambiguous_at(place: str) -> list[tuple[str, str]]:
    return [("parquet_ambiguous", f"column '{place}', row group 0 is refused")]


ROWS: dict[str, tuple[Any, Doc, list[Any], Chunks]] = {
    "a struct": (
        PAIR,
        IN_PAIR,
        [{"a": 1, "b": 1}, None, {"a": None, "b": 3}],
        {0: [long_page([2, 0, 1], None, 1)], 1: [long_page([2, 0, 2], None, 1, 3)]},
    ),
    "a list": (
        LIST,
        IN_LIST,
        [[1], None, [], [3, None]],
        {0: [long_page([3, 0, 1, 3, 2], [0, 0, 0, 0, 1], 1, 3)]},
    ),
    "a list over two pages": (
        LIST,
        IN_LIST,
        [[1], [3, 4]],
        {0: [long_page([3, 3], [0, 0], 1, 3), long_page([3], [1], 4)]},
    ),
    "a list of structs": (
        PAIRS,
        IN_PAIRS,
        [[{"a": 1, "b": 1}, {"a": 2, "b": 2}], [{"a": 3, "b": 3}]],
        {0: [long_page([4, 4, 4], [0, 1, 0], 1, 2, 3)], 1: [long_page([4, 4, 4], [0, 1, 0], 1, 2, 3)]},
    ),
    "a map": (
        MAP,
        IN_MAP,
        [[(1, 1), (2, 2)], [(3, 3)]],
        {0: [long_page([2, 2, 2], [0, 1, 0], 1, 2, 3)], 1: [long_page([3, 3, 3], [0, 1, 0], 1, 2, 3)]},
    ),
}


@for_each("name", ROWS)
def test_levels_that_agree_are_accepted_and_read_as_the_rows(name: str) -> None:
    kind, doc, rows, chunks = ROWS[name]
    data = build_file(kind, rows, chunks)
    assert pq.read_table(io.BytesIO(data)).column("v").to_pylist() == rows
    assert findings_of(data, doc) == []


SIBLINGS: dict[str, tuple[str, str, Chunks]] = {
    # Spark: s.b is 777 where s is null, and 777 in the next row of a full read.
    "the struct is null for its first leaf": (
        "a struct",
        "v.b",
        {0: [long_page([2, 0, 2], None, 1, 3)], 1: [long_page([2, 2, 2], None, 1, 777, 3)]},
    ),
    "the struct is null for its second leaf": (
        "a struct",
        "v.b",
        {0: [long_page([2, 2, 2], None, 1, 2, 3)], 1: [long_page([2, 0, 2], None, 1, 3)]},
    ),
    # Spark's own reader: other lists by each leaf.
    "other lengths of a list": (
        "a list of structs",
        "v.list.element.b",
        {0: [long_page([4, 4, 4], [0, 1, 0], 1, 2, 3)], 1: [long_page([4, 4, 4], [0, 0, 1], 1, 2, 3)]},
    ),
    "an element that is null for one": (
        "a list of structs",
        "v.list.element.b",
        {0: [long_page([4, 4, 4], [0, 1, 0], 1, 2, 3)], 1: [long_page([4, 2, 4], [0, 1, 0], 1, 3)]},
    ),
    "a list that is null for one and empty for the other": (
        "a list of structs",
        "v.list.element.b",
        {0: [long_page([4, 0], [0, 0], 1)], 1: [long_page([4, 1], [0, 0], 1)]},
    ),
    "keys and values of different maps": (
        "a map",
        "v.key_value.value",
        {0: [long_page([2, 2, 2], [0, 1, 0], 1, 2, 3)], 1: [long_page([3, 3, 3], [0, 0, 1], 1, 2, 3)]},
    ),
}


@for_each("name", SIBLINGS)
def test_leaves_with_different_levels_of_their_parent_are_refused(name: str) -> None:
    whole, place, chunks = SIBLINGS[name]
    kind, doc, rows, _ = ROWS[whole]
    assert findings_of(build_file(kind, rows, chunks), doc) == ambiguous_at(place)


CONTINUED: dict[str, Page] = {
    # Spark reads [1], null, [7]; PyArrow reads [1], null, [3, 4].
    "null": long_page([3, 0, 3, 3, 3], [0, 0, 1, 0, 1], 1, 7, 3, 4),
    "empty": long_page([3, 1, 3, 3, 3], [0, 0, 1, 0, 1], 1, 7, 3, 4),
    "null in the middle": long_page([3, 3, 0, 3], [0, 0, 1, 0], 1, 3, 4),
    "empty in the middle": long_page([3, 3, 1, 3], [0, 0, 1, 0], 1, 3, 4),
    "not begun": long_page([3, 3, 3, 3], [1, 0, 0, 0], 9, 1, 3, 4),
}


@for_each("name", CONTINUED)
def test_a_repetition_level_inside_a_null_or_empty_list_is_refused(name: str) -> None:
    codes = [code for code, _ in findings_of(build_file(LIST, [[1], None, [3]], {0: [CONTINUED[name]]}), IN_LIST)]
    # Our decoder cannot read a list that begins with a repetition.
    assert codes in (
        [["parquet_ambiguous"]] if name != "not begun" else [["parquet_ambiguous"], ["parquet_unreadable"]]
    )


def test_a_null_list_that_goes_on_in_the_next_page_is_refused() -> None:
    pages = [long_page([3, 0], [0, 0], 1), long_page([3, 3], [1, 0], 7, 3)]
    assert findings_of(build_file(LIST, [[1], None, [3]], {0: pages}), IN_LIST) == ambiguous_at("v.list.element")


EMPTY_RUNS = {"equal": run(0, 0), "packed": bytes([1])}


@pytest.mark.parametrize("name", EMPTY_RUNS)
def test_an_empty_run_among_levels_or_indices_is_refused(name: str) -> None:
    """PyArrow cannot read such levels; Spark can."""
    plain = [page(4, longs(1, 2, 3, 4), run(2, 1) + run(2, 1))]
    assert findings_of(build_file(pa.int64(), [1, 2, 3, 4], {0: plain}), "long") == []
    levels = [page(4, longs(1, 2, 3, 4), run(2, 1) + EMPTY_RUNS[name] + run(2, 1))]
    assert findings_of(build_file(pa.int64(), [1, 2, 3, 4], {0: levels}), "long") == ambiguous_at("v")
    for between, expected in ((b"", set()), (EMPTY_RUNS[name], {"parquet_ambiguous", "parquet_unreadable"})):
        indices = page(4, bytes([1]) + run(2, 0) + between + run(2, 1), runs([1] * 4), encoding=8)
        chunks = {0: [dictionary_page(2, longs(1, 2)), indices]}
        found = {code for code, _ in findings_of(build_file(pa.int64(), [1, 1, 2, 2], chunks), "long")}
        # Our decoder cannot read some of these.
        assert found <= expected
        assert bool(found) == bool(expected)


NUMBERS = st.none() | st.integers(0, 3)
PAIR_ROWS = st.none() | st.fixed_dictionaries({"a": NUMBERS, "b": NUMBERS})


def pair_doc(first: int) -> Doc:
    return {"type": "struct", "fields": [column(first, "a"), column(first + 1, "b")]}


def deep_type() -> tuple[Any, Doc]:
    """A struct, lists of lists of structs and a map of structs, all in one struct."""

    def pair(first: int) -> Any:
        return pa.struct([field("a", pa.int64(), first), field("b", pa.int64(), first + 1)])

    key: Any = pa.field("key", pa.int64(), nullable=False, metadata={NAME: "40"})
    kind = pa.struct(
        [
            field("p", pair(10), 2),
            field("l", pa.list_(field("element", pa.list_(field("element", pair(20), 5)), 4)), 3),
            field("m", pa.map_(key, field("value", pair(30), 7)), 6),
        ]
    )
    inner: Doc = {"type": "list", "element-id": 5, "element": pair_doc(20), "element-required": False}
    lists: Doc = {"type": "list", "element-id": 4, "element": inner, "element-required": False}
    mapped: Doc = {
        "type": "map",
        "key-id": 40,
        "key": "long",
        "value-id": 7,
        "value": pair_doc(30),
        "value-required": False,
    }
    return kind, {
        "type": "struct",
        "fields": [column(2, "p", pair_doc(10)), column(3, "l", lists), column(6, "m", mapped)],
    }


DEEP_ROWS = st.none() | st.fixed_dictionaries(
    {
        "p": PAIR_ROWS,
        "l": st.none() | st.lists(st.none() | st.lists(PAIR_ROWS, max_size=3), max_size=3),
        "m": st.none() | st.dictionaries(st.integers(0, 5), PAIR_ROWS, max_size=3).map(lambda each: list(each.items())),
    }
)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(DEEP_ROWS, max_size=30),
    st.fixed_dictionaries(
        {
            "row_group_size": st.integers(1, 20),
            "max_rows_per_page": st.integers(1, 20),
            "write_page_index": st.booleans(),
            "use_dictionary": st.booleans(),
            "write_batch_size": st.sampled_from([1, 3, 1024]),
            "data_page_size": st.sampled_from([1, 1_000_000]),
            "data_page_version": st.sampled_from(["1.0", "2.0"]),
        }
    ),
)
def test_nested_columns_of_pyarrow_are_accepted(rows: list[Any], options: dict[str, Any]) -> None:
    kind, doc = deep_type()
    table = pa.Table.from_arrays([pa.array(rows, kind)], schema=pa.schema([field("v", kind, 1)]))
    assert findings_of(parquet(table, **options), doc) == []


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_nested_columns_of_duckdb_are_accepted(version: str, tmp_path: Path) -> None:
    """The rows have nulls and empty collections at every depth, in several row groups."""
    _, doc = deep_type()
    pair = "{'a': nullif(i % 5, 0), 'b': i}"
    inner = f"list_transform(range(i % 4), k -> {pair})"
    rows = f"""select case when i % 7 = 0 then null else {{
        'p': case when i % 3 = 0 then null else {pair} end,
        'l': case when i % 4 = 0 then null else
            list_transform(range(i % 3), j -> case when j = 1 then null else {inner} end) end,
        'm': case when i % 5 = 0 then null when i % 5 = 1 then map() else map([i, i + 1], [{pair}, {pair}]) end
        }} end as v from range(5000) t(i)"""
    pairs = [f"a: {first}, b: {first + 1}" for first in (10, 20, 30)]
    ids = (
        f"{{v: {{__duckdb_field_id: 1, p: {{__duckdb_field_id: 2, {pairs[0]}}},"
        f" l: {{__duckdb_field_id: 3, element: {{__duckdb_field_id: 4, element: {{__duckdb_field_id: 5,"
        f" {pairs[1]}}}}}}},"
        f" m: {{__duckdb_field_id: 6, key: 40, value: {{__duckdb_field_id: 7, {pairs[2]}}}}}}}}}"
    )
    path = tmp_path / "nested.parquet"
    with duckdb.connect() as connection:
        options = f"field_ids {ids}, parquet_version {version}, row_group_size 2048"
        connection.sql(f"copy ({rows}) to '{path}' (format parquet, {options})")
    assert findings_of(path.read_bytes(), doc) == []
