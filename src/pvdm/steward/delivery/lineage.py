"""Finds the workloads that were opened or have ended, for OpenLineage events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Final

from pvdm.ledger import Ledger, Unit
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.work import workloads
from pvdm.ledger.work.workloads import Workload
from pvdm.model.fields import MICROS_PER_SECOND
from pvdm.model.states import WorkloadState
from pvdm.steward.logs import log_warning
from pvdm.steward.work.lineage import RunStep, add_step

# How far back the first look reads, and how far before the newest workload each further look reads again.
_FIRST_LOOK_MICROS: Final = 7 * 86_400 * MICROS_PER_SECOND
_LOOK_BACK_MICROS: Final = 3_600 * MICROS_PER_SECOND
# How many steps are stored in one transaction: other writers wait for it.
_STORED_AT_ONCE: Final = 50
_LAST_STEPS: Final = {WorkloadState.COMPLETE: RunStep.COMPLETE, WorkloadState.ABANDONED: RunStep.ABORT}


@dataclass(eq=False)
class LineageWatch:
    """Finds workloads that were opened or have ended, whichever Steward did it. May run in every Steward."""

    ledger: Ledger
    clock: LedgerClock
    interval_seconds: ClassVar = 10.0
    _newest: int = field(default=0, init=False)
    _stored: dict[tuple[str, WorkloadState], int] = field(default_factory=dict, init=False)

    def look(self) -> None:
        """Store the steps that are new. A step for which the outbox has no place is tried again by the next call."""
        now = self.clock.now_micros()
        full: set[tuple[RunStep, str]] = set()
        after = (max(self._newest - _LOOK_BACK_MICROS, now - _FIRST_LOOK_MICROS), "")
        while True:
            with self.ledger.read() as unit:
                page = workloads.page_changed(unit, after=after)
            new = [each for each in page if (each.opening.workload_id, each.state) not in self._stored]
            for start in range(0, len(new), _STORED_AT_ONCE):
                steps = [each for each in new[start : start + _STORED_AT_ONCE] if _place_of(each) not in full]
                if steps:
                    full |= self.ledger.transact(partial(self._store, found=steps), at_micros=now)
            if page:
                after = (page[-1].at_micros, page[-1].opening.workload_id)
                self._newest = max(self._newest, page[-1].at_micros)
            if len(page) < workloads.WORKLOADS_PAGE_MAX_ROWS:
                break
        oldest = self._newest - _LOOK_BACK_MICROS
        self._stored = {key: at_micros for key, at_micros in self._stored.items() if at_micros >= oldest}

    def _store(self, unit: Unit, found: Sequence[Workload]) -> set[tuple[RunStep, str]]:
        """Store the last step of each workload; until its end this is START. Returns the places that are used up."""
        full: set[tuple[RunStep, str]] = set()
        for each in found:
            workload_id, (step, domain) = each.opening.workload_id, _place_of(each)
            if (step, domain) in full:
                continue
            if add_step(unit, step, workload_id, each.at_micros):
                self._stored[workload_id, each.state] = each.at_micros
            else:
                full.add((step, domain))
                log_warning("lineage_dropped", step=step.value, domain=domain, workload_id=workload_id)
        return full


def _place_of(workload: Workload) -> tuple[RunStep, str]:
    """The workload's last step and its domain, which share the places in the outbox."""
    return _LAST_STEPS.get(workload.state, RunStep.START), workload.opening.domain
