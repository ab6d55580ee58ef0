"""Where the files of a failed attempt are now: each lies in quarantine, under its SHA-256."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pvdm.lake.vault import Vault, VaultKind, quarantine_name
from pvdm.ledger import Unit
from pvdm.ledger.record import proofs
from pvdm.ledger.record.proofs import ProofRecord
from pvdm.ledger.schema.verify import DisposalWord
from pvdm.ledger.work import quarantine, verified, workloads
from pvdm.ledger.work.attempts import Attempt
from pvdm.model.statements.proof import Proof
from pvdm.trust.statement import read_signed


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A staged file by its old path, and where its bytes are."""

    file: str
    location: str


@dataclass(frozen=True, slots=True)
class Quarantine:
    """The folder of one attempt, and where in it those of its files are that are spoken of."""

    folder: str
    files: tuple[KeptFile, ...]


def quarantine_of(
    unit: Unit, attempt: Attempt, proof: ProofRecord, named: Collection[str], vault: Vault
) -> Quarantine | None:
    """Where the named files of the attempt are; None where they were not moved, or are gone."""
    done = verified.find_disposal(unit, attempt.attempt_id)
    if done is None or done.outcome is not DisposalWord.QUARANTINED:
        return None
    if quarantine.find_removal(unit, attempt.attempt_id) is not None:
        return None
    table = workloads.get(unit, attempt.workload_id).opening.table_uuid
    bound = read_signed(proofs.envelope(unit, proof.proof_id), Proof).core.files.added if named else ()
    kept = [
        KeptFile(
            each.staged_path,
            vault.place(table, VaultKind.QUARANTINE, quarantine_name(attempt.attempt_id, each.staged_sha256)),
        )
        for each in bound
        if each.staged_path in named
    ]
    return Quarantine(vault.place(table, VaultKind.QUARANTINE, attempt.attempt_id), tuple(kept))
