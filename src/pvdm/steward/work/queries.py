"""Shows workloads and attempts to callers of their domain, and aborts attempts for the run that holds the lease."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Final

from pvdm.api import work as api
from pvdm.api.errors import RefusalView
from pvdm.errors import Code, PvdmError
from pvdm.lake.format.table.snapshots import MAIN
from pvdm.lake.vault import Vault, VaultKind, quarantine_name
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record import proofs
from pvdm.ledger.record.proofs import ProofRecord
from pvdm.ledger.record.tokens import Grant, require_domain
from pvdm.ledger.schema.work import DisposalOutcome
from pvdm.ledger.work import attempts, chunks, claims, deadlines, disposals, leases, verified, workloads
from pvdm.ledger.work.attempts import Attempt
from pvdm.ledger.work.chunks import ChunkPublication
from pvdm.ledger.work.plannings import Planning
from pvdm.ledger.work.verified import StoredFinding, VerifiedRecord
from pvdm.ledger.work.workloads import Opening, Workload
from pvdm.model.contract import Atomicity
from pvdm.model.located import WrongRows
from pvdm.model.role import Role
from pvdm.model.statements.proof import Proof
from pvdm.model.statements.verdict import FailureClass, Outcome
from pvdm.model.states import WITH_STEWARD, AttemptState
from pvdm.steward.access import refuse_attempt_token, visible_domain
from pvdm.steward.work.leases import lease_view
from pvdm.steward.work.notices import Notices
from pvdm.steward.work.opened import contract_of, decode_refusal, get_workload, parameters_of, sentence_of
from pvdm.steward.work.sources import table_name
from pvdm.trust.statement import read_unchecked
from pvdm.verify.findings import SHOWN_TO_ALL_ROLES

FINDINGS_SHOWN_MAX: Final = 10


class JobKind(Enum):
    """What a job does."""

    VERIFY = "verify"
    PUBLISH = "publish"
    DISPOSE = "dispose"  # clean up after an ended attempt
    SETTLE = "settle"  # make the receipts and clean-ups that a crash prevented
    PLAN = "plan"  # make the plan of a workload that is being opened


@dataclass(frozen=True, slots=True)
class JobStatus:
    """One job and the error of its last try. `subject`: the id of an attempt or a workload; empty for SETTLE."""

    kind: JobKind
    subject: str
    state: api.JobState
    tries: int
    error: PvdmError | None  # None if the last try had no error, or if the job was requested again since
    again_seconds: int | None = None  # until the next automatic retry; None if there will be no retry
    age_seconds: float = 0.0  # since the job was requested


JobOf = Callable[[Attempt], JobStatus | None]


@dataclass(frozen=True, slots=True)
class _WorkloadFacts:
    """Facts that all attempts of one workload share."""

    table: str | None
    incomplete: bool  # see `_is_incomplete`
    overrides: Mapping[str, str]  # Key: a snapshot's id. Value: the id of the override that published the snapshot.


@dataclass(frozen=True, slots=True)
class _FailureDetails:
    """What one role may see of a FAIL."""

    findings: tuple[api.FindingView, ...] = ()
    more: int = 0  # how many findings are not shown
    located: WrongRows | None = None
    quarantine: api.QuarantineView | None = None

    @property
    def files(self) -> frozenset[str]:
        """Every file that the details name."""
        found = {each.file for each in self.findings if each.file is not None}
        if self.located is not None:
            found |= {place.name for each in self.located.classes for place in each.files}
            found |= {key.file for each in self.located.classes for key in each.samples}
        return frozenset(found)


_NO_DETAILS: Final = _FailureDetails()


def attempt_views(
    unit: Unit, found: Sequence[Attempt], job_of: JobOf, role: Role, vault: Vault
) -> list[api.AttemptView]:
    """Build the views of these attempts for a role; details of a FAIL are read only for attempts that have one."""
    ids = [each.attempt_id for each in found]
    last_proofs = proofs.find_newest_of_attempts(unit, ids)
    published = chunks.find_publications_of_attempts(unit, ids)
    workload_ids = sorted({each.workload_id for each in found})
    override_ids = proofs.find_overrides_used_by(unit, workload_ids)
    workload_facts = {}
    for workload_id in workload_ids:
        opening = workloads.get(unit, workload_id).opening
        name, incomplete = table_name(unit, opening.table_uuid), _is_incomplete(unit, opening)
        workload_facts[workload_id] = _WorkloadFacts(name, incomplete, override_ids.get(workload_id, {}))
    failed_nonces = [each.nonce for each in last_proofs.values() if each.verdict is Outcome.FAIL]
    records = verified.find_by_nonces(unit, failed_nonces)
    details = {nonce: _failure_details(unit, record, role) for nonce, record in records.items()}
    views = []
    for each in found:
        # An attempt in VERIFYING shows no proof. Its last proof is from an earlier verification, or is not yet covered
        # by the outside checkpoint.
        proof = last_proofs.get(each.attempt_id) if each.state is not AttemptState.VERIFYING else None
        failure = details.get(proof.nonce, _NO_DETAILS) if proof is not None else _NO_DETAILS
        if proof is not None and proof.verdict is Outcome.FAIL:
            failure = replace(failure, quarantine=locate_in_quarantine(unit, each, proof, failure.files, vault))
        facts, publication = workload_facts[each.workload_id], published.get(each.attempt_id)
        views.append(_attempt_view(each, facts, proof, publication, failure, job_of(each)))
    return views


def _attempt_view(
    attempt: Attempt,
    facts: _WorkloadFacts,
    proof: ProofRecord | None,
    published: ChunkPublication | None,
    failure: _FailureDetails,
    job: JobStatus | None,
) -> api.AttemptView:
    staged, snapshot = attempt.staged_snapshot_id, None if published is None else published.snapshot_id
    extent = None if published is None else published.extent
    # An override can publish several chunks. Only chunks with a FAIL show it.
    waived = snapshot is not None and proof is not None and proof.verdict is Outcome.FAIL
    classes = () if proof is None else json.loads(proof.summary).get("classes", ())
    return api.AttemptView(
        attempt_id=attempt.attempt_id,
        workload_id=attempt.workload_id,
        chunk_id=attempt.chunk_id,
        number=attempt.number,
        state=attempt.state,
        table=facts.table,
        target_branch=MAIN,
        branch=attempt.branch,
        prefix=attempt.prefix,
        staged_snapshot_id=None if staged is None else int(staged),
        reason=sentence_of(attempt.reason),
        changed_at=attempt.at_micros,
        waiting=attempt.state is AttemptState.COMMITTING and facts.incomplete,
        verdict=None if proof is None else proof.verdict,
        classes=tuple(FailureClass(each) for each in classes),
        findings=failure.findings,
        findings_more=failure.more,
        proof_id=None if proof is None else proof.proof_id,
        override_id=facts.overrides.get(snapshot) if waived and snapshot is not None else None,
        snapshot_id=None if snapshot is None else int(snapshot),
        extent=None if extent is None else api.ExtentView(**asdict(extent)),
        refusal=decode_refusal(attempt.reason),
        job=None if job is None else job_view(job),
        located=failure.located,
        quarantine=failure.quarantine,
    )


def job_view(job: JobStatus) -> api.JobView:
    """A job as the attempt's producer may see it. The text of an unexpected error is only in the Steward's log."""
    return api.JobView(
        state=job.state,
        tries=job.tries,
        problem=None if job.error is None else RefusalView.of_error(job.error),
        again_seconds=job.again_seconds,
    )


def planning_view(planning: Planning, job: JobStatus | None) -> api.PlanningView:
    """The plan in the making, and the error of the last try of its job."""
    problem = None if job is None or job.error is None else RefusalView.of_error(job.error)
    return api.PlanningView(
        workload_id=planning.opening.workload_id,
        files_read=planning.files_read,
        files=planning.files,
        problem=problem,
        failed=job is not None and job.state is api.JobState.FAILED,
    )


def _is_incomplete(unit: Unit, opening: Opening) -> bool:
    """Whether not all chunks of a workload with `atomicity: workload` are COMMITTING.

    Valid only while an attempt is COMMITTING: once all chunks are published, this is true too.
    """
    if opening.atomicity is not Atomicity.WORKLOAD:
        return False
    live = attempts.list_live(unit, opening.workload_id)
    proved = sum(each.state is AttemptState.COMMITTING for each in live)
    return proved < chunks.count(unit, opening.workload_id)


def _failure_details(unit: Unit, record: VerifiedRecord, role: Role) -> _FailureDetails:
    """What this role may see of a FAIL, under the contract of the attempt's workload."""
    workload = workloads.get(unit, attempts.get(unit, record.attempt_id).workload_id)
    contract = contract_of(unit, workload.opening.contract_hash)
    governance = contract.governance
    may_see_values = role is Role.STEWARD or role in governance.sample_keys
    first = tuple(_finding_view(each, may_see_values=may_see_values) for each in record.findings[:FINDINGS_SHOWN_MAX])
    located = record.located
    return _FailureDetails(
        first,
        len(record.findings) - len(first) + record.findings_more,
        None if located is None else located.view_for(role, governance.sample_keys, contract.profile),
    )


