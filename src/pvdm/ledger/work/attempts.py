"""Attempts at chunks. A chunk has at most one live attempt. `pvdm.model.states` lists the changes of states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from sqlalchemy import Select, func, select, text

from pvdm.errors import Code, PvdmError
from pvdm.ledger import ids
from pvdm.ledger.connection import record_from, record_if_found
from pvdm.ledger.schema.work import ATTEMPT_IS_LIVE, NoncePurpose, attempts, published
from pvdm.ledger.schema.work import workloads as workload_table
from pvdm.ledger.unit import Unit, where_given
from pvdm.ledger.work import announced, chunks, leases, nonces, workloads
from pvdm.model.states import ATTEMPT, ROLLED_BACK_MAX, AttemptState, WorkloadState

ATTEMPTS_MAX: Final = 100
ATTEMPTS_PAGE_MAX_ROWS: Final = 1_000


@dataclass(frozen=True, slots=True)
class AttemptOpening:
    """The values of a new attempt, which the Steward chooses. `prefix` is the folder that its job may write.

    `producer` is the name of the token that opens the attempt.
    """

    attempt_id: str
    workload_id: str
    chunk_id: str
    branch: str
    prefix: str
    nonce: str
    reason: str
    lease_number: int | None = None  # the run's lease; None if the Steward opens the attempt
    producer: str = "steward"


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt in the ledger."""

    attempt_id: str
    workload_id: str
    chunk_id: str
    number: int
    branch: str
    prefix: str
    state: AttemptState
    staged_snapshot_id: str | None
    reason: str
    at_micros: int
    lease_number: int | None


def find(unit: Unit, attempt_id: str) -> Attempt | None:
    """The attempt, or None."""
    return record_if_found(Attempt, unit.find(attempts, attempt_id=attempt_id))


def find_opened(unit: Unit, attempt_id: str, workload_id: str, chunk_id: str) -> Attempt | None:
    """The attempt with this id, or None. Raises `workload_invalid` if it is an attempt at another chunk."""
    found = find(unit, attempt_id)
    if found is not None and (found.workload_id, found.chunk_id) != (workload_id, chunk_id):
        raise Code.WORKLOAD_INVALID(reason="attempt_parameters_differ", got=attempt_id)
    return found


def get(unit: Unit, attempt_id: str) -> Attempt:
    """The attempt. Raises `attempt_unknown`."""
    return record_from(Attempt, unit.get(attempts, "attempt_unknown", attempt_id=attempt_id))


def lock(unit: Unit, attempt_id: str) -> Attempt:
    """The attempt, locked until the end of the unit. Raises `attempt_unknown`."""
    return record_from(Attempt, unit.get_locked(attempts, "attempt_unknown", attempt_id=attempt_id))


def list_by_chunk(unit: Unit, workload_id: str, chunk_id: str) -> list[Attempt]:
    """Every attempt at the chunk, first to last."""
    wanted = select(attempts).where(attempts.c.workload_id == workload_id, attempts.c.chunk_id == chunk_id)
    return unit.records(Attempt, wanted.order_by(attempts.c.number))


def list_by_chunks(unit: Unit, workload_id: str, chunk_ids: Sequence[str]) -> dict[str, list[Attempt]]:
    """All attempts at these chunks, by chunk id. Ends before the first chunk whose attempts do not fit on a page."""
    counts = select(attempts.c.chunk_id, func.count().label("tried")).where(
        attempts.c.workload_id == workload_id, attempts.c.chunk_id.in_(chunk_ids)
    )
    tried = {row["chunk_id"]: int(row["tried"]) for row in unit.rows(counts.group_by(attempts.c.chunk_id))}
    found: dict[str, list[Attempt]] = {}
    rows = 0
    for chunk_id in chunk_ids:
        rows += tried.get(chunk_id, 0)
        if rows > ATTEMPTS_PAGE_MAX_ROWS:
            break
        found[chunk_id] = []
    wanted = select(attempts).where(attempts.c.workload_id == workload_id, attempts.c.chunk_id.in_(list(found)))
    for row in unit.rows(wanted.order_by(attempts.c.number)):
        found[row["chunk_id"]].append(record_from(Attempt, row))
    return found


