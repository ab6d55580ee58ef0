"""Operators' approvals: contracts by their hash, protections, and migrations of protected tables."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from typing import Final

from sqlalchemy import or_, select

from pvdm.errors import Code
from pvdm.ledger import ids
from pvdm.ledger.connection import Row, record_from
from pvdm.ledger.record import statements
from pvdm.ledger.schema.record import ActionWord, StatementKind, contracts, protections, table_migrations
from pvdm.ledger.schema.record import statements as statement_table
from pvdm.ledger.schema.work import NoncePurpose
from pvdm.ledger.unit import Unit
from pvdm.ledger.work import nonces

APPROVALS_PAGE_MAX_ROWS: Final = 1_000
AUDIT_APPROVALS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class ProtectionRecord:
    """What the ledger indexes of a protection. The rest is in the envelope. One of the two ids is None.

    `found_sha256` is None if `main` was empty, and for a protection that a restore brought back.
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
    """What the ledger indexes of a migration. `contract_sha256` is the contract after it."""

    migration_id: str
    table_uuid: str
    name: str
    domain: str
    contract_sha256: str
    metadata_sha256: str | None
    operator: str
    nonce: str


def put(unit: Unit, record: ProtectionRecord, envelope: bytes, *, log_index: int) -> None:
    """Store a protection with its envelope and use up its nonce. Raises `nonce_taken` if the nonce was ever used."""
    statements.put(unit, StatementKind.PROTECTION, record.protection_id, envelope, log_index=log_index)
    insert_protection(unit, record)


def insert_protection(unit: Unit, record: ProtectionRecord) -> None:
    """Add the row of a protection whose envelope is stored."""
    _use_nonce(unit, record.nonce, NoncePurpose.PROTECTION, record.operator)
    ids.require_name(record.domain, "domain")
    ids.require_name(record.operator, "operator")
    if record.found_sha256 is not None:
        ids.require_sha256(record.found_sha256, "hash of what was found")
    unit.insert(protections, **asdict(record))


def put_migration(unit: Unit, record: MigrationRecord, envelope: bytes, *, log_index: int) -> None:
    """Store a migration with its envelope and use up its nonce. Raises `nonce_taken` if it was ever used."""
    statements.put(unit, StatementKind.MIGRATION, record.migration_id, envelope, log_index=log_index)
    insert_migration(unit, record)


def insert_migration(unit: Unit, record: MigrationRecord) -> None:
    """Add the row of a migration whose envelope is stored."""
    _use_nonce(unit, record.nonce, NoncePurpose.MIGRATION, record.operator)
    ids.require_name(record.domain, "domain")
    ids.require_name(record.operator, "operator")
    unit.insert(table_migrations, **asdict(record))


def store_contract(unit: Unit, body: bytes, *, statement_id: str) -> str:
    """Store a contract's bytes, once, and return their hash."""
    sha256 = hashlib.sha256(body).hexdigest()
    unit.insert_new(contracts, contract_sha256=sha256, body=body, statement_id=statement_id)
    return sha256


def contract(unit: Unit, sha256: str) -> bytes:
    """A contract's bytes. Raises `contract_unknown`."""
    row = unit.find(contracts, contract_sha256=sha256)
    if row is None:
        raise Code.CONTRACT_UNKNOWN(got=ascii(sha256[:80]))
    return bytes(row["body"])


def has_contract(unit: Unit, sha256: str) -> bool:
    """Whether the ledger holds the contract."""
    return unit.find(contracts, contract_sha256=sha256) is not None


def contract_domains(unit: Unit, sha256: str) -> set[str]:
    """The domains whose tables or namespaces were ever under the contract."""
    return {
        str(row["domain"])
        for found in (protections, table_migrations)
        for row in unit.rows(select(found.c.domain).where(found.c.contract_sha256 == sha256).distinct())
    }


def find(unit: Unit, protection_id: str) -> ProtectionRecord | None:
    """The protection, or None."""
    row = unit.find(protections, protection_id=protection_id)
    return None if row is None else _protection(row)


def find_migration(unit: Unit, migration_id: str) -> MigrationRecord | None:
    """The migration, or None."""
    row = unit.find(table_migrations, migration_id=migration_id)
    return None if row is None else _migration(row)


