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
_Key = TypeVar("_Key", bound=Hashable)


class SizedCache(Generic[_Key, _T]):
    """Values by their keys, up to a total size. The least recently used ones are dropped first."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._lock = threading.Lock()
        self._kept: OrderedDict[_Key, tuple[_T, int]] = OrderedDict()
        self._size = 0

    def get(self, key: _Key) -> _T | None:
        """The value, if it is kept."""
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            return found[0]

    def put(self, key: _Key, value: _T, size: int) -> None:
        """Keep the value. One that is larger than all may be together is not kept."""
        with self._lock:
            _, before = self._kept.pop(key, (value, 0))
            self._kept[key] = (value, size)
            self._size += size - before
            while self._size > self._size_max:
                _, (_, gone) = self._kept.popitem(last=False)
                self._size -= gone


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
        self._kept: SizedCache[tuple[bytes, Hashable], _T] = SizedCache(max_bytes)

    def get(self, data: bytes, how: Hashable, parse: Callable[[], _T]) -> _T:
        """The value of these bytes, parsed in this way. Errors are not cached."""
        if len(data) > self._file_max_bytes:
            return parse()
        key = (hashlib.sha256(data).digest(), how)
        found = self._kept.get(key)
        if found is not None:
            return found
        made = parse()
        size = len(data) + self._content_bytes(made)
        if size <= self._file_max_bytes:
            self._kept.put(key, made, size)
        return made
