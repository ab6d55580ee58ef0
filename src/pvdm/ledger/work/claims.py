"""Claims: what an append workload publishes to a target, checked for overlap and stored in the caller's transaction.

They are the target's, whatever source the rows came from: a source that is loaded again frees none of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import ColumnElement, or_, select

from pvdm.errors import VerificationError
from pvdm.ledger import ids
from pvdm.ledger.batches import in_batches
from pvdm.ledger.connection import Row
from pvdm.ledger.restore import lost_claims
from pvdm.ledger.schema.work import claims, workloads
from pvdm.ledger.unit import Unit
from pvdm.model.filter.claim import WAY_TO_CORRECT, Claim
from pvdm.model.states import WorkloadState

CLAIM_COLUMN_MAX_CHARACTERS: Final = 2_048


def take(unit: Unit, workload_id: str, *, target: str, claim: Claim) -> None:
    """Store the workload's claim, or raise `claim_overlaps` naming the workload to resume; its own again is no change.

    The lock on the target's claims is held until the transaction ends, so two overlapping claims cannot both pass;
    the database's own trigger takes the same stand against a writer that does not come through here.
    """
    if claim.column is not None:
        ids.name(claim.column, "claim column", most=CLAIM_COLUMN_MAX_CHARACTERS)
    lock(unit, target)
    own = find(unit, workload_id, target=target)
    if own is not None:
        _require_same(workload_id, own, claim)
        return
    require_free(unit, workload_id, target=target, claim=claim)
    _insert(unit, workload_id, target, claim)


def refill(unit: Unit, workload_id: str, *, target: str, claim: Claim) -> bool:
    """Store a claim that a restore has read from proofs again; False, and nothing stored, where it meets another."""
    lock(unit, target)
    own = find(unit, workload_id, target=target)
    if own is not None:
        return True
    if overlapping(unit, workload_id, target=target, claim=claim) is not None:
        return False
    _insert(unit, workload_id, target, claim)
    return True


def _insert(unit: Unit, workload_id: str, target: str, claim: Claim) -> None:
    unit.insert(
        claims,
        workload_id=ids.workload_id(workload_id),
        target=ids.name(target, "target"),
        claim_column=claim.column,
        column_kind=claim.kind,
        lower_bound=claim.lower,
        upper_bound=claim.upper,
        extent=claim.text,
    )


def lock(unit: Unit, target: str) -> None:
    """Wait for everyone else who publishes to the target, until the transaction ends."""
    unit.lock_name(f"claims {target}")


def require_free(unit: Unit, workload_id: str, *, target: str, claim: Claim) -> None:
    """Nothing of it is another workload's by now; without the lock that `take` holds this says nothing of later."""
    lost_claims.require_free(unit, target=target)
    other = overlapping(unit, workload_id, target=target, claim=claim)
    if other is not None:
        raise _overlaps(unit, *other, claim)


def find(unit: Unit, workload_id: str, *, target: str) -> Claim | None:
    """The workload's own claim on this target."""
    row = unit.found(claims, workload_id=workload_id, target=target)
    return None if row is None else _claim(row)


def texts_of(unit: Unit, workload_ids: Sequence[str]) -> dict[str, str]:
    """What each of these workloads has claimed, for people; those without a claim are not in it."""
    found: dict[str, str] = {}
    for some in in_batches(workload_ids):
        wanted = select(claims.c.workload_id, claims.c.extent).where(claims.c.workload_id.in_(some))
        found.update((row["workload_id"], row["extent"]) for row in unit.rows(wanted))
    return found


def overlapping(unit: Unit, workload_id: str, *, target: str, claim: Claim) -> tuple[str, Claim] | None:
    """The first other workload, by id, whose claim could share a row with this one. For a preview; `take` decides."""
    c = claims.c
    not_comparable: list[ColumnElement[bool]] = [c.claim_column.is_(None)]
    if claim.column is not None:
        not_comparable += [c.claim_column != claim.column, c.column_kind != claim.kind]
    meets = (or_(c.upper_bound.is_(None), c.upper_bound > claim.lower)) & (
        c.lower_bound < claim.upper if claim.upper is not None else c.lower_bound >= b""
    )
    wanted = select(claims).where(c.target == target, c.workload_id != workload_id)
    if claim.column is not None:
        wanted = wanted.where(or_(*not_comparable, meets))
    row = unit.row(wanted.order_by(c.workload_id).limit(1))
    return None if row is None else (row["workload_id"], _claim(row))


def _require_same(workload_id: str, stored: Claim, asked: Claim) -> None:
    if (stored.column, stored.kind, stored.lower, stored.upper) != (asked.column, asked.kind, asked.lower, asked.upper):
        # People know a column by its name; where that is the same, its identity tells the two apart.
        shown = stored.text, asked.text
        if stored.text == asked.text:
            shown = f"{stored.text}, by {stored.column}", f"{asked.text}, by {asked.column}"
        raise VerificationError(
            "claim_differs",
            f"workload {workload_id} has claimed otherwise",
            expected=shown[0],
            got=shown[1],
            hint="nothing was published; an operator abandons the workload: its claim column was made anew since",
            workload_id=workload_id,
        )


def _overlaps(unit: Unit, workload_id: str, stored: Claim, asked: Claim) -> VerificationError:
    other = unit.found(workloads, workload_id=workload_id)
    unfinished = other is not None and other["state"] == WorkloadState.OPEN
    resume = f"workload {workload_id} is not complete: run it again under that id to publish the rest of it; "
    if asked.column is None or stored.column is None:
        why = "; a workload of a contract without boundary.claim claims everything, and is the only one"
    elif (asked.column, asked.kind) != (stored.column, stored.kind):
        why = "; its claim is on another column, or another type of it, and may hold the same rows"
    else:
        why = ""
    return VerificationError(
        "claim_overlaps",
        f"workload {workload_id} has published an overlapping part",
        expected=f"a part that shares nothing with: {stored.text}",
        got=asked.text,
        hint=f"nothing was published; {resume if unfinished else ''}to correct what {workload_id} has published, "
        f"{WAY_TO_CORRECT}{why}",
        workload_id=workload_id,
    )


def _claim(row: Row) -> Claim:
    upper = row["upper_bound"]
    return Claim(
        row["claim_column"],
        row["column_kind"],
        bytes(row["lower_bound"]),
        None if upper is None else bytes(upper),
        row["extent"],
    )
