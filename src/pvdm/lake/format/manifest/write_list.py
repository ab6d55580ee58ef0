"""Writing manifest lists as Iceberg's Java library writes them, with sequence numbers and row ids assigned."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from pvdm.errors import InputError
from pvdm.lake.format.avro.container import write_avro
from pvdm.lake.format.avro.decode import Raw
from pvdm.lake.format.manifest.entry import ManifestContent
from pvdm.lake.format.manifest.fields import FIELD_SUMMARY, Struct, avro_text, iceberg_text, list_fields
from pvdm.lake.format.manifest.manifest_list import SUPPORTED_VERSIONS, ListHeader, ManifestFile

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
    """A list's bytes, its manifests with what was assigned, and the first row id that is left (format 3)."""

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
    _check_header(header)
    assigned, next_row_id = _assigned(header, tuple(manifests))
    fields = list_fields(header.format_version)
    records = [_record(fields, each) for each in assigned]
    metadata = [*_metadata(header), ("iceberg.schema", iceberg_text(fields).encode()), *extra]
    data = write_avro(avro_text(fields, "manifest_file"), metadata, records, codec=codec, sync=sync)
    return WrittenList(data, assigned, next_row_id)


def _refused(code: str, expected: str, got: object) -> InputError:
    return InputError(code, "a manifest list cannot be written", expected=expected, got=repr(got)[:120])


def _check_header(header: ListHeader) -> None:
    version = header.format_version
    if version not in SUPPORTED_VERSIONS:
        raise _refused("manifest_list_write_format", "format 1, 2 or 3", version)
    if header.snapshot_id is None:
        raise _refused("manifest_list_write_snapshot_missing", "a snapshot id", None)
    if (header.sequence_number is not None) != (version > 1):
        raise _refused("manifest_list_write_sequence", "a sequence number from format 2 on", header.sequence_number)
    if (header.first_row_id is not None) != (version == 3):
        raise _refused("manifest_list_write_row_id", "a first row id in format 3 and only there", header.first_row_id)


def _metadata(header: ListHeader) -> list[tuple[str, bytes]]:
    parent = "null" if header.parent_snapshot_id is None else str(header.parent_snapshot_id)
    found = [("snapshot-id", str(header.snapshot_id).encode()), ("parent-snapshot-id", parent.encode())]
    if header.sequence_number is not None:
        found.append(("sequence-number", str(header.sequence_number).encode()))
    if header.first_row_id is not None:
        found.append(("first-row-id", str(header.first_row_id).encode()))
    return [*found, ("format-version", str(header.format_version).encode())]


def _assigned(header: ListHeader, manifests: tuple[ManifestFile, ...]) -> tuple[tuple[ManifestFile, ...], int | None]:
    found: list[ManifestFile] = []
    next_row_id = header.first_row_id
    paths: set[str] = set()
    for each in manifests:
        if each.manifest_path in paths:
            raise _refused("manifest_list_write_path_repeated", "each manifest once", each.manifest_path)
        paths.add(each.manifest_path)
        ready = _with_sequence(header, each)
        if next_row_id is not None and each.content is ManifestContent.DATA and each.first_row_id is None:
            ready = replace(ready, first_row_id=next_row_id)
            # Room for existing rows too: files of a table that came from format 2 have no row ids yet.
            next_row_id += (each.existing_rows_count or 0) + (each.added_rows_count or 0)
            if next_row_id >= 2**63:
                raise _refused("manifest_list_write_row_ids_overflow", "row ids of 64 bits", next_row_id)
        if each.content is ManifestContent.DELETES:
            # Some writers give delete manifests a row id; it means nothing and is not written again.
            ready = replace(ready, first_row_id=None)
        if ready.first_row_id is not None and header.format_version < 3:
            raise _refused("manifest_list_write_row_id_refused", "row ids in format 3 only", ready.first_row_id)
        found.append(ready)
    return tuple(found), next_row_id


def _with_sequence(header: ListHeader, each: ManifestFile) -> ManifestFile:
    if header.format_version == 1:
        if each.content is not ManifestContent.DATA:
            raise _refused("manifest_list_write_deletes_in_v1", "data manifests in format 1", each.manifest_path)
        return each
    missing = [name for name in _COUNTS if getattr(each, name) is None]
    if missing:
        raise _refused("manifest_list_write_count_missing", "all counts from format 2 on", missing)
    if None in (each.sequence_number, each.min_sequence_number) and each.added_snapshot_id != header.snapshot_id:
        raise _refused(
            "manifest_list_write_sequence_missing", "a sequence number on a manifest of another snapshot", None
        )
    number = header.sequence_number if each.sequence_number is None else each.sequence_number
    least = header.sequence_number if each.min_sequence_number is None else each.min_sequence_number
    if number is None or header.sequence_number is None or number > header.sequence_number:
        raise _refused("manifest_list_write_sequence_ahead", f"at most {header.sequence_number}", number)
    return replace(each, sequence_number=number, min_sequence_number=least)


def _record(fields: Struct, each: ManifestFile) -> Raw:
    return tuple(_value(known.name, each) for known in fields.fields)


def _value(name: str, each: ManifestFile) -> Any:
    value = getattr(each, name)
    if name == "content":
        return int(value)
    if name == "partitions" and value is not None:
        return tuple(tuple(getattr(summary, known.name) for known in FIELD_SUMMARY.fields) for summary in value)
    return value
