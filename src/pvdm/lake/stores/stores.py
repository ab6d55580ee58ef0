"""Finds the store of a location by its scheme, and gives paths of an object store the methods of `pathlib.Path`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from pvdm.errors import Code
from pvdm.lake.paths import Location, parse_location
from pvdm.lake.stores.local import LocalStore
from pvdm.lake.stores.s3 import S3Store
from pvdm.lake.stores.s3_client import S3Settings
from pvdm.lake.stores.store import Store, WriteHooks, read

ConfiguredPath: TypeAlias = Path | Location
"""A folder or file in the configuration: a path on this machine, or a location in an object store."""


class Stores:
    """This machine's files, and an object store if one is configured. No link below `warehouse` is followed."""

    def __init__(self, s3: S3Settings | None = None, warehouse: Location | None = None) -> None:
        self.s3_settings = s3
        self._local = LocalStore(Path("/"), warehouse)
        self._s3: S3Store | None = None
        self._lock = threading.Lock()

    def for_reading(self, place: Location) -> Store:
        """The store to read a location from."""
        return self._local if place.scheme == "file" else self.object_store(place)

    def for_writing(self, root: Location) -> Store:
        """The store to write below `root`. On this machine it makes folders from `root` to each new file durable."""
        return LocalStore(root.local) if root.scheme == "file" else self.object_store(root)

    def object_store(self, place: Location) -> S3Store:
        """The object store of a location. Raises if none is configured."""
        if place.scheme != "s3" or self.s3_settings is None:
            expected = "a local file, or s3: with a table [s3] in steward.toml"
            words = "no store is configured for the location"
            raise Code.STORE_NOT_CONFIGURED(words, expected=expected, got=f"{place.scheme}:")
        with self._lock:
            self._s3 = self._s3 or S3Store(self.s3_settings)
            return self._s3


def location_of(root: ConfiguredPath) -> Location:
    """The location of a place; links in a path on this machine are resolved."""
    return root if isinstance(root, Location) else parse_location(str(root.resolve()))


_READ_MAX_BYTES = 1 << 30  # 1 GiB


@dataclass(frozen=True, slots=True)
class ObjectPath:
    """A location in an object store, with `put`, `swap`, and those methods of `pathlib.Path` that its users need."""

    store: S3Store = field(compare=False, repr=False)
    place: Location

    def __truediv__(self, name: str) -> ObjectPath:
        return replace(self, place=self.place.child(*name.split("/")))

    def __str__(self) -> str:
        return str(self.place)

    @property
    def parent(self) -> ObjectPath:
        """The folder that contains it."""
        return replace(self, place=self.place.parent)

    @property
    def name(self) -> str:
        """The last part."""
        return self.place.parts[-1]

    @property
    def stem(self) -> str:
        """The last part without its suffix."""
        return Path(self.name).stem

    def with_name(self, name: str) -> ObjectPath:
        """The path of that name in the same folder."""
        return self.parent / name

    def relative_to(self, folder: ObjectPath) -> str:
        """The path from a folder above it."""
        return "/".join(self.place.parts[len(folder.place.parts) :])

    def exists(self) -> bool:
        """Whether there is an object of this name; False for a folder."""
        try:
            self.store.facts(self.place)
        except FileNotFoundError:
            return False
        return True

    def is_dir(self) -> bool:
        """Whether there are objects below it."""
        return next(self.store.walk(self.place), None) is not None

    def iterdir(self) -> Iterator[ObjectPath]:
        """The objects directly below it."""
        return (replace(self, place=each.place) for each in self.store.files(self.place))

    def read_bytes(self) -> bytes:
        """The object's bytes. Raises `file_too_large` for more than a GiB."""
        data = read(self.store, self.place, _READ_MAX_BYTES)
        if len(data) > _READ_MAX_BYTES:
            expected = f"at most {_READ_MAX_BYTES} bytes"
            raise Code.FILE_MISMATCH(reason="file_too_large", expected=expected, got=str(self))
        return data

    def put(self, data: bytes) -> None:
        """Write the object, or replace the one that is there."""
        self.store.put(self.place, data, WriteHooks())

    def swap(self, before: bytes | None, data: bytes) -> bool:
        """Replace `before` by `data`, or create the object if `before` is None. Returns whether it has `data` now."""
        if before is None:
            try:
                self.store.put_new(self.place, data, WriteHooks())
            except FileExistsError:
                return self.read_bytes() == data
            return True
        found, tag = self.store.read_tagged(self.place, max(len(before), len(data)))
        return found == data or (found == before and self.store.swap(self.place, data, tag))

    def unlink(self, *, missing_ok: bool = False) -> None:
        """Remove the object."""
        if not missing_ok and not self.exists():
            raise FileNotFoundError(str(self))
        self.store.remove(self.place)

    def rmdir(self) -> None:
        """Do nothing: an object store has no empty folders."""


FilePath: TypeAlias = Path | ObjectPath
"""A `ConfiguredPath` with methods to read and write it."""


def path_at(place: ConfiguredPath, stores: Stores) -> FilePath:
    """The place as a path that can be read and written."""
    return place if isinstance(place, Path) else ObjectPath(stores.object_store(place), place)
