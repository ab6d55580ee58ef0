"""A restore's one transaction: refill, settle what receipts say, end what was open, and mark that it is under way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pvdm.ledger import Unit
from pvdm.ledger.catalog import tables
from pvdm.ledger.record import protections, receipts, restores, statements, tokens
from pvdm.ledger.record.log_storage import LedgerLog
from pvdm.ledger.record.receipts import ReceiptRecord
from pvdm.ledger.record.restores import Restore
from pvdm.ledger.schema.record import StatementKind
from pvdm.ledger.work import announced, attempts, chunks, claims, nonces, workloads
from pvdm.model.filter.claim import Claim
from pvdm.model.statements.core import ProofCore
from pvdm.model.statements.proof import Proof
from pvdm.model.statements.receipt import Receipt
from pvdm.model.states import ATTEMPT, AnnouncedState, AttemptState, WorkloadState
from pvdm.steward.notary import Notary
from pvdm.steward.restore.behind import name_behind
from pvdm.steward.restore.claims import took_rows
from pvdm.steward.restore.gaps import Unreceipted
from pvdm.steward.restore.pointers import Advance, Pointers, apply_pointers
from pvdm.steward.restore.refill import Order, Plan
from pvdm.steward.restore.refill_approvals import refill_approvals
from pvdm.steward.restore.refill_check import Found
from pvdm.steward.restore.refill_verdicts import refill_verdicts
from pvdm.steward.work.opened import contract_of
from pvdm.trust.log.entry import EntryKind
from pvdm.trust.statement import read_signed

_WHY = "the ledger was restored from a backup"


def apply(notary: Notary, order: Order, plan: Plan, pointers: Pointers, known_claims: Mapping[str, Claim]) -> Restore:
    """All or nothing; afterwards the ledger is held by the marker until the restore has logged itself."""
    epoch_before = max((epoch.number for epoch in notary.keys.book().epochs), default=0)

    def work(unit: Unit) -> Restore:
        _refill(unit, plan)
        outcome: dict[str, Any] = {"refilled": len(plan.found), "missing": plan.missing, "lost": plan.lost}
        apply_pointers(unit, pointers)
        outcome |= _reconcile(unit, plan.found, pointers, known_claims)
        approved = refill_approvals(unit, plan.found, pointers.migrated)
        refill_verdicts(unit, plan.found)
        _reconcile_sources(unit, plan.found)
        outcome["protected"] = [asdict(each) for each in approved.protected.values()]
        outcome["remade"] = [asdict(each) for each in approved.remade]
        outcome["migrated"] = sorted(approved.migrated)
        outcome["advanced"] = [_advanced(each) for each in pointers.advances]
        outcome["behind"] = [asdict(each) for each in name_behind(unit, pointers.ahead)]
        outcome["unprotected"] = [asdict(each) for each in approved.unprotected.values()]
        outcome["unregistered"] = [asdict(each) for each in pointers.unregistered]
        outcome["unreadable"] = [asdict(each) for each in pointers.unreadable]
        outcome["unreceipted"] = [_unreceipted(each) for each in pointers.unreceipted if each.certain]
        outcome["lost_publications"] = [asdict(each) for each in pointers.lost]
        outcome["announced"] = end_announced(unit)
        outcome |= _end_what_was_open(unit)
        outcome["nonces"] = _void_nonces(unit)
        outcome["tokens"] = _revoke_tokens(unit)
        marker = Restore(
            restores.next_id(unit),
            order.operator,
            order.reason,
            plan.backup_size,
            plan.outside.note,
            epoch_before,
            order.log_keys,
            outcome,
        )
        restores.begin(unit, marker)
        return marker

    return notary.ledger.transact(work, at_micros=notary.clock.now_micros())


def _refill(unit: Unit, plan: Plan) -> None:
    log = LedgerLog(unit)
    if plan.entries:
        log.append(at=plan.backup_size, entries=plan.entries, hashes=plan.hashes, checkpoint=plan.note)
    for each in plan.found:
        if each.envelope is not None:
            kind, at = StatementKind(each.entry.kind), each.entry.time
            restores.store_old_statement(
                unit, kind, each.statement_id(), each.envelope, log_index=each.index, at_micros=at
            )


def _advanced(each: Advance) -> dict[str, Any]:
    return {
        "table": each.table.name,
        "table_uuid": each.table.uuid,
        "snapshot_id": None if each.snapshot_id is None else str(each.snapshot_id),
        "created": each.created is not None,
    }


def _unreceipted(each: Unreceipted) -> dict[str, str]:
    return {
        "table": each.table.name,
        "snapshot_id": each.snapshot_id,
        "workload_id": each.core.attempt.workload_id,
        "chunk_id": each.core.attempt.chunk_id,
        "proof_id": each.proof_id,
    }


def _reconcile(
    unit: Unit, found: Sequence[Found], pointers: Pointers, known_claims: Mapping[str, Claim]
) -> dict[str, Any]:
    """What receipts of the lost time say became visible: settled where the attempt is known, else its id is spent.

    What its table does not show any more is neither: it is to be published again. Where that cannot be told it is not.
    """
    settled: list[str] = []
    used_up: set[str] = set()
    blocked: list[dict[str, str]] = []
    lost = {each.receipt_id for each in pointers.lost} - pointers.unclear
    for each in found:
        if each.envelope is None or each.entry.kind is not EntryKind.RECEIPT:
            continue
        said = read_signed(each.envelope, Receipt)
        receipt_id, snapshot = each.statement_id(), str(said.new_snapshot_id)
        record = ReceiptRecord(receipt_id, said.workload_id, said.table.uuid, snapshot)
        receipts.put(unit, record, each.envelope, log_index=each.index)
        cores = {proof_id: _proved(unit, proof_id) for proof_id in said.proof_ids}
        if receipt_id in lost:
            if took_rows(cores.values()) and tables.find_by_uuid(unit, said.table.uuid) is None:
                # Whoever registers one of its documents has its rows again: nothing is claimed there unseen.
                restores.put_lost_claim(unit, receipt_id, said.workload_id, target=said.table.uuid)
            continue
        for proof_id, core in cores.items():
            if core is not None and _settle(unit, core, snapshot):
                settled.append(core.attempt.attempt_id)
                continue
            chunk_id = f"proof {proof_id}" if core is None else core.attempt.chunk_id
            restores.put_used_chunk(unit, said.workload_id, chunk_id, snapshot_id=snapshot, receipt_id=receipt_id)
            used_up.add(said.workload_id)
        _complete(unit, said.workload_id)
        claim = known_claims.get(receipt_id)
        if took_rows(cores.values()) and _block(unit, said.table.uuid, said.workload_id, receipt_id, claim):
            blocked.append({"table": said.table.name, "receipt_id": receipt_id, "workload_id": said.workload_id})
    for shown in pointers.unreceipted:
        proved, proof_id = shown.core.attempt, shown.proof_id
        if shown.certain and _settle(unit, shown.core, shown.snapshot_id):
            settled.append(proved.attempt_id)
        else:
            restores.put_used_chunk(
                unit, proved.workload_id, proved.chunk_id, snapshot_id=shown.snapshot_id, receipt_id=proof_id
            )
            used_up.add(proved.workload_id)
        _complete(unit, proved.workload_id)
        claim = known_claims.get(proof_id)
        if took_rows([shown.core]) and _block(unit, shown.table.uuid, proved.workload_id, proof_id, claim):
            blocked.append({"table": shown.table.name, "receipt_id": proof_id, "workload_id": proved.workload_id})
    for doubted in pointers.doubted:
        said, receipt_id = doubted.said, doubted.receipt_id
        restores.put_lost_claim(unit, receipt_id, said.workload_id, target=said.table.uuid)
        named = {"table": said.table.name, "receipt_id": receipt_id, "workload_id": said.workload_id}
        blocked += [] if named in blocked else [named]
    return {"settled": settled, "spent": sorted(used_up), "blocked": blocked}


def _complete(unit: Unit, workload_id: str) -> None:
    """A workload whose chunks are all published has not been given up."""
    workload = workloads.find(unit, workload_id)
    if workload is None or workload.state is not WorkloadState.OPEN:
        return
    if chunks.published_count(unit, workload_id) == chunks.count(unit, workload_id):
        workloads.move(unit, workload_id, WorkloadState.COMPLETE, reason=_WHY)


def _reconcile_sources(unit: Unit, found: Sequence[Found]) -> None:
    """Which source each target last published from, as proofs of the lost time say; after the contracts are back.

    Where a proof or its contract is lost, the source stays that of the backup: another one needs a signature.
    """
    said_of = (
        read_signed(each.envelope, Receipt)
        for each in found
        if each.envelope is not None and each.entry.kind is EntryKind.RECEIPT
    )
    # A receipt may have been logged late: the last source is that of the last publication.
    for said in sorted(said_of, key=lambda said: said.published_at):
        for core in (_proved(unit, proof_id) for proof_id in said.proof_ids):
            if core is None or not protections.has_contract(unit, core.attempt.contract_sha256):
                continue
            named = contract_of(unit, core.attempt.contract_sha256).boundary.source
            claims.note_source(unit, said.table.uuid, named, core.sources[0].table.uuid, workload_id=said.workload_id)


def _block(unit: Unit, target: str, workload_id: str, statement_id: str, claim: Claim | None) -> bool:
    """Block claims on the target if it is unknown which rows the append took; gives whether they are blocked."""
    if restores.has_claim(unit, workload_id, target):
        return False
    if claim is not None and claims.refill(unit, workload_id, target=target, claim=claim):
        return False
    restores.put_lost_claim(unit, statement_id, workload_id, target=target)
    return True


def _proved(unit: Unit, proof_id: str) -> ProofCore | None:
    held = statements.find(unit, proof_id)
    return None if held is None else read_signed(held.envelope, Proof).core


def _settle(unit: Unit, core: ProofCore, snapshot_id: str) -> bool:
    """Whether the attempt is now COMMITTED: the backup must have it, and it must not have ended there."""
    proved = core.attempt
    attempt = attempts.find(unit, proved.attempt_id)
    if attempt is None or attempt.state not in ATTEMPT.live():
        return False
    if nonces.find(unit, proved.nonce) is None:
        if attempt.state is AttemptState.VERIFYING:
            attempts.begin_committing(unit, proved.attempt_id, reason=_WHY)
        staged = None if core.staged.snapshot_id is None else str(core.staged.snapshot_id)
        attempts.begin_verifying(unit, proved.attempt_id, nonce=proved.nonce, staged_snapshot_id=staged, reason=_WHY)
    if attempts.get(unit, proved.attempt_id).state is AttemptState.VERIFYING:
        attempts.begin_committing(unit, proved.attempt_id, reason=_WHY)
    attempts.settle(unit, proved.attempt_id, proved.nonce, nonces.CommittedAs(snapshot_id))
    return True


def end_announced(unit: Unit) -> list[str]:
    """Publications to upstreams that the backup left open: what came of them an audit of their tables tells."""
    standing = announced.list_open(unit)
    for each in standing:
        published = chunks.is_published_at(unit, each.table_uuid, each.snapshot_id)
        announced.settle(
            unit, each.announced_id, AnnouncedState.DONE if published else AnnouncedState.RELEASED, reason=_WHY
        )
    return [each.snapshot_id for each in standing]


def _end_what_was_open(unit: Unit) -> dict[str, list[str]]:
    """Every live attempt is rolled back and every open workload abandoned: what they had may be known elsewhere.

    Workloads of which the lost time has published something, by attempts that the backup lacks, are told from others.
    """
    for attempt in attempts.list_live(unit):
        attempts.end(unit, attempt.attempt_id, AttemptState.ROLLED_BACK, reason=_WHY)
    ended: dict[str, list[str]] = {"abandoned": [], "published": []}
    for workload in workloads.list_open(unit):
        workload_id = workload.opening.workload_id
        published = bool(restores.list_used_chunks(unit, workload_id))
        reason = f"{_WHY}, which lacks its publication" if published else _WHY
        workloads.move(unit, workload_id, WorkloadState.ABANDONED, reason=reason)
        ended["published" if published else "abandoned"].append(workload_id)
    return ended


def _void_nonces(unit: Unit) -> int:
    """Overrides and challenges that wait may have been used in the lost time; none of them counts any more."""
    waiting = nonces.list_reserved(unit)
    for nonce in waiting:
        nonces.abort(unit, nonce.nonce, reason=_WHY)
    return len(waiting)


def _revoke_tokens(unit: Unit) -> int:
    """A token may have been revoked in the lost time, so none of before is good any more."""
    now, count = unit.at_micros, 0
    for grant in tokens.list_all(unit):
        if grant.revoked_micros is None and grant.expires_micros > now:
            tokens.revoke(unit, grant.token_id)
            count += 1
    return count
