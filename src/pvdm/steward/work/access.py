"""A workload as somebody asks for it by its id, limited to the bearer's domain."""

from __future__ import annotations

from pvdm.ledger import Unit
from pvdm.ledger.catalog import tables
from pvdm.ledger.record import restores, statements
from pvdm.ledger.record.restores import UsedChunk
from pvdm.ledger.record.tokens import EVERY_DOMAIN, Grant
from pvdm.ledger.schema.record import StatementKind
from pvdm.ledger.work import chunks, workloads
from pvdm.ledger.work.chunks import Published
from pvdm.ledger.work.workloads import Workload
from pvdm.model.plain import list_first
from pvdm.model.statements.proof import Proof
from pvdm.model.statements.receipt import Receipt
from pvdm.model.statements.table import TableRef
from pvdm.model.states import WorkloadState
from pvdm.steward.access import require_domain
from pvdm.trust.statement import read_signed


def get_workload(unit: Unit, grant: Grant, workload_id: str) -> Workload:
    """The workload, if it is of the bearer's domain.

    Raise `workload_spent` for one whose publication a restore knows by a receipt or a proof alone.
    """
    found = workloads.find(unit, workload_id)
    if found is None:
        _require_unspent(unit, grant, workload_id)
        found = workloads.get(unit, workload_id)  # says that it is unknown
    require_domain(grant, found.opening.domain)
    require_not_published_since(unit, found)
    return found


def require_not_published_since(unit: Unit, workload: Workload) -> None:
    """Raise `workload_spent` for a workload that a restore gave up, and that was published after the backup."""
    workload_id = workload.opening.workload_id
    held = restores.list_used_chunks(unit, workload_id) if workload.state is WorkloadState.ABANDONED else []
    if held:
        table = _table_of(unit, held[0].statement_id)
        shown: list[UsedChunk | Published] = [*held, *chunks.publications(unit, workload_id)]
        raise restores.used_workload_error(workload_id, list_first([_describe(table, each) for each in shown]))


def _require_unspent(unit: Unit, grant: Grant, workload_id: str) -> None:
    held = restores.list_used_chunks(unit, workload_id)
    if not held:
        return
    shown = []
    for each in held:
        table = _table_of(unit, each.statement_id)
        row = tables.find_by_uuid(unit, table.uuid)
        require_domain(grant, EVERY_DOMAIN if row is None else row.domain)
        shown.append(_describe(table, each))
    raise restores.used_workload_error(workload_id, list_first(shown))


def _describe(table: TableRef, each: UsedChunk | Published) -> str:
    return f"chunk {each.chunk_id} of {table.name} as snapshot {each.snapshot_id}"


def _table_of(unit: Unit, statement_id: str) -> TableRef:
    """The table that the receipt, or the proof where there is no receipt, is about."""
    stored = statements.get(unit, statement_id)
    if stored.kind is StatementKind.RECEIPT:
        return read_signed(stored.envelope, Receipt).table
    return read_signed(stored.envelope, Proof).core.target.table
