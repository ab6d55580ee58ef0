"""Protections and migrations: looked at, handed in as signed envelopes, and listed."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Depends, Path, Query, Response

from pvdm.catalog.names import full_name, parse_full_name
from pvdm.ledger.catalog.protected import Standing
from pvdm.model.fields import decimal
from pvdm.steward.approval.migrations import MigrationView
from pvdm.steward.approval.protections import ProtectionView
from pvdm.steward.http.body import body_of
from pvdm.steward.http.dependencies import Caller, NotaryPart, envelope_bytes
from pvdm.steward.http.openapi import raw
from pvdm.steward.http.v1.models import HEX32, PAGE_ROWS_MAX, EnvelopeBody
from pvdm.steward.http.v1.protection_models import (
    MigrationAnswer,
    MigrationsAnswer,
    ProtectedAnswer,
    ProtectedPart,
    ProtectionAnswer,
    ProtectionsAnswer,
    StatePart,
    SubmittedMigrationAnswer,
    TargetAnswer,
)

TARGET_NAME_MAX_CHARACTERS: Final = 4_096
_YAML: Final = "application/yaml"

router = APIRouter()

Enveloped = Annotated[EnvelopeBody, Depends(body_of(EnvelopeBody))]
Hash = Annotated[str, Path(pattern=HEX32)]
Name = Annotated[str, Query(min_length=1, max_length=TARGET_NAME_MAX_CHARACTERS)]


@router.get("/v1/targets/{kind}", tags=["protection"])
def target(notary: NotaryPart, grant: Caller, kind: Literal["table", "namespace"], name: Name) -> TargetAnswer:
    """A table or a namespace as it is now, for who is about to sign something about it."""
    parts = parse_full_name(name)
    if kind == "namespace":
        catalog, found = notary.migrations.namespace(parts, grant)
        return TargetAnswer(
            kind=kind,
            catalog=catalog,
            id=found.namespace_id,
            name=full_name(found.levels),
            contract_sha256=found.protected_by,
            metadata=None,
        )
    shown = notary.migrations.table(parts[:-1], parts[-1], grant)
    return TargetAnswer(
        kind=kind,
        catalog=shown.catalog,
        id=shown.table_uuid,
        name=full_name((*shown.levels, shown.name)),
        contract_sha256=shown.contract_sha256,
        metadata=shown.metadata.decode(),
    )


@router.get("/v1/protected", tags=["protection"])
def protected(
    notary: NotaryPart,
    grant: Caller,
    kind: Literal["table", "namespace"] = "table",
    namespace: Name | None = None,
    name: Name | None = None,
    after: Name | None = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_ROWS_MAX)] = PAGE_ROWS_MAX,
) -> ProtectedAnswer:
    """What is protected now in the token's domain, by name, from behind the name `after`."""
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
    return ProtectedAnswer(protected=[_standing(kind, each) for each in found])


@router.get("/v1/protections", tags=["protection"])
def protections(notary: NotaryPart, grant: Caller) -> ProtectionsAnswer:
    """The newest protections of the token's domain, at most 1,000."""
    return ProtectionsAnswer(protections=[_protection(view) for view in notary.protections.listed(grant)])


@router.post("/v1/protections", tags=["protection"])
def submit_protection(notary: NotaryPart, grant: Caller, body: Enveloped) -> ProtectionAnswer:
    """Put a table or a namespace under a contract, or take it out, by an operator's signed word."""
    return _protection(notary.protections.submit(envelope_bytes(body.envelope), grant))


@router.get("/v1/contracts/{contract_sha256}", tags=["protection"], responses=raw(_YAML))
def contract(notary: NotaryPart, grant: Caller, contract_sha256: Hash) -> Response:
    """The bytes of a contract by their SHA-256."""
    return Response(notary.protections.contract(contract_sha256, grant), media_type=_YAML)


@router.get("/v1/migrations", tags=["protection"])
def migrations(notary: NotaryPart, grant: Caller) -> MigrationsAnswer:
    """The newest migrations of the token's domain, at most 1,000."""
    return MigrationsAnswer(migrations=[_migration(view) for view in notary.migrations.listed(grant)])


@router.get("/v1/migrations/{migration_id}", tags=["protection"])
def migration(notary: NotaryPart, grant: Caller, migration_id: Hash) -> MigrationAnswer:
    """One migration."""
    return _migration(notary.migrations.get(migration_id, grant))


@router.post("/v1/migrations", tags=["protection"])
def submit_migration(notary: NotaryPart, grant: Caller, body: Enveloped) -> SubmittedMigrationAnswer:
    """Apply the changes of a protected table that an operator has signed, exactly those."""
    found = notary.migrations.submit(envelope_bytes(body.envelope), grant)
    return SubmittedMigrationAnswer(
        migration=_migration(found.migration),
        applied="now" if found.now else "before",
        applied_at=found.applied_at,
        contract_sha256=found.contract_sha256,
    )


def _standing(kind: Literal["table", "namespace"], found: Standing) -> ProtectedPart:
    born = found.protection_id is None
    return ProtectedPart(
        kind=kind,
        name=full_name(found.levels if found.name is None else (*found.levels, found.name)),
        id=found.id,
        contract_sha256=found.contract_sha256,
        since_at=found.since_micros,
        protection_id=found.protection_id,
        born_in=full_name(found.levels) if born else None,
    )


def _protection(view: ProtectionView) -> ProtectionAnswer:
    numbers = {"snapshot_id": decimal(view.snapshot_id), "log_index": str(view.log_index)}
    return ProtectionAnswer(**{**asdict(view), **numbers})


def _migration(view: MigrationView) -> MigrationAnswer:
    states = {"before": StatePart(**asdict(view.before)), "after": StatePart(**asdict(view.after))}
    return MigrationAnswer(**{**asdict(view), **states, "log_index": str(view.log_index)})
