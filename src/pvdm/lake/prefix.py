"""An attempt's own folder, listed and emptied without ever following a link: names are looked up folder by folder."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from pvdm.errors import Code, VerificationError
from pvdm.lake.paths import Location
from pvdm.lake.stores.s3 import S3Store
from pvdm.lake.stores.store import Moments, read
from pvdm.lake.stores.stores import Stores

PREFIX_ENTRIES_MAX: Final = 200_000
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Left:
    """Something that lies in the folder: a file, or a link, which is only ever removed as a link."""

    location: Location
    size: int


class Prefix(Protocol):
    """An attempt's own folder."""

    def files(self) -> list[Left]:
        """Everything that lies in it."""

    def find(self, location: Location) -> Left | None:
        """One file of it; None if it is not there."""

    def remove(self, location: Location) -> bool:
        """Take one of it away; says whether it was there. What lies anywhere else is refused."""

    def write(self, location: Location, data: bytes) -> None:
        """A new file in it; the same bytes may lie there, other ones are refused."""

    def remove_empty(self) -> None:
        """Take away the folders that hold nothing any more."""


def prefix_at(root: Location, folder: Location, stores: Stores | None = None) -> Prefix:
    """The folder below `root`, in the store that it lies in."""
    if not folder.is_under(root) or folder == root:
        raise Code.PREFIX_OUTSIDE(expected=f"below {root}", got=str(folder))
    if folder.scheme == "file":
        return LocalPrefix(root, folder)
    return ObjectPrefix(folder, (stores or Stores()).object_store(folder))


