"""An attempt's own folder: listed, written and emptied without following links."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from pvdm.errors import Code
from pvdm.lake.paths import Location
from pvdm.lake.stores.s3 import S3Store
from pvdm.lake.stores.store import WriteHooks, read
from pvdm.lake.stores.stores import Stores

PREFIX_ENTRIES_MAX: Final = 200_000
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class PrefixFile:
    """A file or link in the folder. A link is only ever removed as a link."""

    location: Location
    size: int


def prefix_at(root: Location, folder: Location, stores: Stores | None = None) -> LocalPrefix | ObjectPrefix:
    """The folder below `root`, in its store."""
    if not folder.is_under(root) or folder == root:
        raise Code.PREFIX_OUTSIDE(expected=f"below {root}", got=str(folder))
    if folder.scheme == "file":
        return LocalPrefix(root, folder)
    return ObjectPrefix(folder, (stores or Stores()).object_store(folder))


class LocalPrefix:
    """A folder below `root`. Files are opened folder by folder from there, so that no link is followed."""

    def __init__(self, root: Location, folder: Location) -> None:
        self._root = root
        self._folder = folder

    def files(self) -> list[PrefixFile]:
        """Every file and link in it; none if the folder is missing or a link."""
        found: list[PrefixFile] = []
        with _translate_errors():
            opened = self._open(self._folder)
            if opened is None:
                return []
            with _closing(opened):
                for left in _walk(opened, self._folder):
                    found.append(left)
                    _require_bounded(found)
        return found

    def find(self, location: Location) -> PrefixFile | None:
        """A file or link of it; None if it is missing or a folder."""
        _require_inside(self._folder, location)
        with _translate_errors():
            opened = self._open(location.parent)
            if opened is None:
                return None
            with _closing(opened):
                try:
                    facts = os.stat(location.parts[-1], dir_fd=opened, follow_symlinks=False)
                except FileNotFoundError:
                    return None
        return None if stat.S_ISDIR(facts.st_mode) else PrefixFile(location, facts.st_size)

    def remove(self, location: Location) -> bool:
        """Remove a file or link. Returns whether it was there. Raises if it is not in this folder."""
        _require_inside(self._folder, location)
        with _translate_errors():
            opened = self._open(location.parent)
            if opened is None:
                return False
            with _closing(opened):
                try:
                    os.unlink(location.parts[-1], dir_fd=opened)
                except (FileNotFoundError, IsADirectoryError, PermissionError):
                    # A folder may be there now. A missing right shows when the folder is listed again.
                    return False
        return True

    def write(self, location: Location, data: bytes) -> None:
        """Write a new file and its folders. Raises if the file is there with other bytes."""
        _require_inside(self._folder, location)
        with _translate_errors(), _closing(self._make(location.parent)) as opened:
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
        """Remove empty folders, with the folder itself."""
        with _translate_errors():
            above = self._open(self._folder.parent)
            if above is None:
                return
            with _closing(above):
                _prune(above, self._folder.parts[-1])

    def _make(self, folder: Location) -> int:
        """Open the folder, created if it is missing, without following links."""
        at = os.open(self._root.local, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for part in folder.parts[len(self._root.parts) :]:
            with _closing(at):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=at)
                    os.fsync(at)
                at = os.open(part, _FOLDER, dir_fd=at)
        return at

    def _open(self, folder: Location) -> int | None:
        """Open the folder from the root without following links; None if it is missing or behind a link."""
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
    """The objects whose keys begin with the folder."""

    def __init__(self, folder: Location, store: S3Store) -> None:
        self._folder = folder
        self._store = store

    def files(self) -> list[PrefixFile]:
        """Every object below it."""
        found: list[PrefixFile] = []
        with _translate_errors():
            for each in self._store.walk(self._folder):
                found.append(PrefixFile(each.place, each.size))
                _require_bounded(found)
        return found

    def find(self, location: Location) -> PrefixFile | None:
        """An object of it; None if it is missing."""
        _require_inside(self._folder, location)
        with _translate_errors():
            try:
                return PrefixFile(location, self._store.facts(location).size)
            except FileNotFoundError:
                return None

    def remove(self, location: Location) -> bool:
        """Remove an object. A store that keeps versions keeps them."""
        _require_inside(self._folder, location)
        with _translate_errors():
            self._store.remove(location)
        return True

    def write(self, location: Location, data: bytes) -> None:
        """Write a new object. Raises if it is there with other bytes."""
        _require_inside(self._folder, location)
        with _translate_errors():
            try:
                self._store.put_new(location, data, WriteHooks())
            except FileExistsError:
                if read(self._store, location, len(data)) != data:
                    raise Code.FILE_MISMATCH(
                        reason="file_differs", expected=f"{len(data)} bytes", got=str(location)
                    ) from None

    def remove_empty(self) -> None:
        """Do nothing: an object store has no empty folders."""


Prefix: TypeAlias = LocalPrefix | ObjectPrefix
"""An attempt's own folder, in either kind of store."""


def _require_inside(folder: Location, location: Location) -> None:
    if not location.is_under(folder) or location == folder:
        raise Code.FILE_NOT_OWN(expected=f"below {folder}", got=str(location))


def _require_bounded(found: list[PrefixFile]) -> None:
    if len(found) > PREFIX_ENTRIES_MAX:
        raise Code.PREFIX_TOO_LARGE(expected=f"at most {PREFIX_ENTRIES_MAX} files", got="more")


def _walk(opened: int, folder: Location) -> Iterator[PrefixFile]:
    for name in sorted(os.listdir(opened)):
        try:
            facts = os.stat(name, dir_fd=opened, follow_symlinks=False)
            if not stat.S_ISDIR(facts.st_mode):
                yield PrefixFile(folder.child(name), facts.st_size)
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
        for each in sorted(os.listdir(opened)):  # noqa: PTH208 - of a descriptor
            if stat.S_ISDIR(os.stat(each, dir_fd=opened, follow_symlinks=False).st_mode):
                _prune(opened, each)
    with contextlib.suppress(OSError):  # it is not empty
        os.rmdir(name, dir_fd=above)


def _require_same(opened: int, location: Location, data: bytes) -> None:
    handle = os.open(location.parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=opened)
    with os.fdopen(handle, "rb") as file:
        if file.read(len(data) + 1) != data:
            raise Code.FILE_MISMATCH(reason="file_differs", expected=f"{len(data)} bytes", got=str(location))


@contextlib.contextmanager
def _closing(opened: int) -> Iterator[int]:
    try:
        yield opened
    finally:
        os.close(opened)


@contextlib.contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        words = f"an attempt's folder cannot be reached: {error.strerror or type(error).__name__}"
        raise Code.PREFIX_UNAVAILABLE(words) from None
