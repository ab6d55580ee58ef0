"""The offline bundle: proofs, the log's proof that each is in it, and what a reader may conclude."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from pvdm.model.canonical_json import Value, dump
from pvdm.model.fields import Fields, invalid, require_number, require_sha256
from pvdm.trust.refusal import refused, refusing
from pvdm.trust.root import TrustRoot
from pvdm.trust.strict_json import read
from pvdm.trust.verify import CLOCK_SKEW_MAX_MICROS, NOTARY_ENVELOPES_MAX, VerifiedProof, verify_threshold

BUNDLE_SIZE_MAX_BYTES: Final = 64 * 1024 * 1024
_FORMAT: Final = "pvdm-bundle/v1"


class InclusionChecker(Protocol):
    """The log's side: raises unless the leaf is in the tree of the checkpoint that the text carries."""

    def require_included(self, leaf: bytes, inclusion: bytes) -> None:
        """`inclusion` is a log proof file: index, hashes and signed checkpoint."""
        ...


@dataclass(frozen=True, slots=True)
class LoggedEnvelope:
    """One notary's envelope, its leaf in the log, and the log proof as text."""

    envelope: bytes
    logged_at: int
    inclusion: str

    @property
    def leaf(self) -> bytes:
        """The log's entry: kind, hash of the envelope, time."""
        sha256 = hashlib.sha256(self.envelope).hexdigest()
        return dump({"kind": "proof", "sha256": sha256, "time": self.logged_at})


@dataclass(frozen=True, slots=True)
class ProofBundle:
    """All that is needed to check a proof without asking anybody, but the trust root."""

    proofs: tuple[LoggedEnvelope, ...]

    def to_bytes(self) -> bytes:
        """The file."""
        return dump(
            {
                "format": _FORMAT,
                "proofs": [
                    {
                        "envelope": _as_json(logged.envelope),
                        "envelope_sha256": hashlib.sha256(logged.envelope).hexdigest(),
                        "logged_at": logged.logged_at,
                        "inclusion": logged.inclusion,
                    }
                    for logged in self.proofs
                ],
            }
        )


@dataclass(frozen=True, slots=True)
class CheckedBundle:
    """What held, in words that promise no more than was checked."""

    proof: VerifiedProof
    logged_at: tuple[int, ...]
    shown: tuple[str, ...]
    not_shown: tuple[str, ...]


def parse_bundle(data: bytes) -> ProofBundle:
    """The bundle of these bytes."""
    value = read(data, "the bundle", size_max_bytes=BUNDLE_SIZE_MAX_BYTES)
    with refusing():
        fields = Fields(value, "the bundle", ("format", "proofs"))
        if fields.text("format") != _FORMAT:
            raise invalid("the format of the bundle", _FORMAT, repr(fields.text("format")[:64]))
        proofs = fields.items("proofs")
        if not 1 <= len(proofs) <= NOTARY_ENVELOPES_MAX:
            raise invalid("the proofs of the bundle", f"1 to {NOTARY_ENVELOPES_MAX}", str(len(proofs)))
        return ProofBundle(tuple(_logged(proof) for proof in proofs))


def _logged(value: Value) -> LoggedEnvelope:
    fields = Fields(value, "a proof of the bundle", ("envelope", "envelope_sha256", "logged_at", "inclusion"))
    envelope = dump(fields.value("envelope"))
    require_sha256(fields.text("envelope_sha256"), "the hash of an envelope")
    require_envelope_hash(envelope, fields.text("envelope_sha256"))
    require_number(fields.number("logged_at"), "the time of the log entry")
    return LoggedEnvelope(envelope, fields.number("logged_at"), fields.text("inclusion"))


def _as_json(envelope: bytes) -> Value:
    return read(envelope, "the envelope", size_max_bytes=BUNDLE_SIZE_MAX_BYTES)


def require_envelope_hash(envelope: bytes, sha256: str) -> None:
    """A bundle whose parts belong to different proofs is told apart from one that was never logged."""
    got = hashlib.sha256(envelope).hexdigest()
    if got != sha256:
        raise refused("bundle_envelope_mismatch", "the bundle names another envelope", sha256, got)


def check_bundle(data: bytes, root: TrustRoot, log: InclusionChecker, *, threshold: int, now: int) -> CheckedBundle:
    """The proof, judged at the time the log took it in: keys that expired since then were good when it counted."""
    bundle = parse_bundle(data)
    for logged in bundle.proofs:
        log.require_included(logged.leaf, logged.inclusion.encode())
        require_logged_before(logged, now)
    times = tuple(logged.logged_at for logged in bundle.proofs)
    proof = verify_threshold([logged.envelope for logged in bundle.proofs], root, threshold=threshold, now=max(times))
    return CheckedBundle(proof, times, _shown(proof), _not_shown(proof))


def require_logged_before(logged: LoggedEnvelope, now: int) -> None:
    """A log entry from the future is no evidence of when something was known; clocks differ a little, not more."""
    latest = now + CLOCK_SKEW_MAX_MICROS
    if logged.logged_at > latest:
        raise refused(
            "bundle_logged_in_future", "the log entry is later than now", f"at most {latest}", logged.logged_at
        )


def _shown(proof: VerifiedProof) -> tuple[str, ...]:
    names = ", ".join(statement.key.identity for statement in proof.statements)
    core = proof.core
    return (
        f"{names} signed the verdict {core.verdict.outcome.value} for chunk {core.attempt.chunk_id!r} of workload"
        f" {core.attempt.workload_id!r}, table {core.target.table.name!r}",
        f"the proof binds {len(core.files.added)} added files by SHA-256 and {len(core.files.removed)} removed ones",
        "the proof is in the log that the checkpoint names",
    )


def _not_shown(proof: VerifiedProof) -> tuple[str, ...]:
    said: Sequence[str] = (
        "that the digests of intent and staged are equal is the notary's signed word: the commitments cannot be"
        " compared with the data without the attempt's keys (`pvdm proof open`)",
        "whether anything was published is in the receipt, not in the proof",
        "whether others are shown the same log is for a monitor to compare",
    )
    if any(statement.predicate.notary.isolation.value == "embedded" for statement in proof.statements):
        said = (*said, "the notary ran embedded in the producer's process: this stops accidents, not malice")
    return tuple(said)
