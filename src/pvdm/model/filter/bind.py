"""Binds a filter to a schema: checks its columns and predicates, and converts literals to the columns' types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Final

from pvdm.errors import Code, InputError
from pvdm.model.filter import expression as ex
from pvdm.model.filter.literal import canonical_literal, is_boolean, is_numeric, parse_literal
from pvdm.model.printable import list_first
from pvdm.model.schema import DecimalType, FixedType, Kind, PrimitiveType, Schema, Type

_WITHOUT_LITERALS: Final = frozenset({Kind.VARIANT, Kind.UNKNOWN})
_FLOATS: Final = (PrimitiveType(Kind.FLOAT), PrimitiveType(Kind.DOUBLE))
_UNORDERED: Final = (PrimitiveType(Kind.BOOLEAN), PrimitiveType(Kind.UUID))
_EQUALITY: Final = (ex.Operator.EQUAL, ex.Operator.NOT_EQUAL)
_INTEGERS: Final = frozenset({Kind.INT, Kind.LONG})
# By a parameter's type: the column types, besides this type, in which the parameter's text can be a literal.
_SAME_TEXT: Final[dict[Kind, frozenset[Kind]]] = {
    Kind.INT: frozenset({Kind.LONG, Kind.FLOAT, Kind.DOUBLE, Kind.BINARY}),
    Kind.LONG: frozenset({Kind.INT, Kind.FLOAT, Kind.DOUBLE, Kind.BINARY}),
    Kind.TIMESTAMP: frozenset({Kind.TIMESTAMP_NS}),
    Kind.TIMESTAMPTZ: frozenset({Kind.TIMESTAMPTZ_NS}),
}

_Converter = Callable[[ex.Literal, str, Type], ex.BoundLiteral | ex.Parameter]
"""Converts a literal to the type of the named column, or raises."""


def bind(expression: ex.Expression, schema: Schema, parameters: Mapping[str, str]) -> ex.Expression:
    """The filter with typed literals in place of untyped ones and parameters. Its `str` is its canonical text."""
    return _bind_with(expression, schema, lambda literal, column, to: parse_typed(literal, column, to, parameters))


def require_bindable(expression: ex.Expression, schema: Schema, parameters: Mapping[str, Type]) -> None:
    """Refuse a filter that cannot be bound to the schema, whatever its parameters are. `parameters` has their types."""

    def check_literal(literal: ex.Literal, column: str, data_type: Type) -> ex.BoundLiteral | ex.Parameter:
        if not isinstance(literal, ex.Parameter):
            return parse_typed(literal, column, data_type, {})
        require_literal_type(literal.name, parameters[literal.name], column, data_type)
        return literal

    _bind_with(expression, schema, check_literal)


def require_literal_type(parameter: str, given: Type, column: str, data_type: Type) -> None:
    """Refuse a parameter of type `given` if no value of that type is a literal of `data_type`, the column's type."""
    string = PrimitiveType(Kind.STRING)
    if given in (string, data_type) or data_type == string:
        return
    if isinstance(given, PrimitiveType):
        if isinstance(data_type, PrimitiveType) and data_type.kind in _SAME_TEXT.get(given.kind, ()):
            return
        if given.kind in _INTEGERS and isinstance(data_type, DecimalType | FixedType):
            return
    message = f"no value of parameter {parameter} is a value of column {ascii(column)[1:-1][:80]}"
    hint = f"give parameters.{parameter} the type of the column, or name another column"
    wanted, got = f"a parameter of type {data_type}", f"type {given}"
    raise Code.PARAMETERS_INVALID(
        message, reason="parameter_type_differs", expected=wanted, got=got, hint=hint, column=column
    )


def _bind_with(expression: ex.Expression, schema: Schema, convert: _Converter) -> ex.Expression:
    match expression:
        case ex.And(parts) | ex.Or(parts):
            return type(expression)(tuple(_bind_with(part, schema, convert) for part in parts))
        case ex.Not(part):
            return ex.Not(_bind_with(part, schema, convert))
        case ex.Always():
            return expression
        case _:
            return _bind_predicate(expression, schema, convert)


