"""Hypothesis strategies for canonical rows: schemas, values (`oracles/canonical_values.py`) and Arrow batches."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Final, TypeAlias

import pyarrow as pa
from hypothesis import strategies as st

from pvdm.digest.plan import Mode, Plan
from pvdm.digest.unicode14 import UNASSIGNED
from pvdm.model.projection import content
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
from tests.support.oracles.canonical_values import (
    DecimalValue,
    FloatBits,
    MapValue,
    StructValue,
    Value,
    VariantKind,
    VariantValue,
)
from tests.support.rows.arrow_layouts import build_batch
from tests.support.rows.variant_binary import items, members

DEPTH_MAX: Final = 4
_PORTABLE_REFUSED: Final = frozenset({Kind.FLOAT, Kind.DOUBLE})
_INT32: Final = (-(2**31), 2**31 - 1)
_INT64: Final = (-(2**63), 2**63 - 1)
_DAY_US: Final = 86_400_000_000
# Least and greatest value, and a unit (a day or a second) whose multiples fit coarser Arrow types.
_INTEGERS: Final = {
    Kind.INT: (*_INT32, 1),
    Kind.LONG: (*_INT64, 1),
    Kind.DATE: (*_INT32, 1),
    Kind.TIME: (0, _DAY_US - 1, 10**6),
    Kind.TIME_NS: (0, _DAY_US * 1000 - 1, 10**9),
    Kind.TIMESTAMP: (*_INT64, _DAY_US),
    Kind.TIMESTAMPTZ: (*_INT64, 10**6),
    Kind.TIMESTAMP_NS: (*_INT64, _DAY_US * 1000),
    Kind.TIMESTAMPTZ_NS: (*_INT64, 10**9),
}
_VARIANT_INTEGERS: Final = {
    VariantKind.INTEGER: Kind.LONG,
    VariantKind.DATE: Kind.DATE,
    VariantKind.TIME: Kind.TIME,
    VariantKind.TIMESTAMP: Kind.TIMESTAMP,
    VariantKind.TIMESTAMPTZ: Kind.TIMESTAMPTZ,
    VariantKind.TIMESTAMP_NS: Kind.TIMESTAMP_NS,
    VariantKind.TIMESTAMPTZ_NS: Kind.TIMESTAMPTZ_NS,
}
_NAMES: Final = (
    "a", "ab", "abc", "b", "A", "_", "a.b", " ", "é", "e\u0301", "ß", "名", "\uffee", "\U0001f600",
    "metadata", "value", "key", "element", "item", "entries",
)  # fmt: skip
_TEXTS: Final = (
    "", "\0", "a\0b", "a", "é", "e\u0301", "\u212b", "\u0344", "\u0958", "\u1100\u1161\u11a8", "\uac01", "\U0001d15e",
    "a\u0323\u0307", "a\u0307\u0323", "\u1e69", "s\u0307\u0323", "\ufb01", "\ufeff", "\U0001f600", "\u0f73\u0f71",
    "thirteen byte", "é" * 40, "x" * 127, "x" * 128,
)  # fmt: skip
# Bit patterns at edges: zeros, subnormals, infinities, NaNs, and values that narrower formats can or cannot hold.
_FLOATS: Final = {
    32: (0, 0x80000000, 0x3F800000, 0x00000001, 0x33800000, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00000,
         0x7F800001, 0x7FA00000, 0xFFFFFFFF, 0x7FC02000, 0x38800000, 0x33000000),
    64: (0, 1 << 63, 0x3FF0000000000000, 1, 0x36A0000000000000, 0x3E70000000000000, 0x7FEFFFFFFFFFFFFF,
         0x7FF0000000000000, 0xFFF0000000000000, 0x7FF8000000000000, 0xFFF8000000000000, 0x7FF0000000000001,
         0x7FF4000000000000, 0x7FFFFFFFE0000000, 0xFFFFFFFFFFFFFFFF, 0x7FF0040000000000, 0x3810000000000000),
}  # fmt: skip
_UNASSIGNED: Final = re.compile("[" + "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in UNASSIGNED) + "]")

Row: TypeAlias = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Case:
    """Rows, their schema and mode, and one Arrow batch of them."""

    schema: Schema
    mode: Mode
    rows: tuple[Row, ...]
    # repr of a batch could read its random hidden bytes, so a failing example shows `layout`, its Arrow schema.
    batch: pa.RecordBatch = field(repr=False)
    layout: str

    @property
    def plan(self) -> Plan:
        """The plan that digests every column."""
        return Plan(self.schema, (content(self.schema),), self.mode)


# Schemas.


@cache
def names() -> st.SearchStrategy[str]:
    """Column names, without U+0000, which Arrow's C data interface does not allow."""
    return st.sampled_from(_NAMES) | st.text(
        st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=4
    )


