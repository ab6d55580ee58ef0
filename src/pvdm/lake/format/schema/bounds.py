"""Lower and upper bounds of columns: made by metrics mode, read, and compared exactly."""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass
from typing import Any, Final

from pvdm.errors import Code, PvdmError
from pvdm.lake.format.schema.single_value import Value, check_value, decode_promoted, encode_value, unscaled
from pvdm.model.schema import DecimalType, FixedType, GeoType, Kind, PrimitiveType, Type

TRUNCATE_LENGTH_DEFAULT: Final = 16
_MODE: Final = re.compile(r"truncate\((\d{1,9})\)", re.ASCII | re.IGNORECASE)
_SURROGATES_FIRST: Final = 0xD800
_SURROGATES_LAST: Final = 0xDFFF
_CODE_POINT_LAST: Final = 0x10FFFF
_VARIANT_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class MetricsMode:
    """The metrics that a table keeps for a column: none, counts, truncated bounds, or full bounds."""

    counts: bool
    bounds: bool
    length: int | None = None

    @classmethod
    def parse(cls, text: str) -> MetricsMode:
        """Read the value of a `write.metadata.metrics` property. Raises if it is not known."""
        match text.lower():
            case "none":
                return cls(counts=False, bounds=False)
            case "counts":
                return cls(counts=True, bounds=False)
            case "full":
                return cls(counts=True, bounds=True)
        match = _MODE.fullmatch(text)
        if match is None or int(match[1]) == 0:
            raise Code.PROPERTY_INVALID(reason="metrics_mode_unknown", got=repr(text)[:40])
        return cls(counts=True, bounds=True, length=int(match[1]))


TRUNCATE_16: Final = MetricsMode(counts=True, bounds=True, length=TRUNCATE_LENGTH_DEFAULT)


@dataclass(frozen=True, slots=True)
class GeoPoint:
    """A corner of the box around geometries; z and m may be None."""

    x: float
    y: float
    z: float | None = None
    m: float | None = None


def lower_bound(kind: Type, minimum: Value, mode: MetricsMode = TRUNCATE_16) -> bytes | None:
    """The bytes of a lower bound: the least value or a prefix of it; None if the mode keeps none."""
    _require_bound(kind, minimum)
    if not mode.bounds:
        return None
    if mode.length is not None and _is_cut(kind):
        minimum = minimum[: mode.length]
    return encode_bound(kind, minimum)


def upper_bound(kind: Type, maximum: Value, mode: MetricsMode = TRUNCATE_16) -> bytes | None:
    """The bytes of an upper bound; None if the mode keeps none or no truncated value is large enough."""
    _require_bound(kind, maximum)
    if not mode.bounds:
        return None
    if mode.length is not None and _is_cut(kind) and len(maximum) > mode.length:
        cut = maximum[: mode.length]
        maximum = _next_text(cut) if isinstance(cut, str) else _next_bytes(cut)
    return None if maximum is None else encode_bound(kind, maximum)


def is_ordered(kind: Type) -> bool:
    """Whether all readers order values of the type alike. Java compares UUIDs as signed, the format as unsigned."""
    return kind != PrimitiveType(Kind.UUID)


def _is_cut(kind: Type) -> bool:
    # A bound of a fixed value must have its full length.
    return kind in (PrimitiveType(Kind.STRING), PrimitiveType(Kind.BINARY))


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
    for index in range(len(data) - 1, -1, -1):
        if data[index] < 0xFF:
            return data[:index] + bytes([data[index] + 1])
    return None


def _require_bound(kind: Type, value: Value) -> None:
    if isinstance(value, float) and math.isnan(value):
        raise Code.SINGLE_VALUE_INVALID(reason="bound_is_nan", got="NaN")
    if not isinstance(kind, GeoType) and kind != PrimitiveType(Kind.VARIANT):
        check_value(kind, value)


def encode_bound(kind: Type, value: Value) -> bytes:
    """The bytes of a full bound; geometries and geographies have points."""
    _require_bound(kind, value)
    if isinstance(kind, GeoType):
        return _encode_point(value)
    if kind == PrimitiveType(Kind.VARIANT):
        return _variant(value)
    return encode_value(kind, value)


def decode_bound(kind: Type, data: bytes) -> Value:
    """Decode a bound, also one that was written when the column had a narrower type."""
    if isinstance(kind, GeoType):
        return _decode_point(data)
    if kind == PrimitiveType(Kind.VARIANT):
        return _variant(data)
    value = decode_promoted(kind, data)
    _require_bound(kind, value)
    return value


def _variant(data: Any) -> bytes:
    """The bytes of a variant bound. Raises unless they start with metadata of the known version."""
    if type(data) is not bytes or len(data) < 4 or data[0] & 0x0F != _VARIANT_VERSION:
        raise Code.SINGLE_VALUE_INVALID(reason="bound_variant_invalid", got=repr(data)[:40])
    return data


def _point(expected: str, got: object) -> PvdmError:
    return Code.SINGLE_VALUE_INVALID(reason="bound_point_invalid", expected=expected, got=repr(got)[:80])


def _encode_point(value: Value) -> bytes:
    if not isinstance(value, GeoPoint):
        raise _point("a GeoPoint", value)
    numbers = [value.x, value.y]
    if value.m is not None:
        numbers += [math.nan if value.z is None else value.z, value.m]
    elif value.z is not None:
        numbers.append(value.z)
    found = struct.pack(f"<{len(numbers)}d", *numbers)
    if _decode_point(found) != value:
        raise _point("coordinates that are numbers", value)
    return found


def _decode_point(data: bytes) -> GeoPoint:
    if len(data) not in {16, 24, 32}:
        raise _point("16, 24 or 32 bytes", data)
    x, y, *rest = struct.unpack(f"<{len(data) // 8}d", data)
    z = rest[0] if rest else None
    m = rest[1] if len(rest) == 2 else None
    if m is not None and z is not None and math.isnan(z):
        z = None
    for number in (x, y, z, m):
        if number is not None and math.isnan(number):
            raise _point("coordinates that are numbers", data)
    return GeoPoint(x, y, z, m)


def order_key(kind: Type, value: Value) -> Any:
    """A sort key in Iceberg's order: -0.0 before +0.0, text by code point, bytes as unsigned."""
    match kind:
        case PrimitiveType(Kind.FLOAT | Kind.DOUBLE):
            _require_bound(kind, value)
            return (value, math.copysign(1.0, value))
        case PrimitiveType(Kind.UUID):
            return value.bytes
        case DecimalType():
            return unscaled(kind, value)
        case PrimitiveType(Kind.VARIANT | Kind.UNKNOWN):
            pass
        case PrimitiveType() | FixedType():
            check_value(kind, value)
            return value
        case _:
            pass
    raise Code.SINGLE_VALUE_INVALID(reason="bound_type_unordered", got=str(kind))


def compare(kind: Type, left: Value, right: Value) -> int:
    """-1, 0 or 1, by Iceberg's order."""
    first, second = order_key(kind, left), order_key(kind, right)
    return int(first > second) - int(first < second)
