"""The unit of work: one transaction, committed only by saying so, with nothing but SQL inside."""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final

from sqlalchemy import Connection, Engine, Executable, RowMapping, Table, bindparam, func, inspect, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import CursorResult
from sqlalchemy.exc import SQLAlchemyError

from pvdm import fault
from pvdm.errors import PvdmError
from pvdm.store.failures import Phase, translate
from pvdm.store.turns import Turns

MODE_OPTION: Final = "pvdm_mode"
_inside: ContextVar[bool] = ContextVar("pvdm_store_inside", default=False)


def inside() -> bool:
    """Whether this thread or task is in a ledger transaction; what does other I/O may ask, and refuse."""
    return _inside.get()


class Unit:
    """One transaction; leaving it without `commit` undoes everything."""

    __slots__ = ("_connection", "_open", "_turns", "_writing", "at_micros")

    def __init__(self, connection: Connection, turns: Turns | None, *, writing: bool, at_micros: int) -> None:
        self._connection = connection
        self._turns = turns
        self._writing = writing
        self._open = True
        self.at_micros = at_micros

    @property
    def is_sqlite(self) -> bool:
        """Whether the ledger is the embedded one, in which a writer is alone anyway."""
        return self._connection.dialect.name == "sqlite"

    def execute(self, statement: Executable, values: Mapping[str, Any] | None = None) -> CursorResult[Any]:
        """Run one statement; errors come out as pvdm errors."""
        self._require_open()
        try:
            return self._connection.execute(statement, dict(values) if values is not None else None)
        except SQLAlchemyError as error:
            raise translate(error, Phase.WORK) from None

    def rows(self, statement: Executable) -> list[RowMapping]:
        """All rows at once: no cursor stays open while the caller thinks."""
        return list(self.execute(statement).mappings().all())

    def row(self, statement: Executable, **values: Any) -> RowMapping | None:
        """The one row, or None; `values` are for a statement that was made beforehand."""
        return self.execute(statement, values or None).mappings().one_or_none()

    def has_table(self, name: str) -> bool:
        """Whether the database has such a table."""
        self._require_open()
        return inspect(self._connection).has_table(name)

    def locked(self, table: Table, **key: str) -> RowMapping | None:
        """The row under a lock that holds until the end, so that what is judged is what is changed."""
        return self.row(_locking(table, tuple(key)), **{f"{name}_": value for name, value in key.items()})

    def insert(self, table: Table, **values: Any) -> None:
        """Add one row with the unit's time; what is already there is a conflict."""
        self.execute(table.insert(), self._timed(table, values))

    def insert_many(self, table: Table, rows: Sequence[dict[str, Any]]) -> None:
        """Add several rows in one round trip."""
        self._require_open()
        if not rows:
            return
        try:
            self._connection.execute(table.insert(), [self._timed(table, row) for row in rows])
        except SQLAlchemyError as error:
            raise translate(error, Phase.WORK) from None

    def insert_new(self, table: Table, **values: Any) -> bool:
        """Add one row unless its primary key is taken; says whether it did. One statement, so there is no race."""
        return self.execute(_insert_new(table, self.is_sqlite), self._timed(table, values)).rowcount == 1

    def lock_name(self, name: str) -> None:
        """Wait for everyone else who holds this name; on SQLite a writer already has the whole database."""
        if not self.is_sqlite:
            key = int.from_bytes(hashlib.sha256(b"pvdm lock " + name.encode()).digest()[:8], "big", signed=True)
            self.execute(select(func.pg_advisory_xact_lock(key)))

    def commit(self) -> None:
        """Make it durable. A lost answer is StateUnknownError; any other error means that nothing happened."""
        self._require_open()
        if not self._writing:
            raise PvdmError("unit_read_only", "a reading unit has nothing to commit")
        self._open = False
        fault.point("store.before_commit")
        try:
            with contextlib.nullcontext() if self._turns is None else self._turns.committing():
                self._connection.commit()
        except SQLAlchemyError as error:
            # The transaction may still be open in the driver: closing the connection ends it and frees its locks.
            self._connection.invalidate()
            raise translate(error, Phase.COMMIT) from None
        fault.point("store.after_commit")

    def _timed(self, table: Table, values: dict[str, Any]) -> dict[str, Any]:
        return {**values, "at_micros": self.at_micros} if "at_micros" in table.c else values

    def _require_open(self) -> None:
        if not self._open:
            raise PvdmError("unit_closed", "this unit of work is over")

    def close(self) -> None:
        """No statement after this one."""
        self._open = False


@functools.cache
def _locking(table: Table, names: tuple[str, ...]) -> Executable:
    """Made once for each table: to make a statement takes longer than to run it."""
    return select(table).where(*(table.c[name] == bindparam(f"{name}_") for name in names)).with_for_update()


@functools.cache
def _insert_new(table: Table, is_sqlite: bool) -> Executable:
    keys = [column.name for column in table.primary_key.columns]
    statement = (sqlite.insert if is_sqlite else postgresql.insert)(table).on_conflict_do_nothing(index_elements=keys)
    return statement.execution_options(preserve_rowcount=True)


@contextlib.contextmanager
def begin(engine: Engine, turns: Turns | None, *, writing: bool, at_micros: int) -> Iterator[Unit]:
    """A connection in a transaction, when it is its turn; on the way out what was not committed is rolled back."""
    if inside():
        raise PvdmError("unit_nested", "a unit of work began inside another one; it would wait for itself")
    token = _inside.set(True)
    try:
        # Whoever waits for a turn holds no connection meanwhile: the pool has few.
        with _turn(turns, writing=writing), _connected(engine, writing=writing) as connection:
            unit = Unit(connection, turns, writing=writing, at_micros=at_micros)
            try:
                yield unit
            finally:
                unit.close()
    finally:
        _inside.reset(token)


def _turn(turns: Turns | None, *, writing: bool) -> contextlib.AbstractContextManager[None]:
    if turns is None:
        return contextlib.nullcontext()
    return turns.writing() if writing else turns.reading()


@contextlib.contextmanager
def _connected(engine: Engine, *, writing: bool) -> Iterator[Connection]:
    options: dict[str, Any] = {MODE_OPTION: "write" if writing else "read"}
    if engine.dialect.name == "postgresql" and not writing:
        options |= {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    try:
        connection = engine.connect()
    except SQLAlchemyError as error:
        raise translate(error, Phase.CONNECT) from None
    try:
        try:
            connection = connection.execution_options(**options)
            connection.begin()
        except SQLAlchemyError as error:
            raise translate(error, Phase.WORK) from None
        yield connection
    except BaseException:
        _abandon(connection)
        raise
    else:
        _abandon(connection)


def _abandon(connection: Connection) -> None:
    """Roll back what is open; a connection that cannot even do that is thrown away."""
    try:
        if connection.in_transaction():
            connection.rollback()
        connection.close()
    except SQLAlchemyError:
        connection.invalidate()
        connection.close()
