"""Filters: a closed grammar of predicates over columns, with SQL's three-valued logic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import ClassVar
from uuid import UUID

from pvdm.model.schema import Type

LiteralValue = bool | int | float | str | bytes | Decimal | UUID
"""Dates are days since 1970. Timestamps count from 1970, times from midnight, in micro- or nanoseconds by the type."""


class Operator(Enum):
    """The comparisons of a column with a literal."""

    EQUAL = "="
    NOT_EQUAL = "!="
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="


@dataclass(frozen=True, slots=True)
class Text:
    """A quoted literal. The column's type gives its meaning."""

    value: str

    def __str__(self) -> str:
        return "'" + self.value.replace("'", "''") + "'"


@dataclass(frozen=True, slots=True)
class Number:
    """A number as text, so that no digit is lost."""

    value: str

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Boolean:
    """`true` or `false`."""

    value: bool

    def __str__(self) -> str:
        return "true" if self.value else "false"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the workload; binding replaces it by its value."""

    name: str

    def __str__(self) -> str:
        return f"${{{self.name}}}"


@dataclass(frozen=True, slots=True)
class BoundLiteral:
    """A literal that was converted to its column's type, with its canonical spelling. Only bound filters have it."""

    value: LiteralValue
    spelling: Text | Number | Boolean
    type: Type

    def __str__(self) -> str:
        return str(self.spelling)


Literal = Text | Number | Boolean | Parameter | BoundLiteral


def require_typed(literal: Literal) -> BoundLiteral:
    """The literal of a bound filter."""
    if not isinstance(literal, BoundLiteral):
        raise AssertionError("the filter is used, but is not bound")
    return literal


@dataclass(frozen=True, slots=True)
class Always:
    """Every row."""

    def __str__(self) -> str:
        return "true"


@dataclass(frozen=True, slots=True)
class Compare:
    """A comparison of a column with a literal; unknown where the column is null."""

    column: str
    operator: Operator
    literal: Literal

    def __str__(self) -> str:
        return f"{quote_column(self.column)} {self.operator.value} {self.literal}"


@dataclass(frozen=True, slots=True)
class OneOf:
    """Whether a column equals one of the literals; unknown where the column is null."""

    column: str
    literals: tuple[Literal, ...]
    negated: bool = False

    def __str__(self) -> str:
        listed = ", ".join(str(each) for each in self.literals)
        return f"{quote_column(self.column)} {'not ' if self.negated else ''}in ({listed})"


@dataclass(frozen=True, slots=True)
class _ColumnTest:
    """A test of a column without a literal: `is` and a word."""

    word: ClassVar[str]

    column: str
    negated: bool = False

    def __str__(self) -> str:
        return f"{quote_column(self.column)} is {'not ' if self.negated else ''}{self.word}"


class IsNull(_ColumnTest):
    """Whether a column holds no value; never unknown."""

    __slots__ = ()
    word = "null"


class IsNan(_ColumnTest):
    """Whether a float is not a number; false where it is null, as in Spark."""

    __slots__ = ()
    word = "nan"


@dataclass(frozen=True, slots=True)
class StartsWith:
    """Whether a text begins with another, code point by code point; unknown where the column is null."""

    column: str
    prefix: Text | Parameter | BoundLiteral
    negated: bool = False

    def __str__(self) -> str:
        return f"{quote_column(self.column)} {'not ' if self.negated else ''}starts with {self.prefix}"


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite; unknown stays unknown."""

    part: Expression

    def __str__(self) -> str:
        return f"not {_parenthesize(self.part)}"


@dataclass(frozen=True, slots=True)
class _Junction:
    """At least two parts, joined by the word `and` or `or`."""

    word: ClassVar[str]

    parts: tuple[Expression, ...]

    def __post_init__(self) -> None:
        if len(self.parts) < 2:
            raise AssertionError("`and` or `or` has fewer than two parts")

    def __str__(self) -> str:
        return f" {self.word} ".join(map(_parenthesize, self.parts))


class And(_Junction):
    """All of at least two parts."""

    __slots__ = ()
    word = "and"


class Or(_Junction):
    """At least one of two or more parts."""

    __slots__ = ()
    word = "or"


Predicate = Compare | OneOf | IsNull | IsNan | StartsWith
Expression = Always | Predicate | Not | And | Or


def predicates(expression: Expression) -> Iterator[Predicate]:
    """Every predicate, from left to right."""
    match expression:
        case And(parts) | Or(parts):
            for part in parts:
                yield from predicates(part)
        case Not(part):
            yield from predicates(part)
        case Always():
            return
        case _:
            yield expression


def literals_of(predicate: Predicate) -> tuple[Literal, ...]:
    """The literals of a predicate."""
    match predicate:
        case Compare(_, _, literal):
            return (literal,)
        case OneOf(_, literals, _):
            return literals
        case StartsWith(_, prefix, _):
            return (prefix,)
        case _:
            return ()


def columns_of(expression: Expression) -> tuple[str, ...]:
    """The columns of the filter, each once, sorted."""
    return tuple(sorted({predicate.column for predicate in predicates(expression)}))


def parameters_of(expression: Expression) -> tuple[str, ...]:
    """The parameters of the filter, each once, sorted."""
    found = {
        literal.name
        for predicate in predicates(expression)
        for literal in literals_of(predicate)
        if isinstance(literal, Parameter)
    }
    return tuple(sorted(found))


def quote_column(column: str) -> str:
    """A column as the grammar reads it, in backquotes only if needed."""
    plain = column.isascii() and column.replace("_", "a").isalnum() and not column[:1].isdigit()
    return column if plain and column.lower() not in KEYWORDS else "`" + column.replace("`", "``") + "`"


KEYWORDS = frozenset(
    {"and", "or", "not", "in", "is", "null", "nan", "starts", "with", "true", "false", "between", "like"}
)
"""Words of the grammar, and SQL's `between` and `like`: a column of such a name is written in backquotes."""


def _parenthesize(part: Expression) -> str:
    return f"({part})" if isinstance(part, _Junction) else str(part)
