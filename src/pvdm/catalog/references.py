"""Which files the catalog's tables still name, in any snapshot; what cannot be read is not decided."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from pvdm.catalog.state import States
from pvdm.errors import PvdmError
from pvdm.lake.entries import FileReader
from pvdm.lake.format.avro import AVRO_FILE_MAX_BYTES
from pvdm.lake.format.manifest import read_manifest
from pvdm.lake.format.manifest_list import MANIFEST_LIST_MAX_BYTES, read_manifest_list
from pvdm.lake.format.metadata import TableMetadata
from pvdm.lake.format.snapshots import Snapshot
from pvdm.lake.paths import Location, parse_location
from pvdm.store import Ledger, tables
from pvdm.store.tables import TableRow

REFERENCES_READ_MAX: Final = 2_000
ORPHANS_READ_MAX: Final = 50_000


class UndecidedError(Exception):
    """A table could not be looked at whole, so it may name any file."""


class References:
    """Looks through every table that changed since a time: an older pointer cannot name a file that is younger."""

    def __init__(self, ledger: Ledger, states: States, reader: FileReader) -> None:
        self._ledger = ledger
        self._states = states
        self._reader = reader

    def under(
        self,
        folders: Sequence[Location],
        *,
        since_micros: int,
        known: dict[str, int | None],
        entries: bool = True,
    ) -> set[Location]:
        """The files below these folders that some snapshot names, metadata files too.

        `known` gives, by table UUID, a snapshot that was there before the folders were: its manifests are not read,
        and nothing of the snapshots before it.
        Without `entries` none is, for folders in which no data file lies.
        """
        with self._ledger.read() as unit:
            rows = tables.changed_since(unit, since_micros)
        look = _Look(
            self._reader,
            lambda place: any(place.is_under(folder) for folder in folders),
            entries=entries,
            reads_max=REFERENCES_READ_MAX,
        )
        _look_at(look, rows, self._states, known)
        return look.found

    def search(self, wanted: Collection[Location], *, known: Mapping[str, int | None]) -> Search:
        """A search for these files, which reads every list and manifest at most once; `known` as above."""
        sought = frozenset(wanted)
        look = _Look(self._reader, sought.__contains__, entries=True, reads_max=ORPHANS_READ_MAX)
        return Search(self._ledger, self._states, look, known)


class Search:
    """Looks for files by their locations; a later look reads only what tables have come to name since."""

    def __init__(self, ledger: Ledger, states: States, look: _Look, known: Mapping[str, int | None]) -> None:
        self._ledger = ledger
        self._states = states
        self._look = look
        self._known = known
        self._pointers: dict[str, str] = {}

    @property
    def referenced(self) -> set[Location]:
        """Those of the files that were found to be named."""
        return self._look.found

    def look_through(self, *, since_micros: int) -> set[Location]:
        """Those of the files that some snapshot names, of tables that changed since then, and those found before."""
        with self._ledger.read() as unit:
            rows = tables.changed_since(unit, since_micros)
        moved = [row for row in rows if row.upstream is not None or self._pointers.get(row.table_id) != _pointer(row)]
        _look_at(self._look, moved, self._states, self._known)
        self._pointers.update((row.table_id, _pointer(row)) for row in moved)
        return self.referenced


def _look_at(look: _Look, rows: Sequence[TableRow], states: States, known: Mapping[str, int | None]) -> None:
    for row in rows:
        try:
            look.at(states.of(row).metadata, known.get(row.table_uuid))
        except PvdmError as error:
            raise UndecidedError(f"the table {_name(row)} cannot be read: {error.code}") from None
        except UndecidedError as why:
            raise UndecidedError(f"of the table {_name(row)}, {why}") from None


def _pointer(row: TableRow) -> str:
    return row.pointer.sha256


class _Look:
    """One look through the tables: every list and manifest once."""

    def __init__(
        self, reader: FileReader, wanted: Callable[[Location], bool], *, entries: bool, reads_max: int
    ) -> None:
        self._reader = reader
        self._wanted = wanted
        self._entries = entries
        self._reads_max = reads_max
        self._lists: dict[str, tuple[str, ...]] = {}
        self._seen: set[str] = set()
        self.found: set[Location] = set()

    def at(self, metadata: TableMetadata, known: int | None) -> None:
        """Everything that the table names in any snapshot, but for the manifests of one that is known."""
        for file in (*metadata.statistics, *metadata.partition_statistics):
            self._note(file.path)
        before = None if known is None else metadata.snapshot(known)
        older = set() if before is None else set(self._manifests(metadata, before))
        # Numbers do not tell which is older: attempts may share one.
        past = set() if before is None else {each.snapshot_id for each in metadata.ancestry(before.snapshot_id)}
        for snapshot in metadata.snapshots:
            if snapshot.snapshot_id in past:
                continue
            try:
                self._at_snapshot(metadata, snapshot, older)
            except PvdmError as error:
                raise UndecidedError(f"{_describe(metadata, snapshot)} cannot be read: {error.code}") from None

    def _at_snapshot(self, metadata: TableMetadata, snapshot: Snapshot, older: set[str]) -> None:
        if snapshot.manifest_list is not None:
            self._note(snapshot.manifest_list)
        for path in self._manifests(metadata, snapshot):
            if path not in self._seen and path not in older:
                self._seen.add(path)
                self._note(path)
                self._note_entries(path)

    def _note_entries(self, path: str) -> None:
        if self._entries:
            for entry in read_manifest(self._read(path, AVRO_FILE_MAX_BYTES)).entries:
                self._note(entry.data_file.file_path)

    def _manifests(self, metadata: TableMetadata, snapshot: Snapshot) -> tuple[str, ...]:
        location = snapshot.manifest_list
        if location is None:
            return tuple(snapshot.manifests)
        found = self._lists.get(location)
        if found is None:
            data = self._read(location, MANIFEST_LIST_MAX_BYTES)
            listed = read_manifest_list(data, format_version=metadata.format_version).manifests
            found = self._lists[location] = tuple(each.manifest_path for each in listed)
        return found

    def _note(self, path: str) -> None:
        place = parse_location(path)
        if self._wanted(place):
            self.found.add(place)

    def _read(self, path: str, most: int) -> bytes:
        if not self._reads_max:
            raise UndecidedError("more manifests would have to be read than are allowed")
        self._reads_max -= 1
        return self._reader.read(path, most=most)


def _describe(metadata: TableMetadata, snapshot: Snapshot) -> str:
    """The snapshot, and the branches that end with it: a staging branch is named after its attempt."""
    heads = sorted(name for name, ref in metadata.refs.items() if ref.snapshot_id == snapshot.snapshot_id)
    return f"snapshot {snapshot.snapshot_id}" + (f" of {', '.join(heads)}" if heads else "")


def _name(row: TableRow) -> str:
    return f"{row.name} ({row.table_uuid})"
