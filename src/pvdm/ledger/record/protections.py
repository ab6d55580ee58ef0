"""Operators' approvals (protections and migrations of tables), contracts by their hash, and what is protected now."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, Table, and_, or_, select

from pvdm.errors import Code
from pvdm.ledger import ids
from pvdm.ledger.catalog.namespaces import Levels, levels_key, levels_of_key
from pvdm.ledger.connection import Row, record_if_found
from pvdm.ledger.record import statements
from pvdm.ledger.schema.catalog import namespaces, tables
from pvdm.ledger.schema.record import contracts, protections, table_migrations
from pvdm.ledger.schema.record import statements as statement_table
from pvdm.ledger.schema.work import NoncePurpose
from pvdm.ledger.unit import Unit, select_page, where_given
from pvdm.ledger.work import nonces
from pvdm.model.statements.kind import StatementKind
from pvdm.model.statements.migration import ProtectionAction

APPROVALS_PAGE_MAX_ROWS: Final = 1_000
AUDIT_APPROVALS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class ProtectionRecord:
    """The facts of a protection that have columns of their own. The rest is in the envelope.

    A table's protection has a `table_uuid`, a namespace's a `namespace_id`. `found_sha256` is the hash of the manifest
    list and manifests of `main` at the protection; None if `main` was empty, or if a restore brought the row back.
    """

    protection_id: str
    action: ProtectionAction
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
    """The facts of a migration that have columns of their own. The rest is in the envelope.

    `contract_sha256` is the contract afterwards, `metadata_sha256` the table's metadata file afterwards (None if a
    restore brought the migration back).
    """

    migration_id: str
    table_uuid: str
    name: str
    domain: str
    contract_sha256: str
    metadata_sha256: str | None
    operator: str
    nonce: str


def put(
    unit: Unit, record: ProtectionRecord | MigrationRecord, contract: str | None, envelope: bytes, *, log_index: int
) -> None:
    """Store an approval, its contract (if any) and envelope, and use up its nonce. Raises `nonce_taken`."""
    kind = StatementKind.PROTECTION if isinstance(record, ProtectionRecord) else StatementKind.MIGRATION
    statements.put(unit, kind, _statement_id(record), envelope, log_index=log_index)
    insert(unit, record, contract)


def insert(unit: Unit, record: ProtectionRecord | MigrationRecord, contract: str | None) -> None:
    """Add the row of an approval whose envelope is stored, add its contract if any, and use up its nonce."""
    if isinstance(record, ProtectionRecord):
        table, purpose = protections, NoncePurpose.PROTECTION
        if record.found_sha256 is not None:
            ids.require_sha256(record.found_sha256, "hash of main's manifests")
    else:
        table, purpose = table_migrations, NoncePurpose.MIGRATION
    nonces.reserve(unit, record.nonce, purpose=purpose, holder=record.operator)
    nonces.commit(unit, record.nonce, snapshot_id=None)
    ids.require_name(record.domain, "domain")
    ids.require_name(record.operator, "operator")
    unit.insert(table, **asdict(record))
    if contract is not None:
        body = contract.encode()
        sha256 = hashlib.sha256(body).hexdigest()
        unit.insert_new(contracts, contract_sha256=sha256, body=body, statement_id=_statement_id(record))


def _statement_id(record: ProtectionRecord | MigrationRecord) -> str:
    return record.protection_id if isinstance(record, ProtectionRecord) else record.migration_id


def get_contract(unit: Unit, sha256: str) -> bytes:
    """A contract's bytes. Raises `contract_unknown`."""
    return bytes(unit.get(contracts, "contract_unknown", contract_sha256=sha256)["body"])


def has_contract(unit: Unit, sha256: str) -> bool:
    """Whether the ledger holds the contract."""
    return unit.find(contracts, contract_sha256=sha256) is not None


def list_contract_domains(unit: Unit, sha256: str) -> set[str]:
    """The domains whose tables or namespaces were ever under the contract."""
    return {
        str(row["domain"])
        for table in (protections, table_migrations)
        for row in unit.rows(select(table.c.domain).where(table.c.contract_sha256 == sha256).distinct())
    }


