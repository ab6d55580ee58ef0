"""Puts approvals, proofs and overrides from after the backup back into the ledger, in the order of the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pvdm.ledger import Unit
from pvdm.ledger.catalog import namespaces, tables
from pvdm.ledger.record import proofs, protections
from pvdm.ledger.record.proofs import OverrideRecord, ProofRecord
from pvdm.ledger.record.tokens import EVERY_DOMAIN
from pvdm.ledger.schema.record import VerdictWord
from pvdm.ledger.schema.work import NoncePurpose
from pvdm.ledger.work import nonces, workloads
from pvdm.model.statements.break_glass import BreakGlass
from pvdm.model.statements.migration import Migration, NamespaceTarget, Protection, ProtectionAction
from pvdm.model.statements.proof import Proof
from pvdm.model.statements.receipt import Receipt
from pvdm.steward.migrations import migration_record
from pvdm.steward.protections import protection_record
from pvdm.steward.record.proofs import summary_of
from pvdm.steward.restore.refill import ArchivedEntry, statements_of
from pvdm.trust.log.entry import EntryKind
from pvdm.trust.statement import read_signed

_WHY = "the ledger was restored from a backup"


@dataclass(frozen=True, slots=True)
class UnprotectedTable:
    """A table whose protection ended after the backup, at `ended_at`.

    It may have been dropped since: a protected table cannot be dropped, and the log has no drops.
    """

    table: str
    table_uuid: str
    ended_at: int


@dataclass(frozen=True, slots=True)
class ProtectedAgain:
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

    `protected` are tables and namespaces protected again, by id; `remade` are migrations in force again; `migrated` are
    tables that lack a migration; `unprotected` are tables, by UUID, whose protection ended.
    """

    protected: dict[str, ProtectedAgain] = field(default_factory=dict)
    remade: list[RemadeMigration] = field(default_factory=list)
    migrated: set[str] = field(default_factory=set)
    unprotected: dict[str, UnprotectedTable] = field(default_factory=dict)


def refill_approvals(
    unit: Unit, found: Sequence[ArchivedEntry], made_again: Mapping[str, str | None]
) -> RefilledApprovals:
    """Write every approval that the backup lacks, and apply it to tables and namespaces of the backup.

    `made_again` are the migrations whose change the tables have again, with the hash of the resulting metadata.
    """
    done = RefilledApprovals()
    for each in found:
        if each.envelope is None:
            continue
        if each.entry.kind is EntryKind.PROTECTION:
            said = read_signed(each.envelope, Protection)
            _refill_protection(unit, each.statement_id(), said)
            _report_protection(unit, said, each.entry.time, done)
        elif each.entry.kind is EntryKind.MIGRATION:
            _refill_migration(unit, each.statement_id(), read_signed(each.envelope, Migration), done, made_again)
    return done


def _refill_protection(unit: Unit, protection_id: str, said: Protection) -> None:
    after = said.target.contract_sha256 if said.action is ProtectionAction.PROTECT else None
    if isinstance(said.target, NamespaceTarget):
        domain = _set_namespace(unit, said.target.namespace.id, after)
    else:
        domain = _set_table(unit, said.target.table.uuid, after)
    protections.insert_protection(unit, protection_record(protection_id, said, domain))
    if said.contract is not None:
        protections.store_contract(unit, said.contract.encode(), statement_id=protection_id)


def _report_protection(unit: Unit, said: Protection, at_micros: int, done: RefilledApprovals) -> None:
    """Report whether it is protected now; the last approval about it counts."""
    contract = said.target.contract_sha256
    if isinstance(said.target, NamespaceTarget):
        home = said.target.namespace
        done.protected.pop(home.id, None)
        if said.action is ProtectionAction.PROTECT and namespaces.find_by_id(unit, home.id) is not None:
            done.protected[home.id] = ProtectedAgain("namespace", home.name, home.id, contract)
        return
    table = said.target.table
    done.unprotected.pop(table.uuid, None)
    done.protected.pop(table.uuid, None)
    if tables.find_by_uuid(unit, table.uuid) is None:
        return
    if said.action is ProtectionAction.PROTECT:
        done.protected[table.uuid] = ProtectedAgain("table", table.name, table.uuid, contract)
    else:
        done.unprotected[table.uuid] = UnprotectedTable(table.name, table.uuid, at_micros)


