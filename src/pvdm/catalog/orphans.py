"""Metadata files that no pointer ever named: what crashes leave behind, found and, once they are old, removed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from pvdm.errors import ConflictError
from pvdm.lake.files import FoundFile, MetadataFiles
from pvdm.store import Ledger, Unit, events, restores, tables, views
from pvdm.store.clock import LedgerClock

# Far longer than any commit takes: what is younger may still become a table's document.
ORPHAN_AGE_MAX_SECONDS: Final = 7 * 86_400
_MICROS: Final = 1_000_000
_SWEEP_SECONDS: Final = 86_400


def require_young(written_seconds: float) -> None:
    """A file that lay half of that age is not shown any more: whoever slept over it writes a new one."""
    if time.time() - written_seconds >= ORPHAN_AGE_MAX_SECONDS / 2:
        raise ConflictError("table_moved", "the new document lay too long", expected="one that was just written")


class Orphans:
    """Looks for them, and sweeps them away; safe beside other Stewards of the same ledger.

    Only folders of tables that this ledger knows are looked at: nobody can tell whose a file in another folder is.
    What was written before the ledger was last restored stays, since a pointer that was lost may have named it. Files
    go by their names, which are drawn at random: a place that is now reached by another path is no reason to remove.
    """

    def __init__(self, ledger: Ledger, clock: LedgerClock, files: MetadataFiles) -> None:
        self._ledger = ledger
        self._clock = clock
        self._files = files
        self._judged_seconds = 0.0

    def find(self, *, age_seconds: float = ORPHAN_AGE_MAX_SECONDS) -> list[FoundFile]:
        """The files that no pointer has ever named, and that were written so long ago."""
        return list(self._between(0.0, time.time() - age_seconds))

    def sweep(self) -> int:
        """Remove those that are old enough; says how many they were. What was judged once is not judged again."""
        latest, count = time.time() - ORPHAN_AGE_MAX_SECONDS, 0
        if latest - self._judged_seconds < _SWEEP_SECONDS:
            return 0
        for orphan in self._between(self._judged_seconds, latest):
            self._files.remove(orphan)
            count += 1
        self._judged_seconds = latest
        return count

    def _between(self, earliest: float, latest: float) -> Iterator[FoundFile]:
        with self._ledger.read() as unit:
            restored = restores.newest_micros(unit) or 0
        earliest = max(earliest, restored / _MICROS)
        for table_uuid in self._files.folders():
            yield from self._of_table(table_uuid, earliest, latest)

    def _of_table(self, table_uuid: str, earliest: float, latest: float) -> list[FoundFile]:
        found = [each for each in self._files.written(table_uuid) if earliest < each.modified_seconds <= latest]
        if not found:
            return []
        with self._ledger.read() as unit:
            ids = [] if views.has_been(unit, table_uuid) else tables.ids_of(unit, table_uuid)
        if not ids:
            return []
        shown: set[str] = set()
        seen = {table_id: self._read_shown(table_id, shown) for table_id in ids}
        left = [each for each in found if each.unfinished or each.name not in shown]
        if left:
            self._read_rest(table_uuid, seen, shown)
        return [each for each in left if each.unfinished or each.name not in shown]

    def _read_shown(self, table_id: str, shown: set[str]) -> int:
        """Everything that the table ever showed, read in short transactions; gives the id of the last step."""
        after = 0
        while True:
            with self._ledger.read() as unit:
                last = _note(unit, table_id, shown, after, events.EVENTS_PAGE_MAX_ROWS)
            if last == after:
                return after
            after = last

    def _read_rest(self, table_uuid: str, seen: dict[str, int], shown: set[str]) -> None:
        """What came to be shown meanwhile. A commit that has begun is waited for; one that begins later with a file
        so old refuses it (`require_young`)."""
        with self._ledger.write(at_micros=self._clock.now_micros()) as unit:
            tables.lock(unit, [table_uuid])
            for table_id in tables.ids_of(unit, table_uuid):
                _note(unit, table_id, shown, seen.get(table_id, 0), None)


def _note(unit: Unit, table_id: str, shown: set[str], after: int, count: int | None) -> int:
    for step in events.history(unit, "tables", table_id, after=after, count=count):
        if step.new is not None:
            shown.add(step.new["metadata_location"].rpartition("/")[2])
        after = step.event_id
    return after
