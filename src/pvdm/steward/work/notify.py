"""Wakes waiters when this process changes an attempt. Changes by other processes are found by polling."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

Listener = Callable[[], None]


class Changes:
    """Listeners by the attempt that they wait for; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[str, list[Listener]] = {}
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether the service stops, so that waiting is over."""
        return self._closed

    def changed(self, *subjects: str) -> None:
        """Wake the listeners of these attempts."""
        with self._lock:
            listeners = [each for subject in subjects for each in self._listeners.get(subject, ())]
        for listener in listeners:
            listener()

    def close(self) -> None:
        """Wake all listeners for the last time."""
        self._closed = True
        with self._lock:
            listeners = [each for of_subject in self._listeners.values() for each in of_subject]
        for listener in listeners:
            listener()

    @contextlib.contextmanager
    def listen(self, subject: str, listener: Listener) -> Iterator[None]:
        """Call `listener` at every change, from any thread."""
        with self._lock:
            self._listeners.setdefault(subject, []).append(listener)
        try:
            yield
        finally:
            with self._lock:
                left = self._listeners[subject]
                left.remove(listener)
                if not left:
                    del self._listeners[subject]
