"""Verifies attempts: runs the verification job, records its proof, and changes the attempt's state."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from pvdm import fault
from pvdm.catalog.catalog import Catalog
from pvdm.errors import Code, ConflictError, InputError, NotAllowedError, PvdmError
from pvdm.lake.format.table.snapshots import MAIN
from pvdm.lake.paths import parse_location
from pvdm.lake.read.entries import FileReader, live_entries
from pvdm.lake.stores.seal import Seals
from pvdm.lake.vault import Vault, VaultKind
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import tables
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.work import attempts, chunks, nonces, verified, workloads
from pvdm.ledger.work.attempts import Attempt
from pvdm.ledger.work.verified import StoredFinding, VerifiedRecord
from pvdm.metadata.gate.proposal import require_staged_shown, translate_table_errors
from pvdm.model.chunk import ChunkDefinition
from pvdm.model.fields import MICROS_PER_SECOND
from pvdm.model.printable import counted
from pvdm.model.statements.core import Attempt as ProvedAttempt
from pvdm.model.statements.core import ProofCore
from pvdm.model.statements.proof import Storage
from pvdm.model.statements.verdict import FailureClass
from pvdm.model.states import AttemptState
from pvdm.steward.locks import hold_work
from pvdm.steward.pipeline.proposals import encode_verified, find_waiver, may_still_be_used
from pvdm.steward.record.proofs import Proofs, RecordedProof
from pvdm.steward.work.notices import NO_NOTICES, Notices
from pvdm.steward.work.opened import bound_contract, encode_refusal, is_adopted
from pvdm.steward.work.sources import Sources, table_ref
from pvdm.verify.findings import Finding
from pvdm.verify.job import Tools, VerificationResult, VerifyJob, verify
from pvdm.verify.source import translate_load_errors, unusable_error
from pvdm.verify.staged import find_base_id

VERIFY_RUNS_MAX: Final = 1_000_000


@dataclass(eq=False)
class Verification:
    """Brings attempts from VERIFYING to their verdict; each call continues where an earlier call stopped."""

    ledger: Ledger
    clock: LedgerClock
    catalog: Catalog
    sources: Sources
    proofs: Proofs
    vault: Vault
    tools: Tools
    dispose: Callable[[str], object]  # cleans up after an ended attempt, now or later
    seals: Seals | None = None
    notices: Notices = NO_NOTICES

    def verify(self, attempt_id: str) -> None:
        """Record one proof for the attempt's nonce, and set its state to COMMITTING or VERIFICATION_FAILED.

        If the source cannot be used as the contract says, there is no verdict, and the attempt becomes ROLLED_BACK.
        An attempt that is not VERIFYING stays as it is. Raises `work_held` while another Steward verifies it.
        """
        with self.ledger.read() as unit:
            attempt = attempts.get(unit, attempt_id)
            current = nonces.find_current(unit, attempt_id)
        if attempt.state is AttemptState.VERIFYING and current is not None:
            try:
                with hold_work(self.ledger, attempt_id):
                    self._verify(attempt, current.nonce)
            except ConflictError as error:
                if error.code != Code.ATTEMPT_MOVED:  # the new state of a moved attempt is read below
                    raise
            except InputError as error:
                if error.code != Code.SOURCE_UNUSABLE:
                    raise
                self._give_up(attempt, current.nonce, error)
        with self.ledger.read() as unit:
            state = attempts.get(unit, attempt_id).state
        if state in (AttemptState.VERIFICATION_FAILED, AttemptState.ROLLED_BACK):
            self.dispose(attempt_id)

    def load_job(self, attempt_id: str) -> VerifyJob:
        """The verification job of this attempt, under a new job id; it is not run. Ends the last run's key handle."""
        with self.ledger.read() as unit:
            attempt = attempts.get(unit, attempt_id)
            current = nonces.find_current(unit, attempt_id)
        if attempt.state is not AttemptState.VERIFYING or current is None:
            raise Code.ATTEMPT_MOVED("the attempt is not being verified", expected="VERIFYING", got=attempt.state)
        return self._load_job(attempt, current.nonce)

    def _verify(self, attempt: Attempt, nonce: str) -> None:
        found = self.proofs.find_recorded(nonce)
        if found is None:
            job = self._load_job(attempt, nonce)
            if job.storage is Storage.SEALED:
                # The producer's write access ends at the store before files are read.
                if self.seals is None:
                    raise Code.STORAGE_UNSUPPORTED(reason="seal_impossible", got=attempt.prefix)
                self.seals.seal(parse_location(attempt.prefix))
            result = verify(job, self.tools)
            if result.core.verdict.passed:
                require_not_outdated(self.ledger, job, result.core.files.removed, self.tools.files)
            self._store_result(job, result)
            fault.point("verify.after_manifest")
            recorded = self.proofs.record(
                result.core,
                result.commitments,
                storage=job.storage,
                lifetime_micros=job.bound.contract.governance.proof_lifetime_seconds * MICROS_PER_SECOND,
                context=result.context,
            )
            core = result.core
        else:
            recorded, core = found
        fault.point("verify.after_proof")
        self._apply_verdict(attempt, recorded, core)
        fault.point("verify.after_verdict")

    def _store_result(self, job: VerifyJob, result: VerificationResult) -> None:
        """Store the verified manifest and the findings before the proof, so that every recorded proof has them."""
        location = sha256 = None
        nonce = job.attempt.nonce
        if result.files is not None:
            data = encode_verified(job.metadata, result.files, nonce)
            sha256 = hashlib.sha256(data).hexdigest()
            name = f"verified-{nonce}-{sha256[:16]}.avro"
            location = self.vault.write(job.table.uuid, VaultKind.METADATA, name, data)
        findings = [
            StoredFinding(each.failure.value, each.code, each.message, each.expected, each.got, each.file)
            for each in result.findings
        ]
        record = VerifiedRecord(
            nonce,
            job.attempt.attempt_id,
            core_sha256=hashlib.sha256(result.core.to_bytes()).hexdigest(),
            location=location,
            sha256=sha256,
            files=len(result.core.files.added),
            rows=result.core.rows.staged,
            findings=tuple(findings),
            located=result.located,
        )
        self.ledger.transact(lambda unit: verified.put(unit, record), at_micros=self.clock.now_micros())

    def _apply_verdict(self, attempt: Attempt, recorded: RecordedProof, core: ProofCore) -> None:
        def work(unit: Unit) -> None:
            locked = attempts.lock(unit, attempt.attempt_id)
            if not _is_verifying(unit, locked, core.attempt.nonce):
                raise Code.ATTEMPT_MOVED("the attempt is not being verified", expected="VERIFYING", got=locked.state)
            waived_by = None if core.verdict.passed else self._find_override(unit, locked, core)
            if core.verdict.passed:
                attempts.begin_committing(unit, attempt.attempt_id, reason=f"PASS: proof {recorded.statement_id}")
            elif waived_by is not None:
                reason = f"FAIL: proof {recorded.statement_id}, waived by {waived_by}"
                attempts.begin_committing(unit, attempt.attempt_id, reason=reason)
            else:
                refusal = verdict_error(core, recorded.statement_id)
                ended, reason = AttemptState.VERIFICATION_FAILED, encode_refusal(refusal)
                failed = attempts.end(unit, attempt.attempt_id, ended, reason=reason)
                self.notices.add_verdict_fail(unit, failed, core, recorded.statement_id)

        self.ledger.transact(work, at_micros=self.clock.now_micros())

    def _give_up(self, attempt: Attempt, nonce: str, error: InputError) -> None:
        """Roll the attempt back without a verdict; the workload stays open."""

        def work(unit: Unit) -> None:
            if _is_verifying(unit, attempts.lock(unit, attempt.attempt_id), nonce):
                reason = encode_refusal(error)
                ended = attempts.end(unit, attempt.attempt_id, AttemptState.ROLLED_BACK, reason=reason)
                self.notices.add_roll_back(unit, ended)

        self.ledger.transact(work, at_micros=self.clock.now_micros())

    def _find_override(self, unit: Unit, attempt: Attempt, core: ProofCore) -> str | None:
        """The id of the override that waives this FAIL, if the files could be read; the gate checks the override."""
        found = find_waiver(unit, attempt, core)
        if found is None or verified.get(unit, core.attempt.nonce).location is None:
            return None
        override, _ = found
        may_be_used = may_still_be_used(unit, attempt, override, self.clock.now_micros())
        return override.record.override_id if may_be_used else None

    def _load_job(self, attempt: Attempt, nonce: str) -> VerifyJob:
        catalog = self.catalog
        with self.ledger.read() as unit:
            workload = workloads.get(unit, attempt.workload_id)
            row = tables.find_by_uuid(unit, workload.opening.table_uuid)
            if row is None:
                raise Code.TABLE_UNKNOWN("the workload's table is gone", got=workload.opening.table_uuid)
            bound = bound_contract(unit, workload)
            planned = chunks.find(unit, attempt.workload_id, attempt.chunk_id)
            table = table_ref(unit, catalog.name, row)
        if planned is None:
            raise AssertionError("the attempt's chunk is not in the plan")
        with translate_table_errors():
            metadata = catalog.states.load_newest(row).metadata
        staged = None if attempt.staged_snapshot_id is None else int(attempt.staged_snapshot_id)
        # Raises for an upstream's table only: an upstream may show an old state, so the job is tried again.
        require_staged_shown(metadata, staged, upstream=row.upstream)
        head = None if staged is None else metadata.snapshot(staged)
        findings: list[Finding] = []
        if staged is not None and head is None:
            message = "the staged snapshot is not in the table any more"
            findings.append(Finding(FailureClass.METADATA, "staged_snapshot_gone", message, str(staged), "none"))
        adopted = is_adopted(attempt)  # it took over a branch that a job staged itself (`pvdm publish`)
        # Called before the source is read: the last run's key handle ends, whether the source is found or not.
        job_id = self._end_last_run(nonce)
        with translate_load_errors():
            source = self.sources.pin_again(workload, bound)
        return VerifyJob(
            job_id=job_id,
            attempt=ProvedAttempt(
                contract_sha256=bound.contract.sha256,
                parameters=bound.parameters,
                workload_id=attempt.workload_id,
                plan_sha256=workload.plan_hash,
                chunk_id=attempt.chunk_id,
                attempt_id=attempt.attempt_id,
                number=attempt.number,
                nonce=nonce,
            ),
            epoch=workload.epoch,
            bound=bound,
            chunk=ChunkDefinition.from_bytes(planned.definition),
            table=table,
            branch=MAIN,
            staging_branch=attempt.branch,
            metadata=metadata,
            base_id=find_base_id(metadata, head),
            head=head,
            folders=(parse_location(row.location if adopted else attempt.prefix),),
            source=source,
            storage=Storage.COPIED if adopted else bound.contract.storage,
            prior_findings=tuple(findings),
        )

    def _end_last_run(self, nonce: str) -> str:
        """End the handle by which workers of the last run get keys; returns a job id that was not used before.

        Runs are numbered without a gap, so a binary search finds the first free number. Each probe ends the run that it
        finds, and the search always probes the last run. There may be thousands of runs, one for each retry.
        """
        low, high = 0, 1
        while self._end_run(nonce, high - 1):
            low, high = high, 2 * high
        high -= 1
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self._end_run(nonce, middle) else (low, middle)
        if low < VERIFY_RUNS_MAX:
            return _run_id(nonce, low)
        raise Code.BUG(reason="verify_runs_too_many", expected=str(VERIFY_RUNS_MAX))

    def _end_run(self, nonce: str, run: int) -> bool:
        """End the key handle of this run; returns whether there was such a run."""
        try:
            self.tools.handles.end(_run_id(nonce, run))
        except NotAllowedError as error:
            if error.code != Code.HANDLE_UNKNOWN:
                raise
            return False
        return True


