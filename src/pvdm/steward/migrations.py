"""Applies signed migrations: the approved updates change the table's metadata and enter the log in one transaction."""

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
from pvdm.steward.protections import Approvals, JudgedApproval, find_table, refuse_replay, require_current
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
        """Apply a migration; a repetition changes nothing."""
        applied = Applied.BEFORE

        def accept(judged: JudgedApproval[Migration]) -> None:
            nonlocal applied
            self._apply(judged, grant)
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
        """One migration of the caller's domain."""
        with self._ledger.read() as unit:
            found = protections.find_migration(unit, migration_id)
            if found is None:
                raise Code.RECORD_UNKNOWN(reason="migration_unknown", got=migration_id[:80])
            require_domain(grant, found.domain)
            return _view(found, statements.get(unit, migration_id))

    def listed(self, grant: Grant) -> list[MigrationView]:
        """Every migration of the caller's domain, newest first."""
        with self._ledger.read() as unit:
            found = protections.list_newest_migrations(unit, domain=visible_domain(grant))
            return [_view(each, statements.get(unit, each.migration_id)) for each in found]

    def table(self, levels: Levels, name: str, grant: Grant) -> TargetView:
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

    def namespace(self, levels: Levels, grant: Grant) -> TargetView:
        """The namespace as it is now."""
        found = self._catalog.namespaces.get(grant, levels)
        return TargetView(
            kind="namespace",
            catalog=self._catalog.name,
            id=found.namespace_id,
            name=full_name(found.levels),
            contract_sha256=found.protected_by,
            metadata=None,
        )

    def _apply(self, judged: JudgedApproval[Migration], grant: Grant) -> None:
        catalog, migration = self._catalog, judged.predicate
        with self._ledger.read() as unit:
            row, levels = find_table(unit, migration.table, grant, catalog.name)
        contract = self._judge_contract(judged, row, levels, grant)
        require_fit = None if contract is None else self._approvals.sources.judge(contract, row.table_uuid)
        change = Change(levels, row.name, (), parse_updates(migration.updates))

        def permit(before: CatalogState, after: TableMetadata, data: bytes) -> Permit:
            require_protectable(after)
            if contract is not None and require_fit is not None:
                require_target_fit(contract, after, self._approvals.extracts)
                require_fit(to_model(after.current_schema))
            return permit_migration(judged.approval, before.row, before.metadata, after, data)

        def transact(swap: Callable[[Unit], list[TableRow]]) -> list[TableRow]:
            """Write log entry, migration, contract and pointer in one transaction, before the outside checkpoint."""
            document = Document(StatementKind.MIGRATION, judged.approval.statement_id, judged.envelope)
            rows: list[TableRow] = []

            def work(unit: Unit, log_indexes: Sequence[int]) -> None:
                require_current(unit, judged)
                rows[:] = [_store(unit, judged, row, log_indexes[0]) for row in swap(unit)]

            self._recorder.store([document], work)
            return rows

        with refuse_replay(judged):
            catalog.commits.commit(grant, [change], permit=permit, transact=transact)

    def _judge_contract(
        self, judged: JudgedApproval[Migration], row: TableRow, levels: Levels, grant: Grant
    ) -> DataProductContract | None:
        """The contract that the table will be under; None if neither the contract nor the columns change."""
        migration = judged.predicate
        if migration.contract is not None:
            return self._approvals.judge_table_contract(migration.contract, row, levels, grant)
        if row.contract_hash is None or migration.before.schema_fingerprint == migration.after.schema_fingerprint:
            return None
        with self._ledger.read() as unit:
            return contract_of(unit, row.contract_hash)


def _store(unit: Unit, judged: JudgedApproval[Migration], row: TableRow, log_index: int) -> TableRow:
    migration = judged.predicate
    record = migration_record(judged.approval.statement_id, migration, row.domain, row.pointer.sha256)
    protections.put(unit, record, migration.contract, judged.envelope, log_index=log_index)
    return row if migration.contract is None else tables.protect(unit, row, migration.after.contract_sha256)


def migration_record(
    migration_id: str, migration: Migration, domain: str, metadata_sha256: str | None
) -> MigrationRecord:
    """What the ledger indexes of a migration; `metadata_sha256` is the hash of the metadata after it."""
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


def _view(record: MigrationRecord, statement: Statement) -> MigrationView:
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
