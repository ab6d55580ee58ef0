"""Files on this machine. Only plain files are read, no links to them; writes are synced with their folder."""

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

from pvdm import fault
from pvdm.lake.paths import Location
from pvdm.lake.stores.store import PIECE_BYTES, UNFINISHED_PREFIX, FileFacts, FileStream, ListedFile, WriteHooks

_MODE: Final = 0o644
_DURABLE_FOLDERS_MAX: Final = 10_000
_PLAIN_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
# Error numbers: the file is a link or a socket, or a part of its path is not a folder.
NOT_PLAIN_ERRNOS: Final = frozenset({errno.ELOOP, errno.ENXIO, errno.ENOTDIR})


class Folders:
    """Makes folders below a root durable.

    Only folders that this process has synced count as durable: another process may have made one without a sync.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._durable: set[Path] = set()

    def make(self, folder: Path) -> None:
        """Create the folder and make it durable, and so all folders between it and the root, and missing ones above."""
        if folder in self._durable:
            return
        if self._root in folder.parents or not folder.parent.is_dir():
            self.make(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)
        if len(self._durable) >= _DURABLE_FOLDERS_MAX:
            self._durable.clear()
        self._durable.add(folder)

    def forget(self, folder: Path) -> None:
        """Forget that the folder is durable."""
        self._durable.discard(folder)


class LocalStore:
    """Files of this machine. New folders are durable from `root` on. No link below `warehouse` is followed."""

    def __init__(self, root: Path, warehouse: Location | None = None) -> None:
        self._folders, self._warehouse = Folders(root), warehouse

    def start_reading(self, place: Location) -> FileStream:
        """Begin to read a plain file. Reading the first piece raises OSError for a link or folder."""
        return FileStream(None, self._read_pieces(place))

    def read_end(self, place: Location, size: int) -> bytes:
        """The last `size` bytes; no other bytes are read."""
        with open_plain_file(place, self._warehouse) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - size))
            return file.read(size)

    def facts(self, place: Location) -> FileFacts:
        """The size, and no version, since a disk keeps no versions."""
        with open_plain_file(place, self._warehouse) as file:
            return FileFacts(os.fstat(file.fileno()).st_size, None)

    def put_new(self, place: Location, data: bytes, hooks: WriteHooks) -> None:
        """Write and sync a temporary file, and link it to its name. Unlike a rename, a link never replaces a file."""
        path = place.local
        with self._write_temporary(path, data, hooks) as temporary:
            try:
                os.link(temporary, path)
            finally:
                temporary.unlink(missing_ok=True)
                sync_folder(path.parent)
        hooks.after_name()

    def put(self, place: Location, data: bytes, hooks: WriteHooks) -> None:
        """Write and sync a temporary file, and rename it."""
        path = place.local
        with self._write_temporary(path, data, hooks) as temporary:
            temporary.replace(path)
            hooks.after_name()
            sync_folder(path.parent)

    def files(self, folder: Location) -> list[ListedFile]:
        """The files directly in the folder, without links."""
        found = []
        try:
            for entry in os.scandir(folder.local):
                if entry.is_file(follow_symlinks=False):
                    facts = entry.stat(follow_symlinks=False)
                    found.append(ListedFile(folder.child(entry.name), facts.st_size, facts.st_mtime_ns / 1e9))
        except FileNotFoundError:
            return []  # the folder does not exist yet, or was removed meanwhile
        return sorted(found, key=lambda each: each.place.parts)

    def folders(self, folder: Location) -> list[str]:
        """The folders directly in the folder, without links."""
        try:
            return sorted(entry.name for entry in os.scandir(folder.local) if entry.is_dir(follow_symlinks=False))
        except FileNotFoundError:
            return []

    def remove(self, place: Location) -> None:
        """Remove the file or link, so that it is not there again after a power cut."""
        with contextlib.suppress(FileNotFoundError):
            place.local.unlink()
            fault.point("stores.after_remove")
            sync_folder(place.local.parent)

    def make_durable(self, places: Sequence[Location]) -> None:
        """Sync each file, then every readable folder above them once."""
        for place in places:
            with open_plain_file(place, self._warehouse) as file:
                os.fsync(file.fileno())
        folders = {place.local.parent for place in places}
        for folder in folders:
            sync_folder(folder)
        for above in {above for folder in folders for above in folder.parents} - folders:
            with contextlib.suppress(PermissionError):  # jobs create nothing in folders that the Steward cannot read
                sync_folder(above)

    def forget(self, folder: Path) -> None:
        """Forget a folder that was removed."""
        self._folders.forget(folder)

    def _read_pieces(self, place: Location) -> Iterator[bytes]:
        with open_plain_file(place, self._warehouse) as file:
            while piece := file.read(PIECE_BYTES):
                yield piece

    @contextlib.contextmanager
    def _write_temporary(self, path: Path, data: bytes, hooks: WriteHooks) -> Iterator[Path]:
        """Write and sync a temporary file in the folder of `path`. It is removed after an OSError."""
        temporary = path.parent / f"{UNFINISHED_PREFIX}{secrets.token_hex(8)}"
        try:
            try:
                self._folders.make(path.parent)
            except FileExistsError as error:
                raise NotADirectoryError(errno.ENOTDIR, "a part of the path is not a folder") from error
            _write_synced(temporary, data, hooks.before_sync)
            hooks.after_temp()
            yield temporary
        except FileExistsError:  # `path` exists; `put_new` has removed the temporary file
            raise
        except OSError:
            self._folders.forget(path.parent)
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that its entries survive a crash."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_synced(path: Path, data: bytes, before_sync: Callable[[], None]) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        before_sync()
        os.fsync(file.fileno())


@contextlib.contextmanager
def open_plain_file(place: Location, warehouse: Location | None = None) -> Iterator[io.FileIO]:
    """Open a plain file. Raises OSError for links, folders and devices; below `warehouse`, for links to folders too."""
    if warehouse is None or not place.is_under(warehouse):
        descriptor = os.open(place.local, _PLAIN_FILE)
    else:
        descriptor, parts = os.open(warehouse.local, _FOLDER), place.parts[len(warehouse.parts) :]
        for depth, part in enumerate(parts, 1):
            above, flags = descriptor, _PLAIN_FILE if depth == len(parts) else _FOLDER | os.O_NOFOLLOW
            try:
                descriptor = os.open(part, flags, dir_fd=above)
            finally:
                os.close(above)
    # Before `fdopen`, which raises another error for a folder and leaves its descriptor open.
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.ELOOP, "not a plain file")
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        yield file
