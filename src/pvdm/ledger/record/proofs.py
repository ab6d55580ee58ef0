"""Proofs: one notary's envelope for one nonce, PASS or FAIL, never deleted; and the overrides that waive a FAIL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from sqlalchemy import Select, select

from pvdm.errors import Code
from pvdm.ledger import ids
from pvdm.ledger.connection import Row, convert_if_found, record_from, record_if_found
from pvdm.ledger.record import statements
from pvdm.ledger.schema.record import overrides, proofs
from pvdm.ledger.schema.record import statements as statements_table
from pvdm.ledger.schema.work import NoncePurpose, attempts, published, workloads
from pvdm.ledger.schema.work import nonces as nonce_table
from pvdm.ledger.unit import Unit, where_given
from pvdm.ledger.work import nonces
from pvdm.model.statements.kind import StatementKind
from pvdm.model.statements.verdict import Outcome
from pvdm.model.states import NonceState

PROOFS_PAGE_MAX_ROWS: Final = 1_000
OVERRIDES_PAGE_MAX_ROWS: Final = 1_000


@dataclass(frozen=True, slots=True)
class ProofRecord:
    """The facts of a proof that have columns of their own. The rest is in the envelope.

    `summary` is JSON for lists of proofs. `context` is the JSON of the facts from which the attempt's keys are derived;
    it is None if verification ended before it derived keys, or if a restore brought the proof back.
    """

    proof_id: str
    attempt_id: str
    nonce: str
    verdict: Outcome
    notary: str
    expires_micros: int
    summary: str = "{}"
    context: str | None = None


def put(unit: Unit, proof: ProofRecord, envelope: bytes, *, log_index: int) -> None:
    """Store a proof with its envelope; repetition is safe. Another proof of this notary for the nonce is refused."""
    statements.put(unit, StatementKind.PROOF, proof.proof_id, envelope, log_index=log_index)
    same_workload = workloads.c.workload_id == attempts.c.workload_id
    wanted = select(workloads.c.workload_id, workloads.c.domain).join(attempts, same_workload)
    workload = unit.row(wanted.where(attempts.c.attempt_id == proof.attempt_id))
    if workload is None:
        raise Code.RECORD_UNKNOWN(reason="attempt_unknown", got=ascii(proof.attempt_id[:80]))
    _insert(unit, proof, workload["workload_id"], domain=workload["domain"], nonce_in_ledger=proof.nonce)


def insert_restored(unit: Unit, proof: ProofRecord, workload_id: str, *, domain: str) -> None:
    """Add the row of a proof whose envelope a restore has stored. The ledger may have lost the proof's attempt."""
    nonce = unit.find(nonce_table, nonce=proof.nonce, attempt_id=proof.attempt_id)
    _insert(unit, proof, workload_id, domain=domain, nonce_in_ledger=None if nonce is None else proof.nonce)


def _insert(unit: Unit, proof: ProofRecord, workload_id: str, *, domain: str, nonce_in_ledger: str | None) -> None:
    """Add the row. `nonce_in_ledger` is the proof's nonce, or None if a restore lost the row of the nonce."""
    workload = {"workload_id": ids.require_workload_id(workload_id), "domain": ids.require_name(domain, "domain")}
    ids.require_name(proof.notary, "notary")
    is_new = unit.insert_new(proofs, **asdict(proof), **workload, held_nonce=nonce_in_ledger)
    if not is_new and get(unit, proof.proof_id) != proof:
        message = "other facts are stored under this proof"
        raise Code.RECORD_DIFFERS(message, reason="statement_differs", got=proof.proof_id)


def get(unit: Unit, proof_id: str) -> ProofRecord:
    """The proof's record. Raises `proof_unknown`."""
    return record_from(ProofRecord, unit.get(proofs, "proof_unknown", proof_id=proof_id))


def is_known(unit: Unit, proof_id: str) -> bool:
    """Whether the ledger holds the proof."""
    return unit.find(proofs, proof_id=proof_id) is not None


