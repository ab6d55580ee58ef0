"""Takes Parquet files apart and puts them together again with another footer, page index or pages.

Structs are lists of fields of Thrift's compact protocol. A field is found by its id, which `field_ids.py` names.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from tests.support.parquet.field_ids import (
    ChunkField,
    ColumnField,
    FooterField,
    GroupField,
    PageField,
    PageType,
    SchemaField,
)

TRUE, FALSE, BYTE, I16, I32, I64, BINARY, LIST, STRUCT = 1, 2, 3, 4, 5, 6, 8, 9, 12
"""Wire types of the compact protocol. A boolean's value is its wire type; in a list it is one byte."""
BOOLEANS = (TRUE, FALSE)
_VARIANT = 16  # the field of LogicalType that is set for a variant
Field = list[Any]
"""A field: its id, wire type and value. The value of a list is a pair: the elements' wire type, and the elements."""
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
    """The bytes of an unsigned number: seven bits in each byte, the lowest first."""
    data = bytearray()
    while value > 127:
        data.append(value & 127 | 128)
        value >>= 7
    return bytes([*data, value])


def _zigzag(value: int) -> bytes:
    return varint(2 * value if value >= 0 else -2 * value - 1)


def _parse_value(data: bytes, at: int, kind: int, *, in_list: bool = False) -> tuple[Any, int]:
    if kind in BOOLEANS:
        return (data[at] == TRUE, at + 1) if in_list else (kind == TRUE, at)
    if kind == BYTE:
        return data[at], at + 1
    if kind in (I16, I32, I64):
        return _signed(data, at)
    if kind == BINARY:
        length, at = _unsigned(data, at)
        return data[at : at + length], at + length
    if kind == LIST:
        head, at = data[at], at + 1
        length, at = _unsigned(data, at) if head >> 4 == 15 else (head >> 4, at)
        found = []
        for _ in range(length):
            value, at = _parse_value(data, at, head & 15, in_list=True)
            found.append(value)
        return (head & 15, found), at
    assert kind == STRUCT, kind
    return parse(data, at)


def parse(data: bytes, at: int = 0) -> tuple[Struct, int]:
    """The struct that begins at this offset, and the offset after it."""
    found: Struct = []
    number = 0
    while data[at] & 15:
        head, at = data[at], at + 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _signed(data, at)
        value, at = _parse_value(data, at, head & 15)
        found.append([number, head & 15, value])
    return found, at + 1


class Raw(bytes):
    """Bytes that are written as they are, in place of the encoded value."""

    __slots__ = ()


def _serialize_value(kind: int, value: Any, *, in_list: bool = False) -> bytes:
    if isinstance(value, Raw):
        return bytes(value)
    if kind in BOOLEANS:
        return bytes([TRUE if value else FALSE]) if in_list else b""
    if kind == BYTE:
        return bytes([value])
    if kind in (I16, I32, I64):
        return _zigzag(value)
    if kind == BINARY:
        return varint(len(value)) + bytes(value)
    if kind == LIST:
        inner, elements = value
        head = bytes([len(elements) << 4 | inner]) if len(elements) < 15 else bytes([240 | inner])
        head += b"" if len(elements) < 15 else varint(len(elements))
        return head + b"".join(_serialize_value(inner, each, in_list=True) for each in elements)
    return serialize(value)


def serialize(fields: Struct) -> bytes:
    """The bytes of a struct, with its fields in the given order."""
    data, last_number = b"", 0
    for number, given_kind, value in fields:
        kind = given_kind
        if given_kind in BOOLEANS:  # a boolean's value is its wire type
            kind = TRUE if value else FALSE
        step = number - last_number
        data += bytes([step << 4 | kind]) if 0 < step <= 15 else bytes([kind]) + _zigzag(number)
        data, last_number = data + _serialize_value(kind, value), number
    return data + b"\0"


def get(fields: Struct, number: int) -> Any:
    """The value of the field with this id. Raises if there is none, or more than one."""
    (found,) = [value for known, _, value in fields if known == number]
    return found


def put(fields: Struct, number: int, kind: int, value: Any) -> None:
    """Set the field with this id, in the order of ids."""
    others = [each for each in fields if each[0] != number]
    fields[:] = sorted([*others, [number, kind, value]], key=lambda each: int(each[0]))


def split_footer(data: bytes) -> tuple[bytes, Struct]:
    """The file's bytes before the footer, and the footer."""
    start = len(data) - 8 - struct.unpack("<I", data[-8:-4])[0]
    return data[:start], parse(data, start)[0]


def join_footer(body: bytes, footer: Struct) -> bytes:
    """A file with these bytes and this footer."""
    data = serialize(footer)
    return body + data + struct.pack("<I", len(data)) + b"PAR1"


