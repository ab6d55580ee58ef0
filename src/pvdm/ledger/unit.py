"""The unit of work: one transaction, committed only by saying so, with nothing but SQL inside."""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from sqlalchemy import BigInteger, Engine, Executable, RowMapping, Select, Table, bindparam, func, inspect, select, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import CursorResult
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from pvdm import fault
from pvdm.errors import PvdmError
from pvdm.ledger.actor import ASKED, REQUESTS, Actor, actor
from pvdm.ledger.connection import Link, Row
from pvdm.ledger.failures import Phase, translate
from pvdm.ledger.fair_lock import Turns
from pvdm.ledger.schema.work import events
from pvdm.model import canonical_json

_inside: ContextVar[bool] = ContextVar("pvdm_store_inside", default=False)


def inside() -> bool:
    """Whether this thread or task is in a ledger transaction; what does other I/O may ask, and refuse."""
    return _inside.get()


class Unit:
    """One transaction; leaving it without `commit` undoes everything."""

    __slots__ = ("_changed", "_link", "_open", "_told", "_turns", "_writing", "at_micros")

    def __init__(self, link: Link, turns: Turns | None, *, writing: bool, at_micros: int) -> None:
        self._link = link
        self._turns = turns
        self._writing = writing
        self._open = True
        self._changed: set[str] = set()
        self._told: dict[str, str] = {}
        self.at_micros = at_micros

    @property
    def is_sqlite(self) -> bool:
        """Whether the ledger is the embedded one, in which a writer is alone anyway."""
        return self._link.is_sqlite

    def execute(self, statement: Executable, values: Mapping[str, Any] | None = None) -> CursorResult[Any]:
        """Run one statement; errors come out as pvdm errors."""
        self._require_open()
        self._note_change(statement)
        try:
            return self._link.dressed().execute(statement, dict(values) if values is not None else None)
        except SQLAlchemyError as error:
            raise self._failed(error) from None

    def rows(self, statement: Executable) -> list[RowMapping]:
        """All rows at once: no cursor stays open while the caller thinks."""
        return list(self.execute(statement).mappings().all())

    def row(self, statement: Executable, **values: Any) -> Row | None:
        """The one row, or None; `values` are for a statement that was made beforehand, once for all times."""
        if not values:
            return self.execute(statement).mappings().one_or_none()
        self._require_open()
        self._note_change(statement)
        try:
            return self._link.one(statement, values)
        except SQLAlchemyError as error:
            raise self._failed(error) from None

    def change(self, statement: Executable, **values: Any) -> int:
        """Run a statement that was made beforehand, once for all times; how many rows are other now."""
        self._require_open()
        try:
            count = self._link.count(statement, values)
        except SQLAlchemyError as error:
            raise self._failed(error) from None
        if count:
            self._note_change(statement)
        return count

    def has_table(self, name: str) -> bool:
        """Whether the database has such a table."""
        self._require_open()
        return inspect(self._link.dressed()).has_table(name)

    def found(self, table: Table, **key: str) -> Row | None:
        """The row with this key, or None."""
        return self.row(_finding(table, tuple(key)), **{f"{name}_": value for name, value in key.items()})

    def locked(self, table: Table, **key: str) -> Row | None:
        """The row under a lock that holds until the end, so that what is judged is what is changed."""
        return self.row(_locking(table, tuple(key)), **{f"{name}_": value for name, value in key.items()})

    def insert(self, table: Table, **values: Any) -> None:
        """Add one row with the unit's time; what is already there is a conflict."""
        timed = self._timed(table, values)
        self.change(_insert(table, tuple(timed)), **timed)

    def insert_many(self, table: Table, rows: Sequence[dict[str, Any]]) -> None:
        """Add several rows in one round trip."""
        self._require_open()
        if not rows:
            return
        self._changed.add(table.name)
        try:
            self._link.dressed().execute(table.insert(), [self._timed(table, row) for row in rows])
        except SQLAlchemyError as error:
            raise self._failed(error) from None

    def insert_new(self, table: Table, **values: Any) -> bool:
        """Add one row unless its primary key is taken; says whether it did. One statement, so there is no race."""
        timed = self._timed(table, values)
        return self.change(_insert_new(table, tuple(timed), self.is_sqlite), **timed) == 1

    def lock_name(self, name: str) -> None:
        """Wait for everyone else who holds this name; on SQLite a writer already has the whole database."""
        if not self.is_sqlite:
            self.row(_LOCK_NAME, of_name=key_of_name(name))

    @contextlib.contextmanager
    def rehearsed(self) -> Iterator[None]:
        """Everything inside is done, so that whatever stands against it is raised, and then undone."""
        self.execute(_REHEARSE)
        yield
        self.execute(_UNDO)

    def commit(self) -> None:
        """Make it durable. A lost answer is StateUnknownError; any other error means that nothing happened."""
        self._require_open()
        if not self._writing:
            raise PvdmError("unit_read_only", "a reading unit has nothing to commit")
        who = actor()
        if who is not None and self._changed:
            self._say_who(who)
        self._open = False
        fault.point("ledger.before_commit")
        try:
            with contextlib.nullcontext() if self._turns is None else self._turns.committing():
                # After an error the transaction may still be open in the driver: the link then closes the connection.
                self._link.commit()
        except SQLAlchemyError as error:
            raise translate(error, Phase.COMMIT) from None
        fault.point("ledger.after_commit")

    def tell(self, **facts: str) -> None:
        """What a person's change is about, where the request's path does not say it."""
        self._told |= facts

    def _note_change(self, statement: Executable) -> None:
        if getattr(statement, "is_dml", False):
            self._changed.add(str(getattr(statement, "table", "")))

    def _say_who(self, who: Actor) -> None:
        """In the same transaction as the change: neither is ever there without the other."""
        facts = {**who.facts, **self._told, "actor": who.name, "changed": sorted(self._changed)}
        told = canonical_json.dump(facts).decode()
        self.insert(events, kind=ASKED, subject=REQUESTS, row_key=who.request_id, old=None, new=told)

    def _timed(self, table: Table, values: dict[str, Any]) -> dict[str, Any]:
        return {**values, "at_micros": self.at_micros} if "at_micros" in table.c else values

    def _failed(self, error: SQLAlchemyError) -> PvdmError:
        if isinstance(error, DBAPIError) and error.connection_invalidated:
            self._open = False  # all that was done is undone with the connection: nothing follows as if it were there
        return translate(error, Phase.WORK)

    def _require_open(self) -> None:
        if not self._open:
            raise PvdmError("unit_closed", "this unit of work is over")

    def close(self) -> None:
        """No statement after this one."""
        self._open = False


