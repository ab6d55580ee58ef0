"""Commits: judged on exactly the documents that the swap compares, written and synced first, then swapped at once."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from pvdm import fault
from pvdm.catalog.access import CatalogAccess, require_free, require_staging, shares_numbers
from pvdm.catalog.commit_queue import TableQueues
from pvdm.catalog.requests import after_change
from pvdm.catalog.retention import superseded
from pvdm.catalog.rule import as_updates, ref_changes, tag_unavailable
from pvdm.catalog.staging_quota import Making
from pvdm.catalog.state import States, TableState, unknown_table
from pvdm.catalog.upstream.commit import Extra, Forwarding, Step, Transact
from pvdm.catalog.upstream.heads import require_proved
from pvdm.catalog.visibility import published, sees_all
from pvdm.errors import ConflictError, InputError, NotAllowedError, PvdmError, StateUnknownError
from pvdm.lake.files import MetadataFiles, StoredFile
from pvdm.lake.format.json.document import Json
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.requirements import check_requirements, is_create
from pvdm.lake.format.table.updates import apply_updates, create_from_updates
from pvdm.lake.upstream import MOVED
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import namespaces, pending_deletes, tables
from pvdm.ledger.catalog.namespaces import Levels, Namespace
from pvdm.ledger.catalog.tables import NewTable, Pointer, TableRow
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record import protections
from pvdm.ledger.record.tokens import Grant
from pvdm.metadata.gate.permit import Permit

COMMIT_TRIES_MAX: Final = 16
COMMIT_TABLES_MAX: Final = 100
_T = TypeVar("_T")
_MOVED: Final = frozenset({"table_moved", "view_moved", "namespace_moved", "ledger_serialization", MOVED})


@dataclass(frozen=True, slots=True)
class Change:
    """What a client wants of one table; `made` gives the updates for the base of each try, where they depend on it."""

    levels: Levels
    name: str
    requirements: Sequence[Json]
    updates: Sequence[Json]
    made: Callable[[TableState], Sequence[Json]] | None = None


@dataclass(frozen=True, slots=True)
class _Planned:
    """One table's step, judged, and its new file, synced; `before` is None for a table that is made."""

    change: Change
    namespace: Namespace
    before: TableState | None
    after: TableMetadata
    file: StoredFile
    instead_of: TableRow | None = None
    returning: bool = False
    making: Making | None = None


_Found = tuple[Namespace, TableRow | None]
# Judges exactly the base that the swap compares and the bytes it leads to; after a conflict it judges again.
PermitMaker = Callable[[TableState, TableMetadata, bytes], Permit]


def repeated(work: Callable[[], _T]) -> _T:
    """What was judged on a row that has moved meanwhile is judged again on the row as it is."""
    for _ in range(COMMIT_TRIES_MAX - 1):
        try:
            return work()
        except ConflictError as error:
            if error.code not in _MOVED:
                raise
    return work()


