"""Publications of a time that a restored backup does not know: their workload ids are used up for ever."""

from __future__ import annotations

from sqlalchemy import select

from pvdm.errors import VerificationError
from pvdm.store import ids
from pvdm.store.schema import spent
from pvdm.store.unit import Unit


def put(unit: Unit, workload_id: str, chunk_id: str, *, snapshot_id: str, receipt_id: str) -> None:
    """Remember that the chunk is published; once more is no change."""
    unit.insert_new(
        spent,
        workload_id=ids.workload_id(workload_id),
        chunk_id=ids.name(chunk_id, "chunk id"),
        snapshot_id=ids.snapshot_id(snapshot_id),
        receipt_id=receipt_id,
    )


def require_unspent(unit: Unit, workload_id: str) -> None:
    """A workload that a lost receipt names cannot be opened again: part of it is published."""
    wanted = select(spent).where(spent.c.workload_id == workload_id).order_by(spent.c.chunk_id).limit(1)
    row = unit.row(wanted)
    if row is not None:
        raise VerificationError(
            "workload_spent",
            f"workload {workload_id} was published before the ledger was restored",
            expected="a workload that no receipt names",
            got=f"chunk {row['chunk_id']} as snapshot {row['snapshot_id']}",
            hint="nothing was opened, and the rows of that chunk are in the table: do not publish them under another "
            "workload id; chunks of this workload that the table lacks are published under another id",
            workload_id=workload_id,
        )
