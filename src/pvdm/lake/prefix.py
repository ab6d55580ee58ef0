"""Lists, writes and empties the folder (prefix) of an attempt, one try to publish a chunk. Links are not followed."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final, TypeAlias, TypeVar

from pvdm import fault
from pvdm.errors import Code
from pvdm.lake.paths import Location
from pvdm.lake.stores.s3 import S3Store
from pvdm.lake.stores.store import WriteHooks, read, translate_errors
from pvdm.lake.stores.stores import Stores

PREFIX_ENTRIES_MAX: Final = 200_000
# Flags of `os.open`: for a new file, for a plain file (a FIFO does not block), and for a folder.
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PLAIN_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_Descriptor = TypeVar("_Descriptor", int, int | None)
_translate_errors: Final = partial(translate_errors, "prefix_unavailable", "an attempt's folder")


@dataclass(frozen=True, slots=True)
class PrefixFile:
    """A file or link in the folder. Removing a link does not remove its target."""

    location: Location
    size: int


def prefix_at(root: Location, folder: Location, stores: Stores | None = None) -> Prefix:
    """Access to an attempt's folder. Raises unless it is below `root`. Object stores are found in `stores`."""
    if not folder.is_under(root) or folder == root:
        raise Code.PREFIX_REFUSED(reason="prefix_outside", expected=f"below {root}", got=str(folder))
    if folder.scheme == "file":
        return LocalPrefix(root, folder)
    return ObjectPrefix(folder, (stores or Stores()).object_store(folder))


