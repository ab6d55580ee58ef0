"""Builds the next snapshot of a branch: its manifests and manifest list, from the branch's head and new files.

The gate (the checks of the Steward, pvdm's service, before `main` changes) builds snapshots of `main` from verified
files. Other callers build snapshots of other branches. The gate's manifests and lists are in the vault, where only the
Steward writes. The header of such a list has the hash of each manifest. A table's first publication *takes over* the
manifests that others wrote: it checks and rewrites them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pvdm.errors import Code
from pvdm.lake.format.json_document import Json, dump_json
from pvdm.lake.format.manifest import write
from pvdm.lake.format.manifest.entry import DataFile, EntryStatus, FileContent, ManifestContent, ManifestEntry
from pvdm.lake.format.manifest.manifest import ManifestHeader
from pvdm.lake.format.manifest.manifest_list import ListHeader, ManifestFile, ManifestList
from pvdm.lake.format.partition_spec import source_types
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import RETENTION_KEYS, Snapshot, SnapshotRef
from pvdm.lake.read import found_manifests
from pvdm.lake.read.entries import FileReader, ListedManifest, header_of, load_manifest_list, read_listed

# A manifest of this size has some thousand entries, and is not merged with others any more.
MERGED_BYTES: Final = 1_048_576
MERGED_ENTRIES_MAX: Final = 50_000  # in one manifest that replaces several manifests taken over


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that must be written and synced before a list or commit names it."""

    name: str
    location: str
    data: bytes


@dataclass(frozen=True, slots=True)
class SnapshotChange:
    """The change to the head: files to add, paths of files to remove, and additional properties of the summary."""

    added: tuple[DataFile, ...]
    removed: frozenset[str]
    summary: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class NewSnapshot:
    """A snapshot that can be committed once its files are written, and how many rows and data files it removes.

    `found_sha256` is the hash over the head's list and manifests if they were taken over from others, else None.
    """

    snapshot_id: int
    updates: tuple[Json, ...]
    files: tuple[NewFile, ...]
    manifest_list_sha256: str
    removed_rows: int
    removed_files: int
    found_sha256: str | None = None

    @property
    def manifest_list(self) -> str:
        """The location of its manifest list, which is the last of its files."""
        return self.files[-1].location


def next_snapshot(
    metadata: TableMetadata,
    change: SnapshotChange,
    *,
    branch: str,
    snapshot_id: int,
    now_ms: int,
    place: Callable[[str], str],
    reader: FileReader,
    merge_from: int | None = None,
    in_vault: bool = False,
) -> NewSnapshot:
    """Build the next snapshot of the branch, which may be new. `place` gives the location for a file name.

    `merge_from` or more small manifests are merged, so that a list does not grow forever. With `in_vault` the new
    files are in the vault, and the head's manifests are taken over unless the Steward wrote all of them.
    """
    writer = _Writer(metadata, snapshot_id, place)
    ref = metadata.refs.get(branch)
    head = None if ref is None else metadata.snapshot(ref.snapshot_id)
    head_manifests = _HeadManifests(writer, head, reader, in_vault=in_vault)
    kept = head_manifests.keep_manifests(change.removed, merge_from)
    listed = (*writer.add_files(change.added), *kept)
    name = f"snap-{snapshot_id}.avro"
    written = write.write_manifest_list(
        ListHeader(
            format_version=metadata.format_version,
            snapshot_id=snapshot_id,
            parent_snapshot_id=None if head is None else head.snapshot_id,
            sequence_number=metadata.next_sequence_number if metadata.format_version > 1 else None,
            first_row_id=metadata.next_row_id if metadata.format_version > 2 else None,
        ),
        listed,
        extra=head_manifests.header_hashes(listed) if in_vault else (),
    )
    snapshot: dict[str, Json] = {
        "snapshot-id": snapshot_id,
        **({} if head is None else {"parent-snapshot-id": head.snapshot_id}),
        "sequence-number": metadata.next_sequence_number,
        "timestamp-ms": now_ms,
        "manifest-list": place(name),
        "schema-id": metadata.current_schema_id,
        "summary": dict(_make_summary(head_manifests.totals(), change, writer.removed)),
    }
    if metadata.format_version > 2:
        first_row_id = metadata.next_row_id or 0
        next_row_id = written.next_row_id or first_row_id
        snapshot |= {"first-row-id": first_row_id, "added-rows": next_row_id - first_row_id}
    files = (*writer.files, NewFile(name, place(name), written.data))
    removed_data = [file for file in writer.removed if file.content is FileContent.DATA]
    return NewSnapshot(
        snapshot_id,
        _make_updates(snapshot, branch, ref),
        files,
        hashlib.sha256(written.data).hexdigest(),
        _count_rows(removed_data),
        len(removed_data),
        head_manifests.found_sha256,
    )


