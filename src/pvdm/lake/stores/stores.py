"""Which store a location lies in: its scheme says so, and what is not configured is refused by name."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TypeAlias

from pvdm.errors import Code
from pvdm.lake.paths import Location, parse_location
from pvdm.lake.stores.local import LocalStore
from pvdm.lake.stores.s3 import S3Store
from pvdm.lake.stores.s3_client import S3Settings
from pvdm.lake.stores.store import Store

Place: TypeAlias = Path | Location
"""A folder or file: a path on this machine, or a location in an object store."""


class Stores:
    """This machine's files, and an object store where one is configured."""

    def __init__(self, s3: S3Settings | None = None) -> None:
        self._settings = s3
        self._local = LocalStore(Path("/"))
        self._s3: S3Store | None = None
        self._lock = threading.Lock()

    def of(self, place: Location) -> Store:
        """The store that a location lies in, for reading."""
        return self._local if place.scheme == "file" else self._object_store(place)

    def at(self, root: Location) -> Store:
        """The store for a folder of one's own, for writing too."""
        return LocalStore(root.local) if root.scheme == "file" else self._object_store(root)

    @property
    def s3_settings(self) -> S3Settings | None:
        """The object store's settings, where there is one."""
        return self._settings

    def object_store(self, place: Location) -> S3Store:
        """The object store, for what no disk can do."""
        return self._object_store(place)

    def _object_store(self, place: Location) -> S3Store:
        if place.scheme != "s3" or self._settings is None:
            raise Code.STORE_NOT_CONFIGURED(
                "this Steward knows no store for the location",
                expected="a local file, or s3: with a table [s3] in steward.toml",
                got=f"{place.scheme}:",
            )
        with self._lock:
            if self._s3 is None:
                self._s3 = S3Store(self._settings)
            return self._s3


def place_of(root: Place) -> Location:
    """The location of a folder; a path on this machine is taken where its links lead to."""
    return root if isinstance(root, Location) else parse_location(str(root.resolve()))