def find(unit: Unit, protection_id: str) -> ProtectionRecord | None:
    """The protection, or None."""
    return record_if_found(ProtectionRecord, unit.find(protections, protection_id=protection_id))


def find_migration(unit: Unit, migration_id: str) -> MigrationRecord | None:
    """The migration, or None."""
    return record_if_found(MigrationRecord, unit.find(table_migrations, migration_id=migration_id))


def list_newest(unit: Unit, *, domain: str | None = None) -> list[ProtectionRecord]:
    """The newest protections, the latest in the log first; of one domain, or of all. At most a page."""
    return unit.records(ProtectionRecord, _select_newest(protections, protections.c.protection_id, domain))


def list_newest_migrations(unit: Unit, *, domain: str | None = None) -> list[MigrationRecord]:
    """The newest migrations, the latest in the log first; of one domain, or of all."""
    return unit.records(MigrationRecord, _select_newest(table_migrations, table_migrations.c.migration_id, domain))


def _select_newest(table: Table, key: ColumnElement[str], domain: str | None) -> Select[Any]:
    wanted = select(table).join(statement_table, statement_table.c.statement_id == key)
    wanted = where_given(wanted, (table.c.domain, domain))
    return wanted.order_by(statement_table.c.log_index.desc()).limit(APPROVALS_PAGE_MAX_ROWS)


def find_newest_id(unit: Unit, table_uuid: str) -> str | None:
    """The id of the table's last approval that protected it, or None. That protection may have ended."""
    same_statement = statement_table.c.statement_id == protections.c.protection_id
    wanted = select(protections.c.protection_id).join(statement_table, same_statement)
    wanted = wanted.where(protections.c.table_uuid == table_uuid.lower())
    wanted = wanted.where(protections.c.action == ProtectionAction.PROTECT)
    row = unit.row(wanted.order_by(statement_table.c.log_index.desc()).limit(1))
    return None if row is None else str(row["protection_id"])


def found_sha256(unit: Unit, table_uuid: str) -> str | None:
    """The hash of the manifests that `main` had at the table's last protection (`ProtectionRecord`), or None."""
    newest = find_newest_id(unit, table_uuid)
    found = None if newest is None else find(unit, newest)
    return None if found is None else found.found_sha256


def find_current_contract(unit: Unit, table_uuid: str) -> str | None:
    """The contract hash of the newest protection or migration of this UUID, even if the table does not exist.

    None if the newest one ends the protection, or if there is none.
    """
    contract_by_index: dict[int, str | None] = {}
    index = statement_table.c.log_index
    for table, key in ((protections, protections.c.protection_id), (table_migrations, table_migrations.c.migration_id)):
        wanted = select(table, index).join(statement_table, statement_table.c.statement_id == key)
        wanted = wanted.where(table.c.table_uuid == table_uuid.lower()).order_by(index.desc()).limit(1)
        for row in unit.rows(wanted):
            ended = table is protections and row["action"] != ProtectionAction.PROTECT
            contract_by_index[row["log_index"]] = None if ended else row["contract_sha256"]
    return contract_by_index[max(contract_by_index)] if contract_by_index else None


def list_approval_ids(unit: Unit, table_uuid: str, namespace_id: str) -> list[str]:
    """The ids of a table's protections and migrations, and of its namespace's protections, oldest first.

    Raises `audit_too_large` if there are more than an audit accepts: with only a part it would report false violations.
    """
    protection_ids = select(protections.c.protection_id).where(
        or_(protections.c.table_uuid == table_uuid, protections.c.namespace_id == namespace_id)
    )
    migration_ids = select(table_migrations.c.migration_id).where(table_migrations.c.table_uuid == table_uuid)
    statement_id = statement_table.c.statement_id
    wanted = select(statement_id).where(or_(statement_id.in_(protection_ids), statement_id.in_(migration_ids)))
    rows = unit.rows(wanted.order_by(statement_table.c.log_index).limit(AUDIT_APPROVALS_MAX + 1))
    if len(rows) > AUDIT_APPROVALS_MAX:
        message = "the table and its namespace have more protections and migrations than an audit accepts"
        most = f"at most {AUDIT_APPROVALS_MAX:,}"
        raise Code.AUDIT_FAILED(message, reason="audit_too_large", expected=most, got="more")
    return [row["statement_id"] for row in rows]


