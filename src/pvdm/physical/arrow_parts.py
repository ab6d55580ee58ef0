"""Rows split by the partitions of a table: every transform, worked out once for each distinct value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
import pyarrow.compute

from pvdm.errors import InputError
from pvdm.lake.format.manifest.entry import IdMap
from pvdm.lake.format.manifest.manifest import ManifestHeader
from pvdm.lake.format.partition.spec import PartitionField, source_types
from pvdm.lake.format.partition.transform import apply
from pvdm.lake.format.partition.value import value_key
from pvdm.lake.format.schema.single_value import Value
from pvdm.model.schema import Field, Kind, PrimitiveType, Schema, StructType, Type

pc: Any = pyarrow.compute  # its stubs know neither every function nor what comes out for an array of any type

PARTS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Part:
    """The rows of one partition tuple."""

    values: IdMap[Value]
    rows: pa.Table


def parts(rows: pa.Table, header: ManifestHeader, schema: Schema) -> Iterator[Part]:
    """The rows, one part for each partition tuple that they have; without partition fields one for all."""
    fields = header.spec.fields
    if rows.num_rows == 0:
        return
    if not fields:
        yield Part(IdMap(), rows)
        return
    kinds = source_types(schema)
    numbered = [_numbered(rows, field, schema, kinds) for field in fields]
    keys = pa.table([numbers for numbers, _ in numbered], names=[str(at) for at in range(len(fields))])
    keys = keys.append_column("row", pa.array(range(rows.num_rows), pa.int64()))
    grouped = keys.group_by([str(at) for at in range(len(fields))], use_threads=False).aggregate([("row", "list")])
    if grouped.num_rows > PARTS_MAX:
        raise InputError(
            "partitions_too_many",
            "the rows lie in too many partitions for a small job",
            expected=f"at most {PARTS_MAX}",
            got=str(grouped.num_rows),
            hint="stage it with Spark",
        )
    for at in range(grouped.num_rows):
        values = IdMap(
            (field.field_id, transformed[grouped.column(str(place))[at].as_py()])
            for place, (field, (_, transformed)) in enumerate(zip(fields, numbered, strict=True))
        )
        yield Part(values, rows.take(grouped.column("row_list")[at].values))


def _numbered(
    rows: pa.Table, field: PartitionField, schema: Schema, kinds: dict[int, Type]
) -> tuple[pa.Array[Any], list[Value]]:
    """For each row the number of its partition value, and these values, each once."""
    source = field.source_ids[0]
    if len(field.source_ids) != 1 or source not in kinds:
        raise InputError(
            "partition_source_unknown",
            f"partition field {field.name[:80]!a} has no source among the columns",
            expected="a column of the table",
            got=str(field.source_ids),
        )
    column = _column(rows, source, schema)
    encoded = column.dictionary_encode(null_encoding="encode")
    distinct: list[Value] = []
    numbers: list[int] = []
    places: dict[object, int] = {}
    for value in _values(encoded.dictionary, kinds[source]):
        found = apply(field.transform, kinds[source], value)
        key = value_key(found)
        if key not in places:
            places[key] = len(distinct)
            distinct.append(found)
        numbers.append(places[key])
    return pc.take(pa.array(numbers, pa.int64()), encoded.indices), distinct


def _column(rows: pa.Table, source: int, schema: Schema) -> Any:
    path = _path(schema.fields, source)
    column: Any = rows.column(path[0])
    found = (pc.struct_field(column, path[1:]) if len(path) > 1 else column).combine_chunks()
    # Arrow's functions do not know its own type of UUIDs.
    return found.storage if isinstance(found, pa.ExtensionArray) else found


def _path(fields: tuple[Field, ...], wanted: int) -> list[str]:
    for field in fields:
        if field.field_id == wanted:
            return [field.name]
        if isinstance(field.type, StructType) and (inner := _path(field.type.fields, wanted)):
            return [field.name, *inner]
    return []


def _values(column: Any, kind: Type) -> list[Value]:
    """As Iceberg counts them: days, microseconds, `Decimal`, `UUID`."""
    types = pa.types
    if kind == PrimitiveType(Kind.UUID):
        return [None if each is None else UUID(bytes=each) for each in column.to_pylist()]
    if types.is_date32(column.type):
        column = column.cast(pa.int32())
    elif types.is_timestamp(column.type) or types.is_time(column.type):
        column = column.cast(pa.int64())
    found: list[Value] = column.to_pylist()
    return found
