"""The transaction of a restore: refills the ledger, settles publications, ends open work and stores its marker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pvdm.errors import PvdmError
from pvdm.lake.format.schema.logical import to_model
from pvdm.ledger import Unit
from pvdm.ledger.catalog import tables
from pvdm.ledger.record import protections, receipts, restores, tokens
from pvdm.ledger.record.events import LedgerLog
from pvdm.ledger.record.receipts import ReceiptRecord
from pvdm.ledger.record.restores import Restore
from pvdm.ledger.work import announced, attempts, chunks, claims, nonces, workloads
from pvdm.model.contract import BoundContract, DataProductContract, parse_contract
from pvdm.model.filter.claim import Claim
from pvdm.model.schema import Schema
from pvdm.model.statements.core import Operation, ProofCore
from pvdm.model.statements.migration import Migration, Protection, contract_sha256
from pvdm.model.statements.receipt import Receipt
from pvdm.model.statements.table import TableRef
from pvdm.model.states import ATTEMPT, AnnouncedState, AttemptState, WorkloadState
from pvdm.steward.notary import Notary
from pvdm.steward.restore.lineage import UnreceiptedProof, stored_core
from pvdm.steward.restore.pointers import Advance, Pointers, apply_pointers
from pvdm.steward.restore.refill import ArchivedEntry, Plan, RestoreRequest, statements_of
from pvdm.steward.restore.refill_statements import (
    RESTORE_REASON,
    refill_approvals,
    refill_releases,
    refill_verdicts,
)
from pvdm.steward.restore.table_report import find_behind
from pvdm.steward.work.opened import contract_of
from pvdm.verify.planning import claim_of, with_source_column, with_target_column
from pvdm.verify.source import pinned_schema


def apply_restore(
    notary: Notary, request: RestoreRequest, plan: Plan, pointers: Pointers, known_claims: Mapping[str, Claim]
) -> Restore:
    """Run the transaction. Returns its marker, a row that stops the Steward's start until the restore is logged.

    `known_claims` are the claims of appends that tables will show, by receipt id, or by proof id without a receipt.
    """
    epoch_before = max((epoch.number for epoch in notary.keys.book().epochs), default=0)

    def work(unit: Unit) -> Restore:
        _refill_log(unit, plan)
        apply_pointers(unit, pointers)
        releases = refill_releases(unit, plan.archived)
        outcome = _apply_receipts(unit, plan.archived, pointers, known_claims, releases)
        approved = refill_approvals(unit, plan.archived, pointers.migrated)
        refill_verdicts(unit, plan.archived)
        _store_last_sources(unit, plan.archived)
        outcome |= {
            "refilled": len(plan.archived),
            "missing": plan.missing,
            "lost": plan.lost,
            "protected": [asdict(each) for each in approved.protected.values()],
            "remade": [asdict(each) for each in approved.remade],
            "unmigrated": sorted(approved.lacking_migration),
            "advanced": [_advance_facts(each) for each in pointers.advances],
            "behind": [asdict(each) for each in find_behind(unit, pointers.with_newer_files)],
            "unprotected": [asdict(each) for each in approved.unprotected.values()],
            "unregistered": [asdict(each) for each in pointers.unregistered],
            "unreadable": [asdict(each) for each in pointers.unreadable],
            "unreceipted": [_unreceipted_facts(each) for each in pointers.unreceipted if each.certain],
            "lost_publications": [asdict(each) for each in pointers.lost],
            "announced": end_announced(unit),
        }
        outcome |= _end_open_work(unit)
        # Pending overrides and challenges may have been used after the backup. Tokens may have been revoked after it.
        reserved = [each.nonce for each in nonces.list_reserved(unit)]
        for nonce in reserved:
            nonces.abort(unit, nonce, reason=RESTORE_REASON)
        unrevoked = (grant for grant in tokens.list_all(unit) if grant.revoked_micros is None)
        valid = [grant.token_id for grant in unrevoked if grant.expires_micros > unit.at_micros]
        for token_id in valid:
            tokens.revoke(unit, token_id)
        outcome |= {"nonces": len(reserved), "tokens": len(valid)}
        restore_id, operator, note = restores.next_id(unit), request.operator, plan.outside.note
        marker = Restore(
            restore_id, operator, request.reason, plan.backup_size, note, epoch_before, request.log_keys, outcome
        )
        restores.begin(unit, marker)
        return marker

    return notary.ledger.transact(work, at_micros=notary.clock.now_micros())


def _refill_log(unit: Unit, plan: Plan) -> None:
    if plan.entries:
        LedgerLog(unit).append(at=plan.backup_size, entries=plan.entries, hashes=plan.hashes, checkpoint=plan.note)
    for each in plan.archived:
        if each.envelope is not None:
            kind, at, index = each.entry.kind, each.entry.time, each.index
            restores.store_old_statement(unit, kind, each.statement_id(), each.envelope, log_index=index, at_micros=at)


def _advance_facts(each: Advance) -> dict[str, Any]:
    return {
        "table": each.table.name,
        "table_uuid": each.table.uuid,
        "snapshot_id": None if each.snapshot_id is None else str(each.snapshot_id),
        "created": each.namespace is not None,
    }


def _unreceipted_facts(each: UnreceiptedProof) -> dict[str, str]:
    return {
        "table": each.table.name,
        "snapshot_id": each.snapshot_id,
        "workload_id": each.core.attempt.workload_id,
        "chunk_id": each.core.attempt.chunk_id,
        "proof_id": each.proof_id,
    }


def _apply_receipts(
    unit: Unit,
    archived: Sequence[ArchivedEntry],
    pointers: Pointers,
    known_claims: Mapping[str, Claim],
    releases: Mapping[str, str],
) -> dict[str, Any]:
    """Apply the receipts from after the backup: commit attempts that the backup has; mark other chunks as used.

    A lost publication may be published again. So it is not applied, unless its table may show it (`pointers.unclear`).
    `releases` are the ids of the claim releases from after the backup, by receipt or proof.
    """
    # The publication before a doubted one has lost its claim too. A release of the doubted one may not be about both.
    doubted_ids = {each.receipt_id for each in pointers.doubted}
    releases = {key: release_id for key, release_id in releases.items() if key not in doubted_ids}
    settled: list[str] = []
    used_up: set[str] = set()
    blocked: list[dict[str, str]] = []
    lost = {each.receipt_id for each in pointers.lost} - pointers.unclear
    uncertain = {each.proof_id for each in pointers.unreceipted if not each.certain}

    def apply(
        statement_id: str, workload_id: str, table: TableRef, snapshot: str, cores: Mapping[str, ProofCore | None]
    ) -> None:
        """Apply one publication. `statement_id` is the id of its receipt, or of its proof if it has no receipt."""
        for proof_id, core in cores.items():
            if core is not None and statement_id not in uncertain and _settle(unit, core, snapshot):
                settled.append(core.attempt.attempt_id)
                continue
            chunk_id = f"proof {proof_id}" if core is None else core.attempt.chunk_id
            restores.put_used_chunk(unit, workload_id, chunk_id, snapshot_id=snapshot, receipt_id=statement_id)
            used_up.add(workload_id)
        _complete_if_published(unit, workload_id)
        if not may_have_appended(cores.values()):
            return
        if statement_id in releases:
            release_id = releases[statement_id]
            restores.put_lost_claim(unit, statement_id, workload_id, target=table.uuid, release_id=release_id)
        elif _block_claims(unit, table.uuid, workload_id, statement_id, known_claims.get(statement_id)):
            blocked.append({"table": table.name, "receipt_id": statement_id, "workload_id": workload_id})

    for each, receipt in statements_of(archived, Receipt):
        receipt_id, snapshot = each.statement_id(), str(receipt.new_snapshot_id)
        record = ReceiptRecord(receipt_id, receipt.workload_id, receipt.table.uuid, snapshot)
        receipts.put(unit, record, each.envelope or b"", log_index=each.index)
        cores = {proof_id: stored_core(unit, proof_id) for proof_id in receipt.proof_ids}
        if receipt_id in lost:
            if may_have_appended(cores.values()) and tables.find_by_uuid(unit, receipt.table.uuid) is None:
                # Claims are blocked, since an operator may register the table's metadata with these rows later.
                release_id = releases.get(receipt_id)
                restores.put_lost_claim(
                    unit, receipt_id, receipt.workload_id, target=receipt.table.uuid, release_id=release_id
                )
            continue
        apply(receipt_id, receipt.workload_id, receipt.table, snapshot, cores)
    for shown in pointers.unreceipted:
        proved, workload_id = {shown.proof_id: shown.core}, shown.core.attempt.workload_id
        apply(shown.proof_id, workload_id, shown.table, shown.snapshot_id, proved)
        if shown.certain:
            receipts.note_lost(unit, shown.table.uuid, shown.snapshot_id, shown.proof_id)
    for doubted in pointers.doubted:
        receipt, receipt_id = doubted.receipt, doubted.receipt_id
        restores.put_lost_claim(unit, receipt_id, receipt.workload_id, target=receipt.table.uuid)
        blocked_claim = {"table": receipt.table.name, "receipt_id": receipt_id, "workload_id": receipt.workload_id}
        if blocked_claim not in blocked:
            blocked.append(blocked_claim)
    return {"settled": settled, "spent": sorted(used_up), "blocked": blocked}


def _complete_if_published(unit: Unit, workload_id: str) -> None:
    """Mark an open workload complete if all of its chunks are published."""
    workload = workloads.find(unit, workload_id)
    if workload is None or workload.state is not WorkloadState.OPEN:
        return
    if chunks.count_published(unit, workload_id) == chunks.count(unit, workload_id):
        workloads.move(unit, workload_id, WorkloadState.COMPLETE, reason=RESTORE_REASON)


def _store_last_sources(unit: Unit, archived: Sequence[ArchivedEntry]) -> None:
    """Store the source of each table's last publication, by the proofs from after the backup.

    Called after the contracts are refilled. If a proof or its contract is lost, the source that the backup has stays.
    """
    # By publication time, since a receipt may have been logged late.
    archived_receipts = (each for _, each in statements_of(archived, Receipt))
    for receipt in sorted(archived_receipts, key=lambda each: each.published_at):
        for core in (stored_core(unit, proof_id) for proof_id in receipt.proof_ids):
            if core is None or not protections.has_contract(unit, core.attempt.contract_sha256):
                continue
            source = contract_of(unit, core.attempt.contract_sha256).boundary.source
            source_uuid = core.sources[0].table.uuid
            claims.note_source(unit, receipt.table.uuid, source, source_uuid, workload_id=receipt.workload_id)


def _block_claims(unit: Unit, target: str, workload_id: str, statement_id: str, claim: Claim | None) -> bool:
    """Store the append's claim. If it is unknown or overlaps another, block claims on the target and return True."""
    if restores.has_claim(unit, workload_id, target):
        return False
    if claim is not None and claims.refill(unit, workload_id, target=target, claim=claim):
        return False
    restores.put_lost_claim(unit, statement_id, workload_id, target=target)
    return True


