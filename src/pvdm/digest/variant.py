"""Decodes the Parquet variant encoding, version 1, into plain values, for the reference (spec/canonical.md section 6).

Every byte of the input must belong to exactly one value, so that a hostile writer cannot hide data in unused bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeAlias

from pvdm.digest.plan import ByteReader
from pvdm.errors import Code, PvdmError
from pvdm.model.schema import NESTING_DEPTH_MAX, DecimalType, Kind, PrimitiveType

DECIMAL_DIGITS_MAX: Final = 38
DAY_MICROSECONDS: Final = 86_400_000_000


@dataclass(frozen=True, slots=True)
class Scalar:
    """A primitive with its logical type. Floats are bits, decimals unscaled, strings bytes not checked for UTF-8."""

    type: PrimitiveType | DecimalType
    value: bool | int | bytes


@dataclass(frozen=True, slots=True)
class Array:
    """Elements in order."""

    elements: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Object:
    """Fields in ascending order of their names."""

    fields: tuple[tuple[str, Node], ...]


Node: TypeAlias = Scalar | Array | Object | None
"""A variant value; None is the variant null."""


def decode(metadata: bytes, value: bytes, *, depth: int = 1) -> Node:
    """The variant value in these bytes. `depth` is the depth of the variant column in its row."""
    return _read_node(value, _read_dictionary(metadata), depth + 1)


def malformed(expected: str, got: str) -> PvdmError:
    """The error for bytes that are no variant."""
    return Code.ROW_INVALID(reason="variant_malformed", expected=expected, got=got)


class _Reader(ByteReader):
    """Reads little-endian numbers."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data, malformed)

    def unsigned(self, width: int) -> int:
        return int.from_bytes(self.take(width), "little")

    def unsigned_many(self, count: int, width: int) -> list[int]:
        packed = self.take(count * width)
        return [int.from_bytes(packed[at : at + width], "little") for at in range(0, len(packed), width)]

    def signed(self, width: int) -> int:
        return int.from_bytes(self.take(width), "little", signed=True)


def _read_dictionary(metadata: bytes) -> list[str]:
    reader = _Reader(metadata)
    header = reader.unsigned(1)
    if header & 0x0F != 1:
        raise malformed("metadata of version 1", f"version {header & 0x0F}")
    _refuse_unused(header & 0x20)
    width = (header >> 6) + 1
    count = reader.unsigned(width)
    offsets = reader.unsigned_many(count + 1, width)
    names = _slices(reader.rest(), offsets, "dictionary strings")
    if header & 0x10 and any(left >= right for left, right in pairwise(names)):
        raise malformed("a dictionary in the ascending order it claims", "another order or a string twice")
    try:
        return [name.decode() for name in names]
    except UnicodeDecodeError as error:
        raise malformed("dictionary strings in UTF-8", error.reason) from None


def _slices(data: bytes, offsets: list[int], what: str) -> list[bytes]:
    """Split `data` at ascending offsets. Raises if bytes are left before the first offset or after the last."""
    if offsets[0] != 0 or offsets[-1] != len(data):
        raise malformed(f"{what} from byte 0 to {len(data)}", f"{offsets[0]} to {offsets[-1]}")
    if any(start > end for start, end in pairwise(offsets)):
        raise malformed(f"ascending offsets of {what}", "an offset below the one before")
    return [data[start:end] for start, end in pairwise(offsets)]


def _read_node(data: bytes, names: list[str], depth: int) -> Node:
    """The value in `data`. Raises if bytes are left after it."""
    if depth > NESTING_DEPTH_MAX:
        raise Code.ROW_INVALID("the variant nests too deeply", reason="nesting_too_deep", got="more")
    reader = _Reader(data)
    first = reader.unsigned(1)
    basic, header = first & 0x03, first >> 2
    node: Node
    match basic:
        case 0:
            node = _read_primitive(header, reader)
        case 1:  # a short string, whose length is in the header
            node = Scalar(PrimitiveType(Kind.STRING), reader.take(header))
        case 2:
            node = _read_object(header, reader, names, depth)
        case _:
            node = _read_array(header, reader, names, depth)
    if left := len(reader.rest()):
        raise malformed("nothing after the value", f"{left} bytes")
    return node


