"""Key handles: stored by hash, with the workers that have redeemed them."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select, update

from pvdm.errors import Code
from pvdm.ledger.connection import Row
from pvdm.ledger.schema.work import HandleWord, handle_workers, handles
from pvdm.ledger.unit import Unit


@dataclass(frozen=True, slots=True)
class StoredHandle:
    """A handle and its workers. `context` is the canonical text of what the keys are bound to."""

    handle_sha256: str
    job_id: str
    redemptions: int
    state: HandleWord
    context: str | None
    workers: frozenset[str]


def add(unit: Unit, handle: StoredHandle) -> None:
    """Store a new handle. Raises `handle_job_taken` if the job has one."""
    unit.lock_name(f"handle {handle.job_id}")
    if find_job(unit, handle.job_id) is not None:
        raise Code.HANDLE_REFUSED(reason="handle_job_taken", got=handle.job_id)
    unit.insert(
        handles,
        handle_sha256=handle.handle_sha256,
        job_id=handle.job_id,
        redemptions=handle.redemptions,
        state=handle.state,
        context=handle.context,
    )


def find(unit: Unit, handle_sha256: str) -> StoredHandle | None:
    """The handle of that hash, or None."""
    return _read(unit, unit.find(handles, handle_sha256=handle_sha256))


def find_job(unit: Unit, job_id: str) -> StoredHandle | None:
    """The handle of that job, or None."""
    return _read(unit, unit.find(handles, job_id=job_id))


def lock(unit: Unit, handle_sha256: str) -> StoredHandle | None:
    """The handle of that hash, locked until the end of the unit, or None."""
    return _read(unit, unit.lock_row(handles, handle_sha256=handle_sha256))


def change(unit: Unit, old: StoredHandle, new: StoredHandle) -> None:
    """Store the new state of a locked handle. Workers can only be added."""
    if not old.workers <= new.workers:
        raise Code.HANDLE_CHANGED(got=new.job_id)
    if (old.state, old.context) != (new.state, new.context):
        changed = {"state": new.state, "context": new.context, "at_micros": unit.at_micros}
        unit.execute(update(handles).where(handles.c.handle_sha256 == old.handle_sha256).values(**changed))
    added = sorted(new.workers - old.workers)
    unit.insert_many(handle_workers, [{"handle_sha256": old.handle_sha256, "worker": worker} for worker in added])


def _read(unit: Unit, row: Row | None) -> StoredHandle | None:
    if row is None:
        return None
    wanted = select(handle_workers.c.worker).where(handle_workers.c.handle_sha256 == row["handle_sha256"])
    workers = frozenset(each["worker"] for each in unit.rows(wanted))
    return StoredHandle(
        row["handle_sha256"], row["job_id"], row["redemptions"], HandleWord(row["state"]), row["context"], workers
    )
