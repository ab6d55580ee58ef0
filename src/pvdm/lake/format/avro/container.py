"""Avro object container files: decoded within limits, and encoded reproducibly."""

from __future__ import annotations

import hashlib
import io
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from pvdm.errors import Code, PvdmError
from pvdm.lake.format.avro.decode import Cursor, Raw, read_bytes, read_long, read_size, read_string, reader_of
from pvdm.lake.format.avro.encode import encode_records, write_long
from pvdm.lake.format.avro.schema import RecordNode, min_value_count, parse_avro_schema

AVRO_FILE_MAX_BYTES: Final = 67_108_864
AVRO_CONTENT_MAX_BYTES: Final = 268_435_456
AVRO_HEADER_MAX_BYTES: Final = 16_777_216
AVRO_HEADER_KEYS_MAX: Final = 1_000
AVRO_RECORDS_MAX: Final = 1_000_000
AVRO_VALUES_MAX: Final = 20_000_000
AVRO_BLOCKS_MAX: Final = 1_000_000

MAGIC: Final = b"Obj\x01"
SYNC_BYTES: Final = 16
BLOCK_BYTES: Final = 64_000  # as in Avro's Java writer; a block ends when it has this many bytes before compression
_DEFLATE_LEVEL: Final = 6
_SCHEMA_KEY: Final = "avro.schema"
_CODEC_KEY: Final = "avro.codec"


@dataclass(frozen=True, slots=True)
class AvroLimits:
    """Limits for reading: a file over one of them is refused."""

    file_size_max_bytes: int = AVRO_FILE_MAX_BYTES
    content_size_max_bytes: int = AVRO_CONTENT_MAX_BYTES
    header_size_max_bytes: int = AVRO_HEADER_MAX_BYTES
    records_max: int = AVRO_RECORDS_MAX
    values_max: int = AVRO_VALUES_MAX
    blocks_max: int = AVRO_BLOCKS_MAX


DEFAULT_LIMITS: Final = AvroLimits()


@dataclass(frozen=True, slots=True)
class AvroFile:
    """A container file: the pairs of its header (`metadata`), its schema as text and tree, and its records."""

    metadata: tuple[tuple[str, bytes], ...]
    schema_text: str
    schema: RecordNode
    codec: str
    sync: bytes
    records: tuple[Raw, ...]
    content_bytes: int
    """The size of all records, decompressed."""

    def text(self, key: str) -> str | None:
        """A header value as text; None if the header does not have the key."""
        for name, value in self.metadata:
            if name == key:
                return _decode_text(value, f"header value {key!r}")
        return None


def _decode_text(value: bytes, what: str) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise Code.AVRO_INVALID(f"{what} is not text", reason="avro_header_not_utf8", got=error.reason) from None


def read_avro(data: bytes, limits: AvroLimits = DEFAULT_LIMITS) -> AvroFile:
    """Read the whole file. A limit is checked before the memory that it bounds is used."""
    if len(data) > limits.file_size_max_bytes:
        expected = f"at most {limits.file_size_max_bytes} bytes"
        raise Code.AVRO_INVALID(reason="avro_file_too_large", expected=expected, got=str(len(data)))
    if data[: len(MAGIC)] != MAGIC:
        raise Code.AVRO_INVALID(reason="avro_magic_missing", expected=MAGIC.hex(), got=data[: len(MAGIC)].hex())
    cursor = Cursor(data, limits.values_max, len(MAGIC))
    header = _read_header(cursor, limits)
    sync = cursor.take(SYNC_BYTES)
    if _SCHEMA_KEY not in header:
        raise Code.AVRO_INVALID(reason="avro_schema_missing", expected=_SCHEMA_KEY, got="none")
    codec = _decode_text(header.get(_CODEC_KEY, b"null"), "the codec")
    schema_text = _decode_text(header[_SCHEMA_KEY], "the Avro schema")
    schema = parse_avro_schema(schema_text)
    block_sizes: list[int] = []
    records = tuple(_read_records(cursor, schema, codec, sync, limits, block_sizes))
    return AvroFile(tuple(header.items()), schema_text, schema, codec, sync, records, sum(block_sizes))


