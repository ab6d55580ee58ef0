"""Files on this machine: no link is followed, only plain files are read, what is written is synced with its folder."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from pvdm.lake.paths import Location
from pvdm.lake.stores.store import PIECE_BYTES, UNFINISHED, Facts, Listed, Moments, Reading

_MODE: Final = 0o644
_FOLDERS_KNOWN: Final = 10_000
_PLAIN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# A link, a link in a circle, a socket: facts about what was put there, not about the disk.
NOT_PLAIN: Final = frozenset({errno.ELOOP, errno.ENXIO, errno.ENOTDIR})


class Folders:
    """Folders below a root, made durable with what holds them.

    One that is there may have been made by somebody who has not synced it yet, or died before: only a folder that
    this process has seen to itself is taken as durable.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._durable: set[Path] = set()

    def make(self, folder: Path) -> None:
        """The folder and those above it."""
        if folder in self._durable:
            return
        if self._root in folder.parents or not folder.parent.is_dir():
            self.make(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)
        if len(self._durable) >= _FOLDERS_KNOWN:
            self._durable.clear()
        self._durable.add(folder)

    def forget(self, folder: Path) -> None:
        """Take it as durable no more."""
        self._durable.discard(folder)


class LocalStore:
    """Files below a root; reading needs none."""

    def __init__(self, root: Path) -> None:
        self._folders = Folders(root)

    def reading(self, place: Location) -> Reading:
        """The bytes of a plain file; no link is followed, and a disk keeps no versions."""
        return Reading(None, _pieces(place))

    def end(self, place: Location, size: int) -> bytes:
        """The last bytes; nothing before them is read."""
        with _opened(place) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - size))
            return file.read(size)

    def facts(self, place: Location) -> Facts:
        """A disk keeps no versions."""
        with _opened(place) as file:
            return Facts(os.fstat(file.fileno()).st_size, None)

    def put_new(self, place: Location, data: bytes, at: Moments) -> None:
        """Written aside, synced, and linked to its name: a link never replaces what is there, as a rename would."""
        path = place.local
        with self._temporary(path, data, at) as temporary:
            try:
                os.link(temporary, path)
            finally:
                temporary.unlink(missing_ok=True)
                sync_folder(path.parent)
        at.after_name()

    def put(self, place: Location, data: bytes, at: Moments) -> None:
        """Written aside, synced, and renamed."""
        path = place.local
        with self._temporary(path, data, at) as temporary:
            temporary.replace(path)
            at.after_name()
            sync_folder(path.parent)

    def files(self, folder: Location) -> list[Listed]:
        """What is a file itself; links are none."""
        found = []
        try:
            for entry in os.scandir(folder.local):
                if entry.is_file(follow_symlinks=False):
                    facts = entry.stat(follow_symlinks=False)
                    found.append(Listed(folder.child(entry.name), facts.st_size, facts.st_mtime_ns / 1e9))
        except FileNotFoundError:
            return []  # none yet, or another one takes something away at this moment
        return sorted(found, key=lambda each: each.place.parts)

    def folders(self, folder: Location) -> list[str]:
        """What is a folder itself; links are none."""
        try:
            return sorted(entry.name for entry in os.scandir(folder.local) if entry.is_dir(follow_symlinks=False))
        except FileNotFoundError:
            return []

    def remove(self, place: Location) -> None:
        """Take away the file, or the link that stands there."""
        place.local.unlink(missing_ok=True)

    def make_durable(self, places: Sequence[Location]) -> None:
        """Each file is synced, then every folder above it that may be read, each once."""
        for place in places:
            with _opened(place) as file:
                os.fsync(file.fileno())
        folders = {place.local.parent for place in places}
        for folder in folders:
            sync_folder(folder)
        for above in {above for folder in folders for above in folder.parents} - folders:
            with contextlib.suppress(PermissionError):  # then it is not the producer's, who made no folder in it
                sync_folder(above)

    def forget(self, folder: Path) -> None:
        """A folder is gone, and has to be made again."""
        self._folders.forget(folder)

    def _make(self, folder: Path) -> None:
        try:
            self._folders.make(folder)
        except FileExistsError as error:
            # Not the file itself: something that is no folder stands in the way to it.
            raise NotADirectoryError(errno.ENOTDIR, "no folder") from error

    @contextlib.contextmanager
    def _temporary(self, path: Path, data: bytes, at: Moments) -> Iterator[Path]:
        temporary = path.parent / f"{UNFINISHED}{secrets.token_hex(8)}"
        try:
            self._make(path.parent)
            _write_synced(temporary, data, at.before_sync)
            at.after_temp()
            yield temporary
        except FileExistsError:
            raise
        except OSError:
            self._folders.forget(path.parent)
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise


def sync_folder(folder: Path) -> None:
    """What the folder names is there after a crash."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _write_synced(path: Path, data: bytes, before_sync: Callable[[], None]) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        before_sync()
        os.fsync(file.fileno())


def _pieces(place: Location) -> Iterator[bytes]:
    with _opened(place) as file:
        while piece := file.read(PIECE_BYTES):
            yield piece


@contextlib.contextmanager
def _opened(place: Location) -> Iterator[io.FileIO]:
    descriptor = os.open(place.local, _PLAIN)
    # Before `fdopen`, which refuses a folder in other words and leaves its descriptor open.
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.ELOOP, "no plain file")
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        yield file
