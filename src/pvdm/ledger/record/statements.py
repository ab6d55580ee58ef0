"""Signed envelopes by id: every kind of statement, immutable, each with its log index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import select

from pvdm.errors import Code
from pvdm.ledger import ids
from pvdm.ledger.connection import Row, record_from
from pvdm.ledger.schema.record import StatementKind, statements
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
    """Store the envelope. The same again is no change; other bytes under the same id are refused."""
    if not 0 < len(envelope) <= STORED_ENVELOPE_MAX_BYTES:
        raise Code.ENVELOPE_TOO_LARGE(expected=f"1 to {STORED_ENVELOPE_MAX_BYTES} bytes", got=str(len(envelope)))
    new = unit.insert_new(
        statements,
        statement_id=ids.require_sha256(statement_id, "statement id"),
        kind=kind,
        envelope=envelope,
        log_index=log_index,
    )
    if not new:
        known = get(unit, statement_id)
        if (known.kind, known.envelope, known.log_index) != (kind, envelope, log_index):
            raise Code.STATEMENT_DIFFERS("another envelope is stored under this id", got=statement_id)


def find(unit: Unit, statement_id: str) -> Statement | None:
    """The envelope, or None."""
    row = unit.find(statements, statement_id=statement_id)
    return None if row is None else _statement(row)


def get(unit: Unit, statement_id: str) -> Statement:
    """The envelope. Raises `statement_unknown`."""
    found = find(unit, statement_id)
    if found is None:
        raise Code.STATEMENT_UNKNOWN(got=ascii(statement_id[:80]))
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
    """The statements whose log index is from `start` up to, but without, `end`."""
    index = statements.c.log_index
    wanted = select(statements).where(index >= start, index < end).order_by(index)
    return [_statement(row) for row in unit.rows(wanted)]


def _statement(row: Row) -> Statement:
    return record_from(Statement, row, kind=StatementKind(row["kind"]), envelope=bytes(row["envelope"]))
