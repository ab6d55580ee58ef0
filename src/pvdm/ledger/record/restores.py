"""Restores from a backup, and what a restored ledger lacks: claims and published chunks of the lost time.

The lost time is the time from the backup to the loss of the ledger. During a restore, nothing else uses the ledger.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Final

from sqlalchemy import func, select, update

from pvdm.errors import Code, NotAllowedError
from pvdm.ledger import ids
from pvdm.ledger.connection import Row, convert_if_found, record_from, record_if_found
from pvdm.ledger.schema.catalog import tables
from pvdm.ledger.schema.record import lost_claims, restores, statements, used_chunks
from pvdm.ledger.schema.work import claims
from pvdm.ledger.unit import Unit, where_given
from pvdm.model.statements.kind import StatementKind

_LOCK: Final = "restores"


@dataclass(frozen=True, slots=True)
class Restore:
    """A restore. `backup_size`: the log's size in the backup; `outside_note`: the checkpoint kept outside the ledger.

    `epoch_before` is the last epoch (key generation) before the restore. `log_keys` are public keys of the log that the
    keystore lacks; operators give them. `outcome` is what the restore changed. `finished_micros` is None until its end.
    """

    restore_id: int
    operator: str
    reason: str
    backup_size: int
    outside_note: bytes
    epoch_before: int
    log_keys: tuple[bytes, ...]
    outcome: dict[str, Any]
    finished_micros: int | None = None


def find_unfinished(unit: Unit) -> Restore | None:
    """The restore that is under way, or None."""
    return convert_if_found(_to_restore, unit.row(select(restores).where(restores.c.finished_micros.is_(None))))


def find_newest(unit: Unit) -> Restore | None:
    """The last restore, or None."""
    return convert_if_found(_to_restore, unit.row(select(restores).order_by(restores.c.restore_id.desc()).limit(1)))


def next_id(unit: Unit) -> int:
    """The number of the next restore."""
    return int(unit.execute(select(func.coalesce(func.max(restores.c.restore_id), 0))).scalar_one()) + 1


def begin(unit: Unit, restore: Restore) -> None:
    """Store the restore. From the end of this transaction until `finish`, nothing else runs on the ledger."""
    unit.lock_name(_LOCK)
    require_none_unfinished(unit)
    ids.require_name(restore.operator, "operator")
    ids.require_reason(restore.reason)
    values = {
        **asdict(restore),
        "log_keys": json.dumps([der.hex() for der in restore.log_keys]),
        "outcome": json.dumps(restore.outcome, sort_keys=True),
        "finished_micros": None,
    }
    unit.insert(restores, **values)


def finish(unit: Unit, restore_id: int) -> None:
    """Store that the restore is done. A second call changes nothing."""
    wanted = update(restores).where(restores.c.restore_id == restore_id, restores.c.finished_micros.is_(None))
    unit.execute(wanted.values(finished_micros=unit.at_micros, at_micros=unit.at_micros))


def require_none_unfinished(unit: Unit) -> None:
    """Raise `restore_unfinished` if a restore is under way: work now would hide that the ledger was rolled back."""
    found = find_unfinished(unit)
    if found is not None:
        raise Code.RESTORE_UNFINISHED(got=f"restore {found.restore_id} by {found.operator}")


def find_newest_micros(unit: Unit) -> int | None:
    """When the ledger was last restored; None if there was no restore."""
    found: int | None = unit.execute(select(func.max(restores.c.at_micros))).scalar_one()
    return found


def require_issued_after(unit: Unit, issued_at: int, *, what: str = "override") -> None:
    """Refuse a statement that was issued before the last restore: it may have been used in the lost time."""
    newest = find_newest_micros(unit)
    if newest is not None and issued_at <= newest:
        reason, hint = f"{what}_before_restore", f"nothing was changed; sign a new {what}"
        message = f"the {what} is older than the last restore of the ledger, so its use may have been lost"
        raise NotAllowedError(reason, message, expected=f"issued after {newest}", got=str(issued_at), hint=hint)


def list_log_keys(unit: Unit) -> list[tuple[bytes, bytes]]:
    """The public log keys that operators gave at restores, each with the outside checkpoint's note at that restore."""
    return [
        (bytes.fromhex(der), bytes(row["outside_note"]))
        for row in unit.rows(select(restores).order_by(restores.c.restore_id))
        for der in json.loads(row["log_keys"])
    ]


def store_old_statement(
    unit: Unit, kind: StatementKind, statement_id: str, envelope: bytes, *, log_index: int, at_micros: int
) -> None:
    """Store an envelope from the lost time, with the time of its log entry."""
    statement_id = ids.require_sha256(statement_id, "statement id")
    values = {"kind": kind, "envelope": envelope, "log_index": log_index, "at_micros": at_micros}
    unit.execute(statements.insert(), {"statement_id": statement_id, **values})


def _to_restore(row: Row) -> Restore:
    return record_from(
        Restore,
        row,
        log_keys=tuple(bytes.fromhex(der) for der in json.loads(row["log_keys"])),
        outcome=json.loads(row["outcome"]),
    )


def has_claim(unit: Unit, workload_id: str, target: str) -> bool:
    """Whether the ledger still has the workload's claim on the target."""
    return unit.find(claims, workload_id=workload_id, target=target) is not None


