"""Wait for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable

SECONDS = 20.0


def eventually(holds: Callable[[], bool]) -> bool:
    """Whether it came to hold within some seconds."""
    ends = time.monotonic() + SECONDS
    while not (held := holds()) and time.monotonic() < ends:
        time.sleep(0.01)
    return held