def _read_header(cursor: Cursor, limits: AvroLimits) -> dict[str, bytes]:
    start = cursor.position
    header: dict[str, bytes] = {}
    while (count := read_long(cursor)) != 0:
        if count < 0:
            read_size(cursor)  # the block's size in bytes follows a negative count
        for _ in range(abs(count)):
            key = read_string(cursor)
            if key in header or len(header) == AVRO_HEADER_KEYS_MAX:
                expected = f"at most {AVRO_HEADER_KEYS_MAX} distinct keys"
                raise Code.AVRO_INVALID(reason="avro_header_keys_refused", expected=expected, got=repr(key)[:120])
            header[key] = read_bytes(cursor)
            if cursor.position - start > limits.header_size_max_bytes:
                raise _over_limit("avro_header_too_large", f"at most {limits.header_size_max_bytes} bytes")
    return header


def _read_records(
    cursor: Cursor, schema: RecordNode, codec: str, sync: bytes, limits: AvroLimits, block_sizes: list[int]
) -> Iterator[Raw]:
    """The records. The decompressed size of each block is appended to `block_sizes`."""
    read_record, min_values = reader_of(schema), min_value_count(schema)
    content_left, values_left = limits.content_size_max_bytes, limits.values_max
    records_left, blocks = limits.records_max, 0
    while cursor.position < len(cursor.data):
        count, stored = read_size(cursor), read_bytes(cursor)
        if cursor.take(SYNC_BYTES) != sync:
            raise Code.AVRO_INVALID(reason="avro_sync_mismatch", expected=sync.hex(), got="another")
        records_left, blocks = records_left - count, blocks + 1
        if records_left < 0:
            raise _over_limit("avro_too_many_records", f"at most {limits.records_max}")
        if blocks > limits.blocks_max:
            raise _over_limit("avro_too_many_blocks", f"at most {limits.blocks_max}")
        content = decompress(codec, stored, content_left)
        content_left -= len(content)
        block_sizes.append(len(content))
        block = Cursor(content, values_left)
        for _ in range(count):
            block.charge_values(min_values)  # before the record is read, so that the limit also bounds the memory
            yield read_record(block)
        if block.position != len(content):
            expected = f"{block.position} bytes in {count} records"
            raise Code.AVRO_INVALID(reason="avro_block_count_lies", expected=expected, got=f"{len(content)} bytes")
        values_left = block.values_left


def decompress(codec: str, stored: bytes, size_max_bytes: int) -> bytes:
    """A block's content. Raises as soon as it is over the limit."""
    match codec:
        case "null":
            content = stored
        case "deflate":
            content = _inflate(stored, size_max_bytes)
        case "snappy":
            content = _decompress_snappy(stored, size_max_bytes)
        case "zstandard":
            content = _decompress_zstandard(stored, size_max_bytes)
        case _:
            raise Code.AVRO_INVALID(reason="avro_codec_unknown", got=repr(codec)[:40])
    _require_content_size(len(content), size_max_bytes)
    return content


def _over_limit(reason: str, expected: str) -> PvdmError:
    return Code.AVRO_INVALID(reason=reason, expected=expected, got="more")


def _require_content_size(size: int, size_max_bytes: int) -> None:
    if size > size_max_bytes:
        raise _over_limit("avro_content_too_large", f"at most {size_max_bytes} more bytes")


def _corrupt(codec: str, got: str) -> PvdmError:
    return Code.AVRO_INVALID(reason="avro_block_corrupt", expected=f"{codec} data", got=got[:120])


