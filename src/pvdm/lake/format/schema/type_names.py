"""Iceberg's primitive types by name, and checks of default values against them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import date
from typing import Final

from pvdm.errors import Code, PvdmError
from pvdm.lake.format.json_document import INT_LAST, LONG_LAST, LONG_MIN, Json, Number, abbreviate
from pvdm.model.schema import Kind

ICEBERG_DECIMAL_PRECISION_MAX: Final = 38

_WITHOUT_PARAMETERS: Final = frozenset(kind.value for kind in Kind if kind is not Kind.TIME_NS)  # Iceberg lacks it
_FROM_FORMAT_3: Final = frozenset({"timestamp_ns", "timestamptz_ns", "unknown", "variant", "geometry", "geography"})
_FIXED: Final = re.compile(r"fixed\[\s*([0-9]{1,10})\s*\]", re.ASCII)
_DECIMAL: Final = re.compile(r"decimal\(\s*([0-9]{1,4})\s*,\s*([0-9]{1,4})\s*\)", re.ASCII)
# Space around a parameter is stripped afterwards: in the pattern it could match in many ways, which takes long.
_GEOMETRY: Final = re.compile(r"geometry\s*+(?:\(([^)]*+)\))?", re.ASCII | re.IGNORECASE)
_GEOGRAPHY: Final = re.compile(r"geography\s*+(?:\(([^,]*)(?:,\s*+(\w*+)\s*+)?\))?", re.ASCII | re.IGNORECASE)
_SPACE: Final = " \t\n\r\f\v"
_EDGE_ALGORITHMS: Final = ("spherical", "vincenty", "thomas", "andoyer", "karney")
DEFAULT_CRS: Final = "OGC:CRS84"
DEFAULT_ALGORITHM: Final = "spherical"


@dataclass(frozen=True, slots=True)
class TypeName:
    """A primitive type by its base name and parameters."""

    base: str
    parameters: tuple[int | str, ...] = ()

    @property
    def least_version(self) -> int:
        """The first format version whose tables may have the type."""
        return 3 if self.base in _FROM_FORMAT_3 else 1

    def __str__(self) -> str:
        match self.base, self.parameters:
            case "decimal", (precision, scale):
                return f"decimal({precision}, {scale})"
            case "fixed", (length,):
                return f"fixed[{length}]"
            case ("geometry" | "geography") as base, parameters:
                return f"{base}({', '.join(str(part) for part in parameters)})"
            case _:
                return self.base


def parse_type_name(text: str, place: str) -> TypeName:
    """Parse a type name in any case and spacing that Iceberg accepts. Raises with the `place` if it is unknown."""
    lower = text.lower()
    if lower in _WITHOUT_PARAMETERS:
        return TypeName(lower)
    if match := _DECIMAL.fullmatch(lower):
        precision, scale = int(match[1]), int(match[2])
        if not 1 <= precision <= ICEBERG_DECIMAL_PRECISION_MAX or scale > precision:
            raise _unknown(place, f"decimal(P,S) with P up to {ICEBERG_DECIMAL_PRECISION_MAX} and S up to P", text)
        return TypeName("decimal", (precision, scale))
    if match := _FIXED.fullmatch(lower):
        if not 1 <= int(match[1]) <= INT_LAST:
            raise _unknown(place, "fixed[L] with L from 1", text)
        return TypeName("fixed", (int(match[1]),))
    if match := _GEOMETRY.fullmatch(text):
        return TypeName("geometry", (_read_crs(match[1], text, place),))
    if match := _GEOGRAPHY.fullmatch(text):
        algorithm = DEFAULT_ALGORITHM if match[2] is None else match[2].lower()
        if algorithm not in _EDGE_ALGORITHMS:
            raise _unknown(place, f"an edge algorithm: {', '.join(_EDGE_ALGORITHMS)}", text)
        return TypeName("geography", (_read_crs(match[1], text, place), algorithm))
    raise _unknown(place, "a type of the Iceberg specification", text)


def _read_crs(parameter: str | None, text: str, place: str) -> str:
    """The coordinate reference system in a type name, or the default one. Raises if it is empty."""
    crs = DEFAULT_CRS if parameter is None else parameter.strip(_SPACE)
    if not crs:
        raise _unknown(place, "a coordinate reference system that is not empty", text)
    return crs


def _unknown(place: str, expected: str, text: str) -> PvdmError:
    words, got = f"the type at {place} is not known", abbreviate(text)
    return Code.ICEBERG_SCHEMA_INVALID(words, reason="iceberg_type_unknown", expected=expected, got=got, place=place)


_DATE: Final = r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})"
_TIME: Final = r"(?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,9})?)?"
_HEX: Final = re.compile(r"(?:[0-9a-fA-F]{2})*+")
_TEXT_FORMS: Final = {
    "uuid": re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"),
    "date": re.compile(_DATE),
    "time": re.compile(_TIME),
    "timestamp": re.compile(f"{_DATE}T{_TIME}"),
    "timestamp_ns": re.compile(f"{_DATE}T{_TIME}"),
    "timestamptz": re.compile(rf"{_DATE}T{_TIME}(?:\+00:00|Z)"),
    "timestamptz_ns": re.compile(rf"{_DATE}T{_TIME}(?:\+00:00|Z)"),
}
_DECIMAL_VALUE: Final = re.compile(r"[+-]?(?P<whole>[0-9]+)(?:\.(?P<fraction>[0-9]+))?")
# No double has an exponent of more than four digits, and some readers fail at an exponent of twenty digits.
_FLOAT_VALUE: Final = re.compile(r"-?+[0-9]++(?:\.[0-9]++)?+(?:[eE][+-]?+[0-9]{1,4})?+")
_FLOAT_LAST: Final = 3.4028234663852886e38  # of single precision
# Timestamps of nanoseconds in 64 bits begin during 1677 and end during 2262; the years between are complete.
_NANO_YEARS: Final = range(1678, 2262)


def is_default_of(type_name: TypeName, value: Json) -> bool:
    """Whether the value can be a default of the type; unknown, variant, geometry and geography have no default."""
    match type_name.base:
        case "boolean":
            return isinstance(value, bool)
        case "int":
            return type(value) is int and -INT_LAST - 1 <= value <= INT_LAST
        case "long":
            return type(value) is int and LONG_MIN <= value <= LONG_LAST
        case "float" | "double":
            return isinstance(value, Number) and _is_float(value.text, type_name.base)
        case "string":
            return isinstance(value, str)
        case "decimal":
            return isinstance(value, str) and _is_decimal(value, type_name.parameters)
        case "binary" | "fixed":
            is_hex = isinstance(value, str) and _HEX.fullmatch(value) is not None
            size = len(str(value)) // 2
            return is_hex and (type_name.base == "binary" or type_name.parameters == (size,))
        case base if base in _TEXT_FORMS:
            match = _TEXT_FORMS[base].fullmatch(value) if isinstance(value, str) else None
            return match is not None and _is_date(match.groupdict().get("date"), base)
        case _:
            return False


def _is_float(text: str, base: str) -> bool:
    """Whether the text of a `Number` is in range, in a spelling that Iceberg's reader accepts (not `-0`)."""
    number = abs(float(text)) if _FLOAT_VALUE.fullmatch(text) else math.inf
    return text != "-0" and math.isfinite(number) and (base == "double" or number <= _FLOAT_LAST)


def _is_date(text: str | None, base: str) -> bool:
    """Whether the date of a value exists and the type can hold it; True for types without a date."""
    if text is None:
        return True
    try:
        year = date.fromisoformat(text).year
    except ValueError:
        return False
    return not base.endswith("_ns") or year in _NANO_YEARS


def _is_decimal(text: str, parameters: tuple[int | str, ...]) -> bool:
    precision, scale = parameters
    match = _DECIMAL_VALUE.fullmatch(text)
    if match is None:
        return False
    whole, fraction = match["whole"].lstrip("0"), match["fraction"] or ""
    return len(fraction) == int(scale) and len(whole) + len(fraction) <= int(precision)