@cache
@st.composite
def decimal_types(draw: st.DrawFn, mode: Mode) -> DecimalType:
    """Decimals of any width; in portable mode with a declared scale."""
    precision = draw(st.sampled_from((1, 9, 18, 20, 38, 76)) | st.integers(1, 76))
    scale = draw(st.sampled_from((0, precision)) | st.integers(0, precision))
    return DecimalType(precision, scale, draw(st.integers(0, precision)) if mode is Mode.PORTABLE else None)


@cache
def leaf_types(mode: Mode, *, key: bool = False) -> st.SearchStrategy[Type]:
    """Types without children. A map key is never `unknown`, whose only value is null."""
    refused = _PORTABLE_REFUSED if mode is Mode.PORTABLE else frozenset()
    kinds = [kind for kind in Kind if kind not in refused and not (key and kind is Kind.UNKNOWN)]
    primitives = st.sampled_from([PrimitiveType(kind) for kind in (*kinds, Kind.STRING, Kind.VARIANT)])
    leaves: list[st.SearchStrategy[Type]] = [
        *[primitives] * 8,
        decimal_types(mode),
        st.sampled_from((1, 3, 16, 130)).map(FixedType),
    ]
    if mode is Mode.STORED:
        leaves.append(st.sampled_from((GeoType("OGC:CRS84"), GeoType("EPSG:4326", "spherical"))))
    return st.one_of(leaves)


@cache
@st.composite
def types(draw: st.DrawFn, mode: Mode, depth: int = DEPTH_MAX, *, key: bool = False) -> Type:
    """Types that nest at most `depth` values; values nested in a variant are not counted."""
    shapes = ("leaf", "list", "struct", "map") if depth > 1 else ("leaf",)
    match draw(st.sampled_from(shapes)):
        case "list":
            return ListType(draw(inners(mode, depth - 1)))
        case "struct":
            return StructType(draw(fields(mode, depth - 1, min_size=0, max_size=3)))
        case "map":
            return MapType(draw(inners(mode, min(depth - 1, 2), key=True)), draw(inners(mode, depth - 1)))
        case _:
            return draw(leaf_types(mode, key=key))


@cache
def inners(mode: Mode, depth: int, *, key: bool = False) -> st.SearchStrategy[Inner]:
    """List elements, map values and map keys."""
    return st.builds(_inner, types(mode, depth, key=key), st.just(True) if key else st.booleans())


def _inner(kind: Type, required: bool) -> Inner:
    return Inner(kind, required and kind != PrimitiveType(Kind.UNKNOWN))


@cache
def fields(mode: Mode, depth: int, *, min_size: int, max_size: int) -> st.SearchStrategy[tuple[Field, ...]]:
    """Columns or struct fields with distinct names, in any order."""
    one = st.builds(lambda name, inner: Field(name, inner.type, inner.required), names(), inners(mode, depth))
    return st.lists(one, min_size=min_size, max_size=max_size, unique_by=lambda each: each.name).map(tuple)


@cache
def schemas(mode: Mode, depth: int = DEPTH_MAX) -> st.SearchStrategy[Schema]:
    """Schemas of one to four columns whose types the mode allows."""
    return fields(mode, depth, min_size=1, max_size=4).map(Schema)


# Values.


@cache
def integers(kind: Kind) -> st.SearchStrategy[int]:
    """Numbers of a type, often small, often the least or greatest, often whole days or seconds."""
    low, high, unit = _INTEGERS[kind]
    units = st.integers(max(-3, low), 3).map(lambda count: count * unit)
    small = st.integers(max(-130, low), 130)
    return st.one_of(units, small, st.sampled_from((low, high)), st.integers(low, high))


