"""Reads and checks the schemas of table and view metadata, finds fields by id or name, and compares schemas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from dataclasses import field as attribute
from types import MappingProxyType
from typing import Final

from pvdm.errors import Code, PvdmError
from pvdm.lake.format.json_document import (
    Json,
    JsonObject,
    Node,
    Number,
    abbreviate,
    comparison_text,
    describe,
    invalid_value,
)
from pvdm.lake.format.schema.type_names import TypeName, is_default_of, parse_type_name

FIELD_ID_LAST: Final = 2_147_483_447  # Iceberg reserves higher ids
DEFAULTS_LEAST_VERSION: Final = 3
SCHEMA_NESTING_MAX: Final = 64
COLUMN_NAME_MAX_CHARACTERS: Final = 1_024

# Keys whose value is a type, each with the name of the nested type that has the key.
_TYPE_KEYS: Final = frozenset({("element", "list"), ("key", "map"), ("value", "map")})


@dataclass(frozen=True, slots=True)
class SchemaField:
    """A column or struct field, a list's element, or a map's key or value, at any depth."""

    field_id: int
    name: str
    required: bool
    type: TypeName | str  # a str is the name of a nested type, such as "struct"
    parent_id: int | None
    initial_default: Json = None

    @property
    def is_primitive(self) -> bool:
        """Whether the type is primitive for Iceberg: not a struct, list, map or variant."""
        return isinstance(self.type, TypeName) and self.type.base != "variant"


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A schema of a table. `raw` is its JSON, which is never modified; `place` is where the JSON was, for errors."""

    schema_id: int
    fields: Mapping[int, SchemaField]
    ids_by_name: Mapping[str, int]
    identifier_field_ids: frozenset[int]
    raw: JsonObject = attribute(repr=False, compare=False)
    place: str = attribute(repr=False, compare=False, default="$")

    @property
    def highest_field_id(self) -> int:
        """The highest field id at any depth; 0 if there is no field."""
        return max(self.fields, default=0)

    def find(self, name: str) -> SchemaField | None:
        """The field of a full name, or None. `l.x` finds `l.element.x` if no other field has that name."""
        field_id = self.ids_by_name.get(name)
        return None if field_id is None else self.fields[field_id]

    def find_enclosing(self, field: SchemaField) -> Iterator[SchemaField]:
        """The fields that the field is nested in, innermost first."""
        while field.parent_id is not None:
            field = self.fields[field.parent_id]
            yield field

    @property
    def meaning(self) -> str:
        """Text for comparing schemas, without the schema id, and with one spelling of each type and number."""
        return normal_form(self.raw)


def parse_schema(node: Node) -> TableSchema:
    """Read a schema. Raises unless ids and names are distinct, types are known and identifier fields are allowed."""
    collector = _FieldCollector()
    collector.add_struct(node, parent=None, prefix="", short_prefix="", depth=1)
    schema_id = node.optional_integer("schema-id") or 0
    identifiers = node.integers("identifier-field-ids") if node.has_not_null("identifier-field-ids") else ()
    schema = TableSchema(
        schema_id,
        MappingProxyType(collector.fields),
        # A short name that equals a full name names the field with the full name.
        MappingProxyType({**collector.ids, **collector.short_ids, **collector.ids}),
        frozenset(identifiers),
        node.raw,
        node.place,
    )
    for field_id in identifiers:
        _check_identifier(schema, field_id)
    return schema


def check_version(schema: TableSchema, format_version: int) -> None:
    """Raise if the schema has a type or default that this format version does not have."""
    for field in schema.fields.values():
        if isinstance(field.type, TypeName) and field.type.least_version > format_version:
            got = f"column {field.name} of type {field.type} in format {format_version}"
            raise _invalid("schema_type_version", f"format {field.type.least_version} or later", got, schema.place)
        if field.initial_default is not None and format_version < DEFAULTS_LEAST_VERSION:
            got = f"column {field.name} in format {format_version}"
            raise _invalid("schema_default_version", f"format {DEFAULTS_LEAST_VERSION} or later", got, schema.place)


