"""Encodes manifests and manifest lists as Iceberg's Java library does, and assigns sequence numbers and row ids."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pvdm.errors import Code, PvdmError
from pvdm.lake.format.avro.container import write_avro
from pvdm.lake.format.avro.decode import Raw
from pvdm.lake.format.manifest.entry import (
    DataFile,
    EntryStatus,
    FileContent,
    IdMap,
    ManifestContent,
    ManifestEntry,
    count_entries,
)
from pvdm.lake.format.manifest.fields import (
    DATA_FILE_FIELD,
    PARTITION_FIELD,
    SUMMARY,
    avro_text,
    entry_fields,
    iceberg_text,
    list_fields,
)
from pvdm.lake.format.manifest.manifest import ManifestHeader
from pvdm.lake.format.manifest.manifest_list import COUNTS, FORMAT_VERSIONS, FieldSummary, ListHeader, ManifestFile
from pvdm.lake.format.partition_spec import UNKNOWN
from pvdm.lake.format.partition_value import to_avro
from pvdm.lake.format.schema.bounds import is_ordered, order_key
from pvdm.lake.format.schema.single_value import Value, encode_value
from pvdm.model.schema import Field, StructType, Type

_BLOCK_SIZE_BYTES: Final = 67_108_864  # Iceberg's Java library writes this in format 1; no reader uses it


@dataclass(frozen=True, slots=True)
class WrittenManifest:
    """A manifest's bytes, and the facts for its entry in a list. `counts` has the counts by their names in `COUNTS`."""

    data: bytes
    header: ManifestHeader
    counts: Mapping[str, Any]
    min_sequence_number: int | None
    partitions: tuple[FieldSummary, ...]

    def list_entry(self, path: str, snapshot_id: int) -> ManifestFile:
        """The manifest's entry in a list. `write_manifest_list` assigns the sequence number and row ids."""
        return ManifestFile(
            manifest_path=path,
            manifest_length=len(self.data),
            partition_spec_id=self.header.spec.spec_id,
            added_snapshot_id=snapshot_id,
            content=self.header.content,
            min_sequence_number=self.min_sequence_number,
            partitions=self.partitions,
            **self.counts,
        )


def write_manifest(
    header: ManifestHeader, entries: Iterable[ManifestEntry], *, sync: bytes | None = None
) -> WrittenManifest:
    """Encode a manifest of these entries; equal input gives equal bytes. `sync` is Avro's marker after each block."""
    all_entries = tuple(entries)
    types = _require_writable_types(header)
    fields = entry_fields(header.format_version, header.spec, types)
    for entry in all_entries:
        _check_entry(header, entry)
    records = [_to_record(fields, entry, header, types) for entry in all_entries]
    header_values: dict[str, str | int | None] = {
        "schema": header.schema_text,
        "schema-id": header.schema_id,
        "partition-spec": header.spec.to_text(),
        "partition-spec-id": header.spec.spec_id,
        "format-version": header.format_version,
        "content": None if header.format_version == 1 else header.content.name.lower(),
        "iceberg.schema": iceberg_text(fields),
    }
    data = write_avro(avro_text(fields, "manifest_entry"), _encode_header(header_values), records, sync=sync)
    live = [entry.sequence_number for entry in all_entries if entry.is_live and entry.sequence_number is not None]
    return WrittenManifest(
        data,
        header,
        count_entries(all_entries),
        min(live, default=None),
        tuple(
            _summarize(type_, [entry.data_file.partition[field.field_id] for entry in all_entries])
            for field, type_ in zip(header.spec.fields, types, strict=True)
        ),
    )


def _require_writable_types(header: ManifestHeader) -> tuple[Type, ...]:
    """The type of each partition field. Raises if a transform is unknown or has several source columns."""
    for field in header.spec.fields:
        if not field.transform.is_known or len(field.source_ids) != 1:
            words = f"partition field {field.name!r} has a transform that cannot be written"
            raise Code.MANIFEST_INVALID(words, reason="manifest_transform_unknown", got=str(field.transform)[:120])
    return tuple(type_ or UNKNOWN for type_ in header.partition_types())


def _encode_header(values: Mapping[str, str | int | None]) -> list[tuple[str, bytes]]:
    return [(key, str(value).encode()) for key, value in values.items() if value is not None]