def _settle(unit: Unit, core: ProofCore, snapshot_id: str) -> bool:
    """Make the attempt COMMITTED if it is live in the backup. Returns whether it was."""
    proved = core.attempt
    attempt = attempts.find(unit, proved.attempt_id)
    if attempt is None or attempt.state not in ATTEMPT.live():
        return False
    if nonces.find(unit, proved.nonce) is None:  # the attempt was verified after the backup, with this nonce
        if attempt.state is AttemptState.VERIFYING:  # `begin_verifying` needs STAGING or COMMITTING
            attempts.begin_committing(unit, proved.attempt_id, reason=RESTORE_REASON)
        staged = None if core.staged.snapshot_id is None else str(core.staged.snapshot_id)
        attempts.begin_verifying(
            unit, proved.attempt_id, nonce=proved.nonce, staged_snapshot_id=staged, reason=RESTORE_REASON
        )
    if attempts.get(unit, proved.attempt_id).state is AttemptState.VERIFYING:
        attempts.begin_committing(unit, proved.attempt_id, reason=RESTORE_REASON)
    attempts.settle(unit, proved.attempt_id, proved.nonce, snapshot_id)
    return True


def end_announced(unit: Unit) -> list[str]:
    """End the open announced publications (sent to an upstream, result unknown). Returns their snapshot ids."""
    still_open = announced.list_open(unit)
    for each in still_open:
        is_published = chunks.is_published_at(unit, each.table_uuid, each.snapshot_id)
        state = AnnouncedState.DONE if is_published else AnnouncedState.RELEASED
        announced.settle(unit, each.announced_id, state, reason=RESTORE_REASON)
    return [each.snapshot_id for each in still_open]


