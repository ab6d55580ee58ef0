"""Writes manifests and manifest lists as Iceberg's Java library does, with sequence numbers and row ids assigned."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pvdm.errors import Code, PvdmError
from pvdm.lake.format.avro.container import write_avro
from pvdm.lake.format.avro.decode import Raw
from pvdm.lake.format.manifest.entry import DataFile, EntryStatus, FileContent, IdMap, ManifestContent, ManifestEntry
from pvdm.lake.format.manifest.fields import (
    DATA_FILE,
    PARTITION,
    SUMMARY,
    avro_text,
    entry_fields,
    iceberg_text,
    list_fields,
)
from pvdm.lake.format.manifest.manifest import ManifestHeader
from pvdm.lake.format.manifest.manifest_list import SUPPORTED_VERSIONS, FieldSummary, ListHeader, ManifestFile
from pvdm.lake.format.partition_spec import UNKNOWN
from pvdm.lake.format.partition_value import to_raw
from pvdm.lake.format.schema.bounds import is_ordered, order_key
from pvdm.lake.format.schema.single_value import Value, encode_value
from pvdm.model.schema import Field, Kind, PrimitiveType, StructType, Type

# Java writes this for every file of format 1; no reader uses it.
_BLOCK_SIZE: Final = 67_108_864


@dataclass(frozen=True, slots=True)
class WrittenManifest:
    """A manifest's bytes, and the facts for its entry in a list. `counts` has files and rows by status."""

    data: bytes
    header: ManifestHeader
    counts: Mapping[EntryStatus, tuple[int, int]]
    min_sequence_number: int | None
    partitions: tuple[FieldSummary, ...]

    def list_entry(
        self, path: str, snapshot_id: int, *, sequence_number: int | None = None, first_row_id: int | None = None
    ) -> ManifestFile:
        """The manifest's entry in a list; without a sequence number it gets the list's."""
        added, added_rows = self.counts[EntryStatus.ADDED]
        existing, existing_rows = self.counts[EntryStatus.EXISTING]
        deleted, deleted_rows = self.counts[EntryStatus.DELETED]
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
    records = [_entry_record(fields, entry, header, types) for entry in listed]
    data = write_avro(
        avro_text(fields, "manifest_entry"), _manifest_metadata(header, fields, extra), records, codec=codec, sync=sync
    )
    live = [entry.sequence_number for entry in listed if entry.is_live and entry.sequence_number is not None]
    return WrittenManifest(
        data,
        header,
        {status: _count(listed, status) for status in EntryStatus},
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
            words = f"partition field {field.name!r} has a transform that cannot be written"
            raise Code.MANIFEST_INVALID(words, reason="manifest_transform_unknown", got=str(field.transform)[:120])
        found.append(UNKNOWN if kind is None else kind)
    return tuple(found)


def _manifest_metadata(
    header: ManifestHeader, fields: StructType, extra: Iterable[tuple[str, bytes]]
) -> list[tuple[str, bytes]]:
    values: dict[str, str | int | None] = {
        "schema": header.schema_text,
        "schema-id": header.schema_id,
        "partition-spec": header.spec.to_text(),
        "partition-spec-id": header.spec.spec_id,
        "format-version": header.format_version,
        "content": None if header.format_version == 1 else header.content.name.lower(),
        "iceberg.schema": iceberg_text(fields),
    }
    return [*_encode_header(values), *extra]


def _encode_header(values: Mapping[str, str | int | None]) -> list[tuple[str, bytes]]:
    return [(key, str(value).encode()) for key, value in values.items() if value is not None]


def _check_entry(header: ManifestHeader, entry: ManifestEntry) -> None:
    version, file = header.format_version, entry.data_file
    if (file.content is FileContent.DATA) != (header.content is ManifestContent.DATA):
        wanted = f"files of {header.content.name} manifests"
        raise _refused("manifest_write_content_conflict", wanted, file.content.name)
    if version == 1 and header.content is not ManifestContent.DATA:
        raise _refused("manifest_write_format_1", "data files in format 1", header.content.name)
    if version == 1 and entry.snapshot_id is None:
        raise _refused("manifest_write_format_1", "a snapshot id in format 1", entry.snapshot_id)
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
_DEPRECATED_AS_NONE: Final[dict[str, Any]] = dict.fromkeys(_DEPRECATED)
_SINCE: Final = {
    "equality_ids": 2,
    "referenced_data_file": 2,
    "first_row_id": 3,
    "content_offset": 3,
    "content_size_in_bytes": 3,
}


def _refused(reason: str, expected: str, got: object, message: str = "an entry cannot be written") -> PvdmError:
    return Code.MANIFEST_WRITE_REFUSED(message, reason=reason, expected=expected, got=repr(got)[:120])


def _entry_record(fields: StructType, entry: ManifestEntry, header: ManifestHeader, types: tuple[Type, ...]) -> Raw:
    values: dict[int | None, Any] = {
        0: int(entry.status),
        1: entry.snapshot_id,
        3: entry.sequence_number,
        4: entry.file_sequence_number,
    }
    return tuple(
        tuple(_file_value(each, entry.data_file, header, types) for each in avro_field.type.fields)
        if avro_field.field_id == DATA_FILE and isinstance(avro_field.type, StructType)
        else values[avro_field.field_id]
        for avro_field in fields.fields
    )


def _file_value(avro_field: Field, file: DataFile, header: ManifestHeader, types: tuple[Type, ...]) -> Raw:
    if avro_field.field_id == PARTITION:
        for field in header.spec.fields:
            value = file.partition[field.field_id]
            if field.transform.name == "void" and value is not None:
                raise _refused("manifest_write_void_not_null", "null for a void transform", value)
        pairs = zip(header.spec.fields, types, strict=True)
        return tuple(to_raw(kind, file.partition[field.field_id]) for field, kind in pairs)
    if avro_field.name == "block_size_in_bytes":
        return _BLOCK_SIZE if file.block_size_in_bytes is None else file.block_size_in_bytes
    if avro_field.name == "first_row_id" and file.content is not FileContent.DATA:
        return None
    value = getattr(file, avro_field.name)
    if isinstance(value, IdMap):
        return tuple(value.items())
    return int(value) if isinstance(value, FileContent) else value


def _summary(kind: Type, values: list[Value]) -> FieldSummary:
    """Whether there are nulls and NaNs, and the range of the rest; none for types that readers order differently."""
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


def carry_entry(entry: ManifestEntry, version: int) -> ManifestEntry:
    """An inherited entry as the next manifest has it: EXISTING, without fields that later formats no longer write."""
    file = entry.data_file if version == 1 else replace(entry.data_file, **_DEPRECATED_AS_NONE)
    return replace(entry, status=EntryStatus.EXISTING, data_file=file)


def delete_entry(entry: ManifestEntry, snapshot_id: int, version: int) -> ManifestEntry:
    """An inherited entry as it is written by the snapshot that removes the file: DELETED."""
    return replace(carry_entry(entry, version), status=EntryStatus.DELETED, snapshot_id=snapshot_id)


_COUNTS: Final = (
    "added_files_count",
    "existing_files_count",
    "deleted_files_count",
    "added_rows_count",
    "existing_rows_count",
    "deleted_rows_count",
)


@dataclass(frozen=True, slots=True)
class WrittenList:
    """A list's bytes, its manifests with the assigned numbers, and the next free row id (format 3)."""

    data: bytes
    manifests: tuple[ManifestFile, ...]
    next_row_id: int | None


def write_manifest_list(
    header: ListHeader,
    manifests: Iterable[ManifestFile],
    *,
    extra: Iterable[tuple[str, bytes]] = (),
    codec: str = "deflate",
    sync: bytes | None = None,
) -> WrittenList:
    """A manifest list; equal input gives equal bytes."""
    _check_list_header(header)
    assigned, next_row_id = _assign_numbers(header, tuple(manifests))
    fields = list_fields(header.format_version)
    records = [tuple(_list_value(known.name, each) for known in fields.fields) for each in assigned]
    metadata: dict[str, str | int | None] = {
        "snapshot-id": header.snapshot_id,
        "parent-snapshot-id": "null" if header.parent_snapshot_id is None else header.parent_snapshot_id,
        "sequence-number": header.sequence_number,
        "first-row-id": header.first_row_id,
        "format-version": header.format_version,
        "iceberg.schema": iceberg_text(fields),
    }
    pairs = [*_encode_header(metadata), *extra]
    data = write_avro(avro_text(fields, "manifest_file"), pairs, records, codec=codec, sync=sync)
    return WrittenList(data, assigned, next_row_id)


def _list_refused(reason: str, expected: str, got: object) -> PvdmError:
    return _refused(reason, expected, got, "a manifest list cannot be written")


def _check_list_header(header: ListHeader) -> None:
    version = header.format_version
    if version not in SUPPORTED_VERSIONS:
        raise _list_refused("manifest_list_write_format", "format 1, 2 or 3", version)
    if header.snapshot_id is None:
        raise _list_refused("manifest_list_write_snapshot_missing", "a snapshot id", None)
    number, first = header.sequence_number, header.first_row_id
    if (number is not None) != (version > 1):
        raise _list_refused("manifest_list_write_sequence", "a sequence number from format 2 on", number)
    if (first is not None) != (version == 3):
        raise _list_refused("manifest_list_write_row_id", "a first row id in format 3 and only there", first)


def _assign_numbers(
    header: ListHeader, manifests: tuple[ManifestFile, ...]
) -> tuple[tuple[ManifestFile, ...], int | None]:
    found: list[ManifestFile] = []
    next_row_id = header.first_row_id
    paths: set[str] = set()
    for each in manifests:
        if each.manifest_path in paths:
            raise _list_refused("manifest_list_write_path_repeated", "each manifest once", each.manifest_path)
        paths.add(each.manifest_path)
        ready = _with_sequence(header, each)
        if next_row_id is not None and each.content is ManifestContent.DATA and each.first_row_id is None:
            ready = replace(ready, first_row_id=next_row_id)
            # Existing rows count too: files of a table that came from format 2 have no row ids yet.
            next_row_id += (each.existing_rows_count or 0) + (each.added_rows_count or 0)
            if next_row_id >= 2**63:
                raise _list_refused("manifest_list_write_row_ids_overflow", "row ids of 64 bits", next_row_id)
        if each.content is ManifestContent.DELETES:
            # Some writers give delete manifests a row id, which has no meaning.
            ready = replace(ready, first_row_id=None)
        if ready.first_row_id is not None and header.format_version < 3:
            raise _list_refused("manifest_list_write_row_id_refused", "row ids in format 3 only", ready.first_row_id)
        found.append(ready)
    return tuple(found), next_row_id


def _with_sequence(header: ListHeader, each: ManifestFile) -> ManifestFile:
    if header.format_version == 1:
        if each.content is not ManifestContent.DATA:
            raise _list_refused("manifest_list_write_deletes_in_v1", "data manifests in format 1", each.manifest_path)
        return each
    missing = [name for name in _COUNTS if getattr(each, name) is None]
    if missing:
        raise _list_refused("manifest_list_write_count_missing", "all counts from format 2 on", missing)
    if None in (each.sequence_number, each.min_sequence_number) and each.added_snapshot_id != header.snapshot_id:
        wanted = "a sequence number on a manifest of another snapshot"
        raise _list_refused("manifest_list_write_sequence_missing", wanted, None)
    number = header.sequence_number if each.sequence_number is None else each.sequence_number
    least = header.sequence_number if each.min_sequence_number is None else each.min_sequence_number
    if number is None or header.sequence_number is None or number > header.sequence_number:
        raise _list_refused("manifest_list_write_sequence_ahead", f"at most {header.sequence_number}", number)
    return replace(each, sequence_number=number, min_sequence_number=least)


def _list_value(name: str, each: ManifestFile) -> Any:
    value = getattr(each, name)
    if name == "content":
        return int(value)
    if name == "partitions" and value is not None:
        return tuple(tuple(getattr(summary, known.name) for known in SUMMARY.values()) for summary in value)
    return value
