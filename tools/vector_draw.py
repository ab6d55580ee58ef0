"""Draws types and values for the generated conformance vectors from a seed, in the notation of vectors/README.md."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, TypeVar

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
    StructType,
    Type,
)
from tools.vector_variant import Content, encode_variant

# A type or a value in the notation of vectors/README.md, which is JSON.
Json: TypeAlias = Any
_Item = TypeVar("_Item")

GEOMETRY: Final = {"crs": "OGC:CRS84", "type": "geometry"}
GEOGRAPHY: Final = {"algorithm": "spherical", "crs": "EPSG:4326", "type": "geography"}
_INT32: Final = (-(2**31), 2**31 - 1)
_INT64: Final = (-(2**63), 2**63 - 1)
RANGES: Final = {
    Kind.INT: _INT32,
    Kind.LONG: _INT64,
    Kind.DATE: _INT32,
    Kind.TIME: (0, 86_399_999_999),
    Kind.TIME_NS: (0, 86_399_999_999_999),
    Kind.TIMESTAMP: _INT64,
    Kind.TIMESTAMPTZ: _INT64,
    Kind.TIMESTAMP_NS: _INT64,
    Kind.TIMESTAMPTZ_NS: _INT64,
}
# Bit patterns: zeros, ones, subnormal and largest numbers, infinities and NaNs.
FLOATS: Final = {
    Kind.FLOAT: (
        "00000000", "80000000", "3f800000", "bf800000", "00000001", "80000001", "007fffff", "00800000", "7f7fffff",
        "7f800000", "ff800000", "7fc00000", "ffc00000", "7f800001", "7fa00000", "ffffffff", "3dcccccd", "4b800000",
    ),
    Kind.DOUBLE: (
        "0000000000000000", "8000000000000000", "3ff0000000000000", "bff0000000000000", "0000000000000001",
        "000fffffffffffff", "0010000000000000", "7fefffffffffffff", "7ff0000000000000", "fff0000000000000",
        "7ff8000000000000", "fff8000000000000", "7ff0000000000001", "7ff4000000000000", "ffffffffffffffff",
        "3fb999999999999a", "4340000000000000", "7ff8000000000001",
    ),
}  # fmt: skip
# Every code point is assigned in Unicode 14, so portable mode accepts all of them.
TEXTS: Final = (
    "", "a", " ", "\0", "a\0b", "\x7f", "\u0080", "\u07ff", "\u0800", "\ud7fb", "\ue000", "\ufffd", "\U00010000",
    "\U0001f600", "\U0010fffd", "\u00e9", "e\u0301", "\u00c5", "A\u030a", "\u212b", "\u1e69", "s\u0323\u0307",
    "s\u0307\u0323", "\u0344", "\u0958", "\u0f73\u0f71", "\u1100\u1161", "\u1100\u1161\u11a8", "\uac00\u11a8",
    "\uac01", "\U0001d15e", "\U0001d158\U0001d165", "\ufb01", "\u3000", "\u2126", "\ufeff", "\u200d", "\u0301",
    "true", "null", "0", "\\\"/\n", "caf\u00e9 cafe\u0301", "a" * 63, "a" * 64, "x" * 127, "x" * 128, "\u00e9" * 64,
    "e\u0301" * 50,
)  # fmt: skip
_LETTERS: Final = ("a", "Z", "7", " ", "\u00df", "e\u0301", "\u00f1", "\u0434", "\u540d", "\U0001f680", "\u0323\u0307")
_NAMES: Final = ("a", "b", "c", "ab", "A", "_", "a.b", "\u00e9", "\u00df", "\u540d", "\uffee", "\U0001f600", "key")
_OBJECT_NAMES: Final = ("", "a", "aa", "b", "\u00e9", "e\u0302", "\U0001f600", "\uff41", "n" * 70)
_SCALARS: Final = (
    *(kind.value for kind in Kind if kind is not Kind.UNKNOWN),
    "decimal", "decimal", "fixed(1)", "fixed(5)", "string", "variant",
)  # fmt: skip
_NOT_PORTABLE: Final = frozenset({"float", "double"})
WKB_POINT: Final = "0101000000000000000000f03f0000000000000040"  # POINT (1 2) in well-known binary


class Draw:
    """Random numbers that depend on the seed alone, and are the same in every version of Python."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._drawn = 0

    def below(self, bound: int) -> int:
        """A number from 0 to `bound` - 1, all about equally likely if `bound` is at most about 2^400."""
        self._drawn += 1
        return int.from_bytes(hashlib.sha512(f"{self._seed}/{self._drawn}".encode()).digest(), "big") % bound

    def between(self, low: int, high: int) -> int:
        """A number from `low` to `high`."""
        return low + self.below(high - low + 1)

    def pick(self, items: Sequence[_Item]) -> _Item:
        """One of the items."""
        return items[self.below(len(items))]

    def chance(self, percent: int) -> bool:
        """True with this probability."""
        return self.below(100) < percent

    def shuffled(self, items: Sequence[_Item]) -> list[_Item]:
        """The items in another order."""
        left = list(items)
        return [left.pop(self.below(len(left))) for _ in items]

    def hex(self, length: int) -> str:
        """This many bytes, as hexadecimal digits."""
        return "".join(f"{self.below(256):02x}" for _ in range(length))


