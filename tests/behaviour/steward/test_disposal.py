"""The clean-up after attempts: files are quarantined or deleted, branches removed, and no file in use is touched."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pvdm.catalog.commit import Change
from pvdm.catalog.sanity import CLOCK_DIFFERENCE_MAX_MS
from pvdm.errors import ConflictError, NotAllowedError, UnavailableError, VerificationError
from pvdm.lake.next_snapshot import SnapshotChange, next_snapshot
from pvdm.lake.paths import parse_location
from pvdm.lake.read.entries import live_entries
from pvdm.ledger import Unit
from pvdm.ledger.schema.work import DisposalOutcome
from pvdm.ledger.work import attempts
from pvdm.ledger.work.attempts import Attempt
from pvdm.model.role import Role
from pvdm.model.states import AttemptState
from pvdm.steward.cleanup.disposal import plan_branch_removal
from pvdm.verify.fetch import Files
from tests.support import fault
from tests.support.steward.notary import attempt_token
from tests.support.verify.attempts import RAW, ROWS, SALES, Bench, Row, bench_at, write

pytest.importorskip("pvdm_kernel")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with bench_at(tmp_path, shown=ROWS[:3]) as made:
        yield made


def live_files(bench: Bench) -> list[Path]:
    """The data files of `main`."""
    metadata = bench.state().metadata
    assert metadata.current_snapshot is not None
    found = live_entries(metadata, metadata.current_snapshot, Files())
    return [parse_location(each.data_file.file_path).local for each in found]


def roll_back(bench: Bench, attempt: Attempt) -> None:
    notary = bench.scene.notary

    def work(unit: Unit) -> None:
        attempts.end(unit, attempt.attempt_id, AttemptState.ROLLED_BACK, reason="interrupted")

    notary.ledger.transact(work, at_micros=notary.clock.now_micros())


def snapshots_outside_main(bench: Bench) -> list[int]:
    in_main = {
        each.snapshot_id for each in bench.state().metadata.ancestry(bench.state().metadata.current_snapshot_id or 0)
    }
    return [each.snapshot_id for each in bench.state().metadata.snapshots if each.snapshot_id not in in_main]


def test_files_of_a_failed_attempt_are_quarantined_outside_the_table_under_their_hash(bench: Bench) -> None:
    attempt, paths = bench.staged(ROWS[:50], ROWS[60:])
    hashes = sorted(hashlib.sha256(path.read_bytes()).hexdigest() for path in paths)
    core = bench.verify(attempt)
    assert not core.verdict.passed
    assert [path.name for path in bench.quarantined(attempt)] == hashes == sorted(core.files.staged_hashes)
    assert [hashlib.sha256(path.read_bytes()).hexdigest() for path in bench.quarantined(attempt)] == hashes
    assert bench.left(attempt) == []
    assert not parse_location(attempt.prefix).local.exists()


def test_data_files_that_no_readable_manifest_lists_are_quarantined_too(bench: Bench) -> None:
    attempt = bench.attempt()
    (data,) = bench.stage(attempt, ROWS)
    sha256 = hashlib.sha256(data.read_bytes()).hexdigest()
    (manifest,) = (parse_location(attempt.prefix).local / "metadata").glob("*-m0.avro")
    manifest.write_bytes(b"no manifest")
    core = bench.verify(bench.hand_in(attempt))
    assert not core.verdict.passed
    assert core.files.staged_hashes == ()
    assert [path.name for path in bench.quarantined(attempt)] == [sha256]
    assert bench.left(attempt) == []


def test_a_file_that_is_too_large_for_the_quarantine_is_named_in_the_record(bench: Bench) -> None:
    attempt = bench.attempt()
    bench.stage(attempt, ROWS[:50])
    with (parse_location(attempt.prefix).local / "data" / "huge.parquet").open("wb") as sparse:
        sparse.truncate(2**42)
    assert bench.classes(bench.hand_in(attempt)) == ("missing",)
    found = bench.disposed(attempt)
    assert found is not None
    assert "huge.parquet" in found.note
    assert len(bench.quarantined(attempt)) == 1


def test_branch_and_snapshots_of_a_failed_attempt_are_removed_in_one_commit(bench: Bench) -> None:
    attempt, _ = bench.staged(ROWS[:50])
    before = bench.state().row.revision
    bench.verify(attempt)
    assert attempt.branch not in bench.state().metadata.refs
    assert snapshots_outside_main(bench) == []
    assert bench.state().row.revision == before + 1


def test_the_clean_up_after_a_fail_changes_neither_main_nor_its_files(bench: Bench) -> None:
    before = bench.state().metadata.current_snapshot
    attempt, _ = bench.staged(ROWS[:50])
    bench.verify(attempt)
    assert bench.state().metadata.current_snapshot == before
    assert all(path.is_file() for path in live_files(bench))


def test_if_the_contract_says_delete_nothing_is_quarantined(tmp_path: Path) -> None:
    with bench_at(tmp_path, on_fail="delete") as bench:
        attempt, _ = bench.staged(ROWS[:50])
        bench.verify(attempt)
        assert bench.quarantined(attempt) == []
        assert bench.left(attempt) == []
        disposed = bench.disposed(attempt)
        assert disposed is not None
        assert disposed.outcome is DisposalOutcome.DELETED


def test_the_copy_of_a_failed_file_is_quarantined(tmp_path: Path) -> None:
    with bench_at(tmp_path, storage="copied") as bench:
        attempt, paths = bench.staged(ROWS[:50])
        write(paths[0], ROWS[:49])  # the freeze comes later, so these are the bytes that are verified
        bench.verify(attempt)
        assert bench.copies(attempt) == []
        assert len(bench.quarantined(attempt)) == 1


@pytest.mark.parametrize("change", [Path.unlink, lambda path: write(path, ROWS)], ids=["removed", "replaced"])
def test_failed_rows_are_quarantined_even_if_the_producer_removes_or_replaces_its_file(
    change: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Digested bytes are evidence, but the producer can still write to the folder where it staged them."""
    with bench_at(tmp_path, storage="copied") as bench:
        attempt, (staged,) = bench.staged(ROWS[:50])
        dispose = bench.disposal.dispose

        def change_then_dispose(attempt_id: str) -> object:
            change(staged)
            return dispose(attempt_id)

        monkeypatch.setattr(bench.disposal, "dispose", change_then_dispose)
        bench.verification = bench.verifying()
        (file,) = bench.verify(attempt).files.added
        (quarantined,) = bench.quarantined(attempt)
        assert quarantined.name == file.published_sha256
        assert pq.read_table(quarantined)["id"].to_pylist() == list(range(50))
        found = bench.disposed(attempt)
        assert found is not None
        assert found.note.startswith(f"not kept: {file.staged_sha256}: file_")
        assert file.published_sha256 in found.note
        assert bench.copies(attempt) == []


