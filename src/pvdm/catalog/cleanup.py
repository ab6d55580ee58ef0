"""Deletes metadata files that no pointer (the ledger's row of a table) ever named, and old ones that are not needed.

The table's metadata log names the newest metadata files, 100 by default (`write.metadata.previous-versions-max`). A
metadata file that the log no longer names is deleted if `main` has changed since the file was written, and once it is
old enough (`[retention]` in steward.toml). This is done for protected tables and for those with the property
`write.metadata.delete-after-commit.enabled`, but never for an upstream's tables. The metadata file of the last change
of `main`, and all later ones, stay: a restore of an older ledger needs the file that the newest receipt names.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pvdm.catalog.state import States, TableState
from pvdm.errors import PvdmError
from pvdm.lake.files import FoundFile, MetadataFiles, file_name, revision_of
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import tables
from pvdm.ledger.catalog.tables import TableRow
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record import events, restores

# Far longer than any commit takes. Safety does not depend on clocks, but on the ledger (`UnnamedSweep._schedule`).
UNNAMED_AGE_MIN_SECONDS: Final = 7 * 86_400
_SWEEP_INTERVAL_SECONDS: Final = 86_400
DELETE_PROPERTY: Final = "write.metadata.delete-after-commit.enabled"


@dataclass(frozen=True, slots=True)
class _UnnamedFiles:
    """Files in the folder of a table UUID that no pointer has named so far.

    `last_events` is by ledger table id (a re-created table has the same UUID and another id): the last step-log event
    that was read.
    """

    table_uuid: str
    files: Sequence[FoundFile]
    last_events: dict[str, int]


class UnnamedSweep:
    """Finds and deletes files that crashes left behind. Safe beside other Stewards, whatever their clocks show.

    Files of tables that this ledger does not know stay. Files are compared by their random names, not by their paths: a
    file that a pointer names by another path is not deleted. After a restore of the ledger nothing is deleted: a lost
    pointer may have named any of the files.
    """

    def __init__(self, ledger: Ledger, clock: LedgerClock, files: MetadataFiles) -> None:
        self._ledger = ledger
        self._clock = clock
        self._files = files
        self._checked_until_seconds = 0.0

    def sweep(self) -> int:
        """Delete old files that no pointer ever named, at most once a day in one process. Returns their number."""
        latest, count = time.time() - UNNAMED_AGE_MIN_SECONDS, 0
        with self._ledger.read() as unit:
            restored = restores.find_newest_micros(unit) is not None
        if restored or latest - self._checked_until_seconds < _SWEEP_INTERVAL_SECONDS:
            return 0
        for found in self._find_between(self._checked_until_seconds, latest):
            for file in self._schedule(found):
                self._files.remove(file)
                count += 1
        self._checked_until_seconds = latest
        return count

    def _find_between(self, earliest: float, latest: float) -> Iterator[_UnnamedFiles]:
        """The unnamed files of each known table that were last written between these times."""
        for table_uuid in self._files.tables():
            written = self._files.list_written(table_uuid)
            files = [each for each in written if earliest < each.modified_seconds <= latest]
            if not files:
                continue
            with self._ledger.read() as unit:
                ids = tables.list_ids(unit, table_uuid)
            named: set[str] = set()
            last_events = {table_id: self._collect_all_named(table_id, named) for table_id in ids}
            unnamed = _select_unnamed(files, named) if ids else []
            if unnamed:
                yield _UnnamedFiles(table_uuid, unnamed, last_events)

    def _schedule(self, found: _UnnamedFiles) -> list[FoundFile]:
        """Schedule the files for deletion and return those that may be deleted.

        `tables.lock` waits for a commit that is replacing the pointer; the file of that commit stays. A later commit
        finds its own file scheduled for deletion and writes another one.
        """

        def work(unit: Unit) -> list[FoundFile]:
            tables.lock(unit, [found.table_uuid])
            named: set[str] = set()
            for table_id in tables.list_ids(unit, found.table_uuid):
                _collect_named(unit, table_id, named, found.last_events.get(table_id, 0), None)
            files = _select_unnamed(found.files, named)
            tables.schedule_deletes(unit, found.table_uuid, [each.name for each in files if not each.unfinished])
            return files

        return self._ledger.transact(work, at_micros=self._clock.now_micros())

    def _collect_all_named(self, table_id: str, named: set[str]) -> int:
        """Add every file that the table ever named to `named`, in short transactions. Returns the last event's id."""
        after = 0
        while True:
            with self._ledger.read() as unit:
                last = _collect_named(unit, table_id, named, after, events.EVENTS_PAGE_MAX_ROWS)
            if last == after:
                return after
            after = last


