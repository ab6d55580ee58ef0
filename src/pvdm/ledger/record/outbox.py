"""The outbox: events for other systems. An event is stored in the transaction of the change that it reports."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from sqlalchemy import bindparam, case, func, select

from pvdm.ledger.schema.record import outbox
from pvdm.ledger.unit import Unit
from pvdm.model import canonical_json

OUTBOX_PENDING_MAX: Final = 10_000
"""How many events of one kind may wait for delivery. Events of other kinds do not count."""
OUTBOX_BATCH_MAX: Final = 100
OUTBOX_KEPT_SECONDS: Final = 90 * 86_400
"""How long a delivered or set-aside event stays, so that the same event is not stored and sent again."""
OUTBOX_SET_ASIDE_SHOWN_SECONDS: Final = 7 * 86_400
"""How long the status shows an event that was set aside."""

_PROBLEM_CHARACTERS: Final = 300


class Channel(StrEnum):
    """The kind of receiver that events go to."""

    ALERTS = "alerts"
    LINEAGE = "lineage"


@dataclass(frozen=True, slots=True)
class OutboxEvent:
    """An event that waits for delivery."""

    event_id: str
    channel: Channel
    body: bytes
    tries: int
    created_micros: int
    problem: str | None = None  # of the last try


@dataclass(frozen=True, slots=True)
class Pending:
    """The events of a channel that wait for delivery: their number, and the time of the oldest.

    `problem` is the last problem of the oldest event that has one.
    """

    count: int
    since_micros: int
    problem: str | None


@dataclass(frozen=True, slots=True)
class SetAside:
    """How many events of a channel were set aside, because they could not be built, and the problem of the last one."""

    count: int
    problem: str | None


def event_id_of(channel: Channel, kind: str, key: str) -> str:
    """The id of an event. The same occurrence has the same id in every Steward, and after a repeated transaction."""
    return hashlib.sha256(canonical_json.dump([channel.value, kind, key])).hexdigest()[:32]


def find_stored(unit: Unit, event_ids: Sequence[str]) -> set[str]:
    """The ids among `event_ids` whose events are stored."""
    return {row["event_id"] for row in unit.rows_with(select(outbox.c.event_id), outbox.c.event_id, event_ids)}


def add(
    unit: Unit,
    channel: Channel,
    kind: str,
    event_id: str,
    body: Mapping[str, canonical_json.Value],
    *,
    domain: str = "",
    created_micros: int | None = None,
) -> bool:
    """Store an event unless it is stored already. Returns False if it is not stored, because its kind has no place.

    Each kind has `OUTBOX_PENDING_MAX` places in a channel. A domain may store an event if fewer of its events of the
    kind wait than places are free. `created_micros` is the time of the occurrence; the default is the unit's time.
    """
    waiting = unit.row(_COUNT_WAITING, of_channel=channel.value, of_kind=kind, of_domain=domain)
    if waiting is not None and waiting["of_domain"] >= OUTBOX_PENDING_MAX - waiting["of_kind"]:
        return bool(find_stored(unit, [event_id]))
    unit.insert_new(
        outbox,
        event_id=event_id,
        channel=channel,
        kind=kind,
        domain=domain,
        body=canonical_json.dump(body).decode(),
        due_micros=unit.at_micros,
        tries=0,
        problem=None,
        done_micros=None,
        created_micros=unit.at_micros if created_micros is None else created_micros,
    )
    return True


def list_due(unit: Unit, channel: Channel, now_micros: int) -> list[OutboxEvent]:
    """The events of the channel that are due for delivery: the oldest of each kind and domain, then the next of each.

    So an event does not wait until all earlier events of other kinds or domains are delivered.
    """
    c = outbox.c
    by_age = (c.created_micros, c.event_id)
    turn = func.row_number().over(partition_by=(c.kind, c.domain), order_by=by_age).label("turn")
    due = select(outbox, turn).where(c.done_micros.is_(None), c.channel == channel, c.due_micros <= now_micros)
    found = due.subquery()
    in_turn = select(found).order_by(found.c.turn, found.c.created_micros, found.c.event_id)
    return unit.records(OutboxEvent, in_turn.limit(OUTBOX_BATCH_MAX))


def note_delivered(unit: Unit, event_id: str) -> None:
    """Store that the receiver has accepted the event."""
    unit.update(outbox, {"event_id": event_id}, done_micros=unit.at_micros, problem=None)


def note_problem(unit: Unit, event: OutboxEvent, problem: str, *, due_micros: int) -> None:
    """Store that a delivery failed, and when to try again."""
    changed = {"tries": event.tries + 1, "problem": problem[:_PROBLEM_CHARACTERS], "due_micros": due_micros}
    unit.update(outbox, {"event_id": event.event_id}, **changed)


def set_aside(unit: Unit, event: OutboxEvent, problem: str) -> None:
    """Store that the event will not be delivered, and why."""
    changed = {"tries": event.tries + 1, "problem": problem[:_PROBLEM_CHARACTERS], "done_micros": unit.at_micros}
    unit.update(outbox, {"event_id": event.event_id}, **changed)


def find_pending(unit: Unit, channel: Channel) -> Pending | None:
    """The channel's events that wait for delivery; None if there is none."""
    c = outbox.c
    pending = (c.done_micros.is_(None), c.channel == channel)
    counted = unit.row(select(func.count().label("count"), func.min(c.created_micros).label("oldest")).where(*pending))
    if counted is None or counted["count"] == 0:
        return None
    failed = select(c.problem).where(*pending, c.problem.is_not(None)).order_by(c.created_micros, c.event_id).limit(1)
    row = unit.row(failed)
    return Pending(counted["count"], counted["oldest"], None if row is None else row["problem"])


def find_set_aside(unit: Unit, channel: Channel, *, since_micros: int) -> SetAside | None:
    """The channel's events that were set aside since that time; None if there is none."""
    c = outbox.c
    wanted = select(c.problem, func.count().over().label("count"))
    wanted = wanted.where(c.channel == channel, c.done_micros >= since_micros, c.problem.is_not(None))
    row = unit.row(wanted.order_by(c.done_micros.desc(), c.event_id).limit(1))
    return None if row is None else SetAside(row["count"], row["problem"])


def forget_old(unit: Unit) -> None:
    """Delete events that were delivered or set aside more than `OUTBOX_KEPT_SECONDS` ago."""
    before = unit.at_micros - OUTBOX_KEPT_SECONDS * 1_000_000
    unit.execute(outbox.delete().where(outbox.c.done_micros < before))


_COUNT_WAITING: Final = select(
    func.count().label("of_kind"),
    func.count(case((outbox.c.domain == bindparam("of_domain"), 1))).label("of_domain"),
).where(
    outbox.c.done_micros.is_(None),
    outbox.c.channel == bindparam("of_channel"),
    outbox.c.kind == bindparam("of_kind"),
)
