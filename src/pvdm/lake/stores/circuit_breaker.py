"""Lines to other servers: one that is silent to all is not asked again for a while.

Whoever asks the Steward waits less long than a server may hang, and has few threads to wait in; so the second call to
a silent server fails at once, and says so, instead of waiting as long as the first.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from typing import Final

REST_SECONDS: Final = 15


class Line:
    """What is known of one server: when it last answered, and since when it is silent."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._answered = float("-inf")
        self._silent: float | None = None

    def begin(self) -> float:
        """The time at which a call begins; a call to a server that was silent just now is refused."""
        with self._lock:
            now = self._clock()
            if self._silent is not None:
                if now - self._silent < REST_SECONDS:
                    raise TimeoutError(errno.ETIMEDOUT, "it was silent a moment ago")
                # This call finds out; the others do not wait for it.
                self._silent = now
            return now

    def answered(self) -> None:
        """It said something, whatever it was."""
        with self._lock:
            self._answered, self._silent = self._clock(), None

    def was_silent(self, begun: float) -> None:
        """A call that began then got nothing; where others got answers meanwhile, it is not the server."""
        with self._lock:
            if self._answered < begun:
                self._silent = self._clock()


_lines: dict[str, Line] = {}
_making: Final = threading.Lock()


def line_at(address: str) -> Line:
    """The line to the server at that address; all its clients share it."""
    with _making:
        return _lines.setdefault(address, Line())
