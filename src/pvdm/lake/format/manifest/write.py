"""Writing manifests as Iceberg's Java library writes them, from typed entries, with the facts that the list needs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from pvdm.errors import Code, InputError
from pvdm.lake.format.avro.container import write_avro
from pvdm.lake.format.avro.decode import Raw
from pvdm.lake.format.manifest.entry import DataFile, EntryStatus, FileContent, IdMap, ManifestContent, ManifestEntry
from pvdm.lake.format.manifest.fields import DATA_FILE, PARTITION, Known, Struct, avro_text, entry_fields, iceberg_text
from pvdm.lake.format.manifest.manifest import ManifestHeader
from pvdm.lake.format.manifest.manifest_list import FieldSummary, ManifestFile
from pvdm.lake.format.partition.spec import UNKNOWN
from pvdm.lake.format.partition.value import to_raw
from pvdm.lake.format.schema.bounds import is_ordered, order_key
from pvdm.lake.format.schema.single_value import Value, encode_value
from pvdm.model.schema import Kind, PrimitiveType, Type

# Java writes this for every file of format 1; nobody reads it.
_BLOCK_SIZE: Final = 67_108_864
_CONTENT: Final = {ManifestContent.DATA: b"data", ManifestContent.DELETES: b"deletes"}


@dataclass(frozen=True, slots=True)
class WrittenManifest:
    """A manifest's bytes, and what its list says of it; path and snapshot are the writer's to give."""

    data: bytes
    header: ManifestHeader
    counts: tuple[tuple[int, int], ...]
    min_sequence_number: int | None
    partitions: tuple[FieldSummary, ...]

    def listed(
        self, path: str, snapshot_id: int, *, sequence_number: int | None = None, first_row_id: int | None = None
    ) -> ManifestFile:
        """The manifest's entry for a list; without a sequence number it gets that of the list."""
        (existing, existing_rows), (added, added_rows), (deleted, deleted_rows) = self.counts
        return ManifestFile(
            manifest_path=path,
            manifest_length=len(self.data),
            partition_spec_id=self.header.spec.spec_id,
            added_snapshot_id=snapshot_id,
            content=self.header.content,
            sequence_number=sequence_number,
            min_sequence_number=self.min_sequence_number,
            added_files_count=added,
            existing_files_count=existing,
            deleted_files_count=deleted,
            added_rows_count=added_rows,
            existing_rows_count=existing_rows,
            deleted_rows_count=deleted_rows,
            partitions=self.partitions,
            first_row_id=first_row_id,
        )


def write_manifest(
    header: ManifestHeader,
    entries: Iterable[ManifestEntry],
    *,
    extra: Iterable[tuple[str, bytes]] = (),
    codec: str = "deflate",
    sync: bytes | None = None,
) -> WrittenManifest:
    """A manifest of these entries; equal input gives equal bytes."""
    listed = tuple(entries)
    types = _writable_types(header)
    fields = entry_fields(header.format_version, header.spec, types)
    for entry in listed:
        _check_entry(header, entry)
    records = [_record(fields, entry, header, types) for entry in listed]
    data = write_avro(
        avro_text(fields, "manifest_entry"), _metadata(header, fields, extra), records, codec=codec, sync=sync
    )
    live = [entry.sequence_number for entry in listed if entry.is_live and entry.sequence_number is not None]
    return WrittenManifest(
        data,
        header,
        tuple(_count(listed, status) for status in EntryStatus),
        min(live, default=None),
        tuple(
            _summary(kind, [entry.data_file.partition[field.field_id] for entry in listed])
            for field, kind in zip(header.spec.fields, types, strict=True)
        ),
    )


def _count(entries: tuple[ManifestEntry, ...], status: EntryStatus) -> tuple[int, int]:
    rows = [entry.data_file.record_count for entry in entries if entry.status is status]
    return len(rows), sum(rows)


def _writable_types(header: ManifestHeader) -> tuple[Type, ...]:
    found: list[Type] = []
    for field, kind in zip(header.spec.fields, header.partition_types(), strict=True):
        if not field.transform.known or len(field.source_ids) != 1:
            raise Code.MANIFEST_INVALID(
                f"partition field {field.name!r} has a transform that cannot be written",
                reason="manifest_transform_unknown",
                got=str(field.transform)[:120],
            )
        found.append(UNKNOWN if kind is None else kind)
    return tuple(found)


