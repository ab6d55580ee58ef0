"""The gate's checks 1 to 6: who signed the statements, and what the statements name.

These checks read no file of the table. Checks 7 to 15 are in `checks_table`. Each `check_N…` is the row N of the table
in spec/gate.md. It raises the refusal with that number (`error.check`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from pvdm.errors import Code, NotAllowedError
from pvdm.lake.format.table.snapshots import MAIN
from pvdm.ledger.catalog.tables import TableRow
from pvdm.ledger.record import statements as statement_records
from pvdm.ledger.unit import Unit
from pvdm.ledger.work import nonces
from pvdm.metadata.gate.context import Gate, check, name_attempt
from pvdm.metadata.gate.proposal import Part, Proposal, Waiver
from pvdm.metadata.gate.target import Base
from pvdm.model.contract import Atomicity, BoundContract
from pvdm.model.projection import ProjectionName
from pvdm.model.statements.break_glass import BreakGlass
from pvdm.model.statements.core import ProofCore
from pvdm.model.statements.kind import StatementKind
from pvdm.model.statements.proof import ChunkProofs, Proof, Storage, WorkloadStatement
from pvdm.model.states import NonceState
from pvdm.trust.approval import MAIN_MOVED_HINT, VERDICT_UNCHANGED_HINT, require_override_unexpired, verify_override
from pvdm.trust.envelope import Envelope, parse_envelope
from pvdm.trust.refusal import refused, require_same
from pvdm.trust.root import RootRole, TrustedKey, TrustRoot, require_root_current
from pvdm.trust.statement import read_statement
from pvdm.trust.verify import (
    VerifiedProof,
    VerifiedStatement,
    require_agreed,
    require_envelope_count,
    require_epoch,
    require_key_covers,
    require_not_revoked,
    require_pass,
    require_proofs_unexpired,
    require_signer,
    require_unexpired,
    require_valid_at,
    verify_threshold,
)

_P = TypeVar("_P")  # a value for each proof
_W = TypeVar("_W")  # the value for the workload statement


@dataclass(frozen=True, slots=True)
class TrustState:
    """The newest trust root, the ids of all accepted roots, and the time of the checks in microseconds."""

    root: TrustRoot
    root_ids: tuple[str, ...]
    now: int

    @classmethod
    def read(cls, gate: Gate) -> TrustState:
        """Read the state. The ids are read first: `check_2_again` then notices a root that was accepted since."""
        return cls(gate.trust.current(), gate.trust.ids(), gate.clock.now_micros())


@dataclass(frozen=True, slots=True)
class PerStatement(Generic[_P, _W]):
    """One value for each proof, grouped by chunk, and one for the workload statement if there is one."""

    proofs: tuple[tuple[_P, ...], ...]
    workload: _W | None


@dataclass(frozen=True, slots=True)
class SignedChunk:
    """A chunk whose proofs are signed by enough notaries. `override` waives its FAIL; None for a PASS."""

    part: Part
    proof: VerifiedProof
    override: VerifiedStatement[BreakGlass] | None = None

    @property
    def core(self) -> ProofCore:
        """The facts that all its notaries signed."""
        return self.proof.core


@dataclass(frozen=True, slots=True)
class SignedProposal:
    """A proposal whose statements are signed, and the trust state that was used to check them."""

    proposal: Proposal
    chunks: tuple[SignedChunk, ...]
    statement: VerifiedStatement[WorkloadStatement] | None
    trust: TrustState

    @property
    def keys(self) -> tuple[TrustedKey, ...]:
        """The notary keys that signed its proofs and its workload statement."""
        statement_key = () if self.statement is None else (self.statement.key,)
        return (*(proof.key for chunk in self.chunks for proof in chunk.proof.statements), *statement_key)

    @property
    def override(self) -> VerifiedStatement[BreakGlass] | None:
        """The override that the publication uses, if it uses one."""
        return next((chunk.override for chunk in self.chunks if chunk.override is not None), None)

    @property
    def removed(self) -> frozenset[str]:
        """The paths that the publication removes: the union over its chunks."""
        return frozenset(path for chunk in self.chunks for path in chunk.core.files.removed)


# 1 envelope


@check(1)
def check_1_envelopes(proposal: Proposal) -> PerStatement[Envelope, Envelope]:
    """The proposal is complete. Each envelope parses within its limits, in canonical JSON, with one signature."""
    require_complete(proposal)
    proofs = []
    for part in proposal.parts:
        with name_attempt(part):
            require_envelope_count([logged.envelope for logged in part.proofs])
            proofs.append(tuple(parse_envelope(logged.envelope) for logged in part.proofs))
    statement = proposal.workload_statement
    return PerStatement(tuple(proofs), None if statement is None else parse_envelope(statement.envelope))


def require_complete(proposal: Proposal) -> None:
    """The proposal has one chunk of the plan; under atomicity `workload` each chunk once, and a workload statement."""
    chunk_ids = [part.attempt.chunk_id for part in proposal.parts]
    all_at_once = proposal.bound.contract.atomicity is Atomicity.WORKLOAD
    expected_count = len(proposal.chunk_ids) if all_at_once else 1
    distinct = frozenset(chunk_ids)
    if len(chunk_ids) != expected_count or len(distinct) != expected_count or not distinct <= proposal.chunk_ids:
        expected = f"all {expected_count} chunks of the plan" if all_at_once else "one chunk of the plan"
        raise refused("publication_not_whole", expected, f"{len(chunk_ids)} chunks")
    if all_at_once and proposal.workload_statement is None:
        raise Code.PUBLICATION_MISMATCH(reason="workload_statement_missing", got="none")
    if not all_at_once and proposal.workload_statement is not None:
        raise Code.PUBLICATION_MISMATCH(reason="workload_statement_needless", got="one")


# 2 signatures, 3 statement: a payload is read only after the signature's key was checked


@check(2)
def check_2_signatures(
    proposal: Proposal, envelopes: PerStatement[Envelope, Envelope], trust: TrustState
) -> PerStatement[TrustedKey, TrustedKey]:
    """Each envelope is signed with a notary key that the trust root trusts now."""
    proofs = []
    for part, part_envelopes in zip(proposal.parts, envelopes.proofs, strict=True):
        with name_attempt(part):
            proofs.append(tuple(require_notary_key(envelope, trust) for envelope in part_envelopes))
    workload = envelopes.workload
    return PerStatement(tuple(proofs), None if workload is None else require_notary_key(workload, trust))


def require_notary_key(envelope: Envelope, trust: TrustState) -> TrustedKey:
    """The notary key that signed the envelope. The trust root itself must not have expired."""
    require_root_current(trust.root, trust.now)
    return require_signer(envelope, trust.root, RootRole.NOTARY, now=trust.now)


@check(3)
def check_3_statements(
    proposal: Proposal, envelopes: PerStatement[Envelope, Envelope], keys: PerStatement[TrustedKey, TrustedKey]
) -> PerStatement[VerifiedStatement[Proof], VerifiedStatement[WorkloadStatement]]:
    """Each payload is an in-toto statement of the expected kind, in the version that is known here."""
    proofs = []
    for part, part_envelopes, part_keys in zip(proposal.parts, envelopes.proofs, keys.proofs, strict=True):
        with name_attempt(part):
            proofs.append(tuple(map(_read_proof, part_envelopes, part_keys)))
    envelope, key = envelopes.workload, keys.workload
    if envelope is None or key is None:
        return PerStatement(tuple(proofs), None)
    statement = read_statement(envelope.payload, WorkloadStatement)
    return PerStatement(tuple(proofs), VerifiedStatement(statement, envelope.payload_sha256, envelope, key))


def _read_proof(envelope: Envelope, key: TrustedKey) -> VerifiedStatement[Proof]:
    return VerifiedStatement(read_statement(envelope.payload, Proof), envelope.payload_sha256, envelope, key)


@check(2)
def check_2_notaries(
    proposal: Proposal,
    statements: PerStatement[VerifiedStatement[Proof], VerifiedStatement[WorkloadStatement]],
    trust: TrustState,
) -> SignedProposal:
    """Each notary signs in its own name. Enough distinct notaries sign byte-equal cores, in the workload's epoch."""
    threshold = max(proposal.bound.contract.governance.threshold, trust.root.thresholds.notary)
    chunks = []
    for part, proofs in zip(proposal.parts, statements.proofs, strict=True):
        with name_attempt(part):
            for each in proofs:
                require_key_covers(each.predicate, each.key, trust.now)
            proof = require_agreed(proofs, threshold)
            require_epoch(proof, proposal.workload.epoch)
            chunks.append(SignedChunk(part, proof))
    workload = statements.workload
    if workload is not None:
        require_key_covers(workload.predicate, workload.key, trust.now)
    return SignedProposal(proposal, tuple(chunks), workload, trust)


