"""Shares work among threads: each takes the next piece, until none is left or one thread has failed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Final, TypeVar

_T = TypeVar("_T")
_To = TypeVar("_To")

_LOOK_SECONDS: Final = 1.0
"""How often the main thread looks up: a signal that comes just before it begins to wait does not wake it."""


def share(pieces: Iterable[_T], workers: Sequence[Callable[[_T], None]]) -> None:
    """Give every piece once, in order, to a free worker, each in its own thread.

    After an error or an interruption no worker begins another piece.
    """
    waiting, lock, stopped = iter(pieces), threading.Lock(), list[bool]()

    def drain(worker: Callable[[_T], None]) -> None:
        try:
            while True:
                with lock:
                    piece = None if stopped else next(waiting, None)
                if piece is None:
                    return
                worker(piece)
        except BaseException:
            # Without the lock, since another thread may hold it while it waits for the next piece.
            stopped.append(True)
            raise

    if len(workers) == 1:
        drain(workers[0])
        return
    with ThreadPoolExecutor(len(workers)) as pool:
        try:
            for work in [pool.submit(drain, worker) for worker in workers]:
                while not wait([work], timeout=_LOOK_SECONDS).done:
                    pass
                work.result()
        except BaseException:
            stopped.append(True)
            raise


def mapped(threads: int, work: Callable[[_T], _To], given: Sequence[_T]) -> list[_To]:
    """The result for each, in order; after an error nothing more is begun."""
    found: dict[int, _To] = {}

    def run_piece(piece: tuple[int, _T]) -> None:
        found[piece[0]] = work(piece[1])

    share(enumerate(given), [run_piece] * max(1, min(threads, len(given))))
    return [found[at] for at in range(len(given))]
