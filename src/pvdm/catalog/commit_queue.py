"""The queue in front of each table: commits to one table are judged and swapped one after the other, as they came.

The queue only saves work. Without it two commits would be judged on one base, and the second one's file would be
written and synced in vain. Every swap still compares, also that of a commit that waited too long for its turn.
Other Stewards on the same ledger have their own queues. The commit that has the turn here then takes one at the
database (`Ledger.in_turn`). So one commit of each Steward waits there, and they are served in turn.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from typing import Final

from pvdm.ledger.catalog.namespaces import Levels
from pvdm.ledger.fair_lock import Queue

COMMIT_TURN_MAX_SECONDS: Final = 10


class TableQueues:
    """A queue for every table that somebody commits to just now."""

    def __init__(self, *, seconds: float = COMMIT_TURN_MAX_SECONDS) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._queues: dict[tuple[Levels, str], tuple[Queue, int]] = {}

    def __len__(self) -> int:
        return len(self._queues)

    @contextlib.contextmanager
    def turn(self, tables: Iterable[tuple[Levels, str]]) -> Iterator[bool]:
        """A turn at all of the tables, taken in one order, so that two that wait never wait in a circle.

        False for whoever had to wait: what was read of the tables before has most likely changed.
        """
        at_once = True
        with contextlib.ExitStack() as stack:
            for table in sorted(set(tables)):
                queue = stack.enter_context(self._joined(table))
                at_once = at_once and queue.idle
                stack.enter_context(queue.turn(self._seconds))
            yield at_once

    @contextlib.contextmanager
    def _joined(self, table: tuple[Levels, str]) -> Iterator[Queue]:
        with self._lock:
            queue, users = self._queues.get(table, (Queue(), 0))
            self._queues[table] = (queue, users + 1)
        try:
            yield queue
        finally:
            with self._lock:
                users = self._queues[table][1] - 1
                if users:
                    self._queues[table] = (queue, users)
                else:
                    del self._queues[table]
