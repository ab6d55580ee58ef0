"""The view metadata document: its JSON kept whole, its facts as typed values, its validity judged on the way in."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as attribute
from types import MappingProxyType
from typing import Final

from pvdm.errors import Code
from pvdm.lake.format.json.document import Json, canonical, dump_json, parse_json, require_size, unzip
from pvdm.lake.format.json.node import Node, Raw
from pvdm.lake.format.schema.document import TableSchema, parse_schema
from pvdm.lake.format.table.metadata import check_uuid, stripped_location

VIEW_SIZE_MAX_BYTES: Final = 16_777_216
VIEW_FORMAT_VERSION: Final = 1
SQL: Final = "sql"

# What a version has of its own even where it says the same as another one.
_OWN: Final = frozenset({"version-id", "timestamp-ms"})


@dataclass(frozen=True, slots=True)
class Representation:
    """One way to say what the view shows; only SQL is known, other kinds are kept and not read."""

    type: str
    dialect: str | None
    sql: str | None


@dataclass(frozen=True, slots=True)
class ViewVersion:
    """What the view showed at a time; `raw` is the JSON it was read from and is never changed in place."""

    version_id: int
    timestamp_ms: int
    schema_id: int
    summary: Mapping[str, str]
    representations: tuple[Representation, ...]
    default_catalog: str | None
    default_namespace: tuple[str, ...]
    raw: Raw = attribute(repr=False, compare=False)
    place: str = attribute(repr=False, compare=False, default="$")

    @property
    def dialects(self) -> frozenset[str]:
        """The dialects that it is written in, in small letters."""
        return frozenset(each.dialect.lower() for each in self.representations if each.dialect is not None)

    @property
    def meaning(self) -> str:
        """Equal for versions that behave the same, ids and times aside; fields that Iceberg does not know count too."""
        return canonical({key: value for key, value in self.raw.items() if key not in _OWN and value is not None})


@dataclass(frozen=True, slots=True)
class VersionLogEntry:
    """When a version became the current one."""

    version_id: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True, eq=False)
class ViewMetadata:
    """One state of a view; `raw` is the whole document, unknown fields too, and is never changed in place."""

    view_uuid: str
    format_version: int
    location: str
    properties: Mapping[str, str]
    schemas: tuple[TableSchema, ...]
    current_version_id: int
    versions: tuple[ViewVersion, ...]
    version_log: tuple[VersionLogEntry, ...]
    raw: Raw = attribute(repr=False)

    @classmethod
    def parse(cls, data: bytes) -> ViewMetadata:
        """The state that the bytes of a metadata file hold, plain or gzip; anything not valid is an error."""
        plain = unzip(data, size_max_bytes=VIEW_SIZE_MAX_BYTES)
        return cls.from_json(parse_json(plain, size_max_bytes=VIEW_SIZE_MAX_BYTES))

    @classmethod
    def from_json(cls, value: Json, *, place: str = "$") -> ViewMetadata:
        """The state of a parsed document."""
        metadata = _read(Node(value, place))
        _judge(metadata, place)
        return metadata

    def to_bytes(self) -> bytes:
        """The document as a metadata file has it; the same document gives the same bytes."""
        return require_size(dump_json(self.raw), VIEW_SIZE_MAX_BYTES)

    def to_json(self) -> dict[str, Json]:
        """A copy of the document that may be changed."""
        return copy.deepcopy(dict(self.raw))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ViewMetadata):
            return NotImplemented
        return canonical(self.raw) == canonical(other.raw)

    __hash__ = None  # type: ignore[assignment]

    @property
    def current_version(self) -> ViewVersion:
        """What the view shows."""
        return next(each for each in self.versions if each.version_id == self.current_version_id)


def parse_version(node: Node) -> ViewVersion:
    """One version of a view."""
    node.items("representations")
    return ViewVersion(
        node.integer("version-id"),
        node.long("timestamp-ms"),
        node.integer("schema-id"),
        MappingProxyType(node.strings("summary")),
        tuple(_representation(item) for item in node.nodes("representations")),
        node.optional_text("default-catalog"),
        node.texts("default-namespace"),
        node.raw,
        node.place,
    )


def require_view_format(version: int, place: str) -> None:
    """A format version that is known."""
    if version != VIEW_FORMAT_VERSION:
        raise Code.TABLE_METADATA_INVALID(
            "the view is of a format version that is not known",
            reason="format_version_unsupported",
            expected=str(VIEW_FORMAT_VERSION),
            got=str(version),
            place=place,
        )


def _representation(node: Node) -> Representation:
    kind = node.text("type").lower()
    if kind != SQL:
        return Representation(kind, None, None)
    return Representation(kind, node.text("dialect"), node.text("sql"))


def _read(node: Node) -> ViewMetadata:
    version = node.integer("format-version")
    require_view_format(version, node.at("format-version"))
    for name in ("schemas", "versions", "version-log"):
        node.items(name)
    return ViewMetadata(
        check_uuid(node.text("view-uuid"), node.at("view-uuid")),
        version,
        stripped_location(node.text("location"), node.at("location")),
        MappingProxyType(node.given_strings("properties")),
        tuple(parse_schema(item) for item in node.nodes("schemas")),
        node.integer("current-version-id"),
        tuple(parse_version(item) for item in node.nodes("versions")),
        tuple(VersionLogEntry(item.integer("version-id"), item.long("timestamp-ms")) for item in _log(node)),
        node.raw,
    )


def _log(node: Node) -> list[Node]:
    return list(node.nodes("version-log"))


def _judge(metadata: ViewMetadata, place: str) -> None:
    """Every id once, and every id that is named is there."""
    schema_ids = [schema.schema_id for schema in metadata.schemas]
    version_ids = [version.version_id for version in metadata.versions]
    for what, ids in (("schemas", schema_ids), ("versions", version_ids)):
        twice = next((found for found, times in Counter(ids).items() if times > 1), None)
        if twice is not None:
            raise Code.VIEW_INVALID(
                f"two of the view's {what} have one id", reason="view_id_twice", got=str(twice), place=f"{place}.{what}"
            )
    if metadata.current_version_id not in version_ids:
        raise Code.VIEW_INVALID(
            "no version has the id of the current one",
            reason="view_version_unknown",
            expected=f"one of {_listed(version_ids)}",
            got=str(metadata.current_version_id),
            place=f"{place}.current-version-id",
        )
    known = frozenset(schema_ids)
    for version in metadata.versions:
        if version.schema_id not in known:
            raise Code.ICEBERG_SCHEMA_INVALID(
                f"version {version.version_id} of the view has a schema that is not there",
                reason="schema_unknown",
                expected=f"one of {_listed(schema_ids)}",
                got=str(version.schema_id),
                place=f"{version.place}.schema-id",
            )


def _listed(ids: list[int]) -> str:
    return ", ".join(str(found) for found in ids[:32]) or "none"
