"""Tables at an upstream catalog: whether `main` of a protected one is proved, and commits that are forwarded there."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pvdm import fault
from pvdm.catalog.requests import failures_mean_state_unknown
from pvdm.catalog.responses import list_main_history
from pvdm.catalog.rule import added_snapshots, ref_changes
from pvdm.catalog.sanity import StagedAdditions
from pvdm.catalog.state import States, TableState
from pvdm.catalog.upstreams import Upstreams
from pvdm.errors import Code
from pvdm.lake.format.json_document import Json, comparison_text
from pvdm.lake.format.table.main_state import structure_sha256
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import MAIN, Snapshot
from pvdm.lake.upstream import UpstreamState
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import snapshots as known_snapshots
from pvdm.ledger.catalog import tables
from pvdm.ledger.catalog.tables import TableRow
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record import protections, statements
from pvdm.ledger.work import announced
from pvdm.model.statements.migration import Protection, TableTarget
from pvdm.trust.statement import read_unchecked

# Called in the transaction that updates the ledger's pointers, with the tables' rows after it.
Hook = Callable[[Unit, Sequence[TableRow]], None]
# Runs the given update of the pointers inside a larger transaction, and returns the rows. Only migrations use it.
Transact = Callable[[Callable[[Unit], list[TableRow]]], list[TableRow]]

# Keys of a snapshot's summary with these prefixes have counts as values.
_COUNT_PREFIXES: Final = ("added-", "deleted-", "removed-", "total-")


def record_snapshots(unit: Unit, table_uuid: str, metadata: TableMetadata, snapshots: Iterable[Snapshot]) -> None:
    """Store the hashes of these snapshots' facts. In the history of `main` only snapshots with a stored hash may be."""
    hashes = {str(each.snapshot_id): facts_sha256(metadata, each) for each in snapshots}
    known_snapshots.add_known(unit, table_uuid, hashes, structure_sha256=structure_sha256(metadata))


def facts_sha256(metadata: TableMetadata, snapshot: Snapshot) -> str:
    """The hash of everything in a snapshot that readers use.

    The counts of its summary are included: engines answer `count(*)` from them, and the next publication adds to them.
    """
    facts: list[Json] = [
        snapshot.snapshot_id,
        snapshot.parent_id,
        snapshot.sequence_number,
        snapshot.timestamp_ms,
        snapshot.manifest_list,
        list(snapshot.manifests),
        snapshot.operation,
        snapshot.schema_id,
        snapshot.first_row_id,
        snapshot.added_rows,
        snapshot.key_id,
        {key: text for key, text in snapshot.summary.items() if key.startswith(_COUNT_PREFIXES)},
    ]
    for files in (metadata.statistics, metadata.partition_statistics):
        facts.append(sorted(comparison_text(each.raw) for each in files if each.snapshot_id == snapshot.snapshot_id))
    return hashlib.sha256(comparison_text(facts).encode()).hexdigest()


def is_known(unit: Unit, table_uuid: str, metadata: TableMetadata, snapshot: Snapshot) -> bool:
    """Whether the gate sent, or an operator approved, a snapshot with this id and these facts."""
    key = str(snapshot.snapshot_id), facts_sha256(metadata, snapshot)
    return key in known_snapshots.list_known(unit, table_uuid)


def find_unproved(unit: Unit, row: TableRow, metadata: TableMetadata) -> str | None:
    """What is not proved in `main`: its head, an older snapshot, or the table's structure. None if all is proved."""
    head, known = metadata.current_snapshot_id, known_snapshots.list_known(unit, row.table_uuid)
    newest = protections.find_newest_id(unit, row.table_uuid)
    signed = None if newest is None else read_unchecked(statements.get(unit, newest).envelope, Protection).target
    target = signed if isinstance(signed, TableTarget) else None
    # Without a signed protection of its own the table is protected with its namespace. It was empty when the Steward
    # first served it, so its signed head is None.
    signed_head = None if target is None else target.snapshot_id
    if head != signed_head and (head is None or announced.find_by_snapshot(unit, row.table_uuid, str(head)) is None):
        return "no snapshot" if head is None else f"snapshot {head}"
    proved_structure = None if target is None else target.state.structure_sha256
    for each in list_main_history(metadata):
        structure = known.get((str(each.snapshot_id), facts_sha256(metadata, each)))
        if structure is None:
            return f"snapshot {each.snapshot_id} changed in the history of main, or new there"
        proved_structure = proved_structure or structure  # without a signed structure, that of the newest snapshot
    if proved_structure is not None and proved_structure != structure_sha256(metadata):
        return "other schemas, partition specs, sort orders or properties"
    return None


