"""The two logs: the step log, to which triggers add changes of rows, and the tables of the transparency log."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from sqlalchemy import TextClause, func, or_, select, text

from pvdm.errors import Code
from pvdm.ledger import ids
from pvdm.ledger.connection import Row, convert_if_found, record_from
from pvdm.ledger.schema.record import events, log_checkpoints, log_entries, log_hashes
from pvdm.ledger.unit import Unit
from pvdm.model import canonical_json

EVENTS_PAGE_MAX_ROWS: Final = 1000
_TRIGGER_KINDS: Final = frozenset({"insert", "update"})

# A node (level, position) is the complete subtree over 2**level leaves. Its first leaf is position * 2**level.
NodeT = TypeVar("NodeT", bound=tuple[int, int])

_NODES_AT_ONCE: Final = 512
_LOCK: Final = "log"  # the name of the lock that a unit holds while it appends
_LAST_INDEX: Final = select(func.max(log_entries.c.entry_index))


@dataclass(frozen=True, slots=True)
class Event:
    """One step: which row changed (`subject` is its table), with its values before and after."""

    event_id: int
    at_micros: int
    kind: str
    subject: str
    row_key: str
    old: Mapping[str, Any] | None
    new: Mapping[str, Any] | None


def note(unit: Unit, kind: str, subject: str, row_key: str, facts: Mapping[str, canonical_json.Value]) -> None:
    """Append an event that no trigger writes, for example an operator's confirmation."""
    if kind in _TRIGGER_KINDS:
        raise Code.IDENTIFIER_INVALID(reason="event_kind_reserved", got=kind)
    unit.insert(
        events,
        kind=ids.require_name(kind, "event kind"),
        subject=ids.require_name(subject, "event subject"),
        row_key=row_key,
        old=None,
        new=canonical_json.dump(facts).decode(),
    )


def history(unit: Unit, subject: str, row_key: str, *, after: int = 0, count: int | None = None) -> list[Event]:
    """The steps of one row after an event id, oldest first. A key of several columns is joined by slashes."""
    wanted = select(events).where(events.c.subject == subject, events.c.row_key == row_key, events.c.event_id > after)
    return [_to_event(row) for row in unit.rows(wanted.order_by(events.c.event_id).limit(count))]


def page(unit: Unit, *, after: int = 0, count: int = EVENTS_PAGE_MAX_ROWS, about: str | None = None) -> list[Event]:
    """The next events after an event id, oldest first. With `about`, only events with this text as row key or value.

    On PostgreSQL ids are assigned before the commit, so a lower id may appear after a higher one was read. A client
    that follows the events reads a few ids again each time.
    """
    limit = min(count, EVENTS_PAGE_MAX_ROWS)
    wanted = select(events).where(events.c.event_id > after)
    if about is not None:
        value = json.dumps(about, ensure_ascii=False)  # as the events are stored
        has_value = [column.contains(value, autoescape=True) for column in (events.c.old, events.c.new)]
        wanted = wanted.where(or_(events.c.row_key == about, *has_value))
    return [_to_event(row) for row in unit.rows(wanted.order_by(events.c.event_id).limit(limit))]


def find_newest(unit: Unit, kind: str, subject: str, row_key: str) -> Event | None:
    """The last step of this kind about one row, or None."""
    about = (events.c.subject == subject) & (events.c.row_key == row_key) & (events.c.kind == kind)
    wanted = select(events).where(about).order_by(events.c.event_id.desc()).limit(1)
    return convert_if_found(_to_event, unit.row(wanted))


def high_water_micros(unit: Unit) -> int | None:
    """The latest time of any event. None for an empty ledger."""
    found: int | None = unit.execute(select(func.max(events.c.at_micros))).scalar_one()
    return found


def last_micros(unit: Unit, kind: str) -> int | None:
    """The latest time of an event of this kind, or None."""
    # By the index of times: it is quick if the kind is frequent.
    row = unit.row(select(events.c.at_micros).where(events.c.kind == kind).order_by(events.c.at_micros.desc()).limit(1))
    return None if row is None else int(row["at_micros"])


