"""Circuit breakers: a server that does not answer is not called again for a while.

The Steward has few threads, and its clients do not wait as long as a server may hang. So after a call without an
answer, other calls to this server fail at once for `OPEN_SECONDS`.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from typing import Final

OPEN_SECONDS: Final = 15


class CircuitBreaker:
    """The state of one server: when it last answered, and when a later call got no answer."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._answered_at = float("-inf")
        self._silent_at: float | None = None

    def begin(self) -> float:
        """The start time of a call. Raises TimeoutError while the breaker is open."""
        with self._lock:
            now = self._clock()
            if self._silent_at is not None:
                if now - self._silent_at < OPEN_SECONDS:
                    seconds = int(now - self._silent_at)
                    raise TimeoutError(errno.ETIMEDOUT, f"a call {seconds} seconds ago got no answer")
                # This call tries the server again. For other calls the breaker stays open until this one is answered.
                self._silent_at = now
            return now

    def record_answer(self) -> None:
        """Record any answer of the server."""
        with self._lock:
            self._answered_at, self._silent_at = self._clock(), None

    def record_silence(self, begun: float) -> None:
        """Record that a call, `begun` at this time, got no answer. Do nothing if an answer came since then."""
        with self._lock:
            if self._answered_at < begun:
                self._silent_at = self._clock()


_breakers: dict[str, CircuitBreaker] = {}


def breaker_of(address: str) -> CircuitBreaker:
    """The circuit breaker of the server at that address, shared by all its clients."""
    return _breakers.setdefault(address, CircuitBreaker())  # `setdefault` is atomic
