"""Verification of signed statements: whose word it is, whether that counts now, and k notaries over one core."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic

from pvdm.errors import Code
from pvdm.model.clock import CLOCK_SKEW_MAX_SECONDS, shown_time
from pvdm.model.statements.attestation import SourceAttestation
from pvdm.model.statements.break_glass import BreakGlass
from pvdm.model.statements.core import ProofCore
from pvdm.model.statements.epoch import EpochStatement
from pvdm.model.statements.migration import Migration, Protection
from pvdm.model.statements.proof import Proof
from pvdm.model.statements.receipt import Receipt
from pvdm.model.statements.restore import RestoreStatement
from pvdm.trust.envelope import Envelope, parse_envelope
from pvdm.trust.refusal import refused
from pvdm.trust.root import RootKey, RootRole, TrustRoot
from pvdm.trust.signing import Signer, require_signature, seal
from pvdm.trust.statement import FAMILIES, P, Predicate, payload_of, read_statement
from pvdm.trust.succession import require_root_current

CLOCK_SKEW_MAX_MICROS: Final = CLOCK_SKEW_MAX_SECONDS * 1_000_000
NOTARY_ENVELOPES_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class Verified(Generic[P]):
    """A statement whose signature, signer and form hold."""

    predicate: P
    statement_id: str
    envelope: Envelope
    key: RootKey


@dataclass(frozen=True, slots=True)
class VerifiedProof:
    """One core that enough distinct notaries signed, with each one's own statement."""

    core: ProofCore
    statements: tuple[Verified[Proof], ...]

    @property
    def proof_ids(self) -> tuple[str, ...]:
        """The id of each notary's proof, in order."""
        return tuple(sorted(statement.statement_id for statement in self.statements))


def sign_statement(predicate: Predicate, signer: Signer) -> Envelope:
    """The statement in its envelope, signed."""
    return seal(payload_of(predicate), signer)


def verify_statement(data: bytes, root: TrustRoot, kind: type[P], *, now: int) -> Verified[P]:
    """The statement of this kind, once signature, key, signer's name, epoch and time hold at `now`."""
    return verify_signed(data, root, kind, now=now, require_role=require_role)


def verify_signed(
    data: bytes, root: TrustRoot, kind: type[P], *, now: int, require_role: Callable[[RootKey, RootRole], None]
) -> Verified[P]:
    """As `verify_statement`, with the caller's own words for a key of another role."""
    require_root_current(root, now)
    envelope = parse_envelope(data)
    key = require_signer(envelope, root, FAMILIES[kind].role, now=now, require_role=require_role)
    predicate = read_statement(envelope.payload, kind)
    require_own_word(predicate, key, now)
    return Verified(predicate, envelope.payload_sha256, envelope, key)


def require_signer(
    envelope: Envelope,
    root: TrustRoot,
    role: RootRole,
    *,
    now: int,
    require_role: Callable[[RootKey, RootRole], None],
) -> RootKey:
    """The key that made the signature, once the root trusts it for this role at `now`; nothing signed is read yet."""
    key = require_known_key(root, envelope.signature.key_id)
    require_role(key, role)
    require_not_revoked(key, now)
    require_valid_at(key, now)
    require_signature(key.public, envelope.signature.value, envelope.message)
    return key


def require_own_word(predicate: Predicate, key: RootKey, now: int) -> None:
    """What was signed is the key's to say: its holder's name, its epoch, in its time."""
    issued_at = _issued_at(predicate)
    require_signer_name(key, _signer(predicate))
    require_key_epoch(key, _epoch(predicate))
    require_not_from_future(issued_at, now)
    require_valid_at(key, issued_at)


def verify_threshold(envelopes: Sequence[bytes], root: TrustRoot, *, threshold: int, now: int) -> VerifiedProof:
    """One core that at least `threshold` distinct notary identities signed, each in a statement of its own."""
    require_strict_threshold(threshold, root)
    require_envelope_count(envelopes)
    statements = tuple(verify_statement(data, root, Proof, now=now) for data in envelopes)
    return require_agreed(statements, threshold)


def require_agreed(statements: Sequence[Verified[Proof]], threshold: int) -> VerifiedProof:
    """The one core of all of them, once enough distinct notaries say it."""
    require_distinct_notaries(statements)
    require_equal_cores(statements)
    require_enough_notaries(statements, threshold)
    return VerifiedProof(statements[0].predicate.core, tuple(statements))


def _signer(predicate: Predicate) -> str:
    match predicate:
        case Proof():
            return predicate.notary.notary
        case Migration() | Protection() | BreakGlass():
            return predicate.operator
        case SourceAttestation():
            return predicate.attestor
        case _:
            return predicate.notary


def _issued_at(predicate: Predicate) -> int:
    match predicate:
        case Proof():
            return predicate.notary.issued_at
        case Receipt():
            return predicate.published_at
        case _:
            return predicate.issued_at


def _epoch(predicate: Predicate) -> int | None:
    """The epoch that binds the signing key; others' keys have none, and of epochs and restores any usable one tells."""
    match predicate:
        case Proof():
            return predicate.notary.epoch
        case Migration() | Protection() | BreakGlass() | SourceAttestation() | EpochStatement() | RestoreStatement():
            return None
        case _:
            return predicate.epoch


def require_known_key(root: TrustRoot, key_id: str) -> RootKey:
    """Only keys that the trust root names count."""
    key = root.find(key_id)
    if key is None:
        raise refused(
            Code.KEY_UNKNOWN, "the signing key is not in the trust root", f"a key of version {root.version}", key_id
        )
    return key


