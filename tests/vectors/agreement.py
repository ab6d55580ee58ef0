"""Compares what the decoder reads with a value in the vectors' notation."""

from __future__ import annotations

import unicodedata
from fractions import Fraction
from typing import Any

from pvdm.model.schema import DecimalType, Kind, ListType, MapType, PrimitiveType, StructType, Type
from tests.support.oracles.canonical_values import DecimalValue, FloatBits, MapValue, StructValue, Value, VariantValue
from tests.support.rows.strategies import one_nan


def agrees(kind: Type, given: Any, decoded: Value, *, portable: bool) -> bool:
    """Whether a cell was decoded to the value that was given; of a variant only that it is one."""
    if given is None or decoded is None:
        return given is decoded
    match kind, decoded:
        case PrimitiveType(name), _:
            return _scalar_agrees(name, given, decoded, portable=portable)
        case DecimalType(_, scale, declared), DecimalValue():
            exact = Fraction(int(given["unscaled"]), 10 ** given["scale"])
            same = Fraction(decoded.unscaled, 10**decoded.scale) == exact
            return same and decoded.scale == (scale if declared is None else declared)
        case StructType(fields), StructValue():
            held = dict(decoded.fields)
            return held.keys() == given.keys() and all(
                agrees(field.type, given[field.name], held[field.name], portable=portable) for field in fields
            )
        case ListType(element), tuple():
            return len(given) == len(decoded) and all(
                agrees(element.type, one, other, portable=portable) for one, other in zip(given, decoded, strict=True)
            )
        case MapType(), MapValue():
            return len(given) == len(decoded.entries) and all(
                _has_entry(kind, pair, decoded, portable=portable) for pair in given
            )
        case _, bytes():
            return bytes.fromhex(given) == decoded
    return False


def _has_entry(kind: MapType, pair: Any, decoded: MapValue, *, portable: bool) -> bool:
    return any(
        agrees(kind.key.type, pair[0], key, portable=portable)
        and agrees(kind.value.type, pair[1], value, portable=portable)
        for key, value in decoded.entries
    )


def _scalar_agrees(kind: Kind, given: Any, decoded: Value, *, portable: bool) -> bool:
    match kind:
        case Kind.BOOLEAN:
            return decoded is given
        case Kind.FLOAT | Kind.DOUBLE:
            return decoded == FloatBits(one_nan(int(given, 16), 4 * len(given)), 4 * len(given))
        case Kind.STRING:
            text = bytes.fromhex(given["repeat"]).decode() * given["times"] if isinstance(given, dict) else given
            return decoded == (unicodedata.normalize("NFC", text) if portable else text)
        case Kind.UUID | Kind.BINARY:
            return decoded == bytes.fromhex(given)
        case Kind.VARIANT:
            return isinstance(decoded, VariantValue)
        case _:
            return decoded == int(given)
