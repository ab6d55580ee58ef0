"""How long a server is waited for: a call has few tries, and one that is silent to all is not asked again for a while.

Whoever asks the Steward waits less long than a store may hang; so the second call to a silent store fails at once,
and says so, instead of waiting as long as the first.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from typing import Any, Final

S3_CONNECT_MAX_SECONDS: Final = 5
S3_SILENT_TRIES_MAX: Final = 2
"""How often a request is made that gets nothing in its time; one that is broken off may be made more often."""
S3_REST_SECONDS: Final = 15
_BEGUN: Final = "pvdm_begun"


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
                if now - self._silent < S3_REST_SECONDS:
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


def line_to(client: Any) -> Line:
    """The line to the client's server; clients of one server share it."""
    with _making:
        return _lines.setdefault(client.meta.endpoint_url, Line())


def wait_with_patience(client: Any, service: str, tries: int) -> None:
    """Let the client's calls begin, end and be noted as the line says."""
    from botocore.exceptions import (
        ConnectionClosedError,
        ConnectTimeoutError,
        EndpointConnectionError,
        ProxyConnectionError,
        ReadTimeoutError,
    )

    line, late = line_to(client), (ConnectTimeoutError, ReadTimeoutError)
    silent = (*late, ConnectionClosedError, EndpointConnectionError, ProxyConnectionError)

    def begin(context: dict[str, Any], **_: object) -> None:
        context[_BEGUN] = line.begin()

    def judge(response: Any, attempts: int, caught_exception: Exception | None, request_dict: Any, **_: object) -> None:
        if response is not None:
            line.answered()
        elif isinstance(caught_exception, silent):
            most = min(tries, S3_SILENT_TRIES_MAX) if isinstance(caught_exception, late) else tries
            if attempts >= most:
                line.was_silent(request_dict["context"][_BEGUN])
                # The library offers no other way to end its tries.
                raise caught_exception

    client.meta.events.register_first(f"before-call.{service}", begin)
    client.meta.events.register_first(f"needs-retry.{service}", judge)


def note_answers(client: Any, service: str) -> None:
    """For a client that finds out whether the server answers again: it always asks, and tells the others."""
    line = line_to(client)

    def judge(response: Any, **_: object) -> None:
        if response is not None:
            line.answered()

    client.meta.events.register_first(f"needs-retry.{service}", judge)
