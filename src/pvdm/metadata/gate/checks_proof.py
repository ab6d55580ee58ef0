"""Gate checks 1 to 4 and 6: what the signed bytes say by themselves, judged by the trust root and the time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pvdm.errors import ConflictError, NotAllowedError
from pvdm.ledger.record import statements
from pvdm.ledger.schema.work import StatementKind
from pvdm.ledger.unit import Unit
from pvdm.metadata.gate.context import check
from pvdm.metadata.gate.proposal import Part, Waiver
from pvdm.model.statements.break_glass import BreakGlass
from pvdm.model.statements.core import ProofCore
from pvdm.model.statements.proof import Proof
from pvdm.trust.envelope import Envelope, parse_envelope
from pvdm.trust.expectation import require_epoch, require_not_expired, require_pass
from pvdm.trust.override import MAIN_MOVED, verify_override
from pvdm.trust.root import RootKey, RootRole, TrustRoot
from pvdm.trust.statement import read_statement
from pvdm.trust.succession import require_root_current
from pvdm.trust.verify import (
    Verified,
    VerifiedProof,
    require_agreed,
    require_envelope_count,
    require_not_revoked,
    require_own_word,
    require_role,
    require_signer,
    require_valid_at,
    verify_threshold,
)


def judge_proofs(part: Part, root: TrustRoot, *, threshold: int, epoch: int, now: int) -> VerifiedProof:
    """Checks 1 to 3 on every notary's proof of one chunk: one core that enough of them signed."""
    with check(1):
        require_envelope_count([each.envelope for each in part.proofs])
        envelopes = [check_1_envelope(each.envelope) for each in part.proofs]
    found = []
    for envelope in envelopes:
        with check(2):
            key = check_2_signature(envelope, root, now=now)
        with check(3):
            proof = check_3_statement(envelope)
        found.append(Verified(proof, envelope.payload_sha256, envelope, key))
    with check(2):
        return check_2_notaries(found, threshold=threshold, epoch=epoch, now=now)


def check_1_envelope(data: bytes) -> Envelope:
    """The envelope parses within its limits, in its one spelling, with one signature."""
    return parse_envelope(data)


def check_2_signature(envelope: Envelope, root: TrustRoot, *, now: int) -> RootKey:
    """Signed with a notary's key that the root trusts at this time."""
    require_root_current(root, now)
    return require_signer(envelope, root, RootRole.NOTARY, now=now, require_role=require_role)


def check_2_notaries(statements: Sequence[Verified[Proof]], *, threshold: int, epoch: int, now: int) -> VerifiedProof:
    """Each its own notary's word, enough of them distinct, over byte-equal cores, in the workload's epoch."""
    for each in statements:
        require_own_word(each.predicate, each.key, now)
    proof = require_agreed(statements, threshold)
    require_epoch(proof, epoch)
    return proof


def check_2_again(unit: Unit, keys: Sequence[RootKey], root: TrustRoot, judged_by: Sequence[str], *, now: int) -> None:
    """In the transaction: the root is still the newest one, and trusts the keys still."""
    if statements.ids_of_kind(unit, StatementKind.TRUST_ROOT) != tuple(judged_by):
        raise ConflictError(
            "trust_root_moved", "a trust root was accepted meanwhile", hint="nothing was published; it is judged again"
        )
    require_root_current(root, now)
    for key in keys:
        require_not_revoked(key, now)
        require_valid_at(key, now)


def check_3_statement(envelope: Envelope) -> Proof:
    """A proof, of the version that is known here."""
    return read_statement(envelope.payload, Proof)


def check_4_verdict(
    proof: VerifiedProof, waiver: Waiver | None, root: TrustRoot, *, now: int, used: Callable[[str], bool]
) -> Verified[BreakGlass] | None:
    """PASS; or a FAIL that an override waives for exactly these bytes: then the override."""
    if waiver is None or proof.core.verdict.passed:
        require_pass(proof)
        return None
    failed = verify_threshold(
        [each.envelope for each in waiver.failed],
        root,
        threshold=root.notary_threshold,
        now=max(each.at_micros for each in waiver.failed),
    )
    override = verify_override(waiver.override.envelope, root, failed=failed, now=now, used=used)
    require_waived(override.predicate, failed.core, proof.core)
    return override


def require_waived(said: BreakGlass, failed: ProofCore, core: ProofCore) -> None:
    """What is to be published is what the operator has seen fail: the same chunk, on the same base, the same bytes."""
    tried, now = failed.attempt, core.attempt
    for code, what, expected, got in (
        ("override_wrong_table", "table", said.table.uuid, core.target.table.uuid),
        ("override_wrong_base", "base snapshot", said.base_snapshot_id, core.target.base_snapshot_id),
        ("override_wrong_chunk", "workload", tried.workload_id, now.workload_id),
        ("override_wrong_chunk", "chunk", tried.chunk_id, now.chunk_id),
        ("override_wrong_files", "set of files", said.file_hashes, core.files.staged_hashes),
    ):
        if expected != got:
            raise NotAllowedError(
                code,
                f"the override is for another {what}",
                expected=str(expected)[:200],
                got=str(got)[:200],
                hint=MAIN_MOVED if code == "override_wrong_base" else "nothing was published; the verdict stands",
            )


def check_6_expiry(proof: VerifiedProof, *, now: int) -> None:
    """Every notary's word still stands."""
    require_not_expired(proof, now)
