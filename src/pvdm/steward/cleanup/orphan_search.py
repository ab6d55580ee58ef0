"""Finds and removes orphans: files that ended attempts and published branches left, and that nothing references.

For an adopted branch, which a job staged itself (`pvdm publish`), these are the staged data files that a proof names,
and the manifest lists and manifests of the staged snapshots: the Steward has published copies of the data.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from pvdm.api.work import OrphanView
from pvdm.catalog.catalog import Catalog
from pvdm.catalog.references import References, Search
from pvdm.errors import PvdmError
from pvdm.lake.format.manifest.manifest_list import MANIFEST_LIST_MAX_BYTES, read_manifest_list
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.paths import Location, parse_location
from pvdm.lake.prefix import Prefix, PrefixFile
from pvdm.ledger import Ledger
from pvdm.ledger.catalog import tables
from pvdm.ledger.catalog.tables import TableRow
from pvdm.ledger.record import proofs
from pvdm.ledger.record.tokens import Grant
from pvdm.ledger.work import attempts, disposals, workloads
from pvdm.model.statements.proof import Proof
from pvdm.steward.access import refuse_attempt_token
from pvdm.steward.cleanup.disposal import (
    Disposal,
    EndedAttempt,
    must_quarantine,
    newest_snapshot_before,
    open_folder,
    published_files,
    require_decided,
)
from pvdm.steward.work.opened import is_adopted
from pvdm.steward.work.sources import load_row
from pvdm.trust.statement import read_unchecked
from pvdm.verify.fetch import Files

_MANIFEST_LIST_NAME: Final = re.compile(r"snap-([0-9]{1,19})(?:-.*)?\.avro")


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A file that may be an orphan; `prefix` is its folder. `of_job`: a job staged it before its branch was adopted."""

    ended: EndedAttempt
    file: PrefixFile
    prefix: Prefix
    of_job: bool

    @property
    def view(self) -> OrphanView:
        attempt_id = self.ended.attempt.attempt_id
        return OrphanView(location=str(self.file.location), size=self.file.size, attempt_id=attempt_id)


@dataclass(frozen=True, slots=True)
class _InUse:
    """Files that are no candidates: those in folders of live attempts, and those that live attempts' proofs name."""

    folders: tuple[Location, ...]
    files: frozenset[Location]

    def has(self, location: Location) -> bool:
        return location in self.files or any(location.is_under(folder) for folder in self.folders)


