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
    abbreviate,
    comparison_text,
    invalid_value,
    read_objects,
)
from pvdm.lake.format.partition_spec import Transform
from pvdm.lake.format.schema.document import SchemaField, TableSchema
from pvdm.lake.format.schema.logical import to_primitive_type
from pvdm.lake.format.schema.type_names import TypeName

PARTITION_ID_FIRST: Final = 1_000
UNSORTED_ID: Final = 0
SORT_ORDER_ID_FIRST: Final = 1

_WITH_PARAMETER: Final = re.compile(r"([A-Za-z0-9_]+)\[([0-9]+)\]")
_WITHOUT_PARAMETER: Final = frozenset({"identity", "year", "month", "day", "hour", "void"})
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
        """Equal for fields that are the same apart from their field ids."""
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
        """The highest partition field id; 999, one below the first, if there is no field."""
        return max((field.field_id for field in self.fields), default=PARTITION_ID_FIRST - 1)

    @property
    def meaning(self) -> tuple[tuple[tuple[int, str, str], ...], str]:
        """Equal for specs with the same sources, transforms and names in order, and the same unknown fields."""
        return tuple(field.key for field in self.fields), _unknown_fields(self.raw, _SPEC_KEYS)


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
        return self.fields, _unknown_fields(self.raw, _ORDER_KEYS) if self.fields else ""


def parse_spec(node: Node, *, needs_id: bool = True) -> TableSpec:
    """Read a spec. Fields without ids, as old writers left them, are numbered from 1000."""
    spec_id = node.integer("spec-id") if needs_id else node.optional_integer("spec-id") or 0
    return TableSpec(spec_id, parse_spec_fields(node, "fields"), node.raw, node.place)


def parse_spec_fields(node: Node, key: str) -> tuple[SpecField, ...]:
    """Read the fields of a spec. Raises unless all of them have ids, or none."""
    node.array(key)
    items = list(node.nodes(key))
    id_count = sum(item.is_present("field-id") for item in items)
    if id_count not in (0, len(items)):
        got = f"{id_count} ids on {len(items)} fields"
        raise Code.PARTITION_SPEC_INVALID(reason="spec_field_ids_mixed", got=got, place=node.at(key))
    names: set[str] = set()
    fields = []
    for position, item in enumerate(items):
        name = item.text("name")
        if not name or name in names:
            raise Code.PARTITION_SPEC_INVALID(reason="spec_name_invalid", got=abbreviate(name), place=item.at("name"))
        names.add(name)
        field_id = item.integer("field-id") if id_count else PARTITION_ID_FIRST + position
        fields.append(SpecField(_read_source_id(item), field_id, name, parse_transform(item)))
    if len({field.field_id for field in fields}) != len(fields):
        got = ", ".join(str(field.field_id) for field in fields)
        raise Code.PARTITION_SPEC_INVALID(reason="spec_field_id_duplicate", got=got, place=node.at(key))
    return tuple(fields)


def parse_order(node: Node, *, needs_id: bool = True) -> TableOrder:
    """Read a sort order. Raises if it has the id 0 and fields, or another id and no field."""
    node.array("fields")
    fields = tuple(
        SortField(
            _read_source_id(item),
            parse_transform(item),
            _read_choice(item, "direction", _DIRECTIONS),
            _read_choice(item, "null-order", _NULL_ORDERS),
        )
        for item in node.nodes("fields")
    )
    order_id = node.integer("order-id") if needs_id else node.optional_integer("order-id")
    if order_id is None:
        order_id = SORT_ORDER_ID_FIRST if fields else UNSORTED_ID
    if (order_id == UNSORTED_ID) != (not fields):
        got = f"id {order_id} with {len(fields)} fields"
        raise Code.SORT_ORDER_INVALID(reason="sort_order_id_reserved", got=got, place=node.at("order-id"))
    return TableOrder(order_id, fields, node.raw, node.place)


def parse_transform(node: Node) -> str:
    """The transform in lower case and without leading zeros in its parameter; an unknown transform as it is."""
    text = node.text("transform")
    if match := _WITH_PARAMETER.fullmatch(text):
        name, digits = match[1].lower(), match[2].lstrip("0") or "0"
        is_known = name in ("bucket", "truncate")
        least = 1 if is_known else 0
        if len(digits) > 10 or not least <= int(digits) <= INT_LAST:
            raise invalid_value(node.at("transform"), f"a width from 1 to {INT_LAST}", abbreviate(text))
        return f"{name}[{digits}]" if is_known else text
    return text.lower() if text.lower() in _WITHOUT_PARAMETER else text


def check_spec_names(spec: TableSpec, schema: TableSchema) -> None:
    """Raise if a partition has the name of a column that is not its source."""
    for field in spec.fields:
        column = schema.find(field.name)
        if field.source_id in schema.fields and column is not None and column.field_id != field.source_id:
            words = f"partition {field.name} has the name of a column that is not its source"
            expected = f"another name than column {column.field_id}'s"
            raise _refused(spec, "spec_name_conflict", words, expected, f"a partition of column {field.source_id}")


