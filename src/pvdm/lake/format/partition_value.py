"""Partition values in Avro: the Avro type for each type of a partition value, and conversion of values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from pvdm.errors import Code, PvdmError
from pvdm.lake.format.avro.schema import FixedNode, Node, OptionNode, PrimitiveNode
from pvdm.lake.format.schema.single_value import PADDED_DECIMAL_BYTES, Value, check_value, from_unscaled, unscaled
from pvdm.model.schema import DecimalType, FixedType, Kind, PrimitiveType, Type

_PLAIN: Final = {
    Kind.BOOLEAN: "boolean",
    Kind.INT: "int",
    Kind.LONG: "long",
    Kind.FLOAT: "float",
    Kind.DOUBLE: "double",
    Kind.STRING: "string",
    Kind.BINARY: "bytes",
    Kind.UNKNOWN: "null",
}
# The Avro type, its logical type, and its annotation `adjust-to-utc` (None: there is none).
_ANNOTATED: Final = {
    Kind.DATE: ("int", "date", None),
    Kind.TIME: ("long", "time-micros", None),
    Kind.TIMESTAMP: ("long", "timestamp-micros", False),
    Kind.TIMESTAMPTZ: ("long", "timestamp-micros", True),
    Kind.TIMESTAMP_NS: ("long", "timestamp-nanos", False),
    Kind.TIMESTAMPTZ_NS: ("long", "timestamp-nanos", True),
}
# Files that were written before a column was widened still have the narrower type.
_NARROWER: Final = {Kind.LONG: "int", Kind.DOUBLE: "float"}
# The reverse of `_ANNOTATED`.
_INFERRED: Final = {(base, logical, bool(zoned)): kind for kind, (base, logical, zoned) in _ANNOTATED.items()}


def decimal_bytes(precision: int) -> int:
    """The fewest bytes that hold every decimal of this precision."""
    return int(10**precision - 1).bit_length() // 8 + 1


def avro_value_type(type_: Type, defined: set[str]) -> Any:
    """The Avro JSON of a type. The first use of a named type is written in full and adds its name to `defined`."""
    match type_:
        case PrimitiveType(name) if name in _PLAIN:
            return _PLAIN[name]
        case PrimitiveType(name) if name in _ANNOTATED:
            base, logical, zoned = _ANNOTATED[name]
            annotated: dict[str, object] = {"type": base, "logicalType": logical}
            return annotated if zoned is None else {**annotated, "adjust-to-utc": zoned}
        case PrimitiveType(Kind.UUID):
            return _avro_fixed(defined, "uuid_fixed", 16, {"logicalType": "uuid"})
        case FixedType(length):
            return _avro_fixed(defined, f"fixed_{length}", length, {})
        case DecimalType(precision, scale):
            annotations = {"logicalType": "decimal", "precision": precision, "scale": scale}
            return _avro_fixed(defined, f"decimal_{precision}_{scale}", decimal_bytes(precision), annotations)
        case _:
            raise _mismatch("a type that partition values have", type_)


def _avro_fixed(defined: set[str], name: str, size: int, annotations: dict[str, object]) -> Any:
    if name in defined:
        return name
    defined.add(name)
    return {"type": "fixed", "name": name, "size": size, **annotations}


def _mismatch(expected: str, got: object) -> PvdmError:
    return Code.PARTITION_SPEC_INVALID(reason="partition_type_mismatch", expected=expected, got=repr(got)[:120])


def infer_type(node: Node) -> Type:
    """The type that the Avro type and its annotations mean, for fields whose spec does not give the type."""
    match node:
        case PrimitiveNode(kind, logical, zoned) if (kind, logical, zoned) in _INFERRED:
            return PrimitiveType(_INFERRED[kind, str(logical), zoned])
        case PrimitiveNode(kind):
            return PrimitiveType(next(name for name, plain in _PLAIN.items() if plain == kind))
        case FixedNode(_, "decimal", int(precision), scale):
            return DecimalType(precision, scale or 0)
        case FixedNode(16, "uuid"):
            return PrimitiveType(Kind.UUID)
        case FixedNode(size):
            return FixedType(size)
        case _:
            raise _mismatch("a primitive Avro type", node)


def require_type(type_: Type, node: Node) -> None:
    """Raise if the Avro type cannot hold values of `type_`, contradicts it, or lacks the annotation of a decimal."""
    match type_, node:
        case (PrimitiveType(name), PrimitiveNode(base)) if name in _PLAIN:
            fits = base in {_PLAIN[name], _NARROWER.get(name)}
        case (PrimitiveType(name), PrimitiveNode(base, logical)) if name in _ANNOTATED:
            fits = base == _ANNOTATED[name][0] and logical in {None, _ANNOTATED[name][1]}
        case (PrimitiveType(Kind.UUID), FixedNode(size, logical)):
            fits = size == 16 and logical in {None, "uuid"}
        case (FixedType(length), FixedNode(size)):
            fits = size == length
        case (DecimalType(precision, scale), FixedNode(size, "decimal", int(digits), written_scale)):
            fits = digits <= precision and (written_scale or 0) == scale and 1 <= size <= PADDED_DECIMAL_BYTES
        case _:
            fits = False
    if not fits:
        raise _mismatch(str(type_), node)


def inner_node(node: Node) -> Node:
    """The type inside an optional type. Other types are returned as they are."""
    return node.inner if isinstance(node, OptionNode) else node


def from_avro(type_: Type, raw: Any) -> Value:
    """The partition value of `raw`, a value as Avro stores it; null stays null."""
    if raw is None:
        return None
    match type_:
        case DecimalType():
            return from_unscaled(type_, int.from_bytes(raw, "big", signed=True))
        case PrimitiveType(Kind.UUID):
            return UUID(bytes=raw)
        case _:
            check_value(type_, raw)
            return raw


def to_avro(type_: Type, value: Value) -> Any:
    """The partition value as Avro stores it; null stays null."""
    if value is None:
        return None
    check_value(type_, value)
    match type_:
        case DecimalType(precision):
            return unscaled(type_, value).to_bytes(decimal_bytes(precision), "big", signed=True)
        case PrimitiveType(Kind.UUID):
            return value.bytes
        case _:
            return value


def value_key(value: Value) -> Any:
    """A key that is equal only for equal partition values: NaN equals NaN, and -0.0 is not 0.0."""
    if isinstance(value, float):
        return ("float", "nan" if math.isnan(value) else value.hex())
    return (type(value).__name__, value)


def tuple_key(partition: Mapping[int, Value]) -> frozenset[tuple[int, Any]]:
    """A key that is equal only for equal partition tuples."""
    return frozenset((field_id, value_key(value)) for field_id, value in partition.items())
