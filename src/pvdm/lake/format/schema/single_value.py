"""Single values as bytes (Appendix D of the Iceberg specification), with the sizes and ranges of their types."""

from __future__ import annotations

import re
import struct
from decimal import Decimal
from typing import Any, Final, TypeAlias
from uuid import UUID

from pvdm.errors import Code, PvdmError
from pvdm.model.schema import DecimalType, FixedType, GeoType, Kind, PrimitiveType, Type

SINGLE_VALUE_MAX_BYTES: Final = 16_777_216

# Integers, dates and times are int; floats float; booleans bool; text str; uuid UUID; decimal Decimal; the rest bytes.
Value: TypeAlias = Any

_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")
_DAY_MICROS: Final = 86_400_000_000
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_LONGS: Final = (Kind.LONG, Kind.TIME, Kind.TIMESTAMP, Kind.TIMESTAMPTZ, Kind.TIMESTAMP_NS, Kind.TIMESTAMPTZ_NS)
_INTEGER_BYTES: Final = {Kind.INT: 4, Kind.DATE: 4, **dict.fromkeys(_LONGS, 8)}
PADDED_DECIMAL_BYTES: Final = 17  # 38 digits need 16 bytes, and some writers pad by one
# The types that a date can be promoted to, and how many of their units a day has.
_UNITS_OF_DAY: Final = {Kind.TIMESTAMP: _DAY_MICROS, Kind.TIMESTAMP_NS: _DAY_MICROS * 1_000}


def _value_error(type_: Type, expected: str, got: object) -> PvdmError:
    return Code.SINGLE_VALUE_INVALID(f"a value is not one of type {type_}", expected=expected, got=repr(got)[:120])


def _length_error(type_: Type, expected: str, data: bytes) -> PvdmError:
    words, got = f"the bytes of a value are not those of type {type_}", f"{len(data)} bytes"
    return Code.SINGLE_VALUE_INVALID(words, reason="single_value_wrong_length", expected=expected, got=got)


def encode_value(type_: Type, value: Value) -> bytes:
    """The bytes of one value that is not null."""
    check_value(type_, value)
    match type_:
        case PrimitiveType(Kind.BOOLEAN):
            return b"\x01" if value else b"\x00"
        case PrimitiveType(name) if name in _INTEGER_BYTES:
            return int(value).to_bytes(_INTEGER_BYTES[name], "little", signed=True)
        case PrimitiveType(Kind.FLOAT):
            return _FLOAT.pack(value)
        case PrimitiveType(Kind.DOUBLE):
            return _DOUBLE.pack(value)
        case PrimitiveType(Kind.STRING):
            return bytes(value.encode())
        case PrimitiveType(Kind.UUID):
            return bytes(value.bytes)
        case DecimalType():
            return minimal_bytes(unscaled(type_, value))
        case _:
            return bytes(value)


def check_value(type_: Type, value: Value) -> None:
    """Raise if the value is not valid for the type."""
    match type_:
        case PrimitiveType(Kind.BOOLEAN):
            _require(type_, isinstance(value, bool), "true or false", value)
        case PrimitiveType(name) if name in _INTEGER_BYTES:
            bits = 8 * _INTEGER_BYTES[name]
            _require(type_, type(value) is int, "an integer", value)
            _require(type_, -(2 ** (bits - 1)) <= value < 2 ** (bits - 1), f"{bits} bits", value)
            _require(type_, name is not Kind.TIME or 0 <= value < _DAY_MICROS, "a time of day", value)
        case PrimitiveType(Kind.FLOAT | Kind.DOUBLE):
            _require(type_, type(value) is float, "a floating-point number", value)
            _require(type_, type_.kind is Kind.DOUBLE or _is_single(value), "a number of single precision", value)
        case PrimitiveType(Kind.STRING):
            _require(type_, type(value) is str and not _SURROGATE.search(value), "text", value)
        case PrimitiveType(Kind.UUID):
            _require(type_, type(value) is UUID, "a UUID", value)
        case PrimitiveType(Kind.BINARY) | GeoType():
            _require(type_, type(value) is bytes, "bytes", value)
        case FixedType(length):
            _require(type_, type(value) is bytes and len(value) == length, f"{length} bytes", value)
        case DecimalType():
            unscaled(type_, value)
        case _:
            raise Code.SINGLE_VALUE_INVALID(reason="single_value_unsupported", got=str(type_))


def _require(type_: Type, is_valid: bool, expected: str, got: object) -> None:
    if not is_valid:
        raise _value_error(type_, expected, got)


