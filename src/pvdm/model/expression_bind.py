"""Binds a filter to a schema: columns that exist, predicates that their types know, literals in the types' own form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from pvdm.errors import InputError
from pvdm.model.expression import (
    Always,
    And,
    Boolean,
    Compare,
    Expression,
    IsNan,
    IsNull,
    Literal,
    Not,
    Number,
    OneOf,
    Operator,
    Or,
    Parameter,
    Predicate,
    StartsWith,
    Text,
    Typed,
)
from pvdm.model.literal import is_boolean, is_numeric, parse_literal, spelled
from pvdm.model.schema import DecimalType, FixedType, Kind, PrimitiveType, Schema, Type

_OPAQUE: Final = frozenset({Kind.VARIANT, Kind.UNKNOWN})
_FLOATS: Final = (PrimitiveType(Kind.FLOAT), PrimitiveType(Kind.DOUBLE))
_UNORDERED: Final = (PrimitiveType(Kind.BOOLEAN), PrimitiveType(Kind.UUID))
_EQUALITY: Final = (Operator.EQUAL, Operator.NOT_EQUAL)
_NAMES_SHOWN: Final = 20


def bind(expression: Expression, schema: Schema, parameters: Mapping[str, str]) -> Expression:
    """The same filter with typed literals, parameters put in; `str` of it is its canonical text."""
    match expression:
        case And(parts):
            return And(tuple(bind(part, schema, parameters) for part in parts))
        case Or(parts):
            return Or(tuple(bind(part, schema, parameters) for part in parts))
        case Not(part):
            return Not(bind(part, schema, parameters))
        case Always():
            return expression
        case _:
            return _predicate(expression, schema, parameters)


def column_type(schema: Schema, name: str) -> Type:
    """The type of a column of the table itself; fields inside a column have no name here."""
    for field in schema.fields:
        if field.name == name:
            return field.type
    shown = schema.names[:_NAMES_SHOWN]
    inside = any(name.startswith(f"{field.name}.") for field in schema.fields)
    raise InputError(
        "filter_column_unknown",
        "the filter names a column that the source does not have",
        expected="one of " + ", ".join(shown) + ("" if len(shown) == len(schema.names) else ", …"),
        got=ascii(name[:80]),
        hint="filters look at whole columns, not at fields inside one" if inside else None,
    )


def require_ordered(column: str, kind: Type) -> None:
    """Only what has one order everywhere can be cut into ranges or compared by `<`."""
    require_simple(column, kind)
    if kind in _UNORDERED:
        raise _unsuited(column, "a type with an order", kind)


def _predicate(predicate: Predicate, schema: Schema, parameters: Mapping[str, str]) -> Predicate:
    kind = column_type(schema, predicate.column)
    if isinstance(predicate, IsNull):
        return predicate
    require_simple(predicate.column, kind)
    match predicate:
        case Compare(column, operator, literal):
            if operator not in _EQUALITY:
                require_ordered(column, kind)
            return replace(predicate, literal=_typed(literal, column, kind, parameters))
        case OneOf(column, literals, _):
            return replace(predicate, literals=tuple(_typed(each, column, kind, parameters) for each in literals))
        case IsNan(column):
            if kind not in _FLOATS:
                raise _unsuited(column, "a float or double for `is nan`", kind)
            return predicate
        case StartsWith(column, prefix, _):
            if kind != PrimitiveType(Kind.STRING):
                raise _unsuited(column, "a string for `starts with`", kind)
            return replace(predicate, prefix=_typed(prefix, column, kind, parameters))


def require_simple(column: str, kind: Type) -> None:
    """Only simple types have literals."""
    simple = isinstance(kind, PrimitiveType | DecimalType | FixedType)
    if not simple or (isinstance(kind, PrimitiveType) and kind.kind in _OPAQUE):
        raise _unsuited(column, "a simple type; others can only be asked for null", kind)


def _typed(literal: Literal, column: str, kind: Type, parameters: Mapping[str, str]) -> Typed:
    match literal:
        case Typed():
            raise AssertionError("a bound filter is not bound again")
        case Parameter(name):
            if name not in parameters:
                raise InputError(
                    "parameter_missing",
                    "the filter needs a parameter that has no value",
                    expected=name,
                    got=", ".join(sorted(parameters)) or "none",
                )
            text = parameters[name]
        case Boolean():
            _require_spelling(literal, column, kind)
            text = str(literal)
        case Text(text) | Number(text):
            _require_spelling(literal, column, kind)
    value = parse_literal(text, kind)
    spelling = spelled(value, kind)
    if spelling is None:
        raise AssertionError("what a text spells has a spelling")
    return Typed(value, spelling, kind)


def _require_spelling(literal: Text | Number | Boolean, column: str, kind: Type) -> None:
    """A quoted number is a text: who means the one and writes the other is told, not guessed at."""
    numeric, boolean = is_numeric(kind), is_boolean(kind)
    if not isinstance(literal, Number if numeric else Boolean if boolean else Text):
        wanted = "a number" if numeric else "true or false" if boolean else "a quoted text"
        raise InputError(
            "literal_invalid",
            "the literal is not of its column's type",
            expected=f"{wanted} for {ascii(column)[1:-1]} of {kind}",
            got=ascii(str(literal)[:80])[1:-1],
        )


def _unsuited(column: str, expected: str, kind: Type) -> InputError:
    return InputError(
        "predicate_unsuited",
        f"column {ascii(column)[1:-1][:80]} cannot be asked this",
        expected=expected,
        got=str(kind)[:120],
    )