class Commits:
    """The one way in which a table's document changes."""

    def __init__(
        self, ledger: Ledger, clock: LedgerClock, files: MetadataFiles, states: States, access: CatalogAccess
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self._files = files
        self._states = states
        self._access = access
        self._forwarding = Forwarding(ledger, clock, states, states.upstreams)
        self._queues = TableQueues()

    def turn(self, levels: Levels, name: str) -> contextlib.AbstractContextManager[bool]:
        """A turn at one table, for what is more than a commit."""
        return self._turn([(levels, name)])

    def commit(
        self,
        grant: Grant,
        changes: Sequence[Change],
        *,
        permit: PermitMaker | None = None,
        extra: Extra | None = None,
        transact: Transact | None = None,
        then: Callable[[], None] | None = None,
    ) -> list[TableState]:
        """All of the changes or none; `extra` runs in the same transaction. A moved base is judged again.

        `then` runs after the commit and before the next one's turn.
        """
        _require_apart(changes)
        # Before the turn too: whoever may not write to a table must not keep others waiting for it.
        found = [self._found(grant, change) for change in changes]
        with self._turn([(change.levels, change.name) for change in changes]) as at_once:
            if not at_once:
                found.clear()

            def attempt() -> list[TableState]:
                # What was found is good for one try: should it have moved all the same, the swap says so.
                places = found or [self._found(grant, change) for change in changes]
                try:
                    return self._commit(grant, list(zip(changes, places, strict=True)), permit, extra, transact)
                finally:
                    found.clear()

            states = repeated(attempt)
            if then is not None:
                then()
            return states

    @contextlib.contextmanager
    def _turn(self, tables: Sequence[tuple[Levels, str]]) -> Iterator[bool]:
        """First among the threads of this Steward, then among the Stewards on the same ledger; both in order.

        False if what was read of the tables before may be old: another Steward may have changed it at any time.
        """
        names = [namespaces.shown((*levels, name)) for levels, name in tables]
        with self._queues.turn(tables) as at_once, self._ledger.in_turn(names):
            yield at_once and self._ledger.dialect == "sqlite"

    def _commit(
        self,
        grant: Grant,
        changes: Sequence[tuple[Change, _Found]],
        permit: PermitMaker | None,
        extra: Extra | None,
        transact: Transact | None,
    ) -> list[TableState]:
        extra = _while_staging(grant, extra)
        if any(row is not None and row.upstream is not None for _, (_, row) in changes):
            return [self._forwarded(grant, changes, permit, extra, transact)]
        planned: list[_Planned | TableState] = []
        try:
            for change, found in changes:
                planned.append(self._plan(grant, change, found, permit))
            rows = self._swap(planned, extra, transact)
        except StateUnknownError:
            raise  # the swap may have happened: its files stay
        except PvdmError:
            self._forget(planned)
            raise
        return self._settled(planned, rows)

    def _forwarded(
        self,
        grant: Grant,
        changes: Sequence[tuple[Change, _Found]],
        permit: PermitMaker | None,
        extra: Extra | None,
        transact: Transact | None,
    ) -> TableState:
        """An upstream compares and swaps one table at a time, so that nothing else can go with it."""
        (change, (_, row)), *others = changes
        if others or row is None:
            raise InputError(
                "upstream_alone",
                "a transaction changes a table of an upstream catalog together with others",
                expected="that table alone",
                got=f"{len(changes)} tables",
            )
        before = self._states.of(row)
        told = sees_all(grant.role) or permit is not None
        if not told:
            require_proved(self._ledger, before)  # nobody marks what must not be shown
        now_ms = max(self._clock.now_micros() // 1_000, before.metadata.last_updated_ms)
        after, updates = self._judged(grant, before, change, permit, now_ms)
        making = self._access.making(grant, before, after)
        asked = change.requirements if sees_all(grant.role) else ()
        found = self._forwarding.forward(Step(before, after, asked, updates, making), extra, transact)
        if not told:
            with after_change():
                require_proved(self._ledger, found)  # or is answered with what came to be there meanwhile
        return found

    def create(
        self,
        grant: Grant,
        namespace: Namespace,
        name: str,
        after: TableMetadata,
        *,
        instead_of: TableRow | None = None,
        returning: bool = False,
        extra: Extra | None = None,
    ) -> TableState:
        """A table with its first document; `instead_of` goes, and one that is `returning` may have been there."""
        self._states.upstreams.require_own(namespace.levels, f"{name} would be made")
        self._access.require_create(grant, namespace, name, after, instead_of=instead_of)
        file = self._files.write(str(after.table_uuid), 0, after.to_bytes())
        fault.point("catalog.after_metadata_file")
        planned = [
            _Planned(Change(namespace.levels, name, (), ()), namespace, None, after, file, instead_of, returning)
        ]
        try:
            rows = self._swap(planned, extra)
        except StateUnknownError:
            raise
        except PvdmError:
            self._forget(planned)
            raise
        return self._settled(planned, rows)[0]

    def _plan(self, grant: Grant, change: Change, found: _Found, permit: PermitMaker | None) -> _Planned | TableState:
        namespace, row = found
        now_ms = self._clock.now_micros() // 1_000
        if row is None:
            self._states.upstreams.require_own(namespace.levels, f"{change.name} would be made")
            check_requirements(None, change.requirements)
            after = create_from_updates(change.updates, now_ms=now_ms, table_uuid=str(uuid.uuid4()))
            self._access.require_create(grant, namespace, change.name, after)
            before, making, revision = None, None, 0
        else:
            before = self._states.of(row)
            after, _ = self._judged(grant, before, change, permit, now_ms)
            if after is before.metadata:
                return before
            making, revision = self._access.making(grant, before, after), row.revision + 1
        file = self._files.write(str(after.table_uuid), revision, after.to_bytes())
        fault.point("catalog.after_metadata_file")
        return _Planned(change, namespace, before, after, file, making=making)

    def _judged(
        self, grant: Grant, before: TableState, change: Change, permit: PermitMaker | None, now_ms: int
    ) -> tuple[TableMetadata, Sequence[Json]]:
        """The table after the change, if it may be, and by which updates; the very same document if nothing is done."""
        if sees_all(grant.role) or permit is not None:
            check_requirements(before.metadata, change.requirements)
            updates = change.updates if change.made is None else change.made(before)
            return self._applied(grant, before, updates, permit, now_ms), updates
        # Judged as if what is hidden were not there: it is neither changed nor told of by a refusal.
        seen = published(before.metadata)
        check_requirements(seen, change.requirements)
        told = self._applied(grant, TableState(before.row, seen), change.updates, None, now_ms)
        # Nothing but tags can be other now; that, and nothing that was said of hidden things, is done to the whole.
        changes = list(ref_changes(seen, told))
        if any(each.before is None and each.name in before.metadata.refs for each in changes):
            raise tag_unavailable()
        updates = as_updates(changes)
        try:
            return self._applied(grant, before, updates, None, now_ms), updates
        except (NotAllowedError, InputError, ConflictError):
            raise tag_unavailable() from None

    def _applied(
        self, grant: Grant, before: TableState, updates: Sequence[Json], permit: PermitMaker | None, now_ms: int
    ) -> TableMetadata:
        location = before.row.pointer.location
        after = apply_updates(
            before.metadata,
            updates,
            now_ms=now_ms,
            previous_location=location,
            shared_numbers=permit is None and shares_numbers(grant, before.row),
            # A migration of the contract alone gets a document of its own, which follows the one before it. An upstream
            # writes its documents itself.
            always=permit is not None and before.row.upstream is None,
        )
        if after is not before.metadata or permit is not None:
            data = after.to_bytes()
            made = None if permit is None else permit(before, after, data)
            self._access.require_commit(grant, before, after, data, permit=made, now_ms=now_ms)
        return after

    def _found(self, grant: Grant, change: Change) -> _Found:
        """Where the change belongs, if the grant may make it at all; no file is read for who may not."""
        creating = is_create(change.requirements)
        with self._ledger.read() as unit:
            namespace, row = tables.find_with_home(unit, change.levels, change.name)
        if namespace is None:
            raise unknown_table(change.levels, change.name)
        self._access.require_namespace(grant, namespace)
        if row is None:
            row = self._states.upstreams.noted(namespace, change.name)
        if row is None and not creating:
            raise unknown_table(change.levels, change.name)
        if row is None:
            self._access.require_making(grant)
        else:
            self._access.require_writing(grant, row)
        return namespace, row

    def _swap(
        self, planned: Sequence[_Planned | TableState], extra: Extra | None, transact: Transact | None = None
    ) -> list[TableRow]:
        """All pointers at once; nothing after it can fail, so what is told about it is true."""
        steps = [step for step in planned if isinstance(step, _Planned)]
        if not steps and extra is None:
            return [step.row for step in planned if isinstance(step, TableState)]

        def work(unit: Unit) -> list[TableRow]:
            tables.lock(unit, [_uuid(step) for step in planned])
            pending_deletes.require_none(unit, [step.file.name for step in steps])
            rows = [_put(unit, step) for step in planned]
            if extra is not None:
                extra(unit, rows)
            return rows

        if transact is not None:
            return transact(work)
        return self._ledger.transact(work, at_micros=self._clock.now_micros())

    def _settled(self, planned: Sequence[_Planned | TableState], rows: Sequence[TableRow]) -> list[TableState]:
        found = []
        with after_change():
            fault.point("catalog.after_swap")
            for step, row in zip(planned, rows, strict=True):
                if isinstance(step, _Planned):
                    self._states.keep(step.file.sha256, step.after)
                    found.append(TableState(row, step.after))
                    self._remove_superseded(step, row)
                else:
                    found.append(step)
        return found

    def _remove_superseded(self, step: _Planned, row: TableRow) -> None:
        """Old documents that nothing needs any more; one that cannot be removed now is swept away later."""
        for location in [] if step.before is None else superseded(step.before, row, step.after):
            with contextlib.suppress(PvdmError):
                self._files.remove_old(row.table_uuid, location)

    def _forget(self, planned: Sequence[_Planned | TableState]) -> None:
        """Files of a try that surely did not happen; one that cannot be removed does no harm."""
        for step in planned:
            if isinstance(step, _Planned):
                try:
                    self._files.remove(step.file)
                except PvdmError:
                    continue


def _uuid(step: _Planned | TableState) -> str:
    return step.row.table_uuid if isinstance(step, TableState) else str(step.after.table_uuid)


def _put(unit: Unit, step: _Planned | TableState) -> TableRow:
    if isinstance(step, TableState):
        # Nothing changes here, but the others were judged with it as it was.
        tables.require_still(unit, step.row)
        return step.row
    pointer = Pointer(step.file.location, step.file.sha256)
    if step.before is not None:
        row = tables.swap(unit, step.before.row, pointer, location=step.after.location)
        if step.making is not None:
            step.making.note(unit, row)
    else:
        namespaces.require_still(unit, step.namespace)
        if step.instead_of is not None:
            tables.drop(unit, step.instead_of)
        # A UUID that the log has as protected comes back so, though a restored ledger may have forgotten its table.
        contract = step.namespace.protected_by or protections.standing_contract(unit, _uuid(step))
        row = tables.create(unit, _new(step, pointer, contract))
    if step.before is None or step.before.row.location != row.location:
        unit.lock_name("places")
        require_free(unit, row.location, of=row)
    return row


def _while_staging(grant: Grant, extra: Extra | None) -> Extra | None:
    """`extra`, and for a token of one attempt that the attempt is still STAGING, in the transaction of the swap."""
    attempt_id = grant.attempt_id
    if attempt_id is None:
        return extra

    def work(unit: Unit, rows: Sequence[TableRow]) -> None:
        require_staging(unit, attempt_id)
        if extra is not None:
            extra(unit, rows)

    return work


def _require_apart(changes: Sequence[Change]) -> None:
    """Each table once, and not too many."""
    names = [(change.levels, change.name) for change in changes]
    if not 0 < len(names) <= COMMIT_TABLES_MAX:
        raise InputError(
            "commit_tables_too_many",
            "a transaction changes too many tables, or none",
            expected=f"1 to {COMMIT_TABLES_MAX} tables",
            got=str(len(names)),
        )
    twice = next((name for position, name in enumerate(names) if name in names[:position]), None)
    if twice is not None:
        raise InputError(
            "commit_table_twice",
            "a transaction changes a table twice",
            expected="each table once",
            got=namespaces.shown((*twice[0], twice[1])),
        )


def _new(step: _Planned, pointer: Pointer, contract: str | None) -> NewTable:
    return NewTable(
        step.namespace.namespace_id,
        step.change.name,
        step.namespace.domain,
        str(step.after.table_uuid),
        step.after.location,
        pointer,
        contract,
        step.returning,
    )
