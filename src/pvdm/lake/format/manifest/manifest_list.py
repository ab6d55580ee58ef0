"""Manifest lists of formats 1, 2 and 3: read by field id, with header and records checked against each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pvdm.errors import Code, PvdmError
from pvdm.lake.format.avro.container import AvroFile, AvroLimits, read_avro
from pvdm.lake.format.avro.decode import Raw
from pvdm.lake.format.avro.schema import ArrayNode, RecordNode
from pvdm.lake.format.manifest.cache import ParsedFiles
from pvdm.lake.format.manifest.entry import LOCATION_MAX_BYTES, ManifestContent, count_entries
from pvdm.lake.format.manifest.fields import LIST, SUMMARY, list_required, locate_fields
from pvdm.lake.format.partition_value import inner_node
from pvdm.lake.format.schema.logical import check_iceberg_schema

MANIFEST_LIST_MAX_BYTES: Final = 67_108_864
MANIFEST_LIST_ENTRIES_MAX: Final = 100_000

LIST_LIMITS: Final = AvroLimits(file_size_max_bytes=MANIFEST_LIST_MAX_BYTES, records_max=MANIFEST_LIST_ENTRIES_MAX)
FORMAT_VERSIONS: Final = (1, 2, 3)
COUNTS: Final = tuple(count_entries(()))
"""The names of the counts that a list has for each manifest."""
# Field ids.
_PARTITIONS_FIELD: Final = 507
_CONTAINS_NULL_FIELD: Final = 509
_SEQUENCE_NUMBER_FIELD: Final = 515  # from format 2 on
_FIRST_ROW_ID_FIELD: Final = 520  # from format 3 on


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSummary:
    """The range of one partition field over a manifest's files."""

    contains_null: bool
    contains_nan: bool | None = None
    lower_bound: bytes | None = None
    upper_bound: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFile:
    """A manifest's entry in a list. A writer replaces a sequence number of None by that of the new snapshot."""

    manifest_path: str
    manifest_length: int
    partition_spec_id: int
    added_snapshot_id: int
    content: ManifestContent = ManifestContent.DATA
    sequence_number: int | None = None
    min_sequence_number: int | None = None
    added_files_count: int | None = None
    existing_files_count: int | None = None
    deleted_files_count: int | None = None
    added_rows_count: int | None = None
    existing_rows_count: int | None = None
    deleted_rows_count: int | None = None
    partitions: tuple[FieldSummary, ...] | None = None
    key_metadata: bytes | None = None
    first_row_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListHeader:
    """A list's header. None means that the header leaves the value out, or that it gives the parent as `null`."""

    format_version: int
    snapshot_id: int | None = None
    parent_snapshot_id: int | None = None
    sequence_number: int | None = None
    first_row_id: int | None = None


@dataclass(frozen=True, slots=True)
class ManifestList:
    """A list's header and manifests, and the Avro file."""

    header: ListHeader
    manifests: tuple[ManifestFile, ...]
    file: AvroFile


def read_manifest_list(
    data: bytes, *, format_version: int | None = None, limits: AvroLimits = LIST_LIMITS
) -> ManifestList:
    """Read a manifest list. `format_version` is the table's, for lists whose header has none."""
    return _PARSED.get(data, (format_version, limits), lambda: _parse(data, format_version, limits))


_PARSED: Final[ParsedFiles[ManifestList]] = ParsedFiles(lambda manifest_list: manifest_list.file.content_bytes)


def _parse(data: bytes, format_version: int | None, limits: AvroLimits) -> ManifestList:
    file = read_avro(data, limits)
    header = _read_header(file, format_version)
    check_iceberg_schema(file)
    positions = locate_fields(file.schema, LIST)
    for field_id in sorted(list_required(header.format_version)):
        if field_id not in positions:
            raise _missing(LIST[field_id].name, field_id)
    summary_positions = _locate_summary(file.schema, positions)
    manifests = tuple(_read_record(raw, positions, summary_positions, header.format_version) for raw in file.records)
    _check_against_header(header, manifests)
    return ManifestList(header, manifests, file)


def _missing(name: str, field_id: int) -> PvdmError:
    words = f"field {field_id} ({name}) is missing or null"
    return Code.MANIFEST_LIST_INVALID(words, reason="manifest_list_field_missing", expected="a value", got="none")


def read_version(file: AvroFile, table_version: int | None, schema_version: int) -> int:
    """The format version in the file's header, else the table's, else the one that the Avro schema shows."""
    version = read_number(file, "format-version")
    if version is None:
        version = schema_version if table_version is None else table_version
    if version not in FORMAT_VERSIONS:
        raise Code.MANIFEST_INVALID(reason="manifest_format_unsupported", got=str(version))
    if table_version is not None and version > table_version:
        expected, got = f"at most {table_version}", str(version)
        raise Code.MANIFEST_INVALID(reason="manifest_format_conflict", expected=expected, got=got)
    return version