def check_spec_types(spec: TableSpec, schema: TableSchema) -> None:
    """Raise if a source column has a type that the transform does not accept. Columns that were dropped are skipped."""
    for field in spec.fields:
        column = schema.fields.get(field.source_id)
        if column is not None and not _accepts(field.transform, column):
            words = f"partition {field.name} of spec {spec.spec_id} no longer fits its source"
            expected = f"a type that {field.transform} takes"
            raise _refused(spec, "spec_source_type_changed", words, expected, f"{column.name}, {column.type}")


def check_spec(spec: TableSpec, schema: TableSchema) -> None:
    """Raise unless each transform but `void` accepts its source, a primitive column at the top or inside structs."""
    for field in spec.fields:
        if field.transform == "void":
            continue
        if wrong := _find_wrong_source(schema, field.source_id, field.transform, structs_only=True):
            words = f"partition {field.name} cannot be made from its source (spec {spec.spec_id})"
            raise _refused(spec, "spec_source_invalid", words, *wrong)


def _refused(spec: TableSpec, reason: str, message: str, expected: str, got: str) -> PvdmError:
    return Code.PARTITION_SPEC_INVALID(message, reason=reason, expected=expected, got=got, place=spec.place)


def check_order(order: TableOrder, schema: TableSchema) -> None:
    """Raise unless each source is a primitive column of a type that the transform accepts."""
    for field in order.fields:
        if wrong := _find_wrong_source(schema, field.source_id, field.transform, structs_only=False):
            words, reason = f"a column cannot be sorted by (sort order {order.order_id})", "sort_source_invalid"
            expected, got = wrong
            raise Code.SORT_ORDER_INVALID(words, reason=reason, expected=expected, got=got, place=order.place)


def _find_wrong_source(
    schema: TableSchema, source_id: int, transform: str, *, structs_only: bool
) -> tuple[str, str] | None:
    """The `expected` and `got` of an error if the column cannot be the source; None if it can."""
    column = schema.fields.get(source_id)
    if column is None:
        return "a column of the current schema", f"id {source_id}"
    if not column.is_primitive or not isinstance(column.type, TypeName):
        return "a primitive column", f"{column.name}, {column.type}"
    if not _accepts(transform, column):
        return f"a type that {transform} takes", f"{column.name}, {column.type}"
    outer = next((each for each in schema.find_enclosing(column) if each.type != "struct"), None)
    if structs_only and outer is not None:
        return "a column in structs only", f"{column.name} in a {outer.type}"
    return None


def _accepts(text: str, column: SchemaField) -> bool:
    """Whether readers can apply the transform to the column. An unknown transform counts as accepting any type."""
    transform = Transform.parse(text)
    if not isinstance(column.type, TypeName):
        return not transform.is_known or transform.name in ("identity", "void")
    return not transform.is_known or transform.accepts(to_primitive_type(column.type))


def _read_source_id(node: Node) -> int:
    if not node.has_not_null("source-id") and node.has_not_null("source-ids"):
        reason, place = "transform_arguments_unsupported", node.at("source-ids")
        raise Code.PARTITION_SPEC_INVALID(reason=reason, got="source-ids", place=place)
    return node.integer("source-id")


def _read_choice(node: Node, key: str, choices: tuple[str, ...]) -> str:
    text = node.text(key).lower()
    if text not in choices:
        raise invalid_value(node.at(key), " or ".join(choices), abbreviate(text))
    return text


def _unknown_fields(raw: JsonObject, known: frozenset[str]) -> str:
    """The fields of a spec or order that Iceberg does not define, as text to compare."""
    unknown: dict[str, Json] = {key: value for key, value in raw.items() if key not in known and key != "fields"}
    unknown["fields"] = [
        {key: value for key, value in item.items() if key not in known} for item in read_objects(raw.get("fields"))
    ]
    return comparison_text(unknown)


def spec_raw(spec_id: int, fields: tuple[SpecField, ...], like: JsonObject) -> dict[str, Json]:
    """The JSON of a spec with this id, and with the ids and names of `fields`; everything else is taken from `like`."""
    field_raws: list[Json] = []
    for field, old in zip(fields, read_objects(like.get("fields")), strict=True):
        ids: dict[str, Json] = {"source-id": field.source_id, "field-id": field.field_id, "name": field.name}
        field_raws.append({"transform": field.transform, **old, **ids})
    return {**like, "spec-id": spec_id, "fields": field_raws}


def order_raw(order_id: int, fields: tuple[SortField, ...], like: JsonObject) -> dict[str, Json]:
    """The JSON of a sort order with this id, and with the source ids of `fields`; everything else is from `like`."""
    pairs = zip(fields, read_objects(like.get("fields")), strict=True)
    field_raws: list[Json] = [{**old, "source-id": field.source_id} for field, old in pairs]
    return {**like, "order-id": order_id, "fields": field_raws}
