"""Filters over Arrow batches, with SQL's three-valued logic and Spark's order of floats."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import pyarrow as pa

from pvdm.errors import Code
from pvdm.lake.read.resolve import arrow_type, pc, to_scalar
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
_GREATER: Final = frozenset({ex.Operator.GREATER, ex.Operator.GREATER_OR_EQUAL})
_VIEWS: Final[dict[pa.DataType, pa.DataType]] = {
    pa.string_view(): pa.large_string(),
    pa.binary_view(): pa.large_binary(),
}


def filter_rows(batch: pa.RecordBatch, expression: ex.Expression) -> pa.RecordBatch:
    """The rows for which a bound filter (one with typed literals) is true; false and unknown (null) drop the row."""
    if isinstance(expression, ex.Always):
        return batch
    return _cast_views(batch).filter(compute_mask(batch, expression), null_selection_behavior="drop")


def _cast_views(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with columns of Arrow's view types cast to plain types, because Arrow cannot filter views."""
    types = [_VIEWS.get(each, each) for each in batch.schema.types]
    if types == batch.schema.types:
        return batch
    arrays: list[_Column] = [column.cast(kind) for column, kind in zip(batch.columns, types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def compute_mask(batch: pa.RecordBatch, expression: ex.Expression) -> Mask:
    """The result of a bound filter for each row: true, false, or null for unknown."""
    result: Mask
    match expression:
        case ex.Always():
            result = pa.repeat(pa.scalar(True), batch.num_rows)
        case ex.And(parts):
            result = functools.reduce(pc.and_kleene, (compute_mask(batch, part) for part in parts))
        case ex.Or(parts):
            result = functools.reduce(pc.or_kleene, (compute_mask(batch, part) for part in parts))
        case ex.Not(part):
            result = pc.invert(compute_mask(batch, part))
        case _:
            result = _evaluate(expression, _decode_column(batch, expression.column))
    return result


def _evaluate(predicate: ex.Predicate, column: _Column) -> Mask:
    result: Mask
    match predicate:
        case ex.IsNull(_, negated):
            result = pc.is_null(column)
        case ex.IsNan(_, negated):
            # Spark's isnan is false for null, so `not` makes it true.
            result = pc.fill_null(pc.is_nan(column), False)
        case ex.Compare(_, operator, literal):
            return _compare(column, operator, literal)
        case ex.OneOf(_, literals, negated):
            result = _is_one_of(column, literals)
        case ex.StartsWith(_, prefix, negated):
            typed = ex.require_typed(prefix)
            result = pc.starts_with(_cast(column, typed.type), str(typed.value))
    return pc.invert(result) if negated else result


def _compare(column: _Column, operator: ex.Operator, literal: ex.Literal) -> Mask:
    typed = ex.require_typed(literal)
    column = _cast(column, typed.type)
    result: Mask = _COMPARISONS[operator](column, to_scalar(typed.value, typed.type))
    if operator in _GREATER and pa.types.is_floating(column.type):
        # Spark and Iceberg order NaN above every number; Arrow's comparison with NaN is false.
        result = pc.or_kleene(result, pc.is_nan(column))
    return result


def _is_one_of(column: _Column, literals: tuple[ex.Literal, ...]) -> Mask:
    typed = [ex.require_typed(each) for each in literals]
    column = _cast(column, typed[0].type)
    if pa.types.is_floating(column.type):
        # Arrow compares bits here; adding zero makes -0.0 equal to 0.0.
        column = pc.add(column, pa.scalar(0.0, column.type))
    # A UUID is compared as its bytes.
    values = pa.array([getattr(each.value, "bytes", each.value) for each in typed], column.type)
    result: Mask = pc.if_else(pc.is_valid(column), pc.is_in(column, value_set=values), pa.scalar(None, pa.bool_()))
    return result


def decode_and_cast(batch: pa.RecordBatch, name: str, kind: Type) -> _Column:
    """The column, decoded (`_decode_column`) and cast to the Arrow type of `kind`; raises if a value would change."""
    return _cast(_decode_column(batch, name), kind)


def _decode_column(batch: pa.RecordBatch, name: str) -> _Column:
    """The column without dictionary, run ends or extension, so that its validity bitmap has all nulls."""
    indices = batch.schema.get_all_field_indices(name)
    if len(indices) != 1:
        message = f"the data does not have exactly one column {name!r}"
        raise Code.COLUMNS_MISMATCH(message, reason="column_missing", got=f"{len(indices)} columns of this name")
    column: _Column = batch.column(indices[0])
    while True:
        if isinstance(column, pa.ExtensionArray):
            column = column.storage
        elif isinstance(column, pa.DictionaryArray):
            column = column.dictionary_decode()
        elif isinstance(column, pa.RunEndEncodedArray):
            column = pc.run_end_decode(column)
        else:
            return column


def _cast(column: _Column, kind: Type) -> _Column:
    """The column cast to the Arrow type of `kind`; raises if a value would change."""
    wanted = arrow_type(kind)
    if column.type == wanted:
        return column
    if _is_lossless(column.type, wanted):
        try:
            return column.cast(wanted)
        except pa.ArrowInvalid:
            pass  # a value is out of the range of the type
    raise Code.FILTER_INVALID(reason="filter_type_differs", expected=str(kind), got=str(column.type)[:120])


def _is_lossless(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values keep their meaning in the wanted type. A value can still be out of its range."""
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
