"""Scans of a snapshot: its data files with their deletes, read in the snapshot's schema."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

import pyarrow as pa

from pvdm.errors import Code, VerificationError
from pvdm.lake.format.json_document import Json, JsonObject, Node, dump_json, parse_json
from pvdm.lake.format.manifest.entry import DataFile, FileContent, IdMap
from pvdm.lake.format.manifest.manifest import ManifestHeader
from pvdm.lake.format.partition_spec import DATE, source_types
from pvdm.lake.format.schema.document import TableSchema
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import Snapshot
from pvdm.lake.paths import in_file
from pvdm.lake.read.apply_deletes import Columns, Removal, fetch_listed
from pvdm.lake.read.deletes import DeleteIndex, ScanFile, slots_of
from pvdm.lake.read.entries import FileReader, listed_manifests, read_listed
from pvdm.lake.read.found_manifests import require_header
from pvdm.lake.read.resolve import BatchReader, Resolution, every_id, initial_defaults
from pvdm.lake.read.vectors import Vectors
from pvdm.model.filter.expression import LiteralValue
from pvdm.model.schema import Schema

DROPPED_IDS_MAX: Final = 100_000
SCAN_FILES_MAX: Final = 1_000_000
# Row id and last updated sequence number: files of format 3 may have them, and readers do not show them as columns.
_LINEAGE_IDS: Final = frozenset({2_147_483_540, 2_147_483_539})
_FORMAT: Final = "parquet"


@dataclass(frozen=True, slots=True)
class Scan:
    """A snapshot's schema and files, and initial defaults by id. Files may still have columns of the ids in `dropped`.

    `other_schemas` are those of the table, newest first: an equality delete may name a dropped column. `named` has the
    names for files without field ids, if these are allowed. `vectors` are all deletion vectors of the snapshot.
    `stored` has the ids of columns that are only digested: these may come as dictionaries and decimals of 64 bits.
    """

    schema: Schema
    dropped: frozenset[int]
    files: tuple[ScanFile, ...]
    defaults: Mapping[int, LiteralValue]
    other_schemas: tuple[Schema, ...] = ()
    named: Schema | None = None
    vectors: Vectors = field(default_factory=Vectors)
    stored: frozenset[int] = frozenset()

    def locations(self, files: Iterable[ScanFile] | None = None) -> tuple[str, ...]:
        """The locations of all data and delete files, or of those of `files`, each once."""
        chosen = self.files if files is None else tuple(files)
        deletes = {delete.location for each in chosen for delete in each.deletes}
        return tuple(sorted(deletes.union(each.location for each in chosen)))

    def select(self, names: Iterable[str]) -> Scan:
        """The same scan for these columns only."""
        schema = self.schema.select(set(names))
        dropped = (self.dropped | every_id(self.schema)) - every_id(schema)
        return replace(self, schema=schema, dropped=dropped, other_schemas=(self.schema, *self.other_schemas))


def plan_scan(metadata: TableMetadata, snapshot: Snapshot | None, reader: FileReader) -> Scan:
    """The files of a snapshot with the deletes that apply to each; no files without a snapshot."""
    table_schema = schema_of(metadata, snapshot)
    schema = to_model(table_schema)
    oldest_first = sorted(metadata.schemas, key=lambda each: each.schema_id)
    other_schemas = tuple(to_model(each) for each in reversed(oldest_first) if each is not table_schema)
    # The defaults of dropped columns are included: an equality delete may use a dropped column.
    defaults = {
        field_id: value for each in (*oldest_first, table_schema) for field_id, value in initial_defaults(each).items()
    }
    scan = Scan(schema, _dropped_ids(metadata, schema, other_schemas), (), MappingProxyType(defaults), other_schemas)
    if snapshot is None:
        return scan
    files, vectors = _read_files(metadata, snapshot, (schema, *other_schemas), reader)
    return replace(scan, files=files, vectors=vectors)


def schema_of(metadata: TableMetadata, snapshot: Snapshot | None) -> TableSchema:
    """The schema of a snapshot, or the table's current schema if the snapshot names none."""
    if snapshot is None or snapshot.schema_id is None:
        return metadata.current_schema
    found = metadata.schema(snapshot.schema_id)
    if found is None:
        raise Code.SNAPSHOT_UNUSABLE(reason="snapshot_schema_unknown", got=str(snapshot.schema_id))
    return found


