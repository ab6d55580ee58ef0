"""View metadata documents: read and checked, made for a new view, and changed by the updates of a commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as attribute
from itertools import islice
from types import MappingProxyType
from typing import Final

from pvdm.errors import Code, PvdmError
from pvdm.lake.format.json_document import (
    INT_LAST,
    Json,
    JsonObject,
    Node,
    abbreviate,
    comparison_text,
    decompress_gzip,
    dump_json,
    parse_json,
    read_objects,
    require_size,
)
from pvdm.lake.format.schema.document import TableSchema, parse_schema
from pvdm.lake.format.table import update_structure as structure
from pvdm.lake.format.table.commit_request import read_kinds
from pvdm.lake.format.table.draft import LAST_ADDED, Parts, integer_property
from pvdm.lake.format.table.metadata import check_uuid, strip_location
from pvdm.lake.format.table.validity import find_repeated

VIEW_SIZE_MAX_BYTES: Final = 16_777_216
VIEW_FORMAT_VERSION: Final = 1
SQL: Final = "sql"

# Two versions that differ only in these fields mean the same.
_NOT_COMPARED: Final = frozenset({"version-id", "timestamp-ms"})


@dataclass(frozen=True, slots=True)
class Representation:
    """One query of a view version. Only SQL is read; representations of other types are kept as they are."""

    type: str
    dialect: str | None
    sql: str | None


@dataclass(frozen=True, slots=True)
class ViewVersion:
    """One version of a view. `raw` is the JSON it was read from and is never changed in place."""

    version_id: int
    timestamp_ms: int
    schema_id: int
    representations: tuple[Representation, ...]
    raw: JsonObject = attribute(repr=False, compare=False)
    place: str = attribute(repr=False, compare=False, default="$")

    @property
    def dialects(self) -> frozenset[str]:
        """The SQL dialects of the version, in lower case."""
        return frozenset(each.dialect.lower() for each in self.representations if each.dialect is not None)

    @property
    def meaning(self) -> str:
        """Text that is equal for versions that differ only in id and time. It also has the unknown fields."""
        raw = self.raw.items()
        return comparison_text({key: value for key, value in raw if key not in _NOT_COMPARED and value is not None})


@dataclass(frozen=True, slots=True)
class VersionLogEntry:
    """The time at which a version became current."""

    version_id: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True, eq=False)
class ViewMetadata:
    """One state of a view. `raw` is the whole document with its unknown fields and is never changed in place."""

    view_uuid: str
    format_version: int
    location: str
    properties: Mapping[str, str]
    schemas: tuple[TableSchema, ...]
    current_version_id: int
    versions: tuple[ViewVersion, ...]
    version_log: tuple[VersionLogEntry, ...]
    raw: JsonObject = attribute(repr=False)

    @classmethod
    def parse(cls, data: bytes) -> ViewMetadata:
        """Read a metadata file, plain or gzip. Raises if it is not valid."""
        plain = decompress_gzip(data, size_max_bytes=VIEW_SIZE_MAX_BYTES)
        return cls.from_json(parse_json(plain, size_max_bytes=VIEW_SIZE_MAX_BYTES))

    @classmethod
    def from_json(cls, value: Json) -> ViewMetadata:
        """Read a parsed document. Raises if it is not valid."""
        metadata = _read(Node(value, "$"))
        _check(metadata)
        return metadata

    def to_bytes(self) -> bytes:
        """The bytes of the metadata file; equal documents give equal bytes."""
        return require_size(dump_json(self.raw), VIEW_SIZE_MAX_BYTES)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ViewMetadata):
            return NotImplemented
        return comparison_text(self.raw) == comparison_text(other.raw)

    __hash__ = None  # type: ignore[assignment]

    @property
    def current_version(self) -> ViewVersion:
        """The current version."""
        return next(each for each in self.versions if each.version_id == self.current_version_id)


def parse_version(node: Node) -> ViewVersion:
    """Read one version of a view. Fields without an attribute are only checked."""
    node.array("representations")
    node.string_map("summary")
    node.optional_text("default-catalog")
    node.string_list("default-namespace")
    return ViewVersion(
        node.integer("version-id"),
        node.long("timestamp-ms"),
        node.integer("schema-id"),
        tuple(_read_representation(item) for item in node.nodes("representations")),
        node.raw,
        node.place,
    )


def require_view_format(node: Node) -> None:
    """Raise if the view's format version is not supported."""
    version, place = node.integer("format-version"), node.at("format-version")
    if version != VIEW_FORMAT_VERSION:
        expected, reason = str(VIEW_FORMAT_VERSION), "format_version_unsupported"
        raise Code.TABLE_METADATA_INVALID(reason=reason, expected=expected, got=str(version), place=place)