def test_files_of_a_rolled_back_attempt_are_deleted(bench: Bench) -> None:
    attempt = bench.attempt()
    bench.stage(attempt, ROWS[:50])
    roll_back(bench, attempt)
    done = bench.disposal.dispose(attempt.attempt_id)
    assert done.outcome is DisposalOutcome.DELETED
    assert bench.left(attempt) == []
    assert attempt.branch not in bench.state().metadata.refs


def test_after_a_publication_only_files_that_were_not_published_are_deleted(bench: Bench) -> None:
    attempt, paths = bench.staged(ROWS[:50], ROWS[50:])
    leftover = paths[0].with_name("leftover.parquet")
    write(leftover, ROWS)
    bench.verify(attempt)
    bench.publish(attempt)
    done = bench.disposal.dispose(attempt.attempt_id)
    assert done.outcome is DisposalOutcome.PUBLISHED
    assert bench.left(attempt) == paths
    assert set(paths) <= set(live_files(bench))
    assert attempt.branch not in bench.state().metadata.refs


def test_after_a_publication_of_copies_every_staged_file_is_deleted(tmp_path: Path) -> None:
    with bench_at(tmp_path, storage="copied") as bench:
        attempt, _ = bench.staged(ROWS)
        bench.verify(attempt)
        bench.publish(attempt)
        bench.disposal.dispose(attempt.attempt_id)
        assert bench.left(attempt) == []
        assert live_files(bench) == bench.copies(attempt)
        assert all(path.is_file() for path in live_files(bench))


