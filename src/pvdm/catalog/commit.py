"""Commits to tables. The pointer, a row of the ledger, names a table's current metadata file (its document).

A commit is checked on this document. Its new file is written and synced. Then the swap, one transaction of the ledger,
moves the pointer from the checked document to the new one, or fails if the pointer has changed.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from pvdm import fault
from pvdm.catalog.access import CatalogAccess, may_reuse_sequence_numbers, require_free, require_staging
from pvdm.catalog.cleanup import find_superseded
from pvdm.catalog.requests import failures_mean_state_unknown
from pvdm.catalog.responses import published_view, sees_all
from pvdm.catalog.rule import ref_changes, tag_unavailable_error, to_updates
from pvdm.catalog.sanity import StagedAdditions
from pvdm.catalog.state import States, TableState, unknown_table_error
from pvdm.catalog.upstream_commit import Forwarding, Hook, Step, Transact, require_proved
from pvdm.errors import Code, ConflictError, InputError, NotAllowedError, PvdmError, StateUnknownError
from pvdm.lake.files import MetadataFiles
from pvdm.lake.format.json_document import Json
from pvdm.lake.format.table.commit_request import apply_updates, check_requirements, create_from_updates, is_create
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.paths import Pointer
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import namespaces, tables
from pvdm.ledger.catalog.namespaces import Levels, Namespace
from pvdm.ledger.catalog.tables import NewTable, TableRow
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.locks import FairLock, KeyedLocks
from pvdm.ledger.record import protections
from pvdm.ledger.record.tokens import Grant, require_domain
from pvdm.metadata.gate.target import Permit

COMMIT_TRIES_MAX: Final = 16
COMMIT_TABLES_MAX: Final = 100
COMMIT_WAIT_MAX_SECONDS: Final = 10
_T = TypeVar("_T")
_RETRIED_CODES: Final = frozenset(
    {Code.TABLE_MOVED, Code.VIEW_MOVED, Code.NAMESPACE_MOVED, Code.LEDGER_SERIALIZATION, Code.UPSTREAM_MOVED}
)


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a table or view. At each try `make_updates`, if given, makes the updates from the state before it."""

    levels: Levels
    name: str
    requirements: Sequence[Json]
    updates: Sequence[Json]
    make_updates: Callable[[TableState], Sequence[Json]] | None = None


@dataclass(frozen=True, slots=True)
class _PlannedStep:
    """One table's checked change and its new file, which is on disk. `before` is None for a new table.

    `replaces` and `may_reuse_uuid` are for a new table (`Commits.create`). A producer's quota limits its `additions`.
    """

    change: Change
    namespace: Namespace
    before: TableState | None
    after: TableMetadata
    file: Pointer
    replaces: TableRow | None = None
    may_reuse_uuid: bool = False
    additions: StagedAdditions | None = None


_NamespaceAndRow = tuple[Namespace, TableRow | None]
_Pairs = Sequence[tuple[Change, _NamespaceAndRow]]  # each change with the namespace and row of its table
# Makes a permit from the state before the commit, the new document and its bytes. It allows a change of `main`.
PermitMaker = Callable[[TableState, TableMetadata, bytes], Permit]


def retry_if_row_changed(work: Callable[[], _T]) -> _T:
    """Do the work again if a row has changed since it was read; at most `COMMIT_TRIES_MAX` tries."""
    for _ in range(COMMIT_TRIES_MAX - 1):
        try:
            return work()
        except ConflictError as error:
            if error.code not in _RETRIED_CODES:
                raise
    return work()


