"""Typed reading of one JSON object: each getter wants one type and names the place when it finds another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from pvdm.errors import Code, InputError
from pvdm.lake.format.json.document import LONG_LAST, LONG_MIN, Json, Number

Raw: TypeAlias = Mapping[str, Json]

INT_LAST: Final = 2**31 - 1


class Node:
    """A JSON object and its place (`$.snapshots[3]`); unknown keys are left alone."""

    __slots__ = ("place", "raw")

    def __init__(self, value: Json, place: str) -> None:
        if not isinstance(value, Mapping):
            raise invalid(place, "an object", kind(value))
        self.raw: Raw = value
        self.place = place

    def at(self, key: str) -> str:
        """The place of one of its values."""
        return f"{self.place}.{key}"

    def has(self, key: str) -> bool:
        """Whether the key is there and its value is not null."""
        return self.raw.get(key) is not None

    def given(self, key: str) -> bool:
        """Whether the key is there; a null is refused where Iceberg's own reader stumbles over one."""
        if key in self.raw and self.raw[key] is None:
            raise invalid(self.at(key), "a value, or no such field", "null")
        return key in self.raw

    def value(self, key: str) -> Json:
        """The value as it stands; null and absent are missing."""
        found = self.raw.get(key)
        if found is None:
            raise Code.ICEBERG_JSON_INVALID(
                f"a required field is missing at {self.at(key)}",
                reason="lake_field_missing",
                expected=key,
                got="null" if key in self.raw else "no such field",
                place=self.at(key),
            )
        return found

    def integer(self, key: str) -> int:
        """A whole number of 32 bits."""
        return self._whole(key, -INT_LAST - 1, INT_LAST, "an integer of 32 bits")

    def long(self, key: str) -> int:
        """A whole number of 64 bits."""
        return self._whole(key, LONG_MIN, LONG_LAST, "an integer of 64 bits")

    def optional_integer(self, key: str) -> int | None:
        """A whole number of 32 bits, if it is there."""
        return self.integer(key) if self.has(key) else None

    def optional_long(self, key: str) -> int | None:
        """A whole number of 64 bits, if it is there."""
        return self.long(key) if self.has(key) else None

    def given_long(self, key: str) -> int | None:
        """A whole number of 64 bits, if it is there; null is refused."""
        return self.long(key) if self.given(key) else None

    def text(self, key: str) -> str:
        """A string."""
        found = self.value(key)
        if not isinstance(found, str):
            raise invalid(self.at(key), "a string", kind(found))
        return found

    def optional_text(self, key: str) -> str | None:
        """A string, if it is there."""
        return self.text(key) if self.has(key) else None

    def flag(self, key: str) -> bool:
        """True or false."""
        found = self.value(key)
        if not isinstance(found, bool):
            raise invalid(self.at(key), "true or false", kind(found))
        return found

    def node(self, key: str) -> Node:
        """An object."""
        return Node(self.value(key), self.at(key))

    def items(self, key: str) -> list[Json]:
        """An array."""
        found = self.value(key)
        if not isinstance(found, list):
            raise invalid(self.at(key), "an array", kind(found))
        return found

    def given_nodes(self, key: str) -> Iterator[Node]:
        """The objects of an array; none is an empty one, null is refused."""
        return self.nodes(key) if self.given(key) else iter(())

    def nodes(self, key: str) -> Iterator[Node]:
        """The objects of an array; none and null are empty ones."""
        for position, item in enumerate(self.items(key) if self.has(key) else []):
            yield Node(item, f"{self.at(key)}[{position}]")

    def integers(self, key: str) -> tuple[int, ...]:
        """An array of whole numbers of 32 bits."""
        return tuple(
            whole(item, f"{self.at(key)}[{position}]", -INT_LAST - 1, INT_LAST)
            for position, item in enumerate(self.items(key))
        )

    def longs(self, key: str) -> tuple[int, ...]:
        """An array of whole numbers of 64 bits."""
        return tuple(
            whole(item, f"{self.at(key)}[{position}]", LONG_MIN, LONG_LAST)
            for position, item in enumerate(self.items(key))
        )

    def texts(self, key: str) -> tuple[str, ...]:
        """An array of strings."""
        found = []
        for position, item in enumerate(self.items(key)):
            if not isinstance(item, str):
                raise invalid(f"{self.at(key)}[{position}]", "a string", kind(item))
            found.append(item)
        return tuple(found)

    def strings(self, key: str) -> dict[str, str]:
        """An object whose values are strings."""
        found: dict[str, str] = {}
        for name, value in self.node(key).raw.items():
            if not isinstance(value, str):
                raise invalid(f"{self.at(key)}[{name[:64]!r}]", "a string", kind(value))
            found[name] = value
        return found

    def given_strings(self, key: str) -> dict[str, str]:
        """An object whose values are strings; none is an empty one, null is refused."""
        return self.strings(key) if self.given(key) else {}

    def _whole(self, key: str, least: int, most: int, expected: str) -> int:
        found = self.value(key)
        if type(found) is int and least <= found <= most:
            return found
        raise invalid(self.at(key), expected, kind(found))


def whole(value: Json, place: str, least: int, most: int) -> int:
    """A whole number within bounds."""
    if type(value) is not int or not least <= value <= most:
        raise invalid(place, f"an integer from {least} to {most}", kind(value))
    return value


def kind(value: object) -> str:
    """The JSON type's name; a number is shown, other values may be anything."""
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


def invalid(place: str, expected: str, got: str) -> InputError:
    """A value that has not the type or form that its place wants."""
    return InputError("lake_value_invalid", f"{place} cannot be accepted", expected=expected, got=got, place=place)


def shown(value: object) -> str:
    """A value for a message, never too long of it."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
