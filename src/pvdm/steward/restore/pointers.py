"""Chooses the metadata file that each table shows after a restore: the newest that a publication's receipt binds."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pvdm.catalog.access import require_free
from pvdm.catalog.names import full_name, parse_full_name
from pvdm.errors import Code, InputError, NotAllowedError, PvdmError, VerificationError
from pvdm.lake.files import MetadataFiles, file_name, revision_of
from pvdm.lake.format.json_document import Json
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.format.table.commit_request import apply_updates
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.paths import Pointer, in_file
from pvdm.lake.snapshot_removal import BranchRemoval
from pvdm.lake.stores.stores import Stores
from pvdm.ledger import Unit
from pvdm.ledger.catalog import namespaces, tables
from pvdm.ledger.catalog.namespaces import Namespace
from pvdm.ledger.catalog.tables import NewTable, TableRow
from pvdm.ledger.record import receipts
from pvdm.ledger.work import attempts, chunks
from pvdm.metadata.gate import migration as migration_checks
from pvdm.metadata.gate import receipt_document
from pvdm.model.chunk import BRANCH_PREFIX, is_steward_branch
from pvdm.model.schema import Schema
from pvdm.model.statements.core import ProofCore
from pvdm.model.statements.migration import Migration
from pvdm.model.statements.receipt import Receipt
from pvdm.model.statements.table import TableRef
from pvdm.steward.migrations import parse_updates
from pvdm.steward.notary import Notary
from pvdm.steward.restore import table_report
from pvdm.steward.restore.lineage import (
    ArchivedMigration,
    FilledGaps,
    Lineage,
    LooseProofs,
    LostPublication,
    Publication,
    UnreceiptedProof,
    are_rows_proved,
    count_contained,
    describe_gap,
    describe_lost,
    live_files,
    migrations_by_table,
    protection_changes,
    publications_by_table,
    publications_lost_error,
    trace,
)
from pvdm.steward.restore.refill import ArchivedEntry, Plan, RestoreRequest
from pvdm.verify.fetch import Files

_REFUSALS = (VerificationError, InputError, NotAllowedError)  # data that does not fit; other errors end the restore


@dataclass(frozen=True, slots=True)
class Advance:
    """A table that will show newer metadata; `namespace` is where it is created if the backup lacks the table."""

    table: TableRef
    snapshot_id: int | None
    pointer: Pointer
    location: str
    namespace: Namespace | None
    contract_sha256: str | None


@dataclass(slots=True)
class Pointers:
    """What the restore will do to the catalog's tables, and what it found out about them.

    `shown`: ids of receipts whose snapshots the tables will show.
    `unclear`: ids of receipts in `lost` whose rows a table shows or may show; they must not be published again.
    `unreceipted`: publications that are or may be shown without a receipt.
    `doubted`: shown publications that follow a snapshot without a receipt and without a proof.
    `migrated`: ids of migrations in force again, each with the hash of the metadata that was written for it. The
    hash is None if the metadata of a receipt has the change already.
    `shown_states`: revision, time and hash of the metadata chosen for each table, by UUID.
    `with_newer_files`: UUIDs of tables, perhaps unprotected, with newer metadata files than the one that they show.
    `unreadable`: tables whose metadata file is gone. `unregistered`: metadata folders of unknown tables.
    `published`: all publications whose receipts the backup lacks. `schemas`: the columns that the tables will show.
    """

    advances: list[Advance] = field(default_factory=list)
    lost: list[LostPublication] = field(default_factory=list)
    shown: set[str] = field(default_factory=set)
    unclear: set[str] = field(default_factory=set)
    unreceipted: list[UnreceiptedProof] = field(default_factory=list)
    doubted: list[Publication] = field(default_factory=list)
    migrated: dict[str, str | None] = field(default_factory=dict)
    shown_states: dict[str, table_report.ReachedState] = field(default_factory=dict)
    with_newer_files: set[str] = field(default_factory=set)
    unreadable: list[table_report.UnreadableTable] = field(default_factory=list)
    unregistered: list[table_report.UnregisteredTable] = field(default_factory=list)
    published: list[Publication] = field(default_factory=list)
    schemas: dict[str, Schema] = field(default_factory=dict)


def prepare_pointers(notary: Notary, plan: Plan, request: RestoreRequest) -> Pointers:
    """Judge every receipt and migration that the backup lacks. Changes no row of the ledger.

    Writes metadata files: with migrations applied, and without staging branches of lost attempts. Raises
    `restore_publications_lost` if a publication cannot be shown again, and `restore_tables_unreadable` if a table
    cannot be read, unless the operator accepts that.
    """
    pointers, stores = Pointers(), Stores(notary.config.s3)
    files = MetadataFiles(notary.config.catalog.metadata, stores)
    judge = _TableJudge(notary, files, Files(stores), plan.archived)
    published = publications_by_table(notary.ledger, plan.archived)
    pointers.published = [each for of_table in published.values() for each in of_table]
    migrations = migrations_by_table(plan.archived)
    judged = [
        judge.judge(uuid, published.get(uuid, []), pointers) for uuid in sorted(published.keys() | migrations.keys())
    ]
    if pointers.lost and not request.accept_lost:
        raise publications_lost_error(pointers.lost)
    already_read = {each.uuid for each in judged if each is not None and each.pointer is not None}
    pointers.unreadable = table_report.find_unreadable(notary.ledger, files, already_read=already_read)
    table_report.require_readable(pointers.unreadable, accepted=request.accept_unreadable)
    for each in judged:
        if each is not None:
            judge.advance(each, migrations.get(each.uuid, []), pointers)
    ledger, archived, states = notary.ledger, plan.archived, pointers.shown_states
    pointers.with_newer_files = table_report.find_tables_with_newer_files(ledger, files, archived, states)
    pointers.unregistered = table_report.find_unregistered(ledger, files, archived, published=published.keys())
    return pointers


def apply_pointers(unit: Unit, pointers: Pointers) -> None:
    """Create the tables that the backup lacks, and set the chosen metadata files."""
    for each in pointers.advances:
        tables.lock(unit, [each.table.uuid])
        tables.require_not_scheduled_for_deletion(unit, [each.pointer.name])
        if each.namespace is None:
            row = tables.find_by_uuid(unit, each.table.uuid)
            if row is None:
                raise AssertionError("the table was in the ledger when it was judged, and is gone now")
            tables.swap(unit, row, each.pointer, location=each.location)
            continue
        new = NewTable(
            each.namespace.namespace_id,
            parse_full_name(each.table.name)[-1],
            each.namespace.domain,
            each.table.uuid,
            each.location,
            each.pointer,
            each.contract_sha256,
            may_reuse_uuid=True,
        )
        row = tables.create(unit, new)
        unit.lock_name("places")  # until the transaction ends, no other table can take the folder
        require_free(unit, row.location, for_table=row)


@dataclass(frozen=True, slots=True)
class _NewestPublication:
    """The newest publication whose files are intact, with its metadata."""

    publication: Publication
    metadata: TableMetadata
    pointer: Pointer
    lineage: Lineage
    live: Mapping[str, int | None]  # the data files of `main`, each with the snapshot that added it
    filled: FilledGaps

    def shows(self, older: Publication) -> bool:
        """Whether its metadata shows this publication, which is the same or an older one."""
        snapshot_id = older.receipt.new_snapshot_id
        in_history = snapshot_id in self.lineage.reached or snapshot_id in _main_history(self.metadata)
        return in_history or not older.paths.isdisjoint(self.live)


@dataclass(frozen=True, slots=True)
class _JudgedTable:
    """A table as it may be shown. Without `row` the backup lacks the table, and `namespace` is where it is created."""

    uuid: str
    row: TableRow | None
    namespace: Namespace | None
    metadata: TableMetadata | None
    pointer: Pointer | None
    newest: Publication | None


class _TableJudge:
    """Chooses the metadata of each table of one restore."""

    def __init__(
        self, notary: Notary, metadata: MetadataFiles, files: Files, archived: Sequence[ArchivedEntry]
    ) -> None:
        self._notary = notary
        self._metadata = metadata
        self._files = files
        self._archived = archived
        self._loose = LooseProofs(notary.ledger, archived)

    def judge(self, uuid: str, published: Sequence[Publication], pointers: Pointers) -> _JudgedTable | None:
        """Choose the newest metadata that a receipt binds, and classify the publications. None if no pointer is set."""
        with self._notary.ledger.read() as unit:
            row = tables.find_by_uuid(unit, uuid)
        if row is not None and row.upstream is not None:
            # The upstream has its own pointer, which was not lost.
            pointers.shown |= {each.receipt_id for each in published}
            return None
        namespace = None
        if row is None:
            if not published:
                return None
            try:
                namespace = self._find_namespace(published[-1].receipt.table)
            except _REFUSALS as error:
                pointers.lost += [describe_lost(each, error) for each in published]
                return None
        backup_metadata, pointer = self._read_backup(row)
        newest, refusals = self._find_newest(published, backup_metadata)
        for each in published:
            self._classify(each, newest, backup_metadata, refusals.get(each.receipt_id), pointers)
        if newest is None:
            return _JudgedTable(uuid, row, namespace, backup_metadata, pointer, None)
        pointers.unreceipted += newest.filled.shown
        if newest.filled.open_gaps:
            pointers.lost += [describe_gap(newest.publication, gap) for gap in newest.filled.open_gaps]
            # The reports of gaps name this receipt, but its publication is shown and must not be published again.
            pointers.unclear.add(newest.publication.receipt_id)
            pointers.doubted.append(newest.publication)
        return _JudgedTable(uuid, row, namespace, newest.metadata, newest.pointer, newest.publication)

    def _classify(
        self,
        publication: Publication,
        newest: _NewestPublication | None,
        backup_metadata: TableMetadata | None,
        refusal: PvdmError | None,
        pointers: Pointers,
    ) -> None:
        """Add the publication to those that are shown or lost, and perhaps to the unclear ones."""
        if refusal is None:
            in_backup = self._is_in_backup(publication.receipt, backup_metadata)
            if in_backup or (newest is not None and newest.shows(publication)):
                pointers.shown.add(publication.receipt_id)
                return
            if newest is not None and newest.lineage.is_complete and not newest.lineage.was_unprotected:
                refusal = Code.RESTORE_REFUSED(reason="restore_publication_passed_over")
            else:
                refusal = Code.RESTORE_REFUSED(reason="restore_publication_unclear")
                pointers.unclear.add(publication.receipt_id)
        pointers.lost.append(describe_lost(publication, refusal))

    def _is_in_backup(self, receipt: Receipt, backup_metadata: TableMetadata | None) -> bool:
        """Whether the backup has the publication, though not its receipt."""
        if receipt.new_snapshot_id in _main_history(backup_metadata):
            return True
        with self._notary.ledger.read() as unit:
            return chunks.is_published_at(unit, receipt.table.uuid, str(receipt.new_snapshot_id))

    def advance(self, judged: _JudgedTable, migrations: Sequence[ArchivedMigration], pointers: Pointers) -> None:
        """Add to `pointers` what the table will show: the chosen metadata, with the signed migrations applied to it."""
        chosen, chosen_pointer, newest = judged.metadata, judged.pointer, judged.newest
        if chosen is None or chosen_pointer is None:
            return
        metadata, pointer = chosen, chosen_pointer
        if newest is not None:
            metadata, pointer = self._remove_lost_branches(judged, metadata, pointer)
        metadata, pointer = self._apply_migrations(judged, metadata, pointer, migrations, pointers)
        applied = sum(pointers.migrated.get(entry.statement_id()) is not None for entry, _ in migrations)
        # The revision that the table had before the loss: that of the chosen file, and one more for each migration.
        revision = None if newest is None else revision_of(file_name(newest.receipt.metadata_path))
        if revision is None:
            revision = 0 if judged.row is None else judged.row.revision
        state = table_report.ReachedState(revision + applied, chosen.last_updated_ms, chosen_pointer.sha256)
        pointers.shown_states[judged.uuid] = state
        pointers.schemas[judged.uuid] = to_model(metadata.current_schema)
        if judged.row is not None and judged.row.pointer == pointer:
            return
        table = migrations[-1][1].table if newest is None else newest.receipt.table
        cores = [] if newest is None else [core for core in newest.cores.values() if core is not None]
        contract = cores[0].attempt.contract_sha256 if cores else None  # later approvals may change it
        snapshot_id, location = metadata.current_snapshot_id, metadata.location
        pointers.advances.append(Advance(table, snapshot_id, pointer, location, judged.namespace, contract))

    def _read_backup(self, row: TableRow | None) -> tuple[TableMetadata | None, Pointer | None]:
        """The metadata that the backup names, and its pointer; None for both if the file is gone or changed."""
        if row is None:
            return None, None
        try:
            data = self._metadata.read(row.pointer)
        except VerificationError:
            return None, None
        return TableMetadata.parse(data), row.pointer

    def _find_namespace(self, table: TableRef) -> Namespace:
        """The namespace of a table that the backup lacks; the table's name must be free in it."""
        *levels, name = parse_full_name(table.name)
        with self._notary.ledger.read() as unit:
            namespace = namespaces.find(unit, tuple(levels))
            if namespace is None:
                raise Code.NAMESPACE_UNKNOWN(
                    f"the namespace {full_name(tuple(levels))} was made after the backup; make it again after the"
                    " restore, then register the metadata file as an operator, or make the table again and publish"
                )
            same_name = tables.find(unit, namespace.namespace_id, name)
            if same_name is not None or tables.list_ids(unit, table.uuid):
                raise Code.RESTORE_TABLE_TAKEN(
                    f"the backup has another table {table.name}, or one of the same UUID that was dropped"
                )
        return namespace

    def _find_newest(
        self, published: Sequence[Publication], backup_metadata: TableMetadata | None
    ) -> tuple[_NewestPublication | None, dict[str, PvdmError]]:
        """The newest publication whose metadata, proofs and files are intact, and the errors of newer ones."""
        refusals: dict[str, PvdmError] = {}
        for end in range(len(published), 0, -1):
            last = published[end - 1]
            if backup_metadata is not None and self._is_in_backup(last.receipt, backup_metadata):
                return None, refusals
            try:
                return self._verify_publications(published[:end], backup_metadata), refusals
            except _REFUSALS as error:
                refusals[last.receipt_id] = error
        return None, refusals

    def _verify_publications(
        self, published: Sequence[Publication], backup_metadata: TableMetadata | None
    ) -> _NewestPublication:
        """Verify all files that these publications added to the table after the backup, and return the last one."""
        newest = published[-1]
        receipt = newest.receipt
        stored = Pointer(receipt.metadata_path, receipt.metadata_sha256)
        with in_file(stored.location):
            metadata = receipt_document.parse_receipted_metadata(receipt, self._metadata.read(stored))
        lineage = self._trace(published, metadata, backup_metadata)
        if lineage.is_complete and not lineage.was_unprotected:
            published = [each for each in published if each.receipt.new_snapshot_id in lineage.reached]
        for each in published:
            receipt_document.require_proved(each.receipt, each.cores)
        cores = [core for each in published for core in each.cores.values() if core is not None]
        cores += self._loose.find(receipt.table.uuid).values()
        added = {file.published_path: file for core in cores for file in core.files.added}
        live = receipt_document.require_published_bytes(receipt, metadata, list(added.values()), self._files)
        with self._notary.ledger.read() as unit:
            require_free(unit, metadata.location, for_table=tables.find_by_uuid(unit, receipt.table.uuid))
        filled = self._fill_gaps(newest, metadata, lineage, live, cores, backup_metadata)
        return _NewestPublication(newest, metadata, stored, lineage, live, filled)

    def _fill_gaps(
        self,
        newest: Publication,
        metadata: TableMetadata,
        lineage: Lineage,
        live: Mapping[str, int | None],
        cores: Sequence[ProofCore],
        backup_metadata: TableMetadata | None,
    ) -> FilledGaps:
        """Find proofs for the snapshots between the backup and this publication that have no receipt."""
        if not lineage.gaps:
            return FilledGaps()
        filled = self._loose.fill(newest, metadata, lineage, live)
        proved = [*cores, *(shown.core for shown in filled.shown)]
        in_backup = None  # unknown, if the backup's manifests cannot be read
        with contextlib.suppress(*_REFUSALS):
            in_backup = None if backup_metadata is None else live_files(backup_metadata, self._files)
        changes = protection_changes(self._archived, newest.receipt.table.uuid)
        if are_rows_proved(live, proved, in_backup, changes):
            return filled
        return replace(filled, open_gaps=filled.open_gaps or lineage.gaps[-1:])  # at least the oldest gap is open

    def _trace(
        self, published: Sequence[Publication], metadata: TableMetadata, backup_metadata: TableMetadata | None
    ) -> Lineage:
        uuid, history = published[-1].receipt.table.uuid, _main_history(backup_metadata)

        def is_in_backup(snapshot_id: int) -> bool:
            if snapshot_id in history:
                return True
            with self._notary.ledger.read() as unit:
                is_published = chunks.is_published_at(unit, uuid, str(snapshot_id))
                return is_published or receipts.find_by_snapshot(unit, uuid, str(snapshot_id)) is not None

        return trace(published, metadata, protection_changes(self._archived, uuid), is_in_backup)

    def _remove_lost_branches(
        self, judged: _JudgedTable, metadata: TableMetadata, pointer: Pointer
    ) -> tuple[TableMetadata, Pointer]:
        """The metadata without the staging branches of attempts that the ledger has lost.

        No clean-up would remove such a branch, and a branch with missing files would stop a search for orphans.
        """
        with self._notary.ledger.read() as unit:
            lost = [
                name
                for name in metadata.refs
                if is_steward_branch(name) and attempts.find(unit, name.removeprefix(BRANCH_PREFIX)) is None
            ]
        updates = BranchRemoval.plan(metadata, lost).updates()
        if not updates:
            return metadata, pointer
        return self._write(judged, self._update(metadata, pointer, updates))

    def _update(self, before: TableMetadata, pointer: Pointer, updates: Sequence[Json]) -> TableMetadata:
        now_ms = max(self._notary.clock.now_micros() // 1_000, before.last_updated_ms)
        return apply_updates(before, updates, now_ms=now_ms, previous_location=pointer.location)

    def _write(self, judged: _JudgedTable, metadata: TableMetadata) -> tuple[TableMetadata, Pointer]:
        revision = 0 if judged.row is None else judged.row.revision + 1
        return metadata, self._metadata.write(judged.uuid, revision, metadata.to_bytes())

    def _apply_migrations(
        self,
        judged: _JudgedTable,
        metadata: TableMetadata,
        pointer: Pointer,
        migrations: Sequence[ArchivedMigration],
        pointers: Pointers,
    ) -> tuple[TableMetadata, Pointer]:
        """Apply the migrations that the metadata lacks, up to the first one that does not fit."""
        contained = count_contained(metadata, judged.newest, migrations)
        pointers.migrated |= {entry.statement_id(): None for entry, _ in migrations[:contained]}
        for entry, migration in migrations[contained:]:
            try:
                after = self._migrate(migration, metadata, pointer)
            except _REFUSALS:
                break
            metadata, pointer = self._write(judged, after)
            pointers.migrated[entry.statement_id()] = pointer.sha256
        return metadata, pointer

    def _migrate(self, migration: Migration, before: TableMetadata, pointer: Pointer) -> TableMetadata:
        """The metadata after the migration. Raises unless the states before and after it are the signed ones."""
        migration_checks.require_state(migration.before, before, migration.before.contract_sha256)
        after = self._update(before, pointer, parse_updates(migration.updates))
        migration_checks.require_same_table(before, after)
        migration_checks.require_same_data(before, after)
        migration_checks.require_same_defaults(before, after)
        migration_checks.require_result(migration.after, after)
        return after


def _main_history(metadata: TableMetadata | None) -> set[int]:
    if metadata is None or metadata.current_snapshot_id is None:
        return set()
    return {each.snapshot_id for each in metadata.ancestry(metadata.current_snapshot_id)}
