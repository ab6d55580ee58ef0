"""Workloads: opened once by id; the same id with other parameters is an error."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from sqlalchemy import and_, func, or_, select

from pvdm.errors import Code
from pvdm.ledger import ids
from pvdm.ledger.connection import Row, convert_if_found, record_from
from pvdm.ledger.record import restores
from pvdm.ledger.schema.work import published, workloads
from pvdm.ledger.unit import Unit, select_page, where_given
from pvdm.ledger.work import chunks, deadlines
from pvdm.ledger.work.chunks import Chunk
from pvdm.model.contract import Atomicity
from pvdm.model.states import WORKLOAD, WorkloadState

PARAMETERS_MAX_BYTES: Final = 65_536
NEWER_COLUMNS_MAX_BYTES: Final = 65_536
WORKLOADS_PAGE_MAX_ROWS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Opening:
    """What a workload is opened with, the same each time. `source` is the source's UUID, `parameters` are JSON."""

    workload_id: str
    contract_hash: str
    table_uuid: str
    source: str
    parameters: bytes
    atomicity: Atomicity
    domain: str


@dataclass(frozen=True, slots=True)
class PinnedWorkload:
    """What the Steward fixes at the first opening of the workload."""

    source_snapshot_id: str | None
    plan_hash: str
    epoch: int
    chunks: Sequence[Chunk]
    newer_columns: bytes = b"[]"  # Iceberg's JSON of source columns that the pinned snapshot's schema lacks
    timeout_seconds: int | None = None  # how long runs may stage chunks; None: no limit


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload in the ledger."""

    opening: Opening
    source_snapshot_id: str | None
    plan_hash: str
    epoch: int
    newer_columns: bytes
    state: WorkloadState
    reason: str
    at_micros: int


def find(unit: Unit, workload_id: str) -> Workload | None:
    """The workload, or None."""
    return convert_if_found(_to_workload, unit.find(workloads, workload_id=workload_id))


def get(unit: Unit, workload_id: str) -> Workload:
    """The workload. Raises `workload_unknown`."""
    return _to_workload(unit.get(workloads, "workload_unknown", workload_id=workload_id))


def page(unit: Unit, *, domain: str | None, after: str | None = None, count: int = 100) -> list[Workload]:
    """The next workloads by id, after the id `after`; of one domain, or of all."""
    of_domain = where_given(select(workloads), (workloads.c.domain, domain))
    wanted = select_page(of_domain, workloads.c.workload_id, after, min(count, WORKLOADS_PAGE_MAX_ROWS))
    return [_to_workload(row) for row in unit.rows(wanted)]


def newest(unit: Unit, *, domain: str | None, count: int = 100) -> list[Workload]:
    """The workloads that were opened or ended last, the latest first; of one domain, or of all."""
    order = (workloads.c.at_micros.desc(), workloads.c.workload_id)
    wanted = where_given(select(workloads), (workloads.c.domain, domain)).order_by(*order)
    return [_to_workload(row) for row in unit.rows(wanted.limit(min(count, WORKLOADS_PAGE_MAX_ROWS)))]


def count_all(unit: Unit, *, domain: str | None) -> int:
    """The number of workloads; of one domain, or of all."""
    wanted = where_given(select(func.count()).select_from(workloads), (workloads.c.domain, domain))
    return int(unit.execute(wanted).scalar_one())


def list_open(unit: Unit) -> list[Workload]:
    """Every workload that has not ended."""
    wanted = select(workloads).where(workloads.c.state == WorkloadState.OPEN).order_by(workloads.c.workload_id)
    return [_to_workload(row) for row in unit.rows(wanted)]


def find_last_source_snapshot(unit: Unit, table_uuid: str, source: str) -> str | None:
    """The pinned snapshot of the workload that last published from this source to this table, or None."""
    same_workload = published.c.workload_id == workloads.c.workload_id
    wanted = select(workloads.c.source_snapshot_id).join(published, same_workload)
    wanted = wanted.where(workloads.c.table_uuid == table_uuid, workloads.c.source == source)
    row = unit.row(wanted.order_by(published.c.at_micros.desc(), workloads.c.at_micros.desc()).limit(1))
    return None if row is None else row["source_snapshot_id"]


def list_publishers(unit: Unit, table_uuid: str, snapshot_ids: Collection[str]) -> list[Workload]:
    """The workloads that published these snapshots of the table. A workload may be listed more than once."""
    same_workload = published.c.workload_id == workloads.c.workload_id
    wanted = select(workloads).join(published, same_workload).distinct().where(workloads.c.table_uuid == table_uuid)
    rows = unit.rows_with(wanted.order_by(workloads.c.workload_id), published.c.snapshot_id, sorted(snapshot_ids))
    return [_to_workload(row) for row in rows]


def open_once(unit: Unit, opening: Opening, pinned: PinnedWorkload) -> Workload:
    """Open the workload with its chunks. If its id was opened before, return that workload unchanged."""
    _require_valid(opening, pinned)
    restores.require_not_published_in_lost_time(unit, opening.workload_id)
    created = unit.insert_new(
        workloads,
        **{**asdict(opening), "parameters": opening.parameters.decode()},
        source_snapshot_id=pinned.source_snapshot_id,
        plan_hash=pinned.plan_hash,
        epoch=pinned.epoch,
        newer_columns=pinned.newer_columns.decode(),
        state=WORKLOAD.initial,
        reason="opened",
    )
    if created:
        chunks.store_plan(unit, opening.workload_id, pinned.chunks)
        if pinned.timeout_seconds is not None:
            deadlines.set_timeout(unit, opening.workload_id, pinned.timeout_seconds)
    found = get(unit, opening.workload_id)
    require_same_opening(opening, found.opening)
    return found


def page_changed(unit: Unit, *, after: tuple[int, str]) -> list[Workload]:
    """The next workloads that were opened or ended after this time and workload id, in the order of both."""
    changed, c = workloads.c.at_micros, workloads.c
    later = or_(changed > after[0], and_(changed == after[0], c.workload_id > after[1]))
    wanted = select(workloads).where(changed >= after[0], later).order_by(changed, c.workload_id)
    return [_to_workload(row) for row in unit.rows(wanted.limit(WORKLOADS_PAGE_MAX_ROWS))]


def move(unit: Unit, workload_id: str, to: WorkloadState, *, reason: str) -> Workload:
    """Complete or abandon the workload. Waits for attempts that are being opened. The same state again is no change."""
    unit.lock_name(f"workload {workload_id}")
    row = unit.get_locked(workloads, "workload_unknown", workload_id=workload_id)
    if row["state"] == to:
        return _to_workload(row)
    if not WORKLOAD.allows(row["state"], to):
        raise Code.WORKLOAD_MOVED("the workload has ended in another state", expected=to, got=row["state"])
    unit.update(workloads, {"workload_id": workload_id}, state=to, reason=ids.require_reason(reason))
    return get(unit, workload_id)


def _require_valid(opening: Opening, pinned: PinnedWorkload) -> None:
    ids.require_workload_id(opening.workload_id)
    ids.require_sha256(opening.contract_hash, "contract hash")
    ids.require_sha256(pinned.plan_hash, "plan hash")
    ids.require_name(opening.table_uuid, "table UUID")
    ids.require_name(opening.source, "source")
    ids.require_name(opening.domain, "domain")
    if pinned.source_snapshot_id is not None:
        ids.require_snapshot_id(pinned.source_snapshot_id)
    ids.require_text_size(opening.parameters.decode(), PARAMETERS_MAX_BYTES, "workload_parameters_too_large")
    if len(pinned.newer_columns) > NEWER_COLUMNS_MAX_BYTES:
        expected, got = f"at most {NEWER_COLUMNS_MAX_BYTES} bytes of schema", str(len(pinned.newer_columns))
        raise Code.RECORD_TOO_LARGE(reason="newer_columns_too_large", expected=expected, got=got)


def require_same_opening(asked: Opening, stored: Opening) -> None:
    """Raise `workload_invalid` unless the workload is opened again with the parameters that it was opened with."""
    differing = [
        name
        for name in ("contract_hash", "table_uuid", "source", "parameters", "atomicity", "domain")
        if getattr(asked, name) != getattr(stored, name)
    ]
    if differing:
        only_parameters = differing == ["parameters"]
        raise Code.WORKLOAD_INVALID(
            f"workload {asked.workload_id} was opened with other parameters",
            reason="workload_parameters_differ",
            expected=_shorten(stored.parameters) if only_parameters else "the same " + ", ".join(differing),
            got=_shorten(asked.parameters) if only_parameters else "others",
            hint="use the first parameters to resume it, or another workload id",
            workload_id=asked.workload_id,
        )


def _shorten(parameters: bytes) -> str:
    """The first 200 characters of the parameters, for a message: JSON with escaped non-ASCII characters."""
    return ascii(parameters.decode())[1:-1][:200]  # without the quotes that `ascii` adds


def _to_workload(row: Row) -> Workload:
    return record_from(Workload, row, opening=record_from(Opening, row))
