"""Applies signed migrations: one transaction changes a protected table as approved, and logs the migration."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pvdm.api.protection import Applied, MigrationView, SubmittedMigration, TargetView
from pvdm.catalog.commit import Change
from pvdm.catalog.names import full_name
from pvdm.catalog.state import TableState as CatalogState
from pvdm.errors import Code
from pvdm.lake.format.json_document import Json, Node, parse_json
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.protectable import require_protectable
from pvdm.ledger import Unit
from pvdm.ledger.catalog import tables
from pvdm.ledger.catalog.namespaces import Levels
from pvdm.ledger.catalog.tables import TableRow
from pvdm.ledger.record import protections, statements
from pvdm.ledger.record.protections import MigrationRecord
from pvdm.ledger.record.statements import Statement
from pvdm.ledger.record.tokens import Grant, require_domain
from pvdm.metadata.gate.migration import permit_migration
from pvdm.metadata.gate.target import Permit
from pvdm.model.contract import DataProductContract
from pvdm.model.statements.kind import StatementKind
from pvdm.model.statements.migration import MIGRATION_UPDATES_MAX_BYTES, Migration
from pvdm.steward.access import visible_domain
from pvdm.steward.protections import (
    Approvals,
    VerifiedApproval,
    find_table,
    refuse_replay,
    require_current,
    require_readable_contract,
)
from pvdm.steward.record.recorder import Document
from pvdm.steward.work.contracts import require_target_fit
from pvdm.steward.work.opened import contract_of
from pvdm.trust.statement import read_unchecked


class Migrations:
    """Applies and lists migrations, and shows tables and namespaces to operators who prepare an approval."""

    def __init__(self, approvals: Approvals) -> None:
        self._approvals = approvals
        self._ledger = approvals.ledger
        self._recorder = approvals.recorder
        self._catalog = approvals.catalog

    def submit(self, envelope: bytes, grant: Grant) -> SubmittedMigration:
        """Verify a signed migration and apply it; a repeated call with the same bytes changes nothing."""
        applied = Applied.BEFORE

        def accept(approval: VerifiedApproval[Migration]) -> None:
            nonlocal applied
            self._apply(approval, grant)
            applied = Applied.NOW

        migration_id = self._approvals.accept_once(envelope, Migration, accept)
        migration = self.get(migration_id, grant)
        with self._ledger.read() as unit:
            at_micros = statements.get(unit, migration_id).at_micros
            row = tables.find_by_uuid(unit, migration.table_uuid)
        self._recorder.cover()
        return SubmittedMigration(
            migration=migration,
            applied=applied,
            applied_at=at_micros,
            contract_sha256=None if row is None else row.contract_hash,
        )

    def get(self, migration_id: str, grant: Grant) -> MigrationView:
        """One migration of the caller's domain. Raises if it is unknown or of another domain."""
        with self._ledger.read() as unit:
            found = protections.find_migration(unit, migration_id)
            if found is None:
                raise Code.RECORD_UNKNOWN(reason="migration_unknown", got=migration_id[:80])
            require_domain(grant, found.domain)
            return _make_view(found, statements.get(unit, migration_id))

    def list_migrations(self, grant: Grant) -> list[MigrationView]:
        """The latest migrations of the caller's domain, newest first."""
        with self._ledger.read() as unit:
            found = protections.list_newest_migrations(unit, domain=visible_domain(grant))
            return [_make_view(each, statements.get(unit, each.migration_id)) for each in found]

    def show_table(self, levels: Levels, name: str, grant: Grant) -> TargetView:
        """The table as it is now, for an operator who prepares an approval."""
        found = self._catalog.tables.load(grant, levels, name)
        return TargetView(
            kind="table",
            catalog=self._catalog.name,
            id=found.row.table_uuid,
            name=full_name((*levels, name)),
            contract_sha256=found.row.contract_hash,
            metadata=found.metadata.to_bytes().decode(),
        )

    def show_namespace(self, levels: Levels, grant: Grant) -> TargetView:
        """The namespace as it is now, for an operator who prepares an approval."""
        found = self._catalog.namespaces.get(grant, levels)
        return TargetView(
            kind="namespace",
            catalog=self._catalog.name,
            id=found.namespace_id,
            name=full_name(found.levels),
            contract_sha256=found.protected_by,
            metadata=None,
        )

    def _apply(self, approval: VerifiedApproval[Migration], grant: Grant) -> None:
        catalog, migration = self._catalog, approval.predicate
        require_readable_contract(migration)
        with self._ledger.read() as unit:
            row, levels = find_table(unit, migration.table, grant, catalog.name)
        contract = self._contract_to_check(approval, row, levels, grant)
        sources = self._approvals.sources
        require_source_fit = None if contract is None else sources.start_source_check(contract, row.table_uuid)
        change = Change(levels, row.name, (), parse_updates(migration.updates))

        def permit(before: CatalogState, after: TableMetadata, data: bytes) -> Permit:
            require_protectable(after)
            if contract is not None and require_source_fit is not None:
                require_target_fit(contract, after, self._approvals.spark_extraction)
                require_source_fit(to_model(after.current_schema))
            return permit_migration(approval.statement, before.row, before.metadata, after, data)

        def transact(swap_pointers: Callable[[Unit], list[TableRow]]) -> list[TableRow]:
            """Store log entry, migration, contract and pointer together. `submit` updates archive and checkpoint."""
            document = Document(StatementKind.MIGRATION, approval.statement.statement_id, approval.envelope)
            migrated: list[TableRow] = []

            def work(unit: Unit, log_indexes: Sequence[int]) -> None:
                require_current(unit, approval)
                # The rows of an earlier call are replaced, since `store` may call this function several times.
                migrated[:] = [_store(unit, approval, each, log_indexes[0]) for each in swap_pointers(unit)]

            self._recorder.store([document], work)
            return migrated

        with refuse_replay(approval):
            catalog.commits.commit(grant, [change], make_permit=permit, transact=transact)

    def _contract_to_check(
        self, approval: VerifiedApproval[Migration], row: TableRow, levels: Levels, grant: Grant
    ) -> DataProductContract | None:
        """The contract that the migrated table must fit; None if contract, schema and partition spec stay."""
        migration = approval.predicate
        if migration.contract is not None:
            return self._approvals.check_table_contract(migration.contract, row, levels, grant)
        if row.contract_hash is None or migration.before.columns_and_spec == migration.after.columns_and_spec:
            return None  # `permit_migration` refuses a table that has no contract
        with self._ledger.read() as unit:
            return contract_of(unit, row.contract_hash)


