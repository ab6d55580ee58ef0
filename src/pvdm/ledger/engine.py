"""Open a ledger by URL: SQLite for one host, PostgreSQL for several. Settings that durability needs are enforced.

On PostgreSQL a reading transaction runs at REPEATABLE READ, and a writing one at READ COMMITTED with explicit locks,
not at SERIALIZABLE. A key, a locked row or a named lock enforces each rule. A statement after a lock must see what the
lock's last holder committed. A serializable transaction would not see it, because its snapshot is older than the
lock. Serializable writers of the step log (table `events`) would also abort each other without need.
"""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from sqlalchemy import URL, Connection, Engine, NullPool, Pool, QueuePool, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from pvdm.errors import Code, ConflictError
from pvdm.ledger.connection import Phase, translate_error
from pvdm.ledger.locks import ReaderWriterLock, file_lock, lock_names, session_lock, transaction_lock
from pvdm.ledger.unit import Unit, begin

T = TypeVar("T")

TRANSACTION_TRIES_MAX: Final = 8
TURNS_AT_ONCE_MAX: Final = 8  # how many threads of a Steward can hold or await a turn (`Ledger.take_turn`)
CONNECTIONS_MAX: Final = 15
_SYNCHRONOUS_EXTRA: Final = 3  # the number that `PRAGMA synchronous` returns for EXTRA
_LEDGER_MODE: Final = 0o600
_NOT_PRIVATE: Final = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long each kind of wait may take."""

    connect_seconds: int = 10  # for a connection: to the server, or from the pool
    busy_seconds: int = 10  # for a lock
    statement_seconds: int = 30  # of PostgreSQL, for one statement
    idle_seconds: int = 60  # of PostgreSQL, between two statements of a transaction


class Ledger:
    """An open database that begins units of work."""

    def __init__(self, engine: Engine, *, timeouts: Timeouts) -> None:
        self._engine = engine
        self._timeouts = timeouts
        self._begin_process()

    def _begin_process(self) -> None:
        """Set what belongs to one process, at first and after a fork."""
        self._process = os.getpid()
        # Only SQLite needs a lock among threads: PostgreSQL queues writers itself.
        self._lock = ReaderWriterLock(self._timeouts.busy_seconds) if self.dialect == "sqlite" else None
        self._unpooled: Engine | None = None
        self._turn_pool: Engine | None = None
        self._turn_pool_lock = threading.Lock()

    def __repr__(self) -> str:
        return f"Ledger({self._engine.url.render_as_string(hide_password=True)})"

    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`."""
        return self._engine.dialect.name

    @property
    def file(self) -> Path | None:
        """The database's file, if it is SQLite."""
        return ledger_file(self._engine.url)

    def write(self, *, at_micros: int) -> AbstractContextManager[Unit]:
        """Begin a writing transaction whose rows all carry this time. It is rolled back unless `commit` is called."""
        return begin(self._own_engine(), self._lock, writing=True, at_micros=at_micros)

    def read(self) -> AbstractContextManager[Unit]:
        """Begin a reading transaction with one consistent view. Keep it short: on SQLite it holds up every commit."""
        return begin(self._own_engine(), self._lock, writing=False, at_micros=0)

    def transact(self, work: Callable[[Unit], T], *, at_micros: int) -> T:
        """Run the work and commit. After a deadlock or a serialization failure, which changed nothing, try again."""
        for tries in range(1, TRANSACTION_TRIES_MAX + 1):
            try:
                with self.write(at_micros=at_micros) as unit:
                    result = work(unit)
                    unit.commit()
                    return result
            except ConflictError as error:
                if error.code != Code.LEDGER_SERIALIZATION or tries == TRANSACTION_TRIES_MAX:
                    raise
                time.sleep(random.uniform(0, 0.01 * 2**tries))  # noqa: S311 - spreads retries, guards nothing
        raise AssertionError("unreachable")

    def hold_lock(self, name: str) -> AbstractContextManager[object]:
        """Wait for the lock of this name among the ledger's Stewards, and hold it. Transactions do not wait for it."""
        if self.file is not None:
            return file_lock(self.file, name, wait=True)
        # In a transaction of its own, not a unit of work: while the caller holds the lock, it may begin units.
        return transaction_lock(self._own_engine(), name)

    def try_lock(self, name: str) -> AbstractContextManager[bool]:
        """Try to hold the lock of this name without waiting. Yields False if another process holds it.

        A lock ends with its holder's process. If the host is lost, it ends when the server drops the connection.
        """
        if self.file is not None:
            return file_lock(self.file, name, wait=False)
        return session_lock(self._unpooled_engine(), name)

    @contextlib.contextmanager
    def take_turn(self, tables: Sequence[str]) -> Iterator[None]:
        """Wait until the Stewards that asked earlier for these tables have finished with them.

        This only saves work: a caller that waits too long, or finds no free connection, goes on. On SQLite it does
        nothing: there is only one Steward, whose threads wait in `TableQueues` (`catalog/commit.py`).
        """
        stack = contextlib.ExitStack()
        if self.dialect == "postgresql":
            with contextlib.suppress(SQLAlchemyError):
                # A separate pool: the holder of a turn needs one more connection, for its transaction.
                lock_names(stack.enter_context(self._turn_engine().begin()), [f"turn {name}" for name in tables])
        try:
            yield
        finally:
            # The server may have closed the turn's connection meanwhile. The work that was done is still valid.
            with contextlib.suppress(SQLAlchemyError):
                stack.close()

    def with_new_connections(self) -> Ledger:
        """The same database through new connections, each closed after use, to read what other processes see."""
        return Ledger(self._unpooled_engine(), timeouts=self._timeouts)

    def close(self) -> None:
        """Close every pooled connection, except in a forked process: there they are the parent's."""
        for engine in (self._engine, self._turn_pool):
            if engine is not None:
                engine.dispose(close=self._process == os.getpid())

    def _turn_engine(self) -> Engine:
        engine = self._own_engine()
        with self._turn_pool_lock:
            if self._turn_pool is None:
                sizes = {"pool_size": TURNS_AT_ONCE_MAX, "max_overflow": 0, "pool_timeout": 0}
                self._turn_pool = _open_postgresql(engine.url, self._timeouts, QueuePool, **sizes)
            return self._turn_pool

    def _own_engine(self) -> Engine:
        """The engine. After a fork it gets new connections: a process must not use those of its parent."""
        if self._process != os.getpid():
            self._engine.dispose(close=False)
            if self._turn_pool is not None:
                self._turn_pool.dispose(close=False)
            self._begin_process()
        return self._engine

    def _unpooled_engine(self) -> Engine:
        """An engine that keeps compiled statements but no connection: compiling costs more than connecting."""
        engine = self._own_engine()
        if self._unpooled is None:
            self._unpooled = _open(engine.url, self._timeouts, poolclass=NullPool)
        return self._unpooled


