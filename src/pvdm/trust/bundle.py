"""Checks bundles offline, and says what the check proves. A bundle has one chunk's proofs, each with its log proof."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Annotated, Final, Protocol

from pvdm.errors import Code
from pvdm.model.canonical_json import Value, dump
from pvdm.model.codec import Document, FieldType, JsonNumber, documents
from pvdm.model.fields import Fields, require_sha256
from pvdm.model.statements.kind import StatementKind
from pvdm.trust.log.entry import LogEntry
from pvdm.trust.log.note import NoteKey
from pvdm.trust.log.proof import KnownLog
from pvdm.trust.refusal import refuse_input_errors, refused, require_equal
from pvdm.trust.root import RootRole, TrustRoot
from pvdm.trust.strict_json import parse_strict
from pvdm.trust.verify import CLOCK_SKEW_MAX_MICROS, NOTARY_ENVELOPES_MAX, VerifiedProof, verify_threshold

BUNDLE_SIZE_MAX_BYTES: Final = 64 * 1024 * 1024


class InclusionChecker(Protocol):
    """Checks that an entry is in the log."""

    def require_included(self, entry: bytes, proof_file: bytes) -> None:
        """Raise unless the entry is in the log. The proof file has the entry's index, hashes and a checkpoint."""


def _read_envelope(fields: Fields, key: str) -> bytes:
    envelope, sha256 = dump(fields.value(key)), fields.text("envelope_sha256")
    require_sha256(sha256, "the hash of an envelope")
    # If the hash differs, the parts of the bundle belong to different proofs.
    require_equal("bundle_envelope_mismatch", sha256, hashlib.sha256(envelope).hexdigest())
    return envelope


def _write_envelope(envelope: bytes) -> Value:
    value = parse_strict(envelope, "the envelope", size_max_bytes=BUNDLE_SIZE_MAX_BYTES)
    return {"envelope": value, "envelope_sha256": hashlib.sha256(envelope).hexdigest()}


_ENVELOPE: Final = FieldType(_read_envelope, _write_envelope, keys=("envelope", "envelope_sha256"))


@dataclass(frozen=True, slots=True)
class LoggedProof(Document, title="a proof of the bundle"):
    """One notary's envelope, the time of its log entry, and its log proof file (`LogProof`) as text."""

    envelope: Annotated[bytes, _ENVELOPE]
    logged_at: JsonNumber
    inclusion: str

    @property
    def leaf(self) -> bytes:
        """The log's entry: kind, hash of the envelope, time."""
        return LogEntry(StatementKind.PROOF, hashlib.sha256(self.envelope).hexdigest(), self.logged_at).to_bytes()


@dataclass(frozen=True, slots=True)
class ProofBundle(Document, title="the bundle", format="pvdm-bundle/v1"):
    """Everything that an offline check of a proof needs, except the trust root."""

    proofs: Annotated[tuple[LoggedProof, ...], documents(LoggedProof, 1, NOTARY_ENVELOPES_MAX)]


@dataclass(frozen=True, slots=True)
class CheckedBundle:
    """A valid bundle, with sentences for people: what the check proves, and what it does not prove."""

    proof: VerifiedProof
    logged_at: tuple[int, ...]  # the time of each proof's log entry, in microseconds
    proved: tuple[str, ...]
    not_proved: tuple[str, ...]


def parse_bundle(data: bytes) -> ProofBundle:
    """The bundle of these bytes."""
    value = parse_strict(data, "the bundle", size_max_bytes=BUNDLE_SIZE_MAX_BYTES)
    with refuse_input_errors():
        return ProofBundle.from_json(value)


def check_bundle(data: bytes, root: TrustRoot, log: InclusionChecker, *, threshold: int, now: int) -> CheckedBundle:
    """Check the bundle. The keys must have been valid at the latest `logged_at`; they may have expired since."""
    bundle = parse_bundle(data)
    for logged in bundle.proofs:
        log.require_included(logged.leaf, logged.inclusion.encode())
        require_logged_before(logged, now)
    times = tuple(logged.logged_at for logged in bundle.proofs)
    proof = verify_threshold([logged.envelope for logged in bundle.proofs], root, threshold=threshold, now=max(times))
    return CheckedBundle(proof, times, _list_proved(proof), _list_not_proved(proof))


def require_logged_before(logged: LoggedProof, now: int) -> None:
    """The log entry is not from the future, clock skew allowed."""
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
    passed = proof.core.verdict.passed
    finding = "the digests of intent and staged are equal" if passed else "the staged data is wrong as the verdict says"
    sentences: tuple[str, ...] = (
        f"that {finding}: only the notary signed that, and the commitments cannot be"
        " compared with the data without the attempt's keys (`pvdm proof open`)",
        "whether anything was published: the receipt shows that",
        "whether other readers get the same log: a monitor compares that",
    )
    if any(statement.predicate.notary.isolation.value == "embedded" for statement in proof.statements):
        sentences = (*sentences, "that no producer forged it: an embedded notary stops accidents, not malice")
    return sentences


def resolve_log_origin(root: TrustRoot, origin: str | None) -> str:
    """The named log, or the only one in the trust root. Raises `origin_ambiguous` unless there is exactly one."""
    if origin is not None:
        return origin
    logs = sorted({key.identity for key in root.keys if RootRole.LOG in key.roles})
    if len(logs) != 1:
        hint = "name the log: --origin on the command line, `origin` in Python"
        raise Code.USAGE(reason="origin_ambiguous", got=", ".join(logs) or "none", hint=hint)
    return logs[0]


def log_checker(root: TrustRoot, *, origin: str) -> KnownLog:
    """Checks with the log's unrevoked keys in the trust root. Expired keys count, since they signed old checkpoints."""
    keys = tuple(
        NoteKey(origin, key.public.der)
        for key in root.keys
        if RootRole.LOG in key.roles and key.identity == origin and key.revoked_at is None
    )
    if not keys:
        raise refused(Code.LOG_KEY_MISSING, "a log key", origin)
    return KnownLog(origin, keys)