@check(2)
def check_2_again(signed: SignedProposal, unit: Unit, *, now: int) -> None:
    """In the transaction: the trust root is still the newest one, and the keys that signed are still valid."""
    if statement_records.list_ids_by_kind(unit, StatementKind.TRUST_ROOT) != signed.trust.root_ids:
        raise Code.TRUST_ROOT_MOVED()
    require_root_current(signed.trust.root, now)
    for key in signed.keys:
        require_not_revoked(key, now)
        require_valid_at(key, now)


# 4 verdict


@check(4)
def check_4_verdict(signed: SignedProposal, gate: Gate) -> SignedProposal:
    """Each verdict is PASS, or a FAIL that a break-glass override waives for exactly these bytes."""

    def is_used(nonce: str) -> bool:
        with gate.ledger.read() as unit:
            record = nonces.find(unit, nonce)
        return record is None or record.state is not NonceState.RESERVED

    chunks = []
    for chunk in signed.chunks:
        with name_attempt(chunk.part):
            if chunk.part.waiver is None or chunk.core.verdict.passed:
                require_pass(chunk.proof)
                chunks.append(chunk)
            else:
                override = verify_waiver(chunk.core, chunk.part.waiver, signed.trust, is_used)
                chunks.append(replace(chunk, override=override))
    if sum(chunk.override is not None for chunk in chunks) > 1:
        raise refused("overrides_many", "one", "several")
    return replace(signed, chunks=tuple(chunks))


