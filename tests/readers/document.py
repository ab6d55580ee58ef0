"""A Parquet file as a tree of its metadata: footer, page headers, page indexes, bloom filter headers; to be edited."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

from tests.support.parquet.edit import (
    COLUMN_INDEX,
    I32,
    I64,
    OFFSET_INDEX,
    Struct,
    columns,
    get,
    groups,
    join_footer,
    metadata_of,
    parse,
    put,
    serialize,
    split_footer,
)
from tests.support.parquet.field_ids import (
    BloomFilterField,
    ChunkField,
    ColumnField,
    GroupField,
    OffsetIndexField,
    PageField,
    PageLocationField,
)

Change = Callable[[Struct], None]
# The fields whose values are offsets in the file.
_CHUNK_PLACES: Final = (ChunkField.FILE_OFFSET, OFFSET_INDEX, COLUMN_INDEX)
_META_PLACES: Final = (
    ColumnField.DATA_PAGE_OFFSET,
    ColumnField.INDEX_PAGE_OFFSET,
    ColumnField.DICTIONARY_PAGE_OFFSET,
    ColumnField.BLOOM_FILTER_OFFSET,
)
_GROUP_PLACE: Final = GroupField.FILE_OFFSET


class Part(StrEnum):
    """Which struct of the file; all but the footer belong to a column chunk."""

    FOOTER = "FileMetaData"
    PAGE = "PageHeader"
    COLUMN_INDEX = "ColumnIndex"
    OFFSET_INDEX = "OffsetIndex"
    BLOOM = "BloomFilterHeader"


@dataclass(frozen=True, slots=True, order=True)
class Root:
    """One struct of a file: of which row group and column, and the number of the page."""

    part: Part
    group: int = 0
    column: int = 0
    page: int = 0

    @property
    def place(self) -> str:
        if self.part is Part.FOOTER:
            return str(self.part)
        page = f", page {self.page}" if self.part is Part.PAGE else ""
        return f"{self.part} of group {self.group}, column {self.column}{page}"


def find(fields: Struct, number: int) -> Any:
    """The value of a field, or None."""
    return next((value for known, _, value in fields if known == number), None)


def roots(data: bytes) -> Iterator[tuple[Root, Struct]]:
    """Every struct of a file."""
    body, footer = split_footer(data)
    yield Root(Part.FOOTER), footer
    for group_number, group in enumerate(groups(footer)):
        for column, chunk in enumerate(columns(group)):
            for page, (_, header, _) in enumerate(_headers(body, metadata_of(chunk))):
                yield Root(Part.PAGE, group_number, column, page), header
            for part, kind in ((Part.COLUMN_INDEX, COLUMN_INDEX), (Part.OFFSET_INDEX, OFFSET_INDEX)):
                if (place := find(chunk, kind)) is not None:
                    yield Root(part, group_number, column), parse(body, place)[0]
            if (place := find(metadata_of(chunk), ColumnField.BLOOM_FILTER_OFFSET)) is not None:
                yield Root(Part.BLOOM, group_number, column), parse(body, place)[0]


@lru_cache(maxsize=16)
def _parts(data: bytes) -> tuple[bytes, bytes]:
    body, footer = split_footer(data)
    return body, pickle.dumps(footer)


def parts(data: bytes) -> tuple[bytes, Struct]:
    """Like `split_footer`, but a file is parsed once. Each caller gets its own copy of the footer."""
    body, footer = _parts(data)
    found: Struct = pickle.loads(footer)
    return body, found


def edit(data: bytes, root: Root, change: Change) -> bytes:
    """The file with one struct changed. All offsets in the file are adjusted."""
    body, footer = parts(data)
    if root.part is Part.FOOTER:
        change(footer)
        return join_footer(body, footer)
    chunk = columns(groups(footer)[root.group])[root.column]
    if root.part is Part.PAGE:
        start, header, end = _headers(body, metadata_of(chunk))[root.page]
        change(header)
        return _with_header(body, footer, root, start, end, serialize(header))
    if root.part is Part.BLOOM:
        fields = metadata_of(chunk)
        start = get(fields, ColumnField.BLOOM_FILTER_OFFSET)
        header, end = parse(body, start)
        length = find(fields, ColumnField.BLOOM_FILTER_LENGTH) or end - start + get(header, BloomFilterField.NUM_BYTES)
        change(header)
        new = serialize(header) + body[end : start + length]
        put(fields, ColumnField.BLOOM_FILTER_OFFSET, I64, len(body))
        put(fields, ColumnField.BLOOM_FILTER_LENGTH, I32, len(new))
        return join_footer(body + new, footer)
    kind = COLUMN_INDEX if root.part is Part.COLUMN_INDEX else OFFSET_INDEX
    found, _ = parse(body, get(chunk, kind))
    change(found)
    return join_footer(body + _place_index(chunk, kind, found, len(body)), footer)


def _place_index(chunk: Struct, kind: int, index: Struct, place: int) -> bytes:
    """The bytes of an index that the caller writes at `place`; the chunk gets this place and the length."""
    new = serialize(index)
    put(chunk, kind, I64, place)
    put(chunk, kind + 1, I32, len(new))
    return new


def _headers(body: bytes, fields: Struct) -> list[tuple[int, Struct, int]]:
    """Start, struct and end of each page header of a chunk."""
    first_pages = (ColumnField.DATA_PAGE_OFFSET, ColumnField.DICTIONARY_PAGE_OFFSET)
    at = min(value for number, _, value in fields if number in first_pages and value > 0)
    end, found = at + get(fields, ColumnField.TOTAL_COMPRESSED_SIZE), []
    while at < end:
        header, after = parse(body, at)
        found.append((at, header, after))
        at = after + get(header, PageField.COMPRESSED_PAGE_SIZE)
    return found


def _with_header(body: bytes, footer: Struct, root: Root, start: int, end: int, new: bytes) -> bytes:
    """The file with another page header: the bytes after it move, and all offsets and sizes are adjusted."""
    growth = len(new) - (end - start)
    indexes = [
        (chunk, parse(body, place)[0])
        for group in groups(footer)
        for chunk in columns(group)
        if (place := find(chunk, OFFSET_INDEX)) is not None
    ]
    body = body[:start] + new + body[end:]

    def moved(place: int) -> int:
        return place + growth if place > start else place

    for group in groups(footer):
        _move(group, (_GROUP_PLACE,), moved)
        for chunk in columns(group):
            _move(chunk, _CHUNK_PLACES, moved)
            _move(metadata_of(chunk), _META_PLACES, moved)
    group = groups(footer)[root.group]
    _grow(group, (GroupField.TOTAL_BYTE_SIZE, GroupField.TOTAL_COMPRESSED_SIZE), growth)
    chunk_sizes = (ColumnField.TOTAL_UNCOMPRESSED_SIZE, ColumnField.TOTAL_COMPRESSED_SIZE)
    _grow(metadata_of(columns(group)[root.column]), chunk_sizes, growth)
    own = columns(group)[root.column]
    for chunk, index in indexes:
        for location in get(index, OffsetIndexField.PAGE_LOCATIONS)[1]:
            if chunk is own and get(location, PageLocationField.OFFSET) == start:
                _grow(location, (PageLocationField.COMPRESSED_PAGE_SIZE,), growth)
            _move(location, (PageLocationField.OFFSET,), moved)
        body += _place_index(chunk, OFFSET_INDEX, index, len(body))
    return join_footer(body, footer)


def _move(fields: Struct, numbers: tuple[int, ...], moved: Callable[[int], int]) -> None:
    """Replace the values of the fields with these ids."""
    for each in fields:
        if each[0] in numbers:
            each[2] = moved(each[2])


def _grow(fields: Struct, numbers: tuple[int, ...], growth: int) -> None:
    _move(fields, numbers, lambda value: value + growth)
