"""The next snapshot of a branch: manifests and list from its head plus new files, entry by entry.

The gate writes what `main` shows so, from verified files, and a stager without a JVM what its own branch shows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pvdm.errors import VerificationError
from pvdm.lake.entries import FileReader, ListedManifest, header_of, listed_manifests, read_listed
from pvdm.lake.format.document import Json
from pvdm.lake.format.manifest_entry import DataFile, EntryStatus, FileContent, ManifestContent, ManifestEntry
from pvdm.lake.format.manifest_list import ListHeader, ManifestFile
from pvdm.lake.format.manifest_list_write import write_manifest_list
from pvdm.lake.format.manifest_write import WrittenManifest, carried, removed, write_manifest
from pvdm.lake.format.metadata import TableMetadata
from pvdm.lake.format.snapshots import RETENTION, Snapshot, SnapshotRef
from pvdm.lake.manifest_root import MANIFESTS_KEY, manifests_root

# A manifest of this size, of some thousand entries, is read at once and not written together with others any more.
MERGED_BYTES: Final = 1_048_576


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that has to lie there, synced, before anything points to it."""

    name: str
    location: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be shown: these files beside those of the head, without those that are removed."""

    added: tuple[DataFile, ...]
    removed: frozenset[str]
    summary: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Publication:
    """A snapshot that is ready to be swapped in, with its files; and how much it takes away of the head's data."""

    snapshot_id: int
    updates: tuple[Json, ...]
    files: tuple[NewFile, ...]
    manifest_list_sha256: str
    removed_rows: int
    removed_files: int

    @property
    def manifest_list(self) -> str:
        """Where its list lies, which is written last."""
        return self.files[-1].location


def next_snapshot(
    metadata: TableMetadata,
    wanted: Wanted,
    *,
    branch: str,
    snapshot_id: int,
    now_ms: int,
    place: Callable[[str], str],
    reader: FileReader,
    merge_from: int | None = None,
) -> Publication:
    """The next snapshot of the branch, which need not be there yet; `place` says where a file of that name will lie.

    From `merge_from` small manifests in that place on they are written together, so that a list does not grow forever.
    """
    writer = _Writer(metadata, snapshot_id, place)
    ref = metadata.refs.get(branch)
    head = None if ref is None else metadata.snapshot(ref.snapshot_id)
    kept = () if head is None else _kept(writer, head, wanted.removed, reader, merge_from)
    listed = (*writer.added(wanted.added), *kept)
    name = f"snap-{snapshot_id}.avro"
    written = write_manifest_list(
        ListHeader(
            format_version=metadata.format_version,
            snapshot_id=snapshot_id,
            parent_snapshot_id=None if head is None else head.snapshot_id,
            sequence_number=metadata.next_sequence_number if metadata.format_version > 1 else None,
            first_row_id=metadata.next_row_id if metadata.format_version > 2 else None,
        ),
        listed,
        extra=[(MANIFESTS_KEY, _root(writer.files))],
    )
    snapshot: dict[str, Json] = {
        "snapshot-id": snapshot_id,
        **({} if head is None else {"parent-snapshot-id": head.snapshot_id}),
        "sequence-number": metadata.next_sequence_number,
        "timestamp-ms": now_ms,
        "manifest-list": place(name),
        "schema-id": metadata.current_schema_id,
        "summary": dict(_summary(head, wanted, writer.gone)),
    }
    if metadata.format_version > 2:
        first = metadata.next_row_id or 0
        snapshot |= {"first-row-id": first, "added-rows": (written.next_row_id or first) - first}
    updates: tuple[Json, ...] = (
        {"action": "add-snapshot", "snapshot": snapshot},
        {
            **_retention(ref),
            "action": "set-snapshot-ref",
            "ref-name": branch,
            "type": "branch",
            "snapshot-id": snapshot_id,
        },
    )
    files = (*writer.files, NewFile(name, place(name), written.data))
    gone = [file.record_count for file in writer.gone if file.content is FileContent.DATA]
    return Publication(snapshot_id, updates, files, hashlib.sha256(written.data).hexdigest(), sum(gone), len(gone))


def _retention(ref: SnapshotRef | None) -> dict[str, Json]:
    """How long the branch keeps what: an update that does not say it again would take it away."""
    return {} if ref is None else {key: ref.raw[key] for key in RETENTION if key in ref.raw}


def _root(manifests: Sequence[NewFile]) -> bytes:
    """What binds the bytes of the manifests to the list, for auditors."""
    return manifests_root((file.location, hashlib.sha256(file.data).hexdigest()) for file in manifests).encode()


