"""What became of the files of ended attempts, and whose files are in quarantine, the vault's part for failed files."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from sqlalchemy import Select, and_, or_, select, update

from pvdm.ledger import ids
from pvdm.ledger.connection import Row, convert_if_found, record_from, record_if_found
from pvdm.ledger.record import events
from pvdm.ledger.schema.work import DisposalOutcome, disposals, quarantine_removals, workloads
from pvdm.ledger.schema.work import attempts as attempts_table
from pvdm.ledger.unit import Unit, where_given
from pvdm.ledger.work import attempts
from pvdm.ledger.work.attempts import Attempt
from pvdm.model.states import ATTEMPT

PENDING_PAGE_MAX_ROWS: Final = 1_000
QUARANTINE_PAGE_MAX_ROWS: Final = 100
_NOTE_CHARACTERS: Final = 1_000


@dataclass(frozen=True, slots=True)
class DisposalRecord:
    """What became of an ended attempt's files: how many were removed, how many are kept because they are in use."""

    attempt_id: str
    outcome: DisposalOutcome
    removed: int
    kept: int
    note: str


def put_disposal(unit: Unit, record: DisposalRecord) -> DisposalRecord:
    """Note that an ended attempt is cleaned up. A second call changes nothing and returns the first record."""
    unit.insert_new(disposals, **asdict(replace(record, note=record.note[:_NOTE_CHARACTERS])))
    return record_from(DisposalRecord, unit.get(disposals, "attempt_unknown", attempt_id=record.attempt_id))


def find_disposal(unit: Unit, attempt_id: str) -> DisposalRecord | None:
    """What became of the attempt's files, or None."""
    return record_if_found(DisposalRecord, unit.find(disposals, attempt_id=attempt_id))


def list_undisposed(unit: Unit, *, since_micros: int = 0) -> list[Attempt]:
    """Attempts that have ended since that time and are not cleaned up yet, oldest first."""
    cleaned_up = select(disposals.c.attempt_id)
    c = attempts_table.c
    pending = (c.state.in_(ATTEMPT.terminal()), c.attempt_id.not_in(cleaned_up), c.at_micros >= since_micros)
    wanted = select(attempts_table).where(*pending).order_by(c.at_micros).limit(PENDING_PAGE_MAX_ROWS)
    return unit.records(Attempt, wanted)


@dataclass(frozen=True, slots=True)
class Removal:
    """Who (the token's id and name) removed an attempt's files from quarantine, and why. `done`: all are removed."""

    attempt_id: str
    token_id: str
    name: str
    reason: str
    files: int
    size_bytes: int
    done: bool


def page_quarantined(
    unit: Unit, *, domain: str | None, table_uuid: str | None, after: str | None, unexpected: Collection[str]
) -> list[Attempt]:
    """Attempts whose files are in quarantine, oldest first, after the attempt `after`; of one domain, or of all.

    `unexpected` are attempts of `find_unexpected` that have files in quarantine.
    """
    wanted = _select_quarantined(unexpected)
    wanted = where_given(wanted, (workloads.c.domain, domain), (workloads.c.table_uuid, table_uuid))
    if after is not None:
        last = attempts.get(unit, after)
        at, attempt_id = attempts_table.c.at_micros, attempts_table.c.attempt_id
        wanted = wanted.where(or_(at > last.at_micros, and_(at == last.at_micros, attempt_id > last.attempt_id)))
    wanted = wanted.order_by(attempts_table.c.at_micros, attempts_table.c.attempt_id)
    return unit.records(Attempt, wanted.limit(QUARANTINE_PAGE_MAX_ROWS))


def is_in_quarantine(unit: Unit, attempt_id: str) -> bool:
    """Whether the attempt's files are in quarantine, or some may be after an interrupted removal."""
    return unit.row(_select_quarantined().where(attempts_table.c.attempt_id == attempt_id)) is not None


def find_removal(unit: Unit, attempt_id: str) -> Removal | None:
    """Who removed the attempt's files, or None."""
    return convert_if_found(_to_removal, unit.find(quarantine_removals, attempt_id=attempt_id))


def begin_removal(unit: Unit, removal: Removal) -> Removal:
    """Note who removes the attempt's files, before the first is deleted. Returns the first note if there is one."""
    unit.insert_new(quarantine_removals, attempt_id=removal.attempt_id, **_removal_facts(removal), done=0)
    return _to_removal(unit.get(quarantine_removals, "attempt_unknown", attempt_id=removal.attempt_id))


def add_removal_event(unit: Unit, removal: Removal, *, known: bool) -> Removal:
    """Add an event: who removes files that returned after a removal, or whose attempt is not `known` to this ledger."""
    kind = "quarantine_removed_again" if known else "quarantine_removed_unknown"
    events.note(unit, kind, "quarantine_removals", removal.attempt_id, _removal_facts(removal))
    return replace(removal, done=True)


def _removal_facts(removal: Removal) -> dict[str, str | int]:
    return {
        "token_id": removal.token_id,
        "name": ids.require_name(removal.name, "name"),
        "reason": ids.require_reason(removal.reason),
        "files": removal.files,
        "bytes": removal.size_bytes,
    }


def find_unexpected(unit: Unit, attempt_ids: Sequence[str]) -> list[str]:
    """The ids among `attempt_ids` of cleaned-up attempts without files in quarantine, as far as the ledger knows.

    All files were removed, or none were put there. After a restore a ledger may not know that an attempt failed.
    """
    attempt_id, removal = disposals.c.attempt_id, quarantine_removals.c
    wanted = select(attempt_id).outerjoin(quarantine_removals, removal.attempt_id == attempt_id)
    wanted = wanted.where((removal.done == 1) | (disposals.c.outcome != DisposalOutcome.QUARANTINED))
    return [row["attempt_id"] for row in unit.rows_with(wanted, attempt_id, attempt_ids)]


def find_unknown_attempts(unit: Unit, attempt_ids: Sequence[str]) -> list[str]:
    """The ids among `attempt_ids` that belong to no attempt of this ledger."""
    column = attempts_table.c.attempt_id
    in_ledger = {row["attempt_id"] for row in unit.rows_with(select(column), column, attempt_ids)}
    return [each for each in attempt_ids if each not in in_ledger]


def end_removal(unit: Unit, attempt_id: str) -> None:
    """Note that all files of the attempt are removed."""
    wanted = update(quarantine_removals).where(quarantine_removals.c.attempt_id == attempt_id)
    unit.execute(wanted.where(quarantine_removals.c.done == 0).values(done=1, at_micros=unit.at_micros))


def _select_quarantined(unexpected: Collection[str] = ()) -> Select[Any]:
    """Failed attempts with quarantined files that were not all removed, and the `unexpected` ones."""
    attempt_id, done = attempts_table.c.attempt_id, quarantine_removals.c.done
    is_quarantined = disposals.c.outcome == DisposalOutcome.QUARANTINED
    return (
        select(attempts_table)
        .join(workloads, workloads.c.workload_id == attempts_table.c.workload_id)
        .join(disposals, disposals.c.attempt_id == attempt_id)
        .outerjoin(quarantine_removals, quarantine_removals.c.attempt_id == attempt_id)
        .where(or_(is_quarantined & or_(done.is_(None), done == 0), attempt_id.in_(unexpected)))
    )


def _to_removal(row: Row) -> Removal:
    return record_from(Removal, row, size_bytes=row["bytes"], done=bool(row["done"]))
