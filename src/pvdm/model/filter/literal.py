"""Literals by type: parsing a text, and the canonical text of a value. Only floats round; others lose no digit."""

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
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_DAY: Final = date.min.toordinal() - _EPOCH.toordinal()
_LAST_DAY: Final = date.max.toordinal() - _EPOCH.toordinal()
_DAY_SECONDS: Final = 86_400
_NANOS: Final = frozenset({Kind.TIME_NS, Kind.TIMESTAMP_NS, Kind.TIMESTAMPTZ_NS})
_ZONED: Final = frozenset({Kind.TIMESTAMPTZ, Kind.TIMESTAMPTZ_NS})
_NUMERIC: Final = frozenset({Kind.INT, Kind.LONG, Kind.FLOAT, Kind.DOUBLE})


def parse_literal(text: str, kind: Type) -> LiteralValue:
    """The value that the text means in this type. Raises `literal_invalid`."""
    try:
        value = _parse(text, kind)
    except (ValueError, OverflowError):
        value = None
    if value is None:
        raise _invalid(kind, text)
    return value


def literal_text(value: LiteralValue, kind: Type) -> str | None:
    """The canonical text of a value; None if there is none, as for an infinity or the year 10000."""
    match kind, value:
        case PrimitiveType(Kind.BOOLEAN), bool():
            return "true" if value else "false"
        case PrimitiveType(Kind.STRING), str():
            return value
        case PrimitiveType(Kind.INT | Kind.LONG), int():
            return str(value)
        case PrimitiveType(Kind.FLOAT | Kind.DOUBLE), float():
            return repr(value + 0.0) if math.isfinite(value) else None
        case PrimitiveType(Kind.DATE), int():
            return _date_text(value) if _FIRST_DAY <= value <= _LAST_DAY else None
        case PrimitiveType(Kind.TIME | Kind.TIME_NS as unit), int():
            seconds, fraction = divmod(value, _units_per_second(unit))
            return _clock_text(seconds, fraction, unit) if 0 <= seconds < _DAY_SECONDS else None
        case PrimitiveType(Kind.TIMESTAMP | Kind.TIMESTAMPTZ | Kind.TIMESTAMP_NS | Kind.TIMESTAMPTZ_NS as unit), int():
            return _stamp_text(value, unit)
        case PrimitiveType(Kind.UUID), UUID():
            return str(value)
        case PrimitiveType(Kind.BINARY) | FixedType(), bytes():
            return value.hex()
        case DecimalType(), Decimal():
            return f"{value:f}"
    raise AssertionError(f"no value of {kind}: {type(value).__name__}")


def canonical_literal(value: LiteralValue, kind: Type) -> Text | Number | Boolean | None:
    """The literal of a value in canonical form; None if the grammar has none."""
    text = literal_text(value, kind)
    if text is None:
        return None
    if is_boolean(kind):
        return Boolean(text == "true")
    return Number(text) if is_numeric(kind) else Text(text)


def is_numeric(kind: Type) -> bool:
    """Whether the type's literals are numbers, written without quotes."""
    return isinstance(kind, DecimalType) or (isinstance(kind, PrimitiveType) and kind.kind in _NUMERIC)


def is_boolean(kind: Type) -> bool:
    """Whether the type's literals are `true` and `false`."""
    return kind == PrimitiveType(Kind.BOOLEAN)


def _parse(text: str, kind: Type) -> LiteralValue | None:
    match kind:
        case PrimitiveType(Kind.STRING):
            text.encode()  # raises for a lone surrogate
            return text
        case PrimitiveType(Kind.BOOLEAN):
            return {"true": True, "false": False}.get(text)
        case PrimitiveType(Kind.INT | Kind.LONG as width):
            return _integer(text, _BITS[width])
        case PrimitiveType(Kind.FLOAT | Kind.DOUBLE as width):
            return _float(text, single=width is Kind.FLOAT)
        case PrimitiveType(Kind.DATE):
            return _days(text) if _DATE.fullmatch(text) else None
        case PrimitiveType(Kind.TIME | Kind.TIME_NS as unit):
            found = _TIME.fullmatch(text)
            return None if found is None else _clock(found[1], found[2], found[3], unit)
        case PrimitiveType(Kind.TIMESTAMP | Kind.TIMESTAMPTZ | Kind.TIMESTAMP_NS | Kind.TIMESTAMPTZ_NS as unit):
            return _timestamp(text, unit)
        case PrimitiveType(Kind.UUID):
            return UUID(text) if _UUID.fullmatch(text) else None
        case PrimitiveType(Kind.BINARY):
            return bytes.fromhex(text) if _HEX.fullmatch(text) else None
        case FixedType(length):
            return bytes.fromhex(text) if _HEX.fullmatch(text) and len(text) == 2 * length else None
        case DecimalType(precision, scale):
            return _decimal(text, precision, scale)
        case _:
            return None


