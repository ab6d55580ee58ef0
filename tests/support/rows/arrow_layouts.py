"""Builds Arrow batches of given rows, in every layout of spec/canonical.md section 7.1.

Bytes that belong to no value (under nulls, outside a slice, between values) are random: a reader must not use them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableSequence, Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Any, ClassVar, Final, TypeAlias

import pyarrow as pa

from pvdm.digest.plan import Mode
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
)
from tests.support.oracles.canonical_values import MapValue, StructValue, Value, VariantValue
from tests.support.rows.arrow_leaves import Raw, leaf_layouts
from tests.support.rows.variant_binary import write_variant


class Hidden(Enum):
    """A cell that belongs to no row: it is outside the slice, or the value around it is null."""

    HIDDEN = "hidden"


HIDDEN: Final = Hidden.HIDDEN
Cell: TypeAlias = "Value | Hidden"
Slot: TypeAlias = Field | Inner
AnyArray: TypeAlias = "pa.Array[Any]"
AnyField: TypeAlias = "pa.Field[Any]"

# Types of a dictionary's indices, with their size in bytes.
_INDEX_TYPES: Final[tuple[tuple[Any, int], ...]] = (
    (pa.int8(), 1),
    (pa.int16(), 2),
    (pa.int32(), 4),
    (pa.int64(), 8),
    (pa.uint8(), 1),
    (pa.uint16(), 2),
    (pa.uint32(), 4),
    (pa.uint64(), 8),
)


class ArrowVariant(pa.ExtensionType):
    """The extension type that Parquet readers give to the struct (metadata, value) of a variant."""

    name: ClassVar[str] = "arrow.parquet.variant"

    def __init__(self, storage: pa.DataType) -> None:
        super().__init__(storage, self.name)

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> ArrowVariant:
        return cls(storage_type)


class ParquetVariant(ArrowVariant):
    """The same type under its older name. It needs its own class, because Arrow recreates types from their class."""

    name = "parquet.variant"


def build_batch(schema: Schema, mode: Mode, rows: Sequence[Mapping[str, Value]], seed: int | None) -> pa.RecordBatch:
    """A record batch of these rows. The seed decides layouts and the order of columns; None gives the plainest ones."""
    rnd = _Plainest() if seed is None else Random(seed)
    builder = _Builder(rnd, mode)
    fields = list(schema.fields)
    rnd.shuffle(fields)
    arrays = [builder.column(field, [row[field.name] for row in rows]) for field in fields]
    names = [builder.field(field.name, array) for field, array in zip(fields, arrays, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(names))


class _Plainest(Random):
    """Not random: gives the first choice and the smallest number, and does not shuffle."""

    def random(self) -> float:
        return 0.0

    def getrandbits(self, k: int, /) -> int:
        return 0 * k

    def shuffle(self, x: MutableSequence[Any]) -> None:
        pass


def buffer(data: bytes) -> pa.Buffer:
    """A buffer with these bytes, aligned as Arrow recommends."""
    aligned = pa.allocate_buffer(len(data))
    memoryview(aligned).cast("B")[:] = data
    return aligned


def bitmap(bits: Sequence[bool]) -> pa.Buffer:
    """A buffer of bits, the least significant first in each byte."""
    packed = bytearray((len(bits) + 7) // 8)
    for index, bit in enumerate(bits):
        packed[index // 8] |= bit << index % 8
    return buffer(bytes(packed))


@dataclass(frozen=True, slots=True)
class _Builder:
    """Builds arrays with layouts that `rnd` chooses. `never_null` arrays (map keys) have no null, hidden or not."""

    rnd: Random
    mode: Mode

    def chance(self, percent: int) -> bool:
        """True with this probability; False for `_Plainest`."""
        return self.rnd.randrange(100) >= 100 - percent

    def garbage(self, size: int) -> bytes:
        return self.rnd.randbytes(size)

    def field(self, name: str, array: AnyArray) -> AnyField:
        # null_count does not count the nulls in the values of an encoded array, so its field is always nullable.
        plain = not pa.types.is_run_end_encoded(array.type) and not pa.types.is_dictionary(array.type)
        nullable = not plain or array.null_count > 0 or self.chance(70) or pa.types.is_null(array.type)
        return pa.field(name, array.type, nullable=nullable)

    def column(self, slot: Slot, cells: Sequence[Cell], *, never_null: bool = False, wrap: bool = True) -> AnyArray:
        """An array of these cells, sometimes a slice of a longer one. `wrap` allows dictionary and run-end encoding."""
        lead, trail = (self.rnd.randrange(1, 4), self.rnd.randrange(3)) if self.chance(30) else (0, 0)
        padded: list[Cell] = [HIDDEN] * lead + list(cells) + [HIDDEN] * trail
        array = self._unsliced(slot, padded, never_null, wrap)
        return array.slice(lead, len(cells)) if lead or trail else array

    def _unsliced(self, slot: Slot, cells: Sequence[Cell], never_null: bool, wrap: bool) -> AnyArray:
        empty = all(cell is None or cell is HIDDEN for cell in cells)
        if wrap and self.chance(12):
            return self._dictionary(slot, cells, never_null)
        if wrap and self.chance(12):
            return self._run_end_encoded(slot, cells, never_null)
        if empty and not slot.required and not never_null and self.chance(20):
            return pa.nulls(len(cells))
        match slot.type:
            case StructType(fields):
                return self._struct(fields, cells, never_null)
            case ListType(element):
                return self._list(element, cells, never_null)
            case MapType(key, value):
                return self._map(key, value, cells, never_null)
            case PrimitiveType(Kind.VARIANT):
                return self._variant(cells, never_null)
            case PrimitiveType(Kind.UNKNOWN):
                return pa.nulls(len(cells))
            case PrimitiveType() | DecimalType() | FixedType() | GeoType():
                return self._leaf(slot.type, cells, never_null)

    def _bits(self, cells: Sequence[Cell], never_null: bool) -> list[bool]:
        """Which cells are not null. Hidden ones are null or not at random."""
        return [cell is not None and (cell is not HIDDEN or never_null or self.chance(50)) for cell in cells]

    def _validity(self, cells: Sequence[Cell], never_null: bool) -> pa.Buffer | None:
        bits = self._bits(cells, never_null)
        if all(bits) and (never_null or self.chance(60)):
            return None
        return bitmap(bits + [self.chance(50) for _ in range(-len(bits) % 8)])

    # Leaves.

    def _leaf(
        self, kind: PrimitiveType | DecimalType | FixedType | GeoType, cells: Sequence[Cell], never_null: bool
    ) -> AnyArray:
        real = [cell for cell in cells if cell is not None and cell is not HIDDEN]
        layout = self.rnd.choice(leaf_layouts(kind, self.mode, real, self.rnd))
        return self._physical(layout.type, cells, layout.raw, never_null)

    def _physical(self, arrow: pa.DataType, cells: Sequence[Cell], raw: Raw, never_null: bool) -> AnyArray:
        if isinstance(arrow, pa.BaseExtensionType):
            return pa.ExtensionArray.from_storage(arrow, self._physical(arrow.storage_type, cells, raw, never_null))
        parts = [None if cell is None or cell is HIDDEN else raw(cell) for cell in cells]
        validity = self._validity(cells, never_null)
        if pa.types.is_boolean(arrow):
            values = bitmap([self.chance(50) if part is None else part == b"\x01" for part in parts])
            return pa.Array.from_buffers(arrow, len(cells), [validity, values])
        if arrow in (pa.string_view(), pa.binary_view()):
            return pa.Array.from_buffers(arrow, len(cells), [validity, *self._views(parts)])
        if arrow in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary()):
            size = 8 if arrow in (pa.large_string(), pa.large_binary()) else 4
            return pa.Array.from_buffers(arrow, len(cells), [validity, *self._ranges(parts, size)])
        width = arrow.bit_width // 8
        joined = b"".join(self.garbage(width) if part is None else part for part in parts)
        return pa.Array.from_buffers(arrow, len(cells), [validity, buffer(joined)])

    def _hidden_bytes(self) -> bytes:
        """Random bytes for a place that belongs to no value."""
        return self.garbage(self.rnd.choice((0, 0, 1, 3, 14)))

    def _ranges(self, parts: Sequence[bytes | None], size: int) -> list[pa.Buffer]:
        """The buffers of strings or binaries: offsets of `size` bytes, and the data."""
        data = self._hidden_bytes()
        offsets = [len(data)]
        for part in parts:
            data += self._hidden_bytes() if part is None else part
            offsets.append(len(data))
        data += self._hidden_bytes()
        return [buffer(b"".join(offset.to_bytes(size, "little") for offset in offsets)), buffer(data)]

    def _views(self, parts: Sequence[bytes | None]) -> list[pa.Buffer]:
        """The buffers of string or binary views: the views, and the data of parts that are longer than 12 bytes."""
        pools = [self._hidden_bytes() for _ in range(self.rnd.randrange(1, 4))]
        views = b""
        for part in parts:
            data = self._hidden_bytes() if part is None else part
            views += len(data).to_bytes(4, "little")
            if len(data) <= 12:
                views += data.ljust(12, b"\0")
                continue
            pool = self.rnd.randrange(len(pools))
            views += data[:4] + pool.to_bytes(4, "little") + len(pools[pool]).to_bytes(4, "little")
            pools[pool] += data + self._hidden_bytes()
        return [buffer(views), *map(buffer, pools)]

    # Encodings over any type.

    def _dictionary(self, slot: Slot, cells: Sequence[Cell], never_null: bool) -> AnyArray:
        pool: list[Cell] = [HIDDEN] if never_null else []  # the dictionary's values
        indices: list[int | None] = []
        for cell in cells:
            if cell is HIDDEN:
                indices.append(self.rnd.randrange(len(pool)) if pool and (never_null or self.chance(50)) else None)
            elif cell is None and self.chance(50):
                indices.append(None)
            elif cell in pool and self.chance(80):
                indices.append(pool.index(cell))
            else:
                at = self.rnd.randrange(len(pool) + 1)
                pool.insert(at, cell)
                indices = [index if index is None or index < at else index + 1 for index in indices] + [at]
        if not never_null:
            pool += [cell for cell in (*cells[:1], None) if cell is not HIDDEN and self.chance(20)]
        arrow, size = self.rnd.choice(_INDEX_TYPES)
        joined = b"".join(self.garbage(size) if index is None else index.to_bytes(size, "little") for index in indices)
        is_set: list[Cell] = [None if index is None else True for index in indices]
        keys = pa.Array.from_buffers(arrow, len(cells), [self._validity(is_set, never_null), buffer(joined)])
        values = self.column(slot, pool, never_null=never_null, wrap=False)
        return pa.DictionaryArray.from_arrays(keys, _storage(values), safe=False)

    def _run_end_encoded(self, slot: Slot, cells: Sequence[Cell], never_null: bool) -> AnyArray:
        runs: list[Cell] = []
        ends: list[int] = []
        for index, cell in enumerate(cells):
            if runs and (cell is HIDDEN or cell == runs[-1]) and self.chance(80):
                ends[-1] = index + 1
            else:
                runs.append(cell)
                ends.append(index + 1)
        run_ends: Any = pa.array(ends, self.rnd.choice((pa.int16(), pa.int32(), pa.int64())))
        values = self.column(slot, runs, never_null=never_null, wrap=False)
        # from_arrays would read all values, also the hidden ones, which are random bytes.
        values = _storage(values)
        arrow = pa.run_end_encoded(run_ends.type, values.type)
        return pa.Array.from_buffers(arrow, len(cells), [None], children=[run_ends, values])

    # Nested types.

    def _struct(self, fields: Sequence[Field], cells: Sequence[Cell], never_null: bool) -> AnyArray:
        shuffled = list(fields)
        self.rnd.shuffle(shuffled)
        by_name = [dict(cell.fields) if isinstance(cell, StructValue) else {} for cell in cells]
        children = [self.column(field, [values.get(field.name, HIDDEN) for values in by_name]) for field in shuffled]
        arrow = pa.struct([self.field(field.name, child) for field, child in zip(shuffled, children, strict=True)])
        return pa.Array.from_buffers(arrow, len(cells), [self._validity(cells, never_null)], children=children)

    def _lists(self, cells: Sequence[Cell], hidden_size: int | None = None) -> list[tuple[Cell, ...]]:
        """The elements of each cell. A null or hidden cell gets some hidden elements."""

        def hidden_elements() -> tuple[Cell, ...]:
            return (HIDDEN,) * (self.rnd.choice((0, 0, 1, 2)) if hidden_size is None else hidden_size)

        return [cell if isinstance(cell, tuple) else hidden_elements() for cell in cells]

    def _list(self, element: Inner, cells: Sequence[Cell], never_null: bool) -> AnyArray:
        layouts: list[Callable[[Inner, Sequence[Cell], bool], AnyArray]] = [self._offset_list, self._view_list]
        if len({len(cell) for cell in cells if isinstance(cell, tuple)}) <= 1:
            layouts.append(self._fixed_size_list)
        return self.rnd.choice(layouts)(element, cells, never_null)

    def _offset_list(self, element: Inner, cells: Sequence[Cell], never_null: bool) -> AnyArray:
        offsets, flat = self._flatten(self._lists(cells))
        child = self.column(element, flat)
        field = self.field(self.rnd.choice(("element", "item")), child)
        arrow, size = self.rnd.choice(((pa.list_(field), 4), (pa.large_list(field), 8)))
        data = buffer(b"".join(offset.to_bytes(size, "little") for offset in offsets))
        return pa.Array.from_buffers(arrow, len(cells), [self._validity(cells, never_null), data], children=[child])

    def _flatten(self, lists: Sequence[tuple[Cell, ...]]) -> tuple[list[int], list[Cell]]:
        """The offsets of the lists, and all elements, sometimes between hidden ones."""
        flat: list[Cell] = [HIDDEN] * self.rnd.choice((0, 0, 2))
        offsets = [len(flat)]
        for cells in lists:
            flat += cells
            offsets.append(len(flat))
        return offsets, flat + [HIDDEN] * self.rnd.choice((0, 0, 2))

    def _view_list(self, element: Inner, cells: Sequence[Cell], never_null: bool) -> AnyArray:
        lists = self._lists(cells)
        order = list(range(len(lists)))
        self.rnd.shuffle(order)  # the elements of views may be in any order, with gaps, and shared
        flat: list[Cell] = []
        starts = [0] * len(lists)
        for index in order:
            same = next((other for other in range(index) if lists[other] is lists[index]), None)
            if self.chance(20):
                flat.append(HIDDEN)
            starts[index] = len(flat)
            flat += lists[index]
            if same is not None and order.index(same) < order.index(index):
                starts[index] = starts[same]
        child = self.column(element, flat)
        field = self.field("element", child)
        arrow, size = self.rnd.choice(((pa.list_view(field), 4), (pa.large_list_view(field), 8)))
        offsets, sizes = (
            buffer(b"".join(number.to_bytes(size, "little") for number in numbers))
            for numbers in (starts, [len(elements) for elements in lists])
        )
        return pa.Array.from_buffers(
            arrow, len(cells), [self._validity(cells, never_null), offsets, sizes], children=[child]
        )

    def _fixed_size_list(self, element: Inner, cells: Sequence[Cell], never_null: bool) -> AnyArray:
        size = next((len(cell) for cell in cells if isinstance(cell, tuple)), self.rnd.randrange(3))
        flat = [inner for cell in self._lists(cells, size) for inner in cell]
        child = self.column(element, flat)
        arrow = pa.list_(self.field("element", child), size)
        return pa.Array.from_buffers(arrow, len(cells), [self._validity(cells, never_null)], children=[child])

    def _map(self, key: Inner, value: Inner, cells: Sequence[Cell], never_null: bool) -> AnyArray:
        lists: list[tuple[tuple[Cell, Cell], ...]] = [
            cell.entries if isinstance(cell, MapValue) else ((HIDDEN, HIDDEN),) * self.rnd.choice((0, 0, 1))
            for cell in cells
        ]
        lead: list[tuple[Cell, Cell]] = [(HIDDEN, HIDDEN)] * self.rnd.choice((0, 0, 1))
        offsets = [len(lead)]
        flat = list(lead)
        for entries in lists:
            flat += entries
            offsets.append(len(flat))
        keys = self.column(key, [pair[0] for pair in flat], never_null=True)
        values = self.column(value, [pair[1] for pair in flat])
        make: Any = pa.map_  # takes fields as well as types
        arrow = make(pa.field("key", keys.type, nullable=False), self.field("value", values))
        pairs = pa.struct([arrow.key_field, arrow.item_field])
        child = pa.Array.from_buffers(pairs, len(flat), [None], children=[keys, values])
        data = buffer(b"".join(offset.to_bytes(4, "little") for offset in offsets))
        return pa.Array.from_buffers(arrow, len(cells), [self._validity(cells, never_null), data], children=[child])

    def _variant(self, cells: Sequence[Cell], never_null: bool) -> AnyArray:
        written = [write_variant(cell, self.rnd) if isinstance(cell, VariantValue) else None for cell in cells]
        children = {}
        for position, name in enumerate(("metadata", "value")):
            parts: list[Cell] = [HIDDEN if pair is None else pair[position] for pair in written]
            arrow = self.rnd.choice((pa.binary(), pa.large_binary(), pa.binary_view()))
            children[name] = self._physical(arrow, parts, _as_bytes, never_null=False)
        names = ["metadata", "value"]
        self.rnd.shuffle(names)
        storage = pa.struct([self.field(name, children[name]) for name in names])
        array = pa.Array.from_buffers(
            storage, len(cells), [self._validity(cells, never_null)], children=[children[name] for name in names]
        )
        extension = self.rnd.choice((None, ArrowVariant, ParquetVariant))
        return array if extension is None else pa.ExtensionArray.from_storage(extension(storage), array)


def _as_bytes(value: Value) -> bytes:
    assert isinstance(value, bytes)
    return value


def _storage(array: AnyArray) -> AnyArray:
    """The array without its extension type, which encoded values cannot have (spec/canonical.md section 7.1)."""
    return array.storage if isinstance(array, pa.ExtensionArray) else array