# Types, in the notation: JSON keeps the order of struct fields.


def draw_type(draw: Draw, *, portable: bool, depth: int) -> Json:
    """A type that nests exactly `depth` values inside one another; a variant counts as one."""
    if depth == 1:
        return _scalar(draw, portable=portable)
    match draw.below(5):
        case 0 | 1:
            return {"element": _inner(draw, portable, depth - 1), "type": "list"}
        case 2 | 3:
            names = draw.shuffled(_NAMES)[: draw.between(1, 3)]
            depths = draw.shuffled([depth - 1, *(draw.between(1, depth - 1) for _ in names[1:])])
            pairs = zip(names, depths, strict=True)
            fields = [{"name": name, **_inner(draw, portable, inner_depth)} for name, inner_depth in pairs]
            return {"fields": fields, "type": "struct"}
        case _:
            key = {"required": True, "type": _key_type(draw, portable, depth - 1)}
            return {"key": key, "type": "map", "value": _inner(draw, portable, depth - 1)}


def _scalar(draw: Draw, *, portable: bool) -> Json:
    name = draw.pick([name for name in _SCALARS if not (portable and name in _NOT_PORTABLE)])
    if name == "decimal":
        precision = draw.pick((1, 9, 18, 20, 38, 39, 76, draw.between(1, 76)))
        text = f"decimal({precision},{draw.between(0, precision)})"
        return f"{text}@{draw.between(0, precision)}" if portable else text
    if name == "binary" and not portable and draw.chance(50):
        return draw.pick((GEOMETRY, GEOGRAPHY))
    return "unknown" if draw.chance(2) else name


def _inner(draw: Draw, portable: bool, depth: int) -> Json:
    kind = draw_type(draw, portable=portable, depth=depth)
    return {"required": kind != "unknown" and draw.chance(30), "type": kind}


def _key_type(draw: Draw, portable: bool, depth: int) -> Json:
    # Equal variants may differ in every byte, and `unknown` has no value for a key: neither is drawn.
    kind = "variant"
    while kind in {"variant", "unknown"}:
        kind = _scalar(draw, portable=portable)
    if depth > 1 and draw.chance(25):
        slot = {"required": draw.chance(50), "type": kind}
        return draw.pick(
            ({"element": slot, "type": "list"}, {"fields": [{"name": "k", **slot}], "type": "struct"}),
        )
    return kind


# Values.


def draw_value(draw: Draw, kind: Type, *, portable: bool) -> Json:
    """A value of that type, never null except for the type `unknown`."""
    match kind:
        case PrimitiveType(name):
            return _primitive(draw, name, portable=portable)
        case DecimalType():
            return _decimal(draw, kind)
        case FixedType(length):
            return draw.hex(length)
        case GeoType():
            return "0101000000" + draw.hex(16)
        case StructType(fields):
            return {field.name: draw_slot(draw, field, portable=portable) for field in fields}
        case ListType(element):
            return [draw_slot(draw, element, portable=portable) for _ in range(draw.below(4))]
        case MapType():
            return _pairs(draw, kind, portable=portable)


def draw_slot(draw: Draw, slot: Field | Inner, *, portable: bool) -> Json:
    """A value for a column, field, element or map value; sometimes null if it is not required."""
    if not slot.required and draw.chance(15):
        return None
    return draw_value(draw, slot.type, portable=portable)