def list_live(unit: Unit, workload_id: str | None = None) -> list[Attempt]:
    """Every attempt of the workload, or of all workloads, that has not ended. A start of the Steward continues them."""
    live = select(attempts).where(text(ATTEMPT_IS_LIVE))  # as in the index of live attempts
    wanted = where_given(live, (attempts.c.workload_id, workload_id))
    return unit.records(Attempt, wanted.order_by(attempts.c.at_micros))


def list_ended(unit: Unit, table_uuid: str) -> list[Attempt]:
    """Every ended attempt at a table, oldest first."""
    wanted = _select_at_table(table_uuid).where(attempts.c.state.in_(ATTEMPT.terminal()))
    return unit.records(Attempt, wanted.order_by(attempts.c.at_micros, attempts.c.attempt_id))


def count_last_states(unit: Unit, workload_ids: Sequence[str]) -> dict[str, dict[AttemptState, int]]:
    """For each workload: how many chunks have their last attempt in each state. Chunks without one do not count."""
    last = (
        select(attempts.c.workload_id, attempts.c.chunk_id, func.max(attempts.c.number).label("last"))
        .where(attempts.c.workload_id.in_(workload_ids))
        .group_by(attempts.c.workload_id, attempts.c.chunk_id)
        .subquery()
    )
    is_last = (
        (attempts.c.workload_id == last.c.workload_id)
        & (attempts.c.chunk_id == last.c.chunk_id)
        & (attempts.c.number == last.c.last)
    )
    counted = select(attempts.c.workload_id, attempts.c.state, func.count().label("chunks")).join(last, is_last)
    found: dict[str, dict[AttemptState, int]] = {}
    for row in unit.rows(counted.group_by(attempts.c.workload_id, attempts.c.state)):
        found.setdefault(row["workload_id"], {})[AttemptState(row["state"])] = int(row["chunks"])
    return found


def count_handed_in(unit: Unit, workload_ids: Sequence[str]) -> dict[str, int]:
    """How many attempts of each workload were handed in, including failed ones. This number never falls."""
    wanted = select(attempts.c.workload_id, func.count().label("handed_in"))
    wanted = wanted.where(attempts.c.workload_id.in_(workload_ids), attempts.c.handed_in_micros.is_not(None))
    return {row["workload_id"]: row["handed_in"] for row in unit.rows(wanted.group_by(attempts.c.workload_id))}


def find_live_on_branch(unit: Unit, table_uuid: str, branch: str) -> Attempt | None:
    """The live attempt with this branch of the table, or None."""
    wanted = _select_at_table(table_uuid).where(attempts.c.branch == branch, attempts.c.state.in_(ATTEMPT.live()))
    return record_if_found(Attempt, unit.row(wanted.limit(1)))


def _select_at_table(table_uuid: str) -> Select[Any]:
    same_workload = workload_table.c.workload_id == attempts.c.workload_id
    return select(attempts).join(workload_table, same_workload).where(workload_table.c.table_uuid == table_uuid)


def open_next(unit: Unit, opening: AttemptOpening, *, most: int = ATTEMPTS_MAX) -> Attempt:
    """Open the chunk's next attempt in state STAGING, with its first nonce. If its id exists, return that attempt.

    `most` is how many attempts at the chunk may fail; `ROLLED_BACK_MAX` is how many may be rolled back.
    """
    unit.lock_name(f"workload {opening.workload_id}")
    ids.require_random_id(opening.attempt_id, "attempt id")
    earlier = find(unit, opening.attempt_id)
    if earlier is not None:
        return _require_same(earlier, opening)
    workload = workloads.get(unit, opening.workload_id)
    if workload.state is not WorkloadState.OPEN:
        raise Code.WORKLOAD_MOVED("the workload has ended", expected="OPEN", got=workload.state)
    if opening.lease_number is not None:
        leases.require_held(unit, opening.workload_id, opening.lease_number)
    number = _next_number(unit, opening, min(most, ATTEMPTS_MAX))
    ids.require_name(opening.branch, "branch")
    ids.require_name(opening.prefix, "prefix")
    ids.require_name(opening.producer, "producer")
    ids.require_reason(opening.reason)
    values = asdict(opening)
    nonce = values.pop("nonce")
    unit.insert(attempts, **values, number=number, state=ATTEMPT.initial, staged_snapshot_id=None)
    _reserve_nonce(unit, opening.attempt_id, nonce)
    return get(unit, opening.attempt_id)


