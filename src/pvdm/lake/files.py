"""Metadata files: written and synced before anything points to them, read only as the bytes that were written."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from dataclasses import dataclass
from hmac import compare_digest
from pathlib import Path
from typing import Final

from pvdm.errors import UnavailableError, VerificationError
from pvdm.lake.paths import Location, parse_location

_PREFIX: Final = ".pvdm-new-"
_MODE: Final = 0o644


@dataclass(frozen=True, slots=True)
class StoredFile:
    """Where a metadata file lies, and the SHA-256 of its bytes."""

    location: str
    sha256: str


class MetadataFiles:
    """A folder that only the Steward writes; one folder for each table in it."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

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

    def remove(self, stored: StoredFile) -> None:
        """Take back a file that nothing points to; it may be gone."""
        path = self._own(parse_location(stored.location))
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise _unavailable(error) from None

    def _put(self, table_uuid: str, name: str, data: bytes) -> StoredFile:
        folder = self._root / table_uuid
        path = folder / name
        temporary = folder / f"{_PREFIX}{secrets.token_hex(8)}"
        try:
            _make(folder)
            _write_synced(temporary, data)
            temporary.replace(path)
            _sync(folder)
        except OSError as error:
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


def _make(folder: Path) -> None:
    """The folder and those above it; a new one is durable with the one that holds it."""
    if folder.is_dir():
        return
    _make(folder.parent)
    folder.mkdir(exist_ok=True)
    _sync(folder.parent)


def _write_synced(path: Path, data: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
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
