"""Lays neutral rows out in any Arrow layout of spec/canonical.md section 7.1, with garbage where nobody may look."""

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
    """Marks a slot that no row shows: outside the slice, or under a null that surrounds it."""

    HIDDEN = "hidden"


HIDDEN: Final = Hidden.HIDDEN
Cell: TypeAlias = "Value | Hidden"
Slot: TypeAlias = Field | Inner
AnyArray: TypeAlias = "pa.Array[Any]"
AnyField: TypeAlias = "pa.Field[Any]"

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
    """The extension type that Parquet readers put over the two fields of a variant."""

    name: ClassVar[str] = "arrow.parquet.variant"

    def __init__(self, storage: pa.DataType) -> None:
        super().__init__(storage, self.name)

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> ArrowVariant:
        return cls(storage_type)


class ParquetVariant(ArrowVariant):
    """The same under its older name; a class of its own, because Arrow makes types anew from their class."""

    name = "parquet.variant"


def build_batch(schema: Schema, mode: Mode, rows: Sequence[Mapping[str, Value]], seed: int | None) -> pa.RecordBatch:
    """A record batch of exactly these rows; the seed chooses layouts and column order, none means the plainest."""
    rnd = _Plainest() if seed is None else Random(seed)
    builder = _Builder(rnd, mode)
    fields = list(schema.fields)
    rnd.shuffle(fields)
    arrays = [builder.column(field, [row[field.name] for row in rows]) for field in fields]
    names = [builder.field(field.name, array) for field, array in zip(fields, arrays, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(names))


class _Plainest(Random):
    """No dice: the first choice, the smallest number, the order as it is."""

    def random(self) -> float:
        return 0.0

    def getrandbits(self, k: int, /) -> int:
        return 0 * k

    def shuffle(self, x: MutableSequence[Any]) -> None:
        pass


def buffer(data: bytes) -> pa.Buffer:
    """The bytes in memory that is aligned as Arrow recommends."""
    aligned = pa.allocate_buffer(len(data))
    memoryview(aligned).cast("B")[:] = data
    return aligned


def bitmap(bits: Sequence[bool]) -> pa.Buffer:
    """Bits packed least significant first."""
    packed = bytearray((len(bits) + 7) // 8)
    for index, bit in enumerate(bits):
        packed[index // 8] |= bit << index % 8
    return buffer(bytes(packed))


@dataclass(frozen=True, slots=True)
class _Builder:
    rnd: Random
    mode: Mode

    def chance(self, percent: int) -> bool:
        return self.rnd.randrange(100) >= 100 - percent

    def garbage(self, size: int) -> bytes:
        return self.rnd.randbytes(size)

    def field(self, name: str, array: AnyArray) -> AnyField:
        # Offsets and run ends hide nulls from null_count, so only plain layouts are called non-nullable.
        plain = not pa.types.is_run_end_encoded(array.type) and not pa.types.is_dictionary(array.type)
        nullable = not plain or array.null_count > 0 or self.chance(70) or pa.types.is_null(array.type)
        return pa.field(name, array.type, nullable=nullable)

    def column(self, slot: Slot, cells: Sequence[Cell], *, solid: bool = False, wrap: bool = True) -> AnyArray:
        """An array of these cells; a solid one (a map key) has no null even where nobody looks."""
        lead, trail = (self.rnd.randrange(1, 4), self.rnd.randrange(3)) if self.chance(30) else (0, 0)
        padded: list[Cell] = [HIDDEN] * lead + list(cells) + [HIDDEN] * trail
        array = self._unsliced(slot, padded, solid, wrap)
        return array.slice(lead, len(cells)) if lead or trail else array

    def _unsliced(self, slot: Slot, cells: Sequence[Cell], solid: bool, wrap: bool) -> AnyArray:
        empty = all(cell is None or cell is HIDDEN for cell in cells)
        if wrap and self.chance(12):
            return self._dictionary(slot, cells, solid)
        if wrap and self.chance(12):
            return self._run_end_encoded(slot, cells, solid)
        if empty and not slot.required and not solid and self.chance(20):
            return pa.nulls(len(cells))
        match slot.type:
            case StructType(fields):
                return self._struct(fields, cells, solid)
            case ListType(element):
                return self._list(element, cells, solid)
            case MapType(key, value):
                return self._map(key, value, cells, solid)
            case PrimitiveType(Kind.VARIANT):
                return self._variant(cells, solid)
            case PrimitiveType(Kind.UNKNOWN):
                return pa.nulls(len(cells))
            case PrimitiveType() | DecimalType() | FixedType() | GeoType():
                return self._leaf(slot.type, cells, solid)

    def _bits(self, cells: Sequence[Cell], solid: bool) -> list[bool]:
        return [cell is not None and (cell is not HIDDEN or solid or self.chance(50)) for cell in cells]

    def _validity(self, cells: Sequence[Cell], solid: bool) -> pa.Buffer | None:
        bits = self._bits(cells, solid)
        if all(bits) and (solid or self.chance(60)):
            return None
        return bitmap(bits + [self.chance(50) for _ in range(-len(bits) % 8)])

    # Leaves.

    def _leaf(
        self, kind: PrimitiveType | DecimalType | FixedType | GeoType, cells: Sequence[Cell], solid: bool
    ) -> AnyArray:
        real = [cell for cell in cells if cell is not None and cell is not HIDDEN]
        layout = self.rnd.choice(leaf_layouts(kind, self.mode, real, self.rnd))
        return self._physical(layout.type, cells, layout.raw, solid)

    def _physical(self, arrow: pa.DataType, cells: Sequence[Cell], raw: Raw, solid: bool) -> AnyArray:
        if isinstance(arrow, pa.BaseExtensionType):
            return pa.ExtensionArray.from_storage(arrow, self._physical(arrow.storage_type, cells, raw, solid))
        parts = [None if cell is None or cell is HIDDEN else raw(cell) for cell in cells]
        validity = self._validity(cells, solid)
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
        return self.garbage(self.rnd.choice((0, 0, 1, 3, 14)))

    def _ranges(self, parts: Sequence[bytes | None], size: int) -> list[pa.Buffer]:
        data = self._hidden_bytes()
        offsets = [len(data)]
        for part in parts:
            data += self._hidden_bytes() if part is None else part
            offsets.append(len(data))
        data += self._hidden_bytes()
        return [buffer(b"".join(offset.to_bytes(size, "little") for offset in offsets)), buffer(data)]

    def _views(self, parts: Sequence[bytes | None]) -> list[pa.Buffer]:
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

    def _dictionary(self, slot: Slot, cells: Sequence[Cell], solid: bool) -> AnyArray:
        pool: list[Cell] = [HIDDEN] if solid else []
        indices: list[int | None] = []
        for cell in cells:
            if cell is HIDDEN:
                indices.append(self.rnd.randrange(len(pool)) if pool and (solid or self.chance(50)) else None)
            elif cell is None and self.chance(50):
                indices.append(None)
            elif cell in pool and self.chance(80):
                indices.append(pool.index(cell))
            else:
                at = self.rnd.randrange(len(pool) + 1)
                pool.insert(at, cell)
                indices = [index if index is None or index < at else index + 1 for index in indices] + [at]
        if not solid:
            pool += [cell for cell in (*cells[:1], None) if cell is not HIDDEN and self.chance(20)]
        arrow, size = self.rnd.choice(_INDEX_TYPES)
        joined = b"".join(self.garbage(size) if index is None else index.to_bytes(size, "little") for index in indices)
        shown: list[Cell] = [None if index is None else True for index in indices]
        keys = pa.Array.from_buffers(arrow, len(cells), [self._validity(shown, solid), buffer(joined)])
        values = self.column(slot, pool, solid=solid, wrap=False)
        return pa.DictionaryArray.from_arrays(keys, _storage(values), safe=False)

    def _run_end_encoded(self, slot: Slot, cells: Sequence[Cell], solid: bool) -> AnyArray:
        runs: list[Cell] = []
        ends: list[int] = []
        for index, cell in enumerate(cells):
            if runs and (cell is HIDDEN or cell == runs[-1]) and self.chance(80):
                ends[-1] = index + 1
            else:
                runs.append(cell)
                ends.append(index + 1)
        run_ends: Any = pa.array(ends, self.rnd.choice((pa.int16(), pa.int32(), pa.int64())))
        values = self.column(slot, runs, solid=solid, wrap=False)
        # Not from_arrays: it looks at every value, also at those that no row shows.
        values = _storage(values)
        arrow = pa.run_end_encoded(run_ends.type, values.type)
        return pa.Array.from_buffers(arrow, len(cells), [None], children=[run_ends, values])

    # Nested types.

    def _struct(self, fields: Sequence[Field], cells: Sequence[Cell], solid: bool) -> AnyArray:
        shuffled = list(fields)
        self.rnd.shuffle(shuffled)
        by_name = [dict(cell.fields) if isinstance(cell, StructValue) else {} for cell in cells]
        children = [self.column(field, [values.get(field.name, HIDDEN) for values in by_name]) for field in shuffled]
        arrow = pa.struct([self.field(field.name, child) for field, child in zip(shuffled, children, strict=True)])
        return pa.Array.from_buffers(arrow, len(cells), [self._validity(cells, solid)], children=children)

    def _lists(self, cells: Sequence[Cell], hidden_size: int | None = None) -> list[tuple[Cell, ...]]:
        """The elements of each cell, where nobody looks some that are hidden."""
        return [
            cell
            if isinstance(cell, tuple)
            else (HIDDEN,) * (self.rnd.choice((0, 0, 1, 2)) if hidden_size is None else hidden_size)
            for cell in cells
        ]

    def _list(self, element: Inner, cells: Sequence[Cell], solid: bool) -> AnyArray:
        layouts: list[Callable[[Inner, Sequence[Cell], bool], AnyArray]] = [self._offset_list, self._view_list]
        if len({len(cell) for cell in cells if isinstance(cell, tuple)}) <= 1:
            layouts.append(self._fixed_size_list)
        return self.rnd.choice(layouts)(element, cells, solid)

    def _offset_list(self, element: Inner, cells: Sequence[Cell], solid: bool) -> AnyArray:
        offsets, flat = self._flatten(self._lists(cells))
        child = self.column(element, flat)
        field = self.field(self.rnd.choice(("element", "item")), child)
        arrow, size = self.rnd.choice(((pa.list_(field), 4), (pa.large_list(field), 8)))
        data = buffer(b"".join(offset.to_bytes(size, "little") for offset in offsets))
        return pa.Array.from_buffers(arrow, len(cells), [self._validity(cells, solid), data], children=[child])

    def _flatten(self, lists: Sequence[tuple[Cell, ...]]) -> tuple[list[int], list[Cell]]:
        flat: list[Cell] = [HIDDEN] * self.rnd.choice((0, 0, 2))
        offsets = [len(flat)]
        for cells in lists:
            flat += cells
            offsets.append(len(flat))
        return offsets, flat + [HIDDEN] * self.rnd.choice((0, 0, 2))

    def _view_list(self, element: Inner, cells: Sequence[Cell], solid: bool) -> AnyArray:
        lists = self._lists(cells)
        order = list(range(len(lists)))
        self.rnd.shuffle(order)  # views may lie in any order, with gaps, and may share elements
        flat: list[Cell] = []
        starts = [0] * len(lists)
        for index in order:
            twin = next((other for other in range(index) if lists[other] is lists[index]), None)
            if self.chance(20):
                flat.append(HIDDEN)
            starts[index] = len(flat)
            flat += lists[index]
            if twin is not None and order.index(twin) < order.index(index):
                starts[index] = starts[twin]
        child = self.column(element, flat)
        field = self.field("element", child)
        arrow, size = self.rnd.choice(((pa.list_view(field), 4), (pa.large_list_view(field), 8)))
        offsets, sizes = (
            buffer(b"".join(number.to_bytes(size, "little") for number in numbers))
            for numbers in (starts, [len(elements) for elements in lists])
        )
        return pa.Array.from_buffers(
            arrow, len(cells), [self._validity(cells, solid), offsets, sizes], children=[child]
        )

    def _fixed_size_list(self, element: Inner, cells: Sequence[Cell], solid: bool) -> AnyArray:
        size = next((len(cell) for cell in cells if isinstance(cell, tuple)), self.rnd.randrange(3))
        flat = [inner for cell in self._lists(cells, size) for inner in cell]
        child = self.column(element, flat)
        arrow = pa.list_(self.field("element", child), size)
        return pa.Array.from_buffers(arrow, len(cells), [self._validity(cells, solid)], children=[child])

    def _map(self, key: Inner, value: Inner, cells: Sequence[Cell], solid: bool) -> AnyArray:
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
        keys = self.column(key, [pair[0] for pair in flat], solid=True)
        values = self.column(value, [pair[1] for pair in flat])
        make: Any = pa.map_  # takes fields as well as types
        arrow = make(pa.field("key", keys.type, nullable=False), self.field("value", values))
        pairs = pa.struct([arrow.key_field, arrow.item_field])
        child = pa.Array.from_buffers(pairs, len(flat), [None], children=[keys, values])
        data = buffer(b"".join(offset.to_bytes(4, "little") for offset in offsets))
        return pa.Array.from_buffers(arrow, len(cells), [self._validity(cells, solid), data], children=[child])

    def _variant(self, cells: Sequence[Cell], solid: bool) -> AnyArray:
        written = [write_variant(cell, self.rnd) if isinstance(cell, VariantValue) else None for cell in cells]
        children = {}
        for position, name in enumerate(("metadata", "value")):
            parts: list[Cell] = [HIDDEN if pair is None else pair[position] for pair in written]
            arrow = self.rnd.choice((pa.binary(), pa.large_binary(), pa.binary_view()))
            children[name] = self._physical(arrow, parts, _as_bytes, solid=False)
        names = ["metadata", "value"]
        self.rnd.shuffle(names)
        storage = pa.struct([self.field(name, children[name]) for name in names])
        array = pa.Array.from_buffers(
            storage, len(cells), [self._validity(cells, solid)], children=[children[name] for name in names]
        )
        extension = self.rnd.choice((None, ArrowVariant, ParquetVariant))
        return array if extension is None else pa.ExtensionArray.from_storage(extension(storage), array)


def _as_bytes(value: Value) -> bytes:
    assert isinstance(value, bytes)
    return value


def _storage(array: AnyArray) -> AnyArray:
    """An extension type is not hidden in an encoding (spec/canonical.md section 7.1)."""
    return array.storage if isinstance(array, pa.ExtensionArray) else array
