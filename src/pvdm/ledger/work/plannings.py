"""Plans in the making: what a workload will be opened with, and the values that were read from its source so far."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

from sqlalchemy import select

from pvdm.errors import Code
from pvdm.ledger import ids
from pvdm.ledger.connection import Row, convert_if_found, record_from
from pvdm.ledger.schema.work import plannings
from pvdm.ledger.unit import Unit
from pvdm.ledger.work.workloads import Opening

PLAN_VALUES_MAX_BYTES: Final = 67_108_864


@dataclass(frozen=True, slots=True)
class Planning:
    """A plan in the making. `error` is the JSON of the error that ended it, `found` the values of the files read."""

    opening: Opening
    source_snapshot_id: str
    newer_columns: bytes
    timeout_seconds: int | None
    files: int
    files_read: int = 0
    found: bytes = b""
    error: str | None = None
    at_micros: int = 0  # when it was last changed


def find(unit: Unit, workload_id: str) -> Planning | None:
    """The planning of the workload, or None."""
    return convert_if_found(_to_planning, unit.find(plannings, workload_id=workload_id))


def list_unfinished(unit: Unit) -> list[str]:
    """The workloads whose plans are still being made."""
    wanted = select(plannings.c.workload_id).where(plannings.c.error.is_(None)).order_by(plannings.c.workload_id)
    return [row["workload_id"] for row in unit.rows(wanted)]


def begin(unit: Unit, planning: Planning) -> Planning:
    """Store the planning, in place of one that has failed. If one is under way, return that unchanged."""
    workload_id = planning.opening.workload_id
    unit.lock_name(f"workload {workload_id}")
    earlier = find(unit, workload_id)
    if earlier is not None and earlier.error is None:
        return earlier
    remove(unit, workload_id)
    columns = {**asdict(planning.opening), "parameters": planning.opening.parameters.decode()}
    unit.insert(
        plannings,
        **columns,
        source_snapshot_id=ids.require_snapshot_id(planning.source_snapshot_id),
        newer_columns=planning.newer_columns.decode(),
        timeout_seconds=planning.timeout_seconds,
        files=planning.files,
        files_read=0,
        found=b"",
        error=None,
    )
    return planning


def note_progress(unit: Unit, workload_id: str, files_read: int, found: bytes) -> None:
    """Store what was read, so that another process can continue after these files."""
    if len(found) > PLAN_VALUES_MAX_BYTES:
        expected, got = f"at most {PLAN_VALUES_MAX_BYTES} bytes of values", str(len(found))
        raise Code.RECORD_TOO_LARGE(reason="plan_values_too_large", expected=expected, got=got)
    unit.update(plannings, {"workload_id": workload_id}, files_read=files_read, found=found)


def fail(unit: Unit, workload_id: str, error: str) -> None:
    """Store why there is no plan, as JSON."""
    unit.update(plannings, {"workload_id": workload_id}, error=error)


def remove(unit: Unit, workload_id: str) -> None:
    """Remove the planning, if there is one: the workload is open, or its error has been reported."""
    unit.execute(plannings.delete().where(plannings.c.workload_id == workload_id))


def _to_planning(row: Row) -> Planning:
    return record_from(Planning, row, opening=record_from(Opening, row))
