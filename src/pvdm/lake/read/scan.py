"""The rows of a snapshot: its data files, what deletes from each, and how each is brought to the snapshot's schema."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, Protocol

import pyarrow as pa

from pvdm.errors import Code, VerificationError
from pvdm.lake.file_context import in_file
from pvdm.lake.format.manifest.entry import DataFile, FileContent, IdMap, ManifestEntry
from pvdm.lake.format.manifest.manifest import ManifestHeader
from pvdm.lake.format.partition.spec import DATE, source_types
from pvdm.lake.format.schema.document import TableSchema
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.format.schema.single_value import Value
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import Snapshot
from pvdm.lake.read.apply_deletes import Columns, Removal
from pvdm.lake.read.defaults import initial_defaults
from pvdm.lake.read.deletes import DeleteFile, DeleteIndex, delete_file
from pvdm.lake.read.entries import FileReader, listed_manifests, read_listed
from pvdm.lake.read.found_manifests import require_header
from pvdm.lake.read.hidden_deletes import Metrics, slots_of
from pvdm.lake.read.resolve import Resolution, every_id
from pvdm.lake.read.vectors import Vectors
from pvdm.model.filter.expression import LiteralValue
from pvdm.model.schema import Schema

DROPPED_IDS_MAX: Final = 100_000
SCAN_FILES_MAX: Final = 1_000_000
# Row id and last updated sequence number: rewritten files of format 3 carry them, and no reader shows them as columns.
_LINEAGE_IDS: Final = frozenset({2_147_483_540, 2_147_483_539})
_FORMAT: Final = "parquet"


class BatchReader(Protocol):
    """Reads the rows of a Parquet file in memory as batches of the schema's columns, found by field id."""

    def __call__(
        self,
        data: bytes,
        schema: Schema,
        dropped: Collection[int] = (),
        named: Schema | None = None,
        stored: Collection[int] = (),
        *,
        claims_checked: bool = False,
        parts_from: int = 0,
    ) -> Iterator[pa.RecordBatch]:
        """What the file lacks is not in the batches; ids that are neither in the schema nor dropped are refused.

        A file without any id is read by the names of `named`, and refused where there is none. Columns of the ids
        `stored` may come as they are stored. With `claims_checked` a file is refused whose statistics do not hold,
        and with `parts_from` one that has row groups which readers of the parts from there on do not find.
        """


@dataclass(frozen=True, slots=True)
class ScanFile:
    """A live data file, and the delete files that apply to it.

    `constants` are the values of identity partitions by the id of their column; `record_count`, `sha256` and
    `first_split` are what the table or a manifest of files says, and are held against the bytes when these are read.
    """

    location: str
    size: int
    record_count: int | None
    sequence_number: int
    spec_id: int
    partition: IdMap[Value]
    constants: IdMap[Value]
    deletes: tuple[DeleteFile, ...] = ()
    sha256: str | None = None
    first_split: int = 0


@dataclass(frozen=True, slots=True)
class Scan:
    """What a snapshot holds: its schema, ids that a file may have besides, initial defaults by id, and its files.

    `older` are the table's other schemas, newest first: an equality delete may name a column that is gone. `named` has
    the names by which files without any field id are read, where such files may be among them. `vectors` are all
    deletion vectors of the snapshot. `stored` are columns of which only a digest looks at the values: they may come as
    dictionaries and decimals of 64 bits.
    """

    schema: Schema
    dropped: frozenset[int]
    files: tuple[ScanFile, ...]
    defaults: Mapping[int, LiteralValue]
    older: tuple[Schema, ...] = ()
    named: Schema | None = None
    vectors: Vectors = field(default_factory=Vectors)
    stored: frozenset[int] = frozenset()

    def locations(self, files: Iterable[ScanFile] | None = None) -> tuple[str, ...]:
        """Every data and delete file, each once, for the freeze; of all files, or of these."""
        chosen = self.files if files is None else tuple(files)
        found = {each.location for each in chosen}
        found.update(delete.location for each in chosen for delete in each.deletes)
        return tuple(sorted(found))

    def select(self, names: Iterable[str]) -> Scan:
        """The same files read for these columns only."""
        schema = self.schema.select(set(names))
        dropped = (self.dropped | every_id(self.schema)) - every_id(schema)
        return replace(self, schema=schema, dropped=dropped, older=(self.schema, *self.older))


