"""Cleans up after ended attempts: keeps failed files in quarantine, removes unpublished files, branch and snapshots."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from pvdm import fault
from pvdm.catalog.catalog import Catalog
from pvdm.catalog.commit import Change
from pvdm.catalog.references import NamedFiles, References, Search, UndecidedError
from pvdm.catalog.sanity import CLOCK_DIFFERENCE_MAX_MS
from pvdm.catalog.target import fence_name
from pvdm.errors import Code, ConflictError, PvdmError, UnavailableError, VerificationError
from pvdm.lake.format.json_document import Json
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import MAIN
from pvdm.lake.paths import Location, parse_location
from pvdm.lake.prefix import Prefix, prefix_at
from pvdm.lake.snapshot_removal import BranchRemoval
from pvdm.lake.vault import Vault, VaultKind
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import tables
from pvdm.ledger.catalog.tables import TableRow
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record import events, proofs
from pvdm.ledger.schema.work import DisposalOutcome
from pvdm.ledger.work import announced, attempts, disposals, workloads
from pvdm.ledger.work.attempts import Attempt
from pvdm.ledger.work.disposals import DisposalRecord
from pvdm.model.contract import OnFail
from pvdm.model.statements.core import AddedFile, ProofCore
from pvdm.model.statements.proof import Proof
from pvdm.model.states import ATTEMPT, AttemptState
from pvdm.steward.access import STEWARD_AS_OPERATOR_GRANT, STEWARD_GRANT
from pvdm.steward.locks import ThreadLocks, hold_work
from pvdm.steward.work.opened import contract_of, is_adopted, staged_head
from pvdm.steward.work.sources import levels_of
from pvdm.trust.statement import read_unchecked
from pvdm.verify.fetch import Files, HashedFile

BRANCH_TRIES_MAX: Final = 8
LOST_FILES_NAMED_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class EndedAttempt:
    """An ended attempt, with the facts that decide what happens to its files."""

    attempt: Attempt
    table_uuid: str
    row: TableRow | None  # None: the table was dropped
    core: ProofCore | None  # of its last proof
    on_fail: OnFail
    bytes_max: int  # how many bytes the contract lets an attempt stage
    opened_micros: int  # when it was opened, by a Steward's clock; every file in its folder was written later
    opened_event: int  # the id of the step log's event that recorded its opening

    @property
    def published(self) -> bool:
        """Whether the attempt was published."""
        return self.attempt.state is AttemptState.COMMITTED


class _CleanedUpError(Exception):
    """Another Steward has cleaned up after the attempt meanwhile."""

    def __init__(self, record: DisposalRecord) -> None:
        super().__init__(record.attempt_id)
        self.record = record


@dataclass(eq=False)
class Disposal:
    """Cleans up after attempts; each step can be repeated, and `settle` continues after a crash."""

    ledger: Ledger
    clock: LedgerClock
    catalog: Catalog
    vault: Vault
    files: Files
    require_consistent: Callable[[], None]  # raises if the ledger's log contradicts the outside checkpoint
    _locks: ThreadLocks = field(default_factory=ThreadLocks, init=False)
    _references_cache: NamedFiles = field(default_factory=NamedFiles, init=False)

    def dispose(self, attempt_id: str) -> DisposalRecord:
        """Quarantine or delete unpublished files of the attempt, and remove its branch and own snapshots.

        Threads of this Steward wait for each other. Raises `work_held` while another Steward cleans up.
        """
        earlier = self._find_record(attempt_id)
        if earlier is not None:
            return earlier
        # If this ledger is an old copy, files that look unpublished here may be published by now.
        self.require_consistent()
        with self._locks.hold(attempt_id), hold_work(self.ledger, f"the clean-up of {attempt_id}"):
            try:
                self._require_not_cleaned_up(attempt_id)
                return self._dispose(attempt_id)
            except _CleanedUpError as error:
                return error.record

    def _dispose(self, attempt_id: str) -> DisposalRecord:
        ended = self._load(attempt_id)
        if ended.row is None:
            note = "the table was dropped; its files are left as they are"
            return self._store_record(ended, DisposalOutcome.LEFT, removed=0, kept=0, note=note)
        note = self._quarantine(ended)
        fault.point("disposal.after_quarantine")
        # An adopted branch was staged without an attempt (`pvdm publish`). It is removed only after its publication.
        if not is_adopted(ended.attempt) or ended.published:
            self._remove_branch(ended.attempt, ended.row)
        fault.point("disposal.after_branch")
        with require_decided():
            removed, kept = self._remove_files(ended)
        fault.point("disposal.after_files")
        unpublished = DisposalOutcome.QUARANTINED if must_quarantine(ended) else DisposalOutcome.DELETED
        outcome = DisposalOutcome.PUBLISHED if ended.published else unpublished
        return self._store_record(ended, outcome, removed=removed, kept=kept, note=note)

    def _find_record(self, attempt_id: str) -> DisposalRecord | None:
        with self.ledger.read() as unit:
            return disposals.find_disposal(unit, attempt_id)

    def _require_not_cleaned_up(self, attempt_id: str) -> None:
        """Raise if another Steward has cleaned up meanwhile: a lost connection releases this Steward's lock."""
        earlier = self._find_record(attempt_id)
        if earlier is not None:
            raise _CleanedUpError(earlier)

    def settle(self) -> list[DisposalRecord]:
        """Clean up after every ended attempt that still needs it.

        All attempts are tried. Then the first UnavailableError is raised, so that settling is retried.
        """
        with self.ledger.read() as unit:
            undisposed = disposals.list_undisposed(unit)
        records, unavailable = [], list[UnavailableError]()
        for attempt in undisposed:
            try:
                records.append(self.dispose(attempt.attempt_id))
            except UnavailableError as error:
                if error.code != Code.REFERENCES_UNDECIDED:  # an undecided search is left to a later call
                    unavailable.append(error)
            except PvdmError:
                continue  # tried again by a later call, and when orphans are removed
        if unavailable:
            raise unavailable[0]
        return records

    def list_ended_attempts(self, row: TableRow) -> list[EndedAttempt]:
        """Every attempt at the table that has ended, oldest first."""
        with self.ledger.read() as unit:
            listed = attempts.list_ended(unit, row.table_uuid)
        return [self._load(each.attempt_id) for each in listed]

    def remove_late_branch(self, ended: EndedAttempt, metadata: TableMetadata) -> None:
        """Remove a branch that was written after the clean-up; an adopted branch stays."""
        if ended.row is None or is_adopted(ended.attempt):
            return
        with self.ledger.read() as unit:
            fences = _list_fences(unit, ended.attempt)
        updates, _ = plan_branch_removal(metadata, ended.attempt, fences)
        if updates:
            self._remove_branch(ended.attempt, ended.row)

    def _load(self, attempt_id: str) -> EndedAttempt:
        with self.ledger.read() as unit:
            attempt = attempts.get(unit, attempt_id)
            opening = workloads.get(unit, attempt.workload_id).opening
            row = tables.find_by_uuid(unit, opening.table_uuid)
            attempt_proofs = proofs.list_by_attempt(unit, attempt_id)
            envelope = proofs.get_envelope(unit, attempt_proofs[-1].proof_id) if attempt_proofs else None
            opened = events.history(unit, "attempts", attempt_id, count=1)[0]
            contract = contract_of(unit, opening.contract_hash)
        if attempt.state in ATTEMPT.live():
            raise Code.ATTEMPT_LIVE(
                "the attempt has not ended", expected="an ended attempt", got=attempt.state, attempt_id=attempt_id
            )
        core = None if envelope is None else read_unchecked(envelope, Proof).core
        on_fail, limit, at_micros = contract.governance.on_fail, contract.limits.bytes, opened.at_micros
        return EndedAttempt(attempt, opening.table_uuid, row, core, on_fail, limit, at_micros, opened.event_id)

    def _quarantine(self, ended: EndedAttempt) -> str:
        """Copy the files of a failed attempt into quarantine; returns a note about files that could not be copied."""
        if ended.core is None:
            return "the attempt has no proof"
        if not must_quarantine(ended):
            return ""
        lost = []
        for file in ended.core.files.added:
            try:
                staged = HashedFile(file.staged_path, *file.staged_size_and_hash)
                self._put_in_quarantine(ended, self.files.fetch_frozen(staged).data)
            except VerificationError as error:
                if file.staged_sha256 not in self.quarantined_hashes(ended):
                    lost.append(f"{file.staged_sha256}: {error.reason}{self._quarantine_published_copy(ended, file)}")
        lost += self._quarantine_unproved(ended, ended.core)
        return "" if not lost else f"not kept: {', '.join(lost)}"

    def _put_in_quarantine(self, ended: EndedAttempt, data: bytes) -> None:
        """Write a file into quarantine. If an operator removed the quarantine meanwhile, delete the file again."""
        attempt_id = ended.attempt.attempt_id
        self._require_not_cleaned_up(attempt_id)
        location = self.vault.quarantine(ended.table_uuid, attempt_id, data)
        with self.ledger.read() as unit:
            removal = disposals.find_removal(unit, attempt_id)
        if removal is not None:
            self.vault.remove(location)
            self._require_not_cleaned_up(attempt_id)

    def _quarantine_published_copy(self, ended: EndedAttempt, file: AddedFile) -> str:
        """If a staged file changed after its proof, quarantine the Steward's copy of it; returns a note on the copy."""
        if file.published_path == file.staged_path:
            return ""
        try:
            if file.published_sha256 not in self.quarantined_hashes(ended):
                copy = HashedFile(file.published_path, *file.published_size_and_hash)
                self._put_in_quarantine(ended, self.files.fetch_frozen(copy).data)
        except VerificationError:
            return ""
        return f", its rows are kept as {file.published_sha256}"

    def _quarantine_unproved(self, ended: EndedAttempt, core: ProofCore) -> list[str]:
        """Quarantine data files that the proof lacks, within the contract's limit; returns notes on the rest."""
        proved = {parse_location(file.staged_path) for file in core.files.added}
        folder = parse_location(ended.attempt.prefix).child("data")
        lost, room, prefix = [], ended.bytes_max, self.prefix_of(ended)
        files = [] if prefix is None else prefix.files()
        for file in files:
            if file.location in proved or not file.location.is_under(folder):
                continue
            if file.size > room or file.location.link_below(folder) is not None:
                reason = "over the contract's size limit" if file.size > room else "is a link"
                lost.append(f"{file.location.parts[-1]}: {reason}")
                continue
            try:
                fetched = self.files.fetch(file.location)
            except VerificationError as error:
                lost.append(f"{file.location.parts[-1]}: {error.reason}")
                continue
            self._put_in_quarantine(ended, fetched.data)
            room -= len(fetched.data)
        more = len(lost) - LOST_FILES_NAMED_MAX
        return lost if more <= 0 else [*lost[:LOST_FILES_NAMED_MAX], f"and {more} others"]

    def quarantined_hashes(self, ended: EndedAttempt) -> set[str]:
        """The hashes of the attempt's files in quarantine."""
        listed = self.vault.finished(ended.table_uuid, VaultKind.QUARANTINE, ended.attempt.attempt_id)
        return {location.rpartition("/")[2] for location in listed}

    def _remove_branch(self, attempt: Attempt, row: TableRow) -> None:
        """Remove the branch and its own snapshots in one commit; snapshots of other refs stay."""
        with self.ledger.read() as unit:
            levels = levels_of(unit, row)
            fences = _list_fences(unit, attempt)
        for _ in range(BRANCH_TRIES_MAX):
            with self.ledger.read() as unit:
                fresh = tables.get_by_id(unit, row.table_id)
            metadata = self.catalog.states.load(fresh).metadata
            if is_adopted(attempt) and (
                attempt.branch not in metadata.refs
                or staged_head(metadata, attempt.branch) != attempt.staged_snapshot_id
            ):
                return  # the branch is gone, or was written since it was adopted
            updates, requirements = plan_branch_removal(metadata, attempt, fences)
            if not updates:
                return
            try:
                grant = STEWARD_GRANT if fresh.protected else STEWARD_AS_OPERATOR_GRANT
                self.catalog.commits.commit(grant, [Change(levels, row.name, requirements, updates)])
                return
            except ConflictError as error:
                if not error.reason.startswith("requirement_ref"):  # else the branch has moved: plan again
                    raise
        raise Code.BRANCH_MOVING(got=attempt.branch)

    def _remove_files(self, ended: EndedAttempt) -> tuple[int, int]:
        """Delete the files in the attempt's folder and their copies in the vault, unless a snapshot references them.

        Unfinished files in the vault are deleted too. Returns the numbers of removed and kept files.
        """
        self.remove_unfinished(ended)
        copies = self.copies_of(ended)
        prefix = self.prefix_of(ended)
        found = [] if prefix is None else prefix.files()
        if not found and not copies:
            return 0, 0
        search = self._search(ended)
        search.look_through()
        published, removed = published_files(ended), 0
        if prefix is not None:
            unpublished = [each.location for each in found if each.location not in published]
            removed = sum(prefix.remove(place) for place in search.unreferenced(unpublished))
            prefix.remove_empty()
        copy_by_place = {parse_location(each): each for each in copies}
        for place in search.unreferenced(place for place in copy_by_place if place not in published):
            self.vault.remove(copy_by_place[place])
            removed += 1
        return removed, len(found) + len(copies) - removed

    def remove_unfinished(self, ended: EndedAttempt) -> None:
        """Remove unfinished files of the attempt from the vault; a crash left them, and nothing references them."""
        for kind in (VaultKind.DATA, VaultKind.QUARANTINE):
            for each in self.vault.unfinished(ended.table_uuid, kind, ended.attempt.attempt_id):
                self.vault.remove(each)

    def _search(self, ended: EndedAttempt) -> Search:
        """The search for references to the attempt's files, over the snapshots of all tables."""
        copies = self.vault.location(ended.table_uuid, VaultKind.DATA, ended.attempt.attempt_id)
        folders = [parse_location(ended.attempt.prefix), parse_location(copies)]
        references = References(self.ledger, self.catalog.states, self.files, self._references_cache)
        older_id = None  # a snapshot of `main` older than the attempt: its proof's base, or without a proof the newest
        if ended.core is not None:
            older_id = ended.core.target.base_snapshot_id
        elif ended.row is not None:
            older_id = newest_snapshot_before(self.catalog.states.load(ended.row).metadata, ended.opened_micros)
        older_by_uuid = {ended.table_uuid: older_id}
        return references.search_below(folders, after_event=ended.opened_event, older_snapshots=older_by_uuid)

    def copies_of(self, ended: EndedAttempt) -> list[str]:
        """The Steward's copies of the attempt's files in the vault."""
        return self.vault.finished(ended.table_uuid, VaultKind.DATA, ended.attempt.attempt_id)

    def prefix_of(self, ended: EndedAttempt) -> Prefix | None:
        """The attempt's own folder, which has no files of an adopted branch; None for a dropped table.

        Raises UndecidedError if the table's location has changed since.
        """
        if ended.row is None:
            return None
        folder = parse_location(ended.attempt.prefix)
        if not folder.is_under(parse_location(ended.row.location)):
            raise UndecidedError("the table has moved away from the attempt's folder")
        return open_folder(self.catalog, self.files, ended.row, folder)

    def _store_record(
        self, ended: EndedAttempt, outcome: DisposalOutcome, *, removed: int, kept: int, note: str
    ) -> DisposalRecord:
        record = DisposalRecord(ended.attempt.attempt_id, outcome, removed, kept, note)
        at = self.clock.now_micros()
        return self.ledger.transact(lambda unit: disposals.put_disposal(unit, record), at_micros=at)


