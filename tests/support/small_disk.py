"""A small file system, mounted on a folder, which a test fills up or makes read-only."""

from __future__ import annotations

import contextlib
import errno
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.support.services import require

_ROOM_BYTES = 16 * 1024 * 1024
_FILLER = ".filler"
_BLOCK_BYTES = 65_536


class SmallDisk:
    """A file system in memory, mounted on a folder. If it is read-only, not even root can write to it."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def fill(self) -> None:
        """Write a file until no byte more fits."""
        block = _BLOCK_BYTES
        with (self.place / _FILLER).open("ab", buffering=0) as file:
            while block:
                try:
                    file.write(bytes(block))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    block //= 2

    def make_room(self) -> None:
        """Remove the file that `fill` has written."""
        (self.place / _FILLER).unlink()

    def make_read_only(self) -> None:
        """Refuse every write from now on."""
        _run("mount", "-o", "remount,ro", str(self.place))

    def make_writable(self) -> None:
        """Accept writes again."""
        _run("mount", "-o", "remount,rw", str(self.place))


@contextlib.contextmanager
def small_disk_on(place: Path) -> Iterator[SmallDisk]:
    """A small disk on this folder, with copies of the folder's files. Skips the test if no disk can be mounted.

    After a block without an exception, the files of the disk are copied to the folder.
    """
    place.mkdir(mode=0o700, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent.parent) as name:
        saved = Path(name) / "files"
        shutil.copytree(place, saved)
        try:
            _run("mount", "-t", "tmpfs", "-o", f"size={_ROOM_BYTES},mode=0700,nodev,nosuid", "tmpfs", str(place))
        except (OSError, subprocess.CalledProcessError) as error:
            said = error.stderr if isinstance(error, subprocess.CalledProcessError) else str(error)
            require(condition=False, reason=f"a small disk cannot be mounted here: {str(said).strip()[:200]}")
        try:
            shutil.copytree(saved, place, dirs_exist_ok=True)
            yield SmallDisk(place)
            shutil.copytree(place, saved, dirs_exist_ok=True)
        finally:
            _run("umount", "--lazy", str(place))
        shutil.copytree(saved, place, dirs_exist_ok=True)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
