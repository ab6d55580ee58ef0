"""Source attestations: a challenge that is drawn once and answered once, and the answers by source snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import select

from pvdm.errors import ConflictError, InputError
from pvdm.ledger import ids
from pvdm.ledger.connection import Row
from pvdm.ledger.record import statements
from pvdm.ledger.schema.work import NoncePurpose, StatementKind, attestations, challenges
from pvdm.ledger.unit import Unit
from pvdm.ledger.work import nonces

ATTESTATIONS_PAGE_MAX_ROWS: Final = 1_000


@dataclass(frozen=True, slots=True)
class ChallengeRecord:
    """What an attestor asked for: the request is the canonical text of everything its keys are bound to."""

    nonce: str
    attestor: str
    epoch: int
    request: str
    expires_micros: int


@dataclass(frozen=True, slots=True)
class AttestationRecord:
    """What the ledger has to find about an attestation; the envelope says the rest."""

    attestation_id: str
    nonce: str
    attestor: str
    catalog: str
    table_uuid: str
    snapshot_id: str


def challenge(unit: Unit, asked: ChallengeRecord) -> ChallengeRecord:
    """Draw the challenge; the same request under the same nonce again gives the first one, another is `nonce_taken`."""
    unit.lock_name(f"challenge {asked.nonce}")
    known = find_challenge(unit, asked.nonce)
    if known is not None:
        if (known.attestor, known.request) != (asked.attestor, asked.request):
            raise ConflictError("nonce_taken", "the nonce was used before", expected="a new nonce", got=asked.nonce)
        return known
    nonces.reserve(unit, asked.nonce, purpose=NoncePurpose.SOURCE_ATTESTATION, holder=asked.attestor)
    unit.insert(
        challenges,
        nonce=asked.nonce,
        attestor=ids.name(asked.attestor, "attestor"),
        epoch=asked.epoch,
        request=asked.request,
        expires_micros=asked.expires_micros,
    )
    return asked


def find_challenge(unit: Unit, nonce: str) -> ChallengeRecord | None:
    """The challenge of that nonce, if it was drawn."""
    row = unit.found(challenges, nonce=nonce)
    if row is None:
        return None
    return ChallengeRecord(row["nonce"], row["attestor"], row["epoch"], row["request"], row["expires_micros"])


def get_challenge(unit: Unit, nonce: str) -> ChallengeRecord:
    """The challenge; not being there is an error."""
    found = find_challenge(unit, nonce)
    if found is None:
        raise InputError("challenge_unknown", "nobody drew this challenge", got=ascii(nonce[:80]))
    return found


def put(unit: Unit, attestation: AttestationRecord, envelope: bytes, *, log_index: int) -> None:
    """Store the answer and use its nonce up; a second answer to one challenge is refused."""
    nonces.commit(unit, attestation.nonce, snapshot_id=None)
    statements.put(unit, StatementKind.SOURCE_ATTESTATION, attestation.attestation_id, envelope, log_index=log_index)
    unit.insert(
        attestations,
        attestation_id=attestation.attestation_id,
        nonce=attestation.nonce,
        attestor=attestation.attestor,
        catalog=ids.name(attestation.catalog, "catalog"),
        table_uuid=ids.name(attestation.table_uuid, "table UUID"),
        snapshot_id=ids.snapshot_id(attestation.snapshot_id),
    )


def find(unit: Unit, attestation_id: str) -> AttestationRecord | None:
    """The attestation, if it is stored."""
    row = unit.found(attestations, attestation_id=attestation_id)
    return None if row is None else _attestation(row)


def listed(
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
    return AttestationRecord(
        row["attestation_id"],
        row["nonce"],
        row["attestor"],
        row["catalog"],
        row["table_uuid"],
        row["snapshot_id"],
    )