def _integer(text: str, bits: int) -> int | None:
    found = int(text) if _INTEGER.fullmatch(text) else None
    return found if found is not None and -(1 << bits) <= found < 1 << bits else None


def _digits(text: str) -> tuple[str, str, str, int] | None:
    """Sign, digits before and after the point, exponent; at least one digit."""
    found = _NUMBER.fullmatch(text)
    if found is None or not (found[2] or found[3]):
        return None
    return found[1], found[2] or "", found[3] or "", int(found[4] or 0)


def _float(text: str, *, single: bool) -> float | None:
    if _digits(text) is None:
        return None
    found = float(text)
    if single and math.isfinite(found):
        found = float(struct.unpack("<f", struct.pack("<f", found))[0])
    # Negative zero equals zero, and gets the same text.
    return found + 0.0 if math.isfinite(found) else None


def _decimal(text: str, precision: int, scale: int) -> Decimal | None:
    """Computed by digits, because decimal arithmetic would round to its context."""
    parts = _digits(text)
    if parts is None:
        return None
    sign, whole, fraction, exponent = parts
    unscaled, places = int(whole + fraction), len(fraction) - exponent
    if unscaled == 0:
        places = scale
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


def _days(text: str) -> int:
    return date.fromisoformat(text).toordinal() - _EPOCH.toordinal()


def _date_text(days: int) -> str:
    return date.fromordinal(days + _EPOCH.toordinal()).isoformat()


def _units_per_second(unit: Kind) -> int:
    return 10**9 if unit in _NANOS else 10**6


def _clock(hours_and_minutes: str, seconds: str | None, fraction: str | None, unit: Kind) -> int | None:
    """The time since midnight in the unit of the type; None if the fraction has more digits than the unit."""
    width = 9 if unit in _NANOS else 6
    padded = (fraction or "").ljust(width, "0")
    if padded[width:].strip("0"):
        return None
    total = int(hours_and_minutes[:2]) * 3600 + int(hours_and_minutes[3:]) * 60 + int(seconds or 0)
    return total * _units_per_second(unit) + int(padded[:width])


def _clock_text(seconds: int, fraction: int, unit: Kind) -> str:
    digits = f"{fraction:0{9 if unit in _NANOS else 6}d}".rstrip("0")
    minutes, second = divmod(seconds, 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{second:02d}" + (f".{digits}" if digits else "")


def _timestamp(text: str, unit: Kind) -> int | None:
    found = _STAMP.fullmatch(text)
    if found is None or (found[5] is not None) != (unit in _ZONED):
        return None
    within = _clock(found[2], found[3], found[4], unit)
    if within is None:
        return None
    value = (_days(found[1]) * _DAY_SECONDS - _offset_seconds(found[5])) * _units_per_second(unit) + within
    return value if -(2**63) <= value < 2**63 and _stamp_text(value, unit) is not None else None


def _offset_seconds(zone: str | None) -> int:
    if zone is None or zone == "Z":
        return 0
    seconds = int(zone[1:3]) * 3600 + int(zone[4:]) * 60
    return -seconds if zone[0] == "-" else seconds


def _stamp_text(value: int, unit: Kind) -> str | None:
    seconds, fraction = divmod(value, _units_per_second(unit))
    days, within = divmod(seconds, _DAY_SECONDS)
    if not _FIRST_DAY <= days <= _LAST_DAY:
        return None
    return f"{_date_text(days)}T{_clock_text(within, fraction, unit)}" + ("Z" if unit in _ZONED else "")


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


def _invalid(kind: Type, text: str) -> PvdmError:
    form = _FORMS.get(kind.kind) if isinstance(kind, PrimitiveType) else None
    if isinstance(kind, FixedType):
        form = _FORMS[Kind.BINARY]
    expected = f"a value of {kind}" + (f", as {form}" if form else "")
    return Code.FILTER_INVALID(reason="literal_invalid", expected=expected, got=ascii(text[:80]))
