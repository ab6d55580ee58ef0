"""Source attestations: challenges, each answered once, and the attestations by source snapshot."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

from sqlalchemy import select

from pvdm.errors import Code
from pvdm.ledger import ids
from pvdm.ledger.connection import Row, record_from
from pvdm.ledger.record import statements
from pvdm.ledger.schema.record import StatementKind, attestations, challenges
from pvdm.ledger.schema.work import NoncePurpose
from pvdm.ledger.unit import Unit
from pvdm.ledger.work import nonces

ATTESTATIONS_PAGE_MAX_ROWS: Final = 1_000


@dataclass(frozen=True, slots=True)
class ChallengeRecord:
    """An attestor's challenge. `request` is the canonical text of everything its keys are bound to."""

    nonce: str
    attestor: str
    epoch: int
    request: str
    expires_micros: int


@dataclass(frozen=True, slots=True)
class AttestationRecord:
    """What the ledger indexes of an attestation. The rest is in the envelope."""

    attestation_id: str
    nonce: str
    attestor: str
    catalog: str
    table_uuid: str
    snapshot_id: str


def challenge(unit: Unit, asked: ChallengeRecord) -> ChallengeRecord:
    """Store the challenge. The same request under the same nonce returns the first one; another is `nonce_taken`."""
    unit.lock_name(f"challenge {asked.nonce}")
    known = find_challenge(unit, asked.nonce)
    if known is not None:
        if (known.attestor, known.request) != (asked.attestor, asked.request):
            raise Code.NONCE_TAKEN(got=asked.nonce)
        return known
    nonces.reserve(unit, asked.nonce, purpose=NoncePurpose.SOURCE_ATTESTATION, holder=asked.attestor)
    ids.require_name(asked.attestor, "attestor")
    unit.insert(challenges, **asdict(asked))
    return asked


def find_challenge(unit: Unit, nonce: str) -> ChallengeRecord | None:
    """The challenge of that nonce, or None."""
    row = unit.find(challenges, nonce=nonce)
    return None if row is None else record_from(ChallengeRecord, row)


def get_challenge(unit: Unit, nonce: str) -> ChallengeRecord:
    """The challenge of that nonce. Raises `challenge_unknown`."""
    found = find_challenge(unit, nonce)
    if found is None:
        raise Code.CHALLENGE_UNKNOWN(got=ascii(nonce[:80]))
    return found


def put(unit: Unit, attestation: AttestationRecord, envelope: bytes, *, log_index: int) -> None:
    """Store the attestation and use up its nonce. A second answer to one challenge is refused."""
    nonces.commit(unit, attestation.nonce, snapshot_id=None)
    statements.put(unit, StatementKind.SOURCE_ATTESTATION, attestation.attestation_id, envelope, log_index=log_index)
    ids.require_name(attestation.catalog, "catalog")
    ids.require_name(attestation.table_uuid, "table UUID")
    ids.require_snapshot_id(attestation.snapshot_id)
    unit.insert(attestations, **asdict(attestation))


def find(unit: Unit, attestation_id: str) -> AttestationRecord | None:
    """The attestation, or None."""
    row = unit.find(attestations, attestation_id=attestation_id)
    return None if row is None else _attestation(row)


def list_newest(
    unit: Unit, *, attestor: str | None = None, table_uuid: str | None = None, snapshot_id: str | None = None
) -> list[AttestationRecord]:
    """The newest attestations, of one attestor or source or of all."""
    wanted = select(attestations).order_by(attestations.c.at_micros.desc(), attestations.c.attestation_id)
    asked = {"attestor": attestor, "table_uuid": table_uuid, "snapshot_id": snapshot_id}
    for name, value in asked.items():
        if value is not None:
            wanted = wanted.where(attestations.c[name] == value)
    return [_attestation(row) for row in unit.rows(wanted.limit(ATTESTATIONS_PAGE_MAX_ROWS))]


def _attestation(row: Row) -> AttestationRecord:
    return record_from(AttestationRecord, row)
