"""Random commits, valid, invalid and concurrent, against a model: `main` of a protected table needs a permit."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from pvdm.ledger.clock import LedgerClock
from tests.support.catalog.compared import Stage, pyiceberg_reads
from tests.support.catalog.random_steps import CatalogMachine, play
from tests.support.ledger.databases import ledger_at, memory_folder
from tests.support.steward.notary import Time

pytestmark = pytest.mark.property


@pytest.fixture
def stage(migrated_file: Path) -> Iterator[Stage]:
    with memory_folder() as folder:
        shutil.copy(migrated_file, folder / "ledger.db")
        with ledger_at(f"sqlite:///{folder}/ledger.db") as ledger:
            time = Time()
            clock = LedgerClock(ledger, wall=lambda: time.wall, monotonic=lambda: time.monotonic)
            yield Stage.open_in(folder, ledger, clock, time, pyiceberg_reads)


def test_main_of_a_protected_table_changes_only_with_a_permit(stage: Stage) -> None:
    examples = max(20, settings().max_examples // 10)
    play(lambda: CatalogMachine(stage), examples=examples, steps=20)
