"""Views of attempts: the ledger's row, the verdict, what was published, and what the Steward does for them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

from pvdm.api.errors import RefusalView
from pvdm.api.work import (
    AttemptView,
    ExtentView,
    FindingView,
    JobState,
    JobView,
    QuarantineView,
    is_attempt_settled,
)
from pvdm.lake.format.table.snapshots import MAIN
from pvdm.lake.vault import Vault
from pvdm.ledger import Unit
from pvdm.ledger.record import overrides, proofs
from pvdm.ledger.record.proofs import ProofRecord
from pvdm.ledger.schema.record import VerdictWord
from pvdm.ledger.schema.work import Atomicity
from pvdm.ledger.work import attempts, chunks, verified, workloads
from pvdm.ledger.work.attempts import Attempt
from pvdm.ledger.work.chunks import Published
from pvdm.ledger.work.verified import StoredFinding, VerifiedRecord
from pvdm.ledger.work.workloads import Opening
from pvdm.model.located import Located
from pvdm.model.role import Role
from pvdm.model.statements.verdict import FailureClass, Outcome
from pvdm.model.states import AttemptState
from pvdm.steward.cleanup.quarantined import quarantine_of
from pvdm.steward.pipeline.jobs import JobStatus
from pvdm.steward.work.end_reasons import refusal_in, sentence_of
from pvdm.steward.work.opened import contract_of
from pvdm.steward.work.sources import table_name
from pvdm.verify.findings import SHOWN_WHOLE

FINDINGS_SHOWN_MAX: Final = 10

JobOf = Callable[[Attempt], JobStatus | None]


@dataclass(frozen=True, slots=True)
class _WorkloadFacts:
    """What all attempts of one workload share; `overrides` by the snapshots that they published."""

    table: str | None
    incomplete: bool
    overrides: Mapping[str, str]


def is_settled(unit: Unit, attempt: Attempt, job_of: JobOf) -> bool:
    """Whether the attempt's view would be settled, without reading the rest of the view."""
    opening = workloads.get(unit, attempt.workload_id).opening
    waiting = attempt.state is AttemptState.COMMITTING and _is_incomplete(unit, opening)
    job = job_of(attempt)
    return is_attempt_settled(attempt.state, waiting=waiting, failed=job is not None and job.state is JobState.FAILED)


@dataclass(frozen=True, slots=True)
class _FailureDetails:
    """What one role may see of what was wrong."""

    findings: tuple[FindingView, ...] = ()
    more: int = 0
    located: Located | None = None
    quarantine: QuarantineView | None = None

    @property
    def files(self) -> frozenset[str]:
        """Every file that they name."""
        found = {each.file for each in self.findings if each.file is not None}
        if self.located is not None:
            found |= {place.name for each in self.located.classes for place in each.files}
            found |= {key.file for each in self.located.classes for key in each.samples}
        return frozenset(found)


_NO_DETAILS: Final = _FailureDetails()


def attempt_views(
    unit: Unit, found: Sequence[Attempt], job_of: JobOf, role: Role, vault: Vault | None
) -> list[AttemptView]:
    """The attempts with all that a role may see of them. Details are read only for those that failed."""
    ids = [each.attempt_id for each in found]
    newest = proofs.newest_of_each(unit, ids)
    published = chunks.published_as(unit, ids)
    workload_ids = {each.workload_id for each in found}
    waived = overrides.used_by(unit, sorted(workload_ids))
    shared = {each: _workload_facts(unit, each, waived.get(each, {})) for each in workload_ids}
    records = verified.of_nonces(unit, [each.nonce for each in newest.values() if each.verdict is VerdictWord.FAIL])
    details = {nonce: _failure_details(unit, record, role) for nonce, record in records.items()}
    views = []
    for each in found:
        # While an attempt is verified again its old proof says nothing, and a new one is not covered by the log yet.
        proof = newest.get(each.attempt_id) if each.state is not AttemptState.VERIFYING else None
        wrong = details.get(proof.nonce, _NO_DETAILS) if proof is not None else _NO_DETAILS
        if proof is not None and proof.verdict is VerdictWord.FAIL and vault is not None:
            wrong = replace(wrong, quarantine=quarantine_of(unit, each, proof, wrong.files, vault))
        public = published.get(each.attempt_id)
        views.append(_attempt_view(each, shared[each.workload_id], proof, public, wrong, job_of(each)))
    return views


