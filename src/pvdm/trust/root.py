"""The trust root: trusted keys with their roles. A `require_` function raises unless its docstring is true."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Final

from pvdm.errors import Code
from pvdm.model.canonical_json import INTEGER_MAX, Value
from pvdm.model.codec import Count, Document, FieldType, Identity, JsonNumber, Sha256, number_between, write_decimals
from pvdm.model.fields import Fields, inconsistent, invalid, require_long, require_number
from pvdm.model.printable import iso_time
from pvdm.trust.envelope import (
    ROOT_SIGNATURES_MAX,
    TRUST_ROOT_TYPE,
    Envelope,
    Signature,
    parse_envelope,
    require_signature,
    sign_envelope,
)
from pvdm.trust.keys.public import Algorithm, PublicKey, SigningKey
from pvdm.trust.log.note import decode_base64, encode_base64
from pvdm.trust.refusal import refuse_input_errors, refused, require_equal
from pvdm.trust.strict_json import parse_strict

ROOT_SIZE_MAX_BYTES: Final = 1024 * 1024
ROOT_KEYS_MAX: Final = 1_000
KEY_EPOCHS_MAX: Final = 1_000


class RootRole(Enum):
    """The role for which a key is trusted. A `root` key signs trust roots."""

    ATTESTOR = "attestor"
    BREAK_GLASS = "break-glass"
    LOG = "log"
    NOTARY = "notary"
    OPERATOR = "operator"
    ROOT = "root"


_SOLE_ROLES: Final = (RootRole.BREAK_GLASS, RootRole.LOG, RootRole.NOTARY)  # a key with one of these has no other role
_STEWARD_ROLES: Final = frozenset({RootRole.LOG, RootRole.NOTARY})
_INDEPENDENT_ROLES: Final = frozenset({RootRole.ATTESTOR, RootRole.BREAK_GLASS})


def _read_public(fields: Fields, _key: str) -> PublicKey:
    public = _parse_public_key(fields.text("public_key"))
    require_algorithm(public, fields.choice("algorithm", Algorithm))
    require_key_id(public, fields.text("key_id"))
    return public


def _parse_public_key(text: str) -> PublicKey:
    der = decode_base64(text)
    if der is None:
        raise invalid("a public key", "canonical base64 of SubjectPublicKeyInfo", "something else")
    return PublicKey.from_der(der)


def _write_public(public: PublicKey) -> Value:
    return {"key_id": public.key_id, "algorithm": public.algorithm.value, "public_key": encode_base64(public.der)}


def _require_epochs(epochs: Sequence[int], what: str) -> None:
    if len(epochs) > KEY_EPOCHS_MAX or list(epochs) != sorted(set(epochs)):
        raise invalid(what, f"at most {KEY_EPOCHS_MAX}, distinct and in order", str(len(epochs)))
    for epoch in epochs:
        require_long(epoch, what)


_PUBLIC: Final = FieldType(_read_public, _write_public, keys=("key_id", "algorithm", "public_key"))
_EPOCHS: Final = FieldType(Fields.decimals, write_decimals, _require_epochs)


@dataclass(frozen=True, slots=True)
class TrustedKey(Document, title="a key of the trust root"):
    """One trusted key: its holder (`identity`), its roles and epochs, its validity, and the time of its revocation."""

    public: Annotated[PublicKey, _PUBLIC]
    identity: Identity
    roles: tuple[RootRole, ...]
    epochs: Annotated[tuple[int, ...], _EPOCHS]
    valid_from: JsonNumber
    valid_until: JsonNumber
    revoked_at: JsonNumber | None = None

    def require_consistent(self) -> None:
        """Raise unless the roles are distinct, in order and allowed together, and the validity is not empty."""
        names = [role.value for role in self.roles]
        if not names or names != sorted(set(names)):
            raise invalid("the roles of a key", "at least one, distinct and in order", ", ".join(names))
        require_number(self.valid_until, "the end of a key's validity", least=self.valid_from + 1)
        require_role_alone(self)

    @property
    def key_id(self) -> str:
        """The SHA-256 of the public key (its SubjectPublicKeyInfo), in lower-case hex."""
        return self.public.key_id


@dataclass(frozen=True, slots=True)
class Thresholds(Document, title="the thresholds"):
    """How many notaries must sign a proof, and how many root signers the next trust root. `TrustRoot` checks both."""

    notary: Count
    root: Count


@dataclass(frozen=True, slots=True)
class TrustRoot(Document, title="the trust root", format="pvdm-trust-root/v1"):
    """One version of the trust root; keys in order of their ids. Version 1 has no predecessor (`previous_sha256`)."""

    version: Annotated[int, number_between(1, INTEGER_MAX)]
    previous_sha256: Sha256 | None
    issued_at: JsonNumber
    expires_at: JsonNumber
    keys: tuple[TrustedKey, ...]
    thresholds: Thresholds

    def require_consistent(self) -> None:
        """Raise unless keys are distinct and in order, identities are separate, and both thresholds can be met."""
        if (self.version == 1) != (self.previous_sha256 is None):
            raise invalid("the trust root's predecessor", "none for version 1, one for every other", str(self.version))
        require_number(self.expires_at, "the time of expiry", least=self.issued_at + 1)
        if not 1 <= len(self.keys) <= ROOT_KEYS_MAX:
            raise invalid("the keys of the trust root", f"1 to {ROOT_KEYS_MAX}", str(len(self.keys)))
        require_keys_once(self.keys)
        require_key_order(self.keys)
        require_identities_apart(self.keys)
        require_reachable(self.keys, RootRole.NOTARY, self.thresholds.notary)
        require_reachable(self.keys, RootRole.ROOT, self.thresholds.root)

    @property
    def sha256(self) -> str:
        """The hash that pins this root and that its successor names."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def find(self, key_id: str) -> TrustedKey | None:
        """The key of that id, or None."""
        return next((key for key in self.keys if key.key_id == key_id), None)


