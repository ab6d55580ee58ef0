"""Clean-up keeps a file that a commit names meanwhile, even if the commit's time is earlier than the clean-up's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from pvdm.catalog.commit import Change
from pvdm.lake.format.json_document import Json
from pvdm.lake.format.table.snapshots import Snapshot
from pvdm.lake.next_snapshot import SnapshotChange, next_snapshot
from pvdm.lake.paths import Location, parse_location
from pvdm.lake.prefix import LocalPrefix
from pvdm.lake.read.entries import live_entries
from pvdm.ledger import Unit
from pvdm.ledger.catalog import tables
from pvdm.ledger.record.tokens import Grant
from pvdm.ledger.work.attempts import Attempt
from pvdm.model.role import Role
from pvdm.steward.access import STEWARD_GRANT
from pvdm.steward.cleanup.disposal import Disposal
from pvdm.steward.notary import Notary
from tests.behaviour.steward.test_orphan_search import give_up, leave_late_files, list_orphans, publish_adopted
from tests.support.gate.approvals import scene_at
from tests.support.ledger.databases import Postgresql
from tests.support.steward.notary import Time, opened
from tests.support.verify.attempts import ROWS, SALES, Bench, bench_at, bench_on, write
from tools.proof_kit import SECOND

pytest.importorskip("pvdm_kernel")

SKEW = 60 * SECOND


def files_of(bench: Bench, branch: str) -> list[Path]:
    """The manifest list and the data files of the branch's head. Its manifests are read, so they must exist."""
    metadata = bench.state().metadata
    head = metadata.snapshot(metadata.refs[branch].snapshot_id)
    assert isinstance(head, Snapshot)
    data = [each.data_file.file_path for each in live_entries(metadata, head, bench.files)]
    return [parse_location(each).local for each in (str(head.manifest_list), *data)]


@contextmanager
def second_steward(bench: Bench, time: Time) -> Iterator[Notary]:
    """Another Steward on the same database, with a clock of its own."""
    notary = opened(bench.scene.stand.config, time)
    try:
        yield notary
    finally:
        notary.close()


@contextmanager
def two_stewards(postgresql: Postgresql, folder: Path) -> Iterator[tuple[Bench, Notary, Time]]:
    """A bench whose clock was set forward by a minute, and a second Steward with its clock, which was not."""
    with scene_at(folder, ledger_url=postgresql.create_database()) as scene:
        bench = bench_on(scene, folder, shown=ROWS[:3])
        time = Time(wall=scene.stand.time.wall, monotonic=scene.stand.time.monotonic)
        with second_steward(bench, time) as other:
            scene.stand.time.jump(SKEW)
            yield bench, other, time


def commit_through(
    steward: Notary, bench: Bench, grant: Grant, branch: str, path: Path, folder: Path, now_micros: int
) -> int:
    """Write `path`, and commit a snapshot that names it through this Steward. `folder` is for the metadata files."""
    folder.mkdir(parents=True, exist_ok=True)
    made = next_snapshot(
        bench.state().metadata,
        SnapshotChange((write(path, ROWS),), frozenset(), {}),
        branch=branch,
        snapshot_id=999_001,
        now_ms=now_micros // 1_000,
        place=lambda name: f"file://{folder}/x-{name}",
        reader=bench.files,
    )
    for file in made.files:
        parse_location(file.location).local.write_bytes(file.data)
    steward.catalog.commits.commit(grant, [Change(SALES, "sums", (), list(made.updates))])
    return made.snapshot_id


