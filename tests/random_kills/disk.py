"""The disk that a round lies on: an ext4 image that can be shut down without a flush, or a plain folder."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.support.ledger.databases import memory_file_system

IMAGE_BYTES = 768 * 1024 * 1024
UMOUNT_SECONDS = 30
# Nothing that was not synced gets to the disk by itself within a round, nor by ext4's guesses about renames.
_OPTIONS = "loop,commit=600,noauto_da_alloc,nodev,nosuid"
_EXT4_IOC_SHUTDOWN = 0x8004587D
_NO_FLUSH = 2


class ImageDisk:
    """An ext4 file system in a file, mounted by a loop device."""

    can_lose_power = True

    def __init__(self, folder: Path) -> None:
        self.place = folder / "disk"
        self.place.mkdir()
        self._image = folder / "disk.img"
        with self._image.open("wb") as image:
            image.truncate(IMAGE_BYTES)
        _run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=1,lazy_journal_init=1", str(self._image))
        self.mount()

    def mount(self) -> None:
        """Mount the image; ext4 replays its journal, as after a power cut."""
        _run("mount", "-t", "ext4", "-o", _OPTIONS, str(self._image), str(self.place))

    def unmount(self) -> None:
        """Unmount; everything is flushed unless the disk was cut."""
        ends = time.monotonic() + UMOUNT_SECONDS
        while subprocess.run(["umount", str(self.place)], capture_output=True, check=False).returncode != 0:
            if time.monotonic() > ends:
                raise AssertionError(f"{self.place} is still in use")
            time.sleep(0.05)  # the kernel lets go of a killed process's files after the process is gone

    def cut(self) -> None:
        """Shut the file system down without a flush: what was not synced is lost."""
        handle = os.open(self.place, os.O_RDONLY)
        try:
            fcntl.ioctl(handle, _EXT4_IOC_SHUTDOWN, struct.pack("I", _NO_FLUSH))
        finally:
            os.close(handle)

    def keep(self, name: Path) -> None:
        """Save the unmounted disk under that name."""
        _run("cp", "--sparse=always", str(self._image), str(name))

    def bring_back(self, name: Path) -> None:
        """Replace the unmounted disk with the one that was saved."""
        _run("cp", "--sparse=always", str(name), str(self._image))

    def close(self) -> None:
        """Leave nothing mounted."""
        with contextlib.suppress(AssertionError):
            if self.place.is_mount():
                self.unmount()


class FolderDisk:
    """A plain folder, where no image can be mounted."""

    can_lose_power = False

    def __init__(self, folder: Path) -> None:
        self.place = folder / "disk"
        self.place.mkdir()

    def mount(self) -> None:
        """Nothing to do."""

    def unmount(self) -> None:
        """Nothing to do."""

    def cut(self) -> None:
        """Refused: a folder cannot be shut down."""
        raise AssertionError("a plain folder cannot lose its power")

    def keep(self, name: Path) -> None:
        """Save the folder under that name."""
        _run("cp", "-a", str(self.place), str(name))

    def bring_back(self, name: Path) -> None:
        """Replace the folder with the one that was saved."""
        shutil.rmtree(self.place)
        _run("cp", "-a", str(name), str(self.place))

    def close(self) -> None:
        """Nothing to do."""


@functools.cache
def why_no_image() -> str | None:
    """Why no ext4 image can be mounted and shut down here; None where it can."""
    with tempfile.TemporaryDirectory(prefix="pvdm-disk-") as name:
        disk = None
        try:
            disk = ImageDisk(Path(name))
            disk.cut()
        except (OSError, subprocess.CalledProcessError) as error:
            said = error.stderr if isinstance(error, subprocess.CalledProcessError) else str(error)
            return f"an ext4 image cannot be mounted and shut down here: {str(said).strip()[:200]}"
        finally:
            if disk is not None:
                disk.close()
    return None


@contextlib.contextmanager
def opened_disk(folder: Path) -> Iterator[ImageDisk | FolderDisk]:
    """The best disk that this machine has."""
    with contextlib.closing(ImageDisk(folder) if why_no_image() is None else FolderDisk(folder)) as disk:
        yield disk


@contextlib.contextmanager
def short_folder() -> Iterator[Path]:
    """A folder with a short name, in memory where the system has one: a socket's path has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="pvdm-kills-", dir=memory_file_system()) as name:
        Path(name).chmod(0o755)  # the database's server is another user
        yield Path(name)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
