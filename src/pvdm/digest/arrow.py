"""What an Arrow type means: its logical source type (spec/canonical.md section 7.1), and schemas of Arrow data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import pyarrow as pa
from pyarrow import lib

from pvdm.digest.exported import judge_types
from pvdm.errors import Code, InputError
from pvdm.model.schema import (
    FIELD_ID_MAX,
    NESTING_DEPTH_MAX,
    ROW_SIZE_MAX_BYTES,
    DecimalType,
    Field,
    FixedType,
    Inner,
    Kind,
    ListType,
    MapType,
    PrimitiveType,
    Schema,
    StructType,
    Type,
)


class Shape(Enum):
    """The source types that have parts."""

    STRUCT = "struct"
    LIST = "list"
    MAP = "map"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Source:
    """A column, or a part of one, as the input has it."""

    path: str
    arrow: pa.DataType
    type: Type | Shape
    parts: tuple[pa.Field[Any], ...] = ()

    def __str__(self) -> str:
        return f"{self.type} (Arrow {self.arrow})"


_KINDS: Final = {
    lib.Type_NA: Kind.UNKNOWN,
    lib.Type_BOOL: Kind.BOOLEAN,
    lib.Type_INT8: Kind.INT,
    lib.Type_INT16: Kind.INT,
    lib.Type_INT32: Kind.INT,
    lib.Type_UINT8: Kind.INT,
    lib.Type_UINT16: Kind.INT,
    lib.Type_INT64: Kind.LONG,
    lib.Type_UINT32: Kind.LONG,
    lib.Type_HALF_FLOAT: Kind.FLOAT,
    lib.Type_FLOAT: Kind.FLOAT,
    lib.Type_DOUBLE: Kind.DOUBLE,
    lib.Type_DATE32: Kind.DATE,
    lib.Type_DATE64: Kind.DATE,
    lib.Type_TIME32: Kind.TIME,
    lib.Type_STRING: Kind.STRING,
    lib.Type_LARGE_STRING: Kind.STRING,
    lib.Type_STRING_VIEW: Kind.STRING,
    lib.Type_BINARY: Kind.BINARY,
    lib.Type_LARGE_BINARY: Kind.BINARY,
    lib.Type_BINARY_VIEW: Kind.BINARY,
}
_LISTS: Final = frozenset(
    {lib.Type_LIST, lib.Type_LARGE_LIST, lib.Type_FIXED_SIZE_LIST, lib.Type_LIST_VIEW, lib.Type_LARGE_LIST_VIEW}
)
_VARIANT_EXTENSIONS: Final = frozenset({"arrow.parquet.variant", "parquet.variant"})


def source(path: str, part: pa.Field[Any]) -> Source:
    """The logical type of a field; its parts are not looked into. An unknown type is an error."""
    kind, extensions = _unwrap(part)
    logical = _logical(kind)
    if logical is None:
        raise type_unsupported(path, part.type, extensions)
    storage = Source(path, part.type, logical, _parts(kind))
    match sorted(extensions):
        case []:
            return storage
        case ["arrow.uuid"] if logical == FixedType(16):
            return Source(path, part.type, PrimitiveType(Kind.UUID))
        case [name] if name in _VARIANT_EXTENSIONS and holds_variant(storage):
            return Source(path, part.type, PrimitiveType(Kind.VARIANT))
        case [name] if name in _VARIANT_EXTENSIONS and is_shredded(storage):
            raise variant_shredded(path)
    raise type_unsupported(path, part.type, extensions)


def holds_variant(candidate: Source) -> bool:
    """Whether this is a struct of exactly two binary fields, `metadata` and `value`."""
    return (
        candidate.type is Shape.STRUCT
        and sorted(part.name for part in candidate.parts) == ["metadata", "value"]
        and all(
            source(f"{candidate.path}.{part.name}", part).type == PrimitiveType(Kind.BINARY) for part in candidate.parts
        )
    )


def is_shredded(candidate: Source) -> bool:
    """Whether this is a struct with some of a variant's values in columns of their own."""
    return candidate.type is Shape.STRUCT and any(part.name == "typed_value" for part in candidate.parts)


def variant_shredded(path: str) -> InputError:
    """The error for a variant that is not whole in its two columns."""
    return InputError(
        Code.VARIANT_SHREDDED,
        f"column {path!r} is a variant with some of its values in columns of their own",
        expected="a variant of metadata and value alone",
        got="typed_value beside them",
        column=path,
    )


