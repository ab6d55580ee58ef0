"""Filters of the closed grammar as Spark's columns: built from values, never from SQL text."""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Any, Final

from pvdm.errors import InputError
from pvdm.model.filter.expression import (
    Always,
    And,
    Compare,
    Expression,
    IsNan,
    IsNull,
    Literal,
    LiteralValue,
    Not,
    OneOf,
    Operator,
    Or,
    Predicate,
    StartsWith,
    Typed,
)
from pvdm.model.filter.literal import literal_text
from pvdm.model.schema import DecimalType, FixedType, Kind, ListType, MapType, PrimitiveType, StructType, Type
from pvdm.physical.spark_columns import spark_name

if TYPE_CHECKING:
    from pyspark.sql import Column

_COMPARISONS: Final[dict[Operator, Any]] = {
    Operator.EQUAL: operator.eq,
    Operator.NOT_EQUAL: operator.ne,
    Operator.LESS: operator.lt,
    Operator.LESS_OR_EQUAL: operator.le,
    Operator.GREATER: operator.gt,
    Operator.GREATER_OR_EQUAL: operator.ge,
}
_SPARK: Final[dict[Kind, str]] = {
    Kind.BOOLEAN: "boolean",
    Kind.INT: "int",
    Kind.LONG: "bigint",
    Kind.FLOAT: "float",
    Kind.DOUBLE: "double",
    Kind.DATE: "date",
    Kind.TIMESTAMP: "timestamp_ntz",
    Kind.TIMESTAMPTZ: "timestamp",
    Kind.STRING: "string",
    Kind.UUID: "string",
}
_FLOATS: Final = (PrimitiveType(Kind.FLOAT), PrimitiveType(Kind.DOUBLE))
_BY_TEXT: Final = frozenset({Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ, Kind.UUID})


def condition(expression: Expression) -> Column:
    """True, false or null for each row, as the grammar means it."""
    from pyspark.sql import functions

    match expression:
        case Always():
            return functions.lit(True)
        case And(parts):
            return functools.reduce(operator.and_, (condition(part) for part in parts))
        case Or(parts):
            return functools.reduce(operator.or_, (condition(part) for part in parts))
        case Not(part):
            return ~condition(part)
        case _:
            return _predicate(expression)


def spark_type(kind: Type) -> str:
    """The type's name in Spark."""
    match kind:
        case PrimitiveType(primitive) if primitive in _SPARK:
            return _SPARK[primitive]
        case PrimitiveType(Kind.BINARY) | FixedType():
            return "binary"
        case DecimalType(precision, scale):
            return f"decimal({precision},{scale})"
    raise InputError(
        "spark_type_unsupported",
        "Spark has no values of this type",
        expected="another type",
        got=str(kind),
        hint="write a job for it: pvdm run --job module:function",
    )


def literal(value: LiteralValue, kind: Type) -> Column:
    """A value in its column's type; times by their texts, which no session's time zone changes."""
    from pyspark.sql import functions

    name = spark_type(kind)
    if isinstance(kind, PrimitiveType) and kind.kind in _BY_TEXT:
        return functions.lit(literal_text(value, kind)).cast(name)
    return functions.lit(value).cast(name)


def null_of(kind: Type) -> Column:
    """No value, of this type."""
    from pyspark.sql import functions

    return functions.lit(None).cast(_full_type(kind))


def _full_type(kind: Type) -> str:
    """The type's name in Spark, nested types included."""
    match kind:
        case StructType(fields):
            return f"struct<{', '.join(f'{spark_name(each.name)}: {_full_type(each.type)}' for each in fields)}>"
        case ListType(element):
            return f"array<{_full_type(element.type)}>"
        case MapType(key, value):
            return f"map<{_full_type(key.type)}, {_full_type(value.type)}>"
        case PrimitiveType(Kind.VARIANT):
            return "variant"
        case _:
            return spark_type(kind)


def _predicate(predicate: Predicate) -> Column:
    from pyspark.sql import functions

    column = functions.col(spark_name(predicate.column))
    match predicate:
        case IsNull(_, negated):
            found = column.isNull()
        case IsNan(_, negated):
            found = functions.isnan(column)
        case Compare(_, sign, given):
            compared: Column = _COMPARISONS[sign](_comparable(column, given), _literal(given))
            return compared
        case OneOf(_, literals, negated):
            # Not by a set: Spark looks floats up there by their bits, and negative zero is zero.
            found = functools.reduce(operator.or_, (_comparable(column, each) == _literal(each) for each in literals))
        case StartsWith(_, prefix, negated):
            found = column.startswith(_literal(prefix))
    return ~found if negated else found


def _comparable(column: Column, given: Literal) -> Column:
    """The column in a form that only Spark compares, where its sources have an order of their own.

    Iceberg and Parquet leave out partitions, files and row groups by what they know of floats and uuids. There -0.0 is
    below 0.0, bounds do not count NaN, which Spark has above all numbers, and Iceberg compares uuids with a sign. Spark
    hands no predicate over a sum or a concatenation down to them. A sum with zero is the value, with 0.0 for -0.0.
    """
    from pyspark.sql import functions

    kind = _typed(given).type
    if kind in _FLOATS:
        return column + literal(0.0, kind)
    return functions.concat(column, functions.lit("")) if kind == PrimitiveType(Kind.UUID) else column


def _typed(given: Literal) -> Typed:
    if not isinstance(given, Typed):
        raise AssertionError("a filter is bound before it is used")
    return given


def _literal(given: Literal) -> Column:
    typed = _typed(given)
    return literal(typed.value, typed.type)
