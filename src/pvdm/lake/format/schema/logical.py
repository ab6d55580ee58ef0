"""pvdm's own form of an Iceberg schema, from which fingerprints come, and the way back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pvdm.errors import Code
from pvdm.lake.format.json.document import Json
from pvdm.lake.format.json.node import Node, Raw
from pvdm.lake.format.schema.document import TableSchema
from pvdm.lake.format.schema.type_names import ICEBERG_DECIMAL_PRECISION_MAX, TypeName, parse_type_name
from pvdm.model.schema import (
    DecimalType,
    Field,
    FixedType,
    GeoType,
    Inner,
    Kind,
    ListType,
    MapType,
    PrimitiveType,
    Schema,
    StructType,
    Type,
)

_NOT_ICEBERG: Final = frozenset({Kind.TIME_NS})


def to_model(schema: TableSchema) -> Schema:
    """The columns with their ids, names, types and whether they are required; defaults and docs are not part of it."""
    return Schema(_fields(Node(schema.raw, schema.place)))


def to_iceberg(schema: Schema, *, schema_id: int = 0, identifier_field_ids: Iterable[int] = ()) -> dict[str, Json]:
    """The schema as Iceberg's JSON has it; every field needs an id."""
    made: dict[str, Json] = {"type": "struct", "schema-id": schema_id}
    if identifiers := sorted(identifier_field_ids):
        made["identifier-field-ids"] = identifiers
    made["fields"] = [_field_json(field, field.name) for field in schema.fields]
    return made


def _fields(node: Node) -> tuple[Field, ...]:
    return tuple(
        Field(field.text("name"), _type(field, "type"), field.flag("required"), field.integer("id"))
        for field in node.nodes("fields")
    )


def _type(node: Node, key: str) -> Type:
    found = node.value(key)
    if isinstance(found, str):
        return primitive(parse_type_name(found, node.at(key)))
    inner = node.node(key)
    match inner.text("type"):
        case "struct":
            return StructType(_fields(inner))
        case "list":
            return ListType(_inner(inner, "element", inner.flag("element-required")))
        case _:
            return MapType(_inner(inner, "key", True), _inner(inner, "value", inner.flag("value-required")))


def _inner(node: Node, part: str, required: bool) -> Inner:
    return Inner(_type(node, part), required, node.integer(f"{part}-id"))


def primitive(name: TypeName) -> Type:
    """The model's type of a name."""
    match name.base, name.parameters:
        case "decimal", (int(precision), int(scale)):
            return DecimalType(precision, scale)
        case "fixed", (int(length),):
            return FixedType(length)
        case "geometry", (str(crs),):
            return GeoType(crs)
        case "geography", (str(crs), str(algorithm)):
            return GeoType(crs, algorithm)
        case _:
            return PrimitiveType(Kind(name.base))


def _field_json(field: Field, path: str) -> Raw:
    return {
        "id": _id(field, path),
        "name": field.name,
        "required": field.required,
        "type": _type_json(field.type, path),
    }


def _type_json(kind: Type, path: str) -> Json:
    match kind:
        case StructType(fields):
            return {"type": "struct", "fields": [_field_json(field, f"{path}.{field.name}") for field in fields]}
        case ListType(element):
            return {
                "type": "list",
                "element-id": _id(element, f"{path}.element"),
                "element": _type_json(element.type, f"{path}.element"),
                "element-required": element.required,
            }
        case MapType(key, value):
            return {
                "type": "map",
                "key-id": _id(key, f"{path}.key"),
                "key": _type_json(key.type, f"{path}.key"),
                "value-id": _id(value, f"{path}.value"),
                "value": _type_json(value.type, f"{path}.value"),
                "value-required": value.required,
            }
        case DecimalType(precision, scale) if precision <= ICEBERG_DECIMAL_PRECISION_MAX:
            return str(TypeName("decimal", (precision, scale)))
        case FixedType(length):
            return str(TypeName("fixed", (length,)))
        case GeoType(crs, None):
            return str(TypeName("geometry", (crs,)))
        case GeoType(crs, str(algorithm)):
            return str(TypeName("geography", (crs, algorithm)))
        case PrimitiveType(kind_) if kind_ not in _NOT_ICEBERG:
            return kind_.value
        case _:
            raise Code.ICEBERG_SCHEMA_INVALID(
                f"Iceberg has no type for {path}", reason="schema_not_iceberg", got=str(kind)
            )


def _id(slot: Field | Inner, path: str) -> int:
    if slot.field_id is None:
        raise Code.ICEBERG_SCHEMA_INVALID(f"{path} has no id", reason="schema_ids_missing", got="none")
    return slot.field_id