def get_envelope(unit: Unit, proof_id: str) -> bytes:
    """The bytes of the proof's envelope. Raises `statement_unknown`."""
    return statements.get(unit, proof_id).envelope


def list_by_attempt(unit: Unit, attempt_id: str) -> list[ProofRecord]:
    """Every proof of an attempt, oldest first."""
    wanted = select(proofs).where(proofs.c.attempt_id == attempt_id).order_by(proofs.c.at_micros, proofs.c.proof_id)
    return unit.records(ProofRecord, wanted)


def find_newest_of_attempts(unit: Unit, attempt_ids: Sequence[str]) -> dict[str, ProofRecord]:
    """The newest proof of each attempt that has one, by attempt id."""
    wanted = select(proofs).where(proofs.c.attempt_id.in_(attempt_ids))
    found = unit.rows(wanted.order_by(proofs.c.at_micros, proofs.c.proof_id))
    return {row["attempt_id"]: record_from(ProofRecord, row) for row in found}


def find_by_notary(unit: Unit, nonce: str, notary: str) -> ProofRecord | None:
    """This notary's proof for this nonce, or None."""
    return record_if_found(ProofRecord, unit.find(proofs, nonce=nonce, notary=notary))


def list_by_nonce(unit: Unit, nonce: str) -> list[ProofRecord]:
    """Every notary's proof for one nonce."""
    return unit.records(ProofRecord, select(proofs).where(proofs.c.nonce == nonce).order_by(proofs.c.notary))


def list_of_publications(unit: Unit, workload_id: str) -> list[tuple[str, Outcome]]:
    """Ids and verdicts of the proofs by which the workload's chunks were published, oldest first."""
    same_nonce = published.c.nonce == proofs.c.nonce
    wanted = select(proofs.c.proof_id, proofs.c.verdict).join(published, same_nonce)
    wanted = wanted.where(published.c.workload_id == workload_id).order_by(proofs.c.at_micros, proofs.c.proof_id)
    return [(row["proof_id"], Outcome(row["verdict"])) for row in unit.rows(wanted)]


def get_domain(unit: Unit, proof_id: str) -> str:
    """The domain of the proof's workload."""
    return str(unit.get(proofs, "proof_unknown", proof_id=proof_id)["domain"])


def page(
    unit: Unit,
    *,
    domain: str | None,
    workload_id: str | None = None,
    attempt_id: str | None = None,
    before_index: int | None = None,
    count: int = 100,
) -> list[tuple[ProofRecord, int]]:
    """The newest proofs (with a log index below `before_index`, if it is given), each with its log index."""
    same_statement = statements_table.c.statement_id == proofs.c.proof_id
    wanted = select(proofs, statements_table.c.log_index).join(statements_table, same_statement)
    wanted = wanted.order_by(statements_table.c.log_index.desc()).limit(min(count, PROOFS_PAGE_MAX_ROWS))
    c = proofs.c
    wanted = where_given(wanted, (c.domain, domain), (c.workload_id, workload_id), (c.attempt_id, attempt_id))
    if before_index is not None:
        wanted = wanted.where(statements_table.c.log_index < before_index)
    return [(record_from(ProofRecord, row), row["log_index"]) for row in unit.rows(wanted)]


@dataclass(frozen=True, slots=True)
class OverrideRecord:
    """The facts of an override that have columns of their own. The rest is in the envelope."""

    override_id: str
    fail_proof_id: str
    nonce: str
    operator: str
    expires_micros: int


@dataclass(frozen=True, slots=True)
class StoredOverride:
    """An override, with the state of its nonce and the domain of its FAIL proof."""

    record: OverrideRecord
    state: NonceState  # RESERVED until the override is used, then COMMITTED; ABORTED by a restore
    domain: str


