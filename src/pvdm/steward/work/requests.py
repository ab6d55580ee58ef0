"""Workloads and attempts as their domain sees them, and what a producer may do to an attempt of its own: give it up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pvdm.errors import NotAllowedError, PvdmError
from pvdm.lake.vault import Vault
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record import overrides
from pvdm.ledger.record.tokens import Grant
from pvdm.ledger.work import attempts, chunks, claims, workloads
from pvdm.ledger.work.attempts import Attempt
from pvdm.ledger.work.chunks import Published
from pvdm.ledger.work.workloads import Workload
from pvdm.model.states import AttemptState
from pvdm.steward.access import require_attempt, require_domain, scope
from pvdm.steward.work.access import get_workload
from pvdm.steward.work.attempt_views import AttemptView, JobOf, attempt_views, is_settled
from pvdm.steward.work.sources import table_name

# Where an attempt waits for a job of the Steward.
_STEWARDS: Final = frozenset({AttemptState.VERIFYING, AttemptState.COMMITTING})


@dataclass(frozen=True, slots=True)
class WorkloadSummary:
    """A workload with its table's name, the size of its plan and how its chunks' last attempts stand.

    `problem` keeps the Steward from going on with one of them; `override_ids` are those that it was published by;
    `claim` is the part of the table that no other workload can append to.
    """

    workload: Workload
    table: str | None
    chunk_count: int
    states: tuple[tuple[AttemptState, int], ...]
    problem: PvdmError | None
    override_ids: tuple[str, ...]
    claim: str | None


@dataclass(frozen=True, slots=True)
class WorkloadView:
    """A workload with a part of its plan, every attempt at that part, and what is published of it."""

    summary: WorkloadSummary
    chunk_ids: tuple[str, ...]
    attempts: tuple[AttemptView, ...]
    published: tuple[Published, ...]


class Work:
    """Reads the ledger's workloads for one caller at a time."""

    def __init__(
        self,
        ledger: Ledger,
        clock: LedgerClock,
        *,
        job_of: JobOf = lambda _: None,
        given_up: Callable[[str], None] = lambda _: None,
        vault: Vault | None = None,
    ) -> None:
        """`given_up` is told of every attempt that a producer gave up, so that it is cleaned away."""
        self._ledger = ledger
        self._clock = clock
        self._job_of = job_of
        self._given_up = given_up
        self._vault = vault

    def workloads(self, grant: Grant, *, after: str | None = None, count: int = 100) -> list[WorkloadSummary]:
        """The bearer's workloads by id; a token for one attempt lists none."""
        require_attempt(grant, None)
        with self._ledger.read() as unit:
            found = workloads.page(unit, domain=scope(grant), after=after, count=count)
            return self._summaries(unit, found)

    def newest_workloads(self, grant: Grant, *, count: int = 100) -> tuple[list[WorkloadSummary], int]:
        """The bearer's workloads that were opened or ended last, the latest first, and how many the bearer has."""
        require_attempt(grant, None)
        with self._ledger.read() as unit:
            found = workloads.newest(unit, domain=scope(grant), count=count)
            return self._summaries(unit, found), workloads.total(unit, domain=scope(grant))

    def summary(self, workload: Workload) -> WorkloadSummary:
        """The same for one that the caller has."""
        with self._ledger.read() as unit:
            return self._summaries(unit, [workload])[0]

    def workload(
        self, grant: Grant, workload_id: str, *, chunks_after: int = 0, count: int = chunks.CHUNKS_PAGE_MAX_ROWS
    ) -> WorkloadView:
        """One workload of the bearer's domain, with the next chunks of its plan after so many of them."""
        require_attempt(grant, None)
        with self._ledger.read() as unit:
            found = get_workload(unit, grant, workload_id)
            planned = chunks.page(unit, workload_id, after=chunks_after, rows=count)
            tried = attempts.of_chunks(unit, workload_id, planned)
            each_try = [attempt for of_chunk in tried.values() for attempt in of_chunk]
            return WorkloadView(
                self._summaries(unit, [found])[0],
                tuple(tried),
                tuple(attempt_views(unit, each_try, self._job_of, grant.role, self._vault)),
                tuple(chunks.publications(unit, workload_id, list(tried))),
            )

    def attempt(self, grant: Grant, attempt_id: str) -> AttemptView:
        """One attempt of the bearer's domain."""
        with self._ledger.read() as unit:
            return attempt_views(unit, [_allowed(unit, grant, attempt_id)], self._job_of, grant.role, self._vault)[0]

    def is_settled(self, grant: Grant, attempt_id: str) -> bool:
        """Whether an attempt of the bearer's domain has nothing to wait for, as its view says it."""
        with self._ledger.read() as unit:
            return is_settled(unit, _allowed(unit, grant, attempt_id), self._job_of)

    def views(self, grant: Grant, found: list[Attempt]) -> list[AttemptView]:
        """Attempts that the caller may see, with all that the caller may see of them."""
        with self._ledger.read() as unit:
            return attempt_views(unit, found, self._job_of, grant.role, self._vault)

    def _summaries(self, unit: Unit, found: list[Workload]) -> list[WorkloadSummary]:
        ids = [each.opening.workload_id for each in found]
        planned, waived = chunks.counts(unit, ids), overrides.used_by(unit, ids)
        states, claimed = attempts.last_states(unit, ids), claims.texts_of(unit, ids)
        names = {uuid: table_name(unit, uuid) for uuid in {each.opening.table_uuid for each in found}}
        return [
            WorkloadSummary(
                each,
                names[each.opening.table_uuid],
                planned.get(workload_id, 0),
                tuple(sorted(states.get(workload_id, {}).items())),
                self._problem(unit, workload_id) if _STEWARDS & states.get(workload_id, {}).keys() else None,
                tuple(sorted(waived.get(workload_id, {}).values())),
                claimed.get(workload_id),
            )
            for workload_id, each in zip(ids, found, strict=True)
        ]

    def _problem(self, unit: Unit, workload_id: str) -> PvdmError | None:
        """The last error of a job that one of the workload's attempts waits for."""
        for attempt in attempts.live_of(unit, workload_id):
            job = self._job_of(attempt)
            if job is not None and job.error is not None:
                return job.error
        return None

    def abort(self, grant: Grant, attempt_id: str, reason: str) -> AttemptView:
        """Give an attempt up while it is staging: ROLLED_BACK, its nonce aborted; once more is no change."""

        def work(unit: Unit) -> Attempt:
            _allowed(unit, grant, attempt_id)
            require_producers_own(attempts.lock(unit, attempt_id))
            return attempts.end(unit, attempt_id, AttemptState.ROLLED_BACK, reason=reason)

        ended = self._ledger.transact(work, at_micros=self._clock.now_micros())
        self._given_up(attempt_id)
        return self.views(grant, [ended])[0]


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
