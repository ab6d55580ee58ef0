"""A filter bound to a schema: known columns, predicates that suit the type, literals and parameters of it."""

from __future__ import annotations

import pytest

from pvdm.errors import InputError
from pvdm.model.filter.bind import bind
from pvdm.model.filter.expression import Compare, Expression, Number, OneOf, StartsWith, Text, Typed
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


def of(kind: str) -> Schema:
    return Schema((Field("c", type_from_json(kind)),))


def bound(text: str, kind: str, **parameters: str) -> Expression:
    return bind(parse_expression(text), of(kind), parameters)


def refused(text: str, schema: Schema, **parameters: str) -> InputError:
    with pytest.raises(InputError) as caught:
        bind(parse_expression(text), schema, parameters)
    return caught.value


@for_each("kind", SIMPLE)
def test_each_simple_type_is_compared_for_equality_and_among_others(kind: str) -> None:
    for text in (f"c = {LITERALS[kind]}", f"c != {LITERALS[kind]}", f"c not in ({LITERALS[kind]})", "c is null"):
        assert str(bound(text, kind)) == text


@for_each("operator", ["<", "<=", ">", ">="])
@for_each("kind", SIMPLE)
def test_only_types_with_an_order_are_ordered(kind: str, operator: str) -> None:
    text = f"c {operator} {LITERALS[kind]}"
    if kind in ("boolean", "uuid"):
        assert refused(text, of(kind)).reason == "predicate_unsuited"
    else:
        assert str(bound(text, kind)) == text


@for_each("kind", SIMPLE)
def test_only_floats_are_asked_for_nan(kind: str) -> None:
    if kind in ("float", "double"):
        bound("c is nan", kind)
    else:
        assert refused("c is nan", of(kind)).reason == "predicate_unsuited"


@for_each("kind", SIMPLE)
def test_only_strings_start_with_something(kind: str) -> None:
    if kind == "string":
        bound("c starts with 'x'", kind)
    else:
        assert refused("c starts with 'x'", of(kind)).reason == "predicate_unsuited"


@for_each("kind", SIMPLE)
def test_a_literal_of_another_spelling_is_not_guessed_at(kind: str) -> None:
    quoted, number, boolean = "'1'", "1", "true"
    wrong = {quoted, number, boolean} - {
        number
        if kind in ("int", "long", "float", "double", "decimal(9,2)")
        else boolean
        if kind == "boolean"
        else quoted
    }
    for literal in wrong:
        assert refused(f"c = {literal}", of(kind)).reason == "literal_invalid"


@pytest.mark.parametrize("column", ["s", "l", "v", "u"])
def test_a_column_without_literals_is_only_asked_for_null(column: str) -> None:
    bind(parse_expression(f"{column} is not null"), NESTED, {})
    assert refused(f"{column} = 1", NESTED).reason == "predicate_unsuited"


def test_an_unknown_column_is_refused_with_the_known_ones() -> None:
    error = refused("x = 1", of("int"))
    assert (error.reason, error.expected, error.hint) == ("filter_column_unknown", "one of c", None)


def test_a_field_inside_a_column_is_refused_with_the_reason() -> None:
    error = refused("`s.inner` = 1", NESTED)
    assert error.reason == "filter_column_unknown"
    assert error.hint == "filters look at whole columns, not at fields inside one"


def test_a_column_whose_own_name_has_a_dot_is_found() -> None:
    dotted = Schema((Field("a.b", INT),))
    assert str(bind(parse_expression("`a.b` = 1"), dotted, {})) == "`a.b` = 1"


def test_of_many_columns_some_are_shown() -> None:
    wide = Schema(tuple(Field(f"c{position}", INT) for position in range(100)))
    assert (refused("x = 1", wide).expected or "").endswith("c19, …")


def test_literals_become_values_of_the_type_in_one_spelling() -> None:
    assert bound("c in (+1, 002)", "int") == OneOf("c", (Typed(1, Number("1"), INT), Typed(2, Number("2"), INT)))


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        ("int", "5", "5"),
        ("boolean", "true", "true"),
        ("string", "it's", "'it''s'"),
        ("date", "2026-11-15", "'2026-11-15'"),
    ],
)
def test_a_parameter_is_put_in_as_a_literal_of_the_column(kind: str, value: str, shown: str) -> None:
    assert str(bound("not (c = ${p} and c is null)", kind, p=value)) == f"not (c = {shown} and c is null)"


def test_a_parameter_is_a_value_and_never_a_part_of_the_filter() -> None:
    found = bound("c = ${p}", "string", p="x' or true or c = '")
    assert isinstance(found, Compare)
    assert found.literal == Typed("x' or true or c = '", Text("x' or true or c = '"), PrimitiveType(Kind.STRING))


def test_a_parameter_can_be_a_prefix() -> None:
    found = bound("c starts with ${p}", "string", p="5")
    assert isinstance(found, StartsWith)
    assert str(found) == "c starts with '5'"


def test_a_parameter_of_another_type_is_refused() -> None:
    assert refused("c = ${p}", of("int"), p="five").reason == "literal_invalid"


def test_a_parameter_without_a_value_is_named() -> None:
    error = refused("c = ${p}", of("int"), q="1")
    assert (error.reason, error.expected, error.got) == ("parameter_missing", "p", "q")


def test_a_bound_filter_is_not_bound_again() -> None:
    with pytest.raises(AssertionError):
        bind(bound("c = 1", "int"), of("int"), {})
