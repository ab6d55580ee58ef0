"""A table on disk with a base snapshot and staged snapshots, whose files and entries a test can change."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pvdm.digest import Digester, Mode, Plan, kernel_engine
from pvdm.lake.format.manifest.entry import DataFile, EntryStatus, IdMap, ManifestContent, ManifestEntry
from pvdm.lake.format.manifest.manifest import ManifestHeader
from pvdm.lake.format.manifest.manifest_list import ListHeader, ManifestFile
from pvdm.lake.format.manifest.write import write_manifest, write_manifest_list
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import Snapshot
from pvdm.lake.paths import Location, parse_location
from pvdm.lake.read.entries import header_of
from pvdm.model.contract.types import Limits
from pvdm.model.projection import content
from pvdm.model.statements.core import Operation
from pvdm.verify.fetch import Fetched, Files
from pvdm.verify.findings import Finding
from pvdm.verify.observed import FileObservation, observe
from pvdm.verify.staged import Rules, StagedFiles, read_staged
from tests.support.lake.metadata import NOW, UUID, Doc, column, schema
from tests.support.lake.scans import KEYS, table_of

NAME = "PARQUET:field_id"
LIMITS = Limits(chunks=10, files=100, rows=10_000, bytes=10_000_000)
COLUMNS = (column(1, "id", required=True), column(2, "town", "string"), column(3, "amount", "double"))
BY_TOWN: Doc = {"name": "town", "transform": "identity", "source-id": 2, "field-id": 1000}
BASE, HEAD = 1, 2


def metadata(
    *fields: Doc,
    spec: Sequence[Doc] = (),
    location: str = "file:///lake/t",
    version: int = 2,
    specs: Mapping[int, Sequence[Doc]] | None = None,
    **changes: Any,
) -> TableMetadata:
    """A table of these columns without a snapshot; the last spec is the default one."""
    known = {0: list(spec)} if specs is None else specs
    ids = [each["field-id"] for listed in known.values() for each in listed]
    document: Doc = {
        "format-version": version,
        "table-uuid": UUID,
        "location": location,
        "last-sequence-number": 0,
        "last-updated-ms": NOW,
        "last-column-id": 10_000,
        "current-schema-id": 0,
        "schemas": [schema(0, *(fields or COLUMNS))],
        "default-spec-id": max(known),
        "partition-specs": [{"spec-id": key, "fields": list(listed)} for key, listed in known.items()],
        "last-partition-id": max(ids, default=999),
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": {},
        "snapshots": [],
        **({"next-row-id": 0} if version > 2 else {}),
        **changes,
    }
    return TableMetadata.from_json(document)


@dataclass
class Yard:
    """A table in a folder, without a Steward. Its snapshots list files exactly as a test gives them."""

    folder: Path
    spec: Sequence[Doc] = ()
    specs: Mapping[int, Sequence[Doc]] | None = None
    fields: Sequence[Doc] = COLUMNS
    version: int = 2
    snapshots: list[Doc] = field(default_factory=list)
    _numbers: Any = field(default_factory=lambda: itertools.count(1))

    @property
    def prefix(self) -> Location:
        """The attempt's own folder."""
        return parse_location(f"{self.folder}/pvdm/attempt")

    @property
    def metadata(self) -> TableMetadata:
        main = {} if not self.snapshots else {"current-snapshot-id": self.snapshots[0]["snapshot-id"]}
        return metadata(
            *self.fields,
            spec=self.spec,
            specs=self.specs,
            location=f"file://{self.folder}",
            snapshots=self.snapshots,
            version=self.version,
            **{"last-sequence-number": len(self.snapshots), **main},
        )

    def header(self, content: ManifestContent = ManifestContent.DATA, spec_id: int | None = None) -> ManifestHeader:
        table = self.metadata
        return header_of(table, table.default_spec_id if spec_id is None else spec_id, content)

    def place(self, name: str, folder: str = "metadata") -> Path:
        found = self.prefix.local / folder / name
        found.parent.mkdir(parents=True, exist_ok=True)
        return found

    def file(self, rows: Sequence[Mapping[str, Any]] = (), **changes: Any) -> DataFile:
        """Write a Parquet file with these rows, or with one row; returns a manifest entry without optional values."""
        path = self.place(f"{next(self._numbers)}.parquet", "data")
        pq.write_table(table_of(to_model(self.metadata.current_schema), rows or [{"id": 1}]), path)
        honest = DataFile(
            file_path=f"file://{path}",
            file_format="PARQUET",
            record_count=max(len(rows), 1),
            file_size_in_bytes=path.stat().st_size,
            partition=IdMap((each.field_id, None) for each in self.header().spec.fields),
        )
        return replace(honest, **changes)

    def manifest(
        self, entries: Iterable[ManifestEntry], header: ManifestHeader | None = None, snapshot_id: int | None = None
    ) -> ManifestFile:
        """Write a manifest of the next snapshot."""
        own_id = len(self.snapshots) + 1 if snapshot_id is None else snapshot_id
        written = write_manifest(self.header() if header is None else header, list(entries))
        path = self.place(f"m{next(self._numbers)}.avro")
        path.write_bytes(written.data)
        return written.list_entry(f"file://{path}", own_id)

    def snapshot(self, manifests: Sequence[ManifestFile], **changes: Any) -> Snapshot:
        """Add the next snapshot, a child of the last one, with these manifests; `changes` replace its values."""
        own_id = len(self.snapshots) + 1
        parent = self.snapshots[-1]["snapshot-id"] if self.snapshots else None
        header = ListHeader(
            format_version=self.version,
            snapshot_id=own_id,
            parent_snapshot_id=parent,
            sequence_number=own_id,
            first_row_id=0 if self.version > 2 else None,
        )
        listed = write_manifest_list(header, manifests)
        path = self.place(f"snap-{own_id}.avro")
        path.write_bytes(listed.data)
        document: Doc = {
            "snapshot-id": own_id,
            "sequence-number": own_id,
            "timestamp-ms": NOW + own_id,
            "summary": {"operation": "append"},
            "manifest-list": f"file://{path}",
            "schema-id": 0,
            **({} if parent is None else {"parent-snapshot-id": parent}),
            **changes,
        }
        self.snapshots.append(document)
        found = self.metadata.snapshot(document["snapshot-id"])
        assert found is not None
        return found

    def add(self, *files: DataFile, **changes: Any) -> Snapshot:
        """Add the next snapshot, which adds these files."""
        own_id = len(self.snapshots) + 1
        entries = [ManifestEntry(status=EntryStatus.ADDED, data_file=each, snapshot_id=own_id) for each in files]
        return self.snapshot([self.manifest(entries)] if files else [], **changes)

    def remove(self, *gone: DataFile, add: Sequence[DataFile] = (), spec_id: int | None = None) -> Snapshot:
        """Add the next snapshot, which removes files of the first snapshot and adds others."""
        own_id = len(self.snapshots) + 1
        numbers = {"snapshot_id": own_id, "sequence_number": 1, "file_sequence_number": 1}
        entries = [ManifestEntry(status=EntryStatus.DELETED, data_file=each, **numbers) for each in gone]
        new = [ManifestEntry(status=EntryStatus.ADDED, data_file=each, snapshot_id=own_id) for each in add]
        manifests = [self.manifest(entries, self.header(spec_id=spec_id))] if entries else []
        return self.snapshot([*manifests, *([self.manifest(new)] if new else [])])

    def rules(self, **changes: Any) -> Rules:
        base = None if len(self.snapshots) < HEAD else BASE
        rules = Rules(self.metadata, base, (self.prefix,), Operation.APPEND, (), LIMITS)
        return replace(rules, **changes)

    def read(self, head: Snapshot | None, **changes: Any) -> StagedFiles:
        return read_staged(self.rules(**changes), head, Files())

    def codes(self, head: Snapshot | None, **changes: Any) -> list[str]:
        return codes(self.read(head, **changes).findings)


