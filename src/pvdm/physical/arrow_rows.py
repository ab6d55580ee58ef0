"""Fits an Arrow table to the target's columns, by name and without loss, and splits it by partition."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
import pyarrow.compute

from pvdm.errors import Code
from pvdm.lake.format.manifest.entry import IdMap
from pvdm.lake.format.manifest.manifest import ManifestHeader
from pvdm.lake.format.partition_spec import PartitionField, apply_transform, source_types
from pvdm.lake.format.partition_value import value_key
from pvdm.lake.format.schema.single_value import Value
from pvdm.lake.read.resolve import arrow_type
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
from pvdm.physical.stager import require_names, type_error

# The type stubs of pyarrow lack some functions and signatures.
arrow: Any = pa
pc: Any = pyarrow.compute
_UNSUPPORTED: Final = frozenset({Kind.VARIANT, Kind.UNKNOWN, Kind.TIME_NS})
PARTS_MAX: Final = 10_000


def arrow_schema(schema: Schema) -> pa.Schema:
    """The Arrow schema of the table's Parquet files, with field ids."""
    return pa.schema([_to_arrow_field(field.name, field) for field in schema.fields])


def fit_columns(rows: pa.Table, schema: Schema) -> pa.Table:
    """The rows in the target's columns. Raises for other names, and for types that would lose values."""
    wanted = arrow_schema(schema)
    require_names(list(rows.schema.names), list(wanted.names))
    columns: list[Any] = []
    for field in wanted:
        column: Any = rows.column(field.name)
        if not _fits(column.type, field.type):
            raise type_error(field.name, str(field.type), str(column.type))
        if not field.nullable and column.null_count:
            message = f"column {field.name[:80]!a} is required and has no value in some rows"
            raise Code.ROWS_INVALID(message, reason="rows_null_required", got=f"{column.null_count} nulls")
        try:
            columns.append(column if column.type == field.type else _cast(column, field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise type_error(field.name, str(field.type), str(error)[:120]) from None
    return pa.Table.from_arrays(columns, schema=wanted)


def _cast(column: Any, wanted: pa.DataType) -> Any:
    if isinstance(wanted, pa.UuidType):
        stored = column.cast(pa.binary(16))
        return arrow.chunked_array([arrow.ExtensionArray.from_storage(wanted, each) for each in stored.chunks], wanted)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return column.cast(wanted)


def _to_arrow_field(name: str, slot: Field | Inner) -> pa.Field[Any]:
    metadata = {} if slot.field_id is None else {b"PARQUET:field_id": str(slot.field_id).encode()}
    return pa.field(name, _to_arrow_type(slot.type), nullable=not slot.required, metadata=metadata)


def _to_arrow_type(type_: Type) -> pa.DataType:
    match type_:
        case PrimitiveType(Kind.UUID):
            return pa.uuid()  # so that the Parquet file has the logical type UUID
        case PrimitiveType(primitive) if primitive not in _UNSUPPORTED:
            return arrow_type(type_)
        case DecimalType() | FixedType():
            return arrow_type(type_)
        case StructType(fields):
            return pa.struct([_to_arrow_field(each.name, each) for each in fields])
        case ListType(element):
            return pa.list_(_to_arrow_field("element", element))
        case MapType(key, value):
            map_type: pa.DataType = arrow.map_(_to_arrow_field("key", key), _to_arrow_field("value", value))
            return map_type
    raise Code.ROWS_INVALID(reason="rows_type_unsupported", got=str(type_))


def _fits(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values keep their meaning in the wanted type. A cast raises for times that would lose digits."""
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
    return _parts_fit(given, wanted)


def _parts_fit(given: pa.DataType, wanted: pa.DataType) -> bool:
    """As `_fits`, for structs, maps and lists; False for other types."""
    types = pa.types
    if types.is_struct(wanted):
        names = [wanted.field(i).name for i in range(wanted.num_fields)]
        same = types.is_struct(given) and [given.field(i).name for i in range(given.num_fields)] == names
        return same and all(_fits(given.field(i).type, wanted.field(i).type) for i in range(wanted.num_fields))
    if types.is_map(wanted) and types.is_map(given):
        return _fits(given.key_type, wanted.key_type) and _fits(given.item_type, wanted.item_type)
    if types.is_list(wanted):
        return (types.is_list(given) or types.is_large_list(given)) and _fits(given.value_type, wanted.value_type)
    return False


@dataclass(frozen=True, slots=True)
class Part:
    """The rows of one partition, and the partition's values by the ids of the partition fields."""

    values: IdMap[Value]
    rows: pa.Table


def split_by_partition(rows: pa.Table, header: ManifestHeader, schema: Schema) -> Iterator[Part]:
    """The rows by partition; in one part if the table has no partition fields. Raises for too many partitions."""
    fields = header.spec.fields
    if rows.num_rows == 0:
        return
    if not fields:
        yield Part(IdMap(), rows)
        return
    column_types = source_types(schema)
    indexed = [_index_values(rows, field, schema, column_types) for field in fields]
    names = [str(i) for i in range(len(fields))]
    keys = pa.table([indexes for indexes, _ in indexed], names=names)
    keys = keys.append_column("row", pa.array(range(rows.num_rows), pa.int64()))
    grouped = keys.group_by(names, use_threads=False).aggregate([("row", "list")])
    if grouped.num_rows > PARTS_MAX:
        expected = f"at most {PARTS_MAX}"
        raise Code.ROWS_INVALID(reason="partitions_too_many", expected=expected, got=str(grouped.num_rows))
    for group in range(grouped.num_rows):
        values = IdMap(
            (field.field_id, distinct[grouped.column(name)[group].as_py()])
            for name, field, (_, distinct) in zip(names, fields, indexed, strict=True)
        )
        yield Part(values, rows.take(grouped.column("row_list")[group].values))


def _index_values(
    rows: pa.Table, field: PartitionField, schema: Schema, column_types: dict[int, Type]
) -> tuple[pa.Array[Any], list[Value]]:
    """Two results: for each row an index into the list of distinct partition values, and this list."""
    source_id = field.source_ids[0]
    if len(field.source_ids) != 1 or source_id not in column_types:
        message = f"partition field {field.name[:80]!a} has no source among the columns"
        raise Code.ROWS_INVALID(message, reason="partition_source_unknown", got=str(field.source_ids))
    encoded = _read_column(rows, source_id, schema).dictionary_encode(null_encoding="encode")
    distinct: list[Value] = []
    indexes: list[int] = []
    index_by_key: dict[object, int] = {}
    for value in _to_values(encoded.dictionary, column_types[source_id]):
        transformed = apply_transform(field.transform, column_types[source_id], value)
        key = value_key(transformed)
        if key not in index_by_key:
            index_by_key[key] = len(distinct)
            distinct.append(transformed)
        indexes.append(index_by_key[key])
    return pc.take(pa.array(indexes, pa.int64()), encoded.indices), distinct


def _read_column(rows: pa.Table, source_id: int, schema: Schema) -> Any:
    """The values of the field with this id, which may lie in structs."""
    path = _find_path(schema.fields, source_id)
    column: Any = rows.column(path[0])
    found = (pc.struct_field(column, path[1:]) if len(path) > 1 else column).combine_chunks()
    # Arrow's functions do not support its UUID type.
    return found.storage if isinstance(found, pa.ExtensionArray) else found


def _find_path(fields: tuple[Field, ...], field_id: int) -> list[str]:
    for field in fields:
        if field.field_id == field_id:
            return [field.name]
        if isinstance(field.type, StructType) and (inner := _find_path(field.type.fields, field_id)):
            return [field.name, *inner]
    return []


def _to_values(column: Any, type_: Type) -> list[Value]:
    """The values in Iceberg's form: days, micro- or nanoseconds, `Decimal`, `UUID`."""
    types = pa.types
    if type_ == PrimitiveType(Kind.UUID):
        return [None if each is None else UUID(bytes=each) for each in column.to_pylist()]
    if types.is_date32(column.type):
        column = column.cast(pa.int32())
    elif types.is_timestamp(column.type) or types.is_time(column.type):
        column = column.cast(pa.int64())
    found: list[Value] = column.to_pylist()
    return found