def _check_entry(header: ManifestHeader, entry: ManifestEntry) -> None:
    version, file = header.format_version, entry.data_file
    if (file.content is FileContent.DATA) != (header.content is ManifestContent.DATA):
        expected = f"files of {header.content.name} manifests"
        raise _refused("manifest_write_content_conflict", expected, file.content.name)
    if version == 1 and header.content is not ManifestContent.DATA:
        raise _refused("manifest_write_format_1", "data files in format 1", header.content.name)
    if version == 1 and entry.snapshot_id is None:
        raise _refused("manifest_write_format_1", "a snapshot id in format 1", entry.snapshot_id)
    numbers = (entry.sequence_number, entry.file_sequence_number)
    if version > 1 and entry.status is not EntryStatus.ADDED and None in numbers:
        raise _refused("manifest_write_sequence_missing", "sequence numbers on an entry that is not ADDED", numbers)
    if entry.status is EntryStatus.ADDED and file.first_row_id is not None and file.content is FileContent.DATA:
        raise _refused("manifest_write_row_id_on_added", "no first row id on an added file", file.first_row_id)
    if set(file.partition) != {field.field_id for field in header.spec.fields}:
        raise _refused("manifest_write_partition_mismatch", "the spec's partition fields", sorted(file.partition))
    for name, first_version in _FIRST_VERSIONS.items():
        value = getattr(file, name)
        if version < first_version and value is not None:
            raise _refused("manifest_write_field_too_new", f"no {name} before format {first_version}", value)
    if version > 1:
        for name in _DEPRECATED:
            if getattr(file, name) is not None:
                raise _refused("manifest_write_field_deprecated", f"no {name} from format 2 on", getattr(file, name))


_DEPRECATED: Final = ("block_size_in_bytes", "file_ordinal", "sort_columns", "distinct_counts")
_DEPRECATED_AS_NONE: Final[dict[str, Any]] = dict.fromkeys(_DEPRECATED)
_FIRST_VERSIONS: Final = {
    **dict.fromkeys(("equality_ids", "referenced_data_file"), 2),
    **dict.fromkeys(("first_row_id", "content_offset", "content_size_in_bytes"), 3),
}


def _refused(reason: str, expected: str, got: object, message: str = "an entry cannot be written") -> PvdmError:
    return Code.MANIFEST_WRITE_REFUSED(message, reason=reason, expected=expected, got=repr(got)[:120])


def _to_record(fields: StructType, entry: ManifestEntry, header: ManifestHeader, types: tuple[Type, ...]) -> Raw:
    """The Avro record of an entry."""
    values: dict[str, Any] = {
        "status": int(entry.status),
        "snapshot_id": entry.snapshot_id,
        "sequence_number": entry.sequence_number,
        "file_sequence_number": entry.file_sequence_number,
    }
    for avro_field in fields.fields:
        if avro_field.field_id == DATA_FILE_FIELD and isinstance(avro_field.type, StructType):
            parts = avro_field.type.fields
            values[avro_field.name] = tuple(_to_avro_value(each, entry.data_file, header, types) for each in parts)
    return tuple(values[avro_field.name] for avro_field in fields.fields)


def _to_avro_value(avro_field: Field, file: DataFile, header: ManifestHeader, types: tuple[Type, ...]) -> Raw:
    """The Avro value of one field of a data file."""
    if avro_field.field_id == PARTITION_FIELD:
        for field in header.spec.fields:
            value = file.partition[field.field_id]
            if field.transform.name == "void" and value is not None:
                raise _refused("manifest_write_void_not_null", "null for a void transform", value)
        pairs = zip(header.spec.fields, types, strict=True)
        return tuple(to_avro(type_, file.partition[field.field_id]) for field, type_ in pairs)
    if avro_field.name == "block_size_in_bytes":
        return _BLOCK_SIZE_BYTES if file.block_size_in_bytes is None else file.block_size_in_bytes
    if avro_field.name == "first_row_id" and file.content is not FileContent.DATA:
        return None
    value = getattr(file, avro_field.name)
    if isinstance(value, IdMap):
        return tuple(value.items())
    return int(value) if isinstance(value, FileContent) else value


def _summarize(type_: Type, values: list[Value]) -> FieldSummary:
    """Whether there are nulls and NaNs, and the range of the other values if all readers order them alike."""
    not_null = [value for value in values if value is not None]
    ordered = [value for value in not_null if not (isinstance(value, float) and math.isnan(value))]
    low = high = None
    if ordered and type_ != UNKNOWN and is_ordered(type_):
        low = encode_value(type_, min(ordered, key=lambda value: order_key(type_, value)))
        high = encode_value(type_, max(ordered, key=lambda value: order_key(type_, value)))
    return FieldSummary(
        contains_null=len(not_null) < len(values),
        contains_nan=len(ordered) < len(not_null),
        lower_bound=low,
        upper_bound=high,
    )


def as_existing(entry: ManifestEntry, version: int) -> ManifestEntry:
    """The entry as EXISTING, from format 2 on without deprecated fields. It must come from `manifest.inherit`."""
    file = entry.data_file if version == 1 else replace(entry.data_file, **_DEPRECATED_AS_NONE)
    return replace(entry, status=EntryStatus.EXISTING, data_file=file)


