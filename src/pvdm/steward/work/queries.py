"""Reads workloads and attempts for callers of their domain, and lets a producer abort its own attempt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from pvdm.api.errors import RefusalView
from pvdm.api.work import AttemptView, ChunkStateView, PublishedView, WorkloadDetail, WorkloadView
from pvdm.errors import Code, PvdmError
from pvdm.lake.vault import Vault
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record import overrides
from pvdm.ledger.record.tokens import Grant
from pvdm.ledger.work import attempts, chunks, claims, workloads
from pvdm.ledger.work.attempts import Attempt
from pvdm.ledger.work.workloads import Workload
from pvdm.model.states import AttemptState
from pvdm.steward.access import require_attempt, require_domain, scope
from pvdm.steward.work.attempt_views import JobOf, attempt_views, is_settled
from pvdm.steward.work.opened import get_workload, parameters_of
from pvdm.steward.work.sources import table_name

# States in which an attempt waits for a job of the Steward.
_STEWARDS: Final = frozenset({AttemptState.VERIFYING, AttemptState.COMMITTING})


class Work:
    """Reads workloads and attempts as one caller may see them."""

    def __init__(
        self,
        ledger: Ledger,
        clock: LedgerClock,
        vault: Vault,
        *,
        job_of: JobOf,
        given_up: Callable[[str], None],
    ) -> None:
        """`given_up` is called for every attempt that a producer aborted, to clean up after it."""
        self._ledger = ledger
        self._clock = clock
        self._job_of = job_of
        self._given_up = given_up
        self._vault = vault

    def workloads(self, grant: Grant, *, after: str | None = None, count: int = 100) -> list[WorkloadView]:
        """The workloads of the caller's domain, by id; a token for one attempt lists none."""
        require_attempt(grant, None)
        with self._ledger.read() as unit:
            found = workloads.page(unit, domain=scope(grant), after=after, count=count)
            return self._views(unit, found)

    def newest_workloads(self, grant: Grant, *, count: int = 100) -> tuple[list[WorkloadView], int]:
        """The workloads of the caller's domain that were opened or ended last, latest first, and the total count."""
        require_attempt(grant, None)
        with self._ledger.read() as unit:
            found = workloads.newest(unit, domain=scope(grant), count=count)
            return self._views(unit, found), workloads.total(unit, domain=scope(grant))

    def view(self, workload: Workload) -> WorkloadView:
        """The view of one workload."""
        with self._ledger.read() as unit:
            return self._views(unit, [workload])[0]

    def workload(
        self, grant: Grant, workload_id: str, *, chunks_after: int = 0, count: int = chunks.CHUNKS_PAGE_MAX_ROWS
    ) -> WorkloadDetail:
        """One workload of the caller's domain, with the next chunks of its plan after `chunks_after`."""
        require_attempt(grant, None)
        with self._ledger.read() as unit:
            found = get_workload(unit, grant, workload_id)
            planned = chunks.page(unit, workload_id, after=chunks_after, rows=count)
            tried = attempts.of_chunks(unit, workload_id, planned)
            each_try = [attempt for of_chunk in tried.values() for attempt in of_chunk]
            published = chunks.publications(unit, workload_id, list(tried))
            return WorkloadDetail(
                **dict(self._views(unit, [found])[0]),
                chunk_ids=tuple(tried),
                attempts=tuple(attempt_views(unit, each_try, self._job_of, grant.role, self._vault)),
                published=tuple(
                    PublishedView(chunk_id=each.chunk_id, attempt_id=each.attempt_id, snapshot_id=int(each.snapshot_id))
                    for each in published
                ),
            )

    def attempt(self, grant: Grant, attempt_id: str) -> AttemptView:
        """One attempt of the caller's domain."""
        with self._ledger.read() as unit:
            return attempt_views(unit, [_allowed(unit, grant, attempt_id)], self._job_of, grant.role, self._vault)[0]

    def is_settled(self, grant: Grant, attempt_id: str) -> bool:
        """Whether an attempt of the bearer's domain has nothing to wait for, as its view says it."""
        with self._ledger.read() as unit:
            return is_settled(unit, _allowed(unit, grant, attempt_id), self._job_of)

    def settled_among(self, attempt_ids: Sequence[str]) -> list[str]:
        """The attempts among these that have nothing to wait for, in one read for all of them."""
        with self._ledger.read() as unit:
            found = [attempts.get(unit, attempt_id) for attempt_id in attempt_ids]
            return [each.attempt_id for each in found if is_settled(unit, each, self._job_of)]

    def views(self, grant: Grant, found: list[Attempt]) -> list[AttemptView]:
        """Views of attempts that the caller may see."""
        with self._ledger.read() as unit:
            return attempt_views(unit, found, self._job_of, grant.role, self._vault)

    def _views(self, unit: Unit, found: list[Workload]) -> list[WorkloadView]:
        ids = [each.opening.workload_id for each in found]
        planned, waived = chunks.counts(unit, ids), overrides.used_by(unit, ids)
        states, claimed = attempts.last_states(unit, ids), claims.texts_of(unit, ids)
        names = {uuid: table_name(unit, uuid) for uuid in {each.opening.table_uuid for each in found}}
        views = []
        for workload_id, each in zip(ids, found, strict=True):
            opening, source = each.opening, each.source_snapshot_id
            last = states.get(workload_id, {})
            problem = self._problem(unit, workload_id) if _STEWARDS & last.keys() else None
            views.append(
                WorkloadView(
                    workload_id=workload_id,
                    domain=opening.domain,
                    state=each.state,
                    contract_hash=opening.contract_hash,
                    table_uuid=opening.table_uuid,
                    table=names[opening.table_uuid],
                    source=opening.source,
                    source_snapshot_id=None if source is None else int(source),
                    source_newest_snapshot_id=None,
                    source_newer_columns=each.newer_columns.decode(),
                    plan_hash=each.plan_hash,
                    chunk_count=planned.get(workload_id, 0),
                    chunk_states=tuple(ChunkStateView(state=key, chunks=count) for key, count in sorted(last.items())),
                    problem=None if problem is None else RefusalView.of_error(problem),
                    override_ids=tuple(sorted(waived.get(workload_id, {}).values())),
                    claim=claimed.get(workload_id),
                    parameters=parameters_of(each),
                    atomicity=opening.atomicity.value,
                    epoch=each.epoch,
                    reason=each.reason,
                    changed_at=each.at_micros,
                )
            )
        return views

    def _problem(self, unit: Unit, workload_id: str) -> PvdmError | None:
        """The last error of a job of one of the workload's attempts."""
        for attempt in attempts.list_live_of_workload(unit, workload_id):
            job = self._job_of(attempt)
            if job is not None and job.error is not None:
                return job.error
        return None

    def abort(self, grant: Grant, attempt_id: str, reason: str) -> AttemptView:
        """Abort a staging attempt: ROLLED_BACK, its nonce aborted; a second call changes nothing."""

        def work(unit: Unit) -> Attempt:
            _allowed(unit, grant, attempt_id)
            require_abortable(attempts.lock(unit, attempt_id))
            return attempts.end(unit, attempt_id, AttemptState.ROLLED_BACK, reason=reason)

        ended = self._ledger.transact(work, at_micros=self._clock.now_micros())
        self._given_up(attempt_id)
        return self.views(grant, [ended])[0]


def require_abortable(attempt: Attempt) -> None:
    """Refuse from VERIFYING on: a FAIL is recorded, and a commit that has begun is not undone."""
    if attempt.state not in (AttemptState.STAGING, AttemptState.ROLLED_BACK):
        raise Code.ATTEMPT_NOT_STAGING(expected=AttemptState.STAGING, got=attempt.state)


def _allowed(unit: Unit, grant: Grant, attempt_id: str) -> Attempt:
    require_attempt(grant, attempt_id)
    found = attempts.get(unit, attempt_id)
    require_domain(grant, workloads.get(unit, found.workload_id).opening.domain)
    return found
