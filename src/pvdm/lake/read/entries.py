"""The files of a snapshot, read from its manifest list and manifests, and the files that an operation replaces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from pvdm.errors import Code
from pvdm.lake.format.json_document import dump_json
from pvdm.lake.format.manifest.entry import DataFile, EntryStatus, ManifestContent, ManifestEntry
from pvdm.lake.format.manifest.manifest import MANIFEST_MAX_BYTES, ManifestHeader, check_listed, inherit, read_manifest
from pvdm.lake.format.manifest.manifest_list import (
    MANIFEST_LIST_MAX_BYTES,
    ManifestFile,
    ManifestList,
    read_manifest_list,
)
from pvdm.lake.format.partition_spec import PartitionSpec
from pvdm.lake.format.partition_value import tuple_key, value_key
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import Snapshot
from pvdm.model.filter.literal import parse_literal
from pvdm.model.schema import Type
from pvdm.model.statements.core import Operation

BRANCH_SNAPSHOTS_MAX: Final = 10_000


class FileReader(Protocol):
    """Reads whole files."""

    def read(self, location: str, *, max_bytes: int) -> bytes:
        """The bytes at that location. Raises if they are more than `max_bytes`."""


@dataclass(frozen=True, slots=True)
class ListedManifest:
    """A manifest's entry in its list, and its own entries with their inherited numbers."""

    listed: ManifestFile
    header: ManifestHeader
    entries: tuple[ManifestEntry, ...]


@dataclass(frozen=True, slots=True)
class Changes:
    """What a series of snapshots added and removed in total.

    `deletes` has the entries of delete files. `headers` has the headers of the manifests that list added data files.
    """

    added: tuple[ManifestEntry, ...]
    removed: tuple[ManifestEntry, ...]
    deletes: tuple[ManifestEntry, ...]
    headers: tuple[ManifestHeader, ...] = ()


def listed_manifests(metadata: TableMetadata, snapshot: Snapshot, reader: FileReader) -> tuple[ManifestFile, ...]:
    """The manifests of a snapshot, in the order of its list."""
    return load_manifest_list(metadata, snapshot, reader).manifests


def load_manifest_list(metadata: TableMetadata, snapshot: Snapshot, reader: FileReader) -> ManifestList:
    """Read a snapshot's manifest list. Raises if it was written for another snapshot or is encrypted."""
    if snapshot.manifest_list is None:
        raise Code.SNAPSHOT_UNUSABLE(reason="snapshot_without_list", got="a snapshot of format 1")
    if snapshot.key_id is not None:
        raise Code.MANIFEST_LIST_INVALID(reason="manifest_list_encrypted", got=f"key {snapshot.key_id[:80]!a}")
    data = reader.read(snapshot.manifest_list, max_bytes=MANIFEST_LIST_MAX_BYTES)
    found = read_manifest_list(data, format_version=metadata.format_version)
    listed_id = found.header.snapshot_id
    if listed_id not in (None, snapshot.snapshot_id):
        expected = str(snapshot.snapshot_id)
        raise Code.FILE_MISMATCH(reason="manifest_list_of_other_snapshot", expected=expected, got=str(listed_id))
    return found


def read_listed(metadata: TableMetadata, listed: ManifestFile, reader: FileReader) -> ListedManifest:
    """Read one manifest. Raises if its entry in the list is wrong."""
    # The list may give any length: not more than the limit is read.
    data = reader.read(listed.manifest_path, max_bytes=min(max(listed.manifest_length, 0), MANIFEST_MAX_BYTES))
    manifest = read_manifest(data, defaults=header_of(metadata, listed.partition_spec_id, listed.content))
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
    """The branch's own snapshots, newest first, and what they changed. Raises if its head is not based on `base_id`.

    Only manifests that these snapshots wrote are read, so that the cost does not grow with the table.
    """
    own: list[Snapshot] = []
    for snapshot in metadata.ancestry(head.snapshot_id):
        if snapshot.snapshot_id == base_id:
            break
        own.append(snapshot)
        if len(own) > BRANCH_SNAPSHOTS_MAX:
            raise Code.BRANCH_TOO_LONG(expected=f"at most {BRANCH_SNAPSHOTS_MAX}", got="more")
    else:  # the base is not among the ancestors
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
            # The changes of a snapshot are in the manifests that it wrote; each is read once.
            if listed.added_snapshot_id != snapshot.snapshot_id:
                continue
            manifest = read_listed(metadata, listed, reader)
            own_entries = [entry for entry in manifest.entries if entry.snapshot_id == snapshot.snapshot_id]
            changed = [entry for entry in own_entries if entry.status is not EntryStatus.EXISTING]
            if manifest.header.content is ManifestContent.DELETES:
                deletes.extend(changed)
                continue
            for entry in changed:
                _record_change(entry, added, removed)
            if any(entry.status is EntryStatus.ADDED for entry in changed):
                headers.append(manifest.header)
    return Changes(tuple(added.values()), tuple(removed.values()), tuple(deletes), tuple(headers))