@cache
@st.composite
def decimals(draw: st.DrawFn, precision: int, scale: int) -> DecimalValue:
    """Decimals of at most `precision` digits, often with zeros at the end or with all digits 9."""
    most = 10**precision - 1
    unscaled = draw(st.one_of(st.integers(-99, 99), st.sampled_from((most, -most)), st.integers(-most, most)))
    if draw(st.booleans()):
        unscaled -= unscaled % 10 ** draw(st.integers(0, min(scale, precision - 1)))
    return DecimalValue(max(-most, min(most, unscaled)), scale)


@cache
def texts(mode: Mode) -> st.SearchStrategy[str]:
    """Strings, in NFC or not. In portable mode all code points are assigned in Unicode 14.0.0."""
    anything = st.text(st.characters(codec="utf-8"), max_size=6)
    chosen = st.sampled_from(_TEXTS) | anything | st.text("ae\u0301\u0323\u0307\u0345\u1100\u1161\u11a8", max_size=6)
    return chosen if mode is Mode.STORED else chosen.filter(lambda text: not _UNASSIGNED.search(text))


@cache
def float_bits(width: int) -> st.SearchStrategy[FloatBits]:
    """All bit patterns, with NaNs and zeros of both signs more often."""
    bits = st.sampled_from(_FLOATS[width]) | st.integers(0, 2**width - 1)
    return bits.map(lambda pattern: FloatBits(pattern, width))


@cache
def variants(mode: Mode) -> st.SearchStrategy[VariantValue]:
    """Variants of every kind that the mode allows, nested or not."""
    return st.recursive(_variant_scalars(mode), lambda inner: _variant_nested(mode, inner), max_leaves=6)


@cache
def _variant_scalars(mode: Mode) -> st.SearchStrategy[VariantValue]:
    contents: dict[VariantKind, st.SearchStrategy[object]] = {
        VariantKind.NULL: st.none(),
        VariantKind.BOOLEAN: st.booleans(),
        VariantKind.STRING: texts(mode),
        VariantKind.UUID: st.binary(min_size=16, max_size=16),
        VariantKind.BINARY: st.binary(max_size=20),
        **{kind: integers(like) for kind, like in _VARIANT_INTEGERS.items()},
    }
    if mode is Mode.STORED:
        contents[VariantKind.FLOAT] = float_bits(32)
        contents[VariantKind.DOUBLE] = float_bits(64)
        digits = st.sampled_from((1, 9, 10, 18, 19, 38))
        contents[VariantKind.DECIMAL] = st.tuples(digits, st.integers(0, 38)).flatmap(lambda shape: decimals(*shape))
    return st.sampled_from(list(contents)).flatmap(lambda kind: st.builds(VariantValue, st.just(kind), contents[kind]))


def _variant_nested(mode: Mode, inner: st.SearchStrategy[VariantValue]) -> st.SearchStrategy[VariantValue]:
    arrays = st.lists(inner, max_size=4).map(lambda found: VariantValue(VariantKind.ARRAY, tuple(found)))
    keys = texts(mode) | st.sampled_from(("a", "ab", "b", ""))
    member_lists = st.lists(st.tuples(keys, inner), max_size=4, unique_by=lambda member: _nfc(member[0], mode))
    return arrays | member_lists.map(lambda found: VariantValue(VariantKind.OBJECT, tuple(sorted(found, key=_first))))


def _first(member: tuple[str, VariantValue]) -> str:
    return member[0]


@lru_cache(1000)
def values(slot: Field | Inner, mode: Mode) -> st.SearchStrategy[Value]:
    """Values of a column, element, key or map value; null too where it is optional."""
    not_null = _not_null(slot.type, mode)
    return not_null if slot.required else st.none() | not_null


@lru_cache(1000)
def _not_null(kind: Type, mode: Mode) -> st.SearchStrategy[Value]:
    match kind:
        case PrimitiveType(primitive):
            return _primitives(primitive, mode)
        case DecimalType(precision, scale, declared):
            return decimals(precision, scale if declared is None else declared)
        case FixedType(length):
            return st.binary(min_size=length, max_size=length)
        case GeoType():
            return st.binary(max_size=24)
        case StructType(parts):
            ordered = sorted(parts, key=lambda part: part.name)
            cells = st.tuples(*(values(part, mode) for part in ordered))
            return cells.map(lambda found: StructValue(tuple(zip((part.name for part in ordered), found, strict=True))))
        case ListType(element):
            return st.lists(values(element, mode), max_size=4).map(tuple)
        case MapType(key, value):
            pairs = st.tuples(values(key, mode), values(value, mode))
            unique = st.lists(pairs, max_size=4, unique_by=lambda pair: comparable(pair[0], mode))
            return unique.map(lambda found: MapValue(tuple(found)))


