"""Files that a producer wrote are on the disk, with the folders that lead to them, before `main` names them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pvdm import Committed, Coordinator
from pvdm.lake.paths import parse_location
from pvdm.lake.read.entries import live_entries
from pvdm.metadata.gate import gate
from tests.support.steward.shop import BY_DAY, ROWS, Disk, Shop, contract, shop_at, table_of

COMMIT = Path("the commit")


@pytest.fixture
def synced_paths(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The paths that this process syncs, in order, with `COMMIT` where the gate commits."""
    seen: list[Path] = []
    sync, commit = os.fsync, gate._Swap.check_in_transaction

    def fsync(descriptor: int) -> None:
        sync(descriptor)
        seen.append(Path(f"/proc/self/fd/{descriptor}").readlink())

    def note_commit(swap: gate._Swap, *more: object) -> object:
        seen.append(COMMIT)
        return commit(swap, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(gate._Swap, "check_in_transaction", note_commit)
    return seen


def published_files(shop: Shop, table: str) -> list[Path]:
    metadata = shop.metadata(table)
    assert metadata.current_snapshot is not None
    entries = live_entries(metadata, metadata.current_snapshot, Disk())
    return [parse_location(entry.data_file.file_path).local for entry in entries]


@pytest.mark.parametrize("storage", ["open", "copied"])
def test_every_published_file_and_its_folders_are_synced_before_the_commit(
    tmp_path: Path, synced_paths: list[Path], storage: str
) -> None:
    with shop_at(tmp_path) as shop:
        shop.make("sales.orders", BY_DAY)
        shop.protect(contract("sales.orders", f"storage: {storage}"))
        synced_paths.clear()
        with Coordinator(shop.steward) as coordinator:
            outcome = coordinator.execute_workload("orders-1", lambda _s, _c: table_of(ROWS), table="sales.orders")
        assert isinstance(outcome, Committed), outcome
        files = published_files(shop, "sales.orders")
    before = synced_paths[: synced_paths.index(COMMIT)]
    assert len(files) == 2
    for file in files:
        assert file in before
        folders = [folder for folder in file.parents if folder.is_relative_to(tmp_path)]
        assert set(folders) <= set(before), f"folders above {file}"
