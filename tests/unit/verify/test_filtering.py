"""Filters over Arrow where Arrow by itself would answer otherwise, and data that is not what its schema says."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

from pvdm.errors import InputError
from pvdm.model.filter.bind import bind
from pvdm.model.filter.text import parse_expression
from pvdm.model.schema import Field, Schema, type_from_json
from pvdm.verify.filtering import filter_rows, mask
from tests.support.for_each import for_each
from tests.support.oracles.filters import float_filters, truth


def asked(text: str, kind: str, column: Any) -> list[bool | None]:
    expression = bind(parse_expression(text), Schema((Field("c", type_from_json(kind)),)), {})
    return mask(pa.RecordBatch.from_arrays([column], names=["c"]), expression).to_pylist()


FLOATS = pa.array([-1.0, 5.0, math.inf, math.nan, None], pa.float64())


def test_nan_is_above_every_number() -> None:
    assert asked("c > 5", "double", FLOATS) == [False, False, True, True, None]
    assert asked("c >= 5", "double", FLOATS) == [False, True, True, True, None]
    assert asked("c < 5", "double", FLOATS) == [True, False, False, False, None]
    assert asked("c != 5", "double", FLOATS) == [True, False, True, True, None]


def test_null_is_neither_nan_nor_unknown_when_asked_for_it() -> None:
    assert asked("c is nan", "double", FLOATS) == [False, False, False, True, False]
    assert asked("c is not nan", "double", FLOATS) == [True, True, True, False, True]


@for_each(("kind", "arrow"), [("float", pa.float32()), ("double", pa.float64()), ("double", pa.float32())], ids=str)
@for_each("text", float_filters("c"))
def test_every_comparison_of_floats_is_the_oracles(text: str, kind: str, arrow: pa.DataType) -> None:
    values = [None, -0.0, 0.0, math.nan, math.copysign(math.nan, -1.0), -1.5, 1.5, math.inf, -math.inf]
    expression = bind(parse_expression(text), Schema((Field("c", type_from_json(kind)),)), {})
    expected = [truth(expression, {"c": value}) for value in values]
    column: Any = pa.array(values, arrow)
    assert asked(text, kind, column) == expected
    assert asked(text, kind, column.dictionary_encode()) == expected


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_negative_zero_is_zero_also_among_others(zero: float) -> None:
    column = pa.array([zero], pa.float64())
    assert asked("c in (0, 7)", "double", column) == [True]
    assert asked("c = -0.0", "double", column) == [True]
    assert asked("c < 0", "double", column) == [False]


def test_null_is_unknown_among_others_and_not_among_them() -> None:
    column = pa.array([1, None], pa.int32())
    assert asked("c in (1)", "int", column) == [True, None]
    assert asked("c not in (1)", "int", column) == [False, None]
    assert asked("not (c in (1)) or c is null", "int", column) == [False, True]


def test_a_prefix_is_text_and_no_pattern() -> None:
    column = pa.array(["a%b", "axb", None], pa.string())
    assert asked("c starts with 'a%'", "string", column) == [True, False, None]
    assert asked("c not starts with 'a%'", "string", column) == [False, True, None]


def test_nulls_inside_a_dictionary_are_nulls() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int8()), pa.array(["a", None], pa.string()))
    assert asked("c is null", "string", column) == [False, True, True]
    assert asked("c = 'a'", "string", column) == [True, None, None]


def test_run_ends_are_written_out() -> None:
    column: Any = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([1, None], pa.int64()))
    assert asked("c is null", "long", column) == [False, False, True]
    assert asked("c = 1", "long", column) == [True, True, None]


def test_literals_are_counted_in_the_unit_of_the_schema_whatever_the_data_has() -> None:
    column = pa.array([1, 2], pa.timestamp("s"))
    assert asked("c = '1970-01-01T00:00:01'", "timestamp", column) == [True, False]


@for_each(
    ("kind", "literal", "column"),
    [
        ("int", "1", pa.array(["1"])),
        ("int", "1", pa.array([1.0])),
        ("int", "1", pa.array([2**31], pa.int64())),
        ("float", "1", pa.array([1.0], pa.float64())),
        ("string", "'1'", pa.array([b"1"])),
        ("binary", "'31'", pa.array(["1"])),
        ("date", "'1970-01-01'", pa.array([0], pa.timestamp("us"))),
        ("timestamp", "'1970-01-01T00:00:00'", pa.array([0], pa.timestamp("us", "UTC"))),
        ("timestamptz", "'1970-01-01T00:00:00Z'", pa.array([0], pa.timestamp("us"))),
        ("timestamp", "'1970-01-01T00:00:00'", pa.array([1], pa.timestamp("ns"))),
        ("decimal(9,2)", "1", pa.array([None], pa.decimal128(9, 3))),
        ("uuid", "'00000000-0000-0000-0000-000000000000'", pa.array([b"x"], pa.binary())),
        ("fixed(2)", "'0000'", pa.array([b"abc"], pa.binary(3))),
        ("boolean", "true", pa.array([1])),
    ],
)
def test_data_of_another_type_is_refused_and_never_converted(kind: str, literal: str, column: Any) -> None:
    with pytest.raises(InputError) as refused:
        asked(f"c = {literal}", kind, column)
    assert refused.value.reason == "filter_type_differs"


@pytest.mark.parametrize("names", [["x"], ["c", "c"]])
def test_a_column_that_is_not_there_once_is_refused(names: list[str]) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1])] * len(names), names=names)
    expression = bind(parse_expression("c = 1"), Schema((Field("c", type_from_json("long")),)), {})
    with pytest.raises(InputError) as refused:
        mask(batch, expression)
    assert refused.value.reason == "column_missing"


def test_a_filter_that_is_not_bound_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        mask(pa.RecordBatch.from_arrays([pa.array([1])], names=["c"]), parse_expression("c = 1"))


def test_unknown_rows_are_not_kept_and_columns_of_views_can_be_filtered() -> None:
    batch = pa.RecordBatch.from_arrays(
        [pa.array([1, 2, None]), pa.array(["a", "b", "c"], pa.string_view())], names=["c", "text"]
    )
    expression = bind(parse_expression("c > 1"), Schema((Field("c", type_from_json("long")),)), {})
    assert filter_rows(batch, expression).to_pylist() == [{"c": 2, "text": "b"}]
