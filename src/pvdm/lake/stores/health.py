"""Whether an object store answers, asked at most every few seconds and never waited for long."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from pvdm.errors import Code
from pvdm.lake.stores.s3_client import S3Settings, asked, open_client

S3_CHECK_MAX_SECONDS: Final = 2
_KEPT_SECONDS: Final = 5.0


class Answering:
    """The buckets that a Steward needs; one answer serves everybody for a while."""

    def __init__(
        self, settings: S3Settings, buckets: Sequence[str], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = replace(settings, timeout_seconds=S3_CHECK_MAX_SECONDS, tries=1)
        self._buckets = tuple(dict.fromkeys(buckets))
        self._clock = clock
        self._lock = threading.Lock()
        self._client: Any = None
        self._asked = float("-inf")
        self._found: tuple[str, str] | None = None

    def require(self) -> None:
        """Every bucket is there and its store answers; the refusal is for those who look after the Steward."""
        with self._lock:
            if self._clock() - self._asked >= _KEPT_SECONDS:
                self._found = self._wrong()
                self._asked = self._clock()
            found = self._found
        if found is None:
            return
        bucket, got = found
        raise Code.STORE_UNAVAILABLE(
            f"the object store of the bucket {bucket} cannot be used",
            expected=f"an answer of {self._settings.endpoint or 'AWS in ' + self._settings.region}",
            got=got,
        )

    def _wrong(self) -> tuple[str, str] | None:
        """The first bucket with which something is wrong, and what."""
        if self._client is None:
            self._client = open_client(self._settings, asks_always=True)
            weakref.finalize(self, self._client.close)
        for bucket in self._buckets:
            try:
                asked(self._client.head_bucket, Bucket=bucket)
            except PermissionError as error:
                # It answers, and what the Steward may do there is found out where it does it.
                if "no credentials" in str(error.strerror):
                    return bucket, str(error.strerror)
            except FileNotFoundError:
                return bucket, "no such bucket"
            except OSError as error:
                return bucket, str(error.strerror)
        return None
