"""Writes variants for the generated conformance vectors in the Parquet variant encoding, version 1."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

Content: TypeAlias = tuple[str, Any]
"""The kind of a value and the value: numbers, text, bytes, a list of contents or a dictionary from name to content."""

Below: TypeAlias = Callable[[int], int]
"""Chooses one of several equivalent layouts: called with their number, it returns an index."""

# Type codes of the encoding with their sizes in bytes; for decimals also the most digits.
_INTEGERS: Final = ((3, 1), (4, 2), (5, 4), (6, 8))
_DECIMALS: Final = ((8, 4, 9), (9, 8, 18), (10, 16, 38))
_TIMES: Final = {
    "date": (11, 4),
    "timestamptz": (12, 8),
    "timestamp": (13, 8),
    "time": (17, 8),
    "timestamptz_ns": (18, 8),
    "timestamp_ns": (19, 8),
}
_SHORT_STRING_MAX_BYTES: Final = 63


def choose_first(_bound: int) -> int:
    """Always choose the first layout, which is the smallest."""
    return 0


def encode_variant(content: Content, below: Below) -> dict[str, str]:
    """The metadata and the value of a variant, in hex."""
    names = sorted(set(_names(content)))
    if below(3) == 1:  # an unused name, and names that are not sorted, are valid too
        names.append("unused")
        names = names[::-1]
    ids = {name: index for index, name in enumerate(names)}
    return {"metadata": _metadata(names, below).hex(), "value": _value(content, ids, below).hex()}


def _names(content: Content) -> Iterator[str]:
    kind, held = content
    if kind == "object":
        yield from held
    if kind in {"object", "array"}:
        for child in held.values() if kind == "object" else held:
            yield from _names(child)


def _numbers(numbers: Sequence[int], width: int) -> bytes:
    return b"".join(number.to_bytes(width, "little") for number in numbers)


def _signed(number: int, width: int) -> bytes:
    return number.to_bytes(width, "little", signed=True)


def _width(largest: int, below: Below) -> int:
    """Bytes for numbers up to `largest`: as many as needed, or more, up to 4."""
    needed = max(1, (largest.bit_length() + 7) // 8)
    return needed + below(5 - needed)


def _ends(parts: Sequence[bytes]) -> list[int]:
    """Where each part ends if the parts follow one another, after a leading 0."""
    ends = [0]
    for part in parts:
        ends.append(ends[-1] + len(part))
    return ends


def _metadata(names: Sequence[str], below: Below) -> bytes:
    strings = [name.encode() for name in names]
    ends = _ends(strings)
    width = _width(max(ends[-1], len(strings)), below)
    is_sorted = strings == sorted(strings) and below(2) == 1
    header = 0x01 | is_sorted << 4 | (width - 1) << 6  # version 1, the flag for sorted names, the width of numbers
    return bytes([header]) + _numbers([len(strings), *ends], width) + b"".join(strings)


def _value(content: Content, ids: dict[str, int], below: Below) -> bytes:
    kind, held = content
    match kind:
        case "null":
            return b"\x00"
        case "boolean":
            return bytes([(1 if held else 2) << 2])
        case "integer":
            fits = [(code, size) for code, size in _INTEGERS if -(1 << 8 * size - 1) <= held < 1 << 8 * size - 1]
            code, size = fits[below(len(fits))]
            return bytes([code << 2]) + _signed(held, size)
        case "decimal":
            unscaled, scale = held
            fits = [(code, size) for code, size, digits in _DECIMALS if abs(unscaled) < 10**digits]
            code, size = fits[below(len(fits))]
            return bytes([code << 2, scale]) + _signed(unscaled, size)
        case "float" | "double":
            return bytes([(14 if kind == "float" else 7) << 2]) + bytes(held[::-1])
        case "string":
            return _string(held.encode(), below)
        case "binary":
            return bytes([15 << 2]) + _numbers([len(held)], 4) + bytes(held)
        case "uuid":
            return bytes([20 << 2]) + bytes(held)
        case "array":
            return _array([_value(item, ids, below) for item in held], below)
        case "object":
            return _object(held, ids, below)
        case _:
            code, size = _TIMES[kind]
            return bytes([code << 2]) + _signed(held, size)


def _string(text: bytes, below: Below) -> bytes:
    if len(text) <= _SHORT_STRING_MAX_BYTES and below(2) == 0:
        return bytes([0x01 | len(text) << 2]) + text
    return bytes([16 << 2]) + _numbers([len(text)], 4) + text


def _array(parts: Sequence[bytes], below: Below) -> bytes:
    ends = _ends(parts)
    width = _width(ends[-1], below)
    large = len(parts) > 255 or below(4) == 1
    header = 0x03 | (width - 1) << 2 | large << 4
    return bytes([header]) + _numbers([len(parts)], 4 if large else 1) + _numbers(ends, width) + b"".join(parts)


def _object(held: dict[str, Content], ids: dict[str, int], below: Below) -> bytes:
    names = sorted(held)
    parts = [_value(held[name], ids, below) for name in names]
    order = list(range(len(parts)))
    if below(2) == 1:
        order.reverse()  # values may lie in another order than names
    starts, size = [0] * len(parts), 0
    for index in order:
        starts[index] = size
        size += len(parts[index])
    width = _width(size, below)
    id_width = _width(len(ids), below)
    large = len(parts) > 255 or below(4) == 1
    header = 0x02 | (width - 1) << 2 | (id_width - 1) << 4 | large << 6
    return b"".join(
        (
            bytes([header]),
            _numbers([len(parts)], 4 if large else 1),
            _numbers([ids[name] for name in names], id_width),
            _numbers([*starts, size], width),
            *(parts[index] for index in order),
        )
    )