class OrphanSearch:
    """Finds and removes the orphans of one table."""

    def __init__(self, ledger: Ledger, catalog: Catalog, files: Files, disposal: Disposal) -> None:
        self._ledger = ledger
        self._catalog = catalog
        self._files = files
        self._disposal = disposal

    def find(self, row: TableRow) -> list[OrphanView]:
        """The orphans of the table's ended attempts. Raises `references_undecided` if a table cannot be searched."""
        with require_decided():
            found = self._find_candidates(row, self._disposal.list_ended_attempts(row))
            referenced = self._search(row, found, {}).referenced if found else set()
        return [each.view for each in found if each.file.location not in referenced]

    def remove(self, row: TableRow) -> list[OrphanView]:
        """Remove orphans, and branches that were written after their attempt's clean-up; returns the removed files."""
        ended = self._disposal.list_ended_attempts(row)
        with require_decided():
            before = self._find_candidates(row, ended)  # compared at the end, to list what is gone
        for each in ended:
            self._disposal.dispose(each.attempt.attempt_id)
        metadata = self._load_metadata(row)
        for each in ended:
            self._disposal.remove_late_branch(each, metadata)
            self._disposal.remove_unfinished(each)
        with require_decided():
            found = self._find_candidates(row, ended)
            copies = {copy: each for each in ended for copy in self._list_unpublished_copies(each)}
            if found or copies:
                self._remove(row, found, copies)
        return [each.view for each in before if each.prefix.find(each.file.location) is None]

    def _remove(self, row: TableRow, found: Sequence[_Candidate], copies: Mapping[str, EndedAttempt]) -> None:
        """Remove the files that are still unreferenced at the time of their removal."""
        search = self._search(row, found, copies)
        prefix_by_place = {each.file.location: each.prefix for each in found}
        for place in search.unreferenced(prefix_by_place):
            prefix_by_place[place].remove(place)
        for ended in {each.ended.attempt.attempt_id: each.ended for each in found if not each.of_job}.values():
            prefix = self._disposal.prefix_of(ended)
            if prefix is not None:
                prefix.remove_empty()
        copy_by_place = {parse_location(copy): copy for copy in copies}
        for place in search.unreferenced(copy_by_place):
            self._disposal.vault.remove(copy_by_place[place])

    def _search(self, row: TableRow, found: Sequence[_Candidate], copies: Mapping[str, EndedAttempt]) -> Search:
        """Search all tables that may reference one of these files."""
        wanted = {each.file.location for each in found} | {parse_location(each) for each in copies}
        attempts_of_files = [*(each.ended for each in found), *copies.values()]
        first_micros = min(each.opened_micros for each in attempts_of_files)
        first_event = min(each.opened_event for each in attempts_of_files)
        if any(each.of_job for each in found):
            first_micros = first_event = 0  # a job may have written its files at any time before
        older = {row.table_uuid: newest_snapshot_before(self._load_metadata(row), first_micros)}
        references = References(self._ledger, self._catalog.states, self._files)
        search = references.search_for(wanted, after_event=first_event, older_snapshots=older)
        search.look_through()
        return search

    def _load_metadata(self, row: TableRow) -> TableMetadata:
        with self._ledger.read() as unit:
            fresh = tables.get_by_id(unit, row.table_id)
        return self._catalog.states.load(fresh).metadata

    def _list_unpublished_copies(self, ended: EndedAttempt) -> list[str]:
        published = published_files(ended)
        return [each for each in self._disposal.copies_of(ended) if parse_location(each) not in published]

    def _find_candidates(self, row: TableRow, ended: Sequence[EndedAttempt]) -> list[_Candidate]:
        """Files that ended attempts left, without published ones and those that live attempts use."""
        published = {place for each in ended for place in published_files(each)}
        in_use = self._find_in_use(row)
        found: dict[Location, _Candidate] = {}
        for each in self._list_possible(row, ended):
            location = each.file.location
            if location not in published and not in_use.has(location):
                found.setdefault(location, each)
        return list(found.values())

    def _find_in_use(self, row: TableRow) -> _InUse:
        folders: list[Location] = []
        files: set[Location] = set()
        with self._ledger.read() as unit:
            for attempt in attempts.list_live(unit):
                if workloads.get(unit, attempt.workload_id).opening.table_uuid != row.table_uuid:
                    continue
                folders.append(parse_location(attempt.prefix))
                for record in proofs.list_by_attempt(unit, attempt.attempt_id):
                    core = read_unchecked(proofs.get_envelope(unit, record.proof_id), Proof).core
                    files.update(parse_location(each.staged_path) for each in core.files.added)
        return _InUse(tuple(folders), frozenset(files))

    def _list_possible(self, row: TableRow, ended: Sequence[EndedAttempt]) -> Iterator[_Candidate]:
        """Files in the attempts' folders; of adopted branches those that proofs and staged manifest lists name."""
        for each in ended:
            prefix = self._disposal.prefix_of(each)
            if prefix is not None:
                yield from (_Candidate(each, file, prefix, of_job=False) for file in prefix.files())
        adopted = [each for each in ended if is_adopted(each.attempt) and each.core is not None]
        for each in adopted:
            yield from self._list_staged_files(row, each)
        if adopted:
            yield from self._list_staged_metadata(row, adopted)

    def _list_staged_files(self, row: TableRow, ended: EndedAttempt) -> Iterator[_Candidate]:
        """The staged data files that the proof names, with unchanged size. Evidence that is not in quarantine stays."""
        quarantined = self._find_quarantined(ended)
        table = parse_location(row.location)
        proved_files = () if ended.core is None else ended.core.files.added
        for proved in proved_files:
            location = parse_location(proved.staged_path)
            folder = Location(location.scheme, location.authority, location.parts[:-1])
            is_only_evidence = quarantined is not None and proved.staged_sha256 not in quarantined
            # Files directly at the table's location are left alone.
            if is_only_evidence or folder == table or not folder.is_under(table):
                continue
            prefix = open_folder(self._catalog, self._disposal.files, row, folder)
            file = prefix.find(location)
            if file is not None and file.size == proved.staged_size_bytes:
                yield _Candidate(ended, file, prefix, of_job=True)

    def _find_quarantined(self, ended: EndedAttempt) -> set[str] | None:
        """The hashes of a failed attempt's files in quarantine; None if none belong there, or they were removed."""
        if not must_quarantine(ended):
            return None
        with self._ledger.read() as unit:
            removal = disposals.find_removal(unit, ended.attempt.attempt_id)
        return None if removal is not None and removal.done else self._disposal.quarantined_hashes(ended)

    def _list_staged_metadata(self, row: TableRow, adopted: Sequence[EndedAttempt]) -> Iterator[_Candidate]:
        """The manifest lists (found by file name) and manifests of staged snapshots that are newer than the base."""
        prefix = open_folder(self._catalog, self._disposal.files, row, parse_location(row.location).child("metadata"))
        file_by_place = {each.location: each for each in prefix.files()}
        lists: dict[int, list[PrefixFile]] = {}
        for file in file_by_place.values():
            if match := _MANIFEST_LIST_NAME.fullmatch(file.location.parts[-1]):
                lists.setdefault(int(match[1]), []).append(file)
        for ended in adopted:
            staged_id = ended.attempt.staged_snapshot_id
            base_id = None if ended.core is None else ended.core.target.base_snapshot_id
            wanted = [] if staged_id is None else [int(staged_id)]
            while wanted:
                snapshot_id = wanted.pop()
                if snapshot_id == base_id:
                    continue
                for file in lists.pop(snapshot_id, []):
                    yield _Candidate(ended, file, prefix, of_job=True)
                    parent, manifests = self._read_list(file, snapshot_id)
                    wanted += [] if parent is None else [parent]
                    existing = [file_by_place[location] for location in manifests if location in file_by_place]
                    yield from (_Candidate(ended, manifest, prefix, of_job=True) for manifest in existing)

    def _read_list(self, file: PrefixFile, snapshot_id: int) -> tuple[int | None, list[Location]]:
        """The parent's id in a manifest list, and the snapshot's own manifests; None and [] if it cannot be read."""
        try:
            data = self._files.read(str(file.location), max_bytes=MANIFEST_LIST_MAX_BYTES)
            listed = read_manifest_list(data)
            own = [each.manifest_path for each in listed.manifests if each.added_snapshot_id == snapshot_id]
            return listed.header.parent_snapshot_id, [parse_location(each) for each in own]
        except PvdmError:
            return None, []


class OrphanRequests:
    """Answers callers' requests to find or remove orphans; concurrent searches of one table share the result."""

    def __init__(self, catalog: Catalog, search: OrphanSearch) -> None:
        self._catalog = catalog
        self._search = search
        self._lock = threading.Lock()
        self._running: dict[str, Future[list[OrphanView]]] = {}

    def find(self, grant: Grant, table: str) -> list[OrphanView]:
        """The orphans of a table; a call during a search of the same table waits for its result."""
        row = self._load_row(grant, table)
        with self._lock:
            running = self._running.get(row.table_uuid)
            if running is None:
                own = self._running[row.table_uuid] = Future[list[OrphanView]]()
        if running is not None:
            return running.result()
        try:
            own.set_result(self._search.find(row))
        except BaseException as error:
            own.set_exception(error)
            raise
        finally:
            with self._lock:
                del self._running[row.table_uuid]
        return own.result()

    def remove(self, grant: Grant, table: str) -> list[OrphanView]:
        """Remove the orphans of a table; returns the removed files."""
        return self._search.remove(self._load_row(grant, table))

    def _load_row(self, grant: Grant, table: str) -> TableRow:
        refuse_attempt_token(grant)
        return load_row(self._catalog, grant, table)