def _make_updates(snapshot: dict[str, Json], branch: str, ref: SnapshotRef | None) -> tuple[Json, ...]:
    """The updates that add the snapshot and move the branch. They keep its retention settings."""
    update: dict[str, Json] = {} if ref is None else {key: ref.raw[key] for key in RETENTION_KEYS if key in ref.raw}
    update |= {"action": "set-snapshot-ref", "ref-name": branch, "type": "branch"}
    update["snapshot-id"] = snapshot["snapshot-id"]
    return {"action": "add-snapshot", "snapshot": snapshot}, update


class _Writer:
    """Builds the manifests of the snapshot. The caller writes `files`."""

    def __init__(self, metadata: TableMetadata, snapshot_id: int, place: Callable[[str], str]) -> None:
        self.metadata = metadata
        self.snapshot_id = snapshot_id
        self._place = place
        self._folder = place("any").rpartition("/")[0]
        self.files: list[NewFile] = []
        self.removed: list[DataFile] = []

    def is_own(self, location: str) -> bool:
        """Whether the location is in the folder of the new files."""
        return location.rpartition("/")[0] == self._folder

    def add_files(self, files: Sequence[DataFile]) -> tuple[ManifestFile, ...]:
        """Add a manifest of new files; none if there is no file."""
        if not files:
            return ()
        header = header_of(self.metadata, self.metadata.default_spec_id, ManifestContent.DATA)
        entries = [
            ManifestEntry(status=EntryStatus.ADDED, data_file=file, snapshot_id=self.snapshot_id) for file in files
        ]
        return (self._add_manifest(header.content, write.write_manifest(header, entries)),)

    def rewrite(self, group: Sequence[ListedManifest], is_removed: Callable[[ManifestEntry], bool]) -> ManifestFile:
        """Merge the manifests into one. Removed files become DELETED; others keep their sequence numbers."""
        version = self.metadata.format_version
        entries = []
        for entry in [entry for manifest in group for entry in manifest.entries if entry.is_live]:
            if is_removed(entry):
                self.removed.append(entry.data_file)
                entries.append(write.as_deleted(entry, self.snapshot_id, version))
            else:
                entries.append(write.as_existing(entry, version))
        first = group[0].header
        header = _header_with_sources(self.metadata, first.spec.spec_id, first.content)
        return self._add_manifest(header.content, write.write_manifest(header, entries))

    def _add_manifest(self, content: ManifestContent, manifest: write.WrittenManifest) -> ManifestFile:
        name = f"{self.snapshot_id}-{'m' if content is ManifestContent.DATA else 'd'}{len(self.files)}.avro"
        location = self._place(name)
        self.files.append(NewFile(name, location, manifest.data))
        return manifest.list_entry(location, self.snapshot_id)


def _header_with_sources(metadata: TableMetadata, spec_id: int, content: ManifestContent) -> ManifestHeader:
    """As `header_of`, but if the current schema lacks a source column, with the newest schema that has all of them."""
    header = header_of(metadata, spec_id, content)
    source_ids = {source for field in header.spec.fields for source in field.source_ids}
    for schema in (metadata.current_schema, *reversed(metadata.schemas)):
        if source_ids <= source_types(to_model(schema)).keys():
            return replace(header, schema_text=dump_json(schema.raw).decode(), schema_id=schema.schema_id)
    return header


