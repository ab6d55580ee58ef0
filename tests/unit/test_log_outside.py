"""The outside checkpoint: it never goes back, and a start refuses a log that does not continue it."""

from __future__ import annotations

from pathlib import Path
from threading import Thread

import pytest

from pvdm.errors import PvdmError, UnavailableError, VerificationError
from pvdm.trust.log.checkpoint import SignedCheckpoint, sign_checkpoint
from pvdm.trust.log.log import AppendedEntries
from pvdm.trust.log.outside import FileOutsideCheckpoint, acknowledge, check_at_start, require_consistent
from tests.support.ledger.log_storage import (
    KEY,
    ORIGIN,
    SIGNER,
    Log,
    MemorySigner,
    entries,
    entry,
    filled_log,
    log_grown_to,
    open_log,
)


def outside_at(folder: Path) -> FileOutsideCheckpoint:
    return FileOutsideCheckpoint(folder / "newest", origin=ORIGIN, keys=lambda: [KEY])


def store_checkpoint_of(folder: Path, log: Log) -> FileOutsideCheckpoint:
    outside = outside_at(folder)
    outside.store(log.checkpoint())
    return outside


def reason_of(outside: FileOutsideCheckpoint, log: Log) -> str:
    with pytest.raises(PvdmError) as caught:
        require_consistent(outside, log)
    return caught.value.reason


def test_a_stored_checkpoint_is_loaded_by_a_new_object(tmp_path: Path) -> None:
    _, log = filled_log(5)
    store_checkpoint_of(tmp_path, log)
    assert outside_at(tmp_path).load() == log.checkpoint()


def test_a_log_with_more_entries_is_consistent(tmp_path: Path) -> None:
    _, log = filled_log(5)
    outside = store_checkpoint_of(tmp_path, log)
    log.append(entries(5, 9))
    assert require_consistent(outside, log) is not None


def test_a_restored_backup_is_refused_as_behind(tmp_path: Path) -> None:
    storage, log = filled_log(5)
    backup = storage.copy()
    log.append([entry(5)])
    assert reason_of(store_checkpoint_of(tmp_path, log), open_log(backup)) == "log_behind_checkpoint"


@pytest.mark.parametrize("grown_to", [6, 7, 40])
def test_a_restored_backup_with_new_entries_is_refused_as_a_fork(tmp_path: Path, grown_to: int) -> None:
    storage, log = filled_log(5)
    backup = storage.copy()
    log.append([entry(5)])
    open_log(backup).append(entries(5, grown_to, salt="other"))
    assert reason_of(store_checkpoint_of(tmp_path, log), open_log(backup)) == "log_forked"


def test_a_log_of_another_origin_is_refused_as_a_fork(tmp_path: Path) -> None:
    storage, log = filled_log(5)
    outside = store_checkpoint_of(tmp_path, log)
    assert reason_of(outside, Log(storage, origin="log.example/other", signer=SIGNER)) == "log_forked"


def test_the_first_start_without_an_outside_checkpoint_is_accepted(tmp_path: Path) -> None:
    assert require_consistent(outside_at(tmp_path), filled_log(0)[1]) is None


def test_a_lost_outside_checkpoint_is_refused(tmp_path: Path) -> None:
    assert reason_of(outside_at(tmp_path), filled_log(5)[1]) == "outside_checkpoint_missing"


def test_a_missing_folder_of_the_outside_checkpoint_is_refused(tmp_path: Path) -> None:
    assert reason_of(outside_at(tmp_path / "not-mounted"), filled_log(0)[1]) == "outside_checkpoint_unavailable"


def test_storing_in_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError) as caught:
        outside_at(tmp_path / "not-mounted").store(filled_log(5)[1].checkpoint())
    assert caught.value.reason == "outside_checkpoint_unavailable"


def test_storing_an_older_checkpoint_is_refused(tmp_path: Path) -> None:
    _, _, (older, newer) = log_grown_to([5, 6])
    outside_at(tmp_path).store(newer)
    with pytest.raises(VerificationError) as caught:
        outside_at(tmp_path).store(older)
    assert (caught.value.reason, outside_at(tmp_path).load()) == ("checkpoint_goes_back", newer)


def test_storing_a_checkpoint_of_a_fork_is_refused(tmp_path: Path) -> None:
    outside_at(tmp_path).store(filled_log(5)[1].checkpoint())
    with pytest.raises(VerificationError) as caught:
        outside_at(tmp_path).store(filled_log(5, salt="other")[1].checkpoint())
    assert caught.value.reason == "log_forked"


def test_storing_the_same_checkpoint_again_is_no_error(tmp_path: Path) -> None:
    newest = filled_log(5)[1].checkpoint()
    outside = outside_at(tmp_path)
    outside.store(newest)
    outside.store(newest)
    assert outside.load() == newest


def test_an_older_file_that_is_put_back_is_refused(tmp_path: Path) -> None:
    _, _, (older, newer) = log_grown_to([5, 6])
    outside = outside_at(tmp_path)
    outside.store(newer)
    (tmp_path / "newest").write_bytes(older.note)
    with pytest.raises(VerificationError) as caught:
        outside.load()
    assert caught.value.reason == "checkpoint_goes_back"


