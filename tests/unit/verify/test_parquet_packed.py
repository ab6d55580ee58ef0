"""Pages that are larger than they tell: what they have is counted before a decoder opens them, and never kept."""

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
from tests.support.parquet.edit import I32, Struct, columns, get, groups, joined, put, split, told
from tests.support.parquet.pages import RLE_DICTIONARY, Page, dictionary, page, rebuilt
from tests.support.verify.staged import NAME, metadata, observe_file, parquet

pytestmark = pytest.mark.usefixtures("kernel")

TABLE = metadata(column(1, "x", "string"))
GZIP, BROTLI, LZ4 = 2, 4, 5
NAMES: dict[int, Any] = {GZIP: "gzip", BROTLI: "brotli", LZ4: "lz4"}
LARGER = "a page larger than its declared size"
NOISE = random.Random(7).randbytes(400_000).hex().encode()


def text(value: bytes) -> bytes:
    return struct.pack("<I", len(value)) + value


def in_one_page(codec: int, content: bytes, size: int, *, by_dictionary: bool = False) -> bytes:
    """A file of one text; its page, or its dictionary, has this content and tells this size."""
    field = pa.field("x", pa.string(), nullable=False, metadata={NAME: "1"})
    honest = pa.Table.from_arrays([pa.array(["a"])], schema=pa.schema([field]))
    compressor: Any = pa.Codec(NAMES[codec])

    def packed(made: Page, told_size: int | None = None) -> Page:
        head: Struct = [list(each) for each in made[0]]
        small = compressor.compress(made[1], asbytes=True)
        put(head, 3, I32, len(small))
        put(head, 2, I32, get(head, 2) if told_size is None else told_size)
        return head, small

    whole = [packed(dictionary(1, content), size), packed(page(1, b"\0\2", encoding=RLE_DICTIONARY))]
    made = whole if by_dictionary else [packed(page(1, content), size)]
    plain = parquet(honest, store_schema=False, use_dictionary=False, compression="none")
    body, footer = split(rebuilt(plain, {0: made}))
    put(told(columns(groups(footer)[0])[0]), 4, I32, codec)
    return joined(body, footer)


@pytest.mark.parametrize("by_dictionary", [False, True])
@pytest.mark.parametrize("codec", NAMES)
def test_a_page_that_grows_beyond_what_it_tells_is_not_opened(codec: int, by_dictionary: bool) -> None:
    """Megabytes of gzip are gigabytes, and a few bytes of Brotli as many; a source is read by the same decoder."""
    bomb = in_one_page(codec, text(b"\0" * 300_000_000), 5, by_dictionary=by_dictionary)
    (only,) = observe_file(bomb, TABLE, record_count=1).findings
    assert (only.code, only.got) == ("parquet_unreadable", LARGER)
    with pytest.raises(VerificationError) as caught:
        list(read_batches(bomb, to_model(TABLE.current_schema)))
    assert (caught.value.reason, caught.value.got) == ("parquet_unreadable", LARGER)


@pytest.mark.parametrize("by_dictionary", [False, True])
@pytest.mark.parametrize(
    ("codec", "wanted"), [(GZIP, []), *[(each, ["parquet_codec_unsupported"]) for each in (BROTLI, LZ4)]]
)
def test_a_large_page_of_the_size_that_it_tells_is_read(codec: int, wanted: list[str], by_dictionary: bool) -> None:
    data = in_one_page(codec, text(NOISE), len(NOISE) + 4, by_dictionary=by_dictionary)
    assert [each.code for each in observe_file(data, TABLE, record_count=1).findings] == wanted
    (batch,) = read_batches(data, to_model(TABLE.current_schema))
    assert batch.column(0).to_pylist() == [NOISE.decode()]