def verify_waiver(
    core: ProofCore, waiver: Waiver, trust: TrustState, is_used: Callable[[str], bool]
) -> VerifiedStatement[BreakGlass]:
    """The override that waives the FAIL of this core."""
    envelopes = [logged.envelope for logged in waiver.failed]
    logged_at = max(logged.at_micros for logged in waiver.failed)  # the proofs may have expired since then
    failed = verify_threshold(envelopes, trust.root, threshold=trust.root.thresholds.notary, now=logged_at)
    override = verify_override(waiver.override.envelope, trust.root, failed=failed, now=trust.now, used=is_used)
    require_waived(override.predicate, failed.core, core)
    return override


def require_waived(override: BreakGlass, failed: ProofCore, core: ProofCore) -> None:
    """The core has the table, chunk, base and staged bytes of the FAIL that the operator waived."""
    for code, what, expected, got in (
        ("override_wrong_table", "table", override.table.uuid, core.target.table.uuid),
        ("override_wrong_base", "base snapshot", override.base_snapshot_id, core.target.base_snapshot_id),
        ("override_wrong_chunk", "workload", failed.attempt.workload_id, core.attempt.workload_id),
        ("override_wrong_chunk", "chunk", failed.attempt.chunk_id, core.attempt.chunk_id),
        ("override_wrong_files", "set of files", override.file_hashes, core.files.staged_hashes),
    ):
        if expected != got:
            message = f"the override is for another {what}"
            hint = MAIN_MOVED_HINT if code == "override_wrong_base" else VERDICT_UNCHANGED_HINT
            raise NotAllowedError(code, message, expected=str(expected)[:200], got=str(got)[:200], hint=hint)


# 5 target


@check(5)
def check_5_target(signed: SignedProposal, base: Base, row: TableRow) -> None:
    """The statements name this catalog, table, branch, partition, operation and attempt, and the table's contract.

    `row` is the table's row. In the transaction it can be newer than the row of `base`.
    """
    for chunk in signed.chunks:
        with name_attempt(chunk.part):
            require_target(chunk, signed.proposal, base, row)
            require_projections(chunk.core, signed.proposal.bound)
            require_storage(chunk.proof, signed.proposal.bound.contract.storage)
    if signed.statement is not None:
        require_workload_statement(signed.statement.predicate, signed)


