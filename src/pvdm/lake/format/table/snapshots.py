"""Snapshots, refs, logs, statistics files and encryption keys of the metadata document."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as attribute
from enum import Enum
from types import MappingProxyType
from typing import Final

from pvdm.errors import Code
from pvdm.lake.format.json_document import JsonObject, Node, abbreviate, comparison_text, dump_json, invalid_value

MAIN: Final = "main"
REF_FIELDS_MAX: Final = 100
RETENTION_KEYS: Final = ("min-snapshots-to-keep", "max-snapshot-age-ms", "max-ref-age-ms")


class RefType(Enum):
    """A branch moves with commits, a tag does not."""

    BRANCH = "branch"
    TAG = "tag"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One snapshot; `raw` is never changed in place."""

    snapshot_id: int
    parent_id: int | None
    sequence_number: int
    timestamp_ms: int
    manifest_list: str | None
    manifests: tuple[str, ...]
    operation: str | None
    summary: Mapping[str, str] = attribute(hash=False)
    schema_id: int | None
    first_row_id: int | None
    added_rows: int | None
    key_id: str | None
    raw: JsonObject = attribute(repr=False, compare=False)
    place: str = attribute(repr=False, compare=False, default="$")
    _dumped: bytes | None = attribute(default=None, init=False, repr=False, compare=False)
    _comparison_text: str | None = attribute(default=None, init=False, repr=False, compare=False)

    def dump(self) -> bytes:
        """The snapshot's JSON as a document has it, cached, since every later document of the table repeats it."""
        if self._dumped is None:
            object.__setattr__(self, "_dumped", dump_json(self.raw))
        return self._dumped or b""

    def comparison_text(self) -> str:
        """The snapshot's JSON in the form that is compared, cached."""
        if self._comparison_text is None:
            object.__setattr__(self, "_comparison_text", comparison_text(self.raw))
        return self._comparison_text or ""


@dataclass(frozen=True, slots=True)
class SnapshotRef:
    """A branch or tag with its retention settings."""

    snapshot_id: int
    type: RefType
    min_snapshots_to_keep: int | None = None
    max_snapshot_age_ms: int | None = None
    max_ref_age_ms: int | None = None
    raw: JsonObject = attribute(repr=False, compare=False, default_factory=dict)


@dataclass(frozen=True, slots=True)
class SnapshotLogEntry:
    """The time at which `main` began to show a snapshot."""

    timestamp_ms: int
    snapshot_id: int


@dataclass(frozen=True, slots=True)
class MetadataLogEntry:
    """An earlier metadata file, and the time of the last update in it."""

    timestamp_ms: int
    metadata_file: str


@dataclass(frozen=True, slots=True)
class StatisticsFile:
    """A statistics file or partition statistics file of a snapshot."""

    snapshot_id: int
    path: str
    file_size_in_bytes: int
    raw: JsonObject = attribute(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class EncryptedKey:
    """An encrypted key of the table, by its id."""

    key_id: str
    encrypted_by_id: str | None
    raw: JsonObject = attribute(repr=False, compare=False)


def parse_snapshot(node: Node) -> Snapshot:
    """Read a snapshot. Checks that need the rest of the document are in `validity`."""
    summary = node.string_map_if_present("summary")
    operation = summary.get("operation", "overwrite" if summary else None)  # Iceberg's reader has the same default
    first_row_id, added_rows = node.optional_long("first-row-id"), node.optional_long("added-rows")
    sequence_number = node.long_if_present("sequence-number") or 0
    numbers = {"sequence-number": sequence_number, "first-row-id": first_row_id, "added-rows": added_rows}
    for key, number in numbers.items():
        if number is not None and number < 0:
            raise invalid_value(node.at(key), "a number from 0", str(number))
    if first_row_id is not None and added_rows is None:
        got = "no added-rows"
        raise Code.SNAPSHOT_INVALID(reason="snapshot_added_rows_missing", got=got, place=node.at("added-rows"))
    manifest_list = node.text("manifest-list") if node.is_present("manifest-list") else None
    has_list, has_manifests = node.is_present("manifest-list"), node.is_present("manifests")
    manifests = node.string_list("manifests") if has_manifests else ()
    if has_list == has_manifests:
        got = "both" if has_list else "neither"
        raise Code.SNAPSHOT_INVALID(reason="snapshot_manifests_invalid", got=got, place=node.place)
    return Snapshot(
        node.long("snapshot-id"),
        node.long_if_present("parent-snapshot-id"),
        sequence_number,
        node.long("timestamp-ms"),
        manifest_list,
        manifests,
        operation,
        MappingProxyType(summary),
        node.optional_integer("schema-id"),
        first_row_id,
        added_rows,
        node.optional_text("key-id"),
        node.raw,
        node.place,
    )


def parse_ref(node: Node) -> SnapshotRef:
    """Read a ref. Raises if a tag has retention settings of branches, or a setting is not a positive number."""
    text = node.text("type").lower()
    if text not in ("branch", "tag"):
        raise invalid_value(node.at("type"), "branch or tag", abbreviate(text))
    ref_type = RefType(text)
    keep = node.optional_integer("min-snapshots-to-keep")
    snapshot_age, ref_age = node.optional_long("max-snapshot-age-ms"), node.optional_long("max-ref-age-ms")
    for key, number in zip(RETENTION_KEYS, (keep, snapshot_age, ref_age), strict=True):
        if number is not None and (number <= 0 or (ref_type is RefType.TAG and key != "max-ref-age-ms")):
            raise Code.REF_INVALID(reason="ref_retention_invalid", got=f"{number} on a {text}", place=node.at(key))
    require_few_fields(node.raw, node.place)
    return SnapshotRef(node.long("snapshot-id"), ref_type, keep, snapshot_age, ref_age, node.raw)


def require_few_fields(ref: JsonObject, place: str) -> None:
    """Raise if a ref has too many fields, defined by Iceberg or not, because every move of the ref copies them."""
    if len(ref) > REF_FIELDS_MAX:
        expected = f"at most {REF_FIELDS_MAX}"
        raise Code.REF_INVALID(reason="ref_fields_too_many", expected=expected, got=str(len(ref)), place=place)


def parse_statistics(node: Node) -> StatisticsFile:
    """Read a statistics file. The list of its blobs is only checked."""
    node.long("file-footer-size-in-bytes")
    node.array("blob-metadata")
    for blob in node.nodes("blob-metadata"):
        blob.text("type")
        blob.long("snapshot-id")
        blob.long("sequence-number")
        blob.integers("fields")
        blob.string_map_if_present("properties")
    return parse_partition_statistics(node)


def parse_partition_statistics(node: Node) -> StatisticsFile:
    """Read a partition statistics file."""
    snapshot_id, path = node.long("snapshot-id"), node.text("statistics-path")
    return StatisticsFile(snapshot_id, path, node.long("file-size-in-bytes"), node.raw)


def parse_key(node: Node) -> EncryptedKey:
    """Read an encrypted key. Raises if its bytes are not base64."""
    text = node.text("encrypted-key-metadata")
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise invalid_value(node.at("encrypted-key-metadata"), "base64", "something else") from None
    node.string_map_if_present("properties")
    return EncryptedKey(node.text("key-id"), node.optional_text("encrypted-by-id"), node.raw)


def parse_snapshot_log_entry(node: Node) -> SnapshotLogEntry:
    """Read one entry of the snapshot log."""
    return SnapshotLogEntry(node.long("timestamp-ms"), node.long("snapshot-id"))
