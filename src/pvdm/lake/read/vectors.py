"""Deletion vectors of a snapshot, read from Puffin files. Manifest and footer must agree.

Some readers use the manifest's offsets and others the footer: if the two differ, one table has two contents.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import pyarrow as pa

from pvdm.errors import Code, PvdmError
from pvdm.lake.format.json_document import Node, parse_json
from pvdm.lake.read.deletes import DeleteFile
from pvdm.lake.read.resolve import Array, pc

VECTOR_KIND: Final = "deletion-vector-v1"
_MAGIC: Final = b"\xd1\xd3\x39\x64"
_FRAME_BYTES: Final = 12  # length, magic and checksum
_FILE_PROPERTY: Final = "referenced-data-file"
_COUNT_PROPERTY: Final = "cardinality"
_NUMBER: Final = re.compile(r"[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class Vectors:
    """`named`: the deletion vectors that a snapshot's manifests list, by data file. `live`: the live data files."""

    named: Mapping[str, DeleteFile] = field(default_factory=dict)
    live: frozenset[str] = frozenset()

    def read(self, file: DeleteFile, data: bytes, rows: int) -> Array:
        """One bit for each row, at least up to the last deleted row. Raises if a position is not below `rows`."""
        blob = self._find_blob(file, read_blobs(data))
        positions = read_positions(_unframe(data[blob.offset : blob.end]))
        count = blob.properties.get(_COUNT_PROPERTY)
        if count != str(file.record_count) or positions.count != file.record_count:
            got = f"{file.record_count} by the manifest, {count!a:.40} by the footer"
            raise _refused("deletion_vector_count_lies", f"{positions.count} positions, as it has", got)
        found: Array = pa.Array.from_buffers(pa.bool_(), 8 * len(positions.data), [None, pa.py_buffer(positions.data)])
        if len(found) > rows and pc.any(found.slice(rows), min_count=0).as_py():
            raise _refused("deletion_vector_beyond", f"positions below {rows}", "a higher one")
        return found

    def _find_blob(self, file: DeleteFile, blobs: Iterable[Blob]) -> Blob:
        """The blob that the manifest names. Raises if a reader could apply another blob of the file."""
        vectors = [blob for blob in blobs if blob.kind == VECTOR_KIND]
        files = {_referenced(blob) for blob in vectors}
        if len(files) != len(vectors):
            got = f"{len(vectors)} vectors of {len(files)} data files"
            raise _refused("deletion_vector_twice", "one for each", got)
        own = next((blob for blob in vectors if (blob.offset, blob.length) == (file.offset, file.length)), None)
        if own is None:
            expected = f"a blob {VECTOR_KIND} at {file.offset} of {file.length} bytes"
            raise _refused("deletion_vector_unlisted", expected, "none there")
        if _referenced(own) != file.referenced:
            raise _refused("deletion_vector_differs", str(file.referenced), _referenced(own))
        for blob in vectors:
            if blob is not own:
                self._require_not_stray(file, blob)
        return own

    def _require_not_stray(self, file: DeleteFile, blob: Blob) -> None:
        """Raise if a reader that uses footers would apply this blob to a live file that has no newer vector."""
        referenced = _referenced(blob)
        named = self.named.get(referenced)
        if named is None and referenced not in self.live:
            return
        if named is not None:
            if (named.location, named.offset, named.length) == (file.location, blob.offset, blob.length):
                return
            count = blob.properties.get(_COUNT_PROPERTY, "")
            is_not_larger = bool(_NUMBER.fullmatch(count)) and int(count) <= named.record_count
            if is_not_larger and named.sequence_number > file.sequence_number:
                return
        expected = "vectors of the snapshot, or older ones that a newer one has replaced"
        raise _refused("deletion_vector_stray", expected, f"another for {referenced}")


