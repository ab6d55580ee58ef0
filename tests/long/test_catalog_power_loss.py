"""Power losses over many runs of the catalog, at random and after every single file call."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.catalog.power_loss import WORKER, find_catalog_damage
from tests.support.ledger.databases import memory_folder
from tests.support.ledger.power_loss import damage_after_each_call, damage_after_loss, record

pytestmark = pytest.mark.long

SEEDS = 100


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as memory:
        yield memory


@pytest.mark.parametrize("recording", range(100, 120))
def test_a_power_loss_takes_no_file_that_a_pointer_names(folder: Path, recording: int) -> None:
    calls = record(folder, recording, "none", WORKER)
    seeds = range(recording * SEEDS, (recording + 1) * SEEDS)
    damage = {seed: damage_after_loss(calls, folder, seed, find_catalog_damage) for seed in seeds}
    assert {seed: found for seed, found in damage.items() if found} == {}
    assert list(damage_after_each_call(calls, folder, recording, find_catalog_damage)) == []
