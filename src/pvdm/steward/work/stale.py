"""Rolls back staging that no run can finish: its lease has ended, and its workload takes no rows any more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import tables
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.work import attempts, deadlines, leases, workloads
from pvdm.ledger.work.attempts import Attempt
from pvdm.model.states import AttemptState
from pvdm.steward.work.notices import Notices

GRACE_SECONDS: Final = 60
"""How long after the end of its lease, and of the deadline, a run may still clean up after itself."""
_GRACE_MICROS: Final = GRACE_SECONDS * 1_000_000


@dataclass(frozen=True, slots=True)
class StaleStaging:
    """Rolls back attempts in STAGING whose leases have ended and whose chunks no later run can stage."""

    ledger: Ledger
    clock: LedgerClock
    notices: Notices
    on_end: Callable[[str], None]  # cleans up after the attempt of this id

    def roll_back(self) -> None:
        """Roll back each attempt that no run can finish. If its workload may go on, its next run ends the attempt."""
        now = self.clock.now_micros()
        with self.ledger.read() as unit:
            found = [each for each in attempts.list_live(unit) if _find_reason(unit, each, now) is not None]
        for attempt in found:
            if self.ledger.transact(partial(self._end, attempt_id=attempt.attempt_id), at_micros=now):
                self.on_end(attempt.attempt_id)

    def _end(self, unit: Unit, attempt_id: str) -> bool:
        attempt = attempts.lock(unit, attempt_id)
        reason = _find_reason(unit, attempt, unit.at_micros)
        if reason is None:
            return False
        ended = attempts.end(unit, attempt_id, AttemptState.ROLLED_BACK, reason=reason)
        self.notices.add_roll_back(unit, ended)
        return True


def _find_reason(unit: Unit, attempt: Attempt, now_micros: int) -> str | None:
    """Why no run can finish the attempt; None if a run may still finish or end it."""
    if attempt.state is not AttemptState.STAGING or attempt.lease_number is None:
        return None
    lease = leases.find_newest(unit, attempt.workload_id)
    if lease is None or lease.is_live(now_micros - _GRACE_MICROS):
        return None
    deadline = deadlines.find(unit, attempt.workload_id)
    if deadline is not None and deadline.deadline_micros <= now_micros - _GRACE_MICROS:
        return "its run has ended, and the workload's time has run out"
    opening = workloads.get(unit, attempt.workload_id).opening
    table = tables.find_by_uuid(unit, opening.table_uuid)
    if table is None or table.contract_hash != opening.contract_hash:
        return "its run has ended, and the table has another contract now"
    return None
