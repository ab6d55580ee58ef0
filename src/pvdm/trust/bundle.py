"""The offline bundle: proofs with their log proofs, its check, and what the check shows."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Annotated, Final, Protocol

from pvdm.errors import Code
from pvdm.model.canonical_json import Value, dump
from pvdm.model.codec import Document, FieldType, Number, documents
from pvdm.model.fields import Fields, require_sha256
from pvdm.trust.log.entry import EntryKind, LogEntry
from pvdm.trust.log.note import NoteKey
from pvdm.trust.log.proof import LogProofChecker
from pvdm.trust.refusal import refused, refusing
from pvdm.trust.root import RootRole, TrustRoot
from pvdm.trust.strict_json import read
from pvdm.trust.verify import CLOCK_SKEW_MAX_MICROS, NOTARY_ENVELOPES_MAX, VerifiedProof, verify_threshold

BUNDLE_SIZE_MAX_BYTES: Final = 64 * 1024 * 1024


class InclusionChecker(Protocol):
    """Checks that an entry is in the log."""

    def require_included(self, leaf: bytes, inclusion: bytes) -> None:
        """Raise unless the leaf is in the log. `inclusion` is a log proof file: index, hashes and signed checkpoint."""


def _read_envelope(fields: Fields, key: str) -> bytes:
    envelope, sha256 = dump(fields.value(key)), fields.text("envelope_sha256")
    require_sha256(sha256, "the hash of an envelope")
    require_envelope_hash(envelope, sha256)
    return envelope


def require_envelope_hash(envelope: bytes, sha256: str) -> None:
    """The bundle names this envelope by its hash. Otherwise its parts belong to different proofs."""
    got = hashlib.sha256(envelope).hexdigest()
    if got != sha256:
        raise refused("bundle_envelope_mismatch", sha256, got)


def _write_envelope(envelope: bytes) -> Value:
    value = read(envelope, "the envelope", size_max_bytes=BUNDLE_SIZE_MAX_BYTES)
    return {"envelope": value, "envelope_sha256": hashlib.sha256(envelope).hexdigest()}


_ENVELOPE: Final = FieldType(_read_envelope, _write_envelope, keys=("envelope", "envelope_sha256"))


@dataclass(frozen=True, slots=True)
class LoggedEnvelope(Document, title="a proof of the bundle"):
    """One notary's envelope, the time of its log entry, and the log proof as text."""

    envelope: Annotated[bytes, _ENVELOPE]
    logged_at: Number
    inclusion: str

    @property
    def leaf(self) -> bytes:
        """The log's entry: kind, hash of the envelope, time."""
        return LogEntry(EntryKind.PROOF, hashlib.sha256(self.envelope).hexdigest(), self.logged_at).to_bytes()


@dataclass(frozen=True, slots=True)
class ProofBundle(Document, title="the bundle", format="pvdm-bundle/v1"):
    """Everything that an offline check of a proof needs, except the trust root."""

    proofs: Annotated[tuple[LoggedEnvelope, ...], documents(LoggedEnvelope, 1, NOTARY_ENVELOPES_MAX)]


@dataclass(frozen=True, slots=True)
class CheckedBundle:
    """A valid bundle, with sentences about what the check proves and what it does not prove."""

    proof: VerifiedProof
    logged_at: tuple[int, ...]
    proved: tuple[str, ...]
    not_proved: tuple[str, ...]


def parse_bundle(data: bytes) -> ProofBundle:
    """The bundle of these bytes."""
    value = read(data, "the bundle", size_max_bytes=BUNDLE_SIZE_MAX_BYTES)
    with refusing():
        return ProofBundle.from_json(value)


def check_bundle(data: bytes, root: TrustRoot, log: InclusionChecker, *, threshold: int, now: int) -> CheckedBundle:
    """The proof, verified at the time of its log entry, so that keys which have expired since are accepted."""
    bundle = parse_bundle(data)
    for logged in bundle.proofs:
        log.require_included(logged.leaf, logged.inclusion.encode())
        require_logged_before(logged, now)
    times = tuple(logged.logged_at for logged in bundle.proofs)
    proof = verify_threshold([logged.envelope for logged in bundle.proofs], root, threshold=threshold, now=max(times))
    return CheckedBundle(proof, times, _list_proved(proof), _list_not_proved(proof))


def require_logged_before(logged: LoggedEnvelope, now: int) -> None:
    """The log entry is not in the future beyond the allowed clock skew."""
    latest = now + CLOCK_SKEW_MAX_MICROS
    if logged.logged_at > latest:
        raise refused("bundle_logged_in_future", f"at most {latest}", logged.logged_at)


def _list_proved(proof: VerifiedProof) -> tuple[str, ...]:
    names = ", ".join(statement.key.identity for statement in proof.statements)
    core = proof.core
    return (
        f"{names} signed the verdict {core.verdict.outcome.value} for chunk {core.attempt.chunk_id!r} of workload"
        f" {core.attempt.workload_id!r}, table {core.target.table.name!r}",
        f"the proof binds {len(core.files.added)} added files by SHA-256 and {len(core.files.removed)} removed ones",
        "the proof is in the log that the checkpoint names",
    )


def _list_not_proved(proof: VerifiedProof) -> tuple[str, ...]:
    sentences: tuple[str, ...] = (
        "that the digests of intent and staged are equal: only the notary signed that, and the commitments cannot be"
        " compared with the data without the attempt's keys (`pvdm proof open`)",
        "whether anything was published: the receipt shows that",
        "whether others are shown the same log: a monitor compares that",
    )
    if any(statement.predicate.notary.isolation.value == "embedded" for statement in proof.statements):
        sentences = (*sentences, "the notary ran embedded in the producer's process: this stops accidents, not malice")
    return sentences


def origin_of(root: TrustRoot, origin: str | None) -> str:
    """The named log, or the only one in the trust root. Raises `origin_ambiguous`."""
    if origin is not None:
        return origin
    known = sorted({key.identity for key in root.keys if RootRole.LOG in key.roles})
    if len(known) != 1:
        raise Code.ORIGIN_AMBIGUOUS(
            "it is not clear which log is meant",
            expected="one log in the trust root, or the origin of one",
            got=", ".join(known) or "none",
            hint="name the log: --origin on the command line, `origin` in Python",
        )
    return known[0]


def log_checker(root: TrustRoot, *, origin: str) -> LogProofChecker:
    """The checker of that log, with all its unrevoked keys in the trust root, because old keys signed old notes."""
    keys = tuple(
        NoteKey(origin, key.public.der)
        for key in root.keys
        if RootRole.LOG in key.roles and key.identity == origin and key.revoked_at is None
    )
    if not keys:
        raise refused(Code.LOG_KEY_MISSING, "a log key", origin)
    return LogProofChecker(origin, keys)
