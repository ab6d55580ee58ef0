"""Metadata files that no pointer ever named: what crashes leave behind, found and, once they are old, removed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pvdm.lake.files import FoundFile, MetadataFiles, file_name
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import pending_deletes, tables
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record import events
from pvdm.ledger.restore import restores

# Far longer than any commit takes. Clocks may lie about it: what is safe is so by the ledger (`Orphans._doom`).
ORPHAN_AGE_MAX_SECONDS: Final = 7 * 86_400
_SWEEP_SECONDS: Final = 86_400


@dataclass(frozen=True, slots=True)
class _Left:
    """Files of a table that no pointer had named when its history was read, up to these steps of its rows."""

    table_uuid: str
    files: Sequence[FoundFile]
    seen: dict[str, int]


class Orphans:
    """Looks for them, and sweeps them away; safe beside other Stewards of the same ledger, whatever their clocks say.

    Only folders of tables that this ledger knows are looked at: nobody can tell whose a file in another folder is.
    Files go by their names, which are drawn at random: a place that is now reached by another path is no reason to
    remove. Once the ledger was restored nothing is swept: a pointer that was lost may have named any of the files.
    """

    def __init__(self, ledger: Ledger, clock: LedgerClock, files: MetadataFiles) -> None:
        self._ledger = ledger
        self._clock = clock
        self._files = files
        self._judged_seconds = 0.0

    def find(self, *, age_seconds: float = ORPHAN_AGE_MAX_SECONDS) -> list[FoundFile]:
        """The files that no pointer of this ledger has ever named, and that were written so long ago."""
        return [file for left in self._between(0.0, time.time() - age_seconds) for file in left.files]

    def sweep(self) -> int:
        """Remove those that are old enough; says how many they were. What was judged once is not judged again."""
        latest, count = time.time() - ORPHAN_AGE_MAX_SECONDS, 0
        with self._ledger.read() as unit:
            restored = restores.newest_micros(unit) is not None
        if restored or latest - self._judged_seconds < _SWEEP_SECONDS:
            return 0
        for left in self._between(self._judged_seconds, latest):
            for file in self._doom(left):
                self._files.remove(file)
                count += 1
        self._judged_seconds = latest
        return count

    def _between(self, earliest: float, latest: float) -> Iterator[_Left]:
        for table_uuid in self._files.folders():
            files = [each for each in self._files.written(table_uuid) if earliest < each.modified_seconds <= latest]
            left = self._left(table_uuid, files)
            if left.files:
                yield left

    def _left(self, table_uuid: str, files: Sequence[FoundFile]) -> _Left:
        if not files:
            return _Left(table_uuid, (), {})
        with self._ledger.read() as unit:
            ids = tables.ids_of(unit, table_uuid)
        shown: set[str] = set()
        seen = {table_id: self._read_shown(table_id, shown) for table_id in ids}
        return _Left(table_uuid, _unnamed(files, shown) if ids else (), seen)

    def _doom(self, left: _Left) -> list[FoundFile]:
        """Those that are never pointed to from now on: a commit that has begun its swap is waited for, and what it
        shows stays; one that comes later finds the name doomed and writes another file."""

        def work(unit: Unit) -> list[FoundFile]:
            tables.lock(unit, [left.table_uuid])
            shown: set[str] = set()
            for table_id in tables.ids_of(unit, left.table_uuid):
                _note(unit, table_id, shown, left.seen.get(table_id, 0), None)
            files = _unnamed(left.files, shown)
            pending_deletes.add(unit, left.table_uuid, [each.name for each in files if not each.unfinished])
            return files

        return self._ledger.transact(work, at_micros=self._clock.now_micros())

    def _read_shown(self, table_id: str, shown: set[str]) -> int:
        """Everything that the table ever showed, read in short transactions; gives the id of the last step."""
        after = 0
        while True:
            with self._ledger.read() as unit:
                last = _note(unit, table_id, shown, after, events.EVENTS_PAGE_MAX_ROWS)
            if last == after:
                return after
            after = last


def _unnamed(files: Sequence[FoundFile], shown: set[str]) -> list[FoundFile]:
    """An unfinished file never had a name that a pointer could use; without it its writer fails and commits nothing."""
    return [each for each in files if each.unfinished or each.name not in shown]


def _note(unit: Unit, table_id: str, shown: set[str], after: int, count: int | None) -> int:
    for step in events.history(unit, "tables", table_id, after=after, count=count):
        if step.new is not None:
            shown.add(file_name(step.new["metadata_location"]))
        after = step.event_id
    return after
