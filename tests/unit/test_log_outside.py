"""The checkpoint outside the database: it moves forward only, and start-up refuses a log that does not follow it."""

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


def started(folder: Path, log: Log) -> FileOutsideCheckpoint:
    outside = outside_at(folder)
    outside.store(log.checkpoint())
    return outside


def refusal(outside: FileOutsideCheckpoint, log: Log) -> str:
    with pytest.raises(PvdmError) as refused:
        require_consistent(outside, log)
    return refused.value.reason


def test_what_is_stored_is_loaded_by_the_next_process(tmp_path: Path) -> None:
    _, log = filled_log(5)
    started(tmp_path, log)
    assert outside_at(tmp_path).load() == log.checkpoint()


def test_a_log_that_went_on_is_consistent(tmp_path: Path) -> None:
    _, log = filled_log(5)
    outside = started(tmp_path, log)
    log.append(entries(5, 9))
    assert require_consistent(outside, log) is not None


def test_a_restored_backup_is_behind(tmp_path: Path) -> None:
    storage, log = filled_log(5)
    backup = storage.copy()
    log.append([entry(5)])
    assert refusal(started(tmp_path, log), open_log(backup)) == "log_behind_checkpoint"


@pytest.mark.parametrize("grown_to", [6, 7, 40])
def test_a_restored_backup_that_has_grown_again_is_a_fork(tmp_path: Path, grown_to: int) -> None:
    storage, log = filled_log(5)
    backup = storage.copy()
    log.append([entry(5)])
    open_log(backup).append(entries(5, grown_to, salt="other"))
    assert refusal(started(tmp_path, log), open_log(backup)) == "log_forked"


def test_a_log_of_another_origin_is_a_fork(tmp_path: Path) -> None:
    storage, log = filled_log(5)
    outside = started(tmp_path, log)
    assert refusal(outside, Log(storage, origin="log.example/other", signer=SIGNER)) == "log_forked"


def test_the_very_first_start_finds_nothing_and_may_go_on(tmp_path: Path) -> None:
    assert require_consistent(outside_at(tmp_path), filled_log(0)[1]) is None


def test_a_lost_outside_checkpoint_is_no_first_start(tmp_path: Path) -> None:
    assert refusal(outside_at(tmp_path), filled_log(5)[1]) == "outside_checkpoint_missing"


def test_a_disk_that_is_not_mounted_is_no_first_start(tmp_path: Path) -> None:
    assert refusal(outside_at(tmp_path / "not-mounted"), filled_log(0)[1]) == "outside_checkpoint_unavailable"


def test_a_disk_that_cannot_be_written_acknowledges_nothing(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError) as refused:
        outside_at(tmp_path / "not-mounted").store(filled_log(5)[1].checkpoint())
    assert refused.value.reason == "outside_checkpoint_unavailable"


def test_the_outside_checkpoint_does_not_go_back(tmp_path: Path) -> None:
    _, _, (older, newer) = log_grown_to([5, 6])
    outside_at(tmp_path).store(newer)
    with pytest.raises(VerificationError) as refused:
        outside_at(tmp_path).store(older)
    assert (refused.value.reason, outside_at(tmp_path).load()) == ("checkpoint_goes_back", newer)


def test_the_outside_checkpoint_does_not_change_sides(tmp_path: Path) -> None:
    outside_at(tmp_path).store(filled_log(5)[1].checkpoint())
    with pytest.raises(VerificationError) as refused:
        outside_at(tmp_path).store(filled_log(5, salt="other")[1].checkpoint())
    assert refused.value.reason == "log_forked"


def test_storing_the_same_checkpoint_again_is_no_error(tmp_path: Path) -> None:
    newest = filled_log(5)[1].checkpoint()
    outside = outside_at(tmp_path)
    outside.store(newest)
    outside.store(newest)
    assert outside.load() == newest


def test_an_older_file_put_back_under_a_running_process_is_noticed(tmp_path: Path) -> None:
    _, _, (older, newer) = log_grown_to([5, 6])
    outside = outside_at(tmp_path)
    outside.store(newer)
    (tmp_path / "newest").write_bytes(older.note)
    with pytest.raises(VerificationError) as refused:
        outside.load()
    assert refused.value.reason == "checkpoint_goes_back"


def test_a_file_removed_under_a_running_process_is_noticed(tmp_path: Path) -> None:
    outside = started(tmp_path, filled_log(5)[1])
    (tmp_path / "newest").unlink()
    with pytest.raises(VerificationError) as refused:
        outside.load()
    assert refused.value.reason == "checkpoint_goes_back"


