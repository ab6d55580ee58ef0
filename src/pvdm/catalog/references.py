"""Which files of some folders the catalog's tables still name, in any snapshot; what cannot be read is not decided."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
        look = _Look(self._reader, folders, entries=entries)
        for row in rows:
            try:
                look.at(self._states.of(row).metadata, known.get(row.table_uuid))
            except PvdmError as error:
                raise UndecidedError(f"the table {_name(row)} cannot be looked at: {error.code}") from None
        return look.found


class _Look:
    """One look through the tables: every manifest once."""

    def __init__(self, reader: FileReader, folders: Sequence[Location], *, entries: bool) -> None:
        self._reader = reader
        self._folders = folders
        self._entries = entries
        self._seen: set[str] = set()
        self._reads = 0
        self.found: set[Location] = set()

    def at(self, metadata: TableMetadata, known: int | None) -> None:
        """Everything that the table names in any snapshot, but for the manifests of one that is known."""
        for file in (*metadata.statistics, *metadata.partition_statistics):
            self._note(file.path)
        before = None if known is None else metadata.snapshot(known)
        older = set() if before is None else set(self._manifests(metadata, before))
        for snapshot in metadata.snapshots:
            if before is not None and _is_older(snapshot, before):
                continue
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

    def _manifests(self, metadata: TableMetadata, snapshot: Snapshot) -> Iterator[str]:
        if snapshot.manifest_list is None:
            yield from snapshot.manifests
            return
        data = self._read(snapshot.manifest_list, MANIFEST_LIST_MAX_BYTES)
        for listed in read_manifest_list(data, format_version=metadata.format_version).manifests:
            yield listed.manifest_path

    def _note(self, path: str) -> None:
        place = parse_location(path)
        if any(place.is_under(folder) for folder in self._folders):
            self.found.add(place)

    def _read(self, path: str, most: int) -> bytes:
        self._reads += 1
        if self._reads > REFERENCES_READ_MAX:
            raise UndecidedError(f"more than {REFERENCES_READ_MAX} manifests would have to be read")
        return self._reader.read(path, most=most)


def _is_older(snapshot: Snapshot, before: Snapshot) -> bool:
    """The catalog gives every snapshot the next sequence number; those of format 1 are all 0 and tell nothing."""
    return 0 < before.sequence_number >= snapshot.sequence_number


def _name(row: TableRow) -> str:
    return f"{row.name} ({row.table_uuid})"
