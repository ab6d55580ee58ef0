"""Locks around the ledger: fair locks among the threads of a process, and named locks among Stewards.

SQLite allows one writer at a time, and a commit waits until there are no readers. A thread that finds the database
busy sleeps and polls again, for up to a tenth of a second and in no order. `FairLock` and `ReaderWriterLock` make
threads wait in order and wake them instead. They only save time: a thread that waits too long goes on without the
lock and meets the database's own locks, as other processes do.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, Generic, TypeVar

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import SQLAlchemyError

from pvdm.errors import Code
from pvdm.ledger.connection import Phase, translate_error

_LOCK_FILE_MODE: Final = 0o600

K = TypeVar("K")
L = TypeVar("L")


class FairLock:
    """A lock that is granted in order of arrival."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()
        self._held = False

    @property
    def is_free(self) -> bool:
        """Whether no thread holds the lock. Then none waits for it either."""
        return not self._held

    @contextlib.contextmanager
    def hold(self, seconds: float) -> Iterator[bool]:
        """Hold the lock inside the block. Yields False if it was not granted in time; the block still runs."""
        granted = self._acquire(seconds)
        try:
            yield granted
        finally:
            if granted:
                self._release()

    def _acquire(self, seconds: float) -> bool:
        with self._lock:
            if not self._held:
                self._held = True
                return True
            waiter = threading.Lock()
            waiter.acquire()  # `_release` releases it, and so hands the lock over
            self._waiting.append(waiter)
        if waiter.acquire(timeout=seconds):
            return True
        with self._lock:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
                return False
        return True  # the holder released the lock to this thread just after the timeout

    def _release(self) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._held = False


class KeyedLocks(Generic[K, L]):
    """A lock for each key. A lock is made when a thread uses its key, and removed when no thread uses it any more."""

    def __init__(self, make_lock: Callable[[], L]) -> None:
        self._make_lock = make_lock
        self._lock = threading.Lock()
        self._used: dict[K, tuple[L, int]] = {}  # the lock, and how many threads use it

    def __len__(self) -> int:
        return len(self._used)

    @contextlib.contextmanager
    def use(self, key: K) -> Iterator[L]:
        """The key's lock, for the caller to hold inside the block."""
        with self._lock:
            lock, users = self._used.get(key) or (self._make_lock(), 0)
            self._used[key] = (lock, users + 1)
        try:
            yield lock
        finally:
            with self._lock:
                users = self._used[key][1] - 1
                if users:
                    self._used[key] = (lock, users)
                else:
                    del self._used[key]


class ReaderWriterLock:
    """Writers run one after the other; readers run together, but not during a commit."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._writers = FairLock()
        self._changed = threading.Condition()
        self._readers = 0
        self._committing = False

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the lock from a writer's first statement to its end."""
        with self._writers.hold(self._seconds):
            yield

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Hold the lock from a reader's first statement to its end. A waiting commit goes first."""
        with self._changed:
            self._changed.wait_for(lambda: not self._committing, self._seconds)
            self._readers += 1
        try:
            yield
        finally:
            with self._changed:
                self._readers -= 1
                if not self._readers:
                    self._changed.notify_all()

    @contextlib.contextmanager
    def committing(self) -> Iterator[None]:
        """Hold the lock during a writer's commit: wait for the readers that have begun, and hold up new ones."""
        deadline = time.monotonic() + self._seconds
        with self._changed:
            granted = self._changed.wait_for(lambda: not self._committing, self._seconds)
            if granted:
                self._committing = True
                self._changed.wait_for(lambda: not self._readers, deadline - time.monotonic())
        try:
            yield
        finally:
            if granted:
                with self._changed:
                    self._committing = False
                    self._changed.notify_all()


@contextlib.contextmanager
def file_lock(database: Path, name: str, *, wait: bool) -> Iterator[bool]:
    """Hold a named lock, a file beside an SQLite ledger. Without `wait`, yields False if another process holds it."""
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    path = database.with_name(f"{database.name}.alone-{digest}")
    try:
        descriptor = _lock_file(path, wait=wait)
    except OSError as error:
        message = "a lock file beside the ledger cannot be locked"
        raise Code.LEDGER_UNAVAILABLE(message, reason="ledger_unreachable", got=os.strerror(error.errno or 0)) from None
    if descriptor is None:
        yield False
        return
    try:
        yield True
    finally:
        with contextlib.suppress(OSError):
            path.unlink()  # before the lock is released: a process that waits for it must find the name gone
        os.close(descriptor)


def _lock_file(path: Path, *, wait: bool) -> int | None:
    """Open and lock the file that has this name now. None if another process holds the lock."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, _LOCK_FILE_MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), path.lstat()):
                    return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # the last holder has removed the file: try the new one


@contextlib.contextmanager
def session_lock(engine: Engine, name: str) -> Iterator[bool]:
    """Try to hold a PostgreSQL lock on a connection of its own, without a transaction. Yields whether it was free."""
    key = {"key": lock_key(name)}
    with _translate_errors(), engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        yield bool(connection.execute(text("SELECT pg_try_advisory_lock(:key)"), key).scalar_one())


@contextlib.contextmanager
def transaction_lock(engine: Engine, name: str) -> Iterator[None]:
    """Wait for a PostgreSQL lock and hold it in a transaction of its own. For short work.

    Raises UnavailableError (`ledger_unreachable`) if the connection, and the lock with it, was lost during the work.
    """
    with _translate_errors(), engine.begin() as connection:
        lock_names(connection, [name])
        yield


@contextlib.contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except SQLAlchemyError as error:
        raise translate_error(error, Phase.WORK) from None


def lock_names(connection: Connection, names: Iterable[str]) -> None:
    """Wait for the locks of these names, always in the same order. The locks end with the connection's transaction."""
    for key in sorted(lock_key(name) for name in names):
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": key})


def lock_key(name: str) -> int:
    """The number under which PostgreSQL locks a name."""
    return int.from_bytes(hashlib.sha256(b"pvdm lock " + name.encode()).digest()[:8], "big", signed=True)
