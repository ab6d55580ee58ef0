"""Workloads and attempts as their domain sees them, and the one thing a producer may do to them here: give up."""

from __future__ import annotations

from dataclasses import dataclass

from pvdm.errors import NotAllowedError
from pvdm.model.states import AttemptState
from pvdm.steward.access import require_attempt, require_domain, scope
from pvdm.store import Ledger, Unit, attempts, chunks, workloads
from pvdm.store.attempts import Attempt
from pvdm.store.chunks import Published
from pvdm.store.clock import LedgerClock
from pvdm.store.tokens import Grant
from pvdm.store.workloads import Workload


@dataclass(frozen=True, slots=True)
class WorkloadView:
    """A workload with a part of its plan, every attempt at that part, and what is published of it."""

    workload: Workload
    chunk_count: int
    chunk_ids: tuple[str, ...]
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

    def workload(
        self, grant: Grant, workload_id: str, *, chunks_after: int = 0, count: int = chunks.CHUNKS_PAGE_MAX_ROWS
    ) -> WorkloadView:
        """One workload of the bearer's domain, with the next chunks of its plan after so many of them."""
        require_attempt(grant, None)
        with self._ledger.read() as unit:
            found = workloads.get(unit, workload_id)
            require_domain(grant, found.opening.domain)
            planned = chunks.page(unit, workload_id, after=chunks_after, rows=count)
            tried = attempts.of_chunks(unit, workload_id, planned)
            return WorkloadView(
                found,
                chunks.count(unit, workload_id),
                tuple(tried),
                tuple(attempt for of_chunk in tried.values() for attempt in of_chunk),
                tuple(chunks.publications(unit, workload_id, list(tried))),
            )

    def attempt(self, grant: Grant, attempt_id: str) -> Attempt:
        """One attempt of the bearer's domain."""
        with self._ledger.read() as unit:
            return _allowed(unit, grant, attempt_id)

    def abort(self, grant: Grant, attempt_id: str, reason: str) -> Attempt:
        """Give an attempt up while it is staging: ROLLED_BACK, its nonce aborted; once more is no change."""

        def work(unit: Unit) -> Attempt:
            _allowed(unit, grant, attempt_id)
            require_producers_own(attempts.lock(unit, attempt_id))
            return attempts.end(unit, attempt_id, AttemptState.ROLLED_BACK, reason=reason)

        return self._ledger.transact(work, at_micros=self._clock.now_micros())


def require_producers_own(attempt: Attempt) -> None:
    """From VERIFYING on an attempt is the Steward's: a FAIL is recorded, and a commit under way is not undone."""
    if attempt.state not in (AttemptState.STAGING, AttemptState.ROLLED_BACK):
        raise NotAllowedError(
            "attempt_not_staging",
            "the attempt is in the Steward's hands",
            expected=AttemptState.STAGING,
            got=attempt.state,
            hint="wait for its verdict",
        )


def _allowed(unit: Unit, grant: Grant, attempt_id: str) -> Attempt:
    require_attempt(grant, attempt_id)
    found = attempts.get(unit, attempt_id)
    require_domain(grant, workloads.get(unit, found.workload_id).opening.domain)
    return found