def test_copies_of_an_earlier_verification_are_deleted_after_the_publication(tmp_path: Path) -> None:
    with bench_at(tmp_path, storage="copied") as bench:
        attempt, _ = bench.staged(ROWS)
        core = bench.verify(attempt)
        stale = bench.vault.copy_in(bench.state().row.table_uuid, attempt.attempt_id, 9, b"other", "ab" * 32)
        bench.publish(attempt)
        bench.disposal.dispose(attempt.attempt_id)
        assert not parse_location(stale).local.exists()
        assert [f"file://{path}" for path in bench.copies(attempt)] == [
            each.published_path for each in core.files.added
        ]


def test_a_file_that_another_table_names_stays(bench: Bench) -> None:
    """Without this file the other table would be broken."""
    attempt, paths = bench.staged(ROWS[:50], ROWS[60:])
    bench.write_snapshot("orders", RAW, "main", [write(paths[0], ROWS[:50])])
    bench.verify(attempt)
    assert bench.left(attempt) == [paths[0]]
    disposed = bench.disposed(attempt)
    assert disposed is not None
    assert disposed.kept == 1


def test_a_file_that_another_branch_names_stays(bench: Bench) -> None:
    attempt, paths = bench.staged(ROWS[:50])
    bench.write_snapshot("sums", SALES, "other", [write(paths[0], ROWS[:50])], role=Role.PRODUCER)
    bench.verify(attempt)
    assert bench.left(attempt) == [paths[0]]


def test_while_a_table_cannot_be_read_nothing_is_removed(bench: Bench) -> None:
    attempt = bench.attempt()
    paths = bench.stage(attempt, ROWS[:50])
    bench.write_snapshot("orders", RAW, "main", [write(bench.folder / "warehouse" / "raw" / "x.parquet", ROWS[:1])])
    source = bench.state("orders", RAW).metadata.current_snapshot
    assert source is not None
    hidden = parse_location(str(source.manifest_list)).local
    hidden.rename(hidden.with_suffix(".away"))
    roll_back(bench, attempt)
    with pytest.raises(UnavailableError) as caught:
        bench.disposal.dispose(attempt.attempt_id)
    assert caught.value.reason == "references_undecided"
    assert f"snapshot {source.snapshot_id} of main cannot be read" in str(caught.value)
    assert set(paths) <= set(bench.left(attempt))
    hidden.with_suffix(".away").rename(hidden)
    assert [each.attempt_id for each in bench.disposal.settle()] == [attempt.attempt_id]
    assert bench.left(attempt) == []


def test_the_history_before_an_attempt_is_not_read_for_its_clean_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pvdm.catalog.references.REFERENCES_READ_MAX", 5)
    with bench_at(tmp_path, shown=ROWS[:3], commits=6) as bench:
        failed, _ = bench.staged(ROWS[:50])
        bench.verify(failed)
        assert bench.left(failed) == []
        bench.scene.stand.time.pass_by(2 * CLOCK_DIFFERENCE_MAX_MS * 1_000)
        rolled_back = bench.attempt(reason="again")
        bench.stage(rolled_back, ROWS[:50])
        roll_back(bench, rolled_back)
        assert bench.disposal.dispose(rolled_back.attempt_id).outcome is DisposalOutcome.DELETED
        assert bench.left(rolled_back) == []


def test_a_link_in_the_attempts_folder_is_removed_and_not_followed(bench: Bench) -> None:
    attempt = bench.attempt()
    bench.stage(attempt, ROWS[:50])
    outside = bench.folder / "precious"
    outside.mkdir()
    (outside / "file").write_text("kept")
    data = parse_location(attempt.prefix).local / "data"
    (data / "folder").symlink_to(outside)
    (data / "file").symlink_to(outside / "file")
    roll_back(bench, attempt)
    bench.disposal.dispose(attempt.attempt_id)
    assert (outside / "file").read_text() == "kept"
    assert not data.exists()


def test_a_link_in_the_place_of_the_attempts_folder_is_not_followed(bench: Bench) -> None:
    """The link leads to another table's files."""
    attempt = bench.attempt()
    bench.stage(attempt, ROWS[:50])
    folder = parse_location(attempt.prefix).local
    other = parse_location(bench.state("orders", RAW).metadata.location).local
    folder.rename(folder.with_name("moved"))
    folder.symlink_to(other)
    before = sorted(other.rglob("*"))
    roll_back(bench, attempt)
    bench.disposal.dispose(attempt.attempt_id)
    assert sorted(other.rglob("*")) == before


