"""Builds pages of Parquet files by hand, with levels and values that no writer would combine.

`edit.py` lists the ids of the fields.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.parquet.edit import (
    I32,
    I64,
    LIST,
    STRUCT,
    Struct,
    columns,
    drop,
    get,
    groups,
    join_footer,
    metadata_of,
    put,
    serialize,
    split_footer,
    varint,
)
from tests.support.parquet.edit import pages as pages_of

PLAIN, RLE, RLE_DICTIONARY = 0, 3, 8
Page = tuple[Struct, bytes]


def run(length: int, level: int) -> bytes:
    """A run of `length` equal levels, each of at most eight bits."""
    return varint(length << 1) + bytes([level])


def runs(levels: Sequence[int]) -> bytes:
    """The levels, each as one run."""
    return b"".join(run(1, level) for level in levels)


def longs(*values: int) -> bytes:
    """Plain 64-bit values."""
    return b"".join(struct.pack("<q", each) for each in values)


def page(
    count: int, values: bytes, definition: bytes | None = None, repetition: bytes | None = None, encoding: int = PLAIN
) -> Page:
    """A data page of version 1, without compression."""
    levels = [each for each in (repetition, definition) if each is not None]
    body = b"".join(struct.pack("<I", len(each)) + each for each in levels) + values
    head = [[1, I32, count], [2, I32, encoding], [3, I32, RLE], [4, I32, RLE]]
    return [[1, I32, 0], [2, I32, len(body)], [3, I32, len(body)], [5, STRUCT, head]], body


def long_page(definition: Sequence[int], repetition: Sequence[int] | None, *values: int) -> Page:
    """A page of plain 64-bit values with these levels."""
    return page(len(definition), longs(*values), runs(definition), None if repetition is None else runs(repetition))


def page_v2(count: int, rows: int, values: bytes, definition: bytes = b"", repetition: bytes = b"") -> Page:
    """A data page of version 2, without compression and without nulls."""
    body = repetition + definition + values
    numbers = [count, 0, rows, PLAIN, len(definition), len(repetition)]
    head: Struct = [[at, I32, each] for at, each in enumerate(numbers, 1)]
    return [[1, I32, 3], [2, I32, len(body)], [3, I32, len(body)], [8, STRUCT, [*head, [7, 2, False]]]], body


def dictionary_page(count: int, values: bytes) -> Page:
    """A dictionary page with `count` plain values, without compression."""
    return [
        [1, I32, 2],
        [2, I32, len(values)],
        [3, I32, len(values)],
        [7, STRUCT, [[1, I32, count], [2, I32, 0]]],
    ], values


def rebuild(data: bytes, chunks: Mapping[int, Sequence[Page]]) -> bytes:
    """The file with other pages in the chunks of some leaf columns. It must have one row group.

    It has no page indexes and bloom filters, and makes no claims about the values of the new pages.
    """
    _, footer = split_footer(data)
    (group,) = groups(footer)
    body = b"PAR1"
    for leaf, chunk in enumerate(columns(group)):
        fields, start = metadata_of(chunk), len(body)
        drop(chunk, 4, 5, 6, 7)
        drop(fields, 9, 11, 14, 15)
        for header, content in chunks.get(leaf) or pages_of(data, leaf):
            number = 11 if get(header, 1) == 2 else 9  # the place of the dictionary page, or of the first data page
            if all(known != number for known, _, _ in fields):
                put(fields, number, I64, len(body))
            body += serialize(header) + content
        put(fields, 6, I64, len(body) - start)
        put(fields, 7, I64, len(body) - start)
        if leaf in chunks:
            _drop_claims(fields, chunks[leaf])
    put(group, 6, I64, len(body) - 4)
    return join_footer(body, footer)


def _drop_claims(fields: Struct, new_pages: Sequence[Page]) -> None:
    """Remove statistics, and set encodings, codec and number of values to those of the new pages."""
    heads: list[Any] = [get(header, 5 if get(header, 1) == 0 else 8) for header, _ in new_pages if get(header, 1) != 2]
    encodings = {get(each, 2) for each in heads if len(each) < 6}  # of pages of version 1; version 2 has more fields
    drop(fields, 12, 13, 16)
    put(fields, 2, LIST, (I32, sorted({PLAIN, RLE, *encodings})))
    put(fields, 4, I32, 0)
    put(fields, 5, I64, sum(get(each, 1) for each in heads))
