"""Table metadata documents: the whole JSON, its facts as typed values, checked when it is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from dataclasses import field as attribute
from types import MappingProxyType
from typing import Final, TypeVar

from pvdm.errors import Code, PvdmError
from pvdm.lake.format.json_document import (
    Json,
    JsonObject,
    Node,
    comparison_text,
    dump_json,
    invalid,
    parse_json,
    require_size,
    shown,
    unzip,
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
    parse_metadata_log,
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
        return cls.from_json(parse_json(unzip(data)))

    @classmethod
    def from_json(cls, value: Json, *, place: str = "$", known: TableMetadata | None = None) -> TableMetadata:
        """Read a parsed document. Parts that are the same objects as in `known` are not read again."""
        metadata = _read(Node(value, place), _Known(known))
        validity.judge(metadata)
        return metadata

    def to_bytes(self) -> bytes:
        """The bytes of the metadata file, cached; equal documents give equal bytes."""
        if self._bytes is None:
            object.__setattr__(self, "_bytes", require_size(self.spelled()))
        return self._bytes or b""

    def spelled(self, instead: Mapping[str, Json] = MappingProxyType({})) -> bytes:
        """The document as `dump_json` writes it, with the values of `instead` for some fields.

        Snapshots of an earlier document are not written again.
        """
        parts = []
        listed = isinstance(self.raw.get("snapshots"), list) and "snapshots" not in instead
        for key, value in {**self.raw, **instead}.items():
            if key == "snapshots" and listed:
                spelled = b"[" + b",".join([each.spelled() for each in self.snapshots]) + b"]"
            else:
                spelled = dump_json(value)
            parts.append(dump_json(key) + b":" + spelled)
        return b"{" + b",".join(parts) + b"}"

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
        """The schema of an id."""
        return next((schema for schema in self.schemas if schema.schema_id == schema_id), None)

    def spec(self, spec_id: int) -> TableSpec | None:
        """The partition spec of an id."""
        return next((spec for spec in self.specs if spec.spec_id == spec_id), None)

    def snapshot(self, snapshot_id: int) -> Snapshot | None:
        """The snapshot of an id."""
        return self._snapshots_by_id.get(snapshot_id)

    def ancestry(self, snapshot_id: int) -> Iterator[Snapshot]:
        """The snapshot and its ancestors, newest first, as far as the table still has them."""
        if snapshot_id == self.current_snapshot_id:
            # A commit needs main's several times, and it is as long as the table's history.
            return iter(self.memo("ancestry of main", lambda: tuple(self._ancestry(snapshot_id))))
        return self._ancestry(snapshot_id)

    def memo(self, name: str, make: Callable[[], _T]) -> _T:
        """A value that follows from the document alone, cached by name."""
        if name not in self._memo:
            self._memo[name] = make()
        return self._memo[name]  # type: ignore[return-value]

    def _ancestry(self, snapshot_id: int) -> Iterator[Snapshot]:
        seen: set[int] = set()
        found = self._snapshots_by_id.get(snapshot_id)
        while found is not None and found.snapshot_id not in seen:
            yield found
            seen.add(found.snapshot_id)
            found = None if found.parent_id is None else self._snapshots_by_id.get(found.parent_id)


class _Known:
    """The parts of an earlier state by the identity of their JSON, so that a commit parses only what it changed."""

    def __init__(self, known: TableMetadata | None) -> None:
        parts: list[TableSchema | TableSpec | TableOrder | Snapshot | SnapshotRef] = []
        if known is not None:
            parts = [*known.schemas, *known.specs, *known.sort_orders, *known.snapshots, *known.refs.values()]
        self._parts: dict[int, object] = {id(part.raw): part for part in parts}
        if known is not None and isinstance(log := known.raw.get("snapshot-log"), list):
            self._parts |= {id(raw): entry for raw, entry in zip(log, known.snapshot_log, strict=True)}
        self._kept = known

    def find(self, raw: object, kind: type[_T]) -> _T | None:
        """The part that was made from this very object, if there is one."""
        found = self._parts.get(id(raw))
        return found if isinstance(found, kind) else None

    def read_all(self, node: Node, key: str, kind: type[_T], parse: Callable[[Node], _T]) -> tuple[_T, ...]:
        """The parts of an array. Known parts are not parsed again: some arrays grow with the table."""
        parts, place = self._parts, node.at(key)
        found: list[_T] = []
        for position, item in enumerate(node.array(key) if node.has_not_null(key) else []):
            part = parts.get(id(item))
            found.append(part if isinstance(part, kind) else parse(Node(item, f"{place}[{position}]")))
        return tuple(found)


def _read(node: Node, known: _Known) -> TableMetadata:
    version = node.integer("format-version")
    if version not in FORMAT_VERSIONS:
        words, place = "the table's format version cannot be read", node.at("format-version")
        raise unsupported_version(words, "1, 2 or 3", version, place)
    schemas, current_schema_id = _schemas(node, version, known)
    specs, default_spec_id = _specs(node, version, known)
    orders, default_order_id = _orders(node, version, known)
    given = node.is_present("snapshots")
    snapshots = known.read_all(node, "snapshots", Snapshot, parse_snapshot) if given else ()
    current = node.optional_long("current-snapshot-id")
    current = None if current == -1 else current
    return TableMetadata(
        version,
        _uuid(node, version),
        stripped_location(node.text("location"), node.at("location")),
        node.long("last-sequence-number") if version > 1 else 0,
        node.long("last-updated-ms"),
        node.integer("last-column-id"),
        current_schema_id,
        schemas,
        default_spec_id,
        specs,
        _last_partition_id(node, version, specs),
        default_order_id,
        orders,
        MappingProxyType(node.string_map_if_present("properties")),
        current,
        snapshots,
        MappingProxyType(_refs(node, current, known)),
        known.read_all(node, "snapshot-log", SnapshotLogEntry, parse_snapshot_log_entry),
        parse_metadata_log(node, "metadata-log"),
        tuple(parse_statistics(item) for item in node.nodes_if_present("statistics")),
        tuple(parse_partition_statistics(item) for item in node.nodes_if_present("partition-statistics")),
        tuple(parse_key(item) for item in node.nodes_if_present("encryption-keys")),
        node.long("next-row-id") if version >= 3 else 0,
        node.raw,
        MappingProxyType({snapshot.snapshot_id: snapshot for snapshot in snapshots}),
    )


def unsupported_version(message: str, expected: str, version: int, place: str) -> PvdmError:
    """The error of a format version of a table or view that is not supported."""
    reason, got = "format_version_unsupported", str(version)
    return Code.TABLE_METADATA_INVALID(message, reason=reason, expected=expected, got=got, place=place)


def _uuid(node: Node, version: int) -> str | None:
    if version == 1 and not node.has_not_null("table-uuid"):
        return None
    return check_uuid(node.text("table-uuid"), node.at("table-uuid"))


def check_uuid(text: str, place: str) -> str:
    """The text. Raises if it is not a UUID."""
    if not UUID_FORM.fullmatch(text):
        raise Code.TABLE_METADATA_INVALID(reason="table_uuid_invalid", got=shown(text), place=place)
    return text


def stripped_location(text: str, place: str) -> str:
    """A location without slashes at its end."""
    if not text:
        raise invalid(place, "a location", "an empty string")
    bare = text.rstrip("/")
    return f"{bare}//" if bare.endswith(":") and text.startswith("//", len(bare)) else bare


def _schemas(node: Node, version: int, known: _Known) -> tuple[tuple[TableSchema, ...], int]:
    if version == 1 and not node.is_present("schemas"):
        given = node.node("schema")
        only = known.find(given.raw, TableSchema) or parse_schema(given)
        return (only,), only.schema_id
    node.array("schemas")
    return known.read_all(node, "schemas", TableSchema, parse_schema), node.integer("current-schema-id")


def _specs(node: Node, version: int, known: _Known) -> tuple[tuple[TableSpec, ...], int]:
    if version == 1 and not node.is_present("partition-specs"):
        fields = parse_spec_fields(node, "partition-spec")
        raw: JsonObject = {"spec-id": 0, "fields": node.raw["partition-spec"]}
        return (TableSpec(0, fields, raw, node.at("partition-spec")),), 0
    node.array("partition-specs")
    return known.read_all(node, "partition-specs", TableSpec, parse_spec), node.integer("default-spec-id")


def _orders(node: Node, version: int, known: _Known) -> tuple[tuple[TableOrder, ...], int]:
    if version == 1 and not node.is_present("sort-orders"):
        raw: JsonObject = {"order-id": 0, "fields": []}
        return (TableOrder(0, (), raw, node.at("sort-orders")),), 0
    node.array("sort-orders")
    return known.read_all(node, "sort-orders", TableOrder, parse_order), node.integer("default-sort-order-id")


def _last_partition_id(node: Node, version: int, specs: tuple[TableSpec, ...]) -> int:
    if version == 1 and not node.has_not_null("last-partition-id"):
        return max((spec.highest_field_id for spec in specs), default=PARTITION_ID_FIRST - 1)
    return node.integer("last-partition-id")


def _refs(node: Node, current: int | None, known: _Known) -> dict[str, SnapshotRef]:
    """The refs. If there is a current snapshot, `main` is there even if the document does not name it.

    Each open attempt has a ref, so known ones are not parsed again.
    """
    found: dict[str, SnapshotRef] = {}
    if node.is_present("refs"):
        refs = node.node("refs")
        for name, value in refs.raw.items():
            ref = known.find(value, SnapshotRef)
            found[name] = parse_ref(Node(value, f"{refs.place}[{name[:64]!r}]")) if ref is None else ref
    if MAIN not in found and current is not None:
        raw: JsonObject = {"snapshot-id": current, "type": RefType.BRANCH.value}
        found[MAIN] = SnapshotRef(current, RefType.BRANCH, raw=raw)
    return found
