"""Work that several threads take piece by piece, until there is none or one of them has failed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final, Generic, TypeVar

_T = TypeVar("_T")
_To = TypeVar("_To")

_LOOK_SECONDS: Final = 1.0
"""A signal that comes just before the main thread begins to wait does not wake it: it looks up this often."""


class _Waiting(Generic[_T]):
    """Pieces that threads take one by one."""

    def __init__(self, pieces: Iterable[_T]) -> None:
        self._pieces = iter(pieces)
        self._lock = threading.Lock()
        self._stopped = False

    def take(self) -> _T | None:
        """The next piece; None where there is no more to do."""
        with self._lock:
            return None if self._stopped else next(self._pieces, None)

    def stop(self) -> None:
        """Nobody begins another piece."""
        # Without the lock: a thread that waits for the source of the pieces must not keep others from stopping.
        self._stopped = True


def share(pieces: Iterable[_T], workers: Sequence[Callable[[_T], None]]) -> None:
    """Every piece once, in order, by whichever worker is free, each in a thread of its own.

    After an error, or an interruption, nobody begins another piece.
    """
    waiting = _Waiting(pieces)

    def drain(worker: Callable[[_T], None]) -> None:
        try:
            while (piece := waiting.take()) is not None:
                worker(piece)
        except BaseException:
            waiting.stop()
            raise

    if len(workers) == 1:
        drain(workers[0])
        return
    with ThreadPoolExecutor(len(workers)) as pool:
        try:
            for done in [pool.submit(drain, worker) for worker in workers]:
                _ended(done)
        except BaseException:
            waiting.stop()
            raise


def _ended(work: Future[None]) -> None:
    """Wait until it has ended; raises what it raised."""
    while not wait([work], timeout=_LOOK_SECONDS).done:
        pass
    work.result()


def mapped(threads: int, work: Callable[[_T], _To], given: Sequence[_T]) -> list[_To]:
    """What becomes of each, in order; after an error nothing more is begun."""
    found: dict[int, _To] = {}

    def one(piece: tuple[int, _T]) -> None:
        found[piece[0]] = work(piece[1])

    share(enumerate(given), [one] * max(1, min(threads, len(given))))
    return [found[at] for at in range(len(given))]
