"""Small tables on disk for scans: Parquet files with field ids, and manifests, written without Spark."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pvdm.digest.parquet import read_batches
from pvdm.lake.format.manifest.entry import DataFile, EntryStatus, FileContent, IdMap, ManifestContent, ManifestEntry
from pvdm.lake.format.manifest.manifest import ManifestHeader
from pvdm.lake.format.manifest.manifest_list import ListHeader
from pvdm.lake.format.manifest.write import write_manifest, write_manifest_list
from pvdm.lake.format.partition_spec import PartitionSpec
from pvdm.lake.format.schema.logical import to_iceberg
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.read.deletes import FILE_PATH_ID, POSITION_ID
from pvdm.lake.read.resolve import arrow_type
from pvdm.lake.read.scan import Scan, plan_scan, scan_batches
from pvdm.model.projection import ProjectionName
from pvdm.model.schema import Field, Inner, ListType, MapType, Schema, StructType
from pvdm.model.secret import DigestKey
from pvdm.model.statements.table import TableRef
from pvdm.verify.fetch import Files
from pvdm.verify.source import PinnedSource, pin_table
from tests.support.lake.metadata import NOW, UUID, Doc

SNAPSHOT = 77
KEYS = {name: DigestKey(bytes([at]) * 32, epoch=1) for at, name in enumerate(ProjectionName)}
NAME = "PARQUET:field_id"


def fetch(location: str) -> bytes:
    return Files().fetch(location).data


def arrow_field(name: str, slot: Field | Inner) -> Any:
    """The Arrow field, with field ids at every depth; a Parquet file written with it has these ids."""
    kind: Any = arrow_type(slot.type)
    match slot.type:
        case StructType(fields):
            kind = pa.struct([arrow_field(each.name, each) for each in fields])
        case ListType(element):
            kind = pa.list_(arrow_field("element", element))
        case MapType(key, value):
            map_of: Any = pa.map_
            key_field = arrow_field("key", key).with_nullable(False)
            kind = map_of(key_field, arrow_field("value", value))
        case _:
            pass
    return pa.field(name, kind, metadata={} if slot.field_id is None else {NAME: str(slot.field_id)})


def arrow_schema(columns: Schema) -> pa.Schema:
    return pa.schema([arrow_field(each.name, each) for each in columns.fields])


def table_of(columns: Schema, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows as an Arrow table; UUIDs become their bytes."""
    schema = arrow_schema(columns)
    arrays: list[Any] = []
    for column in schema:
        values = [row.get(column.name) for row in rows]
        arrays.append(pa.array([getattr(value, "bytes", value) for value in values], column.type))
    return pa.Table.from_arrays(arrays, schema=schema)


