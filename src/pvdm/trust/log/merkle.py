"""The hash tree of RFC 6962: its hashes and shape, and proofs from stored hashes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple, Protocol

from pvdm.errors import Code

HASH_BYTES: Final = 32
TREE_SIZE_MAX: Final = 2**63 - 1
EMPTY_ROOT: Final = hashlib.sha256(b"").digest()


class Node(NamedTuple):
    """A complete subtree: the leaves from `offset << level` up to, but without, `(offset + 1) << level`."""

    level: int
    offset: int


class HashReader(Protocol):
    """Reads the hashes of complete subtrees, from the database or from exported tiles."""

    def read_hashes(self, nodes: Sequence[Node]) -> Sequence[bytes]:
        """The hashes of these nodes, in this order. A missing node is an error."""


@dataclass(frozen=True, slots=True)
class InclusionProof:
    """The proof that an entry is at `index` in the tree of `size` leaves."""

    index: int
    size: int
    hashes: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class ConsistencyProof:
    """The proof that the tree of `new_size` leaves begins with the tree of `old_size` leaves."""

    old_size: int
    new_size: int
    hashes: tuple[bytes, ...]


class _Range(NamedTuple):
    start: int
    end: int  # the first leaf after the range


def leaf_hash(entry: bytes) -> bytes:
    """The hash of a leaf: SHA-256(00 ‖ entry)."""
    return hashlib.sha256(b"\x00" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of an inner node: SHA-256(01 ‖ left ‖ right)."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def frontier(size: int) -> tuple[Node, ...]:
    """The complete subtrees that make up a tree of `size` leaves, the largest first."""
    return tuple(_cover(_Range(0, size)))


def fold(hashes: Sequence[bytes]) -> bytes:
    """The root over the hashes of a frontier. Without hashes it is the empty root."""
    if not hashes:
        return EMPTY_ROOT
    root = hashes[-1]
    for left in reversed(hashes[:-1]):
        root = node_hash(left, root)
    return root


def root_at(reader: HashReader, size: int) -> bytes:
    """The root of the first `size` leaves, from one read of at most 63 stored hashes."""
    return fold(_read(reader, frontier(size)))


def prove_inclusion(reader: HashReader, *, index: int, size: int) -> InclusionProof:
    """The audit path of a leaf (RFC 6962 section 2.1.1), from one read of O(log n) hashes."""
    if not 0 <= index < size <= TREE_SIZE_MAX:
        raise Code.LOG_REQUEST_INVALID(reason="log_index_invalid", expected=f"an index below {size}", got=str(index))
    return InclusionProof(index, size, _hash_ranges(reader, _inclusion_ranges(index, size)))


def prove_consistency(reader: HashReader, *, old_size: int, new_size: int) -> ConsistencyProof:
    """The consistency proof between two sizes (RFC 6962 section 2.1.2), from one read of O(log n) hashes."""
    if not 0 <= old_size <= new_size <= TREE_SIZE_MAX:
        message, expected = "the older tree is larger than the newer one", f"an old size up to {new_size}"
        raise Code.LOG_REQUEST_INVALID(message, reason="log_sizes_invalid", expected=expected, got=str(old_size))
    return ConsistencyProof(old_size, new_size, _hash_ranges(reader, _consistency_ranges(old_size, new_size)))


def grow(hashes: Sequence[bytes], size: int, leaves: Iterable[bytes], visit: Callable[[Node, bytes], None]) -> bytes:
    """The root of a tree of `size` leaves with frontier `hashes` plus `leaves` (hashes). `visit` gets each new node."""
    stack = list(hashes)
    for leaf in leaves:
        node, value = Node(0, size), leaf
        visit(node, value)
        while node.offset & 1:
            node, value = Node(node.level + 1, node.offset >> 1), node_hash(stack.pop(), value)
            visit(node, value)
        stack.append(value)
        size += 1
    return fold(stack)


def _cover(part: _Range) -> Iterable[Node]:
    """The complete subtrees of a range, left to right. The range must start at a multiple of the first one's width."""
    start, end = part
    while start < end:
        level = (end - start).bit_length() - 1
        yield Node(level, start >> level)
        start += 1 << level


def _split(part: _Range) -> int:
    """Where RFC 6962 splits a range: after the largest power of two that is smaller than its width."""
    return part.start + (1 << (part.end - part.start - 1).bit_length() - 1)


def _inclusion_ranges(index: int, size: int) -> list[_Range]:
    """The siblings on the path from the leaf to the root."""
    part, siblings = _Range(0, size), []
    while part.end - part.start > 1:
        middle = _split(part)
        left, right = _Range(part.start, middle), _Range(middle, part.end)
        part, sibling = (left, right) if index < middle else (right, left)
        siblings.append(sibling)
    return siblings[::-1]


def _consistency_ranges(old_size: int, new_size: int) -> list[_Range]:
    """The subtrees from whose hashes both roots can be computed, in the order of the proof."""
    if old_size in (0, new_size):
        return []
    part, ranges = _Range(0, new_size), []
    while part.end != old_size:
        middle = _split(part)
        left, right = _Range(part.start, middle), _Range(middle, part.end)
        part, sibling = (left, right) if old_size <= middle else (right, left)
        ranges.append(sibling)
    # The verifier knows the old root. If the old tree is one complete subtree, its hash is not sent.
    if part.start != 0:
        ranges.append(part)
    return ranges[::-1]


def _hash_ranges(reader: HashReader, ranges: Sequence[_Range]) -> tuple[bytes, ...]:
    covers = [tuple(_cover(part)) for part in ranges]
    found = iter(_read(reader, [node for cover in covers for node in cover]))  # all hashes in one read
    return tuple(fold(list(islice(found, len(cover)))) for cover in covers)


def _read(reader: HashReader, nodes: Sequence[Node]) -> Sequence[bytes]:
    if not nodes:
        return ()
    hashes = reader.read_hashes(nodes)
    if len(hashes) != len(nodes) or any(len(value) != HASH_BYTES for value in hashes):
        message, wanted = "the log's storage returned other hashes", f"{len(nodes)} hashes of {HASH_BYTES} bytes"
        raise Code.LOG_STORAGE_BROKEN(message, expected=wanted, got=f"{len(hashes)} values")
    return hashes
