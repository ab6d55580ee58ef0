"""Operators' approvals in the ledger: contracts by their hash, protections, and migrations of protected tables."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from sqlalchemy import select

from pvdm.errors import InputError
from pvdm.ledger import ids
from pvdm.ledger.connection import Row
from pvdm.ledger.record import statements
from pvdm.ledger.schema.protection import ActionWord, contracts, protections, table_migrations
from pvdm.ledger.schema.work import NoncePurpose, StatementKind
from pvdm.ledger.schema.work import statements as statement_table
from pvdm.ledger.unit import Unit
from pvdm.ledger.work import nonces

APPROVALS_PAGE_MAX_ROWS: Final = 1_000


@dataclass(frozen=True, slots=True)
class ProtectionRecord:
    """What the ledger has to find about a protection; the envelope says the rest. One of the two ids is None.

    `found_sha256` is None where `main` showed nothing, and for a protection that a restore brought back.
    """

    protection_id: str
    action: ActionWord
    table_uuid: str | None
    namespace_id: str | None
    name: str
    domain: str
    contract_sha256: str
    operator: str
    nonce: str
    found_sha256: str | None = None


@dataclass(frozen=True, slots=True)
class MigrationRecord:
    """What the ledger has to find about a migration; `contract_sha256` is the contract after it."""

    migration_id: str
    table_uuid: str
    name: str
    domain: str
    contract_sha256: str
    metadata_sha256: str | None
    operator: str
    nonce: str


def put(unit: Unit, record: ProtectionRecord, envelope: bytes, *, log_index: int) -> None:
    """Store a protection and its envelope and use its nonce up; a nonce that anyone ever used is `nonce_taken`."""
    statements.put(unit, StatementKind.PROTECTION, record.protection_id, envelope, log_index=log_index)
    note(unit, record)


def note(unit: Unit, record: ProtectionRecord) -> None:
    """The row of a protection whose envelope is stored."""
    _spend(unit, record.nonce, NoncePurpose.PROTECTION, record.operator)
    unit.insert(
        protections,
        protection_id=record.protection_id,
        action=record.action,
        table_uuid=record.table_uuid,
        namespace_id=record.namespace_id,
        name=record.name,
        domain=ids.name(record.domain, "domain"),
        contract_sha256=record.contract_sha256,
        operator=ids.name(record.operator, "operator"),
        nonce=record.nonce,
        found_sha256=None if record.found_sha256 is None else ids.sha256(record.found_sha256, "hash of what was found"),
    )


def put_migration(unit: Unit, record: MigrationRecord, envelope: bytes, *, log_index: int) -> None:
    """Store a migration and its envelope and use its nonce up; a nonce that anyone ever used is `nonce_taken`."""
    statements.put(unit, StatementKind.MIGRATION, record.migration_id, envelope, log_index=log_index)
    note_migration(unit, record)


def note_migration(unit: Unit, record: MigrationRecord) -> None:
    """The row of a migration whose envelope is stored."""
    _spend(unit, record.nonce, NoncePurpose.MIGRATION, record.operator)
    unit.insert(
        table_migrations,
        migration_id=record.migration_id,
        table_uuid=record.table_uuid,
        name=record.name,
        domain=ids.name(record.domain, "domain"),
        contract_sha256=record.contract_sha256,
        metadata_sha256=record.metadata_sha256,
        operator=ids.name(record.operator, "operator"),
        nonce=record.nonce,
    )


def keep_contract(unit: Unit, body: bytes, *, statement_id: str) -> str:
    """Keep a contract's bytes for ever, once; its hash."""
    sha256 = hashlib.sha256(body).hexdigest()
    unit.insert_new(contracts, contract_sha256=sha256, body=body, statement_id=statement_id)
    return sha256


def contract(unit: Unit, sha256: str) -> bytes:
    """A contract's bytes; not being there is an error."""
    row = unit.found(contracts, contract_sha256=sha256)
    if row is None:
        raise InputError("contract_unknown", "the ledger holds no such contract", got=ascii(sha256[:80]))
    return bytes(row["body"])


def has_contract(unit: Unit, sha256: str) -> bool:
    """Whether the ledger holds the contract."""
    return unit.found(contracts, contract_sha256=sha256) is not None


def contract_domains(unit: Unit, sha256: str) -> set[str]:
    """The domains whose tables or namespaces ever were under the contract."""
    return {
        str(row["domain"])
        for found in (protections, table_migrations)
        for row in unit.rows(select(found.c.domain).where(found.c.contract_sha256 == sha256).distinct())
    }


