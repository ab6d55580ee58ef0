"""Manifest lists of formats 1, 2 and 3: read by field id, with header and records checked against each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pvdm.errors import Code, PvdmError
from pvdm.lake.format.avro.container import AvroFile, AvroLimits, read_avro
from pvdm.lake.format.avro.decode import Raw
from pvdm.lake.format.avro.schema import ArrayNode, RecordNode
from pvdm.lake.format.manifest.cache import ParsedFiles
from pvdm.lake.format.manifest.entry import LOCATION_MAX_BYTES, ManifestContent
from pvdm.lake.format.manifest.fields import LIST, SUMMARY, list_required, locate
from pvdm.lake.format.partition_value import inner_node
from pvdm.lake.format.schema.logical import check_iceberg_schema

MANIFEST_LIST_MAX_BYTES: Final = 67_108_864
MANIFEST_LIST_ENTRIES_MAX: Final = 100_000

LIST_LIMITS: Final = AvroLimits(file_size_max_bytes=MANIFEST_LIST_MAX_BYTES, records_max=MANIFEST_LIST_ENTRIES_MAX)
SUPPORTED_VERSIONS: Final = (1, 2, 3)
_PARTITIONS: Final = 507


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSummary:
    """The range of one partition field over a manifest's files."""

    contains_null: bool
    contains_nan: bool | None = None
    lower_bound: bytes | None = None
    upper_bound: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFile:
    """A manifest's entry in a list. For a writer, a sequence number of None is this commit's."""

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
    """A list's header; None for what it does not say. A parent of `null` is None too."""

    format_version: int
    snapshot_id: int | None = None
    parent_snapshot_id: int | None = None
    sequence_number: int | None = None
    first_row_id: int | None = None
    iceberg_schema: str | None = None


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


_PARSED: Final[ParsedFiles[ManifestList]] = ParsedFiles(lambda found: found.file.content_bytes)


def _parse(data: bytes, format_version: int | None, limits: AvroLimits) -> ManifestList:
    file = read_avro(data, limits)
    header = _header(file, format_version)
    check_iceberg_schema(header.iceberg_schema, file.schema)
    at = locate(file.schema, LIST)
    for field_id in sorted(list_required(header.format_version)):
        if field_id not in at:
            raise _missing(LIST[field_id].name, field_id)
    summaries = _summary_positions(file.schema, at)
    manifests = tuple(_manifest(raw, at, summaries, header.format_version) for raw in file.records)
    _check_against_header(header, manifests)
    return ManifestList(header, manifests, file)


def _missing(name: str, field_id: int) -> PvdmError:
    words = f"field {field_id} ({name}) is missing or null"
    return Code.MANIFEST_LIST_INVALID(words, reason="manifest_list_field_missing", expected="a value", got="none")


def header_version(text: str | None, table: int | None, by_schema: int) -> int:
    """The format version of a file from its header, else from the table, else from its schema."""
    found = header_number("format-version", text)
    if found is None:
        found = by_schema if table is None else table
    if found not in SUPPORTED_VERSIONS:
        raise Code.MANIFEST_INVALID(reason="manifest_format_unsupported", got=str(found))
    if table is not None and found > table:
        raise Code.MANIFEST_INVALID(reason="manifest_format_conflict", expected=f"at most {table}", got=str(found))
    return found


def header_number(key: str, text: str | None) -> int | None:
    """A header value as an integer of 64 bits. Raises if it is not one."""
    if text is None:
        return None
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 19) or not -(2**63) <= int(text) < 2**63:
        words = f"header value {key!r} is not a number"
        raise Code.MANIFEST_INVALID(words, reason="manifest_header_invalid", got=repr(text)[:60])
    return int(text)


