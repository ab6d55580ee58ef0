"""Text that is data, as it may be printed: nothing in it steers a terminal, looks like another line, or like null."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

# What a value may consist of and still stand without quotes: nothing that separates values in a sentence.
_BARE: Final = re.compile(r"[\w.:+@%-]+")
_PATH: Final = re.compile(r"[\w.:+@%/=~#-]+")
_NULL: Final = "null"
_START: Final = datetime(1970, 1, 1, tzinfo=UTC)


def printable(text: str) -> str:
    """The text with control, bidirectional and other invisible characters as escapes."""
    return text if text.isprintable() else "".join(map(_escaped, text))


def utc_time(micros: int) -> str:
    """A time in microseconds as people read it; whole seconds where there are no others."""
    shown = _START + timedelta(microseconds=micros)
    return shown.isoformat(sep=" ").removesuffix("+00:00") + "Z"


def quoted(value: str | None) -> str:
    """A value of data among words: null is bare, and so are plain words; all else is in quotes, with escapes."""
    if value is None:
        return _NULL
    return value if _BARE.fullmatch(value) and value.isprintable() and value != _NULL else repr(value)


def place(name: str) -> str:
    """A file or partition among words: as it is where it is plain, else in quotes, with escapes."""
    return name if _PATH.fullmatch(name) and name.isprintable() else repr(name)


def json_printable(document: str) -> str:
    """A JSON document that means the same, and of which nothing steers a terminal."""
    return "".join(each if each.isprintable() or each == "\n" else _json_escaped(each) for each in document)


def _escaped(character: str) -> str:
    return character if character.isprintable() else ascii(character)[1:-1]


def _json_escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
