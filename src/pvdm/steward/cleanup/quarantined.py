"""Where the files of a failed attempt are now: each lies in quarantine, under its SHA-256."""

from __future__ import annotations

from collections.abc import Collection

from pvdm.api.work import KeptFileView, QuarantineView
from pvdm.lake.vault import Vault, VaultKind, quarantine_name
from pvdm.ledger import Unit
from pvdm.ledger.record import proofs
from pvdm.ledger.record.proofs import ProofRecord
from pvdm.ledger.schema.work import DisposalWord
from pvdm.ledger.work import quarantine, verified, workloads
from pvdm.ledger.work.attempts import Attempt
from pvdm.model.statements.proof import Proof
from pvdm.trust.statement import read_signed


def quarantine_of(
    unit: Unit, attempt: Attempt, proof: ProofRecord, named: Collection[str], vault: Vault
) -> QuarantineView | None:
    """Where the named files of the attempt are; None where they were not moved, or are gone."""
    done = verified.find_disposal(unit, attempt.attempt_id)
    if done is None or done.outcome is not DisposalWord.QUARANTINED:
        return None
    if quarantine.find_removal(unit, attempt.attempt_id) is not None:
        return None
    table = workloads.get(unit, attempt.workload_id).opening.table_uuid
    bound = read_signed(proofs.envelope(unit, proof.proof_id), Proof).core.files.added if named else ()
    kept = [
        KeptFileView(
            file=each.staged_path,
            location=vault.place(table, VaultKind.QUARANTINE, quarantine_name(attempt.attempt_id, each.staged_sha256)),
        )
        for each in bound
        if each.staged_path in named
    ]
    return QuarantineView(folder=vault.place(table, VaultKind.QUARANTINE, attempt.attempt_id), files=tuple(kept))