@dataclass(frozen=True, slots=True)
class ProtectedObject:
    """A protected table or namespace (then `name` is None). `id` is a table's UUID or a namespace's own id.

    `protection_id` is None if the table or namespace was created in a protected namespace.
    """

    levels: Levels
    name: str | None
    id: str
    contract_sha256: str
    since_micros: int
    protection_id: str | None


def list_protected_tables(
    unit: Unit,
    *,
    domain: str | None = None,
    levels: Levels | None = None,
    name: str | None = None,
    after: tuple[Levels, str] | None = None,
    count: int,
) -> list[ProtectedObject]:
    """The live protected tables, by namespace and name; only those of `levels` or `name`, if they are given."""
    wanted = (
        select(tables, namespaces.c.levels)
        .join(namespaces, namespaces.c.namespace_id == tables.c.namespace_id)
        .where(tables.c.contract_hash.is_not(None), tables.c.dropped_micros.is_(None))
    )
    of_levels = None if levels is None else levels_key(levels)
    wanted = where_given(wanted, (tables.c.domain, domain), (namespaces.c.levels, of_levels), (tables.c.name, name))
    if after is not None:
        last = levels_key(after[0])
        later_in_same = and_(namespaces.c.levels == last, tables.c.name > after[1])
        wanted = wanted.where(or_(namespaces.c.levels > last, later_in_same))
    rows = unit.rows(wanted.order_by(namespaces.c.levels, tables.c.name).limit(count))
    newest = _newest_protections(unit, protections.c.table_uuid, [row["table_uuid"] for row in rows])
    return [
        _protected_object(row, row["name"], row["table_uuid"], row["contract_hash"], newest.get(row["table_uuid"]))
        for row in rows
    ]


def list_protected_namespaces(
    unit: Unit, *, domain: str | None = None, levels: Levels | None = None, after: Levels | None = None, count: int
) -> list[ProtectedObject]:
    """The live protected namespaces, ordered by `levels_key`; only the namespace `levels`, if it is given."""
    wanted = select(namespaces).where(namespaces.c.protected_by.is_not(None), namespaces.c.dropped_micros.is_(None))
    of_levels = None if levels is None else levels_key(levels)
    wanted = where_given(wanted, (namespaces.c.domain, domain), (namespaces.c.levels, of_levels))
    last = None if after is None else levels_key(after)
    rows = unit.rows(select_page(wanted, namespaces.c.levels, last, count))
    newest = _newest_protections(unit, protections.c.namespace_id, [row["namespace_id"] for row in rows])
    return [
        _protected_object(row, None, row["namespace_id"], row["protected_by"], newest.get(row["namespace_id"]))
        for row in rows
    ]


def _newest_protections(unit: Unit, column: ColumnElement[str], object_ids: Sequence[str]) -> dict[str, Row]:
    """The newest protection of each table or namespace, by its id, if that protection is in force."""
    query = (
        select(protections, column.label("object_id"), statement_table.c.at_micros.label("logged_micros"))
        .join(statement_table, statement_table.c.statement_id == protections.c.protection_id)
        .where(column.in_(object_ids))
        .order_by(statement_table.c.log_index)
    )
    newest = {row["object_id"]: row for row in unit.rows(query)}  # a later row replaces an earlier one
    return {object_id: row for object_id, row in newest.items() if row["action"] == ProtectionAction.PROTECT}


def _protected_object(
    row: Row, name: str | None, object_id: str, contract: str, protection: Row | None
) -> ProtectedObject:
    # The time when the statement was logged, not when the protection's row was written: a restore writes rows again.
    since = row["protected_micros"] if protection is None else protection["logged_micros"]
    protection_id = None if protection is None else protection["protection_id"]
    return ProtectedObject(levels_of_key(row["levels"]), name, object_id, contract, since, protection_id)
