"""Lossless JSON documents of Iceberg, read strictly, and typed access to their values."""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, NoReturn, TypeAlias

from pvdm.errors import Code, PvdmError

Json: TypeAlias = "bool | int | str | Number | Sequence[Json] | Mapping[str, Json] | None"

METADATA_SIZE_MAX_BYTES: Final = 134_217_728
JSON_DEPTH_MAX: Final = 256
JSON_VALUES_MAX: Final = 8_000_000
NUMBER_MAX_CHARACTERS: Final = 1_000  # Iceberg's reader does not accept longer numbers
LONG_MIN: Final = -(2**63)
LONG_LAST: Final = 2**63 - 1

_GZIP_MAGIC: Final = b"\x1f\x8b"
_PIECE_BYTES: Final = 32_768
# Commas do not change the depth. They are kept because values are counted by them.
_DEPTH_CHANGE: Final = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1, ord(","): 0}
_NOT_STRUCTURE: Final = bytes(set(range(256)) - _DEPTH_CHANGE.keys())
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")


@dataclass(frozen=True, slots=True)
class Number:
    """A JSON number that is not a plain integer, in its original spelling."""

    text: str


def parse_json(data: bytes, *, what: str = "the document", size_max_bytes: int = METADATA_SIZE_MAX_BYTES) -> Json:
    """Parse one JSON value. Raises on duplicate keys, NaN, deep nesting and anything over a limit."""
    require_size(data, size_max_bytes)
    _require_bounded_shape(data, what)
    try:
        value: Json = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_make_object,
            parse_int=_parse_integer,
            parse_float=_parse_number,
            parse_constant=_refuse_constant,
        )
    except UnicodeDecodeError as error:
        raise _malformed("UTF-8", f"{error.reason} at byte {error.start}", what) from None
    except ValueError as error:
        raise _malformed("one JSON value", str(error)[:200], what) from None
    if _SURROGATE.search(data):
        _require_unicode(value)
    return value


def require_size(data: bytes, size_max_bytes: int = METADATA_SIZE_MAX_BYTES) -> bytes:
    """The bytes. Raises if there are too many. Writers call it too, so that every written document can be read."""
    if len(data) > size_max_bytes:
        raise _invalid("lake_json_too_large", f"at most {size_max_bytes} bytes", str(len(data)))
    return data


def dump_json(value: Json, *, sort_keys: bool = False) -> bytes:
    """The value in one line of UTF-8, its keys in their own order or sorted. Raises for a value that JSON lacks."""
    try:
        text = json.dumps(
            value,
            ensure_ascii=False,
            separators=(",", ":"),
            sort_keys=sort_keys,
            allow_nan=False,
            default=_refuse_in_fast_writer,
        )
    except _NeedsSlowWriter:
        text = _write_spelled(value, sort_keys)
    return text.encode("utf-8")


def comparison_text(value: Json) -> str:
    """Text that is equal only for equal JSON values. Python's `==` is not used, since `1 == True`."""
    return dump_json(value, sort_keys=True).decode("utf-8")


def decompress_gzip(data: bytes, *, size_max_bytes: int = METADATA_SIZE_MAX_BYTES) -> bytes:
    """The bytes, decompressed if they are gzip. Raises as soon as the content is over the limit."""
    if not data.startswith(_GZIP_MAGIC):
        return data
    # One stream only: a file of many empty streams would take minutes.
    inflater = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        content = inflater.decompress(data, size_max_bytes + 1)
    except zlib.error as error:
        raise _invalid("lake_gzip_malformed", "one gzip stream", str(error)[:120]) from None
    if len(content) > size_max_bytes:
        raise _invalid("lake_json_too_large", f"at most {size_max_bytes} bytes", "more after decompression")
    if not inflater.eof or inflater.unused_data:
        got = "bytes after the end" if inflater.eof else "a stream that does not end"
        raise _invalid("lake_gzip_malformed", "one gzip stream", got)
    return content


class _NeedsSlowWriter(Exception):  # noqa: N818 - a signal to use the slower writer, not an error
    pass


def _refuse_in_fast_writer(value: object) -> NoReturn:
    if isinstance(value, Number):
        raise _NeedsSlowWriter
    raise _malformed("null, booleans, numbers, strings, arrays and objects", type(value).__name__)


def _write_spelled(value: Json, sort_keys: bool) -> str:
    """Write numbers in their original spelling, which the standard encoder cannot do."""
    match value:
        case Number(text):
            return text
        case dict():
            keys = sorted(value) if sort_keys else value
            parts = [f"{json.dumps(key, ensure_ascii=False)}:{_write_spelled(value[key], sort_keys)}" for key in keys]
            return "{" + ",".join(parts) + "}"
        case list() | tuple():
            return "[" + ",".join([_write_spelled(inner, sort_keys) for inner in value]) + "]"
        case _:
            return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_refuse_in_fast_writer)


