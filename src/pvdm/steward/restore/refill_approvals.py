"""Protections and migrations of a lost time, put back into force by a restore, in the order of the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pvdm.ledger import Unit
from pvdm.ledger.catalog import namespaces, tables
from pvdm.ledger.record import protections
from pvdm.ledger.record.protections import MigrationRecord, ProtectionRecord
from pvdm.ledger.record.tokens import EVERY_DOMAIN
from pvdm.ledger.schema.record import ActionWord
from pvdm.model.statements.migration import Migration, NamespaceTarget, Protection, ProtectionAction
from pvdm.steward.restore.refill_check import Found
from pvdm.trust.log.entry import EntryKind
from pvdm.trust.statement import read_signed


@dataclass(frozen=True, slots=True)
class UnprotectedTable:
    """A table whose protection ended in the lost time, and when the log took that in; it may have been dropped since.

    No log has drops, and a protected table is not dropped.
    """

    table: str
    table_uuid: str
    ended_at: int


@dataclass(frozen=True, slots=True)
class ProtectedAgain:
    """A table (`id` is its UUID) or a namespace that a protection of the lost time holds again, and the contract."""

    kind: Literal["table", "namespace"]
    name: str
    id: str
    contract_sha256: str


@dataclass(frozen=True, slots=True)
class RemadeMigration:
    """A migration of the lost time that is in force again, whose change the table has."""

    table: str
    table_uuid: str
    migration_id: str


@dataclass(slots=True)
class Refilled:
    """What is protected again, by UUID or id, which migrations are made again, and which tables one is lost of.

    `unprotected` are the tables, by UUID, whose last approval ends their protection.
    """

    protected: dict[str, ProtectedAgain] = field(default_factory=dict)
    remade: list[RemadeMigration] = field(default_factory=list)
    migrated: set[str] = field(default_factory=set)
    unprotected: dict[str, UnprotectedTable] = field(default_factory=dict)


def refill_approvals(unit: Unit, found: Sequence[Found], made_again: Mapping[str, str | None]) -> Refilled:
    """Each approval that the backup lacks has its effect again, on what the backup has; its row is written anyway.

    `made_again` are the migrations whose change the tables have again, each with the hash of the document it led to.
    """
    done = Refilled()
    for each in found:
        if each.envelope is None:
            continue
        if each.entry.kind is EntryKind.PROTECTION:
            said = read_signed(each.envelope, Protection)
            _protection(unit, each.statement_id(), said)
            _note(unit, said, each.entry.time, done)
        elif each.entry.kind is EntryKind.MIGRATION:
            _migration(unit, each.statement_id(), read_signed(each.envelope, Migration), done, made_again)
    return done


def _protection(unit: Unit, protection_id: str, said: Protection) -> None:
    after = said.target.contract_sha256 if said.action is ProtectionAction.PROTECT else None
    table_uuid = namespace_id = None
    if isinstance(said.target, NamespaceTarget):
        name, namespace_id = said.target.namespace.name, said.target.namespace.id
        domain = _set_namespace(unit, namespace_id, after)
    else:
        name, table_uuid = said.target.table.name, said.target.table.uuid
        domain = _set_table(unit, table_uuid, after)
    action = ActionWord(said.action.value)
    contract = said.target.contract_sha256
    record = ProtectionRecord(
        protection_id, action, table_uuid, namespace_id, name, domain, contract, said.operator, said.nonce
    )
    protections.insert_protection(unit, record)
    if said.contract is not None:
        protections.store_contract(unit, said.contract.encode(), statement_id=protection_id)


def _note(unit: Unit, said: Protection, at_micros: int, done: Refilled) -> None:
    """The last word about each counts: it is protected again, or it is not any more."""
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


def _migration(
    unit: Unit, migration_id: str, said: Migration, done: Refilled, made_again: Mapping[str, str | None]
) -> None:
    """The contract is back; a change that could not be made again has to be proposed again."""
    contract = said.after.contract_sha256
    domain = _set_table(unit, said.table.uuid, contract)
    if migration_id in made_again:
        done.remade.append(RemadeMigration(said.table.name, said.table.uuid, migration_id))
    else:
        done.migrated.add(said.table.name)
    sha256 = made_again.get(migration_id)
    record = MigrationRecord(
        migration_id, said.table.uuid, said.table.name, domain, contract, sha256, said.operator, said.nonce
    )
    protections.insert_migration(unit, record)
    if said.contract is not None:
        protections.store_contract(unit, said.contract.encode(), statement_id=migration_id)


def _set_table(unit: Unit, table_uuid: str, contract: str | None) -> str:
    """The table's domain; of one that the backup does not have nobody knows it, so only who has every domain sees."""
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