def _finding_view(found: StoredFinding, *, may_see_values: bool) -> api.FindingView:
    shows_all = may_see_values or found.code in SHOWN_TO_ALL_ROLES or (found.expected is None and found.got is None)
    return api.FindingView(
        failure=FailureClass(found.failure),
        code=found.code,
        message=found.message,
        expected=found.expected if shows_all else None,
        got=found.got if shows_all else None,
        file=found.file,
        withheld=not shows_all,
    )


def locate_in_quarantine(
    unit: Unit, attempt: Attempt, proof: ProofRecord, named: Collection[str], vault: Vault
) -> api.QuarantineView | None:
    """Locate the `named` files in quarantine; None if the attempt's files are not there, or were removed from there."""
    attempt_id = attempt.attempt_id
    disposal = disposals.find_disposal(unit, attempt_id)
    if disposal is None or disposal.outcome is not DisposalOutcome.QUARANTINED:
        return None
    if disposals.find_removal(unit, attempt_id) is not None:
        return None
    table = workloads.get(unit, attempt.workload_id).opening.table_uuid
    added = read_unchecked(proofs.get_envelope(unit, proof.proof_id), Proof).core.files.added if named else ()
    files = [
        api.KeptFileView(
            file=each.staged_path,
            location=vault.location(table, VaultKind.QUARANTINE, quarantine_name(attempt_id, each.staged_sha256)),
        )
        for each in added
        if each.staged_path in named
    ]
    return api.QuarantineView(folder=vault.location(table, VaultKind.QUARANTINE, attempt_id), files=tuple(files))


