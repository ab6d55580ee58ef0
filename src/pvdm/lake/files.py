"""Metadata files of tables and views, which the Steward writes durably, and reads only if they are unchanged."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from hmac import compare_digest
from typing import Final

from pvdm import fault
from pvdm.errors import Code, VerificationError
from pvdm.lake.paths import Location, Pointer, parse_location
from pvdm.lake.stores.store import UNFINISHED_PREFIX, WriteHooks, read, translate_errors
from pvdm.lake.stores.stores import ConfiguredPath, Stores, location_of

_READ_MAX_BYTES: Final = 2_147_483_647
# The names that `write` makes: the revision, and 128 random bits.
_NAME: Final = re.compile(r"([0-9]{5,})-[0-9a-f]{32}\.metadata\.json")
_translate_errors: Final = partial(translate_errors, "metadata_files_unavailable", "the catalog's metadata files")
_FAULT_POINTS: Final = WriteHooks(  # where tests can stop a write
    before_sync=lambda: fault.point("catalog.files.before_sync"),
    after_temp=lambda: fault.point("catalog.files.after_temp"),
    after_name=lambda: fault.point("catalog.files.after_rename"),
)


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A metadata file, or a manifest or manifest list of the vault. An unfinished file still has its temporary name."""

    location: str
    modified_seconds: float  # since 1970
    unfinished: bool

    @property
    def name(self) -> str:
        """The file's own name."""
        return file_name(self.location)


class MetadataFiles:
    """The Steward's folder of metadata files. Each table or view has a folder in it, named by its UUID."""

    def __init__(self, root: ConfiguredPath, stores: Stores | None = None) -> None:
        self._root = location_of(root)
        self._store = (stores or Stores()).for_writing(self._root)

    def write(self, table_uuid: str, revision: int, data: bytes) -> Pointer:
        """Write a file under a new random name; durable when this returns. `revision` counts the table's changes."""
        return self._put(table_uuid, f"{revision:05d}-{secrets.token_hex(16)}.metadata.json", data)

    def write_named(self, table_uuid: str, name: str, data: bytes) -> Pointer:
        """Write the file, or replace one with other bytes. The caller derives `name` from `data`."""
        pointer = Pointer(str(self._root.child(table_uuid, name)), hashlib.sha256(data).hexdigest())
        try:
            self.read(pointer)
        except VerificationError:
            return self._put(table_uuid, name, data)
        return pointer

    def read(self, pointer: Pointer) -> bytes:
        """The bytes. Raises if the file is missing or its hash is not the pointer's."""
        data = self.read_unchecked(pointer)
        got = hashlib.sha256(data).hexdigest()
        if not compare_digest(got, pointer.sha256):
            raise Code.METADATA_FILE_CHANGED(expected=pointer.sha256, got=got)
        return data

    def read_unchecked(self, file: FoundFile | Pointer) -> bytes:
        """The bytes of a file in the folder, without a check of their hash. Raises if it is missing or too large."""
        place = self._require_own(parse_location(file.location))
        with _translate_errors():
            try:
                data = read(self._store, place, _READ_MAX_BYTES)
            except FileNotFoundError:
                raise Code.METADATA_FILE_MISSING(expected=file.location, got="nothing") from None
        if len(data) > _READ_MAX_BYTES:
            raise Code.METADATA_FILE_CHANGED(expected=f"at most {_READ_MAX_BYTES} bytes", got=f"more in {place}")
        return data

    def remove(self, file: Pointer | FoundFile) -> None:
        """Remove a file if it is there. The caller has checked that no pointer of the ledger names it."""
        self._remove(parse_location(file.location))

    def remove_old(self, table_uuid: str, location: str) -> None:
        """Remove a file that `write` made for this table, if it is there. Any other file stays."""
        place = parse_location(location)
        if place == self._root.child(table_uuid, place.parts[-1]) and revision_of(place.parts[-1]) is not None:
            self._remove(place)

    def _remove(self, place: Location) -> None:
        with _translate_errors():
            self._store.remove(self._require_own(place))

    def keep_newest(self, table_uuid: str, count: int, *, besides: str) -> None:
        """Keep the table's file named `besides`, and of its other files the newest `count`. Remove the rest."""
        with _translate_errors():
            found = self._store.files(self._root.child(table_uuid))
            others = [each for each in found if each.place.parts[-1] != besides]
            oldest_first = sorted(others, key=lambda each: (each.modified_seconds, each.place.parts))
            for each in oldest_first[: max(0, len(others) - count)]:
                self._store.remove(each.place)

    def tables(self) -> list[str]:
        """The UUIDs of all tables and views that have a folder here."""
        with _translate_errors():
            return self._store.folders(self._root)

    def list_written(self, table_uuid: str) -> Iterator[FoundFile]:
        """The files in a table's folder with a name that `write` made, and all unfinished ones."""
        with _translate_errors():
            found = self._store.files(self._root.child(table_uuid))
        for each in found:
            name = each.place.parts[-1]
            unfinished = name.startswith(UNFINISHED_PREFIX)
            if unfinished or _NAME.fullmatch(name):
                yield FoundFile(str(each.place), each.modified_seconds, unfinished)

    def _put(self, table_uuid: str, name: str, data: bytes) -> Pointer:
        place = self._root.child(table_uuid, name)
        with _translate_errors():
            self._store.put(place, data, _FAULT_POINTS)
        return Pointer(str(place), hashlib.sha256(data).hexdigest())

    def _require_own(self, place: Location) -> Location:
        """The location. Raises unless it is in this folder, without a link on its path."""
        if not place.is_under(self._root) or place.link_below(self._root) is not None:
            raise Code.METADATA_FILE_FOREIGN(expected=str(self._root), got=str(place))
        return place


def file_name(location: str) -> str:
    """The last part of a metadata file's location. The names that `write` makes are random and thus unique."""
    return location.rpartition("/")[2]


def revision_of(name: str) -> int | None:
    """The revision in a name that `write` made; None for any other name."""
    found = _NAME.fullmatch(name)
    return None if found is None else int(found[1])