def groups(footer: Struct) -> list[Struct]:
    """The row groups of a footer."""
    found: list[Struct] = get(footer, FooterField.ROW_GROUPS)[1]
    return found


def columns(group: Struct) -> list[Struct]:
    """The column chunks of a row group."""
    found: list[Struct] = get(group, GroupField.COLUMNS)[1]
    return found


def metadata_of(chunk: Struct) -> Struct:
    """The metadata of a column chunk (ColumnMetaData)."""
    found: Struct = get(chunk, ChunkField.META_DATA)
    return found


def edit_footer(data: bytes, change: Callable[[Struct], None]) -> bytes:
    """The file with a footer that `change` has changed."""
    body, footer = split_footer(data)
    change(footer)
    return join_footer(body, footer)


def statistics(footer: Struct, column: int, group: int = 0) -> Struct:
    """The statistics of a column chunk."""
    found: Struct = get(metadata_of(columns(groups(footer)[group])[column]), ColumnField.STATISTICS)
    return found


def drop(fields: Struct, *numbers: int) -> None:
    """Remove the fields with these ids."""
    fields[:] = [each for each in fields if each[0] not in numbers]


COLUMN_INDEX, OFFSET_INDEX = ChunkField.COLUMN_INDEX_OFFSET, ChunkField.OFFSET_INDEX_OFFSET
"""Ids of the fields of a column chunk with the place of its column index and offset index. Id + 1 has the length."""
INDEX_PLACES = (OFFSET_INDEX, OFFSET_INDEX + 1, COLUMN_INDEX, COLUMN_INDEX + 1)


def edit_page_index(data: bytes, kind: int, column: int, change: Callable[[Struct], None], group: int = 0) -> bytes:
    """The file with a changed page index of one column chunk, which is appended before the footer."""
    body, footer = split_footer(data)
    chunk = columns(groups(footer)[group])[column]
    found, _ = parse(body, get(chunk, kind))
    change(found)
    new = serialize(found)
    put(chunk, kind, I64, len(body))
    put(chunk, kind + 1, I32, len(new))
    return join_footer(body + new, footer)


def pages(data: bytes, column: int = 0, group: int = 0) -> list[tuple[Struct, bytes]]:
    """The header and the body of each page of a column chunk."""
    body, footer = split_footer(data)
    fields = metadata_of(columns(groups(footer)[group])[column])
    first_pages = (ColumnField.DATA_PAGE_OFFSET, ColumnField.DICTIONARY_PAGE_OFFSET)
    at = min(value for number, _, value in fields if number in first_pages)
    end, found = at + get(fields, ColumnField.TOTAL_COMPRESSED_SIZE), []
    while at < end:
        header, start = parse(body, at)
        at = start + get(header, PageField.COMPRESSED_PAGE_SIZE)
        found.append((header, body[start:at]))
    return found


def edit_pages(data: bytes, change: Callable[[list[tuple[Struct, bytes]]], None]) -> bytes:
    """The file with changed pages, and without page indexes. It must have one column and one row group."""
    _, footer = split_footer(data)
    (chunk,) = columns(groups(footer)[0])
    fields, found = metadata_of(chunk), pages(data)
    change(found)
    body, starts = b"PAR1", []
    for header, content in found:
        starts.append((get(header, PageField.TYPE), len(body)))
        body += serialize(header) + content
    drop(chunk, *INDEX_PLACES)
    drop(fields, ColumnField.DICTIONARY_PAGE_OFFSET)
    first_data_page = next(start for kind, start in starts if kind != PageType.DICTIONARY_PAGE)
    put(fields, ColumnField.DATA_PAGE_OFFSET, I64, first_data_page)
    first_type, first_start = starts[0]
    if first_type == PageType.DICTIONARY_PAGE:
        put(fields, ColumnField.DICTIONARY_PAGE_OFFSET, I64, first_start)
    pages_size = len(body) - len(b"PAR1")
    put(fields, ColumnField.TOTAL_COMPRESSED_SIZE, I64, pages_size)
    put(groups(footer)[0], GroupField.TOTAL_COMPRESSED_SIZE, I64, pages_size)
    return join_footer(body, footer)


def with_variants(data: bytes, *names: str) -> bytes:
    """The file with the annotation VARIANT at the groups with these names. PyArrow does not write it."""

    def annotate(footer: Any) -> None:
        for element in get(footer, FooterField.SCHEMA)[1]:
            if get(element, SchemaField.NAME) in {name.encode() for name in names}:
                put(element, SchemaField.LOGICAL_TYPE, STRUCT, [[_VARIANT, STRUCT, []]])

    return edit_footer(data, annotate) if names else data
