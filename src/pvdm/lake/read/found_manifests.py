"""The manifests of a snapshot that the Steward did not write: read, checked, and bound by their hashes.

What they show is taken as found. The checks are about what comes after it: no number in them may reach into a later
snapshot, and everything that a reader goes by must be said once and the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

from pvdm.errors import Code, InputError
from pvdm.lake.file_context import in_file
from pvdm.lake.format.manifest.entry import DataFile, FileContent, ManifestContent
from pvdm.lake.format.manifest.manifest import ManifestHeader
from pvdm.lake.format.manifest.manifest_list import ListHeader, ManifestFile, ManifestList
from pvdm.lake.format.partition.spec import PartitionSpec
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import Snapshot
from pvdm.lake.read.entries import FileReader, ListedManifest, header_of, manifest_list, read_listed
from pvdm.lake.read.manifest_root import found_root
from pvdm.model.schema import Type


class SteadyFiles:
    """Reads files that somebody else can write: one that is read again must have the same bytes."""

    def __init__(self, inner: FileReader) -> None:
        self._inner = inner
        self.seen: dict[str, str] = {}

    def read(self, location: str, *, most: int) -> bytes:
        """The bytes at that location."""
        data = self._inner.read(location, most=most)
        sha256 = hashlib.sha256(data).hexdigest()
        if self.seen.setdefault(location, sha256) != sha256:
            raise Code.FOUND_FILE_CHANGED(expected=self.seen[location], got=f"{sha256} for {location}")
        return data


class FoundCheck:
    """Checks the manifests of one snapshot, one after the other; `finish` compares the row ids of all of them."""

    def __init__(self, metadata: TableMetadata, snapshot: Snapshot, header: ListHeader) -> None:
        self._metadata = metadata
        self._snapshot = snapshot
        self._paths: set[str] = set()
        self._ids: list[tuple[int, int, str]] = []
        self._totals = dict.fromkeys(
            ("data-files", "records", "files-size", "delete-files", "position-deletes", "equality-deletes"), 0
        )
        require_list_of(metadata, snapshot, header)

    @property
    def totals(self) -> Mapping[str, int]:
        """What the live entries add up to, by the names of a summary's totals."""
        return self._totals

    def add(self, read: ListedManifest) -> None:
        """Check one manifest, and note what its live entries have."""
        listed = read.listed
        with in_file(listed.manifest_path):
            if listed.manifest_path in self._paths:
                raise _refused("found_manifest_twice", "a manifest is listed twice", "each once", listed.manifest_path)
            self._paths.add(listed.manifest_path)
            self._require_number("sequence_number", listed.sequence_number)
            self._require_number("min_sequence_number", listed.min_sequence_number)
            require_header(self._metadata, listed, read.header)
            for entry in (each for each in read.entries if each.is_live):
                self._require_number("sequence_number", entry.sequence_number)
                self._require_number("file_sequence_number", entry.file_sequence_number)
                self._count(entry.data_file)

    def finish(self) -> None:
        """No two files have a row id in common."""
        self._ids.sort()
        for (first, count, path), (following, _, other) in zip(self._ids, self._ids[1:], strict=False):
            if first + count > following:
                raise _refused(
                    "found_row_ids_overlap",
                    "two files have the same row ids",
                    f"row ids from {first + count} for {other}",
                    f"{following}, which {path} has",
                )

    def _require_number(self, name: str, number: int | None) -> None:
        if (number or 0) > self._snapshot.sequence_number:
            raise _refused(
                "found_sequence_ahead",
                f"{name} is ahead of the snapshot, so that it would be in force for what comes later",
                f"at most {self._snapshot.sequence_number}",
                number,
            )

    def _count(self, file: DataFile) -> None:
        totals = self._totals
        totals["files-size"] += file.file_size_in_bytes
        if file.content is FileContent.DATA:
            totals["data-files"] += 1
            totals["records"] += file.record_count
            self._note_row_ids(file)
            return
        totals["delete-files"] += 1
        kind = "position" if file.content is FileContent.POSITION_DELETES else "equality"
        totals[f"{kind}-deletes"] += file.record_count

    def _note_row_ids(self, file: DataFile) -> None:
        if file.first_row_id is None or not file.record_count:
            return
        require_row_ids(self._metadata, file.first_row_id, file.record_count)
        self._ids.append((file.first_row_id, file.record_count, file.file_path))


