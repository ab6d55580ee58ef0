"""Exporting the log as static files: tiles are written once, the checkpoint last, and a crash leaves the old export."""

from __future__ import annotations

from pathlib import Path

import pytest

from pvdm.errors import PvdmError, VerificationError
from pvdm.trust.log import disk
from pvdm.trust.log import export as exporting
from pvdm.trust.log.export import export
from pvdm.trust.log.fsck import fsck
from tests.support.ledger.log_storage import KEY, MemoryStorage, entries, filled_log, log_grown_to, open_log

VKEY = KEY.to_vkey()
WRITE, SYNC = disk.write_atomically, disk.sync_folder


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def reason_of(storage: MemoryStorage, folder: Path) -> str:
    with pytest.raises(PvdmError) as caught:
        export(storage, folder)
    return caught.value.reason


def test_an_export_has_the_files_that_the_specification_names(tmp_path: Path) -> None:
    export(filled_log(300)[0], tmp_path)
    assert sorted(files_in(tmp_path)) == [
        "checkpoint",
        "tile/0/000",
        "tile/0/001.p/44",
        "tile/1/000.p/1",
        "tile/entries/000",
        "tile/entries/001.p/44",
    ]


def test_the_exported_checkpoint_is_the_newest_note(tmp_path: Path) -> None:
    storage, log = filled_log(300)
    export(storage, tmp_path)
    assert (tmp_path / "checkpoint").read_bytes() == log.checkpoint().note


def test_exporting_twice_writes_nothing_new(tmp_path: Path) -> None:
    storage, _ = filled_log(300)
    export(storage, tmp_path)
    assert export(storage, tmp_path).files_written == 0


def test_an_export_in_steps_ends_in_the_same_full_tiles(tmp_path: Path) -> None:
    storage = MemoryStorage()
    log = open_log(storage)
    for start in range(0, 1_024, 128):
        log.append(entries(start, start + 128))
        export(storage, tmp_path / "steps")
    export(storage, tmp_path / "once")
    full = {name for name in files_in(tmp_path / "once") if ".p/" not in name}
    assert {name: files_in(tmp_path / "steps")[name] for name in full} == {
        name: files_in(tmp_path / "once")[name] for name in full
    }


def test_partial_tiles_are_removed_when_the_full_tile_is_written(tmp_path: Path) -> None:
    storage, log, _ = log_grown_to([300])
    export(storage, tmp_path)
    log.append(entries(300, 600))
    export(storage, tmp_path)
    assert not (tmp_path / "tile/entries/001.p").exists()


def test_partial_tiles_of_earlier_checkpoints_stay_until_the_full_tile(tmp_path: Path) -> None:
    storage, log, _ = log_grown_to([300])
    export(storage, tmp_path)
    log.append(entries(300, 310))
    export(storage, tmp_path)
    assert sorted(path.name for path in (tmp_path / "tile/0/001.p").iterdir()) == ["44", "54"]


def test_exporting_an_empty_log_is_refused(tmp_path: Path) -> None:
    assert reason_of(MemoryStorage(), tmp_path) == "log_empty"


def test_exporting_over_a_longer_log_is_refused(tmp_path: Path) -> None:
    export(filled_log(301)[0], tmp_path)
    assert reason_of(filled_log(300)[0], tmp_path) == "log_behind_checkpoint"


def test_exporting_over_another_history_is_refused(tmp_path: Path) -> None:
    export(filled_log(300, salt="other")[0], tmp_path)
    assert reason_of(filled_log(301)[0], tmp_path) == "log_forked"


def test_exporting_over_a_tile_with_other_bytes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tile/0").mkdir(parents=True)
    (tmp_path / "tile/0/000").write_bytes(b"x" * 8_192)
    assert reason_of(filled_log(300)[0], tmp_path) == "export_conflict"


