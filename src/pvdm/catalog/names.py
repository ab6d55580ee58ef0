"""Names of namespaces and tables: what is accepted, and how a namespace stands in a path."""

from __future__ import annotations

import re
from typing import Final

from pvdm.errors import InputError
from pvdm.store.namespaces import NAMESPACE_LEVELS_MAX, Levels

NAME_MAX_CHARACTERS: Final = 255
SEPARATOR: Final = "\x1f"

_REFUSED: Final = re.compile(r"[\x00-\x1f\x7f]|[\ud800-\udfff]")


def levels_of(text: str) -> Levels:
    """The levels of a namespace as a path or query has it: joined by the unit separator."""
    return judged_levels(text.split(SEPARATOR))


def judged_levels(levels: list[str]) -> Levels:
    """The levels, each a name."""
    if not 1 <= len(levels) <= NAMESPACE_LEVELS_MAX:
        raise InputError(
            "namespace_invalid",
            "the namespace cannot be accepted",
            expected=f"1 to {NAMESPACE_LEVELS_MAX} levels",
            got=str(len(levels)),
        )
    return tuple(judged_name(level, "a level of the namespace") for level in levels)


def judged_name(name: str, what: str) -> str:
    """A name: not empty, not too long, no control character; dots and slashes are letters like others."""
    if not 0 < len(name) <= NAME_MAX_CHARACTERS or _REFUSED.search(name) or name.strip() != name:
        raise InputError(
            "name_invalid",
            f"{what} cannot be accepted",
            expected=f"1 to {NAME_MAX_CHARACTERS} characters without control characters or outer spaces",
            got=ascii(name[:80]),
        )
    return name
