"""Files of this machine: a removal is durable."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pvdm.lake.paths import parse_location
from pvdm.lake.stores.local import LocalStore


def test_the_folder_of_a_removed_file_is_synced_after_the_removal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the file can be there again after a power cut, and the ledger says that it is gone."""
    file = tmp_path / "data" / "a.parquet"
    file.parent.mkdir()
    file.write_bytes(b"abc")
    synced: list[tuple[str, bool]] = []
    sync = os.fsync

    def record_sync(descriptor: int) -> None:
        synced.append((str(Path(f"/proc/self/fd/{descriptor}").readlink()), file.exists()))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", record_sync)
    store = LocalStore(tmp_path)
    store.remove(parse_location(str(file)))
    assert synced == [(str(file.parent), False)]
    store.remove(parse_location(str(file)))
    file.parent.rmdir()
    store.remove(parse_location(str(file)))
    assert len(synced) == 1, "a file that is gone is no error"