def _attempt_view(
    attempt: Attempt,
    shared: _WorkloadFacts,
    proof: ProofRecord | None,
    published: Published | None,
    wrong: _FailureDetails,
    job: JobStatus | None,
) -> AttemptView:
    staged, snapshot = attempt.staged_snapshot_id, None if published is None else published.snapshot_id
    extent = None if published is None else published.extent
    # Of chunks that were published together only those that failed needed the override.
    waived = snapshot is not None and proof is not None and proof.verdict is VerdictWord.FAIL
    classes = () if proof is None else json.loads(proof.summary).get("classes", ())
    return AttemptView(
        attempt_id=attempt.attempt_id,
        workload_id=attempt.workload_id,
        chunk_id=attempt.chunk_id,
        number=attempt.number,
        state=attempt.state,
        table=shared.table,
        target_branch=MAIN,
        branch=attempt.branch,
        prefix=attempt.prefix,
        staged_snapshot_id=None if staged is None else int(staged),
        reason=sentence_of(attempt.reason),
        changed_at=attempt.at_micros,
        waiting=attempt.state is AttemptState.COMMITTING and shared.incomplete,
        verdict=None if proof is None else Outcome(proof.verdict),
        classes=tuple(FailureClass(each) for each in classes),
        findings=wrong.findings,
        findings_more=wrong.more,
        proof_id=None if proof is None else proof.proof_id,
        override_id=shared.overrides.get(snapshot) if waived and snapshot is not None else None,
        snapshot_id=None if snapshot is None else int(snapshot),
        extent=None if extent is None else ExtentView(**asdict(extent)),
        refusal=refusal_in(attempt.reason),
        job=None if job is None else job_view(job),
        located=wrong.located,
        quarantine=wrong.quarantine,
    )


def job_view(job: JobStatus) -> JobView:
    """A job as the attempt's producer may see it; the text of a bug is in the Steward's log only."""
    return JobView(
        state=job.state,
        tries=job.tries,
        problem=None if job.error is None else RefusalView.of_error(job.error),
        again_seconds=job.again_seconds,
    )


def _failure_details(unit: Unit, record: VerifiedRecord, role: Role) -> _FailureDetails:
    """What this role may see of a FAIL, under the contract of the attempt's workload."""
    workload = workloads.get(unit, attempts.get(unit, record.attempt_id).workload_id)
    contract = contract_of(unit, workload.opening.contract_hash)
    governance = contract.governance
    of_values = role is Role.STEWARD or role in governance.sample_keys
    first = tuple(_finding_view(each, of_values=of_values) for each in record.findings[:FINDINGS_SHOWN_MAX])
    located = record.located
    return _FailureDetails(
        first,
        len(record.findings) - len(first) + record.findings_more,
        None if located is None else located.seen_by(role, governance.sample_keys, contract.profile),
    )


def _finding_view(found: StoredFinding, *, of_values: bool) -> FindingView:
    whole = of_values or found.code in SHOWN_WHOLE or (found.expected is None and found.got is None)
    return FindingView(
        failure=FailureClass(found.failure),
        code=found.code,
        message=found.message,
        expected=found.expected if whole else None,
        got=found.got if whole else None,
        file=found.file,
        withheld=not whole,
    )


def _workload_facts(unit: Unit, workload_id: str, waived: Mapping[str, str]) -> _WorkloadFacts:
    opening = workloads.get(unit, workload_id).opening
    return _WorkloadFacts(table_name(unit, opening.table_uuid), _is_incomplete(unit, opening), waived)


def _is_incomplete(unit: Unit, opening: Opening) -> bool:
    """Whether some chunk of a workload that is published as a whole is not proved yet."""
    if opening.atomicity is not Atomicity.WORKLOAD:
        return False
    live = attempts.list_live_of_workload(unit, opening.workload_id)
    proved = sum(each.state is AttemptState.COMMITTING for each in live)
    return proved < chunks.count(unit, opening.workload_id)
