"""How an experiment tells how far it is; whether anybody sees it is the caller's business."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Watch: TypeAlias = Callable[[str, int, int], None]
"""Called with the name of a part, the steps done of it and its steps in all; often, so it must be quick."""


def unwatched(_part: str, _done: int, _total: int, /) -> None:
    """Nobody looks."""
