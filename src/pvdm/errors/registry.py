"""The registry of errors (`registry/*.toml`): for each code its class, when it is raised, and its default texts."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any


@dataclass(frozen=True, slots=True)
class Entry:
    """A code of the registry, or one of the reasons of a code. Programs decide by the code; a reason is more exact.

    `kinds` names classes, by `pvdm.errors.kinds.KINDS`: several if the raising function chooses one of them. `when`
    says in docs/errors.md when the error is raised; the other texts are defaults of the error itself.
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


@functools.cache
def load_section(name: str) -> dict[str, Entry]:
    """The codes of one file of the registry, read once per process. The file's other texts are for docs/errors.md."""
    document = tomllib.loads(_registry().joinpath(f"{name}.toml").read_text("utf-8"))
    return {code: _read_entry(table) for code, table in document.items() if isinstance(table, dict)}


def _registry() -> Traversable:
    return resources.files("pvdm.errors").joinpath("registry")


def _read_entry(table: dict[str, Any] | str, kinds: tuple[str, ...] = ()) -> Entry:
    """The entry of a TOML table, or of a text, which is the `when` of a reason. `kinds`: those of a reason's code."""
    if isinstance(table, str):
        return Entry(kinds, table)
    kind = table.get("kind", kinds)
    kinds = (kind,) if isinstance(kind, str) else tuple(kind)
    texts = {name: text for name, text in table.items() if name in {"when", "message", "expected", "hint"}}
    reasons = {name: _read_entry(value, kinds) for name, value in table.get("reasons", {}).items()}
    return Entry(kinds, **texts, reasons=reasons)


@functools.cache
def codes_by_reason() -> dict[str, str]:
    """The code to which each reason belongs."""
    return {reason: code for code, entry in _all_codes() for reason in entry.reasons}


@functools.cache
def entries_by_reason() -> dict[str, Entry]:
    """The entry of every code and every reason."""
    entries: dict[str, Entry] = {}
    for code, entry in _all_codes():
        entries |= {code: entry, **entry.reasons}
    return entries


def _all_codes() -> Iterator[tuple[str, Entry]]:
    names = (file.name.removesuffix(".toml") for file in _registry().iterdir())
    return (item for name in names for item in load_section(name).items())
