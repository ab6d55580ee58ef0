"""A cache of parsed manifests and manifest lists, with bounded memory. Its keys are hashes of the files' bytes."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

# If a file and its decompressed content together have more bytes than this, the file is not cached.
CACHED_FILE_MAX_BYTES: Final = 262_144
FILE_CACHE_MAX_BYTES: Final = 4_194_304

_T = TypeVar("_T")
_Key = TypeVar("_Key", bound=Hashable)


class SizedCache(Generic[_Key, _T]):
    """Values by their keys, up to a total size. The least recently used values are dropped first."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._lock = threading.Lock()
        self._entries: OrderedDict[_Key, tuple[_T, int]] = OrderedDict()
        self._size = 0

    def get(self, key: _Key) -> _T | None:
        """The value; None if the cache does not have it."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: _Key, value: _T, size: int) -> None:
        """Add or replace a value. A value that is larger than the whole cache is not kept."""
        with self._lock:
            _, replaced_size = self._entries.pop(key, (value, 0))
            self._size -= replaced_size
            if size > self._size_max:
                return
            self._entries[key] = (value, size)
            self._size += size
            while self._size > self._size_max:
                _, (_, dropped_size) = self._entries.popitem(last=False)
                self._size -= dropped_size


class ParsedFiles(Generic[_T]):
    """Parsed files by the hash of their bytes: a changed file is parsed again. Callers must not modify parsed files."""

    def __init__(self, content_bytes: Callable[[_T], int], max_bytes: int = FILE_CACHE_MAX_BYTES) -> None:
        """`content_bytes` returns the decompressed size of a parsed file, which counts for the limits too."""
        self._content_bytes = content_bytes
        self._cache: SizedCache[tuple[bytes, Hashable], _T] = SizedCache(max_bytes)

    def get(self, data: bytes, options: Hashable, parse: Callable[[], _T]) -> _T:
        """The parsed file of these bytes, from the cache if it was parsed with these options. Errors are not cached."""
        if len(data) > CACHED_FILE_MAX_BYTES:
            return parse()
        key = (hashlib.sha256(data).digest(), options)
        cached = self._cache.get(key)
        if cached is not None:
            return cached
        parsed = parse()
        size = len(data) + self._content_bytes(parsed)
        if size <= CACHED_FILE_MAX_BYTES:
            self._cache.put(key, parsed, size)
        return parsed
