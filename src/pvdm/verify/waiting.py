"""Work that several threads take piece by piece, until there is none or one of them has failed."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Waiting(Generic[_T]):
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
        self._stopped = True
