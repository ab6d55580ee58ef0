"""Leases: which run may work on a workload now. Every new lease of a workload has a larger number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import func, select

from pvdm.errors import Code, PvdmError
from pvdm.ledger import clock, ids
from pvdm.ledger.connection import record_from, record_if_found
from pvdm.ledger.record import events
from pvdm.ledger.schema.work import leases
from pvdm.ledger.unit import Unit
from pvdm.ledger.work import deadlines, workloads
from pvdm.model.fields import MICROS_PER_SECOND
from pvdm.model.printable import utc_time
from pvdm.model.states import WorkloadState

_EVENT: Final = "leased"


@dataclass(frozen=True, slots=True)
class Runner:
    """A run of a workload. `holder` is its token's name, `runner` its process and host as text.

    `process` identifies the process on its host, so that another run on the host can find out that it has ended.
    """

    run_id: str
    holder: str
    runner: str
    process: str | None


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease in the ledger; `at_micros` is when the lease was last changed."""

    workload_id: str
    lease_number: int
    run_id: str
    holder: str
    runner: str
    process: str | None
    seconds: int
    expires_micros: int
    at_micros: int

    def is_live(self, now_micros: int) -> bool:
        """Whether the lease has not expired. A request may have read `now_micros` before the lease was last changed.

        So a lease that was released at `at_micros` is not live, even if `now_micros` is earlier.
        """
        return max(now_micros, self.at_micros) < self.expires_micros


def find_newest(unit: Unit, workload_id: str) -> Lease | None:
    """The workload's lease with the largest number, or None. It may have expired."""
    wanted = select(leases).where(leases.c.workload_id == workload_id).order_by(leases.c.lease_number.desc()).limit(1)
    return record_if_found(Lease, unit.row(wanted))


def find_newest_of(unit: Unit, workload_ids: Sequence[str]) -> dict[str, Lease]:
    """For each of these workloads that has a lease, the one with the largest number."""
    last = (
        select(leases.c.workload_id, func.max(leases.c.lease_number).label("last"))
        .group_by(leases.c.workload_id)
        .subquery()
    )
    is_last = (leases.c.workload_id == last.c.workload_id) & (leases.c.lease_number == last.c.last)
    wanted = select(leases).join(last, is_last)
    rows = unit.rows_with(wanted, leases.c.workload_id, list(workload_ids))
    return {row["workload_id"]: record_from(Lease, row) for row in rows}


def acquire(unit: Unit, workload_id: str, runner: Runner, *, seconds: int, take_over_from: int | None = None) -> Lease:
    """Acquire the lease of an open workload with a new number, or renew it if the run holds it.

    Raises `workload_leased` while another run holds the lease, unless the lease's number is `take_over_from`.
    """
    ids.require_random_id(runner.run_id, "run id")
    unit.lock_name(f"workload {workload_id}")
    workload = workloads.get(unit, workload_id)
    if workload.state is not WorkloadState.OPEN:
        raise Code.WORKLOAD_MOVED("the workload has ended", expected=WorkloadState.OPEN, got=workload.state)
    expires = _expiry(unit, workload_id, seconds)
    last = find_newest(unit, workload_id)
    if last is not None and last.is_live(unit.at_micros):
        if last.run_id == runner.run_id:
            return _set_expiry(unit, last, expires)
        if last.lease_number != take_over_from:
            raise _leased_error(last)
    acquired = Lease(
        workload_id,
        1 if last is None else last.lease_number + 1,
        runner.run_id,
        ids.require_name(runner.holder, "holder"),
        ids.require_name(runner.runner, "runner"),
        None if runner.process is None else ids.require_name(runner.process, "process"),
        seconds,
        expires,
        unit.at_micros,
    )
    values = {name: getattr(acquired, name) for name in Lease.__slots__ if name != "at_micros"}
    unit.insert(leases, **values)
    facts: dict[str, str | int] = {
        "lease_number": acquired.lease_number,
        "holder": acquired.holder,
        "runner": acquired.runner,
    }
    if last is not None and last.is_live(unit.at_micros):
        facts["taken_over_from"] = last.runner
    events.note(unit, _EVENT, "leases", workload_id, facts)
    return acquired


def renew(unit: Unit, workload_id: str, run_id: str, lease_number: int) -> Lease:
    """Let the lease expire later. Raises `lease_lost` if it has expired, or if another run has a newer lease."""
    unit.lock_name(f"workload {workload_id}")
    held = _require_held_by(unit, workload_id, run_id, lease_number)
    return _set_expiry(unit, held, _expiry(unit, workload_id, held.seconds))


def release(unit: Unit, workload_id: str, run_id: str, lease_number: int) -> Lease:
    """Let the lease expire now. An expired lease, or one that is not the newest, stays. Returns the newest lease."""
    unit.lock_name(f"workload {workload_id}")
    newest = find_newest(unit, workload_id)
    if newest is None:
        raise _lost_error(newest, lease_number)
    if (newest.run_id, newest.lease_number) == (run_id, lease_number) and newest.is_live(unit.at_micros):
        return _set_expiry(unit, newest, unit.at_micros)
    return newest