class LocalPrefix:
    """A folder below `root`. Each path is opened folder by folder, from `root` on, so that no link is followed."""

    def __init__(self, root: Location, folder: Location) -> None:
        self._root = root
        self._folder = folder

    def files(self) -> list[PrefixFile]:
        """Every file and link below the folder; none if the folder is missing or a link."""
        with _translate_errors(), self._open_folder(self._folder) as opened:
            return [] if opened is None else _list_limited(_walk(opened, self._folder))

    def find(self, location: Location) -> PrefixFile | None:
        """The file or link at this location; None if it is missing or a folder."""
        _require_inside(self._folder, location)
        with _translate_errors(), self._open_folder(location.parent) as opened:
            if opened is None:
                return None
            try:
                facts = os.stat(location.parts[-1], dir_fd=opened, follow_symlinks=False)
            except FileNotFoundError:
                return None
        return None if stat.S_ISDIR(facts.st_mode) else PrefixFile(location, facts.st_size)

    def remove(self, location: Location) -> bool:
        """Remove a file or link. Returns whether it was removed. Raises if it is not in this folder."""
        _require_inside(self._folder, location)
        with _translate_errors(), self._open_folder(location.parent) as opened:
            if opened is None:
                return False
            try:
                os.unlink(location.parts[-1], dir_fd=opened)
            except (FileNotFoundError, IsADirectoryError, PermissionError):
                # The job may have made a folder of this name. A file that cannot be removed stays and is listed again.
                return False
        fault.point("stores.after_remove")
        return True

    def write(self, location: Location, data: bytes) -> None:
        """Write a new file and its folders. Raises if the file is there with other bytes."""
        _require_inside(self._folder, location)
        with _translate_errors(), _closing(self._open_or_create(location.parent)) as opened:
            try:
                descriptor = os.open(location.parts[-1], _NEW_FILE, 0o644, dir_fd=opened)
            except FileExistsError:
                existing_descriptor = os.open(location.parts[-1], _PLAIN_FILE, dir_fd=opened)
                with os.fdopen(existing_descriptor, "rb") as existing:
                    _require_same(existing.read(len(data) + 1), location, data)
                return
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            fault.point("stores.after_file")
            os.fsync(opened)

    def remove_empty(self) -> None:
        """Remove all empty folders below the folder, and the folder itself if it is empty then."""
        with _translate_errors(), self._open_folder(self._folder.parent) as above:
            if above is not None:
                _remove_empty(above, self._folder.parts[-1])

    def _open_or_create(self, folder: Location) -> int:
        """Open the folder without following links. Missing folders of its path are created."""
        opened = os.open(self._root.local, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for part in folder.parts[len(self._root.parts) :]:
            with _closing(opened):  # the folder above `part`
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=opened)
                    os.fsync(opened)
                opened = os.open(part, _FOLDER, dir_fd=opened)
        return opened

    @contextlib.contextmanager
    def _open_folder(self, folder: Location) -> Iterator[int | None]:
        """Open the folder from the root without following links; None if it is missing or behind a link."""
        opened: int | None = os.open(self._root.local, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for part in folder.parts[len(self._root.parts) :]:
            with _closing(opened):  # the folder above `part`
                opened = _open_below(opened, part)
        with _closing(opened):
            yield opened


class ObjectPrefix:
    """The objects whose keys begin with the folder."""

    def __init__(self, folder: Location, store: S3Store) -> None:
        self._folder = folder
        self._store = store

    def files(self) -> list[PrefixFile]:
        """Every object below the folder."""
        with _translate_errors():
            return _list_limited(PrefixFile(each.place, each.size) for each in self._store.walk(self._folder))

    def find(self, location: Location) -> PrefixFile | None:
        """The object at this location; None if it is missing."""
        _require_inside(self._folder, location)
        with _translate_errors():
            try:
                return PrefixFile(location, self._store.facts(location).size)
            except FileNotFoundError:
                return None

    def remove(self, location: Location) -> bool:
        """Remove an object. Returns True even if it was missing. A store with versions keeps the object's versions."""
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
                fault.point("stores.after_file")
            except FileExistsError:
                _require_same(read(self._store, location, len(data)), location, data)

    def remove_empty(self) -> None:
        """Do nothing: an object store has no empty folders."""


Prefix: TypeAlias = LocalPrefix | ObjectPrefix
"""An attempt's own folder, in either kind of store."""


def _require_inside(folder: Location, location: Location) -> None:
    if not location.is_under(folder) or location == folder:
        raise Code.PREFIX_REFUSED(reason="file_not_own", expected=f"below {folder}", got=str(location))


def _list_limited(files: Iterator[PrefixFile]) -> list[PrefixFile]:
    found = list(islice(files, PREFIX_ENTRIES_MAX + 1))
    if len(found) > PREFIX_ENTRIES_MAX:
        raise Code.PREFIX_REFUSED(reason="prefix_too_large", expected=f"at most {PREFIX_ENTRIES_MAX} files", got="more")
    return found


def _open_below(above: int | None, name: str) -> int | None:
    """Open a folder in the open folder `above`; None if it is missing, a file or a link, or if `above` is None."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return None if above is None else os.open(name, _FOLDER, dir_fd=above)
    return None


def _walk(opened: int, folder: Location) -> Iterator[PrefixFile]:
    """Every file and link below the open folder. Those that are removed meanwhile are left out."""
    for name in sorted(os.listdir(opened)):
        try:
            facts = os.stat(name, dir_fd=opened, follow_symlinks=False)
        except FileNotFoundError:
            continue
        if not stat.S_ISDIR(facts.st_mode):
            yield PrefixFile(folder.child(name), facts.st_size)
            continue
        with _closing(_open_below(opened, name)) as below:
            if below is not None:
                yield from _walk(below, folder.child(name))


def _remove_empty(above: int, name: str) -> None:
    """Remove the folder and the folders in it, as far as they are empty. A file or link of this name stays."""
    with _closing(_open_below(above, name)) as opened:
        if opened is None:
            return
        for each in sorted(os.listdir(opened)):  # noqa: PTH208 - pathlib cannot list a descriptor
            _remove_empty(opened, each)
    with contextlib.suppress(OSError):  # not empty
        os.rmdir(name, dir_fd=above)


def _require_same(existing: bytes, location: Location, data: bytes) -> None:
    if existing != data:
        raise Code.FILE_MISMATCH(reason="file_differs", expected=f"{len(data)} bytes", got=str(location)) from None


@contextlib.contextmanager
def _closing(opened: _Descriptor) -> Iterator[_Descriptor]:
    """Close this descriptor after the `with` block, unless it is None."""
    try:
        yield opened
    finally:
        if opened is not None:
            os.close(opened)
