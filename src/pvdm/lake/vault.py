"""The vault: manifests, copied data files and failed files, where only the Steward, pvdm's service, writes."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator
from enum import StrEnum
from functools import partial
from hmac import compare_digest
from typing import Final

from pvdm import fault
from pvdm.errors import Code
from pvdm.lake.files import FoundFile
from pvdm.lake.paths import Location, parse_location
from pvdm.lake.stores.local import NOT_PLAIN_ERRNOS, LocalStore
from pvdm.lake.stores.store import UNFINISHED_PREFIX, ListedFile, WriteHooks, read, translate_errors
from pvdm.lake.stores.stores import ConfiguredPath, Stores, location_of

VAULT_NAME_MAX_CHARACTERS: Final = 200

_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NAME_PART: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{VAULT_NAME_MAX_CHARACTERS - 1}}}")
_FAULT_POINTS: Final = WriteHooks(after_temp=lambda: fault.point("lake.vault.after_temp"))  # for tests
_translate_errors: Final = partial(translate_errors, "vault_unavailable", "the vault")


class VaultKind(StrEnum):
    """The kind of a file of the vault; each kind has its own folder below the table's."""

    METADATA = "metadata"
    DATA = "data"
    QUARANTINE = "quarantine"


class Vault:
    """Files of the Steward that are written whole, synced with their folder, and never overwritten."""

    def __init__(self, root: ConfiguredPath, stores: Stores | None = None) -> None:
        self.root = location_of(root)
        self._store = (stores or Stores()).for_writing(self.root)

    def location(self, table_uuid: str, kind: VaultKind, name: str) -> str:
        """The location of a file of that name. A name is one part, or a folder and a file."""
        return str(self._place(table_uuid, kind, name))

    def write(self, table_uuid: str, kind: VaultKind, name: str, data: bytes) -> str:
        """Write the file and return its location. Raises if a file of that name has other bytes."""
        place = self._place(table_uuid, kind, name)
        with _translate_errors():
            try:
                self._store.put_new(place, data, _FAULT_POINTS)
            except FileExistsError:
                if self._read(place, len(data) + 1) != data:
                    expected = hashlib.sha256(data).hexdigest()
                    raise Code.VAULT_DAMAGED(reason="vault_file_differs", expected=expected, got=str(place)) from None
        fault.point("lake.vault.after_file")
        return str(place)

    def copy_in(self, table_uuid: str, attempt_id: str, position: int, data: bytes, sha256: str) -> str:
        """Write the Steward's copy of a file of an attempt (one try to publish a chunk), and return its location."""
        # Two files of an attempt may have the same bytes, so the name also has the file's position in the attempt.
        return self.write(table_uuid, VaultKind.DATA, f"{attempt_id}/{position:05d}-{sha256[:32]}.parquet", data)

    def quarantine(self, table_uuid: str, attempt_id: str, data: bytes) -> str:
        """Keep the bytes of a file that failed verification, under their hash, and return the location."""
        name = quarantine_name(attempt_id, hashlib.sha256(data).hexdigest())
        return self.write(table_uuid, VaultKind.QUARANTINE, name, data)

    def read(self, location: str, *, sha256: str, max_bytes: int) -> bytes:
        """The bytes of a file. Raises if they do not have this hash, or are more than `max_bytes`."""
        data = self._read(self._require_own(location), max_bytes)
        got = hashlib.sha256(data).hexdigest() if len(data) <= max_bytes else f"more than {max_bytes} bytes"
        if not compare_digest(got, sha256):
            raise Code.VAULT_DAMAGED(reason="vault_file_changed", expected=sha256, got=got)
        return data

    def finished(self, table_uuid: str, kind: VaultKind, folder: str) -> list[str]:
        """The locations of all finished files in a folder below the kind's folder, sorted by name."""
        return [str(each.place) for each in self.files(table_uuid, kind, folder) if not _is_unfinished(each)]

    def unfinished(self, table_uuid: str, kind: VaultKind, folder: str) -> list[str]:
        """The locations of files that a crash left with their temporary names."""
        return [str(each.place) for each in self.files(table_uuid, kind, folder) if _is_unfinished(each)]

    def files(self, table_uuid: str, kind: VaultKind, folder: str) -> list[ListedFile]:
        """All files in a folder below the kind's folder, finished or not."""
        with _translate_errors():
            return self._store.files(self._place(table_uuid, kind, folder))

    def tables(self) -> list[str]:
        """The UUIDs of all tables that have a folder here."""
        with _translate_errors():
            return [name for name in self._store.folders(self.root) if _UUID.fullmatch(name)]

    def folders(self, table_uuid: str, kind: VaultKind) -> list[str]:
        """The names of the folders in the kind's folder; each name is the id of an attempt."""
        with _translate_errors():
            return [name for name in self._store.folders(self._folder(table_uuid, kind)) if _NAME_PART.fullmatch(name)]

    def files_of_kind(self, table_uuid: str, kind: VaultKind) -> list[FoundFile]:
        """The files directly in the kind's folder, finished or not."""
        with _translate_errors():
            found = self._store.files(self._folder(table_uuid, kind))
        return [FoundFile(str(each.place), each.modified_seconds, _is_unfinished(each)) for each in found]

    def walk(self) -> Iterator[tuple[VaultKind, ListedFile]]:
        """Every file with its kind, one folder at a time. Files that are removed meanwhile may be missing."""
        for table_uuid in self.tables():
            for kind in VaultKind:
                top = self.root.child(table_uuid, kind.value)
                with _translate_errors():
                    folders = (top, *(top.child(name) for name in self._store.folders(top)))
                for folder in folders:
                    with _translate_errors():
                        found = self._store.files(folder)
                    yield from ((kind, each) for each in found)

    def remove(self, location: str) -> None:
        """Remove a file if it is there, and its attempt's folder if the folder is empty then."""
        place = self._require_own(location)
        with _translate_errors():
            self._store.remove(place)
        in_kinds_folder = place.parts[-2] in set(VaultKind)
        if isinstance(self._store, LocalStore) and not in_kinds_folder:
            with contextlib.suppress(OSError):
                place.local.parent.rmdir()
                self._store.forget(place.local.parent)

    def _place(self, table_uuid: str, kind: VaultKind, name: str) -> Location:
        parts = name.split("/")
        if _UUID.fullmatch(table_uuid) is None or not 1 <= len(parts) <= 2 or not all(map(_NAME_PART.fullmatch, parts)):
            got = ascii(f"{table_uuid}/{name}"[:VAULT_NAME_MAX_CHARACTERS])
            raise Code.IDENTIFIER_INVALID(reason="vault_name_invalid", got=got)
        return self.root.child(table_uuid, kind.value, *parts)

    def _folder(self, table_uuid: str, kind: VaultKind) -> Location:
        return self._place(table_uuid, kind, "any").parent  # `_place` checks the UUID

    def _require_own(self, location: str) -> Location:
        """The location, parsed. Raises unless it is in the vault, without a link on its path."""
        place = parse_location(location)
        if not place.is_under(self.root) or place == self.root or place.link_below(self.root) is not None:
            words = "the file is not in the vault"
            raise Code.VAULT_DAMAGED(words, reason="vault_file_foreign", expected=str(self.root), got=str(place))
        return place

    def _read(self, place: Location, max_bytes: int) -> bytes:
        with _translate_errors():
            try:
                return read(self._store, place, max_bytes)
            except FileNotFoundError:
                raise Code.VAULT_DAMAGED(reason="vault_file_missing", expected=str(place), got="nothing") from None
            except OSError as error:
                if error.errno not in NOT_PLAIN_ERRNOS:
                    raise
                words = "a file of the vault is not a plain file"
                raise Code.VAULT_DAMAGED(words, reason="vault_file_foreign", got=str(place)) from None


def quarantine_name(attempt_id: str, sha256: str) -> str:
    """The name of a file that failed: its attempt's folder, and its SHA-256 as in the proof."""
    return f"{attempt_id}/{sha256}"


def _is_unfinished(file: ListedFile) -> bool:
    return file.place.parts[-1].startswith(UNFINISHED_PREFIX)
