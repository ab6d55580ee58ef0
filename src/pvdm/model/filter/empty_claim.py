"""Filters that leave no value of their claim column, whatever the column's type: told before a source is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pvdm.errors import Code, InputError
from pvdm.model.filter.bind import parse_typed
from pvdm.model.filter.claim_filter import read_claim
from pvdm.model.filter.expression import Expression, Literal, LiteralValue
from pvdm.model.schema import DecimalType, Kind, PrimitiveType, Type

# Every order that a claim column may have. Of a fixed and of an int the order is that of binary and of long.
_TYPES: Final[tuple[Type, ...]] = (
    *(
        PrimitiveType(each)
        for each in (
            Kind.STRING,
            Kind.BOOLEAN,
            Kind.LONG,
            Kind.DATE,
            Kind.TIME,
            Kind.TIMESTAMP,
            Kind.TIMESTAMPTZ,
            Kind.TIMESTAMP_NS,
            Kind.TIMESTAMPTZ_NS,
            Kind.UUID,
            Kind.BINARY,
        )
    ),
    DecimalType(38, 18),
)


def find_empty_range(where: Expression, column: str, parameters: Mapping[str, str]) -> InputError | None:
    """The refusal of a filter that bounds the column and leaves no value of it, of whatever type its literals are.

    None where a type has a value in the range, and where the range depends on a parameter that is not given.
    """
    judged = [_judge(where, column, kind, parameters) for kind in _TYPES]
    spelled = [found for is_spelled, found in judged if is_spelled]
    return spelled[0] if spelled and None not in spelled else None


def _judge(where: Expression, column: str, kind: Type, parameters: Mapping[str, str]) -> tuple[bool, InputError | None]:
    """Whether all literals are of the type, and the refusal if the range is empty then."""

    def value_of(literal: Literal) -> LiteralValue:
        return parse_typed(literal, column, kind, parameters).value

    try:
        read_claim(where, column, str(kind), value_of)
    except InputError as error:
        return (True, error) if error.code == Code.CLAIM_EMPTY else (False, None)
    return True, None
