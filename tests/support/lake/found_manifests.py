"""Snapshots of `main` that tests write themselves before a protection, with any entries and any list, honest or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pvdm.catalog.commit import Change
from pvdm.lake.format.avro.container import read_avro, write_avro
from pvdm.lake.format.manifest.entry import DataFile, EntryStatus, FileContent, IdMap, ManifestContent, ManifestEntry
from pvdm.lake.format.manifest.manifest import ManifestHeader
from pvdm.lake.format.manifest.manifest_list import ListHeader, ManifestFile, read_manifest_list
from pvdm.lake.format.manifest.write import as_existing, write_manifest, write_manifest_list
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.read.entries import header_of, listed_manifests, read_listed
from tests.support.gate.approvals import SALES
from tests.support.gate.protected_tables import House, day
from tests.support.lake.manifests import extra_of
from tests.support.stores.places import file_at

Doc = dict[str, Any]
# Field ids of a record in a manifest list.
LIST_FIELDS = {"length": 501, "spec": 502, "content": 517, "sequence": 515, "minimum": 516, "added": 504, "rows": 512}
FIRST_ROW_ID = 520


@dataclass(frozen=True, slots=True)
class Planted:
    """One manifest of the snapshot. `listed` replaces values of its record in the manifest list, by field id."""

    entries: Sequence[ManifestEntry]
    content: ManifestContent = ManifestContent.DATA
    header: ManifestHeader | None = None
    listed: Mapping[int, Any] = field(default_factory=dict)
    first_row_id: int | None = None


def added(file: DataFile, **numbers: int | None) -> ManifestEntry:
    return ManifestEntry(status=EntryStatus.ADDED, data_file=file, snapshot_id=None, **numbers)


def existing(file: DataFile, sequence: int, **more: Any) -> ManifestEntry:
    numbers: Doc = {"snapshot_id": 1, "sequence_number": sequence, "file_sequence_number": sequence, **more}
    return ManifestEntry(status=EntryStatus.EXISTING, data_file=file, **numbers)


def equality_deletes(house: House, column: int = 1) -> DataFile:
    """An equality delete file of one row. Readers that apply it hide rows."""
    place = f"{house.table_state().metadata.location}/data/deletes"
    (file,) = house.write_files(place, [(3, 1, "Ulm")])
    return replace(file, content=FileContent.EQUALITY_DELETES, equality_ids=(column,))


def live(house: House, name: str = "orders") -> list[ManifestEntry]:
    """The live entries of `main`, with the status that they have in the next manifest."""
    metadata = house.table_state(name).metadata
    head = metadata.current_snapshot
    listed = () if head is None else listed_manifests(metadata, head, house.files)
    return [
        as_existing(entry, metadata.format_version)
        for each in listed
        for entry in read_listed(metadata, each, house.files).entries
        if entry.is_live
    ]


def plant(
    house: House,
    manifests: Sequence[Planted],
    *,
    name: str = "orders",
    header: Mapping[str, Any] | None = None,
    snapshot: Mapping[str, Any] | None = None,
    silent: bool = False,
    twice: bool = False,
    commit: Any = None,
) -> list[str]:
    """Commit a snapshot with exactly these manifests to `main`; returns the paths of the manifests and of the list.

    `header` and `snapshot` replace values of the list's header and of the snapshot. A `silent` list has no values in
    its header. With `twice` the list names its first manifest as its second too.
    """
    metadata = house.table_state(name).metadata
    home = f"{metadata.location}/metadata"
    file_at(home).mkdir(parents=True, exist_ok=True)
    snapshot_id = 8_000_000 + house.number()
    paths = [f"{home}/{snapshot_id}-{at}.avro" for at in range(len(manifests))]
    listed = [_write_manifest(metadata, each, snapshot_id, path) for each, path in zip(manifests, paths, strict=True)]
    version = metadata.format_version
    head = metadata.current_snapshot
    facts: Doc = {
        "format_version": version,
        "snapshot_id": snapshot_id,
        "parent_snapshot_id": None if head is None else head.snapshot_id,
        "sequence_number": metadata.next_sequence_number if version > 1 else None,
        "first_row_id": metadata.next_row_id if version > 2 else None,
    }
    written = write_manifest_list(ListHeader(**{**facts, **(header or {})}), listed)
    read = read_manifest_list(written.data)
    at = {field_id: read.file.schema.position(field_id) for field_id in (*LIST_FIELDS.values(), FIRST_ROW_ID)}
    records = [list(raw) for raw in read.file.records]
    for record, each in zip(records, manifests, strict=True):
        for field_id, value in each.listed.items():
            position = at[field_id]
            assert position is not None
            record[position] = value
    records = [records[0], records[0], *records[2:]] if twice else records
    extra = [] if silent else extra_of(read.file)
    data = write_avro(read.file.schema_text, extra, [tuple(each) for each in records])
    place = f"{home}/snap-{snapshot_id}.avro"
    file_at(place).write_bytes(data)
    added_snapshot: Doc = {
        "snapshot-id": snapshot_id,
        **({} if head is None else {"parent-snapshot-id": head.snapshot_id}),
        "sequence-number": metadata.next_sequence_number,
        "timestamp-ms": max(house.scene.now // 1_000, metadata.last_updated_ms),
        "manifest-list": place,
        "schema-id": metadata.current_schema_id,
        "summary": {"operation": "append", "total-records": "999999"},
    }
    if version > 2:
        first = metadata.next_row_id or 0
        added_snapshot |= {"first-row-id": first, "added-rows": (written.next_row_id or first) - first}
    added_snapshot |= snapshot or {}
    updates: list[Any] = [
        {"action": "add-snapshot", "snapshot": added_snapshot},
        {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": snapshot_id},
    ]
    if commit is None:
        house.notary.catalog.commits.commit(house.scene.grant(), [Change(SALES, name, (), updates)])
    else:
        commit(updates)
    return [*paths, place]


def _write_manifest(metadata: TableMetadata, each: Planted, snapshot_id: int, path: str) -> ManifestFile:
    header = each.header or header_of(metadata, metadata.default_spec_id, each.content)
    manifest = write_manifest(header, each.entries)
    file = read_avro(manifest.data)
    # A header value of 200 bytes is room, so that `overwrite` can write other entries with the same length.
    data = write_avro(file.schema_text, (*extra_of(file), ("room", bytes(200))), file.records, codec="null")
    file_at(path).write_bytes(data)
    honest = replace(replace(manifest, data=data).list_entry(path, snapshot_id), first_row_id=each.first_row_id)
    least = honest.min_sequence_number
    return replace(honest, min_sequence_number=None if least is None else min(least, metadata.next_sequence_number))


def overwrite(house: House, path: str, entries: Sequence[ManifestEntry], *, name: str = "orders") -> None:
    """Overwrite a manifest with other entries, with the same length."""
    metadata = house.table_state(name).metadata
    place = file_at(path)
    size = place.stat().st_size
    header = header_of(metadata, metadata.default_spec_id, ManifestContent.DATA)
    file = read_avro(write_manifest(header, entries).data)
    for pad in range(size):
        data = write_avro(file.schema_text, (*extra_of(file), ("pad", b"x" * pad)), file.records, codec="null")
        if len(data) == size:
            place.write_bytes(data)
            return
    raise AssertionError("the other manifest is longer")


def data_file(house: House, number: int, *, days: int = 1, name: str = "orders") -> DataFile:
    """A data file of one row with this id, as a manifest lists it."""
    (file,) = house.write_files(f"{house.table_state(name).metadata.location}/data/before", [(number, days, "Ulm")])
    assert file.partition == IdMap([(1000, day(days))])
    return file
