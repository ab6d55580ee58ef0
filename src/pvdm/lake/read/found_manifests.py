"""Reads, checks and hashes found manifests, which are those that the Steward (pvdm's service) did not write.

Their rows are accepted as they are. The checks protect later snapshots: no sequence number or row id may belong to a
later snapshot, and all facts that readers use must agree.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Final

from pvdm.errors import Code, PvdmError
from pvdm.lake.format.manifest.entry import DataFile, FileContent, ManifestContent
from pvdm.lake.format.manifest.manifest import ManifestHeader
from pvdm.lake.format.manifest.manifest_list import ListHeader, ManifestFile, ManifestList
from pvdm.lake.format.partition_spec import PartitionSpec
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import Snapshot
from pvdm.lake.paths import in_file
from pvdm.lake.read.entries import FileReader, ListedManifest, header_of, load_manifest_list, read_listed

# Names of totals in a snapshot's summary, without the prefix `total-`.
TOTALS: Final = ("data-files", "records", "files-size", "delete-files", "position-deletes", "equality-deletes")


class UnchangingFiles:
    """Reads files that others can write. Raises if a file that is read again has other bytes."""

    def __init__(self, inner: FileReader) -> None:
        self._inner = inner
        self.hashes: dict[str, str] = {}
        """The SHA-256 of each file that was read, by location."""

    def read(self, location: str, *, max_bytes: int) -> bytes:
        """The bytes at that location. Raises as the inner reader, and if they differ from an earlier read."""
        data = self._inner.read(location, max_bytes=max_bytes)
        sha256 = hashlib.sha256(data).hexdigest()
        expected = self.hashes.setdefault(location, sha256)
        if expected != sha256:
            got = f"{sha256} for {location}"
            raise Code.PUBLISHED_FILE_CHANGED(reason="found_file_changed", expected=expected, got=got)
        return data


class FoundCheck:
    """Checks the found manifests of one snapshot one by one; `finish` compares the row ids of all."""

    def __init__(self, metadata: TableMetadata, snapshot: Snapshot, header: ListHeader) -> None:
        self._metadata = metadata
        self._snapshot = snapshot
        self._paths: set[str] = set()
        self._row_ids: list[tuple[int, int, str]] = []  # first row id, number of rows, path of the file
        self.totals = dict.fromkeys(TOTALS, 0)
        """The totals of the live entries, by their names in a snapshot summary."""
        require_list_of(metadata, snapshot, header)

    def add(self, manifest: ListedManifest) -> None:
        """Check one manifest and count its live entries."""
        listed = manifest.listed
        with in_file(listed.manifest_path):
            if listed.manifest_path in self._paths:
                raise _refused("found_manifest_twice", "each once", listed.manifest_path)
            self._paths.add(listed.manifest_path)
            self._require_not_ahead("sequence_number", listed.sequence_number)
            self._require_not_ahead("min_sequence_number", listed.min_sequence_number)
            require_header(self._metadata, listed, manifest.header)
            for entry in (each for each in manifest.entries if each.is_live):
                self._require_not_ahead("sequence_number", entry.sequence_number)
                self._require_not_ahead("file_sequence_number", entry.file_sequence_number)
                self._count(entry.data_file)

    def finish(self) -> None:
        """Raise if two files have a row id in common."""
        self._row_ids.sort()
        for (first, count, path), (next_first, _, next_path) in pairwise(self._row_ids):
            if first + count > next_first:
                expected = f"row ids from {first + count} for {next_path}"
                raise _refused("found_row_ids_overlap", expected, f"{next_first}, which {path} has")

    def _require_not_ahead(self, name: str, number: int | None) -> None:
        if (number or 0) > self._snapshot.sequence_number:
            raise _refused("found_sequence_ahead", f"{name} of at most {self._snapshot.sequence_number}", number)

    def _count(self, file: DataFile) -> None:
        totals = self.totals
        totals["files-size"] += file.file_size_in_bytes
        if file.content is FileContent.DATA:
            totals["data-files"] += 1
            totals["records"] += file.record_count
            if file.first_row_id is not None and file.record_count:
                require_row_ids(self._metadata, file.first_row_id, file.record_count)
                self._row_ids.append((file.first_row_id, file.record_count, file.file_path))
            return
        totals["delete-files"] += 1
        kind = "position" if file.content is FileContent.POSITION_DELETES else "equality"
        totals[f"{kind}-deletes"] += file.record_count


def check_found(metadata: TableMetadata, snapshot: Snapshot, reader: FileReader) -> str:
    """Read and check every manifest of the snapshot. Returns one hash over its list and all manifests."""
    files = UnchangingFiles(reader)
    with in_file(snapshot.manifest_list or "the snapshot"):
        listing = load_manifest_list(metadata, snapshot, files)
        check = FoundCheck(metadata, snapshot, listing.header)
    for listed in listing.manifests:
        with in_file(listed.manifest_path):
            manifest = read_listed(metadata, listed, files)
        check.add(manifest)
    check.finish()
    return hash_found_files(snapshot, listing, files.hashes)


def require_list_of(metadata: TableMetadata, snapshot: Snapshot, header: ListHeader) -> None:
    """Raise if the snapshot is ahead of its table, or its list was written for another snapshot."""
    if snapshot.sequence_number > metadata.last_sequence_number:
        expected = f"a snapshot's sequence number of at most {metadata.last_sequence_number}"
        raise _refused("found_sequence_ahead", expected, snapshot.sequence_number)
    if metadata.format_version > 2 and snapshot.first_row_id is not None:
        require_row_ids(metadata, snapshot.first_row_id, snapshot.added_rows or 0)
    for what, in_header, in_table in (
        ("sequence number", header.sequence_number, snapshot.sequence_number),
        ("first row id", header.first_row_id, snapshot.first_row_id),
    ):
        if in_header is not None and in_header != in_table:
            raise _refused("found_list_differs", f"{what} {in_table}", in_header)


def require_row_ids(metadata: TableMetadata, first: int, count: int) -> None:
    """Raise if the table has not assigned these row ids yet: the next publication would assign them again."""
    next_row_id = metadata.next_row_id or 0
    if first + count > next_row_id:
        raise _refused("found_row_ids_ahead", f"row ids below {next_row_id}", f"{first} to {first + count - 1}")


def require_header(metadata: TableMetadata, listed: ManifestFile, header: ManifestHeader) -> None:
    """Raise if the manifest's spec or types differ from the table's, because partition values are read by them."""
    spec = header_of(metadata, listed.partition_spec_id, ManifestContent.DATA).spec
    if _without_names(header.spec) != _without_names(spec):
        raise _refused("found_spec_differs", spec.to_text(), header.spec.to_text())
    # The schema that the header names, or any schema of the table if the table does not have that one.
    named = None if header.schema_id is None else metadata.schema(header.schema_id)
    schemas = metadata.schemas if named is None else (named,)
    types = header.partition_types()
    if types not in {spec.result_types(to_model(schema)) for schema in schemas}:
        got = ", ".join("none" if each is None else str(each) for each in types)
        raise _refused("found_schema_differs", "the types of a schema of the table", got)


def _without_names(spec: PartitionSpec) -> list[tuple[object, ...]]:
    return [(field.field_id, field.source_ids, field.transform) for field in spec.fields]


def _refused(reason: str, expected: object, got: object) -> PvdmError:
    return Code.FOUND_MANIFESTS_INVALID(reason=reason, expected=str(expected)[:300], got=str(got)[:300])


# Keys in the header of a manifest list that the Steward wrote.
MANIFESTS_KEY: Final = "pvdm.manifests-sha256"
FOUND_KEY: Final = "pvdm.found-sha256"
_DOMAIN: Final = b"pvdm/found/v1\0"
_HEX: Final = re.compile(r"(?:[0-9a-f]{64})*", re.ASCII)


def read_manifest_hashes(text: str | None, count: int) -> tuple[str, ...] | None:
    """The hashes of a list's manifests in its order; None if the header lacks a hash for each of them."""
    if text is None or len(text) != 64 * count or _HEX.fullmatch(text) is None:
        return None
    return tuple(text[start : start + 64] for start in range(0, len(text), 64))


def hash_found_files(snapshot: Snapshot, listing: ManifestList, hashes: Mapping[str, str]) -> str:
    """One hash over a snapshot's manifest list and manifests: the location of each, and its SHA-256 from `hashes`.

    The files are in the order of their locations. The length of each location and hash is hashed before it.
    """
    digest = hashlib.sha256(_DOMAIN)
    for location in sorted(filter(None, (snapshot.manifest_list, *(each.manifest_path for each in listing.manifests)))):
        for field in (location.encode(), bytes.fromhex(hashes[location])):
            digest.update(len(field).to_bytes(8, "big") + field)
    return digest.hexdigest()
