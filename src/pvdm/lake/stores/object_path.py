"""An object's place with the few ways of a path that the log's files need; what is written is there whole or not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from pvdm.lake.paths import Location
from pvdm.lake.stores.s3 import S3Store
from pvdm.lake.stores.store import Moments, read
from pvdm.lake.stores.stores import Place, Stores

_MOST = 1 << 30


class ObjectPath:
    """A place in an object store; folders are there as soon as something lies in them."""

    __slots__ = ("place", "store")

    def __init__(self, store: S3Store, place: Location) -> None:
        self.store = store
        self.place = place

    def __truediv__(self, name: str) -> ObjectPath:
        return self._at(*self.place.parts, *name.split("/"))

    def __str__(self) -> str:
        return str(self.place)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectPath) and other.place == self.place

    def __hash__(self) -> int:
        return hash(self.place)

    @property
    def parent(self) -> ObjectPath:
        """The folder it lies in."""
        return self._at(*self.place.parts[:-1])

    @property
    def name(self) -> str:
        """Its own name."""
        return self.place.parts[-1]

    @property
    def stem(self) -> str:
        """Its own name without its ending."""
        return Path(self.name).stem

    def with_name(self, name: str) -> ObjectPath:
        """The place of that name in the same folder."""
        return self.parent / name

    def relative_to(self, folder: ObjectPath) -> str:
        """How it is reached from a folder above it."""
        return "/".join(self.place.parts[len(folder.place.parts) :])

    def exists(self) -> bool:
        """Whether an object lies there."""
        try:
            self.store.facts(self.place)
        except FileNotFoundError:
            return False
        return True

    def is_dir(self) -> bool:
        """Whether something lies below it."""
        return next(self.store.walk(self.place), None) is not None

    def iterdir(self) -> Iterator[ObjectPath]:
        """The objects right below it."""
        for each in self.store.files(self.place):
            yield self._at(*each.place.parts)

    def read_bytes(self) -> bytes:
        """Its bytes."""
        return read(self.store, self.place, _MOST)

    def put(self, data: bytes) -> None:
        """Its bytes from now on, in the place of exactly what was there when it was looked at."""
        self.store.put(self.place, data, Moments())

    def swap(self, before: bytes | None, data: bytes) -> bool:
        """Its bytes from now on, if they were these, or there was nothing; False if that is so no more."""
        if before is None:
            try:
                self.store.put_new(self.place, data, Moments())
            except FileExistsError:
                return self.read_bytes() == data
            return True
        found, tag = self.store.read_tagged(self.place, max(len(before), len(data)))
        return found == data or (found == before and self.store.swap(self.place, data, tag))

    def unlink(self, *, missing_ok: bool = False) -> None:
        """Take it away; whether it was there makes no difference to a store of objects."""
        if not missing_ok and not self.exists():
            raise FileNotFoundError(str(self))
        self.store.remove(self.place)

    def rmdir(self) -> None:
        """Nothing: without objects there is no folder."""

    def _at(self, *parts: str) -> ObjectPath:
        return ObjectPath(self.store, Location(self.place.scheme, self.place.authority, parts))


FilePath: TypeAlias = Path | ObjectPath
"""A file or folder of this machine, or in an object store."""


def path_at(place: Place, stores: Stores) -> FilePath:
    """The way to a place of either kind."""
    return place if isinstance(place, Path) else ObjectPath(stores.object_store(place), place)
