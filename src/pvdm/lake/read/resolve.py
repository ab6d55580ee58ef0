"""Batches of a file brought to a schema: promoted types, initial defaults and partition values where a column lacks."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute

from pvdm.errors import Code, VerificationError
from pvdm.lake.format.schema.single_value import Value
from pvdm.lake.read.arrow_types import arrow_type
from pvdm.model.schema import Field, Inner, ListType, MapType, Schema, StructType, Type

pc: Any = pyarrow.compute  # its stubs know neither every function nor what comes out for an array of any type

Array: TypeAlias = Any
"""An Arrow array of whatever type; its stubs have a class for each."""

_map: Final[Any] = pa.map_
_WIDENED: Final = frozenset({(pa.int32(), pa.int64()), (pa.float32(), pa.float64())})
_Slot = TypeVar("_Slot", Field, Inner)


def every_id(schema: Schema) -> frozenset[int]:
    """The ids of a schema at any depth."""
    return frozenset(slot.field_id for _, slot in schema.walk() if slot.field_id is not None)


class Resolution:
    """How the batches of one file become batches of a schema.

    A column that the file lacks is its identity partition's value, else its initial default, else null. Where a file
    has the column all the same, its values must be the partition's: readers take the one or the other.
    """

    def __init__(self, schema: Schema, defaults: Mapping[int, Value], constants: Mapping[int, Value]) -> None:
        self._schema = schema
        self._constants = constants
        self._filled = {**defaults, **constants}
        self._as_is: pa.Schema | None = None
        self.wanted = Schema(tuple(_relaxed(field, self._filled.keys()) for field in schema.fields))
        """What the file is asked for: a column that can be filled may be missing from it."""

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The same rows in the schema's order and types."""
        given = batch.schema
        if self._as_is is not None and given.equals(self._as_is):
            return batch
        arrays: list[Array] = []
        as_is = given.names == list(self._schema.names)
        for field in self._schema.fields:
            if field.name not in given.names:
                arrays.append(self._lacking(batch.num_rows, field))
                continue
            array = batch.column(field.name)
            brought = self._brought(array, field)
            as_is = as_is and brought is array
            if field.field_id is not None and field.field_id in self._constants:
                _require_constant(brought, self._constants[field.field_id], field)
                as_is = False  # every batch is held to the value
            arrays.append(brought)
        if as_is:
            self._as_is = given  # it is by their types that columns are brought to others
        return pa.RecordBatch.from_arrays(arrays, names=list(self._schema.names)) if arrays else batch

    def _brought(self, array: Array, slot: Field | Inner) -> Array:
        if pa.types.is_null(array.type):
            return repeated(None, slot.type, len(array))  # written, so that no default stands for it
        match slot.type:
            case StructType(fields) if fields and pa.types.is_struct(array.type):
                return self._struct(array, fields)
            case ListType(element) if pa.types.is_list(array.type):
                values = self._brought(array.values, element)
                kind = pa.list_(pa.field("element", values.type))
                return _rebuilt(array, kind, [values])
            case MapType(key, value) if pa.types.is_map(array.type):
                return self._map(array, key, value)
            case _:
                return promoted(array, slot.type)

    def _lacking(self, count: int, field: Field) -> Array:
        value = None if field.field_id is None else self._filled.get(field.field_id)
        return repeated(value, field.type, count)

    def _struct(self, array: Array, fields: tuple[Field, ...]) -> Array:
        given = {each.name for each in array.type}
        children = [
            self._child(array, field) if field.name in given else self._lacking(len(array), field) for field in fields
        ]
        named = [pa.field(field.name, child.type) for field, child in zip(fields, children, strict=True)]
        return pa.StructArray.from_arrays(children, fields=named, mask=pc.is_null(array))

    def _child(self, array: Array, field: Field) -> Array:
        child = self._brought(array.field(field.name), field)
        if field.field_id is not None and field.field_id in self._constants:
            _require_constant(child.filter(pc.is_valid(array)), self._constants[field.field_id], field)
        return child

    def _map(self, array: Array, key: Inner, value: Inner) -> Array:
        keys, values = self._brought(array.keys, key), self._brought(array.items, value)
        named = [pa.field("key", keys.type, nullable=False), pa.field("value", values.type)]
        entries = pa.StructArray.from_arrays([keys, values], fields=named)
        return _rebuilt(array, _map(keys.type, named[1]), [entries])


def promoted(array: Array, kind: Type) -> Array:
    """Values of a type from before a promotion; what is no promotion stays, for the closed list of casts to judge."""
    wanted = arrow_type(kind)
    given = array.type
    widened = (
        (given, wanted) in _WIDENED
        or (
            pa.types.is_decimal(given)
            and pa.types.is_decimal(wanted)
            and given.scale == wanted.scale
            and given.precision < wanted.precision
        )
        or (given == pa.date32() and pa.types.is_timestamp(wanted) and wanted.tz is None)
    )
    if not widened:
        return array
    try:
        return array.cast(wanted)
    except pa.ArrowInvalid:
        raise VerificationError(
            Code.VALUE_OUT_OF_RANGE, "a value has no place in its column's type", expected=str(kind), got=str(given)
        ) from None


def repeated(value: Value, kind: Type, count: int) -> Array:
    """One value, or null, as often as there are rows."""
    wanted: Any = arrow_type(kind)
    if value is None:
        return pa.nulls(count, wanted)
    return pa.repeat(scalar(value, kind), count)


def scalar(value: Value, kind: Type) -> Any:
    """A value as Arrow counts it; a UUID is its bytes."""
    wanted: Any = arrow_type(kind)
    return pa.scalar(getattr(value, "bytes", value), wanted)


def _relaxed(slot: _Slot, filled: Collection[int]) -> _Slot:
    kind: Type = slot.type
    match kind:
        case StructType(fields):
            kind = StructType(tuple(_relaxed(field, filled) for field in fields))
        case ListType(element):
            kind = ListType(_relaxed(element, filled))
        case MapType(key, value):
            kind = MapType(_relaxed(key, ()), _relaxed(value, filled))
        case _:
            pass
    return replace(slot, type=kind, required=slot.required and slot.field_id not in filled)


def _rebuilt(array: Array, kind: pa.DataType, children: list[Array]) -> Array:
    """The same lists or maps over other children; buffers and offset stay as they were."""
    if kind == array.type:
        return array
    return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], offset=array.offset, children=children)


def _require_constant(array: Array, value: Value, field: Field) -> None:
    if not _is_all(array, value, field.type):
        raise Code.SOURCE_PARTITION_LIES(
            f"column {field.name!r} does not hold its partition's value",
            expected=repr(value)[:120],
            got="another value",
        )


def _is_all(array: Array, value: Value, kind: Type) -> bool:
    """Whether each row holds the value, which readers show in its place; NaN is NaN, and negative zero is not zero."""
    if value is None:
        return bool(array.null_count == len(array))
    one = scalar(value, kind)
    try:
        found = pc.equal(array.cast(one.type), one)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    if isinstance(value, float) and math.isnan(value):
        found = pc.is_nan(array)
    elif isinstance(value, float) and value == 0:
        found = pc.and_(found, pc.equal(pc.divide(1.0, array), math.copysign(math.inf, value)))
    return bool(pc.all(pc.fill_null(found, False), min_count=0).as_py())