def put_override(unit: Unit, override: OverrideRecord, envelope: bytes, *, log_index: int) -> None:
    """Reserve the nonce and store the override. Raises `nonce_taken` if the nonce was ever used."""
    nonces.reserve(unit, override.nonce, purpose=NoncePurpose.BREAK_GLASS, holder=override.operator)
    statements.put(unit, StatementKind.BREAK_GLASS, override.override_id, envelope, log_index=log_index)
    insert_override(unit, override)


def insert_override(unit: Unit, override: OverrideRecord) -> None:
    """Add the row of an override whose envelope and nonce are stored."""
    ids.require_name(override.operator, "operator")
    unit.insert(overrides, **asdict(override))


def find_override(unit: Unit, override_id: str) -> StoredOverride | None:
    """The override, or None."""
    wanted = _select_overrides().where(overrides.c.override_id == override_id)
    return convert_if_found(_to_stored_override, unit.row(wanted))


def list_newest_overrides(unit: Unit, *, domain: str | None = None) -> list[StoredOverride]:
    """The newest overrides; of one domain, or of all."""
    wanted = where_given(_select_overrides(), (proofs.c.domain, domain))
    wanted = wanted.order_by(overrides.c.at_micros.desc(), overrides.c.override_id)
    return [_to_stored_override(row) for row in unit.rows(wanted.limit(OVERRIDES_PAGE_MAX_ROWS))]


def find_live_override(unit: Unit, fail_proof_id: str) -> str | None:
    """The id of the FAIL proof's override whose nonce is not ABORTED (of several, the last to expire), or None."""
    of_proof = _select_overrides().where(overrides.c.fail_proof_id == fail_proof_id)
    of_proof = of_proof.where(nonce_table.c.state != NonceState.ABORTED)
    row = unit.row(of_proof.order_by(overrides.c.expires_micros.desc(), overrides.c.override_id).limit(1))
    return None if row is None else str(row["override_id"])


def find_overrides_of_proofs(unit: Unit, proof_ids: Sequence[str]) -> dict[str, str]:
    """The id of the newest override of each of these proofs, by proof id."""
    wanted = select(overrides).where(overrides.c.fail_proof_id.in_(proof_ids)).order_by(overrides.c.at_micros)
    return {row["fail_proof_id"]: row["override_id"] for row in unit.rows(wanted)}


def find_overrides_used_by(unit: Unit, workload_ids: Sequence[str]) -> dict[str, dict[str, str]]:
    """The overrides by which these workloads published. Key: workload id. Value: override ids by snapshot id."""
    of_workloads = proofs.c.workload_id.in_(list(workload_ids))
    wanted = _select_overrides().where(nonce_table.c.state == NonceState.COMMITTED, of_workloads)
    found: dict[str, dict[str, str]] = {}
    for row in unit.rows(wanted.add_columns(nonce_table.c.snapshot_id, proofs.c.workload_id)):
        found.setdefault(row["workload_id"], {})[row["snapshot_id"]] = row["override_id"]
    return found


def list_used_overrides(unit: Unit, *, since_micros: int) -> list[tuple[OverrideRecord, str]]:
    """The overrides that were submitted since that time and used, each with the id of its workload."""
    wanted = _select_overrides().add_columns(proofs.c.workload_id)
    wanted = wanted.where(nonce_table.c.state == NonceState.COMMITTED, overrides.c.at_micros >= since_micros)
    return [(record_from(OverrideRecord, row), row["workload_id"]) for row in unit.rows(wanted)]


def _select_overrides() -> Select[Any]:
    return (
        select(overrides, nonce_table.c.state, proofs.c.domain)
        .join(nonce_table, nonce_table.c.nonce == overrides.c.nonce)
        .join(proofs, proofs.c.proof_id == overrides.c.fail_proof_id)
    )


def _to_stored_override(row: Row) -> StoredOverride:
    return StoredOverride(record_from(OverrideRecord, row), NonceState(row["state"]), row["domain"])
