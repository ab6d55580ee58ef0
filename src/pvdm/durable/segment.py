"""The clock of one segment: a bounded run of a workload, such as one call of a serverless function."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Final, Self

from pvdm.errors import Code

ROLLBACK_THRESHOLD_SECONDS: Final = 30.0
"""How long before its end a segment stops, unless it says another time; at most a tenth of its time."""


def elapsed_seconds() -> float:
    """Seconds on a clock that cannot be set, and that goes on while the system is suspended where it provides that."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(frozen=True, slots=True)
class Segment:
    """Until when a segment works, by `elapsed_seconds`. After that, its process still has time to roll back."""

    timeout_seconds: float
    stops_at: float

    @classmethod
    def start(cls, timeout_seconds: float | None, rollback_threshold_seconds: float | None = None) -> Self:
        """A segment that begins now. Without a time-out it has no end."""
        threshold = rollback_threshold_seconds
        if timeout_seconds is None:
            if threshold is not None:
                raise Code.SEGMENT_INVALID(expected="a segment time-out", got="a rollback threshold only")
            return cls(math.inf, math.inf)
        if threshold is None:
            threshold = min(ROLLBACK_THRESHOLD_SECONDS, timeout_seconds / 10)
        if not 0 <= threshold < timeout_seconds < math.inf:
            expected = f"a rollback threshold of at least 0 and less than the segment's {timeout_seconds:g} seconds"
            raise Code.SEGMENT_INVALID(expected=expected, got=f"{threshold:g} seconds")
        return cls(timeout_seconds, elapsed_seconds() + timeout_seconds - threshold)

    @property
    def remaining_seconds(self) -> float:
        """How long it still works; not negative."""
        return max(0.0, self.stops_at - elapsed_seconds())

    def require_time(self) -> None:
        """Raise `segment_timed_out` if the segment has to stop now."""
        if not self.remaining_seconds:
            expected = f"an end within a segment of {self.timeout_seconds:g} seconds"
            raise Code.SEGMENT_TIMED_OUT(expected=expected, got="unfinished work")
