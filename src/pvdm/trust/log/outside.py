"""The outside checkpoint: the newest checkpoint, in another failure domain. The log must always begin with its tree."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from hmac import compare_digest
from pathlib import Path
from typing import Final

from pvdm.errors import Code, ConflictError, UnavailableError, VerificationError
from pvdm.lake.stores.stores import FilePath, ObjectPath
from pvdm.trust.log.checkpoint import Checkpoint, SignedCheckpoint, open_checkpoint
from pvdm.trust.log.disk import replace_durably
from pvdm.trust.log.log import AppendedEntries, Log
from pvdm.trust.log.note import NoteKey
from pvdm.trust.refusal import refused

OUTSIDE_LOCK_MAX_SECONDS: Final = 10
_TRIES: Final = 16  # of a write to an object that other processes write too


@contextmanager
def hold_lock(path: FilePath) -> Iterator[None]:
    """Hold the lock of the checkpoint at that path. Raises TimeoutError after too long a wait."""
    if isinstance(path, ObjectPath):
        # An object store needs no lock: there a write names the version that it replaces.
        yield
        return
    # Only the owner may open the lock file, because every process that opens it can hold the lock.
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    lock = os.open(path.with_name(path.name + ".lock"), flags, 0o600)
    try:
        _lock_file(lock)
        yield
    finally:
        os.close(lock)


def _lock_file(lock: int) -> None:
    """Lock the file of this descriptor. Polls, because the system's file locks have no timeout."""
    deadline = time.monotonic() + OUTSIDE_LOCK_MAX_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError(f"locked for {OUTSIDE_LOCK_MAX_SECONDS} seconds") from None
            time.sleep(0.005)
        else:
            return


class FileOutsideCheckpoint:
    """The newest checkpoint in one file, on a disk or in a bucket that does not fail together with the database."""

    def __init__(self, path: FilePath, *, origin: str, keys: Callable[[], Iterable[NoteKey]]) -> None:
        """`keys` returns all log keys, and is called at every use, because a new epoch has a new log key."""
        self._path = path
        self._origin = origin
        self._keys = keys
        self._seen: Checkpoint | None = None
        self._seen_lock = threading.Lock()

    def load(self) -> SignedCheckpoint | None:
        """The file's verified checkpoint, or None. Raises `checkpoint_goes_back` if this process saw a newer one."""
        seen = self._seen  # read before the file, which another thread may replace by a newer one
        try:
            note = self._path.read_bytes()
        except FileNotFoundError:
            # A disk that is not mounted must not look like a first start. A missing bucket is another error.
            if isinstance(self._path, Path) and not self._path.parent.is_dir():
                raise self._unavailable(FileNotFoundError(f"{self._path.parent} is not there")) from None
            found = None
        except OSError as error:
            raise self._unavailable(error) from None
        else:
            found = open_checkpoint(note, origin=self._origin, keys=self._keys())
        if seen is not None:
            _require_forward(seen, found.checkpoint if found else None)
        if found is not None:
            self._remember(found.checkpoint)
        return found

    def store(self, newest: SignedCheckpoint) -> None:
        """Replace the stored checkpoint durably. Refuses a smaller one, and one of the same size with another root."""
        opened = open_checkpoint(newest.note, origin=self._origin, keys=self._keys())
        if opened != newest:
            message = "the note does not say what the checkpoint says"
            raise Code.CHECKPOINT_INVALID(message, reason="checkpoint_malformed")
        try:
            self._replace(newest)
        except OSError as error:
            raise self._unavailable(error) from None
        self._remember(newest.checkpoint)

    def _replace(self, newest: SignedCheckpoint) -> None:
        """Replace a file under a lock across processes, or an object if it is still the version that was read."""
        for tries_left in reversed(range(_TRIES)):
            with hold_lock(self._path):
                before = self.load()
                if before is not None:
                    _require_forward(before.checkpoint, newest.checkpoint)
                try:
                    replace_durably(self._path, None if before is None else before.note, newest.note)
                except ConflictError:
                    if tries_left == 0:
                        raise OSError(errno.EAGAIN, "other processes keep writing it") from None
                else:
                    return

    def _remember(self, checkpoint: Checkpoint) -> None:
        with self._seen_lock:
            if self._seen is None or self._seen.size < checkpoint.size:
                self._seen = checkpoint

    def _unavailable(self, error: OSError) -> UnavailableError:
        return UnavailableError(
            "outside_checkpoint_unavailable",
            f"the outside checkpoint cannot be reached: {error.strerror or error}",
            hint="nothing is acknowledged until it can be written again",
        )


def require_consistent(outside: FileOutsideCheckpoint, log: Log) -> SignedCheckpoint | None:
    """The outside checkpoint; None on the first start. Raises unless the log begins with the checkpoint's tree."""
    newest = outside.load()
    if newest is None:
        if log.size() == 0:
            return None
        raise Code.OUTSIDE_CHECKPOINT_MISSING(got=f"none, beside a log of {log.size()} entries")
    _require_begins_with(log, newest.checkpoint)
    return newest


def check_at_start(outside: FileOutsideCheckpoint, log: Log) -> None:
    """Check the log against the outside checkpoint, then update the outside checkpoint if a crash left it behind."""
    newest = require_consistent(outside, log)
    stored = log.checkpoint()
    if stored.checkpoint.size != log.size() or not compare_digest(stored.checkpoint.root, log.root(log.size())):
        raise _forked(log.root(log.size()), stored.checkpoint)
    if newest is None or newest.checkpoint.size < stored.checkpoint.size:
        outside.store(stored)


def acknowledge(outside: FileOutsideCheckpoint, log: Log, appended: AppendedEntries) -> int:
    """Make the outside checkpoint cover the entries, before the caller answers. Returns the size that it covers."""
    # Entries that were rolled back must not get an outside checkpoint: the log would stay behind it.
    _require_begins_with(log, appended.checkpoint.checkpoint)
    newest = require_consistent(outside, log)
    if newest is None or newest.checkpoint.size < appended.size:
        try:
            outside.store(appended.checkpoint)
            newest = appended.checkpoint
        except VerificationError as error:
            if error.code != Code.CHECKPOINT_GOES_BACK:
                raise
            # Another Steward has stored the checkpoint of a longer log of the same database, which covers this one.
            newest = require_consistent(outside, log)
    return 0 if newest is None else newest.checkpoint.size


def _require_begins_with(log: Log, seen: Checkpoint) -> None:
    root = log.find_root(seen.size)
    if root is None:
        message = "the log is shorter than the outside checkpoint: the database was rolled back"
        expected = f"at least {seen.size} entries"
        hint = "`pvdm steward restore` restores a backup and logs the restore"
        raise refused(Code.LOG_BEHIND_CHECKPOINT, expected, log.size(), message=message, hint=hint)
    if seen.origin != log.origin or not compare_digest(root, seen.root):
        raise _forked(root, seen)


def _require_forward(before: Checkpoint, after: Checkpoint | None) -> None:
    if after is None or after.size < before.size:
        got = str(after.size if after else 0)
        raise Code.CHECKPOINT_GOES_BACK(expected=f"at least {before.size} entries", got=got)
    if after.size == before.size and not compare_digest(after.root, before.root):
        raise _forked(after.root, before)


def _forked(root: bytes, seen: Checkpoint) -> VerificationError:
    message, signed = f"the log's first {seen.size} entries are not those that were signed", f"root {seen.root.hex()}"
    hint = "two histories exist under one key; keep both and inform every consumer"
    return VerificationError(Code.LOG_FORKED, message, expected=signed, got=root.hex(), hint=hint, size=seen.size)
