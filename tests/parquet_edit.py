"""Parquet files taken apart and put together again, with a footer that says what a test wants."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

I32, I64, BINARY, LIST, STRUCT = 5, 6, 8, 9, 12
Field = list[Any]
"""Id, wire type and value of a field of Thrift's compact protocol; a list is its elements' type and the elements."""
Struct = list[Field]


def _unsigned(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
        if byte < 128:
            return value, at


def _signed(data: bytes, at: int) -> tuple[int, int]:
    value, at = _unsigned(data, at)
    return (value >> 1) ^ -(value & 1), at


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def _zigzag(value: int) -> bytes:
    return _varint(2 * value if value >= 0 else -2 * value - 1)


def _value(data: bytes, at: int, kind: int, *, listed: bool = False) -> tuple[Any, int]:
    if kind in (1, 2):
        return (data[at] == 1, at + 1) if listed else (kind == 1, at)
    if kind == 3:
        return data[at], at + 1
    if kind in (4, I32, I64):
        return _signed(data, at)
    if kind == BINARY:
        length, at = _unsigned(data, at)
        return data[at : at + length], at + length
    if kind == LIST:
        head, at = data[at], at + 1
        length, at = _unsigned(data, at) if head >> 4 == 15 else (head >> 4, at)
        found = []
        for _ in range(length):
            value, at = _value(data, at, head & 15, listed=True)
            found.append(value)
        return (head & 15, found), at
    assert kind == STRUCT, kind
    return parse(data, at)


def parse(data: bytes, at: int = 0) -> tuple[Struct, int]:
    """The struct that begins there, and where it ends."""
    found: Struct = []
    number = 0
    while data[at] & 15:
        head, at = data[at], at + 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _signed(data, at)
        value, at = _value(data, at, head & 15)
        found.append([number, head & 15, value])
    return found, at + 1


def _written(kind: int, value: Any, *, listed: bool = False) -> bytes:
    if kind in (1, 2):
        return bytes([1 if value else 2]) if listed else b""
    if kind == 3:
        return bytes([value])
    if kind in (4, I32, I64):
        return _zigzag(value)
    if kind == BINARY:
        return _varint(len(value)) + bytes(value)
    if kind == LIST:
        inner, elements = value
        head = bytes([len(elements) << 4 | inner]) if len(elements) < 15 else bytes([240 | inner])
        head += b"" if len(elements) < 15 else _varint(len(elements))
        return head + b"".join(_written(inner, each, listed=True) for each in elements)
    return written(value)


def written(fields: Struct) -> bytes:
    """The struct's bytes, its fields in the order given."""
    found, last = b"", 0
    for number, told, value in fields:
        kind = (1 if value else 2) if told in (1, 2) else told
        step = number - last
        found += bytes([step << 4 | kind]) if 0 < step <= 15 else bytes([kind]) + _zigzag(number)
        found, last = found + _written(kind, value), number
    return found + b"\0"


def get(fields: Struct, number: int) -> Any:
    """The value of a field that is there."""
    (found,) = [value for known, _, value in fields if known == number]
    return found


def put(fields: Struct, number: int, kind: int, value: Any) -> None:
    """The one field of this id, in its place."""
    others = [each for each in fields if each[0] != number]
    fields[:] = sorted([*others, [number, kind, value]], key=lambda each: int(each[0]))


def split(data: bytes) -> tuple[bytes, Struct]:
    """What stands before the footer, and the footer."""
    start = len(data) - 8 - struct.unpack("<I", data[-8:-4])[0]
    return data[:start], parse(data, start)[0]


def joined(body: bytes, footer: Struct) -> bytes:
    """A file of both."""
    told = written(footer)
    return body + told + struct.pack("<I", len(told)) + b"PAR1"


def groups(footer: Struct) -> list[Struct]:
    """The row groups."""
    found: list[Struct] = get(footer, 4)[1]
    return found


def columns(group: Struct) -> list[Struct]:
    """The column chunks of a row group."""
    found: list[Struct] = get(group, 1)[1]
    return found


def told(chunk: Struct) -> Struct:
    """What the footer says of a column chunk."""
    found: Struct = get(chunk, 3)
    return found


def edited(data: bytes, change: Callable[[Struct], None]) -> bytes:
    """The file with another footer."""
    body, footer = split(data)
    change(footer)
    return joined(body, footer)
