"""Claims, the parts of a target that append workloads reserved; and the sources from which targets last got rows.

Claims belong to the target, so they stay when a source is loaded again. A source that is dropped and created again
has another UUID. Its rows are not published until an operator signs a contract that names the new UUID.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import or_, select

from pvdm.errors import Code, PvdmError
from pvdm.ledger import ids
from pvdm.ledger.connection import Row, convert_if_found
from pvdm.ledger.record import restores
from pvdm.ledger.schema.work import claims, target_sources, workloads
from pvdm.ledger.unit import Unit
from pvdm.model.contract import Source
from pvdm.model.filter.claim import WAY_TO_CORRECT, Claim
from pvdm.model.states import WorkloadState

CLAIM_COLUMN_MAX_CHARACTERS: Final = 2_048


def take(unit: Unit, workload_id: str, *, target: str, claim: Claim) -> None:
    """Store the workload's claim; storing the same claim again changes nothing.

    Raises `claim_differs`, `claim_overlaps` with the other workload's id, or `claim_lost` after a restore. The target's
    claims stay locked until the transaction ends. A trigger of the database refuses overlaps by other writers.
    """
    if claim.column is not None:
        ids.require_name(claim.column, "claim column", most=CLAIM_COLUMN_MAX_CHARACTERS)
    lock(unit, target)
    own = find(unit, workload_id, target=target)
    if own is not None:
        _require_same(workload_id, own, claim)
        return
    require_free(unit, workload_id, target=target, claim=claim)
    _insert(unit, workload_id, target, claim)


def refill(unit: Unit, workload_id: str, *, target: str, claim: Claim) -> bool:
    """Store a claim that a restore has read from proofs. If it overlaps another, store nothing and return False."""
    lock(unit, target)
    if find(unit, workload_id, target=target) is not None:
        return True
    if find_overlapping(unit, workload_id, target=target, claim=claim) is not None:
        return False
    _insert(unit, workload_id, target, claim)
    return True


def _insert(unit: Unit, workload_id: str, target: str, claim: Claim) -> None:
    unit.insert(
        claims,
        workload_id=ids.require_workload_id(workload_id),
        target=ids.require_name(target, "target"),
        claim_column=claim.column,
        column_kind=claim.kind,
        lower_bound=claim.lower,
        upper_bound=claim.upper,
        extent=claim.text,
    )


def lock(unit: Unit, target: str) -> None:
    """Lock the target's claims until the transaction ends."""
    unit.lock_name(f"claims {target}")


def require_free(unit: Unit, workload_id: str, *, target: str, claim: Claim) -> None:
    """Raise `claim_overlaps` or `claim_lost`. The result stays valid only while the target's claims are locked."""
    restores.require_no_lost_claim(unit, target=target)
    other = find_overlapping(unit, workload_id, target=target, claim=claim)
    if other is not None:
        raise _overlap_error(unit, *other, claim)


def find(unit: Unit, workload_id: str, *, target: str) -> Claim | None:
    """The workload's own claim on this target, or None."""
    return convert_if_found(_to_claim, unit.find(claims, workload_id=workload_id, target=target))


def list_claim_texts(unit: Unit, workload_ids: Sequence[str]) -> dict[str, str]:
    """The claims of these workloads as text, by workload id. A workload without a claim is left out."""
    wanted = unit.rows_with(select(claims.c.workload_id, claims.c.extent), claims.c.workload_id, workload_ids)
    return {row["workload_id"]: row["extent"] for row in wanted}


def find_overlapping(unit: Unit, workload_id: str, *, target: str, claim: Claim) -> tuple[str, Claim] | None:
    """The id and the claim of the first other workload (by id) whose claim may share a row with this one, or None."""
    c = claims.c
    wanted = select(claims).where(c.target == target, c.workload_id != workload_id)
    if claim.column is not None:  # a claim without a column is the whole target and overlaps every other
        not_comparable = (c.claim_column.is_(None), c.claim_column != claim.column, c.column_kind != claim.kind)
        ends_after = or_(c.upper_bound.is_(None), c.upper_bound > claim.lower)
        # Without an upper bound, every claim begins before this one ends: the condition is always true.
        begins_before = c.lower_bound >= b"" if claim.upper is None else c.lower_bound < claim.upper
        wanted = wanted.where(or_(*not_comparable, ends_after & begins_before))
    row = unit.row(wanted.order_by(c.workload_id).limit(1))
    return None if row is None else (row["workload_id"], _to_claim(row))


