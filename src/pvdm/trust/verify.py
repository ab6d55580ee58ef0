"""Checks of signed statements, their keys and notaries. A `require_` function raises unless its docstring is true."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, Generic, TypeAlias

from pvdm.errors import Code
from pvdm.model.fields import CLOCK_SKEW_MAX_SECONDS, MICROS_PER_SECOND
from pvdm.model.printable import iso_time
from pvdm.model.statements.core import ProofCore
from pvdm.model.statements.proof import Proof
from pvdm.trust.envelope import Envelope, parse_envelope, require_signature, sign_envelope
from pvdm.trust.keys.public import SigningKey
from pvdm.trust.refusal import refused
from pvdm.trust.root import RootRole, TrustedKey, TrustRoot, require_root_current
from pvdm.trust.statement import SIGNING_RULES, P, Predicate, payload_of, read_statement

CLOCK_SKEW_MAX_MICROS: Final = CLOCK_SKEW_MAX_SECONDS * MICROS_PER_SECOND
NOTARY_ENVELOPES_MAX: Final = 16
RoleCheck: TypeAlias = Callable[[TrustedKey, RootRole], None]  # raises unless the key may sign in this role


@dataclass(frozen=True, slots=True)
class VerifiedStatement(Generic[P]):
    """A statement whose signature, signer and form are valid."""

    predicate: P
    statement_id: str
    envelope: Envelope
    key: TrustedKey


@dataclass(frozen=True, slots=True)
class VerifiedProof:
    """One core (the part of a proof that notaries must agree on) that enough notaries signed, and their statements."""

    core: ProofCore
    statements: tuple[VerifiedStatement[Proof], ...]

    @property
    def proof_ids(self) -> tuple[str, ...]:
        """The id of each notary's proof, sorted."""
        return tuple(sorted(statement.statement_id for statement in self.statements))


def sign_statement(predicate: Predicate, signer: SigningKey) -> Envelope:
    """The statement in its envelope, signed."""
    return sign_envelope(payload_of(predicate), signer)


def verify_statement(
    data: bytes, root: TrustRoot, kind: type[P], *, now: int, check_role: RoleCheck | None = None
) -> VerifiedStatement[P]:
    """The statement, if its signature, key, epoch and time are valid. `check_role` replaces `require_role`."""
    require_root_current(root, now)
    envelope = parse_envelope(data)
    key = require_signer(envelope, root, SIGNING_RULES[kind].role, now=now, check_role=check_role)
    predicate = read_statement(envelope.payload, kind)
    require_key_covers(predicate, key, now)
    return VerifiedStatement(predicate, envelope.payload_sha256, envelope, key)


def require_signer(
    envelope: Envelope, root: TrustRoot, role: RootRole, *, now: int, check_role: RoleCheck | None = None
) -> TrustedKey:
    """The key that made the signature, which the root trusts for this role at `now`. The payload is not read."""
    key = require_known_key(root, envelope.signature.key_id)
    (check_role or require_role)(key, role)
    require_not_revoked(key, now)
    require_valid_at(key, now)
    require_signature(key.public, envelope.signature.value, envelope.message)
    return key


def require_key_covers(predicate: Predicate, key: TrustedKey, now: int) -> None:
    """The key belongs to the signer that the statement names, and is trusted for the statement's epoch and time."""
    rule = SIGNING_RULES[type(predicate)]
    issued_at: int = attrgetter(rule.issued_at)(predicate)
    require_signer_name(key, attrgetter(rule.signer)(predicate))
    require_key_epoch(key, None if rule.epoch is None else attrgetter(rule.epoch)(predicate))
    require_not_from_future(issued_at, now)
    require_valid_at(key, issued_at)


def verify_threshold(envelopes: Sequence[bytes], root: TrustRoot, *, threshold: int, now: int) -> VerifiedProof:
    """The verified proof, if at least `threshold` distinct notaries signed its core, each in a statement of its own."""
    require_threshold_of_root(threshold, root)
    require_envelope_count(envelopes)
    return require_agreed(tuple(verify_statement(data, root, Proof, now=now) for data in envelopes), threshold)


def require_agreed(statements: Sequence[VerifiedStatement[Proof]], threshold: int) -> VerifiedProof:
    """The verified proof, if all statements have one core and at least `threshold` distinct notaries signed it."""
    require_distinct_notaries(statements)
    require_equal_cores(statements)
    require_enough_notaries(statements, threshold)
    return VerifiedProof(statements[0].predicate.core, tuple(statements))


def require_known_key(root: TrustRoot, key_id: str) -> TrustedKey:
    """The key is in the trust root."""
    key = root.find(key_id)
    if key is None:
        raise refused(Code.KEY_UNKNOWN, f"a key of version {root.version} of the trust root", key_id)
    return key


def require_role(key: TrustedKey, role: RootRole) -> None:
    """The key may sign in this role."""
    require_not_break_glass(key, role)
    require_has_role(key, role)


def require_has_role(key: TrustedKey, role: RootRole) -> None:
    """The trust root gives the key this role."""
    if role not in key.roles:
        raise refused("key_role_wrong", role.value, _roles(key))


