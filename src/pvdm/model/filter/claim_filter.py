"""Claims read off filters: which part of one column a filter lets through at most; never less than it does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from pvdm.errors import Code, InputError
from pvdm.model.filter.claim import Claim, ClaimValue, edge, successor, value_text
from pvdm.model.filter.expression import (
    And,
    Compare,
    Expression,
    IsNull,
    Literal,
    LiteralValue,
    OneOf,
    Operator,
    Or,
    StartsWith,
)


def is_bounded(where: Expression, column: str) -> bool:
    """Whether the filter holds the column between two values, or to null; its form says so, whatever the literals."""
    found = _extent(where, column, lambda _, after: _Cut(b"", None, after))
    return found is not None and found.is_bounded


def read_claim(where: Expression, column: str, kind: str, value_of: Callable[[Literal], LiteralValue]) -> Claim:
    """The claim of a filter that bounds the column, which has this type of Iceberg's.

    Raises `claim_empty` where no value of the type is between the bounds.
    """

    def cut(literal: Literal, after: bool) -> _Cut:
        value = _claimed(value_of(literal))
        # Of a type that counts `<= 5` is `< 6`, so that it meets no `>= 6` and no `> 5`.
        following = successor(kind, value) if after else None
        if following is not None:
            return _Cut(edge(kind, following, False), following, False)
        return _Cut(edge(kind, value, after), value, after)

    null = Claim.value(column, kind, None)  # a column whose type has no one order cannot be claimed at all
    found = _extent(where, column, cut)
    if found is None or not found.is_bounded:
        raise AssertionError("a contract whose filter does not bound its claim is refused")
    lower, upper = found.lower, found.upper
    if lower is None or upper is None:
        return null
    if found.is_empty:
        raise _empty(column, kind, lower, upper)
    if not lower.after and not upper.after and upper.value == successor(kind, lower.value):
        return Claim.value(column, kind, lower.value)
    if (lower.value, lower.after, upper.after) == (upper.value, False, True):
        return Claim.value(column, kind, lower.value)
    return Claim.between(column, kind, lower.value, upper.value, after_lower=lower.after, after_upper=upper.after)


@dataclass(frozen=True, slots=True)
class _Cut:
    """A place between values: just before one, or just after it; keys compare as places do."""

    key: bytes
    value: ClaimValue
    after: bool


@dataclass(frozen=True, slots=True)
class _Extent:
    """The values from one cut to the other, open where there is none; `null`: no value at all, only null."""

    lower: _Cut | None = None
    upper: _Cut | None = None
    null: bool = False

    @property
    def is_bounded(self) -> bool:
        return self.null or (self.lower is not None and self.upper is not None)

    @property
    def is_empty(self) -> bool:
        return self.lower is not None and self.upper is not None and self.lower.key >= self.upper.key


def _extent(where: Expression, column: str, cut: Callable[[Literal, bool], _Cut]) -> _Extent | None:
    """What the column is in every row that passes; None where nothing is known of it, so that it may be null too."""
    match where:
        case And(parts):
            return _met([found for part in parts if (found := _extent(part, column, cut)) is not None])
        case Or(parts):
            return _hull([_extent(part, column, cut) for part in parts])
        case IsNull(name, negated) if name == column:
            return _Extent(null=not negated)
        case Compare(name, operator, literal) if name == column:
            return _compared(operator, literal, cut)
        case OneOf(name, literals, False) if name == column:
            return _hull([_compared(Operator.EQUAL, literal, cut) for literal in literals])
        case OneOf(name, _, True) | StartsWith(name) if name == column:
            return _Extent()  # some value, since null is not taken
        case _:
            return None


def _compared(operator: Operator, literal: Literal, cut: Callable[[Literal, bool], _Cut]) -> _Extent:
    match operator:
        case Operator.EQUAL:
            return _Extent(cut(literal, False), cut(literal, True))
        case Operator.LESS | Operator.LESS_OR_EQUAL:
            return _Extent(upper=cut(literal, operator is Operator.LESS_OR_EQUAL))
        case Operator.GREATER | Operator.GREATER_OR_EQUAL:
            return _Extent(lower=cut(literal, operator is Operator.GREATER))
        case Operator.NOT_EQUAL:
            return _Extent()


def _met(found: list[_Extent]) -> _Extent | None:
    """What is in all of them."""
    if not found:
        return None
    if any(each.null for each in found):
        return _Extent(null=True)
    lowers = [each.lower for each in found if each.lower is not None]
    uppers = [each.upper for each in found if each.upper is not None]
    return _Extent(
        max(lowers, key=lambda each: each.key, default=None), min(uppers, key=lambda each: each.key, default=None)
    )


def _hull(found: list[_Extent | None]) -> _Extent | None:
    """From the least to the greatest of them; null and values have no range in common."""
    known = [each for each in found if each is not None]
    if len(known) < len(found) or len({each.null for each in known}) > 1:
        return None
    known = [each for each in known if not each.is_empty] or known[:1]
    lowers = [each.lower for each in known if each.lower is not None]
    uppers = [each.upper for each in known if each.upper is not None]
    return _Extent(
        min(lowers, key=lambda each: each.key) if len(lowers) == len(known) else None,
        max(uppers, key=lambda each: each.key) if len(uppers) == len(known) else None,
        known[0].null,
    )


def _empty(column: str, kind: str, lower: _Cut, upper: _Cut) -> InputError:
    name = ascii(column)[1:-1][:80]
    first, last = (value_text(kind, each.value)[:80] for each in (lower, upper))
    return InputError(
        Code.CLAIM_EMPTY,
        f"no row can pass the filter: it leaves no value of the claim column {name}",
        expected="a range that has a value in it",
        got=f"{name} {'>' if lower.after else '>='} {first} and {name} {'<=' if upper.after else '<'} {last}",
        hint="put the lower end below the upper one, in the parameters or in boundary.where",
    )


def _claimed(value: LiteralValue) -> ClaimValue:
    """A decimal is its digits, as a claim has it; floats are never claimed."""
    match value:
        case Decimal():
            sign, digits, _ = value.as_tuple()
            whole = int("".join(map(str, digits)))
            return -whole if sign else whole
        case float():
            raise AssertionError("a float has been refused")
        case _:
            return value
