"""Reads manifests of formats 1, 2 and 3, compares them with their list, and fills in inherited numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from pvdm.errors import Code, PvdmError
from pvdm.lake.format.avro.container import AvroFile, AvroLimits, read_avro
from pvdm.lake.format.manifest.cache import ParsedFiles
from pvdm.lake.format.manifest.entry import EntryReader, EntryStatus, ManifestContent, ManifestEntry, count_entries
from pvdm.lake.format.manifest.manifest_list import ManifestFile, read_number, read_version
from pvdm.lake.format.partition_spec import PartitionSpec
from pvdm.lake.format.schema.logical import check_iceberg_schema, schema_from_text
from pvdm.model.schema import Type

MANIFEST_MAX_BYTES: Final = 67_108_864
MANIFEST_ENTRIES_MAX: Final = 500_000

MANIFEST_LIMITS: Final = AvroLimits(file_size_max_bytes=MANIFEST_MAX_BYTES, records_max=MANIFEST_ENTRIES_MAX)
_CONTENT_BY_NAME: Final = {"data": ManifestContent.DATA, "deletes": ManifestContent.DELETES}
_SEQUENCE_NUMBER_FIELD: Final = 3  # a field id; from format 2 on


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestHeader:
    """A manifest's header. The schema is kept as text, so that nothing of it is lost."""

    format_version: int
    content: ManifestContent
    schema_text: str
    spec: PartitionSpec
    schema_id: int | None = None

    def partition_types(self) -> tuple[Type | None, ...]:
        """The type of each partition field; None if only the Avro schema gives it, as for a column that was dropped."""
        schema, _ = schema_from_text(self.schema_text)
        return self.spec.result_types(schema)


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest's header and entries as they were written, its partition types by field id, and the Avro file."""

    header: ManifestHeader
    entries: tuple[ManifestEntry, ...]
    partition_types: Mapping[int, Type]
    file: AvroFile


_PARSED: Final[ParsedFiles[Manifest]] = ParsedFiles(lambda manifest: manifest.file.content_bytes)


def read_manifest(
    data: bytes, *, defaults: ManifestHeader | None = None, limits: AvroLimits = MANIFEST_LIMITS
) -> Manifest:
    """Read a manifest. `defaults` has the table's values, for use where the header has none."""
    return _PARSED.get(data, (defaults, limits), lambda: _parse(data, defaults, limits))


def _parse(data: bytes, defaults: ManifestHeader | None, limits: AvroLimits) -> Manifest:
    file = read_avro(data, limits)
    header = _read_header(file, defaults)
    check_iceberg_schema(file)
    reader = EntryReader(file.schema, header.spec, header.partition_types())
    entries = tuple(reader.read_entry(raw, header.content) for raw in file.records)
    return Manifest(header, entries, {key: type_ for key, (_, type_) in reader.partition_fields.items()}, file)


def _read_header(file: AvroFile, defaults: ManifestHeader | None) -> ManifestHeader:
    schema_version = 1 if file.schema.position(_SEQUENCE_NUMBER_FIELD) is None else 2
    version = read_version(file, None if defaults is None else defaults.format_version, schema_version)
    schema_text = file.text("schema")
    if schema_text is None:
        if defaults is None:
            raise _header_missing("schema")
        schema_text = defaults.schema_text
    _, schema_id = schema_from_text(schema_text)
    header_id = read_number(file, "schema-id")
    if header_id is not None and schema_id is not None and header_id != schema_id:
        raise Code.MANIFEST_INVALID(reason="manifest_header_conflict", expected=str(header_id), got=str(schema_id))
    return ManifestHeader(
        format_version=version,
        content=_read_content(file.text("content"), version, defaults),
        schema_text=schema_text,
        spec=_read_spec(file, version, defaults),
        schema_id=schema_id if header_id is None else header_id,
    )


def _header_missing(key: str) -> PvdmError:
    return Code.MANIFEST_INVALID(reason="manifest_header_missing", expected=f"header value {key!r}", got="none")


def _read_content(text: str | None, version: int, defaults: ManifestHeader | None) -> ManifestContent:
    if text is None:
        if defaults is not None:
            return defaults.content
        if version != 1:
            raise _header_missing("content")
        text = "data"
    if text not in _CONTENT_BY_NAME or (version == 1 and text != "data"):
        raise Code.MANIFEST_INVALID(reason="manifest_header_content_unknown", got=repr(text)[:40])
    return _CONTENT_BY_NAME[text]