def check_found(metadata: TableMetadata, snapshot: Snapshot, reader: FileReader) -> str:
    """Read and check every manifest of the snapshot; the hash that binds its list and all of them."""
    steady = SteadyFiles(reader)
    with in_file(snapshot.manifest_list or "the snapshot"):
        listing = manifest_list(metadata, snapshot, steady)
        check = FoundCheck(metadata, snapshot, listing.header)
    for listed in listing.manifests:
        with in_file(listed.manifest_path):
            read = read_listed(metadata, listed, steady)
        check.add(read)
    check.finish()
    return found_root(bound_files(snapshot, listing, steady.seen))


def bound_files(snapshot: Snapshot, listing: ManifestList, seen: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The list and every manifest of it, with the hashes that were seen."""
    if snapshot.manifest_list is not None:
        yield snapshot.manifest_list, seen[snapshot.manifest_list]
    for listed in listing.manifests:
        yield listed.manifest_path, seen[listed.manifest_path]


def require_list_of(metadata: TableMetadata, snapshot: Snapshot, header: ListHeader) -> None:
    """The snapshot is not ahead of its table, and its list was written for it."""
    if snapshot.sequence_number > metadata.last_sequence_number:
        raise _refused(
            "found_sequence_ahead",
            "the snapshot is ahead of its table",
            f"at most {metadata.last_sequence_number}",
            snapshot.sequence_number,
        )
    if metadata.format_version > 2 and snapshot.first_row_id is not None:
        require_row_ids(metadata, snapshot.first_row_id, snapshot.added_rows or 0)
    for what, said, expected in (
        ("sequence number", header.sequence_number, snapshot.sequence_number),
        ("first row id", header.first_row_id, snapshot.first_row_id),
    ):
        if said is not None and said != expected:
            raise _refused("found_list_differs", f"the list says another {what} than its snapshot", expected, said)


def require_row_ids(metadata: TableMetadata, first: int, count: int) -> None:
    """These row ids were given away before: the next publication gives others."""
    following = metadata.next_row_id or 0
    if first + count > following:
        raise _refused(
            "found_row_ids_ahead",
            "rows have ids that the table has not given away yet",
            f"row ids below {following}",
            f"{first} to {first + count - 1}",
        )


def require_header(metadata: TableMetadata, listed: ManifestFile, header: ManifestHeader) -> None:
    """The manifest's own words about its table are the table's: partition values are read and compared by them."""
    spec = header_of(metadata, listed.partition_spec_id, ManifestContent.DATA).spec
    if _words(header.spec) != _words(spec):
        raise _refused(
            "found_spec_differs",
            f"the manifest describes partition spec {spec.spec_id} otherwise than the table",
            spec.to_text(),
            header.spec.to_text(),
        )
    types = header.partition_types()
    if types not in _known_types(metadata, header.schema_id, spec):
        raise _refused(
            "found_schema_differs",
            "the manifest gives the partition columns other types than the table",
            "the types of a schema of the table",
            ", ".join("none" if each is None else str(each) for each in types),
        )


def _words(spec: PartitionSpec) -> tuple[object, ...]:
    return tuple((field.field_id, field.source_ids, field.transform) for field in spec.fields)


def _known_types(metadata: TableMetadata, schema_id: int | None, spec: PartitionSpec) -> set[tuple[Type | None, ...]]:
    """The types of the partition values under the schema of that id, or under any where the table has no such one."""
    named = None if schema_id is None else metadata.schema(schema_id)
    schemas = metadata.schemas if named is None else (named,)
    return {spec.result_types(to_model(schema)) for schema in schemas}


def _refused(code: str, what: str, expected: object, got: object) -> InputError:
    return InputError(code, what, expected=str(expected)[:300], got=str(got)[:300])
