"""Decides contract filters row by row in plain Python, to check the real code; and random columns, rows and filters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, cast
from uuid import UUID

import pyarrow as pa
from hypothesis import strategies as st

from pvdm.model.filter.expression import (
    Always,
    And,
    BoundLiteral,
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
    StartsWith,
)
from pvdm.model.filter.literal import canonical_literal
from pvdm.model.schema import DecimalType, Field, FixedType, Kind, PrimitiveType, Schema, Type

Row = Mapping[str, LiteralValue | None]
Truth = bool | None
"""None is SQL's unknown."""

_SECOND_US: Final = 10**6
_DAY_US: Final = 86_400 * _SECOND_US

SAMPLES: Final[dict[Type, tuple[Any, ...]]] = {
    PrimitiveType(Kind.BOOLEAN): (True, False),
    PrimitiveType(Kind.INT): (-(2**31), -1, 0, 1, 2**31 - 1),
    PrimitiveType(Kind.LONG): (-(2**63), -1, 0, 2**53 + 1, 2**63 - 1),
    PrimitiveType(Kind.FLOAT): (-math.inf, -1.5, -0.0, 0.0, 0.5, 2.0**127, math.inf, math.nan),
    PrimitiveType(Kind.DOUBLE): (-math.inf, -1.5, -0.0, 0.0, 0.1, 5e-324, 1.7e308, math.inf, math.nan),
    PrimitiveType(Kind.DATE): (-(2**31), -1, 0, 20_000, 2**31 - 1),
    PrimitiveType(Kind.TIME): (0, 1, _DAY_US - 1),
    PrimitiveType(Kind.TIME_NS): (0, 1, _DAY_US * 1000 - 1),
    PrimitiveType(Kind.TIMESTAMP): (-(2**63), -1, 0, _DAY_US, 2**63 - 1),
    PrimitiveType(Kind.TIMESTAMPTZ): (-(2**63), -1, 0, _DAY_US, 2**63 - 1),
    PrimitiveType(Kind.TIMESTAMP_NS): (-(2**63), -1, 0, 1, 2**63 - 1),
    PrimitiveType(Kind.TIMESTAMPTZ_NS): (-(2**63), -1, 0, 1, 2**63 - 1),
    PrimitiveType(Kind.STRING): ("", "a", "ab", "a%", "A", "'", "\U0001f600", "é", "null", "\n"),
    PrimitiveType(Kind.UUID): (UUID(int=0), UUID(int=1), UUID(int=2**128 - 1)),
    PrimitiveType(Kind.BINARY): (b"", b"\0", b"a", b"a\xff", b"\xff"),
    FixedType(2): (b"\0\0", b"a\xff", b"\xff\xff"),
    DecimalType(9, 2): (Decimal("-9999999.99"), Decimal("-0.01"), Decimal("0.00"), Decimal("12.30")),
    DecimalType(76, 0): (Decimal(-(10**76) + 1), Decimal(0), Decimal(10**40 + 1), Decimal(10**76 - 1)),
}
"""Values of every type that has literals, with its least and greatest. They are few, so that rows match filters."""