def _store(unit: Unit, approval: VerifiedApproval[Migration], row: TableRow, log_index: int) -> TableRow:
    """Store the migration, and its contract if it has one; returns the table's row afterwards."""
    migration = approval.predicate
    record = migration_record(approval.statement.statement_id, migration, row.domain, row.pointer.sha256)
    protections.put(unit, record, migration.contract, approval.envelope, log_index=log_index)
    return row if migration.contract is None else tables.protect(unit, row, migration.after.contract_sha256)


def migration_record(
    migration_id: str, migration: Migration, domain: str, metadata_sha256: str | None
) -> MigrationRecord:
    """The ledger's row for a migration; `metadata_sha256` is the hash of the table's metadata after the migration."""
    return MigrationRecord(
        migration_id=migration_id,
        table_uuid=migration.table.uuid,
        name=migration.table.name,
        domain=domain,
        contract_sha256=migration.after.contract_sha256,
        metadata_sha256=metadata_sha256,
        operator=migration.operator,
        nonce=migration.nonce,
    )


def parse_updates(text: str) -> list[Json]:
    """Parse the updates of a migration: a JSON array of Iceberg table updates."""
    value = parse_json(text.encode(), size_max_bytes=MIGRATION_UPDATES_MAX_BYTES)
    return list(Node({"updates": value}, "$").array("updates"))


def _make_view(record: MigrationRecord, statement: Statement) -> MigrationView:
    migration = read_unchecked(statement.envelope, Migration)
    return MigrationView(
        migration_id=record.migration_id,
        table=migration.table.name,
        table_uuid=migration.table.uuid,
        operator=migration.operator,
        reason=migration.reason,
        before=migration.before,
        after=migration.after,
        updates=migration.updates,
        metadata_sha256=record.metadata_sha256,
        issued_at=migration.issued_at,
        expires_at=migration.expires_at,
        log_index=statement.log_index,
    )