def plan_scan(metadata: TableMetadata, snapshot: Snapshot | None, reader: FileReader) -> Scan:
    """The files of a snapshot with the deletes that apply to each, by Iceberg's rules; a table without one has none."""
    table_schema = schema_of(metadata, snapshot)
    schema = to_model(table_schema)
    older = tuple(
        to_model(each)
        for each in sorted(metadata.schemas, key=lambda each: each.schema_id, reverse=True)
        if each is not table_schema
    )
    found = ((), Vectors()) if snapshot is None else _files(metadata, snapshot, (schema, *older), reader)
    files, vectors = found
    return Scan(
        schema=schema,
        dropped=_dropped(metadata, schema, older),
        files=files,
        defaults=MappingProxyType(_defaults(metadata, table_schema)),
        older=older,
        vectors=vectors,
    )


def schema_of(metadata: TableMetadata, snapshot: Snapshot | None) -> TableSchema:
    """The schema that a snapshot is read with: its own, or the table's where it names none."""
    if snapshot is None or snapshot.schema_id is None:
        return metadata.current_schema
    found = metadata.schema(snapshot.schema_id)
    if found is None:
        raise Code.SNAPSHOT_SCHEMA_UNKNOWN(got=str(snapshot.schema_id))
    return found


def scan_batches(
    scan: Scan, file: ScanFile, fetch: Callable[[str], bytes], read: BatchReader
) -> Iterator[pa.RecordBatch]:
    """The rows of one file in the snapshot's schema, without those that are deleted; one file is held at a time."""
    resolution = Resolution(scan.schema, scan.defaults, file.constants)
    removal = _removal(scan, file, fetch, read)
    data = fetch(file.location)
    _require_listed(file, data)
    seen = 0
    with in_file(file.location):
        keys = removal.keys(data, read)
        # A partition's value is compared with the column's.
        stored = scan.stored.difference(file.constants)
        # Iceberg in Java reads nothing before the first split, in a plain scan too.
        for batch in read(data, resolution.wanted, scan.dropped, scan.named, stored, parts_from=file.first_split):
            rows = batch.num_rows
            kept = removal.mask(seen, rows, keys)
            seen += rows
            if file.record_count is not None and seen > file.record_count:
                break  # whatever else follows: a few bytes can stand for any number of rows
            brought = resolution.apply(batch)
            yield brought if kept is None else brought.filter(kept)
        if file.record_count is not None and seen != file.record_count:
            raise VerificationError(
                Code.RECORD_COUNT_LIES,
                "a file does not hold the rows that are listed for it",
                expected=f"{file.record_count} rows",
                got=f"{seen} rows at least",
            )


def _removal(scan: Scan, file: ScanFile, fetch: Callable[[str], bytes], read: BatchReader) -> Removal:
    """What the delete files of a data file take out of it."""
    columns = Columns(scan.schema, scan.older, scan.dropped | every_id(scan.schema), scan.defaults)
    return Removal.load(columns, file, scan.vectors, fetch, read)


def _require_listed(file: ScanFile, data: bytes) -> None:
    """A smaller size than the file has would make other readers see fewer rows."""
    if len(data) != file.size:
        raise Code.FILE_SIZE_LIES(
            "a file has another size than is listed for it",
            expected=f"{file.size} bytes",
            got=f"{len(data)} bytes",
            file=file.location,
        )
    if file.sha256 is not None and (found := hashlib.sha256(data).hexdigest()) != file.sha256:
        raise Code.SOURCE_FILE_CHANGED(expected=f"SHA-256 {file.sha256}", got=found, file=file.location)


def _defaults(metadata: TableMetadata, schema: TableSchema) -> dict[int, LiteralValue]:
    """Of columns that are gone too: an equality delete may look at one."""
    found: dict[int, LiteralValue] = {}
    for each in sorted(metadata.schemas, key=lambda each: each.schema_id):
        found.update(initial_defaults(each))
    return found | initial_defaults(schema)