class Commits:
    """Makes commits. Only restores and publications to an upstream (`catalog.target`) change a table in another way."""

    def __init__(
        self,
        ledger: Ledger,
        clock: LedgerClock,
        files: MetadataFiles,
        states: States,
        access: CatalogAccess,
        *,
        metadata_kept_seconds: int = 0,
    ) -> None:
        """Metadata files that were written less than `metadata_kept_seconds` before a commit stay."""
        self._metadata_kept_seconds = metadata_kept_seconds
        self._ledger = ledger
        self._clock = clock
        self._files = files
        self._states = states
        self._access = access
        self._forwarding = Forwarding(ledger, clock, states, states.upstreams)
        self._queues = TableQueues()

    def commit(
        self,
        grant: Grant,
        changes: Sequence[Change],
        *,
        make_permit: PermitMaker | None = None,
        hook: Hook | None = None,
        transact: Transact | None = None,
        then: Callable[[], None] | None = None,
    ) -> list[TableState]:
        """Make all of the changes or none. If a base has changed, the changes are checked again on the new one.

        `make_permit`, for a publication or a migration, is called at each try. `hook` runs in the swap's transaction;
        `transact` runs the swap inside a larger transaction. `then` runs before the next commit in the table's queue.
        """
        _require_distinct(changes)
        # Before the turn: a caller that may not write to a table must not make others wait.
        first_try_rows: list[_NamespaceAndRow] | None = [self._find(grant, change) for change in changes]
        with self.turn([(change.levels, change.name) for change in changes]) as is_unchanged:
            if not is_unchanged:
                first_try_rows = None

            def try_once() -> list[TableState]:
                nonlocal first_try_rows
                # Rows read before the turn are used for one try only. If they have changed, the swap fails.
                rows, first_try_rows = first_try_rows, None
                if rows is None:
                    rows = [self._find(grant, change) for change in changes]
                return self._commit(grant, list(zip(changes, rows, strict=True)), make_permit, hook, transact)

            states = retry_if_row_changed(try_once)
            if then is not None:
                then()
            return states

    @contextlib.contextmanager
    def turn(self, tables: Sequence[tuple[Levels, str]]) -> Iterator[bool]:
        """Wait for a turn among this Steward's threads, then among the Stewards on the same ledger.

        Yields whether rows that were read before the turn are certainly still current. On PostgreSQL that is never
        certain, since another Steward may change them at any time.
        """
        names = [namespaces.dotted_name((*levels, name)) for levels, name in tables]
        with self._queues.turn(tables) as at_once, self._ledger.take_turn(names):
            # On SQLite there is only one Steward, so no other can have changed the tables.
            yield at_once and self._ledger.dialect == "sqlite"

    def _commit(
        self, grant: Grant, pairs: _Pairs, make_permit: PermitMaker | None, hook: Hook | None, transact: Transact | None
    ) -> list[TableState]:
        hook = _with_staging_check(grant, hook)
        if any(row is not None and row.upstream is not None for _, (_, row) in pairs):
            return [self._forward(grant, pairs, make_permit, hook, transact)]
        planned: list[_PlannedStep | TableState] = []  # a TableState for a table that does not change
        written: list[Pointer] = []
        with remove_uncommitted(self._files, written):
            for change, found in pairs:
                step = self._plan(grant, change, found, make_permit)
                planned.append(step)
                if isinstance(step, _PlannedStep):
                    written.append(step.file)
            rows = self._swap(planned, hook, transact)
        return self._finish(planned, rows)

    def _forward(
        self, grant: Grant, pairs: _Pairs, make_permit: PermitMaker | None, hook: Hook | None, transact: Transact | None
    ) -> TableState:
        """Commit to an upstream, which changes one table at a time."""
        (change, (_, row)), *others = pairs
        if others or row is None:
            raise Code.UPSTREAM_REFUSED(reason="upstream_alone", got=f"{len(pairs)} tables")
        before = self._states.load(row)
        sees_staged = sees_all(grant.role) or make_permit is not None
        if not sees_staged:
            require_proved(self._ledger, before)  # this role can only tag: refuse if main has unproved snapshots
        now_ms = max(self._clock.now_micros() // 1_000, before.metadata.last_updated_ms)
        after, updates = self._check_change(grant, before, change, make_permit, now_ms)
        additions = self._access.staged_additions(grant, before, after)
        # For roles that do not see all, requirements were checked on the published view, which the upstream does not
        # know. A change with a permit has no requirements.
        required = change.requirements if sees_all(grant.role) else ()
        state = self._forwarding.forward(Step(before, after, required, updates, additions), hook, transact)
        if not sees_staged:
            with failures_mean_state_unknown():
                require_proved(self._ledger, state)  # the upstream may have got unproved snapshots meanwhile
        return state

    def create(
        self,
        grant: Grant,
        namespace: Namespace,
        name: str,
        after: TableMetadata,
        *,
        replaces: TableRow | None = None,
        may_reuse_uuid: bool = False,
        hook: Hook | None = None,
    ) -> TableState:
        """Create a table with its first document; the table `replaces` is dropped.

        `may_reuse_uuid`: the table is registered from its metadata file, so a dropped table may have had its UUID.
        """
        self._states.upstreams.require_not_upstream(namespace.levels, operation=f"create {name}")
        self._access.require_create(grant, namespace, name, after, replaces=replaces)
        file = self._files.write(str(after.table_uuid), 0, after.to_bytes())
        fault.point("catalog.after_metadata_file")
        change = Change(namespace.levels, name, (), ())
        step = _PlannedStep(change, namespace, None, after, file, replaces, may_reuse_uuid)
        with remove_uncommitted(self._files, [file]):
            rows = self._swap([step], hook)
        return self._finish([step], rows)[0]

    def _plan(
        self, grant: Grant, change: Change, found: _NamespaceAndRow, make_permit: PermitMaker | None
    ) -> _PlannedStep | TableState:
        """Check the change and write the new file. Returns the state before if nothing changes."""
        namespace, row = found
        now_ms = self._clock.now_micros() // 1_000
        if row is None:
            self._states.upstreams.require_not_upstream(namespace.levels, operation=f"create {change.name}")
            check_requirements(None, change.requirements)
            after = create_from_updates(change.updates, now_ms=now_ms, table_uuid=str(uuid.uuid4()))
            self._access.require_create(grant, namespace, change.name, after)
            before, additions, revision = None, None, 0
        else:
            before = self._states.load(row)
            after, _ = self._check_change(grant, before, change, make_permit, now_ms)
            if after is before.metadata:
                return before
            additions, revision = self._access.staged_additions(grant, before, after), row.revision + 1
        file = self._files.write(str(after.table_uuid), revision, after.to_bytes())
        fault.point("catalog.after_metadata_file")
        return _PlannedStep(change, namespace, before, after, file, additions=additions)

    def _check_change(
        self, grant: Grant, before: TableState, change: Change, make_permit: PermitMaker | None, now_ms: int
    ) -> tuple[TableMetadata, Sequence[Json]]:
        """Check the change. Returns the document after it, the same object if nothing changes; and the updates."""
        if sees_all(grant.role) or make_permit is not None:
            check_requirements(before.metadata, change.requirements)
            updates = change.updates if change.make_updates is None else change.make_updates(before)
            return self._apply(grant, before, updates, make_permit, now_ms), updates
        # This role may not see what is staged. The change is checked on what consumers see, so that it changes no
        # hidden part, and a refusal discloses none.
        view = published_view(before.metadata)
        check_requirements(view, change.requirements)
        changed = self._apply(grant, TableState(before.row, view), change.updates, None, now_ms)
        # Only tags can differ now. Exactly these changes are applied to the whole document.
        changes = list(ref_changes(view, changed))
        if any(each.before is None and each.name in before.metadata.refs for each in changes):
            raise tag_unavailable_error()
        updates = to_updates(changes)
        try:
            return self._apply(grant, before, updates, None, now_ms), updates
        except (NotAllowedError, InputError, ConflictError):
            raise tag_unavailable_error() from None

    def _apply(
        self, grant: Grant, before: TableState, updates: Sequence[Json], make_permit: PermitMaker | None, now_ms: int
    ) -> TableMetadata:
        after = apply_updates(
            before.metadata,
            updates,
            now_ms=now_ms,
            previous_location=before.row.pointer.location,
            shared_numbers=make_permit is None and may_reuse_sequence_numbers(grant, before.row),
            # A migration of the contract alone also writes a new document. An upstream writes its own documents.
            write_if_unchanged=make_permit is not None and before.row.upstream is None,
        )
        if after is not before.metadata or make_permit is not None:
            data = after.to_bytes()
            permit = None if make_permit is None else make_permit(before, after, data)
            self._access.require_commit(grant, before, after, data, permit=permit, now_ms=now_ms)
        return after

    def _find(self, grant: Grant, change: Change) -> _NamespaceAndRow:
        """The namespace and row of the changed table, without its document. Raises if the grant may not write to it."""
        may_create = is_create(change.requirements)
        namespace, row = self.find(grant, change.levels, change.name)
        if row is not None:
            self._access.require_may_write(grant, row)
        elif may_create:
            self._access.require_may_manage(grant)
        else:
            raise unknown_table_error(change.levels, change.name)
        return namespace, row

    def find(self, grant: Grant, levels: Levels, name: str) -> tuple[Namespace, TableRow | None]:
        """The namespace, and the table's row or None. If only an upstream has the table, its row is added first.

        Raises `table_unknown` if the namespace does not exist, `permission_denied` for a grant of another domain.
        """
        with self._ledger.read() as unit:
            namespace, row = tables.find_with_namespace(unit, levels, name)
        if namespace is None:
            raise unknown_table_error(levels, name)
        require_domain(grant, namespace.domain, f"the namespace {namespaces.dotted_name(levels)}")
        return namespace, row or self._states.upstreams.add_from_upstream(namespace, name)

    def _swap(
        self, planned: Sequence[_PlannedStep | TableState], hook: Hook | None, transact: Transact | None = None
    ) -> list[TableRow]:
        """Swap all pointers in one transaction. Returns the rows after it."""
        steps = [step for step in planned if isinstance(step, _PlannedStep)]
        if not steps and hook is None:
            return [step.row for step in planned if isinstance(step, TableState)]

        def work(unit: Unit) -> list[TableRow]:
            tables.lock(unit, [_table_uuid(step) for step in planned])
            tables.require_not_scheduled_for_deletion(unit, [step.file.name for step in steps])
            rows = [_write_step(unit, step) for step in planned]
            if hook is not None:
                hook(unit, rows)
            return rows

        if transact is not None:
            return transact(work)
        return self._ledger.transact(work, at_micros=self._clock.now_micros())

    def _finish(self, planned: Sequence[_PlannedStep | TableState], rows: Sequence[TableRow]) -> list[TableState]:
        """Cache the new documents and delete old ones. A failure here becomes `StateUnknownError`."""
        with failures_mean_state_unknown():
            fault.point("catalog.after_swap")
            pairs = zip(planned, rows, strict=True)
            return [step if isinstance(step, TableState) else self._cache_and_prune(step, row) for step, row in pairs]

    def _cache_and_prune(self, step: _PlannedStep, row: TableRow) -> TableState:
        """Cache the new document, and delete old ones that are no longer needed; a later sweep deletes the others."""
        self._states.cache_document(step.file.sha256, step.after)
        superseded: list[str] = []
        if step.before is not None:
            superseded = find_superseded(step.before, row, step.after, kept_seconds=self._metadata_kept_seconds)
        for location in superseded:
            with contextlib.suppress(PvdmError):
                self._files.remove_old(row.table_uuid, location)
        return TableState(row, step.after)


@contextlib.contextmanager
def remove_uncommitted(files: MetadataFiles, written: Iterable[Pointer]) -> Iterator[None]:
    """If the commit certainly failed, delete its files. A file that cannot be deleted is left to a later sweep."""
    try:
        yield
    except StateUnknownError:
        raise  # the swap may have happened: its files stay
    except PvdmError:
        for file in written:
            with contextlib.suppress(PvdmError):
                files.remove(file)
        raise


def _table_uuid(step: _PlannedStep | TableState) -> str:
    return step.row.table_uuid if isinstance(step, TableState) else str(step.after.table_uuid)


def _write_step(unit: Unit, step: _PlannedStep | TableState) -> TableRow:
    """Write the table's row, in the swap's transaction, and return it. Raises `table_moved` if the base has changed."""
    if isinstance(step, TableState):
        # This table does not change, but the others were checked together with it.
        tables.require_unchanged(unit, step.row)
        return step.row
    if step.before is not None:
        row = tables.swap(unit, step.before.row, step.file, location=step.after.location)
        if step.additions is not None:
            step.additions.note(unit, row)
    else:
        namespace, table_uuid = step.namespace, _table_uuid(step)
        namespaces.require_unchanged(unit, namespace)
        if step.replaces is not None:
            tables.drop(unit, step.replaces)
        # A UUID that is protected in the log stays protected, even if a restored ledger has lost its table.
        contract_hash = namespace.protected_by or protections.find_current_contract(unit, table_uuid)
        new = NewTable(
            namespace_id=namespace.namespace_id,
            name=step.change.name,
            domain=namespace.domain,
            table_uuid=table_uuid,
            location=step.after.location,
            pointer=step.file,
            contract_hash=contract_hash,
            may_reuse_uuid=step.may_reuse_uuid,
        )
        row = tables.create(unit, new)
    if step.before is None or step.before.row.location != row.location:
        unit.lock_name("places")  # until the transaction ends, no other table can take the place
        require_free(unit, row.location, for_table=row)
    return row


def _with_staging_check(grant: Grant, hook: Hook | None) -> Hook | None:
    """The hook. For a token of one attempt, a hook that first checks that the attempt is still STAGING."""
    attempt_id = grant.attempt_id
    if attempt_id is None:
        return hook

    def work(unit: Unit, rows: Sequence[TableRow]) -> None:
        require_staging(unit, attempt_id)
        if hook is not None:
            hook(unit, rows)

    return work


def _require_distinct(changes: Sequence[Change]) -> None:
    """Raise if a table is changed twice, or if no table or too many tables are changed."""
    names = [(change.levels, change.name) for change in changes]
    if not 0 < len(names) <= COMMIT_TABLES_MAX:
        expected = f"1 to {COMMIT_TABLES_MAX} tables"
        raise Code.REQUEST_INVALID(reason="commit_tables_too_many", expected=expected, got=str(len(names)))
    repeated = next((name for position, name in enumerate(names) if name in names[:position]), None)
    if repeated is not None:
        raise Code.REQUEST_INVALID(reason="commit_table_twice", got=namespaces.dotted_name((*repeated[0], repeated[1])))


class TableQueues:
    """A queue in front of every table: commits to one table run one after the other, in order of arrival.

    The queue only saves work. Without it two commits would be checked on one base, and the file of the second one
    would be written and synced in vain. A commit that waits too long goes on; its swap compares the base anyway.
    Other Stewards on the same ledger have queues of their own; `Ledger.take_turn` orders the commits of all Stewards.
    """

    def __init__(self, *, seconds: float = COMMIT_WAIT_MAX_SECONDS) -> None:
        self._seconds = seconds
        self._queues = KeyedLocks[tuple[Levels, str], FairLock](FairLock)

    @contextlib.contextmanager
    def turn(self, tables: Iterable[tuple[Levels, str]]) -> Iterator[bool]:
        """Wait for a turn at all of the tables, always in the same order, so that there is no deadlock.

        Yields False after a wait: rows that were read before have probably changed.
        """
        at_once = True
        with contextlib.ExitStack() as stack:
            for table in sorted(set(tables)):
                queue = stack.enter_context(self._queues.use(table))
                at_once = at_once and queue.is_free
                stack.enter_context(queue.hold(self._seconds))
            yield at_once
