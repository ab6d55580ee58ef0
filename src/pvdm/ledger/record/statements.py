"""Signed envelopes by id: every kind of statement, immutable, and none without its place in the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import select

from pvdm.errors import ConflictError, InputError
from pvdm.ledger import ids
from pvdm.ledger.connection import Row
from pvdm.ledger.schema.work import StatementKind, statements
from pvdm.ledger.unit import Unit

STORED_ENVELOPE_MAX_BYTES: Final = 67_108_864


@dataclass(frozen=True, slots=True)
class Statement:
    """An envelope's bytes under its id (the SHA-256 of its canonical payload)."""

    statement_id: str
    kind: StatementKind
    envelope: bytes
    log_index: int
    at_micros: int


def put(unit: Unit, kind: StatementKind, statement_id: str, envelope: bytes, *, log_index: int) -> None:
    """Store the envelope; the same again is no change, other bytes under the same id are refused."""
    if not 0 < len(envelope) <= STORED_ENVELOPE_MAX_BYTES:
        raise InputError(
            "envelope_too_large",
            "the envelope cannot be stored",
            expected=f"1 to {STORED_ENVELOPE_MAX_BYTES} bytes",
            got=str(len(envelope)),
        )
    new = unit.insert_new(
        statements,
        statement_id=ids.sha256(statement_id, "statement id"),
        kind=kind,
        envelope=envelope,
        log_index=log_index,
    )
    if not new:
        known = get(unit, statement_id)
        if (known.kind, known.envelope, known.log_index) != (kind, envelope, log_index):
            raise ConflictError("statement_differs", "another envelope is stored under this id", got=statement_id)


def find(unit: Unit, statement_id: str) -> Statement | None:
    """The envelope, if it is stored."""
    row = unit.found(statements, statement_id=statement_id)
    return None if row is None else _statement(row)


def get(unit: Unit, statement_id: str) -> Statement:
    """The envelope; not being there is an error."""
    found = find(unit, statement_id)
    if found is None:
        raise InputError("statement_unknown", "the ledger holds no such statement", got=ascii(statement_id[:80]))
    return found


def of_kind(unit: Unit, kind: StatementKind) -> list[Statement]:
    """Every statement of a kind, in the log's order."""
    wanted = select(statements).where(statements.c.kind == kind).order_by(statements.c.log_index)
    return [_statement(row) for row in unit.rows(wanted)]


def ids_of_kind(unit: Unit, kind: StatementKind) -> tuple[str, ...]:
    """The ids of every statement of a kind, in the log's order."""
    wanted = select(statements.c.statement_id).where(statements.c.kind == kind).order_by(statements.c.log_index)
    return tuple(row["statement_id"] for row in unit.rows(wanted))


def between(unit: Unit, start: int, end: int) -> list[Statement]:
    """The statements whose places in the log are from `start` up to, but without, `end`."""
    index = statements.c.log_index
    wanted = select(statements).where(index >= start, index < end).order_by(index)
    return [_statement(row) for row in unit.rows(wanted)]


def _statement(row: Row) -> Statement:
    return Statement(
        row["statement_id"], StatementKind(row["kind"]), bytes(row["envelope"]), row["log_index"], row["at_micros"]
    )
