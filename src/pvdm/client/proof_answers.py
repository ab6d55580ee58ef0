"""What the Steward answers about proofs, overrides and attestations; keys come as secrets."""

from __future__ import annotations

from dataclasses import dataclass

from pvdm.client.reading import Reading
from pvdm.model.projection import ProjectionName
from pvdm.model.secret import CommitmentKey, DigestKey
from pvdm.model.statements.verdict import FailureClass, Outcome
from pvdm.model.states import NonceState


@dataclass(frozen=True, slots=True)
class ProofView:
    """What one proof says; row counts are null where the reader may not see them."""

    proof_id: str
    workload_id: str
    chunk_id: str
    attempt_id: str
    nonce: str
    verdict: Outcome
    classes: tuple[FailureClass, ...]
    rows_intent: int | None
    rows_staged: int | None
    profile: str
    notary: str
    epoch: int
    issued_at: int
    expires_at: int
    log_index: int
    overridden: bool
    override_id: str | None

    @classmethod
    def read(cls, value: object) -> ProofView:
        """The answer's value."""
        fields = Reading(value, "the proof")
        return cls(
            fields.hex("proof_id", 32),
            fields.text("workload_id"),
            fields.text("chunk_id"),
            fields.hex("attempt_id", 16),
            fields.hex("nonce", 16),
            fields.choice("verdict", Outcome),
            fields.items("classes", _failure_class),
            fields.optional_decimal("rows_intent"),
            fields.optional_decimal("rows_staged"),
            fields.text("profile"),
            fields.text("notary"),
            fields.decimal("epoch"),
            fields.number("issued_at"),
            fields.number("expires_at"),
            fields.decimal("log_index"),
            fields.flag("overridden"),
            fields.optional_hex("override_id", 32),
        )


@dataclass(frozen=True, slots=True)
class ProjectionKeys:
    """The two keys of one projection."""

    row_hash: DigestKey
    commitment: CommitmentKey


@dataclass(frozen=True, slots=True)
class OpenedContext:
    """Everything that the keys of a closed attempt are bound to."""

    epoch: int
    workload_id: str
    chunk_id: str
    attempt_id: str
    nonce: str
    mode: str
    fingerprints: tuple[tuple[ProjectionName, str], ...]
    intent_root: str
    staged_root: str

    @classmethod
    def read(cls, value: object) -> OpenedContext:
        """The answer's value."""
        fields = Reading(value, "the attempt's context")
        fingerprints = fields.reading("fingerprints")
        return cls(
            fields.decimal("epoch"),
            fields.text("workload_id"),
            fields.text("chunk_id"),
            fields.hex("attempt_id", 16),
            fields.hex("nonce", 16),
            fields.text("mode"),
            tuple((name, fingerprints.hex(name.value, 32)) for name in _named(fields, "fingerprints")),
            fields.hex("intent_root", 32),
            fields.hex("staged_root", 32),
        )


@dataclass(frozen=True, slots=True)
class OpenedProof:
    """The keys of a closed attempt and what they are bound to."""

    context: OpenedContext
    keys: dict[ProjectionName, ProjectionKeys]

    @classmethod
    def read(cls, value: object) -> OpenedProof:
        """The answer's value."""
        fields = Reading(value, "the opened proof")
        context = OpenedContext.read(fields.value("context"))
        return cls(context, _keys(fields, context.epoch))


@dataclass(frozen=True, slots=True)
class OverrideView:
    """One break-glass statement and what became of it."""

    override_id: str
    operator: str
    reason: str
    table: str
    table_uuid: str
    fail_proof_id: str
    nonce: str
    state: NonceState
    issued_at: int
    expires_at: int
    log_index: int

    @classmethod
    def read(cls, value: object) -> OverrideView:
        """The answer's value."""
        fields = Reading(value, "the override")
        return cls(
            fields.hex("override_id", 32),
            fields.text("operator"),
            fields.text("reason"),
            fields.text("table"),
            fields.text("table_uuid"),
            fields.hex("fail_proof_id", 32),
            fields.hex("nonce", 16),
            fields.choice("state", NonceState),
            fields.number("issued_at"),
            fields.number("expires_at"),
            fields.decimal("log_index"),
        )


@dataclass(frozen=True, slots=True)
class Challenge:
    """Keys for one attestation of one source snapshot."""

    nonce: str
    epoch: int
    expires_at: int
    keys: dict[ProjectionName, ProjectionKeys]

    @classmethod
    def read(cls, value: object) -> Challenge:
        """The answer's value."""
        fields = Reading(value, "the challenge")
        epoch = fields.decimal("epoch")
        return cls(fields.hex("nonce", 16), epoch, fields.number("expires_at"), _keys(fields, epoch))


@dataclass(frozen=True, slots=True)
class AttestationView:
    """One source attestation."""

    statement_id: str
    attestor: str
    catalog: str
    table_uuid: str
    snapshot_id: int
    row_count: int
    projection: ProjectionName
    issued_at: int
    log_index: int

    @classmethod
    def read(cls, value: object) -> AttestationView:
        """The answer's value."""
        fields = Reading(value, "the attestation")
        return cls(
            fields.hex("statement_id", 32),
            fields.text("attestor"),
            fields.text("catalog"),
            fields.text("table_uuid"),
            fields.decimal("snapshot_id"),
            fields.decimal("row_count"),
            fields.choice("projection", ProjectionName),
            fields.number("issued_at"),
            fields.decimal("log_index"),
        )


def _named(fields: Reading, key: str) -> tuple[ProjectionName, ...]:
    names = {name for name, _ in fields.pairs(key)}
    return tuple(name for name in ProjectionName if name.value in names)


def _keys(fields: Reading, epoch: int) -> dict[ProjectionName, ProjectionKeys]:
    found = fields.reading("keys")
    return {name: _projection_keys(found.reading(name.value), epoch) for name in _named(fields, "keys")}


def _projection_keys(fields: Reading, epoch: int) -> ProjectionKeys:
    return ProjectionKeys(
        DigestKey(bytes.fromhex(fields.hex("row_hash", 32)), epoch=epoch),
        CommitmentKey(bytes.fromhex(fields.hex("commitment", 32)), epoch=epoch),
    )


def _failure_class(value: object) -> FailureClass:
    return Reading({"class": value}, "the classes").choice("class", FailureClass)
