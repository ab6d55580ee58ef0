"""The unit of work: one database transaction. A thread or task has at most one; no file or HTTP call belongs in it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from sqlalchemy import BigInteger, ColumnElement, Engine, Executable, Select, Table, bindparam, func, select, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import CursorResult
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from pvdm import fault
from pvdm.errors import Code
from pvdm.ledger.connection import Phase, Row, TransactionConnection, record_from, translate_error
from pvdm.ledger.locks import ReaderWriterLock, lock_key
from pvdm.ledger.schema.record import events
from pvdm.model import canonical_json

# Kind and subject of the events in the step log (the ledger's list of changes) that say who asked for a change.
REQUEST_EVENT: Final = "asked"
REQUEST_SUBJECT: Final = "requests"
_VALUES_AT_ONCE: Final = 500

T = TypeVar("T")

_in_transaction: ContextVar[bool] = ContextVar("pvdm_ledger_in_transaction", default=False)


@dataclass(frozen=True, slots=True)
class Actor:
    """The person who makes a request (the name of the token), the request's id, and further facts for the step log."""

    name: str
    request_id: str
    facts: Mapping[str, str]


# The person whose request this thread or task executes. None for requests of programs and the Steward's own work.
_actor: ContextVar[Actor | None] = ContextVar("pvdm_ledger_actor", default=None)


@contextlib.contextmanager
def acting_as(actor: Actor | None) -> Iterator[None]:
    """Inside the block, each transaction that changes something notes this actor in the step log."""
    token = _actor.set(actor)
    try:
        yield
    finally:
        _actor.reset(token)


def in_transaction() -> bool:
    """Whether this thread or task is in a ledger transaction. Then `begin` refuses to begin another one."""
    return _in_transaction.get()


def where_given(query: Select[Any], *conditions: tuple[ColumnElement[Any], object]) -> Select[Any]:
    """The query with these columns equal to these values. A value of None is no condition."""
    return query.where(*(column == value for column, value in conditions if value is not None))


def select_page(query: Select[Any], column: ColumnElement[Any], after: object, count: int | None) -> Select[Any]:
    """The query's first `count` rows whose column is above `after`, ordered by it. A `count` of None is no limit."""
    above = query if after is None else query.where(column > after)
    return above.order_by(column).limit(count)


def _require_found(row: Row | None, reason: str, key: Mapping[str, str]) -> Row:
    """The row. Raises `record_unknown` if there is none; the error shows the key's first value."""
    if row is None:
        raise Code.RECORD_UNKNOWN(reason=reason, got=ascii(next(iter(key.values()))[:128]))
    return row


