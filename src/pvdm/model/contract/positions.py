"""Parses YAML with the position of every key and value. Refuses aliases, tags and repeated keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import yaml  # type: ignore[import-untyped]

from pvdm.errors import InputError

YAML_DEPTH_MAX: Final = 32
YAML_NODES_MAX: Final = 20_000

Plain: TypeAlias = "bool | int | str | list[Plain] | dict[str, Plain] | None"
KeyPath: TypeAlias = tuple[str | int, ...]  # from the document's root: keys of mappings, positions in lists

_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,18})", re.ASCII)
_WORD_VALUES: Final = {"null": None, "~": None, "": None, "true": True, "false": False}
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """Line and column, counted from one."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class ParsedYaml:
    """A YAML document as plain values, with the positions of its values and keys."""

    value: Plain
    values: Mapping[KeyPath, Position]
    keys: Mapping[KeyPath, Position]

    def position(self, path: KeyPath) -> Position:
        """The position of the value. For a missing value, the position of the innermost mapping on its path."""
        while path and path not in self.values:
            path = path[:-1]
        return self.values.get(path, Position(1, 1))

    def key_position(self, path: KeyPath) -> Position:
        """The position of the key."""
        return self.keys.get(path) or self.position(path)


def parse_yaml(data: bytes, name: str) -> ParsedYaml:
    """The only document in these bytes. `name` is the file's name in errors. Raises `contract_unreadable`."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise unreadable(name, _byte_position(data, error.start), "UTF-8", f"invalid byte {error.start + 1}") from None
    composer = _Composer(text, name)
    try:
        return composer.read_document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        position = Position(1, 1) if mark is None else _position(mark)
        raise unreadable(name, position, "YAML", ascii(str(error.problem or error.context)[:120])[1:-1]) from None
    finally:
        composer.loader.dispose()


def error_at(
    reason: str, name: str, position: Position, message: str, *, expected: str, got: str, hint: str | None = None
) -> InputError:
    """The error about a position in a contract's file, which is named `name`."""
    details: dict[str, str | int] = {"file": name, "line": position.line, "column": position.column}
    return InputError(reason, f"{name}:{position}: {message}", expected=expected, got=got, hint=hint, **details)


def unreadable(name: str, position: Position, expected: str, got: str) -> InputError:
    """The error for a file that is not YAML, or uses more of YAML than a contract needs."""
    return error_at("contract_unreadable", name, position, "the contract cannot be read", expected=expected, got=got)


def _position(mark: Any) -> Position:
    return Position(mark.line + 1, mark.column + 1)


def _byte_position(data: bytes, offset: int) -> Position:
    before = data[:offset]
    start = before.rfind(b"\n") + 1
    return Position(before.count(b"\n") + 1, len(before[start:].decode("utf-8", "replace")) + 1)


class _Composer:
    """Builds values from the YAML parser's events, so that aliases, tags and the like are refused before use."""

    def __init__(self, text: str, name: str) -> None:
        try:
            self.loader = yaml.SafeLoader(text)
        except yaml.reader.ReaderError as error:
            before = text[: error.position].encode("utf-8")
            position = _byte_position(before, len(before))
            raise unreadable(name, position, "printable characters", f"U+{error.character:04X}") from None
        self._name = name
        self._nodes = 0
        self._values: dict[KeyPath, Position] = {}
        self._keys: dict[KeyPath, Position] = {}

    def read_document(self) -> ParsedYaml:
        loader = self.loader
        loader.get_event()  # the start of the stream
        if loader.check_event(yaml.StreamEndEvent):
            raise unreadable(self._name, Position(1, 1), "one document", "none")
        loader.get_event()  # the start of the document
        value = self._read_value(())
        loader.get_event()  # the end of the document
        if not loader.check_event(yaml.StreamEndEvent):
            raise unreadable(self._name, _position(loader.peek_event().start_mark), "one document", "a second document")
        return ParsedYaml(value, self._values, self._keys)

    def _read_value(self, path: KeyPath) -> Plain:
        event = self.loader.get_event()
        self._require_plain(event, path)
        self._values[path] = _position(event.start_mark)
        if isinstance(event, yaml.MappingStartEvent):
            return self._read_mapping(path)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._read_sequence(path)
        return self._read_scalar(event)

    def _require_plain(self, event: Any, path: KeyPath) -> None:
        position = _position(event.start_mark)
        self._nodes += 1
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise unreadable(self._name, position, "every value written out where it belongs", "an alias or an anchor")
        if event.tag is not None:
            raise unreadable(self._name, position, "no tag", ascii(event.tag[:80])[1:-1])
        if len(path) > YAML_DEPTH_MAX:
            raise unreadable(self._name, position, f"at most {YAML_DEPTH_MAX} levels", "more")
        if self._nodes > YAML_NODES_MAX:
            raise unreadable(self._name, position, f"at most {YAML_NODES_MAX} keys and values", "more")

    def _read_mapping(self, path: KeyPath) -> Plain:
        found: dict[str, Plain] = {}
        while not self.loader.check_event(yaml.MappingEndEvent):
            event = self.loader.get_event()
            self._require_plain(event, path)
            position = _position(event.start_mark)
            if not isinstance(event, yaml.ScalarEvent):
                raise unreadable(self._name, position, "a plain key", "a list or a mapping")
            key = self._read_text(event)
            if key == "<<" and event.style is None:  # YAML's merge key
                raise unreadable(self._name, position, "every value written out where it belongs", "a merge key")
            if key in found:
                raise unreadable(self._name, position, "each key once", f"{key[:80]!a} again")
            self._keys[(*path, key)] = position
            found[key] = self._read_value((*path, key))
        self.loader.get_event()
        return found

    def _read_sequence(self, path: KeyPath) -> Plain:
        found: list[Plain] = []
        while not self.loader.check_event(yaml.SequenceEndEvent):
            found.append(self._read_value((*path, len(found))))
        self.loader.get_event()
        return found

    def _read_scalar(self, event: Any) -> Plain:
        """Null, true, false or an integer of up to 19 digits. Anything else is text, so that `1.5` keeps its digits."""
        text = self._read_text(event)
        if event.style is not None:  # quoted, or a block
            return text
        if text in _WORD_VALUES:
            return _WORD_VALUES[text]
        return int(text) if _INTEGER.fullmatch(text) else text

    def _read_text(self, event: Any) -> str:
        text = str(event.value)
        if _LONE_SURROGATE.search(text):
            raise unreadable(self._name, _position(event.start_mark), "well-formed Unicode", "a lone surrogate")
        return text
