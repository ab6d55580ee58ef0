"""What a line of the service's log says of a piece of work: whose it is, on which table, and how it stands."""

from __future__ import annotations

from collections.abc import Sequence

from pvdm.errors import PvdmError
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.record import proofs
from pvdm.ledger.work import attempts, workloads
from pvdm.steward.work.sources import table_name

Facts = dict[str, str | int | None]


def describe_work(ledger: Ledger, subject: str) -> Facts:
    """Table, workload, attempt, state and verdict of an attempt, or of a workload's last one; nothing of its rows.

    A chunk's name is left out: it may hold a value of the data. Where the ledger cannot be read the facts are None:
    the line is still written.
    """
    unknown: Facts = dict.fromkeys(("table", "table_uuid", "workload_id", "attempt_id", "state", "verdict"))
    try:
        with ledger.read() as unit:
            return unknown | _describe(unit, subject)
    except PvdmError:
        return unknown


def works_of(ledger: Ledger, subjects: Sequence[str]) -> list[tuple[str | None, str | None]]:
    """Table and workload of each: an attempt, a workload, or what is neither and has none."""
    with ledger.read() as unit:
        return [_work_of(unit, subject) for subject in subjects]


def _work_of(unit: Unit, subject: str) -> tuple[str | None, str | None]:
    attempt = attempts.find(unit, subject)
    workload = workloads.find(unit, subject if attempt is None else attempt.workload_id)
    return (
        (None, None)
        if workload is None
        else (table_name(unit, workload.opening.table_uuid), workload.opening.workload_id)
    )


def describe_workload(ledger: Ledger, workload_id: str, table_uuid: str) -> Facts:
    """Table and workload, for a line about a publication."""
    name = None
    try:
        with ledger.read() as unit:
            name = table_name(unit, table_uuid)
    except PvdmError:
        pass
    return {"table": name, "table_uuid": table_uuid, "workload_id": workload_id}


def _describe(unit: Unit, subject: str) -> Facts:
    attempt = attempts.find(unit, subject)
    workload = workloads.find(unit, subject if attempt is None else attempt.workload_id)
    if workload is None:
        return {"attempt_id": subject}
    opening = workload.opening
    facts: Facts = {
        "table": table_name(unit, opening.table_uuid),
        "table_uuid": opening.table_uuid,
        "workload_id": opening.workload_id,
        "state": workload.state.value,
    }
    if attempt is None:
        return facts
    said = proofs.of_attempt(unit, attempt.attempt_id)
    verdict = said[-1].verdict.value if said else None
    return facts | {"attempt_id": attempt.attempt_id, "state": attempt.state.value, "verdict": verdict}
