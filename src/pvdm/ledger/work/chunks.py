"""Chunks: planned with their workload, never changed, each published at most once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import func, select

from pvdm.errors import Code
from pvdm.ledger import ids
from pvdm.ledger.connection import Row, convert_if_found, record_from, record_if_found
from pvdm.ledger.schema.work import chunks, published, workloads
from pvdm.ledger.unit import Unit
from pvdm.model.chunk import CHUNK_DEFINITION_MAX_BYTES

CHUNKS_MAX: Final = 100_000
CHUNKS_PAGE_MAX_ROWS: Final = 1_000
CHUNKS_PAGE_MAX_BYTES: Final = 4_194_304
EXTENT_COLUMNS: Final = ("rows_added", "files_added", "rows_removed", "files_removed")


@dataclass(frozen=True, slots=True)
class Chunk:
    """One part of the plan. `definition` is the canonical JSON of `pvdm.model.chunk.ChunkDefinition`."""

    chunk_id: str
    definition: bytes


@dataclass(frozen=True, slots=True)
class Extent:
    """The rows and files that a chunk adds, and those that its snapshot removes.

    Chunks that are published together share one snapshot, so they have the same removed rows and files.
    """

    rows_added: int
    files_added: int
    rows_removed: int
    files_removed: int


@dataclass(frozen=True, slots=True)
class ChunkPublication:
    """The publication of a chunk. `extent` is None if only the receipt was left after a restore."""

    workload_id: str
    chunk_id: str
    attempt_id: str
    nonce: str
    snapshot_id: str
    at_micros: int
    extent: Extent | None = None


def store_plan(unit: Unit, workload_id: str, planned: Sequence[Chunk]) -> None:
    """Store the chunks of a workload that is being opened."""
    if not 1 <= len(planned) <= CHUNKS_MAX:
        expected = f"1 to {CHUNKS_MAX} chunks"
        raise Code.WORKLOAD_INVALID(reason="chunks_too_many", expected=expected, got=str(len(planned)))
    if len({chunk.chunk_id for chunk in planned}) != len(planned):
        raise Code.WORKLOAD_INVALID(reason="chunk_repeated")
    rows = [
        {
            "workload_id": workload_id,
            "chunk_id": ids.require_name(chunk.chunk_id, "chunk id"),
            "ordinal": ordinal,
            "definition": ids.require_text_size(
                chunk.definition.decode(), CHUNK_DEFINITION_MAX_BYTES, "chunk_definition_too_large"
            ),
        }
        for ordinal, chunk in enumerate(planned)
    ]
    unit.insert_many(chunks, rows)


def list_by_workload(unit: Unit, workload_id: str) -> list[Chunk]:
    """The plan, in its order."""
    return unit.records(Chunk, select(chunks).where(chunks.c.workload_id == workload_id).order_by(chunks.c.ordinal))


def find(unit: Unit, workload_id: str, chunk_id: str) -> Chunk | None:
    """One chunk of the plan, or None."""
    return record_if_found(Chunk, unit.find(chunks, workload_id=workload_id, chunk_id=chunk_id))


def page_with_definitions(unit: Unit, workload_id: str, *, start: int, rows: int) -> list[Chunk]:
    """The plan's chunks from the ordinal `start` on: as many as fit on a page, at least one."""
    wanted = select(chunks).where(chunks.c.workload_id == workload_id, chunks.c.ordinal >= start)
    limited = wanted.order_by(chunks.c.ordinal).limit(min(rows, CHUNKS_PAGE_MAX_ROWS))
    found: list[Chunk] = []
    size = 0
    for chunk in unit.records(Chunk, limited):
        size += len(chunk.definition)
        if found and size > CHUNKS_PAGE_MAX_BYTES:
            break
        found.append(chunk)
    return found


def count(unit: Unit, workload_id: str) -> int:
    """How many chunks the plan has."""
    wanted = select(func.count()).select_from(chunks).where(chunks.c.workload_id == workload_id)
    return int(unit.execute(wanted).scalar_one())


def count_by_workload(unit: Unit, workload_ids: Sequence[str]) -> dict[str, int]:
    """How many chunks the plan of each of these workloads has."""
    wanted = select(chunks.c.workload_id, func.count().label("planned")).where(chunks.c.workload_id.in_(workload_ids))
    return {row["workload_id"]: int(row["planned"]) for row in unit.rows(wanted.group_by(chunks.c.workload_id))}


def page_ids(unit: Unit, workload_id: str, *, start: int, rows: int) -> list[str]:
    """The ids of the plan's chunks from the ordinal `start` on, at most `rows`."""
    wanted = select(chunks.c.chunk_id).where(chunks.c.workload_id == workload_id, chunks.c.ordinal >= start)
    limited = wanted.order_by(chunks.c.ordinal).limit(min(rows, CHUNKS_PAGE_MAX_ROWS))
    return [row["chunk_id"] for row in unit.rows(limited)]


def find_publication(unit: Unit, workload_id: str, chunk_id: str) -> ChunkPublication | None:
    """The chunk's publication, or None."""
    return convert_if_found(_to_publication, unit.find(published, workload_id=workload_id, chunk_id=chunk_id))


def list_publications(unit: Unit, workload_id: str, chunk_ids: Sequence[str] | None = None) -> list[ChunkPublication]:
    """The publications of a workload's chunks in the plan's order; only those of `chunk_ids`, if they are given."""
    same_chunk = (chunks.c.workload_id == published.c.workload_id) & (chunks.c.chunk_id == published.c.chunk_id)
    wanted = select(published).join(chunks, same_chunk).where(published.c.workload_id == workload_id)
    if chunk_ids is not None:
        wanted = wanted.where(published.c.chunk_id.in_(chunk_ids))
    return [_to_publication(row) for row in unit.rows(wanted.order_by(chunks.c.ordinal))]


def count_published(unit: Unit, workload_id: str) -> int:
    """How many chunks of the plan are published."""
    wanted = select(func.count()).select_from(published).where(published.c.workload_id == workload_id)
    return int(unit.execute(wanted).scalar_one())


def find_publications_of_attempts(unit: Unit, attempt_ids: Sequence[str]) -> dict[str, ChunkPublication]:
    """The publications of these attempts, by attempt id. Unpublished attempts are left out."""
    wanted = select(published).where(published.c.attempt_id.in_(attempt_ids))
    return {row["attempt_id"]: _to_publication(row) for row in unit.rows(wanted)}


def is_published_at(unit: Unit, table_uuid: str, snapshot_id: str) -> bool:
    """Whether the gate has published this snapshot of the table."""
    same_workload = workloads.c.workload_id == published.c.workload_id
    wanted = select(published.c.snapshot_id).join(workloads, same_workload)
    wanted = wanted.where(workloads.c.table_uuid == table_uuid, published.c.snapshot_id == snapshot_id)
    return unit.row(wanted.limit(1)) is not None


def find_published_snapshots(unit: Unit, snapshot_ids: Sequence[str]) -> set[str]:
    """The ids among `snapshot_ids` that were ever published, to any table."""
    rows = unit.rows_with(select(published.c.snapshot_id), published.c.snapshot_id, snapshot_ids)
    return {row["snapshot_id"] for row in rows}


def _to_publication(row: Row) -> ChunkPublication:
    counts = [row[name] for name in EXTENT_COLUMNS]
    return record_from(ChunkPublication, row, extent=None if None in counts else Extent(*counts))
