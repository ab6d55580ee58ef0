"""A claim covers every row that its filter lets through, and claims of filters that share a row overlap."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from pvdm.errors import InputError
from pvdm.lake.format.schema.logical import type_to_iceberg
from pvdm.model.filter.claim import Claim, ClaimValue
from pvdm.model.filter.claim_filter import is_bounded, read_claim
from pvdm.model.filter.expression import And, BoundLiteral, Compare, Expression, Literal, LiteralValue, OneOf, Operator
from pvdm.model.schema import Field, Kind, PrimitiveType, Schema, Type
from tests.support.claims import overlap
from tests.support.oracles.filters import SAMPLES, TYPES, filters, keeps, typed_literals

_NEVER_CLAIMED: Final = {PrimitiveType(each) for each in (Kind.FLOAT, Kind.DOUBLE, Kind.TIME_NS)}
_UNORDERED: Final = {PrimitiveType(Kind.BOOLEAN), PrimitiveType(Kind.UUID)}
CLAIMED: Final = [kind for kind in TYPES if kind not in _NEVER_CLAIMED]


def schema_of(kind: Type) -> Schema:
    return Schema((Field("c", kind), Field("other", PrimitiveType(Kind.INT))))


def value_of(literal: Literal) -> LiteralValue:
    assert isinstance(literal, BoundLiteral)
    return literal.value


@st.composite
def bounded_filters(draw: st.DrawFn, kind: Type) -> Expression:
    """Filters that bound the column `c`, with an added condition if the random filter alone does not."""
    found = draw(filters(schema_of(kind)))
    if is_bounded(found, "c"):
        return found
    literals = typed_literals(kind)
    if kind in _UNORDERED or draw(st.booleans()):
        return And((found, OneOf("c", tuple(draw(st.lists(literals, min_size=1, max_size=3))))))
    lower = draw(st.sampled_from((Operator.GREATER, Operator.GREATER_OR_EQUAL)))
    upper = draw(st.sampled_from((Operator.LESS, Operator.LESS_OR_EQUAL)))
    return And((found, Compare("c", lower, draw(literals)), Compare("c", upper, draw(literals))))


def neighbours(value: Any) -> list[Any]:
    """The value, and for integers also the ones next to it."""
    if isinstance(value, int) and not isinstance(value, bool):
        return [each for each in (value - 1, value, value + 1) if -(2**63) <= each < 2**63]
    return [value]


def as_claimed(value: Any) -> ClaimValue:
    """The value in the form of claims, which have decimals as unscaled integers."""
    if isinstance(value, Decimal):
        return int(str(value).replace(".", ""))
    found: ClaimValue = value
    return found


def claim_or_none(where: Expression, kind: str) -> Claim | None:
    """The claim; None if the filter is refused because its range is empty."""
    try:
        return read_claim(where, "c", kind, value_of)
    except InputError as error:
        if error.reason != "claim_empty":
            raise
        return None


@given(st.data())
def test_a_claim_covers_every_row_that_the_filter_lets_through(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(CLAIMED))
    name = type_to_iceberg(kind)
    where = data.draw(bounded_filters(kind))
    claim = claim_or_none(where, name)
    for other in (None, *SAMPLES[PrimitiveType(Kind.INT)]):
        for value in (None, *(each for pooled in SAMPLES[kind] for each in neighbours(pooled))):
            if keeps(where, {"c": value, "other": other}):
                assert claim is not None, (str(where), value)
                assert overlap(Claim.value("c", name, as_claimed(value)), claim), (str(where), value, claim.text)


@given(st.data())
def test_claims_of_filters_that_share_a_row_overlap(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(CLAIMED))
    first, second = (data.draw(bounded_filters(kind)) for _ in range(2))
    rows = [{"c": value, "other": other} for value in (None, *SAMPLES[kind]) for other in (None, 0, 1)]
    if any(keeps(first, row) and keeps(second, row) for row in rows):
        name = type_to_iceberg(kind)
        assert overlap(read_claim(first, "c", name, value_of), read_claim(second, "c", name, value_of))