def _read_representation(node: Node) -> Representation:
    kind = node.text("type").lower()
    if kind != SQL:
        return Representation(kind, None, None)
    return Representation(kind, node.text("dialect"), node.text("sql"))


def _read(node: Node) -> ViewMetadata:
    require_view_format(node)
    for name in ("schemas", "versions", "version-log"):
        node.array(name)  # raises if it is absent, which `nodes` accepts
    return ViewMetadata(
        check_uuid(node.text("view-uuid"), node.at("view-uuid")),
        VIEW_FORMAT_VERSION,
        strip_location(node.text("location"), node.at("location")),
        MappingProxyType(node.string_map_if_present("properties")),
        tuple(parse_schema(item) for item in node.nodes("schemas")),
        node.integer("current-version-id"),
        tuple(parse_version(item) for item in node.nodes("versions")),
        tuple(
            VersionLogEntry(item.integer("version-id"), item.long("timestamp-ms")) for item in node.nodes("version-log")
        ),
        node.raw,
    )


def _check(metadata: ViewMetadata) -> None:
    """Raise unless ids are unique and every schema and version that is referred to exists."""
    schema_ids = [schema.schema_id for schema in metadata.schemas]
    version_ids = [version.version_id for version in metadata.versions]
    for what, ids in (("schemas", schema_ids), ("versions", version_ids)):
        if repeated := find_repeated(ids):
            words = f"two {what} of the view have one id"
            raise Code.VIEW_INVALID(words, reason="view_id_twice", got=repeated, place=f"$.{what}")
    if (current := metadata.current_version_id) not in version_ids:
        words = "the view does not have the version that is current"
        raise _version_unknown(words, version_ids, current, "$.current-version-id")
    known_ids = frozenset(schema_ids)
    for version in metadata.versions:
        if version.schema_id not in known_ids:
            words = f"version {version.version_id} of the view names a schema that the view does not have"
            expected, got, place = _one_of(schema_ids), str(version.schema_id), f"{version.place}.schema-id"
            raise Code.ICEBERG_SCHEMA_INVALID(words, reason="schema_unknown", expected=expected, got=got, place=place)


def _version_unknown(message: str, ids: Iterable[int], version_id: int, place: str) -> PvdmError:
    expected, got = _one_of(ids), str(version_id)
    return Code.VIEW_INVALID(message, reason="view_version_unknown", expected=expected, got=got, place=place)


def _one_of(ids: Iterable[int]) -> str:
    return f"one of {', '.join(map(str, islice(ids, 32))) or 'none'}"


VIEW_UPDATES_MAX: Final = 1_000
HISTORY_PROPERTY: Final = "version.history.num-entries"
HISTORY_DEFAULT: Final = 10
DROP_DIALECT_PROPERTY: Final = "replace.drop-dialect.allowed"
ASSERT_UUID: Final = "assert-view-uuid"


