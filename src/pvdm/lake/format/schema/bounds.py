"""Lower and upper bounds of columns: encoded as the metrics mode says, decoded, and compared exactly."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Final

from pvdm.errors import Code, PvdmError
from pvdm.lake.format.schema.single_value import Value, check_value, decode_promoted, encode_value, unscaled
from pvdm.model.schema import DecimalType, FixedType, GeoType, Kind, PrimitiveType, Type

_TRUNCATE: Final = re.compile(r"truncate\((\d{1,9})\)", re.ASCII | re.IGNORECASE)
_SURROGATES_FIRST: Final = 0xD800
_SURROGATES_LAST: Final = 0xDFFF
_CODE_POINT_LAST: Final = 0x10FFFF


@dataclass(frozen=True, slots=True)
class MetricsMode:
    """The metrics that a table keeps for a column. Bounds are truncated to `length`; without a length they are full."""

    keeps_counts: bool
    keeps_bounds: bool
    length: int | None = None

    @classmethod
    def parse(cls, text: str) -> MetricsMode:
        """Read the value of a `write.metadata.metrics` property. Raises if it is not known."""
        if (lower := text.lower()) in ("none", "counts", "full"):
            return cls(keeps_counts=lower != "none", keeps_bounds=lower == "full")
        match = _TRUNCATE.fullmatch(text)
        if match is None or int(match[1]) == 0:
            raise Code.PROPERTY_INVALID(reason="metrics_mode_unknown", got=repr(text)[:40])
        return cls(keeps_counts=True, keeps_bounds=True, length=int(match[1]))


TRUNCATE_16: Final = MetricsMode(keeps_counts=True, keeps_bounds=True, length=16)


def lower_bound(type_: Type, minimum: Value, mode: MetricsMode = TRUNCATE_16) -> bytes | None:
    """The bytes of a lower bound: the least value or a prefix of it; None if the mode keeps no bounds."""
    _require_bound(type_, minimum)
    if not mode.keeps_bounds:
        return None
    if mode.length is not None and _can_truncate(type_):
        minimum = minimum[: mode.length]
    return encode_value(type_, minimum)


def upper_bound(type_: Type, maximum: Value, mode: MetricsMode = TRUNCATE_16) -> bytes | None:
    """The bytes of an upper bound; None if the mode keeps no bounds or no truncated value is large enough."""
    _require_bound(type_, maximum)
    if not mode.keeps_bounds:
        return None
    if mode.length is not None and _can_truncate(type_) and len(maximum) > mode.length:
        prefix = maximum[: mode.length]
        maximum = _next_text(prefix) if isinstance(prefix, str) else _next_bytes(prefix)
    return None if maximum is None else encode_value(type_, maximum)


def is_ordered(type_: Type) -> bool:
    """Whether all readers order values of the type alike. Java compares UUIDs as signed, Iceberg's spec as unsigned."""
    return type_ != PrimitiveType(Kind.UUID)


def _can_truncate(type_: Type) -> bool:
    # A bound of a fixed value must have the type's full length.
    return type_ in (PrimitiveType(Kind.STRING), PrimitiveType(Kind.BINARY))


def _next_text(text: str) -> str | None:
    """The least text above every text with this prefix; None if there is none."""
    for index in range(len(text) - 1, -1, -1):
        point = ord(text[index]) + 1
        if point == _SURROGATES_FIRST:
            point = _SURROGATES_LAST + 1
        if point <= _CODE_POINT_LAST:
            return text[:index] + chr(point)
    return None


def _next_bytes(data: bytes) -> bytes | None:
    """The least bytes above all bytes with this prefix; None if there are none."""
    prefix = data.rstrip(b"\xff")
    return prefix[:-1] + bytes([prefix[-1] + 1]) if prefix else None


def _unordered_error(type_: Type) -> PvdmError:
    return Code.SINGLE_VALUE_INVALID(reason="bound_type_unordered", got=str(type_))


def _require_bound(type_: Type, value: Value) -> None:
    """Raise unless the value can be a bound of a column of this type."""
    if isinstance(value, float) and math.isnan(value):
        raise Code.SINGLE_VALUE_INVALID(reason="bound_is_nan", got="NaN")
    if isinstance(type_, GeoType):
        raise _unordered_error(type_)
    check_value(type_, value)


def decode_bound(type_: Type, data: bytes) -> Value:
    """Decode a bound, also one that was written when the column had a narrower type."""
    value = decode_promoted(type_, data)
    _require_bound(type_, value)
    return value


def order_key(type_: Type, value: Value) -> Any:
    """A sort key in Iceberg's order: -0.0 before +0.0, text by code point, bytes as unsigned."""
    match type_:
        case PrimitiveType(Kind.FLOAT | Kind.DOUBLE):
            _require_bound(type_, value)
            return (value, math.copysign(1.0, value))
        case PrimitiveType(Kind.UUID):
            return value.bytes
        case DecimalType():
            return unscaled(type_, value)
        case PrimitiveType() | FixedType() if type_ not in (PrimitiveType(Kind.VARIANT), PrimitiveType(Kind.UNKNOWN)):
            check_value(type_, value)
            return value
        case _:
            raise _unordered_error(type_)


def compare(type_: Type, left: Value, right: Value) -> int:
    """-1, 0 or 1: whether `left` is below, equal to or above `right` in Iceberg's order."""
    first, second = order_key(type_, left), order_key(type_, right)
    return int(first > second) - int(first < second)