def test_an_export_removes_temporary_files_of_a_crashed_one(tmp_path: Path) -> None:
    (tmp_path / "tile").mkdir()
    (tmp_path / "tile" / f"{disk.TEMPORARY_PREFIX}abc").write_bytes(b"half")
    export(filled_log(3)[0], tmp_path)
    assert sorted(files_in(tmp_path)) == ["checkpoint", "tile/0/000.p/3", "tile/entries/000.p/3"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.write_atomically(tmp_path / "file", b"old")

    def full_disk(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="No space"):
        disk.write_atomically(tmp_path / "file", b"new")
    assert files_in(tmp_path) == {"file": b"old"}


def export_until_write(storage: MemoryStorage, folder: Path, monkeypatch: pytest.MonkeyPatch, stop: int) -> bool:
    """Export, but stop as in a power cut before write number `stop`. Return whether it was stopped."""
    count = 0

    def write_or_stop(path: Path, data: bytes) -> None:
        nonlocal count
        if count == stop:
            raise KeyboardInterrupt
        count += 1
        WRITE(path, data)

    with monkeypatch.context() as patch:
        for module in (exporting, disk):
            patch.setattr(module, "write_atomically", write_or_stop)
        try:
            export(storage, folder)
        except KeyboardInterrupt:
            return True
    return False


def test_a_crash_at_any_write_leaves_the_older_tree_whole_and_the_next_export_finishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, _, _ = log_grown_to([300])
    after = before.copy()
    open_log(after).append(entries(300, 1_100))
    stop, crashed = 0, True
    while crashed:
        folder = tmp_path / str(stop)
        export(before, folder)
        crashed = export_until_write(after, folder, monkeypatch, stop)
        assert fsck(folder, [VKEY]).size == (300 if crashed else 1_100)
        export(after, folder)
        assert fsck(folder, [VKEY]).files_beyond_checkpoint == 0
        stop += 1
    assert stop > 10


def test_the_checkpoint_is_written_after_every_tile_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def write(path: Path, data: bytes) -> None:
        order.append(f"write {path.name}")
        WRITE(path, data)

    def sync(folder: Path) -> None:
        order.append("sync")
        SYNC(folder)

    for module in (exporting, disk):
        monkeypatch.setattr(module, "write_atomically", write)
        monkeypatch.setattr(module, "sync_folder", sync)
    monkeypatch.setattr(exporting, "make_folders", lambda folder: folder.mkdir(parents=True, exist_ok=True))
    export(filled_log(3)[0], tmp_path)
    assert order == ["write 3", "write 3", "sync", "sync", "write checkpoint", "sync"]


def test_a_foreign_tile_in_the_folder_is_found_by_fsck(tmp_path: Path) -> None:
    export(filled_log(3)[0], tmp_path)
    (tmp_path / "tile/0/000.p/2").write_bytes(b"\x00" * 64)
    with pytest.raises(VerificationError) as caught:
        fsck(tmp_path, [VKEY])
    assert (caught.value.reason, caught.value.details["place"]) == ("fsck_partial", "tile/0/000.p/2")


# --- tiles that an earlier export has written ---

EDGE = ["tile/entries/001.p/44", "tile/0/001.p/44", "tile/1/000.p/1"]


@pytest.mark.parametrize("name", EDGE)
def test_a_missing_tile_of_the_edge_is_written_again_without_new_entries(tmp_path: Path, name: str) -> None:
    storage, _ = filled_log(300)
    export(storage, tmp_path)
    whole = files_in(tmp_path)
    (tmp_path / name).unlink()
    assert export(storage, tmp_path).files_written == 1
    assert files_in(tmp_path) == whole


@pytest.mark.parametrize("name", EDGE)
def test_a_damaged_tile_of_the_edge_is_refused_without_new_entries(tmp_path: Path, name: str) -> None:
    storage, _ = filled_log(300)
    export(storage, tmp_path)
    flip_bit(tmp_path / name)
    assert reason_of(storage, tmp_path) == "export_conflict"


def test_a_damaged_tile_of_the_edge_is_refused_though_new_entries_do_not_change_it(tmp_path: Path) -> None:
    storage, log, _ = log_grown_to([300])
    export(storage, tmp_path)
    flip_bit(tmp_path / "tile/1/000.p/1")
    log.append(entries(300, 310))
    assert reason_of(storage, tmp_path) == "export_conflict"


def test_a_missing_full_tile_at_the_end_is_written_again(tmp_path: Path) -> None:
    storage, _ = filled_log(256)
    export(storage, tmp_path)
    (tmp_path / "tile/0/000").unlink()
    assert export(storage, tmp_path).files_written == 1


def test_a_damaged_tile_before_the_edge_is_refused_only_with_verify(tmp_path: Path) -> None:
    storage, _ = filled_log(300)
    export(storage, tmp_path)
    flip_bit(tmp_path / "tile/0/000")
    assert export(storage, tmp_path).files_written == 0
    with pytest.raises(VerificationError) as caught:
        export(storage, tmp_path, verify=True)
    assert (caught.value.reason, caught.value.expected) == ("export_conflict", "tile/0/000 as the log has it")


def test_a_missing_tile_before_the_edge_is_written_again_with_verify(tmp_path: Path) -> None:
    storage, _ = filled_log(300)
    export(storage, tmp_path)
    whole = files_in(tmp_path)
    (tmp_path / "tile/entries/000").unlink()
    assert export(storage, tmp_path, verify=True).files_written == 1
    assert files_in(tmp_path) == whole


def test_comparing_a_tile_that_is_durable_syncs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, _ = filled_log(300)
    export(storage, tmp_path)
    synced: list[Path] = []
    monkeypatch.setattr(exporting, "sync_folder", synced.append)
    export(storage, tmp_path, verify=True)
    assert synced == []


def flip_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[5] ^= 1
    path.write_bytes(data)