def require_not_break_glass(key: TrustedKey, role: RootRole) -> None:
    """A break-glass key is refused for any other role: it signs only overrides."""
    if RootRole.BREAK_GLASS in key.roles and role is not RootRole.BREAK_GLASS:
        raise refused("key_is_break_glass", role.value, _roles(key))


def _roles(key: TrustedKey) -> str:
    return ", ".join(role.value for role in key.roles)


def require_not_revoked(key: TrustedKey, now: int) -> None:
    """The key is not revoked at `now`. The statement's own time does not matter."""
    if key.revoked_at is not None and key.revoked_at <= now:
        message = f"the key of {key.identity} is revoked"
        raise refused("key_revoked", "a key in use", f"revoked at {iso_time(key.revoked_at)}", message=message)


def require_valid_at(key: TrustedKey, time: int) -> None:
    """The key is valid at this time. The end of its validity is excluded."""
    if time < key.valid_from:
        message = f"the key of {key.identity} is not valid yet"
        raise refused("key_not_yet_valid", f"from {iso_time(key.valid_from)}", iso_time(time), message=message)
    if time >= key.valid_until:
        message = f"the key of {key.identity} has expired"
        raise refused(Code.KEY_EXPIRED, f"before {iso_time(key.valid_until)}", iso_time(time), message=message)


def require_signer_name(key: TrustedKey, name: str) -> None:
    """The statement names the holder of the key."""
    if key.identity != name:
        raise refused("signer_name_wrong", key.identity, repr(name))


def require_key_epoch(key: TrustedKey, epoch: int | None) -> None:
    """The key is trusted for the epoch that the statement names."""
    if epoch is not None and epoch not in key.epochs:
        message = f"the key of {key.identity} is not trusted for this epoch"
        trusted = ", ".join(map(str, key.epochs))
        raise refused("key_epoch_wrong", f"epoch {trusted}" if trusted else "no epoch", epoch, message=message)


def require_not_from_future(issued_at: int, now: int) -> None:
    """The statement is not from the future, clock skew allowed."""
    if issued_at > now + CLOCK_SKEW_MAX_MICROS:
        raise refused("statement_from_future", f"at most {iso_time(now)}", iso_time(issued_at))


def require_threshold_of_root(threshold: int, root: TrustRoot) -> None:
    """The threshold is not below that of the trust root."""
    if threshold < root.thresholds.notary:
        raise Code.THRESHOLD_TOO_LOW(expected=f"at least {root.thresholds.notary}", got=str(threshold))


def require_envelope_count(envelopes: Sequence[bytes]) -> None:
    """There is at least one envelope, and no more than the limit for notaries."""
    if not 1 <= len(envelopes) <= NOTARY_ENVELOPES_MAX:
        raise refused("envelope_count", f"1 to {NOTARY_ENVELOPES_MAX}", len(envelopes))


def require_distinct_notaries(statements: Sequence[VerifiedStatement[Proof]]) -> None:
    """No notary signed twice, not even with two keys."""
    seen = set()
    for statement in statements:
        if statement.key.identity in seen:
            raise refused("notary_repeated", "distinct notaries", statement.key.identity)
        seen.add(statement.key.identity)


def require_equal_cores(statements: Sequence[VerifiedStatement[Proof]]) -> None:
    """All notaries signed the same core, byte for byte."""
    first = statements[0].predicate.core
    for statement in statements[1:]:
        other = statement.predicate.core
        if other.to_bytes() != first.to_bytes():
            first_json, other_json = first.to_json(), other.to_json()
            field = next(name for name in first_json if first_json[name] != other_json[name])
            message = f"notaries disagree about {field}"
            raise refused("cores_differ", statements[0].key.identity, statement.key.identity, message=message)


def require_enough_notaries(statements: Sequence[VerifiedStatement[Proof]], threshold: int) -> None:
    """At least `threshold` distinct notaries signed."""
    count = len({statement.key.identity for statement in statements})
    if count < threshold:
        raise refused("threshold_not_met", f"{threshold} notaries", count)


def require_pass(proof: VerifiedProof) -> None:
    """The verdict is PASS."""
    verdict = proof.core.verdict
    if not verdict.passed:
        classes = ", ".join(found.value for found in verdict.classes)
        raise refused("verdict_not_pass", "PASS", f"FAIL ({classes})")


def require_proofs_unexpired(proof: VerifiedProof, now: int) -> None:
    """No notary's proof has expired."""
    for statement in proof.statements:
        notary = statement.predicate.notary
        require_unexpired(notary.expires_at, now, Code.PROOF_EXPIRED, f"the proof of {notary.notary}")


def require_unexpired(expires_at: int, now: int, code: str, what: str) -> None:
    """The statement has not expired."""
    if expires_at <= now:
        raise refused(code, f"before {iso_time(expires_at)}", iso_time(now), message=f"{what} has expired")


def require_epoch(proof: VerifiedProof, epoch: int) -> None:
    """Every notary's proof is of this epoch, which is the workload's."""
    for statement in proof.statements:
        notary = statement.predicate.notary
        if notary.epoch != epoch:
            message = f"the proof of {notary.notary} is of another epoch"
            raise refused("proof_wrong_epoch", epoch, notary.epoch, message=message)
