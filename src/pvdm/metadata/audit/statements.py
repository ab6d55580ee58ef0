"""The statements of an audit: judged when a snapshot rests on them, by log, trust root and the time of their entry."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic

from pvdm.errors import VerificationError
from pvdm.metadata.audit.evidence import AUDIT_STATEMENTS_MAX, Evidence, LoggedStatement
from pvdm.metadata.audit.report import Notes
from pvdm.model.statements.break_glass import BreakGlass
from pvdm.model.statements.migration import Migration, Protection
from pvdm.model.statements.proof import Proof
from pvdm.model.statements.receipt import Receipt
from pvdm.trust.approval import verify_approval
from pvdm.trust.envelope import parse_envelope
from pvdm.trust.inclusion import log_checker
from pvdm.trust.log.checkpoint import Checkpoint, open_checkpoint
from pvdm.trust.log.entry import EntryKind
from pvdm.trust.log.merkle import InclusionProof
from pvdm.trust.log.proof import verify_inclusion
from pvdm.trust.override import verify_override
from pvdm.trust.refusal import refused
from pvdm.trust.root import TrustRoot
from pvdm.trust.statement import P, read_signed
from pvdm.trust.verify import CLOCK_SKEW_MAX_MICROS, Verified, VerifiedProof, verify_statement, verify_threshold


@dataclass(frozen=True, slots=True)
class Said(Generic[P]):
    """A statement as it reads; nothing of it is believed before it was judged."""

    logged: LoggedStatement
    statement_id: str
    predicate: P


@dataclass(frozen=True, slots=True)
class ProvedChunk:
    """One core that enough notaries signed, and the places of their words in the log."""

    proof: VerifiedProof
    first_index: int
    last_index: int


class Statements:
    """What the evidence holds, by what it says of itself, and the judge of it."""

    def __init__(self, evidence: Evidence, root: TrustRoot, origin: str, now: int, notes: Notes) -> None:
        """The checkpoint must hold; a statement that cannot be read is noted."""
        keys = log_checker(root, origin=origin).keys
        self.checkpoint: Checkpoint = open_checkpoint(evidence.checkpoint, origin=origin, keys=keys).checkpoint
        self._root = root
        self._now = now
        self.receipts: dict[int, list[Said[Receipt]]] = {}
        self.protections: list[Said[Protection]] = []
        self.migrations: list[Said[Migration]] = []
        self._proofs: dict[str, LoggedStatement] = {}
        self._overrides: dict[str, LoggedStatement] = {}
        require_count(evidence.statements)
        seen: set[str] = set()
        for logged in evidence.statements:
            with notes.held():
                self._sort(logged, seen)

    def _sort(self, logged: LoggedStatement, seen: set[str]) -> None:
        statement_id = parse_envelope(logged.envelope).payload_sha256
        if statement_id in seen:
            raise refused("audit_statement_repeated", "a statement is there twice", "each once", statement_id)
        seen.add(statement_id)
        match logged.kind:
            case EntryKind.RECEIPT:
                receipt = Said(logged, statement_id, read_signed(logged.envelope, Receipt))
                self.receipts.setdefault(receipt.predicate.new_snapshot_id, []).append(receipt)
            case EntryKind.PROTECTION:
                self.protections.append(Said(logged, statement_id, read_signed(logged.envelope, Protection)))
            case EntryKind.MIGRATION:
                self.migrations.append(Said(logged, statement_id, read_signed(logged.envelope, Migration)))
            case EntryKind.PROOF:
                self._proofs[statement_id] = logged
            case EntryKind.BREAK_GLASS:
                self._overrides[statement_id] = logged
            case other:
                raise refused("audit_statement_unexpected", "a statement has no place in an audit", "another", other)

    def require_logged(self, logged: LoggedStatement) -> None:
        """Its entry is in the tree of the checkpoint, and is not from the future, as far as clocks agree."""
        size, root = self.checkpoint.size, self.checkpoint.root
        included = InclusionProof(logged.index, size, logged.hashes)
        verify_inclusion(included, entry=logged.leaf, size=size, root=root)
        latest = self._now + CLOCK_SKEW_MAX_MICROS
        if logged.logged_at > latest:
            raise refused(
                "audit_logged_in_future", "the log entry is later than now", f"at most {latest}", logged.logged_at
            )

    def receipt(self, said: Said[Receipt]) -> Verified[Receipt]:
        """The receipt, once it is logged and signed by a notary whose key was good then."""
        self.require_logged(said.logged)
        return verify_statement(said.logged.envelope, self._root, Receipt, now=said.logged.logged_at)

    def approval(self, said: Said[Protection] | Said[Migration]) -> None:
        """The approval is logged, and an operator's word that was good then."""
        self.require_logged(said.logged)
        envelope, now = said.logged.envelope, said.logged.logged_at
        if isinstance(said.predicate, Migration):
            verify_approval(envelope, self._root, Migration, now=now)
        else:
            verify_approval(envelope, self._root, Protection, now=now)

    def chunks(self, proof_ids: Sequence[str]) -> tuple[ProvedChunk, ...]:
        """The proofs of these ids, those of several notaries over one core taken together."""
        groups: dict[bytes, list[LoggedStatement]] = {}
        for proof_id in proof_ids:
            logged = self._proof(proof_id)
            groups.setdefault(read_signed(logged.envelope, Proof).core.to_bytes(), []).append(logged)
        return tuple(self._proved(group) for group in groups.values())

    def _proof(self, proof_id: str) -> LoggedStatement:
        found = self._proofs.get(proof_id)
        if found is None:
            raise refused("audit_proof_missing", "a proof that the receipt names is not there", proof_id, "none")
        self.require_logged(found)
        return found

    def _proved(self, group: Sequence[LoggedStatement]) -> ProvedChunk:
        """Judged at the time the log took it in: keys that expired since then were good when it counted."""
        envelopes = [each.envelope for each in group]
        now = max(each.logged_at for each in group)
        proof = verify_threshold(envelopes, self._root, threshold=self._root.notary_threshold, now=now)
        places = [each.index for each in group]
        return ProvedChunk(proof, min(places), max(places))

    def override(self, override_id: str) -> tuple[Verified[BreakGlass], int]:
        """The override on its own FAIL proof, judged when it was logged; and its place in the log."""
        found = self._overrides.get(override_id)
        if found is None:
            raise refused("audit_override_missing", "the override is not there", override_id, "none")
        self.require_logged(found)
        said = read_signed(found.envelope, BreakGlass)
        (failed,) = self.chunks([said.fail_proof_id])
        verified = verify_override(
            found.envelope, self._root, failed=failed.proof, now=found.logged_at, used=lambda _: False
        )
        return verified, found.index

    def all_receipts(self) -> Iterable[Said[Receipt]]:
        """Every receipt, by what it says of itself."""
        return (said for group in self.receipts.values() for said in group)


def require_count(statements: Sequence[LoggedStatement]) -> None:
    """Not more than an audit can hold."""
    if len(statements) > AUDIT_STATEMENTS_MAX:
        raise VerificationError(
            "audit_too_large",
            "the audit has too many statements",
            expected=f"at most {AUDIT_STATEMENTS_MAX}",
            got=str(len(statements)),
        )
