"""How one trust root follows another: the first is pinned, each next is signed by the one before, none comes back."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass

from pvdm.errors import Code
from pvdm.model.clock import shown_time
from pvdm.trust.envelope import ROOT_SIGNATURES_MAX, TRUST_ROOT_TYPE, Envelope, Signature, pae, parse_envelope
from pvdm.trust.refusal import refused, refusing
from pvdm.trust.root import ROOT_SIZE_MAX_BYTES, RootRole, TrustRoot
from pvdm.trust.signing import Signer, require_signature, seal
from pvdm.trust.strict_json import read


@dataclass(frozen=True, slots=True)
class SeenRoot:
    """The newest trust root that this reader has accepted; what it remembers between runs."""

    version: int
    sha256: str


def sign_root(root: TrustRoot, signers: Sequence[Signer]) -> Envelope:
    """The root in one envelope with the signature of each root signer."""
    payload = root.to_bytes()
    sealed = [seal(payload, signer, payload_type=TRUST_ROOT_TYPE).signature for signer in signers]
    return Envelope(TRUST_ROOT_TYPE, payload, tuple(sorted(sealed, key=lambda signature: signature.key_id)))


def pin_root(data: bytes, *, sha256: str, now: int) -> TrustRoot:
    """The first trust root: its hash came to the reader by another way, and its own signers signed it."""
    envelope, root = _open(data)
    require_pinned(envelope, sha256)
    require_root_signers(root, envelope, now, "trust_root_self_unsigned")
    return root


def advance_root(current: TrustRoot, data: bytes, *, now: int) -> TrustRoot:
    """The next trust root, signed by the signers of the current one and by its own; the current one again is itself."""
    envelope, root = _open(data)
    _require_not_behind(root, SeenRoot(current.version, current.sha256))
    if root.version == current.version:
        return current
    require_next_version(root, current)
    require_predecessor(root, current)
    require_root_signers(current, envelope, now, "trust_root_unsigned")
    require_root_signers(root, envelope, now, "trust_root_self_unsigned")
    return root


def follow_roots(envelopes: Sequence[bytes], *, sha256: str, now: int, seen: SeenRoot | None = None) -> TrustRoot:
    """The newest of a chain that begins with the pinned root; older than what was seen is refused."""
    if not envelopes:
        raise refused("trust_root_missing", "there is no trust root", "at least one", "none")
    root = pin_root(envelopes[0], sha256=sha256, now=now)
    for data in envelopes[1:]:
        root = advance_root(root, data, now=now)
    if seen is not None:
        _require_not_behind(root, seen)
    require_root_current(root, now)
    return root


def _open(data: bytes) -> tuple[Envelope, TrustRoot]:
    envelope = parse_envelope(data, payload_type=TRUST_ROOT_TYPE, signatures_max=ROOT_SIGNATURES_MAX)
    value = read(envelope.payload, "the trust root", size_max_bytes=ROOT_SIZE_MAX_BYTES)
    with refusing():
        return envelope, TrustRoot.from_json(value)


def require_pinned(envelope: Envelope, sha256: str) -> None:
    """The first root is trusted because of its hash alone."""
    got = hashlib.sha256(envelope.payload).hexdigest()
    if not hmac.compare_digest(got, sha256):
        raise refused("trust_root_not_pinned", "this is not the pinned trust root", sha256, got)


def _require_not_behind(root: TrustRoot, seen: SeenRoot) -> None:
    require_not_rolled_back(root, seen)
    require_not_forked(root, seen)


def require_not_rolled_back(root: TrustRoot, seen: SeenRoot) -> None:
    """Never an older root than one already seen."""
    if root.version < seen.version:
        raise refused(
            "trust_root_rolled_back", "an older trust root came back", f"version {seen.version}", root.version
        )


def require_not_forked(root: TrustRoot, seen: SeenRoot) -> None:
    """Two roots of one version mean that somebody is shown another history."""
    if root.version == seen.version and root.sha256 != seen.sha256:
        raise refused("trust_root_forked", "there are two trust roots of one version", seen.sha256, root.sha256)


def require_next_version(root: TrustRoot, current: TrustRoot) -> None:
    """No version is skipped: the one in between may have revoked a key."""
    if root.version != current.version + 1:
        raise refused("trust_root_gap", "a trust root is missing in between", current.version + 1, root.version)


def require_predecessor(root: TrustRoot, current: TrustRoot) -> None:
    """The new root names the bytes of the old one."""
    if root.previous_sha256 != current.sha256:
        raise refused(
            "trust_root_not_successor", "the trust root follows another one", current.sha256, root.previous_sha256
        )


def require_root_signers(judge: TrustRoot, envelope: Envelope, now: int, code: str) -> None:
    """Enough root signers of `judge` signed; a signature in their name that does not hold is refused at once."""
    identities = set()
    for signature in envelope.signatures:
        identity = _signer(judge, envelope, signature, now)
        if identity is not None:
            identities.add(identity)
    if len(identities) < judge.root_threshold:
        raise refused(
            code,
            f"too few root signers of version {judge.version} signed the trust root",
            f"{judge.root_threshold} identities",
            len(identities),
            f"have other root signers of version {judge.version} sign it too: each signs the file that the one before "
            "wrote, by `pvdm keys root sign FILE --key KEY --out NEXT`; one whom the new root drops adds --previous",
        )


def _signer(judge: TrustRoot, envelope: Envelope, signature: Signature, now: int) -> str | None:
    key = judge.find(signature.key_id)
    if key is None or RootRole.ROOT not in key.roles:
        return None
    if not key.valid_from <= now < key.valid_until or (key.revoked_at is not None and key.revoked_at <= now):
        return None
    require_signature(key.public, signature.value, pae(envelope.payload_type, envelope.payload))
    return key.identity


def require_root_current(root: TrustRoot, now: int) -> None:
    """A root that nobody renewed may hide a revocation."""
    if root.expires_at <= now:
        raise refused(
            Code.TRUST_ROOT_EXPIRED,
            "the trust root has expired",
            f"before {shown_time(root.expires_at)}",
            shown_time(now),
        )
