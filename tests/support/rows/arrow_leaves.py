"""The Arrow types that can hold given values of a type without children, and the bytes of a value in each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final, TypeAlias

import pyarrow as pa

from pvdm.digest.plan import Mode
from pvdm.model.schema import DECIMAL_PRECISION_MAX, DecimalType, FixedType, GeoType, Kind, PrimitiveType
from tests.support.oracles.canonical_values import DecimalValue, FloatBits, Value

Raw: TypeAlias = Callable[[Value], bytes]

DAY_MS: Final = 86_400_000
# Type, size in bytes, signed.
_INTS: Final = (
    (pa.int8(), 1, True),
    (pa.int16(), 2, True),
    (pa.int32(), 4, True),
    (pa.uint8(), 1, False),
    (pa.uint16(), 2, False),
)
_LONGS: Final = (*_INTS, (pa.int64(), 8, True), (pa.uint32(), 4, False))
# Constructor of the type, size in bytes, most digits.
_DECIMALS: Final = ((pa.decimal32, 4, 9), (pa.decimal64, 8, 18), (pa.decimal128, 16, 38), (pa.decimal256, 32, 76))
_STRINGS: Final = (pa.string(), pa.large_string(), pa.string_view())
_BINARIES: Final = (pa.binary(), pa.large_binary(), pa.binary_view())
# Arrow's units above a microsecond, and their microseconds.
_COARSE_UNITS: Final[tuple[tuple[Any, int], ...]] = (("s", 10**6), ("ms", 10**3))
_ZONES: Final = ("UTC", "+02:00", "America/New_York")
# By the width of binary16, binary32 and binary64: the bits of the exponent and of the fraction.
_FLOATS: Final = {16: (5, 10), 32: (8, 23), 64: (11, 52)}


@dataclass(frozen=True, slots=True)
class Layout:
    """An Arrow type, and a function that gives the bytes of a value in it."""

    type: pa.DataType
    raw: Raw


def leaf_layouts(
    kind: PrimitiveType | DecimalType | FixedType | GeoType, mode: Mode, values: Sequence[Value], rnd: Random
) -> list[Layout]:
    """Every layout that can hold all of these values; there is at least one."""
    match kind:
        case DecimalType():
            return list(_decimal_layouts(kind, mode, [_decimal(value) for value in values], rnd))
        case FixedType(length):
            return [Layout(pa.binary(length), _bytes)]
        case GeoType():
            return [Layout(arrow, _bytes) for arrow in _BINARIES]
        case PrimitiveType(Kind.BOOLEAN):
            return [Layout(pa.bool_(), lambda value: b"\x01" if value else b"\x00")]
        case PrimitiveType(Kind.STRING):
            return [Layout(arrow, _utf8) for arrow in _STRINGS]
        case PrimitiveType(Kind.BINARY):
            return [Layout(arrow, _bytes) for arrow in _BINARIES]
        case PrimitiveType(Kind.UUID):
            return [Layout(pa.binary(16), _bytes), Layout(pa.uuid(), _bytes)]
        case PrimitiveType(Kind.FLOAT | Kind.DOUBLE as floating):
            return list(_float_layouts(32 if floating is Kind.FLOAT else 64, values))
        case PrimitiveType(primitive):
            return list(_integer_layouts(primitive, [_int(value) for value in values], rnd))


def _int(value: Value) -> int:
    assert isinstance(value, int)
    return value


def _decimal(value: Value) -> DecimalValue:
    assert isinstance(value, DecimalValue)
    return value


def _bytes(value: Value) -> bytes:
    assert isinstance(value, bytes)
    return value


def _utf8(value: Value) -> bytes:
    assert isinstance(value, str)
    return value.encode()


def _scaled(value: Value, *, size: int, signed: bool, times: int = 1, divided: int = 1) -> bytes:
    """The bytes of the integer `value * times / divided`, which must be exact."""
    number, rest = divmod(_int(value) * times, divided)
    assert rest == 0
    return number.to_bytes(size, "little", signed=signed)


def _fits(number: int, size: int, signed: bool) -> bool:
    return -(1 << size * 8 - 1) <= number < 1 << size * 8 - 1 if signed else 0 <= number < 1 << size * 8


def _plain(arrow: pa.DataType, size: int, signed: bool = True) -> Layout:
    return Layout(arrow, partial(_scaled, size=size, signed=signed))


def _integer_layouts(kind: Kind, values: Sequence[int], rnd: Random) -> Iterator[Layout]:
    zone = rnd.choice(_ZONES)
    match kind:
        case Kind.INT | Kind.LONG:
            for arrow, size, signed in _INTS if kind is Kind.INT else _LONGS:
                if all(_fits(value, size, signed) for value in values):
                    yield _plain(arrow, size, signed)
        case Kind.DATE:
            yield from _date_layouts(1, values)
        case Kind.TIME:
            yield _plain(pa.time64("us"), 8)
            for unit, divided in _COARSE_UNITS:
                if all(value % divided == 0 for value in values):
                    yield Layout(pa.time32(unit), partial(_scaled, size=4, signed=True, divided=divided))
        case Kind.TIME_NS:
            yield _plain(pa.time64("ns"), 8)
        case Kind.TIMESTAMP | Kind.TIMESTAMPTZ:
            for unit, divided in (*_COARSE_UNITS, ("us", 1)):
                if all(value % divided == 0 for value in values):
                    stamp = pa.timestamp(unit, zone if kind is Kind.TIMESTAMPTZ else None)
                    yield Layout(stamp, partial(_scaled, size=8, signed=True, divided=divided))
            if kind is Kind.TIMESTAMP:
                yield from _date_layouts(DAY_MS * 10**3, values)
        case Kind.TIMESTAMP_NS:
            yield _plain(pa.timestamp("ns"), 8)
            yield from _date_layouts(DAY_MS * 10**6, values)
        case Kind.TIMESTAMPTZ_NS:
            yield _plain(pa.timestamp("ns", zone), 8)
        case _:
            raise AssertionError(f"no integer type: {kind}")


def _date_layouts(day: int, values: Sequence[int]) -> Iterator[Layout]:
    """Arrow's dates, if every value is a whole number of days; `day` is a day in the unit of the values."""
    if all(value % day == 0 and _fits(value // day, 4, signed=True) for value in values):
        yield Layout(pa.date32(), partial(_scaled, size=4, signed=True, divided=day))
        yield Layout(pa.date64(), partial(_scaled, size=8, signed=True, times=DAY_MS, divided=day))


def _decimal_layouts(kind: DecimalType, mode: Mode, values: Sequence[DecimalValue], rnd: Random) -> Iterator[Layout]:
    """One random scale, and each Arrow type for it. In stored mode the scale is the type's.

    In portable mode it is any scale at which all values are exact.
    """
    scales = [kind.scale] if mode is Mode.STORED else list(range(DECIMAL_PRECISION_MAX + 1))
    digits_max = kind.precision if mode is Mode.STORED else DECIMAL_PRECISION_MAX
    fitting: list[tuple[int, int]] = []  # least precision, scale
    for scale in scales:
        rescaled = [_rescale(value, scale) for value in values]
        exact = [number for number in rescaled if number is not None]
        needed = max((len(str(abs(number))) for number in exact), default=1)
        if len(exact) == len(values) and max(needed, scale) <= digits_max:
            fitting.append((max(needed, scale), scale))
    precision_min, scale = rnd.choice(fitting)
    for make, size, widest in _DECIMALS:
        if precision_min <= widest:
            precision = rnd.randrange(precision_min, min(digits_max, widest) + 1)
            yield Layout(make(precision, scale), partial(_decimal_bytes, size=size, scale=scale))
    allows_uint64 = mode is Mode.PORTABLE or kind.precision >= 20  # its source type is decimal(20, 0)
    if scale == 0 and allows_uint64 and all(_fits(_unscaled(value, 0), 8, signed=False) for value in values):
        yield Layout(pa.uint64(), lambda value: _unscaled(_decimal(value), 0).to_bytes(8, "little"))


def _rescale(value: DecimalValue, scale: int) -> int | None:
    """The unscaled number at this scale; None if it is not exact."""
    number, rest = divmod(value.unscaled * 10**scale, 10**value.scale)
    return None if rest else number


def _unscaled(value: DecimalValue, scale: int) -> int:
    number = _rescale(value, scale)
    assert number is not None
    return number


def _decimal_bytes(value: Value, *, size: int, scale: int) -> bytes:
    return _unscaled(_decimal(value), scale).to_bytes(size, "little", signed=True)


def _float_layouts(width: int, values: Sequence[Value]) -> Iterator[Layout]:
    for narrow, arrow in ((16, pa.float16()), (32, pa.float32()), (64, pa.float64())):
        if narrow <= width and all(narrowed(value, narrow) is not None for value in values):
            yield Layout(arrow, partial(_float_bytes, width=narrow))


def _float_bytes(value: Value, *, width: int) -> bytes:
    bits = narrowed(value, width)
    assert bits is not None
    return bits.to_bytes(width // 8, "little")


def narrowed(value: Value, width: int) -> int | None:
    """The bits of the same float in a format of `width` bits; None if this format cannot hold it exactly."""
    assert isinstance(value, FloatBits)
    exponent_bits, fraction_bits = _FLOATS[value.width]
    narrow_exponent_bits, narrow_fraction_bits = _FLOATS[width]
    drop = fraction_bits - narrow_fraction_bits
    sign = value.bits >> (value.width - 1) << (width - 1)
    exponent = value.bits >> fraction_bits & (1 << exponent_bits) - 1
    fraction = value.bits & (1 << fraction_bits) - 1
    narrow_exponent_max = (1 << narrow_exponent_bits) - 1
    if exponent == (1 << exponent_bits) - 1:  # infinity and NaN
        if fraction & (1 << drop) - 1:
            return None
        return sign | narrow_exponent_max << narrow_fraction_bits | fraction >> drop
    if drop == 0:
        return value.bits
    unbiased = exponent - ((1 << exponent_bits - 1) - 1)
    narrow_exponent = unbiased + (1 << narrow_exponent_bits - 1) - 1
    if exponent == 0:
        return sign if fraction == 0 else None  # subnormals of the wide format are below the narrow one
    if narrow_exponent >= narrow_exponent_max:
        return None
    if narrow_exponent <= 0:  # subnormal in the narrow format: the hidden bit becomes part of the fraction
        fraction |= 1 << fraction_bits
        drop += 1 - narrow_exponent
        narrow_exponent = 0
    if fraction & (1 << drop) - 1:
        return None
    return sign | narrow_exponent << narrow_fraction_bits | fraction >> drop
