"""After a power loss nothing acknowledged is missing; and the simulation finds a loss where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ledger.databases import memory_folder
from tests.support.ledger.power_loss import damage_after_loss, record

SEEDS_A_RECORDING = 10


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as made:
        yield made


@pytest.mark.parametrize("recording", range(2))
def test_a_power_loss_takes_nothing_that_was_acknowledged(folder: Path, recording: int) -> None:
    calls = record(folder, recording, "EXTRA")  # the ledger's own setting of SQLite's `synchronous`
    seeds = range(recording * SEEDS_A_RECORDING, (recording + 1) * SEEDS_A_RECORDING)
    assert {seed: found for seed in seeds if (found := damage_after_loss(calls, folder, seed))} == {}


# With a rollback journal, FULL does not sync the folder after the journal is removed.
@pytest.mark.parametrize("synchronous", ["OFF", "NORMAL", "FULL"])
def test_the_simulation_finds_the_loss_that_a_weaker_setting_allows(folder: Path, synchronous: str) -> None:
    calls = record(folder, 1, synchronous)
    assert any(damage_after_loss(calls, folder, seed) for seed in range(60))