def _require_same(workload_id: str, stored: Claim, asked: Claim) -> None:
    if (stored.column, stored.kind, stored.lower, stored.upper) != (asked.column, asked.kind, asked.lower, asked.upper):
        # The texts show a column's name. If they are equal, the identities of the columns are shown too.
        expected, got = stored.text, asked.text
        if expected == got:
            expected, got = f"{stored.text}, by {stored.column}", f"{asked.text}, by {asked.column}"
        message = f"workload {workload_id} has another claim"
        raise Code.CLAIM_REFUSED(message, reason="claim_differs", expected=expected, got=got, workload_id=workload_id)


def _overlap_error(unit: Unit, workload_id: str, stored: Claim, asked: Claim) -> PvdmError:
    other = unit.find(workloads, workload_id=workload_id)
    unfinished = other is not None and other["state"] == WorkloadState.OPEN
    resume_hint = f"workload {workload_id} is not complete: run it again under that id to publish the rest of it; "
    if asked.column is None or stored.column is None:
        why = "; without boundary.claim in its contract a workload claims the whole target, so that no other can append"
    elif (asked.column, asked.kind) != (stored.column, stored.kind):
        why = f"; the claim of {workload_id} is on another column, or on another type of it, and may hold the same rows"
    else:
        why = ""
    return Code.CLAIM_REFUSED(
        f"workload {workload_id} has published an overlapping part",
        reason="claim_overlaps",
        expected=f"a part that shares nothing with: {stored.text}",
        got=asked.text,
        hint=f"nothing was published; {resume_hint if unfinished else ''}to correct what {workload_id} has published, "
        f"{WAY_TO_CORRECT}{why}",
        workload_id=workload_id,
    )


def _to_claim(row: Row) -> Claim:
    lower, upper = bytes(row["lower_bound"]), None if row["upper_bound"] is None else bytes(row["upper_bound"])
    return Claim(row["claim_column"], row["column_kind"], lower, upper, row["extent"])


def find_source(unit: Unit, target: str, name: str) -> str | None:
    """The UUID of the source of this name from which the target last got rows, or None."""
    row = unit.find(target_sources, target=target, source_name=name)
    return None if row is None else str(row["source"])


def require_same_source(unit: Unit, target: str, named: Source, source_uuid: str) -> None:
    """Raise `source_replaced` if the contract's source (`named`) is not the table with the UUID `source_uuid`.

    A contract that names no UUID means the table from which the target last got rows. A source of Parquet files
    (`named.table` is None) is not checked: the contract names the manifest that lists the files.
    """
    if named.table is None:
        return
    expected = named.uuid or find_source(unit, target, named.table)
    if expected is not None and expected != source_uuid:
        by = "the contract names" if named.uuid is not None else "was last published from"
        raise Code.SOURCE_NOT_ALLOWED(
            f"{named.table} is another table than the one that {by}",
            reason="source_replaced",
            expected=f"the table with UUID {expected}",
            got=f"UUID {source_uuid}",
            hint="nothing was published; an operator checks the new table, sets "
            f"`uuid: {source_uuid}` in boundary.source of the contract, and signs that: "
            "`pvdm migrate propose --contract FILE`",
            source_uuid=source_uuid,
        )


def note_source(unit: Unit, target: str, named: Source, source_uuid: str, *, workload_id: str) -> None:
    """Note that the target has published from this source. The caller holds the lock of the target's claims."""
    if named.table is None or find_source(unit, target, named.table) == source_uuid:
        return
    key = {"target": ids.require_name(target, "target"), "source_name": ids.require_name(named.table, "source name")}
    changed = {"source": ids.require_name(source_uuid, "source"), "workload_id": workload_id}
    if not unit.insert_new(target_sources, **key, **changed):
        unit.update(target_sources, key, **changed)
