"""Partition specs and sort orders of table metadata: read, and checked against a schema."""

from __future__ import annotations

import re
from dataclasses import dataclass
from dataclasses import field as attribute
from typing import Final

from pvdm.errors import Code, PvdmError
from pvdm.lake.format.json_document import (
    INT_LAST,
    Json,
    JsonObject,
    Node,
    comparison_text,
    invalid,
    read_objects,
    shown,
)
from pvdm.lake.format.partition_spec import Transform
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
        """Two fields with the same key are the same field, whatever their ids."""
        return self.source_id, self.transform, self.name


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A partition spec of the table; `raw` is never changed in place."""

    spec_id: int
    fields: tuple[SpecField, ...]
    raw: JsonObject = attribute(repr=False, compare=False)
    place: str = attribute(repr=False, compare=False, default="$")

    @property
    def highest_field_id(self) -> int:
        """The highest partition field id, one below the first when there is none."""
        return max((field.field_id for field in self.fields), default=PARTITION_ID_FIRST - 1)

    @property
    def meaning(self) -> tuple[tuple[tuple[int, str, str], ...], str]:
        """Equal for specs with the same sources, transforms and names in order, and the same unknown fields."""
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
    raw: JsonObject = attribute(repr=False, compare=False)
    place: str = attribute(repr=False, compare=False, default="$")

    @property
    def meaning(self) -> tuple[tuple[SortField, ...], str]:
        """Equal for orders with the same fields and unknown fields; all unsorted orders are equal."""
        return self.fields, extras(self.raw, _ORDER_KEYS) if self.fields else ""


def parse_spec(node: Node, *, id_needed: bool = True) -> TableSpec:
    """Read a spec; field ids that an old writer left out count up from the first."""
    spec_id = node.integer("spec-id") if id_needed else node.optional_integer("spec-id") or 0
    return TableSpec(spec_id, parse_spec_fields(node, "fields"), node.raw, node.place)


def parse_spec_fields(node: Node, key: str) -> tuple[SpecField, ...]:
    """Read the fields of a spec. Raises unless all of them have ids, or none."""
    node.array(key)
    found = list(node.nodes(key))
    with_ids = [item for item in found if item.is_present("field-id")]
    if with_ids and len(with_ids) != len(found):
        got = f"{len(with_ids)} ids on {len(found)} fields"
        raise Code.PARTITION_SPEC_INVALID(reason="spec_field_ids_mixed", got=got, place=node.at(key))
    names: set[str] = set()
    fields = []
    for position, item in enumerate(found):
        name = item.text("name")
        if not name or name in names:
            raise Code.PARTITION_SPEC_INVALID(reason="spec_name_invalid", got=shown(name), place=item.at("name"))
        names.add(name)
        field_id = item.integer("field-id") if with_ids else PARTITION_ID_FIRST + position
        fields.append(SpecField(_source(item), field_id, name, parse_transform(item)))
    if len({field.field_id for field in fields}) != len(fields):
        ids = ", ".join(str(field.field_id) for field in fields)
        raise Code.PARTITION_SPEC_INVALID(reason="spec_field_id_duplicate", got=ids, place=node.at(key))
    return tuple(fields)


def parse_order(node: Node, *, id_needed: bool = True) -> TableOrder:
    """Read a sort order. Raises unless id 0 is the unsorted order and only that."""
    node.array("fields")
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
        got = f"id {order_id} with {len(fields)} fields"
        raise Code.SORT_ORDER_INVALID(reason="sort_order_id_reserved", got=got, place=node.at("order-id"))
    return TableOrder(order_id, fields, node.raw, node.place)


def parse_transform(node: Node) -> str:
    """The transform in its normal spelling; an unknown one is kept as it is."""
    text = node.text("transform")
    if found := _WIDTH.fullmatch(text):
        name, digits = found[1].lower(), found[2].lstrip("0") or "0"
        known = name in ("bucket", "truncate")
        if len(digits) > 10 or not int(known) <= int(digits) <= INT_LAST:
            raise invalid(node.at("transform"), f"a width from 1 to {INT_LAST}", shown(text))
        return f"{name}[{digits}]" if known else text
    return text.lower() if text.lower() in _PLAIN else text


def judge_spec_names(spec: TableSpec, schema: TableSchema) -> None:
    """Raise if a partition has the name of a column that is not its source."""
    for field in spec.fields:
        column = schema.find(field.name)
        if field.source_id in schema.fields and column is not None and column.field_id != field.source_id:
            words = f"partition {field.name} has the name of a column that is not its source"
            wanted = f"another name than column {column.field_id}'s"
            raise _refused(spec, "spec_name_conflict", words, wanted, f"a partition of column {field.source_id}")


def judge_spec_types(spec: TableSpec, schema: TableSchema) -> None:
    """Raise if a source column has a type that the transform does not take; an old spec may have lost its column."""
    for field in spec.fields:
        column = schema.fields.get(field.source_id)
        if column is not None and not _takes(field.transform, column):
            words = f"partition {field.name} of spec {spec.spec_id} no longer fits its source"
            wanted = f"a type that {field.transform} takes"
            raise _refused(spec, "spec_source_type_changed", words, wanted, f"{column.name}, {column.type}")


def judge_spec(spec: TableSpec, schema: TableSchema) -> None:
    """Raise unless each source is a primitive column, inside structs only, of a type that the transform takes."""
    for field in spec.fields:
        if field.transform != "void" and (unfit := _unfit(schema, field.source_id, field.transform, structs_only=True)):
            words = f"partition {field.name} cannot be made from its source (spec {spec.spec_id})"
            raise _refused(spec, "spec_source_invalid", words, *unfit)


def _refused(spec: TableSpec, reason: str, message: str, expected: str, got: str) -> PvdmError:
    return Code.PARTITION_SPEC_INVALID(message, reason=reason, expected=expected, got=got, place=spec.place)


def judge_order(order: TableOrder, schema: TableSchema) -> None:
    """Raise unless each source is a primitive column of a type that the transform takes."""
    for field in order.fields:
        if unfit := _unfit(schema, field.source_id, field.transform, structs_only=False):
            words, (wanted, got) = f"a column cannot be sorted by (sort order {order.order_id})", unfit
            raise Code.SORT_ORDER_INVALID(
                words, reason="sort_source_invalid", expected=wanted, got=got, place=order.place
            )


def _unfit(schema: TableSchema, source_id: int, transform: str, *, structs_only: bool) -> tuple[str, str] | None:
    """What a source column should be and what it is; None if it fits."""
    column = schema.fields.get(source_id)
    if column is None:
        return "a column of the current schema", f"id {source_id}"
    if not column.is_primitive or not isinstance(column.type, TypeName):
        return "a primitive column", f"{column.name}, {column.type}"
    if not _takes(transform, column):
        return f"a type that {transform} takes", f"{column.name}, {column.type}"
    parent = column.parent_id if structs_only else None
    while parent is not None:
        outer = schema.fields[parent]
        if outer.type != "struct":
            return "a column in structs only", f"{column.name} in a {outer.type}"
        parent = outer.parent_id
    return None


def _takes(transform: str, column: SchemaField) -> bool:
    """Whether readers can apply the transform to the column; an unknown transform may take any type."""
    known = Transform.parse(transform)
    if not isinstance(column.type, TypeName):
        return not known.known or known.name in ("identity", "void")
    return not known.known or known.accepts(primitive(column.type))


def _source(node: Node) -> int:
    if not node.has_not_null("source-id") and node.has_not_null("source-ids"):
        raise Code.PARTITION_SPEC_INVALID(
            reason="transform_arguments_unsupported", got="source-ids", place=node.at("source-ids")
        )
    return node.integer("source-id")


def _word(node: Node, key: str, words: tuple[str, ...]) -> str:
    text = node.text(key).lower()
    if text not in words:
        raise invalid(node.at(key), " or ".join(words), shown(text))
    return text


def extras(raw: JsonObject, known: frozenset[str]) -> str:
    """The fields of a spec or order that Iceberg does not define, as text to compare."""
    left: dict[str, Json] = {key: value for key, value in raw.items() if key not in known and key != "fields"}
    fields = raw.get("fields")
    if isinstance(fields, list):
        left["fields"] = [
            {key: value for key, value in item.items() if key not in known} if isinstance(item, dict) else item
            for item in fields
        ]
    return comparison_text(left)


def spec_raw(spec_id: int, fields: tuple[SpecField, ...], like: JsonObject) -> dict[str, Json]:
    """The JSON of a spec with these ids; other fields are taken from `like`."""
    made: list[Json] = []
    for field, old in zip(fields, read_objects(like.get("fields")), strict=True):
        ids: dict[str, Json] = {"source-id": field.source_id, "field-id": field.field_id, "name": field.name}
        made.append({"transform": field.transform, **old, **ids})
    return {**like, "spec-id": spec_id, "fields": made}


def order_raw(order_id: int, fields: tuple[SortField, ...], like: JsonObject) -> dict[str, Json]:
    """The JSON of a sort order with these ids; other fields are taken from `like`."""
    made: list[Json] = [
        {**old, "source-id": field.source_id}
        for field, old in zip(fields, read_objects(like.get("fields")), strict=True)
    ]
    return {**like, "order-id": order_id, "fields": made}
