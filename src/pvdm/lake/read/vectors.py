"""Deletion vectors of a snapshot: read where the manifest says, with the Puffin file's footer agreeing.

Some readers go by the manifest's offsets, others by the footer alone: where the two differ, one table has two contents.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from pvdm.errors import Code, InputError, VerificationError
from pvdm.lake.read.deletes import DeleteFile
from pvdm.lake.read.puffin import Blob, read_blobs
from pvdm.lake.read.resolve import Array, pc
from pvdm.lake.read.roaring import read_positions

VECTOR_KIND: Final = "deletion-vector-v1"
_MAGIC: Final = b"\xd1\xd3\x39\x64"
_FRAME_BYTES: Final = 12
_FILE: Final = "referenced-data-file"
_COUNT: Final = "cardinality"
_NUMBER: Final = re.compile(r"[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class Vectors:
    """The deletion vectors that a snapshot's manifests name, by data file; and, if any, every live data file."""

    named: Mapping[str, DeleteFile] = field(default_factory=dict)
    live: frozenset[str] = frozenset()

    def read(self, file: DeleteFile, data: bytes, rows: int) -> Array:
        """Whether each row is deleted, as far as the last that is; `rows` are those of the data file."""
        blob = self._listed(file, read_blobs(data))
        positions = read_positions(_vector(data[blob.offset : blob.end]))
        count = blob.properties.get(_COUNT)
        if not (count == str(file.record_count) and positions.count == file.record_count):
            raise _refused(
                "deletion_vector_count_lies",
                "a deletion vector holds another number of positions than is told of it",
                f"{positions.count} positions, as it has",
                f"{file.record_count} by the manifest, {count!a:.40} by the footer",
            )
        bits = pa.py_buffer(positions.data)
        found: Array = pa.Array.from_buffers(pa.bool_(), 8 * len(positions.data), [None, bits])
        if len(found) > rows and pc.any(found.slice(rows), min_count=0).as_py():
            raise _refused(
                "deletion_vector_beyond",
                "a deletion vector has a position behind the last row of its data file",
                f"positions below {rows}",
                "a higher one",
            )
        return found

    def _listed(self, file: DeleteFile, blobs: Iterable[Blob]) -> Blob:
        """The blob that the manifest names; every other one of the file must not count for any reader."""
        vectors = [blob for blob in blobs if blob.kind == VECTOR_KIND]
        _require_distinct([_referenced(blob) for blob in vectors])
        own = next((blob for blob in vectors if (blob.offset, blob.length) == (file.offset, file.length)), None)
        if own is None:
            raise _refused(
                "deletion_vector_unlisted",
                "the footer of a Puffin file does not list the deletion vector that the manifest names",
                f"a blob {VECTOR_KIND} at {file.offset} of {file.length} bytes",
                "none there",
            )
        if _referenced(own) != file.referenced:
            raise _refused(
                "deletion_vector_differs",
                "the footer of a Puffin file has a deletion vector for another data file than the manifest",
                str(file.referenced),
                _referenced(own),
            )
        for blob in vectors:
            if blob is not own:
                self._require_named(file, blob)
        return own

    def _require_named(self, file: DeleteFile, blob: Blob) -> None:
        """Readers that go by footers would apply it: to a live file only where a newer vector has taken its place."""
        referenced = _referenced(blob)
        named = self.named.get(referenced)
        if named is None and referenced not in self.live:
            return
        if named is not None:
            if (named.location, named.offset, named.length) == (file.location, blob.offset, blob.length):
                return
            count = blob.properties.get(_COUNT, "")
            least = int(count) if _NUMBER.fullmatch(count) else None
            newer = named.sequence_number > file.sequence_number
            if newer and least is not None and least <= named.record_count:
                return
        raise _refused(
            "deletion_vector_stray",
            "a Puffin file lists a deletion vector that the snapshot does not have",
            "vectors of the snapshot, or older ones that a newer one has replaced",
            f"another for {referenced}",
        )


def _require_distinct(referenced: list[str]) -> None:
    if len(set(referenced)) != len(referenced):
        raise _refused(
            "deletion_vector_twice",
            "a Puffin file lists two deletion vectors of one data file",
            "one for each",
            f"{len(referenced)} vectors of {len(set(referenced))} data files",
        )


def _referenced(blob: Blob) -> str:
    if blob.codec is not None:
        raise _refused(
            "deletion_vector_compressed",
            "a deletion vector is compressed, which Iceberg does not allow",
            "a blob without compression",
            ascii(blob.codec[:40]),
        )
    found = blob.properties.get(_FILE)
    if found is None:
        raise _refused(
            "deletion_vector_differs",
            "the footer of a Puffin file has a deletion vector for no data file",
            f"the property {_FILE}",
            "none",
        )
    return found


def _vector(blob: bytes) -> bytes:
    """The bitmap inside the blob: length, magic, bitmap, checksum of magic and bitmap."""
    length = int.from_bytes(blob[:4], "big")
    if len(blob) < _FRAME_BYTES or length != len(blob) - 8:
        raise _invalid(f"a length of {len(blob) - 8}", str(length))
    if blob[4:8] != _MAGIC:
        raise _invalid(f"the magic {_MAGIC.hex()}", blob[4:8].hex())
    if zlib.crc32(blob[4:-4]) != int.from_bytes(blob[-4:], "big"):
        raise _invalid("bytes of their checksum", "others")
    return blob[8:-4]


def _refused(code: str, message: str, expected: str, got: str) -> InputError:
    return InputError(code, message, expected=expected, got=got[:400])


def _invalid(expected: str, got: str) -> VerificationError:
    return VerificationError(
        Code.DELETION_VECTOR_INVALID, "a deletion vector cannot be read", expected=expected, got=got
    )