def _end_open_work(unit: Unit) -> dict[str, list[str]]:
    """Roll back every live attempt and abandon every open workload.

    Workloads with publications after the backup are listed apart (`published`).
    """
    for attempt in attempts.list_live(unit):
        attempts.end(unit, attempt.attempt_id, AttemptState.ROLLED_BACK, reason=RESTORE_REASON)
    ended: dict[str, list[str]] = {"abandoned": [], "published": []}
    for workload in workloads.list_open(unit):
        workload_id = workload.opening.workload_id
        is_published = bool(restores.list_used_chunks(unit, workload_id))
        reason = f"{RESTORE_REASON}, which lacks its publication" if is_published else RESTORE_REASON
        workloads.move(unit, workload_id, WorkloadState.ABANDONED, reason=reason)
        ended["published" if is_published else "abandoned"].append(workload_id)
    return ended


def may_have_appended(cores: Iterable[ProofCore | None]) -> bool:
    """Whether the publication may have appended rows; True if a proof is lost."""
    return any(core is None or (core.target.operation is Operation.APPEND and core.rows.staged != 0) for core in cores)


def derive_claims(notary: Notary, archived: Sequence[ArchivedEntry], pointers: Pointers) -> dict[str, Claim]:
    """The claims of appends that tables will show, by receipt id, or by proof id if there is no receipt.

    A claim that cannot be derived for certain is left out.
    """
    texts = [protection.contract for _, protection in statements_of(archived, Protection)]
    texts += [migration.contract for _, migration in statements_of(archived, Migration)]
    contracts = {contract_sha256(text): parse_contract(text.encode()) for text in texts if text is not None}
    derived: dict[str, Claim] = {}
    for each in pointers.published:
        if each.receipt_id not in pointers.shown or not may_have_appended(each.cores.values()):
            continue
        core = next((core for core in each.cores.values() if core is not None), None)
        claim = _derive_claim(notary, core, contracts, pointers.schemas.get(each.receipt.table.uuid))
        if claim is not None:
            derived[each.receipt_id] = claim
    for shown in pointers.unreceipted:
        claim = _derive_claim(notary, shown.core, contracts, pointers.schemas.get(shown.table.uuid))
        if claim is not None and shown.certain and may_have_appended([shown.core]):
            derived[shown.proof_id] = claim
    return derived


