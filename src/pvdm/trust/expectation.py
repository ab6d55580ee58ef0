"""What a proof must say to be good for one publication: small checks with their own codes, for the gate to call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pvdm.model.clock import shown_time
from pvdm.model.statements.core import Operation, ProofCore
from pvdm.model.statements.files import FileSet
from pvdm.trust.refusal import refused
from pvdm.trust.verify import VerifiedProof


@dataclass(frozen=True, slots=True)
class Expectation:
    """The facts of the table, the attempt and the catalog as the gate knows them."""

    contract_sha256: str
    workload_id: str
    plan_sha256: str
    chunk_id: str
    attempt_id: str
    catalog: str
    table_uuid: str
    branch: str
    partition: tuple[tuple[str, str | None], ...]
    operation: Operation
    schema_fingerprint: str
    spec_id: int
    format_version: int
    base_snapshot_id: int | None
    staged_branch: str
    staged_snapshot_id: int | None
    files: FileSet
    epoch: int


def require_pass(proof: VerifiedProof) -> None:
    """Gate check 4."""
    verdict = proof.core.verdict
    if not verdict.passed:
        classes = ", ".join(found.value for found in verdict.classes)
        raise refused("verdict_not_pass", "the proof does not allow publication", "PASS", f"FAIL ({classes})")


def require_expected(core: ProofCore, expected: Expectation) -> None:
    """Gate checks 5 and 7 to 9, as far as the proof itself can say: every bound fact is the expected one."""
    attempt, target, staged = core.attempt, core.target, core.staged
    for code, what, want, got in (
        ("proof_wrong_contract", "contract", expected.contract_sha256, attempt.contract_sha256),
        ("proof_wrong_workload", "workload", expected.workload_id, attempt.workload_id),
        ("proof_wrong_plan", "chunk plan", expected.plan_sha256, attempt.plan_sha256),
        ("proof_wrong_chunk", "chunk", expected.chunk_id, attempt.chunk_id),
        ("proof_wrong_attempt", "attempt", expected.attempt_id, attempt.attempt_id),
        ("proof_wrong_catalog", "catalog", expected.catalog, target.table.catalog),
        ("proof_wrong_table", "table", expected.table_uuid, target.table.uuid),
        ("proof_wrong_branch", "branch", expected.branch, target.branch),
        ("proof_wrong_partition", "partition", expected.partition, target.partition),
        ("proof_wrong_operation", "operation", expected.operation.value, target.operation.value),
        ("proof_wrong_schema", "schema", expected.schema_fingerprint, target.schema_fingerprint),
        ("proof_wrong_spec", "partition spec", expected.spec_id, target.spec_id),
        ("proof_wrong_format", "format version", expected.format_version, target.format_version),
        ("proof_wrong_base", "base snapshot", expected.base_snapshot_id, target.base_snapshot_id),
        ("proof_wrong_staging", "staging branch", expected.staged_branch, staged.branch),
        ("proof_wrong_staged", "staged snapshot", expected.staged_snapshot_id, staged.snapshot_id),
    ):
        require_same(code, what, want, got)
    require_same_added(core.files, expected.files)
    require_same_removed(core.files, expected.files)


def require_same(code: str, what: str, expected: object, got: object) -> None:
    """One bound fact."""
    if expected != got:
        raise refused(code, f"the proof is for another {what}", expected, got)


def require_same_added(got: FileSet, expected: FileSet) -> None:
    """Exactly the verified files, by paths, size and hash."""
    if got.added != expected.added:
        raise refused(
            "proof_wrong_files",
            "the files to be added are not the ones that were verified",
            f"{len(got.added)} verified files",
            f"{len(expected.added)} others",
        )


def require_same_removed(got: FileSet, expected: FileSet) -> None:
    """Exactly the boundary's live files."""
    if got.removed != expected.removed:
        raise refused(
            "proof_wrong_removals",
            "the files to be removed are not the ones that the proof binds",
            f"{len(got.removed)} bound files",
            f"{len(expected.removed)} others",
        )


def require_not_expired(proof: VerifiedProof, now: int) -> None:
    """Gate check 6: every notary's word still stands."""
    for statement in proof.statements:
        notary = statement.predicate.notary
        if notary.expires_at <= now:
            raise refused(
                "proof_expired",
                f"the proof of {notary.notary} has expired",
                f"before {shown_time(notary.expires_at)}",
                shown_time(now),
            )


def require_epoch(proof: VerifiedProof, epoch: int) -> None:
    """The workload's epoch: proofs of another die with it."""
    for statement in proof.statements:
        notary = statement.predicate.notary
        if notary.epoch != epoch:
            raise refused("proof_wrong_epoch", f"the proof of {notary.notary} is of another epoch", epoch, notary.epoch)


def require_nonce_unused(core: ProofCore, used: Callable[[str], bool]) -> None:
    """Gate check 12 before the database has the last word: a nonce publishes once."""
    if used(core.attempt.nonce):
        raise refused(
            "nonce_reused", "the proof's nonce was used before", "a nonce that is still reserved", core.attempt.nonce
        )


def require_publishable(proof: VerifiedProof, expected: Expectation, *, now: int, used: Callable[[str], bool]) -> None:
    """Everything a verified proof must say before the gate looks at the catalog."""
    require_pass(proof)
    require_expected(proof.core, expected)
    require_not_expired(proof, now)
    require_epoch(proof, expected.epoch)
    require_nonce_unused(proof.core, used)
