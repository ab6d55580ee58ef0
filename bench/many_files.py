"""Makes tables of many files quickly: one file with hard links to it, and manifests written with `lake.format`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pvdm.catalog.catalog import Catalog
from pvdm.catalog.commit import Change
from pvdm.lake.format.manifest.entry import DataFile, EntryStatus, ManifestContent, ManifestEntry
from pvdm.lake.format.manifest.manifest_list import ListHeader, ManifestFile
from pvdm.lake.format.manifest.write import write_manifest, write_manifest_list
from pvdm.lake.paths import parse_location
from pvdm.lake.read.entries import header_of
from pvdm.ledger.catalog.namespaces import Levels
from pvdm.ledger.record.tokens import Grant

FIRST_SNAPSHOT = 77


def link_files(first: DataFile, count: int) -> list[DataFile]:
    """Make hard links to the first file, `0.parquet`; returns the entries of all `count` files."""
    origin = parse_location(first.file_path).local
    for at in range(1, count):
        os.link(origin, origin.with_name(f"{at}.parquet"))
    return [replace(first, file_path=first.file_path.replace("/0.parquet", f"/{at}.parquet")) for at in range(count)]


def commit_first_snapshot(
    catalog: Catalog,
    grant: Grant,
    table: tuple[Levels, str],
    files: Sequence[DataFile],
    files_per_manifest: int,
    now_ms: int,
) -> None:
    """Commit the first snapshot of `main` with all these files; each manifest has `files_per_manifest` of them."""
    levels, name = table
    metadata = catalog.tables.load(grant, levels, name).metadata
    home = Path(parse_location(metadata.location).local) / "metadata"
    home.mkdir(parents=True, exist_ok=True)
    header = header_of(metadata, metadata.default_spec_id, ManifestContent.DATA)
    listed: list[ManifestFile] = []
    for at in range(0, len(files), files_per_manifest):
        entries = [
            ManifestEntry(status=EntryStatus.ADDED, data_file=file, snapshot_id=FIRST_SNAPSHOT)
            for file in files[at : at + files_per_manifest]
        ]
        written = write_manifest(header, entries)
        path = home / f"m{at}.avro"
        path.write_bytes(written.data)
        listed.append(written.list_entry(f"file://{path}", FIRST_SNAPSHOT))
    heading = ListHeader(format_version=2, snapshot_id=FIRST_SNAPSHOT, parent_snapshot_id=None, sequence_number=1)
    (home / "snap.avro").write_bytes(write_manifest_list(heading, listed).data)
    snapshot: dict[str, Any] = {
        "snapshot-id": FIRST_SNAPSHOT,
        "sequence-number": 1,
        "timestamp-ms": now_ms,
        "manifest-list": f"file://{home}/snap.avro",
        "schema-id": 0,
        "summary": {"operation": "append"},
    }
    set_ref: dict[str, Any] = {
        "action": "set-snapshot-ref",
        "ref-name": "main",
        "type": "branch",
        "snapshot-id": FIRST_SNAPSHOT,
    }
    change = Change(levels, name, (), [{"action": "add-snapshot", "snapshot": snapshot}, set_ref])
    catalog.commits.commit(grant, [change])
