"""Tables of a restored ledger that nobody could read: the document that the backup names is gone.

Retention removes old documents, so an old backup may name one that was removed since.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pvdm.catalog.names import full_name
from pvdm.errors import InputError, VerificationError
from pvdm.lake.files import MetadataFiles, StoredFile
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.ledger import Ledger
from pvdm.ledger.catalog import namespaces, tables
from pvdm.model.plain import counted, list_first


@dataclass(frozen=True, slots=True)
class UnreadableTable:
    """A table whose document of the backup is gone or changed, while no receipt binds a newer one; and why."""

    table: str
    table_uuid: str
    metadata_path: str
    code: str
    why: str


def find_unreadable(ledger: Ledger, files: MetadataFiles, *, but: Collection[str]) -> list[UnreadableTable]:
    """Read the document of every table of the backup, but those whose document was judged already."""
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
            found.append(UnreadableTable(name, row.table_uuid, row.pointer.location, error.code, error.message))
    return sorted(found, key=lambda each: each.table)


def require_readable(unreadable: Sequence[UnreadableTable], *, accepted: bool) -> None:
    """Raise `restore_tables_unreadable` where a table could not be read after the restore, unless that is accepted."""
    if not unreadable or accepted:
        return
    named = [f"{each.table} ({each.code}, {each.metadata_path})" for each in unreadable]
    raise VerificationError(
        "restore_tables_unreadable",
        f"{counted(len(named), 'table')} cannot be read: the documents that the backup names are gone or changed",
        expected="the documents that the backup names, or newer ones that receipts bind",
        got=list_first(named),
        hint="nothing was changed; bring the documents back, restore a younger backup, or go on with"
        " --accept-unreadable, and these tables stay unreadable until their documents are back",
        unreadable=len(named),
    )
