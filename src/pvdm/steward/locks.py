"""Locks between threads of a process (`ThreadLocks`), processes of a machine (`ProcessLock`) and Stewards of a ledger.

When a process ends, even by a crash, the operating system or the database releases the locks that it holds.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from pvdm.errors import Code, PvdmError
from pvdm.ledger import Ledger
from pvdm.ledger.locks import KeyedLocks
from pvdm.trust.keys import disk


class ThreadLocks:
    """One lock for each key, among the threads of this process."""

    def __init__(self) -> None:
        self._locks = KeyedLocks[str, threading.Lock](threading.Lock)

    @contextlib.contextmanager
    def hold(self, key: str) -> Iterator[None]:
        """Wait for the lock of this key and hold it."""
        with self._locks.use(key) as lock, lock:
            yield


class ProcessLock:
    """A locked file that holds its owner's process id."""

    def __init__(
        self, path: Path, *, in_use: Callable[[str], PvdmError], unavailable: Callable[[OSError], PvdmError]
    ) -> None:
        """Take the lock. Raises `in_use(process id of its holder)`, or `unavailable(error)` for a system error."""
        self._descriptor: int | None = None
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, disk.PRIVATE_MODE)
        except OSError as error:
            raise unavailable(error) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()}\n".encode())
        except BlockingIOError:
            holder = os.read(descriptor, 32).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise in_use(ascii(holder)[1:-1]) from None  # without the quotes that `ascii` adds
        except OSError as error:
            os.close(descriptor)
            raise unavailable(error) from None
        self._descriptor = descriptor
        # A forked child shares the lock and would keep it after this process has ended.
        os.register_at_fork(after_in_child=self.release)

    @property
    def is_held(self) -> bool:
        """Whether this process holds the lock; a forked child does not hold its parent's lock."""
        return self._descriptor is not None

    def release(self) -> None:
        """Release the lock; a second call does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


@contextlib.contextmanager
def serve_alone(ledger: Ledger) -> Iterator[None]:
    """Allow only this process to serve a SQLite ledger; a ledger on PostgreSQL may have several Stewards.

    Raises `ledger_served` if another process serves it.
    """
    file = ledger.file
    if file is None:
        yield
        return
    lock = ProcessLock(
        file.with_name(f"{file.name}.served"),
        in_use=lambda holder: Code.LEDGER_SERVED(got=f"process {holder}"),
        unavailable=lambda error: Code.LEDGER_UNAVAILABLE(
            "the lock beside the ledger cannot be taken", reason="ledger_unreachable", got=os.strerror(error.errno or 0)
        ),
    )
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def hold_work(ledger: Ledger, subject: str) -> Iterator[None]:
    """Hold the lock on the work that `subject` names. Raises `work_held` if another Steward holds that lock.

    `subject`: the id of an attempt or a publication, or "the clean-up of" and an attempt's id.
    """
    with ledger.try_lock(f"work on {subject}") as is_locked:
        if not is_locked:
            raise Code.WORK_HELD(got=subject)
        yield


def is_work_held(ledger: Ledger, subject: str) -> bool:
    """Whether a Steward of the ledger holds the lock that `hold_work` takes for this subject."""
    with ledger.try_lock(f"work on {subject}") as is_locked:
        return not is_locked
