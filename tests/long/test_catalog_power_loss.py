"""Power losses over many runs of the catalog, at random and after every single file call."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.catalog.power_loss import WORKER, catalog_wrong
from tests.support.ledger.databases import memory_folder
from tests.support.ledger.power_loss import losses, losses_at_each_call, record

pytestmark = pytest.mark.long

SEEDS = 100


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as made:
        yield made


@pytest.mark.parametrize("recording", range(100, 120))
def test_a_power_loss_takes_no_file_that_a_pointer_names(folder: Path, recording: int) -> None:
    calls = record(folder, recording, "none", WORKER)
    seeds = range(recording * SEEDS, (recording + 1) * SEEDS)
    assert {seed: found for seed in seeds if (found := losses(calls, folder, seed, catalog_wrong))} == {}
    assert list(losses_at_each_call(calls, folder, recording, catalog_wrong)) == []
