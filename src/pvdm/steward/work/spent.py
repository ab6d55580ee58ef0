"""Describes workloads that were published in the time that a restore has lost: their chunks, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence

from pvdm.errors import Code, PvdmError
from pvdm.ledger import Unit
from pvdm.ledger.record import restores, statements
from pvdm.ledger.record.restores import UsedChunk
from pvdm.ledger.work import chunks, claims, workloads
from pvdm.ledger.work.chunks import ChunkPublication
from pvdm.model.filter.claim import way_to_publish_rest
from pvdm.model.printable import list_first
from pvdm.model.statements.kind import StatementKind
from pvdm.model.statements.proof import Proof
from pvdm.model.statements.receipt import Receipt
from pvdm.model.statements.table import TableRef
from pvdm.trust.statement import read_unchecked


def find_spent_table(unit: Unit, workload_id: str) -> TableRef | None:
    """The table that the workload published to in the lost time; None if it published nothing then."""
    used = restores.list_used_chunks(unit, workload_id)
    if not used:
        return None
    stored = statements.get(unit, used[0].statement_id)
    if stored.kind is StatementKind.RECEIPT:
        return read_unchecked(stored.envelope, Receipt).table
    return read_unchecked(stored.envelope, Proof).core.target.table


def spent_error(unit: Unit, workload_id: str, table: TableRef) -> PvdmError:
    """`workload_spent` with the published chunks, the missing ones if the ledger has the plan, and the next step."""
    used = restores.list_used_chunks(unit, workload_id)
    published: list[UsedChunk | ChunkPublication] = [*used, *chunks.list_publications(unit, workload_id)]
    names = sorted({each.chunk_id for each in published})
    missing = _find_missing(unit, workload_id, names)
    details: dict[str, str] = {"table": table.name, "published_chunks": list_first(names)}
    if missing is not None:
        details["missing_chunks"] = list_first(missing) or "none"
    described = [f"chunk {each.chunk_id} of {table.name} as snapshot {each.snapshot_id}" for each in published]
    return Code.WORKLOAD_SPENT(
        f"workload {workload_id} was published before the ledger was restored",
        got=list_first(described),
        hint=_next_step(unit, workload_id, table, missing),
        workload_id=workload_id,
        **details,
    )


def _find_missing(unit: Unit, workload_id: str, published: Sequence[str]) -> list[str] | None:
    """The planned chunks that are not published; None if there is no plan, or if the plan lacks a published chunk."""
    if workloads.find(unit, workload_id) is None:
        return None
    planned = [each.chunk_id for each in chunks.list_by_workload(unit, workload_id)]
    return None if set(published) - set(planned) else [each for each in planned if each not in published]


def _next_step(unit: Unit, workload_id: str, table: TableRef, missing: Sequence[str] | None) -> str:
    done = (
        "nothing was changed; the rows of the published chunks are in the table, unless the restore named the "
        "publication as unclear: in that case compare the table with its source"
    )
    if missing is not None and not missing:
        return f"{done}. Every chunk is published: do not publish them under another workload id"
    known = "Other chunks are missing" if missing else "The ledger does not know whether chunks are missing: compare"
    return f"{done}. {known}; {_way_to_publish_missing(unit, workload_id, table)}"


def _way_to_publish_missing(unit: Unit, workload_id: str, table: TableRef) -> str:
    claim = claims.find(unit, workload_id, target=table.uuid)
    if claim is not None:
        return way_to_publish_rest(claim.text)
    lost = [each for each in restores.list_lost_claims_of(unit, workload_id) if each.release_id is None]
    if lost:
        return (
            "its claim is lost, so that no workload can append: release it (`pvdm claims release`), and then publish "
            "only the missing rows, under a new workload id"
        )
    return (
        "the workload has no claim: with a contract that overwrites, run the whole part under a new workload id; "
        "with one that appends, publish only the missing rows, since the gate does not notice rows that come twice"
    )
