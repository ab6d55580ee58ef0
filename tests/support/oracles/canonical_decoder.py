"""Decodes canonical rows as spec/canonical.md defines them, and refuses bytes that no correct encoder writes.

It shares no code with the encoders, except the schema's types and the table of unassigned code points.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final

from pvdm.digest.plan import Mode
from pvdm.digest.unicode14 import UNASSIGNED
from pvdm.errors import InputError
from pvdm.model.schema import (
    NESTING_DEPTH_MAX,
    ROW_SIZE_MAX_BYTES,
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

_NULL: Final = 0x00
_STRING: Final = 0x0C
_INT32: Final = range(-(2**31), 2**31)
_INT64: Final = range(-(2**63), 2**63)
_DAY_US: Final = range(86_400_000_000)
_DAY_NS: Final = range(86_400_000_000_000)

_TAGS: Final[Mapping[Kind, int]] = {
    Kind.BOOLEAN: 0x01,
    Kind.INT: 0x02,
    Kind.LONG: 0x02,
    Kind.FLOAT: 0x04,
    Kind.DOUBLE: 0x05,
    Kind.DATE: 0x06,
    Kind.TIME: 0x07,
    Kind.TIMESTAMP: 0x08,
    Kind.TIMESTAMPTZ: 0x09,
    Kind.TIMESTAMP_NS: 0x0A,
    Kind.TIMESTAMPTZ_NS: 0x0B,
    Kind.STRING: 0x0C,
    Kind.UUID: 0x0D,
    Kind.BINARY: 0x0F,
    Kind.VARIANT: 0x13,
    Kind.TIME_NS: 0x17,
}
_RANGES: Final[Mapping[Kind, range]] = {
    Kind.INT: _INT32,
    Kind.LONG: _INT64,
    Kind.DATE: _INT32,
    Kind.TIME: _DAY_US,
    Kind.TIME_NS: _DAY_NS,
    Kind.TIMESTAMP: _INT64,
    Kind.TIMESTAMPTZ: _INT64,
    Kind.TIMESTAMP_NS: _INT64,
    Kind.TIMESTAMPTZ_NS: _INT64,
}
_VARIANT_KINDS: Final[Mapping[int, VariantKind]] = {
    0x00: VariantKind.NULL,
    0x01: VariantKind.BOOLEAN,
    0x02: VariantKind.INTEGER,
    0x03: VariantKind.DECIMAL,
    0x04: VariantKind.FLOAT,
    0x05: VariantKind.DOUBLE,
    0x06: VariantKind.DATE,
    0x07: VariantKind.TIME,
    0x08: VariantKind.TIMESTAMP,
    0x09: VariantKind.TIMESTAMPTZ,
    0x0A: VariantKind.TIMESTAMP_NS,
    0x0B: VariantKind.TIMESTAMPTZ_NS,
    0x0C: VariantKind.STRING,
    0x0D: VariantKind.UUID,
    0x0F: VariantKind.BINARY,
    0x11: VariantKind.ARRAY,
    0x14: VariantKind.OBJECT,
}
_VARIANT_RANGES: Final[Mapping[VariantKind, range]] = {
    VariantKind.INTEGER: _INT64,
    VariantKind.DATE: _INT32,
    VariantKind.TIME: _DAY_US,
    VariantKind.TIMESTAMP: _INT64,
    VariantKind.TIMESTAMPTZ: _INT64,
    VariantKind.TIMESTAMP_NS: _INT64,
    VariantKind.TIMESTAMPTZ_NS: _INT64,
}
_VARIANT_DECIMAL_DIGITS: Final = 38
_NOT_PORTABLE: Final = frozenset({VariantKind.DECIMAL, VariantKind.FLOAT, VariantKind.DOUBLE})

# By a float's size in bytes: the bits of infinity (NaNs are above it), and the bits of the only NaN that is allowed.
_INFINITY_AND_NAN: Final = {
    4: (0x7F80_0000, 0x7FC0_0000),
    8: (0x7FF0_0000_0000_0000, 0x7FF8_0000_0000_0000),
}

# 2^28, the largest size of a row in bytes, has 29 bits: five groups of seven.
_LENGTH_BYTES_MAX: Final = 5
_INTEGER_CHARS_MAX: Final = len(str(-(2**63)))
# A sign, a point, and 77 digits: 76 of the widest type, and the 0 before the point if all are after it.
_DECIMAL_CHARS_MAX: Final = 79
_INTEGER: Final = re.compile(rb"0|-?[1-9][0-9]*")
_DECIMAL: Final = re.compile(rb"(-?)(0|[1-9][0-9]*)(?:\.([0-9]+))?")


def decode_row(schema: Schema, mode: Mode, row: bytes) -> dict[str, Value]:
    """The values of a row by column name, in canonical order. `schema` has the projection's columns.

    Raises `encoding_malformed` with the offset if the bytes are not canonical.
    """
    if not schema.fields:
        raise _malformed(0, "a projection with columns", "none")
    _require_fit((field.type for field in schema.fields), mode)
    reader = _Reader(row, mode)
    values, at = reader.fields(schema.fields, 0, len(row), 1)
    reader.require_end(at, len(row))
    return dict(values)


def decode_cell(slot: Field | Inner, mode: Mode, cell: bytes) -> Value:
    """The value of one cell: of a column, a list's element, or a map's key or value. Raises as `decode_row` does."""
    _require_fit((slot.type,), mode)
    reader = _Reader(cell, mode)
    value, at = reader.cell(slot, 0, len(cell), 1)
    reader.require_end(at, len(cell))
    return value


def _malformed(offset: int, expected: str, got: str) -> InputError:
    return InputError(
        "encoding_malformed", "these bytes are not a canonical encoding", expected=expected, got=got, offset=offset
    )


def _require_fit(types: Iterable[Type], mode: Mode) -> None:
    """Section 2: raise if a type is not allowed in the mode."""
    portable = mode is Mode.PORTABLE
    for kind in types:
        match kind:
            case DecimalType(declared_scale=declared) if portable is (declared is None):
                raise _malformed(0, "a declared scale in portable mode and none in stored mode", str(kind))
            case PrimitiveType(Kind.FLOAT | Kind.DOUBLE) | GeoType() if portable:
                raise _malformed(0, "a type of portable mode", str(kind))
            case StructType(fields):
                _require_fit((field.type for field in fields), mode)
            case ListType(element):
                _require_fit((element.type,), mode)
            case MapType(key, value):
                _require_fit((key.type, value.type), mode)
            case _:
                pass


def _tag_of(kind: Type) -> int | None:
    match kind:
        case PrimitiveType(primitive):
            return _TAGS.get(primitive)
        case DecimalType():
            return 0x03
        case FixedType():
            return 0x0E
        case StructType():
            return 0x10
        case ListType():
            return 0x11
        case MapType():
            return 0x12
        case GeoType(algorithm=None):
            return 0x15
        case GeoType():
            return 0x16


@cache
def _unassigned() -> re.Pattern[str]:
    """Matches one character that Unicode 14.0.0 does not assign."""
    return re.compile("[" + "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in UNASSIGNED) + "]")


class _Reader:
    """Reads values at offsets of one buffer.

    `at` is the offset to read at, `end` the end of the surrounding value; `start` and `stop` enclose a value's bytes.
    `depth` counts the values around a value and itself.
    """

    __slots__ = ("_data", "_portable")

    def __init__(self, data: bytes, mode: Mode) -> None:
        if len(data) > ROW_SIZE_MAX_BYTES:
            raise _malformed(ROW_SIZE_MAX_BYTES, f"at most {ROW_SIZE_MAX_BYTES} bytes", str(len(data)))
        self._data = bytes(data)
        self._portable = mode is Mode.PORTABLE

    def require_end(self, at: int, end: int) -> None:
        if at != end:
            raise _malformed(at, "nothing more", f"{end - at} bytes left over")

    # Section 4: framing.

    def tag(self, at: int, end: int, depth: int) -> int:
        """The first byte of a cell. Raises if values are nested too deep."""
        if depth > NESTING_DEPTH_MAX:
            raise _malformed(at, f"at most {NESTING_DEPTH_MAX} values inside one another", "more")
        if at >= end:
            raise _malformed(at, "a cell", "the end")
        return self._data[at]

    def body(self, at: int, end: int) -> tuple[int, int]:
        """The start and the end of a cell's bytes; `at` is the offset of its length."""
        length = 0
        for index in range(_LENGTH_BYTES_MAX):
            if at + index >= end:
                raise _malformed(at, "a length", "the end")
            byte = self._data[at + index]
            length |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                if byte == 0 and index > 0:
                    raise _malformed(at, "a length in as few bytes as it needs", "a superfluous zero byte")
                start = at + index + 1
                if length > end - start:
                    raise _malformed(at, f"a length of at most {end - start}", str(length))
                return start, start + length
        raise _malformed(at, f"a length of at most {_LENGTH_BYTES_MAX} bytes", "a longer one")

    def cell(self, slot: Field | Inner, at: int, end: int, depth: int) -> tuple[Value, int]:
        """The value of the cell at `at`, and the offset after it."""
        tag = self.tag(at, end, depth)
        if tag == _NULL:
            if slot.required:
                raise _malformed(at, f"a value, since {slot.type} is required here", "null")
            return None, at + 1
        if tag != _tag_of(slot.type):
            raise _malformed(at, f"the tag of {slot.type}", f"{tag:02x}")
        start, stop = self.body(at + 1, end)
        return self.value(slot.type, start, stop, depth), stop

    def value(self, kind: Type, start: int, stop: int, depth: int) -> Value:
        match kind:
            case PrimitiveType(primitive):
                return self.primitive(primitive, start, stop, depth)
            case DecimalType(precision, scale, declared):
                return self.decimal(start, stop, precision, scale if declared is None else declared)
            case FixedType(length):
                return self.sized(start, stop, length)
            case GeoType():
                return self._data[start:stop]
            case StructType(fields):
                values, at = self.fields(fields, start, stop, depth + 1)
                self.require_end(at, stop)
                return StructValue(values)
            case ListType(element):
                return self.elements(element, start, stop, depth)
            case MapType():
                return self.entries(kind, start, stop, depth)

    # Section 5: values.

    def primitive(self, kind: Kind, start: int, stop: int, depth: int) -> Value:
        if kind in _RANGES:
            return self.integer(start, stop, _RANGES[kind])
        match kind:
            case Kind.BOOLEAN:
                return self.boolean(start, stop)
            case Kind.FLOAT:
                return self.float_outside_variant(start, stop, 4)
            case Kind.DOUBLE:
                return self.float_outside_variant(start, stop, 8)
            case Kind.STRING:
                return self.string(start, stop)
            case Kind.UUID:
                return self.sized(start, stop, 16)
            case Kind.BINARY:
                return self._data[start:stop]
            case _:
                return self.variant(start, stop, depth)

    def boolean(self, start: int, stop: int) -> bool:
        text = self._data[start:stop]
        if text not in (b"true", b"false"):
            raise _malformed(start, "true or false", "something else")
        return text == b"true"

    def integer(self, start: int, stop: int, allowed: range) -> int:
        if stop - start > _INTEGER_CHARS_MAX or not _INTEGER.fullmatch(self._data, start, stop):
            raise _malformed(start, "an integer in its shortest form", f"{stop - start} other bytes")
        number = int(self._data[start:stop])
        if number not in allowed:
            raise _malformed(start, f"a number from {allowed.start} to {allowed.stop - 1}", str(number))
        return number

    def decimal(self, start: int, stop: int, precision: int, scale: int | None) -> DecimalValue:
        """A decimal with `scale` digits after the point; with any number of them if `scale` is None."""
        match = None
        if stop - start <= _DECIMAL_CHARS_MAX:
            match = _DECIMAL.fullmatch(self._data, start, stop)
        if match is None:
            raise _malformed(start, "a decimal number in its only form", f"{stop - start} other bytes")
        sign, whole, fraction = match[1], match[2], match[3] or b""
        if scale is not None and len(fraction) != scale:
            raise _malformed(start, f"{scale} digits after the point", str(len(fraction)))
        unscaled = int(whole + fraction)
        if sign and unscaled == 0:
            raise _malformed(start, "zero without a sign", "-0")
        if unscaled >= 10**precision:
            raise _malformed(start, f"at most {precision} digits", str(len(str(unscaled))))
        return DecimalValue(-unscaled if sign else unscaled, len(fraction))

    def float_outside_variant(self, start: int, stop: int, size: int) -> FloatBits:
        """A float of `size` bytes. Only one NaN is allowed; inside variants every NaN is."""
        found = self.float_bits(start, stop, size)
        infinity, nan = _INFINITY_AND_NAN[size]
        if found.bits & (1 << found.width - 1) - 1 > infinity and found.bits != nan:
            raise _malformed(start, f"the NaN {nan:x}", "another one")
        return found

    def float_bits(self, start: int, stop: int, size: int) -> FloatBits:
        return FloatBits(int.from_bytes(self.sized(start, stop, size), "big"), size * 8)

    def sized(self, start: int, stop: int, size: int) -> bytes:
        if stop - start != size:
            raise _malformed(start, f"{size} bytes", str(stop - start))
        return self._data[start:stop]

    def string(self, start: int, stop: int) -> str:
        try:
            text = self._data[start:stop].decode()
        except UnicodeDecodeError as error:
            raise _malformed(start + error.start, "well-formed UTF-8", error.reason) from None
        if self._portable:
            self._require_portable(text, start)
        return text

    def _require_portable(self, text: str, start: int) -> None:
        # This is checked before NFC: versions of Unicode agree on the NFC of characters that 14.0.0 assigns.
        if found := _unassigned().search(text):
            raise _malformed(
                start + len(text[: found.start()].encode()),
                "code points that Unicode 14.0.0 assigns",
                f"U+{ord(found[0]):04X}",
            )
        if not unicodedata.is_normalized("NFC", text):
            raise _malformed(start, "a string in NFC", "another one")

    def fields(
        self, fields: tuple[Field, ...], at: int, end: int, depth: int
    ) -> tuple[tuple[tuple[str, Value], ...], int]:
        """The names and values of a row or struct, and the offset after it."""
        values: list[tuple[str, Value]] = []
        for field in sorted(fields, key=lambda field: field.name):
            value, at = self.cell(field, at, end, depth)
            values.append((field.name, value))
        return tuple(values), at

    def elements(self, element: Inner, at: int, stop: int, depth: int) -> tuple[Value, ...]:
        values: list[Value] = []
        while at < stop:
            value, at = self.cell(element, at, stop, depth + 1)
            values.append(value)
        return tuple(values)

    def entries(self, kind: MapType, at: int, stop: int, depth: int) -> MapValue:
        pairs: list[tuple[Value, Value]] = []
        last: bytes | None = None
        while at < stop:
            key, key_stop = self.cell(kind.key, at, stop, depth + 1)
            encoded = self._data[at:key_stop]
            if last is not None and encoded <= last:
                raise _malformed(at, "map keys in strictly ascending byte order", "another order or a duplicate")
            value, at = self.cell(kind.value, key_stop, stop, depth + 1)
            pairs.append((key, value))
            last = encoded
        return MapValue(tuple(pairs))

    # Section 6: variant.

    def variant(self, start: int, stop: int, depth: int) -> VariantValue:
        value, at = self.variant_cell(start, stop, depth + 1)
        self.require_end(at, stop)
        return value

    def variant_cell(self, at: int, end: int, depth: int) -> tuple[VariantValue, int]:
        tag = self.tag(at, end, depth)
        kind = _VARIANT_KINDS.get(tag)
        if kind is None or (self._portable and kind in _NOT_PORTABLE):
            raise _malformed(at, "the tag of a value inside a variant", f"{tag:02x}")
        if kind is VariantKind.NULL:
            return VariantValue(kind, None), at + 1
        start, stop = self.body(at + 1, end)
        return self.variant_value(kind, start, stop, depth), stop

    def variant_value(self, kind: VariantKind, start: int, stop: int, depth: int) -> VariantValue:
        if kind in _VARIANT_RANGES:
            return VariantValue(kind, self.integer(start, stop, _VARIANT_RANGES[kind]))
        match kind:
            case VariantKind.BOOLEAN:
                return VariantValue(kind, self.boolean(start, stop))
            case VariantKind.DECIMAL:
                return VariantValue(kind, self.variant_decimal(start, stop))
            case VariantKind.FLOAT:
                return VariantValue(kind, self.float_bits(start, stop, 4))
            case VariantKind.DOUBLE:
                return VariantValue(kind, self.float_bits(start, stop, 8))
            case VariantKind.STRING:
                return VariantValue(kind, self.string(start, stop))
            case VariantKind.UUID:
                return VariantValue(kind, self.sized(start, stop, 16))
            case VariantKind.ARRAY:
                return VariantValue(kind, self.items(start, stop, depth))
            case VariantKind.OBJECT:
                return VariantValue(kind, self.members(start, stop, depth))
            case _:
                return VariantValue(kind, self._data[start:stop])

    def variant_decimal(self, start: int, stop: int) -> DecimalValue:
        value = self.decimal(start, stop, _VARIANT_DECIMAL_DIGITS, None)
        if value.scale > _VARIANT_DECIMAL_DIGITS:
            raise _malformed(start, f"a scale of at most {_VARIANT_DECIMAL_DIGITS}", str(value.scale))
        return value

    def items(self, at: int, stop: int, depth: int) -> tuple[VariantValue, ...]:
        values: list[VariantValue] = []
        while at < stop:
            value, at = self.variant_cell(at, stop, depth + 1)
            values.append(value)
        return tuple(values)

    def members(self, at: int, stop: int, depth: int) -> tuple[tuple[str, VariantValue], ...]:
        values: list[tuple[str, VariantValue]] = []
        while at < stop:
            name, name_stop = self.name(at, stop)
            if values and name <= values[-1][0]:
                raise _malformed(at, "names in strictly ascending order", "another order or a duplicate")
            value, at = self.variant_cell(name_stop, stop, depth + 1)
            values.append((name, value))
        return tuple(values)

    def name(self, at: int, end: int) -> tuple[str, int]:
        # A name is part of its object, not a value of its own, so it adds no depth.
        if self.tag(at, end, 0) != _STRING:
            raise _malformed(at, "the tag of a name", f"{self._data[at]:02x}")
        start, stop = self.body(at + 1, end)
        return self.string(start, stop), stop
