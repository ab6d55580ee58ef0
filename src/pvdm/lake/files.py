"""Metadata files: written and synced before anything points to them, read only as the bytes that were written."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from hmac import compare_digest
from typing import Final

from pvdm import fault
from pvdm.errors import Code, UnavailableError, VerificationError
from pvdm.lake.paths import Location, parse_location
from pvdm.lake.stores.store import UNFINISHED, Moments, read
from pvdm.lake.stores.stores import Place, Stores, place_of

_FILE_MOST_BYTES: Final = 2_147_483_647
# What `write` gives; names that follow from a content are made again when they are needed.
_WRITTEN: Final = re.compile(r"([0-9]{5,})-[0-9a-f]{32}\.metadata\.json")


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


class MetadataFiles:
    """A folder that only the Steward writes; one folder for each table in it."""

    def __init__(self, root: Place, stores: Stores | None = None) -> None:
        self._root = place_of(root)
        self._store = (stores or Stores()).at(self._root)

    def write(self, table_uuid: str, revision: int, data: bytes) -> StoredFile:
        """A new file under a name that nobody has, durable with its folder when this returns."""
        name = f"{revision:05d}-{secrets.token_hex(16)}.metadata.json"
        return self._put(table_uuid, name, data)

    def write_named(self, table_uuid: str, name: str, data: bytes) -> StoredFile:
        """A file whose name follows from its content; one that is there and was not changed is left as it is."""
        stored = StoredFile(str(self._root.child(table_uuid, name)), hashlib.sha256(data).hexdigest())
        try:
            self.read(stored)
        except VerificationError:
            return self._put(table_uuid, name, data)
        return stored

    def read(self, stored: StoredFile) -> bytes:
        """The bytes, if they are still those that were written."""
        data = self._bytes(stored.location)
        if not compare_digest(hashlib.sha256(data).hexdigest(), stored.sha256):
            raise Code.METADATA_FILE_CHANGED(expected=stored.sha256, got=hashlib.sha256(data).hexdigest())
        return data

    def read_found(self, found: FoundFile) -> bytes:
        """The bytes of a file that lies here, whoever wrote them."""
        return self._bytes(found.location)

    def _bytes(self, location: str) -> bytes:
        place = self._own(parse_location(location))
        try:
            return read(self._store, place, _FILE_MOST_BYTES)
        except FileNotFoundError:
            raise Code.METADATA_FILE_MISSING(expected=location, got="nothing") from None
        except OSError as error:
            raise _unavailable(error) from None

    def remove(self, stored: StoredFile | FoundFile) -> None:
        """Take back a file that nothing points to; it may be gone."""
        self._remove(parse_location(stored.location))

    def remove_old(self, table_uuid: str, location: str) -> None:
        """Remove a document that `write` made for this table earlier; any other file stays. It may be gone."""
        place = parse_location(location)
        if place == self._root.child(table_uuid, place.parts[-1]) and revision_of(place.parts[-1]) is not None:
            self._remove(place)

    def _remove(self, location: Location) -> None:
        place = self._own(location)
        try:
            self._store.remove(place)
        except OSError as error:
            raise _unavailable(error) from None

    def keep_newest(self, table_uuid: str, count: int, *, besides: str) -> None:
        """Take away the table's oldest files beyond this many, never the one of this name; gone is gone."""
        try:
            found = self._store.files(self._root.child(table_uuid))
            others = [each for each in found if each.place.parts[-1] != besides]
            aged = sorted(others, key=lambda each: (each.modified_seconds, each.place.parts))
            for each in aged[: max(0, len(aged) - count)]:
                self._store.remove(each.place)
        except OSError as error:
            raise _unavailable(error) from None

    def folders(self) -> list[str]:
        """The UUIDs of all tables that have a folder here."""
        try:
            return self._store.folders(self._root)
        except OSError as error:
            raise _unavailable(error) from None

    def written(self, table_uuid: str) -> Iterator[FoundFile]:
        """What `write` has left in a table's folder, whole or not."""
        try:
            found = self._store.files(self._root.child(table_uuid))
        except OSError as error:
            raise _unavailable(error) from None
        for each in found:
            name = each.place.parts[-1]
            unfinished = name.startswith(UNFINISHED)
            if unfinished or _WRITTEN.fullmatch(name):
                yield FoundFile(str(each.place), each.modified_seconds, unfinished)

    def _put(self, table_uuid: str, name: str, data: bytes) -> StoredFile:
        place = self._root.child(table_uuid, name)
        try:
            self._store.put(place, data, _MOMENTS)
        except OSError as error:
            raise _unavailable(error) from None
        return StoredFile(str(place), hashlib.sha256(data).hexdigest())

    def _own(self, location: Location) -> Location:
        if not location.is_under(self._root) or location.link_below(self._root) is not None:
            raise Code.METADATA_FILE_FOREIGN(expected=str(self._root), got=str(location))
        return location


_MOMENTS: Final = Moments(
    before_sync=lambda: fault.point("catalog.files.before_sync"),
    after_temp=lambda: fault.point("catalog.files.after_temp"),
    after_name=lambda: fault.point("catalog.files.after_rename"),
)


def file_name(location: str) -> str:
    """The last part of a metadata file's location, drawn at random: no other file has it, wherever it is reached."""
    return location.rpartition("/")[2]


def revision_of(name: str) -> int | None:
    """The table's revision for which `write` made a file of this name; None for any other name."""
    found = _WRITTEN.fullmatch(name)
    return None if found is None else int(found[1])


def _unavailable(error: OSError) -> UnavailableError:
    return UnavailableError(
        Code.METADATA_FILES_UNAVAILABLE,
        f"the catalog's metadata files cannot be reached: {error.strerror or type(error).__name__}",
        hint="nothing was committed",
    )
