"""Routes of signed statements (proofs, overrides, attestations, approvals), of lost claims, and of workers' keys."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Depends, Path, Query, Response

from pvdm.api import proofs as api
from pvdm.api import protection as approvals
from pvdm.api.base import (
    HEX_16_BYTES,
    HEX_32_BYTES,
    PAGE_ROWS_MAX,
    TABLE_NAME_MAX_CHARACTERS,
    UUID,
    WORKLOAD_ID,
    WORKLOAD_ID_MAX_CHARACTERS,
)
from pvdm.api.work import AttemptView
from pvdm.catalog.names import full_name, parse_full_name
from pvdm.digest.plan import Mode
from pvdm.ledger.record.protections import ProtectedObject
from pvdm.model.fields import LONG_MAX
from pvdm.model.projection import ProjectionName
from pvdm.model.role import Role
from pvdm.steward.http.body import ReasonBody, body_of, require_empty
from pvdm.steward.http.dependencies import Caller, NotaryPart
from pvdm.steward.http.openapi import raw_response
from pvdm.steward.record.attestations import ChallengeRequest

JSON_TYPE: Final = "application/json"
_YAML: Final = "application/yaml"

router = APIRouter()

EnvelopeBody = Annotated[api.EnvelopeRequest, body_of(api.EnvelopeRequest)]
Hash = Annotated[str, Path(pattern=HEX_32_BYTES)]
FullName = Annotated[str, Query(min_length=1, max_length=TABLE_NAME_MAX_CHARACTERS)]


@router.get("/v1/proofs", tags=["proofs"])
def proofs(
    notary: NotaryPart,
    grant: Caller,
    workload_id: Annotated[str | None, Query(max_length=WORKLOAD_ID_MAX_CHARACTERS, pattern=WORKLOAD_ID)] = None,
    attempt_id: Annotated[str | None, Query(pattern=HEX_16_BYTES)] = None,
    after: Annotated[int | None, Query(ge=0, le=LONG_MAX)] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_ROWS_MAX)] = 100,
) -> api.ProofList:
    """The newest proofs, going back in the log from the log index `after`."""
    found = notary.proofs.list_proofs(grant, workload_id=workload_id, attempt_id=attempt_id, after=after, count=limit)
    return api.ProofList(proofs=tuple(found))


@router.get("/v1/proofs/{proof_id}", tags=["proofs"])
def proof(notary: NotaryPart, grant: Caller, proof_id: Hash) -> api.ProofView:
    """One proof."""
    return notary.proofs.get(proof_id, grant)


@router.get("/v1/proofs/{proof_id}/envelope", tags=["proofs"], responses=raw_response(JSON_TYPE))
def envelope(notary: NotaryPart, grant: Caller, proof_id: Hash) -> Response:
    """The signed envelope of one proof."""
    return Response(notary.proofs.envelope(proof_id, grant), media_type=JSON_TYPE)


@router.get("/v1/proofs/{proof_id}/bundle", tags=["proofs"], responses=raw_response(JSON_TYPE))
def bundle(notary: NotaryPart, grant: Caller, proof_id: Hash) -> Response:
    """The proof, its inclusion proof and checkpoint, for an offline check, which also needs the trust root."""
    return Response(notary.proofs.bundle(proof_id, grant), media_type=JSON_TYPE)


@router.post("/v1/proofs/{proof_id}/open", tags=["proofs"])
def open_proof(notary: NotaryPart, grant: Caller, proof_id: Hash, body: ReasonBody) -> api.OpenedProof:
    """The keys of an ended attempt, to compute its digests again from the data. The step log records who got them."""
    context, keys = notary.proofs.open(proof_id, grant, reason=body.reason)
    row_hash, commitment = dict(keys.row_hash), dict(keys.commitment)
    return api.OpenedProof(
        context=api.OpenedContext.model_validate(context.to_json()),
        keys={name: api.ProjectionKeys(row_hash[name], commitment[name]) for name in row_hash},
    )


@router.get("/v1/overrides", tags=["break-glass"])
def overrides(notary: NotaryPart, grant: Caller) -> api.OverrideList:
    """The newest break-glass overrides of the token's domain, at most 1,000."""
    return api.OverrideList(overrides=tuple(notary.overrides.list_overrides(grant)))


