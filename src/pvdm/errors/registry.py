"""The registry of errors: for each code its class, when it is raised, and the default texts of its errors."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Final

SECTIONS: Final = (
    "data",
    "commands",
    "statements",
    "keys",
    "log",
    "steward",
    "ledger",
    "iceberg",
    "catalog",
    "upstream",
    "protection",
    "contracts",
    "work",
    "verification",
    "gate",
    "audit",
)
"""The files of the registry, in the order of docs/errors.md."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A code of the registry, or one of the reasons of a code.

    `kinds` names several classes if the code that raises the error chooses one. Programs act on the code; the reason
    says what exactly is wrong.
    """

    kinds: tuple[str, ...]
    when: str
    message: str | None = None
    expected: str | None = None
    hint: str | None = None
    reasons: dict[str, Entry] = field(default_factory=dict)

    @property
    def default_message(self) -> str:
        """The message of an error that is raised without one."""
        return self.message or self.when


@dataclass(frozen=True, slots=True)
class Section:
    """The codes of one subject, with their heading and introduction in docs/errors.md."""

    title: str
    text: str
    entries: dict[str, Entry]


@functools.cache
def load_section(name: str) -> Section:
    """Read one file of the registry, once a process."""
    content = resources.files("pvdm.errors").joinpath("registry", f"{name}.toml").read_text("utf-8")
    document: dict[str, Any] = tomllib.loads(content)
    title, text = document.pop("title"), document.pop("text")
    return Section(title, text, {code: _read_entry(table) for code, table in document.items()})


def _read_entry(table: dict[str, Any] | str, kinds: tuple[str, ...] = ()) -> Entry:
    """The entry of a table of the file. A reason can be written as its `when` alone, and has the code's `kinds`."""
    if isinstance(table, str):
        return Entry(kinds, table)
    kind = table.get("kind", kinds)
    kinds = (kind,) if isinstance(kind, str) else tuple(kind)
    texts = {name: text for name, text in table.items() if name in {"when", "message", "expected", "hint"}}
    reasons = {name: _read_entry(value, kinds) for name, value in table.get("reasons", {}).items()}
    return Entry(kinds, **texts, reasons=reasons)


@functools.cache
def codes_by_reason() -> dict[str, str]:
    """The code of every reason that is not a code itself."""
    return {reason: code for code, entry in _all_codes() for reason in entry.reasons}


@functools.cache
def entries_by_reason() -> dict[str, Entry]:
    """The entry of every code and every reason."""
    return {name: each for code, entry in _all_codes() for name, each in {code: entry, **entry.reasons}.items()}


def _all_codes() -> Iterator[tuple[str, Entry]]:
    return (item for name in SECTIONS for item in load_section(name).entries.items())
