"""Filters over Arrow give what a slow oracle gives row by row; their text binds to the same filter."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pvdm.model.filter.bind import bind
from pvdm.model.filter.text import parse_expression
from pvdm.verify.filtering import compute_mask, filter_rows
from tests.support.oracles.filters import SAMPLES, TYPES, filters, keeps, tables, truth

pytestmark = pytest.mark.property


@given(st.data())
def test_a_filter_is_true_false_or_unknown_as_the_oracle_says(data: st.DataObject) -> None:
    table = data.draw(tables())
    expression = data.draw(filters(table.schema))
    assert compute_mask(table.batch, expression).to_pylist() == [truth(expression, row) for row in table.rows]


@given(st.data())
def test_the_rows_that_are_true_are_kept_and_no_other(data: st.DataObject) -> None:
    table = data.draw(tables(columns_max=2))
    expression = data.draw(filters(table.schema, depth=1))
    numbered = table.batch.append_column("row", pa.array(range(len(table.rows)), pa.int64()))
    wanted = [at for at, row in enumerate(table.rows) if keeps(expression, row)]
    assert filter_rows(numbered, expression).column("row").to_pylist() == wanted


@given(st.data())
def test_the_text_of_a_bound_filter_binds_to_the_same_filter(data: st.DataObject) -> None:
    table = data.draw(tables(rows_max=0))
    expression = data.draw(filters(table.schema))
    assert bind(parse_expression(str(expression)), table.schema, {}) == expression


def test_every_simple_type_is_tried() -> None:
    kinds = {str(kind).partition("(")[0] for kind in TYPES}
    assert len(SAMPLES) == 18
    assert kinds >= {"boolean", "int", "long", "float", "double", "decimal", "date", "time", "time_ns", "timestamp"}
    assert kinds >= {"timestamptz", "timestamp_ns", "timestamptz_ns", "string", "uuid", "fixed", "binary"}
