"""The registry of errors: for each code its class, when it is raised, and the message and hint that its errors have."""

from __future__ import annotations

import functools
import tomllib
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
"""The files of the registry, in the order that the page of errors has."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A code of the registry, or one of the reasons of a code.

    `kinds` names several classes where the caller decides which one the error has. A code with reasons is a family:
    programs act on the code, and the reason says what exactly is wrong.
    """

    kinds: tuple[str, ...]
    when: str
    message: str | None = None
    expected: str | None = None
    hint: str | None = None
    reasons: dict[str, Entry] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Section:
    """The codes of one subject, with the heading and the text that the page of errors has for them."""

    title: str
    text: str
    entries: dict[str, Entry]


@functools.cache
def load_section(name: str) -> Section:
    """Read one file of the registry; once a process."""
    text = resources.files("pvdm.errors").joinpath("registry", f"{name}.toml").read_text("utf-8")
    document: dict[str, Any] = tomllib.loads(text)
    title, about = document.pop("title"), document.pop("text")
    return Section(title, about, {code: _entry(table) for code, table in document.items()})


def _entry(table: dict[str, Any], kinds: tuple[str, ...] = ()) -> Entry:
    kind = table.get("kind", kinds)
    kinds = (kind,) if isinstance(kind, str) else tuple(kind)
    found = {name: text for name, text in table.items() if name in {"when", "message", "expected", "hint"}}
    reasons = table.get("reasons", {})
    nested = {
        name: _entry(value if isinstance(value, dict) else {"when": value}, kinds) for name, value in reasons.items()
    }
    return Entry(kinds, **found, reasons=nested)


@functools.cache
def codes_by_reason() -> dict[str, str]:
    """The code of every reason that is not a code itself."""
    entries = (each for name in SECTIONS for each in load_section(name).entries.items())
    return {reason: code for code, entry in entries for reason in entry.reasons}
