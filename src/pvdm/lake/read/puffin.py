"""Puffin files: which blobs the footer lists, and where they lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pvdm.errors import Code, VerificationError
from pvdm.lake.format.json.document import parse_json
from pvdm.lake.format.json.node import Node

PUFFIN_FOOTER_MAX_BYTES: Final = 67_108_864
PUFFIN_BLOBS_MAX: Final = 100_000
_MAGIC: Final = b"PFA1"
# Size of the payload, flags and magic; the payload has its own magic before it.
_TAIL: Final = 12
_COMPRESSED: Final = 1


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
        """The place behind its last byte."""
        return self.offset + self.length


def read_blobs(data: bytes) -> tuple[Blob, ...]:
    """The blobs in the order of the footer; each lies before the footer, and no two share a byte."""
    payload, end = _payload(data)
    node = Node(parse_json(payload, what="the footer of a Puffin file", size_max_bytes=PUFFIN_FOOTER_MAX_BYTES), "$")
    count = len(node.items("blobs"))
    if count > PUFFIN_BLOBS_MAX:
        raise Code.DELETION_VECTOR_REFUSED(
            reason="puffin_too_many_blobs", expected=f"at most {PUFFIN_BLOBS_MAX}", got=str(count)
        )
    blobs = tuple(_blob(each) for each in node.nodes("blobs"))
    _require_apart(blobs, end)
    return blobs


def _payload(data: bytes) -> tuple[bytes, int]:
    """The footer's text, and where the footer begins."""
    size = int.from_bytes(data[-_TAIL:-8], "little", signed=True)
    start = len(data) - _TAIL - size
    begin = start - len(_MAGIC)
    if len(data) < _TAIL + 2 * len(_MAGIC) or data[:4] != _MAGIC or data[-4:] != _MAGIC:
        raise _unreadable("PFA1 at both ends", "other bytes")
    if size < 0 or begin < len(_MAGIC) or data[begin:start] != _MAGIC:
        raise _unreadable("a footer of the size that the file tells", f"{size} bytes in {len(data)}")
    flags = int.from_bytes(data[-8:-4], "little")
    if flags == _COMPRESSED:
        raise Code.DELETION_VECTOR_REFUSED(reason="puffin_footer_compressed", got="one in LZ4")
    if flags:
        raise _unreadable("flags without unknown bits", f"{flags:#010x}")
    return data[start : start + size], begin


def _blob(node: Node) -> Blob:
    return Blob(
        kind=node.text("type"),
        offset=node.long("offset"),
        length=node.long("length"),
        codec=node.optional_text("compression-codec"),
        properties=node.given_strings("properties"),
    )


def _require_apart(blobs: tuple[Blob, ...], end: int) -> None:
    last = len(_MAGIC)
    for blob in sorted(blobs, key=lambda each: (each.offset, each.length)):
        if blob.offset < last or blob.length < 0 or blob.end > end:
            raise Code.DELETION_VECTOR_REFUSED(
                reason="puffin_blob_misplaced",
                expected=f"bytes {last} to {end}",
                got=f"bytes {blob.offset} to {blob.end}",
            )
        last = blob.end


def _unreadable(expected: str, got: str) -> VerificationError:
    return VerificationError(Code.PUFFIN_UNREADABLE, "a Puffin file cannot be read", expected=expected, got=got)
