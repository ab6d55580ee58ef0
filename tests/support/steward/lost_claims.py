"""For tests of lost claims: writes to ledger and log what a restore would leave there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pvdm.ledger import Unit
from pvdm.ledger.record import restores
from pvdm.model.statements.kind import StatementKind
from pvdm.steward.notary import Notary
from pvdm.steward.record.recorder import Document
from pvdm.trust.keys.epochs import KeyRole
from pvdm.trust.verify import sign_statement
from tests.support.steward.notary import NOTARY
from tools.proof_kit import RESTORE


def lose_claims(notary: Notary, target: str, workloads_by_publication: dict[str, str]) -> None:
    """Log a restore, and store lost claims. The keys of the mapping are ids of receipts or proofs."""
    signer = notary.keys.signer(KeyRole.SIGNING, notary.keys.epoch_for(None))
    statement = replace(RESTORE, notary=NOTARY, issued_at=notary.clock.now_micros())
    envelope = sign_statement(statement, signer)
    document = Document(StatementKind.RESTORE, envelope.payload_sha256, envelope.to_bytes())

    def work(unit: Unit, log_indexes: Sequence[int]) -> None:
        document.store(unit, log_indexes[0])
        for publication_id, workload_id in workloads_by_publication.items():
            restores.put_lost_claim(unit, publication_id, workload_id, target=target)

    notary.recorder.record([document], work)
