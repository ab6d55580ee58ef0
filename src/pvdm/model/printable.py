"""Values as commands print them: escaped text, times, counts, and dataclasses as JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, Final

# A value, or a path, of these characters needs no quotes: none of them separates values in a sentence.
_BARE: Final = re.compile(r"[\w.:+@%-]+")
_PATH: Final = re.compile(r"[\w.:+@%/=~#-]+")
_NULL: Final = "null"
_UNIX_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NAMES_LISTED: Final = 20


def printable(text: str) -> str:
    """The text with control, bidirectional and other invisible characters escaped."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def utc_time(micros: int) -> str:
    """A time in microseconds since 1970 for people: `2026-11-17 15:14:08Z`, with a fraction if there is one."""
    return iso_time(micros).replace("T", " ")


def iso_time(micros: int) -> str:
    """A time in microseconds since 1970 in ISO 8601: `2026-11-17T15:14:08Z`, with a fraction if there is one."""
    return (_UNIX_EPOCH + timedelta(microseconds=micros)).isoformat().removesuffix("+00:00") + "Z"


def quoted(value: str | None) -> str:
    """A data value in a sentence: null and plain words are bare, everything else is quoted and escaped."""
    if value is None:
        return _NULL
    return value if _BARE.fullmatch(value) and value.isprintable() and value != _NULL else repr(value)


def quoted_path(name: str) -> str:
    """A file or partition in a sentence: bare if its characters are plain, otherwise quoted and escaped."""
    return name if _PATH.fullmatch(name) and name.isprintable() else repr(name)


def json_printable(document: str) -> str:
    """The same JSON document, with every invisible character except line breaks as `\\uXXXX`."""
    return "".join(each if each.isprintable() or each == "\n" else _escape_for_json(each) for each in document)


def _escape_for_json(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def view_json(view: Any) -> dict[str, object]:
    """The fields of a dataclass or pydantic model. Times (`…_at`) are integers in microseconds, other numbers text."""
    names = [field.name for field in fields(view)] if is_dataclass(view) else type(view).model_fields
    return {name: _to_plain(name, getattr(view, name)) for name in names}


def _to_plain(name: str, value: object) -> object:
    match value:
        case Enum():
            return value.value
        case bool() | None | str():
            return value
        case int():
            return value if name.endswith("_at") else str(value)
        case tuple() if value and all(isinstance(each, tuple) for each in value):  # pairs of name and value
            return {str(key): _to_plain(str(key), inner) for key, inner in value}
        case tuple():
            return [_to_plain(name, each) for each in value]
        case dict():
            return {str(key): _to_plain(str(key), value[key]) for key in sorted(value)}
        case _ if is_dataclass(value) or hasattr(type(value), "model_fields"):
            return view_json(value)
        case _:
            raise TypeError(f"{name} has a type that cannot be printed as JSON")


def list_first(names: Sequence[str]) -> str:
    """The first 20 names for one line of an error, with `…` if there are more."""
    return ", ".join(names[:_NAMES_LISTED]) + (", …" if len(names) > _NAMES_LISTED else "")


def counted(count: int, one: str, many: str | None = None) -> str:
    """`1 chunk`, `2,000 rows`, `2 tries`: the number with its noun in the singular or plural."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
