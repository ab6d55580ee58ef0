"""Reading the Steward's answers: what must be there is judged, what a newer Steward adds is passed over."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, NoReturn, TypeVar

from pvdm.errors import UnavailableError
from pvdm.model.fields import LONG_MAX

_T = TypeVar("_T")
_E = TypeVar("_E", bound=Enum)
_DECIMAL: Final = re.compile(r"0|[1-9][0-9]{0,18}")
_HEX: Final = re.compile(r"[0-9a-f]*")


def parse(body: bytes, what: str) -> object:
    """The one JSON value of the body; a key twice, NaN and anything else that others read differently are refused."""
    try:
        return json.loads(body.decode(), object_pairs_hook=_distinct, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        del body
    raise unreadable(what, "one JSON value", "something else")


def unreadable(what: str, expected: str, got: str) -> UnavailableError:
    """The Steward's answer is not what this client knows; the value is never shown, it may be a secret."""
    return UnavailableError(
        "steward_answer_invalid",
        f"the Steward's answer cannot be read: {what}",
        expected=expected,
        got=got,
        hint="compare the versions of client and Steward, and see that nothing in between answers in its place",
    )


class Reading:
    """One JSON object of an answer; each getter wants one type, keys that nobody asks for are left alone."""

    __slots__ = ("_found", "_what")

    def __init__(self, value: object, what: str) -> None:
        if not isinstance(value, Mapping):
            got = kind(value)
            del value
            raise unreadable(what, "an object", got)
        self._found = value
        self._what = what

    def has(self, key: str) -> bool:
        """Whether the key is there and is not null."""
        return self._found.get(key) is not None

    def value(self, key: str) -> object:
        """The value as it stands."""
        if key not in self._found:
            raise unreadable(f"{key} of {self._what}", "a value", "no such key")
        return self._found[key]

    def text(self, key: str) -> str:
        """A string."""
        found = self.value(key)
        return found if isinstance(found, str) else self._refuse(key, "a string", found)

    def optional_text(self, key: str) -> str | None:
        """A string, or null."""
        return None if self.value(key) is None else self.text(key)

    def flag(self, key: str) -> bool:
        """True or false."""
        found = self.value(key)
        return found if isinstance(found, bool) else self._refuse(key, "a boolean", found)

    def number(self, key: str) -> int:
        """A whole number that is not negative: times, counts."""
        found = self.value(key)
        if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found <= LONG_MAX:
            return self._refuse(key, "a whole number", found)
        return found

    def optional_number(self, key: str) -> int | None:
        """A whole number, or null."""
        return None if self.value(key) is None else self.number(key)

    def decimal(self, key: str) -> int:
        """A number of 64 bits, written as a decimal string."""
        text = self.text(key)
        if not _DECIMAL.fullmatch(text) or int(text) > LONG_MAX:
            return self._refuse(key, "a decimal string", text)
        return int(text)

    def optional_decimal(self, key: str) -> int | None:
        """A number of 64 bits as a decimal string, or null."""
        return None if self.value(key) is None else self.decimal(key)

    def hex(self, key: str, size_bytes: int) -> str:
        """Lower-case hex of just so many bytes."""
        text = self.text(key)
        if len(text) != 2 * size_bytes or not _HEX.fullmatch(text):
            return self._refuse(key, f"{2 * size_bytes} lower-case hex digits", text)
        return text

    def optional_hex(self, key: str, size_bytes: int) -> str | None:
        """Lower-case hex of just so many bytes, or null."""
        return None if self.value(key) is None else self.hex(key, size_bytes)

    def choice(self, key: str, choices: type[_E]) -> _E:
        """One of an enumeration's values."""
        text = self.text(key)
        for choice in choices:
            if choice.value == text:
                return choice
        return self._refuse(key, "one of " + ", ".join(str(choice.value) for choice in choices), text)

    def reading(self, key: str) -> Reading:
        """An object."""
        return Reading(self.value(key), f"{key} of {self._what}")

    def pairs(self, key: str) -> tuple[tuple[str, object], ...]:
        """The names and values of an object, in order of the names."""
        found = self.value(key)
        return tuple(sorted(found.items())) if isinstance(found, Mapping) else self._refuse(key, "an object", found)

    def items(self, key: str, read: Callable[[object], _T]) -> tuple[_T, ...]:
        """An array, each item read."""
        found = self.value(key)
        return tuple(read(item) for item in found) if isinstance(found, list) else self._refuse(key, "an array", found)

    def texts(self, key: str) -> tuple[str, ...]:
        """An array of strings."""
        return self.items(key, lambda item: Reading({"item": item}, f"{key} of {self._what}").text("item"))

    def _refuse(self, key: str, expected: str, found: object) -> NoReturn:
        raise unreadable(f"{key} of {self._what}", expected, kind(found))


def kind(value: object) -> str:
    """The JSON type's name, never the value."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int():
            return "another whole number"
        case float():
            return "a number with a fraction"
        case str():
            return "another string"
        case Mapping():
            return "an object"
        case _:
            return "an array"


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found


def _no_constant(text: str) -> NoReturn:
    raise ValueError(text)
