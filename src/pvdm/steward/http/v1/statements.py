"""Routes of signed statements: proofs, overrides, attestations, protections and migrations; and of workers' keys."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Depends, Path, Query, Response

from pvdm.api.base import HEX16, HEX32, PAGE_ROWS_MAX, UUID, WORKLOAD_ID, ReasonRequest
from pvdm.api.proofs import (
    AttestationChallengeRequest,
    AttestationList,
    AttestationView,
    Challenge,
    EnvelopeRequest,
    OpenedContext,
    OpenedProof,
    OverrideList,
    OverrideView,
    ProjectionKeys,
    ProofList,
    ProofView,
    RedeemedKeys,
    RedeemKeysRequest,
)
from pvdm.api.protection import (
    MigrationList,
    MigrationView,
    ProtectedList,
    ProtectedView,
    ProtectionList,
    ProtectionView,
    SubmittedMigration,
    TargetKind,
    TargetView,
)
from pvdm.api.work import AttemptView
from pvdm.catalog.names import full_name, parse_full_name
from pvdm.digest.plan import Mode
from pvdm.errors import Code
from pvdm.ledger.record.protections import ProtectedObject
from pvdm.model.fields import LONG_MAX
from pvdm.model.projection import ProjectionName
from pvdm.model.role import Role
from pvdm.steward.http.body import body_of, require_empty
from pvdm.steward.http.dependencies import Caller, NotaryPart
from pvdm.steward.http.openapi import raw_response
from pvdm.steward.record.attestations import ChallengeRequest

JSON_TYPE: Final = "application/json"

router = APIRouter()

ReasonBody = Annotated[ReasonRequest, Depends(body_of(ReasonRequest))]
EnvelopeBody = Annotated[EnvelopeRequest, Depends(body_of(EnvelopeRequest))]
Hash = Annotated[str, Path(pattern=HEX32)]

TARGET_NAME_MAX_CHARACTERS: Final = 4_096
_YAML: Final = "application/yaml"

Name = Annotated[str, Query(min_length=1, max_length=TARGET_NAME_MAX_CHARACTERS)]


@router.get("/v1/proofs", tags=["proofs"])
def proofs(
    notary: NotaryPart,
    grant: Caller,
    workload_id: Annotated[str | None, Query(pattern=WORKLOAD_ID)] = None,
    attempt_id: Annotated[str | None, Query(pattern=HEX16)] = None,
    after: Annotated[int | None, Query(ge=0, le=LONG_MAX)] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_ROWS_MAX)] = 100,
) -> ProofList:
    """The newest proofs, going back in the log from the log index `after`."""
    found = notary.proofs.listed(grant, workload_id=workload_id, attempt_id=attempt_id, after=after, count=limit)
    return ProofList(proofs=tuple(found))


@router.get("/v1/proofs/{proof_id}", tags=["proofs"])
def proof(notary: NotaryPart, grant: Caller, proof_id: Hash) -> ProofView:
    """What one proof says."""
    return notary.proofs.get(proof_id, grant)


@router.get("/v1/proofs/{proof_id}/envelope", tags=["proofs"], responses=raw_response(JSON_TYPE))
def envelope(notary: NotaryPart, grant: Caller, proof_id: Hash) -> Response:
    """The signed bytes."""
    return Response(notary.proofs.envelope(proof_id, grant), media_type=JSON_TYPE)


@router.get("/v1/proofs/{proof_id}/bundle", tags=["proofs"], responses=raw_response(JSON_TYPE))
def bundle(notary: NotaryPart, grant: Caller, proof_id: Hash) -> Response:
    """All that an offline check needs, except the trust root."""
    return Response(notary.proofs.bundle(proof_id, grant), media_type=JSON_TYPE)


@router.post("/v1/proofs/{proof_id}/open", tags=["proofs"])
def open_proof(notary: NotaryPart, grant: Caller, proof_id: Hash, body: ReasonBody) -> OpenedProof:
    """An ended attempt's keys, so that its digests can be computed from the data; noted in the step log."""
    context, keys = notary.proofs.open(proof_id, grant, reason=body.reason)
    row_hash, commitment = dict(keys.row_hash), dict(keys.commitment)
    return OpenedProof(
        context=OpenedContext.model_validate(context.to_json()),
        keys={name: ProjectionKeys(row_hash[name], commitment[name]) for name in row_hash},
    )


@router.get("/v1/overrides", tags=["break-glass"])
def overrides(notary: NotaryPart, grant: Caller) -> OverrideList:
    """The newest break-glass overrides of the token's domain, at most 1,000."""
    return OverrideList(overrides=tuple(notary.overrides.listed(grant)))


@router.post("/v1/overrides", tags=["break-glass"])
def submit_override(notary: NotaryPart, grant: Caller, body: EnvelopeBody) -> OverrideView:
    """Submit a signed override of one FAIL proof; it waives the verdict at the gate, once, and nothing else."""
    return notary.overrides.submit(body.envelope.to_bytes(), grant)


@router.post("/v1/overrides/{override_id}/publish", tags=["break-glass"], dependencies=[Depends(require_empty)])
def publish_override(notary: NotaryPart, grant: Caller, override_id: Hash) -> AttemptView:
    """Bring back exactly the bytes that the override names, as a new attempt that is verified and put to the gate.

    The same request again gives the same attempt; nothing is published twice.
    """
    return notary.work.views(grant, [notary.override_publisher.bring_back(grant, override_id)])[0]


