"""Access to the files of the tests' tables: local ones, or objects in buckets with PVDM_TEST_STORE=s3.

`file_at` gives an object that has the methods of a path for either, so that one test runs on both kinds of store.
"""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any, cast

from pvdm.lake.paths import Location, parse_location
from pvdm.lake.stores.stores import ObjectPath, Stores
from pvdm.steward.config.steward import StewardConfig
from pvdm.verify.fetch import Files
from tests.support.stores.s3_server import ACCOUNT, S3Server, started_s3

ON_S3 = os.environ.get("PVDM_TEST_STORE") == "s3"


def server() -> S3Server:
    """The S3 server of this test worker. It runs until the process ends."""
    return started_s3()


def on_test_store(local: Callable[[StewardConfig], StewardConfig]) -> Callable[[StewardConfig], StewardConfig]:
    """The change `local` of a configuration; with PVDM_TEST_STORE=s3 tables, metadata and vault are in a new bucket."""
    if not ON_S3:
        return local
    bucket = server().bucket().config()
    return lambda config: bucket(local(config))


_LOCAL = Stores()


def stores() -> Stores:
    """The stores that a test's files can be in, with the rights of an administrator."""
    return started_s3().stores if started_s3.cache_info().currsize else _LOCAL


def files() -> Files:
    return Files(stores())


class _Path(ObjectPath):
    """An object of a bucket, with the methods of a path that tests use."""

    def _at(self, *parts: str) -> _Path:
        return _Path(self.store, Location(self.place.scheme, self.place.authority, parts))

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.name).suffix

    def __lt__(self, other: _Path) -> bool:
        return self.place.parts < other.place.parts

    def write_bytes(self, data: bytes) -> None:
        self.put(data)

    def mkdir(self, **_: object) -> None:
        pass

    def chmod(self, _: int) -> None:
        pass

    def is_file(self) -> bool:
        return self.exists()

    def stat(self) -> SimpleNamespace:
        return SimpleNamespace(st_size=self.store.facts(self.place).size)

    def rglob(self, pattern: str) -> Iterator[_Path]:
        for each in self.store.walk(self.place):
            if PurePosixPath(*each.place.parts).match(pattern):
                yield self._at(*each.place.parts)

    def glob(self, pattern: str) -> Iterator[_Path]:
        found = (each.place.parts for each in self.store.files(self.place))
        return (self._at(*parts) for parts in found if fnmatch(parts[-1], pattern))


def file_at(location: Any) -> Path:
    """The file or folder at a location: a path, or an object with the methods of one."""
    place = location if isinstance(location, Location) else parse_location(str(location))
    if place.scheme == "file":
        return place.local
    return cast("Path", _Path(server().store, place))


def location_of(path: Path) -> str:
    """The location of a result of `file_at`."""
    given: object = path
    return str(given) if isinstance(given, ObjectPath) else f"file://{path}"


def age(path: Path, seconds: float) -> None:
    """Set the file's time of change to so many seconds ago."""
    given: object = path
    if not isinstance(given, ObjectPath):
        os.utime(path, (time.time() - seconds,) * 2)
        return
    from moto.s3.models import s3_backends

    bucket = s3_backends[ACCOUNT]["aws"].buckets[given.place.authority]
    key = bucket.keys["/".join(given.place.parts)]
    key.last_modified -= datetime.timedelta(seconds=seconds)
