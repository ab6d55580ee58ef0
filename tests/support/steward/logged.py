"""Queries of a Steward's log and ledger that only tests need."""

from __future__ import annotations

from pvdm.ledger.record import statements
from pvdm.model.statements.kind import StatementKind
from pvdm.steward.notary import Notary
from pvdm.steward.record.log import LedgerLogReader


def entry_of(notary: Notary, index: int) -> bytes:
    """One entry of the log."""
    return LedgerLogReader(notary.ledger).read_entries(index, index + 1)[0]


def count_overrides(notary: Notary) -> int:
    """The number of overrides ever accepted."""
    with notary.ledger.read() as unit:
        return len(statements.list_ids_by_kind(unit, StatementKind.BREAK_GLASS))
