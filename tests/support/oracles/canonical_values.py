"""Values that the decoder of canonical rows returns: Python's own types where they suffice, small classes elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

Scalar: TypeAlias = "bool | int | str | bytes | DecimalValue | FloatBits | None"

Value: TypeAlias = "Scalar | StructValue | MapValue | VariantValue | tuple[Value, ...]"
"""A list is a tuple; dates and times are integers in the unit of their type; uuid, fixed, binary and WKB are bytes."""

VariantContent: TypeAlias = "Scalar | tuple[VariantValue, ...] | tuple[tuple[str, VariantValue], ...]"


@dataclass(frozen=True, slots=True)
class DecimalValue:
    """`unscaled` × 10^−`scale`; 1.5 and 1.50 are different values."""

    unscaled: int
    scale: int


@dataclass(frozen=True, slots=True)
class FloatBits:
    """The bits of a binary32 or binary64 number; a Python float would lose the NaN payloads of variants."""

    bits: int
    width: int


@dataclass(frozen=True, slots=True)
class StructValue:
    """Fields by name, in code-point order of the names."""

    fields: tuple[tuple[str, Value], ...]


@dataclass(frozen=True, slots=True)
class MapValue:
    """Entries in the order of their encoded keys."""

    entries: tuple[tuple[Value, Value], ...]


class VariantKind(Enum):
    """The type of a value inside a variant. The encoding does not keep the widths of integers and decimals."""

    NULL = "null"
    BOOLEAN = "boolean"
    INTEGER = "integer"
    DECIMAL = "decimal"
    FLOAT = "float"
    DOUBLE = "double"
    DATE = "date"
    TIME = "time"
    TIMESTAMP = "timestamp"
    TIMESTAMPTZ = "timestamptz"
    TIMESTAMP_NS = "timestamp_ns"
    TIMESTAMPTZ_NS = "timestamptz_ns"
    STRING = "string"
    UUID = "uuid"
    BINARY = "binary"
    ARRAY = "array"
    OBJECT = "object"


@dataclass(frozen=True, slots=True)
class VariantValue:
    """A value inside a variant. For an array `value` is a tuple, for an object a tuple of pairs (name, value)."""

    kind: VariantKind
    value: VariantContent
