"""Tables that an operator has to look at after a restore: unreadable, behind their files, or not registered."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pvdm.catalog.names import full_name
from pvdm.errors import Code, InputError, VerificationError
from pvdm.lake.files import MetadataFiles, StoredFile, revision_of
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import tables
from pvdm.ledger.catalog.tables import TableRow
from pvdm.model.printable import counted, list_first
from pvdm.model.statements.migration import Migration, Protection, ProtectionAction, TableTarget
from pvdm.steward.restore.refill import ArchivedEntry, statements_of
from pvdm.steward.work.sources import levels_of


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
    ended = {
        said.target.table.uuid
        for _, said in statements_of(found, Protection)
        if isinstance(said.target, TableTarget) and said.action is ProtectionAction.UNPROTECT
    }
    with ledger.read() as unit:
        rows = [row for row in tables.list_live(unit) if row.upstream is None]
    free = {row.table_uuid: row for row in rows if not row.protected or row.table_uuid in ended}
    states = {uuid: reached.get(uuid) or _reached_by_backup(files, row) for uuid, row in free.items()}
    states |= {uuid: reached[uuid] for uuid in ended & reached.keys()}
    return {uuid for uuid, state in states.items() if _is_ahead(files, uuid, state)}


def find_behind(unit: Unit, ahead: set[str]) -> list[BehindTable]:
    """The unprotected ones among these tables, once all approvals are in force again."""
    rows = [row for row in tables.list_live(unit) if row.table_uuid in ahead and not row.protected]
    named = [(full_name((*levels_of(unit, row), row.name)), row) for row in rows]
    behind = [BehindTable(name, row.table_uuid, tables.was_protected(unit, row)) for name, row in named]
    return sorted(behind, key=lambda each: each.table)


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
        names = [full_name((*levels_of(unit, row), row.name)) for row in rows]
    found = []
    for row, name in zip(rows, names, strict=True):
        try:
            TableMetadata.parse(files.read(StoredFile(row.pointer.location, row.pointer.sha256)))
        except (VerificationError, InputError) as error:
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
        newest = max(whole, key=lambda each: (revision_of(each.name) or 0, each.modified_seconds), default=None)
        if newest is not None:
            unregistered.append(UnregisteredTable(uuid, newest.location, names.get(uuid)))
    return unregistered


def _signed_names(found: Sequence[ArchivedEntry]) -> dict[str, str]:
    """The last name of each table in protections and migrations from after the backup."""
    signed = [(each.index, said.table) for each, said in statements_of(found, Migration)]
    for each, said in statements_of(found, Protection):
        if isinstance(said.target, TableTarget):
            signed.append((each.index, said.target.table))
    return {table.uuid: table.name for _, table in sorted(signed, key=lambda pair: pair[0])}