class LocalPrefix:
    """A folder below `root`; whatever on the way from there to a file is a link, is not gone through."""

    def __init__(self, root: Location, folder: Location) -> None:
        self._root = root
        self._folder = folder

    def files(self) -> list[Left]:
        """Everything in it that is no folder; nothing if it is not there, or if a link stands in its place."""
        found: list[Left] = []
        with _unavailable():
            opened = self._opened(self._folder)
            if opened is None:
                return []
            with _closing(opened):
                for left in _walk(opened, self._folder):
                    found.append(left)
                    _require_bounded(found)
        return found

    def find(self, location: Location) -> Left | None:
        """One file or link of it, reached without any link; None if it is not there, or is a folder."""
        _require_inside(self._folder, location)
        above = Location(location.scheme, location.authority, location.parts[:-1])
        with _unavailable():
            opened = self._opened(above)
            if opened is None:
                return None
            with _closing(opened):
                try:
                    facts = os.stat(location.parts[-1], dir_fd=opened, follow_symlinks=False)
                except FileNotFoundError:
                    return None
        return None if stat.S_ISDIR(facts.st_mode) else Left(location, facts.st_size)

    def remove(self, location: Location) -> bool:
        """Take one file or link away; says whether it was there. What lies anywhere else is refused."""
        _require_inside(self._folder, location)
        above = Location(location.scheme, location.authority, location.parts[:-1])
        with _unavailable():
            opened = self._opened(above)
            if opened is None:
                return False
            with _closing(opened):
                try:
                    os.unlink(location.parts[-1], dir_fd=opened)
                except (FileNotFoundError, IsADirectoryError, PermissionError):
                    # A folder may have taken its place; what is really not allowed is seen when it is listed again.
                    return False
        return True

    def write(self, location: Location, data: bytes) -> None:
        """A new file, with the folders on the way to it; the same bytes may lie there, other ones are refused."""
        _require_inside(self._folder, location)
        above = Location(location.scheme, location.authority, location.parts[:-1])
        with _unavailable(), _closing(self._made(above)) as opened:
            try:
                handle = os.open(location.parts[-1], _NEW, 0o644, dir_fd=opened)
            except FileExistsError:
                _require_same(opened, location, data)
                return
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.fsync(opened)

    def remove_empty(self) -> None:
        """Take away the folders that hold nothing any more, the folder itself with them."""
        with _unavailable():
            above = self._opened(Location(self._folder.scheme, self._folder.authority, self._folder.parts[:-1]))
            if above is None:
                return
            with _closing(above):
                _prune(above, self._folder.parts[-1])

    def _made(self, folder: Location) -> int:
        """The folder, made where it is not there; a link on the way is not gone through."""
        at = os.open(self._root.local, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for part in folder.parts[len(self._root.parts) :]:
            with _closing(at):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=at)
                    os.fsync(at)
                at = os.open(part, _FOLDER, dir_fd=at)
        return at

    def _opened(self, folder: Location) -> int | None:
        """The folder, reached from the root without any link; None if there is no such way."""
        at = os.open(self._root.local, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for part in folder.parts[len(self._root.parts) :]:
            try:
                below = os.open(part, _FOLDER, dir_fd=at)
            except (FileNotFoundError, NotADirectoryError):
                os.close(at)
                return None
            except OSError:
                os.close(at)
                raise
            os.close(at)
            at = below
        return at


class ObjectPrefix:
    """The objects whose keys begin with the folder; there are no links, and no folders of their own."""

    def __init__(self, folder: Location, store: S3Store) -> None:
        self._folder = folder
        self._store = store

    def files(self) -> list[Left]:
        """Every object below it."""
        found: list[Left] = []
        with _unavailable():
            for each in self._store.walk(self._folder):
                found.append(Left(each.place, each.size))
                _require_bounded(found)
        return found

    def find(self, location: Location) -> Left | None:
        """One object of it."""
        _require_inside(self._folder, location)
        with _unavailable():
            try:
                return Left(location, self._store.facts(location).size)
            except FileNotFoundError:
                return None

    def remove(self, location: Location) -> bool:
        """Take one object away; where the store keeps versions, they stay with it."""
        _require_inside(self._folder, location)
        with _unavailable():
            self._store.remove(location)
        return True

    def write(self, location: Location, data: bytes) -> None:
        """A new object; the same bytes may lie there, other ones are refused."""
        _require_inside(self._folder, location)
        with _unavailable():
            try:
                self._store.put_new(location, data, Moments())
            except FileExistsError:
                if read(self._store, location, len(data)) != data:
                    raise _differs(location, data) from None

    def remove_empty(self) -> None:
        """Nothing: without objects there is no folder."""


def _require_inside(folder: Location, location: Location) -> None:
    if not location.is_under(folder) or location == folder:
        raise Code.FILE_NOT_OWN(expected=f"below {folder}", got=str(location))


def _require_bounded(found: list[Left]) -> None:
    if len(found) > PREFIX_ENTRIES_MAX:
        raise Code.PREFIX_TOO_LARGE(expected=f"at most {PREFIX_ENTRIES_MAX} files", got="more")


def _names(opened: int) -> list[str]:
    return sorted(os.listdir(opened))


def _walk(opened: int, folder: Location) -> Iterator[Left]:
    for name in _names(opened):
        try:
            facts = os.stat(name, dir_fd=opened, follow_symlinks=False)
            if not stat.S_ISDIR(facts.st_mode):
                yield Left(folder.child(name), facts.st_size)
                continue
            below = os.open(name, _FOLDER, dir_fd=opened)
        except (FileNotFoundError, NotADirectoryError):
            continue
        with _closing(below):
            yield from _walk(below, folder.child(name))


def _prune(above: int, name: str) -> None:
    try:
        opened = os.open(name, _FOLDER, dir_fd=above)
    except (FileNotFoundError, NotADirectoryError):
        return
    with _closing(opened):
        for each in _names(opened):
            if stat.S_ISDIR(os.stat(each, dir_fd=opened, follow_symlinks=False).st_mode):
                _prune(opened, each)
    with contextlib.suppress(OSError):  # not empty: something is kept there, or was put there meanwhile
        os.rmdir(name, dir_fd=above)


def _require_same(opened: int, location: Location, data: bytes) -> None:
    handle = os.open(location.parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=opened)
    with os.fdopen(handle, "rb") as file:
        if file.read(len(data) + 1) != data:
            raise _differs(location, data)


def _differs(location: Location, data: bytes) -> VerificationError:
    return VerificationError(
        "file_differs", "another file lies in its place", expected=f"{len(data)} bytes", got=str(location)
    )


@contextlib.contextmanager
def _closing(opened: int) -> Iterator[int]:
    try:
        yield opened
    finally:
        os.close(opened)


@contextlib.contextmanager
def _unavailable() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Code.PREFIX_UNAVAILABLE(
            f"an attempt's folder cannot be reached: {error.strerror or type(error).__name__}"
        ) from None
