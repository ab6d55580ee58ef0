"""Snapshots with real files: small Parquet files that are used again and again, and a manifest for every append."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pvdm.lake.format.manifest.entry import DataFile, EntryStatus, IdMap, ManifestContent, ManifestEntry
from pvdm.lake.format.manifest.manifest import ManifestHeader
from pvdm.lake.format.manifest.manifest_list import ListHeader, ManifestFile, read_manifest_list
from pvdm.lake.format.manifest.write import write_manifest, write_manifest_list
from pvdm.lake.format.partition_spec import PartitionSpec

Doc = dict[str, Any]
Row = dict[int, object]
"""A row's values by column id, so that renamed columns do not matter."""

EPOCH = datetime.date(1970, 1, 1)
ID, DAY, TOWN, LATER = 1, 2, 3, 4
COLUMNS: list[Doc] = [
    {"id": ID, "name": "id", "required": False, "type": "long"},
    {"id": DAY, "name": "day", "required": False, "type": "date"},
    {"id": TOWN, "name": "town", "required": False, "type": "string"},
]
"""The columns of a new table. The files also have column 4 (`LATER`), which shows once a column of this id is added."""

_TOWNS = ("Ulm", "Köln", "Bonn")


@dataclass(frozen=True, slots=True)
class PooledFile:
    """A Parquet file whose rows have one day and one town, so that it lies in one partition by either."""

    path: str
    size: int
    rows: tuple[Row, ...]

    def partition(self, source_id: int) -> int | str:
        """The value of the rows in that column, as a manifest has it."""
        value = self.rows[0][source_id]
        if isinstance(value, datetime.date):
            return (value - EPOCH).days
        assert isinstance(value, str)
        return value


@dataclass(frozen=True, slots=True)
class PreparedSnapshot:
    """A snapshot as a client sends it, and the rows that a scan of it must return."""

    snapshot: Doc
    rows: tuple[Row, ...]

    @property
    def snapshot_id(self) -> int:
        return int(self.snapshot["snapshot-id"])


class Pool:
    """Data files, and snapshots whose manifests list them."""

    def __init__(self, folder: Path, *, files: int = 4) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.files = tuple(_write(folder / f"data-{number}.parquet", number) for number in range(files))
        self._numbers = 0

    def append(
        self,
        base: Doc,
        picks: Sequence[int],
        *,
        parent: Doc | None,
        held: Sequence[Row],
        now_ms: int,
        replacing: bool = False,
    ) -> PreparedSnapshot:
        """A snapshot for the table document `base`, with the files at `picks` added to its parent's.

        `replacing` leaves the parent's files out. `held` are the parent's rows.
        """
        self._numbers += 1
        snapshot_id = 7_000_000_000 + self._numbers
        files = [self.files[pick] for pick in picks]
        place = Path(base["location"].removeprefix("file://")) / "metadata"
        place.mkdir(parents=True, exist_ok=True)
        kept_manifests = [] if parent is None or replacing else _manifests(parent)
        version = base["format-version"]
        manifest = _manifest(place / f"{snapshot_id}-m0.avro", base, files, snapshot_id)
        header = ListHeader(
            format_version=version,
            snapshot_id=snapshot_id,
            parent_snapshot_id=None if parent is None else parent["snapshot-id"],
            sequence_number=base["last-sequence-number"] + 1 if version > 1 else None,
            first_row_id=base["next-row-id"] if version > 2 else None,
        )
        written = write_manifest_list(header, [manifest, *kept_manifests])
        listing = place / f"snap-{snapshot_id}.avro"
        listing.write_bytes(written.data)
        snapshot: Doc = {
            "snapshot-id": snapshot_id,
            "timestamp-ms": now_ms,
            "summary": {"operation": "overwrite" if replacing else "append", "engine-name": "a test"},
            "manifest-list": f"file://{listing}",
            "schema-id": base["current-schema-id"],
        }
        if parent is not None:
            snapshot["parent-snapshot-id"] = parent["snapshot-id"]
        if version > 1:
            snapshot["sequence-number"] = header.sequence_number
        if version > 2:
            assert written.next_row_id is not None
            snapshot |= {"first-row-id": header.first_row_id, "added-rows": written.next_row_id - base["next-row-id"]}
        rows = [row for file in files for row in file.rows]
        if not replacing:
            rows += held
        return PreparedSnapshot(snapshot, tuple(rows))


def _write(path: Path, number: int) -> PooledFile:
    day = datetime.date(2026, 11, 1 + number)
    town = _TOWNS[number % len(_TOWNS)]
    rows: tuple[Row, ...] = tuple(
        {ID: 10 * number + place, DAY: day, TOWN: town, LATER: place or None} for place in range(2)
    )
    kinds = {ID: ("id", pa.int64()), DAY: ("day", pa.date32()), TOWN: ("town", pa.string()), LATER: ("x", pa.int32())}
    schema = pa.schema(
        [pa.field(name, kind, metadata={"PARQUET:field_id": str(at)}) for at, (name, kind) in kinds.items()]
    )
    columns = [[row[at] for row in rows] for at in kinds]
    pq.write_table(pa.table(columns, schema=schema), path)
    return PooledFile(f"file://{path}", path.stat().st_size, rows)


def _manifests(snapshot: Doc) -> tuple[ManifestFile, ...]:
    return read_manifest_list(Path(snapshot["manifest-list"].removeprefix("file://")).read_bytes()).manifests


def _manifest(path: Path, base: Doc, files: Sequence[PooledFile], snapshot_id: int) -> ManifestFile:
    spec = next(each for each in base["partition-specs"] if each["spec-id"] == base["default-spec-id"])
    schema = next(each for each in base["schemas"] if each["schema-id"] == base["current-schema-id"])
    header = ManifestHeader(
        format_version=base["format-version"],
        content=ManifestContent.DATA,
        schema_text=json.dumps(schema),
        spec=PartitionSpec.from_text(spec["spec-id"], json.dumps(spec["fields"])),
        schema_id=schema["schema-id"],
    )
    entries = [
        ManifestEntry(status=EntryStatus.ADDED, data_file=_data_file(file, spec["fields"]), snapshot_id=snapshot_id)
        for file in files
    ]
    written = write_manifest(header, entries)
    path.write_bytes(written.data)
    return written.list_entry(f"file://{path}", snapshot_id)


def _data_file(file: PooledFile, fields: Sequence[Doc]) -> DataFile:
    pairs = [
        (field["field-id"], None if field["transform"] == "void" else file.partition(field["source-id"]))
        for field in fields
    ]
    return DataFile(
        file_path=file.path,
        file_format="PARQUET",
        record_count=len(file.rows),
        file_size_in_bytes=file.size,
        partition=IdMap(pairs),
    )
