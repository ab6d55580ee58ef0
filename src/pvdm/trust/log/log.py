"""The log: appends entries under a new signed checkpoint and proves inclusion; the ledger implements its storage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hmac import compare_digest
from typing import Final, Protocol

from pvdm.errors import Code, VerificationError
from pvdm.trust.keys.public import SigningKey
from pvdm.trust.log import merkle
from pvdm.trust.log.checkpoint import Checkpoint, SignedCheckpoint, read_unverified, sign_checkpoint
from pvdm.trust.log.entry import LogEntry
from pvdm.trust.log.merkle import ConsistencyProof, InclusionProof, Node
from pvdm.trust.log.note import NoteKey
from pvdm.trust.refusal import refused

APPEND_ENTRIES_MAX: Final = 65_536


class LogStorage(merkle.HashReader, Protocol):
    """The storage of the log. Appended entries are never changed or removed. Hashes are read in one round trip."""

    def size(self) -> int:
        """The number of entries."""

    def read_entries(self, start: int, end: int) -> Sequence[bytes]:
        """The entries from `start` up to, but without, `end`. A missing one is an error."""

    def newest_checkpoint(self) -> bytes | None:
        """The signed note of the last append; None while the log is empty."""

    def append(self, *, at: int, entries: Sequence[bytes], hashes: Mapping[Node, bytes], checkpoint: bytes) -> None:
        """Store all of it in the caller's transaction. If the size is not `at`, raise `log_moved` and store nothing."""


@dataclass(frozen=True, slots=True)
class Appended:
    """Entries in the storage's transaction. They are acknowledged when the outside checkpoint covers them."""

    index: int
    size: int
    checkpoint: SignedCheckpoint


@dataclass(frozen=True, slots=True)
class Prepared:
    """Entries with their hashes and signed checkpoint, for a log of exactly `index` entries, not yet stored."""

    index: int
    leaves: tuple[bytes, ...]
    hashes: Mapping[Node, bytes]
    checkpoint: SignedCheckpoint

    def store(self, storage: LogStorage) -> Appended:
        """Store it in the storage's transaction. Raises `log_moved` if the log has grown; then prepare again."""
        storage.append(at=self.index, entries=self.leaves, hashes=self.hashes, checkpoint=self.checkpoint.note)
        return Appended(self.index, self.index + len(self.leaves), self.checkpoint)


class Log:
    """An append-only log under one origin. `signer` is the log key, whose name in notes is the origin.

    `continues` is the origin of a log whose end was lost. Its entries stay, and new ones get the new origin.
    """

    def __init__(self, storage: LogStorage, *, origin: str, signer: SigningKey, continues: str | None = None) -> None:
        self._continues = continues
        self._storage = storage
        self._signer = signer
        self.origin = origin
        self.key = NoteKey(origin, signer.public.der)

    def size(self) -> int:
        """The number of entries."""
        return self._storage.size()

    def root(self, size: int) -> bytes:
        """The root over the first `size` entries, from the stored hashes."""
        return merkle.root_at(self._storage, self._require_size(size))

    def root_of_first(self, size: int) -> bytes | None:
        """The root over the first `size` entries; None if the log has fewer."""
        return merkle.root_at(self._storage, size) if size <= self._storage.size() else None

    def append(self, entries: Sequence[LogEntry]) -> Appended:
        """Append entries in order under one new checkpoint: logarithmic reads, about two stored hashes an entry."""
        return self.prepare(entries).store(self._storage)

    def prepare(self, entries: Sequence[LogEntry]) -> Prepared:
        """An append without the writing, so that no transaction waits for the key home to sign."""
        if not 0 < len(entries) <= APPEND_ENTRIES_MAX:
            most = f"1 to {APPEND_ENTRIES_MAX}"
            raise Code.LOG_REQUEST_INVALID(reason="log_append_invalid", expected=most, got=str(len(entries)))
        at = self._storage.size()
        edge = self._sound_edge(at)
        leaves = tuple(entry.to_bytes() for entry in entries)
        hashes: dict[Node, bytes] = {}
        root = merkle.grow(edge, at, map(merkle.leaf_hash, leaves), hashes.__setitem__)
        signed = sign_checkpoint(Checkpoint(self.origin, at + len(leaves), root), self._signer)
        return Prepared(at, leaves, hashes, signed)

    def checkpoint(self) -> SignedCheckpoint:
        """The newest stored checkpoint; for an empty log, one that is signed now."""
        note = self._storage.newest_checkpoint()
        if note is not None:
            return read_unverified(note)
        if self._storage.size() != 0:
            raise _broken("a checkpoint", "none")
        return sign_checkpoint(Checkpoint(self.origin, 0, merkle.EMPTY_ROOT), self._signer)

    def prove_inclusion(self, index: int, size: int) -> InclusionProof:
        """The proof that entry `index` is in the tree of `size`."""
        return merkle.prove_inclusion(self._storage, index=index, size=self._require_size(size))

    def prove_consistency(self, old_size: int, new_size: int) -> ConsistencyProof:
        """The proof that the tree of `new_size` begins with the tree of `old_size`."""
        return merkle.prove_consistency(self._storage, old_size=old_size, new_size=self._require_size(new_size))

    def _sound_edge(self, size: int) -> Sequence[bytes]:
        """The tree's right edge. It must lead to the last signed root, so that nothing is appended to a broken tree."""
        newest = self.checkpoint().checkpoint
        if newest.origin not in (self.origin, self._continues) or newest.size != size:
            raise _broken(f"a checkpoint of {self.origin} at {size}", f"{newest.origin} at {newest.size}")
        nodes = merkle.frontier(size)
        edge = list(self._storage.read_hashes(nodes)) if nodes else []
        if not compare_digest(merkle.fold(edge), newest.root):
            raise _broken(newest.root.hex(), merkle.fold(edge).hex())
        return edge

    def _require_size(self, size: int) -> int:
        held = self._storage.size()
        if not 0 <= size <= held:
            expected = f"a size up to {held}"
            raise Code.LOG_REQUEST_INVALID(reason="log_sizes_invalid", expected=expected, got=str(size))
        return size


def _broken(expected: str, got: str) -> VerificationError:
    message = "the stored log does not agree with its newest checkpoint"
    hint = "append nothing; export the log and run `pvdm log fsck`"
    return refused(Code.LOG_STORAGE_BROKEN, expected, got, message=message, hint=hint)
