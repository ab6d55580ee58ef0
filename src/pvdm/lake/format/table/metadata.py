"""Table metadata documents: the whole JSON and its typed values, checked when the document is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from dataclasses import field as attribute
from types import MappingProxyType
from typing import Final, TypeVar

from pvdm.errors import Code
from pvdm.lake.format.json_document import (
    Json,
    JsonObject,
    Node,
    abbreviate,
    comparison_text,
    decompress_gzip,
    dump_json,
    invalid_value,
    parse_json,
    require_size,
)
from pvdm.lake.format.schema.document import TableSchema, parse_schema
from pvdm.lake.format.table import validity
from pvdm.lake.format.table.snapshots import (
    MAIN,
    EncryptedKey,
    MetadataLogEntry,
    RefType,
    Snapshot,
    SnapshotLogEntry,
    SnapshotRef,
    StatisticsFile,
    parse_key,
    parse_partition_statistics,
    parse_ref,
    parse_snapshot,
    parse_snapshot_log_entry,
    parse_statistics,
)
from pvdm.lake.format.table.specs import (
    PARTITION_ID_FIRST,
    TableOrder,
    TableSpec,
    parse_order,
    parse_spec,
    parse_spec_fields,
)

FORMAT_VERSIONS: Final = (1, 2, 3)
UUID_FORM: Final = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, eq=False)
class TableMetadata:
    """One state of a table. `raw` is the whole document with its unknown fields and is never changed in place."""

    format_version: int
    table_uuid: str | None
    location: str
    last_sequence_number: int
    last_updated_ms: int
    last_column_id: int
    current_schema_id: int
    schemas: tuple[TableSchema, ...]
    default_spec_id: int
    specs: tuple[TableSpec, ...]
    last_partition_id: int
    default_sort_order_id: int
    sort_orders: tuple[TableOrder, ...]
    properties: Mapping[str, str]
    current_snapshot_id: int | None
    snapshots: tuple[Snapshot, ...]
    refs: Mapping[str, SnapshotRef]
    snapshot_log: tuple[SnapshotLogEntry, ...]
    metadata_log: tuple[MetadataLogEntry, ...]
    statistics: tuple[StatisticsFile, ...]
    partition_statistics: tuple[StatisticsFile, ...]
    encryption_keys: tuple[EncryptedKey, ...]
    next_row_id: int
    raw: JsonObject = attribute(repr=False)
    _snapshots_by_id: Mapping[int, Snapshot] = attribute(repr=False)
    _bytes: bytes | None = attribute(default=None, init=False, repr=False)
    _memo: dict[str, object] = attribute(default_factory=dict, init=False, repr=False)

    @classmethod
    def parse(cls, data: bytes) -> TableMetadata:
        """Read a metadata file, plain or gzip. Raises if it is not valid."""
        return cls.from_json(parse_json(decompress_gzip(data)))

    @classmethod
    def from_json(cls, value: Json, *, known: TableMetadata | None = None) -> TableMetadata:
        """Read a parsed document. Parts whose JSON is the same object as in `known` are not read again."""
        metadata = _read(Node(value, "$"), _KnownParts(known))
        validity.check(metadata)
        return metadata

    def to_bytes(self) -> bytes:
        """The bytes of the metadata file, cached; equal documents give equal bytes."""
        if self._bytes is None:
            object.__setattr__(self, "_bytes", require_size(self.dump()))
        return self._bytes or b""

    def dump(self, instead: Mapping[str, Json] = MappingProxyType({})) -> bytes:
        """The document as `dump_json` writes it. Fields in `instead` have the values given there.

        The JSON of snapshots is cached, since there can be thousands of them.
        """
        members = []
        uses_cache = isinstance(self.raw.get("snapshots"), list) and "snapshots" not in instead
        for key, value in {**self.raw, **instead}.items():
            if key == "snapshots" and uses_cache:
                text = b"[" + b",".join([each.dump() for each in self.snapshots]) + b"]"
            else:
                text = dump_json(value)
            members.append(dump_json(key) + b":" + text)
        return b"{" + b",".join(members) + b"}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TableMetadata):
            return NotImplemented
        return comparison_text(self.raw) == comparison_text(other.raw)

    __hash__ = None  # type: ignore[assignment]

    @property
    def current_schema(self) -> TableSchema:
        """The schema that writers use."""
        parts = {schema.schema_id: schema for schema in self.schemas}
        code = Code.ICEBERG_SCHEMA_INVALID
        return validity.require_part(parts, self.current_schema_id, code, "schema_unknown", "$.schemas")

    @property
    def default_spec(self) -> TableSpec:
        """The spec that writers use."""
        parts = {spec.spec_id: spec for spec in self.specs}
        code = Code.PARTITION_SPEC_INVALID
        return validity.require_part(parts, self.default_spec_id, code, "spec_unknown", "$.partition-specs")

    @property
    def default_sort_order(self) -> TableOrder:
        """The sort order that writers use."""
        parts = {order.order_id: order for order in self.sort_orders}
        code = Code.SORT_ORDER_INVALID
        return validity.require_part(parts, self.default_sort_order_id, code, "sort_order_unknown", "$.sort-orders")

    @property
    def current_snapshot(self) -> Snapshot | None:
        """The snapshot that `main` shows, or None."""
        return None if self.current_snapshot_id is None else self._snapshots_by_id[self.current_snapshot_id]

    @property
    def next_sequence_number(self) -> int:
        """The sequence number that the next snapshot takes."""
        return self.last_sequence_number + 1 if self.format_version > 1 else 0

    def schema(self, schema_id: int) -> TableSchema | None:
        """The schema of an id; None if the table does not have it."""
        return next((schema for schema in self.schemas if schema.schema_id == schema_id), None)

    def spec(self, spec_id: int) -> TableSpec | None:
        """The partition spec of an id; None if the table does not have it."""
        return next((spec for spec in self.specs if spec.spec_id == spec_id), None)

    def snapshot(self, snapshot_id: int) -> Snapshot | None:
        """The snapshot of an id; None if the table does not have it."""
        return self._snapshots_by_id.get(snapshot_id)

    def ancestry(self, snapshot_id: int) -> Iterator[Snapshot]:
        """The snapshot and its ancestors, newest first, as far as the table still has them."""
        if snapshot_id == self.current_snapshot_id:
            # A commit reads the ancestry of main several times, and it is as long as the table's history.
            return iter(self.memo("ancestry of main", lambda: tuple(self._ancestry(snapshot_id))))
        return self._ancestry(snapshot_id)

    def memo(self, name: str, make: Callable[[], _T]) -> _T:
        """The value that `make` computes from this document alone, cached by name."""
        if name not in self._memo:
            self._memo[name] = make()
        return self._memo[name]  # type: ignore[return-value]

    def _ancestry(self, snapshot_id: int) -> Iterator[Snapshot]:
        seen: set[int] = set()
        snapshot = self._snapshots_by_id.get(snapshot_id)
        while snapshot is not None and snapshot.snapshot_id not in seen:
            yield snapshot
            seen.add(snapshot.snapshot_id)
            snapshot = None if snapshot.parent_id is None else self._snapshots_by_id.get(snapshot.parent_id)


class _KnownParts:
    """The parts of an earlier state by the identity of their JSON, so that a commit parses only changed parts."""

    def __init__(self, known: TableMetadata | None) -> None:
        parts: list[TableSchema | TableSpec | TableOrder | Snapshot | SnapshotRef] = []
        if known is not None:
            parts = [*known.schemas, *known.specs, *known.sort_orders, *known.snapshots, *known.refs.values()]
        self._parts: dict[int, object] = {id(part.raw): part for part in parts}
        if known is not None and isinstance(log := known.raw.get("snapshot-log"), list):
            self._parts |= {id(raw): entry for raw, entry in zip(log, known.snapshot_log, strict=True)}
        # While the JSON of the known state exists, no other object has the same identity.
        self._known = known

    def find(self, raw: object, part_type: type[_T]) -> _T | None:
        """The part that was read from this very object; None if there is none."""
        part = self._parts.get(id(raw))
        return part if isinstance(part, part_type) else None

    def read_all(self, node: Node, key: str, part_type: type[_T], parse: Callable[[Node], _T]) -> tuple[_T, ...]:
        """The parts of an array, none if it is null or absent. Known parts are not parsed again."""
        place = node.at(key)
        parts: list[_T] = []
        for position, item in enumerate(node.array(key) if node.has_not_null(key) else []):
            part = self._parts.get(id(item))
            parts.append(part if isinstance(part, part_type) else parse(Node(item, f"{place}[{position}]")))
        return tuple(parts)


def _read(node: Node, known: _KnownParts) -> TableMetadata:
    version = node.integer("format-version")
    require_format_version(version, node.at("format-version"))
    schemas, current_schema_id = _read_schemas(node, version, known)
    specs, default_spec_id = _read_specs(node, version, known)
    orders, default_order_id = _read_orders(node, version, known)
    node.is_present("snapshots")  # raises for null
    snapshots = known.read_all(node, "snapshots", Snapshot, parse_snapshot)
    current = node.optional_long("current-snapshot-id")
    current = None if current == -1 else current  # -1 means none before format 3
    return TableMetadata(
        version,
        _read_uuid(node, version),
        strip_location(node.text("location"), node.at("location")),
        node.long("last-sequence-number") if version > 1 else 0,
        node.long("last-updated-ms"),
        node.integer("last-column-id"),
        current_schema_id,
        schemas,
        default_spec_id,
        specs,
        _read_last_partition_id(node, version, specs),
        default_order_id,
        orders,
        MappingProxyType(node.string_map_if_present("properties")),
        current,
        snapshots,
        MappingProxyType(_read_refs(node, current, known)),
        known.read_all(node, "snapshot-log", SnapshotLogEntry, parse_snapshot_log_entry),
        tuple(
            MetadataLogEntry(item.long("timestamp-ms"), item.text("metadata-file"))
            for item in node.nodes("metadata-log")
        ),
        tuple(parse_statistics(item) for item in node.nodes_if_present("statistics")),
        tuple(parse_partition_statistics(item) for item in node.nodes_if_present("partition-statistics")),
        tuple(parse_key(item) for item in node.nodes_if_present("encryption-keys")),
        node.long("next-row-id") if version >= 3 else 0,
        node.raw,
        MappingProxyType({snapshot.snapshot_id: snapshot for snapshot in snapshots}),
    )


def require_format_version(version: int, place: str) -> None:
    """Raise if tables of this format version are not supported."""
    if version not in FORMAT_VERSIONS:
        raise Code.TABLE_METADATA_INVALID(reason="format_version_unsupported", got=str(version), place=place)


def _read_uuid(node: Node, version: int) -> str | None:
    if version == 1 and not node.has_not_null("table-uuid"):
        return None
    return check_uuid(node.text("table-uuid"), node.at("table-uuid"))


def check_uuid(text: str, place: str) -> str:
    """The text. Raises if it is not a UUID."""
    if not UUID_FORM.fullmatch(text):
        raise Code.TABLE_METADATA_INVALID(reason="table_uuid_invalid", got=abbreviate(text), place=place)
    return text


def strip_location(text: str, place: str) -> str:
    """The location without slashes at its end; both slashes of a bare scheme (`s3://`) stay. Raises if it is empty."""
    if not text:
        raise invalid_value(place, "a location", "an empty string")
    bare = text.rstrip("/")
    return f"{bare}//" if bare.endswith(":") and text.startswith("//", len(bare)) else bare


def _read_schemas(node: Node, version: int, known: _KnownParts) -> tuple[tuple[TableSchema, ...], int]:
    """The schemas and the current schema's id. Old writers of format 1 have one schema only, in the field `schema`."""
    if version == 1 and not node.is_present("schemas"):
        schema_node = node.node("schema")
        schema = known.find(schema_node.raw, TableSchema) or parse_schema(schema_node)
        return (schema,), schema.schema_id
    node.array("schemas")
    return known.read_all(node, "schemas", TableSchema, parse_schema), node.integer("current-schema-id")


