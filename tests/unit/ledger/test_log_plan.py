"""Reading hashes of the log costs the same in a log of ten entries and of a million."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import text

from pvdm.ledger import open_ledger
from pvdm.ledger.migrations import migrate
from pvdm.ledger.record.events import _select_hashes
from tests.support.ledger.databases import NOW


def test_hashes_are_searched_by_their_key_and_the_table_is_never_scanned(tmp_path: Path) -> None:
    ledger = open_ledger(f"sqlite:///{tmp_path}/ledger.db")
    migrate(ledger, at_micros=NOW)
    places = {f"{name}_{number}": number for number in range(3) for name in ("level", "position")}
    try:
        with ledger.read() as unit:
            plan = unit.execute(text(f"EXPLAIN QUERY PLAN {_select_hashes(3).text}"), places).all()
    finally:
        ledger.close()
    steps = [str(row[-1]) for row in plan]
    assert any(step.startswith("SEARCH log_hashes USING") for step in steps), steps
    assert not any(step.startswith("SCAN log_hashes") for step in steps), steps
