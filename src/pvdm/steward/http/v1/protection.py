"""Routes of protections and migrations."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Depends, Path, Query, Response

from pvdm.api.base import HEX32, PAGE_ROWS_MAX
from pvdm.api.proofs import EnvelopeRequest
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
from pvdm.catalog.names import full_name, parse_full_name
from pvdm.ledger.catalog.protected import ProtectedObject
from pvdm.steward.http.body import body_of
from pvdm.steward.http.dependencies import Caller, NotaryPart
from pvdm.steward.http.openapi import raw

TARGET_NAME_MAX_CHARACTERS: Final = 4_096
_YAML: Final = "application/yaml"

router = APIRouter()

EnvelopeBody = Annotated[EnvelopeRequest, Depends(body_of(EnvelopeRequest))]
Hash = Annotated[str, Path(pattern=HEX32)]
Name = Annotated[str, Query(min_length=1, max_length=TARGET_NAME_MAX_CHARACTERS)]


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
    desk = notary.protections
    begin = None if after is None else parse_full_name(after)
    if kind == "namespace":
        wanted = name or namespace
        levels = None if wanted is None else parse_full_name(wanted)
        found = desk.namespaces_now(grant, levels=levels, after=begin, count=limit)
    else:
        table = None if name is None else parse_full_name(name)
        levels = None if namespace is None else parse_full_name(namespace)
        found = desk.tables_now(
            grant,
            levels=levels if table is None else table[:-1],
            name=None if table is None else table[-1],
            after=None if begin is None else (begin[:-1], begin[-1]),
            count=limit,
        )
    return ProtectedList(protected=tuple(_protected_view(kind, each) for each in found))


@router.get("/v1/protections", tags=["protection"])
def protections(notary: NotaryPart, grant: Caller) -> ProtectionList:
    """The newest protections of the token's domain, at most 1,000."""
    return ProtectionList(protections=tuple(notary.protections.listed(grant)))


@router.post("/v1/protections", tags=["protection"])
def submit_protection(notary: NotaryPart, grant: Caller, body: EnvelopeBody) -> ProtectionView:
    """Put a table or a namespace under a contract, or take it out, by an operator's signed statement."""
    return notary.protections.submit(body.envelope.to_bytes(), grant)


@router.get("/v1/contracts/{contract_sha256}", tags=["protection"], responses=raw(_YAML))
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
