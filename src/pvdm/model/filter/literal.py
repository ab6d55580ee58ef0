"""Literals by type: parsing a text, and the canonical text of a value. Only floats are rounded."""

from __future__ import annotations

import math
import re
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Final
from uuid import UUID

from pvdm.errors import Code, PvdmError
from pvdm.model.filter.expression import Boolean, LiteralValue, Number, Text
from pvdm.model.schema import DecimalType, FixedType, Kind, PrimitiveType, Type

_INTEGER: Final = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_NUMBER: Final = re.compile(r"([+-]?)(\d{1,100})?(?:\.(\d{0,100}))?(?:[eE]([+-]?\d{1,4}))?", re.ASCII)
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_CLOCK: Final = r"((?:[01]\d|2[0-3]):[0-5]\d)(?::([0-5]\d)(?:\.(\d{1,9}))?)?"  # hours and minutes, seconds, fraction
_TIME: Final = re.compile(_CLOCK, re.ASCII)
_STAMP: Final = re.compile(rf"(\d{{4}}-\d{{2}}-\d{{2}})[T ]{_CLOCK}(Z|[+-](?:0\d|1[0-8]):[0-5]\d)?", re.ASCII)
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)
_HEX: Final = re.compile(r"(?:[0-9a-fA-F]{2})*", re.ASCII)
_BITS: Final = {Kind.INT: 31, Kind.LONG: 63}  # without the sign
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)  # Unix's, from which dates and timestamps count
_FIRST_DAY: Final = date.min.toordinal() - _EPOCH.toordinal()
_LAST_DAY: Final = date.max.toordinal() - _EPOCH.toordinal()
_DAY_SECONDS: Final = 86_400
_NANOS: Final = frozenset({Kind.TIME_NS, Kind.TIMESTAMP_NS, Kind.TIMESTAMPTZ_NS})
_ZONED: Final = frozenset({Kind.TIMESTAMPTZ, Kind.TIMESTAMPTZ_NS})
_NUMERIC: Final = frozenset({Kind.INT, Kind.LONG, Kind.FLOAT, Kind.DOUBLE})


def parse_literal(text: str, data_type: Type) -> LiteralValue:
    """The value that the text means in this type. Raises `literal_invalid`."""
    try:
        value = _parse_as(text, data_type)
    except (ValueError, OverflowError):
        value = None
    if value is None:
        raise _invalid_literal(data_type, text)
    return value


def literal_text(value: LiteralValue, data_type: Type) -> str | None:
    """The canonical text of a value; None if there is none, as for an infinity or the year 10000."""
    match data_type, value:
        case PrimitiveType(Kind.BOOLEAN), bool():
            return "true" if value else "false"
        case PrimitiveType(Kind.STRING), str():
            return value
        case PrimitiveType(Kind.INT | Kind.LONG), int():
            return str(value)
        case PrimitiveType(Kind.FLOAT | Kind.DOUBLE), float():
            return repr(value + 0.0) if math.isfinite(value) else None  # + 0.0 turns -0.0 into 0.0
        case PrimitiveType(Kind.DATE), int():
            return _format_date(value) if _FIRST_DAY <= value <= _LAST_DAY else None
        case PrimitiveType(Kind.TIME | Kind.TIME_NS as kind), int():
            seconds, fraction = divmod(value, _units_per_second(kind))
            return _format_clock(seconds, fraction, kind) if 0 <= seconds < _DAY_SECONDS else None
        case PrimitiveType(Kind.TIMESTAMP | Kind.TIMESTAMPTZ | Kind.TIMESTAMP_NS | Kind.TIMESTAMPTZ_NS as kind), int():
            return _format_timestamp(value, kind)
        case PrimitiveType(Kind.UUID), UUID():
            return str(value)
        case PrimitiveType(Kind.BINARY) | FixedType(), bytes():
            return value.hex()
        case DecimalType(), Decimal():
            return f"{value:f}"
    raise AssertionError(f"no value of {data_type}: {type(value).__name__}")