def list_newest(unit: Unit, *, domain: str | None = None) -> list[ProtectionRecord]:
    """The newest protections, by their log index."""
    wanted = select(protections).join(statement_table, statement_table.c.statement_id == protections.c.protection_id)
    if domain is not None:
        wanted = wanted.where(protections.c.domain == domain)
    wanted = wanted.order_by(statement_table.c.log_index.desc()).limit(APPROVALS_PAGE_MAX_ROWS)
    return [_protection(row) for row in unit.rows(wanted)]


def list_newest_migrations(unit: Unit, *, domain: str | None = None) -> list[MigrationRecord]:
    """The newest migrations, by their log index."""
    found = table_migrations
    wanted = select(found).join(statement_table, statement_table.c.statement_id == found.c.migration_id)
    if domain is not None:
        wanted = wanted.where(found.c.domain == domain)
    wanted = wanted.order_by(statement_table.c.log_index.desc()).limit(APPROVALS_PAGE_MAX_ROWS)
    return [_migration(row) for row in unit.rows(wanted)]


def newest_of(unit: Unit, table_uuid: str) -> str | None:
    """The id of the table's last protection, or None."""
    wanted = select(protections.c.protection_id).join(
        statement_table, statement_table.c.statement_id == protections.c.protection_id
    )
    wanted = wanted.where(protections.c.table_uuid == table_uuid.lower(), protections.c.action == ActionWord.PROTECT)
    row = unit.row(wanted.order_by(statement_table.c.log_index.desc()).limit(1))
    return None if row is None else str(row["protection_id"])


def found_sha256(unit: Unit, table_uuid: str) -> str | None:
    """The hash that binds what `main` showed at the table's last protection. None if it is not known."""
    newest = newest_of(unit, table_uuid)
    found = None if newest is None else find(unit, newest)
    return None if found is None else found.found_sha256


def current_contract(unit: Unit, table_uuid: str) -> str | None:
    """The contract under the newest approval about this UUID, whether or not the table exists."""
    found: list[tuple[int, str | None]] = []
    index = statement_table.c.log_index
    protected_last = (
        select(protections, index)
        .join(statement_table, statement_table.c.statement_id == protections.c.protection_id)
        .where(protections.c.table_uuid == table_uuid.lower())
    )
    for row in unit.rows(protected_last.order_by(index.desc()).limit(1)):
        protected = row["action"] == ActionWord.PROTECT
        found.append((row["log_index"], row["contract_sha256"] if protected else None))
    migrated_last = (
        select(table_migrations, index)
        .join(statement_table, statement_table.c.statement_id == table_migrations.c.migration_id)
        .where(table_migrations.c.table_uuid == table_uuid.lower())
    )
    for row in unit.rows(migrated_last.order_by(index.desc()).limit(1)):
        found.append((row["log_index"], row["contract_sha256"]))
    return max(found, key=lambda each: each[0])[1] if found else None


def approval_ids(unit: Unit, table_uuid: str, namespace_id: str) -> list[str]:
    """The protections and migrations of a table, and the protections of its namespace, oldest first."""
    protection_ids = select(protections.c.protection_id).where(
        or_(protections.c.table_uuid == table_uuid, protections.c.namespace_id == namespace_id)
    )
    migration_ids = select(table_migrations.c.migration_id).where(table_migrations.c.table_uuid == table_uuid)
    own = statement_table.c.statement_id
    wanted = (
        select(own).where(or_(own.in_(protection_ids), own.in_(migration_ids))).order_by(statement_table.c.log_index)
    )
    return [row["statement_id"] for row in unit.rows(wanted.limit(AUDIT_APPROVALS_MAX))]


def _use_nonce(unit: Unit, nonce: str, purpose: NoncePurpose, operator: str) -> None:
    """Reserve and commit the nonce: an approval is used in the transaction that stores it."""
    nonces.reserve(unit, nonce, purpose=purpose, holder=operator)
    nonces.commit(unit, nonce, snapshot_id=None)


def _protection(row: Row) -> ProtectionRecord:
    return record_from(ProtectionRecord, row, action=ActionWord(row["action"]))


def _migration(row: Row) -> MigrationRecord:
    return record_from(MigrationRecord, row)
