"""Writes files that stay whole after a power loss: write, sync, rename, sync the folder. Objects need only a put."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

from pvdm import fault
from pvdm.errors import Code
from pvdm.lake.stores.stores import FilePath, ObjectPath

TEMPORARY_PREFIX: Final = ".pvdm-new-"


def write_atomically(path: FilePath, data: bytes) -> None:
    """Write the file or object atomically. A file is durable once its folder is synced too."""
    if isinstance(path, ObjectPath):
        fault.point("log.disk.after_temp")
        path.put(data)
        fault.point("log.disk.after_name")
        return
    descriptor, name = tempfile.mkstemp(prefix=TEMPORARY_PREFIX, dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), 0o644)
            os.fsync(file.fileno())
        fault.point("log.disk.after_temp")
        Path(name).replace(path)
        fault.point("log.disk.after_name")
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def replace_durably(path: FilePath, seen: bytes | None, data: bytes) -> None:
    """Replace the file or object durably. Raises `file_overtaken` if an object is no longer `seen` (None: missing)."""
    if isinstance(path, ObjectPath):
        fault.point("log.disk.after_temp")
        if not path.swap(seen, data):
            raise Code.FILE_OVERTAKEN(got=str(path))
        fault.point("log.disk.after_name")
        return
    write_atomically(path, data)  # without comparing: the writers of a file need a lock
    sync_folder(path.parent)


def sync_folder(folder: FilePath) -> None:
    """Make the folder's entries durable."""
    if isinstance(folder, ObjectPath):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folders(folder: FilePath) -> None:
    """Create a folder and its missing parents durably."""
    if isinstance(folder, ObjectPath):
        return
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)


def drop_leftovers(folder: FilePath) -> None:
    """Remove the temporary files of a crashed writer. No other writer may be active in the folder."""
    if isinstance(folder, ObjectPath):
        return
    for path in folder.rglob(f"{TEMPORARY_PREFIX}*"):
        path.unlink(missing_ok=True)