def open_ledger(url: str, *, timeouts: Timeouts | None = None) -> Ledger:
    """Connect, set what durability needs, and refuse a database that cannot give it. Changes no schema."""
    timeouts = timeouts or Timeouts()
    return Ledger(_open(_parse(url), timeouts, poolclass=QueuePool), timeouts=timeouts)


def ledger_file(url: str | URL) -> Path | None:
    """The file of a SQLite database, which `open_ledger` creates if it is missing; None for a database server."""
    parsed = _parse(url)
    return Path(str(parsed.database)).absolute() if parsed.get_backend_name() == "sqlite" else None


def _open(url: URL, timeouts: Timeouts, *, poolclass: type[Pool]) -> Engine:
    """An engine whose database was reached and has the required settings."""
    open_engine = _open_sqlite if url.get_backend_name() == "sqlite" else _open_postgresql
    engine = open_engine(url, timeouts, poolclass)
    try:
        with engine.connect() as connection:  # on SQLite, this runs `_set_pragmas`
            if engine.dialect.name == "postgresql":
                _require_server_settings(connection)
    except SQLAlchemyError as error:
        engine.dispose()
        raise translate_error(error, Phase.CONNECT) from None
    except BaseException:
        engine.dispose()
        raise
    return engine


def _parse(url: str | URL) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise Code.CONFIG_INVALID(reason="ledger_url_invalid", got="no URL") from None
    match parsed.drivername:
        case "sqlite" | "sqlite+pysqlite":
            if parsed.database in (None, "", ":memory:") or str(parsed.database).startswith("file:") or parsed.query:
                raise Code.CONFIG_INVALID(reason="ledger_url_invalid", got="not a plain file name")
            return parsed.set(drivername="sqlite+pysqlite")
        case "postgresql" | "postgres" | "postgresql+psycopg":
            return parsed.set(drivername="postgresql+psycopg")
        case other:
            raise Code.CONFIG_INVALID(reason="ledger_url_invalid", got=other)


