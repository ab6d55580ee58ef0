"""Break-glass overrides: one operator's word for one FAIL proof, with a nonce that pays once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import select

from pvdm.ledger import ids
from pvdm.ledger.connection import Row
from pvdm.ledger.record import statements
from pvdm.ledger.schema.work import NoncePurpose, StatementKind, overrides, proofs
from pvdm.ledger.schema.work import nonces as nonce_table
from pvdm.ledger.unit import Unit
from pvdm.ledger.work import nonces
from pvdm.model.states import NonceState

OVERRIDES_PAGE_MAX_ROWS: Final = 1_000


@dataclass(frozen=True, slots=True)
class OverrideRecord:
    """What the ledger has to find about an override; the envelope says the rest."""

    override_id: str
    fail_proof_id: str
    nonce: str
    operator: str
    expires_micros: int


@dataclass(frozen=True, slots=True)
class StoredOverride:
    """An override with the state of its nonce: RESERVED until it is used, COMMITTED once it has been."""

    record: OverrideRecord
    state: NonceState
    domain: str


def put(unit: Unit, override: OverrideRecord, envelope: bytes, *, log_index: int) -> None:
    """Reserve the nonce and store the override; a nonce that anyone ever used is `nonce_taken`."""
    nonces.reserve(unit, override.nonce, purpose=NoncePurpose.BREAK_GLASS, holder=override.operator)
    statements.put(unit, StatementKind.BREAK_GLASS, override.override_id, envelope, log_index=log_index)
    refill(unit, override)


def refill(unit: Unit, override: OverrideRecord) -> None:
    """The row of an override whose envelope and nonce are stored."""
    unit.insert(
        overrides,
        override_id=override.override_id,
        fail_proof_id=override.fail_proof_id,
        nonce=override.nonce,
        operator=ids.name(override.operator, "operator"),
        expires_micros=override.expires_micros,
    )


def find(unit: Unit, override_id: str) -> StoredOverride | None:
    """The override, if it is stored."""
    row = unit.row(_joined().where(overrides.c.override_id == override_id))
    return None if row is None else _stored(row)


def listed(unit: Unit, *, domain: str | None = None) -> list[StoredOverride]:
    """The newest overrides; there should be few."""
    wanted = _joined().order_by(overrides.c.at_micros.desc(), overrides.c.override_id)
    if domain is not None:
        wanted = wanted.where(proofs.c.domain == domain)
    return [_stored(row) for row in unit.rows(wanted.limit(OVERRIDES_PAGE_MAX_ROWS))]


def live_of_proof(unit: Unit, fail_proof_id: str) -> str | None:
    """The override of this proof whose nonce is not ABORTED, if there is one."""
    wanted = _joined().where(overrides.c.fail_proof_id == fail_proof_id, nonce_table.c.state != NonceState.ABORTED)
    row = unit.row(wanted.limit(1))
    return None if row is None else str(row["override_id"])


def of_proofs(unit: Unit, proof_ids: Sequence[str]) -> dict[str, str]:
    """Which of these proofs were overridden, and by which override."""
    wanted = select(overrides).where(overrides.c.fail_proof_id.in_(proof_ids)).order_by(overrides.c.at_micros)
    return {row["fail_proof_id"]: row["override_id"] for row in unit.rows(wanted)}


def used_by(unit: Unit, workload_ids: Sequence[str]) -> dict[str, dict[str, str]]:
    """Of each workload that published by break-glass, the override of each snapshot that it published so."""
    mine = proofs.c.workload_id.in_(list(workload_ids))
    wanted = _joined().where(nonce_table.c.state == NonceState.COMMITTED, mine)
    found: dict[str, dict[str, str]] = {}
    for row in unit.rows(wanted.add_columns(nonce_table.c.snapshot_id, proofs.c.workload_id)):
        found.setdefault(row["workload_id"], {})[row["snapshot_id"]] = row["override_id"]
    return found


def _joined() -> Any:
    return (
        select(overrides, nonce_table.c.state, proofs.c.domain)
        .join(nonce_table, nonce_table.c.nonce == overrides.c.nonce)
        .join(proofs, proofs.c.proof_id == overrides.c.fail_proof_id)
    )


def _stored(row: Row) -> StoredOverride:
    record = OverrideRecord(
        row["override_id"], row["fail_proof_id"], row["nonce"], row["operator"], row["expires_micros"]
    )
    return StoredOverride(record, NonceState(row["state"]), row["domain"])
