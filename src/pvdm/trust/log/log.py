"""The transparency log: appends entries under a new signed checkpoint. The ledger implements its storage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hmac import compare_digest
from typing import Final, Protocol

from pvdm.errors import Code
from pvdm.trust.keys.public import SigningKey
from pvdm.trust.log import merkle
from pvdm.trust.log.checkpoint import Checkpoint, SignedCheckpoint, read_unverified, sign_checkpoint
from pvdm.trust.log.entry import LogEntry
from pvdm.trust.log.merkle import Node
from pvdm.trust.log.note import NoteKey

APPEND_ENTRIES_MAX: Final = 65_536


class LogStorage(merkle.HashReader, Protocol):
    """The storage of the log. Its entries are never changed or removed."""

    def size(self) -> int:
        """The number of entries."""

    def read_entries(self, start: int, end: int) -> Sequence[bytes]:
        """The entries from `start` up to, but without, `end`. A missing entry is an error."""

    def newest_checkpoint(self) -> bytes | None:
        """The signed note of the last append; None while the log is empty."""

    def append(self, *, at: int, entries: Sequence[bytes], hashes: Mapping[Node, bytes], checkpoint: bytes) -> None:
        """Store all in the caller's transaction, or nothing: raises `log_moved` if the log's size is not `at`."""


@dataclass(frozen=True, slots=True)
class AppendedEntries:
    """The result of an append: the caller passes it to `outside.acknowledge` before it answers."""

    index: int  # of the first new entry
    size: int  # of the log after the append
    checkpoint: SignedCheckpoint


@dataclass(frozen=True, slots=True)
class PreparedAppend:
    """An append to store: entries (`leaves`), hashes and signed checkpoint, for a log of exactly `index` entries."""

    index: int
    leaves: tuple[bytes, ...]
    hashes: Mapping[Node, bytes]
    checkpoint: SignedCheckpoint

    def store(self, storage: LogStorage) -> AppendedEntries:
        """Append in the storage's transaction. Raises `log_moved` if the log has grown; then prepare again."""
        storage.append(at=self.index, entries=self.leaves, hashes=self.hashes, checkpoint=self.checkpoint.note)
        return AppendedEntries(self.index, self.index + len(self.leaves), self.checkpoint)


class Log:
    """An append-only log under one origin (its name). `signer` is the log key, whose name in notes is the origin.

    `continues` is the old origin of a log whose end was lost. Its entries stay; new checkpoints have the new origin.
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
        """The root over the first `size` entries, from the stored hashes. Raises if the log has fewer."""
        return merkle.root_at(self._storage, self._require_size(size))

    def find_root(self, size: int) -> bytes | None:
        """The root over the first `size` entries; None if the log has fewer."""
        return merkle.root_at(self._storage, size) if size <= self._storage.size() else None

    def prepare(self, entries: Sequence[LogEntry]) -> PreparedAppend:
        """What an append stores: the entries, about two hashes for each entry, and one new checkpoint.

        Signing is done here, so that no transaction waits for the key home (keystore file, AWS KMS or PKCS#11 token).
        """
        if not 0 < len(entries) <= APPEND_ENTRIES_MAX:
            expected = f"1 to {APPEND_ENTRIES_MAX}"
            raise Code.LOG_REQUEST_INVALID(reason="log_append_invalid", expected=expected, got=str(len(entries)))
        at = self._storage.size()
        frontier = self._read_frontier(at)
        leaves = tuple(entry.to_bytes() for entry in entries)
        hashes: dict[Node, bytes] = {}
        root = merkle.grow(frontier, at, map(merkle.leaf_hash, leaves), hashes.__setitem__)
        signed = sign_checkpoint(Checkpoint(self.origin, at + len(leaves), root), self._signer)
        return PreparedAppend(at, leaves, hashes, signed)

    def checkpoint(self) -> SignedCheckpoint:
        """The newest stored checkpoint; for an empty log, one that is signed now."""
        note = self._storage.newest_checkpoint()
        if note is not None:
            return read_unverified(note)
        if self._storage.size() != 0:
            raise Code.LOG_STORAGE_BROKEN(expected="a checkpoint", got="none")
        return sign_checkpoint(Checkpoint(self.origin, 0, merkle.EMPTY_ROOT), self._signer)

    def _read_frontier(self, size: int) -> Sequence[bytes]:
        """The hashes of the tree's complete subtrees (`merkle.frontier`). They must give the last signed root."""
        newest = self.checkpoint().checkpoint
        if newest.origin not in (self.origin, self._continues) or newest.size != size:
            expected = f"a checkpoint of {self.origin} at {size}"
            raise Code.LOG_STORAGE_BROKEN(expected=expected, got=f"{newest.origin} at {newest.size}")
        nodes = merkle.frontier(size)
        hashes = list(self._storage.read_hashes(nodes)) if nodes else []
        if not compare_digest(merkle.fold(hashes), newest.root):
            raise Code.LOG_STORAGE_BROKEN(expected=newest.root.hex(), got=merkle.fold(hashes).hex())
        return hashes

    def _require_size(self, size: int) -> int:
        total = self._storage.size()
        if not 0 <= size <= total:
            raise Code.LOG_REQUEST_INVALID(reason="log_sizes_invalid", expected=f"a size up to {total}", got=str(size))
        return size
