"""Shares work among threads: each takes the next piece of work, until no piece is left or a thread has failed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Final, TypeVar

_T = TypeVar("_T")
_Result = TypeVar("_Result")

_WAIT_SECONDS: Final = 1.0
"""The length of one wait of the main thread. A signal that arrives just before a wait is handled after it."""


def share(pieces: Iterable[_T], workers: Sequence[Callable[[_T], None]]) -> None:
    """Give each piece, in order, to a free worker. Several workers run in threads. After an error no piece is begun."""
    # `stopped` is a list and not an Event, because a signal that interrupts `Event.set` can leave its lock taken.
    remaining, lock, stopped = iter(pieces), threading.Lock(), list[bool]()

    def drain(worker: Callable[[_T], None]) -> None:
        try:
            while True:
                with lock:
                    piece = None if stopped else next(remaining, None)
                if piece is None:
                    return
                worker(piece)
        except BaseException:
            # The lock is not taken here, since another thread may hold it while it waits for the next piece.
            stopped.append(True)
            raise

    if len(workers) == 1:
        drain(workers[0])
        return
    with ThreadPoolExecutor(len(workers)) as pool:
        try:
            for work in [pool.submit(drain, worker) for worker in workers]:
                while not wait([work], timeout=_WAIT_SECONDS).done:
                    pass
                work.result()
        except BaseException:
            stopped.append(True)
            raise


def map_in_threads(threads: int, work: Callable[[_T], _Result], values: Sequence[_T]) -> list[_Result]:
    """The result of `work` for each value, in order. After an error no further value is begun."""
    results: dict[int, _Result] = {}

    def run_piece(piece: tuple[int, _T]) -> None:
        at, value = piece
        results[at] = work(value)

    share(enumerate(values), [run_piece] * max(1, min(threads, len(values))))
    return [results[at] for at in range(len(values))]
