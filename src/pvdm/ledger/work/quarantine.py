"""The quarantine: files of failed attempts, and what operators have removed from it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import and_, or_, select, update

from pvdm.ledger import ids
from pvdm.ledger.connection import Row, record_from
from pvdm.ledger.record import events
from pvdm.ledger.schema.work import DisposalWord, disposals, quarantine_removals, workloads
from pvdm.ledger.schema.work import attempts as attempts_table
from pvdm.ledger.unit import Unit, in_batches
from pvdm.ledger.work import attempts
from pvdm.ledger.work.attempts import Attempt
from pvdm.model.states import AttemptState

QUARANTINE_PAGE_MAX_ROWS: Final = 100


@dataclass(frozen=True, slots=True)
class Removal:
    """Who removed an attempt's files, and why. `done` once all of them are removed."""

    attempt_id: str
    token_id: str
    name: str
    reason: str
    files: int
    size_bytes: int
    done: bool


def page(
    unit: Unit,
    *,
    domain: str | None,
    table_uuid: str | None = None,
    after: str | None = None,
    count: int = QUARANTINE_PAGE_MAX_ROWS,
    back: Collection[str] = (),
) -> list[Attempt]:
    """Attempts whose files are in quarantine, oldest first, after the one of this id; all domains, or one.

    `back` are attempts whose files were removed, but of which some are there again.
    """
    wanted = _select_quarantined(back)
    if domain is not None:
        wanted = wanted.where(workloads.c.domain == domain)
    if table_uuid is not None:
        wanted = wanted.where(workloads.c.table_uuid == table_uuid)
    if after is not None:
        last = attempts.get(unit, after)
        at, name = attempts_table.c.at_micros, attempts_table.c.attempt_id
        wanted = wanted.where(or_(at > last.at_micros, and_(at == last.at_micros, name > last.attempt_id)))
    wanted = wanted.order_by(attempts_table.c.at_micros, attempts_table.c.attempt_id)
    rows = unit.rows(wanted.limit(min(count, QUARANTINE_PAGE_MAX_ROWS)))
    return [attempts.get(unit, row["attempt_id"]) for row in rows]


def holds(unit: Unit, attempt_id: str) -> bool:
    """Whether the attempt's files are in quarantine, or some may be after an interrupted removal."""
    return unit.row(_select_quarantined().where(attempts_table.c.attempt_id == attempt_id)) is not None


def find_removal(unit: Unit, attempt_id: str) -> Removal | None:
    """Who removed the attempt's files, or None."""
    row = unit.find(quarantine_removals, attempt_id=attempt_id)
    return None if row is None else _removal(row)


def begin_removal(unit: Unit, removal: Removal) -> Removal:
    """Note who removes the attempt's files and why, before the first is deleted. The first note stays."""
    unit.insert_new(
        quarantine_removals,
        attempt_id=removal.attempt_id,
        token_id=removal.token_id,
        name=ids.require_name(removal.name, "name"),
        reason=ids.require_reason(removal.reason),
        files=removal.files,
        bytes=removal.size_bytes,
        done=0,
    )
    found = find_removal(unit, removal.attempt_id)
    if found is None:
        raise AssertionError("it was just put there")
    return found


def note_again(unit: Unit, removal: Removal) -> Removal:
    """Note who removes files that are there again after a removal, and why. The first record stays."""
    return _note(unit, "quarantine_removed_again", removal)


def note_unknown(unit: Unit, removal: Removal) -> Removal:
    """Note who removes files of an attempt that the ledger does not know, and why."""
    return _note(unit, "quarantine_removed_unknown", removal)


def _note(unit: Unit, kind: str, removal: Removal) -> Removal:
    facts: dict[str, str | int] = {
        "token_id": removal.token_id,
        "name": ids.require_name(removal.name, "name"),
        "reason": ids.require_reason(removal.reason),
        "files": removal.files,
        "bytes": removal.size_bytes,
    }
    events.note(unit, kind, "quarantine_removals", removal.attempt_id, facts)
    return replace(removal, done=True)


def removed_among(unit: Unit, attempt_ids: Sequence[str]) -> list[str]:
    """Those of the attempts whose files were all removed."""
    found: list[str] = []
    c = quarantine_removals.c
    for some in in_batches(attempt_ids):
        wanted = select(c.attempt_id).where(c.attempt_id.in_(some), c.done == 1)
        found += [row["attempt_id"] for row in unit.rows(wanted)]
    return found


def unknown_among(unit: Unit, attempt_ids: Sequence[str]) -> list[str]:
    """Those ids that belong to no attempt of this ledger."""
    known: set[str] = set()
    c = attempts_table.c
    for some in in_batches(attempt_ids):
        known.update(row["attempt_id"] for row in unit.rows(select(c.attempt_id).where(c.attempt_id.in_(some))))
    return [each for each in attempt_ids if each not in known]


def end_removal(unit: Unit, attempt_id: str) -> None:
    """Note that all files of the attempt are removed."""
    wanted = update(quarantine_removals).where(quarantine_removals.c.attempt_id == attempt_id)
    unit.execute(wanted.where(quarantine_removals.c.done == 0).values(done=1, at_micros=unit.at_micros))


def _select_quarantined(back: Collection[str] = ()) -> Any:
    """Failed attempts in quarantine whose files were not removed, or are there again."""
    both = workloads.c.workload_id == attempts_table.c.workload_id
    kept = disposals.c.attempt_id == attempts_table.c.attempt_id
    gone = quarantine_removals.c.attempt_id == attempts_table.c.attempt_id
    wanted = select(attempts_table.c.attempt_id).join(workloads, both).join(disposals, kept)
    wanted = wanted.outerjoin(quarantine_removals, gone)
    return wanted.where(
        attempts_table.c.state == AttemptState.VERIFICATION_FAILED,
        disposals.c.outcome == DisposalWord.QUARANTINED,
        or_(
            quarantine_removals.c.done.is_(None), quarantine_removals.c.done == 0, attempts_table.c.attempt_id.in_(back)
        ),
    )


def _removal(row: Row) -> Removal:
    return record_from(Removal, row, size_bytes=row["bytes"], done=bool(row["done"]))
