"""Builds pages of Parquet files by hand, with levels and values that no writer would combine.

`field_ids.py` names the ids of the fields.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from tests.support.parquet.edit import (
    FALSE,
    I32,
    I64,
    INDEX_PLACES,
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
from tests.support.parquet.field_ids import (
    ColumnField,
    DataPageField,
    DataPageV2Field,
    DictionaryPageField,
    Encoding,
    GroupField,
    PageField,
    PageType,
)

PLAIN, RLE, RLE_DICTIONARY = Encoding.PLAIN, Encoding.RLE, Encoding.RLE_DICTIONARY
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
    head: Struct = [
        [DataPageField.NUM_VALUES, I32, count],
        [DataPageField.ENCODING, I32, encoding],
        [DataPageField.DEFINITION_LEVEL_ENCODING, I32, RLE],
        [DataPageField.REPETITION_LEVEL_ENCODING, I32, RLE],
    ]
    return _header(PageType.DATA_PAGE, len(body), PageField.DATA_PAGE_HEADER, head), body


def _header(page_type: PageType, size: int, own_field: PageField, own: Struct) -> Struct:
    """The header of a page that is not compressed; `own` is the header of its type, in the field `own_field`."""
    return [
        [PageField.TYPE, I32, page_type],
        [PageField.UNCOMPRESSED_PAGE_SIZE, I32, size],
        [PageField.COMPRESSED_PAGE_SIZE, I32, size],
        [own_field, STRUCT, own],
    ]


def long_page(definition: Sequence[int], repetition: Sequence[int] | None, *values: int) -> Page:
    """A page of plain 64-bit values with these levels."""
    return page(len(definition), longs(*values), runs(definition), None if repetition is None else runs(repetition))


def page_v2(count: int, rows: int, values: bytes, definition: bytes = b"", repetition: bytes = b"") -> Page:
    """A data page of version 2, without compression and without nulls."""
    body = repetition + definition + values
    head: Struct = [
        [DataPageV2Field.NUM_VALUES, I32, count],
        [DataPageV2Field.NUM_NULLS, I32, 0],
        [DataPageV2Field.NUM_ROWS, I32, rows],
        [DataPageV2Field.ENCODING, I32, PLAIN],
        [DataPageV2Field.DEFINITION_LEVELS_BYTE_LENGTH, I32, len(definition)],
        [DataPageV2Field.REPETITION_LEVELS_BYTE_LENGTH, I32, len(repetition)],
        [DataPageV2Field.IS_COMPRESSED, FALSE, False],
    ]
    return _header(PageType.DATA_PAGE_V2, len(body), PageField.DATA_PAGE_HEADER_V2, head), body


def dictionary_page(count: int, values: bytes) -> Page:
    """A dictionary page with `count` plain values, without compression."""
    head: Struct = [[DictionaryPageField.NUM_VALUES, I32, count], [DictionaryPageField.ENCODING, I32, PLAIN]]
    return _header(PageType.DICTIONARY_PAGE, len(values), PageField.DICTIONARY_PAGE_HEADER, head), values


def rebuild(data: bytes, chunks: Mapping[int, Sequence[Page]]) -> bytes:
    """The file with other pages in the chunks of some leaf columns. It must have one row group.

    It has no page indexes and bloom filters, and makes no claims about the values of the new pages.
    """
    _, footer = split_footer(data)
    (group,) = groups(footer)
    body = b"PAR1"
    for leaf, chunk in enumerate(columns(group)):
        fields, start = metadata_of(chunk), len(body)
        drop(chunk, *INDEX_PLACES)
        drop(fields, ColumnField.DATA_PAGE_OFFSET, ColumnField.DICTIONARY_PAGE_OFFSET)
        drop(fields, ColumnField.BLOOM_FILTER_OFFSET, ColumnField.BLOOM_FILTER_LENGTH)
        for header, content in chunks.get(leaf) or pages_of(data, leaf):
            is_dictionary = get(header, PageField.TYPE) == PageType.DICTIONARY_PAGE
            number = ColumnField.DICTIONARY_PAGE_OFFSET if is_dictionary else ColumnField.DATA_PAGE_OFFSET
            if all(known != number for known, _, _ in fields):
                put(fields, number, I64, len(body))
            body += serialize(header) + content
        put(fields, ColumnField.TOTAL_UNCOMPRESSED_SIZE, I64, len(body) - start)
        put(fields, ColumnField.TOTAL_COMPRESSED_SIZE, I64, len(body) - start)
        if leaf in chunks:
            _drop_claims(fields, chunks[leaf])
    put(group, GroupField.TOTAL_COMPRESSED_SIZE, I64, len(body) - len(b"PAR1"))
    return join_footer(body, footer)


def _drop_claims(fields: Struct, new_pages: Sequence[Page]) -> None:
    """Remove statistics, and set encodings, codec and number of values to those of the new pages."""
    encodings = {PLAIN, RLE}
    value_count = 0
    for header, _ in new_pages:
        match get(header, PageField.TYPE):
            case PageType.DATA_PAGE:
                head = get(header, PageField.DATA_PAGE_HEADER)
                encodings.add(get(head, DataPageField.ENCODING))
                value_count += get(head, DataPageField.NUM_VALUES)
            case PageType.DATA_PAGE_V2:
                head = get(header, PageField.DATA_PAGE_HEADER_V2)
                value_count += get(head, DataPageV2Field.NUM_VALUES)
    drop(fields, ColumnField.STATISTICS, ColumnField.ENCODING_STATS, ColumnField.SIZE_STATISTICS)
    put(fields, ColumnField.ENCODINGS, LIST, (I32, sorted(encodings)))
    put(fields, ColumnField.CODEC, I32, 0)  # UNCOMPRESSED
    put(fields, ColumnField.NUM_VALUES, I64, value_count)
