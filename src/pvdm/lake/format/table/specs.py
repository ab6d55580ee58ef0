"""Partition specs and sort orders of the metadata document, and whether a schema can carry them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import field as attribute
from typing import Final

from pvdm.errors import Code
from pvdm.lake.format.json.document import Json, canonical
from pvdm.lake.format.json.node import INT_LAST, Node, Raw, invalid, shown
from pvdm.lake.format.partition.spec import Transform
from pvdm.lake.format.schema.document import SchemaField, TableSchema
from pvdm.lake.format.schema.logical import primitive
from pvdm.lake.format.schema.type_names import TypeName

PARTITION_ID_FIRST: Final = 1_000
UNSORTED_ID: Final = 0
SORT_ORDER_ID_FIRST: Final = 1

_WIDTH: Final = re.compile(r"([A-Za-z0-9_]+)\[([0-9]+)\]")
_PLAIN: Final = frozenset({"identity", "year", "month", "day", "hour", "void"})
_SPEC_KEYS: Final = frozenset({"spec-id", "source-id", "field-id", "name", "transform"})
_ORDER_KEYS: Final = frozenset({"order-id", "source-id", "transform", "direction", "null-order"})
_DIRECTIONS: Final = ("asc", "desc")
_NULL_ORDERS: Final = ("nulls-first", "nulls-last")


@dataclass(frozen=True, slots=True)
class SpecField:
    """One field of a partition spec."""

    source_id: int
    field_id: int
    name: str
    transform: str

    @property
    def key(self) -> tuple[int, str, str]:
        """What makes two fields the same; the field id does not."""
        return self.source_id, self.transform, self.name


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A partition spec of the table; `raw` is never changed in place."""

    spec_id: int
    fields: tuple[SpecField, ...]
    raw: Raw = attribute(repr=False, compare=False)
    place: str = attribute(repr=False, compare=False, default="$")

    @property
    def highest_field_id(self) -> int:
        """The highest partition field id, one below the first when there is none."""
        return max((field.field_id for field in self.fields), default=PARTITION_ID_FIRST - 1)

    @property
    def meaning(self) -> tuple[tuple[tuple[int, str, str], ...], str]:
        """Sources, transforms and names in their order, but no field ids; what Iceberg does not know counts too."""
        return tuple(field.key for field in self.fields), extras(self.raw, _SPEC_KEYS)


@dataclass(frozen=True, slots=True)
class SortField:
    """One field of a sort order."""

    source_id: int
    transform: str
    direction: str
    null_order: str


@dataclass(frozen=True, slots=True)
class TableOrder:
    """A sort order of the table; `raw` is never changed in place."""

    order_id: int
    fields: tuple[SortField, ...]
    raw: Raw = attribute(repr=False, compare=False)
    place: str = attribute(repr=False, compare=False, default="$")

    @property
    def meaning(self) -> tuple[tuple[SortField, ...], str]:
        """The fields in their order; what Iceberg does not know counts too, but there is one unsorted order only."""
        return self.fields, extras(self.raw, _ORDER_KEYS) if self.fields else ""


def parse_spec(node: Node, *, id_needed: bool = True) -> TableSpec:
    """A spec; where old writers left the field ids out, they count up from the first."""
    spec_id = node.integer("spec-id") if id_needed else node.optional_integer("spec-id") or 0
    return TableSpec(spec_id, parse_spec_fields(node, "fields"), node.raw, node.place)


