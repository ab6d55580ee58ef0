"""Compressed pages that are larger than they declare: they are refused before they are decompressed into memory."""

from __future__ import annotations

import random
import struct
from typing import Any

import pyarrow as pa
import pytest

from pvdm.digest.parquet import read_batches
from pvdm.errors import VerificationError
from pvdm.lake.format.schema.logical import to_model
from tests.support.lake.metadata import column
from tests.support.parquet.edit import I32, Struct, columns, get, groups, join_footer, metadata_of, put, split_footer
from tests.support.parquet.pages import RLE_DICTIONARY, Page, dictionary_page, page, rebuild
from tests.support.verify.staged import NAME, metadata, observe_file, parquet

pytestmark = pytest.mark.usefixtures("kernel")

TABLE = metadata(column(1, "x", "string"))
GZIP, BROTLI, LZ4 = 2, 4, 5
CODECS: dict[int, Any] = {GZIP: "gzip", BROTLI: "brotli", LZ4: "lz4"}
LARGER = "a page larger than its declared size"
NOISE = random.Random(7).randbytes(400_000).hex().encode()


def length_and_text(value: bytes) -> bytes:
    return struct.pack("<I", len(value)) + value


def file_of_one_page(codec: int, content: bytes, size: int, *, by_dictionary: bool = False) -> bytes:
    """A file of one text; its data page, or its dictionary page, has this content and declares this size."""
    field = pa.field("x", pa.string(), nullable=False, metadata={NAME: "1"})
    honest = pa.Table.from_arrays([pa.array(["a"])], schema=pa.schema([field]))
    compressor: Any = pa.Codec(CODECS[codec])

    def compress(new_page: Page, declared_size: int | None = None) -> Page:
        head: Struct = [list(each) for each in new_page[0]]
        small = compressor.compress(new_page[1], asbytes=True)
        put(head, 3, I32, len(small))
        put(head, 2, I32, get(head, 2) if declared_size is None else declared_size)
        return head, small

    with_dictionary = [compress(dictionary_page(1, content), size), compress(page(1, b"\0\2", encoding=RLE_DICTIONARY))]
    new_page = with_dictionary if by_dictionary else [compress(page(1, content), size)]
    plain = parquet(honest, store_schema=False, use_dictionary=False, compression="none")
    body, footer = split_footer(rebuild(plain, {0: new_page}))
    put(metadata_of(columns(groups(footer)[0])[0]), 4, I32, codec)
    return join_footer(body, footer)


@pytest.mark.parametrize(
    ("codec", "by_dictionary"),
    [
        (GZIP, True),
        (BROTLI, False),
        (LZ4, False),
        *[pytest.param(*each, marks=pytest.mark.long) for each in ((GZIP, False), (BROTLI, True), (LZ4, True))],
    ],
)
def test_a_page_larger_than_its_declared_size_is_refused(codec: int, by_dictionary: bool) -> None:
    """Megabytes of gzip or a few bytes of Brotli can be gigabytes. `read_batches` is the same decoder for sources."""
    bomb = file_of_one_page(codec, length_and_text(b"\0" * 300_000_000), 5, by_dictionary=by_dictionary)
    (finding,) = observe_file(bomb, TABLE, record_count=1).findings
    assert (finding.code, finding.got) == ("parquet_unreadable", LARGER)
    with pytest.raises(VerificationError) as caught:
        list(read_batches(bomb, to_model(TABLE.current_schema)))
    assert (caught.value.reason, caught.value.got) == ("parquet_unreadable", LARGER)


@pytest.mark.parametrize("by_dictionary", [False, True])
@pytest.mark.parametrize(
    ("codec", "expected"), [(GZIP, []), *[(each, ["parquet_codec_unsupported"]) for each in (BROTLI, LZ4)]]
)
def test_a_large_page_of_its_declared_size_is_read(codec: int, expected: list[str], by_dictionary: bool) -> None:
    data = file_of_one_page(codec, length_and_text(NOISE), len(NOISE) + 4, by_dictionary=by_dictionary)
    assert [each.code for each in observe_file(data, TABLE, record_count=1).findings] == expected
    (batch,) = read_batches(data, to_model(TABLE.current_schema))
    assert batch.column(0).to_pylist() == [NOISE.decode()]
