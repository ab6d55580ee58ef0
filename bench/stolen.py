"""What the host gave to others: a virtual machine's seconds are only as good as the processors that it had."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

_STOLEN: Final = 8
"""The column of `/proc/stat` with the time in which a processor was wanted, and was somebody else's."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time from which the share is counted."""

    at: float
    stolen_seconds: float | None

    @classmethod
    def now(cls) -> Self:
        """From here on."""
        return cls(time.monotonic(), _stolen_seconds())

    def share(self) -> float | None:
        """Of all processors' time since then, how much others had; None where the system does not tell."""
        now = type(self).now()
        if self.stolen_seconds is None or now.stolen_seconds is None:
            return None
        return (now.stolen_seconds - self.stolen_seconds) / ((now.at - self.at) * (os.cpu_count() or 1))


def _stolen_seconds() -> float | None:
    told = Path("/proc/stat")
    if not told.exists():
        return None
    return int(told.read_text().split("\n", 1)[0].split()[_STOLEN]) / os.sysconf("SC_CLK_TCK")