class ViewDraft:
    """A view's next state while updates are applied to it. `finish` checks and returns the state."""

    def __init__(self, base: ViewMetadata | None, *, now_ms: int, view_uuid: str) -> None:
        self.base = base
        self.now_ms = now_ms
        self.changed = base is None
        self.view_uuid = view_uuid
        self.location: str | None = base.location if base else None
        self.properties: dict[str, str] = dict(base.properties) if base else {}
        self.schemas: Parts[TableSchema] = Parts({each.schema_id: each for each in base.schemas} if base else {})
        self.versions: Parts[ViewVersion] = Parts({each.version_id: each for each in base.versions} if base else {})
        self.current_id: int | None = base.current_version_id if base else None
        self.log_entry: JsonObject | None = None

    def put_schema(self, schema: TableSchema) -> None:
        """Add the schema unless the view has the same one."""
        same_id = self.schemas.find(schema)
        if same_id is not None:
            # In later updates -1 means this schema, even if another writer has added it just before.
            self.schemas.last_added = same_id
            return
        schema_id = max(self.schemas, default=-1) + 1
        raw = {**schema.raw, "type": "struct", "schema-id": schema_id}
        self.schemas.add(schema_id, replace(schema, schema_id=schema_id, raw=raw))
        self.changed = True

    def put_version(self, version: ViewVersion) -> None:
        """Add the version unless the view has a version that means the same."""
        place = f"{version.place}.schema-id"
        schema_id = structure.resolve_id(version.schema_id, self.schemas.last_added, "schema", place)
        version = replace(version, schema_id=schema_id, raw={**version.raw, "schema-id": schema_id})
        same_id = self.versions.find(version)
        if same_id is not None:
            self.versions.last_added = same_id
            return
        _check_queries(version)
        version_id = max(version.version_id, max(self.versions, default=0) + 1)
        if not 0 < version.version_id <= version_id <= INT_LAST:
            expected = f"1 to {INT_LAST}, in a view whose highest version id is below {INT_LAST}"
            got, place = str(version.version_id), f"{version.place}.version-id"
            raise Code.VIEW_INVALID(reason="view_version_id_invalid", expected=expected, got=got, place=place)
        raw = {**version.raw, "version-id": version_id}
        self.versions.add(version_id, replace(version, version_id=version_id, raw=raw))
        self.changed = True

    def make_current(self, version_id: int, place: str) -> None:
        """Make one of the view's versions the current one."""
        version_id = structure.resolve_id(version_id, self.versions.last_added, "version", place)
        if version_id == self.current_id:
            return
        if version_id not in self.versions:
            raise _version_unknown("no version has this id", self.versions, version_id, place)
        # An older version becomes current again now, not at the time when it was created.
        is_new = version_id in self.versions.added
        time_ms = self.versions[version_id].timestamp_ms if is_new else self.now_ms
        self.log_entry = {"timestamp-ms": time_ms, "version-id": version_id}
        self.current_id = version_id
        self.changed = True

    def finish(self) -> ViewMetadata:
        """The new state, or the old state if nothing changed."""
        if self.base is not None and not self.changed:
            return self.base
        if self.base is not None:
            self._check_dialects(self.base.current_version)
        kept = self._choose_kept()
        raw: dict[str, Json] = dict(self.base.raw) if self.base else {}
        raw["view-uuid"] = self.view_uuid
        raw["format-version"] = VIEW_FORMAT_VERSION
        if self.base is None or self.location != self.base.location:
            raw["location"] = self.location
        if self.properties or "properties" in raw:
            raw["properties"] = dict(self.properties)
        raw["schemas"] = [schema.raw for schema in self.schemas.values()]
        raw["current-version-id"] = self.current_id
        raw["versions"] = [version.raw for version in self.versions.values() if version.version_id in kept]
        raw["version-log"] = self._prune_log(kept)
        return ViewMetadata.from_json(raw)

    def _choose_kept(self) -> set[int]:
        """The ids of the versions to keep: the current and all new versions, then the newest others up to the limit."""
        size = integer_property(self.properties, HISTORY_PROPERTY, HISTORY_DEFAULT)
        if size < 1:
            words = f"the property {HISTORY_PROPERTY} cannot be accepted"
            raise Code.VIEW_INVALID(words, reason="view_history_size_invalid", got=str(size))
        kept = set(self.versions.added) if self.current_id is None else {*self.versions.added, self.current_id}
        others = sorted(self.versions.keys() - kept, reverse=True)
        return kept.union(others[: max(0, size - len(kept))])

    def _prune_log(self, kept: set[int]) -> list[Json]:
        """The log entries that come after every entry of a version that this change removes."""
        all_entries = read_objects(self.base.raw.get("version-log") if self.base else None)
        all_entries += [] if self.log_entry is None else [self.log_entry]
        entries: list[Json] = []
        for entry in all_entries:
            if entry["version-id"] in self.versions and entry["version-id"] not in kept:
                # An entry means that its version was current until the next entry. So no entry may stay before a gap.
                entries.clear()
            else:
                entries.append(entry)
        return entries

    def _check_dialects(self, previous: ViewVersion) -> None:
        """Raise if the next current version lacks a SQL dialect of the previous one, and no property allows this."""
        current = self.versions[self.current_id] if self.current_id is not None else previous
        lost = previous.dialects - current.dialects
        if lost and self.properties.get(DROP_DIALECT_PROPERTY, "false").lower() != "true":
            expected = f"a query for {', '.join(sorted(previous.dialects))}"
            got = ", ".join(sorted(current.dialects)) or "none"
            hint = f"to drop a dialect, set {DROP_DIALECT_PROPERTY}=true in the view's properties"
            raise Code.VIEW_INVALID(reason="view_dialect_dropped", expected=expected, got=got, hint=hint)