class _FieldCollector:
    """Collects the fields of a schema, and their ids by full name (`l.element.x`) and by short name (`l.x`)."""

    def __init__(self) -> None:
        self.fields: dict[int, SchemaField] = {}
        self.ids: dict[str, int] = {}
        self.short_ids: dict[str, int] = {}

    def add_struct(self, node: Node, parent: int | None, prefix: str, short_prefix: str, depth: int) -> None:
        """Add the fields of a struct, and those nested in them. Their full and short names begin with the prefixes."""
        if node.text("type") != "struct":
            raise invalid_value(node.at("type"), "struct", abbreviate(node.raw["type"]))
        node.array("fields")  # raises if it is absent, which `nodes` accepts
        for field in node.nodes("fields"):
            name, required = field.text("name"), field.flag("required")
            if not name:
                raise invalid_value(field.at("name"), "a name", "an empty string")
            field.optional_text("doc")  # raises unless it is a string
            field_id = field.integer("id")
            full_name, short_name = f"{prefix}{name}", f"{short_prefix}{name}"
            type_ = self._add_one(field, "type", field_id, full_name, short_name, parent, required)
            for key in ("initial-default", "write-default"):
                _check_default(field, key, type_)
            self._add_nested(field, "type", field_id, full_name, short_name, depth)

    def _add_one(
        self, node: Node, key: str, field_id: int, name: str, short_name: str, parent: int | None, required: bool
    ) -> TypeName | str:
        """Add one field, element, key or value. Returns the type, or only the name of a nested type."""
        value, place = node.value(key), node.at(key)
        type_: TypeName | str
        match value:
            case str():
                type_ = parse_type_name(value, place)
            case Mapping():
                type_ = Node(value, place).text("type")
            case _:
                raise invalid_value(place, "a type's name or an object", describe(value))
        # The full names of nested fields repeat this name: without a limit a small document could fill the memory.
        if len(name) > COLUMN_NAME_MAX_CHARACTERS:
            expected = f"at most {COLUMN_NAME_MAX_CHARACTERS} characters, with those of the columns around it"
            raise _invalid("schema_name_too_long", expected, f"{len(name)} characters", node.place)
        if not 0 <= field_id <= FIELD_ID_LAST:
            raise _invalid("schema_field_id_reserved", f"0 to {FIELD_ID_LAST}", f"{field_id} of {name}", node.place)
        if required and type_ == TypeName("unknown"):
            raise _invalid("schema_unknown_required", None, f"a required column, {name}", node.place)
        if field_id in self.fields:
            raise _invalid("schema_field_id_duplicate", "each id once", f"{field_id} twice", node.place)
        if name in self.ids:
            raise _invalid("schema_field_name_duplicate", "each name once", f"{abbreviate(name)} twice", node.place)
        default = node.raw.get("initial-default") if key == "type" else None
        self.fields[field_id] = SchemaField(field_id, name, required, type_, parent, default)
        self.ids[name] = field_id
        self.short_ids.setdefault(short_name, field_id)
        return type_

    def _add_nested(self, node: Node, key: str, parent: int, name: str, short_name: str, depth: int) -> None:
        """Add the fields that are nested in the type under this key; a primitive type has none."""
        value = node.raw[key]
        if isinstance(value, str):
            return
        inner = Node(value, node.at(key))
        if depth >= SCHEMA_NESTING_MAX:
            raise _invalid("schema_too_deep", f"at most {SCHEMA_NESTING_MAX} levels", "more", inner.place)
        match inner.text("type"):
            case "struct":
                self.add_struct(inner, parent, f"{name}.", f"{short_name}.", depth + 1)
            case "list":
                self._add_part(inner, "element", parent, name, short_name, inner.flag("element-required"), depth)
            case "map":
                self._add_part(inner, "key", parent, name, short_name, required=True, depth=depth)
                self._add_part(inner, "value", parent, name, short_name, inner.flag("value-required"), depth)
            case other:
                raise invalid_value(inner.at("type"), "struct, list or map", abbreviate(other))

    def _add_part(
        self, node: Node, part: str, parent: int, outer_name: str, outer_short_name: str, required: bool, depth: int
    ) -> None:
        """Add an element, key or value. Short names leave out `element` and `value` before fields of a struct."""
        field_id = node.integer(f"{part}-id")
        name, short_name = f"{outer_name}.{part}", f"{outer_short_name}.{part}"
        type_ = self._add_one(node, part, field_id, name, short_name, parent, required)
        is_left_out = type_ == "struct" and part != "key"
        self._add_nested(node, part, field_id, name, outer_short_name if is_left_out else short_name, depth + 1)


