"""Reads conformance vectors and builds their Arrow arrays bit by bit, as vectors/README.md says."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.types as pt

from pvdm.digest import Mode, Plan
from pvdm.model.projection import Projection, ProjectionName, content, identity
from pvdm.model.schema import (
    DecimalType,
    FixedType,
    GeoType,
    Kind,
    ListType,
    MapType,
    PrimitiveType,
    Schema,
    StructType,
    Type,
    type_from_json,
)
from tests.vectors.arrow_text import Layout, arrow_type

# Arrays are as generic as their type texts; no static type fits before the text is read.
Array: TypeAlias = Any

VECTORS: Final = Path(__file__).parents[2] / "vectors"
COLUMN: Final = "v"
_DEFAULTS: Final[dict[Kind, Layout]] = {
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
    Kind.STRING: pa.string(),
    Kind.UUID: pa.binary(16),
    Kind.BINARY: pa.binary(),
    Kind.UNKNOWN: pa.null(),
    Kind.VARIANT: pa.struct([pa.field("metadata", pa.binary()), pa.field("value", pa.binary())]),
}
_MICROSECONDS: Final = {"s": 1_000_000, "ms": 1_000}
_MILLISECONDS_OF_A_DAY: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class Vector:
    """One entry of a vector file."""

    entry: dict[str, Any] = field(repr=False)

    @property
    def name(self) -> str:
        return str(self.entry["name"])

    def plan(self) -> Plan:
        """The judged plan of the vector; a refused one raises here or later."""
        schema = Schema.from_json(self._schema_json())
        projection = projection_of(schema, self.entry.get("projection", {"content": None}))
        return Plan(schema, (projection,), Mode(self.entry["mode"]))

    def _schema_json(self) -> object:
        if "schema" in self.entry:
            return self.entry["schema"]
        slot = {"name": COLUMN, "required": self.entry["required"], "type": self.entry["type"]}
        return {"fields": [slot], "type": "struct"}

    @property
    def projection(self) -> ProjectionName:
        return ProjectionName.IDENTITY if "identity" in self.entry.get("projection", {}) else ProjectionName.CONTENT

    @property
    def has_rows(self) -> bool:
        return "value" in self.entry or "columns" in self.entry

    def batch(self) -> pa.RecordBatch:
        """The source's rows."""
        if "columns" in self.entry:
            names = [column["name"] for column in self.entry["columns"]]
            return batch_of(names, [_column(column) for column in self.entry["columns"]])
        source = type_from_json(self.entry.get("source_type", self.entry["type"]))
        layout = arrow_type(self.entry["arrow"]) if "arrow" in self.entry else default_layout(source)
        return batch_of([COLUMN], [build(layout, [_in_arrow_units(self.entry["value"], layout)])])


def load(file: str, part: str = "vectors") -> list[Vector]:
    """Every entry of one list of a vector file."""
    return [Vector(entry) for entry in json.loads((VECTORS / file).read_text("utf-8"))[part]]


def projection_of(schema: Schema, given: dict[str, Any]) -> Projection:
    """The projection in its notation."""
    if "identity" in given:
        return identity(schema, given["identity"])
    return content(schema, columns=given["content"], exclude=given.get("exclude"))


def batch_of(names: Sequence[str], arrays: Sequence[Array]) -> pa.RecordBatch:
    """A batch of these columns; names may repeat."""
    fields = [pa.field(name, array.type) for name, array in zip(names, arrays, strict=True)]
    return pa.RecordBatch.from_arrays(list(arrays), schema=pa.schema(fields))


def _column(column: dict[str, Any]) -> Array:
    layout = arrow_type(column["arrow"])
    if "indices" in column:
        indices = build(layout.index_type, column["indices"])
        return pa.DictionaryArray.from_arrays(indices, build(layout.value_type, column["dictionary"]), safe=False)
    if "offsets" in column:
        offsets = pa.py_buffer(b"".join(_integer(4)(offset) for offset in column["offsets"]))
        length = len(column["offsets"]) - 1
        if isinstance(column["child"], str):
            return pa.Array.from_buffers(layout, length, [None, offsets, pa.py_buffer(bytes.fromhex(column["child"]))])
        child = build(layout.value_type, column["child"])
        return pa.Array.from_buffers(layout, length, [None, offsets], children=[child])
    if "views" in column:
        views = pa.py_buffer(bytes.fromhex("".join(column["views"])))
        data = [pa.py_buffer(bytes.fromhex(buffer)) for buffer in column["buffers"]]
        return pa.Array.from_buffers(layout, len(column["views"]), [None, views, *data])
    return build(layout, column["values"])


def default_layout(kind: Type) -> Layout:
    """The Arrow type that a vector without a layout hint is built in."""
    match kind:
        case PrimitiveType(name):
            return _DEFAULTS[name]
        case DecimalType(precision, scale):
            return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
        case FixedType(length):
            return pa.binary(length)
        case GeoType():
            return pa.binary()
        case StructType(fields):
            return pa.struct([pa.field(slot.name, default_layout(slot.type)) for slot in fields])
        case ListType(element):
            return pa.list_(default_layout(element.type))
        case MapType(key, value):
            return pa.map_(default_layout(key.type), default_layout(value.type))


