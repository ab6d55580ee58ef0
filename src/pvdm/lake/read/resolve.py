"""Brings batches of a file to a schema: promoted types, initial defaults, and partition values of missing columns."""

from __future__ import annotations

import math
import struct
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute

from pvdm.errors import Code, VerificationError
from pvdm.lake.format.json_document import Number
from pvdm.lake.format.schema.document import SchemaField, TableSchema
from pvdm.lake.format.schema.logical import to_primitive_type
from pvdm.lake.format.schema.single_value import Value
from pvdm.lake.format.schema.type_names import TypeName
from pvdm.model.filter.expression import LiteralValue
from pvdm.model.filter.literal import parse_literal
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

pc: Any = pyarrow.compute  # Any, because PyArrow's stubs lack some functions, and results for arrays of any type

Array: TypeAlias = Any
"""An Arrow array of any type; the stubs have a class for each type."""

_map: Final[Any] = pa.map_  # PyArrow's stubs lack the form with a field
_WIDENED: Final = frozenset({(pa.int32(), pa.int64()), (pa.float32(), pa.float64())})
_Slot = TypeVar("_Slot", Field, Inner)  # a field of a struct; or an element, key or value


class BatchReader(Protocol):
    """Reads a Parquet file in memory as batches of the schema's columns, found by field id."""

    def __call__(
        self,
        data: bytes,
        schema: Schema,
        dropped: Collection[int] = (),
        named: Schema | None = None,
        stored: Collection[int] = (),
        *,
        claims_checked: bool = False,
        parts_from: int = 0,
    ) -> Iterator[pa.RecordBatch]:
        """Columns that the file lacks are not in the batches. Raises for an id that is not in `schema` or `dropped`.

        A file without ids is read by the names in `named`, or refused if `named` is None. Columns with ids in `stored`
        may come with the file's dictionary or decimal width. With `claims_checked` a file with wrong statistics is
        refused. `parts_from` is where the first split for engines begins. Each row group must be in a split.
        """


def every_id(schema: Schema) -> frozenset[int]:
    """The ids of a schema at any depth."""
    return frozenset(slot.field_id for _, slot in schema.walk() if slot.field_id is not None)


class Resolution:
    """Brings the batches of one file to a schema.

    A column that the file lacks has its identity partition's value, else its initial default, else null. If the file
    has the column, its values must be the partition's, since some readers use the column and others the partition.
    """

    def __init__(self, schema: Schema, defaults: Mapping[int, Value], constants: Mapping[int, Value]) -> None:
        self._schema = schema
        self._constants = constants
        self._filled = {**defaults, **constants}
        self._unchanged_schema: pa.Schema | None = None
        self.wanted = Schema(tuple(_make_optional(field, self._filled.keys()) for field in schema.fields))
        """The schema to read the file with: columns that can be filled are optional."""

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The same rows in the schema's order and types."""
        given = batch.schema
        if self._unchanged_schema is not None and given.equals(self._unchanged_schema):
            return batch
        arrays: list[Array] = []
        is_unchanged = given.names == list(self._schema.names)
        for field in self._schema.fields:
            if field.name not in given.names:
                arrays.append(self._fill(batch.num_rows, field))
                continue
            array = batch.column(field.name)
            converted = self._convert(array, field)
            is_unchanged = is_unchanged and converted is array
            if field.field_id is not None and field.field_id in self._constants:
                _require_constant(converted, self._constants[field.field_id], field)
                is_unchanged = False  # every batch is compared with the value
            arrays.append(converted)
        if is_unchanged:
            self._unchanged_schema = given  # batches of the same types need no change
        return pa.RecordBatch.from_arrays(arrays, names=list(self._schema.names)) if arrays else batch

    def _convert(self, array: Array, slot: Field | Inner) -> Array:
        if pa.types.is_null(array.type):
            return repeat_value(None, slot.type, len(array))  # the file has the column, so that no default applies
        match slot.type:
            case StructType(fields) if fields and pa.types.is_struct(array.type):
                return self._convert_struct(array, fields)
            case ListType(element) if pa.types.is_list(array.type):
                values = self._convert(array.values, element)
                return _with_children(array, pa.list_(pa.field("element", values.type)), [values])
            case MapType(key, value) if pa.types.is_map(array.type):
                keys, values = self._convert(array.keys, key), self._convert(array.items, value)
                named = [pa.field("key", keys.type, nullable=False), pa.field("value", values.type)]
                entries = pa.StructArray.from_arrays([keys, values], fields=named)
                return _with_children(array, _map(keys.type, named[1]), [entries])
            case _:
                return promote(array, slot.type)

    def _fill(self, count: int, field: Field) -> Array:
        value = None if field.field_id is None else self._filled.get(field.field_id)
        return repeat_value(value, field.type, count)

    def _convert_struct(self, array: Array, fields: tuple[Field, ...]) -> Array:
        given = {each.name for each in array.type}
        children: list[Array] = []
        for field in fields:
            if field.name not in given:
                children.append(self._fill(len(array), field))
                continue
            children.append(self._convert(array.field(field.name), field))
            if field.field_id is not None and field.field_id in self._constants:
                _require_constant(children[-1].filter(pc.is_valid(array)), self._constants[field.field_id], field)
        named = [pa.field(field.name, child.type) for field, child in zip(fields, children, strict=True)]
        return pa.StructArray.from_arrays(children, fields=named, mask=pc.is_null(array))


