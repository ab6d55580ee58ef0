"""Source attestations: a challenge with keys, the source's signed answer, and what was attested."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from pvdm.digest.plan import Mode
from pvdm.errors import InputError
from pvdm.model.fields import LONG_MAX
from pvdm.model.projection import ProjectionName
from pvdm.model.role import Role
from pvdm.steward.http.body import body_of
from pvdm.steward.http.dependencies import Caller, NotaryPart, envelope_bytes, key_pairs
from pvdm.steward.http.v1.models import (
    UUID,
    AttestationAnswer,
    AttestationsAnswer,
    ChallengeAnswer,
    ChallengeBody,
    EnvelopeBody,
    Fingerprints,
)
from pvdm.steward.record.attestations import AttestationView, ChallengeRequest

router = APIRouter(tags=["attestations"])

Challenged = Annotated[ChallengeBody, Depends(body_of(ChallengeBody))]
Enveloped = Annotated[EnvelopeBody, Depends(body_of(EnvelopeBody))]


@router.post("/v1/attestations/challenges")
def challenge(notary: NotaryPart, grant: Caller, body: Challenged) -> ChallengeAnswer:
    """Keys for an attestation of one source snapshot; the same request again gives the same keys."""
    made = notary.attestations.challenge(
        grant,
        ChallengeRequest(
            nonce=body.nonce,
            catalog=body.catalog,
            table_uuid=body.table_uuid,
            snapshot_id=_long(body.snapshot_id),
            mode=Mode(body.mode),
            fingerprints=_fingerprints(body.fingerprints),
        ),
    )
    pairs = key_pairs(made.row_hash, made.commitment)
    return ChallengeAnswer(nonce=made.nonce, epoch=str(made.epoch), expires_at=made.expires_at, keys=pairs)


@router.post("/v1/attestations")
def submit_attestation(notary: NotaryPart, grant: Caller, body: Enveloped) -> AttestationAnswer:
    """Hand in a signed source attestation."""
    return _attestation(notary.attestations.submit(envelope_bytes(body.envelope), grant))


@router.get("/v1/attestations")
def attestations(
    notary: NotaryPart,
    grant: Caller,
    table_uuid: Annotated[str | None, Query(pattern=UUID)] = None,
    snapshot_id: Annotated[int | None, Query(ge=0, le=LONG_MAX)] = None,
) -> AttestationsAnswer:
    """The newest attestations of one table or snapshot; an attestor sees its own."""
    own = grant.name if grant.role is Role.ATTESTOR else None
    found = notary.attestations.listed(attestor=own, table_uuid=table_uuid, snapshot_id=snapshot_id)
    return AttestationsAnswer(attestations=[_attestation(view) for view in found])


def _long(text: str) -> int:
    found = int(text)
    if found > LONG_MAX:
        raise InputError("request_invalid", "snapshot_id cannot be accepted", expected="0 to 2^63-1", got="more")
    return found


def _fingerprints(given: Fingerprints) -> tuple[tuple[ProjectionName, bytes], ...]:
    found = {ProjectionName.IDENTITY: given.identity, ProjectionName.CONTENT: given.content}
    return tuple((name, bytes.fromhex(text)) for name, text in found.items() if text is not None)


def _attestation(view: AttestationView) -> AttestationAnswer:
    return AttestationAnswer.model_validate(
        {
            "statement_id": view.attestation_id,
            "attestor": view.attestor,
            "catalog": view.catalog,
            "table_uuid": view.table_uuid,
            "snapshot_id": str(view.snapshot_id),
            "row_count": str(view.row_count),
            "projection": view.projection,
            "issued_at": view.issued_at,
            "log_index": str(view.log_index),
        }
    )