@router.post("/v1/attestations/challenges", tags=["attestations"])
def challenge(
    notary: NotaryPart,
    grant: Caller,
    body: Annotated[AttestationChallengeRequest, Depends(body_of(AttestationChallengeRequest))],
) -> Challenge:
    """Keys for an attestation of one source snapshot; the same request again gives the same keys."""
    snapshot_id, given = int(body.snapshot_id), body.fingerprints
    if snapshot_id > LONG_MAX:
        raise Code.REQUEST_INVALID("snapshot_id cannot be accepted", expected="0 to 2^63-1", got="more")
    named = {ProjectionName.IDENTITY: given.identity, ProjectionName.CONTENT: given.content}
    return notary.attestations.challenge(
        grant,
        ChallengeRequest(
            nonce=body.nonce,
            catalog=body.catalog,
            table_uuid=body.table_uuid,
            snapshot_id=snapshot_id,
            mode=Mode(body.mode),
            fingerprints=tuple((name, bytes.fromhex(text)) for name, text in named.items() if text is not None),
        ),
    )


@router.post("/v1/attestations", tags=["attestations"])
def submit_attestation(notary: NotaryPart, grant: Caller, body: EnvelopeBody) -> AttestationView:
    """Submit a signed source attestation."""
    return notary.attestations.submit(body.envelope.to_bytes(), grant)


@router.get("/v1/attestations", tags=["attestations"])
def attestations(
    notary: NotaryPart,
    grant: Caller,
    table_uuid: Annotated[str | None, Query(pattern=UUID)] = None,
    snapshot_id: Annotated[int | None, Query(ge=0, le=LONG_MAX)] = None,
) -> AttestationList:
    """The newest attestations of one table or snapshot; an attestor sees its own."""
    own = grant.name if grant.role is Role.ATTESTOR else None
    found = notary.attestations.listed(attestor=own, table_uuid=table_uuid, snapshot_id=snapshot_id)
    return AttestationList(attestations=tuple(found))


@router.post("/v1/keys/redeem", tags=["keys"])
def redeem(notary: NotaryPart, body: Annotated[RedeemKeysRequest, Depends(body_of(RedeemKeysRequest))]) -> RedeemedKeys:
    """The digest keys of a job that is frozen and not over; each worker of the Spark application gets them once."""
    keys = notary.handles.redeem(body.handle, job_id=body.job_id, worker=body.worker)
    epoch = next(iter(keys.values())).epoch
    return RedeemedKeys(epoch=epoch, keys={name.value: key.reveal().hex() for name, key in keys.items()})


@router.get("/v1/targets/{kind}", tags=["protection"])
def target(notary: NotaryPart, grant: Caller, kind: TargetKind, name: Name) -> TargetView:
    """A table or a namespace as it is now, for an operator who is about to sign an approval."""
    parts = parse_full_name(name)
    if kind == "namespace":
        return notary.migrations.namespace(parts, grant)
    return notary.migrations.table(parts[:-1], parts[-1], grant)


@router.get("/v1/protected", tags=["protection"])
def protected(
    notary: NotaryPart,
    grant: Caller,
    kind: TargetKind = "table",
    namespace: Name | None = None,
    name: Name | None = None,
    after: Name | None = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_ROWS_MAX)] = PAGE_ROWS_MAX,
) -> ProtectedList:
    """What is protected now in the token's domain, by name, after the name `after`."""
    begin = None if after is None else parse_full_name(after)
    wanted = name or namespace if kind == "namespace" else namespace
    levels = None if wanted is None else parse_full_name(wanted)
    last: str | None = None
    if kind == "table" and name is not None:
        *above, last = parse_full_name(name)
        levels = tuple(above)
    found = notary.protections.list_protected(grant, kind, levels=levels, name=last, after=begin, count=limit)
    return ProtectedList(protected=tuple(_protected_view(kind, each) for each in found))


@router.get("/v1/protections", tags=["protection"])
def protections(notary: NotaryPart, grant: Caller) -> ProtectionList:
    """The newest protections of the token's domain, at most 1,000."""
    return ProtectionList(protections=tuple(notary.protections.listed(grant)))


@router.post("/v1/protections", tags=["protection"])
def submit_protection(notary: NotaryPart, grant: Caller, body: EnvelopeBody) -> ProtectionView:
    """Put a table or a namespace under a contract, or take it out, by an operator's signed statement."""
    return notary.protections.submit(body.envelope.to_bytes(), grant)


@router.get("/v1/contracts/{contract_sha256}", tags=["protection"], responses=raw_response(_YAML))
def contract(notary: NotaryPart, grant: Caller, contract_sha256: Hash) -> Response:
    """The bytes of a contract by their SHA-256."""
    return Response(notary.protections.contract(contract_sha256, grant), media_type=_YAML)


@router.get("/v1/migrations", tags=["protection"])
def migrations(notary: NotaryPart, grant: Caller) -> MigrationList:
    """The newest migrations of the token's domain, at most 1,000."""
    return MigrationList(migrations=tuple(notary.migrations.listed(grant)))


@router.get("/v1/migrations/{migration_id}", tags=["protection"])
def migration(notary: NotaryPart, grant: Caller, migration_id: Hash) -> MigrationView:
    """One migration."""
    return notary.migrations.get(migration_id, grant)


@router.post("/v1/migrations", tags=["protection"])
def submit_migration(notary: NotaryPart, grant: Caller, body: EnvelopeBody) -> SubmittedMigration:
    """Apply the changes of a protected table that an operator has signed, exactly those."""
    return notary.migrations.submit(body.envelope.to_bytes(), grant)


def _protected_view(kind: TargetKind, found: ProtectedObject) -> ProtectedView:
    born = found.protection_id is None
    return ProtectedView(
        kind=kind,
        name=full_name(found.levels if found.name is None else (*found.levels, found.name)),
        id=found.id,
        contract_sha256=found.contract_sha256,
        since_at=found.since_micros,
        protection_id=found.protection_id,
        born_in=full_name(found.levels) if born else None,
    )