@dataclass
class Lake:
    """A table with one snapshot, which lists the files that a test added. The test gives their sequence numbers."""

    folder: Path
    schemas: Sequence[Doc]
    current: int = 0
    version: int = 2
    specs: Mapping[int, Sequence[Doc]] = field(default_factory=lambda: {0: []})
    snapshot_schema: int | None = None
    last_column_id: int = 100
    entries: dict[tuple[int, ManifestContent], list[ManifestEntry]] = field(default_factory=lambda: defaultdict(list))
    _numbers: Any = field(default_factory=itertools.count)

    def write(self, table: pa.Table, **options: Any) -> tuple[str, int]:
        """Write a Parquet file; returns its location and size."""
        path = self.folder / f"f{next(self._numbers):04d}.parquet"
        pq.write_table(table, path, **{"store_schema": False, **options})
        return f"file://{path}", path.stat().st_size

    def data(
        self,
        table: pa.Table,
        *,
        sequence: int = 1,
        spec: int = 0,
        partition: Mapping[int, Any] | None = None,
        changes: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> str:
        """Add a data file with these rows; `changes` replace values of its manifest entry. Returns its location."""
        location, size = self.write(table, **options)
        self.entry(location, size, table.num_rows, FileContent.DATA, sequence, spec, partition, changes)
        return location

    def positions(
        self,
        rows: Iterable[tuple[str, int]],
        *,
        sequence: int = 2,
        spec: int = 0,
        partition: Mapping[int, Any] | None = None,
        changes: Mapping[str, Any] | None = None,
    ) -> str:
        """Add a position delete file; `rows` are pairs of a data file's location and a position in it."""
        listed = sorted(rows)
        fields: list[Any] = [
            pa.field("file_path", pa.string(), metadata={NAME: str(FILE_PATH_ID)}),
            pa.field("pos", pa.int64(), metadata={NAME: str(POSITION_ID)}),
        ]
        schema = pa.schema(fields)
        columns: list[Any] = [pa.array([row[0] for row in listed]), pa.array([row[1] for row in listed], pa.int64())]
        location, size = self.write(pa.Table.from_arrays(columns, schema=schema))
        self.entry(location, size, len(listed), FileContent.POSITION_DELETES, sequence, spec, partition, changes)
        return location

    def equalities(
        self,
        table: pa.Table,
        ids: Sequence[int],
        *,
        sequence: int = 2,
        spec: int = 0,
        partition: Mapping[int, Any] | None = None,
        changes: Mapping[str, Any] | None = None,
    ) -> str:
        """Add an equality delete file: rows that are equal in the columns with these ids are deleted."""
        location, size = self.write(table)
        changes = {"equality_ids": tuple(ids), **(changes or {})}
        self.entry(location, size, table.num_rows, FileContent.EQUALITY_DELETES, sequence, spec, partition, changes)
        return location

    def entry(
        self,
        location: str,
        size: int,
        rows: int,
        content: FileContent,
        sequence: int,
        spec: int,
        partition: Mapping[int, Any] | None,
        changes: Mapping[str, Any] | None = None,
    ) -> None:
        """Add a live manifest entry; `changes` replace values of its data file."""
        facts: dict[str, Any] = {
            "file_path": location,
            "file_format": "PARQUET",
            "record_count": rows,
            "file_size_in_bytes": size,
            "content": content,
            "partition": IdMap((partition or {}).items()),
            **(changes or {}),
        }
        kind = ManifestContent.DATA if content is FileContent.DATA else ManifestContent.DELETES
        self.entries[spec, kind].append(
            ManifestEntry(
                status=EntryStatus.EXISTING,
                data_file=DataFile(**facts),
                snapshot_id=SNAPSHOT - 1,
                sequence_number=sequence,
                file_sequence_number=sequence,
            )
        )

    def metadata(self) -> TableMetadata:
        """Write the manifests and the list, and return the table's metadata."""
        last = 1 + max((each.sequence_number or 0 for group in self.entries.values() for each in group), default=0)
        listed = []
        for number, ((spec_id, content), entries) in enumerate(self.entries.items()):
            header = ManifestHeader(
                format_version=self.version,
                content=content,
                schema_text=json.dumps(self.schemas[self.current]),
                spec=PartitionSpec.from_text(spec_id, json.dumps(self.specs[spec_id])),
                schema_id=self.schemas[self.current]["schema-id"],
            )
            written = write_manifest(header, entries)
            path = self.folder / f"m{number}-{next(self._numbers)}.avro"
            path.write_bytes(written.data)
            first = 1_000 if self.version > 2 and content is ManifestContent.DATA else None
            list_entry = written.list_entry(f"file://{path}", SNAPSHOT)
            listed.append(replace(list_entry, sequence_number=last, first_row_id=first))
        head = ListHeader(
            format_version=self.version,
            snapshot_id=SNAPSHOT,
            sequence_number=last,
            first_row_id=100_000 if self.version > 2 else None,
        )
        path = self.folder / f"list-{next(self._numbers)}.avro"
        path.write_bytes(write_manifest_list(head, listed).data)
        return TableMetadata.from_json(self._document(f"file://{path}", last))

    def _document(self, manifest_list: str, last: int) -> Doc:
        shown = self.current if self.snapshot_schema is None else self.snapshot_schema
        snapshot: Doc = {
            "snapshot-id": SNAPSHOT,
            "sequence-number": last,
            "timestamp-ms": NOW,
            "summary": {"operation": "append"},
            "manifest-list": manifest_list,
            "schema-id": self.schemas[shown]["schema-id"],
        }
        document: Doc = {
            "format-version": self.version,
            "table-uuid": UUID,
            "location": f"file://{self.folder}",
            "last-sequence-number": last,
            "last-updated-ms": NOW,
            "last-column-id": self.last_column_id,
            "current-schema-id": self.schemas[self.current]["schema-id"],
            "schemas": list(self.schemas),
            "default-spec-id": max(self.specs),
            "partition-specs": [{"spec-id": spec, "fields": list(fields)} for spec, fields in self.specs.items()],
            "last-partition-id": 1_100,
            "default-sort-order-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "properties": {},
            "current-snapshot-id": SNAPSHOT,
            "snapshots": [snapshot],
            "refs": {"main": {"snapshot-id": SNAPSHOT, "type": "branch"}},
        }
        if self.version > 2:
            snapshot |= {"first-row-id": 100_000, "added-rows": 0}
            document["next-row-id"] = 1_000_000
        return document

    def scan(self) -> Scan:
        """The plan of a scan of the snapshot."""
        metadata = self.metadata()
        return plan_scan(metadata, metadata.current_snapshot, Files())

    def rows(self) -> list[dict[str, Any]]:
        """Every row that a scan returns, file by file."""
        return rows_of(self.scan())


def rows_of(scan: Scan) -> list[dict[str, Any]]:
    return [
        row
        for file in scan.files
        for batch in scan_batches(scan, file, fetch, read_batches)
        for row in batch.to_pylist()
    ]


def to_doc(columns: Schema, schema_id: int = 0) -> Doc:
    """The schema as the metadata document has it."""
    return {**to_iceberg(columns), "schema-id": schema_id}


def pinned(lake: Lake) -> PinnedSource:
    """The lake's snapshot as a workload's source."""
    return pin_table(TableRef("lake", UUID, "raw.orders"), lake.metadata(), SNAPSHOT, Files())


def identity_spec(source: int, name: str, field_id: int = 1000) -> list[Doc]:
    return [{"name": name, "transform": "identity", "source-id": source, "field-id": field_id}]