def open_folder(catalog: Catalog, files: Files, row: TableRow, folder: Location) -> Prefix:
    """Open a folder below the table's location; links below the warehouse are not followed."""
    table, warehouse = parse_location(row.location), parse_location(catalog.warehouse)
    root = warehouse if table.is_under(warehouse) and table != warehouse else table
    return prefix_at(root, folder, files.stores)


def published_files(ended: EndedAttempt) -> set[Location]:
    """The files of the attempt that were published."""
    if not ended.published or ended.core is None:
        return set()
    return {parse_location(each.published_path) for each in ended.core.files.added}


def newest_snapshot_before(metadata: TableMetadata, micros: int) -> int | None:
    """The newest snapshot of `main` that is older than this time, even if clocks differ by the largest allowed time."""
    latest = micros // 1_000 - CLOCK_DIFFERENCE_MAX_MS
    main_history = metadata.ancestry(metadata.current_snapshot_id or 0)
    return next((each.snapshot_id for each in main_history if each.timestamp_ms < latest), None)


def _list_fences(unit: Unit, attempt: Attempt) -> tuple[str, ...]:
    """The refs that stop a late publication of the attempt at an upstream; they are removed with its branch.

    An adopted branch may be created again under its name, so its fences stay.
    """
    if is_adopted(attempt):
        return ()
    return tuple(fence_name(each.announced_id) for each in announced.list_by_attempt(unit, attempt.attempt_id))


