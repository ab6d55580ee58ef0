"""Puffin files with deletion vectors, honest or not. CRoaring writes the bitmaps; the rest is written here."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyroaring import BitMap

from pvdm.lake.format.manifest.entry import FileContent
from tests.support.lake.scans import Lake

MAGIC = b"\xd1\xd3\x39\x64"
ROW_POSITION = 2_147_483_645


def bitmap(positions: Iterable[int], *, runs: bool = False) -> bytes:
    """The positions as a 64-bit roaring bitmap; with `runs` in runs where these are shorter, as Java writes it."""
    groups: dict[int, BitMap] = {}
    for position in positions:
        groups.setdefault(position >> 32, BitMap()).add(position & 0xFFFFFFFF)
    found = struct.pack("<Q", len(groups))
    for key, group in sorted(groups.items()):
        if runs:
            group.run_optimize()
        found += struct.pack("<I", key) + group.serialize()
    return found


def framed(vector: bytes, *, magic: bytes = MAGIC, crc: int | None = None, length: int | None = None) -> bytes:
    """The blob of a deletion vector: length, magic, bitmap, checksum."""
    body = magic + vector
    head = struct.pack(">I", len(body) if length is None else length)
    return head + body + struct.pack(">I", zlib.crc32(body) if crc is None else crc)


@dataclass
class Listed:
    """A blob and its entry in the footer. `changes` replace values of the entry; it is left out unless `shown`."""

    referenced: str
    positions: Sequence[int] = ()
    blob: bytes | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    shown: bool = True

    def payload(self) -> bytes:
        return framed(bitmap(self.positions)) if self.blob is None else self.blob


def puffin(blobs: Sequence[Listed], *, flags: int = 0, footer: bytes | None = None) -> tuple[bytes, list[int]]:
    """A Puffin file, and the offset of each blob."""
    data, offsets, listed = b"PFA1", [], []
    for each in blobs:
        payload = each.payload()
        offsets.append(len(data))
        entry: dict[str, Any] = {
            "type": "deletion-vector-v1",
            "fields": [ROW_POSITION],
            "snapshot-id": -1,
            "sequence-number": -1,
            "offset": len(data),
            "length": len(payload),
            "properties": {"referenced-data-file": each.referenced, "cardinality": str(len(set(each.positions)))},
        }
        data += payload
        if each.shown:
            listed.append({key: value for key, value in {**entry, **each.changes}.items() if value is not None})
    text = json.dumps({"blobs": listed}).encode() if footer is None else footer
    return data + b"PFA1" + text + struct.pack("<II", len(text), flags) + b"PFA1", offsets


def add_vectors(
    lake: Lake,
    blobs: Sequence[Listed],
    *,
    sequence: int = 2,
    spec: int = 0,
    partition: Mapping[int, Any] | None = None,
    changes: Mapping[str, Any] | None = None,
    named: Sequence[int] | None = None,
    **options: Any,
) -> str:
    """Write a Puffin file, and list its blobs in the table, or only those at `named`; returns its location.

    `changes` replace values of the manifest entries.
    """
    data, offsets = puffin(blobs, **options)
    path = lake.folder / f"dv{next(lake._numbers):04d}.puffin"
    path.write_bytes(data)
    return list_vectors(lake, path, blobs, offsets, sequence, spec, partition, changes, named)


def list_vectors(
    lake: Lake,
    path: Path,
    blobs: Sequence[Listed],
    offsets: Sequence[int],
    sequence: int = 2,
    spec: int = 0,
    partition: Mapping[int, Any] | None = None,
    changes: Mapping[str, Any] | None = None,
    named: Sequence[int] | None = None,
) -> str:
    location = f"file://{path}"
    for at, (each, offset) in enumerate(zip(blobs, offsets, strict=True)):
        if named is not None and at not in named:
            continue
        facts = {
            "file_format": "PUFFIN",
            "referenced_data_file": each.referenced,
            "content_offset": offset,
            "content_size_in_bytes": len(each.payload()),
            **(changes or {}),
        }
        size, count = path.stat().st_size, len(set(each.positions))
        lake.entry(location, size, count, FileContent.POSITION_DELETES, sequence, spec, partition, facts)
    return location
