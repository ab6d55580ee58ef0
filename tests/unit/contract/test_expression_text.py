"""The grammar of filters: every form that is read, and every refusal with the character where it happens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pvdm.errors import InputError
from pvdm.model.filter.expression import (
    KEYWORDS,
    Always,
    And,
    Boolean,
    Compare,
    Expression,
    IsNan,
    IsNull,
    Not,
    Number,
    OneOf,
    Operator,
    Or,
    Parameter,
    StartsWith,
    Text,
    columns_of,
    parameters_of,
)
from pvdm.model.filter.text import EXPRESSION_DEPTH_MAX, EXPRESSION_MAX_CHARACTERS, LITERALS_MAX, parse_expression
from tests.support.for_each import for_each

ONE = Compare("a", Operator.EQUAL, Number("1"))
TWO = Compare("b", Operator.EQUAL, Number("2"))
THREE = Compare("c", Operator.EQUAL, Number("3"))


@for_each(
    ("text", "wanted"),
    [
        ("true", Always()),
        ("TRUE", Always()),
        ("not true", Not(Always())),
        ("a = 1", ONE),
        ("a=1", ONE),
        ("a != 1", Compare("a", Operator.NOT_EQUAL, Number("1"))),
        ("a <> 1", Compare("a", Operator.NOT_EQUAL, Number("1"))),
        ("a < 1", Compare("a", Operator.LESS, Number("1"))),
        ("a <= 1", Compare("a", Operator.LESS_OR_EQUAL, Number("1"))),
        ("a > 1", Compare("a", Operator.GREATER, Number("1"))),
        ("a >= 1", Compare("a", Operator.GREATER_OR_EQUAL, Number("1"))),
        ("a = -1.50e-3", Compare("a", Operator.EQUAL, Number("-1.50e-3"))),
        ("a = .5", Compare("a", Operator.EQUAL, Number(".5"))),
        ("a = 'it''s'", Compare("a", Operator.EQUAL, Text("it's"))),
        ("a = ''", Compare("a", Operator.EQUAL, Text(""))),
        ("a = 'x\ny'", Compare("a", Operator.EQUAL, Text("x\ny"))),
        ("a = true", Compare("a", Operator.EQUAL, Boolean(True))),
        ("a = False", Compare("a", Operator.EQUAL, Boolean(False))),
        ("a = ${day}", Compare("a", Operator.EQUAL, Parameter("day"))),
        ("`a b``c.d` = 1", Compare("a b`c.d", Operator.EQUAL, Number("1"))),
        ("`and` = 1", Compare("and", Operator.EQUAL, Number("1"))),
        ("a in (1)", OneOf("a", (Number("1"),))),
        ("a in (1, 'x', ${p})", OneOf("a", (Number("1"), Text("x"), Parameter("p")))),
        ("a not in (1, 2)", OneOf("a", (Number("1"), Number("2")), negated=True)),
        ("a is null", IsNull("a")),
        ("a IS NOT NULL", IsNull("a", negated=True)),
        ("a is nan", IsNan("a")),
        ("a is not nan", IsNan("a", negated=True)),
        ("a starts with 'x'", StartsWith("a", Text("x"))),
        ("a not starts with ${p}", StartsWith("a", Parameter("p"), negated=True)),
        ("not a = 1", Not(ONE)),
        ("not not a = 1", Not(Not(ONE))),
        ("not a = 1 and b = 2", And((Not(ONE), TWO))),
        ("a = 1 and b = 2 and c = 3", And((ONE, TWO, THREE))),
        ("a = 1 or b = 2 and c = 3", Or((ONE, And((TWO, THREE))))),
        ("(a = 1 or b = 2) and c = 3", And((Or((ONE, TWO)), THREE))),
        ("(a = 1 and b = 2) and c = 3", And((And((ONE, TWO)), THREE))),
        ("((a = 1))", ONE),
        ("  a\t=\n1  ", ONE),
    ],
)
def test_each_form_is_read(text: str, wanted: Expression) -> None:
    assert parse_expression(text) == wanted


@for_each(
    ("text", "character", "expected"),
    [
        ("", 1, "a column"),
        ("   ", 4, "a column"),
        ("a", 2, "a comparison"),
        ("a = ", 5, "a literal"),
        ("a = b", 5, "a literal"),
        ("a = null", 5, "a literal"),
        ("1 = a", 1, "a column"),
        ("a = 1 b", 7, "`and`, `or`, or the end"),
        ("a = 1)", 6, "`and`, `or`, or the end"),
        ("(a = 1", 7, "`)`"),
        ("a = 1 and", 10, "a column"),
        ("or a = 1", 1, "a column"),
        ("and = 1", 1, "a column"),
        ("false", 1, "a column"),
        ("a in 1", 6, "`(`"),
        ("a in ()", 7, "a literal"),
        ("a in (1,)", 9, "a literal"),
        ("a in (1 2)", 9, "`)`"),
        ("a is 1", 6, "`null` or `nan`"),
        ("a not null", 7, "a comparison"),
        ("a starts 'x'", 10, "`with`"),
        ("a starts with 5", 15, "a quoted text or a parameter"),
        ("a starts with true", 15, "a quoted text or a parameter"),
        ("a between 1 and 2", 3, "a comparison"),
        ("a like 'x%'", 3, "a comparison"),
        ("a = 'x", 7, "the closing '"),
        ("`a = 1", 7, "the closing `"),
        ("`` = 1", 1, "a name"),
        ("a.b = 1", 2, "a column of the table itself"),
        ("`a`.b = 1", 4, "a column of the table itself"),
        ("a = ${1}", 5, "a parameter as ${name}"),
        ("a = $day", 5, "a parameter as ${name}"),
        ("a = 1and b = 2", 5, "a name, a literal"),
        ("a = 1.2.3", 5, "a name, a literal"),
        ("a = 1e99999", 5, "a name, a literal"),
        ("a = 0x10", 5, "a name, a literal"),
        ("a = 1_000", 5, "a name, a literal"),
        ("a = \u0661", 5, "a name, a literal"),
        ("\u00e9 = 1", 1, "a name, a literal"),
        ("a == 1", 4, "a literal"),
        ("a = 1; drop table t", 6, "a name, a literal"),
        ("a = 1 -- x", 7, "a name, a literal"),
        ("upper(a) = 'X'", 6, "a comparison"),
        ("reflect('java.lang.Runtime') = 1", 8, "a comparison"),
        ("a + 1 = 2", 3, "a name, a literal"),
        ('"a" = 1', 1, "a name, a literal"),
    ],
)
def test_each_refusal_says_where_and_what_was_expected(text: str, character: int, expected: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_expression(text)
    assert refused.value.reason == "expression_invalid"
    assert refused.value.details["character"] == character
    assert f"at character {character}" in refused.value.message
    assert (refused.value.expected or "").startswith(expected)


def test_a_dotted_column_is_refused_with_a_hint_to_backquotes() -> None:
    with pytest.raises(InputError) as refused:
        parse_expression("a.b = 1")
    assert "backquotes" in (refused.value.hint or "")


def test_an_error_shows_a_short_printable_part_of_the_text() -> None:
    with pytest.raises(InputError) as refused:
        parse_expression("a = \x1b" + "x" * 500)
    assert (refused.value.got or "").isascii()
    assert "\x1b" not in (refused.value.got or "")
    assert len(refused.value.got or "") < 120


def test_a_text_beyond_the_limit_is_refused_before_it_is_read() -> None:
    parse_expression("a = 1".ljust(EXPRESSION_MAX_CHARACTERS))
    with pytest.raises(InputError, match="too long") as refused:
        parse_expression("a = 1".ljust(EXPRESSION_MAX_CHARACTERS + 1))
    assert refused.value.reason == "expression_too_long"


@pytest.mark.parametrize("opener", ["(", "not "])
def test_depth_has_a_limit(opener: str) -> None:
    closer = ")" if opener == "(" else ""
    parse_expression(opener * EXPRESSION_DEPTH_MAX + "a = 1" + closer * EXPRESSION_DEPTH_MAX)
    deeper = EXPRESSION_DEPTH_MAX + 1
    with pytest.raises(InputError) as refused:
        parse_expression(opener * deeper + "a = 1" + closer * deeper)
    assert refused.value.expected == f"at most {EXPRESSION_DEPTH_MAX} levels"


def test_literals_have_a_limit() -> None:
    parse_expression(f"a in ({','.join(['1'] * LITERALS_MAX)})")
    with pytest.raises(InputError) as refused:
        parse_expression(f"a in ({','.join(['1'] * (LITERALS_MAX + 1))})")
    assert refused.value.expected == f"at most {LITERALS_MAX} literals"


def test_columns_and_parameters_are_named_once_and_sorted() -> None:
    found = parse_expression("not (b = ${y} or a in (${x}, ${y})) and b starts with ${x} and c is null and true")
    assert columns_of(found) == ("a", "b", "c")
    assert parameters_of(found) == ("x", "y")


@pytest.mark.parametrize("kind", [And, Or])
def test_joining_a_single_part_is_an_assertion_error(kind: type[And] | type[Or]) -> None:
    with pytest.raises(AssertionError):
        kind((ONE,))


names = st.text(min_size=1, max_size=8) | st.sampled_from(["a", "_x1", "1a", "and", "NaN", "a.b", "`", "é"])
literals = st.one_of(
    st.builds(Text, st.text(max_size=8)),
    st.builds(
        Number, st.from_regex(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,4})?", fullmatch=True).filter(str.isascii)
    ),
    st.builds(Boolean, st.booleans()),
    st.builds(Parameter, st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,9}", fullmatch=True)),
)
predicates = st.one_of(
    st.builds(Compare, names, st.sampled_from(Operator), literals),
    st.builds(OneOf, names, st.lists(literals, min_size=1, max_size=3).map(tuple), st.booleans()),
    st.builds(IsNull, names, st.booleans()),
    st.builds(IsNan, names, st.booleans()),
    st.builds(
        StartsWith, names, st.builds(Text, st.text(max_size=5)) | st.builds(Parameter, st.just("p")), st.booleans()
    ),
)


def join(parts: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    several = st.lists(parts, min_size=2, max_size=3).map(tuple)
    return st.builds(Not, parts) | st.builds(And, several) | st.builds(Or, several)


expressions: st.SearchStrategy[Expression] = st.recursive(st.just(Always()) | predicates, join, max_leaves=8)


@pytest.mark.property
@given(expressions)
def test_the_text_of_a_filter_reads_as_the_same_filter(expression: Expression) -> None:
    assert parse_expression(str(expression)) == expression


@pytest.mark.property
@given(st.text(alphabet="aAn1'`$ {}().,=<>!or\n", max_size=30))
def test_any_text_is_read_or_refused_with_its_character(text: str) -> None:
    read: Expression | None = None
    character = 1
    try:
        read = parse_expression(text)
    except InputError as error:
        character = int(error.details["character"])
    assert 1 <= character <= len(text) + 1
    assert read is None or parse_expression(str(read)) == read


@for_each("word", sorted(KEYWORDS))
def test_a_keyword_is_a_column_only_in_backquotes(word: str) -> None:
    assert parse_expression(f"`{word}` is null") == IsNull(word)
    with pytest.raises(InputError):
        parse_expression(f"{word} is null")


def test_the_text_of_the_deepest_filter_can_be_read_again() -> None:
    deep = "not " * EXPRESSION_DEPTH_MAX + "a = 1"
    assert parse_expression(str(parse_expression(deep))) == parse_expression(deep)
