"""The vault: the folder that only the Steward writes; its manifests, its copies of data files, and what failed."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator
from enum import StrEnum
from hmac import compare_digest
from typing import Final

from pvdm import fault
from pvdm.errors import Code, UnavailableError
from pvdm.lake.files import FoundFile
from pvdm.lake.paths import Location, parse_location
from pvdm.lake.stores.local import NOT_PLAIN, LocalStore
from pvdm.lake.stores.store import UNFINISHED, Listed, Moments, read
from pvdm.lake.stores.stores import Place, Stores, place_of

VAULT_NAME_MAX_CHARACTERS: Final = 200

_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PART: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{VAULT_NAME_MAX_CHARACTERS - 1}}}")


class VaultKind(StrEnum):
    """What a file of the vault is; each kind has its own folder below the table's."""

    METADATA = "metadata"
    DATA = "data"
    QUARANTINE = "quarantine"


class Vault:
    """Files are written whole, synced with their folder, and never overwritten: a name has one content for ever."""

    def __init__(self, root: Place, stores: Stores | None = None) -> None:
        self._root = place_of(root)
        self._store = (stores or Stores()).at(self._root)

    @property
    def root(self) -> Location:
        """Where it is; nobody else may have a place here."""
        return self._root

    def place(self, table_uuid: str, kind: VaultKind, name: str) -> str:
        """Where a file of that name lies, or will lie; a name is one part, or a folder's and a file's."""
        return str(self._place(table_uuid, kind, name))

    def write(self, table_uuid: str, kind: VaultKind, name: str, data: bytes) -> str:
        """Write the file and give its location; the same bytes again change nothing, others are refused."""
        place = self._place(table_uuid, kind, name)
        try:
            self._store.put_new(place, data, _MOMENTS)
        except FileExistsError:
            self._require_same(place, data)
        except OSError as error:
            raise _unavailable(error) from None
        fault.point("lake.vault.after_file")
        return str(place)

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
            raise Code.VAULT_DAMAGED(reason="vault_file_changed", expected=sha256, got=got)
        return data

    def listed(self, table_uuid: str, kind: VaultKind, folder: str) -> list[str]:
        """The locations of all whole files in a folder of a kind, in order of their names."""
        return [place for place, whole in self._in_folder(table_uuid, kind, folder) if whole]

    def unfinished(self, table_uuid: str, kind: VaultKind, folder: str) -> list[str]:
        """The locations of those that a crash left there before they had their names."""
        return [place for place, whole in self._in_folder(table_uuid, kind, folder) if not whole]

    def files(self, table_uuid: str, kind: VaultKind, folder: str) -> list[Listed]:
        """All files in a folder of a kind, whole or not, with their sizes."""
        try:
            return self._store.files(self._place(table_uuid, kind, folder))
        except OSError as error:
            raise _unavailable(error) from None

    def _in_folder(self, table_uuid: str, kind: VaultKind, folder: str) -> list[tuple[str, bool]]:
        found = self.files(table_uuid, kind, folder)
        return [(str(each.place), not each.place.parts[-1].startswith(UNFINISHED)) for each in found]

    def tables(self) -> list[str]:
        """The UUIDs of all tables that have a folder here."""
        try:
            return [name for name in self._store.folders(self._root) if _UUID.fullmatch(name)]
        except OSError as error:
            raise _unavailable(error) from None

    def folders(self, table_uuid: str, kind: VaultKind) -> list[str]:
        """The names of the folders of a kind: attempts of which something lies there."""
        folder = self._root.child(self._place(table_uuid, kind, "any").parts[-3], kind.value)
        try:
            return [name for name in self._store.folders(folder) if _PART.fullmatch(name)]
        except OSError as error:
            raise _unavailable(error) from None

    def found(self, table_uuid: str, kind: VaultKind) -> list[FoundFile]:
        """What lies in a kind's own folder, whole or not."""
        folder = self._root.child(self._place(table_uuid, kind, "any").parts[-3], kind.value)
        try:
            return [
                FoundFile(str(each.place), each.modified_seconds, each.place.parts[-1].startswith(UNFINISHED))
                for each in self._store.files(folder)
            ]
        except OSError as error:
            raise _unavailable(error) from None

    def walk(self) -> Iterator[tuple[VaultKind, Listed]]:
        """Every file with its kind, one folder at a time; what is removed meanwhile may be missing."""
        for table_uuid in self.tables():
            for kind in VaultKind:
                folder = self._root.child(table_uuid, kind.value)
                try:
                    for part in (folder, *(folder.child(name) for name in self._store.folders(folder))):
                        yield from ((kind, each) for each in self._store.files(part))
                except OSError as error:
                    raise _unavailable(error) from None

    def remove(self, location: str) -> None:
        """Take a file away for good; it may be gone. An empty folder goes with it."""
        place = self._own(location)
        try:
            self._store.remove(place)
        except OSError as error:
            raise _unavailable(error) from None
        kinds = {kind.value for kind in VaultKind}
        if isinstance(self._store, LocalStore) and place.parts[-2] not in kinds:
            with contextlib.suppress(OSError):
                place.local.parent.rmdir()
                self._store.forget(place.local.parent)

    def holds(self, location: str) -> bool:
        """Whether the location lies in the vault."""
        return parse_location(location).is_under(self.root)

    def _place(self, table_uuid: str, kind: VaultKind, name: str) -> Location:
        parts = name.split("/")
        if _UUID.fullmatch(table_uuid) is None or not 1 <= len(parts) <= 2 or not all(map(_PART.fullmatch, parts)):
            raise Code.VAULT_NAME_INVALID(got=ascii(f"{table_uuid}/{name}"[:VAULT_NAME_MAX_CHARACTERS]))
        return self._root.child(table_uuid, kind.value, *parts)

    def _own(self, location: str) -> Location:
        place = parse_location(location)
        if not place.is_under(self._root) or place == self._root or place.link_below(self._root) is not None:
            raise Code.VAULT_DAMAGED(
                "the file is not in the vault", reason="vault_file_foreign", expected=str(self._root), got=str(place)
            )
        return place

    def _require_same(self, place: Location, data: bytes) -> None:
        if self._read(place, len(data) + 1) != data:
            raise Code.VAULT_DAMAGED(
                reason="vault_file_differs", expected=hashlib.sha256(data).hexdigest(), got=str(place)
            )

    def _read(self, place: Location, most: int) -> bytes:
        try:
            return read(self._store, place, most)
        except FileNotFoundError:
            raise Code.VAULT_DAMAGED(reason="vault_file_missing", expected=str(place), got="nothing") from None
        except OSError as error:
            if error.errno in NOT_PLAIN:
                raise Code.VAULT_DAMAGED(
                    "a file of the vault is no plain file", reason="vault_file_foreign", got=str(place)
                ) from None
            raise _unavailable(error) from None


_MOMENTS: Final = Moments(after_temp=lambda: fault.point("lake.vault.after_temp"))


def copy_name(attempt_id: str, position: int, sha256: str) -> str:
    """The name of a copy: by its place among the attempt's files, for two of them may have the same bytes."""
    return f"{attempt_id}/{position:05d}-{sha256[:32]}.parquet"


def quarantine_name(attempt_id: str, sha256: str) -> str:
    """The name of what failed: who knows the proof's hash of a file finds its bytes."""
    return f"{attempt_id}/{sha256}"


def _unavailable(error: OSError) -> UnavailableError:
    return UnavailableError(
        Code.VAULT_UNAVAILABLE, f"the vault cannot be reached: {error.strerror or type(error).__name__}"
    )
