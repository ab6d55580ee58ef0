"""Logical types and schemas (spec/canonical.md section 1), and their JSON (spec/digest.md section 1)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final, TypeAlias, TypeVar

from pvdm.errors import Code, InputError

COLUMNS_MAX: Final = 10_000  # fields of one struct
NAME_MAX_BYTES: Final = 1_024
NESTING_DEPTH_MAX: Final = 64
ROW_SIZE_MAX_BYTES: Final = 268_435_456
DECIMAL_PRECISION_MAX: Final = 76
FIELD_ID_MAX: Final = 2**31 - 1


class Kind(Enum):
    """The types that have no parameter; the value is the name in JSON."""

    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    DATE = "date"
    TIME = "time"
    TIME_NS = "time_ns"
    TIMESTAMP = "timestamp"
    TIMESTAMPTZ = "timestamptz"
    TIMESTAMP_NS = "timestamp_ns"
    TIMESTAMPTZ_NS = "timestamptz_ns"
    STRING = "string"
    UUID = "uuid"
    BINARY = "binary"
    UNKNOWN = "unknown"
    VARIANT = "variant"


@dataclass(frozen=True, slots=True)
class PrimitiveType:
    """A type without parameters."""

    kind: Kind

    def __str__(self) -> str:
        return self.kind.value


@dataclass(frozen=True, slots=True)
class DecimalType:
    """`decimal(P,S)`. A digest in portable mode (spec/canonical.md section 2) hashes values at `declared_scale`."""

    precision: int
    scale: int
    declared_scale: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.precision <= DECIMAL_PRECISION_MAX:
            raise _invalid("decimal precision", f"1 to {DECIMAL_PRECISION_MAX}", str(self.precision))
        if not 0 <= self.scale <= self.precision:
            raise _invalid("decimal scale", f"0 to the precision {self.precision}", str(self.scale))
        if self.declared_scale is not None and not 0 <= self.declared_scale <= self.precision:
            raise _invalid("declared scale", f"0 to the precision {self.precision}", str(self.declared_scale))

    def __str__(self) -> str:
        declared = "" if self.declared_scale is None else f"@{self.declared_scale}"
        return f"decimal({self.precision},{self.scale}){declared}"


@dataclass(frozen=True, slots=True)
class FixedType:
    """`fixed(L)`: exactly L bytes."""

    length: int

    def __post_init__(self) -> None:
        if not 1 <= self.length <= ROW_SIZE_MAX_BYTES:
            raise _invalid("length of fixed", f"1 to {ROW_SIZE_MAX_BYTES}", str(self.length))

    def __str__(self) -> str:
        return f"fixed({self.length})"


@dataclass(frozen=True, slots=True)
class GeoType:
    """`geometry` (no edge algorithm) or `geography` (with one), in a coordinate reference system (`crs`)."""

    crs: str
    algorithm: str | None = None

    def __post_init__(self) -> None:
        _check_text("CRS", self.crs)
        if self.algorithm is not None:
            _check_text("edge algorithm", self.algorithm)

    def __str__(self) -> str:
        return "geometry" if self.algorithm is None else "geography"


@dataclass(frozen=True, slots=True)
class Inner:
    """A list element, map key or map value: a field without a name. `field_id` is Iceberg's id of it, if known."""

    type: Type
    required: bool = False
    field_id: int | None = None

    def __post_init__(self) -> None:
        _check_slot(self)


@dataclass(frozen=True, slots=True)
class Field:
    """A named column or struct field. `field_id` is Iceberg's id of it, if known."""

    name: str
    type: Type
    required: bool = False
    field_id: int | None = None

    def __post_init__(self) -> None:
        _check_text("field name", self.name)
        if "\0" in self.name:
            raise _invalid("field name", "one without U+0000, where Arrow ends a name", ascii(self.name))
        _check_slot(self)


@dataclass(frozen=True, slots=True)
class StructType:
    """Named fields. Their order is kept and has no meaning."""

    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        _check_fields(self.fields)

    def __str__(self) -> str:
        return "struct"


@dataclass(frozen=True, slots=True)
class ListType:
    """Elements in order."""

    element: Inner

    def __str__(self) -> str:
        return "list"


@dataclass(frozen=True, slots=True)
class MapType:
    """Pairs of key and value; keys are required."""

    key: Inner
    value: Inner

    def __post_init__(self) -> None:
        if not self.key.required:
            raise _invalid("map key", "a required type", "an optional one")

    def __str__(self) -> str:
        return "map"


