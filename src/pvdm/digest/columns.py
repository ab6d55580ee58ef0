"""Reads Arrow arrays of any layout as values of their logical type (spec/canonical.md section 7.1).

Temporal values are read as integers, floats as bits, text as bytes. No value becomes a Python date or Decimal, which
could lose or refuse it.
"""

from __future__ import annotations

import math
import struct
import sys
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyarrow import lib

from pvdm.errors import Code, InputError, PvdmError

_OFFSET_LISTS: Final = {lib.Type_LIST: "i", lib.Type_LARGE_LIST: "q", lib.Type_MAP: "i"}  # letters of `struct`
_VIEW_LISTS: Final = {lib.Type_LIST_VIEW: "i", lib.Type_LARGE_LIST_VIEW: "q"}

Translation: TypeAlias = Callable[[int], Any]
"""Maps a position in a column to the position of the value in an inner column; None for a null."""


def _not_readable(at: int) -> Any:
    raise AssertionError(f"position {at}: this column has no value or no span")


@dataclass(frozen=True, slots=True)
class Column:
    """An opened array. `value` and `span` may be called only where `is_null` is false."""

    is_null: Callable[[int], bool]
    value: Callable[[int], Any] = _not_readable
    """Scalars: bool, int (floats as bits, decimals unscaled) or bytes."""
    span: Callable[[int], range] = _not_readable
    """Lists and maps: the positions of the elements in `parts`."""
    parts: Mapping[str, Column] = field(default_factory=dict)
    """Struct fields by name, at the same position; or `element`, or `key` and `value`, at the positions of `span`."""


def _arrow_invalid(expected: str, got: str) -> PvdmError:
    return Code.ARROW_INVALID(expected=expected, got=got[:200])


def open_column(array: Any) -> Column:
    """A column over an array of any supported layout that `check_batch` accepted; raises `arrow_invalid`."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return open_column(array.storage)
    match kind.id:
        case lib.Type_NA:
            return Column(is_null=lambda _: True)
        case lib.Type_DICTIONARY:
            return _open_dictionary(array)
        case lib.Type_RUN_END_ENCODED:
            return _open_run_ends(array)
        case lib.Type_STRUCT:
            # `field` cuts the child to the parent's slice; callers check the parent's nulls first.
            parts = {kind.field(at).name: open_column(array.field(at)) for at in range(kind.num_fields)}
            return Column(_nulls(array), parts=parts)
    if kind.id in _OFFSET_LISTS:
        return _open_offset_list(array)
    if kind.id in _VIEW_LISTS:
        return _open_view_list(array)
    if kind.id == lib.Type_FIXED_SIZE_LIST:
        size = kind.list_size
        element = open_column(array.values.slice(array.offset * size, len(array) * size))
        return Column(_nulls(array), span=lambda at: range(at * size, (at + 1) * size), parts={"element": element})
    return Column(_nulls(array), value=_scalars(array))


def _open_dictionary(array: Any) -> Column:
    index, size = open_column(array.indices), len(array.dictionary)

    def translate(at: int) -> int | None:
        if index.is_null(at):
            return None
        found: int = index.value(at)
        if not 0 <= found < size:
            raise _arrow_invalid(f"a dictionary index below {size}", str(found))
        return found

    return _translate_column(translate, open_column(array.dictionary))


def _open_run_ends(array: Any) -> Column:
    ends, start = _numbers(array.run_ends, _CODES[array.run_ends.type.id]), array.offset
    if any(left >= right for left, right in pairwise((0, *ends))) or (len(array) and ends[-1] < start + len(array)):
        raise _arrow_invalid(f"ascending run ends up to {start + len(array)}", "other run ends")
    return _translate_column(lambda at: bisect_right(ends, start + at), open_column(array.values))


def _translate_column(translate: Translation, inner: Column) -> Column:
    """A column whose value at `at` is that of `inner` at `translate(at)`, or null."""

    def is_null(at: int) -> bool:
        inner_at = translate(at)
        return inner_at is None or inner.is_null(inner_at)

    if inner.span is not _not_readable:  # a list or map; its parts are read at positions of the span
        return Column(is_null, span=lambda at: inner.span(translate(at)), parts=inner.parts)
    parts = {name: _translate_column(translate, part) for name, part in inner.parts.items()}
    return Column(is_null, value=lambda at: inner.value(translate(at)), parts=parts)


def _open_offset_list(array: Any) -> Column:
    values = array.values
    offsets = _offsets(array, _OFFSET_LISTS[array.type.id], len(values))
    # Only the values of this slice are opened, and spans count from their start.
    start = offsets[0]
    inside = values.slice(start, offsets[-1] - start)
    if array.type.id == lib.Type_MAP:
        # `keys` and `items` would ignore that the entries may be a slice themselves.
        parts = {"key": open_column(inside.field(0)), "value": open_column(inside.field(1))}
    else:
        parts = {"element": open_column(inside)}
    return Column(_nulls(array), span=lambda at: range(offsets[at] - start, offsets[at + 1] - start), parts=parts)


def _open_view_list(array: Any) -> Column:
    code, size = _VIEW_LISTS[array.type.id], len(array.values)
    starts, sizes = _numbers(array, code, buffer=1), _numbers(array, code, buffer=2)

    def span(at: int) -> range:
        found = range(starts[at], starts[at] + sizes[at])
        if not 0 <= found.start <= found.stop <= size:
            raise _arrow_invalid(f"a list inside its {size} values", f"{found.start} to {found.stop}")
        return found

    return Column(_nulls(array), span=span, parts={"element": open_column(array.values)})


# --- Buffers ---


def _window(buffer: pa.Buffer | None, start: int, size: int) -> memoryview:
    """`size` bytes from `start`; a buffer that ends before them is refused."""
    data = memoryview(b"") if buffer is None else memoryview(buffer).cast("B")
    if len(data) < start + size:
        raise _arrow_invalid(f"a buffer of at least {start + size} bytes", str(len(data)))
    return data[start : start + size]


def _numbers(array: Any, code: str, *, buffer: int = 1, extra: int = 0) -> Sequence[int]:
    """The integers of one buffer from the array's offset on: one for each item, and `extra` others after them."""
    width, count = struct.calcsize("=" + code), len(array) + extra
    return _window(array.buffers()[buffer], array.offset * width, count * width).cast(code)  # type: ignore[call-overload,no-any-return]