def scan_batches(
    scan: Scan, file: ScanFile, fetch: Callable[[str], bytes], read: BatchReader
) -> Iterator[pa.RecordBatch]:
    """The rows of one file in the snapshot's schema, without deleted ones."""
    resolution = Resolution(scan.schema, scan.defaults, file.constants)
    columns = Columns(scan.schema, scan.other_schemas, scan.dropped | every_id(scan.schema), scan.defaults)
    removal = Removal.load(columns, file, scan.vectors, fetch, read)
    data = fetch_listed(file, fetch)
    if file.sha256 is not None and (found := hashlib.sha256(data).hexdigest()) != file.sha256:
        expected = f"SHA-256 {file.sha256}"
        raise Code.SOURCE_DAMAGED(reason="source_file_changed", expected=expected, got=found, file=file.location)
    seen = 0
    with in_file(file.location):
        keys = removal.read_keys(data, read)
        # A column with a partition value is compared with that value, so it must come in the schema's type.
        stored = scan.stored.difference(file.constants)
        # Iceberg in Java reads no row group before the first split.
        for batch in read(data, resolution.wanted, scan.dropped, scan.named, stored, parts_from=file.first_split):
            mask = removal.kept_mask(seen, batch.num_rows, keys)
            seen += batch.num_rows
            if file.record_count is not None and seen > file.record_count:
                break  # the file is refused below: a few bytes can encode any number of rows
            resolved = resolution.apply(batch)
            yield resolved if mask is None else resolved.filter(mask)
        if file.record_count is not None and seen != file.record_count:
            words, listed = "a file does not have the rows that are listed for it", f"{file.record_count} rows"
            raise VerificationError(Code.RECORD_COUNT_LIES, words, expected=listed, got=f"{seen} rows at least")


def _dropped_ids(metadata: TableMetadata, schema: Schema, other_schemas: Iterable[Schema]) -> frozenset[int]:
    """The ids that files may have besides those of this schema: assigned ids of the table, and those of row lineage."""
    assigned = range(1, min(metadata.last_column_id, DROPPED_IDS_MAX) + 1)
    return _LINEAGE_IDS.union(assigned, *map(every_id, other_schemas)) - every_id(schema)


def _read_files(
    metadata: TableMetadata, snapshot: Snapshot, schemas: Sequence[Schema], reader: FileReader
) -> tuple[tuple[ScanFile, ...], Vectors]:
    """The data files with their deletes. `schemas` has the snapshot's schema first, then the table's other schemas."""
    found: dict[str, ScanFile] = {}
    deletes = DeleteIndex(slots_of(schemas))
    # Delete manifests first: then the deletes of a data file are found at once, and its metrics need not be kept.
    for listed in sorted(listed_manifests(metadata, snapshot, reader), key=lambda each: -each.content):
        manifest = read_listed(metadata, listed, reader)
        with in_file(listed.manifest_path):
            require_header(metadata, listed, manifest.header)
        identities = _identity_fields(manifest.header, schemas[0])
        for entry in manifest.entries:
            file = entry.data_file
            if not entry.is_live:
                continue
            _require_readable(file)
            if file.content is not FileContent.DATA:
                deletes.add(entry, manifest.header.spec)
                continue
            if file.file_path in found:
                raise Code.FILE_MISMATCH("a file is listed twice", reason="file_listed_twice", got=file.file_path)
            found[file.file_path] = ScanFile(
                location=file.file_path,
                size=file.file_size_in_bytes,
                record_count=file.record_count,
                constants=IdMap((column, file.partition[part]) for column, part in identities.items()),
                deletes=deletes.find_for(entry, manifest.header.spec.spec_id),
                first_split=(file.split_offsets or (0,))[0],
            )
            if len(found) > SCAN_FILES_MAX:
                expected = f"at most {SCAN_FILES_MAX}"
                raise Code.SNAPSHOT_UNUSABLE(reason="scan_too_many_files", expected=expected, got="more")
    named = deletes.vectors
    return tuple(found.values()), Vectors(named, frozenset(found) if named else frozenset())