# Logical type and width in bytes by primitive type id. Other types have cases of their own in `_read_primitive`.
_FIXED_WIDTH: Final = {
    3: (Kind.INT, 1),
    4: (Kind.INT, 2),
    5: (Kind.INT, 4),
    6: (Kind.LONG, 8),
    11: (Kind.DATE, 4),
    12: (Kind.TIMESTAMPTZ, 8),
    13: (Kind.TIMESTAMP, 8),
    17: (Kind.TIME, 8),
    18: (Kind.TIMESTAMPTZ_NS, 8),
    19: (Kind.TIMESTAMP_NS, 8),
}
_FLOATS: Final = {7: (Kind.DOUBLE, 8), 14: (Kind.FLOAT, 4)}
_DECIMALS: Final = {8: (4, 9), 9: (8, 18), 10: (16, DECIMAL_DIGITS_MAX)}  # width in bytes, digits at most


def _read_primitive(type_id: int, reader: _Reader) -> Scalar | None:
    match type_id:
        case 0:
            return None
        case 1 | 2:
            return Scalar(PrimitiveType(Kind.BOOLEAN), type_id == 1)
        case 15 | 16:
            kind = Kind.BINARY if type_id == 15 else Kind.STRING
            return Scalar(PrimitiveType(kind), reader.take(reader.unsigned(4)))
        case 20:
            return Scalar(PrimitiveType(Kind.UUID), reader.take(16))
    if type_id in _FLOATS:
        kind, width = _FLOATS[type_id]
        return Scalar(PrimitiveType(kind), reader.unsigned(width))
    if type_id in _DECIMALS:
        return _read_decimal(*_DECIMALS[type_id], reader)
    if type_id not in _FIXED_WIDTH:
        raise malformed("a primitive type from 0 to 20", str(type_id))
    kind, width = _FIXED_WIDTH[type_id]
    number = reader.signed(width)
    if kind is Kind.TIME and not 0 <= number < DAY_MICROSECONDS:
        raise malformed("a time within one day", f"{number} microseconds")
    return Scalar(PrimitiveType(kind), number)


def _read_decimal(width: int, digits_max: int, reader: _Reader) -> Scalar:
    scale, unscaled = reader.unsigned(1), reader.signed(width)
    if scale > DECIMAL_DIGITS_MAX:
        raise malformed(f"a scale of at most {DECIMAL_DIGITS_MAX}", str(scale))
    if abs(unscaled) >= 10**digits_max:
        raise malformed(f"at most {digits_max} digits", str(len(str(abs(unscaled)))))
    return Scalar(DecimalType(DECIMAL_DIGITS_MAX, scale), unscaled)


def _refuse_unused(bits: int) -> None:
    if bits:
        raise malformed("no unused header bit", f"{bits:#x}")


def _read_array(header: int, reader: _Reader, names: list[str], depth: int) -> Array:
    _refuse_unused(header & 0x38)
    width = (header & 0x03) + 1
    count = reader.unsigned(4 if header & 0x04 else 1)
    offsets = reader.unsigned_many(count + 1, width)
    parts = _slices(reader.rest(), offsets, "array elements")
    return Array(tuple(_read_node(part, names, depth + 1) for part in parts))


def _read_object(header: int, reader: _Reader, names: list[str], depth: int) -> Object:
    _refuse_unused(header & 0x20)
    width, id_width = (header & 0x03) + 1, (header >> 2 & 0x03) + 1
    count = reader.unsigned(4 if header & 0x10 else 1)
    ids = reader.unsigned_many(count, id_width)
    *starts, end = reader.unsigned_many(count + 1, width)
    if any(field_id >= len(names) for field_id in ids):
        raise malformed(f"field ids below {len(names)}, the size of the dictionary", str(max(ids)))
    keys = [names[field_id] for field_id in ids]
    # Python compares strings by code points, which is the order of their UTF-8 bytes.
    if any(left >= right for left, right in pairwise(keys)):
        raise malformed("object fields in ascending order of their names", "another order or a name twice")
    # Values may be stored in any order, but without gaps, so that the sorted offsets separate them.
    order = sorted(starts)
    if len(set(order)) != len(order):
        raise malformed("a place of its own for every field", "two fields at one place")
    parts = dict(zip(order, _slices(reader.rest(), [*order, end], "object fields"), strict=True))
    values = (_read_node(parts[start], names, depth + 1) for start in starts)
    return Object(tuple(zip(keys, values, strict=True)))
