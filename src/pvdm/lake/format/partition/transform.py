"""Applying transforms to values: buckets (Appendix B), truncation, and years to hours."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from typing import Final

from pvdm.errors import Code
from pvdm.lake.format.partition.spec import Transform
from pvdm.lake.format.schema.single_value import (
    Value,
    check_value,
    encode_value,
    from_unscaled,
    minimal_bytes,
    unscaled,
)
from pvdm.model.schema import DecimalType, Kind, PrimitiveType, Type

_MASK: Final = 0xFFFFFFFF
_EPOCH: Final = date(1970, 1, 1)
_HOUR_MICROS: Final = 3_600_000_000
_DAY_MICROS: Final = 24 * _HOUR_MICROS
_NANOS: Final = frozenset({Kind.TIMESTAMP_NS, Kind.TIMESTAMPTZ_NS})
# The proleptic calendar repeats itself after this many days and years.
_CYCLE_DAYS: Final = 146_097
_CYCLE_YEARS: Final = 400


def apply(transform: Transform, source: Type, value: Value) -> Value:
    """The partition value of a source value; null stays null."""
    result = transform.result(source)
    if result is None:
        raise Code.PARTITION_SPEC_INVALID(
            "an unknown transform cannot be applied", reason="partition_transform_unknown", got=str(transform)[:120]
        )
    if value is None or transform.name == "void":
        return None
    check_value(source, value)
    match transform.name:
        case "identity":
            return value
        case "bucket":
            return (bucket_hash(source, value) & 0x7FFFFFFF) % (transform.parameter or 1)
        case "truncate":
            return _truncated(source, value, transform.parameter or 1)
        case name:
            return _since_epoch(name, source, value)


def _truncated(source: Type, value: Value, width: int) -> Value:
    if isinstance(source, DecimalType):
        number = unscaled(source, value)
        return _decimal(source, number - number % width)
    if isinstance(value, int):
        floor = value - value % width
        check_value(source, floor)
        return floor
    return value[:width]


def _decimal(source: DecimalType, number: int) -> Decimal:
    return from_unscaled(source, number)


def _micros(source: Type, value: int) -> int:
    match source:
        case PrimitiveType(kind) if kind in _NANOS:
            return value // 1_000
        case _:
            return value


def _since_epoch(name: str, source: Type, value: int) -> int:
    if source == PrimitiveType(Kind.DATE):
        days = value
    else:
        micros = _micros(source, value)
        if name == "hour":
            return _within_int(micros // _HOUR_MICROS)
        days = micros // _DAY_MICROS
    if name == "day":
        return days
    cycles, rest = divmod(days, _CYCLE_DAYS)
    day = _EPOCH + timedelta(days=rest)
    years = day.year - 1970 + cycles * _CYCLE_YEARS
    return years if name == "year" else years * 12 + day.month - 1


def _within_int(value: int) -> int:
    check_value(PrimitiveType(Kind.INT), value)
    return value


def bucket_hash(source: Type, value: Value) -> int:
    """The 32-bit hash of a value as Appendix B defines it, unsigned."""
    match source:
        case DecimalType():
            return murmur3(minimal_bytes(unscaled(source, value)))
        case PrimitiveType(
            Kind.INT
            | Kind.LONG
            | Kind.DATE
            | Kind.TIME
            | Kind.TIMESTAMP
            | Kind.TIMESTAMPTZ
            | Kind.TIMESTAMP_NS
            | Kind.TIMESTAMPTZ_NS
        ):
            return murmur3(_micros(source, value).to_bytes(8, "little", signed=True))
        case _:
            return murmur3(encode_value(source, value))


def murmur3(data: bytes) -> int:
    """Murmur3 for x86, 32 bits, seed 0."""
    state = 0
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        state ^= _mixed(int.from_bytes(data[at : at + 4], "little"))
        state = ((state << 13) | (state >> 19)) & _MASK
        state = (state * 5 + 0xE6546B64) & _MASK
    if whole < len(data):
        state ^= _mixed(int.from_bytes(data[whole:], "little"))
    state ^= len(data)
    state = ((state ^ (state >> 16)) * 0x85EBCA6B) & _MASK
    state = ((state ^ (state >> 13)) * 0xC2B2AE35) & _MASK
    return state ^ (state >> 16)


def _mixed(part: int) -> int:
    part = (part * 0xCC9E2D51) & _MASK
    part = ((part << 15) | (part >> 17)) & _MASK
    return (part * 0x1B873593) & _MASK