class Unit:
    """One transaction, which is rolled back unless `commit` is called. Its rows get the time `at_micros`."""

    __slots__ = ("_changed", "_connection", "_lock", "_open", "_request_facts", "_writing", "at_micros")

    def __init__(
        self, connection: TransactionConnection, lock: ReaderWriterLock | None, *, writing: bool, at_micros: int
    ) -> None:
        self._connection = connection
        self._lock = lock
        self._writing = writing
        self._open = True
        self._changed: set[str] = set()
        self._request_facts: dict[str, str] = {}
        self.at_micros = at_micros

    @property
    def is_sqlite(self) -> bool:
        """Whether the ledger is SQLite, which has only one writer at a time."""
        return self._connection.is_sqlite

    def execute(self, statement: Executable, values: Mapping[str, Any] | None = None) -> CursorResult[Any]:
        """Run one statement. Database errors are raised as pvdm errors."""
        with self._running():
            self._note_change(statement)
            return self._connection.as_sqlalchemy().execute(statement, dict(values) if values is not None else None)

    def rows(self, statement: Executable) -> list[Row]:
        """All rows at once, so that no cursor stays open."""
        return list(self.execute(statement).mappings().all())

    def records(self, record: type[T], statement: Executable) -> list[T]:
        """All rows as records of this class (`record_from`)."""
        return [record_from(record, row) for row in self.rows(statement)]

    def rows_with(self, statement: Select[Any], column: ColumnElement[str], values: Sequence[str]) -> Iterator[Row]:
        """The rows with one of these values in the column. One query has at most `_VALUES_AT_ONCE` values."""
        for start in range(0, len(values), _VALUES_AT_ONCE):
            yield from self.rows(statement.where(column.in_(values[start : start + _VALUES_AT_ONCE])))

    def row(self, statement: Executable, **values: Any) -> Row | None:
        """The one row, or None. Build a statement with `values` once per process: its compiled form is cached."""
        if not values:
            return self.execute(statement).mappings().one_or_none()
        with self._running():
            self._note_change(statement)
            return self._connection.fetch_one(statement, values)

    def change(self, statement: Executable, **values: Any) -> int:
        """Run a statement, built once per process: its compiled form is cached. Returns how many rows it changed."""
        with self._running():
            count = self._connection.execute_change(statement, values)
        if count:
            self._note_change(statement)
        return count

    def find(self, table: Table, **key: str) -> Row | None:
        """The row with this key, or None."""
        return self.row(_select_by(table, tuple(key)), **{f"{name}_": value for name, value in key.items()})

    def get(self, table: Table, reason: str, **key: str) -> Row:
        """The row with this key. Raises `record_unknown` with this reason if there is none."""
        return _require_found(self.find(table, **key), reason, key)

    def lock_row(self, table: Table, **key: str) -> Row | None:
        """The row with this key, or None; locked until the end of the transaction."""
        statement = _select_by(table, tuple(key), for_update=True)
        return self.row(statement, **{f"{name}_": value for name, value in key.items()})

    def get_locked(self, table: Table, reason: str, **key: str) -> Row:
        """The row with this key, locked until the end of the transaction. Raises `record_unknown` with this reason."""
        return _require_found(self.lock_row(table, **key), reason, key)

    def update(self, table: Table, key: Mapping[str, str], **changed: Any) -> None:
        """Change the row with this key, and give it the unit's time."""
        by_key = table.update().where(*(table.c[name] == value for name, value in key.items()))
        self.execute(by_key.values(**changed, at_micros=self.at_micros))

    def insert(self, table: Table, **values: Any) -> None:
        """Add one row with the unit's time. Raises `record_differs` (`ledger_constraint`) if its key exists."""
        timed = self._with_time(table, values)
        self.change(_insert(table, tuple(timed)), **timed)

    def insert_many(self, table: Table, rows: Sequence[dict[str, Any]]) -> None:
        """Add several rows in one round trip."""
        with self._running():
            if rows:
                self._changed.add(table.name)
                self._connection.as_sqlalchemy().execute(table.insert(), [self._with_time(table, row) for row in rows])

    def insert_new(self, table: Table, **values: Any) -> bool:
        """Add one row unless its primary key exists; returns whether it was added. One statement: there is no race."""
        timed = self._with_time(table, values)
        return self.change(_insert_new(table, tuple(timed), self.is_sqlite), **timed) == 1

    def lock_name(self, name: str) -> None:
        """Hold the lock of this name until the unit ends. Does nothing on SQLite: a writer locks the whole database."""
        if not self.is_sqlite:
            self.row(_LOCK_NAME, of_name=lock_key(name))

    @contextlib.contextmanager
    def dry_run(self) -> Iterator[None]:
        """Run the block and undo its changes. If the block raises, its changes stay until the unit is rolled back."""
        self.execute(_SAVEPOINT)
        yield
        self.execute(_ROLLBACK_TO_SAVEPOINT)

    def commit(self) -> None:
        """Commit. Raises StateUnknownError if the answer is lost; after any other error nothing was changed."""
        self._require_open()
        if not self._writing:
            raise Code.BUG(reason="unit_read_only")
        actor = _actor.get()
        if actor is not None and self._changed:
            self._log_request(actor)
        self._open = False
        fault.point("ledger.before_commit")
        try:
            with contextlib.nullcontext() if self._lock is None else self._lock.committing():
                self._connection.commit()  # after an error it discards the connection, and so the open transaction
        except SQLAlchemyError as error:
            raise translate_error(error, Phase.COMMIT) from None
        fault.point("ledger.after_commit")

    def add_request_facts(self, **facts: str) -> None:
        """Add facts about the person's request that its HTTP path does not show. `commit` puts them in the step log."""
        self._request_facts |= facts

    def _note_change(self, statement: Executable) -> None:
        if getattr(statement, "is_dml", False):
            self._changed.add(str(getattr(statement, "table", "")))

    def _log_request(self, actor: Actor) -> None:
        """Note the actor in the step log, in the transaction of the change."""
        facts = {**actor.facts, **self._request_facts, "actor": actor.name, "changed": sorted(self._changed)}
        dumped = canonical_json.dump(facts).decode()
        self.insert(events, kind=REQUEST_EVENT, subject=REQUEST_SUBJECT, row_key=actor.request_id, old=None, new=dumped)

    def _with_time(self, table: Table, values: dict[str, Any]) -> dict[str, Any]:
        return {**values, "at_micros": self.at_micros} if "at_micros" in table.c else values

    @contextlib.contextmanager
    def _running(self) -> Iterator[None]:
        """Run the block's statement, if the unit is open. Database errors are raised as pvdm errors."""
        self._require_open()
        try:
            yield
        except SQLAlchemyError as error:
            if isinstance(error, DBAPIError) and error.connection_invalidated:
                self._open = False  # everything is rolled back with the connection: no further statement may run
            raise translate_error(error, Phase.WORK) from None

    def _require_open(self) -> None:
        if not self._open:
            raise Code.BUG(reason="unit_closed")

    def close(self) -> None:
        """Refuse all further statements."""
        self._open = False