def parse_spec_fields(node: Node, key: str) -> tuple[SpecField, ...]:
    """The fields of a spec: all with ids, or none."""
    node.items(key)
    found = list(node.nodes(key))
    with_ids = [item for item in found if item.given("field-id")]
    if with_ids and len(with_ids) != len(found):
        raise Code.PARTITION_SPEC_INVALID(
            f"some fields of the partition spec at {node.at(key)} have ids",
            reason="spec_field_ids_mixed",
            got=f"{len(with_ids)} ids on {len(found)} fields",
            place=node.at(key),
        )
    names: set[str] = set()
    fields = []
    for position, item in enumerate(found):
        name = item.text("name")
        if not name or name in names:
            raise Code.PARTITION_SPEC_INVALID(
                f"the name at {item.at('name')} cannot be accepted",
                reason="spec_name_invalid",
                got=shown(name),
                place=item.at("name"),
            )
        names.add(name)
        field_id = item.integer("field-id") if with_ids else PARTITION_ID_FIRST + position
        fields.append(SpecField(_source(item), field_id, name, parse_transform(item)))
    if len({field.field_id for field in fields}) != len(fields):
        raise Code.PARTITION_SPEC_INVALID(
            f"two fields of the partition spec at {node.at(key)} have one id",
            reason="spec_field_id_duplicate",
            got=", ".join(str(field.field_id) for field in fields),
            place=node.at(key),
        )
    return tuple(fields)


def parse_order(node: Node, *, id_needed: bool = True) -> TableOrder:
    """A sort order; id 0 is the unsorted one and no other."""
    node.items("fields")
    fields = tuple(
        SortField(
            _source(item),
            parse_transform(item),
            _word(item, "direction", _DIRECTIONS),
            _word(item, "null-order", _NULL_ORDERS),
        )
        for item in node.nodes("fields")
    )
    order_id = node.optional_integer("order-id")
    if order_id is None:
        if id_needed:
            node.integer("order-id")
        order_id = SORT_ORDER_ID_FIRST if fields else UNSORTED_ID
    if (order_id == UNSORTED_ID) != (not fields):
        raise Code.SORT_ORDER_INVALID(
            f"the id of the sort order at {node.place} cannot be accepted",
            reason="sort_order_id_reserved",
            got=f"id {order_id} with {len(fields)} fields",
            place=node.at("order-id"),
        )
    return TableOrder(order_id, fields, node.raw, node.place)


def parse_transform(node: Node) -> str:
    """The transform in one spelling; one that is not known stays as it is, as readers must bear it."""
    text = node.text("transform")
    if found := _WIDTH.fullmatch(text):
        name, digits = found[1].lower(), found[2].lstrip("0") or "0"
        known = name in ("bucket", "truncate")
        if len(digits) > 10 or not int(known) <= int(digits) <= INT_LAST:
            raise invalid(node.at("transform"), f"a width from 1 to {INT_LAST}", shown(text))
        return f"{name}[{digits}]" if known else text
    return text.lower() if text.lower() in _PLAIN else text


def judge_spec_names(spec: TableSpec, schema: TableSchema) -> None:
    """A partition may bear the name of its own source column, never that of another one."""
    for field in spec.fields:
        column = schema.find(field.name)
        if field.source_id in schema.fields and column is not None and column.field_id != field.source_id:
            raise Code.PARTITION_SPEC_INVALID(
                f"partition {field.name} bears the name of a column it is not made from",
                reason="spec_name_conflict",
                expected=f"another name than column {column.field_id}'s",
                got=f"a partition of column {field.source_id}",
                place=spec.place,
            )


def judge_spec_types(spec: TableSpec, schema: TableSchema) -> None:
    """A spec that is no longer the default may have lost a column, but Iceberg reads no table where the column is
    there under a type that the transform does not take."""
    for field in spec.fields:
        column = schema.fields.get(field.source_id)
        if column is not None and not _takes(field.transform, column):
            raise Code.PARTITION_SPEC_INVALID(
                f"partition {field.name} of spec {spec.spec_id} no longer fits its source",
                reason="spec_source_type_changed",
                expected=f"a type that {field.transform} takes",
                got=f"{column.name}, {column.type}",
                place=spec.place,
            )


def judge_spec(spec: TableSpec, schema: TableSchema) -> None:
    """Every source is a primitive column in structs only, of a type that the transform takes."""
    for field in spec.fields:
        if field.transform != "void" and (unfit := _unfit(schema, field.source_id, field.transform, structs_only=True)):
            raise Code.PARTITION_SPEC_INVALID(
                f"partition {field.name} cannot be made from its source (spec {spec.spec_id})",
                reason="spec_source_invalid",
                expected=unfit[0],
                got=unfit[1],
                place=spec.place,
            )


