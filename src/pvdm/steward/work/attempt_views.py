"""Attempts as their domain sees them: the ledger's row, the verdict, what was published, and what is under way."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pvdm.lake.vault import Vault
from pvdm.ledger import Unit
from pvdm.ledger.record import overrides, proofs
from pvdm.ledger.schema.work import Atomicity, VerdictWord
from pvdm.ledger.work import attempts, chunks, verified, workloads
from pvdm.ledger.work.attempts import Attempt
from pvdm.ledger.work.chunks import Extent
from pvdm.ledger.work.verified import StoredFinding, VerifiedRecord
from pvdm.ledger.work.workloads import Opening
from pvdm.model.located import Located
from pvdm.model.role import Role
from pvdm.model.states import ATTEMPT, AttemptState
from pvdm.steward.cleanup.quarantined import Quarantine, quarantine_of
from pvdm.steward.pipeline.jobs import JobState, JobView
from pvdm.steward.work.end_reasons import Refusal, refusal_in
from pvdm.steward.work.opened import contract_of
from pvdm.steward.work.sources import table_name
from pvdm.verify.findings import SHOWN_WHOLE

FINDINGS_SHOWN_MAX: Final = 10

JobOf = Callable[[Attempt], JobView | None]


@dataclass(frozen=True, slots=True)
class FindingView:
    """One finding, as far as the one who asks may see it; `withheld` says that values of rows were left out of it."""

    failure: str
    code: str
    message: str
    expected: str | None
    got: str | None
    file: str | None
    withheld: bool


@dataclass(frozen=True, slots=True)
class AttemptView:
    """One attempt; `waiting` says that it is proved and waits for the other chunks of its workload.

    `findings` are the first things that the newest proof found wrong, `findings_more` says how many there are besides;
    `override_id` is what it was published by, where that was no proof. `located` are the wrong rows, as far as the one
    who asks may see them, and `quarantine` is where the files of a FAIL are by now.
    """

    attempt: Attempt
    table: str | None
    waiting: bool
    verdict: str | None
    classes: tuple[str, ...]
    findings: tuple[FindingView, ...]
    findings_more: int
    proof_id: str | None
    override_id: str | None
    snapshot_id: str | None
    extent: Extent | None
    refusal: Refusal | None
    job: JobView | None
    located: Located | None = None
    quarantine: Quarantine | None = None

    @property
    def settled(self) -> bool:
        """Whether there is nothing to wait for: it has ended, or waits for others, or somebody must look after it."""
        return _is_settled(self.attempt, self.job, waiting=self.waiting)


@dataclass(frozen=True, slots=True)
class _Of:
    """What all attempts of one workload share; `overrides` by the snapshots that they published."""

    table: str | None
    incomplete: bool
    overrides: Mapping[str, str]


def is_settled(unit: Unit, attempt: Attempt, job_of: JobOf) -> bool:
    """What the attempt's view says of it, without all else that is in a view."""
    opening = workloads.get(unit, attempt.workload_id).opening
    waiting = attempt.state is AttemptState.COMMITTING and _is_incomplete(unit, opening)
    return _is_settled(attempt, job_of(attempt), waiting=waiting)


def attempt_views(
    unit: Unit, found: Sequence[Attempt], job_of: JobOf, role: Role, vault: Vault | None
) -> list[AttemptView]:
    """The attempts with all that a role may see of them; only for those that failed each is asked after."""
    ids = [each.attempt_id for each in found]
    said = proofs.last_of(unit, ids)
    shown = chunks.published_as(unit, ids)
    of_workloads = {each.workload_id for each in found}
    waived = overrides.used_by(unit, sorted(of_workloads))
    shared = {workload_id: _of(unit, workload_id, waived.get(workload_id, {})) for workload_id in of_workloads}
    records = verified.of_nonces(unit, [each.nonce for each in said.values() if each.verdict is VerdictWord.FAIL])
    told = {nonce: _told(unit, record, role) for nonce, record in records.items()}
    views = []
    for each in found:
        # While an attempt is verified again its old proof says nothing, and a new one is not covered by the log yet.
        proof = said.get(each.attempt_id) if each.state is not AttemptState.VERIFYING else None
        of, public = shared[each.workload_id], shown.get(each.attempt_id)
        failed = proof is not None and proof.verdict is VerdictWord.FAIL
        wrong = told.get(proof.nonce, _NOTHING) if proof is not None else _NOTHING
        quarantine = None
        if proof is not None and failed and vault is not None:
            quarantine = quarantine_of(unit, each, proof, wrong.files, vault)
        views.append(
            AttemptView(
                each,
                of.table,
                each.state is AttemptState.COMMITTING and of.incomplete,
                None if proof is None else proof.verdict.value,
                () if proof is None else tuple(json.loads(proof.summary).get("classes", ())),
                wrong.findings,
                wrong.more,
                None if proof is None else proof.proof_id,
                # Of chunks that were published together only those that failed needed the override.
                of.overrides.get(public.snapshot_id) if public is not None and failed else None,
                None if public is None else public.snapshot_id,
                None if public is None else public.extent,
                refusal_in(each.reason),
                job_of(each),
                wrong.located,
                quarantine,
            )
        )
    return views


@dataclass(frozen=True, slots=True)
class _Told:
    """What one role is told of what was wrong."""

    findings: tuple[FindingView, ...] = ()
    more: int = 0
    located: Located | None = None

    @property
    def files(self) -> frozenset[str]:
        """Every file that it speaks of."""
        found = {each.file for each in self.findings if each.file is not None}
        if self.located is not None:
            found |= {place.name for each in self.located.classes for place in each.files}
            found |= {key.file for each in self.located.classes for key in each.samples}
        return frozenset(found)


_NOTHING: Final = _Told()


def _told(unit: Unit, record: VerifiedRecord, role: Role) -> _Told:
    """What this role may see of a FAIL, under the contract of the attempt's workload."""
    workload = workloads.get(unit, attempts.get(unit, record.attempt_id).workload_id)
    contract = contract_of(unit, workload.opening.contract_hash)
    governance = contract.governance
    of_values = role is Role.STEWARD or role in governance.sample_keys
    first = tuple(_shown(each, of_values=of_values) for each in record.findings[:FINDINGS_SHOWN_MAX])
    located = record.located
    return _Told(
        first,
        len(record.findings) - len(first) + record.findings_more,
        None if located is None else located.seen_by(role, governance.sample_keys, contract.profile),
    )


def _shown(found: StoredFinding, *, of_values: bool) -> FindingView:
    whole = of_values or found.code in SHOWN_WHOLE or (found.expected is None and found.got is None)
    expected, got = (found.expected, found.got) if whole else (None, None)
    return FindingView(found.failure, found.code, found.message, expected, got, found.file, withheld=not whole)


def _of(unit: Unit, workload_id: str, waived: Mapping[str, str]) -> _Of:
    opening = workloads.get(unit, workload_id).opening
    return _Of(table_name(unit, opening.table_uuid), _is_incomplete(unit, opening), waived)


def _is_incomplete(unit: Unit, opening: Opening) -> bool:
    """Whether some chunk of a workload that is published at once is not proved yet."""
    if opening.atomicity is not Atomicity.WORKLOAD:
        return False
    live = attempts.live_of(unit, opening.workload_id)
    proved = sum(each.state is AttemptState.COMMITTING for each in live)
    return proved < chunks.count(unit, opening.workload_id)


def _is_settled(attempt: Attempt, job: JobView | None, *, waiting: bool) -> bool:
    stuck = job is not None and job.state is JobState.FAILED
    return attempt.state not in ATTEMPT.live() or waiting or stuck
