"""One pooled connection in one transaction: constant statements go to the driver, others through SQLAlchemy.

A constant statement is built once per process; only its bound values differ. Its compiled SQL is cached, because
SQLAlchemy takes ten times as long to send a statement as SQLite takes to run it. Either way a database error
is raised as SQLAlchemy's; callers turn it into a pvdm error with `translate_error`.
"""

from __future__ import annotations

import contextlib
import functools
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from enum import Enum, StrEnum, auto
from typing import Any, Final, TypeAlias, TypeVar, get_type_hints

from sqlalchemy import Connection, Engine, Executable
from sqlalchemy.engine.interfaces import DBAPICursor, Dialect
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.pool import PoolProxiedConnection
from sqlalchemy.sql import ClauseElement

from pvdm.errors import Code, PvdmError
from pvdm.ledger.schema import REFUSED_PREFIX, REFUSED_SQLSTATE

_MAY_WRITE: Final = "pvdm_may_write"  # the key in a pooled SQLite connection's info: whether it may write
# psycopg's numbers for isolation levels. They are not imported, because psycopg may not be installed.
_READ_COMMITTED: Final = 2
_REPEATABLE_READ: Final = 3

T = TypeVar("T")
Row: TypeAlias = Mapping[Any, Any]

# The results of `_compile`, by statement and dialect.
_COMPILED: Final[dict[tuple[Executable, str], tuple[str, tuple[str, ...] | None, Mapping[str, Any]]]] = {}


def record_from(record: type[T], row: Row, **converted: Any) -> T:
    """Build a slotted dataclass. Its fields get the row's columns of the same names, except those in `converted`."""
    names = record.__slots__  # type: ignore[attr-defined]
    fields = {name: row[name] for name in names if name not in converted}
    converters = _field_converters(record)  # type: ignore[arg-type]
    fields |= {name: convert(fields[name]) for name, convert in converters.items() if name in fields}
    return record(**fields, **converted)


@functools.cache
def _field_converters(record: type[Any]) -> dict[str, Callable[[Any], Any]]:
    """For each field that is an enumeration or bytes: the function that converts the column's value."""
    converters: dict[str, Callable[[Any], Any]] = {}
    for name, field_type in get_type_hints(record).items():
        if isinstance(field_type, type) and issubclass(field_type, StrEnum):
            converters[name] = field_type
        elif field_type is bytes:
            converters[name] = _to_bytes
    return converters


def _to_bytes(value: str | bytes | memoryview) -> bytes:
    """The value of a text or binary column as bytes. A driver may return a binary value as a memoryview."""
    return value.encode() if isinstance(value, str) else bytes(value)


def convert_if_found(convert: Callable[[Row], T], row: Row | None) -> T | None:
    """What `convert` makes from the row; None if a query found no row."""
    return None if row is None else convert(row)


def record_if_found(record: type[T], row: Row | None) -> T | None:
    """The record of the row (`record_from`); None if a query found no row."""
    return None if row is None else record_from(record, row)


