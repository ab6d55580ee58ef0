"""Finds what one snapshot of `main` changed, by comparing its manifests with its parent's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from pvdm.lake.format.manifest.entry import DataFile, EntryStatus, FileContent, ManifestEntry
from pvdm.lake.format.manifest.manifest_list import ManifestFile, ManifestList
from pvdm.lake.format.manifest.write import as_existing
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import Snapshot
from pvdm.lake.read.entries import load_manifest_list, read_listed
from pvdm.lake.read.found_manifests import check_found
from pvdm.metadata.audit.evidence import ManifestFiles
from pvdm.trust.refusal import refused

EntryFacts: TypeAlias = tuple[DataFile, int | None, int | None]
"""The file (row ids left out), the entry's data sequence number, and its file sequence number."""


@dataclass(frozen=True, slots=True)
class SnapshotChanges:
    """The files that a snapshot added and removed, and the partition specs under which it added them."""

    added: tuple[DataFile, ...]
    removed: tuple[DataFile, ...]
    spec_ids: frozenset[int]

    @property
    def rows_added(self) -> int:
        """The rows of the added files, by the manifests' counts."""
        return sum(file.record_count for file in self.added)

    @property
    def rows_removed(self) -> int:
        """The rows of the removed files, by the manifests' counts."""
        return sum(file.record_count for file in self.removed)


@dataclass(frozen=True, slots=True)
class _SnapshotReader:
    """Adapts `ManifestFiles` to the reader interface of `lake`, for one snapshot."""

    files: ManifestFiles
    snapshot_id: int

    def read(self, location: str, *, max_bytes: int) -> bytes:
        return self.files.read(self.snapshot_id, location, max_bytes=max_bytes)


class Manifests:
    """The lists and manifests of one table's snapshots."""

    def __init__(self, metadata: TableMetadata, files: ManifestFiles) -> None:
        self._metadata = metadata
        self._files = files

    def load_list(self, snapshot: Snapshot) -> ManifestList:
        """The snapshot's manifest list. Raises if it lists a manifest twice."""
        found = load_manifest_list(self._metadata, snapshot, _SnapshotReader(self._files, snapshot.snapshot_id))
        require_listed_once(found.manifests)
        return found

    def check_found(self, snapshot: Snapshot) -> str:
        """Repeat a protection's checks of the snapshot's list and manifests. Returns the hash over these files."""
        return check_found(self._metadata, snapshot, _SnapshotReader(self._files, snapshot.snapshot_id))

    def read_entries(self, named_by: int, listed: Sequence[ManifestFile]) -> tuple[ManifestEntry, ...]:
        """The entries of manifests that the snapshot `named_by` lists, with the sequence numbers that they inherit."""
        reader = _SnapshotReader(self._files, named_by)
        return tuple(entry for each in listed for entry in read_listed(self._metadata, each, reader).entries)


@dataclass(frozen=True, slots=True)
class Step:
    """The step from a parent snapshot to `snapshot`: the manifests that each of the two lists."""

    snapshot: Snapshot
    listed: tuple[ManifestFile, ...]
    before: tuple[ManifestFile, ...] | None  # the parent's; empty without a parent, None if the parent has expired

    @property
    def written(self) -> tuple[ManifestFile, ...]:
        """The manifests that the snapshot wrote itself."""
        return tuple(each for each in self.listed if each.added_snapshot_id == self.snapshot.snapshot_id)

    @property
    def kept(self) -> tuple[ManifestFile, ...]:
        """The manifests that it carries over from its parent."""
        return tuple(each for each in self.listed if each.added_snapshot_id != self.snapshot.snapshot_id)

    def find_replaced(self) -> tuple[ManifestFile, ...]:
        """The parent's manifests that have live files and are no longer listed. Raises if a kept manifest differs."""
        return () if self.before is None else require_carried(self.before, self.kept)

    def find_changes(self, entries: Sequence[ManifestEntry], replaced: Sequence[ManifestEntry]) -> SnapshotChanges:
        """The files added and removed. `entries` are of the written manifests, `replaced` of the replaced manifests."""
        if self.before is not None:
            require_rewritten([entry for entry in replaced if entry.is_live], entries)
        require_own(entries, self.snapshot)
        added = tuple(entry.data_file for entry in entries if entry.status is EntryStatus.ADDED)
        removed = [entry.data_file for entry in entries if entry.status is EntryStatus.DELETED]
        require_no_deletes(added)
        data = tuple(file for file in removed if file.content is FileContent.DATA)
        require_dangling(data, removed)
        specs = frozenset(each.partition_spec_id for each in self.written if each.added_files_count)
        return SnapshotChanges(added, data, specs)


