"""Publications of a time that a restored backup does not know: their workload ids are used up for ever."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select

from pvdm.errors import VerificationError
from pvdm.ledger import ids
from pvdm.ledger.schema.work import spent
from pvdm.ledger.unit import Unit


@dataclass(frozen=True, slots=True)
class SpentChunk:
    """A chunk that was published, or may have been; the statement is its receipt, or its proof where that is lost."""

    chunk_id: str
    snapshot_id: str
    statement_id: str


def put(unit: Unit, workload_id: str, chunk_id: str, *, snapshot_id: str, receipt_id: str) -> None:
    """Remember that the chunk is published; once more is no change."""
    unit.insert_new(
        spent,
        workload_id=ids.workload_id(workload_id),
        chunk_id=ids.name(chunk_id, "chunk id"),
        snapshot_id=ids.snapshot_id(snapshot_id),
        receipt_id=receipt_id,
    )


def of_workload(unit: Unit, workload_id: str) -> list[SpentChunk]:
    """The workload's chunks that are used up, by id."""
    wanted = select(spent).where(spent.c.workload_id == workload_id).order_by(spent.c.chunk_id)
    return [SpentChunk(row["chunk_id"], row["snapshot_id"], row["receipt_id"]) for row in unit.rows(wanted)]


def require_unspent(unit: Unit, workload_id: str) -> None:
    """A workload that a lost receipt names cannot be opened again: part of it is published."""
    held = of_workload(unit, workload_id)
    if held:
        raise refusal(workload_id, f"chunk {held[0].chunk_id} as snapshot {held[0].snapshot_id}")


def refusal(workload_id: str, published: str) -> VerificationError:
    """Why nothing is done with a workload of this id, and what of it is published."""
    return VerificationError(
        "workload_spent",
        f"workload {workload_id} was published before the ledger was restored",
        expected="a workload that no receipt names",
        got=published,
        hint="nothing was changed; the rows are in the table, unless the restore named the publication as unclear: "
        "compare the table then. Do not publish these chunks under another workload id; chunks of this workload that "
        "the table lacks are published under another id",
        workload_id=workload_id,
    )
