"""Counts attempts and leases by contract and producer, for metrics. Each query reads an index, not the history."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, Subquery, and_, exists, func, or_, select, text

from pvdm.ledger.connection import Row
from pvdm.ledger.schema.record import proofs
from pvdm.ledger.schema.work import ATTEMPT_IS_LIVE, WORKLOAD_IS_OPEN, attempts, leases, published, workloads
from pvdm.ledger.unit import Unit, where_given
from pvdm.model.contract import Atomicity
from pvdm.model.statements.verdict import FailureClass, Outcome
from pvdm.model.states import ATTEMPT, WITH_STEWARD, AttemptState

HISTORY_PAGE_MAX_ROWS: Final = 2_000


@dataclass(frozen=True, slots=True)
class Origin:
    """The contract, domain and producer of attempts or leases."""

    contract_hash: str
    domain: str
    producer: str


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """How an attempt ended. `verdict` and `classes` are from its last proof, `verdict_micros` is from its first."""

    attempt_id: str
    origin: Origin
    state: AttemptState
    ended_micros: int
    handed_in_micros: int | None
    verdict: Outcome | None
    classes: tuple[FailureClass, ...]
    verdict_micros: int | None
    rows_added: int


def page_ended(unit: Unit, after: tuple[int, str]) -> list[tuple[int, str]]:
    """The next page of ended attempts: when each ended, and its id, in this order, after the pair `after`."""
    ended = attempts.c.state.in_(ATTEMPT.terminal())
    return _page(unit, select(attempts.c.at_micros, attempts.c.attempt_id).where(ended), after)


def page_proofs(unit: Unit, after: tuple[int, str]) -> list[tuple[int, str]]:
    """The next page of proofs: when each was stored, and its id, in this order, after the pair `after`."""
    return _page(unit, select(proofs.c.at_micros, proofs.c.proof_id), after)


def _page(unit: Unit, wanted: Select[Any], after: tuple[int, str]) -> list[tuple[int, str]]:
    at, key = wanted.selected_columns
    wanted = wanted.where(at >= after[0], or_(at > after[0], and_(at == after[0], key > after[1])))
    return [(row[at], row[key]) for row in unit.rows(wanted.order_by(at, key).limit(HISTORY_PAGE_MAX_ROWS))]


def count_verdicts(unit: Unit, proof_ids: Sequence[str]) -> Counter[str]:
    """How many of these proofs have each verdict."""
    return Counter(row["verdict"] for row in unit.rows_with(select(proofs.c.verdict), proofs.c.proof_id, proof_ids))


def read_ends(unit: Unit, attempt_ids: Sequence[str]) -> dict[str, AttemptEnd]:
    """How these attempts ended, by attempt id."""
    c = attempts.c
    same_chunk = (published.c.workload_id == c.workload_id) & (published.c.chunk_id == c.chunk_id)
    by_this_attempt = same_chunk & (published.c.attempt_id == c.attempt_id)
    joined = attempts.join(workloads, workloads.c.workload_id == c.workload_id).outerjoin(published, by_this_attempt)
    columns = (c.attempt_id, c.producer, c.state, c.at_micros, c.handed_in_micros, *_WORKLOAD, published.c.rows_added)
    rows = list(unit.rows_with(select(*columns).select_from(joined), c.attempt_id, attempt_ids))
    proofs_by_attempt = _list_proofs(unit, attempt_ids)
    return {row["attempt_id"]: _to_end(row, proofs_by_attempt.get(row["attempt_id"], [])) for row in rows}


def _list_proofs(unit: Unit, attempt_ids: Sequence[str]) -> dict[str, list[Row]]:
    """The proofs of each attempt, oldest first."""
    wanted = select(proofs.c.attempt_id, proofs.c.verdict, proofs.c.summary, proofs.c.at_micros)
    found: dict[str, list[Row]] = {}
    for row in unit.rows_with(wanted.order_by(proofs.c.at_micros), proofs.c.attempt_id, attempt_ids):
        found.setdefault(row["attempt_id"], []).append(row)
    return found


def _to_end(row: Row, attempt_proofs: Sequence[Row]) -> AttemptEnd:
    last = attempt_proofs[-1] if attempt_proofs else None
    verdict = None if last is None else Outcome(last["verdict"])
    classes = json.loads(last["summary"]).get("classes", []) if last is not None and verdict is Outcome.FAIL else []
    return AttemptEnd(
        row["attempt_id"],
        _to_origin(row),
        AttemptState(row["state"]),
        row["at_micros"],
        row["handed_in_micros"],
        verdict,
        tuple(FailureClass(each) for each in classes),
        attempt_proofs[0]["at_micros"] if attempt_proofs else None,
        row["rows_added"] or 0,
    )


@dataclass(frozen=True, slots=True)
class LiveAttempts:
    """How many attempts of an origin are in a live state, and when the first of them entered this state."""

    origin: Origin
    state: AttemptState
    count: int
    since_micros: int


def count_live_attempts(unit: Unit) -> list[LiveAttempts]:
    """The attempts that have not ended, by origin and state."""
    live = select(attempts).where(text(ATTEMPT_IS_LIVE)).subquery()
    keys = (live.c.state, live.c.producer, *_WORKLOAD)
    wanted = _with_workload(live, *keys, func.count().label("count"), func.min(live.c.at_micros).label("since"))
    return [
        LiveAttempts(_to_origin(row), AttemptState(row["state"]), row["count"], row["since"])
        for row in unit.rows(wanted.group_by(*keys))
    ]


def count_live_leases(unit: Unit, now_micros: int) -> dict[Origin, int]:
    """The number of workloads whose newest lease has not expired, by origin."""
    newest = leases.alias()
    is_newer = (newest.c.workload_id == leases.c.workload_id) & (newest.c.lease_number > leases.c.lease_number)
    unexpired = select(leases.c.workload_id, leases.c.holder.label("producer"))
    live = unexpired.where(leases.c.expires_micros > now_micros, ~exists().where(is_newer)).subquery()
    keys = (live.c.producer, *_WORKLOAD)
    wanted = _with_workload(live, *keys, func.count().label("count"))
    return {_to_origin(row): row["count"] for row in unit.rows(wanted.group_by(*keys))}


def find_last_hand_in(unit: Unit, workload_id: str) -> int:
    """The number of the workload's last lease under which a chunk was handed in; 0 if there is none."""
    wanted = select(func.max(attempts.c.lease_number).label("last"))
    row = unit.row(wanted.where(attempts.c.workload_id == workload_id, attempts.c.handed_in_micros.is_not(None)))
    return 0 if row is None else row["last"] or 0