def test_a_live_attempt_is_not_disposed_of(bench: Bench) -> None:
    attempt, _ = bench.staged(ROWS)
    with pytest.raises(ConflictError) as caught:
        bench.disposal.dispose(attempt.attempt_id)
    assert caught.value.reason == "attempt_live"
    assert bench.left(attempt)


def test_a_removal_of_main_as_an_attempts_branch_is_refused(bench: Bench) -> None:
    attempt = bench.attempt()
    with pytest.raises(NotAllowedError):
        plan_branch_removal(bench.state().metadata, replace(attempt, branch="main"))


def test_a_snapshot_that_another_branch_holds_too_stays(bench: Bench) -> None:
    attempt = bench.attempt()
    bench.stage(attempt, ROWS[:50])
    head = bench.state().metadata.refs[attempt.branch].snapshot_id
    update = {"action": "set-snapshot-ref", "ref-name": "other", "type": "branch", "snapshot-id": head}
    bench.commit("sums", SALES, [update], Role.PRODUCER)
    roll_back(bench, attempt)
    bench.disposal.dispose(attempt.attempt_id)
    metadata = bench.state().metadata
    assert attempt.branch not in metadata.refs
    assert metadata.snapshot(head) is not None


def test_unfinished_files_of_a_killed_job_are_found_and_removed(bench: Bench) -> None:
    attempt = bench.attempt()
    bench.stage(attempt, ROWS[:50])
    data = parse_location(attempt.prefix).local / "data"
    (data / "half-written").write_bytes(b"PAR1")
    roll_back(bench, attempt)
    row = bench.state().row
    found = bench.orphans.find(row)
    assert f"file://{data}/half-written" in [each.location for each in found]
    removed = bench.orphans.remove(row)
    assert len(removed) == 4
    assert bench.left(attempt) == []
    assert bench.orphans.find(bench.state().row) == []


def test_a_file_that_is_written_after_the_clean_up_is_an_orphan_too(bench: Bench) -> None:
    """A job can go on writing after its attempt was rolled back."""
    attempt = bench.attempt()
    bench.stage(attempt, ROWS[:50])
    roll_back(bench, attempt)
    bench.disposal.dispose(attempt.attempt_id)
    late = parse_location(attempt.prefix).local / "data" / "late.parquet"
    write(late, ROWS)
    row = bench.state().row
    assert [each.location for each in bench.orphans.find(row)] == [f"file://{late}"]
    assert [each.location for each in bench.orphans.remove(row)] == [f"file://{late}"]
    assert not late.exists()


def test_files_of_live_and_published_attempts_are_no_orphans(bench: Bench) -> None:
    published, paths = bench.staged(ROWS, workload_id="published")
    bench.verify(published)
    bench.publish(published)
    live, others = bench.staged(ROWS, workload_id="live")
    row = bench.state().row
    bench.orphans.remove(row)
    assert bench.left(published) == paths
    assert set(others) <= set(bench.left(live))
    assert bench.orphans.find(row) == []


def test_a_folder_of_an_unknown_attempt_is_not_touched(bench: Bench) -> None:
    attempt = bench.attempt()
    roll_back(bench, attempt)
    unknown = parse_location(attempt.prefix).local.with_name("cd" * 16) / "data" / "file.parquet"
    write(unknown, ROWS)
    bench.orphans.remove(bench.state().row)
    assert unknown.is_file()


def test_a_branch_that_was_taken_over_stays_with_its_files_after_a_fail(bench: Bench) -> None:
    place = parse_location(bench.state().metadata.location).local
    file = write(place / "data" / "own.parquet", ROWS[:50])
    bench.write_snapshot("sums", SALES, "mine", [file], role=Role.PRODUCER)
    shown = bench.state().metadata.current_snapshot_id
    producer = bench.scene.grant(Role.PRODUCER, "sales")
    attempt = bench.workloads.adopt(producer, "adopted", "sales.sums", "mine", {})
    core = bench.verify(attempt)
    assert [each.value for each in core.verdict.classes] == ["missing"]
    assert core.files.added[0].published_path != core.files.added[0].staged_path
    assert (place / "data" / "own.parquet").is_file()
    assert str(bench.state().metadata.refs["mine"].snapshot_id) == attempt.staged_snapshot_id
    assert bench.state().metadata.current_snapshot_id == shown
    assert len(bench.quarantined(attempt)) == 1
    bench.orphans.remove(bench.state().row)
    assert "mine" in bench.state().metadata.refs


