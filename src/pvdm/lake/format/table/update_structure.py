"""Applies updates of a table's UUID, format version, schemas, specs, orders, location and properties to a draft."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from pvdm.errors import Code
from pvdm.lake.format.json_document import Node, read_objects
from pvdm.lake.format.schema.document import TableSchema, check_version, parse_schema
from pvdm.lake.format.table import specs
from pvdm.lake.format.table.draft import LAST_ADDED, Draft, Parts
from pvdm.lake.format.table.metadata import check_uuid, require_format_version, strip_location
from pvdm.lake.format.table.validity import require_part


class DraftWithProperties(Protocol):
    """A draft with a location and properties: of a table or a view."""

    location: str | None
    properties: dict[str, str]
    changed: bool


def assign_uuid(draft: Draft, node: Node) -> None:
    """assign-uuid."""
    uuid = check_uuid(node.text("uuid"), node.at("uuid"))
    draft.changed |= uuid != draft.table_uuid
    draft.table_uuid = uuid


def upgrade_format_version(draft: Draft, node: Node) -> None:
    """upgrade-format-version, to the same or a later supported version."""
    version, place = node.integer("format-version"), node.at("format-version")
    require_format_version(version, place)
    if version < draft.format_version:
        expected, got = f"at least {draft.format_version}", str(version)
        raise Code.TABLE_METADATA_INVALID(reason="format_version_downgrade", expected=expected, got=got, place=place)
    draft.changed |= version != draft.format_version
    draft.format_version = version


def add_schema(draft: Draft, node: Node) -> None:
    """add-schema. The last column id follows from the schema; the id that the client sends is not used."""
    node.optional_integer("last-column-id")  # raises unless it is a number
    put_schema(draft, parse_schema(node.node("schema")))


def put_schema(draft: Draft, schema: TableSchema) -> int:
    """Add the schema unless the table has the same one. Returns its id."""
    check_version(schema, draft.format_version)
    last = max(draft.last_column_id, schema.highest_field_id)
    schemas, same_id = draft.schemas, draft.schemas.find(schema)
    if same_id is not None and last == draft.last_column_id:
        # As in Iceberg's builder: in later updates -1 means this schema, but only if this commit has added it.
        schemas.last_added = same_id if same_id in schemas.added else None
        return same_id
    draft.last_column_id = last
    draft.changed = True
    if same_id is not None:
        schemas.mark_added(same_id)
        return same_id
    schema_id = max(draft.current_schema_id, max(schemas, default=-1) + 1)
    raw = {**schema.raw, "type": "struct", "schema-id": schema_id}
    schemas.add(schema_id, replace(schema, schema_id=schema_id, raw=raw))
    return schema_id


def set_current_schema(draft: Draft, node: Node) -> None:
    """set-current-schema."""
    schema_id = _read_id(node, "schema-id", draft.schemas.last_added, "schema")
    if schema_id != draft.current_schema_id:
        _require_schema(draft, schema_id, node.at("schema-id"))
        draft.changed = True
    draft.current_schema_id = schema_id


def remove_schemas(draft: Draft, node: Node) -> None:
    """remove-schemas, any but the current one. Ids that the table does not have are ignored."""
    ids, current, place = set(node.integers("schema-ids")), draft.current_schema_id, node.at("schema-ids")
    if current in ids:
        raise Code.ICEBERG_SCHEMA_INVALID(reason="schema_in_use", got=str(current), place=place)
    _remove(draft, ids, draft.schemas)


def _remove(draft: Draft, ids: set[int], parts: Parts[TableSchema] | Parts[specs.TableSpec]) -> None:
    for part_id in ids & parts.keys():
        parts.remove(part_id)
    draft.changed |= bool(ids)


def add_spec(draft: Draft, node: Node) -> None:
    """add-spec."""
    spec = specs.parse_spec(node.node("spec"), needs_id=False)
    has_ids = any(field.get("field-id") is not None for field in read_objects(spec.raw["fields"]))
    put_spec(draft, spec if has_ids else _with_assigned_ids(draft, spec))


def _with_assigned_ids(draft: Draft, spec: specs.TableSpec) -> specs.TableSpec:
    """The spec with field ids. From format 2 on, a field that another spec has gets the id there, others new ids."""
    if draft.format_version == 1:
        return spec
    ids_of_table = {
        (field.source_id, field.transform): field.field_id for other in draft.specs.values() for field in other.fields
    }
    last = max(draft.last_partition_id, specs.PARTITION_ID_FIRST - 1)
    used: set[int] = set()
    fields: list[specs.SpecField] = []
    for field in spec.fields:
        field_id = ids_of_table.get((field.source_id, field.transform))
        if field_id is None or field_id in used:
            last += 1
            field_id = last
        used.add(field_id)
        fields.append(replace(field, field_id=field_id))
    return replace(spec, fields=tuple(fields))


def put_spec(draft: Draft, spec: specs.TableSpec) -> int:
    """Add the spec unless the table has a spec that differs only in field ids. Returns its id in the table."""
    schema = _require_schema(draft, draft.current_schema_id, spec.place)
    specs.check_spec_names(spec, schema)
    specs.check_spec(spec, schema)
    same_id = draft.specs.find(spec)
    if same_id is not None:
        # As in Iceberg's builder: in later updates -1 means this spec, but only if this commit has added a spec before.
        draft.specs.last_added = same_id if draft.specs.last_added in draft.specs.added else None
        return same_id
    spec_id = max(0, max(draft.specs, default=-1) + 1)
    ids = [field.field_id for field in spec.fields]
    if draft.format_version == 1 and ids != [specs.PARTITION_ID_FIRST + i for i in range(len(ids))]:
        expected, got = f"field ids from {specs.PARTITION_ID_FIRST} in steps of one", ", ".join(map(str, ids))
        reason = "spec_ids_not_sequential"
        raise Code.PARTITION_SPEC_INVALID(reason=reason, expected=expected, got=got, place=spec.place)
    draft.specs.add(spec_id, replace(spec, spec_id=spec_id, raw=specs.spec_raw(spec_id, spec.fields, spec.raw)))
    draft.last_partition_id = max(draft.last_partition_id, spec.highest_field_id)
    draft.changed = True
    return spec_id


def set_default_spec(draft: Draft, node: Node) -> None:
    """set-default-spec. `Draft.finish` checks whether the spec exists."""
    spec_id = _read_id(node, "spec-id", draft.specs.last_added, "spec")
    draft.changed |= spec_id != draft.default_spec_id
    draft.default_spec_id = spec_id


def remove_specs(draft: Draft, node: Node) -> None:
    """remove-partition-specs, any but the default one. Ids that the table does not have are ignored."""
    ids, default, place = set(node.integers("spec-ids")), draft.default_spec_id, node.at("spec-ids")
    if default in ids:
        raise Code.PARTITION_SPEC_INVALID(reason="spec_in_use", got=str(default), place=place)
    _remove(draft, ids, draft.specs)


def add_sort_order(draft: Draft, node: Node) -> None:
    """add-sort-order."""
    put_order(draft, specs.parse_order(node.node("sort-order"), needs_id=False))


def put_order(draft: Draft, order: specs.TableOrder) -> int:
    """Add the sort order unless the table has the same one. Returns its id."""
    specs.check_order(order, _require_schema(draft, draft.current_schema_id, order.place))
    same_id = draft.orders.find(order)
    if same_id is not None:
        draft.orders.last_added = same_id if draft.orders.last_added in draft.orders.added else None
        return same_id
    order_id = max(specs.SORT_ORDER_ID_FIRST, max(draft.orders, default=0) + 1) if order.fields else specs.UNSORTED_ID
    raw = specs.order_raw(order_id, order.fields, order.raw)
    draft.orders.add(order_id, replace(order, order_id=order_id, raw=raw))
    draft.changed = True
    return order_id


def set_default_sort_order(draft: Draft, node: Node) -> None:
    """set-default-sort-order. `Draft.finish` checks whether the order exists."""
    order_id = _read_id(node, "sort-order-id", draft.orders.last_added, "sort order")
    draft.changed |= order_id != draft.default_order_id
    draft.default_order_id = order_id


def set_location(draft: DraftWithProperties, node: Node) -> None:
    """set-location."""
    location = strip_location(node.text("location"), node.at("location"))
    draft.changed |= location != draft.location
    draft.location = location


def set_properties(draft: DraftWithProperties, node: Node) -> None:
    """set-properties. Early clients name the field `updated`."""
    updates = node.string_map("updates" if "updates" in node.raw or "updated" not in node.raw else "updated")
    draft.properties.update(updates)
    draft.changed |= bool(updates)


def remove_properties(draft: DraftWithProperties, node: Node) -> None:
    """remove-properties. Early clients name the field `removed`. Unknown properties are ignored."""
    removals = node.string_list("removals" if "removals" in node.raw or "removed" not in node.raw else "removed")
    for name in removals:
        draft.properties.pop(name, None)
    draft.changed |= bool(removals)


def _require_schema(draft: Draft, schema_id: int, place: str) -> TableSchema:
    return require_part(draft.schemas, schema_id, Code.ICEBERG_SCHEMA_INVALID, "schema_unknown", place)


def _read_id(node: Node, key: str, last_added: int | None, what: str) -> int:
    """The id that an update names; -1 is the part that this commit added last."""
    return resolve_id(node.integer(key), last_added, what, node.at(key))


def resolve_id(part_id: int, last_added: int | None, what: str, place: str) -> int:
    """The id, or for -1 the id that this commit added last. Raises if the commit added none."""
    if part_id != LAST_ADDED:
        return part_id
    if last_added is None:
        words, expected = f"-1 means the {what} that this commit added last", f"an update that adds a new {what}"
        reason = "last_added_missing"
        raise Code.TABLE_METADATA_INVALID(words, reason=reason, expected=expected, got="None", place=place)
    return last_added
