"""YAML with the place of every key and value: no aliases, no tags, no key twice, no guessing of types beyond JSON's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import yaml  # type: ignore[import-untyped]

from pvdm.errors import Code, InputError

YAML_DEPTH_MAX: Final = 32
YAML_NODES_MAX: Final = 20_000

Plain: TypeAlias = "bool | int | str | list[Plain] | dict[str, Plain] | None"
Path: TypeAlias = tuple[str | int, ...]

_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,18})", re.ASCII)
_WORDS: Final = {"null": None, "~": None, "": None, "true": True, "false": False}
_LONE: Final = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Line and column, counted from one."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Placed:
    """A document as plain values, and where each of them and of their keys stands."""

    value: Plain
    values: Mapping[Path, Place]
    keys: Mapping[Path, Place]

    def place(self, path: Path) -> Place:
        """Where the value is; of one that is not there, where the mapping is that it belongs into."""
        while path and path not in self.values:
            path = path[:-1]
        return self.values.get(path, Place(1, 1))

    def key_place(self, path: Path) -> Place:
        """Where the key stands."""
        return self.keys.get(path) or self.place(path)


def parse_yaml(data: bytes, name: str) -> Placed:
    """The one document in these bytes."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise unreadable(name, _place_of_byte(data, error.start), "UTF-8", f"byte {error.start + 1} is none") from None
    composer = _Composer(text, name)
    try:
        return composer.document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Place(1, 1) if mark is None else _place(mark)
        raise unreadable(name, place, "YAML", ascii(str(error.problem or error.context)[:120])[1:-1]) from None
    finally:
        composer.loader.dispose()


def unreadable(name: str, place: Place, expected: str, got: str) -> InputError:
    """The file is no YAML, or more of it than a contract needs."""
    return InputError(
        Code.CONTRACT_UNREADABLE,
        f"{name}:{place}: the contract cannot be read",
        expected=expected,
        got=got,
        file=name,
        line=place.line,
        column=place.column,
    )


def _place(mark: Any) -> Place:
    return Place(mark.line + 1, mark.column + 1)


def _place_of_byte(data: bytes, position: int) -> Place:
    before = data[:position]
    start = before.rfind(b"\n") + 1
    return Place(before.count(b"\n") + 1, len(before[start:].decode("utf-8", "replace")) + 1)


class _Composer:
    """Builds values from the parser's events: what YAML can do beyond plain values never gets as far as a value."""

    def __init__(self, text: str, name: str) -> None:
        try:
            self.loader = yaml.SafeLoader(text)
        except yaml.reader.ReaderError as error:
            before = text[: error.position].encode("utf-8")
            place = _place_of_byte(before, len(before))
            raise unreadable(name, place, "printable characters", f"U+{error.character:04X}") from None
        self._name = name
        self._nodes = 0
        self._values: dict[Path, Place] = {}
        self._keys: dict[Path, Place] = {}

    def document(self) -> Placed:
        loader = self.loader
        loader.get_event()  # the stream's start
        if loader.check_event(yaml.StreamEndEvent):
            raise unreadable(self._name, Place(1, 1), "one document", "none")
        loader.get_event()  # the document's
        value = self._value(())
        loader.get_event()
        if not loader.check_event(yaml.StreamEndEvent):
            raise unreadable(self._name, _place(loader.peek_event().start_mark), "one document", "another one")
        return Placed(value, self._values, self._keys)

    def _value(self, path: Path) -> Plain:
        event = self.loader.get_event()
        self._judge(event, path)
        self._values[path] = _place(event.start_mark)
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(path)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(path)
        return self._scalar(event)

    def _judge(self, event: Any, path: Path) -> None:
        place = _place(event.start_mark)
        self._nodes += 1
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise unreadable(self._name, place, "every value written out where it belongs", "an alias or an anchor")
        if event.tag is not None:
            raise unreadable(self._name, place, "no tag", ascii(event.tag[:80])[1:-1])
        if len(path) > YAML_DEPTH_MAX:
            raise unreadable(self._name, place, f"at most {YAML_DEPTH_MAX} levels", "more")
        if self._nodes > YAML_NODES_MAX:
            raise unreadable(self._name, place, f"at most {YAML_NODES_MAX} keys and values", "more")

    def _mapping(self, path: Path) -> Plain:
        found: dict[str, Plain] = {}
        while not self.loader.check_event(yaml.MappingEndEvent):
            event = self.loader.get_event()
            self._judge(event, path)
            place = _place(event.start_mark)
            if not isinstance(event, yaml.ScalarEvent):
                raise unreadable(self._name, place, "a plain key", "a list or a mapping")
            key = self._text(event)
            if key == "<<" and event.style is None:
                raise unreadable(self._name, place, "every value written out where it belongs", "a merge key")
            if key in found:
                raise unreadable(self._name, place, "each key once", f"{key[:80]!a} again")
            self._keys[(*path, key)] = place
            found[key] = self._value((*path, key))
        self.loader.get_event()
        return found

    def _sequence(self, path: Path) -> Plain:
        found: list[Plain] = []
        while not self.loader.check_event(yaml.SequenceEndEvent):
            found.append(self._value((*path, len(found))))
        self.loader.get_event()
        return found

    def _scalar(self, event: Any) -> Plain:
        """Only null, true, false and whole numbers of 64 bits are more than text; `1.5` and dates keep every digit."""
        text = self._text(event)
        if event.style is not None:
            return text
        if text in _WORDS:
            return _WORDS[text]
        return int(text) if _INTEGER.fullmatch(text) else text

    def _text(self, event: Any) -> str:
        text = str(event.value)
        if _LONE.search(text):
            raise unreadable(self._name, _place(event.start_mark), "well-formed Unicode", "half of a surrogate pair")
        return text