def require_algorithm(public: PublicKey, algorithm: Algorithm) -> None:
    """The key has the algorithm that the root names."""
    if public.algorithm is not algorithm:
        raise inconsistent("trust_root_key_algorithm", algorithm.value, public.algorithm.value)


def require_key_id(public: PublicKey, key_id: str) -> None:
    """The key id is the one that is computed from the key."""
    if public.key_id != key_id:
        raise inconsistent("trust_root_key_id", public.key_id, key_id[:80])


def require_role_alone(key: TrustedKey) -> None:
    """A key that signs verdicts, checkpoints or overrides has no other role."""
    for role in _SOLE_ROLES:
        if role in key.roles and len(key.roles) > 1:
            raise inconsistent("trust_root_role_shared", role.value, ", ".join(each.value for each in key.roles))


def require_keys_once(keys: Sequence[TrustedKey]) -> None:
    """Every key occurs once. A key with two names would count as two signers."""
    ids = [key.key_id for key in keys]
    for key_id in ids:
        if ids.count(key_id) > 1:
            raise inconsistent("trust_root_key_repeated", "each key once", key_id)


def require_identities_apart(keys: Sequence[TrustedKey]) -> None:
    """Attestors and holders of break-glass keys have no Steward key, because they check or overrule the Steward."""
    steward = {key.identity for key in keys if not _STEWARD_ROLES.isdisjoint(key.roles)}
    for key in keys:
        if key.identity in steward and not _INDEPENDENT_ROLES.isdisjoint(key.roles):
            raise inconsistent("trust_root_identity_shared", "another identity", key.identity)


def require_key_order(keys: Sequence[TrustedKey]) -> None:
    """The keys are in order of their ids."""
    ids = [key.key_id for key in keys]
    if ids != sorted(ids):
        raise invalid("the keys of the trust root", "order of key ids", "another order")


def require_reachable(keys: Sequence[TrustedKey], role: RootRole, threshold: int) -> None:
    """The threshold is at least one, and enough identities have the role to meet it."""
    identities = {key.identity for key in keys if role in key.roles}
    if not 1 <= threshold <= len(identities):
        raise inconsistent("trust_root_threshold", f"1 to {len(identities)} {role.value} identities", str(threshold))


@dataclass(frozen=True, slots=True)
class SeenRoot:
    """The newest trust root that a reader has accepted, stored between runs."""

    version: int
    sha256: str


def sign_root(root: TrustRoot, signers: Sequence[SigningKey]) -> Envelope:
    """The root in one envelope with the signature of each of `signers`."""
    payload = root.to_bytes()
    signatures = [sign_envelope(payload, signer, payload_type=TRUST_ROOT_TYPE).signature for signer in signers]
    return Envelope(TRUST_ROOT_TYPE, payload, tuple(sorted(signatures, key=lambda signature: signature.key_id)))