def require_leased(unit: Unit, attempt: Attempt, *, now_micros: int) -> None:
    """Raise `lease_lost` if the run that opened the attempt no longer holds the workload's lease."""
    if attempt.lease_number is not None:
        leases.require_held(unit, attempt.workload_id, attempt.lease_number, now_micros=now_micros)


def begin_verifying(unit: Unit, attempt_id: str, *, nonce: str, staged_snapshot_id: str | None, reason: str) -> Attempt:
    """Move from STAGING or COMMITTING to VERIFYING, with a new nonce. A chunk without rows has no staged snapshot."""
    found = lock(unit, attempt_id)
    staged = None if staged_snapshot_id is None else ids.require_snapshot_id(staged_snapshot_id)
    handed_in = {"handed_in_micros": unit.at_micros} if found.state is AttemptState.STAGING else {}
    moved = _move(unit, found, AttemptState.VERIFYING, reason, staged_snapshot_id=staged, **handed_in)
    _abort_nonce(unit, attempt_id, "a new one was drawn for verifying")
    _reserve_nonce(unit, attempt_id, nonce)
    return moved


def begin_committing(unit: Unit, attempt_id: str, *, reason: str) -> Attempt:
    """Move from VERIFYING to COMMITTING, after a PASS, or a FAIL that break-glass waives."""
    return _move(unit, lock(unit, attempt_id), AttemptState.COMMITTING, reason)


def end(unit: Unit, attempt_id: str, to: AttemptState, *, reason: str) -> Attempt:
    """End as VERIFICATION_FAILED or ROLLED_BACK, and abort the nonce. A repeated call changes nothing."""
    if to not in (AttemptState.VERIFICATION_FAILED, AttemptState.ROLLED_BACK):
        raise Code.WORKLOAD_INVALID(reason="attempt_end_invalid", got=to)
    found = lock(unit, attempt_id)
    if found.state is to:
        return found
    moved = _move(unit, found, to, reason)
    _abort_nonce(unit, attempt_id, f"the attempt is {to}")
    return moved


def publish(
    unit: Unit, attempt_id: str, *, nonce: str, snapshot_id: str, extent: chunks.Extent | None = None
) -> Attempt:
    """Move from COMMITTING to COMMITTED, use up the nonce and store the publication, in the caller's transaction."""
    found = lock(unit, attempt_id)
    if found.state is not AttemptState.COMMITTING:
        raise _moved_error(found, AttemptState.COMMITTING)
    _require_nonce_of(unit, attempt_id, nonce)
    nonces.commit(unit, nonce, snapshot_id=snapshot_id)
    return _store_publication(unit, found, nonce, snapshot_id, extent)


def settle(unit: Unit, attempt_id: str, nonce: str, snapshot_id: str) -> Attempt:
    """Make an attempt that a restore found published COMMITTED, and commit its nonce. Idempotent."""
    found = lock(unit, attempt_id)
    _require_nonce_of(unit, attempt_id, nonce)
    nonces.settle(unit, nonce, snapshot_id)
    return found if found.state is AttemptState.COMMITTED else _store_publication(unit, found, nonce, snapshot_id)


def _require_nonce_of(unit: Unit, attempt_id: str, nonce: str) -> None:
    found = nonces.find(unit, nonce)
    if found is None or found.attempt_id != attempt_id:
        raise Code.PROOF_MISMATCH(reason="nonce_of_other_attempt", expected=attempt_id, got=nonce)


def _store_publication(
    unit: Unit, found: Attempt, nonce: str, snapshot_id: str, extent: chunks.Extent | None = None
) -> Attempt:
    is_first = unit.insert_new(
        published,
        workload_id=found.workload_id,
        chunk_id=found.chunk_id,
        attempt_id=found.attempt_id,
        nonce=nonce,
        snapshot_id=snapshot_id,
        **(dict.fromkeys(chunks.EXTENT_COLUMNS) if extent is None else asdict(extent)),
    )
    if not is_first:
        raise _published_error(unit, found.workload_id, found.chunk_id)
    return _move(unit, found, AttemptState.COMMITTED, f"published as snapshot {snapshot_id}")