def _check_default(field: Node, key: str, type_: TypeName | str) -> None:
    """Raise if the field has a default under this key that is not a value of its type."""
    if key not in field.raw:
        return
    value = field.raw[key]
    # The specification allows a null default, but Iceberg's reader fails on it.
    if not isinstance(type_, TypeName) or not is_default_of(type_, value):
        expected = f"a value of {type_}" if isinstance(type_, TypeName) else "no default, as for every nested type"
        raise _invalid("schema_default_invalid", expected, describe(value), field.at(key))


def _check_identifier(schema: TableSchema, field_id: int) -> None:
    """Raise unless the field is primitive, required, not floating-point, and in required structs only."""

    def refused(got: str) -> PvdmError:
        return _invalid("schema_identifier_invalid", None, got, f"{schema.place}.identifier-field-ids")

    field = schema.fields.get(field_id)
    if field is None:
        raise refused(f"no field with id {field_id}")
    if not field.is_primitive or not field.required or str(field.type) in ("float", "double"):
        raise refused(f"{field.name}, {'required' if field.required else 'optional'} {field.type}")
    for outer in schema.find_enclosing(field):
        if outer.type != "struct" or not outer.required:
            raise refused(f"{field.name} in {'required' if outer.required else 'optional'} {outer.type}")


def _invalid(reason: str, expected: str | None, got: str, place: str) -> PvdmError:
    return Code.ICEBERG_SCHEMA_INVALID(reason=reason, expected=expected, got=got, place=place)


def normal_form(raw: JsonObject) -> str:
    """The text of `TableSchema.meaning` for the JSON of a schema."""
    identifiers = raw.get("identifier-field-ids")
    ids = {item for item in identifiers if isinstance(item, int)} if isinstance(identifiers, list) else set()
    parts: dict[str, Json] = {**_normalize_object(raw), "identifier-field-ids": sorted(ids)}
    parts.pop("schema-id", None)
    return comparison_text(parts)


def _normalize_object(raw: JsonObject) -> dict[str, Json]:
    return {key: _normalize(key, value, raw) for key, value in raw.items() if value is not None}


def _normalize(key: str, value: Json, parent: JsonObject) -> Json:
    """The value under this key of a field or nested type, in its normal form."""
    nested_type = parent.get("type") if parent.get("type") in ("struct", "list", "map") else None
    is_type = (key == "type" and nested_type is None) or (key, nested_type) in _TYPE_KEYS
    match value:
        case str() if is_type:
            return str(parse_type_name(value, "$"))
        case Mapping() if is_type:
            return _normalize_object(value)
        case list() if key == "fields" and nested_type == "struct":
            return [_normalize_object(item) if isinstance(item, Mapping) else item for item in value]
        case Number(text) if nested_type is None and key in ("initial-default", "write-default"):
            # A `Number` is no integer, so the column is float or double. Spellings of the same number are equal.
            return repr(float(text))
        case _:
            return value