@pytest.mark.parametrize("damage", [b"", b"half a checkp"])
def test_a_damaged_file_is_an_error_and_not_a_first_start(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "newest").write_bytes(damage)
    assert refusal(outside_at(tmp_path), filled_log(0)[1]) == "note_malformed"


def test_a_checkpoint_that_another_key_signed_is_not_stored(tmp_path: Path) -> None:
    foreign = sign_checkpoint(filled_log(5)[1].checkpoint().checkpoint, MemorySigner(9))
    with pytest.raises(VerificationError) as refused:
        outside_at(tmp_path).store(foreign)
    assert refused.value.reason == "note_key_unknown"


def test_a_checkpoint_that_says_other_than_its_note_is_not_stored(tmp_path: Path) -> None:
    _, _, (older, newer) = log_grown_to([5, 6])
    with pytest.raises(VerificationError):
        outside_at(tmp_path).store(SignedCheckpoint(newer.checkpoint, older.note))


def test_no_half_written_file_stays_behind(tmp_path: Path) -> None:
    started(tmp_path, filled_log(5)[1])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["newest", "newest.lock"]


def test_start_writes_the_first_checkpoint_of_an_empty_log(tmp_path: Path) -> None:
    check_at_start(outside_at(tmp_path), filled_log(0)[1])
    loaded = outside_at(tmp_path).load()
    assert loaded is not None
    assert loaded.checkpoint.size == 0


def test_start_catches_up_after_a_crash_between_commit_and_acknowledgement(tmp_path: Path) -> None:
    _, log = filled_log(5)
    outside = started(tmp_path, log)
    log.append([entry(5)])
    check_at_start(outside, log)
    assert outside_at(tmp_path).load() == log.checkpoint()


def test_start_refuses_a_log_that_is_behind(tmp_path: Path) -> None:
    started(tmp_path, filled_log(6)[1])
    with pytest.raises(VerificationError) as refused:
        check_at_start(outside_at(tmp_path), filled_log(5)[1])
    assert refused.value.reason == "log_behind_checkpoint"


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


class Overtaken(FileOutsideCheckpoint):
    """Another Steward stores its longer checkpoint between our look and our write."""

    faster: SignedCheckpoint | None = None

    def store(self, newest: SignedCheckpoint) -> None:
        if self.faster is not None:
            super().store(self.faster)
        super().store(newest)


def test_losing_the_race_to_a_longer_checkpoint_still_acknowledges(tmp_path: Path) -> None:
    _, log = filled_log(0)
    outside = Overtaken(tmp_path / "newest", origin=ORIGIN, keys=lambda: [KEY])
    check_at_start(outside, log)
    first, second = log.append([entry(0)]), log.append([entry(1)])
    outside.faster = second.checkpoint
    assert acknowledge(outside, log, first) == 2


def test_an_append_that_was_rolled_back_gets_no_checkpoint_outside(tmp_path: Path) -> None:
    storage, log = filled_log(5)
    outside = started(tmp_path, log)
    unsaved = open_log(storage.copy()).append([entry(5)])
    with pytest.raises(VerificationError) as refused:
        acknowledge(outside, log, unsaved)
    assert (refused.value.reason, outside_at(tmp_path).load()) == ("log_behind_checkpoint", log.checkpoint())


def test_a_log_swapped_under_a_running_process_is_not_acknowledged(tmp_path: Path) -> None:
    outside = started(tmp_path, filled_log(5)[1])
    _, other = filled_log(5, salt="other")
    appended = other.append([entry(5)])
    with pytest.raises(VerificationError) as refused:
        acknowledge(outside, other, appended)
    assert refused.value.reason == "log_forked"


def test_many_threads_leave_the_largest_checkpoint(tmp_path: Path) -> None:
    _, log, checkpoints = log_grown_to(range(1, 41))
    outside = outside_at(tmp_path)
    outside.store(checkpoints[0])
    failures: list[BaseException] = []

    def run(size: int) -> None:
        try:
            acknowledge(outside, log, AppendedEntries(size - 1, size, checkpoints[size - 1]))
        except BaseException as error:
            failures.append(error)

    threads = [Thread(target=run, args=(size,)) for size in range(2, 41)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (failures, outside_at(tmp_path).load()) == ([], checkpoints[-1])
