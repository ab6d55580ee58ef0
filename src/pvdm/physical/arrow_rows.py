"""A producer's Arrow table as the target has its columns: by name, with field ids, and nothing lost on the way."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from pvdm.errors import InputError
from pvdm.lake.read.arrow_types import arrow_type
from pvdm.model.schema import (
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
from pvdm.physical.columns import require_names, type_differs

arrow: Any = pa  # its stubs do not know every form of these functions

FIELD_ID: Final = b"PARQUET:field_id"
_UNWRITTEN: Final = frozenset({Kind.VARIANT, Kind.UNKNOWN, Kind.TIME_NS})


def arrow_schema(schema: Schema) -> pa.Schema:
    """The schema as Parquet files of the table have it."""
    return pa.schema([_field(field.name, field) for field in schema.fields])


def fitted(rows: pa.Table, schema: Schema) -> pa.Table:
    """The rows in the target's columns; other names, or a type that would lose something, are refused."""
    wanted = arrow_schema(schema)
    require_names(list(rows.schema.names), list(wanted.names))
    columns: list[Any] = []
    for field in wanted:
        column: Any = rows.column(field.name)
        if not _fits(column.type, field.type):
            raise type_differs(field.name, str(field.type), str(column.type))
        if not field.nullable and column.null_count:
            raise InputError(
                "rows_null_required",
                f"column {field.name[:80]!a} is required and has no value in some rows",
                expected="a value in every row",
                got=f"{column.null_count} nulls",
            )
        try:
            columns.append(column if column.type == field.type else _cast(column, field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise type_differs(field.name, str(field.type), str(error)[:120]) from None
    return pa.Table.from_arrays(columns, schema=wanted)


def _cast(column: Any, wanted: pa.DataType) -> Any:
    if isinstance(wanted, pa.UuidType):
        stored = column.cast(pa.binary(16))
        return arrow.chunked_array([arrow.ExtensionArray.from_storage(wanted, each) for each in stored.chunks], wanted)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return column.cast(wanted)


def _field(name: str, slot: Field | Inner) -> pa.Field[Any]:
    metadata = {} if slot.field_id is None else {FIELD_ID: str(slot.field_id).encode()}
    return pa.field(name, _type(slot.type), nullable=not slot.required, metadata=metadata)


def _type(kind: Type) -> pa.DataType:
    match kind:
        case PrimitiveType(Kind.UUID):
            return pa.uuid()  # Parquet then says that it is one
        case PrimitiveType(primitive) if primitive not in _UNWRITTEN:
            return arrow_type(kind)
        case DecimalType() | FixedType():
            return arrow_type(kind)
        case StructType(fields):
            return pa.struct([_field(each.name, each) for each in fields])
        case ListType(element):
            return pa.list_(_field("element", element))
        case MapType(key, value):
            made: pa.DataType = arrow.map_(_field("key", key), _field("value", value))
            return made
    raise InputError(
        "rows_type_unsupported",
        "small jobs cannot write this type",
        expected="a type without variant, geometry or unknown",
        got=str(kind),
        hint="stage it with Spark",
    )


def _fits(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether every value of the one is a value of the other, and means the same."""
    types = pa.types
    if types.is_dictionary(given):
        return _fits(given.value_type, wanted)
    if types.is_null(given) or given == wanted:
        return True
    if types.is_integer(wanted):
        return types.is_signed_integer(given) and given.bit_width <= wanted.bit_width
    if types.is_floating(wanted):
        return types.is_floating(given) and given.bit_width <= wanted.bit_width
    if types.is_decimal(wanted):
        return types.is_decimal(given) and given.scale == wanted.scale and given.precision <= wanted.precision
    if types.is_timestamp(wanted):
        return types.is_timestamp(given) and (given.tz is None) == (wanted.tz is None)
    if types.is_time(wanted):
        return types.is_time(given)
    if types.is_large_string(wanted):
        return types.is_string(given) or types.is_string_view(given)
    if types.is_large_binary(wanted):
        return types.is_binary(given) or types.is_binary_view(given)
    if isinstance(wanted, pa.UuidType):
        return bool(given == pa.binary(16))
    return _fits_inside(given, wanted)


def _fits_inside(given: pa.DataType, wanted: pa.DataType) -> bool:
    types = pa.types
    if types.is_struct(wanted):
        names = [wanted.field(at).name for at in range(wanted.num_fields)]
        same = types.is_struct(given) and [given.field(at).name for at in range(given.num_fields)] == names
        return same and all(_fits(given.field(at).type, wanted.field(at).type) for at in range(wanted.num_fields))
    if types.is_map(wanted):
        return (
            types.is_map(given) and _fits(given.key_type, wanted.key_type) and _fits(given.item_type, wanted.item_type)
        )
    if types.is_list(wanted):
        return (types.is_list(given) or types.is_large_list(given)) and _fits(given.value_type, wanted.value_type)
    return False
