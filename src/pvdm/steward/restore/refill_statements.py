"""Puts approvals, proofs and overrides from after the backup back into the ledger, in the order of the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pvdm.ledger import Unit
from pvdm.ledger.catalog import namespaces, tables
from pvdm.ledger.record import proofs, protections, restores
from pvdm.ledger.record.tokens import EVERY_DOMAIN
from pvdm.ledger.schema.work import NoncePurpose
from pvdm.ledger.work import nonces, workloads
from pvdm.model.statements.break_glass import BreakGlass
from pvdm.model.statements.claim_release import ClaimRelease
from pvdm.model.statements.kind import StatementKind
from pvdm.model.statements.migration import Migration, NamespaceTarget, Protection, ProtectionAction
from pvdm.model.statements.proof import Proof
from pvdm.model.statements.receipt import Receipt
from pvdm.steward.claim_releases import use_nonce
from pvdm.steward.migrations import migration_record
from pvdm.steward.protections import protection_record
from pvdm.steward.record.overrides import override_record
from pvdm.steward.record.proofs import proof_record
from pvdm.steward.restore.refill import ArchivedEntry, statements_of
from pvdm.trust.statement import read_unchecked

RESTORE_REASON = "the ledger was restored from a backup"


@dataclass(frozen=True, slots=True)
class UnprotectedTable:
    """A table whose protection ended after the backup; it may have been dropped since, which is not logged."""

    table: str
    table_uuid: str
    ended_at: int


@dataclass(frozen=True, slots=True)
class ReprotectedObject:
    """A table (`id` is its UUID) or a namespace that is protected again by a protection from after the backup."""

    kind: Literal["table", "namespace"]
    name: str
    id: str
    contract_sha256: str


@dataclass(frozen=True, slots=True)
class RemadeMigration:
    """A migration from after the backup that is in force again."""

    table: str
    table_uuid: str
    migration_id: str


@dataclass(slots=True)
class RefilledApprovals:
    """Effects of the refilled approvals.

    `protected`: tables and namespaces that are protected again, by id. `remade`: migrations in force again.
    `lacking_migration`: names of tables that lack a migration. `unprotected`: tables whose protection ended, by UUID.
    """

    protected: dict[str, ReprotectedObject] = field(default_factory=dict)
    remade: list[RemadeMigration] = field(default_factory=list)
    lacking_migration: set[str] = field(default_factory=set)
    unprotected: dict[str, UnprotectedTable] = field(default_factory=dict)


def refill_approvals(
    unit: Unit, archived: Sequence[ArchivedEntry], migrated: Mapping[str, str | None]
) -> RefilledApprovals:
    """Write every approval that the backup lacks, and apply it to tables and namespaces of the backup.

    `migrated` has the ids of migrations in force again, with the hash of the metadata that was written for each.
    """
    effects = RefilledApprovals()
    for each in archived:
        if each.envelope is None:
            continue
        if each.entry.kind is StatementKind.PROTECTION:
            protection = read_unchecked(each.envelope, Protection)
            _refill_protection(unit, each.statement_id(), protection, each.entry.time, effects)
        elif each.entry.kind is StatementKind.MIGRATION:
            _refill_migration(unit, each.statement_id(), read_unchecked(each.envelope, Migration), effects, migrated)
    return effects


def _refill_protection(
    unit: Unit, protection_id: str, protection: Protection, at_micros: int, effects: RefilledApprovals
) -> None:
    """Store and apply the protection, and note its effect; a later protection of the same target replaces the note."""
    target, protects = protection.target, protection.action is ProtectionAction.PROTECT
    after = target.contract_sha256 if protects else None
    if isinstance(target, NamespaceTarget):
        namespace, row = target.namespace, namespaces.find_by_id(unit, target.namespace.id)
        effects.protected.pop(namespace.id, None)
        if row is not None and row.protected_by != after:
            namespaces.protect(unit, row, after)
        if row is not None and protects:
            protected = ReprotectedObject("namespace", namespace.name, namespace.id, target.contract_sha256)
            effects.protected[namespace.id] = protected
        domain = EVERY_DOMAIN if row is None else row.domain
    else:
        table = target.table
        domain = _set_contract(unit, table.uuid, after)
        effects.unprotected.pop(table.uuid, None)
        effects.protected.pop(table.uuid, None)
        is_in_ledger = tables.find_by_uuid(unit, table.uuid) is not None
        if is_in_ledger and protects:
            effects.protected[table.uuid] = ReprotectedObject("table", table.name, table.uuid, target.contract_sha256)
        elif is_in_ledger:
            effects.unprotected[table.uuid] = UnprotectedTable(table.name, table.uuid, at_micros)
    protections.insert(unit, protection_record(protection_id, protection, domain), protection.contract)


def _refill_migration(
    unit: Unit, migration_id: str, migration: Migration, effects: RefilledApprovals, migrated: Mapping[str, str | None]
) -> None:
    """Store the migration and apply its contract. A change that the table lacks must be proposed again."""
    table = migration.table
    domain = _set_contract(unit, table.uuid, migration.after.contract_sha256)
    if migration_id in migrated:
        effects.remade.append(RemadeMigration(table.name, table.uuid, migration_id))
    else:
        effects.lacking_migration.add(table.name)
    record = migration_record(migration_id, migration, domain, migrated.get(migration_id))
    protections.insert(unit, record, migration.contract)


def _set_contract(unit: Unit, table_uuid: str, contract_sha256: str | None) -> str:
    """Set the table's contract; returns its domain, or every domain if the backup lacks the table."""
    row = tables.find_by_uuid(unit, table_uuid)
    if row is None:
        return EVERY_DOMAIN
    if row.contract_hash != contract_sha256:
        tables.protect(unit, row, contract_sha256)
    return row.domain


