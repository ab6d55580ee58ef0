"""Filters over Arrow batches, with SQL's three-valued logic and Spark's order of floats."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import pyarrow as pa

from pvdm.errors import Code
from pvdm.lake.read.resolve import arrow_type, pc, scalar
from pvdm.model.filter import expression as ex
from pvdm.model.schema import Type

Mask: TypeAlias = pa.BooleanArray
_Column: TypeAlias = Any
"""An Arrow array of any type; the stubs have a class for each."""

_COMPARISONS: Final[dict[ex.Operator, Callable[..., Any]]] = {
    ex.Operator.EQUAL: pc.equal,
    ex.Operator.NOT_EQUAL: pc.not_equal,
    ex.Operator.LESS: pc.less,
    ex.Operator.LESS_OR_EQUAL: pc.less_equal,
    ex.Operator.GREATER: pc.greater,
    ex.Operator.GREATER_OR_EQUAL: pc.greater_equal,
}
_ABOVE: Final = frozenset({ex.Operator.GREATER, ex.Operator.GREATER_OR_EQUAL})
_VIEWS: Final[dict[pa.DataType, pa.DataType]] = {
    pa.string_view(): pa.large_string(),
    pa.binary_view(): pa.large_binary(),
}


def kept(batch: pa.RecordBatch, expression: ex.Expression) -> pa.RecordBatch:
    """The rows for which a bound filter is true, and not unknown."""
    if isinstance(expression, ex.Always):
        return batch
    return _without_views(batch).filter(mask(batch, expression), null_selection_behavior="drop")


def _without_views(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch without columns of views, which Arrow cannot filter."""
    types = [_VIEWS.get(each, each) for each in batch.schema.types]
    if types == batch.schema.types:
        return batch
    arrays: list[_Column] = [column.cast(kind) for column, kind in zip(batch.columns, types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def mask(batch: pa.RecordBatch, expression: ex.Expression) -> Mask:
    """True, false or null for each row."""
    found: Mask
    match expression:
        case ex.Always():
            found = pa.repeat(pa.scalar(True), batch.num_rows)
        case ex.And(parts):
            found = functools.reduce(pc.and_kleene, (mask(batch, part) for part in parts))
        case ex.Or(parts):
            found = functools.reduce(pc.or_kleene, (mask(batch, part) for part in parts))
        case ex.Not(part):
            found = pc.invert(mask(batch, part))
        case _:
            found = _predicate(_column(batch, expression.column), expression)
    return found


def _predicate(column: _Column, predicate: ex.Predicate) -> Mask:
    found: Mask
    match predicate:
        case ex.IsNull(_, negated):
            found = pc.is_null(column)
        case ex.IsNan(_, negated):
            # Spark's isnan is false for null, so `not` makes it true.
            found = pc.fill_null(pc.is_nan(column), False)
        case ex.Compare(_, operator, literal):
            return _compared(column, operator, literal)
        case ex.OneOf(_, literals, negated):
            found = _among(column, literals)
        case ex.StartsWith(_, prefix, negated):
            typed = ex.typed(prefix)
            found = pc.starts_with(_as(column, typed.type), str(typed.value))
    return pc.invert(found) if negated else found


def _compared(column: _Column, operator: ex.Operator, literal: ex.Literal) -> Mask:
    typed = ex.typed(literal)
    column = _as(column, typed.type)
    found: Mask = _COMPARISONS[operator](column, scalar(typed.value, typed.type))
    if operator in _ABOVE and pa.types.is_floating(column.type):
        # NaN is above every number for Spark and Iceberg; Arrow compares it as false.
        found = pc.or_kleene(found, pc.is_nan(column))
    return found


def _among(column: _Column, literals: tuple[ex.Literal, ...]) -> Mask:
    typed = [ex.typed(each) for each in literals]
    column = _as(column, typed[0].type)
    if pa.types.is_floating(column.type):
        # Arrow compares bits here; adding zero makes -0.0 equal to 0.0.
        column = pc.add(column, pa.scalar(0.0, column.type))
    # A UUID is compared as its bytes.
    wanted = pa.array([getattr(each.value, "bytes", each.value) for each in typed], column.type)
    found = pc.is_in(column, value_set=wanted)
    masked: Mask = pc.if_else(pc.is_valid(column), found, pa.scalar(None, pa.bool_()))
    return masked


def plain_column(batch: pa.RecordBatch, name: str, kind: Type) -> _Column:
    """A column of a simple type, decoded, in the Arrow type of its literals."""
    return _as(_column(batch, name), kind)


def _column(batch: pa.RecordBatch, name: str) -> _Column:
    """The column without dictionary, run ends or extension, so that nulls are the array's own."""
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
    """The column in the Arrow type of its literals; raises where a value would change."""
    wanted = arrow_type(kind)
    if column.type == wanted:
        return column
    if _same_meaning(column.type, wanted):
        try:
            return column.cast(wanted)
        except pa.ArrowInvalid:
            pass  # a value does not fit
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
