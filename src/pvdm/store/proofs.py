"""Proofs: one notary's envelope for one nonce, PASS or FAIL, kept for ever."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import RowMapping, select

from pvdm.errors import ConflictError, InputError
from pvdm.store import ids, statements
from pvdm.store.schema import StatementKind, VerdictWord, proofs
from pvdm.store.unit import Unit


@dataclass(frozen=True, slots=True)
class ProofRecord:
    """What the ledger has to find about a proof; the envelope says the rest."""

    proof_id: str
    attempt_id: str
    nonce: str
    verdict: VerdictWord
    notary: str
    expires_micros: int


def put(unit: Unit, proof: ProofRecord, envelope: bytes, *, log_index: int) -> None:
    """Store a proof with its envelope; the same again is no change, a second word of one notary is refused."""
    statements.put(unit, StatementKind.PROOF, proof.proof_id, envelope, log_index=log_index)
    new = unit.insert_new(
        proofs,
        proof_id=proof.proof_id,
        attempt_id=proof.attempt_id,
        nonce=proof.nonce,
        verdict=proof.verdict,
        notary=ids.name(proof.notary, "notary"),
        expires_micros=proof.expires_micros,
    )
    if not new and get(unit, proof.proof_id) != proof:
        raise ConflictError("statement_differs", "other facts are stored under this proof", got=proof.proof_id)


def get(unit: Unit, proof_id: str) -> ProofRecord:
    """The proof's record; not being there is an error."""
    row = unit.row(select(proofs).where(proofs.c.proof_id == proof_id))
    if row is None:
        raise InputError("proof_unknown", "the ledger holds no such proof", got=ascii(proof_id[:80]))
    return _proof(row)


def envelope(unit: Unit, proof_id: str) -> bytes:
    """The signed bytes."""
    return statements.get(unit, proof_id).envelope


def of_attempt(unit: Unit, attempt_id: str) -> list[ProofRecord]:
    """Every proof of an attempt, oldest first."""
    wanted = select(proofs).where(proofs.c.attempt_id == attempt_id).order_by(proofs.c.at_micros, proofs.c.proof_id)
    return [_proof(row) for row in unit.rows(wanted)]


def _proof(row: RowMapping) -> ProofRecord:
    return ProofRecord(
        row["proof_id"],
        row["attempt_id"],
        row["nonce"],
        VerdictWord(row["verdict"]),
        row["notary"],
        row["expires_micros"],
    )