def _is_single(value: float) -> bool:
    if value != value:  # noqa: PLR0124  NaN equals nothing, and has every precision
        return True
    try:
        return bool(_FLOAT.unpack(_FLOAT.pack(value))[0] == value)
    except OverflowError:
        return False


def unscaled(type_: DecimalType, value: Value) -> int:
    """The decimal times ten to the power of the type's scale. Raises if it does not fit scale and precision."""
    if type(value) is not Decimal or not value.is_finite():
        raise _value_error(type_, "a finite decimal", value)
    sign, digits, exponent = value.as_tuple()
    shift = int(exponent) + type_.scale
    number = int("".join(map(str, digits)) or "0")
    if shift >= 0:
        # A larger power could take long to compute, and the number is out of range already.
        number *= 10 ** min(shift, type_.precision + 1)
    else:
        number, lost_digits = divmod(number, 10 ** min(-shift, len(digits) + 1))
        if lost_digits:
            raise _value_error(type_, f"a scale of {type_.scale}", value)
    if number >= 10**type_.precision:
        raise _value_error(type_, f"{type_.precision} digits", value)
    return int(-number if sign else number)


def from_unscaled(type_: DecimalType, number: int) -> Decimal:
    """The number divided by ten to the power of the type's scale. Raises if it has too many digits."""
    if abs(number) >= 10**type_.precision:
        # The message does not have the number itself, which may be a megabyte long.
        raise _value_error(type_, f"{type_.precision} digits", f"{number.bit_length()} bits")
    digits = tuple(int(digit) for digit in str(abs(number)))
    return Decimal((1 if number < 0 else 0, digits, -type_.scale))


def minimal_bytes(number: int) -> bytes:
    """The number in two's complement, most significant byte first, in the fewest bytes."""
    bits = (number if number >= 0 else ~number).bit_length()
    return number.to_bytes(bits // 8 + 1, "big", signed=True)


def decode_value(type_: Type, data: bytes) -> Value:
    """The value of these bytes. Raises if the type needs another number of bytes, or has no such value."""
    if len(data) > SINGLE_VALUE_MAX_BYTES:
        expected = f"at most {SINGLE_VALUE_MAX_BYTES}"
        raise Code.SINGLE_VALUE_INVALID(reason="single_value_too_large", expected=expected, got=str(len(data)))
    match type_:
        case PrimitiveType(Kind.BOOLEAN):
            return _require_length(type_, data, 1) != b"\x00"
        case PrimitiveType(name) if name in _INTEGER_BYTES:
            value = int.from_bytes(_require_length(type_, data, _INTEGER_BYTES[name]), "little", signed=True)
        case PrimitiveType(Kind.FLOAT):
            return float(_FLOAT.unpack(_require_length(type_, data, 4))[0])
        case PrimitiveType(Kind.DOUBLE):
            return float(_DOUBLE.unpack(_require_length(type_, data, 8))[0])
        case PrimitiveType(Kind.STRING):
            try:
                return data.decode()
            except UnicodeDecodeError as error:
                raise _value_error(type_, "UTF-8", error.reason) from None
        case PrimitiveType(Kind.UUID):
            return UUID(bytes=_require_length(type_, data, 16))
        case FixedType(length):
            return _require_length(type_, data, length)
        case PrimitiveType(Kind.BINARY) | GeoType():
            return data
        case DecimalType():
            if not 1 <= len(data) <= PADDED_DECIMAL_BYTES:
                raise _length_error(type_, f"1 to {PADDED_DECIMAL_BYTES} bytes", data)
            return from_unscaled(type_, int.from_bytes(data, "big", signed=True))
        case _:
            raise Code.SINGLE_VALUE_INVALID(reason="single_value_unsupported", got=str(type_))
    check_value(type_, value)
    return value


def decode_promoted(type_: Type, data: bytes) -> Value:
    """As `decode_value`, but also accepts bounds that were written before the column was promoted to this type."""
    match type_:
        case PrimitiveType(Kind.LONG) if len(data) == 4:
            return int.from_bytes(data, "little", signed=True)
        case PrimitiveType(Kind.DOUBLE) if len(data) == 4:
            return float(_FLOAT.unpack(data)[0])
        case PrimitiveType(name) if name in _UNITS_OF_DAY and len(data) == 4:
            value = int.from_bytes(data, "little", signed=True) * _UNITS_OF_DAY[name]
            check_value(type_, value)
            return value
        case _:
            return decode_value(type_, data)


def _require_length(type_: Type, data: bytes, size: int) -> bytes:
    if len(data) != size:
        raise _length_error(type_, f"{size} bytes", data)
    return data