def list_without_progress(unit: Unit, leases_least: int, *, workload_id: str | None = None) -> list[tuple[str, Origin]]:
    """Open workloads with at least `leases_least` leases since the last hand-in, and no chunk with the Steward.

    With atomicity `workload`, a proved chunk does not count: it waits for the other chunks. With `workload_id`, only
    this workload is searched.
    """
    opened = select(workloads).where(text(WORKLOAD_IS_OPEN)).subquery()
    of_workload = attempts.c.workload_id == opened.c.workload_id
    handed_in = select(func.max(attempts.c.lease_number)).where(of_workload, attempts.c.handed_in_micros.is_not(None))
    waits_for_chunks = (attempts.c.state == AttemptState.COMMITTING) & (opened.c.atomicity == Atomicity.WORKLOAD)
    waits = exists().where(of_workload, attempts.c.state.in_(sorted(WITH_STEWARD)), ~waits_for_chunks)
    every = leases.alias()
    last = select(func.max(every.c.lease_number)).where(every.c.workload_id == opened.c.workload_id).scalar_subquery()
    is_last = (leases.c.workload_id == opened.c.workload_id) & (leases.c.lease_number == last)
    wanted = (
        select(opened.c.workload_id, opened.c.contract_hash, opened.c.domain, leases.c.holder.label("producer"))
        .select_from(opened.join(leases, is_last))
        .where(leases.c.lease_number - func.coalesce(handed_in.scalar_subquery(), 0) >= leases_least, ~waits)
    )
    wanted = where_given(wanted, (opened.c.workload_id, workload_id))
    return [(row["workload_id"], _to_origin(row)) for row in unit.rows(wanted)]


_WORKLOAD: Final = (workloads.c.contract_hash, workloads.c.domain)


def _with_workload(rows: Subquery, *columns: ColumnElement[Any]) -> Select[Any]:
    """Select the columns from these rows, each joined with its workload."""
    return select(*columns).select_from(rows.join(workloads, workloads.c.workload_id == rows.c.workload_id))


def _to_origin(row: Row) -> Origin:
    return Origin(row["contract_hash"], row["domain"], row["producer"])