def require_role(key: RootKey, role: RootRole) -> None:
    """The key is trusted for this kind of statement."""
    require_not_break_glass(key, role)
    require_has_role(key, role)


def require_has_role(key: RootKey, role: RootRole) -> None:
    """One of the roles that the trust root gives it."""
    if role not in key.roles:
        raise refused("key_role_wrong", "the signing key has another role", role.value, _roles(key))


def require_not_break_glass(key: RootKey, role: RootRole) -> None:
    """The break-glass key waives a verdict; it never makes one."""
    if RootRole.BREAK_GLASS in key.roles and role is not RootRole.BREAK_GLASS:
        raise refused("key_is_break_glass", "the statement is signed with a break-glass key", role.value, _roles(key))


def _roles(key: RootKey) -> str:
    return ", ".join(role.value for role in key.roles)


def require_not_revoked(key: RootKey, now: int) -> None:
    """A revoked key signs nothing, whatever time its statements name."""
    if key.revoked_at is not None and key.revoked_at <= now:
        raise refused(
            "key_revoked",
            f"the key of {key.identity} is revoked",
            "a key in use",
            f"revoked at {shown_time(key.revoked_at)}",
        )


def require_valid_at(key: RootKey, time: int) -> None:
    """Inside the key's validity: from the first microsecond, until before the last."""
    if time < key.valid_from:
        raise refused(
            "key_not_yet_valid",
            f"the key of {key.identity} is not valid yet",
            f"from {shown_time(key.valid_from)}",
            shown_time(time),
        )
    if time >= key.valid_until:
        raise refused(
            Code.KEY_EXPIRED,
            f"the key of {key.identity} has expired",
            f"before {shown_time(key.valid_until)}",
            shown_time(time),
        )


def require_signer_name(key: RootKey, name: str) -> None:
    """Nobody signs in another's name, and no notary has two."""
    if key.identity != name:
        raise refused(
            Code.SIGNER_NAME_WRONG, "the statement names another signer than its key's", key.identity, repr(name)
        )


def require_key_epoch(key: RootKey, epoch: int | None) -> None:
    """The key is trusted for the epoch that the statement names."""
    if epoch is not None and epoch not in key.epochs:
        raise refused(
            "key_epoch_wrong",
            f"the key of {key.identity} is not trusted for this epoch",
            "epoch " + (", ".join(str(each) for each in key.epochs) or "of no number"),
            epoch,
        )


def require_not_from_future(issued_at: int, now: int) -> None:
    """Clocks differ a little, not more."""
    if issued_at > now + CLOCK_SKEW_MAX_MICROS:
        raise refused(
            "statement_from_future",
            "the statement was issued later than now",
            f"at most {shown_time(now)}",
            shown_time(issued_at),
        )


def require_strict_threshold(threshold: int, root: TrustRoot) -> None:
    """A contract may ask for more notaries than the trust root, never for fewer."""
    if threshold < root.notary_threshold:
        raise Code.THRESHOLD_TOO_LOW(expected=f"at least {root.notary_threshold}", got=str(threshold))


def require_envelope_count(envelopes: Sequence[bytes]) -> None:
    """At least one, and no more than notaries can be."""
    if not 1 <= len(envelopes) <= NOTARY_ENVELOPES_MAX:
        raise refused(
            "envelope_count", "the number of envelopes cannot be right", f"1 to {NOTARY_ENVELOPES_MAX}", len(envelopes)
        )


def require_distinct_notaries(statements: Sequence[Verified[Proof]]) -> None:
    """One notary counts once, under however many keys."""
    seen = set()
    for statement in statements:
        if statement.key.identity in seen:
            raise refused(
                Code.NOTARY_REPEATED, "a notary would be counted twice", "distinct notaries", statement.key.identity
            )
        seen.add(statement.key.identity)


def require_equal_cores(statements: Sequence[Verified[Proof]]) -> None:
    """Every notary says the same, to the byte."""
    first = statements[0].predicate.core
    for statement in statements[1:]:
        other = statement.predicate.core
        if other.to_bytes() != first.to_bytes():
            ours, theirs = first.to_json(), other.to_json()
            field = next(name for name in ours if ours[name] != theirs[name])
            raise refused(
                Code.CORES_DIFFER,
                f"notaries disagree about {field}",
                statements[0].key.identity,
                statement.key.identity,
            )


def require_enough_notaries(statements: Sequence[Verified[Proof]], threshold: int) -> None:
    """k distinct identities."""
    count = len({statement.key.identity for statement in statements})
    if count < threshold:
        raise refused(Code.THRESHOLD_NOT_MET, "too few notaries signed", f"{threshold} notaries", count)


def require_pass(proof: VerifiedProof) -> None:
    """The verdict is PASS."""
    verdict = proof.core.verdict
    if not verdict.passed:
        classes = ", ".join(found.value for found in verdict.classes)
        raise refused("verdict_not_pass", "the proof does not allow publication", "PASS", f"FAIL ({classes})")


def require_not_expired(proof: VerifiedProof, now: int) -> None:
    """No notary's proof has expired."""
    for statement in proof.statements:
        notary = statement.predicate.notary
        if notary.expires_at <= now:
            raise refused(
                Code.PROOF_EXPIRED,
                f"the proof of {notary.notary} has expired",
                f"before {shown_time(notary.expires_at)}",
                shown_time(now),
            )


def require_epoch(proof: VerifiedProof, epoch: int) -> None:
    """Every proof is of the workload's epoch."""
    for statement in proof.statements:
        notary = statement.predicate.notary
        if notary.epoch != epoch:
            raise refused("proof_wrong_epoch", f"the proof of {notary.notary} is of another epoch", epoch, notary.epoch)
