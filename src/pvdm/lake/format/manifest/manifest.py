"""Manifests, formats 1, 2 and 3: read by field id, with the record kept, the header typed and inheritance applied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pvdm.errors import Code, InputError
from pvdm.lake.format.avro.container import AvroFile, AvroLimits, read_avro, write_avro
from pvdm.lake.format.avro.decode import Raw
from pvdm.lake.format.avro.schema import RecordNode
from pvdm.lake.format.manifest.cache import ParsedFiles
from pvdm.lake.format.manifest.entry import EntryReader, EntryStatus, ManifestContent, ManifestEntry
from pvdm.lake.format.manifest.fields import DATA_FILE
from pvdm.lake.format.manifest.manifest_list import ManifestFile, header_number, header_version
from pvdm.lake.format.manifest.types import check_iceberg_schema, schema_from_text
from pvdm.lake.format.partition.spec import PartitionSpec
from pvdm.model.schema import Schema, Type

MANIFEST_MAX_BYTES: Final = 67_108_864
MANIFEST_ENTRIES_MAX: Final = 500_000

MANIFEST_LIMITS: Final = AvroLimits(file_size_max_bytes=MANIFEST_MAX_BYTES, records_max=MANIFEST_ENTRIES_MAX)
_CONTENT: Final = {"data": ManifestContent.DATA, "deletes": ManifestContent.DELETES}


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestHeader:
    """What a manifest says of its table; the schema is kept as text, for nothing of it may be lost."""

    format_version: int
    content: ManifestContent
    schema_text: str
    spec: PartitionSpec
    schema_id: int | None = None
    iceberg_schema: str | None = None

    def table_schema(self) -> Schema:
        """The table's schema when the manifest was written."""
        return schema_from_text(self.schema_text)[0]

    def partition_types(self) -> tuple[Type | None, ...]:
        """The type of each partition field; None where only the file tells."""
        return self.spec.result_types(self.table_schema())


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest's header and entries as they were written, and the file that they were read from."""

    header: ManifestHeader
    entries: tuple[ManifestEntry, ...]
    partition_types: Mapping[int, Type]
    file: AvroFile

    def declares(self, field_id: int) -> bool:
        """Whether the manifest's schema has the field of an entry or data file at all."""
        return self.file.schema.position(field_id) is not None or self._file_node().position(field_id) is not None

    def to_bytes(self, *, sync: bytes | None = None) -> bytes:
        """The manifest again: every field and header value that was read, known or not."""
        return self.file.to_bytes(sync=sync)

    def with_records(self, records: Iterable[Raw], *, sync: bytes | None = None) -> bytes:
        """A manifest with the same schema and header and these raw records."""
        return write_avro(self.file.schema_text, self.file.extra, records, codec=self.file.codec, sync=sync)

    def changed(self, entry: ManifestEntry, changes: Mapping[int, Any]) -> Raw:
        """An entry's raw record with other values in these fields; every other field stays as it was read."""
        inner = self._file_node()
        top = {key: value for key, value in changes.items() if self.file.schema.position(key) is not None}
        below = {key: value for key, value in changes.items() if key not in top}
        record = _with(self.file.schema, entry.raw, top)
        if not below:
            return record
        at = self.file.schema.position(DATA_FILE)
        return _with(self.file.schema, record, {DATA_FILE: _with(inner, record[at], below)})

    def _file_node(self) -> RecordNode:
        at = self.file.schema.position(DATA_FILE)
        node = None if at is None else self.file.schema.fields[at].type
        assert isinstance(node, RecordNode)  # noqa: S101  a manifest without one is not read
        return node


_PARSED: Final[ParsedFiles[Manifest]] = ParsedFiles(lambda manifest: manifest.file.content_bytes)


def _with(node: RecordNode, raw: Raw, changes: Mapping[int, Any]) -> Raw:
    found = list(raw)
    for field_id, value in changes.items():
        at = node.position(field_id)
        if at is None:
            raise Code.MANIFEST_INVALID(
                f"the manifest's schema has no field {field_id}", reason="manifest_field_absent", got=str(field_id)
            )
        found[at] = value
    return tuple(found)


def read_manifest(
    data: bytes, *, silent: ManifestHeader | None = None, limits: AvroLimits = MANIFEST_LIMITS
) -> Manifest:
    """A manifest; `silent` is what the table knows, for manifests whose header does not say it."""
    return _PARSED.get(data, (silent, limits), lambda: _parse(data, silent, limits))


def _parse(data: bytes, silent: ManifestHeader | None, limits: AvroLimits) -> Manifest:
    file = read_avro(data, limits)
    header = _header(file, silent)
    check_iceberg_schema(header.iceberg_schema, file.schema)
    reader = EntryReader(file.schema, header.spec, header.partition_types())
    entries = tuple(reader.entry(raw, header.content) for raw in file.records)
    return Manifest(header, entries, {key: kind for key, (_, kind) in reader.partition.items()}, file)


def _header(file: AvroFile, silent: ManifestHeader | None) -> ManifestHeader:
    told = 1 if file.schema.position(3) is None else 2
    version = header_version(file.text("format-version"), None if silent is None else silent.format_version, told)
    schema_text = file.text("schema")
    if schema_text is None:
        schema_text = _otherwise("schema", None if silent is None else silent.schema_text)
    schema_id = schema_from_text(schema_text)[1]
    named = header_number("schema-id", file.text("schema-id"))
    if named is not None and schema_id is not None and named != schema_id:
        raise Code.MANIFEST_INVALID(reason="manifest_header_conflict", expected=str(named), got=str(schema_id))
    return ManifestHeader(
        format_version=version,
        content=_content(file.text("content"), version, silent),
        schema_text=schema_text,
        spec=_spec(file, version, silent),
        schema_id=schema_id if named is None else named,
        iceberg_schema=file.text("iceberg.schema"),
    )