_SAVEPOINT = text("SAVEPOINT dry_run")
_ROLLBACK_TO_SAVEPOINT = text("ROLLBACK TO SAVEPOINT dry_run")
_LOCK_NAME = select(func.pg_advisory_xact_lock(bindparam("of_name", type_=BigInteger)))


# Statements are cached for each table: building one takes longer than running it.
@functools.cache
def _select_by(table: Table, names: tuple[str, ...], *, for_update: bool = False) -> Select[Any]:
    """Select the row with these columns equal to the parameters of the same names with a final underscore."""
    query = select(table).where(*(table.c[name] == bindparam(f"{name}_") for name in names))
    return query.with_for_update() if for_update else query


@functools.cache
def _insert(table: Table, names: tuple[str, ...]) -> Executable:
    return table.insert().values({name: bindparam(name) for name in names})


@functools.cache
def _insert_new(table: Table, names: tuple[str, ...], is_sqlite: bool) -> Executable:
    keys = [column.name for column in table.primary_key.columns]
    values: dict[str, Any] = {name: bindparam(name) for name in names}
    insert = (sqlite.insert if is_sqlite else postgresql.insert)(table).values(values)
    return insert.on_conflict_do_nothing(index_elements=keys)


@contextlib.contextmanager
def begin(engine: Engine, lock: ReaderWriterLock | None, *, writing: bool, at_micros: int) -> Iterator[Unit]:
    """Begin a transaction, which the end of the block rolls back unless it is committed. Only SQLite has a `lock`."""
    if in_transaction():
        raise Code.BUG(reason="unit_nested")
    token = _in_transaction.set(True)
    try:
        # The lock comes first: a thread that waits for it must not keep one of the few pooled connections.
        with _hold(lock, writing=writing), _connect(engine, writing=writing) as connection:
            unit = Unit(connection, lock, writing=writing, at_micros=at_micros)
            try:
                yield unit
            finally:
                unit.close()
    finally:
        _in_transaction.reset(token)


def _hold(lock: ReaderWriterLock | None, *, writing: bool) -> contextlib.AbstractContextManager[None]:
    if lock is None:
        return contextlib.nullcontext()
    return lock.writing() if writing else lock.reading()


@contextlib.contextmanager
def _connect(engine: Engine, *, writing: bool) -> Iterator[TransactionConnection]:
    try:
        connection = TransactionConnection(engine)
    except SQLAlchemyError as error:
        raise translate_error(error, Phase.CONNECT) from None
    try:
        try:
            connection.begin(writing=writing)
        except SQLAlchemyError as error:
            raise translate_error(error, Phase.WORK) from None
        yield connection
    finally:
        connection.close()