def _derive_claim(
    notary: Notary, core: ProofCore | None, contracts: dict[str, DataProductContract], target: Schema | None
) -> Claim | None:
    """The claim of the proved workload, by its contract and its source's columns; None if it cannot be derived."""
    if core is None or target is None:
        return None
    sha256 = core.attempt.contract_sha256
    try:
        contract = contracts.get(sha256)
        if contract is None:
            with notary.ledger.read() as unit:
                contract = parse_contract(protections.get_contract(unit, sha256))
        bound = contract.bind({name: value for name, value in core.attempt.parameters if value is not None})
        if bound.contract.boundary.claim is None:
            return Claim.everything()
        source = _source_schema(notary, bound, core)
        if source is None:
            return None
        claim = with_source_column(bound, claim_of(bound, source), core.sources[0].table.uuid, source)
        return with_target_column(bound, claim, target)
    except PvdmError:
        return None


def _source_schema(notary: Notary, bound: BoundContract, core: ProofCore) -> Schema | None:
    """The columns of the pinned source snapshot, or the source's columns now if the snapshot is lost.

    If the columns have changed since that snapshot, the claim cannot be compared with others and counts as overlapping.
    """
    pinned = core.sources[0]
    if bound.contract.boundary.source.table is None:
        return None
    with notary.ledger.read() as unit:
        row = tables.find_by_uuid(unit, pinned.table.uuid)
    if row is None:
        return None
    metadata = notary.catalog.states.load(row).metadata
    if metadata.snapshot(pinned.snapshot_id) is None:
        return to_model(metadata.current_schema)
    return pinned_schema(pinned.table, metadata, pinned.snapshot_id)