def canonical_literal(value: LiteralValue, data_type: Type) -> Text | Number | Boolean | None:
    """The literal of a value in canonical form; None if the grammar has none."""
    text = literal_text(value, data_type)
    if text is None:
        return None
    if is_boolean(data_type):
        return Boolean(text == "true")
    return Number(text) if is_numeric(data_type) else Text(text)


def is_numeric(data_type: Type) -> bool:
    """Whether the type's literals are numbers, written without quotes."""
    return isinstance(data_type, DecimalType) or (isinstance(data_type, PrimitiveType) and data_type.kind in _NUMERIC)


def is_boolean(data_type: Type) -> bool:
    """Whether the type's literals are `true` and `false`."""
    return data_type == PrimitiveType(Kind.BOOLEAN)


def _parse_as(text: str, data_type: Type) -> LiteralValue | None:
    match data_type:
        case PrimitiveType(Kind.STRING):
            text.encode()  # raises for a lone surrogate
            return text
        case PrimitiveType(Kind.BOOLEAN):
            return {"true": True, "false": False}.get(text)
        case PrimitiveType(Kind.INT | Kind.LONG as kind):
            return _parse_integer(text, _BITS[kind])
        case PrimitiveType(Kind.FLOAT | Kind.DOUBLE as kind):
            return _parse_float(text, single=kind is Kind.FLOAT)
        case PrimitiveType(Kind.DATE):
            return _parse_days(text) if _DATE.fullmatch(text) else None
        case PrimitiveType(Kind.TIME | Kind.TIME_NS as kind):
            found = _TIME.fullmatch(text)
            return None if found is None else _parse_clock(found[1], found[2], found[3], kind)
        case PrimitiveType(Kind.TIMESTAMP | Kind.TIMESTAMPTZ | Kind.TIMESTAMP_NS | Kind.TIMESTAMPTZ_NS as kind):
            return _parse_timestamp(text, kind)
        case PrimitiveType(Kind.UUID):
            return UUID(text) if _UUID.fullmatch(text) else None
        case PrimitiveType(Kind.BINARY):
            return bytes.fromhex(text) if _HEX.fullmatch(text) else None
        case FixedType(length):
            return bytes.fromhex(text) if _HEX.fullmatch(text) and len(text) == 2 * length else None
        case DecimalType(precision, scale):
            return _parse_decimal(text, precision, scale)
        case _:
            return None


def _parse_integer(text: str, bits: int) -> int | None:
    found = int(text) if _INTEGER.fullmatch(text) else None
    return found if found is not None and -(1 << bits) <= found < 1 << bits else None


def _split_number(text: str) -> tuple[str, str, str, int] | None:
    """Sign, digits before and after the point, and exponent; None if the text is no number."""
    found = _NUMBER.fullmatch(text)
    if found is None:
        return None
    sign, whole, fraction, exponent = found.groups(default="")
    return (sign, whole, fraction, int(exponent or 0)) if whole or fraction else None


def _parse_float(text: str, *, single: bool) -> float | None:
    if _split_number(text) is None:
        return None
    found = float(text)
    if single and math.isfinite(found):
        found = float(struct.unpack("<f", struct.pack("<f", found))[0])
    return found + 0.0 if math.isfinite(found) else None  # -0.0 + 0.0 is 0.0: both zeros get the same text


def _parse_decimal(text: str, precision: int, scale: int) -> Decimal | None:
    """The decimal of this scale; None if a digit would be lost. Decimal arithmetic is not used, because it rounds."""
    parts = _split_number(text)
    if parts is None:
        return None
    sign, whole, fraction, exponent = parts
    unscaled, places = int(whole + fraction), len(fraction) - exponent
    if unscaled == 0:
        places = scale  # zero has any number of places
    if places < scale:
        unscaled *= 10 ** (scale - places)
    elif places > scale:
        unscaled, lost = divmod(unscaled, 10 ** (places - scale))
        if lost:
            return None
    digits = str(unscaled)
    if len(digits) > precision:
        return None
    return Decimal((int(sign == "-" and unscaled != 0), tuple(map(int, digits)), -scale))


