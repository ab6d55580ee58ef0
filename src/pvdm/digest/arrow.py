"""Arrow data: checks before an engine reads its buffers, and its logical types (spec/canonical.md section 7.1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa
from pyarrow import lib

from pvdm.errors import Code, PvdmError
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

BATCH_ROWS_MAX: Final = 2**31 - 1
# Dictionaries and run ends do not count as nesting of values, but readers descend into them.
_LAYERS_MAX: Final = 4 * NESTING_DEPTH_MAX
_ENCODED: Final = (pa.DictionaryType, pa.RunEndEncodedType, pa.BaseExtensionType)


@dataclass(frozen=True, slots=True)
class CheckedSchema:
    """A schema that was checked, and the positions of its columns whose arrays have other arrays inside."""

    schema: pa.Schema
    layered: tuple[int, ...]


def check_batch(batch: pa.RecordBatch, known: CheckedSchema | None = None) -> CheckedSchema:
    """Raise for a batch that is not safe to read: bad names, too deep, or sizes and offsets outside its buffers.

    Values are not read. The result may be passed as `known` with the next batch: the same schema is not checked again.
    """
    if batch.num_rows > BATCH_ROWS_MAX:
        expected, got = f"at most {BATCH_ROWS_MAX}", str(batch.num_rows)
        raise Code.ARROW_INVALID(reason="batch_too_large", expected=expected, got=got)
    schema = batch.schema
    if known is None or not schema.equals(known.schema):
        check_types(schema)
        layered = (at for at, kind in enumerate(schema.types) if kind.num_fields or isinstance(kind, _ENCODED))
        known = CheckedSchema(schema, tuple(layered))
    try:
        batch.validate()
    except pa.ArrowInvalid as error:
        raise Code.ARROW_INVALID(got=str(error)[:400]) from None
    # `validate` checks an array completely if it has rows and no other array inside.
    left_to_check = known.layered if batch.num_rows else range(batch.num_columns)
    for position in left_to_check:
        for node in nodes(batch.column(position)):
            _check_node(node)
    return known


def check_types(schema: pa.Schema) -> None:
    """Raise for names that cannot be exported, types that nest too deeply, and extensions inside an encoding."""
    pending: list[tuple[str, Any, int]] = [(_join_name("", field), field.type, 1) for field in schema]
    while pending:
        path, kind, depth = pending.pop()
        if depth > _LAYERS_MAX:
            raise Code.ROW_INVALID(reason="nesting_too_deep", expected=f"{NESTING_DEPTH_MAX} levels", got="more")
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        if isinstance(kind, pa.DictionaryType | pa.RunEndEncodedType):
            if isinstance(kind.value_type, pa.BaseExtensionType):
                message = f"column {path!r} hides an extension type in an encoding"
                raise Code.COLUMNS_MISMATCH(message, reason="arrow_type_unsupported", got=str(kind)[:200], column=path)
            pending.append((path, kind.value_type, depth + 1))
        elif pa.types.is_nested(kind):
            pending += [(_join_name(f"{path}.", field), field.type, depth + 1) for field in _fields(kind)]


def _fields(kind: Any) -> tuple[pa.Field[Any], ...]:
    return tuple(kind.field(at) for at in range(kind.num_fields))


def _join_name(prefix: str, field: pa.Field[Any]) -> str:
    try:
        name = field.name
    except UnicodeDecodeError as error:
        raise Code.ARROW_INVALID(got=f"a name that is not UTF-8: {error.reason}") from None
    if "\0" in name:
        # The C data interface ends a name at U+0000, so "a\0b" would be read as "a".
        raise Code.COLUMNS_MISMATCH(reason="column_unexpected", got=ascii(name)[:200])
    return prefix + name


def nodes(array: Any) -> Iterator[Any]:
    """The array and every array inside it; not deeper than `check_types` allows."""
    yield array
    inside: list[Any] = []
    if isinstance(array, pa.ExtensionArray):
        inside = [array.storage]
    elif isinstance(array, pa.StructArray):
        inside = [array.field(position) for position in range(array.type.num_fields)]
    elif isinstance(array, pa.DictionaryArray):
        inside = [array.dictionary]
    elif isinstance(array, pa.RunEndEncodedArray):
        inside = [array.run_ends, array.values]
    elif pa.types.is_nested(array.type) and not pa.types.is_union(array.type):
        inside = [array.values]
    for child in inside:
        yield from nodes(child)


# The width in bytes of the offsets of an Arrow type.
_OFFSET_WIDTHS: Final = {
    **dict.fromkeys((lib.Type_STRING, lib.Type_BINARY, lib.Type_LIST, lib.Type_MAP), 4),
    **dict.fromkeys((lib.Type_LARGE_STRING, lib.Type_LARGE_BINARY, lib.Type_LARGE_LIST), 8),
}


def _check_node(array: Any) -> None:
    """Check what `validate` does not."""
    kind = array.type
    if pa.types.is_fixed_size_list(kind) and (array.offset + len(array)) * kind.list_size > len(array.values):
        raise Code.ARROW_INVALID(got="a fixed-size list that leaves its child")
    width = _OFFSET_WIDTHS.get(kind.id)
    if len(array) or not array.offset or width is None:
        return
    # Readers read the first offset of an empty array, to know the size of its data.
    offsets = array.buffers()[1]
    end = (array.offset + 1) * width
    if offsets is None or offsets.size < end:
        raise Code.ARROW_INVALID(got="an empty array that begins past its offsets")
    if int.from_bytes(memoryview(offsets)[end - width : end], "little", signed=True) < 0:
        raise Code.ARROW_INVALID(got="an empty array with a negative offset")


class Shape(StrEnum):
    """The logical types of input columns that have parts: fields, elements, or keys and values."""

    STRUCT = "struct"
    LIST = "list"
    MAP = "map"


@dataclass(frozen=True, slots=True)
class ArrowSource:
    """An input column, or a part of one, with its logical type. A digest casts it to the type of the target column."""

    path: str
    arrow: pa.DataType
    type: Type | Shape
    parts: tuple[pa.Field[Any], ...] = ()

    def __str__(self) -> str:
        return f"{self.type} (Arrow {self.arrow})"


_ARROW_TYPES: Final[dict[Kind, tuple[Any, ...]]] = {
    Kind.UNKNOWN: (lib.Type_NA,),
    Kind.BOOLEAN: (lib.Type_BOOL,),
    Kind.INT: (lib.Type_INT8, lib.Type_INT16, lib.Type_INT32, lib.Type_UINT8, lib.Type_UINT16),
    Kind.LONG: (lib.Type_INT64, lib.Type_UINT32),
    Kind.FLOAT: (lib.Type_HALF_FLOAT, lib.Type_FLOAT),
    Kind.DOUBLE: (lib.Type_DOUBLE,),
    Kind.DATE: (lib.Type_DATE32, lib.Type_DATE64),
    Kind.TIME: (lib.Type_TIME32,),
    Kind.STRING: (lib.Type_STRING, lib.Type_LARGE_STRING, lib.Type_STRING_VIEW),
    Kind.BINARY: (lib.Type_BINARY, lib.Type_LARGE_BINARY, lib.Type_BINARY_VIEW),
}
_KINDS: Final = {arrow: kind for kind, types in _ARROW_TYPES.items() for arrow in types}
_LISTS: Final = frozenset(
    {lib.Type_LIST, lib.Type_LARGE_LIST, lib.Type_FIXED_SIZE_LIST, lib.Type_LIST_VIEW, lib.Type_LARGE_LIST_VIEW}
)
_VARIANT_EXTENSIONS: Final = frozenset({"arrow.parquet.variant", "parquet.variant"})


def read_source(path: str, part: pa.Field[Any]) -> ArrowSource:
    """The field with its logical type. The types of its parts are not read yet. Raises `arrow_type_unsupported`."""
    kind, extensions = _unwrap(part)
    logical = _logical(kind)
    if logical is None:
        raise _type_unsupported(path, part.type, extensions)
    storage = ArrowSource(path, part.type, logical, _parts(kind))
    match sorted(extensions):
        case []:
            return storage
        case ["arrow.uuid"] if logical == FixedType(16):
            return ArrowSource(path, part.type, PrimitiveType(Kind.UUID))
        case [name] if name in _VARIANT_EXTENSIONS and holds_variant(storage):
            return ArrowSource(path, part.type, PrimitiveType(Kind.VARIANT))
        case [name] if name in _VARIANT_EXTENSIONS and is_shredded(storage):
            raise variant_shredded(path)
    raise _type_unsupported(path, part.type, extensions)


def holds_variant(candidate: ArrowSource) -> bool:
    """Whether this is a struct of exactly two binary fields, `metadata` and `value`."""
    return (
        candidate.type is Shape.STRUCT
        and sorted(part.name for part in candidate.parts) == ["metadata", "value"]
        and all(
            read_source(f"{candidate.path}.{part.name}", part).type == PrimitiveType(Kind.BINARY)
            for part in candidate.parts
        )
    )


def is_shredded(candidate: ArrowSource) -> bool:
    """Whether this is a struct with some of a variant's values in columns of their own."""
    return candidate.type is Shape.STRUCT and any(part.name == "typed_value" for part in candidate.parts)