def _read_spec(file: AvroFile, version: int, defaults: ManifestHeader | None) -> PartitionSpec:
    fields = file.text("partition-spec")
    if fields is None:
        if defaults is None:
            raise _header_missing("partition-spec")
        return defaults.spec
    spec_id = read_number(file, "partition-spec-id")
    if spec_id is None:
        if defaults is None and version != 1:
            raise _header_missing("partition-spec-id")
        spec_id = 0 if defaults is None else defaults.spec.spec_id
    return PartitionSpec.from_text(spec_id, fields)


def inherit(manifest: Manifest, listed: ManifestFile) -> tuple[ManifestEntry, ...]:
    """The entries with the numbers that they inherit from the manifest list.

    Live data files without row ids get them in the order of the entries, as in Iceberg's Java reader. If the list
    gives the manifest no first row id, no file has one. Delete files never have one.
    """
    inherited: list[ManifestEntry] = []
    next_row_id = listed.first_row_id if manifest.header.content is ManifestContent.DATA else None
    for entry in manifest.entries:
        first_row_id = None if next_row_id is None else entry.data_file.first_row_id
        if next_row_id is not None and first_row_id is None and entry.is_live:
            first_row_id = next_row_id
            next_row_id += entry.data_file.record_count
            if next_row_id >= 2**63:
                raise Code.MANIFEST_INVALID(reason="manifest_row_ids_overflow", got=str(next_row_id))
        numbered = _inherit_numbers(entry, listed)
        if first_row_id != entry.data_file.first_row_id:
            numbered = replace(numbered, data_file=replace(entry.data_file, first_row_id=first_row_id))
        inherited.append(numbered)
    return tuple(inherited)


def _inherit_numbers(entry: ManifestEntry, listed: ManifestFile) -> ManifestEntry:
    """The entry with snapshot id and sequence numbers. Raises if it lacks a sequence number that it may not inherit."""
    number = listed.sequence_number or 0
    if entry.status is not EntryStatus.ADDED and number != 0:
        for name in ("sequence_number", "file_sequence_number"):
            if getattr(entry, name) is None:
                words = f"an entry that was not added here has no {name}"
                raise Code.MANIFEST_INVALID(words, reason="manifest_sequence_missing", got="none")
    return replace(
        entry,
        snapshot_id=listed.added_snapshot_id if entry.snapshot_id is None else entry.snapshot_id,
        sequence_number=number if entry.sequence_number is None else entry.sequence_number,
        file_sequence_number=number if entry.file_sequence_number is None else entry.file_sequence_number,
    )


def check_listed(manifest: Manifest, listed: ManifestFile, *, size: int) -> None:
    """Raise if the list's entry for the manifest is wrong. A count that is null is not checked."""
    header, spec_id = manifest.header, manifest.header.spec.spec_id
    if listed.manifest_length != size:
        raise _wrong_in_list("manifest_listed_length_lies", "manifest_length", size, listed.manifest_length)
    if listed.partition_spec_id != spec_id:
        raise _wrong_in_list("manifest_listed_spec_lies", "partition_spec_id", spec_id, listed.partition_spec_id)
    if listed.content is not header.content:
        raise _wrong_in_list("manifest_listed_content_lies", "content", header.content.name, listed.content.name)
    for name, count in count_entries(manifest.entries).items():
        listed_count = getattr(listed, name)
        if listed_count is not None and listed_count != count:
            reason = "manifest_listed_files_lie" if name.endswith("_files_count") else "manifest_listed_rows_lie"
            raise _wrong_in_list(reason, name, count, listed_count)
    _check_sequence_numbers(manifest, listed)


def _check_sequence_numbers(manifest: Manifest, listed: ManifestFile) -> None:
    numbers = [entry.sequence_number or 0 for entry in inherit(manifest, listed) if entry.is_live]
    if not numbers:
        return
    if max(numbers) > (listed.sequence_number or 0):
        expected = f"at most {listed.sequence_number}"
        raise Code.MANIFEST_INVALID(reason="manifest_sequence_ahead", expected=expected, got=str(max(numbers)))
    listed_minimum = listed.min_sequence_number or 0
    if listed_minimum != min(numbers):
        raise _wrong_in_list("manifest_listed_minimum_lies", "min_sequence_number", min(numbers), listed_minimum)


def _wrong_in_list(reason: str, name: str, in_manifest: int | str, in_list: int | str) -> PvdmError:
    words = f"{name} in the manifest list is not that of the manifest"
    return Code.MANIFEST_INVALID(words, reason=reason, expected=str(in_manifest), got=str(in_list))
