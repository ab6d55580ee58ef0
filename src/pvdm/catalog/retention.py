"""Old metadata files of a table: which of them nothing needs any more, as Iceberg's delete-after-commit has it.

A commit keeps the newest documents in its metadata log (`write.metadata.previous-versions-max`, 100 by default). One
that falls out of the log goes, if `main` has changed since it was the table's state. So the document of the newest
publication always stays, and every one after it: a restore of an older ledger finds what the newest receipt names.
No receipt, proof or audit reads an older document: they bind snapshots, manifest lists and hashes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from pvdm.catalog.state import States, TableState
from pvdm.errors import PvdmError
from pvdm.lake.files import FoundFile, MetadataFiles, file_name, revision_of
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.ledger import Ledger
from pvdm.ledger.catalog import tables
from pvdm.ledger.catalog.tables import TableRow
from pvdm.ledger.restore import restores

DELETE_PROPERTY: Final = "write.metadata.delete-after-commit.enabled"
_SWEEP_SECONDS: Final = 86_400


def is_kept_short(row: TableRow, metadata: TableMetadata) -> bool:
    """Whether old documents of the table go: of protected ones always, of others as their property says."""
    return row.upstream is None and (row.protected or metadata.properties.get(DELETE_PROPERTY, "").lower() == "true")


def superseded(before: TableState, row: TableRow, after: TableMetadata) -> list[str]:
    """The locations of documents that the commit from `before` to `after` put out of the log, and nothing needs."""
    if not is_kept_short(row, after):
        return []
    kept = {row.pointer.location, *(each.metadata_file for each in after.metadata_log)}
    changed_ms = _main_changed_ms(after)
    return [
        each.metadata_file
        for each in before.metadata.metadata_log
        if each.metadata_file not in kept and each.timestamp_ms < changed_ms
    ]


class RetentionSweep:
    """Removes what commits could not: after a crash, or since `main` had not changed yet.

    Once the ledger was restored nothing is swept: a pointer that was lost may have named any of the files.
    """

    def __init__(self, ledger: Ledger, states: States, files: MetadataFiles) -> None:
        self._ledger = ledger
        self._states = states
        self._files = files
        self._swept_seconds = 0.0

    def sweep(self) -> int:
        """Remove old documents of every table, at most once a day; says how many they were."""
        now = time.time()
        with self._ledger.read() as unit:
            restored = restores.newest_micros(unit) is not None
        if restored or now - self._swept_seconds < _SWEEP_SECONDS:
            return 0
        count = sum(self._swept(table_uuid) for table_uuid in self._files.folders())
        self._swept_seconds = now
        return count

    def _swept(self, table_uuid: str) -> int:
        with self._ledger.read() as unit:
            row = tables.find_uuid(unit, table_uuid)
            # One that was dropped before may be named by a file of any revision.
            if row is None or row.upstream is not None or len(tables.ids_of(unit, table_uuid)) > 1:
                return 0
        try:
            metadata = self._states.of(row).metadata
        except PvdmError:
            return 0  # what cannot be read is not judged by
        found = [each for each in self._files.written(table_uuid) if not each.unfinished]
        gone = left_behind(row, metadata, found)
        for each in gone:
            self._files.remove_old(table_uuid, each.location)
        return len(gone)


def left_behind(row: TableRow, metadata: TableMetadata, found: Sequence[FoundFile]) -> list[FoundFile]:
    """Of the documents in a table's folder those that a commit should have removed, or may by now.

    They are older than the whole log, by the revision in their names: no commit swaps in one of these any more.
    """
    log = metadata.metadata_log
    if not is_kept_short(row, metadata) or not log or log[0].timestamp_ms >= _main_changed_ms(metadata):
        return []
    oldest = revision_of(file_name(log[0].metadata_file))
    if oldest is None:
        return []
    kept = {file_name(row.pointer.location), *(file_name(each.metadata_file) for each in log)}
    return [each for each in found if each.name not in kept and _is_before(each.name, oldest)]


def _is_before(name: str, oldest: int) -> bool:
    revision = revision_of(name)
    return revision is not None and revision < oldest


def _main_changed_ms(metadata: TableMetadata) -> int:
    """When `main` came to show what it shows; before all time, if it shows nothing."""
    return metadata.snapshot_log[-1].timestamp_ms if metadata.snapshot_log else -1
