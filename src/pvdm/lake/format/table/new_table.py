"""The first state of a new table, and the state that a registered file holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from pvdm.errors import Code
from pvdm.lake.format.json.document import Json
from pvdm.lake.format.json.node import Node, Raw, shown
from pvdm.lake.format.schema.document import TableSchema, parse_schema
from pvdm.lake.format.schema.fresh_ids import fresh_ids, with_ids
from pvdm.lake.format.table import update_structure as structure
from pvdm.lake.format.table.draft import Draft, whole_property
from pvdm.lake.format.table.metadata import TableMetadata, check_uuid, stripped_location
from pvdm.lake.format.table.specs import (
    PARTITION_ID_FIRST,
    SpecField,
    TableOrder,
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


class _Request:
    """A CreateTable request, its spec and order judged against its own schema."""

    def __init__(self, value: Json) -> None:
        node = Node(value, "$")
        self.schema = parse_schema(node.node("schema"))
        nothing: Raw = {"fields": []}
        spec = node.node("partition-spec") if node.has("partition-spec") else Node(nothing, "$.partition-spec")
        order = node.node("write-order") if node.has("write-order") else Node(nothing, "$.write-order")
        self.spec = parse_spec(spec, id_needed=False)
        self.order = parse_order(order, id_needed=False)
        self.properties = node.strings("properties") if node.has("properties") else {}
        judge_spec_names(self.spec, self.schema)
        judge_spec(self.spec, self.schema)
        judge_order(self.order, self.schema)

    def format_version(self) -> int:
        return whole_property(self.properties, "format-version", DEFAULT_FORMAT_VERSION)

    def persisted(self) -> dict[str, str]:
        """Reserved properties steer the making of a table and are not kept."""
        kept = {name: value for name, value in self.properties.items() if name not in RESERVED_PROPERTIES}
        return {**_NEW_TABLE_PROPERTIES, **kept}


def new_table(request: Json, *, location: str, table_uuid: str, now_ms: int) -> TableMetadata:
    """The state of a new (or staged) table; columns, partitions and sort order get fresh ids."""
    wanted = _Request(request)
    version = wanted.format_version()
    structure.require_version(version, "$.properties['format-version']")
    properties = wanted.persisted()
    _judge_properties(properties, wanted.schema, version)
    ids = fresh_ids(wanted.schema)
    schema = parse_schema(Node(with_ids(wanted.schema, ids, 0), "$.schema"))
    spec_fields = tuple(
        replace(field, source_id=_source(ids, field), field_id=PARTITION_ID_FIRST + position)
        for position, field in enumerate(wanted.spec.fields)
    )
    draft = Draft(
        None, now_ms=now_ms, format_version=version, table_uuid=check_uuid(table_uuid, "$.metadata.table-uuid")
    )
    draft.last_partition_id = PARTITION_ID_FIRST - 1
    structure.make_schema_current(draft, structure.put_schema(draft, schema), "$.schema")
    structure.make_spec_default(
        draft, structure.put_spec(draft, replace(wanted.spec, fields=spec_fields)), "$.partition-spec"
    )
    order_id = structure.put_order(draft, _remapped_order(wanted.order, ids))
    structure.make_order_default(draft, order_id, "$.write-order")
    structure.move(draft, stripped_location(location, "$.location"))
    draft.properties = properties
    return draft.finish(None)


def register_table(data: bytes) -> TableMetadata:
    """The state that a metadata file holds, fit to be a table of the catalog: it must say which table it is."""
    metadata = TableMetadata.parse(data)
    if metadata.table_uuid is None:
        raise Code.TABLE_METADATA_INVALID(
            reason="table_uuid_missing", got="a format 1 document without one", place="$.table-uuid"
        )
    return metadata


def _remapped_order(order: TableOrder, ids: Mapping[int, int]) -> TableOrder:
    fields = tuple(replace(field, source_id=ids[field.source_id]) for field in order.fields)
    return replace(order, fields=fields)


def _source(ids: Mapping[int, int], field: SpecField) -> int:
    found = ids.get(field.source_id)
    if found is None:
        raise Code.PARTITION_SPEC_INVALID(
            f"partition {field.name} of a new table has no source",
            reason="spec_source_missing",
            got=f"id {field.source_id}",
            place="$.partition-spec",
        )
    return found


def _judge_properties(properties: Mapping[str, str], schema: TableSchema, version: int) -> None:
    """What would make every commit or write to the new table fail is refused at once."""
    for name in _COMMIT_PROPERTIES:
        if whole_property(properties, name, 0) < 0:
            raise Code.PROPERTY_INVALID(
                f"the property {name} cannot be accepted", reason="property_negative", got=shown(properties[name])
            )
    if version < 3 and (found := sorted(_ENCRYPTION_PROPERTIES & properties.keys())):
        raise Code.PROPERTY_INVALID(
            f"the property {found[0]} cannot be accepted", reason="property_version", got=f"format {version}"
        )
    for name in properties:
        if not name.startswith(_METRICS_PREFIX):
            continue
        column = name.removeprefix(_METRICS_PREFIX)
        field = schema.find(column)
        if field is None or field.name != column:
            raise Code.PROPERTY_INVALID(
                f"the property {name[:120]} names a column that is not there",
                reason="property_column_unknown",
                got=shown(column),
            )