_REHEARSE = text("SAVEPOINT rehearsed")
_UNDO = text("ROLLBACK TO SAVEPOINT rehearsed")
_LOCK_NAME = select(func.pg_advisory_xact_lock(bindparam("of_name", type_=BigInteger)))


@functools.cache
def _finding(table: Table, names: tuple[str, ...]) -> Select[Any]:
    """Made once for each table: to make a statement takes longer than to run it."""
    return select(table).where(*(table.c[name] == bindparam(f"{name}_") for name in names))


@functools.cache
def _locking(table: Table, names: tuple[str, ...]) -> Executable:
    return _finding(table, names).with_for_update()


@functools.cache
def _insert(table: Table, names: tuple[str, ...]) -> Executable:
    return table.insert().values({name: bindparam(name) for name in names})


@functools.cache
def _insert_new(table: Table, names: tuple[str, ...], is_sqlite: bool) -> Executable:
    keys = [column.name for column in table.primary_key.columns]
    values: dict[str, Any] = {name: bindparam(name) for name in names}
    made = (sqlite.insert if is_sqlite else postgresql.insert)(table).values(values)
    return made.on_conflict_do_nothing(index_elements=keys)


def key_of_name(name: str) -> int:
    """The number under which PostgreSQL locks a name."""
    return int.from_bytes(hashlib.sha256(b"pvdm lock " + name.encode()).digest()[:8], "big", signed=True)


@contextlib.contextmanager
def begin(engine: Engine, turns: Turns | None, *, writing: bool, at_micros: int) -> Iterator[Unit]:
    """A connection in a transaction, when it is its turn; on the way out what was not committed is rolled back."""
    if inside():
        raise PvdmError("unit_nested", "a unit of work began inside another one; it would wait for itself")
    token = _inside.set(True)
    try:
        # Whoever waits for a turn holds no connection meanwhile: the pool has few.
        with _turn(turns, writing=writing), _linked(engine, writing=writing) as link:
            unit = Unit(link, turns, writing=writing, at_micros=at_micros)
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
def _linked(engine: Engine, *, writing: bool) -> Iterator[Link]:
    try:
        link = Link(engine)
    except SQLAlchemyError as error:
        raise translate(error, Phase.CONNECT) from None
    try:
        try:
            link.begin(writing=writing)
        except SQLAlchemyError as error:
            raise translate(error, Phase.WORK) from None
        yield link
    finally:
        link.close()