@router.post("/v1/overrides", tags=["break-glass"])
def submit_override(notary: NotaryPart, grant: Caller, body: EnvelopeBody) -> api.OverrideView:
    """Submit a signed override of one FAIL proof; it waives only the verdict at the gate, and only once."""
    return notary.overrides.submit(body.envelope.to_bytes(), grant)


@router.post("/v1/overrides/{override_id}/publish", tags=["break-glass"], dependencies=[Depends(require_empty)])
def publish_override(notary: NotaryPart, grant: Caller, override_id: Hash) -> AttemptView:
    """Publish exactly the bytes that the override names, in a new attempt that is verified and sent to the gate.

    The same request again returns the same attempt; nothing is published twice.
    """
    return notary.work.view_attempts(grant, [notary.override_staging.stage_override(grant, override_id)])[0]


@router.post("/v1/attestations/challenges", tags=["attestations"])
def challenge(
    notary: NotaryPart,
    grant: Caller,
    body: Annotated[api.AttestationChallengeRequest, body_of(api.AttestationChallengeRequest)],
) -> api.Challenge:
    """Issue the keys for a source's attestation of one of its snapshots. A repetition returns the same keys."""
    # The model `fingerprints` iterates over its fields.
    given = [(ProjectionName(name), text) for name, text in body.fingerprints if text is not None]
    return notary.attestations.challenge(
        grant,
        ChallengeRequest(
            nonce=body.nonce,
            catalog=body.catalog,
            table_uuid=body.table_uuid,
            snapshot_id=body.snapshot_id,
            mode=Mode(body.mode),
            fingerprints=tuple((name, bytes.fromhex(text)) for name, text in given),
        ),
    )


@router.post("/v1/attestations", tags=["attestations"])
def submit_attestation(notary: NotaryPart, grant: Caller, body: EnvelopeBody) -> api.AttestationView:
    """Submit a signed source attestation."""
    return notary.attestations.submit(body.envelope.to_bytes(), grant)


@router.get("/v1/attestations", tags=["attestations"])
def attestations(
    notary: NotaryPart,
    grant: Caller,
    table_uuid: Annotated[str | None, Query(pattern=UUID)] = None,
    snapshot_id: Annotated[int | None, Query(ge=0, le=LONG_MAX)] = None,
) -> api.AttestationList:
    """The newest attestations, of one table or snapshot if given. An attestor sees only attestations of its own."""
    attestor = grant.name if grant.role is Role.ATTESTOR else None
    found = notary.attestations.list_attestations(attestor=attestor, table_uuid=table_uuid, snapshot_id=snapshot_id)
    return api.AttestationList(attestations=tuple(found))


@router.post("/v1/keys/redeem", tags=["keys"])
def redeem(
    notary: NotaryPart, body: Annotated[api.RedeemKeysRequest, body_of(api.RedeemKeysRequest)]
) -> api.RedeemedKeys:
    """The digest keys of a verification job, once for each Spark worker, while the job runs on frozen files."""
    keys = notary.handles.redeem(body.handle, job_id=body.job_id, worker=body.worker)
    epoch = next(iter(keys.values())).epoch  # all keys of a job are of one epoch
    return api.RedeemedKeys(epoch=epoch, keys={name.value: key.reveal().hex() for name, key in keys.items()})


@router.get("/v1/targets/{kind}", tags=["protection"])
def target(notary: NotaryPart, grant: Caller, kind: approvals.TargetKind, name: FullName) -> approvals.TargetView:
    """A table or a namespace as it is now, for an operator who is about to sign an approval."""
    parts = parse_full_name(name)
    if kind == "namespace":
        return notary.migrations.show_namespace(parts, grant)
    return notary.migrations.show_table(parts[:-1], parts[-1], grant)


