"""Purging: the files of a dropped table are deleted only if they lie in its own place and no other table needs them.

If that cannot be decided, nothing is deleted. Whether a purge would leave files is checked before the table is dropped.
Files that could not be deleted afterwards are reported with the reason. Before the files are deleted, the manifests of
other tables are searched for files in this place. A table of another domain is not searched if it lies in a namespace's
folder of that domain: otherwise one unreadable table could stop the purges of every domain. (Only an operator can put a
table elsewhere.) A dropped table of another domain in the place stops the purge, since it may be registered again.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pvdm.catalog.names import is_inside, namespace_folder
from pvdm.catalog.state import States, TableState
from pvdm.errors import PvdmError
from pvdm.lake.format.avro.container import AVRO_FILE_MAX_BYTES
from pvdm.lake.format.manifest.manifest import read_manifest
from pvdm.lake.format.manifest.manifest_list import read_manifest_list
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.paths import Location, parse_location
from pvdm.lake.stores.local import open_plain_file
from pvdm.ledger import Ledger
from pvdm.ledger.catalog import namespaces, tables
from pvdm.ledger.catalog.tables import TableRow

PURGE_FILES_READ_MAX: Final = 1_000
_PURGED_PREFIX: Final = ".pvdm-purged-"


@dataclass(frozen=True, slots=True)
class Leftover:
    """A place where a purge left files, and why."""

    place: str
    why: str


class _RefusedError(Exception):
    """The purge is refused; the message is the reason."""


class Purge:
    """One purge of a place, for the domain that owned the table. A table is read again only if its pointer changed."""

    def __init__(self, ledger: Ledger, states: States, warehouse: Location, place: Location, domain: str) -> None:
        self._ledger = ledger
        self._states = states
        self._warehouse = warehouse
        self._place = place
        self._domain = domain
        self._checked_pointers: dict[str, str] = {}
        self._reads_left = PURGE_FILES_READ_MAX

    def foresee(self, state: TableState) -> Leftover | None:
        """Before the table is dropped: the reason why a purge would leave files; None if it would leave none."""
        return self._do_or_explain(lambda: self._foresee(state))

    def run(self) -> Leftover | None:
        """Delete the folder. Returns where files are left, and why; or None. Links are deleted and never followed."""
        return self._do_or_explain(self._run)

    def _do_or_explain(self, work: Callable[[], None]) -> Leftover | None:
        """Do the work. If it refuses or fails, return the place and the reason."""
        try:
            work()
        except _RefusedError as refusal:
            return Leftover(str(self._place), str(refusal))
        except PvdmError as error:
            return Leftover(str(self._place), f"the ledger cannot be read: {error.reason}")
        except (OSError, RuntimeError) as error:  # an invalid file name, or a cycle of links
            return Leftover(str(self._place), f"the folder cannot be reached: {type(error).__name__}")
        return None

    def _foresee(self, state: TableState) -> None:
        self._require_place()
        with self._ledger.read() as unit:
            if tables.was_protected(unit, state.row):
                raise _RefusedError("the table was protected, and its proofs name files that are kept as evidence")
        self._require_unneeded(except_table=state.row)
        self._require_all_inside(state)

    def _require_all_inside(self, state: TableState) -> None:
        """Refuse if an existing file of the table lies outside its place."""
        try:
            for file in self._list_files(state.metadata, skip_missing=True):
                named = parse_location(file)
                if not named.is_under(self._place) and (named.scheme != "file" or os.path.lexists(named.local)):
                    raise _RefusedError(f"the table has files outside its place, {named} among them")
        except PvdmError as error:
            raise _RefusedError(f"the table's own files cannot be listed: {error.reason}") from None

    def _require_place(self) -> None:
        """Refuse a place outside the warehouse, the warehouse itself, and a place behind a link."""
        place, warehouse = self._place, self._warehouse
        if place.scheme != "file" or place == warehouse or not is_inside(warehouse, place):
            raise _RefusedError("it is not in the warehouse; the owner of the place removes files there")
        if place.link_below(warehouse) is not None:
            raise _RefusedError("a link leads there")

    def _run(self) -> None:
        self._require_place()
        path = self._place.local
        prefix = f"{_PURGED_PREFIX}{hashlib.sha256(str(self._place).encode()).hexdigest()[:16]}-"
        if not path.is_dir():
            earlier = next(path.parent.glob(f"{prefix}*"), None)
            if earlier is not None:
                raise _RefusedError(f"an earlier purge left files, which lie in {earlier}")
            return
        self._require_unneeded()
        aside = path.with_name(f"{prefix}{secrets.token_hex(8)}")
        path.rename(aside)
        # A table that is registered from now on finds no files. If one was registered before, its files are moved back.
        try:
            self._require_unneeded()
        except BaseException as refusal:
            if not _move_back(aside, path):
                raise _RefusedError(f"{refusal}; files that could not be brought back lie in {aside}") from None
            raise
        shutil.rmtree(aside, ignore_errors=True)
        if aside.exists():
            raise _RefusedError(f"some of it cannot be removed, and lies in {aside}")

    def _require_unneeded(self, except_table: TableRow | None = None) -> None:
        """Refuse if a table lies in the place or names a file in it, or another domain's dropped table lies there."""
        own = None if except_table is None else except_table.table_id
        with self._ledger.read() as unit:
            if tables.find_overlapping(unit, self._place, except_id=own) is not None:
                raise _RefusedError("a table lies there")
            if tables.find_dropped_overlapping(unit, self._place, except_domain=self._domain) is not None:
                raise _RefusedError("a dropped table of another domain lies there")
            owners = namespaces.list_owners(unit)
            rows = tables.list_live(unit)
        domains = {namespace_folder(self._warehouse, levels): domain for levels, domain in owners}
        self._require_own_place(domains)
        for row in rows:
            if row.table_id != own and (row.domain == self._domain or not _is_in_own_domain(row, domains)):
                self._require_not_named(row)

    def _require_own_place(self, domains: Mapping[Location, str]) -> None:
        """Refuse a place that is or contains a namespace's folder, and a place in another domain's folder."""
        for folder, domain in domains.items():
            if folder.is_under(self._place):
                raise _RefusedError("a namespace's folder lies there")
            if domain != self._domain and self._place.is_under(folder):
                raise _RefusedError("it lies in a namespace's folder of another domain")

    def _require_not_named(self, row: TableRow) -> None:
        """Refuse if the table names a file in the place."""
        if self._checked_pointers.get(row.table_id) == row.pointer.sha256:
            return
        try:
            files = self._list_files(self._states.load(row).metadata)
            if any(parse_location(file).is_under(self._place) for file in files):
                raise _RefusedError(f"the table {row.table_uuid} names a file there")
        except PvdmError as error:
            raise _RefusedError(f"the table {row.table_uuid} cannot be read: {error.reason}") from None
        self._checked_pointers[row.table_id] = row.pointer.sha256

    def _list_files(self, metadata: TableMetadata, *, skip_missing: bool = False) -> Iterator[str]:
        """The table's files except metadata files. With `skip_missing`, a missing manifest or list is not read."""

        def must_be_read(path: str) -> bool:
            return not skip_missing or os.path.lexists(parse_location(path).local)

        for file in (*metadata.statistics, *metadata.partition_statistics):
            yield file.path
        lists = {each.manifest_list for each in metadata.snapshots if each.manifest_list is not None}
        manifests = {path for each in metadata.snapshots if each.manifest_list is None for path in each.manifests}
        yield from lists
        for path in filter(must_be_read, sorted(lists)):
            found = read_manifest_list(self._read(path), format_version=metadata.format_version).manifests
            manifests |= {each.manifest_path for each in found}
        yield from manifests
        for path in filter(must_be_read, sorted(manifests)):
            for entry in read_manifest(self._read(path)).entries:
                yield entry.data_file.file_path

    def _read(self, file: str) -> bytes:
        self._reads_left -= 1
        if self._reads_left < 0:
            raise _RefusedError(f"the domain's tables have more than {PURGE_FILES_READ_MAX} manifests to read")
        try:
            with open_plain_file(parse_location(file)) as opened:  # the name is untrusted
                return opened.read(AVRO_FILE_MAX_BYTES + 1)
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise _RefusedError(f"a manifest that may name a file there cannot be read: {why}") from None


def _is_in_own_domain(row: TableRow, domains: Mapping[Location, str]) -> bool:
    """Whether the table lies below a namespace's folder of its own domain. Only operators can put a table elsewhere."""
    place = parse_location(row.location)
    above = (Location(place.scheme, place.authority, place.parts[:end]) for end in range(len(place.parts)))
    return any(domains.get(folder) == row.domain for folder in above)


def _move_back(aside: Path, path: Path) -> bool:
    """Move the files back, beside files that were created there meanwhile. Returns whether all of them are back."""
    try:
        if not path.exists():
            aside.rename(path)
            return True
        for entry in list(aside.iterdir()):
            target = path / entry.name
            if entry.is_dir() and not entry.is_symlink() and target.is_dir():
                _move_back(entry, target)
            elif not os.path.lexists(target):
                entry.rename(target)
        aside.rmdir()
    except OSError:
        return False
    return True
