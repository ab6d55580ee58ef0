"""Deletes rows of a file on a table's `main`: by a position delete file, or in format 3 by a deletion vector."""

from __future__ import annotations

import io
import secrets
import time
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pvdm.client.table import TableClient
from pvdm.lake.format.manifest.entry import DataFile, EntryStatus, FileContent, IdMap, ManifestContent, ManifestEntry
from pvdm.lake.format.manifest.manifest_list import ListHeader
from pvdm.lake.format.manifest.write import write_manifest, write_manifest_list
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.read.deletes import FILE_PATH_ID, POSITION_ID
from pvdm.lake.read.entries import header_of, listed_manifests
from tests.support.lake.puffin import Listed, puffin
from tests.support.lake.scans import NAME
from tests.support.stores.places import file_at, files, location_of


def _position_file(location: str, positions: Sequence[int]) -> bytes:
    fields: list[Any] = [
        pa.field("file_path", pa.string(), nullable=False, metadata={NAME: str(FILE_PATH_ID)}),
        pa.field("pos", pa.int64(), nullable=False, metadata={NAME: str(POSITION_ID)}),
    ]
    columns: list[Any] = [pa.array([location] * len(positions)), pa.array(positions, pa.int64())]
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(columns, schema=pa.schema(fields)), sink)
    return sink.getvalue()


def delete_rows(table: TableClient, location: str, positions: Sequence[int]) -> None:
    """Commit a delete of these rows of a data file to `main`."""
    metadata = TableMetadata.from_json(table.load())
    head = metadata.current_snapshot
    assert head is not None
    snapshot_id, folder = secrets.randbits(62) + 1, file_at(metadata.location)
    facts: dict[str, Any] = {}
    if metadata.format_version == 2:
        data, path = _position_file(location, positions), folder / "data" / f"{snapshot_id}-deletes.parquet"
        # Polars applies a delete file only if its bounds name one data file.
        bounds = IdMap([(FILE_PATH_ID, location.encode())])
        facts = {"lower_bounds": bounds, "upper_bounds": bounds}
    else:
        vector = Listed(location, positions)
        data, offsets = puffin([vector])
        path = folder / "data" / f"{snapshot_id}-deletes.puffin"
        facts = {
            "referenced_data_file": location,
            "content_offset": offsets[0],
            "content_size_in_bytes": len(vector.payload()),
        }
    path.write_bytes(data)
    file = DataFile(
        file_path=location_of(path),
        file_format="PARQUET" if metadata.format_version == 2 else "PUFFIN",
        record_count=len(positions),
        file_size_in_bytes=len(data),
        content=FileContent.POSITION_DELETES,
        partition=IdMap(()),
        **facts,
    )
    header = header_of(metadata, metadata.default_spec_id, ManifestContent.DELETES)
    written = write_manifest(header, [ManifestEntry(status=EntryStatus.ADDED, data_file=file, snapshot_id=snapshot_id)])
    manifest = folder / "metadata" / f"{snapshot_id}-m0.avro"
    manifest.write_bytes(written.data)
    first = metadata.next_row_id if metadata.format_version > 2 else None
    listing = write_manifest_list(
        ListHeader(
            format_version=metadata.format_version,
            snapshot_id=snapshot_id,
            parent_snapshot_id=head.snapshot_id,
            sequence_number=metadata.next_sequence_number,
            first_row_id=first,
        ),
        [written.list_entry(location_of(manifest), snapshot_id), *listed_manifests(metadata, head, files())],
    )
    listed = folder / "metadata" / f"snap-{snapshot_id}.avro"
    listed.write_bytes(listing.data)
    snapshot = {
        "snapshot-id": snapshot_id,
        "parent-snapshot-id": head.snapshot_id,
        "sequence-number": metadata.next_sequence_number,
        "timestamp-ms": max(time.time_ns() // 1_000_000, metadata.last_updated_ms),
        "manifest-list": location_of(listed),
        "schema-id": metadata.current_schema_id,
        "summary": {"operation": "delete"},
        **({} if first is None else {"first-row-id": first, "added-rows": 0}),
    }
    table.commit(
        [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": head.snapshot_id}],
        [
            {"action": "add-snapshot", "snapshot": snapshot},
            {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": snapshot_id},
        ],
    )
