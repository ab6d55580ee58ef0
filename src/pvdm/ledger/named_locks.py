"""Named locks among the Stewards of one ledger: each ends with the process, or the connection, that holds it."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import SQLAlchemyError

from pvdm.errors import UnavailableError
from pvdm.ledger.failures import Phase, translate
from pvdm.ledger.unit import key_of_name

_MODE: Final = 0o600


@contextlib.contextmanager
def file_lock(database: Path, name: str, *, wait: bool) -> Iterator[bool]:
    """A lock file beside an SQLite ledger, which knows only the lock on the whole database; says whether it is held."""
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    path = database.with_name(f"{database.name}.alone-{digest}")
    try:
        handle = _locked(path, wait=wait)
    except OSError as error:
        raise UnavailableError(
            "ledger_unreachable", "a lock beside the ledger cannot be taken", got=os.strerror(error.errno or 0)
        ) from None
    if handle is None:
        yield False
        return
    try:
        yield True
    finally:
        with contextlib.suppress(OSError):
            path.unlink()  # while it is held, so no other process locks a file that has no name
        os.close(handle)


def _locked(path: Path, *, wait: bool) -> int | None:
    """A handle that holds the lock of the file that has this name now; None where another process holds it."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, _MODE)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), path.lstat()):
                    return handle
        except BlockingIOError:
            os.close(handle)
            return None
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # its holder removed it meanwhile


@contextlib.contextmanager
def session_lock(engine: Engine, name: str) -> Iterator[bool]:
    """A lock of a PostgreSQL connection of its own, outside any transaction; says whether it is held."""
    key = {"key": key_of_name(name)}
    with contextlib.ExitStack() as stack:
        try:
            connection = stack.enter_context(engine.connect().execution_options(isolation_level="AUTOCOMMIT"))
            held = bool(connection.execute(text("SELECT pg_try_advisory_lock(:key)"), key).scalar_one())
        except SQLAlchemyError as error:
            raise translate(error, Phase.WORK) from None
        yield held


def lock_names(connection: Connection, names: Iterable[str]) -> None:
    """Wait for the locks of these names, in one order for everybody; they end with the connection's transaction."""
    for key in sorted(key_of_name(name) for name in names):
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": key})


@contextlib.contextmanager
def transaction_lock(engine: Engine, name: str) -> Iterator[None]:
    """A lock of a PostgreSQL transaction of its own, for which it waits; for work that is soon done."""
    with contextlib.ExitStack() as stack:
        try:
            lock_names(stack.enter_context(engine.begin()), [name])
        except SQLAlchemyError as error:
            raise translate(error, Phase.WORK) from None
        yield
