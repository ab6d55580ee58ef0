"""Parsed files by the hash of their bytes, in bounded memory: the same manifest or list is not decoded again."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

PARSED_FILE_MAX_BYTES: Final = 262_144
PARSED_FILES_MAX_BYTES: Final = 4_194_304

_T = TypeVar("_T")


class ParsedFiles(Generic[_T]):
    """What a pure function made of some bytes; the values must never be changed. What was used longest ago goes first.

    The bytes are hashed each time, so that a file that was changed is never taken for the one that was parsed.
    """

    def __init__(
        self,
        content_bytes: Callable[[_T], int],
        *,
        file_max_bytes: int = PARSED_FILE_MAX_BYTES,
        max_bytes: int = PARSED_FILES_MAX_BYTES,
    ) -> None:
        """`content_bytes` says how long a file's content is once it is decompressed: the limits go by that."""
        self._content_bytes = content_bytes
        self._file_max_bytes = file_max_bytes
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[bytes, Hashable], tuple[_T, int]] = OrderedDict()
        self._bytes = 0

    def get(self, data: bytes, how: Hashable, parse: Callable[[], _T]) -> _T:
        """The value of these bytes, parsed in this way. Errors are not cached."""
        if len(data) > self._file_max_bytes:
            return parse()
        key = (hashlib.sha256(data).digest(), how)
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                return found[0]
        made = parse()
        size = len(data) + self._content_bytes(made)
        if size > self._file_max_bytes:
            return made
        with self._lock:
            _, before = self._kept.pop(key, (made, 0))
            self._kept[key] = (made, size)
            self._bytes += size - before
            while self._bytes > self._max_bytes:
                _, (_, gone) = self._kept.popitem(last=False)
                self._bytes -= gone
        return made