def set_timeout(unit: Unit, workload_id: str, seconds: int) -> None:
    """Change the workload's deadline. A live lease expires at the new deadline at the latest."""
    deadlines.set_timeout(unit, workload_id, seconds)
    newest, deadline = find_newest(unit, workload_id), deadlines.find(unit, workload_id)
    if newest is not None and deadline is not None and newest.expires_micros > deadline.deadline_micros:
        _set_expiry(unit, newest, deadline.deadline_micros)


def require_held(unit: Unit, workload_id: str, lease_number: int, *, now_micros: int | None = None) -> Lease:
    """The lease with this number. Raises `lease_lost` if it has expired or is not the newest one.

    Raises `workload_timed_out` instead if it has expired because the workload's deadline has passed.
    `now_micros` is the time to compare with in a unit that only reads; a unit that writes has its own time.
    """
    now = unit.at_micros if now_micros is None else now_micros
    newest = find_newest(unit, workload_id)
    if newest is None or newest.lease_number != lease_number or not newest.is_live(now):
        if newest is not None and newest.lease_number == lease_number:
            deadlines.require_not_passed(unit, workload_id, now)
        raise _lost_error(newest, lease_number)
    return newest


def require_newest(unit: Unit, workload_id: str, lease_number: int) -> None:
    """Raise `lease_lost` if another lease is newer. A run whose lease has only expired may clean up after itself."""
    newest = find_newest(unit, workload_id)
    if newest is None or newest.lease_number != lease_number:
        raise _lost_error(newest, lease_number)


def extend(unit: Unit, *, recent_micros: int = 0) -> None:
    """Add the time since a Steward last served to the leases that were live then: no run could renew them.

    Does nothing if a Steward served within the last `recent_micros`, since that Steward may still serve.
    """
    last_renewal: int | None = unit.execute(select(func.max(leases.c.at_micros))).scalar_one()
    served = max(clock.last_served_micros(unit), last_renewal or 0)
    absence = unit.at_micros - served
    if absence < recent_micros:
        return
    for each in unit.records(Lease, select(leases).where(leases.c.expires_micros > served)):
        unit.lock_name(f"workload {each.workload_id}")
        if find_newest(unit, each.workload_id) != each:  # not the newest, or another start has extended it
            continue
        deadline, expires = deadlines.find(unit, each.workload_id), each.expires_micros + absence
        _set_expiry(unit, each, expires if deadline is None else min(expires, deadline.deadline_micros))


def _expiry(unit: Unit, workload_id: str, seconds: int) -> int:
    """When a lease expires that is acquired or renewed now: at the workload's deadline at the latest."""
    deadline = deadlines.require_not_passed(unit, workload_id, unit.at_micros)
    expires = unit.at_micros + seconds * MICROS_PER_SECOND
    return expires if deadline is None else min(expires, deadline.deadline_micros)


def _require_held_by(unit: Unit, workload_id: str, run_id: str, lease_number: int) -> Lease:
    held = require_held(unit, workload_id, lease_number)
    if held.run_id != run_id:
        raise _taken_over_error(held, lease_number)
    return held


def _set_expiry(unit: Unit, lease: Lease, expires_micros: int) -> Lease:
    by_key = leases.update().where(
        leases.c.workload_id == lease.workload_id, leases.c.lease_number == lease.lease_number
    )
    unit.execute(by_key.values(expires_micros=expires_micros, at_micros=unit.at_micros))
    found = find_newest(unit, lease.workload_id)
    assert found is not None  # noqa: S101 - it was read in this unit
    return found


def _leased_error(held: Lease) -> PvdmError:
    details = {} if held.process is None else {"process": held.process}
    return Code.WORKLOAD_LEASED(
        expected="one run of a workload at a time",
        got=f"{held.holder}, {held.runner}, until {utc_time(held.expires_micros)}",
        workload_id=held.workload_id,
        lease_number=held.lease_number,
        holder=held.holder,
        runner=held.runner,
        expires_at=held.expires_micros,
        **details,
    )


def _lost_error(newest: Lease | None, lease_number: int) -> PvdmError:
    if newest is not None and newest.lease_number != lease_number:
        return _taken_over_error(newest, lease_number)
    got = "no lease" if newest is None else f"one that expired at {utc_time(newest.expires_micros)}"
    return Code.LEASE_LOST(reason="lease_expired", got=got)


def _taken_over_error(newest: Lease, lease_number: int) -> PvdmError:
    got = f"lease {newest.lease_number} of {newest.holder}, {newest.runner}"
    return Code.LEASE_LOST(reason="lease_taken_over", expected=f"lease {lease_number}", got=got)
