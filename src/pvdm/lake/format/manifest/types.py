"""Iceberg's own JSON of schemas and types (Appendix C) as the model's types, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pvdm.errors import Code, InputError
from pvdm.lake.format.avro.schema import RecordNode
from pvdm.lake.format.json.document import parse_json
from pvdm.lake.format.schema.logical import primitive
from pvdm.lake.format.schema.type_names import DEFAULT_ALGORITHM, DEFAULT_CRS, parse_type_name
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


def _invalid(expected: str, got: object) -> InputError:
    return InputError(
        Code.ICEBERG_SCHEMA_INVALID, "an Iceberg schema cannot be accepted", expected=expected, got=repr(got)[:120]
    )


def schema_from_text(text: str) -> tuple[Schema, int | None]:
    """The schema in a manifest's header, and its id where it says one."""
    value: Any = parse_json(text.encode(), what="the schema in the header")
    kind = type_from_iceberg(value)
    if not isinstance(kind, StructType):
        raise _invalid("a struct", value)
    schema_id = value.get("schema-id")
    if schema_id is not None:
        schema_id = _number(value, "schema-id")
    return Schema(kind.fields), schema_id


def check_iceberg_schema(text: str | None, record: RecordNode) -> None:
    """Where the header tells the file's schema a second time, it must have the fields of the first."""
    if text is None:
        return
    match parse_json(text.encode(), what="iceberg.schema"):
        case {"type": "struct", "fields": list(fields)}:
            told = [field.get("id") if isinstance(field, dict) else None for field in fields]
        case _:
            told = []
    written = [field.field_id for field in record.fields if field.field_id is not None]
    if told != written:
        raise Code.MANIFEST_INVALID(
            reason="manifest_schemas_conflict", expected=repr(written)[:120], got=repr(told)[:120]
        )


def type_from_iceberg(value: Any, depth: int = 0) -> Type:
    """The type that a JSON value of Appendix C means."""
    if depth > NESTING_DEPTH_MAX:
        raise Code.ICEBERG_SCHEMA_INVALID(
            reason="iceberg_schema_too_deep", expected=f"at most {NESTING_DEPTH_MAX} levels", got="more"
        )
    if isinstance(value, str):
        return primitive(parse_type_name(value, "a manifest's schema"))
    match value:
        case {"type": "struct", "fields": list(fields)}:
            return StructType(tuple(_field(field, depth + 1) for field in fields))
        case {"type": "list", "element": element}:
            return ListType(_inner(value, "element", element, depth))
        case {"type": "map", "key": key, "value": map_value}:
            key_type = type_from_iceberg(key, depth + 1)
            return MapType(Inner(key_type, True, _number(value, "key-id")), _inner(value, "value", map_value, depth))
        case _:
            raise _invalid("a type of Appendix C", value)


def _inner(parent: Mapping[str, Any], name: str, kind: Any, depth: int) -> Inner:
    required = parent.get(f"{name}-required")
    if not isinstance(required, bool):
        raise _invalid(f"{name}-required as true or false", required)
    return Inner(type_from_iceberg(kind, depth + 1), required, _number(parent, f"{name}-id"))


def _field(value: Any, depth: int) -> Field:
    match value:
        case {"name": str(name), "required": bool(required), "type": kind}:
            return Field(name, type_from_iceberg(kind, depth), required, _number(value, "id"))
        case _:
            raise _invalid("a field with id, name, required and type", value)


def _number(value: Mapping[str, Any], key: str) -> int:
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
