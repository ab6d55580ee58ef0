"""Finds the workloads that were opened or have ended, for OpenLineage events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Final, TypeAlias

from pvdm.ledger import Ledger, Unit
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.work import workloads
from pvdm.ledger.work.workloads import Workload
from pvdm.model.fields import MICROS_PER_SECOND
from pvdm.model.states import WorkloadState
from pvdm.steward.logs import log_warning
from pvdm.steward.work.lineage import RunStep, add_step

# How far back a look reads at most, and how far before the newest workload each look reads again.
_READ_MAX_MICROS: Final = 7 * 86_400 * MICROS_PER_SECOND
_LOOK_BACK_MICROS: Final = 3_600 * MICROS_PER_SECOND
# How many steps are stored in one transaction: other writers wait for it.
_STORED_AT_ONCE: Final = 50
_LAST_STEPS: Final = {WorkloadState.COMPLETE: RunStep.COMPLETE, WorkloadState.ABANDONED: RunStep.ABORT}

_Place: TypeAlias = tuple[RunStep, str]
"""A step and a domain. The outbox has a limited number of places for each step, which the domains share."""
_Stored: TypeAlias = dict[tuple[str, WorkloadState], int]
"""The workload states whose steps are stored, each with the time at which the workload (by id) got the state."""


@dataclass(eq=False)
class LineageWatch:
    """Finds workloads that were opened or have ended, by any Steward of the ledger. May run in every Steward."""

    ledger: Ledger
    clock: LedgerClock
    interval_seconds: ClassVar = 10.0
    _begin: int = field(default=0, init=False)  # where the next look begins to read
    _stored: _Stored = field(default_factory=dict, init=False)

    def look(self) -> None:
        """Store the new steps. The next call tries again to store a step for which the outbox had no place."""
        now = self.clock.now_micros()
        begin = max(self._begin, now - _READ_MAX_MICROS)
        after, full, not_stored = (begin, ""), set[_Place](), list[int]()
        while True:
            with self.ledger.read() as unit:
                page = workloads.page_changed(unit, after=after)
            new = [each for each in page if _key_of(each) not in self._stored]
            for start in range(0, len(new), _STORED_AT_ONCE):
                steps = [each for each in new[start : start + _STORED_AT_ONCE] if _place_of(each) not in full]
                if steps:
                    stored, newly_full = self.ledger.transact(partial(_store, found=steps), at_micros=now)
                    self._stored |= stored  # only now: a transaction that fails stores nothing
                    full |= newly_full
            not_stored += [each.at_micros for each in new if _key_of(each) not in self._stored][:1]
            if page:
                after = (page[-1].at_micros, page[-1].opening.workload_id)
            if len(page) < workloads.WORKLOADS_PAGE_MAX_ROWS:
                break
        self._begin = max(begin, min([after[0] - _LOOK_BACK_MICROS, *not_stored]))
        self._stored = {key: at_micros for key, at_micros in self._stored.items() if at_micros >= self._begin}


def _store(unit: Unit, found: Sequence[Workload]) -> tuple[_Stored, set[_Place]]:
    """Store each workload's last step; until its end this is START. Returns what was stored, and the full places."""
    stored, full = _Stored(), set[_Place]()
    for each in found:
        workload_id, place = each.opening.workload_id, _place_of(each)
        if place in full:
            continue
        step, domain = place
        if add_step(unit, step, workload_id, each.at_micros):
            stored[_key_of(each)] = each.at_micros
        else:
            full.add(place)
            log_warning("lineage_dropped", step=step.value, domain=domain, workload_id=workload_id)
    return stored, full


def _key_of(workload: Workload) -> tuple[str, WorkloadState]:
    return workload.opening.workload_id, workload.state


def _place_of(workload: Workload) -> _Place:
    return _LAST_STEPS.get(workload.state, RunStep.START), workload.opening.domain