@router.get("/v1/protected", tags=["protection"])
def protected(
    notary: NotaryPart,
    grant: Caller,
    kind: approvals.TargetKind = "table",
    namespace: FullName | None = None,
    name: FullName | None = None,
    after: FullName | None = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_ROWS_MAX)] = PAGE_ROWS_MAX,
) -> approvals.ProtectedList:
    """The protected tables or namespaces of the token's domain, in order of name, after the name `after`."""
    start = None if after is None else parse_full_name(after)
    if kind == "namespace":  # here `name`, too, is a namespace
        namespace = name or namespace
    levels = None if namespace is None else parse_full_name(namespace)
    table_name: str | None = None
    if kind == "table" and name is not None:
        *parents, table_name = parse_full_name(name)
        levels = tuple(parents)
    found = notary.protections.list_protected(grant, kind, levels=levels, name=table_name, after=start, count=limit)
    return approvals.ProtectedList(protected=tuple(_protected_view(kind, each) for each in found))


@router.get("/v1/protections", tags=["protection"])
def protections(notary: NotaryPart, grant: Caller) -> approvals.ProtectionList:
    """The newest protections of the token's domain, at most 1,000."""
    return approvals.ProtectionList(protections=tuple(notary.protections.list_protections(grant)))


@router.post("/v1/protections", tags=["protection"])
def submit_protection(notary: NotaryPart, grant: Caller, body: EnvelopeBody) -> approvals.ProtectionView:
    """Put a table or a namespace under a contract, or end its protection, by an operator's signed statement."""
    return notary.protections.submit(body.envelope.to_bytes(), grant)


@router.get("/v1/contracts/{contract_sha256}", tags=["protection"], responses=raw_response(_YAML))
def contract(notary: NotaryPart, grant: Caller, contract_sha256: Hash) -> Response:
    """The bytes of a contract by their SHA-256."""
    return Response(notary.protections.get_contract(contract_sha256, grant), media_type=_YAML)


@router.get("/v1/migrations", tags=["protection"])
def migrations(notary: NotaryPart, grant: Caller) -> approvals.MigrationList:
    """The newest migrations of the token's domain, at most 1,000."""
    return approvals.MigrationList(migrations=tuple(notary.migrations.list_migrations(grant)))


@router.get("/v1/migrations/{migration_id}", tags=["protection"])
def migration(notary: NotaryPart, grant: Caller, migration_id: Hash) -> approvals.MigrationView:
    """One migration."""
    return notary.migrations.get(migration_id, grant)


@router.post("/v1/migrations", tags=["protection"])
def submit_migration(notary: NotaryPart, grant: Caller, body: EnvelopeBody) -> approvals.SubmittedMigration:
    """Apply exactly those changes of a protected table that an operator has signed."""
    return notary.migrations.submit(body.envelope.to_bytes(), grant)


@router.get("/v1/lost-claims", tags=["protection"])
def lost_claims(
    notary: NotaryPart, grant: Caller, receipt_id: Annotated[str | None, Query(pattern=HEX_32_BYTES)] = None
) -> approvals.LostClaimList:
    """The claims in the token's domain that a restore has lost, at most 1,000; or the one of this receipt or proof."""
    found = notary.claim_releases.list_lost(grant, receipt_id=receipt_id)
    return approvals.LostClaimList(lost_claims=tuple(found))


@router.post("/v1/claim-releases", tags=["protection"])
def submit_claim_release(notary: NotaryPart, grant: Caller, body: EnvelopeBody) -> approvals.ClaimReleaseView:
    """Release a lost claim, by an operator's signed statement: the claim then blocks no other workload."""
    return notary.claim_releases.submit(body.envelope.to_bytes(), grant)


def _protected_view(kind: approvals.TargetKind, found: ProtectedObject) -> approvals.ProtectedView:
    return approvals.ProtectedView(
        kind=kind,
        name=full_name(found.levels if found.name is None else (*found.levels, found.name)),
        id=found.id,
        contract_sha256=found.contract_sha256,
        since_at=found.since_micros,
        protection_id=found.protection_id,
        # A table without a protection of its own was created in a protected namespace.
        born_in=full_name(found.levels) if found.protection_id is None else None,
    )
