"""Workloads, attempts and ids for the ledger's tests, all made from small numbers."""

from __future__ import annotations

import hashlib
from typing import Final

from sqlalchemy import select

from pvdm.ledger.record import receipts
from pvdm.ledger.record.events import LedgerLog
from pvdm.ledger.record.proofs import OverrideRecord, ProofRecord
from pvdm.ledger.record.receipts import ReceiptRecord
from pvdm.ledger.record.shared_settings import StoredHandle
from pvdm.ledger.record.statements import AttestationRecord, ChallengeRecord
from pvdm.ledger.schema.record import receipts as receipts_table
from pvdm.ledger.schema.work import verified as verified_table
from pvdm.ledger.unit import Unit
from pvdm.ledger.work import attempts, verified, workloads
from pvdm.ledger.work.attempts import Attempt, AttemptOpening
from pvdm.ledger.work.chunks import Chunk
from pvdm.ledger.work.verified import VerifiedRecord
from pvdm.ledger.work.workloads import Opening, PinnedWorkload, Workload
from pvdm.model.contract import Atomicity
from pvdm.model.states import AttemptState, HandleState

_NOW: Final = 1_800_000_000_000_000


def hex32(name: object) -> str:
    """An attempt id or nonce."""
    return hashlib.sha256(str(name).encode()).hexdigest()[:32]


def hex64(name: object) -> str:
    """A hash."""
    return hashlib.sha256(str(name).encode()).hexdigest()


def opening(workload_id: str = "orders-1", *, parameters: bytes = b'{"day":1}', table: str = "t-1") -> Opening:
    return Opening(workload_id, hex64("contract"), table, "raw.orders", parameters, Atomicity.CHUNK, "sales")


def pinned(*chunk_ids: str) -> PinnedWorkload:
    planned = [Chunk(chunk_id, b'{"chunk":"%s"}' % chunk_id.encode()) for chunk_id in chunk_ids or ("a", "b")]
    return PinnedWorkload("77", hex64("plan"), 3, planned)


def opened(unit: Unit, workload_id: str = "orders-1", *chunk_ids: str) -> Workload:
    return workloads.open_once(unit, opening(workload_id), pinned(*chunk_ids))


def attempt_opening(name: object, *, workload_id: str = "orders-1", chunk_id: str = "a") -> AttemptOpening:
    attempt_id = hex32(f"attempt {name}")
    return AttemptOpening(
        attempt_id,
        workload_id,
        chunk_id,
        f"pvdm-{attempt_id}",
        f"s3://b/{attempt_id}/",
        hex32(f"nonce {name} 0"),
        "first",
    )


def staging(unit: Unit, name: object = 1, *, workload_id: str = "orders-1", chunk_id: str = "a") -> Attempt:
    return attempts.open_next(unit, attempt_opening(name, workload_id=workload_id, chunk_id=chunk_id))


def in_state(unit: Unit, state: AttemptState, name: object = 1) -> Attempt:
    """An attempt led to `state` by the shortest way; from VERIFYING on its nonce is `nonce_of(name, 1)`."""
    found = staging(unit, name)
    if state is AttemptState.STAGING:
        return found
    if state is AttemptState.ROLLED_BACK:
        return attempts.end(unit, found.attempt_id, state, reason="stopped")
    attempts.begin_verifying(
        unit, found.attempt_id, nonce=nonce_of(name, 1), staged_snapshot_id="5", reason="complete write"
    )
    if state is AttemptState.VERIFICATION_FAILED:
        return attempts.end(unit, found.attempt_id, state, reason="FAIL")
    if state is not AttemptState.VERIFYING:
        attempts.begin_committing(unit, found.attempt_id, reason="PASS")
    if state is AttemptState.COMMITTED:
        attempts.publish(unit, found.attempt_id, nonce=nonce_of(name, 1), snapshot_id="900")
    return attempts.get(unit, found.attempt_id)


def nonce_of(name: object, drawn: int) -> str:
    return hex32(f"nonce {name} {drawn}")


def override_of(record: ProofRecord, name: object = "override") -> OverrideRecord:
    """Ruth's override of that proof, under a nonce of its own."""
    return OverrideRecord(hex64(name), record.proof_id, hex32(f"nonce of {name}"), "operator-ruth", _NOW + 60)


def logged(unit: Unit) -> int:
    """The index of a new entry of the log, with hashes that are no tree: enough for a statement to refer to."""
    log = LedgerLog(unit)
    at = log.size()
    log.append(
        at=at, entries=[b"entry %d" % at], hashes={(0, at): hashlib.sha256(b"%d" % at).digest()}, checkpoint=b"note"
    )
    return at


ASKED: Final = ChallengeRecord(hex32("asked"), "source-payments", 3, '{"snapshot_id":"77"}', _NOW + 60)
ATTESTED: Final = AttestationRecord(hex64("attested"), ASKED.nonce, ASKED.attestor, "payments", "u-1", "77")
HANDLE: Final = StoredHandle(hex64("handle"), "job-1", 2, HandleState.ISSUED, None, frozenset())


def newest_verified(unit: Unit, attempt_id: str) -> VerifiedRecord | None:
    """What was found last for an attempt."""
    wanted = select(verified_table.c.nonce).where(verified_table.c.attempt_id == attempt_id)
    row = unit.row(wanted.order_by(verified_table.c.at_micros.desc(), verified_table.c.nonce).limit(1))
    return None if row is None else verified.get(unit, row["nonce"])


def receipts_of(unit: Unit, workload_id: str) -> list[ReceiptRecord]:
    """Every receipt of a workload, oldest first."""
    wanted = select(receipts_table.c.receipt_id).where(receipts_table.c.workload_id == workload_id)
    rows = unit.rows(wanted.order_by(receipts_table.c.at_micros, receipts_table.c.receipt_id))
    return [receipts.get(unit, row["receipt_id"]) for row in rows]
