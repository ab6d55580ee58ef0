"""The archive: the log's tiles and every signed envelope as files in another place, for a restore."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pvdm.errors import Code, ConflictError
from pvdm.lake.stores.stores import FilePath, ObjectPath
from pvdm.ledger import Ledger
from pvdm.ledger.record import statements
from pvdm.steward.record.log import PinnedLogReader
from pvdm.trust.log.checkpoint import read_unverified
from pvdm.trust.log.disk import make_folders, sync_folder, write_atomically
from pvdm.trust.log.export import CHECKPOINT_FILE, export
from pvdm.trust.log.tiles import StaticTiles

ARCHIVE_PAGE_ENTRIES: Final = 1_000
_TRIES: Final = 16

_LOCK: Final = ".lock"
_LOG: Final = "log"
_STATEMENTS: Final = "statements"


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
                return self._follow_once()
            except ConflictError as error:
                # Another Steward was first; an object store has no lock to wait for.
                if error.code != Code.FILE_OVERTAKEN or left == 0:
                    raise
        raise AssertionError("the last try raises")

    def _follow_once(self) -> Archived:
        with self._alone():
            # Envelopes before the checkpoint, which must not cover missing ones. For the same reason the log is
            # pinned: it may grow meanwhile.
            log = PinnedLogReader(self._ledger)
            written = self._write_envelopes(archived_size(self._folder), log.size(), verify=False)
            return Archived(export(log, log_folder(self._folder)).size, written)

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
                elif verify:
                    _require_same(path, statement.envelope, f"{_STATEMENTS}/{path.parent.name}/{path.name}")
                touched.add(path.parent)
            for folder in touched:
                sync_folder(folder)
        return written


def _require_same(path: FilePath, envelope: bytes, place: str) -> None:
    if path.read_bytes() != envelope:
        raise Code.ARCHIVE_DAMAGED(
            "a statement of the archive was changed",
            expected=path.stem,
            got="another hash",
            hint="keep the file as evidence, remove it from the archive, then run this again",
            place=place,
        )


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
