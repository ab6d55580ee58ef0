"""Which files the catalog's tables still name, in any snapshot. A table that cannot be read stops the search."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from pvdm.catalog.state import States
from pvdm.errors import PvdmError
from pvdm.lake.format.avro.container import AVRO_FILE_MAX_BYTES
from pvdm.lake.format.manifest.cache import SizedCache
from pvdm.lake.format.manifest.manifest import read_manifest
from pvdm.lake.format.manifest.manifest_list import MANIFEST_LIST_MAX_BYTES, read_manifest_list
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import Snapshot
from pvdm.lake.paths import Location, parse_location
from pvdm.lake.read.entries import FileReader
from pvdm.ledger import Ledger
from pvdm.ledger.catalog import tables
from pvdm.ledger.catalog.tables import TableRow

# How many manifest lists and manifests one search may read.
REFERENCES_READ_MAX: Final = 2_000
ORPHANS_READ_MAX: Final = 50_000  # in an operator's search (`pvdm orphans`)
NAMED_FILES_MAX: Final = 65_536
_LOOK_AGAIN_SECONDS: Final = 0.5


class UndecidedError(Exception):
    """A table could not be read completely, so it may name any file."""


class NamedFiles:
    """Caches which files manifest lists and manifests name. Iceberg's writers never change either in place.

    If a file was changed in place nevertheless, the search uses the old content. The clean-up of an attempt may then
    keep a file too long, or delete a file that is still named. Only that attempt can lose a file, since no other
    attempt may name its files.
    """

    def __init__(self, *, paths_max: int = NAMED_FILES_MAX) -> None:
        self._cache: SizedCache[str, tuple[str, ...]] = SizedCache(paths_max)

    def get(self, path: str, read: Callable[[], Iterable[str]]) -> tuple[str, ...]:
        """The paths that the list or manifest at this path names; `read` is called if they are not cached."""
        found = self._cache.get(path)
        if found is None:
            found = tuple(read())
            self._cache.put(path, found, 1 + len(found))
        return found


class References:
    """Searches the tables whose pointers changed after an event of the ledger. Others name no newer files.

    Every table of an upstream is searched too, since it may change while its row in the ledger stays the same. Events
    are ordered by their ids, not by times: a commit's timestamp is read before its transaction begins, from the clock
    of its own Steward.
    """

    def __init__(self, ledger: Ledger, states: States, reader: FileReader, named: NamedFiles | None = None) -> None:
        """A caller that searches often gives `named`. Without it every list and manifest is read again."""
        self._ledger = ledger
        self._states = states
        self._reader = reader
        self._named = named or NamedFiles()

    def search_below(
        self,
        folders: Sequence[Location],
        *,
        after_event: int,
        older_snapshots: Mapping[str, int | None],
        entries: bool = True,
    ) -> Search:
        """A search for everything below these folders, metadata files too. Nothing there is older than the event.

        `older_snapshots` has, by table UUID, a snapshot that existed before the folders. This snapshot, its manifests
        and its ancestors are skipped. Set `entries` to False for folders without data files: no manifest is read then.
        """
        walk = _FileWalk(
            self._reader,
            self._named,
            lambda place: any(place.is_under(folder) for folder in folders),
            entries=entries,
            reads_left=REFERENCES_READ_MAX,
        )
        return Search(self._ledger, self._states, walk, older_snapshots, after_event)

    def search_for(
        self, wanted: Collection[Location], *, after_event: int, older_snapshots: Mapping[str, int | None]
    ) -> Search:
        """A search for these files, none of which is older than the event. `older_snapshots` as in `search_below`."""
        files = frozenset(wanted)
        walk = _FileWalk(self._reader, self._named, files.__contains__, entries=True, reads_left=ORPHANS_READ_MAX)
        return Search(self._ledger, self._states, walk, older_snapshots, after_event)


class Search:
    """Finds files that tables name. Every list and manifest is read once: a second look reads only new ones."""

    def __init__(
        self,
        ledger: Ledger,
        states: States,
        walk: _FileWalk,
        older_snapshots: Mapping[str, int | None],
        after_event: int,
    ) -> None:
        self._ledger = ledger
        self._states = states
        self._file_walk = walk
        self._older_snapshots = older_snapshots
        self._after_event = after_event
        self._pointers: dict[str, str] | None = None

    @property
    def referenced(self) -> set[Location]:
        """The files that were found to be named."""
        return self._file_walk.found

    def look_through(self) -> set[Location]:
        """Read the tables that changed since the last look, and all tables of upstreams. Returns every file found."""
        with self._ledger.read() as unit:
            rows = tables.list_live(unit)
            changed: set[str] | None = None  # on the first look: the tables that changed after the event
            if not self._pointers:
                changed = {row.table_id for row in tables.list_changed_after(unit, self._after_event)}
        for row in rows:
            if row.upstream is not None or self._has_changed(row, changed):
                self._visit(row)
        self._pointers = {row.table_id: row.pointer.sha256 for row in rows}
        return self.referenced

    def unreferenced(self, places: Iterable[Location]) -> Iterator[Location]:
        """The places that nothing references, each yielded soon after a look.

        A caller that deletes each place before it asks for the next one never deletes a place that a
        table named at the last look.
        """
        last_look = -math.inf
        for place in places:
            if time.monotonic() - last_look >= _LOOK_AGAIN_SECONDS:
                self.look_through()
                last_look = time.monotonic()
            if place not in self.referenced:
                yield place

    def _visit(self, row: TableRow) -> None:
        name = f"{row.name} ({row.table_uuid})"
        try:
            self._file_walk.visit_table(self._states.load(row).metadata, self._older_snapshots.get(row.table_uuid))
        except PvdmError as error:
            raise UndecidedError(f"the table {name} cannot be read: {error.reason}") from None
        except UndecidedError as error:
            raise UndecidedError(f"of the table {name}, {error}") from None

    def _has_changed(self, row: TableRow, changed: Collection[str] | None) -> bool:
        """Whether the table has changed. `changed` is given at the first look; later ones compare the pointer."""
        if changed is not None:
            return row.table_id in changed
        return self._pointers is None or self._pointers.get(row.table_id) != row.pointer.sha256


@dataclass(eq=False)
class _FileWalk:
    """A walk through the tables that reads every list and manifest once."""

    reader: FileReader
    named: NamedFiles
    wanted: Callable[[Location], bool]  # whether the search is for this file
    entries: bool  # whether manifests are read, for the data files that they name
    reads_left: int
    _seen: set[str] = field(default_factory=set, init=False)
    # The manifest lists whose files are in `found` already, by table UUID and older snapshot.
    _noted_lists: dict[tuple[str | None, int | None], set[str]] = field(default_factory=dict, init=False)
    found: set[Location] = field(default_factory=set, init=False)

    def visit_table(self, metadata: TableMetadata, older_id: int | None) -> None:
        """Note the wanted files that the table names, except in the older snapshot, its manifests and its ancestors."""
        for file in (*metadata.statistics, *metadata.partition_statistics):
            self._note(file.path)
        older = None if older_id is None else metadata.snapshot(older_id)
        older_manifests = set() if older is None else set(self._manifests(metadata, older))
        # Found by ancestry, not by sequence numbers: attempts may share a number.
        skipped = set() if older is None else {each.snapshot_id for each in metadata.ancestry(older.snapshot_id)}
        older_found_id = None if older is None else older.snapshot_id
        noted = self._noted_lists.setdefault((metadata.table_uuid, older_found_id), set())
        for snapshot in metadata.snapshots:
            if snapshot.snapshot_id in skipped or snapshot.manifest_list in noted:
                continue
            try:
                self._visit_snapshot(metadata, snapshot, older_manifests)
            except PvdmError as error:
                raise UndecidedError(f"{_describe(metadata, snapshot)} cannot be read: {error.reason}") from None
            if snapshot.manifest_list is not None:
                noted.add(snapshot.manifest_list)

    def _visit_snapshot(self, metadata: TableMetadata, snapshot: Snapshot, older_manifests: set[str]) -> None:
        if snapshot.manifest_list is not None:
            self._note(snapshot.manifest_list)
        for path in self._manifests(metadata, snapshot):
            if path not in self._seen and path not in older_manifests:
                self._seen.add(path)
                self._note(path)
                for file in self.named.get(path, partial(self._read_entries, path)) if self.entries else ():
                    self._note(file)

    def _read_entries(self, path: str) -> Iterator[str]:
        for entry in read_manifest(self._read(path, AVRO_FILE_MAX_BYTES)).entries:
            yield entry.data_file.file_path

    def _manifests(self, metadata: TableMetadata, snapshot: Snapshot) -> tuple[str, ...]:
        location = snapshot.manifest_list
        if location is None:
            return tuple(snapshot.manifests)
        return self.named.get(location, lambda: self._read_list(location, metadata.format_version))

    def _read_list(self, location: str, format_version: int) -> Iterator[str]:
        data = self._read(location, MANIFEST_LIST_MAX_BYTES)
        for each in read_manifest_list(data, format_version=format_version).manifests:
            yield each.manifest_path

    def _note(self, path: str) -> None:
        place = parse_location(path)
        if self.wanted(place):
            self.found.add(place)

    def _read(self, path: str, max_bytes: int) -> bytes:
        if not self.reads_left:
            raise UndecidedError("more manifests would have to be read than are allowed")
        self.reads_left -= 1
        return self.reader.read(path, max_bytes=max_bytes)


def _describe(metadata: TableMetadata, snapshot: Snapshot) -> str:
    """The snapshot's id, and the refs that point to it. A staging branch is named after its attempt."""
    heads = sorted(name for name, ref in metadata.refs.items() if ref.snapshot_id == snapshot.snapshot_id)
    return f"snapshot {snapshot.snapshot_id}" + (f" of {', '.join(heads)}" if heads else "")