def _record_change(entry: ManifestEntry, added: dict[str, ManifestEntry], removed: dict[str, ManifestEntry]) -> None:
    """Add the entry to `added` or `removed`, or take its file out of `added`. Raises for a file listed twice."""
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
    """The header of a manifest of this table under the current schema and one of its specs."""
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


# Declared partition values: the name of each field, and its value as text or None for null.
_Partition = Sequence[tuple[str, str | None]]


def replaced_files(
    metadata: TableMetadata,
    base_id: int | None,
    operation: Operation,
    partition: _Partition,
    added: Sequence[DataFile],
    reader: FileReader,
) -> frozenset[str]:
    """The paths of the live data files of the snapshot `base_id` that the operation replaces."""
    if operation is Operation.APPEND or base_id is None:
        return frozenset()
    live = _live_data_files(metadata, base_id, reader)
    if operation is Operation.OVERWRITE:
        return frozenset(file.file_path for _, file in live)
    if partition:
        declared = _declared_values(metadata, partition)
        return frozenset(file.file_path for _, file in live if _has_declared_values(declared, file))
    # As in Spark's overwritePartitions: the files in the partitions of the added files. Files of other specs stay.
    spec = header_of(metadata, metadata.default_spec_id, ManifestContent.DATA).spec
    keys = {tuple_key(file.partition) for file in added}
    # A table without partitions is one partition, also for files of older specs.
    is_whole_table = spec.is_unpartitioned and bool(added)
    return frozenset(
        file.file_path
        for spec_id, file in live
        if is_whole_table or (spec_id == spec.spec_id and tuple_key(file.partition) in keys)
    )


def has_partition_values(metadata: TableMetadata, partition: _Partition, file: DataFile) -> bool:
    """Whether the file has all declared partition values. False if the spec of the file lacks one of the fields."""
    return _matches(_declared_values(metadata, partition), file)


def _has_declared_values(declared: Mapping[int, Any], file: DataFile) -> bool:
    """Whether the file has the declared values. Raises if it is not partitioned by these fields."""
    if missing := declared.keys() - file.partition.keys():
        raise Code.BOUNDARY_UNCLEAR(expected=f"live files partitioned by field {min(missing)}", got=file.file_path)
    return _matches(declared, file)


def _matches(declared: Mapping[int, Any], file: DataFile) -> bool:
    partition = file.partition
    return all(id_ in partition and value_key(partition[id_]) == key for id_, key in declared.items())


def declared_partition_fields(metadata: TableMetadata, names: Iterable[str]) -> dict[str, tuple[int, Type]]:
    """Key: a partition field for which a contract (a table's rules) declares a value. Value: the field's id and type.

    The key is the field's name or, for an identity transform, its column's name. Raises if the table lacks a field.
    """
    header = header_of(metadata, metadata.default_spec_id, ManifestContent.DATA)
    known: dict[str, tuple[int, Type]] = {}
    for field, type_ in zip(header.spec.fields, header.partition_types(), strict=True):
        if type_ is None:
            continue
        if field.transform.name == "identity" and len(field.source_ids) == 1:
            column = metadata.current_schema.fields.get(field.source_ids[0])
            known[column.name if column else field.name] = field.field_id, type_
        known[field.name] = field.field_id, type_
    for name in names:
        if name not in known:
            expected, got = ", ".join(known) or "no partition", ascii(name[:80])[1:-1]
            hint = "boundary.partition of the contract names fields of the target's partition spec"
            raise Code.PARTITION_UNKNOWN(expected=expected, got=got, hint=hint)
    return {name: known[name] for name in names}


def _declared_values(metadata: TableMetadata, partition: _Partition) -> dict[int, Any]:
    """The `value_key` of each declared value, by partition field id."""
    fields = declared_partition_fields(metadata, [name for name, _ in partition])
    keys: dict[int, Any] = {}
    for name, text in partition:
        field_id, type_ = fields[name]
        keys[field_id] = value_key(None if text is None else parse_literal(text, type_))
    return keys


def _live_data_files(metadata: TableMetadata, base_id: int, reader: FileReader) -> Iterator[tuple[int, DataFile]]:
    """The live data files of the snapshot, each with the id of its partition spec."""
    base = metadata.snapshot(base_id)
    if base is None:
        raise Code.SNAPSHOT_UNUSABLE("the table has no such snapshot", reason="snapshot_unknown", got=str(base_id))
    for listed in listed_manifests(metadata, base, reader):
        if listed.content is ManifestContent.DATA:
            for entry in read_listed(metadata, listed, reader).entries:
                if entry.is_live:
                    yield listed.partition_spec_id, entry.data_file