def pin_root(data: bytes, *, sha256: str, now: int) -> TrustRoot:
    """The first trust root. It must have the hash that the caller knows, and be signed by the signers it names."""
    envelope, root = _parse_root(data)
    require_pinned(envelope, sha256)
    require_root_signers(root, envelope, now, "trust_root_self_unsigned")
    return root


def advance_root(current: TrustRoot, data: bytes, *, now: int) -> TrustRoot:
    """The next trust root, signed by its own signers and the current root's. `data` may also be the current root."""
    envelope, root = _parse_root(data)
    _require_not_behind(root, SeenRoot(current.version, current.sha256))
    if root.version == current.version:
        return current
    require_equal("trust_root_gap", current.version + 1, root.version)  # a skipped version may have revoked a key
    require_equal("trust_root_not_successor", current.sha256, root.previous_sha256)
    require_root_signers(current, envelope, now, "trust_root_unsigned")
    require_root_signers(root, envelope, now, "trust_root_self_unsigned")
    return root


def follow_roots(envelopes: Sequence[bytes], *, sha256: str, now: int, seen: SeenRoot | None = None) -> TrustRoot:
    """The newest root of a chain that begins with the pinned root. It must not be older than `seen`."""
    if not envelopes:
        raise refused("trust_root_missing", "at least one", "none")
    root = pin_root(envelopes[0], sha256=sha256, now=now)
    for data in envelopes[1:]:
        root = advance_root(root, data, now=now)
    if seen is not None:
        _require_not_behind(root, seen)
    require_root_current(root, now)
    return root


def _parse_root(data: bytes) -> tuple[Envelope, TrustRoot]:
    envelope = parse_envelope(data, payload_type=TRUST_ROOT_TYPE, signatures_max=ROOT_SIGNATURES_MAX)
    value = parse_strict(envelope.payload, "the trust root", size_max_bytes=ROOT_SIZE_MAX_BYTES)
    with refuse_input_errors():
        return envelope, TrustRoot.from_json(value)


def require_pinned(envelope: Envelope, sha256: str) -> None:
    """The first root has the pinned hash."""
    if not hmac.compare_digest(envelope.payload_sha256, sha256):
        raise refused("trust_root_not_pinned", sha256, envelope.payload_sha256)


def _require_not_behind(root: TrustRoot, seen: SeenRoot) -> None:
    require_not_rolled_back(root, seen)
    require_not_forked(root, seen)


def require_not_rolled_back(root: TrustRoot, seen: SeenRoot) -> None:
    """The root is not older than the root that was already seen."""
    if root.version < seen.version:
        raise refused("trust_root_rolled_back", f"version {seen.version}", root.version)


def require_not_forked(root: TrustRoot, seen: SeenRoot) -> None:
    """A root of the same version is the same root. Otherwise readers see different histories."""
    if root.version == seen.version and root.sha256 != seen.sha256:
        raise refused("trust_root_forked", seen.sha256, root.sha256)


def require_root_signers(trusted: TrustRoot, envelope: Envelope, now: int, code: str) -> None:
    """Raise unless enough root signers of `trusted` signed. An invalid signature by one of them is an error too."""
    identities = {_identify_signer(trusted, envelope, signature, now) for signature in envelope.signatures} - {None}
    if len(identities) < trusted.thresholds.root:
        message = f"too few root signers of version {trusted.version} signed the trust root"
        hint = (
            f"have other root signers of version {trusted.version} sign it too: each signs the file that the one before"
            " wrote, by `pvdm keys root sign FILE --key KEY --out NEXT`; a signer that this root drops adds --previous"
        )
        raise refused(code, f"{trusted.thresholds.root} identities", len(identities), message=message, hint=hint)


def _identify_signer(trusted: TrustRoot, envelope: Envelope, signature: Signature, now: int) -> str | None:
    """The identity of a root signer that `trusted` names and whose key is valid now, otherwise None."""
    key = trusted.find(signature.key_id)
    if key is None or RootRole.ROOT not in key.roles:
        return None
    if not key.valid_from <= now < key.valid_until or (key.revoked_at is not None and key.revoked_at <= now):
        return None
    require_signature(key.public, signature.value, envelope.message)
    return key.identity


def require_root_current(root: TrustRoot, now: int) -> None:
    """The root has not expired. (An old root may lack a revocation.)"""
    if root.expires_at <= now:
        raise refused(Code.TRUST_ROOT_EXPIRED, f"before {iso_time(root.expires_at)}", iso_time(now))
