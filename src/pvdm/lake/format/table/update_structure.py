"""Updates of what a table is: UUID, format version, schemas, partition specs, sort orders, location, properties."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from pvdm.errors import Code, InputError
from pvdm.lake.format.json.node import Node, shown
from pvdm.lake.format.schema.document import TableSchema, judge_version, parse_schema
from pvdm.lake.format.table.draft import LAST_ADDED, Draft
from pvdm.lake.format.table.metadata import FORMAT_VERSIONS, check_uuid, stripped_location
from pvdm.lake.format.table.specs import (
    PARTITION_ID_FIRST,
    SORT_ORDER_ID_FIRST,
    UNSORTED_ID,
    SpecField,
    TableOrder,
    TableSpec,
    has_sequential_ids,
    judge_order,
    judge_spec,
    judge_spec_names,
    order_raw,
    parse_order,
    parse_spec,
    spec_raw,
)


class Described(Protocol):
    """A draft that has a location and properties: a table's or a view's."""

    location: str | None
    properties: dict[str, str]
    changed: bool


def assign_uuid(draft: Draft, node: Node) -> None:
    """assign-uuid."""
    uuid = check_uuid(node.text("uuid"), node.at("uuid"))
    if uuid != draft.table_uuid:
        draft.table_uuid = uuid
        draft.changed = True


def upgrade_format_version(draft: Draft, node: Node) -> None:
    """upgrade-format-version: up only, and no higher than is known."""
    upgrade(draft, node.integer("format-version"), node.at("format-version"))


def upgrade(draft: Draft, version: int, place: str) -> None:
    """Raise the format version."""
    require_version(version, place)
    if version < draft.format_version:
        raise Code.TABLE_METADATA_INVALID(
            reason="format_version_downgrade",
            expected=f"at least {draft.format_version}",
            got=str(version),
            place=place,
        )
    if version != draft.format_version:
        draft.format_version = version
        draft.changed = True


def require_version(version: int, place: str) -> None:
    """A format version that can be written."""
    if version not in FORMAT_VERSIONS:
        raise Code.TABLE_METADATA_INVALID(
            "a format version that cannot be written",
            reason="format_version_unsupported",
            expected="1, 2 or 3",
            got=str(version),
            place=place,
        )


def add_schema(draft: Draft, node: Node) -> None:
    """add-schema; the last column id is worked out here, whatever the client says it is."""
    node.optional_integer("last-column-id")
    put_schema(draft, parse_schema(node.node("schema")))


def put_schema(draft: Draft, schema: TableSchema) -> int:
    """Add the schema or find the one that is the same; its id."""
    judge_version(schema, draft.format_version)
    last = max(draft.last_column_id, schema.highest_field_id)
    known = draft.alike_schemas.find(schema)
    if known is not None and last == draft.last_column_id:
        draft.last_added_schema = known if known in draft.added_schemas else None
        return known
    draft.last_column_id = last
    schema_id = max(draft.current_schema_id, max(draft.schemas, default=-1) + 1) if known is None else known
    if known is None:
        draft.schemas[schema_id] = replace(
            schema, schema_id=schema_id, raw={**schema.raw, "type": "struct", "schema-id": schema_id}
        )
        draft.alike_schemas.add(schema_id, draft.schemas[schema_id])
    draft.added_schemas.add(schema_id)
    draft.last_added_schema = schema_id
    draft.changed = True
    return schema_id


def set_current_schema(draft: Draft, node: Node) -> None:
    """set-current-schema."""
    make_schema_current(draft, node.integer("schema-id"), node.at("schema-id"))


def make_schema_current(draft: Draft, schema_id: int, place: str) -> None:
    """Make a schema that the table has the current one."""
    if schema_id == LAST_ADDED:
        schema_id = last_added(draft.last_added_schema, "schema", place)
    if schema_id == draft.current_schema_id:
        return
    _schema(draft, schema_id, place)
    draft.current_schema_id = schema_id
    draft.changed = True


def remove_schemas(draft: Draft, node: Node) -> None:
    """remove-schemas: any but the current one; ids that are not there are already gone."""
    ids = _unused(node, "schema-ids", draft.current_schema_id, "schema_in_use", "the current schema", "schemas")
    for schema_id in ids & draft.schemas.keys():
        draft.alike_schemas.remove(schema_id)
        del draft.schemas[schema_id]
    draft.changed |= bool(ids)


def _unused(node: Node, key: str, used: int | None, code: str, what: str, kind: str) -> set[int]:
    """The ids that go; the one in use does not."""
    ids = set(node.integers(key))
    if used in ids:
        raise InputError(
            code,
            f"{what} cannot be removed",
            expected=f"other {kind} than {used}",
            got=", ".join(str(found) for found in sorted(ids)),
            place=node.at(key),
        )
    return ids


def add_spec(draft: Draft, node: Node) -> None:
    """add-spec."""
    given = node.node("spec")
    spec = parse_spec(given, id_needed=False)
    fields = given.items("fields")
    has_ids = bool(fields) and isinstance(fields[0], dict) and fields[0].get("field-id") is not None
    put_spec(draft, spec if has_ids else _with_free_ids(draft, spec))


def _with_free_ids(draft: Draft, spec: TableSpec) -> TableSpec:
    """Ids for fields that came without: from format 2 on those the table has for the same field, else new ones."""
    if draft.format_version == 1:
        return spec
    known = {
        (field.source_id, field.transform): field.field_id for other in draft.specs.values() for field in other.fields
    }
    last = max(draft.last_partition_id, PARTITION_ID_FIRST - 1)
    taken: set[int] = set()
    fields: list[SpecField] = []
    for field in spec.fields:
        field_id = known.get((field.source_id, field.transform))
        if field_id is None or field_id in taken:
            last += 1
            field_id = last
        taken.add(field_id)
        fields.append(replace(field, field_id=field_id))
    return replace(spec, fields=tuple(fields))


def put_spec(draft: Draft, spec: TableSpec) -> int:
    """Add the spec or find the one that is the same, field ids aside; its id."""
    schema = _schema(draft, draft.current_schema_id, spec.place)
    judge_spec_names(spec, schema)
    judge_spec(spec, schema)
    known = draft.alike_specs.find(spec)
    if known is not None:
        # Iceberg's builder calls it the last added one if this commit added any spec, else none.
        draft.last_added_spec = known if draft.last_added_spec in draft.added_specs else None
        return known
    spec_id = max(0, max(draft.specs, default=-1) + 1)
    if draft.format_version == 1 and not has_sequential_ids(spec):
        raise Code.PARTITION_SPEC_INVALID(
            reason="spec_ids_not_sequential",
            expected=f"field ids from {PARTITION_ID_FIRST} in steps of one",
            got=", ".join(str(field.field_id) for field in spec.fields),
            place=spec.place,
        )
    draft.specs[spec_id] = replace(spec, spec_id=spec_id, raw=spec_raw(spec_id, spec.fields, spec.raw))
    draft.alike_specs.add(spec_id, draft.specs[spec_id])
    draft.last_partition_id = max(draft.last_partition_id, spec.highest_field_id)
    draft.added_specs.add(spec_id)
    draft.last_added_spec = spec_id
    draft.changed = True
    return spec_id


def set_default_spec(draft: Draft, node: Node) -> None:
    """set-default-spec; that the spec exists is judged when all updates are applied."""
    make_spec_default(draft, node.integer("spec-id"), node.at("spec-id"))


def make_spec_default(draft: Draft, spec_id: int, place: str) -> None:
    """Make a spec the default."""
    if spec_id == LAST_ADDED:
        spec_id = last_added(draft.last_added_spec, "spec", place)
    if spec_id != draft.default_spec_id:
        draft.default_spec_id = spec_id
        draft.changed = True


def remove_specs(draft: Draft, node: Node) -> None:
    """remove-partition-specs: any but the default one; ids that are not there are already gone."""
    ids = _unused(node, "spec-ids", draft.default_spec_id, "spec_in_use", "the default partition spec", "specs")
    for spec_id in ids & draft.specs.keys():
        draft.alike_specs.remove(spec_id)
        del draft.specs[spec_id]
    draft.changed |= bool(ids)


def add_sort_order(draft: Draft, node: Node) -> None:
    """add-sort-order."""
    put_order(draft, parse_order(node.node("sort-order"), id_needed=False))


def put_order(draft: Draft, order: TableOrder) -> int:
    """Add the sort order or find the one that is the same; its id."""
    judge_order(order, _schema(draft, draft.current_schema_id, order.place))
    known = draft.alike_orders.find(order)
    if known is not None:
        draft.last_added_order = known if draft.last_added_order in draft.added_orders else None
        return known
    order_id = max(SORT_ORDER_ID_FIRST, max(draft.orders, default=0) + 1) if order.fields else UNSORTED_ID
    draft.orders[order_id] = replace(order, order_id=order_id, raw=order_raw(order_id, order.fields, order.raw))
    draft.alike_orders.add(order_id, draft.orders[order_id])
    draft.added_orders.add(order_id)
    draft.last_added_order = order_id
    draft.changed = True
    return order_id


def set_default_sort_order(draft: Draft, node: Node) -> None:
    """set-default-sort-order; that the order exists is judged when all updates are applied."""
    make_order_default(draft, node.integer("sort-order-id"), node.at("sort-order-id"))


def make_order_default(draft: Draft, order_id: int, place: str) -> None:
    """Make a sort order the default."""
    if order_id == LAST_ADDED:
        order_id = last_added(draft.last_added_order, "sort order", place)
    if order_id != draft.default_order_id:
        draft.default_order_id = order_id
        draft.changed = True


def set_location(draft: Described, node: Node) -> None:
    """set-location."""
    move(draft, stripped_location(node.text("location"), node.at("location")))


def move(draft: Described, location: str) -> None:
    """Give the table, or the view, a location."""
    if location != draft.location:
        draft.location = location
        draft.changed = True


def set_properties(draft: Described, node: Node) -> None:
    """set-properties; early clients say `updated`."""
    updates = node.strings("updates" if "updates" in node.raw or "updated" not in node.raw else "updated")
    draft.properties.update(updates)
    draft.changed |= bool(updates)


def remove_properties(draft: Described, node: Node) -> None:
    """remove-properties; early clients say `removed`. One that is not there is already gone."""
    removals = node.texts("removals" if "removals" in node.raw or "removed" not in node.raw else "removed")
    for name in removals:
        draft.properties.pop(name, None)
    draft.changed |= bool(removals)


def _schema(draft: Draft, schema_id: int, place: str) -> TableSchema:
    found = draft.schemas.get(schema_id)
    if found is None:
        raise Code.ICEBERG_SCHEMA_INVALID(
            "no schema has this id",
            reason="schema_unknown",
            expected=f"one of {', '.join(str(known) for known in draft.schemas) or 'none'}",
            got=str(schema_id),
            place=place,
        )
    return found


def last_added(found: int | None, what: str, place: str) -> int:
    """The id that -1 stands for in an update."""
    if found is None:
        raise Code.TABLE_METADATA_INVALID(
            f"-1 means the {what} that this commit added last",
            reason="last_added_missing",
            expected=f"an update that adds a new {what}",
            got=shown(None),
            place=place,
        )
    return found
