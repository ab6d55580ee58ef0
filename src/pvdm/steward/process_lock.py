"""Locks of one process at a time, which the system releases when the process ends, however it ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from pvdm.errors import ConflictError, PvdmError, UnavailableError
from pvdm.ledger import Ledger
from pvdm.trust.keys import disk

_SERVED: Final = ".served"


class ProcessLock:
    """A locked file that holds its owner's process id."""

    def __init__(
        self, path: Path, *, in_use: Callable[[str], PvdmError], unavailable: Callable[[OSError], PvdmError]
    ) -> None:
        """Take the lock, or raise `in_use(process id of the holder)` or `unavailable(error)`."""
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
            raise in_use(ascii(holder)[1:-1]) from None
        except OSError as error:
            os.close(descriptor)
            raise unavailable(error) from None
        self._descriptor = descriptor
        # A child that is forked shares the lock and would keep it when this process is gone.
        os.register_at_fork(after_in_child=self.release)

    @property
    def is_held(self) -> bool:
        """Whether this process, and not one that it was forked from, has the lock."""
        return self._descriptor is not None

    def release(self) -> None:
        """Release the lock; a second time does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


@contextlib.contextmanager
def serving_alone(ledger: Ledger) -> Iterator[None]:
    """Keep other Stewards from serving a SQLite ledger meanwhile; several may serve one on PostgreSQL.

    Raises `ledger_served` if another process serves it.
    """
    file = ledger.file
    if file is None:
        yield
        return
    lock = ProcessLock(file.with_name(file.name + _SERVED), in_use=_served, unavailable=_unavailable)
    try:
        yield
    finally:
        lock.release()


def _served(holder: str) -> ConflictError:
    return ConflictError(
        "ledger_served",
        "another Steward serves this ledger",
        expected="one Steward on a ledger in SQLite",
        got=f"process {holder}",
        hint="end that one first; several Stewards can share a ledger on PostgreSQL",
    )


def _unavailable(error: OSError) -> UnavailableError:
    return UnavailableError(
        "ledger_unreachable", "the lock beside the ledger cannot be taken", got=os.strerror(error.errno or 0)
    )