def find(unit: Unit, protection_id: str) -> ProtectionRecord | None:
    """The protection, if it is stored."""
    row = unit.found(protections, protection_id=protection_id)
    return None if row is None else _protection(row)


def find_migration(unit: Unit, migration_id: str) -> MigrationRecord | None:
    """The migration, if it is stored."""
    row = unit.found(table_migrations, migration_id=migration_id)
    return None if row is None else _migration(row)


def listed(unit: Unit, *, domain: str | None = None) -> list[ProtectionRecord]:
    """The newest protections, by their place in the log."""
    wanted = select(protections).join(statement_table, statement_table.c.statement_id == protections.c.protection_id)
    if domain is not None:
        wanted = wanted.where(protections.c.domain == domain)
    wanted = wanted.order_by(statement_table.c.log_index.desc()).limit(APPROVALS_PAGE_MAX_ROWS)
    return [_protection(row) for row in unit.rows(wanted)]


def listed_migrations(unit: Unit, *, domain: str | None = None) -> list[MigrationRecord]:
    """The newest migrations, by their place in the log."""
    found = table_migrations
    wanted = select(found).join(statement_table, statement_table.c.statement_id == found.c.migration_id)
    if domain is not None:
        wanted = wanted.where(found.c.domain == domain)
    wanted = wanted.order_by(statement_table.c.log_index.desc()).limit(APPROVALS_PAGE_MAX_ROWS)
    return [_migration(row) for row in unit.rows(wanted)]


def newest_of(unit: Unit, table_uuid: str) -> str | None:
    """The protection under which the table came last, by its id."""
    wanted = select(protections.c.protection_id).join(
        statement_table, statement_table.c.statement_id == protections.c.protection_id
    )
    wanted = wanted.where(protections.c.table_uuid == table_uuid.lower(), protections.c.action == ActionWord.PROTECT)
    row = unit.row(wanted.order_by(statement_table.c.log_index.desc()).limit(1))
    return None if row is None else str(row["protection_id"])


def found_sha256(unit: Unit, table_uuid: str) -> str | None:
    """What binds the manifests that `main` showed when the table came under protection last; None: not known."""
    newest = newest_of(unit, table_uuid)
    found = None if newest is None else find(unit, newest)
    return None if found is None else found.found_sha256


def standing_contract(unit: Unit, table_uuid: str) -> str | None:
    """The contract that the newest approval about this UUID leaves it under, whether or not the table is there."""
    found: list[tuple[int, str | None]] = []
    index = statement_table.c.log_index
    said = (
        select(protections, index)
        .join(statement_table, statement_table.c.statement_id == protections.c.protection_id)
        .where(protections.c.table_uuid == table_uuid.lower())
    )
    for row in unit.rows(said.order_by(index.desc()).limit(1)):
        protected = row["action"] == ActionWord.PROTECT
        found.append((row["log_index"], row["contract_sha256"] if protected else None))
    moved = (
        select(table_migrations, index)
        .join(statement_table, statement_table.c.statement_id == table_migrations.c.migration_id)
        .where(table_migrations.c.table_uuid == table_uuid.lower())
    )
    for row in unit.rows(moved.order_by(index.desc()).limit(1)):
        found.append((row["log_index"], row["contract_sha256"]))
    return max(found, key=lambda each: each[0])[1] if found else None


def _spend(unit: Unit, nonce: str, purpose: NoncePurpose, operator: str) -> None:
    """An approval is used in the transaction that takes it in."""
    nonces.reserve(unit, nonce, purpose=purpose, holder=operator)
    nonces.commit(unit, nonce, snapshot_id=None)


def _protection(row: Row) -> ProtectionRecord:
    return ProtectionRecord(
        row["protection_id"],
        ActionWord(row["action"]),
        row["table_uuid"],
        row["namespace_id"],
        row["name"],
        row["domain"],
        row["contract_sha256"],
        row["operator"],
        row["nonce"],
        row["found_sha256"],
    )


def _migration(row: Row) -> MigrationRecord:
    return MigrationRecord(
        row["migration_id"],
        row["table_uuid"],
        row["name"],
        row["domain"],
        row["contract_sha256"],
        row["metadata_sha256"],
        row["operator"],
        row["nonce"],
    )
