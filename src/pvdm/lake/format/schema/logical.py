"""Conversion between Iceberg's JSON of schemas and types and the model's types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pvdm.errors import Code, PvdmError
from pvdm.lake.format.avro.schema import RecordNode
from pvdm.lake.format.json_document import Json, JsonObject, parse_json
from pvdm.lake.format.schema.document import TableSchema
from pvdm.lake.format.schema.type_names import (
    DEFAULT_ALGORITHM,
    DEFAULT_CRS,
    ICEBERG_DECIMAL_PRECISION_MAX,
    TypeName,
    parse_type_name,
)
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
    """The model's schema of a table schema: ids, names, types and whether required, without defaults and docs."""
    kind = type_from_iceberg(schema.raw)
    if not isinstance(kind, StructType):
        raise AssertionError("a table's schema is a struct")
    return Schema(kind.fields)


def to_iceberg(schema: Schema, *, schema_id: int = 0, identifier_field_ids: Iterable[int] = ()) -> dict[str, Json]:
    """The schema in Iceberg's JSON. Raises if a field has no id."""
    made: dict[str, Json] = {"type": "struct", "schema-id": schema_id}
    if identifiers := sorted(identifier_field_ids):
        made["identifier-field-ids"] = identifiers
    made["fields"] = [field_to_iceberg(field, field.name) for field in schema.fields]
    return made


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


def field_to_iceberg(field: Field, path: str) -> JsonObject:
    """The field in Iceberg's JSON. Raises if it has no id, or a type that Iceberg does not have."""
    doc = field.doc if isinstance(field, DocumentedField) else None
    return {
        "id": _id(field, path),
        "name": field.name,
        "required": field.required,
        "type": _type_json(field.type, path),
        **({} if doc is None else {"doc": doc}),
    }


def _type_json(kind: Type, path: str) -> Json:
    match kind:
        case StructType(fields):
            return {"type": "struct", "fields": [field_to_iceberg(field, f"{path}.{field.name}") for field in fields]}
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
        case PrimitiveType(kind_) if kind_ is not Kind.TIME_NS:
            return str(kind_.value)
        case _:
            words = f"Iceberg has no type for {path}"
            raise Code.ICEBERG_SCHEMA_INVALID(words, reason="schema_not_iceberg", got=str(kind))


def _id(slot: Field | Inner, path: str) -> int:
    if slot.field_id is None:
        raise Code.ICEBERG_SCHEMA_INVALID(f"{path} has no id", reason="schema_ids_missing", got="none")
    return slot.field_id


def _invalid(expected: str, got: object) -> PvdmError:
    return Code.ICEBERG_SCHEMA_INVALID("an Iceberg schema is not valid", expected=expected, got=repr(got)[:120])


def schema_from_text(text: str) -> tuple[Schema, int | None]:
    """Read a schema from JSON text, with its id if it has one."""
    value: Any = parse_json(text.encode(), what="the schema in the header")
    kind = type_from_iceberg(value)
    if not isinstance(kind, StructType):
        raise _invalid("a struct", value)
    schema_id = value.get("schema-id")
    if schema_id is not None:
        schema_id = _integer(value, "schema-id")
    return Schema(kind.fields), schema_id


def check_iceberg_schema(text: str | None, record: RecordNode) -> None:
    """Raise if `iceberg.schema` in a header has other fields than the file's Avro schema."""
    if text is None:
        return
    match parse_json(text.encode(), what="iceberg.schema"):
        case {"type": "struct", "fields": list(fields)}:
            named = [field.get("id") if isinstance(field, dict) else None for field in fields]
        case _:
            named = []
    written = [field.field_id for field in record.fields if field.field_id is not None]
    if named != written:
        expected = repr(written)[:120]
        raise Code.MANIFEST_INVALID(reason="manifest_schemas_conflict", expected=expected, got=repr(named)[:120])


def type_from_iceberg(value: Any, depth: int = 0) -> Type:
    """Read a type from its JSON (Appendix C of the Iceberg specification)."""
    if depth > NESTING_DEPTH_MAX:
        expected = f"at most {NESTING_DEPTH_MAX} levels"
        raise Code.ICEBERG_SCHEMA_INVALID(reason="iceberg_schema_too_deep", expected=expected, got="more")
    if isinstance(value, str):
        return primitive(parse_type_name(value, "the schema"))
    match value:
        case {"type": "struct", "fields": list(fields)}:
            return StructType(tuple(_field_from_json(field, depth + 1) for field in fields))
        case {"type": "list", "element": element}:
            return ListType(_inner_from_json(value, "element", element, depth))
        case {"type": "map", "key": key, "value": map_value}:
            key_type = type_from_iceberg(key, depth + 1)
            return MapType(
                Inner(key_type, True, _integer(value, "key-id")), _inner_from_json(value, "value", map_value, depth)
            )
        case _:
            raise _invalid("a type of Appendix C", value)


def _inner_from_json(parent: Mapping[str, Any], name: str, kind: Any, depth: int) -> Inner:
    required = parent.get(f"{name}-required")
    if not isinstance(required, bool):
        raise _invalid(f"{name}-required as true or false", required)
    return Inner(type_from_iceberg(kind, depth + 1), required, _integer(parent, f"{name}-id"))


def _field_from_json(value: Any, depth: int) -> Field:
    match value:
        case {"name": str(name), "required": bool(required), "type": kind}:
            return Field(name, type_from_iceberg(kind, depth), required, _integer(value, "id"))
        case _:
            raise _invalid("a field with id, name, required and type", value)


def _integer(value: Mapping[str, Any], key: str) -> int:
    found = value.get(key)
    if not isinstance(found, int) or isinstance(found, bool):
        raise _invalid(f"{key} as an integer", found)
    return found


def type_to_iceberg(kind: Type) -> str:
    """The name of a primitive type as Iceberg's Java library writes it."""
    match kind:
        case DecimalType(precision, scale):
            return f"decimal({precision}, {scale})"
        case FixedType(length):
            return f"fixed[{length}]"
        case PrimitiveType(Kind() as name) if name is not Kind.TIME_NS:
            return str(name.value)
        case GeoType(crs, None):
            return "geometry" if crs == DEFAULT_CRS else f"geometry({crs})"
        case GeoType(crs, algorithm) if algorithm == DEFAULT_ALGORITHM:
            return "geography" if crs == DEFAULT_CRS else f"geography({crs})"
        case GeoType(crs, algorithm):
            return f"geography({crs}, {algorithm})"
        case _:
            raise _invalid("a primitive type", str(kind))
