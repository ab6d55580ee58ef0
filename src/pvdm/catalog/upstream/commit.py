"""Commits to an upstream's table: judged here as every commit is, then compared and swapped there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pvdm import fault
from pvdm.catalog.requests import after_change
from pvdm.catalog.rule import added_snapshots
from pvdm.catalog.staging_quota import Making
from pvdm.catalog.state import States, TableState
from pvdm.catalog.upstream.requirements import pins_of
from pvdm.catalog.upstream.tables import Upstreams
from pvdm.errors import NotAllowedError
from pvdm.lake.format.json.document import Json
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.upstream import Seen
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import tables
from pvdm.ledger.catalog.tables import TableRow
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.work import announced

# Runs in the transaction of the swap, with the rows as they are after it.
Extra = Callable[[Unit, Sequence[TableRow]], None]
# Runs the swap inside a transaction that holds more than the swap, all or nothing.
Transact = Callable[[Callable[[Unit], list[TableRow]]], list[TableRow]]


@dataclass(frozen=True, slots=True)
class Step:
    """One table's judged step: the updates that lead from what was seen to what may be."""

    before: TableState
    after: TableMetadata
    requirements: Sequence[Json]
    updates: Sequence[Json]
    making: Making | None


class Forwarding:
    """Sends judged steps on; what the ledger has to say about them follows the upstream's word."""

    def __init__(self, ledger: Ledger, clock: LedgerClock, states: States, upstreams: Upstreams) -> None:
        self._ledger = ledger
        self._clock = clock
        self._states = states
        self._upstreams = upstreams

    def forward(self, step: Step, extra: Extra | None, transact: Transact | None) -> TableState:
        """One compare-and-swap there, then one transaction here; between the two nobody hears that nothing was."""
        before = step.before
        if step.after is before.metadata:
            return replace(before, row=self._noted(step, before.row, extra, transact))
        self._require_forwarded(step, transact)
        # What stands against it in the ledger is found before anything is sent.
        self._ledger.transact(lambda unit: self._rehearsed(unit, step, extra), at_micros=self._clock.now_micros())
        fault.point("upstream.before_commit")
        seen = Seen(before.row.pointer.location, before.metadata)
        self._upstreams.commit(before.row, seen, pins_of(before.metadata, step.after, step.requirements), step.updates)
        with after_change():
            fault.point("upstream.after_commit")
            now = self._states.of(before.row)
            return replace(now, row=self._noted(step, now.row, extra, None))

    def _require_forwarded(self, step: Step, transact: Transact | None) -> None:
        name = step.before.row.name
        if transact is not None:
            raise NotAllowedError(
                "upstream_migration_refused",
                f"{name} belongs to an upstream catalog, and its structure is not migrated from here",
                expected="a migration of the contract alone",
                got="updates of the table",
                hint="nothing was changed; unprotect it, change it at the upstream, and protect it again",
            )
        if step.after.location != step.before.metadata.location:
            raise NotAllowedError(
                "upstream_owned",
                f"{name} would move to another place",
                expected="a change at the upstream itself",
                got="one through this catalog",
            )

    def _noted(self, step: Step, seen: TableRow, extra: Extra | None, transact: Transact | None) -> TableRow:
        """What was seen, and whatever belongs to the step, in one transaction."""

        def work(unit: Unit) -> list[TableRow]:
            row = tables.observe(unit, seen, seen.pointer)
            if step.making is not None:
                step.making.note(unit, row)
            if extra is not None:
                extra(unit, [row])
            return [row]

        if transact is not None:
            return transact(work)[0]
        return self._ledger.transact(work, at_micros=self._clock.now_micros())[0]

    def _rehearsed(self, unit: Unit, step: Step, extra: Extra | None) -> None:
        if step.before.row.protected:
            added = added_snapshots(step.before.metadata, step.after)
            announced.require_unsaid(unit, step.before.row.table_uuid, [str(each.snapshot_id) for each in added])
        with unit.rehearsed():
            row = tables.observe(unit, step.before.row, step.before.row.pointer)
            if extra is not None:
                extra(unit, [row])
