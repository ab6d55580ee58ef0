"""The Arrow type in which the values of each of the model's types are held."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from pvdm.model.schema import (
    DecimalType,
    FixedType,
    GeoType,
    Kind,
    ListType,
    MapType,
    PrimitiveType,
    StructType,
    Type,
)

_map: Final[Any] = pa.map_  # its stubs know no field in the place of a type
_DECIMAL128_DIGITS: Final = 38
_PRIMITIVES: Final[dict[Kind, pa.DataType]] = {
    Kind.BOOLEAN: pa.bool_(),
    Kind.INT: pa.int32(),
    Kind.LONG: pa.int64(),
    Kind.FLOAT: pa.float32(),
    Kind.DOUBLE: pa.float64(),
    Kind.DATE: pa.date32(),
    Kind.TIME: pa.time64("us"),
    Kind.TIME_NS: pa.time64("ns"),
    Kind.TIMESTAMP: pa.timestamp("us"),
    Kind.TIMESTAMPTZ: pa.timestamp("us", "UTC"),
    Kind.TIMESTAMP_NS: pa.timestamp("ns"),
    Kind.TIMESTAMPTZ_NS: pa.timestamp("ns", "UTC"),
    Kind.STRING: pa.large_string(),
    Kind.BINARY: pa.large_binary(),
    Kind.UUID: pa.binary(16),
    Kind.UNKNOWN: pa.null(),
    Kind.VARIANT: pa.struct([("metadata", pa.large_binary()), ("value", pa.large_binary())]),
}


def arrow_type(kind: Type) -> pa.DataType:
    """The type whose values are counted as the type's literals are."""
    match kind:
        case PrimitiveType(primitive):
            return _PRIMITIVES[primitive]
        case FixedType(length):
            return pa.binary(length)
        case DecimalType(precision, scale):
            return (
                pa.decimal128(precision, scale) if precision <= _DECIMAL128_DIGITS else pa.decimal256(precision, scale)
            )
        case GeoType():
            return pa.large_binary()
        case StructType(fields):
            return pa.struct([pa.field(field.name, arrow_type(field.type)) for field in fields])
        case ListType(element):
            return pa.list_(pa.field("element", arrow_type(element.type)))
        case MapType(key, value):
            made: pa.DataType = _map(arrow_type(key.type), pa.field("value", arrow_type(value.type)))
            return made