def _metadata(header: ManifestHeader, fields: Struct, extra: Iterable[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    found = [("schema", header.schema_text.encode())]
    if header.schema_id is not None:
        found.append(("schema-id", str(header.schema_id).encode()))
    found += [
        ("partition-spec", header.spec.to_text().encode()),
        ("partition-spec-id", str(header.spec.spec_id).encode()),
        ("format-version", str(header.format_version).encode()),
    ]
    if header.format_version > 1:
        found.append(("content", _CONTENT[header.content]))
    return [*found, ("iceberg.schema", iceberg_text(fields).encode()), *extra]


def _check_entry(header: ManifestHeader, entry: ManifestEntry) -> None:
    version, file = header.format_version, entry.data_file
    if (file.content is FileContent.DATA) != (header.content is ManifestContent.DATA):
        raise _refused(
            "manifest_write_content_conflict", f"files of {header.content.name} manifests", file.content.name
        )
    if version == 1 and (header.content is not ManifestContent.DATA or entry.snapshot_id is None):
        raise _refused("manifest_write_format_1", "data files with a snapshot id in format 1", entry.snapshot_id)
    numbers = (entry.sequence_number, entry.file_sequence_number)
    if version > 1 and entry.status is not EntryStatus.ADDED and None in numbers:
        raise _refused("manifest_write_sequence_missing", "explicit numbers on what was not added here", numbers)
    if entry.status is EntryStatus.ADDED and file.first_row_id is not None and file.content is FileContent.DATA:
        raise _refused("manifest_write_row_id_on_added", "no first row id on an added file", file.first_row_id)
    if set(file.partition) != {field.field_id for field in header.spec.fields}:
        raise _refused("manifest_write_partition_mismatch", "the spec's partition fields", sorted(file.partition))
    for name, first in _SINCE.items():
        value = getattr(file, name)
        if version < first and value is not None:
            raise _refused("manifest_write_field_too_new", f"no {name} before format {first}", value)
    if version > 1:
        for name in _DEPRECATED:
            if getattr(file, name) is not None:
                raise _refused("manifest_write_field_deprecated", f"no {name} from format 2 on", getattr(file, name))


_DEPRECATED: Final = ("block_size_in_bytes", "file_ordinal", "sort_columns", "distinct_counts")
_SINCE: Final = {
    "equality_ids": 2,
    "referenced_data_file": 2,
    "first_row_id": 3,
    "content_offset": 3,
    "content_size_in_bytes": 3,
}


def _refused(code: str, expected: str, got: object) -> InputError:
    return InputError(code, "an entry cannot be written", expected=expected, got=repr(got)[:120])


def _record(fields: Struct, entry: ManifestEntry, header: ManifestHeader, types: tuple[Type, ...]) -> Raw:
    values: dict[int, Any] = {
        0: int(entry.status),
        1: entry.snapshot_id,
        3: entry.sequence_number,
        4: entry.file_sequence_number,
    }
    return tuple(
        _file_record(known.type, entry.data_file, header, types)
        if known.field_id == DATA_FILE and isinstance(known.type, Struct)
        else values[known.field_id]
        for known in fields.fields
    )


def _file_record(struct: Struct, file: DataFile, header: ManifestHeader, types: tuple[Type, ...]) -> Raw:
    return tuple(_file_value(known, file, header, types) for known in struct.fields)


def _file_value(known: Known, file: DataFile, header: ManifestHeader, types: tuple[Type, ...]) -> Raw:
    if known.field_id == PARTITION:
        pairs = zip(header.spec.fields, types, strict=True)
        return tuple(
            _partition_value(kind, field.transform.name, file.partition[field.field_id]) for field, kind in pairs
        )
    if known.name == "block_size_in_bytes":
        return _BLOCK_SIZE if file.block_size_in_bytes is None else file.block_size_in_bytes
    if known.name == "first_row_id" and file.content is not FileContent.DATA:
        return None
    value = getattr(file, known.name)
    if isinstance(value, IdMap):
        return tuple(value.items())
    return int(value) if isinstance(value, FileContent) else value


def _partition_value(kind: Type, transform: str, value: Value) -> Any:
    if transform == "void" and value is not None:
        raise _refused("manifest_write_void_not_null", "null for a void transform", value)
    return to_raw(kind, value)


def _summary(kind: Type, values: list[Value]) -> FieldSummary:
    """Null, NaN and the range of the rest, uncut; of what readers order in different ways there is none."""
    present = [value for value in values if value is not None]
    numbers = [value for value in present if not (isinstance(value, float) and math.isnan(value))]
    if not numbers or kind == PrimitiveType(Kind.UNKNOWN) or not is_ordered(kind):
        low = high = None
    else:
        low = encode_value(kind, min(numbers, key=lambda value: order_key(kind, value)))
        high = encode_value(kind, max(numbers, key=lambda value: order_key(kind, value)))
    return FieldSummary(
        contains_null=len(present) < len(values),
        contains_nan=len(numbers) < len(present),
        lower_bound=low,
        upper_bound=high,
    )


def carried(entry: ManifestEntry, version: int) -> ManifestEntry:
    """An inherited entry as the next manifest of its table keeps it: EXISTING, its numbers explicit."""
    return replace(entry, status=EntryStatus.EXISTING, data_file=_written_by(entry.data_file, version), raw=None)


def removed(entry: ManifestEntry, snapshot_id: int, version: int) -> ManifestEntry:
    """An inherited entry as the manifest of the snapshot that removes the file keeps it."""
    file = _written_by(entry.data_file, version)
    return replace(entry, status=EntryStatus.DELETED, snapshot_id=snapshot_id, data_file=file, raw=None)


def _written_by(file: DataFile, version: int) -> DataFile:
    """Without the fields that later formats no longer write."""
    if version == 1:
        return file
    return replace(file, block_size_in_bytes=None, file_ordinal=None, sort_columns=None, distinct_counts=None)
