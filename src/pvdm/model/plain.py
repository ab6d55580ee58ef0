"""What a Steward told: one form of every number in whatever a command prints as JSON, and of counts for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Final

_LISTED: Final = 20


def view_json(view: Any) -> dict[str, object]:
    """The fields of a dataclass or model: times as integers in microseconds, all other numbers as decimal text."""
    names = [field.name for field in fields(view)] if is_dataclass(view) else type(view).model_fields
    return {name: _plain(name, getattr(view, name)) for name in names}


def _plain(name: str, value: object) -> object:
    match value:
        case Enum():
            return value.value
        case bool() | None | str():
            return value
        case int():
            return value if name.endswith("_at") else str(value)
        case tuple() if value and all(isinstance(each, tuple) for each in value):
            return {str(key): _plain(str(key), inner) for key, inner in value}
        case tuple():
            return [_plain(name, each) for each in value]
        case dict():
            return {str(key): _plain(str(key), value[key]) for key in sorted(value)}
        case _ if is_dataclass(value) or hasattr(type(value), "model_fields"):
            return view_json(value)
        case _:
            raise TypeError(f"{name} has no place in a result")


def list_first(names: Sequence[str]) -> str:
    """The first names, for one line of an error."""
    return ", ".join(names[:_LISTED]) + (", …" if len(names) > _LISTED else "")


def counted(count: int, one: str, many: str | None = None) -> str:
    """`1 chunk`, `2,000 rows`, `2 tries`: the number with the word that goes with it."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
