"""The signed statements of an audit. Each is verified when it is used, with keys that were valid when it was logged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias

from pvdm.errors import Code
from pvdm.metadata.audit.evidence import AUDIT_STATEMENTS_MAX, Evidence, LoggedStatement
from pvdm.metadata.audit.report import Notes
from pvdm.model.statements.break_glass import BreakGlass
from pvdm.model.statements.claim_release import ClaimRelease
from pvdm.model.statements.core import AddedFile
from pvdm.model.statements.kind import StatementKind
from pvdm.model.statements.migration import Migration, Protection
from pvdm.model.statements.proof import Proof
from pvdm.model.statements.receipt import Receipt
from pvdm.trust.approval import verify_approval, verify_override
from pvdm.trust.bundle import log_checker
from pvdm.trust.envelope import parse_envelope
from pvdm.trust.log.checkpoint import Checkpoint, open_checkpoint
from pvdm.trust.log.merkle import InclusionProof
from pvdm.trust.log.proof import verify_inclusion
from pvdm.trust.refusal import refused
from pvdm.trust.root import TrustRoot
from pvdm.trust.statement import P, read_unchecked
from pvdm.trust.verify import (
    CLOCK_SKEW_MAX_MICROS,
    VerifiedProof,
    VerifiedStatement,
    require_agreed,
    verify_statement,
    verify_threshold,
)


@dataclass(frozen=True, slots=True)
class UnverifiedStatement(Generic[P]):
    """A parsed statement whose signature has not been checked. `statement_id` is the SHA-256 of its payload."""

    logged: LoggedStatement
    statement_id: str
    predicate: P


UnverifiedApproval: TypeAlias = UnverifiedStatement[Protection] | UnverifiedStatement[Migration]


@dataclass(frozen=True, slots=True)
class ProvedChunk:
    """One core (what all notaries of a chunk state alike), signed by enough notaries, and its proofs' log indexes."""

    proof: VerifiedProof
    first_index: int
    last_index: int


def added_files(chunks: Iterable[ProvedChunk]) -> Iterator[AddedFile]:
    """Every file that the proofs add."""
    return (file for chunk in chunks for file in chunk.proof.core.files.added)


def removed_paths(chunks: Iterable[ProvedChunk]) -> set[str]:
    """Every path that the proofs remove."""
    return {path for chunk in chunks for path in chunk.proof.core.files.removed}


