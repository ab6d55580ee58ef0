"""Views of attempts for the callers of their domain: state, verdict, findings, publication, job and quarantine."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Final

from pvdm.api.errors import RefusalView
from pvdm.api.work import (
    AttemptView,
    ExtentView,
    FindingView,
    JobState,
    JobView,
    KeptFileView,
    QuarantineView,
    is_attempt_settled,
)
from pvdm.errors import PvdmError
from pvdm.lake.format.table.snapshots import MAIN
from pvdm.lake.vault import Vault, VaultKind, quarantine_name
from pvdm.ledger import Unit
from pvdm.ledger.ids import REASON_MAX_CHARACTERS
from pvdm.ledger.record import overrides, proofs
from pvdm.ledger.record.proofs import ProofRecord
from pvdm.ledger.schema.record import VerdictWord
from pvdm.ledger.schema.work import Atomicity, DisposalWord
from pvdm.ledger.work import attempts, chunks, quarantine, verified, workloads
from pvdm.ledger.work.attempts import Attempt
from pvdm.ledger.work.chunks import Published
from pvdm.ledger.work.verified import StoredFinding, VerifiedRecord
from pvdm.ledger.work.workloads import Opening
from pvdm.model.located import Located
from pvdm.model.role import Role
from pvdm.model.statements.proof import Proof
from pvdm.model.statements.verdict import FailureClass, Outcome
from pvdm.model.states import AttemptState
from pvdm.steward.work.opened import contract_of
from pvdm.steward.work.sources import table_name
from pvdm.trust.statement import read_signed
from pvdm.verify.findings import SHOWN_WHOLE

FINDINGS_SHOWN_MAX: Final = 10
_REFUSAL_KEYS = ("code", "reason", "message", "expected", "got", "hint")
_REFUSAL_PART_CHARACTERS = 600


class JobKind(Enum):
    """What a job does."""

    VERIFY = "verify"
    PUBLISH = "publish"
    DISPOSE = "dispose"
    SETTLE = "settle"


@dataclass(frozen=True, slots=True)
class JobStatus:
    """One job and the error of its last try; `subject` is an attempt id or a workload id."""

    kind: JobKind
    subject: str
    state: JobState
    tries: int
    error: PvdmError | None
    again_seconds: int | None = None
    """Time until the next automatic retry; None where there is none."""
    age_seconds: float = 0.0
    """Time since the job was requested."""


JobOf = Callable[[Attempt], JobStatus | None]


@dataclass(frozen=True, slots=True)
class _WorkloadFacts:
    """Facts that all attempts of one workload share; `overrides` by the snapshots that they published."""

    table: str | None
    incomplete: bool
    overrides: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _FailureDetails:
    """What one role may see of a FAIL."""

    findings: tuple[FindingView, ...] = ()
    more: int = 0
    located: Located | None = None
    quarantine: QuarantineView | None = None

    @property
    def files(self) -> frozenset[str]:
        """Every file that the details name."""
        found = {each.file for each in self.findings if each.file is not None}
        if self.located is not None:
            found |= {place.name for each in self.located.classes for place in each.files}
            found |= {key.file for each in self.located.classes for key in each.samples}
        return frozenset(found)


_NO_DETAILS: Final = _FailureDetails()


def is_settled(unit: Unit, attempt: Attempt, job_of: JobOf) -> bool:
    """Whether the attempt's view would be settled, without reading the rest of the view."""
    opening = workloads.get(unit, attempt.workload_id).opening
    waiting = attempt.state is AttemptState.COMMITTING and _is_incomplete(unit, opening)
    job = job_of(attempt)
    return is_attempt_settled(attempt.state, waiting=waiting, failed=job is not None and job.state is JobState.FAILED)


def attempt_views(unit: Unit, found: Sequence[Attempt], job_of: JobOf, role: Role, vault: Vault) -> list[AttemptView]:
    """Build the views of these attempts for a role; details are read only for those that failed."""
    ids = [each.attempt_id for each in found]
    last_proofs = proofs.newest_of_each(unit, ids)
    published = chunks.published_as(unit, ids)
    workload_ids = {each.workload_id for each in found}
    override_ids = overrides.used_by(unit, sorted(workload_ids))
    workload_facts = {each: _workload_facts(unit, each, override_ids.get(each, {})) for each in workload_ids}
    records = verified.of_nonces(
        unit, [each.nonce for each in last_proofs.values() if each.verdict is VerdictWord.FAIL]
    )
    details = {nonce: _failure_details(unit, record, role) for nonce, record in records.items()}
    views = []
    for each in found:
        # During a second verification the old proof no longer counts, and the log does not cover a new one yet.
        proof = last_proofs.get(each.attempt_id) if each.state is not AttemptState.VERIFYING else None
        failure = details.get(proof.nonce, _NO_DETAILS) if proof is not None else _NO_DETAILS
        if proof is not None and proof.verdict is VerdictWord.FAIL:
            failure = replace(failure, quarantine=locate_in_quarantine(unit, each, proof, failure.files, vault))
        facts, public = workload_facts[each.workload_id], published.get(each.attempt_id)
        views.append(_attempt_view(each, facts, proof, public, failure, job_of(each)))
    return views