def _dropped(metadata: TableMetadata, schema: Schema, older: Iterable[Schema]) -> frozenset[int]:
    """Every id that the table gave out, but those of the schema: expiry may have removed the schema that had one."""
    known: set[int] = set(_LINEAGE_IDS)
    known.update(range(1, min(metadata.last_column_id, DROPPED_IDS_MAX) + 1))
    for each in older:
        known |= every_id(each)
    return frozenset(known - every_id(schema))


def _files(
    metadata: TableMetadata, snapshot: Snapshot, schemas: Sequence[Schema], reader: FileReader
) -> tuple[tuple[ScanFile, ...], Vectors]:
    """The data files with their deletes; `schemas` are the snapshot's own, and then the table's others."""
    found: dict[str, ScanFile] = {}
    deletes = DeleteIndex(slots_of(schemas))
    # Deletes first: what entries say of data files is not kept.
    for listed in sorted(listed_manifests(metadata, snapshot, reader), key=lambda each: -each.content):
        manifest = read_listed(metadata, listed, reader)
        with in_file(listed.manifest_path):
            require_header(metadata, listed, manifest.header)
        identities = _identities(manifest.header, schemas[0])
        for entry in manifest.entries:
            file = entry.data_file
            if not entry.is_live:
                continue
            _require_readable(file)
            if file.content is not FileContent.DATA:
                deletes.add(delete_file(entry), manifest.header.spec, file.partition, Metrics.of_file(file))
                continue
            if file.file_path in found:
                raise Code.FILE_MISMATCH("a file is listed twice", reason="file_listed_twice", got=file.file_path)
            made = _scan_file(entry, manifest.header.spec.spec_id, identities)
            applied = deletes.of(
                made.location, made.sequence_number, made.spec_id, made.partition, Metrics.of_file(file)
            )
            found[file.file_path] = replace(made, deletes=applied)
            if len(found) > SCAN_FILES_MAX:
                raise Code.SCAN_TOO_MANY_FILES(expected=f"at most {SCAN_FILES_MAX}", got="more")
    named = deletes.vectors
    return tuple(found.values()), Vectors(named, frozenset(found) if named else frozenset())


def _identities(header: ManifestHeader, schema: Schema) -> dict[int, int]:
    """Columns of identity partitions with the partition fields that hold their values, by the columns' ids."""
    found: dict[int, int] = {}
    columns = source_types(schema)
    for part, kind in zip(header.spec.fields, header.partition_types(), strict=True):
        if part.transform.name != "identity" or len(part.source_ids) != 1:
            continue
        column = part.source_ids[0]
        if DATE in (kind, columns.get(column, kind)) and kind != columns.get(column, kind):
            raise Code.PARTITION_TYPE_CHANGED(
                f"partition {part.name[:80]!a} holds values of a type that its column no longer has",
                expected=str(columns[column]),
                got=str(kind),
            )
        found[column] = part.field_id
    return found


def _scan_file(entry: ManifestEntry, spec_id: int, identities: Mapping[int, int]) -> ScanFile:
    file = entry.data_file
    return ScanFile(
        location=file.file_path,
        size=file.file_size_in_bytes,
        record_count=file.record_count,
        sequence_number=entry.sequence_number or 0,
        spec_id=spec_id,
        partition=file.partition,
        constants=IdMap((column, file.partition[part]) for column, part in identities.items()),
        first_split=(file.split_offsets or (0,))[0],
    )


def _require_readable(file: DataFile) -> None:
    vector = file.is_deletion_vector and file.content is FileContent.POSITION_DELETES
    if file.file_format.lower() != _FORMAT and not vector:
        raise Code.SOURCE_UNSUPPORTED(
            reason="source_format_unsupported", got=file.file_format[:40], file=file.file_path
        )
    if file.key_metadata is not None:
        raise Code.SOURCE_UNSUPPORTED(reason="source_encrypted", got="an encrypted one", file=file.file_path)
