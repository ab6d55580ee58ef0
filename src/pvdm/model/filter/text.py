"""Parses the text of a filter. A syntax error names the position of the character where it is."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pvdm.errors import Code, InputError
from pvdm.model.filter import expression as ex

EXPRESSION_MAX_CHARACTERS: Final = 65_536
EXPRESSION_DEPTH_MAX: Final = 64
LITERALS_MAX: Final = 10_000

_TOKEN: Final = re.compile(
    r"""
      (?P<space>\s+)
    | (?P<parameter>\$\{[A-Za-z_][A-Za-z0-9_]{0,63}\})
    | (?P<text>'(?:[^']|'')*')
    | (?P<column>`(?:[^`]|``)+`)
    | (?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,4})?(?![A-Za-z0-9_.]))
    | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<operator><=|>=|!=|<>|=|<|>)
    | (?P<mark>[(),])
    """,
    re.VERBOSE | re.ASCII,
)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str  # a group of `_TOKEN`, or `keyword` or `end`
    text: str
    position: int  # of its first character, from 0

    def __str__(self) -> str:
        return self.text or "the end"


def parse_expression(text: str) -> ex.Expression:
    """The filter of this text. Raises `expression_invalid` or `expression_too_long`."""
    if len(text) > EXPRESSION_MAX_CHARACTERS:
        expected = f"at most {EXPRESSION_MAX_CHARACTERS} characters"
        raise Code.FILTER_INVALID(reason="expression_too_long", expected=expected, got=str(len(text)))
    parser = _Parser(_tokenize(text))
    found = parser.parse_or(0)
    parser.require_end()
    return found


def _tokenize(text: str) -> list[_Token]:
    found: list[_Token] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _no_token_error(text, position)
        kind = str(match.lastgroup)
        if kind == "word" and match[0].lower() in ex.KEYWORDS:
            found.append(_Token("keyword", match[0].lower(), position))
        elif kind != "space":
            found.append(_Token(kind, match[0], position))
        position = match.end()
    found.append(_Token("end", "", position))
    return found


class _Parser:
    """A parser with one method for each level of the grammar."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._literals = 0

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        token = self._next
        self._at += 1
        return token

    def _accept(self, text: str) -> bool:
        """Whether the next token is this keyword or mark. If it is, take it."""
        found = self._next.kind in ("keyword", "mark") and self._next.text == text
        if found:
            self._at += 1
        return found

    def _require(self, text: str) -> None:
        if not self._accept(text):
            raise self._unexpected_error(f"`{text}`")

    def _unexpected_error(self, expected: str) -> InputError:
        return _syntax_error(expected, str(self._next), self._next.position)

    def require_end(self) -> None:
        """Raise unless the whole filter was read."""
        if self._next.kind != "end":
            raise self._unexpected_error("`and`, `or`, or the end")

    def parse_or(self, depth: int) -> ex.Expression:
        """Parse operands that `or` joins. Each operand is a list of conditions that `and` joins."""
        return self._parse_joined(ex.Or, lambda: self._parse_joined(ex.And, lambda: self._parse_not(depth)))

    def _parse_joined(self, junction: type[ex.And | ex.Or], parse: Callable[[], ex.Expression]) -> ex.Expression:
        parts = [parse()]
        while self._accept(junction.word):
            parts.append(parse())
        return parts[0] if len(parts) == 1 else junction(tuple(parts))

    def _parse_not(self, depth: int) -> ex.Expression:
        if depth > EXPRESSION_DEPTH_MAX:
            raise _syntax_error(f"at most {EXPRESSION_DEPTH_MAX} levels", "more", self._next.position)
        if self._accept("not"):
            return ex.Not(self._parse_not(depth + 1))
        if self._accept("("):
            found = self.parse_or(depth + 1)
            self._require(")")
            return found
        if self._accept("true"):
            return ex.Always()
        return self._parse_predicate()

    def _parse_predicate(self) -> ex.Predicate:
        column = self._parse_column()
        if self._next.kind == "operator":
            sign = self._take().text
            return ex.Compare(column, ex.Operator("!=" if sign == "<>" else sign), self._parse_literal())
        if self._accept("is"):
            negated = self._accept("not")
            if self._accept("null"):
                return ex.IsNull(column, negated)
            if self._accept("nan"):
                return ex.IsNan(column, negated)
            raise self._unexpected_error("`null` or `nan`")
        negated = self._accept("not")
        if self._accept("in"):
            return ex.OneOf(column, self._parse_list(), negated)
        if self._accept("starts"):
            self._require("with")
            return ex.StartsWith(column, self._parse_prefix(), negated)
        raise self._unexpected_error("a comparison, `is`, `in` or `starts with`")

    def _parse_column(self) -> str:
        if self._next.kind == "word":
            return self._take().text
        if self._next.kind == "column":
            return self._take().text[1:-1].replace("``", "`")
        raise self._unexpected_error("a column")

    def _parse_list(self) -> tuple[ex.Literal, ...]:
        self._require("(")
        found = [self._parse_literal()]
        while self._accept(","):
            found.append(self._parse_literal())
        self._require(")")
        return tuple(found)

    def _parse_prefix(self) -> ex.Text | ex.Parameter:
        found = self._parse_literal()
        if not isinstance(found, ex.Text | ex.Parameter):
            raise _syntax_error("a quoted text or a parameter", str(found), self._tokens[self._at - 1].position)
        return found

    def _parse_literal(self) -> ex.Literal:
        self._literals += 1
        if self._literals > LITERALS_MAX:
            raise _syntax_error(f"at most {LITERALS_MAX} literals", "more", self._next.position)
        token = self._next
        literal: ex.Literal
        if token.kind == "text":
            literal = ex.Text(token.text[1:-1].replace("''", "'"))
        elif token.kind == "number":
            literal = ex.Number(token.text)
        elif token.kind == "parameter":
            literal = ex.Parameter(token.text[2:-1])
        elif token.kind == "keyword" and token.text in ("true", "false"):
            literal = ex.Boolean(token.text == "true")
        else:
            raise self._unexpected_error("a literal")
        self._take()
        return literal


_GRAMMAR: Final = "the grammar is closed: comparisons, in, is null, is nan, starts with, joined by and, or, not"
_TOP_LEVEL: Final = "filters look at whole columns; a column whose own name has a dot is written in backquotes"


def _syntax_error(expected: str, got: str, position: int, hint: str = _GRAMMAR) -> InputError:
    return InputError(
        "expression_invalid",
        f"the filter cannot be read at character {position + 1}",
        expected=expected,
        got=got if got.isascii() and got.isprintable() and len(got) <= 80 else ascii(got[:80]),
        hint=hint,
        character=position + 1,
    )


def _no_token_error(text: str, position: int) -> InputError:
    """The error for text where no token begins. It names the likely mistake."""
    rest = text[position:]
    if rest.startswith("``"):
        return _syntax_error("a name in the backquotes", "none", position)
    if rest[0] in "'`":
        return _syntax_error(f"the closing {rest[0]}", "the end", len(text))
    if rest[0] == "." and position and (text[position - 1].isalnum() or text[position - 1] in "_`"):
        return _syntax_error("a column of the table itself", "a field inside a column", position, hint=_TOP_LEVEL)
    if rest.startswith("$"):
        return _syntax_error("a parameter as ${name}", rest.split()[0], position)
    word = re.split(r"[\s(),]", rest)[0] or rest[0]
    return _syntax_error("a name, a literal, an operator or a bracket", word, position)
