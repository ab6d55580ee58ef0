"""Metadata files: written and synced before anything points to them, read only as the bytes that were written."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from hmac import compare_digest
from pathlib import Path
from typing import Final

from pvdm import fault
from pvdm.errors import UnavailableError, VerificationError
from pvdm.lake.paths import Location, parse_location

_PREFIX: Final = ".pvdm-new-"
_MODE: Final = 0o644
_FOLDERS_KNOWN: Final = 10_000
# What `write` gives; names that follow from a content are made again when they are needed.
_WRITTEN: Final = re.compile(r"[0-9]{5,}-[0-9a-f]{32}\.metadata\.json")


@dataclass(frozen=True, slots=True)
class StoredFile:
    """Where a metadata file lies, and the SHA-256 of its bytes."""

    location: str
    sha256: str

    @property
    def name(self) -> str:
        """The file's own name."""
        return file_name(self.location)


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file as it lies in a table's folder; one that is `unfinished` never had a name that a pointer could use."""

    location: str
    modified_seconds: float
    unfinished: bool

    @property
    def name(self) -> str:
        """The file's own name."""
        return file_name(self.location)


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


class MetadataFiles:
    """A folder that only the Steward writes; one folder for each table in it."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._folders = Folders(self._root)

    def write(self, table_uuid: str, revision: int, data: bytes) -> StoredFile:
        """A new file under a name that nobody has, durable with its folder when this returns."""
        name = f"{revision:05d}-{secrets.token_hex(16)}.metadata.json"
        return self._put(table_uuid, name, data)

    def write_named(self, table_uuid: str, name: str, data: bytes) -> StoredFile:
        """A file whose name follows from its content; one that is there and was not changed is left as it is."""
        path = self._root / table_uuid / name
        stored = StoredFile(_location(path), hashlib.sha256(data).hexdigest())
        try:
            self.read(stored)
        except VerificationError:
            return self._put(table_uuid, name, data)
        return stored

    def read(self, stored: StoredFile) -> bytes:
        """The bytes, if they are still those that were written."""
        path = self._own(parse_location(stored.location))
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise VerificationError(
                "metadata_file_missing",
                "the table's metadata file is gone",
                expected=stored.location,
                got="nothing",
                hint="bring it back from a backup; nobody can read the table without it",
            ) from None
        except OSError as error:
            raise _unavailable(error) from None
        if not compare_digest(hashlib.sha256(data).hexdigest(), stored.sha256):
            raise VerificationError(
                "metadata_file_changed",
                "the table's metadata file is not the one that was written",
                expected=stored.sha256,
                got=hashlib.sha256(data).hexdigest(),
                hint="somebody changed it on disk; bring the right one back from a backup",
            )
        return data

    def remove(self, stored: StoredFile | FoundFile) -> None:
        """Take back a file that nothing points to; it may be gone."""
        path = self._own(parse_location(stored.location))
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise _unavailable(error) from None

    def keep_newest(self, table_uuid: str, count: int, *, besides: str) -> None:
        """Take away the table's oldest files beyond this many, never the one of this name; gone is gone."""
        try:
            found = [entry for entry in os.scandir(self._root / table_uuid) if entry.name != besides]
            aged = sorted((entry.stat(follow_symlinks=False).st_mtime_ns, entry.path) for entry in found)
            for _, path in aged[: max(0, len(aged) - count)]:
                Path(path).unlink(missing_ok=True)
        except FileNotFoundError:
            return  # none yet, or another one cleans at the same time
        except OSError as error:
            raise _unavailable(error) from None

    def folders(self) -> list[str]:
        """The UUIDs of all tables that have a folder here."""
        try:
            return sorted(entry.name for entry in os.scandir(self._root) if entry.is_dir(follow_symlinks=False))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _unavailable(error) from None

    def written(self, table_uuid: str) -> Iterator[FoundFile]:
        """What `write` has left in a table's folder, whole or not."""
        try:
            for entry in os.scandir(self._root / table_uuid):
                unfinished = entry.name.startswith(_PREFIX)
                if (unfinished or _WRITTEN.fullmatch(entry.name)) and entry.is_file(follow_symlinks=False):
                    stat = entry.stat(follow_symlinks=False)
                    yield FoundFile(_location(Path(entry.path)), stat.st_mtime, unfinished)
        except FileNotFoundError:
            return
        except OSError as error:
            raise _unavailable(error) from None

    def _put(self, table_uuid: str, name: str, data: bytes) -> StoredFile:
        folder = self._root / table_uuid
        path = folder / name
        temporary = folder / f"{_PREFIX}{secrets.token_hex(8)}"
        try:
            self._folders.make(folder)
            _write_synced(temporary, data)
            fault.point("catalog.files.after_temp")
            temporary.replace(path)
            fault.point("catalog.files.after_rename")
            sync_folder(folder)
        except OSError as error:
            self._folders.forget(folder)
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise _unavailable(error) from None
        return StoredFile(_location(path), hashlib.sha256(data).hexdigest())

    def _own(self, location: Location) -> Path:
        home = parse_location(str(self._root))
        if not location.is_under(home) or location.link_below(home) is not None:
            raise VerificationError(
                "metadata_file_foreign",
                "the metadata file is not in the Steward's own place",
                expected=str(self._root),
                got=str(location),
            )
        return location.local


def file_name(location: str) -> str:
    """The last part of a metadata file's location, drawn at random: no other file has it, wherever it is reached."""
    return location.rpartition("/")[2]


def _write_synced(path: Path, data: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        fault.point("catalog.files.before_sync")
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """What the folder names is there after a crash."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _location(path: Path) -> str:
    return f"file://{path}"


def _unavailable(error: OSError) -> UnavailableError:
    return UnavailableError(
        "metadata_files_unavailable",
        f"the catalog's metadata files cannot be reached: {error.strerror or type(error).__name__}",
        hint="nothing was committed",
    )