def _otherwise(key: str, known: str | None) -> str:
    if known is None:
        raise Code.MANIFEST_INVALID(reason="manifest_header_missing", expected=f"header value {key!r}", got="none")
    return known


def _content(text: str | None, version: int, silent: ManifestHeader | None) -> ManifestContent:
    if text is None:
        if silent is not None:
            return silent.content
        text = "data" if version == 1 else _otherwise("content", None)
    if text not in _CONTENT or (version == 1 and text != "data"):
        raise Code.MANIFEST_INVALID(reason="manifest_header_content_unknown", got=repr(text)[:40])
    return _CONTENT[text]


def _spec(file: AvroFile, version: int, silent: ManifestHeader | None) -> PartitionSpec:
    fields, named = file.text("partition-spec"), file.text("partition-spec-id")
    if fields is None:
        _otherwise("partition-spec", None if silent is None else "known")
        assert silent is not None  # noqa: S101  the line above refuses
        return silent.spec
    spec_id = header_number("partition-spec-id", named)
    if spec_id is None:
        if silent is not None:
            spec_id = silent.spec.spec_id
        else:
            spec_id = 0 if version == 1 else int(_otherwise("partition-spec-id", None))
    return PartitionSpec.from_text(spec_id, fields)


def inherit(manifest: Manifest, listed: ManifestFile) -> tuple[ManifestEntry, ...]:
    """The entries with every number that they inherit from the manifest list.

    Row ids go to every live data file without one, in the order of the entries, as Java's reader gives them;
    in a manifest to which the list gives none, no file has one, and delete files never have one.
    """
    found: list[ManifestEntry] = []
    next_row_id = listed.first_row_id if manifest.header.content is ManifestContent.DATA else None
    for entry in manifest.entries:
        given = None if next_row_id is None else entry.data_file.first_row_id
        if next_row_id is not None and given is None and entry.is_live:
            given = next_row_id
            next_row_id += entry.data_file.record_count
            _require_row_id(next_row_id)
        numbered = _numbered(entry, listed)
        if given != entry.data_file.first_row_id:
            numbered = replace(numbered, data_file=replace(entry.data_file, first_row_id=given))
        found.append(numbered)
    return tuple(found)


def _require_row_id(row_id: int) -> None:
    if row_id >= 2**63:
        raise Code.MANIFEST_INVALID(reason="manifest_row_ids_overflow", got=str(row_id))


def _numbered(entry: ManifestEntry, listed: ManifestFile) -> ManifestEntry:
    number = listed.sequence_number or 0
    if entry.status is not EntryStatus.ADDED and number != 0:
        for name, value in (
            ("sequence_number", entry.sequence_number),
            ("file_sequence_number", entry.file_sequence_number),
        ):
            if value is None:
                raise Code.MANIFEST_INVALID(
                    f"an entry that was not added here has no {name}", reason="manifest_sequence_missing", got="none"
                )
    return replace(
        entry,
        snapshot_id=listed.added_snapshot_id if entry.snapshot_id is None else entry.snapshot_id,
        sequence_number=number if entry.sequence_number is None else entry.sequence_number,
        file_sequence_number=number if entry.file_sequence_number is None else entry.file_sequence_number,
    )


def check_listed(manifest: Manifest, listed: ManifestFile, *, size: int) -> None:
    """Refuse a manifest of which its list does not speak the truth; a null count claims nothing."""
    header = manifest.header
    if listed.manifest_length != size:
        raise _lie("manifest_listed_length_lies", "manifest_length", size, listed.manifest_length)
    if listed.partition_spec_id != header.spec.spec_id:
        raise _lie("manifest_listed_spec_lies", "partition_spec_id", header.spec.spec_id, listed.partition_spec_id)
    if listed.content is not header.content:
        raise _lie("manifest_listed_content_lies", "content", header.content, listed.content)
    for status, files, rows in (
        (EntryStatus.ADDED, listed.added_files_count, listed.added_rows_count),
        (EntryStatus.EXISTING, listed.existing_files_count, listed.existing_rows_count),
        (EntryStatus.DELETED, listed.deleted_files_count, listed.deleted_rows_count),
    ):
        found = [entry.data_file.record_count for entry in manifest.entries if entry.status is status]
        what = status.name.lower()
        if files is not None and files != len(found):
            raise _lie("manifest_listed_files_lie", f"{what}_files_count", len(found), files)
        if rows is not None and rows != sum(found):
            raise _lie("manifest_listed_rows_lie", f"{what}_rows_count", sum(found), rows)
    _check_sequence(manifest, listed)


def _check_sequence(manifest: Manifest, listed: ManifestFile) -> None:
    live = [entry.sequence_number or 0 for entry in inherit(manifest, listed) if entry.is_live]
    if not live:
        return
    if max(live) > (listed.sequence_number or 0):
        raise Code.MANIFEST_INVALID(
            reason="manifest_sequence_ahead", expected=f"at most {listed.sequence_number}", got=str(max(live))
        )
    least = listed.min_sequence_number or 0
    if least != min(live):
        raise _lie("manifest_listed_minimum_lies", "min_sequence_number", min(live), least)


def _lie(code: str, what: str, found: int, claimed: int) -> InputError:
    return InputError(
        code,
        f"{what} in the manifest list is not that of the manifest",
        expected=str(int(found)),
        got=str(int(claimed)),
    )
