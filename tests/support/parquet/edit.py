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


def varint(value: int) -> bytes:
    """A number without a sign, seven bits a byte, the lowest first."""
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def _zigzag(value: int) -> bytes:
    return varint(2 * value if value >= 0 else -2 * value - 1)


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


class Raw(bytes):
    """What stands for a number, whatever it is."""

    __slots__ = ()


def _written(kind: int, value: Any, *, listed: bool = False) -> bytes:
    if isinstance(value, Raw):
        return bytes(value)
    if kind in (1, 2):
        return bytes([1 if value else 2]) if listed else b""
    if kind == 3:
        return bytes([value])
    if kind in (4, I32, I64):
        return _zigzag(value)
    if kind == BINARY:
        return varint(len(value)) + bytes(value)
    if kind == LIST:
        inner, elements = value
        head = bytes([len(elements) << 4 | inner]) if len(elements) < 15 else bytes([240 | inner])
        head += b"" if len(elements) < 15 else varint(len(elements))
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


def statistics(footer: Struct, column: int, group: int = 0) -> Struct:
    """The statistics of a column chunk."""
    found: Struct = get(told(columns(groups(footer)[group])[column]), 12)
    return found


def drop(fields: Struct, *numbers: int) -> None:
    """The struct without these fields."""
    fields[:] = [each for each in fields if each[0] not in numbers]


COLUMN_INDEX, OFFSET_INDEX = 6, 4
"""The fields of a column chunk that say where its page index lies; each has its length behind it."""


def index_edited(data: bytes, kind: int, column: int, change: Callable[[Struct], None], group: int = 0) -> bytes:
    """The file with another page index for one chunk, put behind everything else."""
    body, footer = split(data)
    chunk = columns(groups(footer)[group])[column]
    found, _ = parse(body, get(chunk, kind))
    change(found)
    new = written(found)
    put(chunk, kind, I64, len(body))
    put(chunk, kind + 1, I32, len(new))
    return joined(body + new, footer)


def pages(data: bytes, column: int = 0, group: int = 0) -> list[tuple[Struct, bytes]]:
    """The pages of a chunk: each with its header."""
    body, footer = split(data)
    fields = told(columns(groups(footer)[group])[column])
    at = min(value for number, _, value in fields if number in (9, 11))
    end, found = at + get(fields, 7), []
    while at < end:
        header, start = parse(body, at)
        at = start + get(header, 3)
        found.append((header, body[start:at]))
    return found


def repaged(data: bytes, change: Callable[[list[tuple[Struct, bytes]]], None]) -> bytes:
    """A file of one column and one row group with other pages, and without page indexes."""
    _, footer = split(data)
    (chunk,) = columns(groups(footer)[0])
    fields, found = told(chunk), pages(data)
    change(found)
    body, starts = b"PAR1", []
    for header, content in found:
        starts.append((get(header, 1), len(body)))
        body += written(header) + content
    drop(chunk, 4, 5, 6, 7)
    drop(fields, 11)
    put(fields, 9, I64, next(start for kind, start in starts if kind != 2))
    if starts[0][0] == 2:
        put(fields, 11, I64, starts[0][1])
    put(fields, 7, I64, len(body) - 4)
    put(groups(footer)[0], 6, I64, len(body) - 4)
    return joined(body, footer)


def with_variants(data: bytes, *names: str) -> bytes:
    """The file with the annotation of a variant at the groups of these names; PyArrow writes none."""

    def annotate(footer: Any) -> None:
        for element in get(footer, 2)[1]:
            if get(element, 4) in {name.encode() for name in names}:
                put(element, 10, STRUCT, [[16, STRUCT, []]])

    return edited(data, annotate) if names else data
