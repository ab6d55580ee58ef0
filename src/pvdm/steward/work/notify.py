"""Who waits for an attempt is told when something about it changed in this process; for others they look again."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

Told = Callable[[], None]


class Changes:
    """Listeners by what they listen for; safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[str, list[Told]] = {}
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether nobody waits any more: the service stops."""
        return self._closed

    def changed(self, *subjects: str) -> None:
        """Something about these attempts is other than it was."""
        for told in self._of(subjects):
            told()

    def close(self) -> None:
        """Tell everybody, for the last time."""
        self._closed = True
        with self._lock:
            everyone = [told for listening in self._listeners.values() for told in listening]
        for told in everyone:
            told()

    @contextlib.contextmanager
    def listen(self, subject: str, told: Told) -> Iterator[None]:
        """Have `told` called, from whatever thread, at every change."""
        with self._lock:
            self._listeners.setdefault(subject, []).append(told)
        try:
            yield
        finally:
            with self._lock:
                left = self._listeners[subject]
                left.remove(told)
                if not left:
                    del self._listeners[subject]

    def _of(self, subjects: tuple[str, ...]) -> list[Told]:
        with self._lock:
            return [told for subject in subjects for told in self._listeners.get(subject, ())]
