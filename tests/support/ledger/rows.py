"""Rows of a ledger for tests: workloads, attempts and other records. Ids are derived from short names or numbers."""

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
    """The attempt id or nonce with this name."""
    return hashlib.sha256(str(name).encode()).hexdigest()[:32]


def hex64(name: object) -> str:
    """The SHA-256 of a name, in hex, where a record needs a hash or an id of this length."""
    return hashlib.sha256(str(name).encode()).hexdigest()


def workload_opening(workload_id: str = "orders-1", *, parameters: bytes = b'{"day":1}', table: str = "t-1") -> Opening:
    """The parameters of a workload that copies `raw.orders`."""
    return Opening(workload_id, hex64("contract"), table, "raw.orders", parameters, Atomicity.CHUNK, "sales")


def pinned_workload(*chunk_ids: str) -> PinnedWorkload:
    """A source snapshot, an epoch and a plan with these chunks; without any, chunks `a` and `b`."""
    planned = [Chunk(chunk_id, b'{"chunk":"%s"}' % chunk_id.encode()) for chunk_id in chunk_ids or ("a", "b")]
    return PinnedWorkload("77", hex64("plan"), 3, planned)


def open_workload(unit: Unit, workload_id: str = "orders-1", *chunk_ids: str) -> Workload:
    """Open a workload with these chunks; without any, chunks `a` and `b`."""
    return workloads.open_once(unit, workload_opening(workload_id), pinned_workload(*chunk_ids))


def attempt_opening(name: object, *, workload_id: str = "orders-1", chunk_id: str = "a") -> AttemptOpening:
    """The values of a new attempt. Its id is `hex32("attempt NAME")`, its nonce `nonce_of(name, 0)`."""
    attempt_id = hex32(f"attempt {name}")
    return AttemptOpening(
        attempt_id,
        workload_id,
        chunk_id,
        f"pvdm-{attempt_id}",
        f"s3://b/{attempt_id}/",
        nonce_of(name, 0),
        "first",
    )


def open_attempt(unit: Unit, name: object = 1, *, workload_id: str = "orders-1", chunk_id: str = "a") -> Attempt:
    """Open the chunk's next attempt, which is then STAGING."""
    return attempts.open_next(unit, attempt_opening(name, workload_id=workload_id, chunk_id=chunk_id))


def attempt_in_state(unit: Unit, state: AttemptState, name: object = 1) -> Attempt:
    """Open an attempt and bring it to `state`. From VERIFYING on its nonce is `nonce_of(name, 1)`."""
    found = open_attempt(unit, name)
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


def nonce_of(name: object, number: int) -> str:
    """The attempt's nonce with this number: an attempt gets a new nonce for each verification."""
    return hex32(f"nonce {name} {number}")


def override_of(record: ProofRecord, name: object = "override") -> OverrideRecord:
    """The operator Ruth's override of a FAIL proof, with its own nonce."""
    return OverrideRecord(hex64(name), record.proof_id, hex32(f"nonce of {name}"), "operator-ruth", _NOW + 60)


def append_entry(unit: Unit) -> int:
    """Append an entry to the log and return its index, for statements that refer to one. Its hash fits no tree."""
    log = LedgerLog(unit)
    index = log.size()
    leaf = {(0, index): hashlib.sha256(b"%d" % index).digest()}
    log.append(at=index, entries=[b"entry %d" % index], hashes=leaf, checkpoint=b"note")
    return index


CHALLENGE: Final = ChallengeRecord(hex32("asked"), "source-payments", 3, '{"snapshot_id":"77"}', _NOW + 60)
ATTESTATION: Final = AttestationRecord(hex64("attested"), CHALLENGE.nonce, CHALLENGE.attestor, "payments", "u-1", "77")
HANDLE: Final = StoredHandle(hex64("handle"), "job-1", 2, HandleState.ISSUED, None, frozenset())


def newest_verified(unit: Unit, attempt_id: str) -> VerifiedRecord | None:
    """The verified manifest and findings of the attempt's newest verification."""
    wanted = select(verified_table.c.nonce).where(verified_table.c.attempt_id == attempt_id)
    row = unit.row(wanted.order_by(verified_table.c.at_micros.desc(), verified_table.c.nonce).limit(1))
    return None if row is None else verified.get(unit, row["nonce"])


def receipts_of(unit: Unit, workload_id: str) -> list[ReceiptRecord]:
    """Every receipt of a workload, oldest first."""
    wanted = select(receipts_table.c.receipt_id).where(receipts_table.c.workload_id == workload_id)
    rows = unit.rows(wanted.order_by(receipts_table.c.at_micros, receipts_table.c.receipt_id))
    return [receipts.get(unit, row["receipt_id"]) for row in rows]
