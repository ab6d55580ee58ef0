"""What `main` of a protected table at an upstream may show: what was published here, or what protection found."""

from __future__ import annotations

from pvdm.catalog.state import TableState
from pvdm.errors import ConflictError, NotAllowedError
from pvdm.lake.format.snapshots import Snapshot
from pvdm.metadata.order import Order
from pvdm.model.migration import Protection, TableTarget
from pvdm.store import Ledger, Unit, announced, chunks, protections, statements
from pvdm.store.tables import TableRow
from pvdm.trust.statement import read_signed


def is_proved(unit: Unit, row: TableRow, shown: Snapshot | None) -> bool:
    """Whether the gate has sent this snapshot of the table, or an operator has seen it when the table came under."""
    snapshot_id = None if shown is None else shown.snapshot_id
    if shown is not None:
        said = announced.of_snapshot(unit, row.table_uuid, str(shown.snapshot_id))
        if said is not None:  # an id alone is nobody's word
            return Order.from_text(said.order).manifest_list == shown.manifest_list
        if chunks.is_published_at(unit, row.table_uuid, str(shown.snapshot_id)):
            return True
    newest = protections.newest_of(unit, row.table_uuid)
    if newest is None:
        return snapshot_id is None  # protected with its namespace, and then it was empty
    target = read_signed(statements.get(unit, newest).envelope, Protection).target
    return isinstance(target, TableTarget) and target.snapshot_id == snapshot_id


def require_proved(ledger: Ledger, state: TableState) -> None:
    """A consumer is not shown by us what somebody put onto `main` at the upstream, past every check."""
    if not _is_in_doubt(ledger, state):
        return
    raise NotAllowedError(
        "main_unproved",
        f"{state.row.name} is protected, and the upstream's main shows what nobody proved",
        expected="a snapshot that was published by pvdm",
        got=f"snapshot {state.metadata.current_snapshot_id}",
        hint="an operator runs an audit, and takes it back at the upstream or protects the table anew as it is",
    )


def require_base(ledger: Ledger, state: TableState) -> None:
    """Nothing is published on top of what nobody proved: a receipt would seem to vouch for it."""
    if not _is_in_doubt(ledger, state):
        return
    raise ConflictError(
        "upstream_main_moved",
        f"main of {state.row.name} was moved at the upstream, past the gate",
        expected="a snapshot that was published by pvdm",
        got=f"snapshot {state.metadata.current_snapshot_id}",
        hint="nothing was published, and nothing is lost; an operator runs an audit, and takes the snapshot back"
        " at the upstream or protects the table anew as it is",
    )


def _is_in_doubt(ledger: Ledger, state: TableState) -> bool:
    row = state.row
    if row.upstream is None or not row.protected:
        return False
    with ledger.read() as unit:
        return not is_proved(unit, row, state.metadata.current_snapshot)
