"""Purging: the files of a dropped table go only if they lie in its own place and no other table may still need them.

What cannot be decided is not removed. Whether a purge would leave files is judged before the table is dropped. Files
that could not be removed afterwards are reported with their place and the reason. What lies in a namespace's folder
belongs to its domain (`access`): tables of other domains that lie in folders of their own do not keep a file there.
Nothing is removed that another domain may come back to. Within one domain files go with the place that they lie in.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pvdm.catalog.places import home_of, is_inside
from pvdm.catalog.state import States, TableState
from pvdm.errors import PvdmError
from pvdm.lake.format.avro.container import AVRO_FILE_MAX_BYTES
from pvdm.lake.format.manifest.manifest import read_manifest
from pvdm.lake.format.manifest.manifest_list import read_manifest_list
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.paths import Location, parse_location
from pvdm.ledger import Ledger
from pvdm.ledger.catalog import namespaces, tables
from pvdm.ledger.catalog.tables import TableRow

PURGE_FILES_READ_MAX: Final = 1_000
_ASIDE: Final = ".pvdm-purged-"


@dataclass(frozen=True, slots=True)
class Left:
    """A place whose files were not removed, or not all of them, and why."""

    place: str
    why: str


class _LeftError(Exception):
    """Why nothing is removed."""


class Purge:
    """One purge of a place by its domain: what was already looked at is not read again."""

    def __init__(self, ledger: Ledger, states: States, warehouse: Location, place: Location, domain: str) -> None:
        self._ledger = ledger
        self._states = states
        self._warehouse = warehouse
        self._place = place
        self._domain = domain
        self._looked_at: dict[str, str] = {}
        self._reads_left = PURGE_FILES_READ_MAX

    def foresee(self, state: TableState) -> Left | None:
        """Why a purge of the table, which is still there, would leave files; None if it would leave none."""
        return self._explain_refusal(lambda: self._foresee(state))

    def run(self) -> Left | None:
        """Remove the folder; gives what is left of it. Links in it are removed as links, never followed."""
        return self._explain_refusal(self._run)

    def _explain_refusal(self, work: Callable[[], None]) -> Left | None:
        """Do the work; if it refuses or fails, give the place and the reason."""
        try:
            work()
        except _LeftError as left:
            return Left(str(self._place), str(left))
        except PvdmError as error:
            return Left(str(self._place), f"the ledger cannot be asked: {error.code}")
        except (OSError, RuntimeError) as error:  # a name that the system cannot have, or a circle of links
            return Left(str(self._place), f"the folder cannot be reached: {type(error).__name__}")
        return None

    def _foresee(self, state: TableState) -> None:
        self._require_place()
        with self._ledger.read() as unit:
            if tables.was_protected(unit, state.row):
                raise _LeftError("the table was protected, and its proofs name files that are kept as evidence")
        self._require_unneeded(but=state.row)
        self._require_all_inside(state)

    def _require_all_inside(self, state: TableState) -> None:
        """Every file of the table that is there lies in its place; what its manifests do not say is not known."""
        try:
            for file in self._files(state.metadata, gone_is_empty=True):
                named = parse_location(file)
                if not named.is_under(self._place) and (named.scheme != "file" or os.path.lexists(named.local)):
                    raise _LeftError(f"the table has files outside its place, {named} among them")
        except PvdmError as error:
            raise _LeftError(f"the table's own files cannot be listed: {error.code}") from None

    def _require_place(self) -> None:
        place, warehouse = self._place, self._warehouse
        if place.scheme != "file" or place == warehouse or not is_inside(warehouse, place):
            raise _LeftError("it is not in the warehouse; the owner of the place removes files there")
        if place.link_below(warehouse) is not None:
            raise _LeftError("a link leads there")

    def _run(self) -> None:
        self._require_place()
        path = self._place.local
        own = f"{_ASIDE}{hashlib.sha256(str(self._place).encode()).hexdigest()[:16]}-"
        if not path.is_dir():
            earlier = next(path.parent.glob(f"{own}*"), None)
            if earlier is not None:
                raise _LeftError(f"an earlier purge left files, which lie in {earlier}")
            return
        self._require_unneeded()
        aside = path.with_name(f"{own}{secrets.token_hex(8)}")
        path.rename(aside)
        # Who registers a table from here on finds no files; who did so meanwhile gets them back.
        try:
            self._require_unneeded()
        except BaseException as needed:
            if not _brought_back(aside, path):
                raise _LeftError(f"{needed}; files that could not be brought back lie in {aside}") from None
            raise
        shutil.rmtree(aside, ignore_errors=True)
        if aside.exists():
            raise _LeftError(f"some of it cannot be removed, and lies in {aside}")

    def _require_unneeded(self, but: TableRow | None = None) -> None:
        """No table lies there or names a file there, and no other domain's could; what cannot be read may name one."""
        own = None if but is None else but.table_id
        with self._ledger.read() as unit:
            if tables.find_overlapping(unit, self._place, but=own) is not None:
                raise _LeftError("a table lies there")
            if tables.find_dropped_overlapping(unit, self._place, but_domain=self._domain) is not None:
                raise _LeftError("a dropped table of another domain lies there")
            owners = namespaces.owners(unit)
            rows = tables.all_live(unit)
        homes: dict[Location, str] = {home_of(self._warehouse, levels): domain for levels, domain in owners}
        self._require_own(homes)
        for row in rows:
            if row.table_id != own and (row.domain == self._domain or not _is_at_home(row, homes)):
                self._require_not_named(row)

    def _require_own(self, homes: Mapping[Location, str]) -> None:
        """A namespace's folder holds more than one table's files, perhaps of tables that are just being made."""
        for home, domain in homes.items():
            if home.is_under(self._place):
                raise _LeftError("a namespace's folder lies there")
            if domain != self._domain and self._place.is_under(home):
                raise _LeftError("it lies in a namespace's folder of another domain")

    def _require_not_named(self, row: TableRow) -> None:
        if self._looked_at.get(row.table_id) == row.pointer.sha256:
            return
        try:
            files = self._files(self._states.of(row).metadata)
            if any(parse_location(file).is_under(self._place) for file in files):
                raise _LeftError(f"the table {row.table_uuid} names a file there")
        except PvdmError as error:
            raise _LeftError(f"the table {row.table_uuid} cannot be read: {error.code}") from None
        self._looked_at[row.table_id] = row.pointer.sha256

    def _files(self, metadata: TableMetadata, *, gone_is_empty: bool = False) -> Iterator[str]:
        """Every file that the table names, those of its document first: they need no reading.

        With `gone_is_empty` a list or manifest that is not there any more names nothing.
        """

        def readable(path: str) -> bool:
            return not gone_is_empty or os.path.lexists(parse_location(path).local)

        named = itertools.chain(metadata.statistics, metadata.partition_statistics)
        yield from (file.path for file in named)
        lists = {each.manifest_list for each in metadata.snapshots if each.manifest_list is not None}
        manifests = {path for each in metadata.snapshots if each.manifest_list is None for path in each.manifests}
        yield from lists
        for path in filter(readable, sorted(lists)):
            found = read_manifest_list(self._read(path), format_version=metadata.format_version).manifests
            manifests |= {each.manifest_path for each in found}
        yield from manifests
        for path in filter(readable, sorted(manifests)):
            for entry in read_manifest(self._read(path)).entries:
                yield entry.data_file.file_path

    def _read(self, file: str) -> bytes:
        self._reads_left -= 1
        if self._reads_left < 0:
            raise _LeftError(f"the domain's tables have more than {PURGE_FILES_READ_MAX} manifests to look at")
        try:
            # A producer chose the name: what is no plain file could keep the reader waiting for ever.
            handle = os.open(parse_location(file).local, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
            with os.fdopen(handle, "rb") as opened:
                if not stat.S_ISREG(os.fstat(handle).st_mode):
                    raise _LeftError("a manifest that may name a file there is no plain file")
                return opened.read(AVRO_FILE_MAX_BYTES + 1)
        except OSError as error:
            raise _LeftError(
                f"a manifest that may name a file there cannot be read: {error.strerror or type(error).__name__}"
            ) from None


def _is_at_home(row: TableRow, homes: Mapping[Location, str]) -> bool:
    """Whether the table lies in a folder of its own domain; one that does not is an operator's, with files anywhere."""
    place = parse_location(row.location)
    above = (Location(place.scheme, place.authority, place.parts[:end]) for end in range(len(place.parts)))
    return any(homes.get(folder) == row.domain for folder in above)


def _brought_back(aside: Path, path: Path) -> bool:
    """Put the files back where they were, beside what came there meanwhile; says whether all of them are."""
    try:
        if not path.exists():
            aside.rename(path)
            return True
        for entry in list(aside.iterdir()):
            target = path / entry.name
            if entry.is_dir() and not entry.is_symlink() and target.is_dir():
                _brought_back(entry, target)
            elif not os.path.lexists(target):
                entry.rename(target)
        aside.rmdir()
    except OSError:
        return False
    return True