def promote(array: Array, type_: Type) -> Array:
    """Cast the array to `type_` if Iceberg promotes values of its type to `type_`. Otherwise return it as it is."""
    given, wanted = array.type, arrow_type(type_)
    if pa.types.is_decimal(given) and pa.types.is_decimal(wanted):
        is_promotion = given.scale == wanted.scale and given.precision < wanted.precision
    elif given == pa.date32():
        is_promotion = pa.types.is_timestamp(wanted) and wanted.tz is None
    else:
        is_promotion = (given, wanted) in _WIDENED
    if not is_promotion:
        return array
    try:
        return array.cast(wanted)
    except pa.ArrowInvalid:
        words = "a value is out of range for its column's type"
        raise VerificationError(Code.VALUE_OUT_OF_RANGE, words, expected=str(type_), got=str(given)) from None


def repeat_value(value: Value, type_: Type, count: int) -> Array:
    """An array of one value, or null, repeated."""
    wanted: Any = arrow_type(type_)
    if value is None:
        return pa.nulls(count, wanted)
    return pa.repeat(to_scalar(value, type_), count)


def to_scalar(value: Value, type_: Type) -> Any:
    """A value as an Arrow scalar; a UUID as its bytes."""
    wanted: Any = arrow_type(type_)
    return pa.scalar(getattr(value, "bytes", value), wanted)


def _make_optional(slot: _Slot, filled: Collection[int]) -> _Slot:
    """The slot, in which every column that can be filled is optional. Keys of maps stay as they are."""
    type_: Type = slot.type
    match type_:
        case StructType(fields):
            type_ = StructType(tuple(_make_optional(field, filled) for field in fields))
        case ListType(element):
            type_ = ListType(_make_optional(element, filled))
        case MapType(key, value):
            type_ = MapType(_make_optional(key, ()), _make_optional(value, filled))
        case _:
            pass
    return replace(slot, type=type_, required=slot.required and slot.field_id not in filled)


def _with_children(array: Array, type_: pa.DataType, children: list[Array]) -> Array:
    """The same lists or maps with other children."""
    if type_ == array.type:
        return array
    return pa.Array.from_buffers(type_, len(array), array.buffers()[:2], offset=array.offset, children=children)


def _require_constant(array: Array, value: Value, field: Field) -> None:
    """Raise unless every row has the partition's value."""
    if not _is_all(array, value, field.type):
        words, expected = f"column {field.name!r} does not have its partition's value", repr(value)[:120]
        raise Code.SOURCE_DAMAGED(words, reason="source_partition_lies", expected=expected, got="another value")


def _is_all(array: Array, value: Value, type_: Type) -> bool:
    """Whether each row has the value. NaN equals NaN, and negative zero is not zero."""
    if value is None:
        return bool(array.null_count == len(array))
    expected = to_scalar(value, type_)
    try:
        equal = pc.equal(array.cast(expected.type), expected)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    if isinstance(value, float) and math.isnan(value):
        equal = pc.is_nan(array)
    elif isinstance(value, float) and value == 0:
        equal = pc.and_(equal, pc.equal(pc.divide(1.0, array), math.copysign(math.inf, value)))
    return bool(pc.all(pc.fill_null(equal, False), min_count=0).as_py())


_DECIMAL128_DIGITS: Final = 38
_PRIMITIVES: Final[dict[Kind, pa.DataType]] = {
    Kind.BOOLEAN: pa.bool_(),
    Kind.INT: pa.int32(),
    Kind.LONG: pa.int64(),
    Kind.FLOAT: pa.float32(),
    Kind.DOUBLE: pa.float64(),
    Kind.DATE: pa.date32(),
    Kind.TIME: pa.time64("us"),
    Kind.TIME_NS: pa.time64("ns"),
    Kind.TIMESTAMP: pa.timestamp("us"),
    Kind.TIMESTAMPTZ: pa.timestamp("us", "UTC"),
    Kind.TIMESTAMP_NS: pa.timestamp("ns"),
    Kind.TIMESTAMPTZ_NS: pa.timestamp("ns", "UTC"),
    Kind.STRING: pa.large_string(),
    Kind.BINARY: pa.large_binary(),
    Kind.UUID: pa.binary(16),
    Kind.UNKNOWN: pa.null(),
    Kind.VARIANT: pa.struct([("metadata", pa.large_binary()), ("value", pa.large_binary())]),
}


def arrow_type(type_: Type) -> pa.DataType:
    """The Arrow type for values of a model type."""
    match type_:
        case PrimitiveType(primitive):
            return _PRIMITIVES[primitive]
        case FixedType(length):
            return pa.binary(length)
        case DecimalType(precision, scale):
            small = precision <= _DECIMAL128_DIGITS
            return pa.decimal128(precision, scale) if small else pa.decimal256(precision, scale)
        case GeoType():
            return pa.large_binary()
        case StructType(fields):
            return pa.struct([pa.field(field.name, arrow_type(field.type)) for field in fields])
        case ListType(element):
            return pa.list_(pa.field("element", arrow_type(element.type)))
        case MapType(key, value):
            map_type: pa.DataType = _map(arrow_type(key.type), pa.field("value", arrow_type(value.type)))
            return map_type


_SINGLE: Final = struct.Struct("<f")


def initial_defaults(schema: TableSchema) -> dict[int, LiteralValue]:
    """The initial defaults by field id, at any depth: the values of columns that are newer than a file."""
    fields = (field for field in schema.fields.values() if field.initial_default is not None)
    return {field.field_id: _default_value(field) for field in fields}


def _default_value(field: SchemaField) -> LiteralValue:
    """The default as a value. When the schema was read, the default was checked against the type."""
    assert isinstance(field.type, TypeName)  # noqa: S101  nested types have no default
    match field.initial_default:
        case bool() as found:
            return found
        case Number(text):
            # `parse_literal`, made for filters, would not keep negative zero.
            number = float(text)
            return number if field.type.base == "double" else float(_SINGLE.unpack(_SINGLE.pack(number))[0])
        case found:
            return parse_literal(str(found), to_primitive_type(field.type))