def _in_arrow_units(value: Any, layout: Layout) -> Any:
    """A value of the logical unit in the unit of the hinted layout; it must divide."""
    if value is None:
        return None
    unit = _MILLISECONDS_OF_A_DAY if pt.is_date64(layout) else 1
    divisor = _MICROSECONDS.get(layout.unit, 1) if pt.is_time32(layout) or pt.is_timestamp(layout) else 1
    if unit == divisor == 1:
        return value
    count, rest = divmod(int(value) * unit, divisor)
    assert rest == 0, f"{value} has no form in {layout}"
    return str(count)


# Building arrays. A null that lies over a value is {"masked": value}.


def _masked(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"masked"}


def _is_null(value: Any) -> bool:
    return value is None or _masked(value)


def _under(value: Any) -> Any:
    return value["masked"] if _masked(value) else value


def _validity(values: Sequence[Any]) -> pa.Buffer:
    bits = bytearray((len(values) + 7) // 8)
    for position, value in enumerate(values):
        if not _is_null(value):
            bits[position // 8] |= 1 << position % 8
    return pa.py_buffer(bytes(bits))


def build(layout: Layout, values: Sequence[Any]) -> Array:
    """An array of that exact Arrow type from values in the vectors' notation, without any conversion of their bits."""
    for matches, maker in _MAKERS:
        if matches(layout):
            return maker(layout, values)
    if not values:
        return pa.array([], layout)
    raise AssertionError(f"no values can be built in {layout}")


def _integer(width: int, *, signed: bool = True) -> Callable[[Any], bytes]:
    return lambda value: int(value).to_bytes(width, "little", signed=signed)


def _packer(layout: Layout) -> Callable[[Any], bytes]:
    width = layout.byte_width
    if pt.is_decimal(layout):
        return lambda value: _unscaled(layout, value).to_bytes(width, "little", signed=True)
    if pt.is_floating(layout):
        return lambda value: _exactly(width, bytes.fromhex(value))[::-1]
    if pt.is_fixed_size_binary(layout):
        return lambda value: _exactly(width, bytes.fromhex(value))
    return _integer(width, signed=not pt.is_unsigned_integer(layout))


def _unscaled(layout: Layout, value: dict[str, Any]) -> int:
    assert value["scale"] == layout.scale, f"scale {value['scale']} in {layout}"
    return int(value["unscaled"])


def _exactly(width: int, raw: bytes) -> bytes:
    assert len(raw) == width, f"{raw.hex()} has not {width} bytes"
    return raw


def _is_packed(layout: Layout) -> bool:
    numbers = pt.is_integer(layout) or pt.is_floating(layout) or pt.is_decimal(layout)
    return numbers or (pt.is_temporal(layout) and not pt.is_interval(layout)) or pt.is_fixed_size_binary(layout)


def _packed(layout: Layout, values: Sequence[Any]) -> Array:
    # A uint64 is decimal(20,0) to the specification, and written as one in typed vectors.
    pack, empty = _packer(layout), bytes(layout.byte_width)
    slots = (_under(value) for value in values)
    slots = (slot["unscaled"] if isinstance(slot, dict) and pt.is_integer(layout) else slot for slot in slots)
    data = b"".join(empty if slot is None else pack(slot) for slot in slots)
    return pa.Array.from_buffers(layout, len(values), [_validity(values), pa.py_buffer(data)])


def _raw(layout: Layout, value: Any) -> bytes:
    match value:
        case None:
            return b""
        case {"utf8": str(text)}:
            return bytes.fromhex(text)
        case {"repeat": str(byte), "times": int(times)}:
            return bytes.fromhex(byte) * times
        case str(text) if pt.is_string(layout) or pt.is_large_string(layout) or pt.is_string_view(layout):
            return text.encode()
        case _:
            return bytes.fromhex(value)


def _spans(slots: Sequence[Any], width: int) -> tuple[pa.Buffer, pa.Buffer]:
    """Offsets and sizes of slots that lie one after another."""
    ends = [0]
    for slot in slots:
        ends.append(ends[-1] + len(slot))
    code = "i" if width == 4 else "q"
    sizes = struct.pack(f"<{len(slots)}{code}", *(len(slot) for slot in slots))
    return pa.py_buffer(struct.pack(f"<{len(ends)}{code}", *ends)), pa.py_buffer(sizes)


def _bytes_array(layout: Layout, values: Sequence[Any]) -> Array:
    slots = [_raw(layout, _under(value)) for value in values]
    offsets, _ = _spans(slots, 8 if pt.is_large_string(layout) or pt.is_large_binary(layout) else 4)
    return pa.Array.from_buffers(layout, len(values), [_validity(values), offsets, pa.py_buffer(b"".join(slots))])


def _views(layout: Layout, values: Sequence[Any]) -> Array:
    slots = [None if _is_null(value) else _raw(layout, value) for value in values]
    return pa.array(slots, pa.binary_view()).cast(layout)


def _lists(layout: Layout, values: Sequence[Any]) -> Array:
    slots = [_under(value) or [] for value in values]
    child = build(layout.value_type, [item for slot in slots for item in slot])
    wide = pt.is_large_list(layout) or pt.is_large_list_view(layout)
    offsets, sizes = _spans(slots, 8 if wide else 4)
    buffers: list[pa.Buffer | None] = [_validity(values), offsets]
    if pt.is_list_view(layout) or pt.is_large_list_view(layout):
        buffers.append(sizes)
    return pa.Array.from_buffers(layout, len(values), buffers, children=[child])


def _fixed_lists(layout: Layout, values: Sequence[Any]) -> Array:
    slots = [_under(value) or [None] * layout.list_size for value in values]
    child = build(layout.value_type, [item for slot in slots for item in slot])
    return pa.Array.from_buffers(layout, len(values), [_validity(values)], children=[child])


def _structs(layout: Layout, values: Sequence[Any]) -> Array:
    slots = [_under(value) or {} for value in values]
    for slot in slots:
        assert slot.keys() <= {part.name for part in layout}, f"{slot} has a field that {layout} has not"
    children = [build(part.type, [slot.get(part.name) for slot in slots]) for part in layout]
    return pa.Array.from_buffers(layout, len(values), [_validity(values)], children=children)


def _maps(layout: Layout, values: Sequence[Any]) -> Array:
    slots = [_under(value) or [] for value in values]
    pairs = [pair for slot in slots for pair in slot]
    keys = build(layout.key_type, [key for key, _ in pairs])
    items = build(layout.item_type, [item for _, item in pairs])
    entries_type = pa.struct([layout.key_field, layout.item_field])
    entries = pa.Array.from_buffers(entries_type, len(pairs), [None], children=[keys, items])
    offsets, _ = _spans(slots, 4)
    return pa.Array.from_buffers(layout, len(values), [_validity(values), offsets], children=[entries])


def _dictionaries(layout: Layout, values: Sequence[Any]) -> Array:
    distinct: list[Any] = []
    for value in values:
        if value is not None and value not in distinct:
            distinct.append(value)
    indices = build(layout.index_type, [None if value is None else str(distinct.index(value)) for value in values])
    return pa.DictionaryArray.from_arrays(indices, build(layout.value_type, distinct))


def _runs(layout: Layout, values: Sequence[Any]) -> Array:
    ends: list[str] = []
    held: list[Any] = []
    for position, value in enumerate(values):
        if position == 0 or value != values[position - 1]:
            ends.append("")
            held.append(value)
        ends[-1] = str(position + 1)
    return pa.RunEndEncodedArray.from_arrays(build(layout.run_end_type, ends), build(layout.value_type, held))


def _extensions(layout: Layout, values: Sequence[Any]) -> Array:
    return pa.ExtensionArray.from_storage(layout, build(layout.storage_type, values))


def _unions(layout: Layout, values: Sequence[Any]) -> Array:
    assert not values, "unions are refused by their type; they are built without rows"
    children = [pa.array([], part.type) for part in layout]
    names = [part.name for part in layout]
    codes = pa.array([], pa.int8())
    if layout.mode == "dense":
        return pa.UnionArray.from_dense(codes, pa.array([], pa.int32()), children, names)
    return pa.UnionArray.from_sparse(codes, children, names)


def _booleans(layout: Layout, values: Sequence[Any]) -> Array:
    return pa.array([None if _is_null(value) else value for value in values], layout)


def _nulls(layout: Layout, values: Sequence[Any]) -> Array:
    assert all(value is None for value in values)
    return pa.nulls(len(values))


_Rule: TypeAlias = "tuple[Callable[[Layout], bool], Callable[[Any, Sequence[Any]], Array]]"
_MAKERS: Final[tuple[_Rule, ...]] = (
    (lambda layout: isinstance(layout, pa.BaseExtensionType), _extensions),
    (pt.is_null, _nulls),
    (pt.is_boolean, _booleans),
    (_is_packed, _packed),
    (lambda layout: pt.is_string_view(layout) or pt.is_binary_view(layout), _views),
    (lambda layout: pt.is_string(layout) or pt.is_large_string(layout), _bytes_array),
    (lambda layout: pt.is_binary(layout) or pt.is_large_binary(layout), _bytes_array),
    (pt.is_fixed_size_list, _fixed_lists),
    (lambda layout: pt.is_list(layout) or pt.is_large_list(layout), _lists),
    (lambda layout: pt.is_list_view(layout) or pt.is_large_list_view(layout), _lists),
    (pt.is_struct, _structs),
    (pt.is_map, _maps),
    (pt.is_dictionary, _dictionaries),
    (pt.is_run_end_encoded, _runs),
    (pt.is_union, _unions),
)
