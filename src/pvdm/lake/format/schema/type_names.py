"""Iceberg's primitive type names: what is known, in which format version, and one spelling of each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from pvdm.errors import InputError
from pvdm.lake.format.json.node import INT_LAST, shown

ICEBERG_DECIMAL_PRECISION_MAX: Final = 38

_PLAIN: Final = {
    "boolean": 1,
    "int": 1,
    "long": 1,
    "float": 1,
    "double": 1,
    "date": 1,
    "time": 1,
    "timestamp": 1,
    "timestamptz": 1,
    "timestamp_ns": 3,
    "timestamptz_ns": 3,
    "string": 1,
    "uuid": 1,
    "binary": 1,
    "unknown": 3,
    "variant": 3,
}
_FIXED: Final = re.compile(r"fixed\[\s*([0-9]{1,10})\s*\]", re.ASCII)
_DECIMAL: Final = re.compile(r"decimal\(\s*([0-9]{1,4})\s*,\s*([0-9]{1,4})\s*\)", re.ASCII)
# Space around a parameter is taken off afterwards: matched by the pattern it could be shared out in many ways.
_GEOMETRY: Final = re.compile(r"geometry\s*+(?:\(([^)]*+)\))?", re.ASCII | re.IGNORECASE)
_GEOGRAPHY: Final = re.compile(r"geography\s*+(?:\(([^,]*)(?:,\s*+(\w*+)\s*+)?\))?", re.ASCII | re.IGNORECASE)
_SPACE: Final = " \t\n\r\f\v"
_ALGORITHMS: Final = ("spherical", "vincenty", "thomas", "andoyer", "karney")
DEFAULT_CRS: Final = "OGC:CRS84"
DEFAULT_ALGORITHM: Final = "spherical"


@dataclass(frozen=True, slots=True)
class TypeName:
    """A primitive type: its base name, its parameters and the first format version that has it."""

    base: str
    parameters: tuple[int | str, ...] = ()

    @property
    def least_version(self) -> int:
        """The first format version whose tables may have it."""
        return 3 if self.base in ("geometry", "geography") else _PLAIN.get(self.base, 1)

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
    """The type that the name means, in any case and spacing that Iceberg reads."""
    lower = text.lower()
    if lower in _PLAIN:
        return TypeName(lower)
    if found := _DECIMAL.fullmatch(lower):
        precision, scale = int(found[1]), int(found[2])
        if not 1 <= precision <= ICEBERG_DECIMAL_PRECISION_MAX or scale > precision:
            raise _unknown(place, f"decimal(P,S) with P up to {ICEBERG_DECIMAL_PRECISION_MAX} and S up to P", text)
        return TypeName("decimal", (precision, scale))
    if found := _FIXED.fullmatch(lower):
        if not 1 <= int(found[1]) <= INT_LAST:
            raise _unknown(place, "fixed[L] with L from 1", text)
        return TypeName("fixed", (int(found[1]),))
    if found := _GEOMETRY.fullmatch(text):
        return TypeName("geometry", (_crs(found[1], text, place),))
    if found := _GEOGRAPHY.fullmatch(text):
        algorithm = DEFAULT_ALGORITHM if found[2] is None else found[2].lower()
        if algorithm not in _ALGORITHMS:
            raise _unknown(place, f"an edge algorithm: {', '.join(_ALGORITHMS)}", text)
        return TypeName("geography", (_crs(found[1], text, place), algorithm))
    raise _unknown(place, "a type of the Iceberg specification", text)


def _crs(found: str | None, text: str, place: str) -> str:
    crs = DEFAULT_CRS if found is None else found.strip(_SPACE)
    if not crs:
        raise _unknown(place, "a coordinate reference system that is not empty", text)
    return crs


def _unknown(place: str, expected: str, text: str) -> InputError:
    return InputError(
        "iceberg_type_unknown", f"the type at {place} is not known", expected=expected, got=shown(text), place=place
    )
