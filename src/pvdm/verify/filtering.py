"""Filters over Arrow batches: SQL's three-valued logic, Spark's order of floats, no row by row."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute

from pvdm.errors import Code
from pvdm.lake.read.resolve import arrow_type
from pvdm.model.filter.expression import (
    Always,
    And,
    Compare,
    Expression,
    IsNan,
    IsNull,
    Literal,
    Not,
    OneOf,
    Operator,
    Or,
    Predicate,
    StartsWith,
    Typed,
)
from pvdm.model.schema import Type

pc: Any = pyarrow.compute  # its stubs know neither every function nor what comes out for an array of any type

Mask: TypeAlias = pa.BooleanArray
_Column: TypeAlias = Any
"""An Arrow array of whatever type; its stubs have a class for each."""

_COMPARISONS: Final[dict[Operator, Callable[..., Any]]] = {
    Operator.EQUAL: pc.equal,
    Operator.NOT_EQUAL: pc.not_equal,
    Operator.LESS: pc.less,
    Operator.LESS_OR_EQUAL: pc.less_equal,
    Operator.GREATER: pc.greater,
    Operator.GREATER_OR_EQUAL: pc.greater_equal,
}
_ABOVE: Final = frozenset({Operator.GREATER, Operator.GREATER_OR_EQUAL})
_VIEWS: Final[dict[pa.DataType, pa.DataType]] = {
    pa.string_view(): pa.large_string(),
    pa.binary_view(): pa.large_binary(),
}


def kept(batch: pa.RecordBatch, expression: Expression) -> pa.RecordBatch:
    """The rows for which a bound filter is true; unknown is not true."""
    if isinstance(expression, Always):
        return batch
    return _without_views(batch).filter(mask(batch, expression), null_selection_behavior="drop")


def _without_views(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Arrow cannot take rows out of a column of views."""
    types = [_VIEWS.get(each, each) for each in batch.schema.types]
    if types == batch.schema.types:
        return batch
    arrays: list[_Column] = [column.cast(kind) for column, kind in zip(batch.columns, types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def mask(batch: pa.RecordBatch, expression: Expression) -> Mask:
    """True, false or null for each row."""
    found: Mask
    match expression:
        case Always():
            found = pa.repeat(pa.scalar(True), batch.num_rows)
        case And(parts):
            found = functools.reduce(pc.and_kleene, (mask(batch, part) for part in parts))
        case Or(parts):
            found = functools.reduce(pc.or_kleene, (mask(batch, part) for part in parts))
        case Not(part):
            found = pc.invert(mask(batch, part))
        case _:
            found = _predicate(_column(batch, expression.column), expression)
    return found


def _predicate(column: _Column, predicate: Predicate) -> Mask:
    found: Mask
    match predicate:
        case IsNull(_, negated):
            found = pc.is_null(column)
        case IsNan(_, negated):
            # Null is not NaN: Spark's isnan says false of it, and `not` turns that round.
            found = pc.fill_null(pc.is_nan(column), False)
        case Compare(_, operator, literal):
            return _compared(column, operator, literal)
        case OneOf(_, literals, negated):
            found = _among(column, literals)
        case StartsWith(_, prefix, negated):
            typed = _typed(prefix)
            found = pc.starts_with(_as(column, typed.type), str(typed.value))
    return pc.invert(found) if negated else found


def _compared(column: _Column, operator: Operator, literal: Literal) -> Mask:
    typed = _typed(literal)
    column = _as(column, typed.type)
    found: Mask = _COMPARISONS[operator](column, _scalar(typed))
    if operator in _ABOVE and pa.types.is_floating(column.type):
        # NaN is above every number, as Spark and Iceberg order it; Arrow would say false.
        found = pc.or_kleene(found, pc.is_nan(column))
    return found


def _among(column: _Column, literals: tuple[Literal, ...]) -> Mask:
    typed = [_typed(each) for each in literals]
    column = _as(column, typed[0].type)
    if pa.types.is_floating(column.type):
        # Arrow looks floats up by their bits, and negative zero is zero.
        column = pc.add(column, pa.scalar(0.0, column.type))
    wanted = pa.array([_raw(each) for each in typed], column.type)
    found = pc.is_in(column, value_set=wanted)
    masked: Mask = pc.if_else(pc.is_valid(column), found, pa.scalar(None, pa.bool_()))
    return masked


def _typed(literal: Literal) -> Typed:
    if not isinstance(literal, Typed):
        raise AssertionError("a filter is bound before it is used")
    return literal


def _scalar(literal: Typed) -> pa.Scalar[Any]:
    made: pa.Scalar[Any] = pa.scalar(_raw(literal), arrow_type(literal.type))
    return made


def _raw(literal: Typed) -> Any:
    """As Arrow counts it; a UUID is its bytes."""
    return getattr(literal.value, "bytes", literal.value)


def plain_column(batch: pa.RecordBatch, name: str, kind: Type) -> _Column:
    """A column of a simple type, written out in the Arrow type of its literals."""
    return _as(_column(batch, name), kind)


def _column(batch: pa.RecordBatch, name: str) -> _Column:
    """Written out, without dictionary, run ends or extension: nulls are then the array's own."""
    found = batch.schema.get_all_field_indices(name)
    if len(found) != 1:
        raise Code.COLUMN_MISSING(f"the data has no one column {name!r}", got=str(len(found)))
    column: _Column = batch.column(found[0])
    while True:
        if isinstance(column, pa.ExtensionArray):
            column = column.storage
        elif isinstance(column, pa.DictionaryArray):
            column = column.dictionary_decode()
        elif isinstance(column, pa.RunEndEncodedArray):
            column = pc.run_end_decode(column)
        else:
            return column


def _as(column: _Column, kind: Type) -> _Column:
    """The column in the Arrow type of its literals; only what means the same there, and never a value changed."""
    wanted = arrow_type(kind)
    if column.type == wanted:
        return column
    if _same_meaning(column.type, wanted):
        try:
            return column.cast(wanted)
        except pa.ArrowInvalid:
            pass  # a value does not fit, so the column is of a wider type than it says
    raise Code.FILTER_TYPE_DIFFERS(expected=str(kind), got=str(column.type)[:120])


def _same_meaning(given: pa.DataType, wanted: pa.DataType) -> bool:
    types = pa.types
    if types.is_timestamp(wanted):
        return types.is_timestamp(given) and (given.tz is None) == (wanted.tz is None)
    if types.is_decimal(wanted):
        return types.is_decimal(given) and given.scale == wanted.scale
    if types.is_large_string(wanted):
        return types.is_string(given) or types.is_string_view(given)
    if types.is_large_binary(wanted):
        return types.is_binary(given) or types.is_binary_view(given)
    return (
        (types.is_integer(wanted) and types.is_integer(given))
        or (types.is_floating(wanted) and types.is_floating(given) and given.bit_width <= wanted.bit_width)
        or (types.is_time(wanted) and types.is_time(given))
    )
