"""The log of the ledger: read for callers and for appends, and followed by the archive, a copy in another place."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

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
_TRIES: Final = 16

_LOCK: Final = ".lock"
_LOG: Final = "log"
_STATEMENTS: Final = "statements"


class LogQueries:
    """Answers queries about the log; entries that the outside checkpoint does not cover yet are covered first."""

    def __init__(self, ledger: Ledger, require_covered: Callable[[int], None]) -> None:
        """`require_covered` returns once the outside covers a log of that size."""
        self._ledger = ledger
        self._require_covered = require_covered
        self._reader = LedgerLogReader(ledger)

    def size(self) -> int:
        """How many entries there are."""
        return self._reader.size()

    def checkpoint(self) -> bytes:
        """The newest signed note."""
        note = self._reader.newest_checkpoint()
        if note is None:
            raise Code.LOG_EMPTY("the log has no checkpoint yet")
        self._require_covered(read_unverified(note).checkpoint.size)
        return note

    def tile(self, path: str) -> bytes:
        """A tile or an entry bundle by its C2SP path; raises `tile_unknown` beyond the log's size."""
        tile = parse_path(path)
        size = self._reader.size()
        reached = size >> (8 * max(tile.level, 0))
        if tile.index * TILE_WIDTH + tile.width > reached:
            raise Code.TILE_UNKNOWN(got=ascii(path[:200]))
        self._require_covered(size)
        return tile_bytes(self._reader, tile)

    def proof(self, index: int) -> bytes:
        """A log proof file for the entry, against the newest checkpoint."""
        with self._ledger.read() as unit:
            log = LedgerLog(unit)
            note = log.newest_checkpoint()
            size = 0 if note is None else read_unverified(note).checkpoint.size
            if not 0 <= index < size:
                raise Code.LOG_ENTRY_UNKNOWN("the log has no such entry", expected=f"0 to {size - 1}", got=str(index))
            included = merkle.prove_inclusion(log, index=index, size=size)
        self._require_covered(size)
        return LogProof(index, included.hashes, note or b"").to_bytes()

    def consistency(self, old: int, new: int) -> ConsistencyProof:
        """The proof that the tree of `new` entries extends the tree of `old` ones."""
        size = self._reader.size()
        if not 0 <= old <= new <= size:
            message, expected = "no proof can be made between these sizes", f"0 to {size}, in order"
            raise Code.LOG_REQUEST_INVALID(
                message, reason="log_sizes_invalid", expected=expected, got=f"{old} and {new}"
            )
        self._require_covered(new)
        return merkle.prove_consistency(self._reader, old_size=old, new_size=new)


class LedgerLogReader:
    """A log storage that uses one read transaction a call; the log only grows, so results fit together."""

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
        """The signed note that was stored with the last append."""
        with self._ledger.read() as unit:
            return LedgerLog(unit).newest_checkpoint()

    def append(self, **_: object) -> None:
        """Refused: entries are stored in the transaction of their subject."""
        raise Code.LOG_READ_ONLY("this view of the log only reads")


class PinnedLogReader(LedgerLogReader):
    """The log as it was when its size was first read.

    No transaction stays open, since the key service may read its epoch book from the same ledger meanwhile.
    """

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._pinned: tuple[int, bytes | None] | None = None

    def size(self) -> int:
        """How many entries the log had."""
        return self._pin()[0]

    def newest_checkpoint(self) -> bytes | None:
        """The signed note of that size."""
        return self._pin()[1]

    def _pin(self) -> tuple[int, bytes | None]:
        if self._pinned is None:
            with self._ledger.read() as unit:
                log = LedgerLog(unit)
                self._pinned = (log.size(), log.newest_checkpoint())
        return self._pinned


@dataclass(frozen=True, slots=True)
class LogEdge:
    """What an append needs of a log, read in one transaction: its right edge and its newest checkpoint."""

    entries: int
    hashes: Mapping[Node, bytes]
    note: bytes | None

    @classmethod
    def of(cls, ledger: Ledger) -> LogEdge:
        """Read the edge now."""
        with ledger.read() as unit:
            log = LedgerLog(unit)
            size = log.size()
            nodes = frontier(size)
            hashes = log.read_hashes(nodes) if nodes else []
            return cls(size, dict(zip(nodes, hashes, strict=True)), log.newest_checkpoint())

    def size(self) -> int:
        """How many entries the log had."""
        return self.entries

    def read_hashes(self, nodes: Sequence[Node]) -> Sequence[bytes]:
        """Hashes of the edge, and no others."""
        return [self.hashes[node] for node in nodes]

    def read_entries(self, start: int, end: int) -> Sequence[bytes]:
        """Refused: an edge holds no entries."""
        raise Code.LOG_READ_ONLY("the edge of a log holds no entries", got=f"{start} to {end}")

    def newest_checkpoint(self) -> bytes | None:
        """The signed note of that size."""
        return self.note

    def append(self, **_: object) -> None:
        """Refused: an edge is only read."""
        raise Code.LOG_READ_ONLY("the edge of a log only reads")