def new_view(request: Json, *, location: str, view_uuid: str, now_ms: int) -> ViewMetadata:
    """The first state of a view that a client creates; its schema gets id 0."""
    node = Node(request, "$")
    draft = ViewDraft(None, now_ms=now_ms, view_uuid=check_uuid(view_uuid, "$.view-uuid"))
    draft.location = strip_location(location, "$.location")
    draft.properties.update(node.string_map("properties") if node.has_not_null("properties") else {})
    draft.put_schema(parse_schema(node.node("schema")))
    draft.put_version(replace(parse_version(node.node("view-version")), schema_id=LAST_ADDED))
    draft.make_current(LAST_ADDED, "$.view-version")
    return draft.finish()


def apply_view_updates(base: ViewMetadata, updates: Sequence[Json], *, now_ms: int) -> ViewMetadata:
    """Apply the updates to `base`. Returns `base` if they change nothing."""
    draft = ViewDraft(base, now_ms=now_ms, view_uuid=base.view_uuid)
    for node, kind in read_kinds(updates, "update", _UPDATES, max_count=VIEW_UPDATES_MAX, target="views"):
        _UPDATES[kind](draft, node)
    return draft.finish()


def check_view_requirements(base: ViewMetadata, requirements: Sequence[Json]) -> None:
    """Raise a conflict if a required UUID is not the view's. Views have no other requirement."""
    for node, _ in read_kinds(requirements, "requirement", (ASSERT_UUID,), max_count=VIEW_UPDATES_MAX, target="views"):
        if node.text("uuid").lower() != base.view_uuid.lower():
            raise Code.REQUIREMENT_FAILED(
                reason="requirement_uuid", expected=abbreviate(node.text("uuid")), got=base.view_uuid, place=node.place
            )


def _assign_uuid(draft: ViewDraft, node: Node) -> None:
    uuid = check_uuid(node.text("uuid"), node.at("uuid"))
    if uuid.lower() != draft.view_uuid.lower():
        raise Code.VIEW_INVALID(reason="view_uuid_changed", expected=draft.view_uuid, got=uuid, place=node.at("uuid"))


_UPDATES: Final[Mapping[str, Callable[[ViewDraft, Node], None]]] = MappingProxyType(
    {
        "assign-uuid": _assign_uuid,
        # There is only one format version.
        "upgrade-format-version": lambda _, node: require_view_format(node),
        "set-location": structure.set_location,
        "set-properties": structure.set_properties,
        "remove-properties": structure.remove_properties,
        "add-schema": lambda draft, node: draft.put_schema(parse_schema(node.node("schema"))),
        "add-view-version": lambda draft, node: draft.put_version(parse_version(node.node("view-version"))),
        "set-current-view-version": lambda draft, node: draft.make_current(
            node.integer("view-version-id"), node.at("view-version-id")
        ),
    }
)


def _check_queries(version: ViewVersion) -> None:
    """Raise unless a new version has at least one query, only SQL, and at most one for each dialect."""
    dialects: set[str] = set()
    place = f"{version.place}.representations"
    for each in version.representations:
        if each.type != SQL or each.dialect is None:
            raise Code.VIEW_INVALID(reason="view_representation_unsupported", got=abbreviate(each.type), place=place)
        dialect = each.dialect.lower()
        if dialect in dialects:
            words = f"Invalid view version: Cannot add multiple queries for dialect {dialect[:64]}"
            raise Code.VIEW_INVALID(words, reason="view_dialect_twice", got=abbreviate(dialect), place=place)
        dialects.add(dialect)
    if not dialects:
        raise Code.VIEW_INVALID(reason="view_query_missing", got="none", place=place)