def read_number(file: AvroFile, key: str) -> int | None:
    """A header value as an integer of 64 bits; None if the header does not have it. Raises for other values."""
    text = file.text(key)
    if text is None:
        return None
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 19) or not -(2**63) <= int(text) < 2**63:
        words = f"header value {key!r} is not a number"
        raise Code.MANIFEST_INVALID(words, reason="manifest_header_invalid", got=repr(text)[:60])
    return int(text)


def _read_header(file: AvroFile, table_version: int | None) -> ListHeader:
    schema_version = 1
    if file.schema.position(_SEQUENCE_NUMBER_FIELD) is not None:
        schema_version = 2 if file.schema.position(_FIRST_ROW_ID_FIELD) is None else 3
    has_parent = file.text("parent-snapshot-id") != "null"
    return ListHeader(
        format_version=read_version(file, table_version, schema_version),
        snapshot_id=read_number(file, "snapshot-id"),
        parent_snapshot_id=read_number(file, "parent-snapshot-id") if has_parent else None,
        sequence_number=read_number(file, "sequence-number"),
        first_row_id=read_number(file, "first-row-id"),
    )


def _locate_summary(schema: RecordNode, positions: dict[int, int]) -> dict[int, int]:
    """The position of each field of a partition summary."""
    if _PARTITIONS_FIELD not in positions:
        return {}
    node = inner_node(schema.fields[positions[_PARTITIONS_FIELD]].type)
    assert isinstance(node, ArrayNode)  # noqa: S101  `locate_fields` has checked both
    assert isinstance(node.items, RecordNode)  # noqa: S101
    summary_positions = locate_fields(node.items, SUMMARY)
    if _CONTAINS_NULL_FIELD not in summary_positions:
        raise _missing("contains_null", _CONTAINS_NULL_FIELD)
    return summary_positions


def _read_record(raw: Raw, positions: dict[int, int], summary_positions: dict[int, int], version: int) -> ManifestFile:
    required = list_required(version)
    values: dict[str, Any] = {}
    for field_id, position in positions.items():
        value = raw[position]
        if value is None and field_id in required:
            raise _missing(LIST[field_id].name, field_id)
        values[LIST[field_id].name] = value
    for name in ("manifest_length", "sequence_number", "min_sequence_number", "first_row_id", *COUNTS):
        value = values.get(name)
        if value is not None and value < 0:
            words = f"{name} is negative"
            raise Code.MANIFEST_LIST_INVALID(words, reason="manifest_list_number_negative", got=str(value))
    path = values["manifest_path"]
    if not 1 <= len(path.encode()) <= LOCATION_MAX_BYTES:
        expected = f"1 to {LOCATION_MAX_BYTES} bytes"
        raise Code.MANIFEST_LIST_INVALID(reason="manifest_list_location_refused", expected=expected, got=path[:80])
    try:
        values["content"] = ManifestContent(values.get("content") or 0)
    except ValueError:
        raise Code.MANIFEST_LIST_INVALID(reason="manifest_list_content_unknown", got=str(values["content"])) from None
    if values.get("partitions") is not None:
        values["partitions"] = tuple(_read_summary(each, summary_positions) for each in values["partitions"])
    # A list of format 1 has no sequence numbers; they are 0 (spec, Manifest Lists).
    for name in ("sequence_number", "min_sequence_number"):
        values[name] = values.get(name) or 0
    return ManifestFile(**values)


def _read_summary(raw: Raw, positions: dict[int, int]) -> FieldSummary:
    values = {SUMMARY[field_id].name: raw[position] for field_id, position in positions.items()}
    if values["contains_null"] is None:
        raise _missing("contains_null", _CONTAINS_NULL_FIELD)
    return FieldSummary(**values)


def _check_against_header(header: ListHeader, manifests: tuple[ManifestFile, ...]) -> None:
    """Raise if a manifest contradicts the header's format version or sequence number."""
    for each in manifests:
        if each.content is ManifestContent.DELETES and header.format_version == 1:
            raise _conflict("manifest_list_deletes_in_v1", "only data manifests in format 1", each.manifest_path)
        if header.sequence_number is None or header.format_version == 1:
            continue
        number = each.sequence_number or 0
        if number > header.sequence_number:
            raise _conflict("manifest_list_sequence_ahead", f"at most {header.sequence_number}", number)
        if each.added_snapshot_id == header.snapshot_id and number != header.sequence_number:
            expected = f"{header.sequence_number} on a manifest of the list's own snapshot"
            raise _conflict("manifest_list_sequence_conflict", expected, number)


def _conflict(reason: str, expected: str, got: object) -> PvdmError:
    words = "a manifest list contradicts itself"
    return Code.MANIFEST_LIST_INVALID(words, reason=reason, expected=expected, got=repr(got)[:120])
