"""Measures stolen time: processor time that a virtual machine wanted, and that its host gave to other guests.

Times that were measured while much was stolen say little.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

_STOLEN: Final = 8
"""The column of `/proc/stat` with the stolen time."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time, from which the stolen share is counted."""

    at: float
    stolen_seconds: float | None

    @classmethod
    def now(cls) -> Self:
        """The present."""
        return cls(time.monotonic(), _stolen_seconds())

    def share(self) -> float | None:
        """The share of all processors' time since then that was stolen; None if the system does not report it."""
        now = type(self).now()
        if self.stolen_seconds is None or now.stolen_seconds is None:
            return None
        return (now.stolen_seconds - self.stolen_seconds) / ((now.at - self.at) * (os.cpu_count() or 1))


def _stolen_seconds() -> float | None:
    statistics = Path("/proc/stat")
    if not statistics.exists():
        return None
    return int(statistics.read_text().split("\n", 1)[0].split()[_STOLEN]) / os.sysconf("SC_CLK_TCK")
