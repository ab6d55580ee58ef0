"""Claims that a restored backup does not know: what receipts published of a target, until somebody has looked."""

from __future__ import annotations

from sqlalchemy import select, update

from pvdm.errors import InputError, VerificationError
from pvdm.ledger import ids
from pvdm.ledger.schema.work import claims, lost_claims
from pvdm.ledger.unit import Unit


def is_claimed(unit: Unit, workload_id: str, target: str) -> bool:
    """Whether the ledger still has the workload's own claim on the target."""
    wanted = select(claims.c.target).where(claims.c.workload_id == workload_id, claims.c.target == target).limit(1)
    return unit.row(wanted) is not None


def put(unit: Unit, receipt_id: str, workload_id: str, *, target: str) -> None:
    """Nobody knows which rows the receipt's workload took: any part of the target may be its own."""
    unit.insert_new(
        lost_claims,
        receipt_id=ids.sha256(receipt_id, "receipt id"),
        workload_id=ids.workload_id(workload_id),
        target=ids.name(target, "target"),
        released_by=None,
        reason="the ledger was restored from a backup",
    )


def require_free(unit: Unit, *, target: str) -> None:
    """No claim on what may have been published in the time that a restore lost, from whatever source."""
    c = lost_claims.c
    wanted = select(lost_claims).where(c.target == target, c.released_by.is_(None))
    row = unit.row(wanted.order_by(c.receipt_id).limit(1))
    if row is not None:
        raise VerificationError(
            "claim_lost",
            f"workload {row['workload_id']} has published a part that the restored ledger does not know",
            expected="a target whose claims are all known",
            got=f"receipt {row['receipt_id']}",
            hint="nothing was published; compare the table with its source, then release the receipt's claim",
            workload_id=row["workload_id"],
        )


def release(unit: Unit, receipt_id: str, *, operator: str, reason: str) -> None:
    """An operator has looked: what the receipt published is not to be published again by anybody's claim."""
    row = unit.locked(lost_claims, receipt_id=receipt_id)
    if row is None:
        raise InputError("receipt_unknown", "no claim of this receipt was lost", got=ascii(receipt_id[:80]))
    changed = {
        "released_by": ids.name(operator, "operator"),
        "reason": ids.reason(reason),
        "at_micros": unit.at_micros,
    }
    unit.execute(update(lost_claims).where(lost_claims.c.receipt_id == receipt_id).values(**changed))