def as_deleted(entry: ManifestEntry, snapshot_id: int, version: int) -> ManifestEntry:
    """The entry as DELETED by this snapshot. It must come from `manifest.inherit`, which fills in its numbers."""
    return replace(as_existing(entry, version), status=EntryStatus.DELETED, snapshot_id=snapshot_id)


@dataclass(frozen=True, slots=True)
class WrittenList:
    """A list's bytes, its manifests with the assigned numbers, and the next free row id (format 3)."""

    data: bytes
    manifests: tuple[ManifestFile, ...]
    next_row_id: int | None


def write_manifest_list(
    header: ListHeader, manifests: Iterable[ManifestFile], *, extra: Iterable[tuple[str, bytes]] = ()
) -> WrittenList:
    """Encode a manifest list with these `extra` header values; equal input gives equal bytes."""
    _check_list_header(header)
    assigned, next_row_id = _assign_numbers(header, tuple(manifests))
    fields = list_fields(header.format_version)
    records = [tuple(_to_list_value(field.name, each) for field in fields.fields) for each in assigned]
    header_values: dict[str, str | int | None] = {
        "snapshot-id": header.snapshot_id,
        "parent-snapshot-id": "null" if header.parent_snapshot_id is None else header.parent_snapshot_id,
        "sequence-number": header.sequence_number,
        "first-row-id": header.first_row_id,
        "format-version": header.format_version,
        "iceberg.schema": iceberg_text(fields),
    }
    data = write_avro(avro_text(fields, "manifest_file"), [*_encode_header(header_values), *extra], records)
    return WrittenList(data, assigned, next_row_id)


def _list_refused(reason: str, expected: str, got: object) -> PvdmError:
    return _refused(reason, expected, got, "a manifest list cannot be written")


def _check_list_header(header: ListHeader) -> None:
    version = header.format_version
    if version not in FORMAT_VERSIONS:
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
    """The manifests with their sequence numbers and first row ids, and the next free row id."""
    assigned: list[ManifestFile] = []
    next_row_id = header.first_row_id
    paths: set[str] = set()
    for each in manifests:
        if each.manifest_path in paths:
            raise _list_refused("manifest_list_write_path_repeated", "each manifest once", each.manifest_path)
        paths.add(each.manifest_path)
        numbered = _assign_sequence_number(header, each)
        if next_row_id is not None and each.content is ManifestContent.DATA and each.first_row_id is None:
            numbered = replace(numbered, first_row_id=next_row_id)
            # Existing rows count too: files of a table that came from format 2 have no row ids yet.
            next_row_id += (each.existing_rows_count or 0) + (each.added_rows_count or 0)
            if next_row_id >= 2**63:
                raise _list_refused("manifest_list_write_row_ids_overflow", "row ids of 64 bits", next_row_id)
        if each.content is ManifestContent.DELETES:
            # Some writers give delete manifests a row id, which has no meaning.
            numbered = replace(numbered, first_row_id=None)
        if (row_id := numbered.first_row_id) is not None and header.format_version < 3:
            raise _list_refused("manifest_list_write_row_id_refused", "row ids in format 3 only", row_id)
        assigned.append(numbered)
    return tuple(assigned), next_row_id


def _assign_sequence_number(header: ListHeader, each: ManifestFile) -> ManifestFile:
    """The manifest, with the new snapshot's number in place of a missing one. Format 1 has no sequence numbers."""
    if header.format_version == 1:
        if each.content is not ManifestContent.DATA:
            raise _list_refused("manifest_list_write_deletes_in_v1", "data manifests in format 1", each.manifest_path)
        return each
    if missing := [name for name in COUNTS if getattr(each, name) is None]:
        raise _list_refused("manifest_list_write_count_missing", "all counts from format 2 on", missing)
    if None in (each.sequence_number, each.min_sequence_number) and each.added_snapshot_id != header.snapshot_id:
        expected = "a sequence number on a manifest of another snapshot"
        raise _list_refused("manifest_list_write_sequence_missing", expected, None)
    number = header.sequence_number if each.sequence_number is None else each.sequence_number
    minimum = header.sequence_number if each.min_sequence_number is None else each.min_sequence_number
    if number is None or header.sequence_number is None or number > header.sequence_number:
        raise _list_refused("manifest_list_write_sequence_ahead", f"at most {header.sequence_number}", number)
    return replace(each, sequence_number=number, min_sequence_number=minimum)


def _to_list_value(name: str, each: ManifestFile) -> Any:
    """The Avro value of one field of a manifest's entry."""
    value = getattr(each, name)
    if name == "content":
        return int(value)
    if name == "partitions" and value is not None:
        return tuple(tuple(getattr(summary, field.name) for field in SUMMARY.values()) for summary in value)
    return value