def require_listed_once(listed: Sequence[ManifestFile]) -> None:
    """No manifest is listed twice, since its files would count twice."""
    path, count = max(Counter(each.manifest_path for each in listed).items(), key=lambda pair: pair[1], default=("", 0))
    if count > 1:
        raise refused("audit_manifest_twice", "each manifest once", path)


def require_carried(before: Sequence[ManifestFile], kept: Sequence[ManifestFile]) -> tuple[ManifestFile, ...]:
    """The parent lists every kept manifest identically. Returns its other manifests that have live files."""
    known = {each.manifest_path: each for each in before}
    for each in kept:
        old = known.pop(each.manifest_path, None)
        if old is None or _normalize(old, each) != _normalize(each, each):
            wanted = "a manifest of the parent, unchanged" if old is None else "the parent's entry for it"
            raise refused("audit_manifest_not_carried", wanted, each.manifest_path)
    return tuple(each for each in known.values() if each.added_files_count != 0 or each.existing_files_count != 0)


def _normalize(listed: ManifestFile, newer: ManifestFile) -> ManifestFile:
    """The entry as a later format shows it: 0 for a missing sequence number, `newer`'s row id for a missing row id."""
    return replace(
        listed,
        sequence_number=listed.sequence_number or 0,
        min_sequence_number=listed.min_sequence_number or 0,
        first_row_id=newer.first_row_id if listed.first_row_id is None else listed.first_row_id,
    )


def require_rewritten(live: Sequence[ManifestEntry], entries: Sequence[ManifestEntry]) -> None:
    """The new manifests keep or remove every live entry of replaced manifests, with sequence numbers and row ids."""
    old = Counter(map(entry_facts, live))
    new = Counter(entry_facts(entry) for entry in entries if entry.status is not EntryStatus.ADDED)
    if old != new:
        got = f"{(old - new).total()} lost and {(new - old).total()} that were not there"
        raise refused("audit_entries_not_carried", f"{old.total()} entries as the parent has them", got)
    rows = {(entry.data_file.file_path, entry.data_file.first_row_id) for entry in live}
    for entry in entries:
        path, row_id = entry.data_file.file_path, entry.data_file.first_row_id
        # A file that had no row ids gets them when the table is upgraded to format 3.
        if entry.status is EntryStatus.EXISTING and rows.isdisjoint(((path, row_id), (path, None))):
            raise refused("audit_row_ids_not_carried", "those that it had", path)


def entry_facts(entry: ManifestEntry) -> EntryFacts:
    """The facts of an entry that do not depend on its writer."""
    file = replace(as_existing(entry, 2).data_file, first_row_id=None)
    return file, entry.sequence_number, entry.file_sequence_number


def require_own(entries: Iterable[ManifestEntry], snapshot: Snapshot) -> None:
    """Entries that are marked as added or removed name this snapshot."""
    for entry in entries:
        if entry.status is not EntryStatus.EXISTING and entry.snapshot_id != snapshot.snapshot_id:
            got = f"{entry.snapshot_id} for {entry.data_file.file_path}"
            raise refused("audit_entry_of_other_snapshot", snapshot.snapshot_id, got)


def require_no_deletes(added: Iterable[DataFile]) -> None:
    """No publication adds a delete file, because no proof covers a delete file."""
    for file in added:
        if file.content is not FileContent.DATA:
            raise refused("audit_delete_file_added", "data files", file.file_path)


def require_dangling(data: Iterable[DataFile], removed: Iterable[DataFile]) -> None:
    """A delete file is removed only if it is about one data file that is removed too. Else deleted rows come back."""
    paths = {file.file_path for file in data}
    for file in removed:
        is_dangling = file.content is FileContent.POSITION_DELETES and file.referenced_data_file in paths
        if file.content is not FileContent.DATA and not is_dangling:
            raise refused("audit_delete_file_removed", "delete files of removed data files", file.file_path)
