"""Reads claims from filters: a claim is the range of one column's values that contains every row of a filter."""

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

# One type for each order of values that a claim column can have. Fixed has the order of binary, int that of long.
_TYPES: Final[tuple[Type, ...]] = (
    *(PrimitiveType(each) for each in (Kind.STRING, Kind.BOOLEAN, Kind.LONG, Kind.DATE, Kind.TIME)),
    *(PrimitiveType(each) for each in (Kind.TIMESTAMP, Kind.TIMESTAMPTZ, Kind.TIMESTAMP_NS, Kind.TIMESTAMPTZ_NS)),
    *(PrimitiveType(Kind.UUID), PrimitiveType(Kind.BINARY), DecimalType(38, 18)),
)


def is_bounded(where: ex.Expression, column: str) -> bool:
    """Whether the filter bounds the column on both sides, or to null, whatever the values of its literals are."""
    found = _find_extent(where, column, lambda _, after: _Cut(b"", None, after))  # the values of cuts do not matter
    return found is not None and found.is_bounded


def read_claim(
    where: ex.Expression, column: str, column_type: str, value_of: Callable[[ex.Literal], ex.LiteralValue]
) -> Claim:
    """The claim of a filter that bounds a column of this Iceberg type. Raises `claim_empty` for an empty range."""

    def cut(literal: ex.Literal, after: bool) -> _Cut:
        value = _to_claim_value(value_of(literal))
        # For an integer type `<= 5` is `< 6`, so that it does not overlap `>= 6` or `> 5`.
        following = successor(column_type, value) if after else None
        if following is not None:
            return _Cut(edge(column_type, following, after=False), following, after=False)
        return _Cut(edge(column_type, value, after=after), value, after)

    null = Claim.value(column, column_type, None)  # raises for a column whose type has no single order
    found = _find_extent(where, column, cut)
    if found is None or not found.is_bounded:
        raise AssertionError("the filter does not bound the claim, but the contract was accepted")
    lower, upper = found.lower, found.upper
    if lower is None or upper is None:
        return null
    if found.is_empty:
        raise _empty_error(column, column_type, lower, upper)
    if not lower.after and not upper.after and upper.value == successor(column_type, lower.value):  # 5 <= x < 6
        return Claim.value(column, column_type, lower.value)
    if not lower.after and upper.after and upper.value == lower.value:  # 'a' <= x <= 'a'
        return Claim.value(column, column_type, lower.value)
    return Claim.between(
        column, column_type, lower.value, upper.value, after_lower=lower.after, after_upper=upper.after
    )


@dataclass(frozen=True, slots=True)
class _Cut:
    """A position just before a value, or just `after` it. The order of `key` is the order of positions."""

    key: bytes
    value: ClaimValue
    after: bool


_MakeCut = Callable[[ex.Literal, bool], _Cut]  # the cut just before the literal's value, or just after it (True)


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


def _find_extent(where: ex.Expression, column: str, cut: _MakeCut) -> _Extent | None:
    """A range that has the column's values in all selected rows; None if the filter does not restrict the column."""
    match where:
        case ex.And(parts):
            extents = [_find_extent(part, column, cut) for part in parts]
            return _intersect([each for each in extents if each is not None])
        case ex.Or(parts):
            return _find_hull([_find_extent(part, column, cut) for part in parts])
        case ex.IsNull(name, negated) if name == column:
            return _Extent(null=not negated)  # `is not null`: any value
        case ex.Compare(name, operator, literal) if name == column:
            return _extent_of_comparison(operator, literal, cut)
        case ex.OneOf(name, literals, False) if name == column:
            return _find_hull([_extent_of_comparison(ex.Operator.EQUAL, literal, cut) for literal in literals])
        case ex.OneOf(name, _, True) | ex.StartsWith(name) if name == column:
            return _Extent()  # any value except null
        case _:
            return None


def _extent_of_comparison(operator: ex.Operator, literal: ex.Literal, cut: _MakeCut) -> _Extent:
    match operator:
        case ex.Operator.EQUAL:
            return _Extent(cut(literal, False), cut(literal, True))
        case ex.Operator.LESS | ex.Operator.LESS_OR_EQUAL:
            return _Extent(upper=cut(literal, operator is ex.Operator.LESS_OR_EQUAL))
        case ex.Operator.GREATER | ex.Operator.GREATER_OR_EQUAL:
            return _Extent(lower=cut(literal, operator is ex.Operator.GREATER))
        case ex.Operator.NOT_EQUAL:
            return _Extent()


def _intersect(extents: list[_Extent]) -> _Extent | None:
    """A range that contains the values which are in all extents; None without an extent."""
    if not extents:
        return None
    if any(each.null for each in extents):
        return _Extent(null=True)
    lowers = [each.lower for each in extents if each.lower is not None]
    uppers = [each.upper for each in extents if each.upper is not None]
    return _Extent(
        max(lowers, key=lambda each: each.key, default=None), min(uppers, key=lambda each: each.key, default=None)
    )


def _find_hull(extents: list[_Extent | None]) -> _Extent | None:
    """The smallest range that contains all extents; None if an extent is unknown, or if null and values are mixed."""
    known = [each for each in extents if each is not None]
    if len(known) < len(extents) or len({each.null for each in known}) > 1:
        return None
    # Empty ranges do not widen the result. If all ranges are empty, the result is the first of them.
    known = [each for each in known if not each.is_empty] or known[:1]
    lowers = [each.lower for each in known if each.lower is not None]
    uppers = [each.upper for each in known if each.upper is not None]
    return _Extent(
        min(lowers, key=lambda each: each.key) if len(lowers) == len(known) else None,
        max(uppers, key=lambda each: each.key) if len(uppers) == len(known) else None,
        known[0].null,
    )


def _empty_error(column: str, column_type: str, lower: _Cut, upper: _Cut) -> PvdmError:
    name = ascii(column)[1:-1][:80]
    first, last = (value_text(column_type, each.value)[:80] for each in (lower, upper))
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
            raise AssertionError("the claim is of a float column, but the contract was accepted")
        case _:
            return value


def find_empty_range(where: ex.Expression, column: str, parameters: Mapping[str, str]) -> InputError | None:
    """The error for a filter that bounds the column and leaves no value of it, whatever type the column has.

    None if a value is left for some type, or if the range depends on a parameter that is not given.
    """
    empty: InputError | None = None
    for data_type in _TYPES:

        def value_of(literal: ex.Literal, data_type: Type = data_type) -> ex.LiteralValue:
            return parse_typed(literal, column, data_type, parameters).value

        try:
            read_claim(where, column, str(data_type), value_of)
        except InputError as error:
            # Any other error says that a literal is not of this type, or that a parameter is not given.
            if error.code == Code.CLAIM_EMPTY:
                empty = empty or error
        else:
            return None
    return empty
