"""Encodes Avro values, each checked against its type. Tests compare the bytes with fastavro's."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from pvdm.errors import Code, PvdmError
from pvdm.lake.format.avro.schema import ArrayNode, FixedNode, MapNode, Node, OptionNode, PrimitiveNode, RecordNode

Writer: TypeAlias = Callable[[bytearray, Any], None]

_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")
_BITS_WITHOUT_SIGN: Final = {"int": 31, "long": 63}


def encode_records(schema: RecordNode, records: Iterable[Any]) -> list[bytes]:
    """Each record's bytes. Values have the form of `decode.Raw`. Raises if a value does not fit its type."""
    write = writer_of(schema)
    encoded: list[bytes] = []
    for record in records:
        target = bytearray()
        write(target, record)
        encoded.append(bytes(target))
    return encoded


def write_long(target: bytearray, value: int) -> None:
    """Write a zigzag number. The caller has checked that it fits in 64 bits."""
    rest = (value << 1) ^ (value >> 63)
    while rest > 0x7F:
        target.append((rest & 0x7F) | 0x80)
        rest >>= 7
    target.append(rest)


def _wrong_value(expected: str, got: object) -> PvdmError:
    return Code.AVRO_INVALID(reason="avro_value_invalid", expected=expected, got=repr(got)[:120])


def writer_of(node: Node) -> Writer:
    """A function that writes one value of this type."""
    match node:
        case PrimitiveNode("int" | "long" as kind):
            return _integer_writer(kind)
        case PrimitiveNode(kind):
            return _primitive_writer(kind)
        case FixedNode(size):
            return _fixed_writer(size)
        case OptionNode(inner, null_first):
            return _option_writer(writer_of(inner), null_first)
        case ArrayNode(items):
            return _array_writer(writer_of(items))
        case MapNode(values):
            return _map_writer(writer_of(values))
        case RecordNode(fields):
            return _record_writer(tuple(writer_of(field.type) for field in fields))


def _integer_writer(kind: str) -> Writer:
    limit = 1 << _BITS_WITHOUT_SIGN[kind]

    def write(target: bytearray, value: Any) -> None:
        if type(value) is not int or not -limit <= value < limit:
            raise _wrong_value(kind, value)
        if 0 <= value < 64:
            target.append(value << 1)
        else:
            write_long(target, value)

    return write


def _write_bytes(target: bytearray, value: bytes) -> None:
    write_long(target, len(value))
    target += value


# Key: the Avro type. Value: the Python type of its values, the words for it in messages, and its writer.
_PRIMITIVES: Final[dict[str, tuple[type, str, Writer]]] = {
    "null": (type(None), "null", lambda _target, _value: None),
    "boolean": (bool, "true or false", bytearray.append),
    "float": (float, "a floating-point number", lambda target, value: target.extend(_FLOAT.pack(value))),
    "double": (float, "a floating-point number", lambda target, value: target.extend(_DOUBLE.pack(value))),
    "bytes": (bytes, "bytes", _write_bytes),
    "string": (str, "text", lambda target, value: _write_bytes(target, value.encode())),
}


def _primitive_writer(kind: str) -> Writer:
    python_type, expected, write_checked = _PRIMITIVES[kind]

    def write(target: bytearray, value: Any) -> None:
        if type(value) is not python_type:
            raise _wrong_value(expected, value)
        try:
            write_checked(target, value)
        except OverflowError:
            raise _wrong_value("a number of single precision", value) from None
        except UnicodeEncodeError:
            raise _wrong_value("well-formed Unicode", value) from None

    return write


def _fixed_writer(size: int) -> Writer:
    def write(target: bytearray, value: Any) -> None:
        if type(value) is not bytes or len(value) != size:
            raise _wrong_value(f"{size} bytes", value)
        target += value

    return write


def _option_writer(write_inner: Writer, null_first: bool) -> Writer:
    # The numbers of the two branches, 0 and 1, zigzag-encoded.
    null_branch, value_branch = (0, 2) if null_first else (2, 0)

    def write(target: bytearray, value: Any) -> None:
        if value is None:
            target.append(null_branch)
        else:
            target.append(value_branch)
            write_inner(target, value)

    return write


def _require_tuple(value: Any) -> tuple[Any, ...]:
    if type(value) is not tuple:
        raise _wrong_value("a tuple", value)
    return value


def _array_writer(write_item: Writer) -> Writer:
    def write(target: bytearray, value: Any) -> None:
        if _require_tuple(value):
            write_long(target, len(value))
            for each in value:
                write_item(target, each)
        target.append(0)

    return write


def _map_writer(write_value: Writer) -> Writer:
    write_key = _primitive_writer("string")

    def write_pair(target: bytearray, pair: Any) -> None:
        write_key(target, pair[0])
        write_value(target, pair[1])

    write_pairs = _array_writer(write_pair)

    def write(target: bytearray, value: Any) -> None:
        if len({key for key, _ in _require_tuple(value)}) != len(value):
            raise _wrong_value("distinct keys", value)
        write_pairs(target, value)

    return write


def _record_writer(writers: tuple[Writer, ...]) -> Writer:
    def write(target: bytearray, value: Any) -> None:
        if len(_require_tuple(value)) != len(writers):
            raise _wrong_value(f"{len(writers)} fields", value)
        for write_field, each in zip(writers, value, strict=True):
            write_field(target, each)

    return write