def _is_verifying(unit: Unit, attempt: Attempt, nonce: str) -> bool:
    """Whether the attempt is still being verified under this nonce."""
    current = nonces.find_current(unit, attempt.attempt_id)
    return attempt.state is AttemptState.VERIFYING and current is not None and current.nonce == nonce


def _run_id(nonce: str, run: int) -> str:
    return f"verify:{nonce}:{run}"


def verdict_error(core: ProofCore, proof_id: str) -> PvdmError:
    """The error that a producer gets for a FAIL: its classes, and the row counts if rows were counted."""
    expected = got = None
    if core.rows.intent is not None:
        expected = f"{counted(core.rows.intent, 'row')} as intended"
        staged = core.rows.staged
        got = "files that could not be read" if staged is None else f"{counted(staged, 'row')} staged"
    return Code.VERIFICATION_FAILED(
        f"the verdict is FAIL: {', '.join(each.value for each in core.verdict.classes)}",
        expected=expected,
        got=got,
        hint=f"proof {proof_id}; fix the job unless the findings name another cause, then open a new attempt with a "
        "reason: `pvdm repair`, or `pvdm publish` for a branch of your own",
    )


def require_not_outdated(ledger: Ledger, job: VerifyJob, removed: Collection[str], reader: FileReader) -> None:
    """Refuse to replace files that were published from a snapshot of the source that is newer than the pinned one.

    This happens when an older workload is continued after a newer one has corrected the same rows. A snapshot that the
    source no longer has counts as older.
    """
    source = job.source.metadata
    base = None if job.base_id is None else job.metadata.snapshot(job.base_id)
    if not removed or source is None or base is None:
        return
    entries = live_entries(job.metadata, base, reader)
    replaced = {str(each.snapshot_id) for each in entries if each.data_file.file_path in frozenset(removed)}
    with ledger.read() as unit:
        own_source = workloads.get(unit, job.attempt.workload_id).opening.source
        publishers = workloads.list_publishers(unit, job.table.uuid, replaced)
    not_newer = {each.snapshot_id for each in source.ancestry(job.source.snapshot_id)}
    for other in publishers:
        pinned = int(other.source_snapshot_id or 0)
        if other.opening.source != own_source or pinned in not_newer or source.snapshot(pinned) is None:
            continue
        raise unusable_error(
            Code.SOURCE_REFUSED(
                f"workload {other.opening.workload_id} has published these rows from a newer snapshot of the source",
                reason="source_outdated",
                expected=f"snapshot {pinned} of {job.source.ref.name}, or a later one",
                got=str(job.source.snapshot_id),
            )
        )
