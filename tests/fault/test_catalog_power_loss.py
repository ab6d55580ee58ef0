"""After a power loss every pointer names its file, with its bytes; and the simulation notices a missing sync."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.catalog.power_loss import WORKER, find_catalog_damage
from tests.support.ledger.databases import memory_folder
from tests.support.ledger.power_loss import damage_after_each_call, damage_after_loss, record

SEEDS = 30


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as made:
        yield made


def test_a_power_loss_takes_no_file_that_a_pointer_names_and_no_commit_that_was_acknowledged(folder: Path) -> None:
    calls = record(folder, 1, "none", WORKER)
    damage = {seed: damage_after_loss(calls, folder, seed, find_catalog_damage) for seed in range(SEEDS)}
    assert {seed: found for seed, found in damage.items() if found} == {}


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.long)])
def test_a_power_loss_after_any_single_file_call_leaves_the_catalog_whole(folder: Path, every: int) -> None:
    calls = record(folder, 2, "none", WORKER)
    assert list(damage_after_each_call(calls, folder, 2, find_catalog_damage, every=every)) == []


def test_a_folder_that_a_dead_process_created_without_a_sync_is_synced_before_it_is_used(folder: Path) -> None:
    calls = record(folder, 1, "left", WORKER)
    damage = {seed: damage_after_loss(calls, folder, seed, find_catalog_damage) for seed in range(SEEDS)}
    assert {seed: found for seed, found in damage.items() if found} == {}


@pytest.mark.parametrize("weakness", ["file", "folder", "parent"])
def test_the_simulation_finds_the_loss_that_a_missing_sync_allows(folder: Path, weakness: str) -> None:
    calls = record(folder, 1, weakness, WORKER)
    assert any(damage_after_loss(calls, folder, seed, find_catalog_damage) for seed in range(200))
