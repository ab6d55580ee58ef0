"""Receipts: the signed word about what a publication made visible, one a snapshot."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import select

from pvdm.errors import ConflictError, InputError
from pvdm.ledger import ids
from pvdm.ledger.batches import in_batches
from pvdm.ledger.connection import Row
from pvdm.ledger.record import statements
from pvdm.ledger.schema.work import StatementKind, published, receipts, workloads
from pvdm.ledger.unit import Unit


@dataclass(frozen=True, slots=True)
class ReceiptRecord:
    """What the ledger has to find about a receipt; the envelope says the rest."""

    receipt_id: str
    workload_id: str
    table_uuid: str
    snapshot_id: str


def put(unit: Unit, receipt: ReceiptRecord, envelope: bytes, *, log_index: int) -> None:
    """Store a receipt with its envelope; the same again is no change, a second one for a snapshot is refused."""
    statements.put(unit, StatementKind.RECEIPT, receipt.receipt_id, envelope, log_index=log_index)
    new = unit.insert_new(
        receipts,
        receipt_id=receipt.receipt_id,
        workload_id=receipt.workload_id,
        table_uuid=ids.name(receipt.table_uuid, "table UUID"),
        snapshot_id=ids.snapshot_id(receipt.snapshot_id),
    )
    if not new and get(unit, receipt.receipt_id) != receipt:
        raise ConflictError("statement_differs", "other facts are stored under this receipt", got=receipt.receipt_id)


def get(unit: Unit, receipt_id: str) -> ReceiptRecord:
    """The receipt's record; not being there is an error."""
    row = unit.found(receipts, receipt_id=receipt_id)
    if row is None:
        raise InputError("receipt_unknown", "the ledger holds no such receipt", got=ascii(receipt_id[:80]))
    return _receipt(row)


def envelope(unit: Unit, receipt_id: str) -> bytes:
    """The signed bytes."""
    return statements.get(unit, receipt_id).envelope


def of_snapshot(unit: Unit, table_uuid: str, snapshot_id: str) -> ReceiptRecord | None:
    """The receipt of a snapshot; None where a publication crashed before it, which start-up makes good."""
    wanted = select(receipts).where(receipts.c.table_uuid == table_uuid, receipts.c.snapshot_id == snapshot_id)
    row = unit.row(wanted)
    return None if row is None else _receipt(row)


def any_made(unit: Unit) -> bool:
    """Whether anything was ever published."""
    return unit.row(select(receipts).limit(1)) is not None


def of_workload(unit: Unit, workload_id: str) -> list[ReceiptRecord]:
    """Every receipt of a workload, oldest first."""
    wanted = select(receipts).where(receipts.c.workload_id == workload_id)
    return [_receipt(row) for row in unit.rows(wanted.order_by(receipts.c.at_micros, receipts.c.receipt_id))]


def _receipt(row: Row) -> ReceiptRecord:
    return ReceiptRecord(row["receipt_id"], row["workload_id"], row["table_uuid"], row["snapshot_id"])


@dataclass(frozen=True, slots=True)
class Unwitnessed:
    """A publication without its receipt, and the nonces that it was paid with."""

    workload_id: str
    table_uuid: str
    snapshot_id: str
    published_micros: int
    nonces: tuple[str, ...]


def missing(unit: Unit, *, since_micros: int = 0) -> list[Unwitnessed]:
    """Every publication since then whose receipt a crash prevented, oldest first."""
    of = published.join(workloads, workloads.c.workload_id == published.c.workload_id).outerjoin(
        receipts,
        (receipts.c.table_uuid == workloads.c.table_uuid) & (receipts.c.snapshot_id == published.c.snapshot_id),
    )
    wanted = select(published, workloads.c.table_uuid).select_from(of).where(receipts.c.receipt_id.is_(None))
    wanted = wanted.where(published.c.at_micros >= since_micros)
    return _grouped(unit.rows(wanted.order_by(published.c.at_micros, published.c.snapshot_id, published.c.nonce)))


def missing_among(unit: Unit, table_uuid: str, snapshot_ids: Collection[int]) -> set[int]:
    """Those of these snapshots of a table that were published, and whose receipt is not made yet."""
    wanted = sorted(str(each) for each in snapshot_ids)
    made = select(receipts.c.snapshot_id).where(receipts.c.table_uuid == table_uuid)
    left = set(wanted)
    for some in in_batches(wanted):
        left -= {row["snapshot_id"] for row in unit.rows(made.where(receipts.c.snapshot_id.in_(some)))}
    if not left:
        return set()
    of = published.join(workloads, workloads.c.workload_id == published.c.workload_id)
    shown = select(published.c.snapshot_id).select_from(of).where(workloads.c.table_uuid == table_uuid)
    return {int(row["snapshot_id"]) for row in unit.rows(shown) if row["snapshot_id"] in left}


def require_made(unit: Unit, table_uuid: str, snapshot_ids: Collection[int]) -> None:
    """No snapshot goes from a table while its receipt is missing: a receipt is made of what `main` shows."""
    if missing_among(unit, table_uuid, snapshot_ids):
        raise ConflictError(
            "table_moved", "history that goes has a publication without a receipt", expected="a receipt of each"
        )


def publication_of(unit: Unit, attempt_ids: Sequence[str]) -> Unwitnessed:
    """The one publication that made these attempts visible, whether or not it has its receipt."""
    mine = select(published.c.snapshot_id).where(published.c.attempt_id.in_(attempt_ids))
    of = published.join(workloads, workloads.c.workload_id == published.c.workload_id)
    wanted = select(published, workloads.c.table_uuid).select_from(of).where(published.c.snapshot_id.in_(mine))
    found = _grouped(unit.rows(wanted.order_by(published.c.at_micros, published.c.nonce)))
    if len(found) != 1:
        raise InputError(
            "publication_not_one",
            "these attempts were not published together",
            expected="one publication",
            got=str(len(found)),
        )
    return found[0]


def _grouped(rows: Sequence[Row]) -> list[Unwitnessed]:
    found: dict[tuple[str, str], Unwitnessed] = {}
    for row in rows:
        key = row["table_uuid"], row["snapshot_id"]
        before = found.get(key)
        nonces = () if before is None else before.nonces
        found[key] = Unwitnessed(row["workload_id"], *key, row["at_micros"], (*nonces, row["nonce"]))
    return list(found.values())
