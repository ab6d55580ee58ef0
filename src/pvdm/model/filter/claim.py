"""Claims: the part of a target that an append workload reserves, as a range of encoded values of one column."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

from pvdm.errors import Code
from pvdm.model.filter.literal import literal_text
from pvdm.model.schema import Kind, PrimitiveType

CLAIM_VALUE_MAX_BYTES: Final = 1024
WAY_TO_CORRECT: Final = "an operator migrates the table to a contract that overwrites"
"""How to correct published rows: no workload can append to their claim. Errors and outcomes of runs show this text."""

_INTEGER_TYPES: Final = frozenset(
    {"int", "long", "date", "time", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"}
)
_DECIMAL: Final = re.compile(r"decimal\((\d{1,2}), ?(\d{1,2})\)")
_DECIMAL_BYTES: Final = 33  # enough for 76 digits and the sign
_LONG_LAST: Final = 2**63 - 1
_NULL: Final = b"\x00"  # the encoding of null: it sorts before all values
_VALUE: Final = b"\x01"  # the first byte of every value's encoding
_ABOVE_VALUES: Final = b"\x02"

ClaimValue = bool | int | str | bytes | uuid.UUID | None


@dataclass(frozen=True, slots=True)
class Claim:
    """A half-open range of one column's values. `upper` None: the range has no end. `column` None: all rows.

    `lower` and `upper` are encoded values, `kind` is the encoding, and `text` is the claim for people. `column` is the
    column's name, or after `of_column` its identity, as in `target field 3`. Ranges are compared only if `column` and
    `kind` are the same; all other claims count as overlapping.
    """

    column: str | None
    kind: str | None
    lower: bytes
    upper: bytes | None
    text: str

    @classmethod
    def everything(cls) -> Claim:
        """The whole target, rows with a null claim column included."""
        return cls(None, None, b"", None, "everything")

    @classmethod
    def value(cls, column: str, column_type: str, value: ClaimValue) -> Claim:
        """The rows with exactly this value in the column; None is null."""
        key = _encode(column_type, value)
        text = f"{column} = {value_text(column_type, value)}"
        return cls(column, _encoding_of(column_type), key, key + b"\x00", text)

    @classmethod
    def between(
        cls,
        column: str,
        column_type: str,
        lower: ClaimValue,
        upper: ClaimValue,
        *,
        after_lower: bool = False,
        after_upper: bool = False,
    ) -> Claim:
        """Values from `lower` (excluded if `after_lower`) to `upper` (included if `after_upper`). None is no bound."""
        low = _VALUE if lower is None else edge(column_type, lower, after=after_lower)
        high = _ABOVE_VALUES if upper is None else edge(column_type, upper, after=after_upper)
        first, last = value_text(column_type, lower), value_text(column_type, upper)
        if low >= high:
            raise Code.CLAIM_INVALID(expected="a lower bound below the upper one", got=f"{first} to {last}")
        above = "" if lower is None else f"{first} {'<' if after_lower else '<='} "
        below = "" if upper is None else f" {'<=' if after_upper else '<'} {last}"
        return cls(column, _encoding_of(column_type), low, high, f"{above}{column}{below}")

    def of_column(self, identity: str) -> Claim:
        """The same range of the column with this identity. `text` keeps the column's name."""
        return replace(self, column=identity)


def way_to_publish_rest(claim: str) -> str:
    """How to publish the remaining rows of a workload that has this claim and cannot continue."""
    return (
        f"the claim on {claim} stays, also on what is not published: no other workload can append to it; "
        f"to publish the rest, {WAY_TO_CORRECT}, and you run the whole part under a new workload id"
    )


def _encoding_of(column_type: str) -> str:
    """The encoding of a type's values. A wider type has the same encoding, so a widened column keeps its claims."""
    if column_type in ("int", "long"):
        return "integer"
    if found := _DECIMAL.fullmatch(column_type):
        return f"decimal scale {int(found[2])}"
    if column_type in _INTEGER_TYPES or column_type in ("boolean", "string", "uuid", "binary"):
        return column_type
    if column_type.startswith("fixed["):
        return "binary"
    raise Code.CLAIM_INVALID(expected="a claim column of a type with one total order", got=column_type)


def _encode(column_type: str, value: ClaimValue) -> bytes:
    """Bytes with the order of the values; null comes first."""
    encoding = _encoding_of(column_type)
    if value is None:
        return _NULL
    match encoding, value:
        case "boolean", bool():
            body = b"\x01" if value else b"\x00"
        case _, bool():
            raise Code.CLAIM_INVALID(expected=column_type, got="a boolean")
        case "string", str():
            body = _encode_text(value)
        case "uuid", uuid.UUID():
            body = value.bytes
        case "binary", bytes():
            body = value
        case _, int() if encoding.startswith("decimal"):
            body = _encode_integer(value, _DECIMAL_BYTES)
        case _, int() if encoding == "integer" or encoding in _INTEGER_TYPES:
            body = _encode_integer(value, 8)
        case _:
            raise Code.CLAIM_INVALID(expected=f"a value of type {column_type}", got=type(value).__name__)
    if len(body) > CLAIM_VALUE_MAX_BYTES:
        raise Code.CLAIM_INVALID(expected=f"at most {CLAIM_VALUE_MAX_BYTES} bytes", got=str(len(body)))
    return _VALUE + body


def edge(column_type: str, value: ClaimValue, *, after: bool) -> bytes:
    """The encoded begin or end of a range: just before the value, or `after` it (a zero byte is added)."""
    return _encode(column_type, value) + (b"\x00" if after else b"")


def _encode_integer(value: int, width: int) -> bytes:
    try:
        return (value + (1 << (8 * width - 1))).to_bytes(width, "big")  # shifted, so that no value is negative
    except OverflowError:
        raise Code.CLAIM_INVALID(expected=f"a number of {width} bytes", got=str(value)[:40]) from None


def _encode_text(value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise Code.CLAIM_INVALID(expected="well-formed Unicode", got="a lone surrogate") from None


def value_text(column_type: str, value: ClaimValue) -> str:
    """The value as a filter spells it, quoted and escaped; a plain number if it has no spelling (the year 10000)."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case bytes():
            return f"0x{value.hex()}"
        case str():
            return ascii(value)
        case int():
            return _spell(column_type, value) or str(value)
        case _:
            return str(value)


def _spell(column_type: str, value: int) -> str | None:
    if found := _DECIMAL.fullmatch(column_type):
        return f"{Decimal((int(value < 0), tuple(map(int, str(abs(value)))), -int(found[2]))):f}"
    return literal_text(value, PrimitiveType(Kind(column_type))) if column_type in _INTEGER_TYPES else None


def successor(column_type: str, value: ClaimValue) -> int | None:
    """The next value of an integer type; None for other types, and if it is too large or has no spelling."""
    if not isinstance(value, int) or isinstance(value, bool) or value == _LONG_LAST:
        return None
    return None if _spell(column_type, value + 1) is None else value + 1
