"""Chooses the metadata file that each table shows after a restore: the newest one that a receipt binds."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pvdm.catalog.access import require_free
from pvdm.catalog.names import full_name, parse_full_name
from pvdm.errors import Code, InputError, NotAllowedError, PvdmError, VerificationError
from pvdm.lake.files import MetadataFiles, StoredFile, file_name, revision_of
from pvdm.lake.format.json_document import Json
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.format.table.commit_request import apply_updates
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.paths import in_file
from pvdm.lake.snapshot_removal import BranchRemoval
from pvdm.lake.stores.stores import Stores
from pvdm.ledger import Unit
from pvdm.ledger.catalog import namespaces, tables
from pvdm.ledger.catalog.namespaces import Namespace
from pvdm.ledger.catalog.tables import NewTable, Pointer, TableRow
from pvdm.ledger.record import receipts
from pvdm.ledger.work import attempts, chunks
from pvdm.metadata.gate import receipt_document
from pvdm.metadata.gate.migration import (
    require_result,
    require_same_data,
    require_same_defaults,
    require_same_table,
    require_state,
)
from pvdm.model.chunk import BRANCH_PREFIX, is_stewards
from pvdm.model.schema import Schema
from pvdm.model.statements.core import ProofCore
from pvdm.model.statements.migration import Migration
from pvdm.model.statements.receipt import Receipt
from pvdm.model.statements.table import TableRef
from pvdm.steward.migrations import parse_updates
from pvdm.steward.notary import Notary
from pvdm.steward.restore.lineage import (
    FilledGaps,
    Lineage,
    LooseProofs,
    LostPublication,
    Publication,
    UnprotectedTimes,
    Unreceipted,
    count_contained,
    describe_gap,
    describe_lost,
    live_files,
    migrations_by_table,
    publications_by_table,
    publications_lost_error,
    require_rows_proved,
    trace,
    unprotected_times,
)
from pvdm.steward.restore.refill import ArchivedEntry, Order, Plan
from pvdm.steward.restore.table_report import (
    ReachedState,
    UnreadableTable,
    UnregisteredTable,
    find_ahead,
    find_unreadable,
    find_unregistered,
    require_readable,
)
from pvdm.verify.fetch import Files

_REFUSALS = (VerificationError, InputError, NotAllowedError)


@dataclass(frozen=True, slots=True)
class Advance:
    """A table that will show newer metadata; `created` is its namespace where the backup lacks the table."""

    table: TableRef
    snapshot_id: int | None
    pointer: Pointer
    location: str
    created: Namespace | None
    contract_sha256: str | None


@dataclass(slots=True)
class Pointers:
    """What the restore does to the catalog.

    `shown`: ids of receipts whose snapshots the tables show afterwards.
    `unclear`: ids of lost receipts whose rows a table may show; they must not be published again.
    `unreceipted`: publications that are or may be shown without a receipt.
    `doubted`: shown publications that build on an unknown one.
    `migrated`: migrations in force again, with the hash of the written metadata; None where a receipt's has the change.
    `reached`: the state of each judged table, by UUID.
    `ahead`: UUIDs of tables that may be unprotected and have newer metadata files than is shown.
    `unreadable`: tables whose metadata file is gone. `unregistered`: metadata folders of unknown tables.
    `schemas`: the columns of the tables as they are shown.
    """

    advances: list[Advance] = field(default_factory=list)
    lost: list[LostPublication] = field(default_factory=list)
    shown: set[str] = field(default_factory=set)
    unclear: set[str] = field(default_factory=set)
    unreceipted: list[Unreceipted] = field(default_factory=list)
    doubted: list[Publication] = field(default_factory=list)
    migrated: dict[str, str | None] = field(default_factory=dict)
    reached: dict[str, ReachedState] = field(default_factory=dict)
    ahead: set[str] = field(default_factory=set)
    unreadable: list[UnreadableTable] = field(default_factory=list)
    unregistered: list[UnregisteredTable] = field(default_factory=list)
    published: list[Publication] = field(default_factory=list)
    schemas: dict[str, Schema] = field(default_factory=dict)


def find_pointers(notary: Notary, plan: Plan, order: Order) -> Pointers:
    """Judge every receipt and migration that the backup lacks; only metadata files of migrations are written.

    Raises `restore_publications_lost` where a publication cannot be shown again, and `restore_tables_unreadable` where
    a table cannot be read, unless the operator accepts that.
    """
    found, stores = Pointers(), Stores(notary.config.s3)
    files = MetadataFiles(notary.config.catalog.metadata, stores)
    judge = _TableJudge(notary, files, Files(stores), plan.found)
    published = publications_by_table(notary.ledger, plan.found)
    found.published = [each for of_table in published.values() for each in of_table]
    migrations = migrations_by_table(plan.found)
    judged = [
        judge.judge(uuid, published.get(uuid, []), found) for uuid in sorted(published.keys() | migrations.keys())
    ]
    if found.lost and not order.accept_lost:
        raise publications_lost_error(found.lost)
    read = {each.uuid for each in judged if each is not None and each.pointer is not None}
    found.unreadable = find_unreadable(notary.ledger, files, but=read)
    require_readable(found.unreadable, accepted=order.accept_unreadable)
    for each in judged:
        if each is not None:
            judge.advance(each, migrations.get(each.uuid, []), found)
    found.ahead = find_ahead(notary.ledger, files, plan.found, found.reached)
    found.unregistered = find_unregistered(notary.ledger, files, plan.found, but=published.keys())
    return found


def apply_pointers(unit: Unit, found: Pointers) -> None:
    """Create the tables that the backup lacks, and set the chosen metadata files."""
    for each in found.advances:
        tables.lock(unit, [each.table.uuid])
        tables.require_not_scheduled_for_deletion(unit, [each.pointer.location.rpartition("/")[2]])
        if each.created is None:
            row = tables.find_by_uuid(unit, each.table.uuid)
            if row is None:
                raise AssertionError("a table of the backup that was judged is in the backup")
            tables.swap(unit, row, each.pointer, location=each.location)
            continue
        home, ref, place = each.created, each.table, (each.location, each.pointer)
        name = parse_full_name(ref.name)[-1]
        new = NewTable(
            home.namespace_id, name, home.domain, ref.uuid, *place, each.contract_sha256, may_reuse_uuid=True
        )
        row = tables.create(unit, new)
        unit.lock_name("places")
        require_free(unit, row.location, of=row)


@dataclass(frozen=True, slots=True)
class _NewestPublication:
    """The newest publication whose files are intact, with its metadata and the live data files of `main`."""

    publication: Publication
    metadata: TableMetadata
    pointer: Pointer
    lineage: Lineage
    live: Mapping[str, int | None]
    filled: FilledGaps

    def shows(self, each: Publication) -> bool:
        """Whether its metadata shows this publication, which is not younger."""
        snapshot_id = each.said.new_snapshot_id
        in_history = snapshot_id in self.lineage.reached or snapshot_id in _history(self.metadata)
        return in_history or not each.paths.isdisjoint(self.live)


@dataclass(frozen=True, slots=True)
class _JudgedTable:
    """A table as it may be shown; without a row the backup lacks it, and `home` is its namespace."""

    uuid: str
    row: TableRow | None
    home: Namespace | None
    metadata: TableMetadata | None
    pointer: Pointer | None
    newest: Publication | None


class _TableJudge:
    """Chooses the metadata of each table of one restore."""

    def __init__(self, notary: Notary, metadata: MetadataFiles, files: Files, found: Sequence[ArchivedEntry]) -> None:
        self._notary = notary
        self._metadata = metadata
        self._files = files
        self._times = unprotected_times(found)
        self._loose = LooseProofs(notary.ledger, found)

    def judge(self, uuid: str, published: Sequence[Publication], found: Pointers) -> _JudgedTable | None:
        """The table's newest metadata that a receipt binds; None where the ledger has no pointer to set."""
        with self._notary.ledger.read() as unit:
            row = tables.find_by_uuid(unit, uuid)
        if row is not None and row.upstream is not None:
            # The upstream has its own pointer, which was not lost.
            found.shown |= {each.receipt_id for each in published}
            return None
        home = None
        if row is None:
            if not published:
                return None
            try:
                home = self._find_namespace(published[-1].said.table)
            except _REFUSALS as error:
                found.lost += [describe_lost(each, error) for each in published]
                return None
        now, pointer = self._read_current(row)
        newest, refusals = self._find_newest(published, now)
        for each in published:
            self._sort_out(each, newest, now, refusals.get(each.receipt_id), found)
        if newest is None:
            return _JudgedTable(uuid, row, home, now, pointer, None)
        found.unreceipted += newest.filled.shown
        if newest.filled.open_gaps:
            found.lost += [describe_gap(newest.publication, gap) for gap in newest.filled.open_gaps]
            found.unclear.add(newest.publication.receipt_id)
            found.doubted.append(newest.publication)
        return _JudgedTable(uuid, row, home, newest.metadata, newest.pointer, newest.publication)

    def _sort_out(
        self,
        each: Publication,
        newest: _NewestPublication | None,
        backup: TableMetadata | None,
        refusal: PvdmError | None,
        found: Pointers,
    ) -> None:
        """Sort a publication into shown, lost or unclear."""
        if refusal is not None:
            found.lost.append(describe_lost(each, refusal))
        elif self._is_known(each.said, backup) or (newest is not None and newest.shows(each)):
            found.shown.add(each.receipt_id)
        elif newest is not None and newest.lineage.closed and not newest.lineage.free:
            passed_over = Code.RESTORE_REFUSED(reason="restore_publication_passed_over")
            found.lost.append(describe_lost(each, passed_over))
        else:
            unclear = Code.RESTORE_REFUSED(reason="restore_publication_unclear")
            found.lost.append(describe_lost(each, unclear))
            found.unclear.add(each.receipt_id)

    def _is_known(self, said: Receipt, backup: TableMetadata | None) -> bool:
        """Whether the backup has the publication, though not its receipt."""
        if said.new_snapshot_id in _history(backup):
            return True
        with self._notary.ledger.read() as unit:
            return chunks.is_published_at(unit, said.table.uuid, str(said.new_snapshot_id))

    def advance(self, judged: _JudgedTable, migrations: Sequence[tuple[int, str, Migration]], found: Pointers) -> None:
        """Show the chosen metadata, with the signed migrations that came after it."""
        shown, named, newest = judged.metadata, judged.pointer, judged.newest
        if shown is None or named is None:
            return
        now, pointer = shown, named
        if newest is not None:
            now, pointer = self._remove_lost_branches(judged, now, pointer)
        now, pointer = self._apply_migrations(judged, now, pointer, migrations, found)
        made = sum(found.migrated.get(migration_id) is not None for _, migration_id, _ in migrations)
        # In revisions of before the loss; each migration had its own revision.
        revision = None if newest is None else revision_of(file_name(newest.said.metadata_path))
        if revision is None:
            revision = 0 if judged.row is None else judged.row.revision
        found.reached[judged.uuid] = ReachedState(revision + made, shown.last_updated_ms, named.sha256)
        found.schemas[judged.uuid] = to_model(now.current_schema)
        if judged.row is not None and judged.row.pointer == pointer:
            return
        ref = migrations[-1][2].table if newest is None else newest.said.table
        cores = [] if newest is None else [core for core in newest.cores.values() if core is not None]
        contract = cores[0].attempt.contract_sha256 if cores else None  # later approvals may change it
        found.advances.append(Advance(ref, now.current_snapshot_id, pointer, now.location, judged.home, contract))

    def _read_current(self, row: TableRow | None) -> tuple[TableMetadata | None, Pointer | None]:
        """The metadata that the backup names; None where its file is gone."""
        if row is None:
            return None, None
        try:
            data = self._metadata.read(StoredFile(row.pointer.location, row.pointer.sha256))
        except VerificationError:
            return None, None
        return TableMetadata.parse(data), row.pointer

    def _find_namespace(self, table: TableRef) -> Namespace:
        """The namespace of a table that the backup lacks; the table's name must be free in it."""
        *levels, name = parse_full_name(table.name)
        with self._notary.ledger.read() as unit:
            home = namespaces.find(unit, tuple(levels))
            if home is None:
                raise Code.NAMESPACE_UNKNOWN(
                    f"the namespace {full_name(tuple(levels))} was made after the backup; make it again after the"
                    " restore, then register the document as an operator, or make the table again and publish"
                )
            taken = tables.find(unit, home.namespace_id, name)
            gone = tables.list_ids(unit, table.uuid)
        if taken is not None or gone:
            raise Code.RESTORE_TABLE_TAKEN(
                f"the backup has another table {table.name}, or one of the same UUID that was dropped"
            )
        return home

    def _find_newest(
        self, published: Sequence[Publication], backup: TableMetadata | None
    ) -> tuple[_NewestPublication | None, dict[str, PvdmError]]:
        """The newest publication whose metadata, proofs and files are intact, and the errors of newer ones."""
        refusals: dict[str, PvdmError] = {}
        for at in range(len(published) - 1, -1, -1):
            each = published[at]
            if backup is not None and self._is_known(each.said, backup):
                return None, refusals
            try:
                return self._verify_publication(each, published[: at + 1], backup), refusals
            except _REFUSALS as error:
                refusals[each.receipt_id] = error
        return None, refusals

    def _verify_publication(
        self, each: Publication, until: Sequence[Publication], backup: TableMetadata | None
    ) -> _NewestPublication:
        """The publication of this receipt, once all files that it adds to the backup were read and verified."""
        said = each.said
        stored = StoredFile(said.metadata_path, said.metadata_sha256)
        with in_file(stored.location):
            metadata = receipt_document.read_receipted(said, self._metadata.read(stored))
        lineage = self._lineage(each, until, metadata, backup)
        if lineage.closed and not lineage.free:
            until = [before for before in until if before.said.new_snapshot_id in lineage.reached]
        for before in until:
            receipt_document.require_proved(before.said, before.cores)
        cores = [core for before in until for core in before.cores.values() if core is not None]
        cores += self._loose.find(said.table.uuid).values()
        added = {file.published_path: file for core in cores for file in core.files.added}
        live = receipt_document.require_published_bytes(said, metadata, list(added.values()), self._files)
        with self._notary.ledger.read() as unit:
            require_free(unit, metadata.location, of=tables.find_by_uuid(unit, said.table.uuid))
        filled = self._fill_gaps(each, metadata, lineage, live, cores, backup)
        return _NewestPublication(each, metadata, Pointer(stored.location, stored.sha256), lineage, live, filled)

    def _fill_gaps(
        self,
        each: Publication,
        metadata: TableMetadata,
        lineage: Lineage,
        live: Mapping[str, int | None],
        cores: Sequence[ProofCore],
        backup: TableMetadata | None,
    ) -> FilledGaps:
        """The proofs of the snapshots without a receipt that led to this one."""
        if not lineage.gaps:
            return FilledGaps()
        filled = self._loose.fill(each, metadata, lineage, live)
        proved = [*cores, *(shown.core for shown in filled.shown)]
        before = None  # unknown, where the backup's manifests cannot be read
        with contextlib.suppress(*_REFUSALS):
            before = None if backup is None else live_files(backup, self._files)
        times = self._times.get(each.said.table.uuid, UnprotectedTimes())
        if require_rows_proved(live, proved, before, times):
            return filled
        return replace(filled, open_gaps=filled.open_gaps or lineage.gaps[-1:])

    def _lineage(
        self, each: Publication, until: Sequence[Publication], metadata: TableMetadata, backup: TableMetadata | None
    ) -> Lineage:
        uuid, history = each.said.table.uuid, _history(backup)

        def is_known(snapshot_id: int) -> bool:
            if snapshot_id in history:
                return True
            with self._notary.ledger.read() as unit:
                published = chunks.is_published_at(unit, uuid, str(snapshot_id))
                return published or receipts.of_snapshot(unit, uuid, str(snapshot_id)) is not None

        return trace(each, until, metadata, self._times.get(uuid, UnprotectedTimes()), is_known)

    def _remove_lost_branches(
        self, judged: _JudgedTable, now: TableMetadata, pointer: Pointer
    ) -> tuple[TableMetadata, Pointer]:
        """The metadata without the staging branches of attempts that the ledger has lost.

        No clean-up would remove them, and a ref to missing files would stop a search for orphans.
        """
        with self._notary.ledger.read() as unit:
            left = [
                name
                for name in now.refs
                if is_stewards(name) and attempts.find(unit, name.removeprefix(BRANCH_PREFIX)) is None
            ]
        updates = BranchRemoval.plan(now, left).updates()
        if not updates:
            return now, pointer
        return self._write(judged, self._update(now, pointer, updates))

    def _update(self, before: TableMetadata, pointer: Pointer, updates: Sequence[Json]) -> TableMetadata:
        now_ms = max(self._notary.clock.now_micros() // 1_000, before.last_updated_ms)
        return apply_updates(before, updates, now_ms=now_ms, previous_location=pointer.location)

    def _write(self, judged: _JudgedTable, metadata: TableMetadata) -> tuple[TableMetadata, Pointer]:
        revision = 0 if judged.row is None else judged.row.revision + 1
        file = self._metadata.write(judged.uuid, revision, metadata.to_bytes())
        return metadata, Pointer(file.location, file.sha256)

    def _apply_migrations(
        self,
        judged: _JudgedTable,
        now: TableMetadata,
        pointer: Pointer,
        migrations: Sequence[tuple[int, str, Migration]],
        found: Pointers,
    ) -> tuple[TableMetadata, Pointer]:
        """Apply the migrations that the metadata lacks, up to the first one that does not fit."""
        contained = count_contained(now, judged.newest, migrations)
        for at, (_, migration_id, said) in enumerate(migrations):
            if at < contained:
                found.migrated[migration_id] = None
                continue
            try:
                after = self._migrate(said, now, pointer)
            except _REFUSALS:
                break
            now, pointer = self._write(judged, after)
            found.migrated[migration_id] = pointer.sha256
        return now, pointer

    def _migrate(self, said: Migration, before: TableMetadata, pointer: Pointer) -> TableMetadata:
        """The metadata after the migration; both must be the signed states, as at the gate."""
        require_state(said.before, before, said.before.contract_sha256)
        after = self._update(before, pointer, parse_updates(said.updates))
        require_same_table(before, after)
        require_same_data(before, after)
        require_same_defaults(before, after)
        require_result(said.after, after)
        return after


def _history(metadata: TableMetadata | None) -> set[int]:
    if metadata is None or metadata.current_snapshot_id is None:
        return set()
    return {each.snapshot_id for each in metadata.ancestry(metadata.current_snapshot_id)}
