"""The queue in front of each table: commits to one table run one after the other, in order of arrival.

The queue only saves work. Without it two commits would be checked on one base, and the file of the second one would be
written and synced in vain. Every swap still compares, also that of a commit that waited too long for its turn.
Other Stewards on the same ledger have their own queues. The commit that has the turn here then waits for its turn at
the database (`Ledger.take_turn`). So one commit of each Steward waits there, and they are served in order.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from typing import Final

from pvdm.ledger.catalog.namespaces import Levels
from pvdm.ledger.locks import FairLock

COMMIT_TURN_MAX_SECONDS: Final = 10


class TableQueues:
    """A queue for every table that is being committed to."""

    def __init__(self, *, seconds: float = COMMIT_TURN_MAX_SECONDS) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._queues: dict[tuple[Levels, str], tuple[FairLock, int]] = {}

    def __len__(self) -> int:
        return len(self._queues)

    @contextlib.contextmanager
    def turn(self, tables: Iterable[tuple[Levels, str]]) -> Iterator[bool]:
        """Wait for a turn at all of the tables, always in the same order, so that there is no deadlock.

        Yields False after a wait: what was read of the tables before has probably changed.
        """
        at_once = True
        with contextlib.ExitStack() as stack:
            for table in sorted(set(tables)):
                queue = stack.enter_context(self._use_queue(table))
                at_once = at_once and queue.is_free
                stack.enter_context(queue.hold(self._seconds))
            yield at_once

    @contextlib.contextmanager
    def _use_queue(self, table: tuple[Levels, str]) -> Iterator[FairLock]:
        """The table's queue, which exists as long as a thread uses it."""
        with self._lock:
            queue, users = self._queues.get(table, (FairLock(), 0))
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
