"""Compares what readers of `main` see in two states of a table. Makes and hashes a document of a table's structure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from pvdm.lake.format.json_document import Json, Node, comparison_text, dump_json
from pvdm.lake.format.schema.document import TableSchema, normal_form
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import MAIN, StatisticsFile
from pvdm.lake.format.table.specs import order_raw, spec_raw

# The fields of a table's document that Iceberg defines.
KNOWN_FIELDS: Final = frozenset(
    """
    format-version table-uuid location last-sequence-number last-updated-ms last-column-id schema schemas
    current-schema-id partition-spec partition-specs default-spec-id last-partition-id properties
    current-snapshot-id snapshots snapshot-log metadata-log sort-orders default-sort-order-id refs statistics
    partition-statistics next-row-id encryption-keys
    """.split()  # noqa: SIM905 - a list would have one field a line
)


@dataclass(frozen=True, slots=True)
class MainState:
    """What `main` shows, as facts by name. A commit that changes none of them does not change what `main` shows."""

    facts: Mapping[str, str]

    @classmethod
    def of(cls, metadata: TableMetadata) -> MainState:
        """The facts of this document, unknown fields included."""
        return metadata.memo("state of main", lambda: cls(MappingProxyType(dict(_facts(metadata)))))

    def __hash__(self) -> int:
        return hash(frozenset(self.facts.items()))

    def changed(self, after: MainState) -> tuple[str, ...]:
        """The names of the facts that differ in the state `after`, in their order."""
        return tuple(name for name in {**self.facts, **after.facts} if self.facts.get(name) != after.facts.get(name))


def _facts(metadata: TableMetadata) -> Iterator[tuple[str, str]]:
    current = metadata.current_snapshot_id
    ancestry = [] if current is None else list(metadata.ancestry(current))
    ancestor_ids = {snapshot.snapshot_id for snapshot in ancestry}
    yield "table UUID", str(metadata.table_uuid)
    yield "format version", str(metadata.format_version)
    yield "location", metadata.location
    yield "current snapshot", str(current)
    yield "ancestry", ", ".join(str(snapshot.snapshot_id) for snapshot in ancestry)
    for snapshot in ancestry:
        yield f"snapshot {snapshot.snapshot_id}", snapshot.comparison_text()
    main = metadata.refs.get(MAIN)
    if main is not None:
        # The retention settings decide which of main's snapshots the next expiry removes.
        retention = {key: value for key, value in main.raw.items() if key != "snapshot-id"}
        yield "retention of main", comparison_text(retention)
    yield "snapshot log", comparison_text([[entry.timestamp_ms, entry.snapshot_id] for entry in metadata.snapshot_log])
    # Logged snapshots that are no ancestors are facts too. If one is removed and its id used again, that is a change.
    for snapshot_id in sorted({entry.snapshot_id for entry in metadata.snapshot_log} - ancestor_ids):
        logged = metadata.snapshot(snapshot_id)
        yield f"snapshot {snapshot_id}", "gone" if logged is None else logged.comparison_text()
    yield from _structure_facts(metadata, {snapshot.schema_id for snapshot in ancestry})
    for name in sorted(metadata.properties):
        yield f"property {name!r}", metadata.properties[name]
    yield from _statistics_facts("statistics", metadata, metadata.statistics, ancestor_ids)
    yield from _statistics_facts("partition statistics", metadata, metadata.partition_statistics, ancestor_ids)
    for key in metadata.encryption_keys:
        yield f"encryption key {key.key_id!r}", comparison_text(key.raw)
    for name in sorted(metadata.raw.keys() - KNOWN_FIELDS):
        yield f"field {name!r}", comparison_text(metadata.raw[name])


def _structure_facts(metadata: TableMetadata, schema_ids: set[int | None]) -> Iterator[tuple[str, str]]:
    """The schemas that main and its history are read with; all specs and orders, since a file may use any of them."""
    yield "current schema", str(metadata.current_schema_id)
    read_with = schema_ids | {metadata.current_schema_id}
    for schema in metadata.schemas:
        if schema.schema_id in read_with:
            yield f"schema {schema.schema_id}", normal_form(schema.raw)
    yield "default partition spec", str(metadata.default_spec_id)
    for spec in metadata.specs:
        yield f"partition spec {spec.spec_id}", comparison_text(spec_raw(spec.spec_id, spec.fields, spec.raw))
    yield "default sort order", str(metadata.default_sort_order_id)
    for order in metadata.sort_orders:
        yield f"sort order {order.order_id}", comparison_text(order_raw(order.order_id, order.fields, order.raw))


def _statistics_facts(
    what: str, metadata: TableMetadata, files: tuple[StatisticsFile, ...], ancestor_ids: set[int]
) -> Iterator[tuple[str, str]]:
    """The files of main's snapshots, and of missing snapshots, which may be added to `main` later."""
    by_snapshot: dict[int, list[Json]] = {}
    for file in files:
        if file.snapshot_id in ancestor_ids or metadata.snapshot(file.snapshot_id) is None:
            by_snapshot.setdefault(file.snapshot_id, []).append(file.raw)
    for snapshot_id, raws in by_snapshot.items():
        yield f"{what} of snapshot {snapshot_id}", comparison_text(raws)


_NO_UUID: Final = "00000000-0000-0000-0000-000000000000"


def structure_of(metadata: TableMetadata) -> dict[str, Json]:
    """The structure of spec/proof.md: no UUID, time, sequence number, row ids, snapshots, refs, statistics or logs."""
    structure: dict[str, Json] = {
        "format-version": metadata.format_version,
        "location": metadata.location,
        "last-column-id": metadata.last_column_id,
        "current-schema-id": metadata.current_schema_id,
        "schemas": [_normalize_schema(each) for each in metadata.schemas],
        "default-spec-id": metadata.default_spec_id,
        "partition-specs": [spec_raw(each.spec_id, each.fields, each.raw) for each in metadata.specs],
        "last-partition-id": metadata.last_partition_id,
        "default-sort-order-id": metadata.default_sort_order_id,
        "sort-orders": [order_raw(each.order_id, each.fields, each.raw) for each in metadata.sort_orders],
        "properties": dict(metadata.properties),
        "encryption-keys": [each.raw for each in metadata.encryption_keys],
    }
    # A reader may use fields that this code does not know.
    structure.update({name: metadata.raw[name] for name in metadata.raw.keys() - KNOWN_FIELDS})
    return structure


def _normalize_schema(schema: TableSchema) -> dict[str, Json]:
    """The schema's JSON. If it has no identifier fields, the key is left out, as some writers do."""
    raw: dict[str, Json] = {**schema.raw, "type": "struct", "schema-id": schema.schema_id}
    if not raw.get("identifier-field-ids"):
        raw.pop("identifier-field-ids", None)
    return raw


def structure_sha256(metadata: TableMetadata) -> str:
    """The hash of the structure's JSON (sorted keys, no white space), as signed statements name it."""
    return hashlib.sha256(dump_json(structure_of(metadata), sort_keys=True)).hexdigest()


def empty_table(structure: Json) -> TableMetadata:
    """A table with this structure, a UUID of zeros and no snapshots. Updates of the structure can be applied to it."""
    raw = dict(Node(structure, "$").raw)
    raw.update({"table-uuid": _NO_UUID, "last-updated-ms": 0, "last-sequence-number": 0, "next-row-id": 0})
    return TableMetadata.from_json(raw)