def _require_bounded_shape(data: bytes, what: str) -> None:
    """Raise if the document nests too deeply or has too many values.

    This runs before the document is parsed, and on pieces of it, so that a hostile document needs little memory.
    """
    depth = values = start = 0
    inside_string = False
    while start < len(data):
        piece = data[start : start + _PIECE_BYTES]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:
            piece += data[start + len(piece) : start + len(piece) + 1]  # do not split an escape
        start += len(piece)
        # Without escaped quotes every quote begins or ends a string, so that every second part is outside of strings.
        parts = piece.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside_strings = b"".join(parts[int(inside_string) :: 2])
        structure = outside_strings.translate(None, _NOT_STRUCTURE)
        # An even number of parts has an odd number of quotes between them. These change whether a string is open.
        inside_string ^= len(parts) % 2 == 0
        opening = structure.count(b"[") + structure.count(b"{")
        closing = structure.count(b"]") + structure.count(b"}")
        if depth + opening > JSON_DEPTH_MAX:
            deepest = max(accumulate((_DEPTH_CHANGE[byte] for byte in structure), initial=depth))
            if deepest > JSON_DEPTH_MAX:
                words = f"{what} nests too deeply"
                raise _invalid("lake_json_too_deep", f"{JSON_DEPTH_MAX} levels", "more", words)
        depth += opening - closing
        values += len(structure) - closing
        if values > JSON_VALUES_MAX:
            words, expected = f"{what} has too many values", f"at most {JSON_VALUES_MAX} arrays, objects and commas"
            raise _invalid("lake_json_values_too_many", expected, "more", words)


def _parse_integer(text: str) -> int | Number:
    # As an integer, minus zero would become 0. `_parse_number` refuses a number that is too long.
    return _parse_number(text) if text == "-0" or len(text) > NUMBER_MAX_CHARACTERS else int(text)


def _parse_number(text: str) -> Number:
    if len(text) > NUMBER_MAX_CHARACTERS:
        expected = f"a number of at most {NUMBER_MAX_CHARACTERS} characters"
        raise _invalid("lake_json_number_invalid", expected, f"{len(text)} characters")
    return Number(text)


def _make_object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    """The object of these pairs. Raises if a key occurs twice."""
    json_object = dict(pairs)
    if len(json_object) != len(pairs):
        key = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise Code.ICEBERG_JSON_INVALID(reason="lake_json_key_duplicate", got=repr(key[:64]))
    return json_object


def _refuse_constant(text: str) -> NoReturn:
    raise _invalid("lake_json_number_invalid", "a JSON number", text)


def _require_unicode(value: Json) -> None:
    """Raise if a string of the value has a lone surrogate, which UTF-8 cannot encode."""
    match value:
        case str():
            try:
                value.encode("utf-8")
            except UnicodeEncodeError:
                raise Code.ICEBERG_JSON_INVALID(reason="lake_json_text_invalid", got="a lone surrogate") from None
        case Mapping():
            for key, inner in value.items():
                _require_unicode(key)
                _require_unicode(inner)
        case Sequence():
            for inner in value:
                _require_unicode(inner)


def _malformed(expected: str, got: str, what: str = "the document") -> PvdmError:
    return _invalid("lake_json_malformed", expected, got, f"{what} is not JSON")


def _invalid(reason: str, expected: str, got: str, message: str | None = None) -> PvdmError:
    return Code.ICEBERG_JSON_INVALID(message, reason=reason, expected=expected, got=got)


JsonObject: TypeAlias = Mapping[str, Json]

INT_LAST: Final = 2**31 - 1


