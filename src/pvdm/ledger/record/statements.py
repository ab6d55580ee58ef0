"""Signed envelopes by id: every kind of statement, immutable, each with its log index; and attestations of sources."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

from sqlalchemy import select

from pvdm.errors import Code
from pvdm.ledger import ids
from pvdm.ledger.connection import record_from, record_if_found
from pvdm.ledger.schema.record import attestations, challenges, statements
from pvdm.ledger.schema.work import NoncePurpose
from pvdm.ledger.unit import Unit, where_given
from pvdm.ledger.work import nonces
from pvdm.model.statements.kind import StatementKind

STORED_ENVELOPE_MAX_BYTES: Final = 67_108_864
ATTESTATIONS_PAGE_MAX_ROWS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Statement:
    """An envelope's bytes under its id (the SHA-256 of its canonical payload)."""

    statement_id: str
    kind: StatementKind
    envelope: bytes
    log_index: int
    at_micros: int


def put(unit: Unit, kind: StatementKind, statement_id: str, envelope: bytes, *, log_index: int) -> None:
    """Store the envelope; repetition is safe. Raises `statement_differs` if the id has another envelope."""
    if not 0 < len(envelope) <= STORED_ENVELOPE_MAX_BYTES:
        expected = f"1 to {STORED_ENVELOPE_MAX_BYTES} bytes"
        raise Code.RECORD_TOO_LARGE(reason="envelope_too_large", expected=expected, got=str(len(envelope)))
    is_new = unit.insert_new(
        statements,
        statement_id=ids.require_sha256(statement_id, "statement id"),
        kind=kind,
        envelope=envelope,
        log_index=log_index,
    )
    if not is_new:
        stored = get(unit, statement_id)
        if (stored.kind, stored.envelope, stored.log_index) != (kind, envelope, log_index):
            raise Code.RECORD_DIFFERS(reason="statement_differs", got=statement_id)


def find(unit: Unit, statement_id: str) -> Statement | None:
    """The envelope, or None."""
    return record_if_found(Statement, unit.find(statements, statement_id=statement_id))


def get(unit: Unit, statement_id: str) -> Statement:
    """The envelope. Raises `statement_unknown`."""
    return record_from(Statement, unit.get(statements, "statement_unknown", statement_id=statement_id))


def list_by_kind(unit: Unit, kind: StatementKind) -> list[Statement]:
    """Every statement of a kind, in the log's order."""
    return unit.records(Statement, select(statements).where(statements.c.kind == kind).order_by(statements.c.log_index))


def list_ids_by_kind(unit: Unit, kind: StatementKind) -> tuple[str, ...]:
    """The ids of every statement of a kind, in the log's order."""
    wanted = select(statements.c.statement_id).where(statements.c.kind == kind).order_by(statements.c.log_index)
    return tuple(row["statement_id"] for row in unit.rows(wanted))


def list_between(unit: Unit, start: int, end: int) -> list[Statement]:
    """The statements whose log index is from `start` up to, but without, `end`."""
    index = statements.c.log_index
    return unit.records(Statement, select(statements).where(index >= start, index < end).order_by(index))


@dataclass(frozen=True, slots=True)
class ChallengeRecord:
    """A challenge to the attestor of a source. `request` is JSON: the facts from which the keys are derived."""

    nonce: str
    attestor: str
    epoch: int
    request: str
    expires_micros: int


@dataclass(frozen=True, slots=True)
class AttestationRecord:
    """The facts of an attestation that have columns of their own. The rest is in the envelope."""

    attestation_id: str
    nonce: str
    attestor: str
    catalog: str
    table_uuid: str
    snapshot_id: str


def add_challenge(unit: Unit, new: ChallengeRecord) -> ChallengeRecord:
    """Store and return the challenge, or return the one stored under its nonce. Raises `nonce_taken` if they differ."""
    unit.lock_name(f"challenge {new.nonce}")
    stored = record_if_found(ChallengeRecord, unit.find(challenges, nonce=new.nonce))
    if stored is not None:
        if (stored.attestor, stored.request) != (new.attestor, new.request):
            raise Code.NONCE_TAKEN(got=new.nonce)
        return stored
    nonces.reserve(unit, new.nonce, purpose=NoncePurpose.SOURCE_ATTESTATION, holder=new.attestor)
    ids.require_name(new.attestor, "attestor")
    unit.insert(challenges, **asdict(new))
    return new


def get_challenge(unit: Unit, nonce: str) -> ChallengeRecord:
    """The challenge of that nonce. Raises `challenge_unknown`."""
    return record_from(ChallengeRecord, unit.get(challenges, "challenge_unknown", nonce=nonce))


def put_attestation(unit: Unit, attestation: AttestationRecord, envelope: bytes, *, log_index: int) -> None:
    """Store the attestation and use up its nonce. A second attestation for a challenge raises `nonce_not_reserved`."""
    nonces.commit(unit, attestation.nonce, snapshot_id=None)
    put(unit, StatementKind.SOURCE_ATTESTATION, attestation.attestation_id, envelope, log_index=log_index)
    ids.require_name(attestation.catalog, "catalog")
    ids.require_name(attestation.table_uuid, "table UUID")
    ids.require_snapshot_id(attestation.snapshot_id)
    unit.insert(attestations, **asdict(attestation))


def find_attestation(unit: Unit, attestation_id: str) -> AttestationRecord | None:
    """The attestation, or None."""
    return record_if_found(AttestationRecord, unit.find(attestations, attestation_id=attestation_id))


def list_newest_attestations(
    unit: Unit, *, attestor: str | None = None, table_uuid: str | None = None, snapshot_id: str | None = None
) -> list[AttestationRecord]:
    """The newest attestations; only of this attestor, source table or snapshot, if they are given."""
    wanted = select(attestations).order_by(attestations.c.at_micros.desc(), attestations.c.attestation_id)
    c = attestations.c
    wanted = where_given(wanted, (c.attestor, attestor), (c.table_uuid, table_uuid), (c.snapshot_id, snapshot_id))
    return unit.records(AttestationRecord, wanted.limit(ATTESTATIONS_PAGE_MAX_ROWS))