def column_type(schema: Schema, name: str) -> Type:
    """The type of a top-level column. Raises `filter_column_unknown` for any other name."""
    for field in schema.fields:
        if field.name == name:
            return field.type
    names = dict.fromkeys((*get_close_matches(name[:80], schema.names), *schema.names))
    inside = any(name.startswith(f"{field.name}.") for field in schema.fields)
    expected = f"one of {list_first(list(names))}"
    hint = "filters look at whole columns, not at fields inside one" if inside else None
    raise Code.FILTER_INVALID(reason="filter_column_unknown", expected=expected, got=ascii(name[:80]), hint=hint)


def require_ordered(column: str, data_type: Type) -> None:
    """Raise unless the type has the same order in all engines, which comparisons by `<` and ranges of values need."""
    require_simple(column, data_type)
    if data_type in _UNORDERED:
        raise _unsuited_error(column, "a type with an order", data_type)


def _bind_predicate(predicate: ex.Predicate, schema: Schema, convert: _Converter) -> ex.Predicate:
    data_type = column_type(schema, predicate.column)
    if isinstance(predicate, ex.IsNull):
        return predicate
    require_simple(predicate.column, data_type)
    match predicate:
        case ex.Compare(column, operator, literal):
            if operator not in _EQUALITY:
                require_ordered(column, data_type)
            return replace(predicate, literal=convert(literal, column, data_type))
        case ex.OneOf(column, literals, _):
            return replace(predicate, literals=tuple(convert(each, column, data_type) for each in literals))
        case ex.IsNan(column):
            if data_type not in _FLOATS:
                raise _unsuited_error(column, "a float or double for `is nan`", data_type)
            return predicate
        case ex.StartsWith(column, prefix, _):
            if data_type != PrimitiveType(Kind.STRING):
                raise _unsuited_error(column, "a string for `starts with`", data_type)
            return replace(predicate, prefix=convert(prefix, column, data_type))


def require_simple(column: str, data_type: Type) -> None:
    """Raise unless the type has literals: it is neither nested nor opaque."""
    simple = isinstance(data_type, PrimitiveType | DecimalType | FixedType)
    if not simple or (isinstance(data_type, PrimitiveType) and data_type.kind in _WITHOUT_LITERALS):
        raise _unsuited_error(column, "a simple type; other types can only be tested for null", data_type)


def parse_typed(literal: ex.Literal, column: str, data_type: Type, parameters: Mapping[str, str]) -> ex.BoundLiteral:
    """The literal or parameter value in the column's type. Raises if it is malformed or the parameter has no value."""
    match literal:
        case ex.BoundLiteral():
            raise AssertionError("the filter is bound already")
        case ex.Parameter(name):
            if name not in parameters:
                got = ", ".join(sorted(parameters)) or "none"
                raise Code.PARAMETERS_INVALID(reason="parameter_missing", expected=name, got=got)
            text = parameters[name]
        case ex.Boolean():
            _require_spelling(literal, column, data_type)
            text = str(literal)
        case ex.Text(text) | ex.Number(text):
            _require_spelling(literal, column, data_type)
    value = parse_literal(text, data_type)
    spelling = canonical_literal(value, data_type)
    if spelling is None:
        raise AssertionError("the parsed literal has no canonical text")
    return ex.BoundLiteral(value, spelling, data_type)


def _require_spelling(literal: ex.Text | ex.Number | ex.Boolean, column: str, data_type: Type) -> None:
    """Raise unless the literal has the form of the column's type. A quoted number, for example, is a text."""
    descriptions = {ex.Number: "a number", ex.Boolean: "true or false", ex.Text: "a quoted text"}
    form: type[ex.Text | ex.Number | ex.Boolean] = ex.Number if is_numeric(data_type) else ex.Text
    if is_boolean(data_type):
        form = ex.Boolean
    if not isinstance(literal, form):
        wanted = f"{descriptions[form]} for {ascii(column)[1:-1]} of {data_type}"
        raise Code.FILTER_INVALID(reason="literal_invalid", expected=wanted, got=ascii(str(literal)[:80])[1:-1])


def _unsuited_error(column: str, expected: str, data_type: Type) -> InputError:
    message = f"column {ascii(column)[1:-1][:80]} does not support this predicate"
    return InputError("predicate_unsuited", message, expected=expected, got=str(data_type)[:120])
