"""Turns: callers with the same name wait for each other, others do not."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class Turns:
    """One holder of a name at a time, in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, tuple[threading.Lock, int]] = {}

    @contextlib.contextmanager
    def turn(self, name: str) -> Iterator[None]:
        """The caller's turn; until it is over, no other caller has one of this name."""
        with self._lock:
            lock, users = self._held.get(name, (threading.Lock(), 0))
            self._held[name] = (lock, users + 1)
        try:
            with lock:
                yield
        finally:
            with self._lock:
                users = self._held[name][1] - 1
                if users:
                    self._held[name] = (lock, users)
                else:
                    del self._held[name]