class Node:
    """A JSON object and its place, such as `$.snapshots[3]`. Each getter raises if the value has another type."""

    __slots__ = ("place", "raw")

    def __init__(self, value: Json, place: str) -> None:
        if not isinstance(value, Mapping):
            raise invalid_value(place, "an object", describe(value))
        self.raw: JsonObject = value
        self.place = place

    def at(self, key: str) -> str:
        """The place of the value under this key."""
        return f"{self.place}.{key}"

    def has_not_null(self, key: str) -> bool:
        """Whether the key is there and its value is not null."""
        return self.raw.get(key) is not None

    def is_present(self, key: str) -> bool:
        """Whether the key is there. Raises for null. Used for keys where Iceberg's reader does not accept null."""
        if key in self.raw and self.raw[key] is None:
            raise invalid_value(self.at(key), "a value, or no such field", "null")
        return key in self.raw

    def value(self, key: str) -> Json:
        """The value. Raises if it is null or absent."""
        value = self.raw.get(key)
        if value is None:
            place, got = self.at(key), "null" if key in self.raw else "no such field"
            words, reason = f"a required field is missing at {place}", "lake_field_missing"
            raise Code.ICEBERG_JSON_INVALID(words, reason=reason, expected=key, got=got, place=place)
        return value

    def integer(self, key: str) -> int:
        """An integer of 32 bits."""
        return self._bounded_integer(key, -INT_LAST - 1, INT_LAST, "an integer of 32 bits")

    def long(self, key: str) -> int:
        """An integer of 64 bits."""
        return self._bounded_integer(key, LONG_MIN, LONG_LAST, "an integer of 64 bits")

    def optional_integer(self, key: str) -> int | None:
        """An integer of 32 bits, or None if it is null or absent."""
        return self.integer(key) if self.has_not_null(key) else None

    def optional_long(self, key: str) -> int | None:
        """An integer of 64 bits, or None if it is null or absent."""
        return self.long(key) if self.has_not_null(key) else None

    def long_if_present(self, key: str) -> int | None:
        """An integer of 64 bits, or None if the key is absent. Raises for null."""
        return self.long(key) if self.is_present(key) else None

    def text(self, key: str) -> str:
        """A string."""
        value = self.value(key)
        if not isinstance(value, str):
            raise invalid_value(self.at(key), "a string", describe(value))
        return value

    def optional_text(self, key: str) -> str | None:
        """A string, or None if it is null or absent."""
        return self.text(key) if self.has_not_null(key) else None

    def flag(self, key: str) -> bool:
        """True or false."""
        value = self.value(key)
        if not isinstance(value, bool):
            raise invalid_value(self.at(key), "true or false", describe(value))
        return value

    def node(self, key: str) -> Node:
        """An object."""
        return Node(self.value(key), self.at(key))

    def array(self, key: str) -> list[Json]:
        """An array."""
        value = self.value(key)
        if not isinstance(value, list):
            raise invalid_value(self.at(key), "an array", describe(value))
        return value

    def nodes_if_present(self, key: str) -> Iterator[Node]:
        """The objects of an array, none if the key is absent. Raises for null."""
        return self.nodes(key) if self.is_present(key) else iter(())

    def nodes(self, key: str) -> Iterator[Node]:
        """The objects of an array, none if it is null or absent."""
        for position, item in enumerate(self.array(key) if self.has_not_null(key) else []):
            yield Node(item, f"{self.at(key)}[{position}]")

    def integers(self, key: str) -> tuple[int, ...]:
        """An array of integers of 32 bits."""
        return self._bounded_integers(key, -INT_LAST - 1, INT_LAST)

    def longs(self, key: str) -> tuple[int, ...]:
        """An array of integers of 64 bits."""
        return self._bounded_integers(key, LONG_MIN, LONG_LAST)

    def _bounded_integers(self, key: str, least: int, most: int) -> tuple[int, ...]:
        numbers = []
        for position, item in enumerate(self.array(key)):
            if type(item) is not int or not least <= item <= most:
                raise invalid_value(f"{self.at(key)}[{position}]", f"an integer from {least} to {most}", describe(item))
            numbers.append(item)
        return tuple(numbers)

    def string_list(self, key: str) -> tuple[str, ...]:
        """An array of strings."""
        return tuple(self._require_string(key, at, item) for at, item in enumerate(self.array(key)))

    def string_map(self, key: str) -> dict[str, str]:
        """An object whose values are strings."""
        return {name: self._require_string(key, name[:64], value) for name, value in self.node(key).raw.items()}

    def _require_string(self, key: str, at: int | str, value: Json) -> str:
        if not isinstance(value, str):
            raise invalid_value(f"{self.at(key)}[{at!r}]", "a string", describe(value))
        return value

    def string_map_if_present(self, key: str) -> dict[str, str]:
        """An object whose values are strings, empty if the key is absent. Raises for null."""
        return self.string_map(key) if self.is_present(key) else {}

    def _bounded_integer(self, key: str, least: int, most: int, expected: str) -> int:
        value = self.value(key)
        if type(value) is int and least <= value <= most:
            return value
        raise invalid_value(self.at(key), expected, describe(value))


def read_objects(value: Json) -> list[JsonObject]:
    """The items of an array that are objects. Empty if the value is not an array."""
    # `dict` first: the check for a mapping takes ten times as long, and the snapshot-log and metadata-log are long.
    return [item for item in value if isinstance(item, (dict, Mapping))] if isinstance(value, list) else []


def describe(value: object) -> str:
    """The name of the value's JSON type, for a message. For a number, the value follows."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int():
            return f"the integer {str(value)[:24]}"
        case Number(text):
            return f"the number {text[:24]}"
        case str():
            return "a string"
        case Mapping():
            return "an object"
        case _:
            return "an array"


def invalid_value(place: str, expected: str, got: str) -> PvdmError:
    """The error for a value of the wrong type or form at this place."""
    words = f"the value at {place} is not valid"
    return Code.ICEBERG_JSON_INVALID(words, reason="lake_value_invalid", expected=expected, got=got, place=place)


def abbreviate(value: object) -> str:
    """A value for a message, cut to 80 characters."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