Type: TypeAlias = PrimitiveType | DecimalType | FixedType | GeoType | StructType | ListType | MapType


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns of a table, or of a projection of it. Either all fields have an id or none has."""

    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        _check_fields(self.fields)
        for field in self.fields:
            depth = _depth(field.type)
            if depth > NESTING_DEPTH_MAX:
                message, allowed = f"column {field.name!r} nests too deeply", f"at most {NESTING_DEPTH_MAX} levels"
                raise Code.ROW_INVALID(message, reason="nesting_too_deep", expected=allowed, got=str(depth))
        ids = [slot.field_id for _, slot in self.walk()]
        if any(found is not None for found in ids):
            if None in ids:
                raise _invalid("field ids", "an id on every field or on none", "a mixture")
            if len(set(ids)) != len(ids):
                raise _invalid("field ids", "distinct ids", "an id twice")

    @property
    def names(self) -> tuple[str, ...]:
        """Column names, in the schema's own order."""
        return tuple(field.name for field in self.fields)

    def column(self, name: str) -> Field:
        """The column of that name. Raises `projection_column_unknown`."""
        for field in self.fields:
            if field.name == name:
                return field
        message, known = f"no column {name!r} in the schema", f"one of {', '.join(self.names)}"
        raise Code.PROJECTION_INVALID(message, reason="projection_column_unknown", expected=known, got=name)

    def select(self, names: Iterable[str]) -> Schema:
        """The schema of these columns only, sorted by name."""
        return Schema(tuple(self.column(name) for name in sorted(names)))

    def walk(self) -> Iterator[tuple[str, Field | Inner]]:
        """Every field, list element, map key and map value (each a slot) with its dotted path; a parent comes first."""
        for field in self.fields:
            yield from _walk(field.name, field)

    def with_scales(self, scales: Mapping[str, int]) -> Schema:
        """The schema with declared scales by dotted path (`a.b`, `l.element`). Raises if a path is not a decimal's."""
        pending = dict(scales)
        declared = Schema(tuple(_with_scales(field.name, field, pending) for field in self.fields))
        if pending:
            raise _invalid("declared scale", "the path of a decimal", ", ".join(sorted(pending)))
        return declared

    def to_json(self) -> dict[str, object]:
        """The JSON value. The schema's fingerprint is the hash of this JSON, so keys and fields have a fixed order."""
        return {"fields": _fields_to_json(self.fields), "type": "struct"}

    @classmethod
    def from_json(cls, value: object) -> Schema:
        """The schema that `to_json` wrote. Raises for anything else."""
        parsed = type_from_json(value, depth=0)
        if not isinstance(parsed, StructType):
            raise _invalid("schema", "a struct", str(parsed))
        return cls(parsed.fields)


def _invalid(what: str, expected: str, got: str) -> InputError:
    return InputError(Code.SCHEMA_INVALID, f"{what} cannot be accepted", expected=expected, got=got)


