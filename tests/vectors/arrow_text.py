"""Reads the Arrow type texts of the conformance vectors (vectors/README.md)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeAlias

import pyarrow as pa

# Which Arrow type it is shows only when the text is read.
Layout: TypeAlias = Any

_PLAIN: Final[dict[str, Callable[[], Layout]]] = {
    "null": pa.null,
    "bool": pa.bool_,
    "int8": pa.int8,
    "int16": pa.int16,
    "int32": pa.int32,
    "int64": pa.int64,
    "uint8": pa.uint8,
    "uint16": pa.uint16,
    "uint32": pa.uint32,
    "uint64": pa.uint64,
    "float16": pa.float16,
    "float": pa.float32,
    "double": pa.float64,
    "date32": pa.date32,
    "date64": pa.date64,
    "month_day_nano_interval": pa.month_day_nano_interval,
    "string": pa.string,
    "large_string": pa.large_string,
    "string_view": pa.string_view,
    "binary": pa.binary,
    "large_binary": pa.large_binary,
    "binary_view": pa.binary_view,
}
_WITH_UNIT: Final[dict[str, Callable[..., Layout]]] = {
    "time32": pa.time32,
    "time64": pa.time64,
    "timestamp": pa.timestamp,
    "duration": pa.duration,
}
_WITH_NUMBERS: Final[dict[str, Callable[..., Layout]]] = {
    "decimal32": pa.decimal32,
    "decimal64": pa.decimal64,
    "decimal128": pa.decimal128,
    "decimal256": pa.decimal256,
    "fixed_size_binary": pa.binary,
}
_WITH_ELEMENT: Final[dict[str, Callable[..., Layout]]] = {
    "list": pa.list_,
    "large_list": pa.large_list,
    "list_view": pa.list_view,
    "large_list_view": pa.large_list_view,
}
_WITH_TWO_TYPES: Final[dict[str, Callable[..., Layout]]] = {
    "map": pa.map_,
    "dictionary": pa.dictionary,
    "run_end_encoded": pa.run_end_encoded,
}


@cache
def _extension_class(name: str) -> Callable[[Layout], Layout]:
    """A class of extension types that have this name and storage and nothing else; it is not registered."""

    class Extension(pa.ExtensionType):
        def __init__(self, storage: Layout) -> None:
            super().__init__(storage, name)

        def __arrow_ext_serialize__(self) -> bytes:
            return b""

        @classmethod
        def __arrow_ext_deserialize__(cls, storage_type: Layout, serialized: bytes) -> Extension:
            return cls(storage_type)

    return Extension


def arrow_type(text: str) -> Layout:
    """The Arrow type that the text names; a text that the README does not define is an error."""
    name, opening, rest = _head(text)
    if not opening:
        return _PLAIN[name]()
    arguments = split_top(rest[:-1])
    if opening == "(":
        return _WITH_NUMBERS[name](*(int(number) for number in arguments))
    if opening == "[":
        return _WITH_UNIT[name](arguments[0], *(zone.removeprefix("tz=") for zone in arguments[1:]))
    return _nested(name, arguments)


def _head(text: str) -> tuple[str, str, str]:
    for position, char in enumerate(text):
        if char in "([<":
            return text[:position], char, text[position + 1 :]
    return text, "", ""


def split_top(text: str) -> list[str]:
    """The parts between the commas that stand in no bracket."""
    parts, depth, start = [], 0, 0
    for position, char in enumerate(text):
        depth += (char in "([<") - (char in ")]>")
        if char == "," and depth == 0:
            parts.append(text[start:position].strip())
            start = position + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts


def _nested(name: str, arguments: list[str]) -> Layout:
    if name in _WITH_ELEMENT:
        return _WITH_ELEMENT[name](arrow_type(arguments[0]))
    if name in _WITH_TWO_TYPES:
        return _WITH_TWO_TYPES[name](arrow_type(arguments[0]), arrow_type(arguments[1]))
    if name == "fixed_size_list":
        return pa.list_(arrow_type(arguments[0]), int(arguments[1]))
    if name == "extension":
        return pa.uuid() if arguments == ["arrow.uuid"] else _extension_class(arguments[0])(arrow_type(arguments[1]))
    fields = [pa.field(*_named(argument)) for argument in arguments]
    if name == "struct":
        return pa.struct(fields)
    return {"dense_union": pa.dense_union, "sparse_union": pa.sparse_union}[name](fields)


def _named(argument: str) -> tuple[str, Layout]:
    name, _, kind = argument.partition(": ")
    return name, arrow_type(kind)
