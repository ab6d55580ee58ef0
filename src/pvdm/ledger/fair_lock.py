"""Turns at an embedded database: threads of one process wait for each other here, not in the database's sleeps.

SQLite lets one writer at a time, and its commit waits until nobody reads; whoever finds it busy sleeps and tries again,
in steps of up to a tenth of a second and in no order. Here they wait in the order in which they came and are woken.
Nothing rests on a turn: whoever does not get one in time goes on and meets the database's own locks, as other
processes do.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterator


class Queue:
    """One at a time, in order of arrival."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()
        self._busy = False

    @property
    def idle(self) -> bool:
        """Whether nobody has the turn; then nobody waits for it either."""
        return not self._busy

    @contextlib.contextmanager
    def turn(self, seconds: float) -> Iterator[bool]:
        """The turn, given back at the end; False for whoever waited so long in vain."""
        mine = self._take(seconds)
        try:
            yield mine
        finally:
            if mine:
                self._pass_on()

    def _take(self, seconds: float) -> bool:
        with self._lock:
            if not self._busy:
                self._busy = True
                return True
            place = threading.Lock()
            place.acquire()
            self._waiting.append(place)
        if place.acquire(timeout=seconds):
            return True
        with self._lock:
            if place in self._waiting:
                self._waiting.remove(place)
                return False
        return True  # it was handed over in the same moment

    def _pass_on(self) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._busy = False


class Turns:
    """Writers one after the other; readers together, but not during a commit."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._writers = Queue()
        self._changed = threading.Condition()
        self._readers = 0
        self._committing = False

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """From a writer's first statement to its end."""
        with self._writers.turn(self._seconds):
            yield

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """From a reader's first statement to its end; a commit that waits comes first."""
        with self._changed:
            self._changed.wait_for(lambda: not self._committing, self._seconds)
            self._readers += 1
        try:
            yield
        finally:
            with self._changed:
                self._readers -= 1
                if not self._readers:
                    self._changed.notify_all()

    @contextlib.contextmanager
    def committing(self) -> Iterator[None]:
        """While the database makes a writer's work durable: the readers that are there end first."""
        until = time.monotonic() + self._seconds
        with self._changed:
            alone = self._changed.wait_for(lambda: not self._committing, self._seconds)
            if alone:
                self._committing = True
                self._changed.wait_for(lambda: not self._readers, until - time.monotonic())
        try:
            yield
        finally:
            if alone:
                with self._changed:
                    self._committing = False
                    self._changed.notify_all()
