"""One pooled connection in one transaction: prepared statements go to the driver, others through SQLAlchemy.

Sending a statement through SQLAlchemy takes ten times as long as SQLite takes to run it, and a commit of the catalog
consists of little else. Errors are SQLAlchemy's own either way.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias, TypeVar

from sqlalchemy import Connection, Engine, Executable
from sqlalchemy.engine.interfaces import DBAPICursor, Dialect
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import PoolProxiedConnection
from sqlalchemy.sql import ClauseElement

_MODE: Final = "pvdm_mode"
# psycopg's own numbers: psycopg is not installed where only SQLite is used.
_READ_COMMITTED: Final = 2
_REPEATABLE_READ: Final = 3

T = TypeVar("T")
Row: TypeAlias = Mapping[Any, Any]

# Grows to the number of prepared statements in `pvdm.ledger`, once for each kind of database.
_COMPILED: Final[dict[tuple[Executable, str], tuple[str, tuple[str, ...] | None, Mapping[str, Any]]]] = {}


def record_from(record: type[T], row: Row, **converted: Any) -> T:
    """Build a slotted dataclass from the columns of the same names; `converted` gives fields that are not copied."""
    names = record.__slots__  # type: ignore[attr-defined]
    return record(**{name: row[name] for name in names if name not in converted}, **converted)


class TransactionConnection:
    """A driver's connection that belongs to the caller until it is closed."""

    __slots__ = ("_connection", "_dialect", "_engine", "_pooled")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._dialect = engine.dialect
        self._connection: Connection | None = None
        try:
            self._pooled: PoolProxiedConnection = engine.raw_connection()
        except self._dialect.loaded_dbapi.Error as error:
            raise self._to_dbapi_error(error, lost=False) from error

    @property
    def is_sqlite(self) -> bool:
        """Whether the database is SQLite."""
        return self._dialect.name == "sqlite"

    def begin(self, *, writing: bool) -> None:
        """Begin the transaction. One that is not `writing` cannot write."""
        with self._translate_errors():
            driver = self._pooled.driver_connection
            assert driver is not None  # noqa: S101 - the connection was just taken from the pool
            if self.is_sqlite:
                begin_sqlite(driver, self._pooled.info, writing=writing)
            else:
                # psycopg sends BEGIN with these settings before the first statement.
                driver.isolation_level = _READ_COMMITTED if writing else _REPEATABLE_READ
                driver.read_only = None if writing else True

    def as_sqlalchemy(self) -> Connection:
        """The same connection for SQLAlchemy, in the same transaction."""
        if self._connection is None:
            self._connection = Connection(self._engine, self._pooled)
            self._connection.begin()
        return self._connection

    def fetch_one(self, statement: Executable, values: Mapping[str, Any]) -> Row | None:
        """Run a prepared statement that finds at most one row."""
        with self._run(statement, values) as cursor:
            rows = cursor.fetchmany(2)
            if len(rows) > 1:
                raise AssertionError("the statement finds at most one row")
            names = [column[0] for column in cursor.description or ()]
            return dict(zip(names, rows[0], strict=True)) if rows else None

    def count_changed(self, statement: Executable, values: Mapping[str, Any]) -> int:
        """Run a prepared statement and return how many rows it changed."""
        with self._run(statement, values) as cursor:
            return int(cursor.rowcount)

    def commit(self) -> None:
        """Make the transaction durable. After an error the connection's state is unknown, and it is discarded."""
        try:
            if self._connection is not None:
                self._connection.commit()
            else:
                with self._translate_errors():
                    self._pooled.commit()
        except SQLAlchemyError:
            self._discard()
            raise

    def close(self) -> None:
        """Roll back what is open and return the connection to the pool. If that fails, discard the connection."""
        try:
            if self._connection is not None:
                if self._connection.in_transaction():
                    self._connection.rollback()  # on its own: a `close` that fails half way cannot be discarded
                self._connection.close()
            elif self._pooled.is_valid:
                with self._translate_errors():
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
        text, order, constants = _compile(statement, self._dialect)
        named = {**constants, **values}
        with self._translate_errors():
            cursor = self._pooled.cursor()
            try:
                cursor.execute(text, named if order is None else tuple(named[name] for name in order))
                yield cursor
            finally:
                cursor.close()

    @contextlib.contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raise the driver's errors as SQLAlchemy's. A lost connection cannot roll back; `close` discards it."""
        try:
            yield
        except self._dialect.loaded_dbapi.Error as error:
            lost = self._dialect.is_disconnect(error, self._pooled.dbapi_connection, None)
            raise self._to_dbapi_error(error, lost=lost) from error

    def _to_dbapi_error(self, error: Exception, *, lost: bool) -> BaseException:
        base = self._dialect.loaded_dbapi.Error
        more: dict[str, Any] = {"hide_parameters": True, "connection_invalidated": lost, "dialect": self._dialect}
        translated = DBAPIError.instance(None, None, error, base, **more)
        assert isinstance(translated, BaseException)  # noqa: S101 - `instance` returns an error to raise
        return translated


def begin_sqlite(driver: Any, info: dict[Any, Any], *, writing: bool) -> None:
    """Begin SQLite's transaction. A writer takes the lock at once; a reader's connection refuses to write."""
    if info.get(_MODE) != writing:
        info.pop(_MODE, None)
        driver.execute(f"PRAGMA query_only = {'OFF' if writing else 'ON'}")
        info[_MODE] = writing
    driver.execute("BEGIN IMMEDIATE" if writing else "BEGIN")


def _compile(statement: Executable, dialect: Dialect) -> tuple[str, tuple[str, ...] | None, Mapping[str, Any]]:
    """The statement's text, the order of its values if they are positional, and its constants; compiled once."""
    known = _COMPILED.get((statement, dialect.name))
    if known is None:
        assert isinstance(statement, ClauseElement)  # noqa: S101 - all statements here are made by SQLAlchemy
        compiled: Any = statement.compile(dialect=dialect)
        order = tuple(compiled.positiontup) if compiled.positional else None
        constants = {name: value for name, value in compiled.params.items() if value is not None}
        known = _COMPILED[statement, dialect.name] = (str(compiled), order, constants)
    return known
