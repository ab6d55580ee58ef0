"""Tables that an operator has to look at after a restore: unreadable, behind their files, or not registered."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pvdm.catalog.names import full_name
from pvdm.errors import Code, InputError, VerificationError
from pvdm.lake.files import FoundFile, MetadataFiles, StoredFile, revision_of
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import namespaces, tables
from pvdm.ledger.catalog.tables import TableRow
from pvdm.model.printable import counted, list_first
from pvdm.model.statements.migration import Migration, Protection, ProtectionAction, TableTarget
from pvdm.steward.restore.refill import ArchivedEntry, statements_of
from pvdm.steward.work.sources import levels_of
from pvdm.trust.log.entry import EntryKind
from pvdm.trust.statement import read_signed


@dataclass(frozen=True, slots=True)
class BehindTable:
    """An unprotected table with newer metadata files than the one that it shows.

    One that was protected must not be dropped: its UUID stays in use, so its metadata could not be registered again.
    """

    table: str
    table_uuid: str
    was_protected: bool


@dataclass(frozen=True, slots=True)
class ReachedState:
    """The metadata that the restore brings a table to: revision, time and hash."""

    revision: int
    updated_ms: int
    sha256: str | None


def find_ahead(
    ledger: Ledger, files: MetadataFiles, found: Sequence[ArchivedEntry], reached: Mapping[str, ReachedState]
) -> set[str]:
    """The UUIDs of tables that may be unprotected and whose folders have newer metadata files than is shown."""
    ended = _unprotected_since(found)
    with ledger.read() as unit:
        rows = [row for row in tables.list_live(unit) if row.upstream is None]
    free = {row.table_uuid: row for row in rows if not row.protected or row.table_uuid in ended}
    made = {uuid for uuid in ended & reached.keys() if uuid not in free}
    ahead = {
        uuid
        for uuid, row in free.items()
        if _is_ahead(files, uuid, reached.get(uuid) or _reached_by_backup(files, row))
    }
    return ahead | {uuid for uuid in made if _is_ahead(files, uuid, reached[uuid])}


def find_behind(unit: Unit, ahead: set[str]) -> list[BehindTable]:
    """The unprotected ones among these tables, once all approvals are in force again."""
    behind = []
    for row in tables.list_live(unit):
        if row.table_uuid in ahead and not row.protected:
            name = full_name((*levels_of(unit, row), row.name))
            behind.append(BehindTable(name, row.table_uuid, tables.was_protected(unit, row)))
    return sorted(behind, key=lambda each: each.table)


def _unprotected_since(found: Sequence[ArchivedEntry]) -> set[str]:
    """The tables whose protection ended after the backup, at least for a time."""
    return {
        said.target.table.uuid
        for _, said in statements_of(found, Protection)
        if isinstance(said.target, TableTarget) and said.action is ProtectionAction.UNPROTECT
    }


def _reached_by_backup(files: MetadataFiles, row: TableRow) -> ReachedState:
    """The state of the backup; without a time where its metadata file is gone."""
    pointer = row.pointer
    try:
        shown = TableMetadata.parse(files.read(StoredFile(pointer.location, pointer.sha256)))
    except (VerificationError, InputError):
        return ReachedState(row.revision, 0, None)
    return ReachedState(row.revision, shown.last_updated_ms, pointer.sha256)


def _is_ahead(files: MetadataFiles, table_uuid: str, shown: ReachedState) -> bool:
    """Whether there is another metadata file of a higher revision that is not older than the one that is shown.

    Times are compared too, since a table that was registered again starts its revisions again.
    """
    for each in files.written(table_uuid):
        if each.unfinished or (revision_of(each.name) or 0) <= shown.revision:
            continue
        data = files.read_found(each)
        if hashlib.sha256(data).hexdigest() == shown.sha256:
            continue
        try:
            if TableMetadata.parse(data).last_updated_ms >= shown.updated_ms:
                return True
        except (VerificationError, InputError):
            return True  # an operator has to check it
    return False


@dataclass(frozen=True, slots=True)
class UnreadableTable:
    """A table whose metadata file is gone or changed, while no receipt binds a newer one; `why` is the error."""

    table: str
    table_uuid: str
    metadata_path: str
    code: str
    why: str


def find_unreadable(ledger: Ledger, files: MetadataFiles, *, but: Collection[str]) -> list[UnreadableTable]:
    """Read the metadata of every table of the backup, except those in `but`, which were read before."""
    with ledger.read() as unit:
        rows = [row for row in tables.list_live(unit) if row.upstream is None and row.table_uuid not in but]
        homes = {row.namespace_id: namespaces.find_by_id(unit, row.namespace_id) for row in rows}
    found = []
    for row in rows:
        try:
            TableMetadata.parse(files.read(StoredFile(row.pointer.location, row.pointer.sha256)))
        except (VerificationError, InputError) as error:
            home = homes[row.namespace_id]
            name = full_name((*(() if home is None else home.levels), row.name))
            found.append(UnreadableTable(name, row.table_uuid, row.pointer.location, error.reason, error.message))
    return sorted(found, key=lambda each: each.table)


def require_readable(unreadable: Sequence[UnreadableTable], *, accepted: bool) -> None:
    """Raise `restore_tables_unreadable` for unreadable tables, unless the operator accepts them."""
    if not unreadable or accepted:
        return
    named = [f"{each.table} ({each.code}, {each.metadata_path})" for each in unreadable]
    raise Code.RESTORE_REFUSED(
        f"{counted(len(named), 'table')} cannot be read: the documents that the backup names are gone or changed",
        reason="restore_tables_unreadable",
        got=list_first(named),
        unreadable=len(named),
    )


@dataclass(frozen=True, slots=True)
class UnregisteredTable:
    """A table that the restored ledger lacks, and its newest metadata file; `table` is None if its name is unknown."""

    table_uuid: str
    metadata_path: str
    table: str | None


def find_unregistered(
    ledger: Ledger, files: MetadataFiles, found: Sequence[ArchivedEntry], *, but: Collection[str]
) -> list[UnregisteredTable]:
    """Find metadata folders whose UUID the ledger does not know, also not as dropped; `but` are left out."""
    with ledger.read() as unit:
        unknown = [uuid for uuid in files.folders() if uuid not in but and not tables.list_ids(unit, uuid)]
    names = _signed_names(found)
    unregistered = []
    for uuid in unknown:
        whole = (each for each in files.written(uuid) if not each.unfinished)
        newest = max(whole, key=_age, default=None)
        if newest is not None:
            unregistered.append(UnregisteredTable(uuid, newest.location, names.get(uuid)))
    return unregistered


def _age(file: FoundFile) -> tuple[int, float]:
    return revision_of(file.name) or 0, file.modified_seconds


def _signed_names(found: Sequence[ArchivedEntry]) -> dict[str, str]:
    """The last name of each table in protections and migrations from after the backup."""
    names: dict[str, str] = {}
    for each in found:
        if each.envelope is None:
            continue
        if each.entry.kind is EntryKind.MIGRATION:
            moved = read_signed(each.envelope, Migration).table
            names[moved.uuid] = moved.name
        elif each.entry.kind is EntryKind.PROTECTION:
            target = read_signed(each.envelope, Protection).target
            if isinstance(target, TableTarget):
                names[target.table.uuid] = target.table.name
    return names
