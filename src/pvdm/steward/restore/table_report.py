"""Tables that an operator has to look at after a restore: unreadable, behind their files, or not registered."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pvdm.errors import Code, InputError, VerificationError
from pvdm.lake.files import MetadataFiles, revision_of
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import tables
from pvdm.ledger.catalog.tables import TableRow
from pvdm.model.printable import counted, list_first
from pvdm.model.statements.migration import Migration, Protection, ProtectionAction, TableTarget
from pvdm.steward.restore.refill import ArchivedEntry, statements_of
from pvdm.steward.work.sources import name_of_row


@dataclass(frozen=True, slots=True)
class BehindTable:
    """An unprotected table with newer metadata files than the one that it shows.

    If `was_protected`, it must not be dropped: its UUID stays in use, so its metadata could not be registered again.
    """

    table: str
    table_uuid: str
    was_protected: bool


@dataclass(frozen=True, slots=True)
class ReachedState:
    """Revision, time and hash of the metadata that a table shows after the restore."""

    revision: int
    updated_ms: int
    sha256: str | None


def find_tables_with_newer_files(
    ledger: Ledger, files: MetadataFiles, archived: Sequence[ArchivedEntry], reached: Mapping[str, ReachedState]
) -> set[str]:
    """The UUIDs of tables that may be unprotected and have newer metadata files than the one that they show."""
    unprotected = {
        protection.target.table.uuid
        for _, protection in statements_of(archived, Protection)
        if isinstance(protection.target, TableTarget) and protection.action is ProtectionAction.UNPROTECT
    }
    with ledger.read() as unit:
        rows = [row for row in tables.list_live(unit) if row.upstream is None]
    rows = [row for row in rows if not row.protected or row.table_uuid in unprotected]
    states = {row.table_uuid: reached.get(row.table_uuid) or _read_backup_state(files, row) for row in rows}
    states |= {uuid: reached[uuid] for uuid in unprotected & reached.keys()}
    return {uuid for uuid, state in states.items() if _has_newer_file(files, uuid, state)}


def find_behind(unit: Unit, with_newer_files: set[str]) -> list[BehindTable]:
    """The unprotected ones among these tables. Called once all approvals are in force again."""
    rows = [row for row in tables.list_live(unit) if row.table_uuid in with_newer_files and not row.protected]
    behind = [BehindTable(name_of_row(unit, row), row.table_uuid, tables.was_protected(unit, row)) for row in rows]
    return sorted(behind, key=lambda each: each.table)


def _read_backup_state(files: MetadataFiles, row: TableRow) -> ReachedState:
    """The state that the backup names; time 0 and no hash if its metadata file cannot be read."""
    try:
        metadata = TableMetadata.parse(files.read(row.pointer))
    except (VerificationError, InputError):
        return ReachedState(row.revision, 0, None)
    return ReachedState(row.revision, metadata.last_updated_ms, row.pointer.sha256)


def _has_newer_file(files: MetadataFiles, table_uuid: str, shown: ReachedState) -> bool:
    """Whether there is another metadata file of a higher revision that is not older than the one that is shown.

    Times are compared too, since a table that was registered again starts its revisions again. A file that cannot be
    read or parsed counts as newer, so that an operator checks it.
    """
    for each in files.list_written(table_uuid):
        if each.unfinished or (revision_of(each.name) or 0) <= shown.revision:
            continue
        try:
            data = files.read_unchecked(each)
            if hashlib.sha256(data).hexdigest() == shown.sha256:
                continue
            if TableMetadata.parse(data).last_updated_ms >= shown.updated_ms:
                return True
        except (VerificationError, InputError):
            return True
    return False


@dataclass(frozen=True, slots=True)
class UnreadableTable:
    """A table whose metadata file is gone or changed, and for which no newer one was found; `why` is the message."""

    table: str
    table_uuid: str
    metadata_path: str
    code: str
    why: str


def find_unreadable(ledger: Ledger, files: MetadataFiles, *, already_read: Collection[str]) -> list[UnreadableTable]:
    """The tables of the backup whose metadata cannot be read; tables in `already_read` are skipped."""
    with ledger.read() as unit:
        rows = [row for row in tables.list_live(unit) if row.upstream is None and row.table_uuid not in already_read]
        names = [name_of_row(unit, row) for row in rows]
    unreadable = []
    for row, name in zip(rows, names, strict=True):
        try:
            TableMetadata.parse(files.read(row.pointer))
        except (VerificationError, InputError) as error:
            unreadable.append(UnreadableTable(name, row.table_uuid, row.pointer.location, error.reason, error.message))
    return sorted(unreadable, key=lambda each: each.table)


def require_readable(unreadable: Sequence[UnreadableTable], *, accepted: bool) -> None:
    """Raise `restore_tables_unreadable` for unreadable tables, unless the operator accepts them."""
    if not unreadable or accepted:
        return
    described = [f"{each.table} ({each.code}, {each.metadata_path})" for each in unreadable]
    raise Code.RESTORE_REFUSED(
        f"{counted(len(described), 'table')} cannot be read: the documents that the backup names are gone or changed",
        reason="restore_tables_unreadable",
        got=list_first(described),
        unreadable=len(described),
    )


@dataclass(frozen=True, slots=True)
class UnregisteredTable:
    """A table that the restored ledger lacks, and its newest metadata file; `table` is None if its name is unknown."""

    table_uuid: str
    metadata_path: str
    table: str | None


def find_unregistered(
    ledger: Ledger, files: MetadataFiles, archived: Sequence[ArchivedEntry], *, published: Collection[str]
) -> list[UnregisteredTable]:
    """Tables that have a metadata folder, but no row in the ledger (not even a dropped one), and are not `published`.

    A table's name is taken from the last protection or migration of it from after the backup.
    """
    with ledger.read() as unit:
        unknown = [uuid for uuid in files.tables() if uuid not in published and not tables.list_ids(unit, uuid)]
    signed = [(entry.index, migration.table) for entry, migration in statements_of(archived, Migration)]
    for entry, protection in statements_of(archived, Protection):
        if isinstance(protection.target, TableTarget):
            signed.append((entry.index, protection.target.table))
    in_log_order = sorted(signed, key=lambda indexed: indexed[0])
    names = {table.uuid: table.name for _, table in in_log_order}
    unregistered = []
    for uuid in unknown:
        complete = (each for each in files.list_written(uuid) if not each.unfinished)
        newest = max(complete, key=lambda each: (revision_of(each.name) or 0, each.modified_seconds), default=None)
        if newest is not None:
            unregistered.append(UnregisteredTable(uuid, newest.location, names.get(uuid)))
    return unregistered
