"""Break-glass overrides: each waives one FAIL proof, with a nonce that is used once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from sqlalchemy import select

from pvdm.ledger import ids
from pvdm.ledger.connection import Row, record_from
from pvdm.ledger.record import statements
from pvdm.ledger.schema.record import StatementKind, overrides, proofs
from pvdm.ledger.schema.work import NoncePurpose
from pvdm.ledger.schema.work import nonces as nonce_table
from pvdm.ledger.unit import Unit
from pvdm.ledger.work import nonces
from pvdm.model.states import NonceState

OVERRIDES_PAGE_MAX_ROWS: Final = 1_000


@dataclass(frozen=True, slots=True)
class OverrideRecord:
    """What the ledger indexes of an override. The rest is in the envelope."""

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
    """Reserve the nonce and store the override. Raises `nonce_taken` if the nonce was ever used."""
    nonces.reserve(unit, override.nonce, purpose=NoncePurpose.BREAK_GLASS, holder=override.operator)
    statements.put(unit, StatementKind.BREAK_GLASS, override.override_id, envelope, log_index=log_index)
    insert_row(unit, override)


def insert_row(unit: Unit, override: OverrideRecord) -> None:
    """Add the row of an override whose envelope and nonce are stored."""
    ids.require_name(override.operator, "operator")
    unit.insert(overrides, **asdict(override))


def find(unit: Unit, override_id: str) -> StoredOverride | None:
    """The override, or None."""
    row = unit.row(_select_overrides().where(overrides.c.override_id == override_id))
    return None if row is None else _stored(row)


def list_newest(unit: Unit, *, domain: str | None = None) -> list[StoredOverride]:
    """The newest overrides."""
    wanted = _select_overrides().order_by(overrides.c.at_micros.desc(), overrides.c.override_id)
    if domain is not None:
        wanted = wanted.where(proofs.c.domain == domain)
    return [_stored(row) for row in unit.rows(wanted.limit(OVERRIDES_PAGE_MAX_ROWS))]


def live_of_proof(unit: Unit, fail_proof_id: str) -> str | None:
    """The id of this proof's override whose nonce is not ABORTED, or None."""
    wanted = _select_overrides().where(
        overrides.c.fail_proof_id == fail_proof_id, nonce_table.c.state != NonceState.ABORTED
    )
    row = unit.row(wanted.limit(1))
    return None if row is None else str(row["override_id"])


def of_proofs(unit: Unit, proof_ids: Sequence[str]) -> dict[str, str]:
    """The overrides of these proofs, by proof id."""
    wanted = select(overrides).where(overrides.c.fail_proof_id.in_(proof_ids)).order_by(overrides.c.at_micros)
    return {row["fail_proof_id"]: row["override_id"] for row in unit.rows(wanted)}


def used_by(unit: Unit, workload_ids: Sequence[str]) -> dict[str, dict[str, str]]:
    """For each workload that published by break-glass, the override of each snapshot."""
    mine = proofs.c.workload_id.in_(list(workload_ids))
    wanted = _select_overrides().where(nonce_table.c.state == NonceState.COMMITTED, mine)
    found: dict[str, dict[str, str]] = {}
    for row in unit.rows(wanted.add_columns(nonce_table.c.snapshot_id, proofs.c.workload_id)):
        found.setdefault(row["workload_id"], {})[row["snapshot_id"]] = row["override_id"]
    return found


def _select_overrides() -> Any:
    return (
        select(overrides, nonce_table.c.state, proofs.c.domain)
        .join(nonce_table, nonce_table.c.nonce == overrides.c.nonce)
        .join(proofs, proofs.c.proof_id == overrides.c.fail_proof_id)
    )


def _stored(row: Row) -> StoredOverride:
    return StoredOverride(record_from(OverrideRecord, row), NonceState(row["state"]), row["domain"])
