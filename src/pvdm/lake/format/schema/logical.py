"""Converts schemas and types between Iceberg's JSON and the types of `pvdm.model.schema`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pvdm.errors import Code, PvdmError
from pvdm.lake.format.avro.container import AvroFile
from pvdm.lake.format.json_document import Json, JsonObject, parse_json
from pvdm.lake.format.schema import type_names
from pvdm.lake.format.schema.document import TableSchema
from pvdm.model.schema import (
    NESTING_DEPTH_MAX,
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


@dataclass(frozen=True, slots=True)
class DocumentedField(Field):
    """A field with a description."""

    doc: str | None = None


def to_model(schema: TableSchema) -> Schema:
    """The table schema in the types of `pvdm.model.schema`, without defaults and docs."""
    struct = type_from_iceberg(schema.raw)
    assert isinstance(struct, StructType)  # noqa: S101  `parse_schema` has checked it
    return Schema(struct.fields)


def to_iceberg(schema: Schema | StructType) -> dict[str, Json]:
    """The schema in Iceberg's JSON, with schema id 0. Raises if a field has no id, or a type that Iceberg lacks."""
    fields: list[Json] = [_field_to_json(field, field.name) for field in schema.fields]
    return {"type": "struct", "schema-id": 0, "fields": fields}


def to_primitive_type(name: type_names.TypeName) -> Type:
    """The type of `pvdm.model.schema` for a primitive type's name."""
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


def _field_to_json(field: Field, path: str) -> JsonObject:
    doc = field.doc if isinstance(field, DocumentedField) else None
    return {
        "id": _require_id(field, path),
        "name": field.name,
        "required": field.required,
        "type": _type_to_json(field.type, path),
        **({} if doc is None else {"doc": doc}),
    }


def _type_to_json(type_: Type, path: str) -> Json:
    match type_:
        case StructType(fields):
            return {"type": "struct", "fields": [_field_to_json(field, f"{path}.{field.name}") for field in fields]}
        case ListType(element):
            return {
                "type": "list",
                "element-id": _require_id(element, f"{path}.element"),
                "element": _type_to_json(element.type, f"{path}.element"),
                "element-required": element.required,
            }
        case MapType(key, value):
            return {
                "type": "map",
                "key-id": _require_id(key, f"{path}.key"),
                "key": _type_to_json(key.type, f"{path}.key"),
                "value-id": _require_id(value, f"{path}.value"),
                "value": _type_to_json(value.type, f"{path}.value"),
                "value-required": value.required,
            }
        case GeoType(crs, None):
            return f"geometry({crs})"
        case GeoType(crs, algorithm):
            return f"geography({crs}, {algorithm})"
    if type_ == PrimitiveType(Kind.TIME_NS) or (
        isinstance(type_, DecimalType) and type_.precision > type_names.ICEBERG_DECIMAL_PRECISION_MAX
    ):
        words = f"Iceberg has no type for {path}"
        raise Code.ICEBERG_SCHEMA_INVALID(words, reason="schema_not_iceberg", got=str(type_))
    return type_to_iceberg(type_)


def _require_id(slot: Field | Inner, path: str) -> int:
    if slot.field_id is None:
        raise Code.ICEBERG_SCHEMA_INVALID(f"{path} has no id", reason="schema_ids_missing", got="none")
    return slot.field_id


def _invalid(expected: str, got: object) -> PvdmError:
    return Code.ICEBERG_SCHEMA_INVALID("an Iceberg schema is not valid", expected=expected, got=repr(got)[:120])


def schema_from_text(text: str) -> tuple[Schema, int | None]:
    """Read a schema from JSON text, with its id if it has one."""
    value: Any = parse_json(text.encode(), what="the schema in the header")
    struct = type_from_iceberg(value)
    if not isinstance(struct, StructType):
        raise _invalid("a struct", value)
    return Schema(struct.fields), None if value.get("schema-id") is None else _read_integer(value, "schema-id")


def check_iceberg_schema(file: AvroFile) -> None:
    """Raise if `iceberg.schema` in the file's header has other top-level field ids than its Avro schema."""
    text = file.text("iceberg.schema")
    if text is None:
        return
    match parse_json(text.encode(), what="iceberg.schema"):
        case {"type": "struct", "fields": list(fields)}:
            ids = [field.get("id") if isinstance(field, dict) else None for field in fields]
        case _:
            ids = []
    avro_ids = [field.field_id for field in file.schema.fields if field.field_id is not None]
    if ids != avro_ids:
        expected, got = repr(avro_ids)[:120], repr(ids)[:120]
        raise Code.MANIFEST_INVALID(reason="manifest_schemas_conflict", expected=expected, got=got)


def type_from_iceberg(value: Any, depth: int = 0) -> Type:
    """Read a type from its JSON (Appendix C of the Iceberg specification)."""
    if depth > NESTING_DEPTH_MAX:
        expected = f"at most {NESTING_DEPTH_MAX} levels"
        raise Code.ICEBERG_SCHEMA_INVALID(reason="iceberg_schema_too_deep", expected=expected, got="more")
    if isinstance(value, str):
        return to_primitive_type(type_names.parse_type_name(value, "the schema"))
    match value:
        case {"type": "struct", "fields": list(fields)}:
            return StructType(tuple(_field_from_json(field, depth + 1) for field in fields))
        case {"type": "list", "element": element}:
            return ListType(_inner_from_json(value, "element", element, depth))
        case {"type": "map", "key": key, "value": map_value}:
            key_type = Inner(type_from_iceberg(key, depth + 1), True, _read_integer(value, "key-id"))
            return MapType(key_type, _inner_from_json(value, "value", map_value, depth))
        case _:
            raise _invalid("a type of Appendix C", value)


def _inner_from_json(parent: Mapping[str, Any], name: str, type_json: Any, depth: int) -> Inner:
    required = parent.get(f"{name}-required")
    if not isinstance(required, bool):
        raise _invalid(f"{name}-required as true or false", required)
    return Inner(type_from_iceberg(type_json, depth + 1), required, _read_integer(parent, f"{name}-id"))


def _field_from_json(value: Any, depth: int) -> Field:
    match value:
        case {"name": str(name), "required": bool(required), "type": type_json}:
            return Field(name, type_from_iceberg(type_json, depth), required, _read_integer(value, "id"))
        case _:
            raise _invalid("a field with id, name, required and type", value)


def _read_integer(value: Mapping[str, Any], key: str) -> int:
    number = value.get(key)
    if not isinstance(number, int) or isinstance(number, bool):
        raise _invalid(f"{key} as an integer", number)
    return number


def type_to_iceberg(type_: Type) -> str:
    """The name of a primitive type as Iceberg's Java library writes it. Raises for other types."""
    match type_:
        case DecimalType(precision, scale):
            return f"decimal({precision}, {scale})"
        case FixedType(length):
            return f"fixed[{length}]"
        case PrimitiveType(Kind() as name) if name is not Kind.TIME_NS:
            return str(name.value)
        case GeoType(crs, None):
            return "geometry" if crs == type_names.DEFAULT_CRS else f"geometry({crs})"
        case GeoType(crs, algorithm) if algorithm == type_names.DEFAULT_ALGORITHM:
            return "geography" if crs == type_names.DEFAULT_CRS else f"geography({crs})"
        case GeoType(crs, algorithm):
            return f"geography({crs}, {algorithm})"
        case _:
            raise _invalid("a primitive type", str(type_))