def _referenced(blob: Blob) -> str:
    """The data file that the vector is for. Raises if the blob does not name it, or is compressed."""
    if blob.codec is not None:
        raise _refused("deletion_vector_compressed", "a blob without compression", ascii(blob.codec[:40]))
    location = blob.properties.get(_FILE_PROPERTY)
    if location is None:
        raise _refused("deletion_vector_differs", f"the property {_FILE_PROPERTY}", "none")
    return location


def _unframe(blob: bytes) -> bytes:
    """The bitmap inside the blob: length, magic, bitmap, checksum of magic and bitmap."""
    length = int.from_bytes(blob[:4], "big")
    if len(blob) < _FRAME_BYTES or length != len(blob) - 8:
        raise _invalid(f"a length of {len(blob) - 8}", str(length))
    if blob[4:8] != _MAGIC:
        raise _invalid(f"the magic {_MAGIC.hex()}", blob[4:8].hex())
    if zlib.crc32(blob[4:-4]) != int.from_bytes(blob[-4:], "big"):
        raise _invalid("bytes that match the checksum", "other bytes")
    return blob[8:-4]


def _refused(reason: str, expected: str, got: str) -> PvdmError:
    return Code.DELETES_REFUSED(reason=reason, expected=expected, got=got[:400])


def _invalid(expected: str, got: str) -> PvdmError:
    return Code.SOURCE_DAMAGED(reason="deletion_vector_invalid", expected=expected, got=got)


PUFFIN_FOOTER_MAX_BYTES: Final = 67_108_864
PUFFIN_BLOBS_MAX: Final = 100_000
_PUFFIN_MAGIC: Final = b"PFA1"
# A footer is the magic, the payload, and these last bytes: the payload's size, flags, and the magic again.
_TAIL_BYTES: Final = 12
_COMPRESSED_FLAG: Final = 1


@dataclass(frozen=True, slots=True)
class Blob:
    """One blob as the footer lists it."""

    kind: str
    offset: int
    length: int
    codec: str | None
    properties: Mapping[str, str]

    @property
    def end(self) -> int:
        """The offset behind its last byte."""
        return self.offset + self.length


def read_blobs(data: bytes) -> tuple[Blob, ...]:
    """The blobs in the order of the footer. Raises if they overlap or reach into the footer."""
    payload, footer_start = _read_footer(data)
    node = Node(parse_json(payload, what="the footer of a Puffin file", size_max_bytes=PUFFIN_FOOTER_MAX_BYTES), "$")
    count = len(node.array("blobs"))
    if count > PUFFIN_BLOBS_MAX:
        raise _refused("puffin_too_many_blobs", f"at most {PUFFIN_BLOBS_MAX}", str(count))
    blobs = tuple(
        Blob(
            kind=each.text("type"),
            offset=each.long("offset"),
            length=each.long("length"),
            codec=each.optional_text("compression-codec"),
            properties=each.string_map_if_present("properties"),
        )
        for each in node.nodes("blobs")
    )
    _require_disjoint(blobs, footer_start)
    return blobs


def _read_footer(data: bytes) -> tuple[bytes, int]:
    """The footer's payload, which is JSON, and the offset of the footer."""
    size = int.from_bytes(data[-_TAIL_BYTES:-8], "little", signed=True)
    start = len(data) - _TAIL_BYTES - size
    footer_start = start - len(_PUFFIN_MAGIC)
    if len(data) < _TAIL_BYTES + 2 * len(_PUFFIN_MAGIC) or data[:4] != _PUFFIN_MAGIC or data[-4:] != _PUFFIN_MAGIC:
        raise _unreadable("PFA1 at both ends", "other bytes")
    if size < 0 or footer_start < len(_PUFFIN_MAGIC) or data[footer_start:start] != _PUFFIN_MAGIC:
        raise _unreadable("a footer of the size that the file gives", f"{size} bytes in {len(data)}")
    flags = int.from_bytes(data[-8:-4], "little")
    if flags == _COMPRESSED_FLAG:
        raise Code.DELETES_REFUSED(reason="puffin_footer_compressed", got="one in LZ4")
    if flags:
        raise _unreadable("flags without unknown bits", f"{flags:#010x}")
    return data[start : start + size], footer_start


