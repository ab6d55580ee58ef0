"""Named fault points: places where a test makes the process fail; otherwise they do nothing. Imports no package."""

from __future__ import annotations

from collections.abc import Callable

hook: Callable[[str], None] | None = None
"""Called with the name of each point that is reached. Only tests set it."""


def point(name: str) -> None:
    """Call the hook, if there is one. The name is a literal in the source; docs/fault-points.md lists all of them."""
    if hook is not None:
        hook(name)