def _identity_fields(header: ManifestHeader, schema: Schema) -> dict[int, int]:
    """The ids of partition fields with the transform identity, by column id. Raises if a date column was promoted."""
    found: dict[int, int] = {}
    columns = source_types(schema)
    for part, type_ in zip(header.spec.fields, header.partition_types(), strict=True):
        if part.transform.name != "identity" or len(part.source_ids) != 1:
            continue
        column = part.source_ids[0]
        column_type = columns.get(column, type_)
        if DATE in (type_, column_type) and type_ != column_type:
            words = f"partition {part.name[:80]!a} has values of a type that its column no longer has"
            expected = str(column_type)
            raise Code.SNAPSHOT_UNUSABLE(words, reason="partition_type_changed", expected=expected, got=str(type_))
        found[column] = part.field_id
    return found


def _require_readable(file: DataFile) -> None:
    is_vector = file.is_deletion_vector and file.content is FileContent.POSITION_DELETES
    if file.file_format.lower() != _FORMAT and not is_vector:
        got = file.file_format[:40]
        raise Code.SOURCE_UNSUPPORTED(reason="source_format_unsupported", got=got, file=file.file_path)
    if file.key_metadata is not None:
        raise Code.SOURCE_UNSUPPORTED(reason="source_encrypted", got="an encrypted one", file=file.file_path)


def newer_columns(metadata: TableMetadata, snapshot_id: int) -> tuple[JsonObject, ...]:
    """The columns of the current schema that are newer than the snapshot and that a file may lack.

    Such a column has an id and a name that the snapshot's schema does not have. It is optional or has an initial
    default.
    """
    own, current = _own_schema(metadata, snapshot_id), metadata.current_schema
    if own is None:
        return ()
    names = {each["name"] for each in _columns_of(own)}
    return tuple(
        node.raw
        for node in Node(current.raw, current.place).nodes("fields")
        if (not node.flag("required") or node.raw.get("initial-default") is not None)
        and node.integer("id") not in own.fields
        and node.text("name") not in names
    )


def with_newer_columns(
    metadata: TableMetadata, snapshot_id: int, newer: Sequence[JsonObject], wanted: Callable[[], Collection[str]]
) -> TableMetadata:
    """The table's metadata, in which the snapshot has a schema with the wanted newer columns too.

    The snapshot's own columns keep their names and types. `wanted` is called only if there are newer columns.
    """
    own = _own_schema(metadata, snapshot_id)
    if own is None or not newer:
        return metadata
    names = wanted()
    added = [field for field in newer if field["name"] in names]
    if not added:
        return metadata
    schema_id = 1 + max(each.schema_id for each in metadata.schemas)
    schema: dict[str, Json] = {**own.raw, "schema-id": schema_id, "fields": [*_columns_of(own), *added]}
    return TableMetadata.from_json(
        {
            **metadata.raw,
            "schemas": [*(each.raw for each in metadata.schemas), schema],
            "snapshots": [
                {**each.raw, "schema-id": schema_id} if each.snapshot_id == snapshot_id else each.raw
                for each in metadata.snapshots
            ],
        }
    )


def dump_columns(newer: Sequence[JsonObject]) -> bytes:
    """The columns as a workload (one publication run) stores them."""
    return dump_json([dict(each) for each in newer])


def read_columns(data: bytes) -> tuple[JsonObject, ...]:
    """Read the columns that a workload stores."""
    found = parse_json(data, what="the workload's newer columns")
    return tuple(node.raw for node in Node({"fields": found}, "newer columns").nodes("fields"))


def _own_schema(metadata: TableMetadata, snapshot_id: int) -> TableSchema | None:
    """The schema that the snapshot names; None if it names none, or the table lacks the snapshot or the schema."""
    snapshot = metadata.snapshot(snapshot_id)
    return None if snapshot is None or snapshot.schema_id is None else metadata.schema(snapshot.schema_id)


def _columns_of(schema: TableSchema) -> list[JsonObject]:
    return [node.raw for node in Node(schema.raw, schema.place).nodes("fields")]