def _published_error(unit: Unit, workload_id: str, chunk_id: str) -> PvdmError:
    before = chunks.find_publication(unit, workload_id, chunk_id)
    message = f"chunk {chunk_id} of workload {workload_id} is published"
    return Code.CHUNK_PUBLISHED(message, got="unknown" if before is None else f"snapshot {before.snapshot_id}")


def _next_number(unit: Unit, opening: AttemptOpening, most: int) -> int:
    """The next attempt's number. Raises if the chunk is published, or has a live attempt or no attempt left."""
    if chunks.find_publication(unit, opening.workload_id, opening.chunk_id) is not None:
        raise _published_error(unit, opening.workload_id, opening.chunk_id)
    same_chunk = (attempts.c.workload_id == opening.workload_id) & (attempts.c.chunk_id == opening.chunk_id)
    live = unit.row(select(attempts).where(same_chunk, attempts.c.state.in_(ATTEMPT.live())))
    if live is not None:
        message = f"attempt {live['number']} of chunk {opening.chunk_id} has not ended"
        raise Code.ATTEMPT_LIVE(message, got=live["state"], attempt_id=live["attempt_id"])
    counted = select(attempts.c.state, func.count().label("tried"), func.max(attempts.c.number).label("last"))
    rows = unit.rows(counted.where(same_chunk).group_by(attempts.c.state))
    tried = {row["state"]: int(row["tried"]) for row in rows}
    _require_attempt_left(opening, "failed", tried.get(AttemptState.VERIFICATION_FAILED, 0), most)
    _require_attempt_left(opening, "rolled back", tried.get(AttemptState.ROLLED_BACK, 0), ROLLED_BACK_MAX)
    return max((int(row["last"]) for row in rows), default=0) + 1


def _require_attempt_left(opening: AttemptOpening, how: str, ended: int, most: int) -> None:
    """Raise `attempts_used_up` if `most` attempts have ended in this way: `how` is "failed" or "rolled back"."""
    if ended >= most:
        raise Code.ATTEMPTS_USED_UP(
            f"chunk {opening.chunk_id} has no attempt left",
            expected=f"at most {most} {how}",
            got=str(ended),
            hint="find out why. To publish failed rows anyway: `pvdm break-glass`, while the workload "
            f"is open. Or an operator ends the workload with `pvdm abandon {opening.workload_id} --reason TEXT`. Then "
            "break-glass is no longer possible, and a new workload id is needed",
        )


def _reserve_nonce(unit: Unit, attempt_id: str, nonce: str) -> None:
    nonces.reserve(unit, nonce, purpose=NoncePurpose.ATTEMPT, holder=attempt_id, attempt_id=attempt_id)


def _abort_nonce(unit: Unit, attempt_id: str, reason: str) -> None:
    current = nonces.find_current(unit, attempt_id)
    if current is not None:
        nonces.abort(unit, current.nonce, reason=reason)


def _move(unit: Unit, found: Attempt, to: AttemptState, reason: str, **columns: str | int | None) -> Attempt:
    if not ATTEMPT.allows(found.state, to):
        raise _moved_error(found, to)
    if found.state is AttemptState.COMMITTING and to is not AttemptState.COMMITTED:
        announced.require_attempt_free(unit, found.attempt_id)  # an upstream may still publish it
    unit.update(attempts, {"attempt_id": found.attempt_id}, **columns, state=to, reason=ids.require_reason(reason))
    return get(unit, found.attempt_id)


def _moved_error(found: Attempt, to: AttemptState) -> PvdmError:
    """The error for an attempt that cannot become `to` from its state."""
    before = sorted({step.old for step in ATTEMPT.transitions if step.new == to})
    message = f"attempt {found.number} of chunk {found.chunk_id} cannot become {to}"
    expected = " or ".join(before) or "no state at all"
    return Code.ATTEMPT_MOVED(message, expected=expected, got=found.state, attempt_id=found.attempt_id)


def _require_same(earlier: Attempt, opening: AttemptOpening) -> Attempt:
    requested = (opening.workload_id, opening.chunk_id, opening.branch, opening.prefix)
    if requested != (earlier.workload_id, earlier.chunk_id, earlier.branch, earlier.prefix):
        raise Code.WORKLOAD_INVALID(reason="attempt_parameters_differ", got=opening.attempt_id)
    return earlier
