"""Export as static files: whole or not at all, once and for ever, the checkpoint last."""

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


def tree(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refusal(storage: MemoryStorage, folder: Path) -> str:
    with pytest.raises(PvdmError) as refused:
        export(storage, folder)
    return refused.value.reason


def test_an_export_has_the_files_that_the_specification_names(tmp_path: Path) -> None:
    export(filled_log(300)[0], tmp_path)
    assert sorted(tree(tmp_path)) == [
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
    full = {name for name in tree(tmp_path / "once") if ".p/" not in name}
    assert {name: tree(tmp_path / "steps")[name] for name in full} == {
        name: tree(tmp_path / "once")[name] for name in full
    }


def test_partial_tiles_go_when_the_full_one_is_there(tmp_path: Path) -> None:
    storage, log, _ = log_grown_to([300])
    export(storage, tmp_path)
    log.append(entries(300, 600))
    export(storage, tmp_path)
    assert not (tmp_path / "tile/entries/001.p").exists()


def test_partial_tiles_of_earlier_checkpoints_stay_until_then(tmp_path: Path) -> None:
    storage, log, _ = log_grown_to([300])
    export(storage, tmp_path)
    log.append(entries(300, 310))
    export(storage, tmp_path)
    assert sorted(path.name for path in (tmp_path / "tile/0/001.p").iterdir()) == ["44", "54"]


def test_an_empty_log_is_not_exported(tmp_path: Path) -> None:
    assert refusal(MemoryStorage(), tmp_path) == "log_empty"


def test_a_folder_that_shows_a_longer_log_is_left_alone(tmp_path: Path) -> None:
    export(filled_log(301)[0], tmp_path)
    assert refusal(filled_log(300)[0], tmp_path) == "log_behind_checkpoint"


def test_a_folder_that_shows_another_history_is_left_alone(tmp_path: Path) -> None:
    export(filled_log(300, salt="other")[0], tmp_path)
    assert refusal(filled_log(301)[0], tmp_path) == "log_forked"


def test_a_tile_is_never_overwritten_with_other_bytes(tmp_path: Path) -> None:
    (tmp_path / "tile/0").mkdir(parents=True)
    (tmp_path / "tile/0/000").write_bytes(b"x" * 8_192)
    assert refusal(filled_log(300)[0], tmp_path) == "export_conflict"


def test_what_a_crashed_export_left_half_written_is_cleared_away(tmp_path: Path) -> None:
    (tmp_path / "tile").mkdir()
    (tmp_path / "tile" / f"{disk.TEMPORARY_PREFIX}abc").write_bytes(b"half")
    export(filled_log(3)[0], tmp_path)
    assert sorted(tree(tmp_path)) == ["checkpoint", "tile/0/000.p/3", "tile/entries/000.p/3"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.write_atomically(tmp_path / "file", b"old")

    def full_disk(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="No space"):
        disk.write_atomically(tmp_path / "file", b"new")
    assert tree(tmp_path) == {"file": b"old"}


def steps_of(storage: MemoryStorage, folder: Path, monkeypatch: pytest.MonkeyPatch, stop: int) -> bool:
    """Export, but lose power before write number `stop`; whether that happened."""
    count = 0

    def counted(path: Path, data: bytes) -> None:
        nonlocal count
        if count == stop:
            raise KeyboardInterrupt
        count += 1
        WRITE(path, data)

    with monkeypatch.context() as patch:
        for module in (exporting, disk):
            patch.setattr(module, "write_atomically", counted)
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
        crashed = steps_of(after, folder, monkeypatch, stop)
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


def test_a_tile_in_the_folder_that_is_not_the_log_s_is_found_by_the_checker(tmp_path: Path) -> None:
    export(filled_log(3)[0], tmp_path)
    (tmp_path / "tile/0/000.p/2").write_bytes(b"\x00" * 64)
    with pytest.raises(VerificationError) as refused:
        fsck(tmp_path, [VKEY])
    assert (refused.value.reason, refused.value.details["place"]) == ("fsck_partial", "tile/0/000.p/2")


# --- what is there already ---

EDGE = ["tile/entries/001.p/44", "tile/0/001.p/44", "tile/1/000.p/1"]


@pytest.mark.parametrize("name", EDGE)
def test_a_missing_tile_of_the_edge_is_written_again_although_nothing_is_new(tmp_path: Path, name: str) -> None:
    storage, _ = filled_log(300)
    export(storage, tmp_path)
    whole = tree(tmp_path)
    (tmp_path / name).unlink()
    assert export(storage, tmp_path).files_written == 1
    assert tree(tmp_path) == whole


@pytest.mark.parametrize("name", EDGE)
def test_a_damaged_tile_of_the_edge_is_refused_although_nothing_is_new(tmp_path: Path, name: str) -> None:
    storage, _ = filled_log(300)
    export(storage, tmp_path)
    spoil(tmp_path / name)
    assert refusal(storage, tmp_path) == "export_conflict"


def test_an_edge_that_the_new_entries_leave_alone_is_compared_too(tmp_path: Path) -> None:
    storage, log, _ = log_grown_to([300])
    export(storage, tmp_path)
    spoil(tmp_path / "tile/1/000.p/1")
    log.append(entries(300, 310))
    assert refusal(storage, tmp_path) == "export_conflict"


def test_a_full_tile_at_the_end_is_part_of_the_edge(tmp_path: Path) -> None:
    storage, _ = filled_log(256)
    export(storage, tmp_path)
    (tmp_path / "tile/0/000").unlink()
    assert export(storage, tmp_path).files_written == 1


def test_a_damaged_tile_behind_the_edge_is_found_when_all_are_compared(tmp_path: Path) -> None:
    storage, _ = filled_log(300)
    export(storage, tmp_path)
    spoil(tmp_path / "tile/0/000")
    assert export(storage, tmp_path).files_written == 0
    with pytest.raises(VerificationError) as refused:
        export(storage, tmp_path, verify=True)
    assert (refused.value.reason, refused.value.expected) == ("export_conflict", "tile/0/000 as the log has it")


def test_a_missing_tile_behind_the_edge_is_written_again_when_all_are_compared(tmp_path: Path) -> None:
    storage, _ = filled_log(300)
    export(storage, tmp_path)
    whole = tree(tmp_path)
    (tmp_path / "tile/entries/000").unlink()
    assert export(storage, tmp_path, verify=True).files_written == 1
    assert tree(tmp_path) == whole


def test_comparing_a_tile_that_is_durable_syncs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, _ = filled_log(300)
    export(storage, tmp_path)
    synced: list[Path] = []
    monkeypatch.setattr(exporting, "sync_folder", synced.append)
    export(storage, tmp_path, verify=True)
    assert synced == []


def spoil(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[5] ^= 1
    path.write_bytes(data)