def _inflate(stored: bytes, size_max_bytes: int) -> bytes:
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        content = inflater.decompress(stored, size_max_bytes + 1)
    except zlib.error as error:
        raise _corrupt("deflate", str(error)) from None
    _require_content_size(len(content), size_max_bytes)
    if not inflater.eof:
        raise _corrupt("deflate", "data that ends too early")
    # Some Python writers cut deflate data out of a zlib stream, and leave the first bytes of its checksum at the end.
    if not zlib.adler32(content).to_bytes(4, "big").startswith(inflater.unused_data):
        raise _corrupt("deflate", f"{len(inflater.unused_data)} bytes after the end")
    return content


def _decompress_snappy(stored: bytes, size_max_bytes: int) -> bytes:
    """Snappy has the size before the data, and Avro adds a checksum of the content after it."""
    import pyarrow as pa

    size, shift = 0, 0
    for byte in stored[:5]:  # seven bits a byte, the lowest first
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    _require_content_size(size, size_max_bytes)
    try:
        content = pa.Codec("snappy").decompress(stored[:-4], decompressed_size=size, asbytes=True)
    except (OSError, ValueError) as error:
        raise _corrupt("snappy", str(error)) from None
    if len(stored) < 5 or zlib.crc32(content) != int.from_bytes(stored[-4:], "big"):
        raise _corrupt("snappy", "another checksum")
    return bytes(content)


def _decompress_zstandard(stored: bytes, size_max_bytes: int) -> bytes:
    import pyarrow as pa

    try:
        with pa.input_stream(io.BytesIO(stored), compression="zstd") as stream:
            return bytes(stream.read(size_max_bytes + 1))
    except OSError as error:
        raise _corrupt("zstandard", str(error)) from None


def write_avro(
    schema_text: str,
    metadata: Iterable[tuple[str, bytes]],
    records: Iterable[Raw],
    *,
    codec: str = "deflate",
    sync: bytes | None = None,
) -> bytes:
    """Encode a container file. `sync` is the marker after header and each block; by default a hash of all of these."""
    if codec not in {"null", "deflate"}:  # pvdm reads other codecs, but does not write them
        codec = "deflate"
    encoded = encode_records(parse_avro_schema(schema_text), records)
    header = MAGIC + _encode_header((*metadata, (_SCHEMA_KEY, schema_text.encode()), (_CODEC_KEY, codec.encode())))
    blocks: list[bytes] = []
    content_hash = hashlib.sha256(header)
    for count, content in _group_records(encoded):
        stored = _compress(codec, content)
        blocks.append(encode_long(count) + encode_long(len(stored)) + stored)
        content_hash.update(blocks[-1])
    marker = content_hash.digest()[:SYNC_BYTES] if sync is None else sync
    if len(marker) != SYNC_BYTES:
        raise Code.AVRO_INVALID(reason="avro_marker_invalid", expected=f"{SYNC_BYTES} bytes", got=str(len(marker)))
    return marker.join((header, *blocks, b""))


def _encode_header(pairs: tuple[tuple[str, bytes], ...]) -> bytes:
    if len(dict(pairs)) != len(pairs):
        raise Code.AVRO_INVALID(reason="avro_header_key_repeated", got="a key twice")
    parts = [encode_long(len(pairs))]
    for key, value in pairs:
        name = key.encode()
        parts += [encode_long(len(name)), name, encode_long(len(value)), value]
    return b"".join((*parts, b"\x00"))


def _group_records(encoded: list[bytes]) -> Iterator[tuple[int, bytes]]:
    """The number of records and the content of each block."""
    block: list[bytes] = []
    size = 0
    for record in encoded:
        block.append(record)
        size += len(record)
        if size >= BLOCK_BYTES:
            yield len(block), b"".join(block)
            block, size = [], 0
    if block:
        yield len(block), b"".join(block)


def _compress(codec: str, content: bytes) -> bytes:
    if codec == "null":
        return content
    deflater = zlib.compressobj(_DEFLATE_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    return deflater.compress(content) + deflater.flush()


def encode_long(value: int) -> bytes:
    """A zigzag number of 64 bits."""
    target = bytearray()
    write_long(target, value)
    return bytes(target)