def _header(file: AvroFile, table: int | None) -> ListHeader:
    parent = file.text("parent-snapshot-id")
    by_schema = 1 if file.schema.position(515) is None else 2 if file.schema.position(520) is None else 3
    return ListHeader(
        format_version=header_version(file.text("format-version"), table, by_schema),
        snapshot_id=header_number("snapshot-id", file.text("snapshot-id")),
        parent_snapshot_id=None if parent == "null" else header_number("parent-snapshot-id", parent),
        sequence_number=header_number("sequence-number", file.text("sequence-number")),
        first_row_id=header_number("first-row-id", file.text("first-row-id")),
        iceberg_schema=file.text("iceberg.schema"),
    )


def _summary_positions(schema: RecordNode, at: dict[int, int]) -> dict[int, int]:
    if _PARTITIONS not in at:
        return {}
    node = inner_node(schema.fields[at[_PARTITIONS]].type)
    assert isinstance(node, ArrayNode)  # noqa: S101  `locate` has checked both
    assert isinstance(node.items, RecordNode)  # noqa: S101
    found = locate(node.items, SUMMARY)
    if 509 not in found:
        raise _missing("contains_null", 509)
    return found


_COUNTS: Final = (504, 505, 506, 512, 513, 514)


def _manifest(raw: Raw, at: dict[int, int], summaries: dict[int, int], version: int) -> ManifestFile:
    required = list_required(version)
    found: dict[str, Any] = {}
    for field_id, position in at.items():
        value = raw[position]
        if value is None and field_id in required:
            raise _missing(LIST[field_id].name, field_id)
        found[LIST[field_id].name] = value
    for field_id in (501, 515, 516, 520, *_COUNTS):
        value = found.get(LIST[field_id].name)
        if value is not None and value < 0:
            words = f"{LIST[field_id].name} is negative"
            raise Code.MANIFEST_LIST_INVALID(words, reason="manifest_list_number_negative", got=str(value))
    path = found["manifest_path"]
    if not 1 <= len(path.encode()) <= LOCATION_MAX_BYTES:
        expected = f"1 to {LOCATION_MAX_BYTES} bytes"
        raise Code.MANIFEST_LIST_INVALID(reason="manifest_list_location_refused", expected=expected, got=path[:80])
    try:
        found["content"] = ManifestContent(found.get("content") or 0)
    except ValueError:
        raise Code.MANIFEST_LIST_INVALID(reason="manifest_list_content_unknown", got=str(found["content"])) from None
    if found.get("partitions") is not None:
        found["partitions"] = tuple(_summary(each, summaries) for each in found["partitions"])
    # A list of format 1 has no sequence numbers; they are 0 (spec, Manifest Lists).
    for name in ("sequence_number", "min_sequence_number"):
        found[name] = found.get(name) or 0
    return ManifestFile(**found)


def _summary(raw: Raw, at: dict[int, int]) -> FieldSummary:
    found = {known.name: raw[at[field_id]] for field_id, known in SUMMARY.items() if field_id in at}
    if found["contains_null"] is None:
        raise _missing("contains_null", 509)
    return FieldSummary(**found)


def _check_against_header(header: ListHeader, manifests: tuple[ManifestFile, ...]) -> None:
    """Raise if the header and the records disagree about the snapshot."""
    for each in manifests:
        if each.content is ManifestContent.DELETES and header.format_version == 1:
            raise _conflict("manifest_list_deletes_in_v1", "data manifests only in format 1", each.manifest_path)
        if header.sequence_number is None or header.format_version == 1:
            continue
        number = each.sequence_number or 0
        if number > header.sequence_number:
            raise _conflict("manifest_list_sequence_ahead", f"at most {header.sequence_number}", number)
        if each.added_snapshot_id == header.snapshot_id and number != header.sequence_number:
            raise _conflict("manifest_list_sequence_conflict", f"{header.sequence_number} for its own", number)


def _conflict(reason: str, expected: str, got: object) -> PvdmError:
    words = "a manifest list contradicts itself"
    return Code.MANIFEST_LIST_INVALID(words, reason=reason, expected=expected, got=repr(got)[:120])
