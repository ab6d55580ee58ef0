"""Roaring bitmaps of deletion vectors: each valid form is read; forms that readers may read differently are refused."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from pvdm.errors import VerificationError
from pvdm.lake.read.vectors import Bits, read_positions
from tests.support.for_each import for_each
from tests.support.lake.puffin import bitmap


def positions_in(bits: Bits) -> list[int]:
    return [at for at in range(8 * len(bits.data)) if bits.data[at >> 3] >> (at & 7) & 1]


def single(*parts: bytes | str) -> bytes:
    """A vector with one 32-bit bitmap, under key 0."""
    found = b"".join(bytes.fromhex(part) if isinstance(part, str) else part for part in parts)
    return struct.pack("<QI", 1, 0) + found


def shorts(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}H", *values)


def no_runs(*containers: tuple[int, int]) -> bytes:
    """The header of a bitmap without runs: cookie, number of containers, and key and count of each."""
    head = struct.pack("<II", 12_346, len(containers))
    return head + b"".join(shorts(key, count - 1) for key, count in containers)


def runs(*containers: tuple[int, int], flags: int = 1) -> bytes:
    """The header of a bitmap with runs; `flags` has a bit for each container that is stored as runs."""
    head = struct.pack("<IB", 12_347 | len(containers) - 1 << 16, flags)
    return head + b"".join(shorts(key, count - 1) for key, count in containers)


def offsets(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}I", *values)


DENSE = bytes([0xFF]) * 1_000 + bytes(7_192)

HONEST: dict[str, tuple[bytes, list[int]]] = {
    "nothing": (struct.pack("<Q", 0), []),
    "an empty bitmap": (single(no_runs()), []),
    "an array": (single(no_runs((0, 2)), offsets(16), shorts(3, 9)), [3, 9]),
    "bits": (single(no_runs((0, 8_000)), offsets(16), DENSE), list(range(8_000))),
    "runs": (single(runs((0, 14)), shorts(2, 1, 2, 9, 10)), [1, 2, 3, *range(9, 20)]),
    "a run to the end": (single(runs((0, 65_536)), shorts(1, 0, 65_535)), list(range(65_536))),
    "a run inside a byte": (single(runs((0, 3)), shorts(1, 2, 2)), [2, 3, 4]),
    "runs and an array": (single(runs((0, 1), (1, 1), flags=1), shorts(1, 5, 0), shorts(7)), [5, 65_543]),
    "empty bitmaps under higher keys": (
        struct.pack("<QI", 2, 0) + no_runs((0, 1)) + offsets(16) + shorts(4) + struct.pack("<I", 9) + no_runs(),
        [4],
    ),
}


@for_each("name", HONEST)
def test_a_bitmap_of_each_form_is_read(name: str) -> None:
    data, wanted = HONEST[name]
    found = read_positions(data)
    assert (positions_in(found), found.count) == (wanted, len(wanted))


HOSTILE: dict[str, bytes] = {
    "no bytes": b"",
    "more bitmaps than there is room for": struct.pack("<Q", 2**63) + bytes(64),
    "an unknown cookie": single(struct.pack("<II", 12_345, 0)),
    "a key of 32 bits": struct.pack("<QI", 1, 2**31) + no_runs(),
    "keys that go down": struct.pack("<QI", 2, 5) + no_runs() + struct.pack("<I", 5) + no_runs(),
    "bytes behind the end": single(no_runs((0, 1)), offsets(16), shorts(3), b"\0"),
    "an array cut off": single(no_runs((0, 2)), offsets(16), shorts(3)),
    "an array that goes down": single(no_runs((0, 2)), offsets(16), shorts(9, 3)),
    "an array with a value twice": single(no_runs((0, 2)), offsets(16), shorts(3, 3)),
    "containers that go down": single(no_runs((1, 1), (0, 1)), offsets(24, 26), shorts(3), shorts(3)),
    "a container twice": single(no_runs((1, 1), (1, 1)), offsets(24, 26), shorts(3), shorts(4)),
    "bits of another count": single(no_runs((0, 8_001)), offsets(16), DENSE),
    "an offset to other bytes": single(no_runs((0, 1)), offsets(18), shorts(3)),
    "offsets that swap containers": single(no_runs((0, 1), (1, 1)), offsets(26, 24), shorts(3), shorts(4)),
    "runs of another count": single(runs((0, 4)), shorts(1, 2, 2)),
    "runs that overlap": single(runs((0, 6)), shorts(2, 1, 2, 3, 2)),
    "runs that touch": single(runs((0, 6)), shorts(2, 1, 2, 4, 2)),
    "runs that go down": single(runs((0, 4)), shorts(2, 9, 1, 1, 1)),
    "a run beyond its container": single(runs((0, 3)), shorts(1, 65_534, 2)),
    "a flag for a container that is not there": single(runs((0, 3), flags=3), shorts(1, 2, 2)),
    "too many containers": single(struct.pack("<II", 12_346, 65_537), bytes(1_000_000)),
    "an offset of runs to other bytes": single(
        runs((0, 1), (1, 1), (2, 1), (3, 1)), offsets(38, 42, 46, 48), shorts(1, 5, 0), shorts(7), shorts(8), shorts(9)
    ),
}


@for_each("name", HOSTILE)
def test_a_bitmap_that_can_be_read_in_two_ways_is_refused(name: str) -> None:
    with pytest.raises(VerificationError) as caught:
        read_positions(HOSTILE[name])
    assert caught.value.reason == "deletion_vector_invalid"


@pytest.mark.parametrize("ranges", [[range(5)], [range(0, 300_000, 3)], [range(10, 70_000), range(131_072, 131_080)]])
@pytest.mark.parametrize("with_runs", [True, False])
def test_a_bitmap_of_another_library_is_read(ranges: list[Any], with_runs: bool) -> None:
    wanted = [each for part in ranges for each in part]
    found = read_positions(bitmap(wanted, runs=with_runs))
    assert positions_in(found) == wanted
    assert found.count == len(wanted)
