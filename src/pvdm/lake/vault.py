"""The vault: the folder that only the Steward writes; its manifests, its copies of data files, and what failed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import stat
from enum import StrEnum
from hmac import compare_digest
from pathlib import Path
from typing import Final

from pvdm import fault
from pvdm.errors import InputError, UnavailableError, VerificationError
from pvdm.lake.files import Folders, FoundFile, sync_folder
from pvdm.lake.paths import Location, parse_location

VAULT_NAME_MAX_CHARACTERS: Final = 200

_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PART: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{VAULT_NAME_MAX_CHARACTERS - 1}}}")
_NEW: Final = ".pvdm-new-"
_MODE: Final = 0o644


class VaultKind(StrEnum):
    """What a file of the vault is; each kind has its own folder below the table's."""

    METADATA = "metadata"
    DATA = "data"
    QUARANTINE = "quarantine"


class Vault:
    """Files are written whole, synced with their folder, and never overwritten: a name has one content for ever."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._folders = Folders(self._root)

    @property
    def root(self) -> Location:
        """Where it is; nobody else may have a place here."""
        return parse_location(str(self._root))

    def place(self, table_uuid: str, kind: VaultKind, name: str) -> str:
        """Where a file of that name lies, or will lie; a name is one part, or a folder's and a file's."""
        return f"file://{self._path(table_uuid, kind, name)}"

    def write(self, table_uuid: str, kind: VaultKind, name: str, data: bytes) -> str:
        """Write the file and give its location; the same bytes again change nothing, others are refused."""
        path = self._path(table_uuid, kind, name)
        folder, temporary = path.parent, path.parent / f"{_NEW}{secrets.token_hex(8)}"
        try:
            self._folders.make(folder)
            _write_synced(temporary, data)
            fault.point("lake.vault.after_temp")
            try:
                # A link never replaces what is there, as a rename would.
                os.link(temporary, path)
            except FileExistsError:
                self._require_same(path, data)
            finally:
                temporary.unlink(missing_ok=True)
            sync_folder(folder)
        except OSError as error:
            self._folders.forget(folder)
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise _unavailable(error) from None
        fault.point("lake.vault.after_file")
        return f"file://{path}"

    def copy_in(self, table_uuid: str, attempt_id: str, position: int, data: bytes, sha256: str) -> str:
        """The Steward's own copy of a staged file, of exactly these bytes; its location is what gets published."""
        return self.write(table_uuid, VaultKind.DATA, copy_name(attempt_id, position, sha256), data)

    def quarantine(self, table_uuid: str, attempt_id: str, data: bytes) -> str:
        """Keep the bytes of a file that failed, under their own hash."""
        name = quarantine_name(attempt_id, hashlib.sha256(data).hexdigest())
        return self.write(table_uuid, VaultKind.QUARANTINE, name, data)

    def read(self, location: str, *, sha256: str, most: int) -> bytes:
        """The bytes of a file, if they are still those that were written."""
        data = self._read(self._own(location), most)
        got = hashlib.sha256(data).hexdigest()
        if not compare_digest(got, sha256):
            raise VerificationError(
                "vault_file_changed",
                "a file of the vault is not the one that was written",
                expected=sha256,
                got=got,
                hint="somebody changed it on disk; only the Steward may write there",
            )
        return data

    def listed(self, table_uuid: str, kind: VaultKind, folder: str) -> list[str]:
        """The locations of all whole files in a folder of a kind, in order of their names."""
        path = self._path(table_uuid, kind, folder)
        try:
            names = sorted(entry.name for entry in os.scandir(path) if entry.is_file(follow_symlinks=False))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _unavailable(error) from None
        return [f"file://{path / name}" for name in names if not name.startswith(_NEW)]

    def tables(self) -> list[str]:
        """The UUIDs of all tables that have a folder here."""
        try:
            entries = [entry.name for entry in os.scandir(self._root) if entry.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _unavailable(error) from None
        return sorted(name for name in entries if _UUID.fullmatch(name))

    def found(self, table_uuid: str, kind: VaultKind) -> list[FoundFile]:
        """What lies in a kind's own folder, whole or not."""
        folder = self._path(table_uuid, kind, "any").parent
        try:
            return [
                FoundFile(
                    f"file://{entry.path}", entry.stat(follow_symlinks=False).st_mtime, entry.name.startswith(_NEW)
                )
                for entry in os.scandir(folder)
                if entry.is_file(follow_symlinks=False)
            ]
        except FileNotFoundError:
            return []  # none yet, or another one takes something away at this moment
        except OSError as error:
            raise _unavailable(error) from None

    def remove(self, location: str) -> None:
        """Take a file away for good; it may be gone. An empty folder goes with it."""
        path = self._own(location)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise _unavailable(error) from None
        kinds = {kind.value for kind in VaultKind}
        if path.parent.name not in kinds:
            with contextlib.suppress(OSError):
                path.parent.rmdir()
                self._folders.forget(path.parent)

    def holds(self, location: str) -> bool:
        """Whether the location lies in the vault."""
        return parse_location(location).is_under(self.root)

    def _path(self, table_uuid: str, kind: VaultKind, name: str) -> Path:
        parts = name.split("/")
        if _UUID.fullmatch(table_uuid) is None or not 1 <= len(parts) <= 2 or not all(map(_PART.fullmatch, parts)):
            raise InputError(
                "vault_name_invalid",
                "this is no name for a file of the vault",
                expected="a table's UUID, and one or two plain parts",
                got=ascii(f"{table_uuid}/{name}"[:VAULT_NAME_MAX_CHARACTERS]),
            )
        return self._root.joinpath(table_uuid, kind.value, *parts)

    def _own(self, location: str) -> Path:
        place = parse_location(location)
        if not place.is_under(self.root) or place == self.root or place.link_below(self.root) is not None:
            raise VerificationError(
                "vault_file_foreign", "the file is not in the vault", expected=str(self.root), got=str(place)
            )
        return place.local

    def _require_same(self, path: Path, data: bytes) -> None:
        if self._read(path, len(data) + 1) != data:
            raise VerificationError(
                "vault_file_differs",
                "another file has this name in the vault",
                expected=hashlib.sha256(data).hexdigest(),
                got=f"file://{path}",
                hint="only the Steward may write there, and it never writes a name twice",
            )

    def _read(self, path: Path, most: int) -> bytes:
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(handle, "rb") as file:
                if not stat.S_ISREG(os.fstat(handle).st_mode):
                    raise VerificationError("vault_file_foreign", "a file of the vault is no plain file", got=str(path))
                data = file.read(most + 1)
        except FileNotFoundError:
            raise VerificationError(
                "vault_file_missing", "a file of the vault is gone", expected=f"file://{path}", got="nothing"
            ) from None
        except OSError as error:
            raise _unavailable(error) from None
        return data


def copy_name(attempt_id: str, position: int, sha256: str) -> str:
    """The name of a copy: by its place among the attempt's files, for two of them may have the same bytes."""
    return f"{attempt_id}/{position:05d}-{sha256[:32]}.parquet"


def quarantine_name(attempt_id: str, sha256: str) -> str:
    """The name of what failed: who knows the proof's hash of a file finds its bytes."""
    return f"{attempt_id}/{sha256}"


def _write_synced(path: Path, data: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _unavailable(error: OSError) -> UnavailableError:
    return UnavailableError(
        "vault_unavailable", f"the vault cannot be reached: {error.strerror or type(error).__name__}"
    )