def variant_shredded(path: str) -> PvdmError:
    """The error for a variant with values in columns of their own."""
    message = f"column {path!r} is a variant with some of its values in columns of their own"
    return Code.COLUMNS_MISMATCH(message, reason="variant_shredded", got="typed_value beside them", column=path)


def _type_unsupported(path: str, kind: pa.DataType, extensions: frozenset[str]) -> PvdmError:
    name = f"{kind} as extension {', '.join(sorted(extensions))}" if extensions else str(kind)
    return Code.COLUMNS_MISMATCH(
        f"column {path!r} has an Arrow type that has no canonical form",
        reason="arrow_type_unsupported",
        expected="a type of spec/canonical.md section 7.1",
        got=name[:200],
        column=path,
    )


def _unwrap(part: pa.Field[Any]) -> tuple[Any, frozenset[str]]:
    """The type below dictionaries, run ends and extensions, and the names of these extensions."""
    extensions: set[str] = set()
    while True:
        # An extension type that this process has not registered arrives as its storage type with field metadata.
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
            return DecimalType(20, 0)  # the digits of 2^64 - 1
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
        return _fields(kind)
    if kind.id == lib.Type_MAP:
        return kind.key_field, kind.item_field
    return (kind.value_field,) if kind.id in _LISTS else ()


def schema_from_arrow(schema: pa.Schema) -> Schema:
    """The logical schema of Arrow data, with the field ids that Arrow reads from Parquet files."""
    check_types(schema)
    return Schema(tuple(_field(part.name, part) for part in schema))


def _field(path: str, part: pa.Field[Any], depth: int = 1) -> Field:
    return Field(part.name, _type(path, part, depth), not part.nullable, _field_id(path, part))


def _inner(path: str, part: pa.Field[Any], depth: int, *, key: bool = False) -> Inner:
    return Inner(_type(path, part, depth), key or not part.nullable, _field_id(path, part))


def _type(path: str, part: pa.Field[Any], depth: int) -> Type:
    if depth > NESTING_DEPTH_MAX:
        message = f"column {path.partition('.')[0]!r} nests too deeply"
        raise Code.ROW_INVALID(message, reason="nesting_too_deep", got="more")
    found = read_source(path, part)
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
        message = f"the field id of {path!r} cannot be accepted"
        raise Code.SCHEMA_INVALID(message, expected="digits", got=ascii(text)[:40])
    return int(text)