def _require_disjoint(blobs: tuple[Blob, ...], end: int) -> None:
    start = len(_PUFFIN_MAGIC)
    for blob in sorted(blobs, key=lambda each: (each.offset, each.length)):
        if blob.offset < start or blob.length < 0 or blob.end > end:
            raise _refused("puffin_blob_misplaced", f"bytes {start} to {end}", f"bytes {blob.offset} to {blob.end}")
        start = blob.end


def _unreadable(expected: str, got: str) -> PvdmError:
    return Code.SOURCE_DAMAGED(reason="puffin_unreadable", expected=expected, got=got)


POSITIONS_MAX: Final = 1_073_741_824
"""Positions must be lower, so that the bits of one file stay below 128 MiB."""

# A 32-bit Roaring bitmap in its portable form has containers of 65,536 positions each. A container is a sorted array of
# positions, a bit for each position, or runs. The cookie, its first number, says whether there are runs.
_COOKIE: Final = 12_347
_COOKIE_NO_RUNS: Final = 12_346
_CONTAINERS_MAX: Final = 65_536
_CONTAINER_POSITIONS: Final = 65_536
_OFFSETS_FROM: Final = 4
"""A bitmap with runs has offsets from this number of containers on."""
_ARRAY_POSITIONS_MAX: Final = 4_096
_CONTAINER_BYTES: Final = 8_192
_KEY_LAST: Final = 0x7FFF_FFFF


@dataclass(frozen=True, slots=True)
class Bits:
    """One bit for each position, up to the end of the last container, and the number of set bits."""

    data: bytearray
    count: int


@dataclass(frozen=True, slots=True)
class _Container:
    """A container as the header lists it. Its positions begin at `key` times 65,536; `count` of them are set."""

    key: int
    count: int
    has_runs: bool


