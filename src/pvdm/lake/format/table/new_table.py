"""The first state of a table that is created or registered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from pvdm.errors import Code
from pvdm.lake.format.json_document import Json, Node, abbreviate, read_objects
from pvdm.lake.format.schema.document import TableSchema, parse_schema
from pvdm.lake.format.table import specs
from pvdm.lake.format.table import update_structure as structure
from pvdm.lake.format.table.draft import Draft, integer_property
from pvdm.lake.format.table.metadata import TableMetadata, check_uuid, require_format_version, strip_location

DEFAULT_FORMAT_VERSION: Final = 2
RESERVED_PROPERTIES: Final = frozenset(
    """
    format-version uuid snapshot-count current-snapshot-id current-snapshot-summary current-snapshot-timestamp-ms
    current-schema default-partition-spec default-sort-order
    """.split()  # noqa: SIM905 - a list would have one name a line
)
# As in Iceberg's Java library.
_NEW_TABLE_PROPERTIES: Final = {"write.parquet.compression-codec": "zstd"}
_COMMIT_PROPERTIES: Final = (
    "commit.retry.num-retries",
    "commit.retry.min-wait-ms",
    "commit.retry.max-wait-ms",
    "commit.retry.total-timeout-ms",
)
_ENCRYPTION_PROPERTIES: Final = frozenset({"encryption.key-id", "encryption.data-key-length"})
_METRICS_PREFIX: Final = "write.metadata.metrics.column."
_NESTED_PARTS: Final = {"list": ("element",), "map": ("key", "value")}


def new_table(request: Json, *, location: str, table_uuid: str, now_ms: int) -> TableMetadata:
    """The first state of a table, from a client's request to create it. Columns and partition fields get new ids."""
    node, no_fields = Node(request, "$"), Node({"fields": []}, "$")
    requested = parse_schema(node.node("schema"))
    spec_node = node.node("partition-spec") if node.has_not_null("partition-spec") else no_fields
    spec = specs.parse_spec(spec_node, needs_id=False)
    order_node = node.node("write-order") if node.has_not_null("write-order") else no_fields
    order = specs.parse_order(order_node, needs_id=False)
    all_properties = node.string_map("properties") if node.has_not_null("properties") else {}
    specs.check_spec_names(spec, requested)
    specs.check_spec(spec, requested)
    specs.check_order(order, requested)
    version = integer_property(all_properties, "format-version", DEFAULT_FORMAT_VERSION)
    require_format_version(version, "$.properties['format-version']")
    # Reserved properties are not stored. Of these, only `format-version` says how the table is created.
    stored = {name: value for name, value in all_properties.items() if name not in RESERVED_PROPERTIES}
    properties = {**_NEW_TABLE_PROPERTIES, **stored}
    _check_properties(properties, requested, version)
    schema, ids = _with_new_ids(requested)
    spec_fields = tuple(
        replace(field, source_id=_new_source_id(ids, field), field_id=specs.PARTITION_ID_FIRST + position)
        for position, field in enumerate(spec.fields)
    )
    order_fields = tuple(replace(field, source_id=ids[field.source_id]) for field in order.fields)
    uuid = check_uuid(table_uuid, "$.metadata.table-uuid")
    draft = Draft(None, now_ms=now_ms, format_version=version, table_uuid=uuid)
    draft.last_partition_id = specs.PARTITION_ID_FIRST - 1
    draft.current_schema_id = structure.put_schema(draft, schema)
    draft.default_spec_id = structure.put_spec(draft, replace(spec, fields=spec_fields))
    draft.default_order_id = structure.put_order(draft, replace(order, fields=order_fields))
    draft.location = strip_location(location, "$.location")
    draft.properties = properties
    return draft.finish(None)


def read_registered_table(data: bytes) -> TableMetadata:
    """Read the metadata file of a table to be registered. Raises if it has no table UUID."""
    metadata = TableMetadata.parse(data)
    if metadata.table_uuid is None:
        got = "a format 1 document without one"
        raise Code.TABLE_METADATA_INVALID(reason="table_uuid_missing", got=got, place="$.table-uuid")
    return metadata


def _new_source_id(ids: Mapping[Json, int], field: specs.SpecField) -> int:
    """The new id of the field's source column. Raises if the table does not have the column."""
    if field.source_id not in ids:
        words, got = f"partition {field.name} of the new table has no source column", f"id {field.source_id}"
        raise Code.PARTITION_SPEC_INVALID(words, reason="spec_source_missing", got=got, place="$.partition-spec")
    return ids[field.source_id]


def _check_properties(properties: Mapping[str, str], schema: TableSchema, version: int) -> None:
    """Raise for properties with which every commit or write to the new table would fail."""
    for name in _COMMIT_PROPERTIES:
        if integer_property(properties, name, 0) < 0:
            words = f"the property {name} cannot be accepted"
            raise Code.PROPERTY_INVALID(words, reason="property_negative", got=abbreviate(properties[name]))
    if version < 3 and (names := sorted(_ENCRYPTION_PROPERTIES & properties.keys())):
        words = f"the property {names[0]} cannot be accepted"
        raise Code.PROPERTY_INVALID(words, reason="property_version", got=f"format {version}")
    for name in properties:
        if not name.startswith(_METRICS_PREFIX):
            continue
        column = name.removeprefix(_METRICS_PREFIX)
        field = schema.find(column)
        if field is None or field.name != column:
            words = f"the property {name[:120]} names a column that the table does not have"
            raise Code.PROPERTY_INVALID(words, reason="property_column_unknown", got=abbreviate(column))


def _with_new_ids(schema: TableSchema) -> tuple[TableSchema, Mapping[Json, int]]:
    """The schema with new column ids, and a map from old to new ids. Everything else in the schema's JSON stays."""
    ids: dict[Json, int] = {}
    raw = {**Node(_renumber(schema.raw, ids), "$.schema").raw, "schema-id": 0}
    if schema.identifier_field_ids:
        raw["identifier-field-ids"] = sorted(ids[old] for old in schema.identifier_field_ids)
    return parse_schema(Node(raw, "$.schema")), ids


def _renumber(raw: Json, ids: dict[Json, int]) -> Json:
    """A type's JSON under new ids, from 1 in Iceberg's order. Adds each old id to `ids`, with its new id."""
    if not isinstance(raw, Mapping):
        return raw
    # All fields of a struct get their ids before the fields nested in them; so do key and value of a map.
    if raw["type"] == "struct":
        numbered: list[dict[str, Json]] = [
            {**field, "id": ids.setdefault(field["id"], len(ids) + 1)} for field in read_objects(raw["fields"])
        ]
        fields: list[Json] = [{**field, "type": _renumber(field["type"], ids)} for field in numbered]
        return {**raw, "fields": fields}
    parts = _NESTED_PARTS[str(raw["type"])]
    new_ids: dict[str, Json] = {f"{part}-id": ids.setdefault(raw[f"{part}-id"], len(ids) + 1) for part in parts}
    types: dict[str, Json] = {part: _renumber(raw[part], ids) for part in parts}
    return {**raw, **new_ids, **types}
