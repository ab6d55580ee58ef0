"""The outbox: events for other systems, stored in the transaction of the change that they are about."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from sqlalchemy import bindparam, func, select

from pvdm.ledger.connection import record_from
from pvdm.ledger.schema.record import outbox
from pvdm.ledger.unit import Unit
from pvdm.model import canonical_json

OUTBOX_PENDING_MAX: Final = 10_000
"""How many events of one channel may wait for delivery. Further ones are not stored."""
OUTBOX_BATCH_MAX: Final = 100
OUTBOX_KEPT_SECONDS: Final = 90 * 86_400
"""How long a delivered event stays, so that the same event is not stored and sent again."""

_PROBLEM_CHARACTERS: Final = 300


class Channel(StrEnum):
    """Where events go."""

    ALERTS = "alerts"
    LINEAGE = "lineage"


@dataclass(frozen=True, slots=True)
class OutboxEvent:
    """An event that is not delivered yet."""

    event_id: str
    channel: Channel
    body: bytes
    tries: int
    created_micros: int


@dataclass(frozen=True, slots=True)
class Pending:
    """The events of a channel that are not delivered: their number, the oldest one's time, and its last problem."""

    count: int
    since_micros: int
    problem: str | None


def event_id_of(channel: Channel, kind: str, key: str) -> str:
    """The id of an event. The same occurrence has the same id in every Steward, and after a repeated transaction."""
    return hashlib.sha256(canonical_json.dump([channel.value, kind, key])).hexdigest()[:32]


def add(
    unit: Unit,
    channel: Channel,
    event_id: str,
    body: Mapping[str, canonical_json.Value],
    *,
    created_micros: int | None = None,
) -> bool:
    """Store an event unless it is stored. Returns False if it is not, because too many events of the channel wait.

    `created_micros` is when the event happened; the default is the unit's time.
    """
    waiting = unit.row(_COUNT_PENDING, of_channel=channel.value)
    if waiting is not None and waiting["count"] >= OUTBOX_PENDING_MAX:
        return False
    unit.insert_new(
        outbox,
        event_id=event_id,
        channel=channel,
        body=canonical_json.dump(body).decode(),
        due_micros=unit.at_micros,
        tries=0,
        problem=None,
        delivered_micros=None,
        created_micros=unit.at_micros if created_micros is None else created_micros,
    )
    return True


def list_due(unit: Unit, channel: Channel, now_micros: int) -> list[OutboxEvent]:
    """The events of the channel that are due for delivery, oldest first."""
    c = outbox.c
    wanted = select(outbox).where(c.delivered_micros.is_(None), c.channel == channel, c.due_micros <= now_micros)
    return unit.records(OutboxEvent, wanted.order_by(c.created_micros, c.event_id).limit(OUTBOX_BATCH_MAX))


def note_delivered(unit: Unit, event_id: str) -> None:
    """Note that the receiver has accepted the event."""
    unit.update(outbox, {"event_id": event_id}, delivered_micros=unit.at_micros, problem=None)


def note_problem(unit: Unit, event: OutboxEvent, problem: str, *, due_micros: int) -> None:
    """Note that a delivery failed, and when to try again."""
    changed = {"tries": event.tries + 1, "problem": problem[:_PROBLEM_CHARACTERS], "due_micros": due_micros}
    unit.update(outbox, {"event_id": event.event_id}, **changed)


def find_pending(unit: Unit, channel: Channel) -> Pending | None:
    """The channel's events that are not delivered, or None if there is none."""
    c = outbox.c
    pending = (c.delivered_micros.is_(None), c.channel == channel)
    counted = unit.row(_COUNT_PENDING, of_channel=channel.value)
    oldest = unit.row(select(outbox).where(*pending).order_by(c.created_micros, c.event_id).limit(1))
    if counted is None or oldest is None:
        return None
    return record_from(Pending, oldest, count=counted["count"], since_micros=oldest["created_micros"])


def forget_old(unit: Unit) -> None:
    """Delete events that were delivered long ago."""
    before = unit.at_micros - OUTBOX_KEPT_SECONDS * 1_000_000
    unit.execute(outbox.delete().where(outbox.c.delivered_micros < before))


_COUNT_PENDING: Final = select(func.count().label("count")).where(
    outbox.c.delivered_micros.is_(None), outbox.c.channel == bindparam("of_channel")
)