def type_unsupported(path: str, kind: pa.DataType, extensions: frozenset[str] = frozenset()) -> InputError:
    """The error for an Arrow type that has no logical type."""
    name = f"{kind} as extension {', '.join(sorted(extensions))}" if extensions else str(kind)
    return InputError(
        Code.ARROW_TYPE_UNSUPPORTED,
        f"column {path!r} has an Arrow type that has no canonical form",
        expected="a type of spec/canonical.md section 7.1",
        got=name[:200],
        column=path,
    )


def _unwrap(part: pa.Field[Any]) -> tuple[Any, frozenset[str]]:
    """The type below dictionaries, run ends and extensions, and the names of the extensions met."""
    extensions: set[str] = set()
    while True:
        # An extension type that this process has not registered arrives as its storage with a note on the field.
        if name := (part.metadata or {}).get(b"ARROW:extension:name"):
            extensions.add(name.decode(errors="replace"))
        kind: Any = part.type
        if isinstance(kind, pa.BaseExtensionType):
            extensions.add(kind.extension_name)
            part = pa.field("storage", kind.storage_type)
        elif kind.id == lib.Type_DICTIONARY:
            part = pa.field("values", kind.value_type)
        elif kind.id == lib.Type_RUN_END_ENCODED:
            part = kind.field(1)
        else:
            return kind, frozenset(extensions)


def _logical(kind: Any) -> Type | Shape | None:
    if kind.id in _KINDS:
        return PrimitiveType(_KINDS[kind.id])
    if pa.types.is_decimal(kind):
        return DecimalType(kind.precision, kind.scale) if 0 <= kind.scale <= kind.precision else None
    if kind.id in _LISTS:
        return Shape.LIST
    match kind.id:
        case lib.Type_UINT64:
            return DecimalType(20, 0)
        case lib.Type_TIME64:
            return PrimitiveType(Kind.TIME_NS if kind.unit == "ns" else Kind.TIME)
        case lib.Type_TIMESTAMP:
            zone = "tz" if kind.tz else ""
            return PrimitiveType(Kind(f"timestamp{zone}_ns" if kind.unit == "ns" else f"timestamp{zone}"))
        case lib.Type_FIXED_SIZE_BINARY:
            return FixedType(kind.byte_width) if 1 <= kind.byte_width <= ROW_SIZE_MAX_BYTES else None
        case lib.Type_STRUCT:
            return Shape.STRUCT
        case lib.Type_MAP:
            return Shape.MAP
    return None


def _parts(kind: Any) -> tuple[pa.Field[Any], ...]:
    if kind.id == lib.Type_STRUCT:
        return tuple(kind.field(at) for at in range(kind.num_fields))
    if kind.id == lib.Type_MAP:
        return kind.key_field, kind.item_field
    return (kind.value_field,) if kind.id in _LISTS else ()


def schema_from_arrow(schema: pa.Schema) -> Schema:
    """The logical schema of Arrow data; field ids are those that Parquet files carry."""
    judge_types(schema)
    return Schema(tuple(_field(part.name, part) for part in schema))


def _field(path: str, part: pa.Field[Any], depth: int = 1) -> Field:
    return Field(part.name, _type(path, part, depth), not part.nullable, _field_id(path, part))


def _inner(path: str, part: pa.Field[Any], depth: int, *, key: bool = False) -> Inner:
    return Inner(_type(path, part, depth), key or not part.nullable, _field_id(path, part))


def _type(path: str, part: pa.Field[Any], depth: int) -> Type:
    if depth > NESTING_DEPTH_MAX:
        raise Code.NESTING_TOO_DEEP(
            f"column {path.partition('.')[0]!r} nests too deeply",
            expected=f"at most {NESTING_DEPTH_MAX} levels",
            got="more",
        )
    found = source(path, part)
    match found.type:
        case Shape.STRUCT:
            return StructType(tuple(_field(f"{path}.{inside.name}", inside, depth + 1) for inside in found.parts))
        case Shape.LIST:
            return ListType(_inner(f"{path}.element", found.parts[0], depth + 1))
        case Shape.MAP:
            key = _inner(f"{path}.key", found.parts[0], depth + 1, key=True)
            return MapType(key, _inner(f"{path}.value", found.parts[1], depth + 1))
        case _:
            return found.type


def _field_id(path: str, part: pa.Field[Any]) -> int | None:
    text = (part.metadata or {}).get(b"PARQUET:field_id")
    if text is None:
        return None
    if not text.isdigit() or len(text) > len(str(FIELD_ID_MAX)):
        raise Code.SCHEMA_INVALID(
            f"the field id of {path!r} cannot be accepted", expected="digits", got=ascii(text)[:40]
        )
    return int(text)