def _select_unnamed(files: Sequence[FoundFile], named: set[str]) -> list[FoundFile]:
    """The files that no pointer names. An unfinished file is never named; if it is deleted, its writer fails."""
    return [each for each in files if each.unfinished or each.name not in named]


def _collect_named(unit: Unit, table_id: str, named: set[str], after: int, count: int | None) -> int:
    """Add the files that the table's pointer named after the event `after`. Returns the last event's id."""
    for step in events.history(unit, "tables", table_id, after=after, count=count):
        if step.new is not None:
            named.add(file_name(step.new["metadata_location"]))
        after = step.event_id
    return after


def deletes_old_metadata_files(row: TableRow, metadata: TableMetadata) -> bool:
    """Whether old metadata files are deleted: never an upstream's; always a protected table's; else by the property."""
    return row.upstream is None and (row.protected or metadata.properties.get(DELETE_PROPERTY, "").lower() == "true")


def find_superseded(
    before: TableState, row_after: TableRow, after: TableMetadata, *, kept_seconds: int = 0
) -> list[str]:
    """The locations of metadata files that the commit from `before` to `after` made unnecessary.

    A metadata file that was written less than `kept_seconds` before the commit stays; a later sweep deletes it.
    """
    if not deletes_old_metadata_files(row_after, after):
        return []
    kept = {row_after.pointer.location, *(each.metadata_file for each in after.metadata_log)}
    older_than_ms = min(_main_changed_ms(after), after.last_updated_ms - 1_000 * kept_seconds)
    return [
        each.metadata_file
        for each in before.metadata.metadata_log
        if each.metadata_file not in kept and each.timestamp_ms < older_than_ms
    ]


class RetentionSweep:
    """Deletes old metadata files that commits left.

    A commit leaves a file if it crashes, if `main` has not changed since the file was written, or if the file is not
    old enough.

    After a restore of the ledger nothing is deleted: a lost pointer may have named any of the files.
    """

    def __init__(self, ledger: Ledger, states: States, files: MetadataFiles, *, kept_seconds: int = 0) -> None:
        """Metadata files that were written less than `kept_seconds` ago stay."""
        self._kept_seconds = kept_seconds
        self._ledger = ledger
        self._states = states
        self._files = files
        self._swept_seconds = 0.0

    def sweep(self) -> int:
        """Delete old metadata files of every table, at most once a day. Returns their number."""
        now = time.time()
        with self._ledger.read() as unit:
            restored = restores.find_newest_micros(unit) is not None
        if restored or now - self._swept_seconds < _SWEEP_INTERVAL_SECONDS:
            return 0
        latest = now - self._kept_seconds
        count = sum(self._sweep_table(table_uuid, latest) for table_uuid in self._files.tables())
        self._swept_seconds = now
        return count

    def _sweep_table(self, table_uuid: str, modified_until: float) -> int:
        with self._ledger.read() as unit:
            row = tables.find_by_uuid(unit, table_uuid)
            # If an earlier table had this UUID, the revision in a file's name does not tell how old the file is.
            if row is None or row.upstream is not None or len(tables.list_ids(unit, table_uuid)) > 1:
                return 0
        try:
            metadata = self._states.load(row).metadata
        except PvdmError:
            return 0  # only the current metadata file says which old ones may be deleted
        found = [each for each in self._files.list_written(table_uuid) if not each.unfinished]
        found = [each for each in found if each.modified_seconds <= modified_until]
        left_behind = find_left_behind(row, metadata, found)
        for each in left_behind:
            self._files.remove_old(table_uuid, each.location)
        return len(left_behind)


def find_left_behind(row: TableRow, metadata: TableMetadata, found: Sequence[FoundFile]) -> list[FoundFile]:
    """The old metadata files in a table's folder that no commit has deleted and that can be deleted now.

    The revision in their names is lower than any in the metadata log, so no running commit can make one current.
    """
    log = metadata.metadata_log
    if not deletes_old_metadata_files(row, metadata) or not log or log[0].timestamp_ms >= _main_changed_ms(metadata):
        return []
    oldest = revision_of(file_name(log[0].metadata_file))
    if oldest is None:
        return []
    kept = {file_name(row.pointer.location), *(file_name(each.metadata_file) for each in log)}
    revisions = ((each, revision_of(each.name)) for each in found if each.name not in kept)
    return [each for each, revision in revisions if revision is not None and revision < oldest]


def _main_changed_ms(metadata: TableMetadata) -> int:
    """When `main` last changed; -1 if it never did."""
    return metadata.snapshot_log[-1].timestamp_ms if metadata.snapshot_log else -1
