"""Files that are there whole or not at all, also after a power loss: write, sync, rename, sync the folder.

In an object store they are so by themselves: there a file is put whole, in the place of what was seen there.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

from pvdm.errors import Code
from pvdm.lake.stores.stores import FilePath, ObjectPath

TEMPORARY_PREFIX: Final = ".pvdm-new-"


def write_atomically(path: FilePath, data: bytes) -> None:
    """Put `data` under `path` in one step; durable only once the folder is synced too."""
    if isinstance(path, ObjectPath):
        path.put(data)
        return
    handle, name = tempfile.mkstemp(prefix=TEMPORARY_PREFIX, dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), 0o644)
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def replace_seen(path: FilePath, seen: bytes | None, data: bytes) -> None:
    """Put `data` in the place of what was seen there, durably; whoever writes a local one holds its lock."""
    if isinstance(path, ObjectPath):
        if not path.swap(seen, data):
            raise Code.FILE_OVERTAKEN(got=str(path))
        return
    write_atomically(path, data)
    sync_folder(path.parent)


def sync_folder(folder: FilePath) -> None:
    """Make the folder's entries durable: names that were added, renamed or removed."""
    if isinstance(folder, ObjectPath):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folders(folder: FilePath) -> None:
    """Create a folder and the missing ones above it, each durable in its parent."""
    if isinstance(folder, ObjectPath):
        return
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for one in reversed(missing):
        one.mkdir(exist_ok=True)
        sync_folder(one.parent)


def drop_leftovers(folder: FilePath) -> None:
    """Remove files that a crashed writer left half done; only while no other writer is at work in the folder."""
    if isinstance(folder, ObjectPath):
        return
    for path in folder.rglob(f"{TEMPORARY_PREFIX}*"):
        path.unlink(missing_ok=True)
