"""Files that are there whole or not at all, also after a power loss: write, sync, rename, sync the folder."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

TEMPORARY_PREFIX: Final = ".pvdm-new-"


def write_atomically(path: Path, data: bytes) -> None:
    """Put `data` under `path` in one step; durable only once the folder is synced too."""
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


def sync_folder(folder: Path) -> None:
    """Make the folder's entries durable: names that were added, renamed or removed."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folders(folder: Path) -> None:
    """Create a folder and the missing ones above it, each durable in its parent."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for one in reversed(missing):
        one.mkdir(exist_ok=True)
        sync_folder(one.parent)


def drop_leftovers(folder: Path) -> None:
    """Remove files that a crashed writer left half done; only while no other writer is at work in the folder."""
    for path in folder.rglob(f"{TEMPORARY_PREFIX}*"):
        path.unlink(missing_ok=True)