@dataclass(frozen=True, slots=True)
class LostClaim:
    """The lost claim of a publication, whose workload may have claimed any part of the target.

    `receipt_id` is the publication's receipt, or a proof if it has no receipt. Without `release_id`, the id of a claim
    release, the lost claim blocks claims of other workloads.
    """

    receipt_id: str
    workload_id: str
    target: str
    release_id: str | None


def put_lost_claim(
    unit: Unit, receipt_id: str, workload_id: str, *, target: str, release_id: str | None = None
) -> None:
    """Store a lost claim; `release_id` if it was released before the restore. A second call changes nothing."""
    unit.insert_new(
        lost_claims,
        receipt_id=ids.require_sha256(receipt_id, "receipt id"),
        workload_id=ids.require_workload_id(workload_id),
        target=ids.require_name(target, "target"),
        release_id=release_id,
    )


def find_lost_claim(unit: Unit, receipt_id: str) -> LostClaim | None:
    """The lost claim of this receipt, or of this proof; or None."""
    return record_if_found(LostClaim, unit.find(lost_claims, receipt_id=receipt_id))


def lock_lost_claim(unit: Unit, receipt_id: str) -> LostClaim:
    """The lost claim, locked until the transaction ends. Raises `claim_not_lost`."""
    found = record_if_found(LostClaim, unit.lock_row(lost_claims, receipt_id=receipt_id))
    if found is None:
        raise Code.APPROVAL_REFUSED(reason="claim_not_lost", got=receipt_id)
    return found


def list_lost_claims(
    unit: Unit, *, domain: str | None = None, receipt_id: str | None = None, count: int
) -> list[LostClaim]:
    """At most `count` lost claims: first those that block claims, then released ones; both newest first."""
    c = lost_claims.c
    own_table = (tables.c.table_uuid == c.target) & tables.c.dropped_micros.is_(None)
    wanted = select(lost_claims).outerjoin(tables, own_table)
    wanted = where_given(wanted, (tables.c.domain, domain), (c.receipt_id, receipt_id))
    ordered = wanted.order_by(c.release_id.is_not(None), c.at_micros.desc(), c.receipt_id)
    return unit.records(LostClaim, ordered.limit(count))


def list_lost_claims_of(unit: Unit, workload_id: str) -> list[LostClaim]:
    """The workload's lost claims, in order of the receipt's (or proof's) id."""
    wanted = select(lost_claims).where(lost_claims.c.workload_id == workload_id)
    return unit.records(LostClaim, wanted.order_by(lost_claims.c.receipt_id))


def list_released(unit: Unit, *, target: str) -> list[str]:
    """The ids of the target's receipts (or proofs) whose lost claims are released, in order."""
    c = lost_claims.c
    wanted = select(c.receipt_id).where(c.target == target, c.release_id.is_not(None)).order_by(c.receipt_id)
    return [row["receipt_id"] for row in unit.rows(wanted)]


def require_no_lost_claim(unit: Unit, *, target: str) -> None:
    """Raise `claim_lost` if a part of the target may have been published in the lost time."""
    c = lost_claims.c
    wanted = select(lost_claims).where(c.target == target, c.release_id.is_(None))
    row = unit.row(wanted.order_by(c.receipt_id).limit(1))
    if row is not None:
        message = f"workload {row['workload_id']} has published a part that the restored ledger does not know"
        got = f"receipt {row['receipt_id']}"
        raise Code.CLAIM_REFUSED(message, reason="claim_lost", got=got, workload_id=row["workload_id"])


def release_lost_claim(unit: Unit, lost: LostClaim, release_id: str) -> None:
    """Release a locked lost claim, by a stored claim release. Raises `claim_released` if it is released already."""
    if lost.release_id is not None:
        raise Code.APPROVAL_REFUSED(reason="claim_released", got=f"released by {lost.release_id}")
    unit.update(lost_claims, {"receipt_id": lost.receipt_id}, release_id=release_id)


@dataclass(frozen=True, slots=True)
class UsedChunk:
    """A chunk that was published, or may have been. `statement_id` is its receipt, or its proof if there is none."""

    chunk_id: str
    snapshot_id: str
    statement_id: str


def put_used_chunk(unit: Unit, workload_id: str, chunk_id: str, *, snapshot_id: str, receipt_id: str) -> None:
    """Store that the chunk may be published; a second call changes nothing. `receipt_id` may be the id of a proof."""
    unit.insert_new(
        used_chunks,
        workload_id=ids.require_workload_id(workload_id),
        chunk_id=ids.require_name(chunk_id, "chunk id"),
        snapshot_id=ids.require_snapshot_id(snapshot_id),
        receipt_id=receipt_id,
    )


def list_used_chunks(unit: Unit, workload_id: str) -> list[UsedChunk]:
    """The workload's chunks that were, or may have been, published in the lost time; in order of id."""
    wanted = select(used_chunks).where(used_chunks.c.workload_id == workload_id).order_by(used_chunks.c.chunk_id)
    return [UsedChunk(row["chunk_id"], row["snapshot_id"], row["receipt_id"]) for row in unit.rows(wanted)]


def require_not_published_in_lost_time(unit: Unit, workload_id: str) -> None:
    """Raise `workload_spent` if a chunk of the workload was, or may have been, published in the lost time."""
    used = list_used_chunks(unit, workload_id)
    if used:
        message = f"workload {workload_id} was published before the ledger was restored"
        got = f"chunk {used[0].chunk_id} as snapshot {used[0].snapshot_id}"
        raise Code.WORKLOAD_SPENT(message, got=got, workload_id=workload_id)