def adopt_branch(bench: Bench, rows: Sequence[Row] = ROWS) -> Attempt:
    """An attempt that takes over a branch which a producer wrote without one, as `pvdm publish` does."""
    place = parse_location(bench.state().metadata.location).local
    file = write(place / "data" / "own.parquet", rows)
    bench.write_snapshot("sums", SALES, "mine", [file], role=Role.PRODUCER)
    return bench.workloads.adopt(bench.scene.grant(Role.PRODUCER, "sales"), "adopted", "sales.sums", "mine", {})


def test_a_branch_that_was_taken_over_and_published_is_removed_and_its_files_stay(bench: Bench) -> None:
    attempt = adopt_branch(bench)
    bench.verify(attempt)
    bench.publish(attempt)
    bench.disposal.dispose(attempt.attempt_id)
    assert "mine" not in bench.state().metadata.refs
    assert (parse_location(bench.state().metadata.location).local / "data" / "own.parquet").is_file()


def test_a_branch_with_newer_commits_of_its_owner_stays_after_its_publication(bench: Bench) -> None:
    attempt = adopt_branch(bench)
    bench.verify(attempt)
    place = parse_location(bench.state().metadata.location).local
    more = bench.write_snapshot(
        "sums", SALES, "mine", [write(place / "data" / "more.parquet", ROWS[:1])], role=Role.PRODUCER
    )
    bench.publish(attempt)
    bench.disposal.dispose(attempt.attempt_id)
    assert bench.state().metadata.refs["mine"].snapshot_id == more
    bench.orphans.remove(bench.state().row)
    assert "mine" in bench.state().metadata.refs


def test_a_commit_that_takes_effect_after_its_attempt_was_cleaned_up_is_refused(tmp_path: Path) -> None:
    """In an empty table the first commit makes the branch, so the clean-up had no branch to remove."""
    with bench_at(tmp_path) as bench:
        attempt = bench.attempt()
        _, own = attempt_token(bench.scene.notary.access, bench.scene.grant(Role.PRODUCER, "sales"), attempt.attempt_id)

        def clean_up() -> None:
            roll_back(bench, attempt)
            bench.disposal.dispose(attempt.attempt_id)

        metadata, prefix = bench.state().metadata, parse_location(attempt.prefix).local
        staged = next_snapshot(
            metadata,
            SnapshotChange((write(prefix / "data" / "part.parquet", ROWS),), frozenset(), {}),
            branch=attempt.branch,
            snapshot_id=77,
            now_ms=bench.scene.now // 1_000,
            place=lambda name: f"file://{prefix}/metadata/{name}",
            reader=bench.files,
        )
        for file in staged.files:
            path = parse_location(file.location).local
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.data)
        change = Change(SALES, "sums", (), list(staged.updates))
        with (
            fault.armed("catalog.after_metadata_file", fault.Call(clean_up)),
            pytest.raises(NotAllowedError) as caught,
        ):
            bench.scene.notary.catalog.commits.commit(own, [change])
        assert caught.value.reason == "attempt_not_staging"
        assert attempt.branch not in bench.state().metadata.refs


def test_a_steward_without_its_outside_checkpoint_removes_nothing(bench: Bench) -> None:
    attempt, files = bench.staged(ROWS[3:])
    roll_back(bench, attempt)
    outside = bench.scene.notary.config.outside_path
    outside.rename(outside.with_name("away"))
    with pytest.raises(VerificationError) as caught:
        bench.disposal.dispose(attempt.attempt_id)
    assert caught.value.reason == "checkpoint_goes_back"
    assert all(path.exists() for path in files)
    outside.with_name("away").rename(outside)
    assert bench.disposal.dispose(attempt.attempt_id).outcome is DisposalOutcome.DELETED
