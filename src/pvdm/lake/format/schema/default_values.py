"""Default values of columns (Iceberg's single-value JSON): whether a value has the form that its type wants."""

from __future__ import annotations

import math
import re
from datetime import date
from typing import Final

from pvdm.lake.format.json.document import LONG_LAST, LONG_MIN, Json, Number
from pvdm.lake.format.json.node import INT_LAST
from pvdm.lake.format.schema.type_names import TypeName

_DATE: Final = r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})"
_TIME: Final = r"(?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,9})?)?"
_HEX: Final = re.compile(r"[0-9a-fA-F]*+")
_FORMS: Final = {
    "uuid": re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"),
    "date": re.compile(_DATE),
    "time": re.compile(_TIME),
    "timestamp": re.compile(f"{_DATE}T{_TIME}"),
    "timestamp_ns": re.compile(f"{_DATE}T{_TIME}"),
    "timestamptz": re.compile(rf"{_DATE}T{_TIME}(?:\+00:00|Z)"),
    "timestamptz_ns": re.compile(rf"{_DATE}T{_TIME}(?:\+00:00|Z)"),
}
_DECIMAL: Final = re.compile(r"[+-]?(?P<whole>[0-9]+)(?:\.(?P<part>[0-9]+))?")
# No double has more; a decimal reader may fail at an exponent of twenty digits, even of zero.
_FLOAT: Final = re.compile(r"-?+[0-9]++(?:\.[0-9]++)?+(?:[eE][+-]?+[0-9]{1,4})?+")
_FLOAT_LAST: Final = 3.4028234663852886e38
# 64 bits of nanoseconds reach from 1677 into 2262.
_NANO_YEARS: Final = range(1678, 2262)


def fits(kind: TypeName, value: Json) -> bool:
    """Whether the value is one of the type's; unknown, variant and geometry types have no default but null."""
    match kind.base:
        case "boolean":
            return isinstance(value, bool)
        case "int":
            return type(value) is int and -INT_LAST - 1 <= value <= INT_LAST
        case "long":
            return type(value) is int and LONG_MIN <= value <= LONG_LAST
        case "float" | "double":
            return isinstance(value, Number) and _float_fits(value.text, kind.base)
        case "string":
            return isinstance(value, str)
        case "decimal":
            return isinstance(value, str) and _decimal_fits(value, kind.parameters)
        case "binary" | "fixed":
            size = _hex_bytes(value)
            return size is not None and kind.parameters in ((), (size,))
        case base if base in _FORMS:
            found = _FORMS[base].fullmatch(value) if isinstance(value, str) else None
            return found is not None and _day_fits(found.groupdict().get("date"), base)
        case _:
            return False


def _float_fits(text: str, base: str) -> bool:
    """Iceberg's own reader takes a floating-point spelling only: 1.0, never 1."""
    number = abs(float(text)) if _FLOAT.fullmatch(text) else math.inf
    return text != "-0" and math.isfinite(number) and (base == "double" or number <= _FLOAT_LAST)


def _hex_bytes(value: Json) -> int | None:
    """How many bytes the hexadecimal digits are, if they are any."""
    return len(value) // 2 if isinstance(value, str) and len(value) % 2 == 0 and _HEX.fullmatch(value) else None


def _day_fits(text: str | None, base: str) -> bool:
    if text is None:
        return True
    try:
        found = date.fromisoformat(text)
    except ValueError:
        return False
    return not base.endswith("_ns") or found.year in _NANO_YEARS


def _decimal_fits(text: str, parameters: tuple[int | str, ...]) -> bool:
    precision, scale = parameters
    found = _DECIMAL.fullmatch(text)
    if found is None:
        return False
    whole, part = found["whole"].lstrip("0"), found["part"] or ""
    return len(part) == int(scale) and len(whole) + len(part) <= int(precision)
