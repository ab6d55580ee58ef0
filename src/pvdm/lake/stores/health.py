"""Health of the stores: whether object stores answer, and the Steward (pvdm's service) can write its folders."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pvdm.errors import Code, PvdmError
from pvdm.lake.stores.s3_client import S3Settings, call_store, open_client
from pvdm.lake.stores.store import UNFINISHED_PREFIX

S3_CHECK_MAX_SECONDS: Final = 2
_RESULT_SECONDS: Final = 5.0
"""How long the result of a check is used."""
_TRIAL_BYTES: Final = 4_096


class _Health(ABC):
    """A check whose result is used for a few seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._checked_at = float("-inf")
        self._error: PvdmError | None = None

    def require(self) -> None:
        """Check, unless the last check is recent. Raise the error that the check found."""
        with self._lock:
            if self._clock() - self._checked_at >= _RESULT_SECONDS:
                self._error = self._check()
                self._checked_at = self._clock()
            error = self._error
        if error is not None:
            raise error.with_traceback(None)

    @abstractmethod
    def _check(self) -> PvdmError | None: ...


class StoreHealth(_Health):
    """Checks that the object store answers and that the Steward's buckets exist."""

    def __init__(
        self, settings: S3Settings, buckets: Sequence[str], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(clock)
        self._settings = replace(settings, timeout_seconds=S3_CHECK_MAX_SECONDS, tries=1)
        self._buckets = tuple(dict.fromkeys(buckets))
        self._client: Any = None

    def _check(self) -> PvdmError | None:
        if self._client is None:
            self._client = open_client(self._settings, ignores_breaker=True)
            weakref.finalize(self, self._client.close)
        for bucket in self._buckets:
            try:
                call_store(self._client.head_bucket, Bucket=bucket)
            except OSError as error:
                got = "no such bucket" if isinstance(error, FileNotFoundError) else str(error.strerror)
                # A refusal is an answer. A missing right is reported by the operation that needs it.
                if isinstance(error, PermissionError) and "no credentials" not in got:
                    continue
                expected = f"an answer of {self._settings.endpoint or 'AWS in ' + self._settings.region}"
                words = f"the object store of the bucket {bucket} cannot be used"
                return Code.STORAGE_UNAVAILABLE(words, reason="store_unavailable", expected=expected, got=got)
        return None


class FolderHealth(_Health):
    """Checks that the folders of a Steward exist and can be written to."""

    def __init__(
        self,
        folders: Mapping[Path, Callable[[], bool]],
        only_read: Collection[Path] = (),
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`folders` has for each folder a function that returns whether the Steward has used the folder.

        A folder that was used, or that an earlier check found, must exist. Folders in `only_read` are not written to.
        """
        super().__init__(clock)
        self._folders = dict(folders)
        self._only_read = frozenset(only_read)
        self._seen: set[Path] = set()

    def _check(self) -> PvdmError | None:
        return next((error for error in map(self._check_folder, self._folders) if error is not None), None)

    def _check_folder(self, folder: Path) -> PvdmError | None:
        try:
            if folder.is_dir():
                self._seen.add(folder)
            elif folder in self._seen or self._folders[folder]():
                reason = "steward_folder_missing"
                return Code.STEWARD_FOLDER_UNAVAILABLE(reason=reason, expected=str(folder), got="none")
            if folder not in self._only_read:
                nearest_existing = next(each for each in (folder, *folder.parents) if each.is_dir())
                _try_to_write(nearest_existing)
        except OSError as error:
            is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            hint = "make room; failed work is tried again" if is_full else "check the folder's rights and its mount"
            expected, got, reason = f"room and rights in {folder}", str(error.strerror), "steward_folder_unwritable"
            return Code.STEWARD_FOLDER_UNAVAILABLE(reason=reason, expected=expected, got=got, hint=hint)
        return None


def _try_to_write(folder: Path) -> None:
    """Write, sync and remove a small file. Without the sync a full disk may go unnoticed."""
    path = folder / f"{UNFINISHED_PREFIX}{secrets.token_hex(8)}"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, bytes(_TRIAL_BYTES))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
        with contextlib.suppress(OSError):
            path.unlink()
