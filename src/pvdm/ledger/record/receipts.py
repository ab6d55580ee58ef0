"""Receipts: signed statements of what publications made visible, one for each snapshot."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from sqlalchemy import Select, exists, select

from pvdm.errors import Code
from pvdm.ledger import ids
from pvdm.ledger.connection import Row, record_from, record_if_found
from pvdm.ledger.record import events, statements
from pvdm.ledger.schema.record import events as event_table
from pvdm.ledger.schema.record import receipts
from pvdm.ledger.schema.record import statements as statement_table
from pvdm.ledger.schema.work import published, workloads
from pvdm.ledger.unit import Unit, select_page
from pvdm.model.statements.kind import StatementKind

_PUBLISHED: Final = published.join(workloads, workloads.c.workload_id == published.c.workload_id)
_RECEIPT_LOST: Final = "receipt_lost"


@dataclass(frozen=True, slots=True)
class ReceiptRecord:
    """The facts of a receipt that have columns of their own. The rest is in the envelope."""

    receipt_id: str
    workload_id: str
    table_uuid: str
    snapshot_id: str


def put(unit: Unit, receipt: ReceiptRecord, envelope: bytes, *, log_index: int) -> None:
    """Store a receipt with its envelope. A repeated call changes nothing. Raises for a second receipt of a snapshot."""
    statements.put(unit, StatementKind.RECEIPT, receipt.receipt_id, envelope, log_index=log_index)
    ids.require_name(receipt.table_uuid, "table UUID")
    ids.require_snapshot_id(receipt.snapshot_id)
    if not unit.insert_new(receipts, **asdict(receipt)) and get(unit, receipt.receipt_id) != receipt:
        message = "other facts are stored under this receipt"
        raise Code.RECORD_DIFFERS(message, reason="statement_differs", got=receipt.receipt_id)


def get(unit: Unit, receipt_id: str) -> ReceiptRecord:
    """The receipt's record. Raises `receipt_unknown`."""
    return record_from(ReceiptRecord, unit.get(receipts, "receipt_unknown", receipt_id=receipt_id))


def find_by_snapshot(unit: Unit, table_uuid: str, snapshot_id: str) -> ReceiptRecord | None:
    """The receipt of a snapshot, or None. After a crash before the receipt, the next start makes the receipt."""
    return record_if_found(ReceiptRecord, unit.find(receipts, table_uuid=table_uuid, snapshot_id=snapshot_id))


def list_by_workload(unit: Unit, workload_id: str) -> list[ReceiptRecord]:
    """The receipts of a workload's publications, oldest first."""
    wanted = select(receipts).where(receipts.c.workload_id == workload_id)
    return unit.records(ReceiptRecord, wanted.order_by(receipts.c.at_micros, receipts.c.receipt_id))


def any_exist(unit: Unit) -> bool:
    """Whether the ledger holds any receipt."""
    return unit.row(select(receipts).limit(1)) is not None


def list_ids_by_table(unit: Unit, table_uuid: str, *, after: int | None, count: int) -> list[str]:
    """The ids of the table's next `count` receipts after the log index `after`, in the log's order."""
    same_statement = statement_table.c.statement_id == receipts.c.receipt_id
    of_table = select(receipts.c.receipt_id).join(statement_table, same_statement)
    of_table = of_table.where(receipts.c.table_uuid == table_uuid)
    rows = unit.rows(select_page(of_table, statement_table.c.log_index, after, count))
    return [row["receipt_id"] for row in rows]


@dataclass(frozen=True, slots=True)
class Publication:
    """A publication (of one or more chunks, as one snapshot), and the nonces that it used."""

    workload_id: str
    table_uuid: str
    snapshot_id: str
    published_micros: int
    nonces: tuple[str, ...]


def note_lost(unit: Unit, table_uuid: str, snapshot_id: str, proof_id: str) -> None:
    """Note that this publication gets no receipt: a restore found its proof, but not what its receipt stated."""
    events.note(unit, _RECEIPT_LOST, "published", f"{table_uuid}/{snapshot_id}", {"proof_id": proof_id})


def list_missing(unit: Unit, *, since_micros: int = 0) -> list[Publication]:
    """Every publication since that time whose receipt is still to be made, oldest first."""
    wanted = _select_missing().where(published.c.at_micros >= since_micros)
    order = (published.c.at_micros, published.c.snapshot_id, published.c.nonce)
    return _group_publications(unit.rows(wanted.order_by(*order)))


def find_without_receipt(unit: Unit, table_uuid: str, snapshot_ids: Collection[int]) -> set[int]:
    """The ids among `snapshot_ids` that were published to the table and whose receipts are still to be made."""
    texts = sorted(str(each) for each in snapshot_ids)
    of_table = select(receipts.c.snapshot_id).where(receipts.c.table_uuid == table_uuid)
    missing = set(texts) - {row["snapshot_id"] for row in unit.rows_with(of_table, receipts.c.snapshot_id, texts)}
    if not missing:
        return set()
    rows = unit.rows(_select_missing().where(workloads.c.table_uuid == table_uuid))
    return {int(row["snapshot_id"]) for row in rows if row["snapshot_id"] in missing}


def _select_missing() -> Select[Any]:
    """Select the published chunks without a receipt, except those whose receipt cannot be made (`note_lost`)."""
    same_table = receipts.c.table_uuid == workloads.c.table_uuid
    same_snapshot = same_table & (receipts.c.snapshot_id == published.c.snapshot_id)
    key = workloads.c.table_uuid + "/" + published.c.snapshot_id
    is_lost = exists().where(
        event_table.c.subject == "published", event_table.c.row_key == key, event_table.c.kind == _RECEIPT_LOST
    )
    wanted = select(published, workloads.c.table_uuid).select_from(_PUBLISHED.outerjoin(receipts, same_snapshot))
    return wanted.where(receipts.c.receipt_id.is_(None), ~is_lost)


def require_receipts(unit: Unit, table_uuid: str, snapshot_ids: Collection[int]) -> None:
    """Raise `table_moved` if one of these snapshots, which are to expire, is a publication without a receipt yet."""
    if find_without_receipt(unit, table_uuid, snapshot_ids):
        message = "history to be removed has a publication without a receipt"
        raise Code.TABLE_MOVED(message, expected="a receipt of each publication")


def get_publication(unit: Unit, attempt_ids: Sequence[str]) -> Publication:
    """The one publication of these attempts, with or without its receipt. Raises `publication_not_one`."""
    snapshots = select(published.c.snapshot_id).where(published.c.attempt_id.in_(attempt_ids))
    wanted = select(published, workloads.c.table_uuid).select_from(_PUBLISHED)
    wanted = wanted.where(published.c.snapshot_id.in_(snapshots))
    found = _group_publications(unit.rows(wanted.order_by(published.c.at_micros, published.c.nonce)))
    if len(found) != 1:
        raise Code.WORKLOAD_INVALID(reason="publication_not_one", got=str(len(found)))
    return found[0]


def _group_publications(rows: Sequence[Row]) -> list[Publication]:
    """One publication for each snapshot, from rows of one chunk each."""
    found: dict[tuple[str, str], Publication] = {}
    for row in rows:
        key = row["table_uuid"], row["snapshot_id"]
        before = found.get(key)
        nonces = () if before is None else before.nonces
        found[key] = Publication(row["workload_id"], *key, row["at_micros"], (*nonces, row["nonce"]))
    return list(found.values())
