"""Deadlines of workloads, by the ledger's clock: all runs of a workload may stage its chunks until its deadline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import and_, or_, select

from pvdm.errors import Code
from pvdm.ledger.connection import record_from, record_if_found
from pvdm.ledger.schema.work import deadlines, workloads
from pvdm.ledger.unit import Unit
from pvdm.model.fields import MICROS_PER_SECOND
from pvdm.model.printable import utc_time
from pvdm.model.states import WorkloadState

PASSED_PAGE_MAX_ROWS: Final = 500


@dataclass(frozen=True, slots=True)
class Deadline:
    """A workload's deadline, `seconds` after `begun_micros`."""

    workload_id: str
    seconds: int
    deadline_micros: int

    @property
    def begun_micros(self) -> int:
        """The time from which `seconds` count: the opening, or the first `set_timeout` if that came later."""
        return self.deadline_micros - self.seconds * MICROS_PER_SECOND


@dataclass(frozen=True, slots=True)
class PassedDeadline:
    """A deadline that has passed, and the domain of its workload."""

    workload_id: str
    deadline_micros: int
    domain: str


def find(unit: Unit, workload_id: str) -> Deadline | None:
    """The workload's deadline, or None if its runs have no limit."""
    return record_if_found(Deadline, unit.find(deadlines, workload_id=workload_id))


def find_all(unit: Unit, workload_ids: Sequence[str]) -> dict[str, Deadline]:
    """The deadlines by workload id; workloads without a deadline are left out."""
    rows = unit.rows_with(select(deadlines), deadlines.c.workload_id, list(workload_ids))
    return {row["workload_id"]: record_from(Deadline, row) for row in rows}


def page_passed(unit: Unit, *, after: tuple[int, str], now_micros: int) -> list[PassedDeadline]:
    """A page of passed deadlines of open workloads, by time and id. `after` is the last deadline of the page before."""
    time, workload_id = deadlines.c.deadline_micros, deadlines.c.workload_id
    later = or_(time > after[0], and_(time == after[0], workload_id > after[1]))
    wanted = select(workload_id, time, workloads.c.domain).join(workloads, workloads.c.workload_id == workload_id)
    wanted = wanted.where(time.between(after[0], now_micros), later, workloads.c.state == WorkloadState.OPEN)
    return unit.records(PassedDeadline, wanted.order_by(time, workload_id).limit(PASSED_PAGE_MAX_ROWS))


def set_timeout(unit: Unit, workload_id: str, seconds: int) -> None:
    """Set the deadline to `seconds` after the opening, or after now if it had none. A repeated call changes nothing."""
    unit.lock_name(f"workload {workload_id}")
    found = find(unit, workload_id)
    if found is None:
        deadline = unit.at_micros + seconds * MICROS_PER_SECOND
        unit.insert(deadlines, workload_id=workload_id, seconds=seconds, deadline_micros=deadline)
    elif found.seconds != seconds:
        deadline = found.begun_micros + seconds * MICROS_PER_SECOND
        unit.update(deadlines, {"workload_id": workload_id}, seconds=seconds, deadline_micros=deadline)


def require_not_passed(unit: Unit, workload_id: str, now_micros: int) -> Deadline | None:
    """The deadline, or None. Raises `workload_timed_out` if it has passed."""
    found = find(unit, workload_id)
    if found is not None and found.deadline_micros <= now_micros:
        elapsed = (now_micros - found.begun_micros) // MICROS_PER_SECOND
        raise Code.WORKLOAD_TIMED_OUT(
            expected=f"an end by {utc_time(found.deadline_micros)}, {found.seconds} seconds after the runs' time began",
            got=f"{utc_time(now_micros)}, {elapsed} seconds after it began",
            workload_id=workload_id,
        )
    return found