def _pairs(draw: Draw, kind: MapType, *, portable: bool) -> Json:
    pairs: dict[str, Json] = {}
    for _ in range(draw.below(4)):
        key = draw_value(draw, kind.key.type, portable=portable)
        # Keys that are equal in portable mode count as one key here; -0.0 and 0.0 count as two.
        normalized = unicodedata.normalize("NFC", json.dumps(key, ensure_ascii=False))
        pairs.setdefault(normalized, [key, draw_slot(draw, kind.value, portable=portable)])
    return list(pairs.values())


def _primitive(draw: Draw, kind: Kind, *, portable: bool) -> Json:
    if kind in RANGES:
        return str(draw_integer(draw, *RANGES[kind]))
    match kind:
        case Kind.BOOLEAN:
            return draw.chance(50)
        case Kind.FLOAT | Kind.DOUBLE:
            return draw.pick(FLOATS[kind]) if draw.chance(50) else draw.hex(4 if kind is Kind.FLOAT else 8)
        case Kind.STRING:
            return draw_text(draw)
        case Kind.UUID:
            return draw.hex(16)
        case Kind.BINARY:
            return draw.hex(draw.below(9))
        case Kind.VARIANT:
            return encode_variant(draw_content(draw, portable=portable, depth=3), draw.below)
        case _:
            return None


def draw_integer(draw: Draw, low: int, high: int) -> int:
    """A number of any length between `low` and `high`, in 15 % of the draws a bound or zero."""
    if draw.chance(15):
        return draw.pick((low, high, max(low, 0)))
    number = draw.below(10 ** draw.between(1, 19))
    return min(max(-number if draw.chance(40) else number, low), high)


def draw_text(draw: Draw) -> str:
    """A known difficult string, or some letters."""
    return draw.pick(TEXTS) if draw.chance(50) else "".join(draw.pick(_LETTERS) for _ in range(draw.below(9)))


def _decimal(draw: Draw, kind: DecimalType) -> Json:
    # The value must be exact at the declared scale too, without more digits there than the type has.
    coarse = kind.scale if kind.declared_scale is None else min(kind.scale, kind.declared_scale)
    fine = kind.scale if kind.declared_scale is None else max(kind.scale, kind.declared_scale)
    digits = kind.precision - fine + coarse
    number = draw.below(10 ** draw.between(0, digits)) * (-1 if draw.chance(40) else 1)
    return {"unscaled": str(number * 10 ** (kind.scale - coarse)), "scale": kind.scale}


def draw_content(draw: Draw, *, portable: bool, depth: int) -> Content:
    """The content of a variant, with at most `depth` values inside one another."""
    scalars: list[Callable[[], Content]] = [
        lambda: ("null", None),
        lambda: ("boolean", draw.chance(50)),
        lambda: ("integer", draw_integer(draw, *_INT64)),
        lambda: ("date", draw_integer(draw, *_INT32)),
        lambda: ("time", draw_integer(draw, *RANGES[Kind.TIME])),
        lambda: (draw.pick(("timestamp", "timestamptz")), draw_integer(draw, *_INT64)),
        lambda: (draw.pick(("timestamp_ns", "timestamptz_ns")), draw_integer(draw, *_INT64)),
        lambda: ("string", draw_text(draw)),
        lambda: ("uuid", bytes.fromhex(draw.hex(16))),
        lambda: ("binary", bytes.fromhex(draw.hex(draw.below(9)))),
    ]
    if not portable:
        scalars.append(lambda: ("decimal", (draw_integer(draw, *_INT64) * 10 ** draw.below(19), draw.below(39))))
        scalars.append(lambda: ("float", bytes.fromhex(draw.pick(FLOATS[Kind.FLOAT]))))
        scalars.append(lambda: ("double", bytes.fromhex(draw.pick(FLOATS[Kind.DOUBLE]))))
    if depth == 1 or draw.chance(50):
        return draw.pick(scalars)()
    if draw.chance(50):
        return "array", [draw_content(draw, portable=portable, depth=depth - 1) for _ in range(draw.below(4))]
    names = draw.shuffled(_OBJECT_NAMES)[: draw.below(4)]
    return "object", {name: draw_content(draw, portable=portable, depth=depth - 1) for name in names}