def test_a_removed_file_is_refused(tmp_path: Path) -> None:
    outside = store_checkpoint_of(tmp_path, filled_log(5)[1])
    (tmp_path / "newest").unlink()
    with pytest.raises(VerificationError) as caught:
        outside.load()
    assert caught.value.reason == "checkpoint_goes_back"


@pytest.mark.parametrize("damage", [b"", b"half a checkp"])
def test_a_damaged_file_is_an_error_and_not_a_first_start(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "newest").write_bytes(damage)
    assert reason_of(outside_at(tmp_path), filled_log(0)[1]) == "note_malformed"


def test_storing_a_checkpoint_of_another_key_is_refused(tmp_path: Path) -> None:
    foreign = sign_checkpoint(filled_log(5)[1].checkpoint().checkpoint, MemorySigner(9))
    with pytest.raises(VerificationError) as caught:
        outside_at(tmp_path).store(foreign)
    assert caught.value.reason == "note_key_unknown"


def test_storing_a_checkpoint_that_differs_from_its_note_is_refused(tmp_path: Path) -> None:
    _, _, (older, newer) = log_grown_to([5, 6])
    with pytest.raises(VerificationError):
        outside_at(tmp_path).store(SignedCheckpoint(newer.checkpoint, older.note))


def test_no_half_written_file_stays_behind(tmp_path: Path) -> None:
    store_checkpoint_of(tmp_path, filled_log(5)[1])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["newest", "newest.lock"]


def test_start_writes_the_first_checkpoint_of_an_empty_log(tmp_path: Path) -> None:
    check_at_start(outside_at(tmp_path), filled_log(0)[1])
    loaded = outside_at(tmp_path).load()
    assert loaded is not None
    assert loaded.checkpoint.size == 0


def test_start_catches_up_after_a_crash_between_commit_and_acknowledgement(tmp_path: Path) -> None:
    _, log = filled_log(5)
    outside = store_checkpoint_of(tmp_path, log)
    log.append([entry(5)])
    check_at_start(outside, log)
    assert outside_at(tmp_path).load() == log.checkpoint()


def test_start_refuses_a_log_that_is_behind(tmp_path: Path) -> None:
    store_checkpoint_of(tmp_path, filled_log(6)[1])
    with pytest.raises(VerificationError) as caught:
        check_at_start(outside_at(tmp_path), filled_log(5)[1])
    assert caught.value.reason == "log_behind_checkpoint"


def test_an_entry_is_acknowledged_when_the_outside_covers_it(tmp_path: Path) -> None:
    _, log = filled_log(0)
    outside = outside_at(tmp_path)
    check_at_start(outside, log)
    appended = log.append([entry(0)])
    assert acknowledge(outside, log, appended) == 1
    assert outside_at(tmp_path).load() == appended.checkpoint


def test_a_later_checkpoint_of_another_writer_covers_an_earlier_entry(tmp_path: Path) -> None:
    _, log = filled_log(0)
    outside = outside_at(tmp_path)
    check_at_start(outside, log)
    first, second = log.append([entry(0)]), log.append([entry(1)])
    acknowledge(outside_at(tmp_path), log, second)
    assert acknowledge(outside, log, first) == 2


class OvertakenCheckpoint(FileOutsideCheckpoint):
    """Another Steward stores a longer checkpoint just before this one stores its own."""

    faster: SignedCheckpoint | None = None

    def store(self, newest: SignedCheckpoint) -> None:
        if self.faster is not None:
            super().store(self.faster)
        super().store(newest)


def test_an_entry_is_acknowledged_if_another_writer_stores_a_longer_checkpoint_first(tmp_path: Path) -> None:
    _, log = filled_log(0)
    outside = OvertakenCheckpoint(tmp_path / "newest", origin=ORIGIN, keys=lambda: [KEY])
    check_at_start(outside, log)
    first, second = log.append([entry(0)]), log.append([entry(1)])
    outside.faster = second.checkpoint
    assert acknowledge(outside, log, first) == 2


def test_acknowledging_an_append_that_was_rolled_back_is_refused(tmp_path: Path) -> None:
    storage, log = filled_log(5)
    outside = store_checkpoint_of(tmp_path, log)
    unsaved = open_log(storage.copy()).append([entry(5)])
    with pytest.raises(VerificationError) as caught:
        acknowledge(outside, log, unsaved)
    assert (caught.value.reason, outside_at(tmp_path).load()) == ("log_behind_checkpoint", log.checkpoint())


def test_acknowledging_an_append_of_another_log_is_refused(tmp_path: Path) -> None:
    outside = store_checkpoint_of(tmp_path, filled_log(5)[1])
    _, other = filled_log(5, salt="other")
    appended = other.append([entry(5)])
    with pytest.raises(VerificationError) as caught:
        acknowledge(outside, other, appended)
    assert caught.value.reason == "log_forked"


def test_after_many_concurrent_writers_the_largest_checkpoint_is_stored(tmp_path: Path) -> None:
    _, log, checkpoints = log_grown_to(range(1, 41))
    outside = outside_at(tmp_path)
    outside.store(checkpoints[0])
    failures: list[BaseException] = []

    def acknowledge_size(size: int) -> None:
        try:
            acknowledge(outside, log, AppendedEntries(size - 1, size, checkpoints[size - 1]))
        except BaseException as error:
            failures.append(error)

    threads = [Thread(target=acknowledge_size, args=(size,)) for size in range(2, 41)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (failures, outside_at(tmp_path).load()) == ([], checkpoints[-1])