def _primitives(kind: Kind, mode: Mode) -> st.SearchStrategy[Value]:
    if kind in _INTEGERS:
        return integers(kind)
    strategies: dict[Kind, st.SearchStrategy[Value]] = {
        Kind.BOOLEAN: st.booleans(),
        Kind.FLOAT: float_bits(32),
        Kind.DOUBLE: float_bits(64),
        Kind.STRING: texts(mode),
        Kind.UUID: st.binary(min_size=16, max_size=16),
        Kind.BINARY: st.binary(max_size=20) | st.sampled_from((b"\0" * 13, b"\xff" * 130)),
        Kind.UNKNOWN: st.none(),
        Kind.VARIANT: variants(mode),
    }
    return strategies[kind]


def rows(schema: Schema, mode: Mode, *, max_size: int = 6) -> st.SearchStrategy[list[Row]]:
    """Lists of rows, sometimes none."""
    one = st.fixed_dictionaries({each.name: values(each, mode) for each in schema.fields})
    return st.lists(one, max_size=max_size)


# Equality of values.


def _nfc(text: str, mode: Mode) -> str:
    return unicodedata.normalize("NFC", text) if mode is Mode.PORTABLE else text


def comparable(value: Value, mode: Mode) -> Hashable:
    """The value with strings as the mode encodes them, one NaN, and maps without order.

    Two values have equal forms if and only if their encodings must be equal.
    """
    match value:
        case str(text):
            return _nfc(text, mode)
        case FloatBits(bits, width):
            return FloatBits(one_nan(bits, width), width)
        case StructValue(parts):
            return ("struct", tuple((name, comparable(part, mode)) for name, part in parts))
        case MapValue(entries):
            return ("map", frozenset((comparable(key, mode), comparable(part, mode)) for key, part in entries))
        case VariantValue():
            return _comparable_variant(value, mode)
        case tuple():
            return ("list", tuple(comparable(element, mode) for element in value))
        case _:
            return value


def one_nan(bits: int, width: int) -> int:
    """The bits of a float, with every NaN replaced by the only one that is encoded. Variants keep their NaNs."""
    infinity, nan = {32: (0x7F800000, 0x7FC00000), 64: (0x7FF0000000000000, 0x7FF8000000000000)}[width]
    return nan if bits & (1 << width - 1) - 1 > infinity else bits


def _comparable_variant(value: VariantValue, mode: Mode) -> Hashable:
    match value.kind:
        case VariantKind.OBJECT:
            named = {_nfc(name, mode): _comparable_variant(member, mode) for name, member in members(value)}
            return (value.kind, tuple((name, named[name]) for name in sorted(named)))
        case VariantKind.ARRAY:
            return (value.kind, tuple(_comparable_variant(item, mode) for item in items(value)))
        case VariantKind.STRING:
            assert isinstance(value.value, str)
            return (value.kind, _nfc(value.value, mode))
        case kind:
            return (kind, value.value)


# Batches.


@st.composite
def cases(draw: st.DrawFn, mode: Mode | None = None, *, depth: int = DEPTH_MAX, rows_max: int = 6) -> Case:
    """A random schema, rows, and a batch of them in a random layout. Without `mode`, the mode is random too."""
    chosen = draw(st.sampled_from(Mode)) if mode is None else mode
    schema = draw(schemas(chosen, depth))
    found = draw(rows(schema, chosen, max_size=rows_max))
    return lay_out(draw, schema, chosen, found)


@st.composite
def layouts(draw: st.DrawFn, schema: Schema, mode: Mode, found: Sequence[Row]) -> Case:
    """The given rows in a random layout. A test draws twice to compare two layouts."""
    return lay_out(draw, schema, mode, found)


def lay_out(draw: st.DrawFn, schema: Schema, mode: Mode, found: Sequence[Row]) -> Case:
    """A batch of these rows. A failing example shrinks to the plainest layout, if this one fails too."""
    seed = draw(st.integers(0, 2**32 - 1)) if draw(st.integers(0, 9)) else None
    batch = build_batch(schema, mode, found, seed)
    return Case(schema, mode, tuple(found), batch, str(batch.schema))
