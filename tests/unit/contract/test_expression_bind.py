"""Binding a filter to a schema: columns must exist; predicates, literals and parameters must fit the column's type."""

from __future__ import annotations

import pytest

from pvdm.errors import InputError
from pvdm.model.filter.bind import bind
from pvdm.model.filter.expression import BoundLiteral, Compare, Expression, Number, OneOf, StartsWith, Text
from pvdm.model.filter.text import parse_expression
from pvdm.model.schema import Field, Inner, Kind, ListType, PrimitiveType, Schema, StructType, type_from_json
from tests.support.for_each import for_each

SIMPLE = [kind.value for kind in Kind if kind not in (Kind.VARIANT, Kind.UNKNOWN)] + ["decimal(9,2)", "fixed(2)"]
LITERALS = {
    "boolean": "true",
    "int": "1",
    "long": "1",
    "float": "1.5",
    "double": "1.5",
    "date": "'2026-11-15'",
    "time": "'09:30:00'",
    "time_ns": "'09:30:00'",
    "timestamp": "'2026-11-15T09:30:00'",
    "timestamptz": "'2026-11-15T09:30:00Z'",
    "timestamp_ns": "'2026-11-15T09:30:00'",
    "timestamptz_ns": "'2026-11-15T09:30:00Z'",
    "string": "'x'",
    "uuid": "'00000000-0000-0000-0000-000000000000'",
    "binary": "'00ff'",
    "decimal(9,2)": "1.50",
    "fixed(2)": "'00ff'",
}
INT = PrimitiveType(Kind.INT)
NESTED = Schema(
    (
        Field("s", StructType((Field("inner", INT),))),
        Field("l", ListType(Inner(INT))),
        Field("v", PrimitiveType(Kind.VARIANT)),
        Field("u", PrimitiveType(Kind.UNKNOWN)),
    )
)


def schema_of(kind: str) -> Schema:
    return Schema((Field("c", type_from_json(kind)),))


def bind_text(text: str, kind: str, **parameters: str) -> Expression:
    return bind(parse_expression(text), schema_of(kind), parameters)


def bind_error(text: str, schema: Schema, **parameters: str) -> InputError:
    with pytest.raises(InputError) as caught:
        bind(parse_expression(text), schema, parameters)
    return caught.value


@for_each("kind", SIMPLE)
def test_each_simple_type_allows_equality_lists_and_null(kind: str) -> None:
    for text in (f"c = {LITERALS[kind]}", f"c != {LITERALS[kind]}", f"c not in ({LITERALS[kind]})", "c is null"):
        assert str(bind_text(text, kind)) == text


@for_each("operator", ["<", "<=", ">", ">="])
@for_each("kind", SIMPLE)
def test_only_types_with_an_order_allow_less_and_greater(kind: str, operator: str) -> None:
    text = f"c {operator} {LITERALS[kind]}"
    if kind in ("boolean", "uuid"):
        assert bind_error(text, schema_of(kind)).reason == "predicate_unsuited"
    else:
        assert str(bind_text(text, kind)) == text


@for_each("kind", SIMPLE)
def test_only_floats_allow_is_nan(kind: str) -> None:
    if kind in ("float", "double"):
        bind_text("c is nan", kind)
    else:
        assert bind_error("c is nan", schema_of(kind)).reason == "predicate_unsuited"


@for_each("kind", SIMPLE)
def test_only_strings_allow_starts_with(kind: str) -> None:
    if kind == "string":
        bind_text("c starts with 'x'", kind)
    else:
        assert bind_error("c starts with 'x'", schema_of(kind)).reason == "predicate_unsuited"


@for_each("kind", SIMPLE)
def test_a_literal_of_another_kind_than_the_column_is_refused(kind: str) -> None:
    if kind in ("int", "long", "float", "double", "decimal(9,2)"):
        right = "1"
    elif kind == "boolean":
        right = "true"
    else:
        right = "'1'"
    for literal in {"'1'", "1", "true"} - {right}:
        assert bind_error(f"c = {literal}", schema_of(kind)).reason == "literal_invalid"


@for_each("column", ["s", "l", "v", "u"])
def test_a_column_without_literals_allows_only_is_null(column: str) -> None:
    bind(parse_expression(f"{column} is not null"), NESTED, {})
    assert bind_error(f"{column} = 1", NESTED).reason == "predicate_unsuited"


def test_an_unknown_column_is_refused_with_the_known_ones() -> None:
    error = bind_error("x = 1", schema_of("int"))
    assert (error.reason, error.expected, error.hint) == ("filter_column_unknown", "one of c", None)


def test_a_field_inside_a_column_is_refused_with_the_reason() -> None:
    error = bind_error("`s.inner` = 1", NESTED)
    assert error.reason == "filter_column_unknown"
    assert error.hint == "filters look at whole columns, not at fields inside one"


def test_a_column_whose_own_name_has_a_dot_is_found() -> None:
    dotted = Schema((Field("a.b", INT),))
    assert str(bind(parse_expression("`a.b` = 1"), dotted, {})) == "`a.b` = 1"


def test_the_error_lists_the_first_20_of_many_columns() -> None:
    wide = Schema(tuple(Field(f"c{position}", INT) for position in range(100)))
    assert (bind_error("x = 1", wide).expected or "").endswith("c19, …")


def test_the_error_lists_similar_columns_first() -> None:
    wide = Schema((*(Field(f"c{position}", INT) for position in range(100)), Field("order_day", INT)))
    error = bind_error("order_dya = 1", wide)
    assert (error.got, str(error.expected)[:25]) == ("'order_dya'", "one of order_day, c0, c1,")


def test_literals_become_typed_values_in_normal_form() -> None:
    assert bind_text("c in (+1, 002)", "int") == OneOf(
        "c", (BoundLiteral(1, Number("1"), INT), BoundLiteral(2, Number("2"), INT))
    )


@for_each(
    ("kind", "value", "shown"),
    [
        ("int", "5", "5"),
        ("boolean", "true", "true"),
        ("string", "it's", "'it''s'"),
        ("date", "2026-11-15", "'2026-11-15'"),
    ],
)
def test_a_parameter_is_put_in_as_a_literal_of_the_column(kind: str, value: str, shown: str) -> None:
    assert str(bind_text("not (c = ${p} and c is null)", kind, p=value)) == f"not (c = {shown} and c is null)"


def test_a_parameter_is_a_value_and_never_a_part_of_the_filter() -> None:
    found = bind_text("c = ${p}", "string", p="x' or true or c = '")
    assert isinstance(found, Compare)
    assert found.literal == BoundLiteral("x' or true or c = '", Text("x' or true or c = '"), PrimitiveType(Kind.STRING))


def test_a_parameter_can_be_a_prefix() -> None:
    found = bind_text("c starts with ${p}", "string", p="5")
    assert isinstance(found, StartsWith)
    assert str(found) == "c starts with '5'"


def test_a_parameter_of_another_type_is_refused() -> None:
    assert bind_error("c = ${p}", schema_of("int"), p="five").reason == "literal_invalid"


def test_a_missing_parameter_is_refused_by_name() -> None:
    error = bind_error("c = ${p}", schema_of("int"), q="1")
    assert (error.reason, error.expected, error.got) == ("parameter_missing", "p", "q")


def test_binding_a_bound_filter_again_is_an_assertion_error() -> None:
    with pytest.raises(AssertionError):
        bind(bind_text("c = 1", "int"), schema_of("int"), {})