def require_proved(ledger: Ledger, state: TableState, refusal: Code = Code.MAIN_UNPROVED) -> None:
    """Raise `refusal` if `main` of an upstream's protected table shows anything that is not proved."""
    row = state.row
    if row.upstream is None or not row.protected:
        return
    with ledger.read() as unit:
        found = find_unproved(unit, row, state.metadata)
    if found is not None:
        raise refusal(f"main of {row.name}, which is protected, was changed at the upstream, past the gate", got=found)


@dataclass(frozen=True, slots=True)
class Step:
    """The checked change of one table: the updates that lead from `before` to `after`."""

    before: TableState
    after: TableMetadata
    requirements: Sequence[Json]
    updates: Sequence[Json]
    additions: StagedAdditions | None


class Forwarding:
    """Forwards checked steps to the upstream. The ledger is updated after the upstream has answered."""

    def __init__(self, ledger: Ledger, clock: LedgerClock, states: States, upstreams: Upstreams) -> None:
        self._ledger = ledger
        self._clock = clock
        self._states = states
        self._upstreams = upstreams

    def forward(self, step: Step, hook: Hook | None, transact: Transact | None) -> TableState:
        """Commit at the upstream, then update the ledger. A failure after the commit becomes StateUnknownError."""
        before = step.before
        if step.after is before.metadata:
            return replace(before, row=self._store_observed(step, before.row, hook, transact))
        self._require_forwardable(step, transact)
        # Conflicts in the ledger are found before anything is sent.
        self._ledger.transact(lambda unit: self._dry_run(unit, step, hook), at_micros=self._clock.now_micros())
        fault.point("upstream.before_commit")
        seen = UpstreamState(before.row.pointer.location, before.metadata)
        self._upstreams.commit(before.row, seen, _requirements_of(step), step.updates)
        with failures_mean_state_unknown():
            fault.point("upstream.after_commit")
            now = self._states.load(before.row)
            return replace(now, row=self._store_observed(step, now.row, hook, None))

    def _require_forwardable(self, step: Step, transact: Transact | None) -> None:
        name = step.before.row.name
        if transact is not None:  # a migration, which must be logged and applied at once
            message = f"{name} belongs to an upstream catalog, and its structure is not migrated from here"
            raise Code.UPSTREAM_MIGRATION_REFUSED(message, got="updates of the table")
        if step.after.location != step.before.metadata.location:
            raise Code.UPSTREAM_OWNED(f"{name} would move to another place", got="one through this catalog")

    def _store_observed(self, step: Step, seen: TableRow, hook: Hook | None, transact: Transact | None) -> TableRow:
        """In one transaction, store the pointer seen at the upstream and the step's additions, and run the hook."""

        def work(unit: Unit) -> list[TableRow]:
            row = tables.note_upstream_pointer(unit, seen, seen.pointer)
            if step.additions is not None:
                step.additions.note(unit, row)
            if hook is not None:
                hook(unit, [row])
            return [row]

        if transact is not None:
            return transact(work)[0]
        return self._ledger.transact(work, at_micros=self._clock.now_micros())[0]

    def _dry_run(self, unit: Unit, step: Step, hook: Hook | None) -> None:
        """Raise the conflicts that `_store_observed` would have now; store nothing."""
        if step.before.row.protected:
            added = added_snapshots(step.before.metadata, step.after)
            announced.require_unannounced(unit, step.before.row.table_uuid, [str(each.snapshot_id) for each in added])
        with unit.dry_run():
            row = tables.note_upstream_pointer(unit, step.before.row, step.before.row.pointer)
            if hook is not None:
                hook(unit, [row])


def pin_base(before: TableMetadata, refs: Iterable[str]) -> list[Json]:
    """The requirements that UUID, `main`, these refs, schema, spec, sort order and the last ids are unchanged."""
    found: list[Json] = [{"type": "assert-table-uuid", "uuid": str(before.table_uuid)}]
    found += [pin_ref(before, name) for name in sorted({MAIN, *refs})]
    found += [
        {"type": "assert-current-schema-id", "current-schema-id": before.current_schema_id},
        {"type": "assert-default-spec-id", "default-spec-id": before.default_spec_id},
        {"type": "assert-default-sort-order-id", "default-sort-order-id": before.default_sort_order_id},
        {"type": "assert-last-assigned-field-id", "last-assigned-field-id": before.last_column_id},
        {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": before.last_partition_id},
    ]
    return found


def pin_ref(before: TableMetadata, name: str) -> Json:
    """The requirement that the ref is where it was, or still does not exist."""
    ref = before.refs.get(name)
    return {"type": "assert-ref-snapshot-id", "ref": name, "snapshot-id": None if ref is None else ref.snapshot_id}


def _requirements_of(step: Step) -> list[Json]:
    """The requirements to send: that the checked base is unchanged, and those of the client."""
    own = pin_base(step.before.metadata, [change.name for change in ref_changes(step.before.metadata, step.after)])
    texts = {comparison_text(each) for each in own}
    return [*own, *(each for each in step.requirements if comparison_text(each) not in texts)]