def _read_specs(node: Node, version: int, known: _KnownParts) -> tuple[tuple[TableSpec, ...], int]:
    if version == 1 and not node.is_present("partition-specs"):
        fields = parse_spec_fields(node, "partition-spec")
        raw: JsonObject = {"spec-id": 0, "fields": node.raw["partition-spec"]}
        return (TableSpec(0, fields, raw, node.at("partition-spec")),), 0
    node.array("partition-specs")
    return known.read_all(node, "partition-specs", TableSpec, parse_spec), node.integer("default-spec-id")


def _read_orders(node: Node, version: int, known: _KnownParts) -> tuple[tuple[TableOrder, ...], int]:
    if version == 1 and not node.is_present("sort-orders"):
        raw: JsonObject = {"order-id": 0, "fields": []}
        return (TableOrder(0, (), raw, node.at("sort-orders")),), 0
    node.array("sort-orders")
    return known.read_all(node, "sort-orders", TableOrder, parse_order), node.integer("default-sort-order-id")


def _read_last_partition_id(node: Node, version: int, specs: tuple[TableSpec, ...]) -> int:
    if version == 1 and not node.has_not_null("last-partition-id"):
        return max((spec.highest_field_id for spec in specs), default=PARTITION_ID_FIRST - 1)
    return node.integer("last-partition-id")


def _read_refs(node: Node, current: int | None, known: _KnownParts) -> dict[str, SnapshotRef]:
    """The refs. If the document has a current snapshot but no `main`, `main` is added."""
    refs: dict[str, SnapshotRef] = {}
    if node.is_present("refs"):
        for name, value in node.node("refs").raw.items():
            ref = known.find(value, SnapshotRef)
            refs[name] = parse_ref(Node(value, f"{node.at('refs')}[{name[:64]!r}]")) if ref is None else ref
    if MAIN not in refs and current is not None:
        raw: JsonObject = {"snapshot-id": current, "type": RefType.BRANCH.value}
        refs[MAIN] = SnapshotRef(current, RefType.BRANCH, raw=raw)
    return refs
