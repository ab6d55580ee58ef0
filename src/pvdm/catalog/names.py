"""Names of namespaces and tables: which are valid, and how a namespace is written in a path."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final

from pvdm.errors import Code
from pvdm.ledger.catalog.namespaces import NAMESPACE_LEVELS_MAX, Levels
from pvdm.model import canonical_json

NAME_MAX_CHARACTERS: Final = 255
SEPARATOR: Final = "\x1f"

_REFUSED: Final = re.compile(r"[\x00-\x1f\x7f]|[\ud800-\udfff]")


def parse_levels(text: str) -> Levels:
    """The levels of a namespace in a path or query, joined by the unit separator."""
    return require_levels(text.split(SEPARATOR))


def require_levels(levels: list[str]) -> Levels:
    """The levels, if each is a valid name. Raises `namespace_invalid` or `name_invalid`."""
    if not 1 <= len(levels) <= NAMESPACE_LEVELS_MAX:
        raise Code.NAMESPACE_INVALID(expected=f"1 to {NAMESPACE_LEVELS_MAX} levels", got=str(len(levels)))
    return tuple(require_name(level, "a level of the namespace") for level in levels)


def full_name(parts: Sequence[str]) -> str:
    """Levels, and perhaps a table, as one unambiguous text: dotted, or JSON if a part has dots."""
    dotted = ".".join(parts)
    plain = not any("." in part for part in parts) and not dotted.startswith("[")
    return dotted if plain else canonical_json.dump(list(parts)).decode()


def parse_full_name(text: str) -> Levels:
    """The parts of a full name, each a valid name."""
    parts: list[str]
    if text.startswith("["):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, list) or not all(isinstance(part, str) for part in found):
            raise Code.NAME_INVALID(
                "the name cannot be accepted",
                expected="parts joined by dots, or a JSON array of them",
                got=ascii(text[:80]),
            )
        parts = found
    else:
        parts = text.split(".")
    return tuple(require_name(part, "a part of the name") for part in parts)


def require_name(name: str, what: str) -> str:
    """The name, if it is valid: not empty, not too long, no control characters. Dots and slashes are allowed."""
    if not 0 < len(name) <= NAME_MAX_CHARACTERS or _REFUSED.search(name) or name.strip() != name:
        raise Code.NAME_INVALID(
            f"{what} cannot be accepted",
            expected=f"1 to {NAME_MAX_CHARACTERS} characters without control characters or outer spaces",
            got=ascii(name[:80]),
        )
    return name
