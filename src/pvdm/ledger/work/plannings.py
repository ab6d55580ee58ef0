"""Plans in the making: how a workload is to be opened, and the values that were read from its source so far."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Final, NamedTuple

from sqlalchemy import func, select

from pvdm.errors import Code
from pvdm.ledger import ids
from pvdm.ledger.connection import Row, convert_if_found, record_from
from pvdm.ledger.schema.work import plannings
from pvdm.ledger.unit import Unit
from pvdm.ledger.work.workloads import Opening
from pvdm.model.chunk import require_values_size

DOMAIN_PLANS_MAX: Final = 100
PLAN_STARTS_MAX: Final = 3
_FAILED_MICROS: Final = 3_600 * 1_000_000  # how long a failed planning stays for callers that wait for it


@dataclass(frozen=True, slots=True)
class Planning:
    """A plan in the making. `error` is the JSON of the error that ended it, `found` the values of the files read.

    `file_hashes` are the hashes of the files read, one after another; `found` holds for these bytes only.
    `starts` counts the starts of the job since it last stored something. A start that an error
    ended does not count; a start that ended with the Steward's process does.
    """

    opening: Opening
    source_snapshot_id: str
    newer_columns: bytes
    timeout_seconds: int | None
    files: int
    files_read: int = 0
    starts: int = 0
    found: bytes = b""
    file_hashes: bytes = b""
    error: str | None = None
    error_reported: bool = False  # whether a caller has got `error`
    at_micros: int = 0  # when the planning was last changed


class UnfinishedPlan(NamedTuple):
    """A workload whose plan is still being made, and the domain that it belongs to."""

    workload_id: str
    domain: str


def find(unit: Unit, workload_id: str) -> Planning | None:
    """The planning of the workload, or None."""
    return convert_if_found(_to_planning, unit.find(plannings, workload_id=workload_id))


def list_unfinished(unit: Unit) -> list[UnfinishedPlan]:
    """The workloads whose plans are still being made."""
    c = plannings.c
    wanted = select(c.workload_id, c.domain).where(c.error.is_(None)).order_by(c.workload_id)
    return [UnfinishedPlan(row["workload_id"], row["domain"]) for row in unit.rows(wanted)]


def begin(unit: Unit, planning: Planning) -> Planning:
    """Store the planning, in place of a failed one. If a planning is under way, return that one unchanged.

    Raises `plans_too_many` if the domain has too many unfinished plans.
    """
    workload_id = planning.opening.workload_id
    unit.lock_name(f"workload {workload_id}")
    earlier = find(unit, workload_id)
    if earlier is not None and earlier.error is None:
        return earlier
    unit.lock_name(f"plans of {planning.opening.domain}")
    _require_room(unit, planning.opening.domain)
    remove(unit, workload_id)
    failed = plannings.c.error.is_not(None) & (plannings.c.at_micros < unit.at_micros - _FAILED_MICROS)
    unit.execute(plannings.delete().where(failed))
    columns = {**asdict(planning.opening), "parameters": planning.opening.parameters.decode()}
    unit.insert(
        plannings,
        **columns,
        source_snapshot_id=ids.require_snapshot_id(planning.source_snapshot_id),
        newer_columns=planning.newer_columns.decode(),
        timeout_seconds=planning.timeout_seconds,
        files=planning.files,
        files_read=0,
        starts=0,
        found=b"",
        file_hashes=b"",
        error=None,
        error_reported=0,
    )
    return planning


def is_unfinished(unit: Unit, planning: Planning) -> bool:
    """Whether this planning is still the one in the ledger, and has not failed or been abandoned."""
    found = find(unit, planning.opening.workload_id)
    return found is not None and found.error is None and _identity(found) == _identity(planning)


def note_start(unit: Unit, workload_id: str) -> None:
    """Count a start of the job. Raises `plan_stopped_too_often` if too many starts have stored nothing new."""
    found = find(unit, workload_id)
    if found is None:
        return
    if found.starts >= PLAN_STARTS_MAX:
        expected, got = f"progress within {PLAN_STARTS_MAX} starts", f"{found.starts} starts without any"
        raise Code.WORKLOAD_INVALID(reason="plan_stopped_too_often", expected=expected, got=got)
    unit.update(plannings, {"workload_id": workload_id}, starts=found.starts + 1)


def forget_start(unit: Unit, workload_id: str, starts: int) -> None:
    """Take back the count of the job's last start, because an error ended it and not the end of the process.

    `starts` is the number before that start.
    """
    found = find(unit, workload_id)
    if found is not None and found.starts > starts:
        unit.update(plannings, {"workload_id": workload_id}, starts=starts)


def note_progress(unit: Unit, workload_id: str, files_read: int, found: bytes, file_hashes: bytes) -> None:
    """Store what was read, so that another process can continue after these files."""
    require_values_size(len(found))
    by_id = {"workload_id": workload_id}
    unit.update(plannings, by_id, files_read=files_read, starts=0, found=found, file_hashes=file_hashes)


def fail(unit: Unit, workload_id: str, error: str) -> None:
    """Store why there is no plan, as JSON. What was read is not needed any more."""
    unit.update(plannings, {"workload_id": workload_id}, error=error, found=b"", file_hashes=b"")


def note_reported(unit: Unit, workload_id: str) -> None:
    """Store that a caller has got the error that ended the plan."""
    unit.update(plannings, {"workload_id": workload_id}, error_reported=1)


def remove(unit: Unit, workload_id: str) -> None:
    """Remove the planning, if there is one: the workload becomes open, or a new planning replaces a failed one."""
    unit.execute(plannings.delete().where(plannings.c.workload_id == workload_id))


def _require_room(unit: Unit, domain: str) -> None:
    wanted = select(func.count()).select_from(plannings)
    wanted = wanted.where(plannings.c.domain == domain, plannings.c.error.is_(None))
    if (count := int(unit.execute(wanted).scalar_one())) >= DOMAIN_PLANS_MAX:
        expected, got = f"at most {DOMAIN_PLANS_MAX} plans of domain {domain} in the making", f"{count} before this one"
        raise Code.SERVICE_BUSY(reason="plans_too_many", expected=expected, got=got)


def _identity(planning: Planning) -> Planning:
    """The planning without its progress."""
    unread = replace(planning, files_read=0, found=b"", file_hashes=b"")
    return replace(unread, starts=0, error=None, error_reported=False, at_micros=0)


def _to_planning(row: Row) -> Planning:
    return record_from(Planning, row, opening=record_from(Opening, row), error_reported=bool(row["error_reported"]))