class _Writer:
    """Writes manifests and remembers them."""

    def __init__(self, metadata: TableMetadata, snapshot_id: int, place: Callable[[str], str]) -> None:
        self.metadata = metadata
        self.snapshot_id = snapshot_id
        self._place = place
        self._home = place("any").rpartition("/")[0]
        self.files: list[NewFile] = []
        self.gone: list[DataFile] = []

    def is_own(self, listed: ManifestFile) -> bool:
        """Whether it lies where this writer writes, and nobody else does."""
        return listed.manifest_path.rpartition("/")[0] == self._home

    def added(self, files: Sequence[DataFile]) -> tuple[ManifestFile, ...]:
        """A manifest of new files; none where there is no file."""
        if not files:
            return ()
        header = header_of(self.metadata, self.metadata.default_spec_id, ManifestContent.DATA)
        entries = [
            ManifestEntry(status=EntryStatus.ADDED, data_file=file, snapshot_id=self.snapshot_id) for file in files
        ]
        return (self._written(header.content, write_manifest(header, entries)),)

    def rewritten(self, group: Sequence[ListedManifest], gone: Callable[[ManifestEntry], bool]) -> ManifestFile:
        """The manifests again, as one: what goes is DELETED by this snapshot, what stays keeps every number it has."""
        version = self.metadata.format_version
        entries = []
        for entry in (entry for read in group for entry in read.entries if entry.is_live):
            if gone(entry):
                self.gone.append(entry.data_file)
                entries.append(removed(entry, self.snapshot_id, version))
            else:
                entries.append(carried(entry, version))
        first = group[0].header
        header = header_of(self.metadata, first.spec.spec_id, first.content)
        return self._written(header.content, write_manifest(header, entries))

    def _written(self, content: ManifestContent, manifest: WrittenManifest) -> ManifestFile:
        name = f"{self.snapshot_id}-{'m' if content is ManifestContent.DATA else 'd'}{len(self.files)}.avro"
        location = self._place(name)
        self.files.append(NewFile(name, location, manifest.data))
        return manifest.listed(location, self.snapshot_id)


def _kept(
    writer: _Writer, head: Snapshot, wanted: frozenset[str], reader: FileReader, merge_from: int | None
) -> tuple[ManifestFile, ...]:
    """The head's manifests; written again are many small ones, and those with a removed file or a delete of one."""
    listed = [each for each in listed_manifests(writer.metadata, head, reader) if _alive(each)]
    missing = set(wanted)
    found: list[ManifestFile] = []
    for group in _groups(writer, listed, merge_from):
        if not wanted and len(group) == 1:
            found += group
            continue
        read = [read_listed(writer.metadata, each, reader) for each in group]
        gone = _dangling(wanted) if group[0].content is ManifestContent.DELETES else _named(wanted)
        hit = [entry for each in read for entry in each.entries if entry.is_live and gone(entry)]
        missing -= {entry.data_file.file_path for entry in hit}
        found.append(writer.rewritten(read, gone) if hit or len(group) > 1 else group[0])
    if missing:
        raise VerificationError(
            "removed_file_not_live",
            "a file that would be removed is not there any more",
            expected="a live file of main",
            got=min(missing),
        )
    return tuple(found)


def _groups(writer: _Writer, listed: Sequence[ManifestFile], merge_from: int | None) -> list[list[ManifestFile]]:
    """What is written together, if it is written: small manifests of one spec where they are many, else each alone."""
    if merge_from is None:
        return [[each] for each in listed]
    small: dict[int, list[ManifestFile]] = {}
    for each in listed:
        if each.content is ManifestContent.DATA and each.manifest_length < MERGED_BYTES and writer.is_own(each):
            small.setdefault(each.partition_spec_id, []).append(each)
    many = [group for group in small.values() if len(group) >= merge_from]
    merged = {each.manifest_path for group in many for each in group}
    alone = [[each] for each in listed if each.manifest_path not in merged]
    return alone + [part for group in many for part in _filled(group)]


def _filled(group: Sequence[ManifestFile]) -> Iterator[list[ManifestFile]]:
    """The group in parts that are each no longer small; the last one may be."""
    part: list[ManifestFile] = []
    for each in group:
        part.append(each)
        if sum(one.manifest_length for one in part) >= MERGED_BYTES:
            yield part
            part = []
    if part:
        yield part


def _alive(listed: ManifestFile) -> bool:
    """A manifest of deleted entries alone belongs to the snapshot that wrote it."""
    return listed.added_files_count != 0 or listed.existing_files_count != 0


def _named(paths: frozenset[str]) -> Callable[[ManifestEntry], bool]:
    return lambda entry: entry.data_file.file_path in paths


def _dangling(paths: frozenset[str]) -> Callable[[ManifestEntry], bool]:
    """Delete files of one data file that goes; those of several, and equality deletes, stay and do no harm."""

    def gone(entry: ManifestEntry) -> bool:
        file = entry.data_file
        return file.content is FileContent.POSITION_DELETES and file.referenced_data_file in paths

    return gone


def _summary(head: Snapshot | None, wanted: Wanted, gone: Sequence[DataFile]) -> dict[str, str]:
    """As Iceberg's own writers word it; totals are carried on from the head where it has them."""
    data = [file for file in gone if file.content is FileContent.DATA]
    deletes = [file for file in gone if file.content is not FileContent.DATA]
    changed = {
        "data-files": (len(wanted.added), len(data)),
        "records": (sum(file.record_count for file in wanted.added), sum(file.record_count for file in data)),
        "files-size": (
            sum(file.file_size_in_bytes for file in wanted.added),
            sum(file.file_size_in_bytes for file in gone),
        ),
        "delete-files": (0, len(deletes)),
        "position-deletes": (0, sum(file.record_count for file in deletes)),
        "equality-deletes": (0, 0),
    }
    made = {"operation": "overwrite" if wanted.removed else "append", **wanted.summary}
    for name, (plus, minus) in changed.items():
        made |= {f"added-{name}": str(plus)} if plus else {}
        made |= {("deleted-" if name in ("data-files", "records") else "removed-") + name: str(minus)} if minus else {}
        before = "0" if head is None else head.summary.get(f"total-{name}")
        if before is not None and before.isascii() and before.isdigit():
            made[f"total-{name}"] = str(int(before) + plus - minus)
    return made
