"""The clock of one segment: a bounded run of a workload, such as one call of a serverless function."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Final, Self

from pvdm.durable.arguments import argument_text, is_number, is_whole
from pvdm.errors import Code

ROLLBACK_THRESHOLD_SECONDS: Final = 30.0
"""How long before its end a segment stops by default; a tenth of its time if that is less."""


def elapsed_seconds() -> float:
    """Seconds on a clock that cannot be set. If the system has CLOCK_BOOTTIME, the clock runs during a suspension."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(frozen=True, slots=True)
class Segment:
    """The limits of a segment. `stops_at` (by `elapsed_seconds`) leaves its process the time to roll back."""

    timeout_seconds: float
    stops_at: float
    max_chunks: int | None = None

    @classmethod
    def start(
        cls,
        timeout_seconds: float | None,
        rollback_threshold_seconds: float | None = None,
        *,
        max_chunks: int | None = None,
        started_at: float | None = None,
    ) -> Self:
        """A segment that begins now, or that began at `started_at`, a time by `elapsed_seconds`.

        It stops the threshold before its time-out, or when it has staged `max_chunks` chunks. Raises `segment_invalid`.
        """
        if max_chunks is not None and (not is_whole(max_chunks) or max_chunks < 1):
            raise Code.SEGMENT_INVALID(expected="a whole number of chunks, at least 1", got=argument_text(max_chunks))
        threshold = rollback_threshold_seconds
        for name, value in (("a segment's time", timeout_seconds), ("a rollback threshold", threshold)):
            if value is not None and not is_number(value):
                raise Code.SEGMENT_INVALID(expected=f"{name} as a number of seconds", got=argument_text(value))
        if timeout_seconds is None:
            if threshold is not None:
                raise Code.SEGMENT_INVALID(expected="a segment time-out", got="a rollback threshold only")
            return cls(math.inf, math.inf, max_chunks)
        if timeout_seconds <= 0:
            raise Code.SEGMENT_INVALID(expected="a segment's time above 0 seconds", got=f"{timeout_seconds:g} seconds")
        if threshold is None:
            threshold = min(ROLLBACK_THRESHOLD_SECONDS, timeout_seconds / 10)
        if not 0 <= threshold < timeout_seconds:
            expected = f"a rollback threshold of at least 0 and less than the segment's {timeout_seconds:g} seconds"
            raise Code.SEGMENT_INVALID(expected=expected, got=f"{threshold:g} seconds")
        begun = elapsed_seconds() if started_at is None else started_at
        return cls(timeout_seconds, begun + timeout_seconds - threshold, max_chunks)

    @property
    def remaining_seconds(self) -> float:
        """The seconds until the segment stops; not negative."""
        return max(0.0, self.stops_at - elapsed_seconds())

    def require_room(self, staged: int) -> None:
        """Raise `segment_ended` if the segment has staged as many chunks as it may."""
        if self.max_chunks is not None and staged >= self.max_chunks:
            raise Code.SEGMENT_ENDED()

    def require_time(self) -> None:
        """Raise `segment_timed_out` if the segment has to stop now."""
        if not self.remaining_seconds:
            expected = f"an end within a segment of {self.timeout_seconds:g} seconds"
            raise Code.SEGMENT_ENDED(reason="segment_timed_out", expected=expected, got="unfinished work")