def act_after_first_look(bench: Bench, monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Call `act` after the first look through the tables, before anything is removed."""
    look = bench.orphans._search

    def search(*words: object) -> object:
        done = look(*words)  # type: ignore[arg-type]
        act()
        return done

    monkeypatch.setattr(bench.orphans, "_search", search)


def test_a_commit_that_began_before_the_search_and_ends_after_its_first_look_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit has an earlier time than the search, but becomes visible only after the first look."""
    inside, go = threading.Event(), threading.Event()
    require_not_scheduled = tables.require_not_scheduled_for_deletion

    def wait_in_transaction(unit: Unit, names: list[str]) -> None:
        require_not_scheduled(unit, names)
        if threading.current_thread().name == "job":
            inside.set()
            assert go.wait(20)

    with bench_at(tmp_path, shown=ROWS[:3]) as bench:
        _, path = publish_adopted(bench)
        assert list_orphans(bench)
        bench.scene.stand.time.pass_by(SECOND)
        monkeypatch.setattr(tables, "require_not_scheduled_for_deletion", wait_in_transaction)

        def work() -> None:
            bench.write_snapshot("sums", SALES, "other", [write(path, ROWS)], role=Role.PRODUCER)

        job = threading.Thread(target=work, name="job")
        job.start()
        assert inside.wait(20)
        bench.scene.stand.time.pass_by(1)

        def finish() -> None:
            go.set()
            job.join()

        act_after_first_look(bench, monkeypatch, finish)
        bench.orphans.remove(bench.state().row)
        assert path in files_of(bench, "other")
        assert all(each.is_file() for each in files_of(bench, "other"))


def test_a_commit_through_a_steward_whose_clock_is_behind_is_seen_by_the_search(
    postgresql: Postgresql, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with two_stewards(postgresql, tmp_path) as (bench, other, time):
        _, path = publish_adopted(bench)
        assert list_orphans(bench)
        folder = parse_location(bench.state().metadata.location).local / "metadata"

        def job() -> None:
            time.pass_by(SECOND)
            grant = other.access.issue(Role.PRODUCER, domain="sales", name="job", lifetime_seconds=3_600)[1]
            commit_through(other, bench, grant, "other", path, folder, bench.scene.now)

        act_after_first_look(bench, monkeypatch, job)
        bench.orphans.remove(bench.state().row)
        assert path in files_of(bench, "other")
        assert all(each.is_file() for each in files_of(bench, "other"))


def give_up_attempt_kept_on_a_branch(bench: Bench, other: Notary, time: Time) -> tuple[Attempt, Disposal]:
    """Open an attempt through one Steward; stage, keep on the branch `keep`, and give up through the other.

    Returns the attempt, and the clean-up of the other Steward.
    """
    attempt = bench.attempt()
    producer = replace(bench.scene.grant(Role.PRODUCER, "sales"), attempt_id=attempt.attempt_id)
    time.pass_by(SECOND)
    bench.scene.stand.time.pass_by(SECOND)
    prefix = parse_location(attempt.prefix).local
    staged = commit_through(
        other, bench, producer, attempt.branch, prefix / "data" / "p.parquet", prefix / "metadata", time.wall
    )
    keep: dict[str, Json] = {"action": "set-snapshot-ref", "ref-name": "keep", "type": "branch", "snapshot-id": staged}
    operator = other.access.issue(Role.OPERATOR, domain="*", name="tom", lifetime_seconds=3_600)[1]
    other.catalog.commits.commit(operator, [Change(SALES, "sums", (), [keep])])
    other.work.abort(STEWARD_GRANT, attempt.attempt_id, "it is not wanted", lease_number=1)
    consistent = other.recorder.require_consistent
    return attempt, Disposal(other.ledger, other.clock, other.catalog, bench.vault, bench.files, consistent)


def test_a_clean_up_keeps_files_that_a_steward_whose_clock_is_behind_committed(
    postgresql: Postgresql, tmp_path: Path
) -> None:
    with two_stewards(postgresql, tmp_path) as (bench, other, time):
        attempt, disposal = give_up_attempt_kept_on_a_branch(bench, other, time)
        disposal.dispose(attempt.attempt_id)
        assert all(each.is_file() for each in files_of(bench, "keep"))


def test_an_orphan_search_keeps_files_that_a_steward_whose_clock_is_behind_committed_before_it(
    postgresql: Postgresql, tmp_path: Path
) -> None:
    with two_stewards(postgresql, tmp_path) as (bench, other, time):
        give_up_attempt_kept_on_a_branch(bench, other, time)
        assert list_orphans(bench) == []
        bench.orphans.remove(bench.state().row)
        assert all(each.is_file() for each in files_of(bench, "keep"))


def name_others_during_removal(bench: Bench, monkeypatch: pytest.MonkeyPatch, paths: list[Path]) -> list[Path]:
    """When the first of these files is removed, let a job commit the others. They are added to the returned list."""
    monkeypatch.setattr("pvdm.catalog.references._LOOK_AGAIN_SECONDS", 0.0)
    remove = LocalPrefix.remove
    named: list[Path] = []

    def remove_and_commit_others(prefix: LocalPrefix, place: Location) -> bool:
        gone = remove(prefix, place)
        if place.local in paths and not named:
            named.extend(path for path in paths if path != place.local)
            files = [write(path, ROWS) for path in named]
            bench.write_snapshot("sums", SALES, "other", files, role=Role.PRODUCER)
        return gone

    monkeypatch.setattr(LocalPrefix, "remove", remove_and_commit_others)
    return named


def test_an_orphan_that_a_commit_names_while_others_are_removed_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bench_at(tmp_path, shown=ROWS[:3]) as bench:
        named = name_others_during_removal(bench, monkeypatch, leave_late_files(bench, 3))
        bench.orphans.remove(bench.state().row)
        assert len(named) == 2
        assert all(path.is_file() for path in named)


def test_a_staged_file_that_a_commit_names_while_others_are_cleaned_away_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bench_at(tmp_path, shown=ROWS[:3]) as bench:
        attempt = bench.attempt()
        paths = bench.stage(attempt, ROWS[:50], ROWS[50:60], ROWS[60:])
        give_up(bench, attempt)
        named = name_others_during_removal(bench, monkeypatch, paths)
        bench.disposal.dispose(attempt.attempt_id)
        assert len(named) == 2
        assert all(path.is_file() for path in named)