def _refill_migration(
    unit: Unit, migration_id: str, said: Migration, done: RefilledApprovals, made_again: Mapping[str, str | None]
) -> None:
    """Apply the migration's contract; a change that could not be made again has to be proposed again."""
    domain = _set_table(unit, said.table.uuid, said.after.contract_sha256)
    if migration_id in made_again:
        done.remade.append(RemadeMigration(said.table.name, said.table.uuid, migration_id))
    else:
        done.migrated.add(said.table.name)
    record = migration_record(migration_id, said, domain, made_again.get(migration_id))
    protections.insert_migration(unit, record)
    if said.contract is not None:
        protections.store_contract(unit, said.contract.encode(), statement_id=migration_id)


def _set_table(unit: Unit, table_uuid: str, contract: str | None) -> str:
    """Set the table's contract; returns its domain, or every domain where the backup lacks the table."""
    row = tables.find_by_uuid(unit, table_uuid)
    if row is None:
        return EVERY_DOMAIN
    if row.contract_hash != contract:
        tables.protect(unit, row, contract)
    return row.domain


def _set_namespace(unit: Unit, namespace_id: str, contract: str | None) -> str:
    found = namespaces.find_by_id(unit, namespace_id)
    if found is None:
        return EVERY_DOMAIN
    if found.protected_by != contract:
        namespaces.protect(unit, found, contract)
    return found.domain


def refill_verdicts(unit: Unit, found: Sequence[ArchivedEntry]) -> None:
    """Write every proof and override that the backup lacks; no override can be used after the restore."""
    receipted = (said for _, said in statements_of(found, Receipt))
    used = {said.override_id: said.new_snapshot_id for said in receipted if said.override_id is not None}
    for each, proof in statements_of(found, Proof):
        _refill_proof(unit, each.statement_id(), proof)
    for each, override in statements_of(found, BreakGlass):
        _refill_override(unit, each.statement_id(), override, is_used=each.statement_id() in used)
    for override_id, snapshot_id in used.items():
        stored = proofs.find_override(unit, override_id)
        if stored is not None:
            nonces.settle(unit, stored.record.nonce, str(snapshot_id))


def _refill_proof(unit: Unit, proof_id: str, said: Proof) -> None:
    core, part = said.core, said.notary
    attempt = core.attempt
    # The key context is not in the envelope.
    record = ProofRecord(
        proof_id,
        attempt.attempt_id,
        attempt.nonce,
        VerdictWord(core.verdict.outcome.value),
        part.notary,
        part.expires_at,
        summary_of(core, part),
        None,
    )
    workload = workloads.find(unit, attempt.workload_id)
    table = tables.find_by_uuid(unit, core.target.table.uuid)
    of_table = EVERY_DOMAIN if table is None else table.domain
    domain = of_table if workload is None else workload.opening.domain
    proofs.insert_restored(unit, record, attempt.workload_id, domain=domain)


def _refill_override(unit: Unit, override_id: str, said: BreakGlass, *, is_used: bool) -> None:
    """Write an override; one whose FAIL proof is lost cannot be listed."""
    if not proofs.is_known(unit, said.fail_proof_id):
        return
    record = OverrideRecord(override_id, said.fail_proof_id, said.nonce, said.operator, said.expires_at)
    nonces.reserve(unit, said.nonce, purpose=NoncePurpose.BREAK_GLASS, holder=said.operator)
    proofs.insert_override(unit, record)
    if not is_used:
        nonces.abort(unit, said.nonce, reason=_WHY)