class TransactionConnection:
    """A driver's connection that belongs to the caller until it is closed."""

    __slots__ = ("_connection", "_dialect", "_engine", "_pooled")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._dialect = engine.dialect
        self._connection: Connection | None = None  # SQLAlchemy's, once `as_sqlalchemy` has made it
        try:
            self._pooled: PoolProxiedConnection = engine.raw_connection()
        except self._dialect.loaded_dbapi.Error as error:
            raise self._to_sqlalchemy_error(error, lost=False) from error

    @property
    def is_sqlite(self) -> bool:
        """Whether the database is SQLite."""
        return self._dialect.name == "sqlite"

    def begin(self, *, writing: bool) -> None:
        """Begin the transaction. Unless it is `writing`, the database refuses changes in it."""
        with self._convert_driver_errors():
            driver = self._pooled.driver_connection
            assert driver is not None  # noqa: S101 - the connection was just taken from the pool
            if self.is_sqlite:
                # A writer takes the lock at once; a reader's connection refuses to write.
                if self._pooled.info.get(_MAY_WRITE) != writing:
                    self._pooled.info.pop(_MAY_WRITE, None)  # unknown if the PRAGMA fails
                    driver.execute(f"PRAGMA query_only = {'OFF' if writing else 'ON'}")
                    self._pooled.info[_MAY_WRITE] = writing
                driver.execute("BEGIN IMMEDIATE" if writing else "BEGIN")
            else:
                # psycopg sends BEGIN with these settings before the first statement.
                driver.isolation_level = _READ_COMMITTED if writing else _REPEATABLE_READ
                driver.read_only = None if writing else True  # None: the server's default

    def as_sqlalchemy(self) -> Connection:
        """The same connection for SQLAlchemy, in the same transaction."""
        if self._connection is None:
            self._connection = Connection(self._engine, self._pooled)
            self._connection.begin()
        return self._connection

    def fetch_one(self, statement: Executable, values: Mapping[str, Any]) -> Row | None:
        """Run a constant statement that finds at most one row, and return the row or None."""
        with self._run(statement, values) as cursor:
            rows = cursor.fetchmany(2)
            if len(rows) > 1:
                raise AssertionError("the statement found more than one row")
            names = [column[0] for column in cursor.description or ()]
            return dict(zip(names, rows[0], strict=True)) if rows else None

    def execute_change(self, statement: Executable, values: Mapping[str, Any]) -> int:
        """Run a constant statement and return how many rows it changed."""
        with self._run(statement, values) as cursor:
            return int(cursor.rowcount)

    def commit(self) -> None:
        """Make the transaction durable. After an error the connection's state is unknown, and it is discarded."""
        try:
            if self._connection is not None:
                self._connection.commit()
            else:
                with self._convert_driver_errors():
                    self._pooled.commit()
        except SQLAlchemyError:
            self._discard()
            raise

    def close(self) -> None:
        """Roll back an open transaction, and return the connection to the pool or, if that fails, discard it."""
        try:
            if self._connection is not None:
                if self._connection.in_transaction():
                    self._connection.rollback()  # before `close`: if `close` fails half way, `_discard` fails too
                self._connection.close()
            elif self._pooled.is_valid:
                with self._convert_driver_errors():
                    self._pooled.rollback()
                    self._pooled.close()
        except SQLAlchemyError:
            self._discard()

    def _discard(self) -> None:
        if self._connection is not None:
            self._connection.invalidate()
            self._connection.close()
        elif self._pooled.is_valid:
            self._pooled.invalidate()

    @contextlib.contextmanager
    def _run(self, statement: Executable, values: Mapping[str, Any]) -> Iterator[DBAPICursor]:
        sql, order, constants = _compile(statement, self._dialect)
        named = {**constants, **values}
        with self._convert_driver_errors():
            cursor = self._pooled.cursor()
            try:
                cursor.execute(sql, named if order is None else tuple(named[name] for name in order))
                yield cursor
            finally:
                cursor.close()

    @contextlib.contextmanager
    def _convert_driver_errors(self) -> Iterator[None]:
        """Raise the driver's errors as SQLAlchemy's, which say whether the connection was lost."""
        try:
            yield
        except self._dialect.loaded_dbapi.Error as error:
            lost = self._dialect.is_disconnect(error, self._pooled.dbapi_connection, None)
            raise self._to_sqlalchemy_error(error, lost=lost) from error

    def _to_sqlalchemy_error(self, error: Exception, *, lost: bool) -> BaseException:
        base = self._dialect.loaded_dbapi.Error
        options: dict[str, Any] = {"hide_parameters": True, "connection_invalidated": lost, "dialect": self._dialect}
        translated = DBAPIError.instance(None, None, error, base, **options)
        assert isinstance(translated, BaseException)  # noqa: S101 - `instance` returns an error to raise
        return translated


def _compile(statement: Executable, dialect: Dialect) -> tuple[str, tuple[str, ...] | None, Mapping[str, Any]]:
    """The statement's SQL, the order of its values if they are positional, and its constants; compiled once."""
    cached = _COMPILED.get((statement, dialect.name))
    if cached is None:
        assert isinstance(statement, ClauseElement)  # noqa: S101 - all statements here are made by SQLAlchemy
        compiled: Any = statement.compile(dialect=dialect)
        order = tuple(compiled.positiontup) if compiled.positional else None
        # Values that are written into the statement. A parameter that each run binds has the value None here.
        constants = {name: value for name, value in compiled.params.items() if value is not None}
        cached = _COMPILED[statement, dialect.name] = (str(compiled), order, constants)
    return cached


