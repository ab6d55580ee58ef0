"""The files of a snapshot, read through its manifest list and manifests; nothing is taken from anyone's word."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from pvdm.errors import Code
from pvdm.lake.format.json.document import dump_json
from pvdm.lake.format.manifest.entry import EntryStatus, ManifestContent, ManifestEntry
from pvdm.lake.format.manifest.manifest import MANIFEST_MAX_BYTES, ManifestHeader, check_listed, inherit, read_manifest
from pvdm.lake.format.manifest.manifest_list import (
    MANIFEST_LIST_MAX_BYTES,
    ManifestFile,
    ManifestList,
    read_manifest_list,
)
from pvdm.lake.format.partition.spec import PartitionSpec
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import Snapshot

BRANCH_SNAPSHOTS_MAX: Final = 10_000


class FileReader(Protocol):
    """Gives a file's bytes, whole."""

    def read(self, location: str, *, most: int) -> bytes:
        """The bytes at that location; more than `most` are refused."""


@dataclass(frozen=True, slots=True)
class ListedManifest:
    """A manifest as its list has it, and its entries with every number that they inherit."""

    listed: ManifestFile
    header: ManifestHeader
    entries: tuple[ManifestEntry, ...]


@dataclass(frozen=True, slots=True)
class Changes:
    """What a row of snapshots added and removed, taken together.

    `headers` are those of the manifests that list added data files, `deletes` what was done to delete files.
    """

    added: tuple[ManifestEntry, ...]
    removed: tuple[ManifestEntry, ...]
    deletes: tuple[ManifestEntry, ...]
    headers: tuple[ManifestHeader, ...] = ()


def listed_manifests(metadata: TableMetadata, snapshot: Snapshot, reader: FileReader) -> tuple[ManifestFile, ...]:
    """The manifests of a snapshot, in the order of its list."""
    return manifest_list(metadata, snapshot, reader).manifests


def manifest_list(metadata: TableMetadata, snapshot: Snapshot, reader: FileReader) -> ManifestList:
    """A snapshot's own list, with its header."""
    if snapshot.manifest_list is None:
        raise Code.SNAPSHOT_WITHOUT_LIST(got="a snapshot of format 1")
    if snapshot.key_id is not None:
        raise Code.MANIFEST_LIST_INVALID(reason="manifest_list_encrypted", got=f"key {snapshot.key_id[:80]!a}")
    data = reader.read(snapshot.manifest_list, most=MANIFEST_LIST_MAX_BYTES)
    found = read_manifest_list(data, format_version=metadata.format_version)
    _require_own_header(found.header.snapshot_id, snapshot)
    return found


def read_listed(metadata: TableMetadata, listed: ManifestFile, reader: FileReader) -> ListedManifest:
    """One manifest, held to what its list says of it."""
    # Not more than a manifest may have, however long its list says that it is.
    data = reader.read(listed.manifest_path, most=min(max(listed.manifest_length, 0), MANIFEST_MAX_BYTES))
    manifest = read_manifest(data, silent=_silent(metadata, listed))
    check_listed(manifest, listed, size=len(data))
    return ListedManifest(listed, manifest.header, inherit(manifest, listed))


def live_entries(metadata: TableMetadata, snapshot: Snapshot, reader: FileReader) -> Iterator[ManifestEntry]:
    """Every live entry of a snapshot, data and deletes."""
    for listed in listed_manifests(metadata, snapshot, reader):
        for entry in read_listed(metadata, listed, reader).entries:
            if entry.is_live:
                yield entry


def branch_changes(
    metadata: TableMetadata, head: Snapshot, base_id: int | None, reader: FileReader
) -> tuple[tuple[Snapshot, ...], Changes]:
    """The branch's own snapshots from its base to its head, and what they changed; the head must descend from the base.

    Only manifests that one of these snapshots wrote are read: the cost does not grow with the table.
    """
    own: list[Snapshot] = []
    for snapshot in metadata.ancestry(head.snapshot_id):
        if snapshot.snapshot_id == base_id:
            break
        own.append(snapshot)
        if len(own) > BRANCH_SNAPSHOTS_MAX:
            raise Code.BRANCH_TOO_LONG(expected=f"at most {BRANCH_SNAPSHOTS_MAX}", got="more")
    else:
        if base_id is not None:
            raise Code.BRANCH_NOT_ON_BASE(expected=str(base_id), got=str(own[-1].snapshot_id) if own else "nothing")
    return tuple(own), _changes(metadata, own, reader)


def _changes(metadata: TableMetadata, own: list[Snapshot], reader: FileReader) -> Changes:
    added: dict[str, ManifestEntry] = {}
    removed: dict[str, ManifestEntry] = {}
    deletes: list[ManifestEntry] = []
    headers: list[ManifestHeader] = []
    for snapshot in reversed(own):
        for listed in listed_manifests(metadata, snapshot, reader):
            # What a snapshot changes is in manifests that it wrote itself; each is read once.
            if listed.added_snapshot_id != snapshot.snapshot_id:
                continue
            read = read_listed(metadata, listed, reader)
            changed = [
                entry
                for entry in read.entries
                if entry.snapshot_id == snapshot.snapshot_id and entry.status is not EntryStatus.EXISTING
            ]
            if read.header.content is ManifestContent.DELETES:
                deletes.extend(changed)
                continue
            for entry in changed:
                _note(entry, added, removed)
            if any(entry.status is EntryStatus.ADDED for entry in changed):
                headers.append(read.header)
    return Changes(tuple(added.values()), tuple(removed.values()), tuple(deletes), tuple(headers))


def _note(entry: ManifestEntry, added: dict[str, ManifestEntry], removed: dict[str, ManifestEntry]) -> None:
    """A file that the branch itself added and took back leaves no trace; one that is listed twice is refused."""
    path = entry.data_file.file_path
    if entry.status is EntryStatus.ADDED:
        if path in added:
            raise Code.FILE_MISMATCH("a file is added twice", reason="file_listed_twice", got=path)
        added[path] = entry
    elif path in added:
        del added[path]
    elif path in removed:
        raise Code.FILE_MISMATCH(reason="file_removed_twice", got=path)
    else:
        removed[path] = entry


def header_of(metadata: TableMetadata, spec_id: int, content: ManifestContent) -> ManifestHeader:
    """What a manifest of this table says of itself under the current schema and one of its specs."""
    spec = metadata.spec(spec_id)
    if spec is None:
        raise Code.PARTITION_SPEC_INVALID(reason="spec_unknown", got=str(spec_id))
    return ManifestHeader(
        format_version=metadata.format_version,
        content=content,
        schema_text=dump_json(metadata.current_schema.raw).decode(),
        spec=PartitionSpec.from_text(spec_id, dump_json(spec.raw["fields"]).decode()),
        schema_id=metadata.current_schema_id,
    )


def _silent(metadata: TableMetadata, listed: ManifestFile) -> ManifestHeader:
    return header_of(metadata, listed.partition_spec_id, listed.content)


def _require_own_header(named: int | None, snapshot: Snapshot) -> None:
    """A list that was written for another snapshot is another snapshot's."""
    if named is not None and named != snapshot.snapshot_id:
        raise Code.MANIFEST_LIST_OF_OTHER_SNAPSHOT(expected=str(snapshot.snapshot_id), got=str(named))
