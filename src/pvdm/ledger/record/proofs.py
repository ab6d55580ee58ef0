"""Proofs: one notary's envelope for one nonce, PASS or FAIL; never deleted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import select

from pvdm.errors import Code, InputError
from pvdm.ledger import ids
from pvdm.ledger.connection import Row, record_from
from pvdm.ledger.record import statements
from pvdm.ledger.schema.record import StatementKind, VerdictWord, proofs
from pvdm.ledger.schema.record import statements as statements_table
from pvdm.ledger.schema.work import attempts, nonces, workloads
from pvdm.ledger.unit import Unit

PROOFS_PAGE_MAX_ROWS: Final = 1_000


@dataclass(frozen=True, slots=True)
class ProofRecord:
    """What the ledger indexes of a proof. `summary` is for lists, `context` is what its keys are bound to."""

    proof_id: str
    attempt_id: str
    nonce: str
    verdict: VerdictWord
    notary: str
    expires_micros: int
    summary: str = "{}"
    context: str | None = None


def put(unit: Unit, proof: ProofRecord, envelope: bytes, *, log_index: int) -> None:
    """Store a proof with its envelope. The same again is no change; a second proof of one notary is refused."""
    statements.put(unit, StatementKind.PROOF, proof.proof_id, envelope, log_index=log_index)
    both = workloads.c.workload_id == attempts.c.workload_id
    wanted = select(workloads.c.workload_id, workloads.c.domain).join(attempts, both)
    home = unit.row(wanted.where(attempts.c.attempt_id == proof.attempt_id))
    if home is None:
        raise Code.ATTEMPT_UNKNOWN(got=ascii(proof.attempt_id[:80]))
    _insert(unit, proof, home["workload_id"], domain=home["domain"], held_nonce=proof.nonce)


def insert_restored(unit: Unit, proof: ProofRecord, workload_id: str, *, domain: str) -> None:
    """Add the row of a proof whose envelope a restore has stored. The ledger may have lost its attempt."""
    wanted = select(nonces.c.nonce).where(nonces.c.nonce == proof.nonce, nonces.c.attempt_id == proof.attempt_id)
    held = unit.row(wanted)
    _insert(unit, proof, workload_id, domain=domain, held_nonce=None if held is None else proof.nonce)


def _insert(unit: Unit, proof: ProofRecord, workload_id: str, *, domain: str, held_nonce: str | None) -> None:
    new = unit.insert_new(
        proofs,
        proof_id=proof.proof_id,
        workload_id=ids.require_workload_id(workload_id),
        domain=ids.require_name(domain, "domain"),
        attempt_id=proof.attempt_id,
        nonce=proof.nonce,
        held_nonce=held_nonce,
        verdict=proof.verdict,
        notary=ids.require_name(proof.notary, "notary"),
        expires_micros=proof.expires_micros,
        summary=proof.summary,
        context=proof.context,
    )
    if not new and get(unit, proof.proof_id) != proof:
        raise Code.STATEMENT_DIFFERS("other facts are stored under this proof", got=proof.proof_id)


def get(unit: Unit, proof_id: str) -> ProofRecord:
    """The proof's record. Raises `proof_unknown`."""
    row = unit.find(proofs, proof_id=proof_id)
    if row is None:
        raise _unknown_error(proof_id)
    return _proof(row)


def is_known(unit: Unit, proof_id: str) -> bool:
    """Whether the ledger holds the proof."""
    return unit.find(proofs, proof_id=proof_id) is not None


def envelope(unit: Unit, proof_id: str) -> bytes:
    """The signed bytes."""
    return statements.get(unit, proof_id).envelope


def of_attempt(unit: Unit, attempt_id: str) -> list[ProofRecord]:
    """Every proof of an attempt, oldest first."""
    wanted = select(proofs).where(proofs.c.attempt_id == attempt_id).order_by(proofs.c.at_micros, proofs.c.proof_id)
    return [_proof(row) for row in unit.rows(wanted)]


def newest_of_each(unit: Unit, attempt_ids: Sequence[str]) -> dict[str, ProofRecord]:
    """The newest proof of each attempt that has one, by attempt id."""
    wanted = select(proofs).where(proofs.c.attempt_id.in_(attempt_ids))
    found = unit.rows(wanted.order_by(proofs.c.at_micros, proofs.c.proof_id))
    return {row["attempt_id"]: _proof(row) for row in found}


def find_by_notary(unit: Unit, nonce: str, notary: str) -> ProofRecord | None:
    """This notary's proof for this nonce, or None."""
    row = unit.find(proofs, nonce=nonce, notary=notary)
    return None if row is None else _proof(row)


def of_nonce(unit: Unit, nonce: str) -> list[ProofRecord]:
    """Every notary's proof for one nonce."""
    return [_proof(row) for row in unit.rows(select(proofs).where(proofs.c.nonce == nonce).order_by(proofs.c.notary))]


def domain_of(unit: Unit, proof_id: str) -> str:
    """The domain of the proof's workload."""
    row = unit.find(proofs, proof_id=proof_id)
    if row is None:
        raise _unknown_error(proof_id)
    return str(row["domain"])


def page(
    unit: Unit,
    *,
    domain: str | None,
    workload_id: str | None = None,
    attempt_id: str | None = None,
    after: int | None = None,
    count: int = 100,
) -> list[tuple[ProofRecord, int]]:
    """The newest proofs with their log indexes, going back from the index `after`."""
    placed = statements_table.c.statement_id == proofs.c.proof_id
    wanted = select(proofs, statements_table.c.log_index).join(statements_table, placed)
    wanted = wanted.order_by(statements_table.c.log_index.desc()).limit(min(count, PROOFS_PAGE_MAX_ROWS))
    for column, value in (
        (proofs.c.domain, domain),
        (proofs.c.workload_id, workload_id),
        (proofs.c.attempt_id, attempt_id),
    ):
        if value is not None:
            wanted = wanted.where(column == value)
    if after is not None:
        wanted = wanted.where(statements_table.c.log_index < after)
    return [(_proof(row), row["log_index"]) for row in unit.rows(wanted)]


def _unknown_error(proof_id: str) -> InputError:
    return InputError(Code.PROOF_UNKNOWN, "the ledger holds no such proof", got=ascii(proof_id[:80]))


def _proof(row: Row) -> ProofRecord:
    return record_from(ProofRecord, row, verdict=VerdictWord(row["verdict"]))
