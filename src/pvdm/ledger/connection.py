"""One pooled connection in one transaction: statements made beforehand go to the driver, others through SQLAlchemy.

To send a statement through all of SQLAlchemy takes ten times as long as SQLite takes to run it, and a commit of the
catalog is little else than such statements. Errors come out as SQLAlchemy's own either way.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from sqlalchemy import Connection, Engine, Executable
from sqlalchemy.engine.interfaces import DBAPICursor, Dialect
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import PoolProxiedConnection
from sqlalchemy.sql import ClauseElement

_MODE: Final = "pvdm_mode"
# psycopg's own numbers, without a need for psycopg where there is only SQLite.
_READ_COMMITTED: Final = 2
_REPEATABLE_READ: Final = 3

Row: TypeAlias = Mapping[Any, Any]

# As many as there are statements in this room that were made beforehand, for each of the two databases.
_SPELLED: Final[dict[tuple[Executable, str], tuple[str, tuple[str, ...] | None, Mapping[str, Any]]]] = {}


class Link:
    """A driver's connection that is the caller's until it is closed."""

    __slots__ = ("_connection", "_dialect", "_engine", "_pooled")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._dialect = engine.dialect
        self._connection: Connection | None = None
        try:
            self._pooled: PoolProxiedConnection = engine.raw_connection()
        except self._dialect.loaded_dbapi.Error as error:
            raise self._as_told(error, lost=False) from error

    @property
    def is_sqlite(self) -> bool:
        """Whether the ledger is the embedded one."""
        return self._dialect.name == "sqlite"

    def begin(self, *, writing: bool) -> None:
        """Open the transaction, one that cannot write unless it is said."""
        with self._told():
            driver = self._pooled.driver_connection
            assert driver is not None  # noqa: S101 - none has been thrown away yet
            if self.is_sqlite:
                begin_sqlite(driver, self._pooled.info, writing=writing)
            else:
                # psycopg sends BEGIN with these before the first statement.
                driver.isolation_level = _READ_COMMITTED if writing else _REPEATABLE_READ
                driver.read_only = None if writing else True

    def dressed(self) -> Connection:
        """The same connection as SQLAlchemy knows it, in the same transaction."""
        if self._connection is None:
            self._connection = Connection(self._engine, self._pooled)
            self._connection.begin()
        return self._connection

    def one(self, statement: Executable, values: Mapping[str, Any]) -> Row | None:
        """The one row of a statement that was made beforehand, or None."""
        with self._run(statement, values) as cursor:
            found = cursor.fetchmany(2)
            if len(found) > 1:
                raise AssertionError("the statement finds one row at most")
            names = [column[0] for column in cursor.description or ()]
            return dict(zip(names, found[0], strict=True)) if found else None

    def count(self, statement: Executable, values: Mapping[str, Any]) -> int:
        """How many rows a statement that was made beforehand has changed."""
        with self._run(statement, values) as cursor:
            return int(cursor.rowcount)

    def commit(self) -> None:
        """Make it durable; after an error nobody knows the connection's state, and it is thrown away."""
        try:
            if self._connection is not None:
                self._connection.commit()
            else:
                with self._told():
                    self._pooled.commit()
        except SQLAlchemyError:
            self._throw_away()
            raise

    def close(self) -> None:
        """Roll back what is open and give the connection back; one that cannot even do that is thrown away."""
        try:
            if self._connection is not None:
                if self._connection.in_transaction():
                    self._connection.rollback()  # by itself: a `close` that fails half way cannot be thrown away
                self._connection.close()
            elif self._pooled.is_valid:
                with self._told():
                    self._pooled.rollback()
                    self._pooled.close()
        except SQLAlchemyError:
            self._throw_away()

    def _throw_away(self) -> None:
        if self._connection is not None:
            self._connection.invalidate()
            self._connection.close()
        elif self._pooled.is_valid:
            self._pooled.invalidate()

    @contextlib.contextmanager
    def _run(self, statement: Executable, values: Mapping[str, Any]) -> Iterator[DBAPICursor]:
        text, order, given = _spelled(statement, self._dialect)
        named = {**given, **values}
        with self._told():
            cursor = self._pooled.cursor()
            try:
                cursor.execute(text, named if order is None else tuple(named[name] for name in order))
                yield cursor
            finally:
                cursor.close()

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Errors of the driver as SQLAlchemy tells them. What is lost cannot roll back: `close` throws it away."""
        try:
            yield
        except self._dialect.loaded_dbapi.Error as error:
            lost = self._dialect.is_disconnect(error, self._pooled.dbapi_connection, None)
            raise self._as_told(error, lost=lost) from error

    def _as_told(self, error: Exception, *, lost: bool) -> BaseException:
        base = self._dialect.loaded_dbapi.Error
        more: dict[str, Any] = {"hide_parameters": True, "connection_invalidated": lost, "dialect": self._dialect}
        told = DBAPIError.instance(None, None, error, base, **more)
        assert isinstance(told, BaseException)  # noqa: S101 - what else would be raised
        return told


def begin_sqlite(driver: Any, info: dict[Any, Any], *, writing: bool) -> None:
    """SQLite's transaction, the writer's lock taken at once; a reader's connection refuses to write."""
    if info.get(_MODE) != writing:
        info.pop(_MODE, None)
        driver.execute(f"PRAGMA query_only = {'OFF' if writing else 'ON'}")
        info[_MODE] = writing
    driver.execute("BEGIN IMMEDIATE" if writing else "BEGIN")


def _spelled(statement: Executable, dialect: Dialect) -> tuple[str, tuple[str, ...] | None, Mapping[str, Any]]:
    """The statement's text, the order of its values where they have no names, and those that it brings itself."""
    found = _SPELLED.get((statement, dialect.name))
    if found is None:
        assert isinstance(statement, ClauseElement)  # noqa: S101 - every statement of ours is made by SQLAlchemy
        made: Any = statement.compile(dialect=dialect)
        order = tuple(made.positiontup) if made.positional else None
        brought = {name: value for name, value in made.params.items() if value is not None}
        found = _SPELLED[statement, dialect.name] = (str(made), order, brought)
    return found
