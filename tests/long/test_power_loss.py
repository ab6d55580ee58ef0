"""Four hundred power losses over forty runs of the ledger: nothing acknowledged is missing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ledger.databases import memory_folder
from tests.support.ledger.power_loss import damage_after_loss, record

pytestmark = pytest.mark.long

SEEDS_A_RECORDING = 10


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as memory:
        yield memory


@pytest.mark.parametrize("recording", range(100, 140))
def test_a_power_loss_takes_nothing_that_was_acknowledged(folder: Path, recording: int) -> None:
    calls = record(folder, recording, "EXTRA")
    seeds = range(recording * SEEDS_A_RECORDING, (recording + 1) * SEEDS_A_RECORDING)
    assert {seed: found for seed in seeds if (found := damage_after_loss(calls, folder, seed))} == {}