@dataclass(eq=False)
class WorkQueries:
    """Shows workloads and attempts as the caller may see them, and aborts attempts."""

    ledger: Ledger
    clock: LedgerClock
    vault: Vault
    job_of: JobOf
    on_abort: Callable[[str], None]  # cleans up after an attempt that a producer aborted
    notices: Notices

    def list_workloads(self, grant: Grant, *, after: str | None = None, count: int = 100) -> list[api.WorkloadView]:
        """The workloads of the caller's domain in order of their ids; a token for one attempt is refused."""
        refuse_attempt_token(grant)
        with self.ledger.read() as unit:
            found = workloads.page(unit, domain=visible_domain(grant), after=after, count=count)
            return self._view_workloads(unit, found)

    def list_newest_workloads(self, grant: Grant, *, count: int = 100) -> tuple[list[api.WorkloadView], int]:
        """The workloads of the caller's domain that were opened or ended last, latest first, and the total count."""
        refuse_attempt_token(grant)
        with self.ledger.read() as unit:
            found = workloads.newest(unit, domain=visible_domain(grant), count=count)
            return self._view_workloads(unit, found), workloads.count_all(unit, domain=visible_domain(grant))

    def view_workload(self, workload: Workload) -> api.WorkloadView:
        """The view of one workload."""
        with self.ledger.read() as unit:
            return self._view_workloads(unit, [workload])[0]

    def get_workload_detail(
        self, grant: Grant, workload_id: str, *, chunks_after: int = 0, count: int = chunks.CHUNKS_PAGE_MAX_ROWS
    ) -> api.WorkloadDetail:
        """One workload of the caller's domain, with the chunks of its plan after the first `chunks_after`."""
        refuse_attempt_token(grant)
        with self.ledger.read() as unit:
            found = get_workload(unit, grant, workload_id)
            planned = chunks.page_ids(unit, workload_id, start=chunks_after, rows=count)
            attempts_by_chunk = attempts.list_by_chunks(unit, workload_id, planned)
            all_attempts = [attempt for of_chunk in attempts_by_chunk.values() for attempt in of_chunk]
            published = chunks.list_publications(unit, workload_id, list(attempts_by_chunk))
            return api.WorkloadDetail(
                **dict(self._view_workloads(unit, [found])[0]),
                chunk_ids=tuple(attempts_by_chunk),
                attempts=tuple(attempt_views(unit, all_attempts, self.job_of, grant.role, self.vault)),
                published=tuple(
                    api.PublishedView(
                        chunk_id=each.chunk_id, attempt_id=each.attempt_id, snapshot_id=int(each.snapshot_id)
                    )
                    for each in published
                ),
            )

    def get_attempt(self, grant: Grant, attempt_id: str) -> api.AttemptView:
        """One attempt of the caller's domain. Raises if it is unknown or of another domain."""
        with self.ledger.read() as unit:
            return attempt_views(unit, [_get_allowed(unit, grant, attempt_id)], self.job_of, grant.role, self.vault)[0]

    def is_settled(self, grant: Grant, attempt_id: str) -> bool:
        """Whether a wait for the attempt is over: it ended, waits for other chunks, or its job failed."""
        with self.ledger.read() as unit:
            return self._is_settled(unit, _get_allowed(unit, grant, attempt_id))

    def list_settled(self, attempt_ids: Sequence[str]) -> list[str]:
        """The ids for which `is_settled` would be true; the ledger is read once for all of them."""
        with self.ledger.read() as unit:
            found = [attempts.get(unit, attempt_id) for attempt_id in attempt_ids]
            return [each.attempt_id for each in found if self._is_settled(unit, each)]

    def _is_settled(self, unit: Unit, attempt: Attempt) -> bool:
        opening, job = workloads.get(unit, attempt.workload_id).opening, self.job_of(attempt)
        waiting = attempt.state is AttemptState.COMMITTING and _is_incomplete(unit, opening)
        failed = job is not None and job.state is api.JobState.FAILED
        return api.is_attempt_settled(attempt.state, waiting=waiting, failed=failed)

    def view_attempts(self, grant: Grant, found: list[Attempt]) -> list[api.AttemptView]:
        """Views of attempts that the caller may see."""
        with self.ledger.read() as unit:
            return attempt_views(unit, found, self.job_of, grant.role, self.vault)

    def _view_workloads(self, unit: Unit, found: list[Workload]) -> list[api.WorkloadView]:
        ids = [each.opening.workload_id for each in found]
        planned, waived = chunks.count_by_workload(unit, ids), proofs.find_overrides_used_by(unit, ids)
        states, claimed = attempts.count_last_states(unit, ids), claims.list_claim_texts(unit, ids)
        handed_in = attempts.count_handed_in(unit, ids)
        newest_leases, now = leases.find_newest_of(unit, ids), self.clock.trusted_micros()
        limits = deadlines.find_all(unit, ids)
        names = {uuid: table_name(unit, uuid) for uuid in {each.opening.table_uuid for each in found}}
        views = []
        for workload_id, each in zip(ids, found, strict=True):
            opening, source = each.opening, each.source_snapshot_id
            last = states.get(workload_id, {})
            live = attempts.list_live(unit, workload_id) if WITH_STEWARD & last.keys() else []
            jobs = (job for job in map(self.job_of, live) if job is not None)
            problem = next((job.error for job in jobs if job.error is not None), None)
            chunk_states = tuple(api.ChunkStateView(state=key, chunks=count) for key, count in sorted(last.items()))
            views.append(
                api.WorkloadView(
                    workload_id=workload_id,
                    domain=opening.domain,
                    state=each.state,
                    contract_hash=opening.contract_hash,
                    table_uuid=opening.table_uuid,
                    table=names[opening.table_uuid],
                    source=opening.source,
                    source_snapshot_id=None if source is None else int(source),
                    source_newest_snapshot_id=None,  # lists lack it; the route of a single workload sets it
                    source_newer_columns=each.newer_columns.decode(),
                    plan_hash=each.plan_hash,
                    chunk_count=planned.get(workload_id, 0),
                    chunk_states=chunk_states,
                    handed_in=handed_in.get(workload_id, 0),
                    problem=None if problem is None else RefusalView.of_error(problem),
                    override_ids=tuple(sorted(waived.get(workload_id, {}).values())),
                    claim=claimed.get(workload_id),
                    parameters=parameters_of(each),
                    atomicity=opening.atomicity.value,
                    epoch=each.epoch,
                    reason=each.reason,
                    changed_at=each.at_micros,
                    lease=None if workload_id not in newest_leases else lease_view(newest_leases[workload_id], now),
                    deadline=None if workload_id not in limits else limits[workload_id].deadline_micros,
                    timed_out=workload_id in limits and limits[workload_id].deadline_micros <= now,
                )
            )
        return views

    def abort(self, grant: Grant, attempt_id: str, reason: str, *, lease_number: int) -> api.AttemptView:
        """Move an attempt from STAGING to ROLLED_BACK and abort its nonce. A second call changes nothing.

        `lease_number` is that of the caller's lease. It is not compared if the Steward opened the attempt.
        """

        def work(unit: Unit) -> Attempt:
            _get_allowed(unit, grant, attempt_id)
            # Only STAGING can be aborted. In VERIFYING a FAIL must be recorded. In COMMITTING a commit may have begun.
            found = attempts.lock(unit, attempt_id)
            state = found.state
            if found.lease_number is not None and state is AttemptState.STAGING:
                leases.require_newest(unit, found.workload_id, lease_number)
            if state not in (AttemptState.STAGING, AttemptState.ROLLED_BACK):
                raise Code.ATTEMPT_NOT_STAGING(expected=AttemptState.STAGING, got=state)
            ended = attempts.end(unit, attempt_id, AttemptState.ROLLED_BACK, reason=reason)
            self.notices.add_roll_back(unit, ended)
            return ended

        ended = self.ledger.transact(work, at_micros=self.clock.now_micros())
        self.on_abort(attempt_id)
        return self.view_attempts(grant, [ended])[0]


def _get_allowed(unit: Unit, grant: Grant, attempt_id: str) -> Attempt:
    refuse_attempt_token(grant, allowed_attempt_id=attempt_id)
    found = attempts.get(unit, attempt_id)
    require_domain(grant, workloads.get(unit, found.workload_id).opening.domain)
    return found
