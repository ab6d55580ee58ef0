"""Purging: the files of a dropped table go only if they lie in its own place and no other table may still need them.

What cannot be decided is not removed: a purge is a wish, and files that stay do no harm.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from typing import Final

from pvdm.catalog.places import is_inside
from pvdm.catalog.state import States
from pvdm.errors import PvdmError
from pvdm.lake.format.avro import AVRO_FILE_MAX_BYTES
from pvdm.lake.format.manifest import read_manifest
from pvdm.lake.format.manifest_list import read_manifest_list
from pvdm.lake.format.metadata import TableMetadata
from pvdm.lake.paths import Location, parse_location
from pvdm.store import Ledger, tables

PURGE_FILES_READ_MAX: Final = 1_000
_ASIDE: Final = ".pvdm-purged-"


class _UndecidedError(Exception):
    """A manifest of another table cannot be looked at, or there are too many."""


class Purge:
    """One purge: what was already looked at is not read again."""

    def __init__(self, ledger: Ledger, states: States, warehouse: Location, place: Location) -> None:
        self._ledger = ledger
        self._states = states
        self._warehouse = warehouse
        self._place = place
        self._looked_at: dict[str, str] = {}
        self._reads_left = PURGE_FILES_READ_MAX

    def run(self) -> bool:
        """Remove the folder; says whether it did. Links in it are removed as links, never followed."""
        try:
            return self._run()
        except (OSError, RuntimeError):  # a name that the system cannot have, or a circle of links
            return False

    def _run(self) -> bool:
        place, warehouse = self._place, self._warehouse
        if place.scheme != "file" or place == warehouse or not is_inside(warehouse, place):
            return False  # files elsewhere are for whoever put them there
        if place.link_below(warehouse) is not None or not place.local.is_dir() or self._may_be_needed():
            return False
        path = place.local
        aside = path.with_name(f"{_ASIDE}{secrets.token_hex(8)}")
        path.rename(aside)
        # Who registers a table from here on finds no files; who did so meanwhile gets them back.
        if self._may_be_needed():
            with contextlib.suppress(OSError):
                aside.rename(path)
            return False
        shutil.rmtree(aside, ignore_errors=True)
        return True

    def _may_be_needed(self) -> bool:
        try:
            return self._is_needed()
        except (PvdmError, _UndecidedError):
            return True

    def _is_needed(self) -> bool:
        """Whether a table lies there, or names a file there; a file of it that cannot be read is an error."""
        with self._ledger.read() as unit:
            if tables.find_overlapping(unit, self._place) is not None:
                return True
            rows = tables.all_live(unit)
        for row in rows:
            if self._looked_at.get(row.table_id) != row.pointer.sha256:
                if any(
                    parse_location(file).is_under(self._place) for file in self._files(self._states.of(row).metadata)
                ):
                    return True
                self._looked_at[row.table_id] = row.pointer.sha256
        return False

    def _files(self, metadata: TableMetadata) -> Iterator[str]:
        """Every file that the table names, those of its document first: they need no reading."""
        named = itertools.chain(metadata.statistics, metadata.partition_statistics)
        yield from (file.path for file in named)
        lists = {each.manifest_list for each in metadata.snapshots if each.manifest_list is not None}
        manifests = {path for each in metadata.snapshots if each.manifest_list is None for path in each.manifests}
        yield from lists
        for path in sorted(lists):
            found = read_manifest_list(self._read(path), format_version=metadata.format_version).manifests
            manifests |= {each.manifest_path for each in found}
        yield from manifests
        for path in sorted(manifests):
            for entry in read_manifest(self._read(path)).entries:
                yield entry.data_file.file_path

    def _read(self, file: str) -> bytes:
        self._reads_left -= 1
        if self._reads_left < 0:
            raise _UndecidedError
        try:
            # A producer chose the name: what is no plain file could keep the reader waiting for ever.
            handle = os.open(parse_location(file).local, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
            with os.fdopen(handle, "rb") as opened:
                if not stat.S_ISREG(os.fstat(handle).st_mode):
                    raise _UndecidedError
                return opened.read(AVRO_FILE_MAX_BYTES + 1)
        except OSError:
            raise _UndecidedError from None