def _offsets(array: Any, code: str, end: int) -> Sequence[int]:
    """The ascending offsets of lists, strings or binaries, all within 0 and `end`. An empty array gives one offset."""
    if not len(array):
        return (0,)
    offsets = _numbers(array, code, extra=1)
    if offsets[0] < 0 or offsets[-1] > end or any(left > right for left, right in pairwise(offsets)):
        raise _arrow_invalid(f"ascending offsets from 0 to {end}", f"others, from {offsets[0]} to {offsets[-1]}")
    return offsets


def _bits(array: Any, buffer: int) -> Callable[[int], bool]:
    """Whether the bit for a position is set in one of the array's buffers."""
    start = array.offset
    data = _window(array.buffers()[buffer], 0, (start + len(array) + 7) // 8)
    return lambda at: bool(data[(start + at) >> 3] >> ((start + at) & 7) & 1)


def _nulls(array: Any) -> Callable[[int], bool]:
    """Whether the value at a position is null."""
    if array.buffers()[0] is None:
        return lambda _: False
    valid = _bits(array, 0)
    return lambda at: not valid(at)


# By letter of Python's `struct`: the Arrow types whose integers, or whose floats' bits, have this format.
_STORED_AS: Final[dict[str, tuple[Any, ...]]] = {
    "b": (lib.Type_INT8,),
    "h": (lib.Type_INT16,),
    "i": (lib.Type_INT32, lib.Type_DATE32, lib.Type_TIME32),
    "q": (lib.Type_INT64, lib.Type_DATE64, lib.Type_TIME64, lib.Type_TIMESTAMP),
    "B": (lib.Type_UINT8,),
    "H": (lib.Type_UINT16, lib.Type_HALF_FLOAT),
    "I": (lib.Type_UINT32, lib.Type_FLOAT),
    "Q": (lib.Type_UINT64, lib.Type_DOUBLE),
}
_CODES: Final = {arrow: code for code, types in _STORED_AS.items() for arrow in types}
_BYTES: Final = {lib.Type_STRING: "i", lib.Type_BINARY: "i", lib.Type_LARGE_STRING: "q", lib.Type_LARGE_BINARY: "q"}
_MICROSECONDS: Final = {"s": 1_000_000, "ms": 1_000}
DAY_MILLISECONDS: Final = 86_400_000


def _scalars(array: Any) -> Callable[[int], Any]:
    kind = array.type
    if kind.id in _CODES:
        return _convert_units(kind, _numbers(array, _CODES[kind.id]))
    if kind.id == lib.Type_BOOL:
        return _bits(array, 1)
    if kind.id in _BYTES:
        buffer = array.buffers()[2]
        data = _window(buffer, 0, 0 if buffer is None else buffer.size)
        offsets = _offsets(array, _BYTES[kind.id], len(data))
        return lambda at: bytes(data[offsets[at] : offsets[at + 1]])
    if kind.id in (lib.Type_STRING_VIEW, lib.Type_BINARY_VIEW):
        return _views(array)
    width = kind.byte_width
    data = _window(array.buffers()[1], array.offset * width, len(array) * width)
    if kind.id == lib.Type_FIXED_SIZE_BINARY:
        return lambda at: bytes(data[at * width : (at + 1) * width])
    return lambda at: int.from_bytes(data[at * width : (at + 1) * width], sys.byteorder, signed=True)


def _views(array: Any) -> Callable[[int], bytes]:
    """Strings and binaries that lie in their view (up to 12 bytes) or in one of several buffers."""
    _, first, *others = array.buffers()
    views = _window(first, array.offset * 16, len(array) * 16)

    def value(at: int) -> bytes:
        view = views[at * 16 : (at + 1) * 16]
        size, prefix, buffer, start = struct.unpack("=i4sii", view)
        if 0 <= size <= 12:
            return bytes(view[4 : 4 + size])
        if size < 0 or not 0 <= buffer < len(others) or start < 0:
            raise _arrow_invalid("a view into one of the buffers", f"size {size}, buffer {buffer}, start {start}")
        found = bytes(_window(others[buffer], start, size))
        if found[:4] != prefix:
            raise _arrow_invalid("a view that repeats the first four bytes", "other bytes")
        return found

    return value


def _convert_units(kind: Any, numbers: Sequence[int]) -> Callable[[int], int]:
    """Numbers in the logical type's unit: date64 as days, s and ms as microseconds, half floats as binary32 bits."""
    match kind.id:
        case lib.Type_HALF_FLOAT:
            return lambda at: widen(numbers[at], HALF, SINGLE)
        case lib.Type_DATE64:
            return lambda at: _to_days(numbers[at])
        case lib.Type_TIME32 | lib.Type_TIMESTAMP if kind.unit in _MICROSECONDS:
            factor = _MICROSECONDS[kind.unit]
            return lambda at: require_within(numbers[at] * factor, bits=64)
    return numbers.__getitem__  # all others are in that unit already


def _to_days(milliseconds: int) -> int:
    days, rest = divmod(milliseconds, DAY_MILLISECONDS)
    if rest:
        message, got = "the date is not a whole day", f"{rest} ms after it"
        raise InputError(Code.VALUE_OUT_OF_RANGE, message, expected="midnight", got=got)
    return require_within(days, bits=32)


def require_within(number: int, *, bits: int) -> int:
    """The number. Raises if it does not fit into a signed integer of this many bits."""
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        message, expected = "the value is out of the type's range", f"a signed integer of {bits} bits"
        raise InputError(Code.VALUE_OUT_OF_RANGE, message, expected=expected, got=str(number))
    return number


# IEEE-754 formats by their letters in `struct`, and the one NaN that is written: quiet, without sign or payload.
HALF: Final = "e"
SINGLE: Final = "f"
DOUBLE: Final = "d"
_NAN_BITS: Final = {SINGLE: 0x7FC0_0000, DOUBLE: 0x7FF8_0000_0000_0000}


def _to_float(bits: int, letter: str) -> float:
    number: float = struct.unpack(f">{letter}", bits.to_bytes(struct.calcsize(letter), "big"))[0]
    return number


def canonicalize_nan(bits: int, letter: str) -> int:
    """Replace every NaN by the format's one NaN (spec/canonical.md section 5.3)."""
    return _NAN_BITS[letter] if math.isnan(_to_float(bits, letter)) else bits


def widen(bits: int, narrow: str, wide: str) -> int:
    """The same number in a wider format; any NaN becomes the one NaN of `wide`. A float of Python is exact for both."""
    number = _to_float(bits, narrow)
    return _NAN_BITS[wide] if math.isnan(number) else int.from_bytes(struct.pack(f">{wide}", number), "big")
