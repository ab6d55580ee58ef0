"""Reads the transparency log in the ledger, for queries and appends, and copies the log to a folder (the archive)."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from pvdm.errors import Code, ConflictError
from pvdm.lake.stores.stores import FilePath, ObjectPath
from pvdm.ledger import Ledger
from pvdm.ledger.record import statements
from pvdm.ledger.record.events import LedgerLog
from pvdm.trust.log import merkle
from pvdm.trust.log.checkpoint import read_unverified
from pvdm.trust.log.disk import make_folders, sync_folder, write_atomically
from pvdm.trust.log.export import CHECKPOINT_FILE, export, tile_bytes
from pvdm.trust.log.merkle import ConsistencyProof, Node, frontier
from pvdm.trust.log.proof import LogProof
from pvdm.trust.log.tiles import TILE_WIDTH, StaticTiles, parse_path

ARCHIVE_PAGE_ENTRIES: Final = 1_000
_FOLLOW_TRIES: Final = 16
# Names in the archive's folder.
_LOCK_FILE: Final = ".lock"
_LOG_FOLDER: Final = "log"
_ENVELOPES_FOLDER: Final = "statements"


class LogQueries:
    """Answers queries about the log. Answers about entries wait until the outside checkpoint covers them."""

    def __init__(self, ledger: Ledger, require_covered: Callable[[int], None]) -> None:
        """`require_covered` gets a log size, and returns once the outside checkpoint covers this size."""
        self._ledger = ledger
        self._require_covered = require_covered
        self._reader = LedgerLogReader(ledger)

    def size(self) -> int:
        """How many entries the log has."""
        return self._reader.size()

    def checkpoint(self) -> bytes:
        """The newest checkpoint, as a signed note (C2SP)."""
        note = self._reader.newest_checkpoint()
        if note is None:
            raise Code.LOG_EMPTY("the log has no checkpoint yet")
        self._require_covered(read_unverified(note).checkpoint.size)
        return note

    def tile(self, path: str) -> bytes:
        """A tile or an entry bundle by its C2SP path; raises `tile_unknown` beyond the log's size."""
        tile = parse_path(path)
        size = self._reader.size()
        # Each hash in a tile of level n covers 256**n entries. Level -1 is the entries themselves, in entry bundles.
        hashes_at_level = size >> (8 * max(tile.level, 0))
        if tile.index * TILE_WIDTH + tile.width > hashes_at_level:
            raise Code.LOG_REQUEST_INVALID(reason="tile_unknown", got=ascii(path[:200]))
        self._require_covered(size)
        return tile_bytes(self._reader, tile)

    def proof(self, index: int) -> bytes:
        """A log proof file for the entry, against the newest checkpoint."""
        with self._ledger.read() as unit:
            log = LedgerLog(unit)
            note = log.newest_checkpoint()
            size = 0 if note is None else read_unverified(note).checkpoint.size
            if not 0 <= index < size:
                raise Code.LOG_REQUEST_INVALID(reason="log_entry_unknown", expected=f"0 to {size - 1}", got=str(index))
            included = merkle.prove_inclusion(log, index=index, size=size)
        self._require_covered(size)
        return LogProof(index, included.hashes, note or b"").to_bytes()

    def consistency(self, old: int, new: int) -> ConsistencyProof:
        """The proof that the tree of `new` entries begins with the tree of `old` entries."""
        size = self._reader.size()
        if not 0 <= old <= new <= size:
            message, expected = "no proof can be made between these sizes", f"0 to {size}, in order"
            got = f"{old} and {new}"
            raise Code.LOG_REQUEST_INVALID(message, reason="log_sizes_invalid", expected=expected, got=got)
        self._require_covered(new)
        return merkle.prove_consistency(self._reader, old_size=old, new_size=new)