def refill_releases(unit: Unit, archived: Sequence[ArchivedEntry]) -> dict[str, str]:
    """Apply every claim release that the backup lacks. Returns the ids of the releases, by receipt or proof."""
    releases: dict[str, str] = {}
    for entry, release in statements_of(archived, ClaimRelease):
        use_nonce(unit, release)
        releases[release.publication_id] = entry.statement_id()
        lost = restores.find_lost_claim(unit, release.publication_id)
        if lost is not None and lost.release_id is None:
            restores.release_lost_claim(unit, lost, entry.statement_id())
    return releases


def refill_verdicts(unit: Unit, archived: Sequence[ArchivedEntry]) -> None:
    """Write every proof and override that the backup lacks; no override can be used after the restore."""
    receipts = (receipt for _, receipt in statements_of(archived, Receipt))
    used = {each.override_id: each.new_snapshot_id for each in receipts if each.override_id is not None}
    for entry, proof in statements_of(archived, Proof):
        _refill_proof(unit, entry.statement_id(), proof)
    for entry, override in statements_of(archived, BreakGlass):
        _refill_override(unit, entry.statement_id(), override, is_used=entry.statement_id() in used)
    for override_id, snapshot_id in used.items():
        stored = proofs.find_override(unit, override_id)
        if stored is not None:
            nonces.settle(unit, stored.record.nonce, str(snapshot_id))


def _refill_proof(unit: Unit, proof_id: str, proof: Proof) -> None:
    core, part = proof.core, proof.notary
    attempt = core.attempt
    # The envelope lacks the key context (what the attempt's keys were derived from).
    record = proof_record(proof_id, core, part, context=None)
    workload = workloads.find(unit, attempt.workload_id)
    table = tables.find_by_uuid(unit, core.target.table.uuid)
    table_domain = EVERY_DOMAIN if table is None else table.domain
    domain = table_domain if workload is None else workload.opening.domain
    proofs.insert_restored(unit, record, attempt.workload_id, domain=domain)


def _refill_override(unit: Unit, override_id: str, override: BreakGlass, *, is_used: bool) -> None:
    """Write an override, unless its FAIL proof is lost: an override without it could not be listed."""
    if not proofs.is_known(unit, override.fail_proof_id):
        return
    nonces.reserve(unit, override.nonce, purpose=NoncePurpose.BREAK_GLASS, holder=override.operator)
    proofs.insert_override(unit, override_record(override_id, override))
    if not is_used:
        nonces.abort(unit, override.nonce, reason=RESTORE_REASON)
