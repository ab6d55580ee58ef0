"""After a power loss every pointer names its file, with its bytes; and the simulation finds a loss if there is one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.catalog.power_loss import WORKER, catalog_wrong
from tests.support.ledger.databases import memory_folder
from tests.support.ledger.power_loss import losses, losses_at_each_call, record

SEEDS = 60


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as made:
        yield made


def test_a_power_loss_takes_no_file_that_a_pointer_names_and_no_commit_that_was_acknowledged(folder: Path) -> None:
    calls = record(folder, 1, "none", WORKER)
    assert {seed: found for seed in range(SEEDS) if (found := losses(calls, folder, seed, catalog_wrong))} == {}


def test_a_power_loss_after_any_single_file_call_leaves_the_catalog_whole(folder: Path) -> None:
    calls = record(folder, 2, "none", WORKER)
    assert list(losses_at_each_call(calls, folder, 2, catalog_wrong)) == []


def test_a_folder_that_somebody_made_and_did_not_sync_is_synced_before_it_is_relied_on(folder: Path) -> None:
    calls = record(folder, 1, "left", WORKER)
    assert {seed: found for seed in range(SEEDS) if (found := losses(calls, folder, seed, catalog_wrong))} == {}


@pytest.mark.parametrize("weakness", ["file", "folder", "parent"])
def test_the_simulation_finds_the_loss_that_a_missing_sync_allows(folder: Path, weakness: str) -> None:
    calls = record(folder, 1, weakness, WORKER)
    assert any(losses(calls, folder, seed, catalog_wrong) for seed in range(200))
