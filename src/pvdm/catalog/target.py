"""The tables that the gate publishes to. In the Steward's own catalog a publication is one commit.

A publication to an upstream's table is announced in the ledger, committed at the upstream, and settled: the upstream is
read to find out the result. docs/upstreams.md says what a crash after each of these steps leaves behind.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from typing import Final

from pvdm import fault
from pvdm.catalog.catalog import Catalog
from pvdm.catalog.commit import Change, retry_if_row_changed
from pvdm.catalog.names import full_name
from pvdm.catalog.responses import list_main_history
from pvdm.catalog.rule import FENCE_PREFIX
from pvdm.catalog.state import States, TableState
from pvdm.catalog.upstream_commit import is_known, pin_base, pin_ref, record_snapshots, require_proved
from pvdm.errors import Code, ConflictError, InputError, PvdmError, StateUnknownError, UnavailableError
from pvdm.lake.format.json_document import Json
from pvdm.lake.format.table.commit_request import apply_updates
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import MAIN
from pvdm.lake.upstream import UpstreamState
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import namespaces, tables
from pvdm.ledger.catalog.namespaces import Levels
from pvdm.ledger.catalog.tables import TableRow
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record.tokens import Grant
from pvdm.ledger.work import announced
from pvdm.ledger.work.announced import AnnouncedPublication, NewAnnouncement
from pvdm.metadata.gate.checks_table import apply_changes
from pvdm.metadata.gate.ledger_changes import LedgerChanges
from pvdm.metadata.gate.proposal import PublishedSnapshot
from pvdm.metadata.gate.target import Base, NextCommit, Permit, Target
from pvdm.model.statements.table import TableRef
from pvdm.model.states import AnnouncedState

UPSTREAM_TURN_MAX_SECONDS: Final = 30
SETTLE_TRIES_MAX: Final = 5
SETTLE_BEGIN_MAX_SECONDS: Final = 10
_POLL_SECONDS: Final = 0.1
_HOLDER: Final = secrets.token_hex(16)  # the id of this process, in the announcements that it stores in the ledger
_IN_PROGRESS: Final[set[str]] = set()  # the ids of announced publications that threads of this process work on
_Make = Callable[[Base], NextCommit]  # makes the publishing commit from the table's state
_InTransaction = Callable[[Unit, TableRow], LedgerChanges]  # repeats the gate's checks; returns the ledger's changes


class CatalogTarget:
    """A table of the Steward's own catalog, found by UUID. `steward_grant` is for the Steward's own commits."""

    removes_branches = True  # the publishing commit also removes the attempts' branches

    def __init__(self, ledger: Ledger, catalog: Catalog, table_uuid: str, steward_grant: Grant) -> None:
        self._ledger = ledger
        self._grant = steward_grant
        self._catalog = catalog
        self._uuid = table_uuid

    def load(self) -> Base:
        """The table as it is now."""
        return self._read(self._ledger, self._catalog.states)

    def publish(self, make: _Make, in_transaction: _InTransaction, then: Callable[[PublishedSnapshot], None]) -> None:
        """Publish by one commit, which `make` makes again for each try. `then` gets the published snapshot."""
        levels, row = find_row_by_uuid(self._ledger, self._uuid)
        made: list[NextCommit] = []  # one element: the commit of the newest try
        shown: list[PublishedSnapshot] = []  # one element: the snapshot of the newest try

        def make_updates(before: TableState) -> Sequence[Json]:
            made[:] = [make(to_base(self._catalog, levels, before))]
            return made[0].updates

        def permit(_: TableState, after: TableMetadata, data: bytes) -> Permit:
            return made[0].permit(after, data)

        def hook(unit: Unit, rows: Sequence[TableRow]) -> None:
            shown[:] = [apply_changes(unit, in_transaction(unit, tables.get_by_id(unit, rows[0].table_id)))]

        change = Change(levels, row.name, (), (), make_updates)
        self._catalog.commits.commit(self._grant, [change], make_permit=permit, hook=hook, then=lambda: then(shown[0]))

    def read_back(self) -> Base:
        """The table again, through new connections to the ledger."""
        ledger = self._ledger.with_new_connections()
        return self._read(ledger, self._catalog.states.with_ledger(ledger))

    def _read(self, ledger: Ledger, states: States) -> Base:
        levels, row = find_row_by_uuid(ledger, self._uuid)
        return to_base(self._catalog, levels, states.load(row))


def find_row_by_uuid(ledger: Ledger, table_uuid: str) -> tuple[Levels, TableRow]:
    """The table's namespace and row. Raises `table_unknown`."""
    with ledger.read() as unit:
        row = tables.find_by_uuid(unit, table_uuid)
        namespace = None if row is None else namespaces.find_by_id(unit, row.namespace_id)
    if row is None or namespace is None:
        raise Code.TABLE_UNKNOWN("the catalog has no table of this UUID", got=table_uuid)
    return namespace.levels, row


