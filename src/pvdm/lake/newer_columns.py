"""Columns that a table got after a snapshot was written: files of the snapshot hold their defaults, or null."""

from __future__ import annotations

from collections.abc import Callable, Collection

from pvdm.lake.format.document import Json
from pvdm.lake.format.metadata import TableMetadata
from pvdm.lake.format.node import Node, Raw
from pvdm.lake.format.schema_json import TableSchema


def with_newer_columns(
    metadata: TableMetadata, snapshot_id: int, wanted: Callable[[], Collection[str]]
) -> TableMetadata:
    """The table with its snapshot under a schema that also has the wanted columns which came later.

    A snapshot is read by the schema that it was written under. Its own columns keep their names and types. A column
    of the table's current schema is added if the snapshot's schema has neither its id nor its name, and if a file may
    lack it: it is optional or has an initial default. `wanted` is asked only where there is such a column.
    """
    snapshot = metadata.snapshot(snapshot_id)
    own = None if snapshot is None or snapshot.schema_id is None else metadata.schema(snapshot.schema_id)
    newer = {} if own is None else _newer(own, metadata.current_schema)
    if own is None or not newer:
        return metadata
    asked = wanted()
    added = [field for name, field in newer.items() if name in asked]
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


def _newer(own: TableSchema, current: TableSchema) -> dict[str, Raw]:
    names = {Node(each, own.place).text("name") for each in _fields(own)}
    found: dict[str, Raw] = {}
    for node in Node(current.raw, current.place).nodes("fields"):
        lacking = not node.flag("required") or node.raw.get("initial-default") is not None
        if lacking and node.integer("id") not in own.fields and node.text("name") not in names:
            found[node.text("name")] = node.raw
    return found


def _fields(schema: TableSchema) -> list[Raw]:
    return [node.raw for node in Node(schema.raw, schema.place).nodes("fields")]
