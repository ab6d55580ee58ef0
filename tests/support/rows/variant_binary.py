"""Writes variants in Parquet's binary encoding (version 1). Where it allows several forms, the choice is random."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from random import Random
from typing import Final

from tests.support.oracles.canonical_values import DecimalValue, FloatBits, VariantKind, VariantValue

# Code of the primitive type, format of its value for `struct`.
_PRIMITIVES: Final = {
    VariantKind.DATE: (11, "<i"),
    VariantKind.TIMESTAMPTZ: (12, "<q"),
    VariantKind.TIMESTAMP: (13, "<q"),
    VariantKind.TIME: (17, "<q"),
    VariantKind.TIMESTAMPTZ_NS: (18, "<q"),
    VariantKind.TIMESTAMP_NS: (19, "<q"),
}
# Code of the type, size in bytes, most digits.
_DECIMAL_SIZES: Final = ((8, 4, 9), (9, 8, 18), (10, 16, 38))
_SHORT_STRING_MAX_BYTES: Final = 63


def write_variant(value: VariantValue, rnd: Random) -> tuple[bytes, bytes]:
    """The bytes of the variant's metadata (its dictionary of names) and of its value."""
    names = set(_names(value))
    names.update(rnd.choice(("", "unused", "~", "é")) for _ in range(rnd.randrange(3)))
    ordered = sorted(names)
    is_sorted = rnd.random() < 0.5
    if not is_sorted:
        rnd.shuffle(ordered)
    ids = {name: index for index, name in enumerate(ordered)}
    return _metadata([name.encode() for name in ordered], is_sorted, rnd), _value(value, ids, rnd)


def _names(value: VariantValue) -> Iterator[str]:
    """The names of all members at every depth."""
    if value.kind is VariantKind.OBJECT:
        for name, member in members(value):
            yield name
            yield from _names(member)
    elif value.kind is VariantKind.ARRAY:
        for item in items(value):
            yield from _names(item)


def members(value: VariantValue) -> Sequence[tuple[str, VariantValue]]:
    """The fields of an object."""
    assert isinstance(value.value, tuple)
    return [member for member in value.value if isinstance(member, tuple)]


def items(value: VariantValue) -> Sequence[VariantValue]:
    """The elements of an array."""
    assert isinstance(value.value, tuple)
    return [item for item in value.value if isinstance(item, VariantValue)]


def _width(largest: int, rnd: Random) -> int:
    """A number of bytes, at most four, that can hold the largest number."""
    needed = max(1, (largest.bit_length() + 7) // 8)
    return rnd.randrange(needed, 5)


def _numbers(numbers: Sequence[int], width: int) -> bytes:
    return b"".join(number.to_bytes(width, "little") for number in numbers)


def _offsets(parts: Sequence[bytes]) -> list[int]:
    offsets = [0]
    for part in parts:
        offsets.append(offsets[-1] + len(part))
    return offsets


def _metadata(names: Sequence[bytes], is_sorted: bool, rnd: Random) -> bytes:
    offsets = _offsets(names)
    width = _width(max(offsets[-1], len(names)), rnd)
    header = 0x01 | (0x10 if is_sorted else 0) | (width - 1) << 6
    return bytes([header]) + _numbers([len(names), *offsets], width) + b"".join(names)


def _value(value: VariantValue, ids: dict[str, int], rnd: Random) -> bytes:
    match value.kind, value.value:
        case VariantKind.OBJECT, _:
            return _object(members(value), ids, rnd)
        case VariantKind.ARRAY, _:
            return _array([_value(item, ids, rnd) for item in items(value)], rnd)
        case VariantKind.NULL, _:
            return b"\x00"
        case VariantKind.BOOLEAN, bool(flag):
            return bytes([(1 if flag else 2) << 2])
        case VariantKind.INTEGER, int(number):
            return _integer(number, rnd)
        case VariantKind.DECIMAL, DecimalValue() as number:
            return _decimal(number, rnd)
        case VariantKind.FLOAT, FloatBits(bits):
            return bytes([14 << 2]) + bits.to_bytes(4, "little")
        case VariantKind.DOUBLE, FloatBits(bits):
            return bytes([7 << 2]) + bits.to_bytes(8, "little")
        case VariantKind.STRING, str(text):
            return _string(text.encode(), rnd)
        case VariantKind.BINARY, bytes(data):
            return bytes([15 << 2]) + struct.pack("<I", len(data)) + data
        case VariantKind.UUID, bytes(data):
            return bytes([20 << 2]) + data
        case kind, int(number):
            code, layout = _PRIMITIVES[kind]
            return bytes([code << 2]) + struct.pack(layout, number)
    raise AssertionError(f"no variant value: {value}")


def _integer(number: int, rnd: Random) -> bytes:
    widths = ((3, 1), (4, 2), (5, 4), (6, 8))
    code, size = rnd.choice(
        [(code, size) for code, size in widths if -(1 << size * 8 - 1) <= number < 1 << size * 8 - 1]
    )
    return bytes([code << 2]) + number.to_bytes(size, "little", signed=True)


def _decimal(number: DecimalValue, rnd: Random) -> bytes:
    digits = len(str(abs(number.unscaled)))
    code, size = rnd.choice([(code, size) for code, size, most in _DECIMAL_SIZES if digits <= most])
    return bytes([code << 2, number.scale]) + number.unscaled.to_bytes(size, "little", signed=True)


def _string(text: bytes, rnd: Random) -> bytes:
    if len(text) <= _SHORT_STRING_MAX_BYTES and rnd.random() < 0.5:
        return bytes([0x01 | len(text) << 2]) + text
    return bytes([16 << 2]) + struct.pack("<I", len(text)) + text


def _count(number: int, rnd: Random) -> tuple[bool, bytes]:
    """Whether a count is written in four bytes in place of one, and its bytes."""
    is_large = number > 255 or rnd.random() > 0.8
    return is_large, number.to_bytes(4 if is_large else 1, "little")


def _array(parts: Sequence[bytes], rnd: Random) -> bytes:
    offsets = _offsets(parts)
    width = _width(offsets[-1], rnd)
    is_large, count = _count(len(parts), rnd)
    header = 0x03 | (width - 1) << 2 | is_large << 4
    return bytes([header]) + count + _numbers(offsets, width) + b"".join(parts)


def _object(fields: Sequence[tuple[str, VariantValue]], ids: dict[str, int], rnd: Random) -> bytes:
    fields = sorted(fields, key=lambda field: field[0].encode())
    parts = [_value(member, ids, rnd) for _, member in fields]
    order = list(range(len(parts)))
    rnd.shuffle(order)  # the values of an object may be in any order
    starts = [0] * len(parts)
    size = 0
    for index in order:
        starts[index] = size
        size += len(parts[index])
    field_ids = [ids[name] for name, _ in fields]
    width = _width(size, rnd)
    id_width = _width(max(field_ids, default=0), rnd)
    is_large, count = _count(len(parts), rnd)
    header = 0x02 | (width - 1) << 2 | (id_width - 1) << 4 | is_large << 6
    return (
        bytes([header])
        + count
        + _numbers(field_ids, id_width)
        + _numbers([*starts, size], width)
        + b"".join(parts[index] for index in order)
    )