def _attempt_view(
    attempt: Attempt,
    facts: _WorkloadFacts,
    proof: ProofRecord | None,
    published: Published | None,
    failure: _FailureDetails,
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
        table=facts.table,
        target_branch=MAIN,
        branch=attempt.branch,
        prefix=attempt.prefix,
        staged_snapshot_id=None if staged is None else int(staged),
        reason=sentence_of(attempt.reason),
        changed_at=attempt.at_micros,
        waiting=attempt.state is AttemptState.COMMITTING and facts.incomplete,
        verdict=None if proof is None else Outcome(proof.verdict),
        classes=tuple(FailureClass(each) for each in classes),
        findings=failure.findings,
        findings_more=failure.more,
        proof_id=None if proof is None else proof.proof_id,
        override_id=facts.overrides.get(snapshot) if waived and snapshot is not None else None,
        snapshot_id=None if snapshot is None else int(snapshot),
        extent=None if extent is None else ExtentView(**asdict(extent)),
        refusal=decode_refusal(attempt.reason),
        job=None if job is None else job_view(job),
        located=failure.located,
        quarantine=failure.quarantine,
    )


def job_view(job: JobStatus) -> JobView:
    """A job as the attempt's producer may see it; the text of a bug is in the Steward's log only."""
    return JobView(
        state=job.state,
        tries=job.tries,
        problem=None if job.error is None else RefusalView.of_error(job.error),
        again_seconds=job.again_seconds,
    )


def _workload_facts(unit: Unit, workload_id: str, override_ids: Mapping[str, str]) -> _WorkloadFacts:
    opening = workloads.get(unit, workload_id).opening
    return _WorkloadFacts(table_name(unit, opening.table_uuid), _is_incomplete(unit, opening), override_ids)


def _is_incomplete(unit: Unit, opening: Opening) -> bool:
    """Whether some chunk of a workload that is published as a whole is not proved yet."""
    if opening.atomicity is not Atomicity.WORKLOAD:
        return False
    live = attempts.list_live_of_workload(unit, opening.workload_id)
    proved = sum(each.state is AttemptState.COMMITTING for each in live)
    return proved < chunks.count(unit, opening.workload_id)


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


def locate_in_quarantine(
    unit: Unit, attempt: Attempt, proof: ProofRecord, named: Collection[str], vault: Vault
) -> QuarantineView | None:
    """Locate the named files of the attempt in quarantine; None if they were not moved there, or were removed."""
    done = verified.find_disposal(unit, attempt.attempt_id)
    if done is None or done.outcome is not DisposalWord.QUARANTINED:
        return None
    if quarantine.find_removal(unit, attempt.attempt_id) is not None:
        return None
    table = workloads.get(unit, attempt.workload_id).opening.table_uuid
    bound = read_signed(proofs.envelope(unit, proof.proof_id), Proof).core.files.added if named else ()
    kept = [
        KeptFileView(
            file=each.staged_path,
            location=vault.place(table, VaultKind.QUARANTINE, quarantine_name(attempt.attempt_id, each.staged_sha256)),
        )
        for each in bound
        if each.staged_path in named
    ]
    return QuarantineView(folder=vault.place(table, VaultKind.QUARANTINE, attempt.attempt_id), files=tuple(kept))


def encode_refusal(error: PvdmError) -> str:
    """Encode the error as the reason of an attempt's end; `decode_refusal` decodes it."""
    parts = {key: getattr(error, key) for key in _REFUSAL_KEYS}
    cut = {key: None if part is None else str(part)[:_REFUSAL_PART_CHARACTERS] for key, part in parts.items()}
    text = json.dumps(cut, ensure_ascii=False).replace("\x00", "")
    # Escapes can make the text too long: then only the code and the first words are kept.
    short = json.dumps(
        {**dict.fromkeys(_REFUSAL_KEYS), "code": error.code, "reason": error.reason, "message": str(error.message)[:80]}
    )
    return text if len(text) <= REASON_MAX_CHARACTERS else short


def decode_refusal(reason: str) -> RefusalView | None:
    """Decode a reason that `encode_refusal` wrote; None for a plain sentence."""
    if not reason.startswith('{"code"'):
        return None
    try:
        found = json.loads(reason)
        return RefusalView(**{key: found[key] for key in _REFUSAL_KEYS})
    except (ValueError, KeyError):
        return None


def sentence_of(reason: str) -> str:
    """The reason as a sentence: for a refusal its code and message."""
    found = decode_refusal(reason)
    return reason if found is None else f"{found.reason}: {found.message}"