def judge_order(order: TableOrder, schema: TableSchema) -> None:
    """Every source is a primitive column of a type that the transform takes."""
    for field in order.fields:
        if unfit := _unfit(schema, field.source_id, field.transform, structs_only=False):
            raise Code.SORT_ORDER_INVALID(
                f"a column cannot be sorted by (sort order {order.order_id})",
                reason="sort_source_invalid",
                expected=unfit[0],
                got=unfit[1],
                place=order.place,
            )


def has_sequential_ids(spec: TableSpec) -> bool:
    """Format 1 knows partition fields by their place: ids count up from the first."""
    return all(field.field_id == PARTITION_ID_FIRST + place for place, field in enumerate(spec.fields))


def _unfit(schema: TableSchema, source_id: int, transform: str, *, structs_only: bool) -> tuple[str, str] | None:
    """What a source column should be and what it is, if it does not fit."""
    column = schema.fields.get(source_id)
    if column is None:
        return "a column of the current schema", f"id {source_id}"
    if not column.is_primitive or not isinstance(column.type, TypeName):
        return "a primitive column", f"{column.name}, {column.type}"
    if not _takes(transform, column):
        return f"a type that {transform} takes", f"{column.name}, {column.type}"
    for outer in _outer(schema, column):
        if structs_only and outer.type != "struct":
            return "a column in structs only", f"{column.name} in a {outer.type}"
    return None


def _takes(transform: str, column: SchemaField) -> bool:
    """As readers apply it; one that is not known may take anything, and a struct stands for itself."""
    known = Transform.parse(transform)
    if not isinstance(column.type, TypeName):
        return not known.known or known.name in ("identity", "void")
    return not known.known or known.accepts(primitive(column.type))


def _outer(schema: TableSchema, column: SchemaField) -> Iterator[SchemaField]:
    parent = column.parent_id
    while parent is not None:
        outer = schema.fields[parent]
        yield outer
        parent = outer.parent_id


def _source(node: Node) -> int:
    if not node.has("source-id") and node.has("source-ids"):
        raise Code.PARTITION_SPEC_INVALID(
            f"the transform at {node.place} takes several columns, which no reader here can apply",
            reason="transform_arguments_unsupported",
            got="source-ids",
            place=node.at("source-ids"),
        )
    return node.integer("source-id")


def _word(node: Node, key: str, words: tuple[str, ...]) -> str:
    text = node.text(key).lower()
    if text not in words:
        raise invalid(node.at(key), " or ".join(words), shown(text))
    return text


def extras(raw: Raw, known: frozenset[str]) -> str:
    """What a spec or order has besides the keys that are known, as text that can be compared."""
    left: dict[str, Json] = {key: value for key, value in raw.items() if key not in known and key != "fields"}
    fields = raw.get("fields")
    if isinstance(fields, list):
        left["fields"] = [
            {key: value for key, value in item.items() if key not in known} if isinstance(item, dict) else item
            for item in fields
        ]
    return canonical(left)


def spec_raw(spec_id: int, fields: tuple[SpecField, ...], like: Raw) -> dict[str, Json]:
    """The JSON of a spec with these ids; what the given JSON has besides stays."""
    made: list[Json] = [
        {
            "transform": field.transform,
            **old,
            "source-id": field.source_id,
            "field-id": field.field_id,
            "name": field.name,
        }
        for field, old in zip(fields, _field_objects(like), strict=True)
    ]
    return {**like, "spec-id": spec_id, "fields": made}


def order_raw(order_id: int, fields: tuple[SortField, ...], like: Raw) -> dict[str, Json]:
    """The JSON of a sort order with these ids; what the given JSON has besides stays."""
    made: list[Json] = [
        {**old, "source-id": field.source_id} for field, old in zip(fields, _field_objects(like), strict=True)
    ]
    return {**like, "order-id": order_id, "fields": made}


def _field_objects(like: Raw) -> list[Raw]:
    fields = like.get("fields")
    return [item for item in fields if isinstance(item, dict)] if isinstance(fields, list) else []
