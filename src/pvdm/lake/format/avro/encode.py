"""Encoding of Avro values, each checked against its type. Tests compare it with fastavro."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from pvdm.errors import Code, PvdmError
from pvdm.lake.format.avro.schema import ArrayNode, FixedNode, MapNode, Node, OptionNode, PrimitiveNode, RecordNode

Writer: TypeAlias = Callable[[bytearray, Any], None]

_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")
_BITS: Final = {"int": 31, "long": 63}


def encode_records(schema: RecordNode, records: Iterable[Any]) -> list[bytes]:
    """Each record's bytes."""
    write = writer_of(schema)
    found: list[bytes] = []
    for record in records:
        target = bytearray()
        write(target, record)
        found.append(bytes(target))
    return found


def write_long(target: bytearray, value: int) -> None:
    """Write a zigzag number; the caller has checked its range."""
    rest = (value << 1) ^ (value >> 63)
    while rest > 0x7F:
        target.append((rest & 0x7F) | 0x80)
        rest >>= 7
    target.append(rest)


def _wrong(expected: str, got: object) -> PvdmError:
    return Code.AVRO_INVALID(reason="avro_value_invalid", expected=expected, got=repr(got)[:120])


def writer_of(node: Node) -> Writer:
    """The function that writes one value of this type."""
    match node:
        case PrimitiveNode("int" | "long" as kind):
            return _integer(kind)
        case PrimitiveNode(kind):
            return _primitive(kind)
        case FixedNode(size):
            return _fixed(size)
        case OptionNode(inner, null_first):
            return _option(writer_of(inner), null_first)
        case ArrayNode(items):
            return _array(writer_of(items))
        case MapNode(values):
            return _map(writer_of(values))
        case RecordNode(fields):
            return _record(tuple(writer_of(field.type) for field in fields))


def _integer(kind: str) -> Writer:
    bits = _BITS[kind]
    low, high = -(1 << bits), (1 << bits) - 1

    def write(target: bytearray, value: Any) -> None:
        if type(value) is not int or not low <= value <= high:
            raise _wrong(kind, value)
        if 0 <= value < 64:
            target.append(value << 1)
        else:
            write_long(target, value)

    return write


def _put_bytes(target: bytearray, value: bytes) -> None:
    write_long(target, len(value))
    target += value


_PRIMITIVES: Final[dict[str, tuple[type, str, Writer]]] = {
    "null": (type(None), "null", lambda _target, _value: None),
    "boolean": (bool, "true or false", bytearray.append),
    "float": (float, "a floating-point number", lambda target, value: target.extend(_FLOAT.pack(value))),
    "double": (float, "a floating-point number", lambda target, value: target.extend(_DOUBLE.pack(value))),
    "bytes": (bytes, "bytes", _put_bytes),
    "string": (str, "text", lambda target, value: _put_bytes(target, value.encode())),
}


def _primitive(kind: str) -> Writer:
    wanted, expected, put = _PRIMITIVES[kind]

    def write(target: bytearray, value: Any) -> None:
        if type(value) is not wanted:
            raise _wrong(expected, value)
        try:
            put(target, value)
        except OverflowError:
            raise _wrong("a number of single precision", value) from None
        except UnicodeEncodeError:
            raise _wrong("well-formed Unicode", value) from None

    return write


def _fixed(size: int) -> Writer:
    def write(target: bytearray, value: Any) -> None:
        if type(value) is not bytes or len(value) != size:
            raise _wrong(f"{size} bytes", value)
        target += value

    return write


def _option(write_inner: Writer, null_first: bool) -> Writer:
    null, some = (0, 2) if null_first else (2, 0)

    def write(target: bytearray, value: Any) -> None:
        if value is None:
            target.append(null)
        else:
            target.append(some)
            write_inner(target, value)

    return write


def _sequence(value: Any) -> tuple[Any, ...]:
    if type(value) is not tuple:
        raise _wrong("a tuple", value)
    return value


def _array(write_item: Writer) -> Writer:
    def write(target: bytearray, value: Any) -> None:
        if _sequence(value):
            write_long(target, len(value))
            for each in value:
                write_item(target, each)
        target.append(0)

    return write


def _map(write_value: Writer) -> Writer:
    write_key = _primitive("string")

    def write(target: bytearray, value: Any) -> None:
        pairs = _sequence(value)
        if len({key for key, _ in pairs}) != len(pairs):
            raise _wrong("distinct keys", value)
        if pairs:
            write_long(target, len(pairs))
            for key, each in pairs:
                write_key(target, key)
                write_value(target, each)
        target.append(0)

    return write


def _record(writers: tuple[Writer, ...]) -> Writer:
    def write(target: bytearray, value: Any) -> None:
        if len(_sequence(value)) != len(writers):
            raise _wrong(f"{len(writers)} fields", value)
        for write_field, each in zip(writers, value, strict=True):
            write_field(target, each)

    return write
