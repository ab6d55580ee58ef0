"""Claims from filters: the range of one column's values that contains every row which a filter selects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from pvdm.errors import Code, InputError, PvdmError
from pvdm.model.filter import expression as ex
from pvdm.model.filter.bind import parse_typed
from pvdm.model.filter.claim import Claim, ClaimValue, edge, successor, value_text
from pvdm.model.schema import DecimalType, Kind, PrimitiveType, Type

# One type for each order that a claim column can have. Fixed has the order of binary, and int that of long.
_TYPES: Final[tuple[Type, ...]] = (
    *(PrimitiveType(each) for each in (Kind.STRING, Kind.BOOLEAN, Kind.LONG, Kind.DATE, Kind.TIME)),
    *(PrimitiveType(each) for each in (Kind.TIMESTAMP, Kind.TIMESTAMPTZ, Kind.TIMESTAMP_NS, Kind.TIMESTAMPTZ_NS)),
    *(PrimitiveType(Kind.UUID), PrimitiveType(Kind.BINARY), DecimalType(38, 18)),
)


def is_bounded(where: ex.Expression, column: str) -> bool:
    """Whether the filter bounds the column on both sides, or to null, whatever the values of its literals are."""
    found = _extent(where, column, lambda _, after: _Cut(b"", None, after))  # the values of cuts do not matter
    return found is not None and found.is_bounded


def read_claim(
    where: ex.Expression, column: str, kind: str, value_of: Callable[[ex.Literal], ex.LiteralValue]
) -> Claim:
    """The claim of a filter that bounds a column of this Iceberg type. Raises `claim_empty` for an empty range."""

    def cut(literal: ex.Literal, after: bool) -> _Cut:
        value = _to_claim_value(value_of(literal))
        # For an integer type `<= 5` is `< 6`, so that it does not overlap `>= 6` or `> 5`.
        following = successor(kind, value) if after else None
        if following is not None:
            return _Cut(edge(kind, following, False), following, False)
        return _Cut(edge(kind, value, after), value, after)

    null = Claim.value(column, kind, None)  # raises for a column whose type has no single order
    found = _extent(where, column, cut)
    if found is None or not found.is_bounded:
        raise AssertionError("a contract whose filter does not bound its claim is refused")
    lower, upper = found.lower, found.upper
    if lower is None or upper is None:
        return null
    if found.is_empty:
        raise _empty(column, kind, lower, upper)
    if not lower.after and not upper.after and upper.value == successor(kind, lower.value):  # 5 <= x < 6
        return Claim.value(column, kind, lower.value)
    if (lower.value, lower.after, upper.after) == (upper.value, False, True):  # from just before 5 to just after it
        return Claim.value(column, kind, lower.value)
    return Claim.between(column, kind, lower.value, upper.value, after_lower=lower.after, after_upper=upper.after)


@dataclass(frozen=True, slots=True)
class _Cut:
    """A position just before a value, or just after it. The order of `key` is the order of positions."""

    key: bytes
    value: ClaimValue
    after: bool


@dataclass(frozen=True, slots=True)
class _Extent:
    """The values from one cut to the other; None is no bound. With `null` it is the null value alone."""

    lower: _Cut | None = None
    upper: _Cut | None = None
    null: bool = False

    @property
    def is_bounded(self) -> bool:
        return self.null or (self.lower is not None and self.upper is not None)

    @property
    def is_empty(self) -> bool:
        return self.lower is not None and self.upper is not None and self.lower.key >= self.upper.key


def _extent(where: ex.Expression, column: str, cut: Callable[[ex.Literal, bool], _Cut]) -> _Extent | None:
    """A range with the column's values in all selected rows; None if the filter does not restrict the column."""
    match where:
        case ex.And(parts):
            return _intersect([found for part in parts if (found := _extent(part, column, cut)) is not None])
        case ex.Or(parts):
            return _hull([_extent(part, column, cut) for part in parts])
        case ex.IsNull(name, negated) if name == column:
            return _Extent(null=not negated)
        case ex.Compare(name, operator, literal) if name == column:
            return _compared(operator, literal, cut)
        case ex.OneOf(name, literals, False) if name == column:
            return _hull([_compared(ex.Operator.EQUAL, literal, cut) for literal in literals])
        case ex.OneOf(name, _, True) | ex.StartsWith(name) if name == column:
            return _Extent()  # any value except null
        case _:
            return None


def _compared(operator: ex.Operator, literal: ex.Literal, cut: Callable[[ex.Literal, bool], _Cut]) -> _Extent:
    match operator:
        case ex.Operator.EQUAL:
            return _Extent(cut(literal, False), cut(literal, True))
        case ex.Operator.LESS | ex.Operator.LESS_OR_EQUAL:
            return _Extent(upper=cut(literal, operator is ex.Operator.LESS_OR_EQUAL))
        case ex.Operator.GREATER | ex.Operator.GREATER_OR_EQUAL:
            return _Extent(lower=cut(literal, operator is ex.Operator.GREATER))
        case ex.Operator.NOT_EQUAL:
            return _Extent()


def _intersect(found: list[_Extent]) -> _Extent | None:
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
    """The smallest range that contains all of them; None if one is unknown, or for null together with values."""
    known = [each for each in found if each is not None]
    if len(known) < len(found) or len({each.null for each in known}) > 1:
        return None
    # Empty ranges do not widen the result, which is empty only if all are.
    known = [each for each in known if not each.is_empty] or known[:1]
    lowers = [each.lower for each in known if each.lower is not None]
    uppers = [each.upper for each in known if each.upper is not None]
    return _Extent(
        min(lowers, key=lambda each: each.key) if len(lowers) == len(known) else None,
        max(uppers, key=lambda each: each.key) if len(uppers) == len(known) else None,
        known[0].null,
    )


def _empty(column: str, kind: str, lower: _Cut, upper: _Cut) -> PvdmError:
    name = ascii(column)[1:-1][:80]
    first, last = (value_text(kind, each.value)[:80] for each in (lower, upper))
    message = f"no row can pass the filter: it leaves no value of the claim column {name}"
    got = f"{name} {'>' if lower.after else '>='} {first} and {name} {'<=' if upper.after else '<'} {last}"
    return Code.CLAIM_EMPTY(message, got=got)


def _to_claim_value(value: ex.LiteralValue) -> ClaimValue:
    """The value as claims have it: a decimal is its unscaled integer. Floats are never claimed."""
    match value:
        case Decimal():
            sign, digits, _ = value.as_tuple()
            whole = int("".join(map(str, digits)))
            return -whole if sign else whole
        case float():
            raise AssertionError("a float column cannot be claimed")
        case _:
            return value


def find_empty_range(where: ex.Expression, column: str, parameters: Mapping[str, str]) -> InputError | None:
    """The error for a filter that bounds the column and leaves no value of it, whatever type the column has.

    None if a value is left for some type, or if the range depends on a parameter that is not given.
    """
    empty: InputError | None = None
    for kind in _TYPES:

        def value_of(literal: ex.Literal, kind: Type = kind) -> ex.LiteralValue:
            return parse_typed(literal, column, kind, parameters).value

        try:
            read_claim(where, column, str(kind), value_of)
        except InputError as error:
            # Any other error says that a literal is not of this type, or that a parameter is not given.
            if error.code == Code.CLAIM_EMPTY:
                empty = empty or error
        else:
            return None
    return empty