TYPES: Final = tuple(SAMPLES)
_UNORDERED: Final = (PrimitiveType(Kind.BOOLEAN), PrimitiveType(Kind.UUID))
_FLOATS: Final = (PrimitiveType(Kind.FLOAT), PrimitiveType(Kind.DOUBLE))
_ARROW: Final[dict[Type, tuple[pa.DataType, ...]]] = {
    PrimitiveType(Kind.BOOLEAN): (pa.bool_(),),
    PrimitiveType(Kind.INT): (pa.int32(), pa.int64()),
    PrimitiveType(Kind.LONG): (pa.int64(),),
    PrimitiveType(Kind.FLOAT): (pa.float32(),),
    PrimitiveType(Kind.DOUBLE): (pa.float64(),),
    PrimitiveType(Kind.DATE): (pa.date32(),),
    PrimitiveType(Kind.TIME): (pa.time64("us"), pa.time64("ns")),
    PrimitiveType(Kind.TIME_NS): (pa.time64("ns"),),
    PrimitiveType(Kind.TIMESTAMP): (pa.timestamp("us"),),
    PrimitiveType(Kind.TIMESTAMPTZ): (pa.timestamp("us", "UTC"), pa.timestamp("us", "America/New_York")),
    PrimitiveType(Kind.TIMESTAMP_NS): (pa.timestamp("ns"),),
    PrimitiveType(Kind.TIMESTAMPTZ_NS): (pa.timestamp("ns", "UTC"),),
    PrimitiveType(Kind.STRING): (pa.string(), pa.large_string(), pa.string_view()),
    PrimitiveType(Kind.UUID): (pa.binary(16), pa.uuid()),
    PrimitiveType(Kind.BINARY): (pa.binary(), pa.large_binary(), pa.binary_view()),
    FixedType(2): (pa.binary(2),),
    DecimalType(9, 2): (pa.decimal128(9, 2), pa.decimal32(9, 2), pa.decimal256(9, 2)),
    DecimalType(76, 0): (pa.decimal256(76, 0),),
}


def truth(expression: Expression, row: Row) -> Truth:
    """The value of the filter for a row in Spark's WHERE."""
    match expression:
        case Always():
            return True
        case And(parts):
            values = [truth(part, row) for part in parts]
            if False in values:
                return False
            return None if None in values else True
        case Or(parts):
            values = [truth(part, row) for part in parts]
            if True in values:
                return True
            return None if None in values else False
        case Not(part):
            inner = truth(part, row)
            return None if inner is None else not inner
        case IsNull(column, negated):
            return (row[column] is None) != negated
        case IsNan(column, negated):
            value = row[column]
            return (isinstance(value, float) and math.isnan(value)) != negated
    value = row[expression.column]
    if value is None:
        return None
    match expression:
        case Compare(_, operator, literal):
            return _compare(operator, _sort_key(value), _sort_key(_value(literal)))
        case OneOf(_, literals, negated):
            return any(_sort_key(value) == _sort_key(_value(each)) for each in literals) != negated
        case StartsWith(_, prefix, negated):
            return str(value).startswith(str(_value(prefix))) != negated


def keeps(expression: Expression, row: Row) -> bool:
    """Whether a filter keeps a row. It drops rows for which it is unknown."""
    return truth(expression, row) is True


def _value(literal: Literal) -> LiteralValue:
    assert isinstance(literal, BoundLiteral)
    return literal.value


