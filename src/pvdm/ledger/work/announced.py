"""Announced publications: what an upstream catalog is asked to publish, stored before the request is sent.

A publication is open until its result is known. Until then no other publication to the table is announced, and the
attempts and nonces of the open publication keep their states.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import select

from pvdm.errors import Code
from pvdm.ledger import ids
from pvdm.ledger.connection import record_from, record_if_found
from pvdm.ledger.schema.catalog import announced, announced_attempts
from pvdm.ledger.unit import Unit
from pvdm.model.states import ANNOUNCED, AnnouncedState

LEDGER_CHANGES_MAX_BYTES: Final = 67_108_864


@dataclass(frozen=True, slots=True)
class NewAnnouncement:
    """What is announced. `attempts` are pairs of attempt id and nonce; `holder` is the process that sends the request.

    `order_text` is the JSON of the gate's `LedgerChanges`, which are applied once the upstream shows the snapshot.
    """

    announced_id: str
    table_uuid: str
    workload_id: str
    snapshot_id: str
    attempts: tuple[tuple[str, str], ...]
    override_nonce: str | None
    holder: str
    order_text: str


@dataclass(frozen=True, slots=True)
class AnnouncedPublication:
    """An announced publication in the ledger."""

    announced_id: str
    table_uuid: str
    workload_id: str
    snapshot_id: str
    holder: str
    order_text: str
    state: AnnouncedState
    at_micros: int


def announce(unit: Unit, new: NewAnnouncement) -> AnnouncedPublication:
    """Announce a publication to the table. Raises `publication_under_way` if another one is open."""
    require_no_open_publication(unit, new.table_uuid)
    unit.insert(
        announced,
        announced_id=ids.require_random_id(new.announced_id, "announced id"),
        table_uuid=ids.require_name(new.table_uuid, "table UUID"),
        workload_id=new.workload_id,
        snapshot_id=ids.require_snapshot_id(new.snapshot_id),
        override_nonce=new.override_nonce,
        holder=ids.require_name(new.holder, "holder"),
        order_text=ids.require_text_size(new.order_text, LEDGER_CHANGES_MAX_BYTES, "announced_too_large"),
        state=ANNOUNCED.initial,
        reason="announced",
    )
    rows = [{"announced_id": new.announced_id, "attempt_id": id_, "nonce": nonce} for id_, nonce in new.attempts]
    unit.insert_many(announced_attempts, rows)
    return get(unit, new.announced_id)


def get(unit: Unit, announced_id: str) -> AnnouncedPublication:
    """The announced publication. Raises `announced_unknown`."""
    return record_from(AnnouncedPublication, unit.get(announced, "announced_unknown", announced_id=announced_id))


def list_open(unit: Unit) -> list[AnnouncedPublication]:
    """Every open publication, oldest first. At its start the Steward asks the upstream for their results."""
    wanted = select(announced).where(announced.c.state == AnnouncedState.OPEN)
    return unit.records(AnnouncedPublication, wanted.order_by(announced.c.at_micros, announced.c.announced_id))


def find_open(unit: Unit, table_uuid: str) -> AnnouncedPublication | None:
    """The open publication to this table, or None."""
    return record_if_found(AnnouncedPublication, unit.find(announced, table_uuid=table_uuid, state=AnnouncedState.OPEN))


def list_by_attempt(unit: Unit, attempt_id: str) -> list[AnnouncedPublication]:
    """Every publication of the attempt that was ever announced, oldest first."""
    same_publication = announced_attempts.c.announced_id == announced.c.announced_id
    wanted = select(announced).join(announced_attempts, same_publication)
    wanted = wanted.where(announced_attempts.c.attempt_id == attempt_id)
    return unit.records(AnnouncedPublication, wanted.order_by(announced.c.at_micros, announced.c.announced_id))


def find_by_snapshot(unit: Unit, table_uuid: str, snapshot_id: str) -> AnnouncedPublication | None:
    """The publication of this snapshot of the table, or None. RELEASED publications (given up) do not count."""
    wanted = select(announced).where(
        announced.c.table_uuid == table_uuid,
        announced.c.snapshot_id == snapshot_id,
        announced.c.state != AnnouncedState.RELEASED,
    )
    return record_if_found(AnnouncedPublication, unit.row(wanted))


def find_open_snapshots(unit: Unit, snapshot_ids: Sequence[str]) -> set[str]:
    """The ids among `snapshot_ids` that an open publication may make visible at any moment."""
    return {each.snapshot_id for each in list_open(unit)} & set(snapshot_ids)


def require_unannounced(unit: Unit, table_uuid: str, snapshot_ids: Sequence[str]) -> None:
    """Raise `snapshot_id_taken` if a publication ever had one of these ids: an id must identify one snapshot."""
    of_table = select(announced.c.snapshot_id).where(announced.c.table_uuid == table_uuid)
    wanted = of_table.where(announced.c.snapshot_id.in_(snapshot_ids))
    row = unit.row(wanted.order_by(announced.c.snapshot_id).limit(1)) if snapshot_ids else None
    if row is not None:
        raise Code.SNAPSHOT_ID_TAKEN(got=row["snapshot_id"])


def settle(unit: Unit, announced_id: str, to: AnnouncedState, *, reason: str) -> bool:
    """Set an open publication to the final state `to`. Returns False if it has it already; raises if it has another."""
    state = AnnouncedState(unit.get_locked(announced, "announced_unknown", announced_id=announced_id)["state"])
    if state is to:
        return False
    if not ANNOUNCED.allows(state, to):
        raise Code.ANNOUNCED_SETTLED("the publication is already settled in another way", expected=to, got=state)
    unit.update(announced, {"announced_id": announced_id}, state=to, reason=ids.require_reason(reason))
    return True


def require_no_open_publication(unit: Unit, table_uuid: str) -> None:
    """Raise `publication_under_way` if a publication to the table is open."""
    found = find_open(unit, table_uuid)
    if found is not None:
        raise Code.PUBLICATION_UNDER_WAY(got=f"snapshot {found.snapshot_id} of workload {found.workload_id}")


def require_attempt_free(unit: Unit, attempt_id: str) -> None:
    """Raise `attempt_announced` if a publication of the attempt is open."""
    for each in list_by_attempt(unit, attempt_id):
        if each.state is AnnouncedState.OPEN:
            raise Code.ATTEMPT_ANNOUNCED(got=f"snapshot {each.snapshot_id}", attempt_id=attempt_id)