def _open_sqlite(url: URL, timeouts: Timeouts, poolclass: type[Pool]) -> Engine:
    _make_private(Path(str(url.database)))
    engine = create_engine(url, hide_parameters=True, poolclass=poolclass, **_pool_options(timeouts, poolclass))

    @event.listens_for(engine, "connect")
    def _configure(connection: sqlite3.Connection, _record: object) -> None:
        try:
            _set_pragmas(connection, timeouts)
        except BaseException:
            connection.close()
            raise

    return engine


def _set_pragmas(connection: sqlite3.Connection, timeouts: Timeouts) -> None:
    connection.isolation_level = None  # `TransactionConnection` begins transactions, not the driver
    for pragma in (
        f"busy_timeout = {timeouts.busy_seconds * 1000}",
        "foreign_keys = ON",
        "recursive_triggers = ON",  # so that INSERT OR REPLACE fires the trigger against DELETE
        "synchronous = EXTRA",  # FULL does not sync the directory after the journal is unlinked
        "cell_size_check = ON",  # finds damaged pages when they are read
    ):
        connection.execute(f"PRAGMA {pragma}")
    mode = connection.execute("PRAGMA journal_mode = DELETE").fetchone()[0]
    synchronous = connection.execute("PRAGMA synchronous").fetchone()[0]
    if (mode, synchronous) != ("delete", _SYNCHRONOUS_EXTRA):
        expected = "journal_mode delete, synchronous 3"
        raise Code.LEDGER_UNAVAILABLE(reason="ledger_not_durable", expected=expected, got=f"{mode}, {synchronous}")


def _make_private(path: Path) -> None:
    """Create the file with mode 0600, which SQLite also gives its journals. Raises if others can read or write it."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _LEDGER_MODE)
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        os.close(descriptor)
    except OSError as error:
        message = "the ledger's file cannot be opened"
        raise Code.LEDGER_UNAVAILABLE(message, reason="ledger_unreachable", got=os.strerror(error.errno or 0)) from None
    if mode & _NOT_PRIVATE:
        message = f"{path.name} can be read or written by others"
        hint = f"find out who could read or change it; then chmod 600 {path.name}"
        raise Code.LEDGER_MODE(message, got=f"mode {mode:04o}", hint=hint)


def _pool_options(timeouts: Timeouts, poolclass: type[Pool]) -> dict[str, Any]:
    """How many connections there are, and how long to wait for one.

    Connections are kept open, because opening a connection costs more than most transactions. The connection that was
    used last is used next, because it has statements and pages in memory.
    """
    if poolclass is not QueuePool:
        return {}
    sizes = {"pool_size": CONNECTIONS_MAX, "max_overflow": 0, "pool_use_lifo": True}
    return {**sizes, "pool_timeout": timeouts.connect_seconds}


def _open_postgresql(url: URL, timeouts: Timeouts, poolclass: type[Pool], **pool_options: int) -> Engine:
    settings = {
        "statement_timeout": timeouts.statement_seconds * 1000,
        "lock_timeout": timeouts.busy_seconds * 1000,
        "idle_in_transaction_session_timeout": timeouts.idle_seconds * 1000,
        "synchronous_commit": "on",
        "client_min_messages": "warning",
        # If a host is gone, the server ends its transactions and locks within about 25 seconds (10 + 3 × 5).
        "tcp_keepalives_idle": 10,
        "tcp_keepalives_interval": 5,
        "tcp_keepalives_count": 3,
    }
    return create_engine(
        url,
        hide_parameters=True,
        isolation_level="READ COMMITTED",
        pool_pre_ping=True,
        poolclass=poolclass,
        **(_pool_options(timeouts, poolclass) | pool_options),
        connect_args={
            "connect_timeout": timeouts.connect_seconds,
            "application_name": "pvdm",
            "client_encoding": "UTF8",  # a database in SQL_ASCII would give bytes
            "options": " ".join(f"-c {name}={value}" for name, value in settings.items()),
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": timeouts.statement_seconds * 1000,
        },
    )


def _require_server_settings(connection: Connection) -> None:
    names = ("fsync", "full_page_writes", "server_encoding")
    row = connection.execute(text(f"SELECT {', '.join(f'current_setting({name!r})' for name in names)}")).one()
    fsync, full_page_writes, encoding = row
    if (fsync, full_page_writes) != ("on", "on"):
        got = f"fsync {fsync}, full_page_writes {full_page_writes}"
        raise Code.LEDGER_UNAVAILABLE(reason="ledger_not_durable", expected="fsync on, full_page_writes on", got=got)
    if encoding != "UTF8":
        raise Code.LEDGER_UNAVAILABLE(reason="ledger_encoding_wrong", expected="UTF8", got=encoding)