def require_target(chunk: SignedChunk, proposal: Proposal, base: Base, row: TableRow) -> None:
    """The proof names this table and attempt, and the contract that the table is protected under."""
    core, attempt, workload, bound = chunk.core, chunk.part.attempt, proposal.workload, proposal.bound
    contract, target, proved = bound.contract, core.target, core.attempt
    for code, what, expected, got in (
        ("proof_wrong_catalog", "catalog", base.table.catalog, target.table.catalog),
        ("proof_wrong_table", "table", row.table_uuid, target.table.uuid),
        ("proof_wrong_branch", "branch", MAIN, target.branch),
        ("proof_wrong_contract", "contract", row.contract_hash, proved.contract_sha256),
        ("proof_wrong_contract", "contract", workload.opening.contract_hash, proved.contract_sha256),
        ("proof_wrong_contract", "contract", contract.sha256, proved.contract_sha256),
        ("proof_wrong_parameters", "set of parameters", bound.parameters, proved.parameters),
        ("proof_wrong_operation", "operation", contract.boundary.operation, target.operation),
        ("proof_wrong_partition", "partition", bound.partition, target.partition),
        ("proof_wrong_method", "profile", contract.profile, core.method.profile),
        ("proof_wrong_method", "extraction", contract.extraction, core.method.extraction),
        ("proof_wrong_workload", "workload", workload.opening.workload_id, proved.workload_id),
        ("proof_wrong_plan", "chunk plan", workload.plan_hash, proved.plan_sha256),
        ("proof_wrong_chunk", "chunk", attempt.chunk_id, proved.chunk_id),
        ("proof_wrong_attempt", "attempt", attempt.attempt_id, proved.attempt_id),
        ("proof_wrong_attempt", "attempt", attempt.number, proved.number),
    ):
        require_same(code, what, expected, got)


def require_projections(core: ProofCore, bound: BoundContract) -> None:
    """The identity projection has the contract's keys, the content projection excludes the contract's exclusions."""
    declared = bound.contract.projections
    found = {each.projection.name: each.projection for each in core.projections}
    identity, content = found.get(ProjectionName.IDENTITY), found.get(ProjectionName.CONTENT)
    keys = None if identity is None else tuple(sorted(identity.columns))
    excluded = None if content is None else tuple(sorted((each.column, each.reason) for each in content.excluded))
    require_same("proof_wrong_projection", "identity projection", declared.identity, keys)
    require_same("proof_wrong_projection", "content projection", declared.excluded, excluded)


def require_storage(proof: VerifiedProof, declared: Storage) -> None:
    """The storage is the contract's, or `copied`, which is accepted for any contract."""
    for each in proof.statements:
        storage = each.predicate.notary.storage
        if storage not in (declared, Storage.COPIED):
            raise refused("proof_wrong_storage", declared.value, storage.value)


def require_workload_statement(statement: WorkloadStatement, signed: SignedProposal) -> None:
    """The workload statement binds this workload, and for each chunk this attempt, nonce and set of proofs."""
    workload, proofs = signed.proposal.workload, [chunk.proof for chunk in signed.chunks]
    by_attempt = [(proof.core.attempt, proof.proof_ids) for proof in proofs]
    chunks = [ChunkProofs(each.chunk_id, each.attempt_id, each.nonce, proof_ids) for each, proof_ids in by_attempt]
    for what, expected, got in (
        ("workload", workload.opening.workload_id, statement.workload_id),
        ("contract", workload.opening.contract_hash, statement.contract_sha256),
        ("chunk plan", workload.plan_hash, statement.plan_sha256),
        ("epoch", workload.epoch, statement.epoch),
        ("table", proofs[0].core.target.table.uuid, statement.table.uuid),
        ("set of proofs", tuple(sorted(chunks, key=lambda chunk: chunk.chunk_id)), statement.chunks),
    ):
        if expected != got:
            message = f"the workload statement is for another {what}"
            raise refused("workload_statement_differs", f"the {what} of the proofs", "another", message=message)


# 6 expiry


@check(6)
def check_6_expiry(signed: SignedProposal, *, now: int) -> None:
    """No proof or override has expired, nor has the workload statement."""
    for chunk in signed.chunks:
        with name_attempt(chunk.part):
            require_proofs_unexpired(chunk.proof, now)
            if chunk.override is not None:
                require_override_unexpired(chunk.override.predicate, now)
    if signed.statement is not None:
        require_unexpired(signed.statement.predicate.expires_at, now, Code.PROOF_EXPIRED, "the workload statement")
