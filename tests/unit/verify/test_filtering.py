"""Filters over Arrow data, where Arrow's own comparisons differ from ours, and data of other types than its schema."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

from pvdm.errors import InputError
from pvdm.model.filter.bind import bind
from pvdm.model.filter.text import parse_expression
from pvdm.model.schema import Field, Schema, type_from_json
from pvdm.verify.filtering import compute_mask, filter_rows
from tests.support.for_each import for_each
from tests.support.oracles.filters import float_filters, truth


def mask_of(text: str, kind: str, column: Any) -> list[bool | None]:
    expression = bind(parse_expression(text), Schema((Field("c", type_from_json(kind)),)), {})
    return compute_mask(pa.RecordBatch.from_arrays([column], names=["c"]), expression).to_pylist()


FLOATS = pa.array([-1.0, 5.0, math.inf, math.nan, None], pa.float64())


def test_nan_compares_above_every_number() -> None:
    assert mask_of("c > 5", "double", FLOATS) == [False, False, True, True, None]
    assert mask_of("c >= 5", "double", FLOATS) == [False, True, True, True, None]
    assert mask_of("c < 5", "double", FLOATS) == [True, False, False, False, None]
    assert mask_of("c != 5", "double", FLOATS) == [True, False, True, True, None]


def test_is_nan_of_null_is_false() -> None:
    assert mask_of("c is nan", "double", FLOATS) == [False, False, False, True, False]
    assert mask_of("c is not nan", "double", FLOATS) == [True, True, True, False, True]


@for_each(("kind", "arrow"), [("float", pa.float32()), ("double", pa.float64()), ("double", pa.float32())], ids=str)
@for_each("text", float_filters("c"))
def test_every_comparison_of_floats_equals_that_of_the_oracle(text: str, kind: str, arrow: pa.DataType) -> None:
    values = [None, -0.0, 0.0, math.nan, math.copysign(math.nan, -1.0), -1.5, 1.5, math.inf, -math.inf]
    expression = bind(parse_expression(text), Schema((Field("c", type_from_json(kind)),)), {})
    expected = [truth(expression, {"c": value}) for value in values]
    column: Any = pa.array(values, arrow)
    assert mask_of(text, kind, column) == expected
    assert mask_of(text, kind, column.dictionary_encode()) == expected


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_negative_zero_equals_zero_also_in_a_list(zero: float) -> None:
    column = pa.array([zero], pa.float64())
    assert mask_of("c in (0, 7)", "double", column) == [True]
    assert mask_of("c = -0.0", "double", column) == [True]
    assert mask_of("c < 0", "double", column) == [False]


def test_null_in_or_not_in_a_list_is_unknown() -> None:
    column = pa.array([1, None], pa.int32())
    assert mask_of("c in (1)", "int", column) == [True, None]
    assert mask_of("c not in (1)", "int", column) == [False, None]
    assert mask_of("not (c in (1)) or c is null", "int", column) == [False, True]


def test_a_prefix_is_compared_as_text_and_not_as_a_pattern() -> None:
    column = pa.array(["a%b", "axb", None], pa.string())
    assert mask_of("c starts with 'a%'", "string", column) == [True, False, None]
    assert mask_of("c not starts with 'a%'", "string", column) == [False, True, None]


def test_null_values_of_a_dictionary_are_null() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int8()), pa.array(["a", None], pa.string()))
    assert mask_of("c is null", "string", column) == [False, True, True]
    assert mask_of("c = 'a'", "string", column) == [True, None, None]


def test_run_end_encoded_columns_are_filtered() -> None:
    column: Any = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([1, None], pa.int64()))
    assert mask_of("c is null", "long", column) == [False, False, True]
    assert mask_of("c = 1", "long", column) == [True, True, None]


def test_literals_are_compared_in_the_unit_of_the_schema_whatever_the_data_has() -> None:
    column = pa.array([1, 2], pa.timestamp("s"))
    assert mask_of("c = '1970-01-01T00:00:01'", "timestamp", column) == [True, False]


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
def test_data_of_another_type_is_refused(kind: str, literal: str, column: Any) -> None:
    with pytest.raises(InputError) as caught:
        mask_of(f"c = {literal}", kind, column)
    assert caught.value.reason == "filter_type_differs"


@pytest.mark.parametrize("names", [["x"], ["c", "c"]])
def test_a_missing_or_repeated_column_is_refused(names: list[str]) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1])] * len(names), names=names)
    expression = bind(parse_expression("c = 1"), Schema((Field("c", type_from_json("long")),)), {})
    with pytest.raises(InputError) as caught:
        compute_mask(batch, expression)
    assert caught.value.reason == "column_missing"


def test_a_filter_that_is_not_bound_is_an_assertion_error() -> None:
    with pytest.raises(AssertionError):
        compute_mask(pa.RecordBatch.from_arrays([pa.array([1])], names=["c"]), parse_expression("c = 1"))


def test_rows_with_an_unknown_result_are_removed_also_from_string_views() -> None:
    batch = pa.RecordBatch.from_arrays(
        [pa.array([1, 2, None]), pa.array(["a", "b", "c"], pa.string_view())], names=["c", "text"]
    )
    expression = bind(parse_expression("c > 1"), Schema((Field("c", type_from_json("long")),)), {})
    assert filter_rows(batch, expression).to_pylist() == [{"c": 2, "text": "b"}]
