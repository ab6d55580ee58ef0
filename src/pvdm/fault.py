"""Named fault points: places where a test makes the process fail. They do nothing otherwise. Imports no package."""

from __future__ import annotations

from collections.abc import Callable

hook: Callable[[str], None] | None = None
"""Called with the name of each point that is reached; it may raise or end the process. Only tests set it."""


def point(name: str) -> None:
    """Call the hook, if there is one. Every call passes a literal name; docs/fault-points.md lists all names."""
    if hook is not None:
        hook(name)
