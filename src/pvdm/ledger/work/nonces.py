"""Nonces: won once by one insert, then COMMITTED or ABORTED for ever; recovery takes the catalog's word as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import bindparam, select, update

from pvdm.errors import ConflictError, InputError, StateUnknownError
from pvdm.ledger import ids
from pvdm.ledger.connection import Row
from pvdm.ledger.schema.work import NoncePurpose, nonces
from pvdm.ledger.unit import Unit
from pvdm.model.states import NONCE, NonceState

_HELD: Final = select(nonces).where(
    nonces.c.attempt_id == bindparam("of_attempt"), nonces.c.state != NonceState.ABORTED
)


@dataclass(frozen=True, slots=True)
class Nonce:
    """A nonce as the ledger has it."""

    nonce: str
    purpose: NoncePurpose
    holder: str
    attempt_id: str | None
    state: NonceState
    snapshot_id: str | None
    reason: str
    at_micros: int


@dataclass(frozen=True, slots=True)
class CommittedAs:
    """The catalog shows this snapshot, which names the nonce."""

    snapshot_id: str


@dataclass(frozen=True, slots=True)
class NotCommitted:
    """The catalog was read, shows no such snapshot, and cannot come to show one."""


@dataclass(frozen=True, slots=True)
class UnknownYet:
    """The catalog could not be asked."""


CatalogAnswer = CommittedAs | NotCommitted | UnknownYet


def reserve(unit: Unit, nonce: str, *, purpose: NoncePurpose, holder: str, attempt_id: str | None = None) -> None:
    """Win the nonce, or raise `nonce_taken`. One insert on the primary key decides."""
    won = unit.insert_new(
        nonces,
        nonce=ids.random_id(nonce, "nonce"),
        purpose=purpose,
        holder=ids.name(holder, "holder"),
        attempt_id=attempt_id,
        state=NONCE.initial,
        snapshot_id=None,
        reason="reserved",
    )
    if not won:
        raise ConflictError("nonce_taken", "the nonce was used before", expected="a new nonce", got=nonce)


def find(unit: Unit, nonce: str) -> Nonce | None:
    """The nonce, if anyone ever reserved it."""
    row = unit.found(nonces, nonce=nonce)
    return None if row is None else _nonce(row)


def held_by(unit: Unit, attempt_id: str) -> Nonce | None:
    """The attempt's one nonce that is not ABORTED."""
    row = unit.row(_HELD, of_attempt=attempt_id)
    return None if row is None else _nonce(row)


def commit(unit: Unit, nonce: str, *, snapshot_id: str | None) -> Nonce:
    """RESERVED to COMMITTED; any other state is refused, so a nonce pays once."""
    found = _locked(unit, nonce)
    if found.state is not NonceState.RESERVED:
        raise ConflictError("nonce_not_reserved", "the nonce is used up", expected="RESERVED", got=found.state)
    return _move(unit, found, NonceState.COMMITTED, reason="published", snapshot_id=snapshot_id)


def abort(unit: Unit, nonce: str, *, reason: str) -> Nonce:
    """RESERVED to ABORTED; one that is ABORTED stays so, one that is COMMITTED is refused."""
    found = _locked(unit, nonce)
    if found.state is NonceState.ABORTED:
        return found
    if found.state is NonceState.COMMITTED:
        raise ConflictError("nonce_not_reserved", "the nonce is used up", expected="RESERVED", got=found.state)
    return _move(unit, found, NonceState.ABORTED, reason=reason, snapshot_id=None)


def settle(unit: Unit, nonce: str, answer: CatalogAnswer) -> Nonce:
    """After a crash: make the ledger say what the catalog says. Any number of times gives the same.

    Ledger and catalog that contradict each other are StateUnknownError: nothing is overwritten, a person must look.
    """
    found = _locked(unit, nonce)
    match answer, found.state:
        case UnknownYet(), _:
            return found
        case CommittedAs(snapshot_id), NonceState.RESERVED:
            return _move(unit, found, NonceState.COMMITTED, reason="settled: published", snapshot_id=snapshot_id)
        case NotCommitted(), NonceState.RESERVED:
            return _move(unit, found, NonceState.ABORTED, reason="settled: not published", snapshot_id=None)
        case CommittedAs(snapshot_id), NonceState.COMMITTED if found.snapshot_id == snapshot_id:
            return found
        case NotCommitted(), NonceState.ABORTED:
            return found
    shown = f"snapshot {answer.snapshot_id}" if isinstance(answer, CommittedAs) else "no snapshot"
    stored = found.state + (f" as snapshot {found.snapshot_id}" if found.snapshot_id else "")
    raise StateUnknownError(
        "nonce_settlement_contradicts",
        "catalog and ledger contradict each other about a nonce",
        expected=f"{stored} (ledger)",
        got=f"{shown} (catalog)",
        hint="nothing was changed; run an audit of the table",
        nonce=nonce,
    )


def unsettled(unit: Unit) -> list[Nonce]:
    """Every nonce that is still RESERVED: what a starting Steward asks the catalog about."""
    wanted = select(nonces).where(nonces.c.state == NonceState.RESERVED).order_by(nonces.c.at_micros, nonces.c.nonce)
    return [_nonce(row) for row in unit.rows(wanted)]


def _locked(unit: Unit, nonce: str) -> Nonce:
    row = unit.locked(nonces, nonce=nonce)
    if row is None:
        raise InputError("nonce_unknown", "nobody reserved this nonce", got=ascii(nonce[:80]))
    return _nonce(row)


def _move(unit: Unit, found: Nonce, to: NonceState, *, reason: str, snapshot_id: str | None) -> Nonce:
    NONCE.require(found.state, to)
    if snapshot_id is not None:
        ids.snapshot_id(snapshot_id)
    changed = {"state": to, "snapshot_id": snapshot_id, "reason": ids.reason(reason), "at_micros": unit.at_micros}
    unit.execute(update(nonces).where(nonces.c.nonce == found.nonce).values(**changed))
    return _locked(unit, found.nonce)


def _nonce(row: Row) -> Nonce:
    return Nonce(
        row["nonce"],
        NoncePurpose(row["purpose"]),
        row["holder"],
        row["attempt_id"],
        NonceState(row["state"]),
        row["snapshot_id"],
        row["reason"],
        row["at_micros"],
    )