def _check_text(what: str, text: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise _invalid(what, "well-formed Unicode", ascii(text)) from None
    if not 1 <= size <= NAME_MAX_BYTES:
        raise _invalid(what, f"1 to {NAME_MAX_BYTES} bytes", f"{size} bytes")


def _check_slot(slot: Field | Inner) -> None:
    if slot.field_id is not None and not 0 <= slot.field_id <= FIELD_ID_MAX:
        raise _invalid("field id", f"0 to {FIELD_ID_MAX}", str(slot.field_id))
    if slot.required and slot.type == PrimitiveType(Kind.UNKNOWN):
        raise _invalid("type unknown", "an optional one: it holds only null", "a required one")


def _check_fields(fields: tuple[Field, ...]) -> None:
    if len(fields) > COLUMNS_MAX:
        raise _invalid("schema", f"at most {COLUMNS_MAX} fields in one struct", str(len(fields)))
    seen: set[str] = set()
    for field in fields:
        if field.name in seen:
            raise _invalid("field names", "distinct names", f"{field.name!r} twice")
        seen.add(field.name)


def _children(parent: Type) -> tuple[tuple[str, Field | Inner], ...]:
    """The fields, element, key or value directly inside the type, each with the last part of its path."""
    match parent:
        case StructType(fields):
            return tuple((field.name, field) for field in fields)
        case ListType(element):
            return (("element", element),)
        case MapType(key, value):
            return (("key", key), ("value", value))
        case _:
            return ()


def _depth(outer: Type) -> int:
    return 1 + max((_depth(slot.type) for _, slot in _children(outer)), default=0)


def _walk(path: str, slot: Field | Inner) -> Iterator[tuple[str, Field | Inner]]:
    yield path, slot
    for name, child in _children(slot.type):
        yield from _walk(f"{path}.{name}", child)


_Slot = TypeVar("_Slot", Field, Inner)


def _with_scales(path: str, slot: _Slot, pending: dict[str, int]) -> _Slot:
    """The slot with its declared scales, which are taken out of `pending`."""
    match slot.type:
        case DecimalType() as decimal if path in pending:
            return replace(slot, type=replace(decimal, declared_scale=pending.pop(path)))
        case StructType(fields):
            declared = tuple(_with_scales(f"{path}.{child.name}", child, pending) for child in fields)
            return replace(slot, type=StructType(declared))
        case ListType(element):
            return replace(slot, type=ListType(_with_scales(f"{path}.element", element, pending)))
        case MapType(key, value):
            pair = _with_scales(f"{path}.key", key, pending), _with_scales(f"{path}.value", value, pending)
            return replace(slot, type=MapType(*pair))
        case _:
            return slot


def _fields_to_json(fields: tuple[Field, ...]) -> list[dict[str, object]]:
    return [_slot_to_json(field) for field in sorted(fields, key=lambda field: field.name)]


def _slot_to_json(slot: Field | Inner) -> dict[str, object]:
    ids: dict[str, object] = {} if slot.field_id is None else {"id": slot.field_id}
    named: dict[str, object] = {"name": slot.name} if isinstance(slot, Field) else {}
    return {**ids, **named, "required": slot.required, "type": type_to_json(slot.type)}


def type_to_json(value: Type) -> object:
    """A type in the JSON from which the schema's fingerprint is computed."""
    match value:
        case GeoType(crs, None):
            return {"crs": crs, "type": "geometry"}
        case GeoType(crs, algorithm):
            return {"algorithm": algorithm, "crs": crs, "type": "geography"}
        case StructType(fields):
            return {"fields": _fields_to_json(fields), "type": "struct"}
        case ListType(element):
            return {"element": _slot_to_json(element), "type": "list"}
        case MapType(key, map_value):
            return {"key": _slot_to_json(key), "type": "map", "value": _slot_to_json(map_value)}
        case _:
            return str(value)


_DECIMAL: Final = re.compile(r"decimal\((\d{1,3}),(\d{1,3})\)(?:@(\d{1,3}))?", re.ASCII)
_FIXED: Final = re.compile(r"fixed\((\d{1,10})\)", re.ASCII)


def type_from_json(value: object, depth: int = 1) -> Type:
    """The type that `type_to_json` wrote, at this depth of nesting. Raises for anything else."""
    if depth > NESTING_DEPTH_MAX:
        allowed = f"at most {NESTING_DEPTH_MAX} levels"
        raise Code.ROW_INVALID("the schema nests too deeply", reason="nesting_too_deep", expected=allowed, got="more")
    if isinstance(value, str):
        return _named_type(value)
    if not isinstance(value, dict):
        raise _invalid("type", "a name or an object", type(value).__name__)
    match value:
        case {"type": "struct", "fields": list(fields), **rest} if not rest:
            return StructType(tuple(Field(**_read_slot(field, depth + 1, named=True)) for field in fields))
        case {"type": "list", "element": element, **rest} if not rest:
            return ListType(Inner(**_read_slot(element, depth + 1)))
        case {"type": "map", "key": key, "value": map_value, **rest} if not rest:
            return MapType(Inner(**_read_slot(key, depth + 1)), Inner(**_read_slot(map_value, depth + 1)))
        case {"type": "geometry", "crs": str(crs), **rest} if not rest:
            return GeoType(crs)
        case {"type": "geography", "crs": str(crs), "algorithm": str(algorithm), **rest} if not rest:
            return GeoType(crs, algorithm)
    raise _invalid("type", "struct, list, map, geometry or geography with their parts", repr(value)[:120])


def _named_type(name: str) -> Type:
    if match := _DECIMAL.fullmatch(name):
        precision, scale, declared = match.groups()
        return DecimalType(int(precision), int(scale), None if declared is None else int(declared))
    if match := _FIXED.fullmatch(name):
        return FixedType(int(match[1]))
    try:
        return PrimitiveType(Kind(name))
    except ValueError:
        raise Code.SCHEMA_INVALID(reason="schema_type_unknown", got=repr(name)[:120]) from None


def _read_slot(value: object, depth: int, *, named: bool = False) -> dict[str, Any]:
    """The arguments of a `Field` (if `named`) or of an `Inner`."""
    allowed = {"id", "name", "required", "type"} if named else {"id", "required", "type"}
    if not isinstance(value, dict) or not value.keys() <= allowed or not {"required", "type"} <= value.keys():
        raise _invalid("field", f"an object with {', '.join(sorted(allowed))}", repr(value)[:120])
    field_id, name = value.get("id"), value.get("name")
    if not isinstance(value["required"], bool):
        raise _invalid("required", "true or false", repr(value["required"])[:40])
    if "id" in value and (not isinstance(field_id, int) or isinstance(field_id, bool)):
        raise _invalid("field id", "an integer", repr(field_id)[:40])
    if named and not isinstance(name, str):
        raise _invalid("field name", "a string", repr(name)[:40])
    arguments = {"type": type_from_json(value["type"], depth), "required": value["required"], "field_id": field_id}
    return {**arguments, "name": name} if named else arguments
