"""Decodes Avro values strictly: every length, count and range is checked before it is used."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

from pvdm.errors import Code
from pvdm.lake.format.avro import schema

# A decoded value. Records and arrays are tuples, and Avro maps are tuples of pairs, since cached values may not change.
Raw: TypeAlias = Any
Reader: TypeAlias = Callable[["Cursor"], Raw]

_INT: Final = schema.PrimitiveNode("int")
_BYTES: Final = schema.PrimitiveNode("bytes")
_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")


class Cursor:
    """A position in bytes, and how many values may still be read."""

    __slots__ = ("data", "position", "values_left")

    def __init__(self, data: bytes, values_left: int, position: int = 0) -> None:
        self.data = data
        self.position = position
        self.values_left = values_left

    def charge_values(self, values: int) -> None:
        """Take values off the number that may still be read. Raises if there are too many."""
        self.values_left -= values
        if self.values_left < 0:
            raise Code.AVRO_INVALID(reason="avro_too_many_values", got="more")

    def take(self, size: int) -> bytes:
        """The next `size` bytes. Raises if there are fewer."""
        end = self.position + size
        if end > len(self.data):
            expected, got = f"{size} more bytes", str(len(self.data) - self.position)
            raise Code.AVRO_INVALID(reason="avro_truncated", expected=expected, got=got)
        start, self.position = self.position, end
        return self.data[start:end]


def read_long(cursor: Cursor) -> int:
    """Read a zigzag number of at most 64 bits."""
    data, position = cursor.data, cursor.position
    try:
        byte = data[position]
        position += 1
        value, shift = byte & 0x7F, 7
        while byte >= 0x80:
            if shift > 63:
                raise Code.AVRO_INVALID(reason="avro_number_invalid", expected="at most 10 bytes", got="more")
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
    except IndexError:
        raise Code.AVRO_INVALID(reason="avro_truncated", expected="a number", got="nothing") from None
    if value >> 64:
        raise Code.AVRO_INVALID(reason="avro_number_invalid", expected="64 bits", got="more")
    cursor.position = position
    return (value >> 1) ^ -(value & 1)


def read_int(cursor: Cursor) -> int:
    """Read a zigzag number of at most 32 bits."""
    value = read_long(cursor)
    if not -(2**31) <= value < 2**31:
        raise Code.AVRO_INVALID(reason="avro_number_invalid", expected="32 bits", got=str(value))
    return value


def read_size(cursor: Cursor) -> int:
    """Read a length. Raises if it is negative."""
    return _require_not_negative(read_long(cursor))


def _require_not_negative(size: int) -> int:
    if size < 0:
        raise Code.AVRO_INVALID(reason="avro_length_negative", got=str(size))
    return size


def read_bytes(cursor: Cursor) -> bytes:
    """Read bytes after their length."""
    return cursor.take(read_size(cursor))


def read_string(cursor: Cursor) -> str:
    """Read text after its length in bytes."""
    try:
        return read_bytes(cursor).decode()
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


def reader_of(node: schema.Node) -> Reader:
    """A function that reads one value of this type."""
    match node:
        case schema.PrimitiveNode(kind):
            return _PRIMITIVE[kind]
        case schema.FixedNode(size):
            return lambda cursor: cursor.take(size)
        case schema.OptionNode(inner, null_first):
            return _option_reader(reader_of(inner), null_first)
        case schema.ArrayNode(items):
            return _pairs_reader(items) or _array_reader(reader_of(items), items)
        case schema.MapNode(values):
            return _map_reader(reader_of(values), values)
        case schema.RecordNode(fields):
            readers = [reader_of(field.type) for field in fields]
            return lambda cursor: tuple([read(cursor) for read in readers])


def _option_reader(read_inner: Reader, null_first: bool) -> Reader:
    null_branch = 0 if null_first else 1

    def read(cursor: Cursor) -> Raw:
        branch = read_long(cursor)
        if branch == null_branch:
            return None
        if branch != 1 - null_branch:
            raise Code.AVRO_INVALID(reason="avro_branch_unknown", got=str(branch))
        return read_inner(cursor)

    return read


def _read_counts(cursor: Cursor, min_size: int, min_values: int) -> Iterator[int]:
    """The number of items in each block of an array or map, up to the empty block. The caller reads the items.

    An item has at least `min_size` bytes and `min_values` values. Raises if a block's count or size is wrong.
    """
    while (count := read_long(cursor)) != 0:
        size = read_size(cursor) if count < 0 else None
        count = abs(count)
        start = cursor.position
        if count * min_size > len(cursor.data) - start:
            expected = f"at most {len(cursor.data) - start} bytes of items"
            raise Code.AVRO_INVALID(reason="avro_count_lies", expected=expected, got=f"{count} items")
        cursor.charge_values(count * min_values)
        yield count
        if size is not None and cursor.position - start != size:
            got = f"{cursor.position - start}"
            raise Code.AVRO_INVALID(reason="avro_block_size_lies", expected=f"{size} bytes", got=got)


def _array_reader(read_item: Reader, item: schema.Node) -> Reader:
    min_size, min_values = schema.min_byte_count(item), schema.min_value_count(item)

    def read(cursor: Cursor) -> Raw:
        counts = _read_counts(cursor, min_size, min_values)
        return tuple([read_item(cursor) for count in counts for _ in range(count)])

    return read


def _map_reader(read_value: Reader, value: schema.Node) -> Reader:
    min_size, min_values = 1 + schema.min_byte_count(value), 1 + schema.min_value_count(value)

    def read(cursor: Cursor) -> Raw:
        values: dict[str, Raw] = {}
        for count in _read_counts(cursor, min_size, min_values):
            for _ in range(count):
                key = read_string(cursor)
                if key in values:
                    raise Code.AVRO_INVALID(reason="avro_map_key_repeated", got=repr(key)[:120])
                values[key] = read_value(cursor)
        return tuple(values.items())

    return read


def _pairs_reader(item: schema.Node) -> Reader | None:
    """A faster reader for the key-value records of statistics, which are most of a manifest; None for other items."""
    types = tuple(field.type for field in item.fields) if isinstance(item, schema.RecordNode) else ()
    if types not in ((_INT, schema.PrimitiveNode("long")), (_INT, _BYTES)):
        return None
    has_bytes = types[1] == _BYTES

    def read(cursor: Cursor) -> Raw:
        pairs: list[Raw] = []
        for count in _read_counts(cursor, min_size=2, min_values=3):
            _read_pairs(cursor, count, pairs, has_bytes)
        return tuple(pairs)

    return read


def _read_pairs(cursor: Cursor, count: int, pairs: list[Raw], has_bytes: bool) -> None:
    """Append `count` pairs of numbers, with `has_bytes` of number and bytes. Numbers of one byte are decoded here."""
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
            if has_bytes:
                cursor.position = position
                value, position = cursor.take(_require_not_negative(value)), cursor.position
            pairs.append((key, value))
    except IndexError:
        raise Code.AVRO_INVALID(reason="avro_truncated", expected="a number", got="nothing") from None
    cursor.position = position
