"""Lossless JSON: every number keeps its spelling, every key its place; duplicate keys, NaN and depth are refused."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, NoReturn, TypeAlias

from pvdm.errors import Code, InputError

Json: TypeAlias = "bool | int | str | Number | Sequence[Json] | Mapping[str, Json] | None"

METADATA_SIZE_MAX_BYTES: Final = 134_217_728
JSON_DEPTH_MAX: Final = 256
JSON_VALUES_MAX: Final = 8_000_000
# Iceberg's own reader takes no longer one, and no table may be unreadable.
NUMBER_MAX_CHARACTERS: Final = 1_000
LONG_MIN: Final = -(2**63)
LONG_LAST: Final = 2**63 - 1

_GZIP_MAGIC: Final = b"\x1f\x8b"
_PIECE_BYTES: Final = 32_768
_STEP: Final = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1, ord(","): 0}
_NOT_MARKS: Final = bytes(set(range(256)) - _STEP.keys())
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")


@dataclass(frozen=True, slots=True)
class Number:
    """A JSON number that is no plain integer, kept as it was spelled."""

    text: str


def parse_json(data: bytes, *, what: str = "the document", size_max_bytes: int = METADATA_SIZE_MAX_BYTES) -> Json:
    """The one JSON value that the bytes spell."""
    require_size(data, size_max_bytes)
    _judge_shape(data, what)
    try:
        value: Json = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_distinct,
            parse_int=_integer,
            parse_float=_spelled_number,
            parse_constant=_no_constant,
        )
    except UnicodeDecodeError as error:
        raise _malformed("UTF-8", f"{error.reason} at byte {error.start}", what) from None
    except ValueError as error:
        raise _malformed("one JSON value", str(error)[:200], what) from None
    if _SURROGATE.search(data):
        _judge_text(value)
    return value


def require_size(data: bytes, size_max_bytes: int = METADATA_SIZE_MAX_BYTES) -> bytes:
    """The bytes, if they are not too many: what could not be read again must not be written."""
    if len(data) > size_max_bytes:
        raise _too_large(size_max_bytes, str(len(data)))
    return data


def dump_json(value: Json, *, sort_keys: bool = False) -> bytes:
    """The value in one line of UTF-8; keys in their order, or sorted when two values are to be compared."""
    try:
        text = json.dumps(
            value, ensure_ascii=False, separators=(",", ":"), sort_keys=sort_keys, allow_nan=False, default=_spelled
        )
    except _SpelledNumber:
        parts: list[str] = []
        _write(value, parts, sort_keys)
        text = "".join(parts)
    return text.encode("utf-8")


def canonical(value: Json) -> str:
    """Text that is equal for equal values only (`1` and `true` are not equal, as Python would have it)."""
    return dump_json(value, sort_keys=True).decode("utf-8")


def unzip(data: bytes, *, size_max_bytes: int = METADATA_SIZE_MAX_BYTES) -> bytes:
    """The bytes, decompressed if they are gzip (JSON never starts as gzip does); a bomb is refused unexploded."""
    if not data.startswith(_GZIP_MAGIC):
        return data
    # One stream and no more: a file of many empty ones would take minutes.
    inflater = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        found = inflater.decompress(data, size_max_bytes + 1)
    except zlib.error as error:
        raise _gzip_malformed(str(error)[:120]) from None
    if len(found) > size_max_bytes:
        raise _too_large(size_max_bytes, "more after decompression")
    if not inflater.eof or inflater.unused_data:
        raise _gzip_malformed("bytes after the end" if inflater.eof else "an end that is missing")
    return found


def zipped(data: bytes) -> bytes:
    """The same bytes for the same input: no time, no name in the header."""
    return gzip.compress(data, mtime=0)


class _SpelledNumber(Exception):  # noqa: N818 - a signal to take the slow path, never seen outside
    pass


def _spelled(value: object) -> NoReturn:
    if isinstance(value, Number):
        raise _SpelledNumber
    raise _malformed("null, booleans, numbers, strings, arrays and objects", type(value).__name__)


def _write(value: Json, parts: list[str], sort_keys: bool) -> None:
    """Numbers as they were spelled; the standard encoder cannot, so only documents that have some come here."""
    match value:
        case Number(text):
            parts.append(text)
        case str():
            parts.append(json.dumps(value, ensure_ascii=False))
        case Mapping():
            parts.append("{")
            for position, key in enumerate(sorted(value) if sort_keys else value):
                parts.append(("," if position else "") + json.dumps(key, ensure_ascii=False) + ":")
                _write(value[key], parts, sort_keys)
            parts.append("}")
        case list() | tuple():
            parts.append("[")
            for position, inner in enumerate(value):
                parts.append("," if position else "")
                _write(inner, parts, sort_keys)
            parts.append("]")
        case _:
            parts.append(json.dumps(value, default=_spelled))


def _judge_shape(data: bytes, what: str) -> None:
    """Depth and number of values, before any of them is made; piece by piece, so that memory stays small."""
    depth = values = start = 0
    inside = False
    while start < len(data):
        piece = data[start : start + _PIECE_BYTES]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:
            piece += data[start + len(piece) : start + len(piece) + 1]  # an escape is not cut in two
        start += len(piece)
        # Without escapes every quote begins or ends a text, and every second part lies outside.
        parts = piece.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        marks = b"".join(parts[int(inside) :: 2]).translate(None, _NOT_MARKS)
        inside ^= len(parts) % 2 == 0
        opening = marks.count(b"[") + marks.count(b"{")
        closing = marks.count(b"]") + marks.count(b"}")
        if depth + opening > JSON_DEPTH_MAX:
            deepest = max(accumulate((_STEP[byte] for byte in marks), initial=depth))
            if deepest > JSON_DEPTH_MAX:
                raise Code.ICEBERG_JSON_INVALID(
                    f"{what} nests too deeply",
                    reason="lake_json_too_deep",
                    expected=f"{JSON_DEPTH_MAX} levels",
                    got="more",
                )
        depth += opening - closing
        values += len(marks) - closing
        if values > JSON_VALUES_MAX:
            raise Code.ICEBERG_JSON_INVALID(
                f"{what} holds too many values",
                reason="lake_json_values_too_many",
                expected=f"at most {JSON_VALUES_MAX} arrays, objects and commas",
                got="more",
            )


def _integer(text: str) -> int | Number:
    # Minus zero is no integer: it would come back as 0.
    return _spelled_number(text) if text == "-0" or len(text) > NUMBER_MAX_CHARACTERS else int(text)


def _spelled_number(text: str) -> Number:
    if len(text) > NUMBER_MAX_CHARACTERS:
        raise _number_invalid(f"a number of at most {NUMBER_MAX_CHARACTERS} characters", f"{len(text)} characters")
    return Number(text)


def _distinct(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise Code.ICEBERG_JSON_INVALID(reason="lake_json_key_duplicate", got=repr(key[:64]))
            seen.add(key)
    return found


def _no_constant(text: str) -> NoReturn:
    raise _number_invalid("a JSON number", text)


def _number_invalid(expected: str, got: str) -> InputError:
    return InputError("lake_json_number_invalid", "a number cannot be accepted", expected=expected, got=got)


def _judge_text(value: Json) -> None:
    match value:
        case str():
            try:
                value.encode("utf-8")
            except UnicodeEncodeError:
                raise Code.ICEBERG_JSON_INVALID(reason="lake_json_text_invalid", got="a lone surrogate") from None
        case Mapping():
            for key, inner in value.items():
                _judge_text(key)
                _judge_text(inner)
        case Sequence():
            for inner in value:
                _judge_text(inner)


def _too_large(size_max_bytes: int, got: str) -> InputError:
    return InputError(
        "lake_json_too_large", "the document is too large", expected=f"at most {size_max_bytes} bytes", got=got
    )


def _malformed(expected: str, got: str, what: str = "the document") -> InputError:
    return InputError("lake_json_malformed", f"{what} is not JSON", expected=expected, got=got)


def _gzip_malformed(got: str) -> InputError:
    return InputError(
        "lake_gzip_malformed", "the compressed document cannot be read", expected="one gzip stream", got=got
    )
