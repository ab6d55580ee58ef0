"""Columns that a table got after a snapshot was written: files of the snapshot hold their defaults, or null."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from pvdm.lake.format.json.document import Json, dump_json, parse_json
from pvdm.lake.format.json.node import Node, Raw
from pvdm.lake.format.schema.document import TableSchema
from pvdm.lake.format.table.metadata import TableMetadata


def newer_columns(metadata: TableMetadata, snapshot_id: int) -> tuple[Raw, ...]:
    """The columns of the table's current schema that came after the snapshot, and that a file may lack.

    Such a column has another id and another name than those of the snapshot's schema. It is optional or has an initial
    default.
    """
    own = _schema_of(metadata, snapshot_id)
    return () if own is None else _newer(own, metadata.current_schema)


def with_newer_columns(
    metadata: TableMetadata, snapshot_id: int, newer: Sequence[Raw], wanted: Callable[[], Collection[str]]
) -> TableMetadata:
    """The table with its snapshot under a schema that also has the wanted ones of these newer columns.

    A snapshot is read by the schema that it was written under. Its own columns keep their names and types. `wanted` is
    asked only where there are newer columns.
    """
    own = _schema_of(metadata, snapshot_id)
    if own is None or not newer:
        return metadata
    asked = wanted()
    added = [field for field in newer if field["name"] in asked]
    if not added:
        return metadata
    schema_id = 1 + max(each.schema_id for each in metadata.schemas)
    made: dict[str, Json] = {**own.raw, "schema-id": schema_id, "fields": [*_fields(own), *added]}
    return TableMetadata.from_json(
        {
            **metadata.raw,
            "schemas": [*(each.raw for each in metadata.schemas), made],
            "snapshots": [
                {**each.raw, "schema-id": schema_id} if each.snapshot_id == snapshot_id else each.raw
                for each in metadata.snapshots
            ],
        }
    )


def dump_columns(newer: Sequence[Raw]) -> bytes:
    """Columns as a workload keeps them."""
    return dump_json([dict(each) for each in newer])


def read_columns(data: bytes) -> tuple[Raw, ...]:
    """The columns that a workload keeps."""
    found = parse_json(data, what="the workload's newer columns")
    return tuple(node.raw for node in Node({"fields": found}, "newer columns").nodes("fields"))


def _schema_of(metadata: TableMetadata, snapshot_id: int) -> TableSchema | None:
    """The schema that the snapshot was written under; None where it names none."""
    snapshot = metadata.snapshot(snapshot_id)
    return None if snapshot is None or snapshot.schema_id is None else metadata.schema(snapshot.schema_id)


def _newer(own: TableSchema, current: TableSchema) -> tuple[Raw, ...]:
    names = {Node(each, own.place).text("name") for each in _fields(own)}
    found = []
    for node in Node(current.raw, current.place).nodes("fields"):
        lacking = not node.flag("required") or node.raw.get("initial-default") is not None
        if lacking and node.integer("id") not in own.fields and node.text("name") not in names:
            found.append(node.raw)
    return tuple(found)


def _fields(schema: TableSchema) -> list[Raw]:
    return [node.raw for node in Node(schema.raw, schema.place).nodes("fields")]
