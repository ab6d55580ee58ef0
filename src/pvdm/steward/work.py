"""Workloads and attempts as their domain sees them, and the one thing a producer may do to them here: give up."""

from __future__ import annotations

from dataclasses import dataclass

from pvdm.model.states import AttemptState
from pvdm.steward.access import require_attempt, require_domain, scope
from pvdm.store import Ledger, Unit, attempts, chunks, workloads
from pvdm.store.attempts import Attempt
from pvdm.store.chunks import Chunk, Published
from pvdm.store.clock import LedgerClock
from pvdm.store.tokens import Grant
from pvdm.store.workloads import Workload


@dataclass(frozen=True, slots=True)
class WorkloadView:
    """A workload with its plan, every attempt so far, and what is published of it."""

    workload: Workload
    chunks: tuple[Chunk, ...]
    attempts: tuple[Attempt, ...]
    published: tuple[Published, ...]


class Work:
    """Reads the ledger's workloads for one caller at a time."""

    def __init__(self, ledger: Ledger, clock: LedgerClock) -> None:
        self._ledger = ledger
        self._clock = clock

    def workloads(self, grant: Grant, *, after: str | None = None, count: int = 100) -> list[Workload]:
        """The bearer's workloads by id; a token for one attempt lists none."""
        require_attempt(grant, None)
        with self._ledger.read() as unit:
            return workloads.page(unit, domain=scope(grant), after=after, count=count)

    def workload(self, grant: Grant, workload_id: str) -> WorkloadView:
        """One workload of the bearer's domain."""
        require_attempt(grant, None)
        with self._ledger.read() as unit:
            found = workloads.get(unit, workload_id)
            require_domain(grant, found.opening.domain)
            planned = chunks.of_workload(unit, workload_id)
            tried = attempts.of_workload(unit, workload_id)
            return WorkloadView(found, tuple(planned), tuple(tried), tuple(chunks.publications(unit, workload_id)))

    def attempt(self, grant: Grant, attempt_id: str) -> Attempt:
        """One attempt of the bearer's domain."""
        with self._ledger.read() as unit:
            return _allowed(unit, grant, attempt_id)

    def abort(self, grant: Grant, attempt_id: str, reason: str) -> Attempt:
        """Give an attempt up: ROLLED_BACK, its nonce aborted; once more is no change."""

        def work(unit: Unit) -> Attempt:
            _allowed(unit, grant, attempt_id)
            return attempts.end(unit, attempt_id, AttemptState.ROLLED_BACK, reason=reason)

        return self._ledger.transact(work, at_micros=self._clock.now_micros())


def _allowed(unit: Unit, grant: Grant, attempt_id: str) -> Attempt:
    require_attempt(grant, attempt_id)
    found = attempts.get(unit, attempt_id)
    require_domain(grant, workloads.get(unit, found.workload_id).opening.domain)
    return found
