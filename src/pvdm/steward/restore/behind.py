"""Tables without protection that show less than was written to them: nothing signed vouches for the newer documents."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pvdm.catalog.names import full_name
from pvdm.errors import InputError, VerificationError
from pvdm.lake.files import MetadataFiles, StoredFile, revision_of
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import tables
from pvdm.ledger.catalog.tables import TableRow
from pvdm.model.statements.migration import Protection, ProtectionAction, TableTarget
from pvdm.steward.restore.refill_check import Found
from pvdm.steward.work.sources import levels_of
from pvdm.trust.log.entry import EntryKind
from pvdm.trust.statement import read_signed


@dataclass(frozen=True, slots=True)
class BehindTable:
    """A table that is not protected, beside whose document newer ones lie.

    If it ever was, it is not to be dropped: its UUID is its own for ever, and no document of it can be registered.
    """

    table: str
    table_uuid: str
    was_protected: bool


@dataclass(frozen=True, slots=True)
class Reached:
    """How far the restore brings a table: the revision of the document, when that was made, and its hash."""

    revision: int
    updated_ms: int
    sha256: str | None


def find_ahead(
    ledger: Ledger, files: MetadataFiles, found: Sequence[Found], reached: Mapping[str, Reached]
) -> set[str]:
    """The UUIDs of the tables whose folders have newer documents than are shown, of those that may be unprotected."""
    ended = _ended(found)
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


def name_behind(unit: Unit, ahead: set[str]) -> list[BehindTable]:
    """Those of the tables that are not protected, once every approval of the lost time is in force again."""
    behind = []
    for row in tables.list_live(unit):
        if row.table_uuid in ahead and not row.protected:
            name = full_name((*levels_of(unit, row), row.name))
            behind.append(BehindTable(name, row.table_uuid, tables.was_protected(unit, row)))
    return sorted(behind, key=lambda each: each.table)


def _ended(found: Sequence[Found]) -> set[str]:
    """The tables whose protection ended in the lost time, whatever came after that."""
    said = (
        read_signed(each.envelope, Protection)
        for each in found
        if each.envelope is not None and each.entry.kind is EntryKind.PROTECTION
    )
    return {
        each.target.table.uuid
        for each in said
        if isinstance(each.target, TableTarget) and each.action is ProtectionAction.UNPROTECT
    }


def _reached_by_backup(files: MetadataFiles, row: TableRow) -> Reached:
    """What the backup shows; when a document that is gone was made is unknown."""
    pointer = row.pointer
    try:
        shown = TableMetadata.parse(files.read(StoredFile(pointer.location, pointer.sha256)))
    except (VerificationError, InputError):
        return Reached(row.revision, 0, None)
    return Reached(row.revision, shown.last_updated_ms, pointer.sha256)


def _is_ahead(files: MetadataFiles, table_uuid: str, shown: Reached) -> bool:
    """Whether a document of a higher revision is no older than the one that is shown, and another one.

    A table that was registered once more counts its revisions anew, beside the documents of its earlier life.
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
            return True  # an operator has to look at it
    return False
