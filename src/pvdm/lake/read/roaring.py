"""Roaring bitmaps in their portable form, read strictly: every reader must see the same positions in the same bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from pvdm.errors import Code, VerificationError

POSITIONS_MAX: Final = 1_073_741_824
"""No position from here on: the bits of one file stay below 128 MiB."""

_COOKIE: Final = 12_347
_COOKIE_NO_RUNS: Final = 12_346
_CONTAINERS_MAX: Final = 65_536
_OFFSETS_FROM: Final = 4
"""With runs, offsets of containers are written from so many containers on."""
_ARRAY_MAX: Final = 4_096
_CONTAINER_BYTES: Final = 8_192
_KEY_LAST: Final = 0x7FFF_FFFF


@dataclass(frozen=True, slots=True)
class Bits:
    """One bit a position, least first, up to the last container; and how many are set."""

    data: bytearray
    count: int


@dataclass(frozen=True, slots=True)
class _Container:
    key: int
    count: int
    runs: bool


class _Reader:
    """Takes bytes from the front."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        found = self.data[self.at : self.at + size]
        if len(found) != size:
            raise _invalid(f"{size} bytes more", f"{len(found)}")
        self.at += size
        return found

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def shorts(self, count: int) -> tuple[int, ...]:
        return struct.unpack(f"<{count}H", self.take(2 * count))


def read_positions(data: bytes) -> Bits:
    """The positions of a 64-bit bitmap: 32-bit ones under ascending keys; nothing follows the last."""
    reader = _Reader(data)
    bits, total, last = bytearray(), 0, -1
    # However many it says: each takes bytes, and ends it when there are none.
    for _ in range(reader.number(8)):
        key = reader.number(4)
        if not last < key <= _KEY_LAST:
            raise _invalid(f"a key above {last}, of 31 bits", str(key))
        last = key
        containers = _containers(reader)
        if containers and (key << 32) + (containers[-1].key << 16) >= POSITIONS_MAX:
            raise Code.DELETION_VECTOR_REFUSED(
                reason="deletion_vector_too_large", expected=f"positions below {POSITIONS_MAX}", got="a higher one"
            )
        if containers:
            bits = _filled(reader, containers)
            total = sum(each.count for each in containers)
    if reader.at != len(data):
        raise _invalid("nothing behind the last bitmap", f"{len(data) - reader.at} bytes")
    return Bits(bits, total)


def _containers(reader: _Reader) -> list[_Container]:
    """The head of a 32-bit bitmap: keys, counts, which have runs; offsets must be what they have to be."""
    start = reader.at
    cookie = reader.number(4)
    if cookie == _COOKIE_NO_RUNS:
        size = reader.number(4)
        if size > _CONTAINERS_MAX:
            raise _invalid(f"at most {_CONTAINERS_MAX} containers", str(size))
        flags, offsets = 0, True
    elif cookie & 0xFFFF == _COOKIE:
        size = (cookie >> 16) + 1
        flags = reader.number((size + 7) // 8)
        if flags >> size:
            raise _invalid("flags of the containers alone", "others")
        offsets = size >= _OFFSETS_FROM
    else:
        raise _invalid("a bitmap in its portable form", f"{cookie:#010x}")
    pairs = reader.shorts(2 * size)
    found = [_Container(pairs[2 * at], pairs[2 * at + 1] + 1, bool(flags >> at & 1)) for at in range(size)]
    if any(low.key >= high.key for low, high in pairwise(found)):
        raise _invalid("containers under ascending keys", "others")
    if offsets:
        _require_offsets(reader, start, found)
    return found


def _require_offsets(reader: _Reader, start: int, containers: list[_Container]) -> None:
    """Some readers go by the offsets, some do not."""
    given = struct.unpack(f"<{len(containers)}I", reader.take(4 * len(containers)))
    at = reader.at
    for container, offset in zip(containers, given, strict=True):
        if offset != at - start:
            raise _invalid(f"a container at {at - start}", f"an offset of {offset}")
        if container.runs:
            at += 2 + 4 * int.from_bytes(reader.data[at : at + 2], "little")
        else:
            at += 2 * container.count if container.count <= _ARRAY_MAX else _CONTAINER_BYTES


def _filled(reader: _Reader, containers: list[_Container]) -> bytearray:
    """The bits of all containers; each has 8 KiB of its own."""
    bits = bytearray((containers[-1].key + 1) * _CONTAINER_BYTES)
    for each in containers:
        if each.runs:
            block: bytes | bytearray = _of_runs(each, reader)
        elif each.count > _ARRAY_MAX:
            block = reader.take(_CONTAINER_BYTES)
            if int.from_bytes(block, "little").bit_count() != each.count:
                raise _invalid(f"{each.count} positions in a container", "another number")
        else:
            block = _of_array(reader.shorts(each.count))
        bits[each.key * _CONTAINER_BYTES : (each.key + 1) * _CONTAINER_BYTES] = block
    return bits


def _of_array(values: tuple[int, ...]) -> bytearray:
    if any(low >= high for low, high in pairwise(values)):
        raise _invalid("ascending positions in a container", "others")
    block = bytearray(_CONTAINER_BYTES)
    for value in values:
        block[value >> 3] |= 1 << (value & 7)
    return block


def _of_runs(container: _Container, reader: _Reader) -> bytearray:
    block, total = bytearray(_CONTAINER_BYTES), 0
    for start, length in _runs(reader):
        _fill(block, start, start + length)
        total += length
    if total != container.count:
        raise _invalid(f"{container.count} positions in runs", str(total))
    return block


def _fill(block: bytearray, start: int, end: int) -> None:
    """Set the bits from start to before the end, whole bytes at once."""
    first, last = (start + 7) >> 3, end >> 3
    if first > last:
        block[last] |= (1 << (end & 7)) - (1 << (start & 7))
        return
    block[first:last] = b"\xff" * (last - first)
    if start & 7:
        block[first - 1] |= 0x100 - (1 << (start & 7))
    if end & 7:
        block[last] |= (1 << (end & 7)) - 1


def _runs(reader: _Reader) -> Iterator[tuple[int, int]]:
    """Start and length of each run; two that touch would be one."""
    pairs = reader.shorts(2 * reader.number(2))
    last = -1
    for start, more in zip(pairs[::2], pairs[1::2], strict=True):
        if start <= last or start + more >= _CONTAINERS_MAX:
            raise _invalid("runs apart from each other, inside their container", f"one from {start}")
        last = start + more + 1
        yield start, more + 1


def _invalid(expected: str, got: str) -> VerificationError:
    return VerificationError(
        Code.DELETION_VECTOR_INVALID, "the bitmap of a deletion vector cannot be read", expected=expected, got=got
    )