class Phase(Enum):
    """When an error occurred. Before COMMIT was sent, nothing has changed; after it, the result is unknown."""

    CONNECT = auto()
    WORK = auto()
    COMMIT = auto()


_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


def translate_error(error: SQLAlchemyError, phase: Phase) -> PvdmError:
    """The pvdm error for a database error. It shows the database's error code, and no value of any row."""
    if isinstance(error, PoolTimeoutError):
        return Code.LEDGER_UNAVAILABLE("no connection to the ledger became free in time", reason="ledger_busy")
    if not isinstance(error, DBAPIError):
        return Code.BUG(f"the ledger was used wrongly: {type(error).__name__}", reason="ledger_misused")
    if isinstance(error.orig, sqlite3.Error):
        return _translate_sqlite(error.orig, phase)
    return _translate_postgresql(error, phase)


def _translate_sqlite(error: sqlite3.Error, phase: Phase) -> PvdmError:
    extended: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    name: str = getattr(error, "sqlite_errorname", "SQLITE_ERROR")
    primary = extended & 0xFF
    if primary in _BUSY:
        # A COMMIT that found readers has not begun to write: the transaction is still open and is rolled back.
        return Code.LEDGER_UNAVAILABLE(reason="ledger_busy", result=name)
    if primary == sqlite3.SQLITE_CONSTRAINT:
        return _constraint_error(str(error), name)
    if phase is Phase.COMMIT:
        return Code.COMMIT_UNKNOWN(got=name)
    if primary in _DAMAGED:
        return Code.LEDGER_UNAVAILABLE(reason="ledger_damaged", got=name)
    if primary in (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISUSE):
        return Code.BUG("the ledger was used wrongly", reason="ledger_misused", got=f"{name}: {_first_line(error)}")
    return Code.LEDGER_UNAVAILABLE("the ledger cannot be read or written", reason="ledger_unreachable", got=name)


def _translate_postgresql(error: DBAPIError, phase: Phase) -> PvdmError:
    state = str(getattr(error.orig, "sqlstate", None) or "")
    # Without a state there is no answer from the server: the connection is lost, or the driver refused a value.
    unanswered = not state and (phase is not Phase.WORK or isinstance(error, OperationalError | InterfaceError))
    # 08: connection exception. 57P: the server ended the session. 40003: the statement's completion is unknown.
    lost = unanswered or state.startswith(("08", "57P")) or state == "40003" or error.connection_invalidated
    if lost and phase is Phase.COMMIT:
        return Code.COMMIT_UNKNOWN(got=state or "connection lost")
    if lost:
        return Code.LEDGER_UNAVAILABLE(reason="ledger_unreachable", got=state or "no answer")
    if state in ("40001", "40P01"):  # serialization failure, deadlock
        return Code.LEDGER_SERIALIZATION(got=state)
    if state in ("55P03", "57014"):  # lock_timeout, statement_timeout
        return Code.LEDGER_UNAVAILABLE(reason="ledger_busy", result=state)
    if state == REFUSED_SQLSTATE or state.startswith("23"):  # one of the ledger's triggers, or a constraint
        return _constraint_error(_first_line(error.orig), state)
    # 53: resources. 58: the server's system. 28: authorization. 3D: unknown database. 25: invalid transaction state.
    if state.startswith(("53", "58", "28", "3D", "25")):
        return Code.LEDGER_UNAVAILABLE("the ledger cannot be read or written", reason="ledger_unreachable", got=state)
    return Code.BUG("the ledger was used wrongly", reason="ledger_misused", got=f"{state}: {_first_line(error.orig)}")


def _constraint_error(message: str, result: str) -> PvdmError:
    """The error of one of the ledger's triggers, or else of a constraint. `result` is the database's error code."""
    if REFUSED_PREFIX in message:
        rule = message.rpartition(REFUSED_PREFIX)[2]
        return Code.LEDGER_RULE(f"a rule of the ledger refuses the change: {rule}", result=result)
    return Code.RECORD_DIFFERS(reason="ledger_constraint", got=message, result=result)


def _first_line(error: BaseException | None) -> str:
    """The first line of the message. The DETAIL lines after it quote values of rows."""
    return (str(error).splitlines() or [""])[0]