def plan_branch_removal(
    metadata: TableMetadata, attempt: Attempt, fences: Sequence[str] = ()
) -> tuple[list[Json], list[Json]]:
    """The updates that remove the attempt's branch and own snapshots, and their requirements."""
    if attempt.branch == MAIN:
        raise Code.BRANCH_REFUSED("main is not a staging branch", reason="branch_reserved", got=attempt.attempt_id)
    ref = metadata.refs.get(attempt.branch)
    staged = [] if attempt.staged_snapshot_id is None else [int(attempt.staged_snapshot_id)]
    updates = BranchRemoval.plan(metadata, (attempt.branch, *fences), staged).updates()
    head: Json = None if ref is None else ref.snapshot_id
    return updates, [{"type": "assert-ref-snapshot-id", "ref": attempt.branch, "snapshot-id": head}]


def must_quarantine(ended: EndedAttempt) -> bool:
    """Whether the attempt's files must be kept as evidence."""
    return ended.attempt.state is AttemptState.VERIFICATION_FAILED and ended.on_fail is OnFail.QUARANTINE


@contextlib.contextmanager
def require_decided() -> Iterator[None]:
    """Turn an undecided search for references into `references_undecided`, which is retried."""
    try:
        yield
    except UndecidedError as why:
        message = f"whether a table still references the attempt's files is undecided: {why}"
        raise Code.REFERENCES_UNDECIDED(message) from None