class _HeadManifests:
    """The manifests of the branch's head: listed again, merged, or taken over."""

    def __init__(self, writer: _Writer, head: Snapshot | None, reader: FileReader, *, in_vault: bool) -> None:
        self._writer = writer
        self._head = head
        self._files = found_manifests.UnchangingFiles(reader)
        self._in_vault = in_vault
        self._check: found_manifests.FoundCheck | None = None  # set if the head's manifests are taken over
        self._hashes: dict[str, str] = {}  # of the manifests, by path, as the head's list has them
        self.found_sha256: str | None = None

    def keep_manifests(self, removed: frozenset[str], merge_from: int | None) -> tuple[ManifestFile, ...]:
        """The head's manifests without the removed files. Raises if one of these files is not live.

        Manifests are rewritten if they are many small ones, have a removed file or deletes of it, or are taken over.
        """
        head, metadata = self._head, self._writer.metadata
        listing = None if head is None else load_manifest_list(metadata, head, self._files)
        reused, taken_over = self._split_by_writer(listing)
        kept: list[ManifestFile] = []
        missing = set(removed)
        for group in _groups_to_merge(self._writer, reused, merge_from):
            if not removed and len(group) == 1:
                kept += group
                continue
            manifests, has_removed = self._read_group(group, removed, missing)
            must_rewrite = has_removed or len(group) > 1
            kept.append(self._writer.rewrite(manifests, _removal_test(group, removed)) if must_rewrite else group[0])
        for group in _groups_to_take_over(taken_over):
            manifests, _ = self._read_group(group, removed, missing)
            if any(entry.is_live for each in manifests for entry in each.entries):
                kept.append(self._writer.rewrite(manifests, _removal_test(group, removed)))
        if self._check is not None and head is not None and listing is not None:
            self._check.finish()
            self.found_sha256 = found_manifests.hash_found_files(head, listing, self._files.hashes)
        if missing:
            raise Code.REMOVED_FILE_NOT_LIVE(got=min(missing))
        return tuple(kept)

    def header_hashes(self, listed: Sequence[ManifestFile]) -> list[tuple[str, bytes]]:
        """The hashes for the header of the next list: of its manifests, and of the files that were taken over."""
        hashes = self._hashes | {file.location: hashlib.sha256(file.data).hexdigest() for file in self._writer.files}
        # The hashes of all manifests, in the list's order and without a separator.
        extra = [(found_manifests.MANIFESTS_KEY, "".join(hashes[each.manifest_path] for each in listed).encode())]
        return extra if self.found_sha256 is None else [*extra, (found_manifests.FOUND_KEY, self.found_sha256.encode())]

    def totals(self) -> dict[str, str]:
        """The head's totals: counted if every manifest was read, else from its summary."""
        if self._head is None:
            return dict.fromkeys(found_manifests.TOTALS, "0")
        if self._check is not None:
            return {name: str(count) for name, count in self._check.totals.items()}
        summary = self._head.summary
        return {name: summary[f"total-{name}"] for name in found_manifests.TOTALS if f"total-{name}" in summary}

    def _split_by_writer(self, listing: ManifestList | None) -> tuple[list[ManifestFile], list[ManifestFile]]:
        """The live manifests that may be listed again, and the manifests to take over.

        In the vault all manifests are taken over, or none, because the Steward's lists name only its own manifests.
        """
        if self._head is None or listing is None:
            return [], []
        # A manifest that has only DELETED entries tells what its own snapshot removed. It is not listed again.
        live = [each for each in listing.manifests if each.added_files_count != 0 or each.existing_files_count != 0]
        if not self._in_vault:
            return live, []
        hashes = found_manifests.read_manifest_hashes(
            listing.file.text(found_manifests.MANIFESTS_KEY), len(listing.manifests)
        )
        are_own = all(self._writer.is_own(each.manifest_path) for each in listing.manifests)
        if hashes is not None and are_own and self._writer.is_own(self._head.manifest_list or ""):
            self._hashes = dict(zip((each.manifest_path for each in listing.manifests), hashes, strict=True))
            return live, []
        self._check = found_manifests.FoundCheck(self._writer.metadata, self._head, listing.header)
        return [], list(listing.manifests)

    def _read_group(
        self, group: Sequence[ManifestFile], removed: frozenset[str], missing: set[str]
    ) -> tuple[list[ListedManifest], bool]:
        """The group's manifests, and whether one has a file to remove. Found files are removed from `missing`."""
        manifests = [self._read_manifest(each) for each in group]
        is_removed = _removal_test(group, removed)
        found = [entry for each in manifests for entry in each.entries if entry.is_live and is_removed(entry)]
        missing -= {entry.data_file.file_path for entry in found}
        return manifests, bool(found)

    def _read_manifest(self, listed: ManifestFile) -> ListedManifest:
        manifest = read_listed(self._writer.metadata, listed, self._files)
        expected, got = self._hashes.get(listed.manifest_path), self._files.hashes[listed.manifest_path]
        if expected not in (None, got):
            got = f"{got} for {listed.manifest_path}"
            raise Code.VAULT_DAMAGED(reason="manifest_changed", expected=expected, got=got)
        if self._check is not None:
            self._check.add(manifest)
        return manifest