def _parse_days(text: str) -> int:
    return date.fromisoformat(text).toordinal() - _EPOCH.toordinal()


def _format_date(days: int) -> str:
    return date.fromordinal(days + _EPOCH.toordinal()).isoformat()


def _units_per_second(kind: Kind) -> int:
    return 10**9 if kind in _NANOS else 10**6


def _parse_clock(hours_and_minutes: str, seconds: str | None, fraction: str | None, kind: Kind) -> int | None:
    """The time since midnight in micro- or nanoseconds, by the type; None if the fraction has too many digits."""
    width = 9 if kind in _NANOS else 6
    padded = (fraction or "").ljust(width, "0")
    if padded[width:].strip("0"):
        return None
    total = int(hours_and_minutes[:2]) * 3600 + int(hours_and_minutes[3:]) * 60 + int(seconds or 0)
    return total * _units_per_second(kind) + int(padded[:width])


def _format_clock(seconds: int, fraction: int, kind: Kind) -> str:
    digits = f"{fraction:0{9 if kind in _NANOS else 6}d}".rstrip("0")
    minutes, second = divmod(seconds, 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{second:02d}" + (f".{digits}" if digits else "")


def _parse_timestamp(text: str, kind: Kind) -> int | None:
    found = _STAMP.fullmatch(text)
    if found is None:
        return None
    day, hours_and_minutes, seconds, fraction, zone = found.groups()
    within_day = _parse_clock(hours_and_minutes, seconds, fraction, kind)
    if (zone is not None) != (kind in _ZONED) or within_day is None:
        return None
    midnight_seconds = _parse_days(day) * _DAY_SECONDS - _parse_offset_seconds(zone)
    value = midnight_seconds * _units_per_second(kind) + within_day
    return value if -(2**63) <= value < 2**63 and _format_timestamp(value, kind) is not None else None


def _parse_offset_seconds(zone: str | None) -> int:
    if zone is None or zone == "Z":
        return 0
    seconds = int(zone[1:3]) * 3600 + int(zone[4:]) * 60
    return -seconds if zone[0] == "-" else seconds


def _format_timestamp(value: int, kind: Kind) -> str | None:
    seconds, fraction = divmod(value, _units_per_second(kind))
    days, within = divmod(seconds, _DAY_SECONDS)
    if not _FIRST_DAY <= days <= _LAST_DAY:
        return None
    return f"{_format_date(days)}T{_format_clock(within, fraction, kind)}" + ("Z" if kind in _ZONED else "")


_FORMS: Final = {
    Kind.DATE: "2026-11-15",
    Kind.TIME: "09:30:00 or 09:30:00.000001",
    Kind.TIME_NS: "09:30:00 or 09:30:00.000000001",
    Kind.TIMESTAMP: "2026-11-15T09:30:00, without a zone",
    Kind.TIMESTAMP_NS: "2026-11-15T09:30:00.000000001, without a zone",
    Kind.TIMESTAMPTZ: "2026-11-15T09:30:00Z, with a zone",
    Kind.TIMESTAMPTZ_NS: "2026-11-15T09:30:00.000000001Z, with a zone",
    Kind.UUID: "00000000-0000-0000-0000-000000000000",
    Kind.BINARY: "two hexadecimal digits a byte",
}


def _invalid_literal(data_type: Type, text: str) -> PvdmError:
    form = _FORMS.get(data_type.kind) if isinstance(data_type, PrimitiveType) else None
    if isinstance(data_type, FixedType):
        form = _FORMS[Kind.BINARY]
    expected = f"a value of {data_type}" + (f", as {form}" if form else "")
    return Code.FILTER_INVALID(reason="literal_invalid", expected=expected, got=ascii(text[:80]))
