"""Nonces, 128 random bits for one use: reserved by one insert, then COMMITTED or ABORTED for good."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import bindparam, select

from pvdm.errors import Code
from pvdm.ledger import ids
from pvdm.ledger.connection import record_from, record_if_found
from pvdm.ledger.schema.work import NoncePurpose, nonces
from pvdm.ledger.unit import Unit
from pvdm.model.states import NONCE, NonceState

_CURRENT: Final = select(nonces).where(
    nonces.c.attempt_id == bindparam("of_attempt"), nonces.c.state != NonceState.ABORTED
)


@dataclass(frozen=True, slots=True)
class Nonce:
    """A nonce in the ledger. `holder` is an attempt, operator or attestor. `attempt_id` is set only for an attempt."""

    nonce: str
    purpose: NoncePurpose
    holder: str
    attempt_id: str | None
    state: NonceState
    snapshot_id: str | None
    reason: str
    at_micros: int


def reserve(unit: Unit, nonce: str, *, purpose: NoncePurpose, holder: str, attempt_id: str | None = None) -> None:
    """Reserve the nonce for `holder` (an attempt, operator or attestor). Raises `nonce_taken` if it is not new."""
    is_new = unit.insert_new(
        nonces,
        nonce=ids.require_random_id(nonce, "nonce"),
        purpose=purpose,
        holder=ids.require_name(holder, "holder"),
        attempt_id=attempt_id,
        state=NONCE.initial,
        snapshot_id=None,
        reason="reserved",
    )
    if not is_new:
        raise Code.NONCE_TAKEN(got=nonce)


def find(unit: Unit, nonce: str) -> Nonce | None:
    """The nonce, or None."""
    return record_if_found(Nonce, unit.find(nonces, nonce=nonce))


def find_current(unit: Unit, attempt_id: str) -> Nonce | None:
    """The attempt's current nonce, which is the only one that is not ABORTED; or None."""
    return record_if_found(Nonce, unit.row(_CURRENT, of_attempt=attempt_id))


def commit(unit: Unit, nonce: str, *, snapshot_id: str | None) -> None:
    """Move from RESERVED to COMMITTED. Any other state is refused, so a nonce is used once."""
    found = _lock(unit, nonce)
    if found.state is not NonceState.RESERVED:
        raise Code.NONCE_NOT_RESERVED(got=found.state)
    _move(unit, found, NonceState.COMMITTED, reason="published", snapshot_id=snapshot_id)


def abort(unit: Unit, nonce: str, *, reason: str) -> None:
    """Move from RESERVED to ABORTED. An ABORTED nonce stays as it is; a COMMITTED one is refused."""
    found = _lock(unit, nonce)
    if found.state is NonceState.COMMITTED:
        raise Code.NONCE_NOT_RESERVED(got=found.state)
    if found.state is not NonceState.ABORTED:
        _move(unit, found, NonceState.ABORTED, reason=reason, snapshot_id=None)


def settle(unit: Unit, nonce: str, snapshot_id: str) -> None:
    """Move to COMMITTED, because the catalog shows the snapshot of this nonce's publication. Idempotent.

    If ledger and catalog contradict each other, StateUnknownError is raised and nothing is overwritten.
    """
    found = _lock(unit, nonce)
    if found.state is NonceState.RESERVED:
        _move(unit, found, NonceState.COMMITTED, reason="settled: published", snapshot_id=snapshot_id)
    elif (found.state, found.snapshot_id) != (NonceState.COMMITTED, snapshot_id):
        stored = found.state + (f" as snapshot {found.snapshot_id}" if found.snapshot_id else "")
        shown = f"snapshot {snapshot_id} (catalog)"
        raise Code.NONCE_SETTLEMENT_CONTRADICTS(expected=f"{stored} (ledger)", got=shown, nonce=nonce)


def list_reserved(unit: Unit) -> list[Nonce]:
    """Every RESERVED nonce, oldest first."""
    wanted = select(nonces).where(nonces.c.state == NonceState.RESERVED).order_by(nonces.c.at_micros, nonces.c.nonce)
    return unit.records(Nonce, wanted)


def _lock(unit: Unit, nonce: str) -> Nonce:
    return record_from(Nonce, unit.get_locked(nonces, "nonce_unknown", nonce=nonce))


def _move(unit: Unit, found: Nonce, to: NonceState, *, reason: str, snapshot_id: str | None) -> None:
    NONCE.require(found.state, to)
    if snapshot_id is not None:
        ids.require_snapshot_id(snapshot_id)
    reason = ids.require_reason(reason)
    unit.update(nonces, {"nonce": found.nonce}, state=to, snapshot_id=snapshot_id, reason=reason)
