"""The first state of a new table, and of one that is registered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from pvdm.errors import Code
from pvdm.lake.format.json_document import Json, Node, read_objects, shown
from pvdm.lake.format.schema.document import TableSchema, parse_schema
from pvdm.lake.format.table import update_structure as structure
from pvdm.lake.format.table.draft import Draft, whole_property
from pvdm.lake.format.table.metadata import TableMetadata, check_uuid, stripped_location
from pvdm.lake.format.table.specs import (
    PARTITION_ID_FIRST,
    SpecField,
    judge_order,
    judge_spec,
    judge_spec_names,
    parse_order,
    parse_spec,
)

DEFAULT_FORMAT_VERSION: Final = 2
RESERVED_PROPERTIES: Final = frozenset(
    {
        "format-version",
        "uuid",
        "snapshot-count",
        "current-snapshot-id",
        "current-snapshot-summary",
        "current-snapshot-timestamp-ms",
        "current-schema",
        "default-partition-spec",
        "default-sort-order",
    }
)
_NEW_TABLE_PROPERTIES: Final = {"write.parquet.compression-codec": "zstd"}
_COMMIT_PROPERTIES: Final = (
    "commit.retry.num-retries",
    "commit.retry.min-wait-ms",
    "commit.retry.max-wait-ms",
    "commit.retry.total-timeout-ms",
)
_ENCRYPTION_PROPERTIES: Final = frozenset({"encryption.key-id", "encryption.data-key-length"})
_METRICS_PREFIX: Final = "write.metadata.metrics.column."
_PARTS: Final = {"list": ("element",), "map": ("key", "value")}


def new_table(request: Json, *, location: str, table_uuid: str, now_ms: int) -> TableMetadata:
    """The first state of a new or staged table; columns, partitions and sort order get new ids."""
    node, nothing = Node(request, "$"), Node({"fields": []}, "$")
    asked = parse_schema(node.node("schema"))
    spec = parse_spec(node.node("partition-spec") if node.has_not_null("partition-spec") else nothing, id_needed=False)
    order = parse_order(node.node("write-order") if node.has_not_null("write-order") else nothing, id_needed=False)
    given = node.string_map("properties") if node.has_not_null("properties") else {}
    judge_spec_names(spec, asked)
    judge_spec(spec, asked)
    judge_order(order, asked)
    version = whole_property(given, "format-version", DEFAULT_FORMAT_VERSION)
    structure.require_version(version, "$.properties['format-version']")
    # Reserved properties say how the table is made and are not stored.
    stored = {name: value for name, value in given.items() if name not in RESERVED_PROPERTIES}
    properties = {**_NEW_TABLE_PROPERTIES, **stored}
    _judge_properties(properties, asked, version)
    ids = _new_ids(asked)
    schema = parse_schema(Node(_with_ids(asked, ids), "$.schema"))
    spec_fields = tuple(
        replace(field, source_id=_source(ids, field), field_id=PARTITION_ID_FIRST + position)
        for position, field in enumerate(spec.fields)
    )
    order_fields = tuple(replace(field, source_id=ids[field.source_id]) for field in order.fields)
    uuid = check_uuid(table_uuid, "$.metadata.table-uuid")
    draft = Draft(None, now_ms=now_ms, format_version=version, table_uuid=uuid)
    draft.last_partition_id = PARTITION_ID_FIRST - 1
    draft.current_schema_id = structure.put_schema(draft, schema)
    draft.default_spec_id = structure.put_spec(draft, replace(spec, fields=spec_fields))
    draft.default_order_id = structure.put_order(draft, replace(order, fields=order_fields))
    draft.location = stripped_location(location, "$.location")
    draft.properties = properties
    return draft.finish(None)


def register_table(data: bytes) -> TableMetadata:
    """Read the metadata file of a table to be registered. Raises if it has no table UUID."""
    metadata = TableMetadata.parse(data)
    if metadata.table_uuid is None:
        got = "a format 1 document without one"
        raise Code.TABLE_METADATA_INVALID(reason="table_uuid_missing", got=got, place="$.table-uuid")
    return metadata


def _source(ids: Mapping[int, int], field: SpecField) -> int:
    found = ids.get(field.source_id)
    if found is None:
        words = f"partition {field.name} of the new table has no source column"
        got = f"id {field.source_id}"
        raise Code.PARTITION_SPEC_INVALID(words, reason="spec_source_missing", got=got, place="$.partition-spec")
    return found


def _judge_properties(properties: Mapping[str, str], schema: TableSchema, version: int) -> None:
    """Refuse properties with which every commit or write to the new table would fail."""
    for name in _COMMIT_PROPERTIES:
        if whole_property(properties, name, 0) < 0:
            words = f"the property {name} cannot be accepted"
            raise Code.PROPERTY_INVALID(words, reason="property_negative", got=shown(properties[name]))
    if version < 3 and (found := sorted(_ENCRYPTION_PROPERTIES & properties.keys())):
        words = f"the property {found[0]} cannot be accepted"
        raise Code.PROPERTY_INVALID(words, reason="property_version", got=f"format {version}")
    for name in properties:
        if not name.startswith(_METRICS_PREFIX):
            continue
        column = name.removeprefix(_METRICS_PREFIX)
        field = schema.find(column)
        if field is None or field.name != column:
            words = f"the property {name[:120]} names a column that the table does not have"
            raise Code.PROPERTY_INVALID(words, reason="property_column_unknown", got=shown(column))


def _new_ids(schema: TableSchema) -> dict[int, int]:
    """The new id of every column id, from 1 in the order in which Iceberg assigns them."""
    made: dict[int, int] = {}

    def visit(raw: Json) -> None:
        # The fields of a struct come before their own parts, and so do key and value of a map.
        if not isinstance(raw, Mapping):
            return
        slots = (
            [(field["id"], field["type"]) for field in read_objects(raw["fields"])] if raw["type"] == "struct" else []
        )
        slots += [(raw[f"{part}-id"], raw[part]) for part in _PARTS.get(str(raw["type"]), ())]
        for old, _ in slots:
            if isinstance(old, int):
                made[old] = len(made) + 1
        for _, kind in slots:
            visit(kind)

    visit(schema.raw)
    return made


def _with_ids(schema: TableSchema, ids: Mapping[int, int]) -> dict[str, Json]:
    """The schema's JSON under new ids; everything else in it stays."""

    def new(old: Json) -> Json:
        return ids[old] if isinstance(old, int) else old

    def renumber(raw: Json) -> Json:
        # Only the keys that Iceberg defines as ids and types, not others that look like them.
        if not isinstance(raw, Mapping):
            return raw
        if raw["type"] == "struct":
            fields = [
                {**field, "id": new(field["id"]), "type": renumber(field["type"])}
                for field in read_objects(raw["fields"])
            ]
            return {**raw, "fields": fields}
        made = dict(raw)
        for part in _PARTS[str(raw["type"])]:
            made[f"{part}-id"] = new(raw[f"{part}-id"])
            made[part] = renumber(raw[part])
        return made

    made = {**Node(renumber(schema.raw), "$.schema").raw, "schema-id": 0}
    if schema.identifier_field_ids:
        made["identifier-field-ids"] = sorted(ids[old] for old in schema.identifier_field_ids)
    return made