def _to_event(row: Row) -> Event:
    old, new = (None if row[name] is None else json.loads(row[name]) for name in ("old", "new"))
    return record_from(Event, row, old=old, new=new)


class LedgerLog:
    """The transparency log in one unit of work. It has the methods of `LogStorage` in `pvdm.trust.log`."""

    __slots__ = ("_unit",)

    def __init__(self, unit: Unit) -> None:
        self._unit = unit

    def hold(self) -> None:
        """Lock the log until the unit ends: the size that is read then is still the size at `append`."""
        self._unit.lock_name(_LOCK)

    def size(self) -> int:
        """The number of entries."""
        last: int | None = self._unit.execute(_LAST_INDEX).scalar_one()
        return 0 if last is None else last + 1

    def read_hashes(self, nodes: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        """The hashes of complete subtrees, in the order of `nodes`. Raises `log_incomplete`."""
        found: dict[tuple[int, int], bytes] = {}
        wanted = sorted({(level, position) for level, position in nodes})
        for start in range(0, len(wanted), _NODES_AT_ONCE):
            part = wanted[start : start + _NODES_AT_ONCE]
            levels = {f"level_{number}": level for number, (level, _) in enumerate(part)}
            positions = {f"position_{number}": position for number, (_, position) in enumerate(part)}
            rows = self._unit.execute(_select_hashes(len(part)), {**levels, **positions}).mappings().all()
            found |= {(row["level"], row["position"]): bytes(row["hash"]) for row in rows}
        missing = [node for node in wanted if node not in found]
        if missing:
            level, position = missing[0]
            expected = f"hash {position} of level {level}"
            raise Code.LOG_STORAGE_BROKEN(reason="log_incomplete", expected=expected, got="nothing")
        return [found[level, position] for level, position in nodes]

    def read_entries(self, start: int, end: int) -> Sequence[bytes]:
        """The entries from `start` up to, but without, `end`. Raises `log_incomplete`."""
        index = log_entries.c.entry_index
        rows = self._unit.rows(select(log_entries).where(index >= start, index < end).order_by(index))
        if [row["entry_index"] for row in rows] != list(range(start, end)):
            raise Code.LOG_STORAGE_BROKEN(reason="log_incomplete", expected=f"entries {start} to {end}", got="nothing")
        return [bytes(row["entry"]) for row in rows]

    def newest_checkpoint(self) -> bytes | None:
        """The signed note that was stored with the last append. None while the log is empty."""
        row = self._unit.row(select(log_checkpoints).order_by(log_checkpoints.c.size.desc()).limit(1))
        return None if row is None else bytes(row["note"])

    def append(self, *, at: int, entries: Sequence[bytes], hashes: Mapping[NodeT, bytes], checkpoint: bytes) -> None:
        """Append to the log of size `at`, in the caller's transaction. Raises `log_moved` if its size differs."""
        self.hold()
        size = self.size()
        if size != at:
            raise Code.LOG_MOVED(expected=f"size {at}", got=f"size {size}")
        numbered = enumerate(entries, start=at)
        self._unit.insert_many(log_entries, [{"entry_index": index, "entry": entry} for index, entry in numbered])
        nodes = [{"level": level, "position": position, "hash": value} for (level, position), value in hashes.items()]
        self._unit.insert_many(log_hashes, nodes)
        self._unit.insert(log_checkpoints, size=at + len(entries), note=checkpoint)


@functools.cache
def _select_hashes(count: int) -> TextClause:
    """Select hashes by level and position. For a plain `IN (VALUES ...)` SQLite would scan the whole table."""
    places = ", ".join(f"(:level_{number}, :position_{number})" for number in range(count))
    return text(
        "SELECT level, position, hash FROM log_hashes"  # noqa: S608 - made of numbers only
        f" WHERE (level, position) IN (SELECT * FROM (VALUES {places}) AS wanted)"
    )
