"""Works on several items at a time, each in a thread, while the calling thread stays open to interruptions."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

PARALLEL_MAX: Final = 64
"""How many chunks of a workload one run works on at a time."""

_WAIT_SECONDS: Final = 0.2
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class WorkThreads(Generic[_Item, _Result]):
    """Begins the items in their order, and none after the first failure.

    Work on an item that was begun is brought to its end. The threads are daemons: an interrupted process can end.
    """

    def __init__(
        self, work: Callable[[_Item], _Result], *, threads: int, is_failure: Callable[[_Result], bool]
    ) -> None:
        """`is_failure` returns whether a result is a failure. An error that `work` raises is always one."""
        self._work = work
        self._threads = threads
        self._is_failure = is_failure
        self._lock = threading.Lock()
        self._taken = 0
        self._stopping = False
        self._running = 0
        self._results: dict[int, tuple[_Item, _Result]] = {}
        self._errors: dict[int, BaseException] = {}
        # Each thread puts None here at its end. `pvdm.physical.watchdog` says why `join` is not used.
        self._ends: queue.SimpleQueue[None] = queue.SimpleQueue()

    def run(self, items: Iterator[_Item]) -> list[tuple[_Item, _Result]]:
        """Work on the items; returns the results in the order of the items.

        Raises the error of the first item that has one, unless the result of an earlier item is a failure.
        """
        for number in range(self._threads):
            name = f"pvdm chunk {number + 1}"
            self._running += 1
            threading.Thread(target=self._run_thread, args=(items,), name=name, daemon=True).start()
        self._await_end(lambda: True)
        if self._errors:
            first = min(self._errors)
            if not any(index < first and self._is_failure(result) for index, (_, result) in self._results.items()):
                raise self._errors[first]
        return [self._results[index] for index in sorted(self._results)]

    def stop(self, *, while_needed: Callable[[], bool], seconds: float) -> BaseException | None:
        """Begin no further item. Wait for the threads while needed, at most `seconds`. Returns the first error."""
        self._stopping = True
        deadline = time.monotonic() + seconds
        self._await_end(lambda: while_needed() and time.monotonic() < deadline)
        return self._errors[min(self._errors)] if self._errors else None

    def _await_end(self, may_wait: Callable[[], bool]) -> None:
        while self._running and may_wait():
            with contextlib.suppress(queue.Empty):
                self._ends.get(timeout=_WAIT_SECONDS)
                self._running -= 1

    def _run_thread(self, items: Iterator[_Item]) -> None:
        try:
            while self._work_on_next(items):
                pass
        finally:
            self._ends.put(None)

    def _work_on_next(self, items: Iterator[_Item]) -> bool:
        """Work on the next item; returns whether there was one."""
        with self._lock:
            if self._stopping:
                return False
            index, self._taken = self._taken, self._taken + 1
            try:
                item = next(items)
            except StopIteration:
                return False
            except BaseException as error:  # `run` raises it in the calling thread
                self._stop_after(index, error)
                return False
        try:
            result = self._work(item)
        except BaseException as error:
            self._stop_after(index, error)
        else:
            self._results[index] = item, result
            if self._is_failure(result):
                self._stopping = True
        return True

    def _stop_after(self, index: int, error: BaseException) -> None:
        self._errors[index] = error
        self._stopping = True