@dataclass(frozen=True, slots=True)
class Archived:
    """How far the archive reaches, and how many envelopes this call added."""

    size: int
    envelopes_written: int


@dataclass(frozen=True, slots=True)
class Repaired:
    """How many missing files were written again."""

    tiles: int
    statements: int


class Archive:
    """A folder that follows the log; concurrent callers share one write."""

    def __init__(self, ledger: Ledger, folder: FilePath) -> None:
        self._ledger = ledger
        self._folder = folder
        self._lock = threading.Lock()
        self._reached = 0

    def cover(self, size: int) -> None:
        """Return when the folder holds the log up to this size."""
        with self._lock:
            if self._reached < size:
                self._reached = self._follow().size

    def follow(self) -> Archived:
        """Bring the folder up to the newest checkpoint."""
        with self._lock:
            done = self._follow()
            self._reached = done.size
            return done

    def verify(self) -> Repaired:
        """Compare every tile, bundle and envelope; one that differs is refused, a missing one is written again."""
        with self._lock, self._alone():
            log = PinnedLogReader(self._ledger)
            written = self._write_envelopes(0, log.size(), verify=True)
            return Repaired(export(log, log_folder(self._folder), verify=True).files_written, written)

    def _follow(self) -> Archived:
        for left in reversed(range(_TRIES)):
            try:
                with self._alone():
                    # Envelopes before the checkpoint, which must not cover missing ones. For the same reason the log
                    # is pinned: it may grow meanwhile.
                    log = PinnedLogReader(self._ledger)
                    written = self._write_envelopes(archived_size(self._folder), log.size(), verify=False)
                    return Archived(export(log, log_folder(self._folder)).size, written)
            except ConflictError as error:
                # Another Steward was first; an object store has no lock to wait for.
                if error.code != Code.FILE_OVERTAKEN or left == 0:
                    raise
        raise AssertionError("the last try raises")

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the folder's lock, since several Stewards may share it.

        In an object store they write concurrently: tiles and envelopes are the same from each, and the checkpoint is
        replaced only if it is the one that was read.
        """
        try:
            if isinstance(self._folder, ObjectPath):
                yield
                return
            make_folders(self._folder)
            with (self._folder / _LOCK).open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield
        except OSError as error:
            raise Code.ARCHIVE_UNAVAILABLE(
                f"the archive cannot be written: {error.strerror or type(error).__name__}"
            ) from None

    def _write_envelopes(self, start: int, reached: int, *, verify: bool) -> int:
        written = 0
        for first in range(start, reached, ARCHIVE_PAGE_ENTRIES):
            with self._ledger.read() as unit:
                page = statements.between(unit, first, min(first + ARCHIVE_PAGE_ENTRIES, reached))
            touched = set()
            for statement in page:
                path = envelope_path(self._folder, hashlib.sha256(statement.envelope).hexdigest())
                if not path.exists():
                    make_folders(path.parent)
                    write_atomically(path, statement.envelope)
                    written += 1
                elif verify and path.read_bytes() != statement.envelope:
                    raise Code.ARCHIVE_DAMAGED(
                        "a statement of the archive was changed",
                        expected=path.stem,
                        got="another hash",
                        hint="keep the file as evidence, remove it from the archive, then run this again",
                        place=f"{_STATEMENTS}/{path.parent.name}/{path.name}",
                    )
                touched.add(path.parent)
            for folder in touched:
                sync_folder(folder)
        return written


@dataclass(frozen=True, slots=True)
class ArchivedLog:
    """An archive as a restore reads it; entries count only once the tree's root confirms them."""

    folder: FilePath

    def size(self) -> int:
        """How far its own checkpoint reaches."""
        return archived_size(self.folder)

    def entries(self, start: int, end: int) -> list[bytes]:
        """The entries from `start` up to `end`."""
        return StaticTiles(log_folder(self.folder), self.size()).read_entries(start, end)

    def envelope(self, sha256: str) -> bytes | None:
        """The envelope of that hash, if it is there and has not changed."""
        try:
            data = envelope_path(self.folder, sha256).read_bytes()
        except FileNotFoundError:
            return None
        if hashlib.sha256(data).hexdigest() != sha256:
            raise Code.ARCHIVE_DAMAGED("an envelope of the archive was changed", expected=sha256, got="another hash")
        return data


def log_folder(folder: FilePath) -> FilePath:
    """The folder of tiles and checkpoint, which any tiled-log reader understands."""
    return folder / _LOG


def archived_size(folder: FilePath) -> int:
    """The size of the log that the folder shows; 0 for a new one."""
    try:
        return read_unverified((log_folder(folder) / CHECKPOINT_FILE).read_bytes()).checkpoint.size
    except FileNotFoundError:
        return 0


def envelope_path(folder: FilePath, sha256: str) -> FilePath:
    """Where the envelope of that hash lies."""
    return folder / _STATEMENTS / sha256[:2] / f"{sha256}.json"
