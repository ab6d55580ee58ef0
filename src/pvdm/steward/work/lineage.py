"""Stores which steps of workloads are to be sent as OpenLineage events. The events are built when they are sent."""

from __future__ import annotations

from enum import StrEnum

from pvdm.ledger import Unit
from pvdm.ledger.record import events, outbox
from pvdm.ledger.record.outbox import Channel, event_id_of
from pvdm.ledger.work import workloads


class RunStep(StrEnum):
    """The steps of a workload that are sent as events. The names are OpenLineage's."""

    START = "START"
    COMPLETE = "COMPLETE"
    FAIL = "FAIL"
    ABORT = "ABORT"


def add_step(unit: Unit, step: RunStep, workload_id: str, at_micros: int, attempt_id: str | None = None) -> bool:
    """Store an event about this step, and before it one about START. Returns False if the outbox has no place."""
    event_id = event_id_of(Channel.LINEAGE, step, f"{workload_id} {attempt_id or ''}")
    if step is not RunStep.START:
        add_step(unit, RunStep.START, workload_id, _read_opened_micros(unit, workload_id) or at_micros)
    body = {"step": step.value, "workload_id": workload_id, "at_micros": at_micros, "attempt_id": attempt_id}
    domain = workloads.get(unit, workload_id).opening.domain
    return outbox.add(unit, Channel.LINEAGE, step, event_id, body, domain=domain, created_micros=at_micros)


def _read_opened_micros(unit: Unit, workload_id: str) -> int | None:
    """When the workload was opened, by the step log."""
    opened = events.history(unit, "workloads", workload_id, count=1)
    return opened[0].at_micros if opened else None