def to_base(catalog: Catalog, levels: Levels, state: TableState) -> Base:
    """The state as the value that the gate checks."""
    name = full_name((*levels, state.row.name))
    return Base(TableRef(catalog.name, state.row.table_uuid, name), state.row, state.metadata)


def open_target(ledger: Ledger, clock: LedgerClock, catalog: Catalog, table_uuid: str, steward_grant: Grant) -> Target:
    """The target of the table with this UUID, in the Steward's own catalog or at an upstream."""
    with ledger.read() as unit:
        row = tables.find_by_uuid(unit, table_uuid)
    if row is None or row.upstream is None:
        return CatalogTarget(ledger, catalog, table_uuid, steward_grant)
    return UpstreamTarget(ledger, clock, catalog, table_uuid)


def fence_name(announced_id: str) -> str:
    """The name of the fence: the ref that prevents an announced publication from ever becoming visible."""
    return f"{FENCE_PREFIX}{announced_id}"


class UpstreamTarget:
    """A table at its upstream, found by UUID. Its staging branches stay until the publication's result is known."""

    removes_branches = False

    def __init__(self, ledger: Ledger, clock: LedgerClock, catalog: Catalog, table_uuid: str) -> None:
        self._ledger = ledger
        self._clock = clock
        self._catalog = catalog
        self._uuid = table_uuid

    def load(self) -> Base:
        """The table as its upstream shows it now. Raises `upstream_main_moved` if `main` is not proved."""
        levels, row = find_row_by_uuid(self._ledger, self._uuid)
        state = self._catalog.states.load_newest(row)
        require_proved(self._ledger, state, Code.UPSTREAM_MAIN_MOVED)
        return to_base(self._catalog, levels, state)

    def publish(self, make: _Make, in_transaction: _InTransaction, then: Callable[[PublishedSnapshot], None]) -> None:
        """Announce, commit and settle. If the base has changed, all three are tried again."""
        levels, row = find_row_by_uuid(self._ledger, self._uuid)
        with self._catalog.commits.turn([(levels, row.name)]):
            then(retry_if_row_changed(lambda: self._try(make, in_transaction)))

    def read_back(self) -> Base:
        """The table through new connections to ledger and upstream."""
        ledger = self._ledger.with_new_connections()
        states = self._catalog.states.with_ledger(ledger)
        try:
            levels, row = find_row_by_uuid(ledger, self._uuid)
            return to_base(self._catalog, levels, states.load(row))
        finally:
            states.upstreams.close()

    def settle(self, publication: AnnouncedPublication) -> PublishedSnapshot | None:
        """The published snapshot if `main` shows it; None if it certainly never will.

        Nothing is sent twice. If the publication is not visible, this creates a fence: a ref that must not exist when
        the publication's request arrives, so a late request fails. Only then does the ledger release the publication.
        Raises `upstream_contradicts` if the table has the snapshot, but not in `main` as it was sent. If the result
        cannot be found out, the announcement stays open, and this raises `upstream_unknown`.
        """
        changes = LedgerChanges.from_text(publication.order_text)
        last_error: PvdmError | None = None
        ends = time.monotonic() + SETTLE_BEGIN_MAX_SECONDS
        for tries in range(SETTLE_TRIES_MAX):
            if tries and time.monotonic() > ends:
                break  # the upstream is slow, and other work waits for this thread; a later call tries again
            time.sleep(_POLL_SECONDS * tries)
            try:
                base = self.read_back()
                if has_or_had_snapshot(base.metadata, changes.shown.new_snapshot_id):
                    return self._complete(publication, changes, base)
                if fence_name(publication.announced_id) in base.metadata.refs:
                    self._release(publication)
                    return None
                self._fence(publication, base)
            except (ConflictError, InputError, StateUnknownError, UnavailableError) as error:
                if error.code in _NOT_RETRIED:
                    raise
                last_error = error
        raise _unknown_error(publication, "nothing" if last_error is None else last_error.reason) from last_error

    def _try(self, make: _Make, in_transaction: _InTransaction) -> PublishedSnapshot:
        """Publish once. An error while the announcement is open becomes `upstream_unknown`."""
        self._await_turn()
        base = self.load()
        self._catalog.upstreams.require_lossless(base.row, _upstream_state(base))
        made = make(base)
        # Without a staged branch there may be no snapshot for a fence, which is a ref.
        if not any(name in base.metadata.refs for name in made.branches):
            raise Code.UPSTREAM_NOTHING_STAGED(got="none")
        after = apply_updates(
            base.metadata,
            made.updates,
            now_ms=max(self._clock.now_micros() // 1_000, base.metadata.last_updated_ms),
            previous_location=base.row.pointer.location,
        )
        made.permit(after, after.to_bytes())  # raises if a check fails; an upstream takes no permit
        publication = self._announce(base, after, in_transaction)
        _IN_PROGRESS.add(publication.announced_id)
        try:
            fault.point("upstream.after_announce")
            return self._send(publication, base, made)
        except StateUnknownError:
            raise
        except PvdmError as error:
            if self._is_open(publication):
                raise _unknown_error(publication, error.reason) from error
            raise
        finally:
            _IN_PROGRESS.discard(publication.announced_id)

    def _send(self, publication: AnnouncedPublication, base: Base, made: NextCommit) -> PublishedSnapshot:
        """Commit at the upstream, then settle. The state that is read back decides, not the upstream's response."""
        refs = (*made.branches, fence_name(publication.announced_id))
        refusal: PvdmError | None = None
        try:
            self._catalog.upstreams.commit(base.row, _upstream_state(base), pin_base(base.metadata, refs), made.updates)
        except (ConflictError, InputError, StateUnknownError, UnavailableError) as error:
            refusal = error
        fault.point("upstream.after_swap")
        shown = self.settle(publication)
        if shown is not None:
            return shown
        if refusal is None or isinstance(refusal, StateUnknownError):
            message, hint = "the upstream does not show the publication", "the Steward tries the publication again"
            raise ConflictError(Code.UPSTREAM_MOVED, message, got="nothing", hint=hint)
        raise refusal

    def _announce(self, base: Base, after: TableMetadata, in_transaction: _InTransaction) -> AnnouncedPublication:
        """The gate's check 12: try the ledger's changes in a dry run, then announce them.

        While the publication is open, no other work can make the changes invalid.
        """

        def work(unit: Unit) -> AnnouncedPublication:
            tables.lock(unit, [base.row.table_uuid])
            row = tables.note_upstream_pointer(unit, base.row, base.row.pointer)
            announced.require_no_open_publication(unit, base.row.table_uuid)
            with unit.dry_run():
                changes = in_transaction(unit, row)
                apply_changes(unit, changes)
            shown = changes.shown
            made = after.snapshot(shown.new_snapshot_id)
            record_snapshots(unit, base.row.table_uuid, after, [] if made is None else [made])
            return announced.announce(
                unit,
                NewAnnouncement(
                    secrets.token_hex(16),
                    base.row.table_uuid,
                    shown.workload_id,
                    str(shown.new_snapshot_id),
                    tuple((each.attempt_id, each.nonce) for each in changes.attempts),
                    changes.override_nonce,
                    _HOLDER,
                    changes.to_text(),
                ),
            )

        return self._ledger.transact(work, at_micros=self._clock.now_micros())

    def _complete(self, publication: AnnouncedPublication, changes: LedgerChanges, base: Base) -> PublishedSnapshot:
        """Store the publication in the ledger. Raises `announced_settled` if it is stored already."""
        self._require_as_sent(base, changes)
        fault.point("upstream.after_look")

        def work(unit: Unit) -> PublishedSnapshot:
            tables.lock(unit, [base.row.table_uuid])
            if not announced.settle(unit, publication.announced_id, AnnouncedState.DONE, reason="main shows it"):
                raise Code.ANNOUNCED_SETTLED("another Steward has settled the publication")
            row = tables.note_upstream_pointer(unit, base.row, base.row.pointer)
            seen = changes.with_upstream_metadata(
                metadata_path=row.pointer.location, metadata_sha256=row.pointer.sha256, published_at=unit.at_micros
            )
            return apply_changes(unit, seen)

        return self._ledger.transact(work, at_micros=self._clock.now_micros())

    def _release(self, publication: AnnouncedPublication) -> None:
        def work(unit: Unit) -> None:
            announced.settle(unit, publication.announced_id, AnnouncedState.RELEASED, reason="main can never show it")

        self._ledger.transact(work, at_micros=self._clock.now_micros())

    def _fence(self, publication: AnnouncedPublication, base: Base) -> None:
        """Commit a fence to the upstream, on the condition that `main` has not moved since it was read."""
        name = fence_name(publication.announced_id)
        # A ref needs a snapshot: main's, or a staged one if main is empty.
        main = base.metadata.current_snapshot_id
        at = base.metadata.snapshots[-1].snapshot_id if main is None else main
        update: Json = {"action": "set-snapshot-ref", "ref-name": name, "type": "branch", "snapshot-id": at}
        pinned = [pin_ref(base.metadata, ref) for ref in (name, MAIN)]
        required: list[Json] = [{"type": "assert-table-uuid", "uuid": base.row.table_uuid}, *pinned]
        fault.point("upstream.before_fence")
        self._catalog.upstreams.commit(base.row, _upstream_state(base), required, [update])

    def _await_turn(self) -> None:
        """Wait until no other publication to the table is open. Settle a publication that does not end in time.

        If this process announced it and no thread works on it any more, settle it at once.
        """
        ends = time.monotonic() + UPSTREAM_TURN_MAX_SECONDS
        while (publication := self._find_open()) is not None:
            abandoned = publication.holder == _HOLDER and publication.announced_id not in _IN_PROGRESS
            if abandoned or time.monotonic() >= ends:
                self.settle(publication)
            else:
                time.sleep(_POLL_SECONDS)

    def _find_open(self) -> AnnouncedPublication | None:
        with self._ledger.read() as unit:
            return announced.find_open(unit, self._uuid)

    def _is_open(self, publication: AnnouncedPublication) -> bool:
        with self._ledger.read() as unit:
            return announced.get(unit, publication.announced_id).state is AnnouncedState.OPEN

    def _require_as_sent(self, base: Base, changes: LedgerChanges) -> None:
        """Raise unless the history of `main` has exactly the snapshot that the gate made, compared by hash."""
        metadata, wanted, current = base.metadata, changes.shown, base.metadata.current_snapshot_id
        history = {each.snapshot_id: each for each in list_main_history(metadata)}
        found = history.get(wanted.new_snapshot_id)
        if found is not None:
            with self._ledger.read() as unit:
                if is_known(unit, self._uuid, metadata, found):
                    return
        raise Code.UPSTREAM_CONTRADICTS(
            expected=f"snapshot {wanted.new_snapshot_id} on {wanted.old_snapshot_id} in main, as it was sent",
            got=f"main at {current}" if found is None else f"{found.manifest_list} on {found.parent_id}"[:200],
        )


_NOT_RETRIED: Final = frozenset({Code.ANNOUNCED_SETTLED, Code.UPSTREAM_CONTRADICTS})


def has_or_had_snapshot(metadata: TableMetadata, snapshot_id: int) -> bool:
    """Whether the table has the snapshot or shows that it had it: as a parent, or in the snapshot log."""
    logged = {entry.snapshot_id for entry in metadata.snapshot_log}
    parents = {each.parent_id for each in metadata.snapshots}
    return metadata.snapshot(snapshot_id) is not None or snapshot_id in logged | parents


def _upstream_state(base: Base) -> UpstreamState:
    return UpstreamState(base.row.pointer.location, base.metadata)


def _unknown_error(publication: AnnouncedPublication, got: str) -> StateUnknownError:
    return StateUnknownError(
        Code.UPSTREAM_UNKNOWN,
        "whether the upstream shows the publication is not known yet",
        expected=f"snapshot {publication.snapshot_id} in main, or a fence against it",
        got=got,
        hint="the Steward keeps asking the upstream; until it answers, nothing is sent again and nothing is taken back",
        workload_id=publication.workload_id,
    )
