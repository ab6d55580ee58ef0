"""Whether the Steward's own folders on this machine can be written to, tried at most every few seconds."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import threading
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

from pvdm.errors import UnavailableError
from pvdm.lake.stores.store import UNFINISHED

_KEPT_SECONDS: Final = 5.0
_TRIED_BYTES: Final = 4_096


class Writable:
    """Folders that the Steward writes to; one answer serves everybody for a while."""

    def __init__(
        self,
        folders: Mapping[Path, Callable[[], bool]],
        only_read: Collection[Path] = (),
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Each folder, with whether it was used: it is made at its first use, and missing if it is gone after that.

        One that was seen once is missing too if it is gone, whatever is said of its use.

        Folders that are `only_read` have to be there; nothing is written to them.
        """
        self._folders = dict(folders)
        self._only_read = frozenset(only_read)
        self._clock = clock
        self._seen: set[Path] = set()
        self._lock = threading.Lock()
        self._tried = float("-inf")
        self._found: UnavailableError | None = None

    def require(self) -> None:
        """Each folder is there and takes a file."""
        with self._lock:
            if self._clock() - self._tried >= _KEPT_SECONDS:
                self._found = next(filter(None, map(self._wrong, self._folders)), None)
                self._tried = self._clock()
            found = self._found
        if found is not None:
            raise found.with_traceback(None)

    def _wrong(self, folder: Path) -> UnavailableError | None:
        try:
            there = folder.is_dir()
            if there:
                self._seen.add(folder)
            if there or not (folder in self._seen or self._folders[folder]()):
                if folder not in self._only_read:
                    _write(_nearest(folder))
                return None
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            return UnavailableError(
                "steward_folder_unwritable",
                "the Steward cannot write to its own folder",
                expected=f"room and rights in {folder}",
                got=str(error.strerror),
                hint="make room; what it stopped is tried again" if full else "look at its rights and at the mount",
            )
        return UnavailableError(
            "steward_folder_missing",
            "a folder of the Steward is not where it was",
            expected=str(folder),
            got="none",
            hint="bring it back to its place",
        )


def _nearest(folder: Path) -> Path:
    """The folder, or the nearest above it that is there."""
    return next(each for each in (folder, *folder.parents) if each.is_dir())


def _write(folder: Path) -> None:
    """A small file, synced and taken away: a full disk says so only then."""
    path = folder / f"{UNFINISHED}{secrets.token_hex(8)}"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, bytes(_TRIED_BYTES))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
        with contextlib.suppress(OSError):
            path.unlink()