class LedgerLogReader:
    """A read-only log storage, with one transaction for each call; the log only grows, so the results fit together."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def size(self) -> int:
        """How many entries the log has."""
        with self._ledger.read() as unit:
            return LedgerLog(unit).size()

    def read_hashes(self, nodes: Sequence[Node]) -> Sequence[bytes]:
        """The hashes of complete subtrees, in the order asked."""
        with self._ledger.read() as unit:
            return LedgerLog(unit).read_hashes(nodes)

    def read_entries(self, start: int, end: int) -> Sequence[bytes]:
        """The entries from `start` up to, but without, `end`."""
        with self._ledger.read() as unit:
            return LedgerLog(unit).read_entries(start, end)

    def newest_checkpoint(self) -> bytes | None:
        """The checkpoint that was stored with the last append, as a signed note."""
        with self._ledger.read() as unit:
            return LedgerLog(unit).newest_checkpoint()

    def append(self, **_: object) -> None:
        """Raises always, because `Recorder` stores entries in one transaction with their statements."""
        raise Code.BUG(reason="log_read_only")


class PinnedLogReader(LedgerLogReader):
    """Reads the log as it was when its size was first read.

    Size, checkpoint and the hashes that an append needs are read in one transaction. The transaction does not stay
    open, since the key service may read its epoch book from the same ledger meanwhile.
    """

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._size: int | None = None
        self._frontier: Mapping[Node, bytes] = {}
        self._checkpoint: bytes | None = None

    @classmethod
    def pin_now(cls, ledger: Ledger) -> PinnedLogReader:
        """The log as it is now."""
        reader = cls(ledger)
        reader.size()
        return reader

    def size(self) -> int:
        """How many entries the log had."""
        if self._size is None:
            with self._ledger.read() as unit:
                log = LedgerLog(unit)
                self._size, self._checkpoint = log.size(), log.newest_checkpoint()
                nodes = frontier(self._size)
                self._frontier = dict(zip(nodes, log.read_hashes(nodes) if nodes else [], strict=True))
        return self._size

    def read_hashes(self, nodes: Sequence[Node]) -> Sequence[bytes]:
        """The hashes of complete subtrees. The hashes that an append needs were read with the size."""
        if self._frontier.keys() >= set(nodes):
            return [self._frontier[node] for node in nodes]
        return super().read_hashes(nodes)

    def newest_checkpoint(self) -> bytes | None:
        """The checkpoint that was read with the size, as a signed note."""
        self.size()
        return self._checkpoint


class ArchiveProgress(NamedTuple):
    """The log size that the archive covers, and how many envelopes a call has written."""

    size: int
    envelopes_written: int


class ArchiveRepair(NamedTuple):
    """How many missing files were written again."""

    tiles: int
    envelopes: int


class Archive:
    """A folder that follows the log; concurrent callers share one write."""

    def __init__(self, ledger: Ledger, folder: FilePath) -> None:
        self._ledger = ledger
        self._folder = folder
        self._lock = threading.RLock()
        self._covered_size = 0

    def cover(self, size: int) -> None:
        """Return when the folder holds the log up to this size."""
        with self._lock:
            if self._covered_size < size:
                self.follow()

    def follow(self) -> ArchiveProgress:
        """Bring the folder up to the newest checkpoint."""
        with self._lock:
            progress = self._follow()
            self._covered_size = progress.size
            return progress

    def verify_and_repair(self) -> ArchiveRepair:
        """Compare every tile, entry bundle and envelope with the log; write missing files. Raises if a file differs."""
        with self._lock, self._lock_folder():
            log = PinnedLogReader(self._ledger)
            written = self._write_envelopes(0, log.size(), verify=True)
            return ArchiveRepair(export(log, log_folder(self._folder), verify=True).files_written, written)

    def _follow(self) -> ArchiveProgress:
        for tries_left in reversed(range(_FOLLOW_TRIES)):
            try:
                with self._lock_folder():
                    # Envelopes are written before the checkpoint, so that it never covers a missing envelope. The log
                    # is pinned, because entries that are appended meanwhile have no envelope here yet.
                    log = PinnedLogReader(self._ledger)
                    written = self._write_envelopes(archived_size(self._folder), log.size(), verify=False)
                    return ArchiveProgress(export(log, log_folder(self._folder)).size, written)
            except ConflictError as error:
                # In an object store, which has no lock, another Steward may replace the checkpoint first.
                if error.code != Code.FILE_OVERTAKEN or tries_left == 0:
                    raise
        raise AssertionError("unreachable: the last try raises")

    @contextlib.contextmanager
    def _lock_folder(self) -> Iterator[None]:
        """Hold the folder's lock, since several Stewards may share the folder.

        An object store has no lock, so Stewards write to it concurrently. They write equal tiles and envelopes, and
        replace the checkpoint only if it is still the one that they read.
        """
        try:
            if isinstance(self._folder, ObjectPath):
                yield
                return
            make_folders(self._folder)
            with (self._folder / _LOCK_FILE).open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield
        except OSError as error:
            message = f"the archive cannot be written: {error.strerror or type(error).__name__}"
            raise Code.STORAGE_UNAVAILABLE(message, reason="archive_unavailable") from None

    def _write_envelopes(self, start: int, end: int, *, verify: bool) -> int:
        """Write the missing envelopes of these entries; returns how many. `verify` compares the existing ones."""
        written = 0
        for first in range(start, end, ARCHIVE_PAGE_ENTRIES):
            with self._ledger.read() as unit:
                page = statements.list_between(unit, first, min(first + ARCHIVE_PAGE_ENTRIES, end))
            folders = set()
            for statement in page:
                path = envelope_path(self._folder, hashlib.sha256(statement.envelope).hexdigest())
                if not path.exists():
                    make_folders(path.parent)
                    write_atomically(path, statement.envelope)
                    written += 1
                elif verify and path.read_bytes() != statement.envelope:
                    hint = "keep the file as evidence, remove it from the archive, then run this again"
                    place = f"{_ENVELOPES_FOLDER}/{path.parent.name}/{path.name}"
                    raise Code.ARCHIVE_DAMAGED(expected=path.stem, got="another hash", hint=hint, place=place)
                folders.add(path.parent)
            for folder in folders:
                sync_folder(folder)
        return written


@dataclass(frozen=True, slots=True)
class ArchivedLog:
    """Reads an archive for a restore; the caller compares the entries with the root of a checkpoint."""

    folder: FilePath

    def entries(self, start: int, end: int) -> list[bytes]:
        """The entries from `start` up to, but without, `end`."""
        return StaticTiles(log_folder(self.folder), archived_size(self.folder)).read_entries(start, end)

    def envelope(self, sha256: str) -> bytes | None:
        """The envelope of that hash; None if it is missing. Raises `archive_damaged` if it was changed."""
        try:
            data = envelope_path(self.folder, sha256).read_bytes()
        except FileNotFoundError:
            return None
        if hashlib.sha256(data).hexdigest() != sha256:
            raise Code.ARCHIVE_DAMAGED("an envelope of the archive was changed", expected=sha256, got="another hash")
        return data


def log_folder(folder: FilePath) -> FilePath:
    """The archive's folder of tiles and checkpoint, which any reader of tiled logs (C2SP) understands."""
    return folder / _LOG_FOLDER


def archived_size(folder: FilePath) -> int:
    """The log size of the archive's checkpoint; 0 for a new archive."""
    try:
        return read_unverified((log_folder(folder) / CHECKPOINT_FILE).read_bytes()).checkpoint.size
    except FileNotFoundError:
        return 0


def envelope_path(folder: FilePath, sha256: str) -> FilePath:
    """The path of the envelope of that hash in the archive."""
    return folder / _ENVELOPES_FOLDER / sha256[:2] / f"{sha256}.json"
