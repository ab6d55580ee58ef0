"""Strict decoding of Avro values: every length, count and range is checked before it is used."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

from pvdm.errors import Code, PvdmError
from pvdm.lake.format.avro.schema import (
    ArrayNode,
    FixedNode,
    MapNode,
    Node,
    OptionNode,
    PrimitiveNode,
    RecordNode,
    least_bytes,
    weight,
)

# Records and arrays are tuples and Avro maps are tuples of pairs, so that values cannot be changed by accident.
Raw: TypeAlias = Any
Reader: TypeAlias = Callable[["Cursor"], Raw]

_INT: Final = PrimitiveNode("int")
_BYTES: Final = PrimitiveNode("bytes")
_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")


class Cursor:
    """A position in bytes, and how many values may still be made."""

    __slots__ = ("data", "position", "values_left")

    def __init__(self, data: bytes, values_left: int, position: int = 0) -> None:
        self.data = data
        self.position = position
        self.values_left = values_left

    def spend(self, values: int) -> None:
        """Count values before they are made."""
        self.values_left -= values
        if self.values_left < 0:
            raise Code.AVRO_INVALID(reason="avro_too_many_values", got="more")

    def take(self, size: int) -> bytes:
        """The next `size` bytes. Raises if there are fewer."""
        end = self.position + size
        if end > len(self.data):
            raise _truncated(f"{size} more bytes", f"{len(self.data) - self.position}")
        found = self.data[self.position : end]
        self.position = end
        return found


def _truncated(expected: str, got: str) -> PvdmError:
    return Code.AVRO_INVALID(reason="avro_truncated", expected=expected, got=got)


def read_long(cursor: Cursor) -> int:
    """Read a zigzag number of at most 64 bits."""
    data, position = cursor.data, cursor.position
    try:
        byte = data[position]
        position += 1
        value, shift = byte & 0x7F, 7
        while byte >= 0x80:
            if shift > 63:
                raise _number("at most 10 bytes", "more")
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
    except IndexError:
        raise _truncated("a number", "nothing") from None
    if value >> 64:
        raise _number("64 bits", "more")
    cursor.position = position
    return (value >> 1) ^ -(value & 1)


def _number(expected: str, got: str) -> PvdmError:
    return Code.AVRO_INVALID(reason="avro_number_invalid", expected=expected, got=got)


def read_int(cursor: Cursor) -> int:
    """Read a zigzag number of at most 32 bits."""
    value = read_long(cursor)
    if not -(2**31) <= value < 2**31:
        raise _number("32 bits", str(value))
    return value


def read_size(cursor: Cursor) -> int:
    """Read a length. Raises if it is negative."""
    return _not_negative(read_long(cursor))


def _not_negative(size: int) -> int:
    if size < 0:
        raise Code.AVRO_INVALID(reason="avro_length_negative", got=str(size))
    return size


def read_bytes(cursor: Cursor) -> bytes:
    """Read bytes after their length."""
    return cursor.take(read_size(cursor))


def read_string(cursor: Cursor) -> str:
    """Read text after its length in bytes."""
    found = read_bytes(cursor)
    try:
        return found.decode()
    except UnicodeDecodeError as error:
        raise Code.AVRO_INVALID(reason="avro_text_not_utf8", got=error.reason) from None


def _read_boolean(cursor: Cursor) -> bool:
    byte = cursor.take(1)[0]
    if byte > 1:
        raise Code.AVRO_INVALID(reason="avro_boolean_invalid", got=str(byte))
    return byte == 1


_PRIMITIVE: Final[dict[str, Reader]] = {
    "null": lambda _: None,
    "boolean": _read_boolean,
    "int": read_int,
    "long": read_long,
    "float": lambda cursor: float(_FLOAT.unpack(cursor.take(4))[0]),
    "double": lambda cursor: float(_DOUBLE.unpack(cursor.take(8))[0]),
    "bytes": read_bytes,
    "string": read_string,
}


def reader_of(node: Node) -> Reader:
    """The function that reads one value of this type."""
    match node:
        case PrimitiveNode(kind):
            return _PRIMITIVE[kind]
        case FixedNode(size):
            return lambda cursor: cursor.take(size)
        case OptionNode(inner, null_first):
            return _option(reader_of(inner), null_first)
        case ArrayNode(items):
            return _pairs(items) or _array(reader_of(items), items)
        case MapNode(values):
            return _map(reader_of(values), values)
        case RecordNode(fields):
            return _record(tuple(reader_of(field.type) for field in fields))


def _record(readers: tuple[Reader, ...]) -> Reader:
    def read(cursor: Cursor) -> Raw:
        return tuple([read_field(cursor) for read_field in readers])

    return read


def _option(read_inner: Reader, null_first: bool) -> Reader:
    null = 0 if null_first else 1

    def read(cursor: Cursor) -> Raw:
        branch = read_long(cursor)
        if branch == null:
            return None
        if branch != 1 - null:
            raise Code.AVRO_INVALID(reason="avro_branch_unknown", got=str(branch))
        return read_inner(cursor)

    return read


def _blocks(cursor: Cursor, least: int, each: int) -> Iterator[int]:
    """The number of items in each block up to the empty one. Raises if a block does not have the size that it gives."""
    while (count := read_long(cursor)) != 0:
        size = read_size(cursor) if count < 0 else None
        count = abs(count)
        start = cursor.position
        if count * least > len(cursor.data) - start:
            expected = f"at most {len(cursor.data) - start} bytes of items"
            raise Code.AVRO_INVALID(reason="avro_count_lies", expected=expected, got=f"{count} items")
        cursor.spend(count * each)
        yield count
        if size is not None and cursor.position - start != size:
            got = f"{cursor.position - start}"
            raise Code.AVRO_INVALID(reason="avro_block_size_lies", expected=f"{size} bytes", got=got)


def _array(read_item: Reader, item: Node) -> Reader:
    least, each = least_bytes(item), weight(item)

    def read(cursor: Cursor) -> Raw:
        return tuple([read_item(cursor) for count in _blocks(cursor, least, each) for _ in range(count)])

    return read


def _map(read_value: Reader, value: Node) -> Reader:
    least, each = 1 + least_bytes(value), 1 + weight(value)

    def read(cursor: Cursor) -> Raw:
        found: dict[str, Raw] = {}
        for count in _blocks(cursor, least, each):
            for _ in range(count):
                key = read_string(cursor)
                if key in found:
                    raise Code.AVRO_INVALID(reason="avro_map_key_repeated", got=repr(key)[:120])
                found[key] = read_value(cursor)
        return tuple(found.items())

    return read


def _pairs(item: Node) -> Reader | None:
    """A faster reader for the key-value records of statistics, which are most of a manifest."""
    types = tuple(field.type for field in item.fields) if isinstance(item, RecordNode) else ()
    if types not in ((_INT, PrimitiveNode("long")), (_INT, _BYTES)):
        return None
    sized = types[1] == _BYTES

    def read(cursor: Cursor) -> Raw:
        found: list[Raw] = []
        for count in _blocks(cursor, 2, 3):
            _read_pairs(cursor, count, found, sized)
        return tuple(found)

    return read


def _read_pairs(cursor: Cursor, count: int, found: list[Raw], sized: bool) -> None:
    """Read pairs of a number and a value. Numbers of one byte are read in place; if `sized`, the value is bytes."""
    data, position = cursor.data, cursor.position
    value: Raw
    try:
        for _ in range(count):
            byte = data[position]
            if byte < 0x80:
                key, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                cursor.position = position
                key, position = read_int(cursor), cursor.position
            byte = data[position]
            if byte < 0x80:
                value, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                cursor.position = position
                value, position = read_long(cursor), cursor.position
            if sized:
                cursor.position = position
                value, position = cursor.take(_not_negative(value)), cursor.position
            found.append((key, value))
    except IndexError:
        raise _truncated("a number", "nothing") from None
    cursor.position = position