class Statements:
    """Indexes the statements of the evidence and verifies them."""

    def __init__(self, evidence: Evidence, root: TrustRoot, origin: str, now: int, notes: Notes) -> None:
        """Raises if the checkpoint is invalid. A statement that cannot be read is noted. `now` is in microseconds."""
        keys = log_checker(root, origin=origin).keys
        self.checkpoint: Checkpoint = open_checkpoint(evidence.checkpoint, origin=origin, keys=keys).checkpoint
        self._root = root
        self._now = now
        self.receipts: dict[int, list[UnverifiedStatement[Receipt]]] = {}  # by the snapshot that they made visible
        self.protections: list[UnverifiedStatement[Protection]] = []
        self.migrations: list[UnverifiedStatement[Migration]] = []
        self.releases: list[UnverifiedStatement[ClaimRelease]] = []
        self._proofs: dict[str, LoggedStatement] = {}  # by statement id
        self._overrides: dict[str, LoggedStatement] = {}  # by statement id
        if (count := len(evidence.statements)) > AUDIT_STATEMENTS_MAX:
            message, most = "the audit has too many statements", f"at most {AUDIT_STATEMENTS_MAX}"
            raise Code.AUDIT_FAILED(message, reason="audit_too_large", expected=most, got=str(count))
        seen: set[str] = set()
        for logged in evidence.statements:
            with notes.collect():
                self._add(logged, seen)

    def _add(self, logged: LoggedStatement, seen: set[str]) -> None:
        """Add a statement to the index of its kind. `seen` has the ids of all statements before it."""
        statement_id = parse_envelope(logged.envelope).payload_sha256
        if statement_id in seen:
            raise refused("audit_statement_repeated", "each once", statement_id)
        seen.add(statement_id)
        match logged.kind:
            case StatementKind.RECEIPT:
                receipt = UnverifiedStatement(logged, statement_id, read_unchecked(logged.envelope, Receipt))
                self.receipts.setdefault(receipt.predicate.new_snapshot_id, []).append(receipt)
            case StatementKind.PROTECTION:
                protection = read_unchecked(logged.envelope, Protection)
                self.protections.append(UnverifiedStatement(logged, statement_id, protection))
            case StatementKind.MIGRATION:
                migration = read_unchecked(logged.envelope, Migration)
                self.migrations.append(UnverifiedStatement(logged, statement_id, migration))
            case StatementKind.CLAIM_RELEASE:
                release = read_unchecked(logged.envelope, ClaimRelease)
                self.releases.append(UnverifiedStatement(logged, statement_id, release))
            case StatementKind.PROOF:
                self._proofs[statement_id] = logged
            case StatementKind.BREAK_GLASS:
                self._overrides[statement_id] = logged
            case other:
                raise refused("audit_statement_unexpected", "a statement about one table", other)

    def require_logged(self, logged: LoggedStatement) -> None:
        """The log entry is in the checkpoint's tree, and not in the future beyond the allowed clock skew."""
        size, root = self.checkpoint.size, self.checkpoint.root
        verify_inclusion(InclusionProof(logged.index, size, logged.hashes), entry=logged.leaf, size=size, root=root)
        latest = self._now + CLOCK_SKEW_MAX_MICROS
        if logged.logged_at > latest:
            raise refused("audit_logged_in_future", f"at most {latest}", logged.logged_at)

    def verify_receipt(self, statement: UnverifiedStatement[Receipt]) -> VerifiedStatement[Receipt]:
        """The verified receipt: logged, and signed by a notary whose key was valid when it was logged."""
        self.require_logged(statement.logged)
        return verify_statement(statement.logged.envelope, self._root, Receipt, now=statement.logged.logged_at)

    def verify_approval(self, statement: UnverifiedApproval | UnverifiedStatement[ClaimRelease]) -> None:
        """The approval is logged, and signed by an operator whose key was valid when it was logged."""
        self.require_logged(statement.logged)
        envelope, now = statement.logged.envelope, statement.logged.logged_at
        match statement.predicate:
            case Migration():
                verify_approval(envelope, self._root, Migration, now=now)
            case Protection():
                verify_approval(envelope, self._root, Protection, now=now)
            case ClaimRelease():
                verify_approval(envelope, self._root, ClaimRelease, now=now)

    def verify_proofs(self, proof_ids: Sequence[str]) -> tuple[ProvedChunk, ...]:
        """Verify the proofs of these ids. Returns one `ProvedChunk` for each different core."""
        groups: dict[bytes, list[LoggedStatement]] = {}
        for proof_id in proof_ids:
            logged = self._find(self._proofs, proof_id, "audit_proof_missing")
            groups.setdefault(read_unchecked(logged.envelope, Proof).core.to_bytes(), []).append(logged)
        return tuple(self._verify_chunk(group) for group in groups.values())

    def verify_proof(self, proof_id: str) -> VerifiedProof:
        """The one proof of this id, verified as of its log entry. No threshold applies: it is one notary's proof."""
        logged = self._find(self._proofs, proof_id, "audit_proof_missing")
        return require_agreed([verify_statement(logged.envelope, self._root, Proof, now=logged.logged_at)], 1)

    def _find(self, known: Mapping[str, LoggedStatement], statement_id: str, code: str) -> LoggedStatement:
        found = known.get(statement_id)
        if found is None:
            raise refused(code, statement_id, "none")
        self.require_logged(found)
        return found

    def _verify_chunk(self, group: Sequence[LoggedStatement]) -> ProvedChunk:
        """Verify proofs of one core as of their last log entry, so that keys which have expired since are accepted."""
        envelopes = [each.envelope for each in group]
        now = max(each.logged_at for each in group)
        proof = verify_threshold(envelopes, self._root, threshold=self._root.thresholds.notary, now=now)
        indexes = [each.index for each in group]
        return ProvedChunk(proof, min(indexes), max(indexes))

    def verify_override(self, override_id: str) -> tuple[VerifiedStatement[BreakGlass], int]:
        """The override, verified as of its log entry, and its log index. `checks.Proofs` checks that it is used once.

        It names one notary's FAIL proof, and the evidence has no other proof of this FAIL, so no threshold applies.
        """
        found = self._find(self._overrides, override_id, "audit_override_missing")
        failed = self.verify_proof(read_unchecked(found.envelope, BreakGlass).fail_proof_id)
        verified = verify_override(found.envelope, self._root, failed=failed, now=found.logged_at, used=lambda _: False)
        return verified, found.index

    def all_receipts(self) -> Iterable[UnverifiedStatement[Receipt]]:
        """Every receipt, unverified."""
        return (statement for group in self.receipts.values() for statement in group)
