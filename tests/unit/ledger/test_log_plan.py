"""SQLite finds hashes of the log by their key, so reading them does not get slower as the log grows."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import text

from pvdm.ledger import open_ledger
from pvdm.ledger.migrations import migrate
from pvdm.ledger.record.events import _select_hashes
from tests.support.ledger.databases import NOW


def test_hashes_are_found_by_their_key_without_a_scan(tmp_path: Path) -> None:
    ledger = open_ledger(f"sqlite:///{tmp_path}/ledger.db")
    migrate(ledger, at_micros=NOW)
    parameters = {f"{name}_{number}": number for number in range(3) for name in ("level", "position")}
    try:
        with ledger.read() as unit:
            plan = unit.execute(text(f"EXPLAIN QUERY PLAN {_select_hashes(3).text}"), parameters).all()
    finally:
        ledger.close()
    steps = [str(row[-1]) for row in plan]
    assert any(step.startswith("SEARCH log_hashes USING") for step in steps), steps
    assert not any(step.startswith("SCAN log_hashes") for step in steps), steps