def _removal_test(group: Sequence[ManifestFile], removed: frozenset[str]) -> Callable[[ManifestEntry], bool]:
    """The test whether an entry is removed: a data file by its path, a delete file if its only data file is removed.

    Delete files of several data files, and equality deletes, stay in the snapshot.
    """
    if group[0].content is ManifestContent.DATA:
        return lambda entry: entry.data_file.file_path in removed

    def is_dangling(entry: ManifestEntry) -> bool:
        file = entry.data_file
        return file.content is FileContent.POSITION_DELETES and file.referenced_data_file in removed

    return is_dangling


def _groups_to_take_over(taken_over: Sequence[ManifestFile]) -> Iterator[list[ManifestFile]]:
    """Groups of manifests to take over, each of one spec and content and within the limits of a merged manifest."""
    by_kind: dict[tuple[int, ManifestContent], list[ManifestFile]] = {}
    for each in taken_over:
        by_kind.setdefault((each.partition_spec_id, each.content), []).append(each)
    for group in by_kind.values():
        part: list[ManifestFile] = []
        for each in group:
            size = sum(listed.manifest_length for listed in (*part, each))
            if part and (size > MERGED_BYTES or sum(map(_count_live_entries, (*part, each))) > MERGED_ENTRIES_MAX):
                yield part
                part = []
            part.append(each)
        yield part


def _count_live_entries(listed: ManifestFile) -> int:
    """The number of live entries. If the list has no counts: the maximum, so that the manifest is not merged."""
    added, existing = listed.added_files_count, listed.existing_files_count
    return MERGED_ENTRIES_MAX if added is None or existing is None else added + existing


def _groups_to_merge(
    writer: _Writer, listed: Sequence[ManifestFile], merge_from: int | None
) -> list[list[ManifestFile]]:
    """Group small data manifests of one spec if there are `merge_from` of them. Any other manifest is a group alone."""
    if merge_from is None:
        return [[each] for each in listed]
    small: dict[int, list[ManifestFile]] = {}
    for each in listed:
        is_small = each.content is ManifestContent.DATA and each.manifest_length < MERGED_BYTES
        if is_small and writer.is_own(each.manifest_path):
            small.setdefault(each.partition_spec_id, []).append(each)
    many = [group for group in small.values() if len(group) >= merge_from]
    merged = {each.manifest_path for group in many for each in group}
    alone = [[each] for each in listed if each.manifest_path not in merged]
    return alone + [part for group in many for part in _split_by_size(group)]


def _split_by_size(group: Sequence[ManifestFile]) -> Iterator[list[ManifestFile]]:
    """Split the group into parts of at least `MERGED_BYTES`; the last part may be smaller."""
    part: list[ManifestFile] = []
    for each in group:
        part.append(each)
        if sum(listed.manifest_length for listed in part) >= MERGED_BYTES:
            yield part
            part = []
    if part:
        yield part


def _make_summary(totals: Mapping[str, str], change: SnapshotChange, removed: Sequence[DataFile]) -> dict[str, str]:
    """The summary with the keys of Iceberg's writers; totals continue from the head if it has them."""
    data = [file for file in removed if file.content is FileContent.DATA]
    deletes = [file for file in removed if file.content is not FileContent.DATA]
    # Key: the name in the summary. Value: how much the snapshot adds, and how much it removes.
    changed = {
        "data-files": (len(change.added), len(data)),
        "records": (_count_rows(change.added), _count_rows(data)),
        "files-size": tuple(sum(file.file_size_in_bytes for file in files) for files in (change.added, removed)),
        "delete-files": (0, len(deletes)),
        "position-deletes": (0, _count_rows(deletes)),
        "equality-deletes": (0, 0),
    }
    summary = {"operation": "overwrite" if change.removed else "append", **change.summary}
    for name, (plus, minus) in changed.items():
        removal = "deleted" if name in ("data-files", "records") else "removed"
        for prefix, count in (("added", plus), (removal, minus)):
            if count:
                summary[f"{prefix}-{name}"] = str(count)
        before = totals.get(name)
        if before is not None and before.isascii() and before.isdigit():
            summary[f"total-{name}"] = str(int(before) + plus - minus)
    return summary


def _count_rows(files: Sequence[DataFile]) -> int:
    return sum(file.record_count for file in files)