def codes(findings: Iterable[Finding]) -> list[str]:
    return [each.code for each in findings]


def plan_of(table: TableMetadata) -> Plan:
    found = to_model(table.current_schema)
    return Plan(found, (content(found),), Mode.STORED)


def parquet(table: pa.Table, **options: Any) -> bytes:
    """The bytes of a Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return sink.getvalue().to_pybytes()


def observe_file(
    data: bytes, table: TableMetadata, *, rewrite: Any = False, footer_published: Any = False, **claims: Any
) -> FileObservation:
    """What verification observes of a Parquet file. `claims` replace values of its manifest entry, which are true."""
    rows = 0
    if "record_count" not in claims:
        rows = pq.read_metadata(pa.BufferReader(data)).num_rows
    honest = DataFile(
        file_path="file:///lake/t/a.parquet", file_format="PARQUET", record_count=rows, file_size_in_bytes=len(data)
    )
    keys = {name: KEYS[name] for name in (each.name for each in plan_of(table).projections)}
    digester = Digester(plan_of(table), keys, engine=kernel_engine())
    entry = ManifestEntry(status=EntryStatus.ADDED, data_file=replace(honest, **claims))
    fetched = Fetched(data, "0" * 64)
    return observe(digester, fetched, table, entry, rewrite=rewrite, footer_published=footer_published)