def _sort_key(value: Any) -> Any:
    """A key that Python orders as Spark orders the value: NaN is above all numbers, strings are compared as UTF-8."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value.encode() if isinstance(value, str) else value


def _compare(operator: Operator, left: Any, right: Any) -> bool:
    match operator:
        case Operator.EQUAL:
            return bool(left == right)
        case Operator.NOT_EQUAL:
            return bool(left != right)
        case Operator.LESS:
            return bool(left < right)
        case Operator.LESS_OR_EQUAL:
            return bool(left <= right)
        case Operator.GREATER:
            return bool(left > right)
        case Operator.GREATER_OR_EQUAL:
            return bool(left >= right)


def float_filters(column: str) -> list[str]:
    """Texts of filters on a float column: every operator with 0.0, -0.0 and 1.5, and each filter negated."""
    found = [f"{column} is nan", f"{column} is not nan", f"{column} is null", f"{column} is not null"]
    for literal in ("0.0", "-0.0", "1.5"):
        found += [f"{column} {operator.value} {literal}" for operator in Operator]
        found += [
            f"{column} {among} ({literals})" for among in ("in", "not in") for literals in (literal, f"{literal}, 7")
        ]
    found.append(f"{column} >= -100 and {column} < 0")
    return found + [f"not ({each})" for each in found]


@dataclass(frozen=True)
class Table:
    """A random table: its schema, its rows for `truth`, and the same rows as an Arrow batch."""

    schema: Schema
    rows: tuple[Row, ...]
    batch: pa.RecordBatch


@st.composite
def tables(draw: st.DrawFn, *, columns_max: int = 4, rows_max: int = 12) -> Table:
    """A table with random columns and random rows of the samples."""
    kinds = draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=columns_max))
    schema = Schema(tuple(Field(f"c{position}", kind) for position, kind in enumerate(kinds)))
    cells = {field.name: st.none() | st.sampled_from(SAMPLES[field.type]) for field in schema.fields}
    rows = tuple(draw(st.lists(st.fixed_dictionaries(cells), max_size=rows_max)))
    arrays = [arrow_column(draw, field, rows) for field in schema.fields]
    return Table(schema, rows, pa.RecordBatch.from_arrays(arrays, names=list(schema.names)))


def arrow_column(draw: st.DrawFn, field: Field, rows: Sequence[Row]) -> pa.Array[Any]:
    """The column in a random Arrow type that can hold it, dictionary-encoded or not."""
    arrow_type = draw(st.sampled_from(_ARROW[field.type]))
    values = [row[field.name] for row in rows]
    if arrow_type == pa.time64("ns") and field.type == PrimitiveType(Kind.TIME):
        values = [None if value is None else int(str(value)) * 1000 for value in values]
    plain = [getattr(value, "bytes", value) for value in values]
    if isinstance(arrow_type, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(arrow_type, pa.array(plain, arrow_type.storage_type))
    array = cast("pa.Array[Any]", pa.array(plain, arrow_type))
    encodable = not pa.types.is_decimal(arrow_type) and arrow_type not in (pa.string_view(), pa.binary_view())
    return array.dictionary_encode() if encodable and draw(st.booleans()) else array


@st.composite
def filters(draw: st.DrawFn, schema: Schema, depth: int = 3) -> Expression:
    """A random filter on the schema's columns, with every form of the grammar. Its literals have the columns' types."""
    forms = ("predicate", "predicate", "not", "and", "or", "true") if depth else ("predicate",)
    form = draw(st.sampled_from(forms))
    if form == "true":
        return Always()
    if form == "not":
        return Not(draw(filters(schema, depth - 1)))
    if form in ("and", "or"):
        parts = tuple(draw(st.lists(filters(schema, depth - 1), min_size=2, max_size=3)))
        return And(parts) if form == "and" else Or(parts)
    return draw(_predicates(draw(st.sampled_from(schema.fields))))


def _predicates(field: Field) -> st.SearchStrategy[Expression]:
    literals = typed_literals(field.type)
    operators = (Operator.EQUAL, Operator.NOT_EQUAL) if field.type in _UNORDERED else tuple(Operator)
    forms: list[st.SearchStrategy[Expression]] = [
        st.builds(IsNull, st.just(field.name), st.booleans()),
        st.builds(Compare, st.just(field.name), st.sampled_from(operators), literals),
        st.builds(Compare, st.just(field.name), st.sampled_from(operators), literals),
        st.builds(OneOf, st.just(field.name), st.lists(literals, min_size=1, max_size=3).map(tuple), st.booleans()),
    ]
    if field.type in _FLOATS:
        forms.append(st.builds(IsNan, st.just(field.name), st.booleans()))
    if field.type == PrimitiveType(Kind.STRING):
        forms.append(st.builds(StartsWith, st.just(field.name), literals, st.booleans()))
    return st.one_of(forms)


def typed_literals(kind: Type) -> st.SearchStrategy[BoundLiteral]:
    """Literals for the type's samples. NaN and the infinities have no spelling, so they are left out."""
    literals = []
    for value in SAMPLES[kind]:
        text = canonical_literal(value, kind)
        if text is not None:
            positive_zero = value + 0.0 if isinstance(value, float) else value  # -0.0 becomes 0.0
            literals.append(BoundLiteral(positive_zero, text, kind))
    return st.sampled_from(literals)
