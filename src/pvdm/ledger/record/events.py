"""The step log: append-only. Triggers write every inserted and changed row into it; code adds notes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import func, or_, select

from pvdm.errors import Code
from pvdm.ledger import ids
from pvdm.ledger.connection import Row, record_from
from pvdm.ledger.schema.record import events
from pvdm.ledger.unit import Unit
from pvdm.model import canonical_json

EVENTS_PAGE_MAX_ROWS: Final = 1000
_BY_TRIGGER: Final = frozenset({"insert", "update"})


@dataclass(frozen=True, slots=True)
class Event:
    """One step: which row changed, with its values before and after."""

    event_id: int
    at_micros: int
    kind: str
    subject: str
    row_key: str
    old: Mapping[str, Any] | None
    new: Mapping[str, Any] | None


def note(unit: Unit, kind: str, subject: str, row_key: str, facts: Mapping[str, canonical_json.Value]) -> None:
    """Append an event that is not a row change, for example an operator's confirmation."""
    if kind in _BY_TRIGGER:
        raise Code.EVENT_KIND_RESERVED(got=kind)
    unit.insert(
        events,
        kind=ids.require_name(kind, "event kind"),
        subject=ids.require_name(subject, "event subject"),
        row_key=row_key,
        old=None,
        new=canonical_json.dump(facts).decode(),
    )


def history(unit: Unit, subject: str, row_key: str, *, after: int = 0, count: int | None = None) -> list[Event]:
    """The steps of one row after an id, oldest first, at most `count`.

    A key of several columns is joined by slashes.
    """
    wanted = select(events).where(events.c.subject == subject, events.c.row_key == row_key, events.c.event_id > after)
    return [_event(row) for row in unit.rows(wanted.order_by(events.c.event_id).limit(count))]


def page(unit: Unit, *, after: int = 0, count: int = EVENTS_PAGE_MAX_ROWS, about: str | None = None) -> list[Event]:
    """The next events after an id, oldest first. With `about`, only those of rows with this key or value.

    On PostgreSQL ids are assigned before the commit, so a lower id may appear after a higher one was read. A follower
    reads again from a little below.
    """
    limit = min(count, EVENTS_PAGE_MAX_ROWS)
    wanted = select(events).where(events.c.event_id > after)
    if about is not None:
        value = json.dumps(about)
        within = [column.contains(value, autoescape=True) for column in (events.c.old, events.c.new)]
        wanted = wanted.where(or_(events.c.row_key == about, *within))
    return [_event(row) for row in unit.rows(wanted.order_by(events.c.event_id).limit(limit))]


def newest(unit: Unit, kind: str, subject: str, row_key: str) -> Event | None:
    """The last step of this kind about one row, or None."""
    about = (events.c.subject == subject) & (events.c.row_key == row_key) & (events.c.kind == kind)
    row = unit.row(select(events).where(about).order_by(events.c.event_id.desc()).limit(1))
    return None if row is None else _event(row)


def high_water_micros(unit: Unit) -> int | None:
    """The latest time of any event. None for an empty ledger."""
    found: int | None = unit.execute(select(func.max(events.c.at_micros))).scalar_one()
    return found


def _event(row: Row) -> Event:
    old, new = (None if row[name] is None else json.loads(row[name]) for name in ("old", "new"))
    return record_from(Event, row, old=old, new=new)
