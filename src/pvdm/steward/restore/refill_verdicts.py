"""Proofs and overrides of a lost time, listed again by a restore from their envelopes."""

from __future__ import annotations

from collections.abc import Sequence

from pvdm.ledger import Unit
from pvdm.ledger.catalog import tables
from pvdm.ledger.record import overrides, proofs
from pvdm.ledger.record.overrides import OverrideRecord
from pvdm.ledger.record.proofs import ProofRecord
from pvdm.ledger.record.tokens import EVERY_DOMAIN
from pvdm.ledger.schema.record import VerdictWord
from pvdm.ledger.schema.work import NoncePurpose
from pvdm.ledger.work import nonces, workloads
from pvdm.model.statements.break_glass import BreakGlass
from pvdm.model.statements.proof import Proof
from pvdm.model.statements.receipt import Receipt
from pvdm.steward.record.proofs import summary_of
from pvdm.steward.restore.refill_check import Found
from pvdm.trust.log.entry import EntryKind
from pvdm.trust.statement import read_signed

_WHY = "the ledger was restored from a backup"


def refill_verdicts(unit: Unit, found: Sequence[Found]) -> None:
    """Every proof, PASS or FAIL, and every override that the backup lacks; no override of before can be used again."""
    used: dict[str, int] = {}
    for each in found:
        if each.envelope is not None and each.entry.kind is EntryKind.RECEIPT:
            said = read_signed(each.envelope, Receipt)
            if said.override_id is not None:
                used[said.override_id] = said.new_snapshot_id
    for each in found:
        if each.envelope is None:
            continue
        if each.entry.kind is EntryKind.PROOF:
            _proof(unit, each.statement_id(), read_signed(each.envelope, Proof))
        elif each.entry.kind is EntryKind.BREAK_GLASS:
            override_id = each.statement_id()
            _override(unit, override_id, read_signed(each.envelope, BreakGlass), used.get(override_id))
    _note_used(unit, used)


def _proof(unit: Unit, proof_id: str, said: Proof) -> None:
    core, part = said.core, said.notary
    attempt = core.attempt
    # What its keys were bound to is not in the envelope.
    record = ProofRecord(
        proof_id,
        attempt.attempt_id,
        attempt.nonce,
        VerdictWord(core.verdict.outcome.value),
        part.notary,
        part.expires_at,
        summary_of(core, part),
        None,
    )
    workload = workloads.find(unit, attempt.workload_id)
    table = tables.find_by_uuid(unit, core.target.table.uuid)
    domain = EVERY_DOMAIN if table is None else table.domain
    proofs.insert_restored(
        unit, record, attempt.workload_id, domain=domain if workload is None else workload.opening.domain
    )


def _override(unit: Unit, override_id: str, said: BreakGlass, snapshot_id: int | None) -> None:
    """Refill an override; one whose FAIL proof is lost cannot be listed, and its envelope stays in the log."""
    if not proofs.is_known(unit, said.fail_proof_id):
        return
    record = OverrideRecord(override_id, said.fail_proof_id, said.nonce, said.operator, said.expires_at)
    nonces.reserve(unit, said.nonce, purpose=NoncePurpose.BREAK_GLASS, holder=said.operator)
    overrides.insert_row(unit, record)
    if snapshot_id is None:
        nonces.abort(unit, said.nonce, reason=_WHY)


def _note_used(unit: Unit, used: dict[str, int]) -> None:
    """Overrides that receipts of the lost time name paid for these snapshots, those of the backup too."""
    for override_id, snapshot_id in used.items():
        found = overrides.find(unit, override_id)
        if found is not None:
            nonces.settle(unit, found.record.nonce, nonces.CommittedAs(str(snapshot_id)))