class _BitmapReader:
    """Reads a bitmap's bytes in order, from `position` on."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, size: int) -> bytes:
        found = self.data[self.position : self.position + size]
        if len(found) != size:
            raise _invalid(f"{size} bytes more", f"{len(found)}")
        self.position += size
        return found

    def read_number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def read_shorts(self, count: int) -> tuple[int, ...]:
        return struct.unpack(f"<{count}H", self.take(2 * count))


def read_positions(data: bytes) -> Bits:
    """Read a 64-bit Roaring bitmap: 32-bit bitmaps under ascending keys, which are the upper halves of positions."""
    reader = _BitmapReader(data)
    bits, total, last_key = bytearray(), 0, -1
    # The count may be anything: each bitmap takes bytes, so that reading ends with the data.
    for _ in range(reader.read_number(8)):
        key = reader.read_number(4)
        if not last_key < key <= _KEY_LAST:
            raise _invalid(f"a key above {last_key}, of 31 bits", str(key))
        last_key = key
        containers = _read_header(reader)
        if containers and (key << 32) + (containers[-1].key << 16) >= POSITIONS_MAX:
            raise _refused("deletion_vector_too_large", f"positions below {POSITIONS_MAX}", "a higher one")
        if containers:  # the key is 0: all positions under other keys are above the limit
            bits = _read_containers(reader, containers)
            total = sum(each.count for each in containers)
    if reader.position != len(data):
        raise _invalid("nothing behind the last bitmap", f"{len(data) - reader.position} bytes")
    return Bits(bits, total)


def _read_header(reader: _BitmapReader) -> list[_Container]:
    """Read the header of a 32-bit bitmap: keys, counts and kinds of its containers."""
    start = reader.position
    cookie = reader.read_number(4)
    if cookie == _COOKIE_NO_RUNS:
        size = reader.read_number(4)
        if size > _CONTAINERS_MAX:
            raise _invalid(f"at most {_CONTAINERS_MAX} containers", str(size))
        run_flags, has_offsets = 0, True
    elif cookie & 0xFFFF == _COOKIE:
        size = (cookie >> 16) + 1
        run_flags = reader.read_number((size + 7) // 8)
        if run_flags >> size:
            raise _invalid(f"{size} flags, one for each container", "more")
        has_offsets = size >= _OFFSETS_FROM
    else:
        raise _invalid("a bitmap in its portable form", f"{cookie:#010x}")
    pairs = reader.read_shorts(2 * size)
    containers = [_Container(pairs[2 * i], pairs[2 * i + 1] + 1, bool(run_flags >> i & 1)) for i in range(size)]
    if any(low.key >= high.key for low, high in pairwise(containers)):
        raise _invalid("containers with ascending keys", "another order")
    if has_offsets:
        _require_offsets(reader, start, containers)
    return containers


def _require_offsets(reader: _BitmapReader, start: int, containers: list[_Container]) -> None:
    """Raise if an offset is wrong: some readers use the offsets, others do not."""
    given = struct.unpack(f"<{len(containers)}I", reader.take(4 * len(containers)))
    expected = reader.position - start
    for container, offset in zip(containers, given, strict=True):
        if offset != expected:
            raise _invalid(f"a container at {expected}", f"an offset of {offset}")
        if container.has_runs:
            run_count = reader.data[start + expected : start + expected + 2]
            expected += 2 + 4 * int.from_bytes(run_count, "little")
        else:
            expected += 2 * container.count if container.count <= _ARRAY_POSITIONS_MAX else _CONTAINER_BYTES


def _read_containers(reader: _BitmapReader, containers: list[_Container]) -> bytearray:
    """The bits of all positions up to the end of the last container, 8 KiB for each container."""
    bits = bytearray((containers[-1].key + 1) * _CONTAINER_BYTES)
    for each in containers:
        if each.has_runs:
            block: bytes | bytearray = _bits_of_runs(each, reader)
        elif each.count > _ARRAY_POSITIONS_MAX:
            block = reader.take(_CONTAINER_BYTES)
            if int.from_bytes(block, "little").bit_count() != each.count:
                raise _invalid(f"{each.count} positions in a container", "another number")
        else:
            block = _bits_of_array(reader.read_shorts(each.count))
        bits[each.key * _CONTAINER_BYTES : (each.key + 1) * _CONTAINER_BYTES] = block
    return bits


def _bits_of_array(values: tuple[int, ...]) -> bytearray:
    if any(low >= high for low, high in pairwise(values)):
        raise _invalid("ascending positions in a container", "another order")
    block = bytearray(_CONTAINER_BYTES)
    for value in values:
        block[value >> 3] |= 1 << (value & 7)
    return block


def _bits_of_runs(container: _Container, reader: _BitmapReader) -> bytearray:
    """The bits of a container of runs, each a start and the number of further positions. Raises if two runs touch."""
    block, total, end = bytearray(_CONTAINER_BYTES), 0, -1
    pairs = reader.read_shorts(2 * reader.read_number(2))
    for start, more in zip(pairs[::2], pairs[1::2], strict=True):
        if start <= end or start + more >= _CONTAINER_POSITIONS:
            raise _invalid("runs apart from each other, inside their container", f"one from {start}")
        end = start + more + 1
        _fill(block, start, end)
        total += more + 1
    if total != container.count:
        raise _invalid(f"{container.count} positions in runs", str(total))
    return block


def _fill(block: bytearray, start: int, end: int) -> None:
    """Set the bits from `start` to before `end`."""
    first, last = (start + 7) >> 3, end >> 3
    if first > last:
        block[last] |= (1 << (end & 7)) - (1 << (start & 7))
        return
    block[first:last] = b"\xff" * (last - first)
    if start & 7:
        block[first - 1] |= 0x100 - (1 << (start & 7))
    if end & 7:
        block[last] |= (1 << (end & 7)) - 1
