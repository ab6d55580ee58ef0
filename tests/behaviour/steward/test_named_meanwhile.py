"""A file that a snapshot comes to name while others are cleaned away stays, whatever the Stewards' clocks say."""

from __future__ import annotations

import threading
from collections.abc import Iterator
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
from tests.behaviour.steward.test_orphan_search import give_up, left_files, listed, published
from tests.support.gate.approvals import scene_at
from tests.support.ledger.databases import Postgresql
from tests.support.steward.notary import Time, opened
from tests.support.verify.attempts import ROWS, SALES, Bench, bench_at, bench_on, write
from tools.proof_kit import SECOND

pytest.importorskip("pvdm_kernel")

SKEW = 60 * SECOND


def files_of(bench: Bench, branch: str) -> list[Path]:
    """Every file that reading the branch needs: its list, its manifests and its data."""
    metadata = bench.state().metadata
    head = metadata.snapshot(metadata.refs[branch].snapshot_id)
    assert isinstance(head, Snapshot)
    data = [each.data_file.file_path for each in live_entries(metadata, head, bench.files)]
    return [parse_location(each).local for each in (str(head.manifest_list), *data)]


@contextmanager
def second_steward(bench: Bench, time: Time) -> Iterator[Notary]:
    """Another Steward on the same database, with a clock of its own."""
    made = opened(bench.scene.stand.config, time)
    try:
        yield made
    finally:
        made.close()


@contextmanager
def two_stewards(postgresql: Postgresql, folder: Path) -> Iterator[tuple[Bench, Notary, Time]]:
    """A bench whose clock was set forward by a minute, and a second Steward whose clock was not."""
    with scene_at(folder, ledger_url=postgresql.fresh()) as scene:
        bench = bench_on(scene, folder, shown=ROWS[:3])
        time = Time(wall=scene.stand.time.wall, monotonic=scene.stand.time.monotonic)
        with second_steward(bench, time) as other:
            scene.stand.time.jump(SKEW)
            yield bench, other, time


def commit_through(
    steward: Notary, bench: Bench, grant: Grant, branch: str, path: Path, folder: Path, now_micros: int
) -> int:
    """One snapshot that names this file, committed by this Steward."""
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


def after_first_look(bench: Bench, monkeypatch: pytest.MonkeyPatch, act: object) -> None:
    look = bench.orphans._search

    def search(*words: object) -> object:
        done = look(*words)  # type: ignore[arg-type]
        act()  # type: ignore[operator]
        return done

    monkeypatch.setattr(bench.orphans, "_search", search)


def test_a_commit_that_took_its_time_before_the_search_began_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its transaction has begun, and becomes visible after the first look."""
    inside, go = threading.Event(), threading.Event()
    require_none = tables.require_not_scheduled_for_deletion

    def slow(unit: Unit, names: list[str]) -> None:
        require_none(unit, names)
        if threading.current_thread().name == "job":
            inside.set()
            assert go.wait(20)

    with bench_at(tmp_path, shown=ROWS[:3]) as bench:
        _, path = published(bench)
        assert listed(bench)
        bench.scene.stand.time.pass_by(SECOND)
        monkeypatch.setattr(tables, "require_not_scheduled_for_deletion", slow)

        def work() -> None:
            bench.write_snapshot("sums", SALES, "other", [write(path, ROWS)], role=Role.PRODUCER)

        job = threading.Thread(target=work, name="job")
        job.start()
        assert inside.wait(20)
        bench.scene.stand.time.pass_by(1)

        def finish() -> None:
            go.set()
            job.join()

        after_first_look(bench, monkeypatch, finish)
        bench.orphans.remove(bench.state().row)
        assert path in files_of(bench, "other")
        assert all(each.is_file() for each in files_of(bench, "other"))


def test_a_commit_through_a_steward_whose_clock_is_behind_is_seen_by_the_search(
    postgresql: Postgresql, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with two_stewards(postgresql, tmp_path) as (bench, other, time):
        _, path = published(bench)
        assert listed(bench)
        folder = parse_location(bench.state().metadata.location).local / "metadata"

        def job() -> None:
            time.pass_by(SECOND)
            grant = other.access.issue(Role.PRODUCER, domain="sales", name="job", lifetime_seconds=3_600)[1]
            commit_through(other, bench, grant, "other", path, folder, bench.scene.now)

        after_first_look(bench, monkeypatch, job)
        bench.orphans.remove(bench.state().row)
        assert path in files_of(bench, "other")
        assert all(each.is_file() for each in files_of(bench, "other"))


def kept_on_a_branch(bench: Bench, other: Notary, time: Time) -> tuple[Attempt, Disposal]:
    """An attempt opened through one Steward and given up, whose snapshot an operator keeps through the other."""
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
    other.work.abort(STEWARD_GRANT, attempt.attempt_id, "it is not wanted")
    consistent = other.recorder.require_consistent
    return attempt, Disposal(other.ledger, other.clock, other.catalog, bench.vault, bench.files, consistent)


def test_a_clean_up_sees_what_a_steward_whose_clock_is_behind_committed_to_the_attempts_files(
    postgresql: Postgresql, tmp_path: Path
) -> None:
    with two_stewards(postgresql, tmp_path) as (bench, other, time):
        attempt, disposal = kept_on_a_branch(bench, other, time)
        disposal.dispose(attempt.attempt_id)
        assert all(each.is_file() for each in files_of(bench, "keep"))


def test_an_orphan_search_sees_what_a_steward_whose_clock_is_behind_committed_before_it(
    postgresql: Postgresql, tmp_path: Path
) -> None:
    with two_stewards(postgresql, tmp_path) as (bench, other, time):
        kept_on_a_branch(bench, other, time)
        assert listed(bench) == []
        bench.orphans.remove(bench.state().row)
        assert all(each.is_file() for each in files_of(bench, "keep"))


def name_the_other(bench: Bench, monkeypatch: pytest.MonkeyPatch, paths: list[Path]) -> list[Path]:
    """While the first of these is removed, a job comes to name the others; they are given."""
    monkeypatch.setattr("pvdm.catalog.references._LOOK_AGAIN_SECONDS", 0.0)
    remove = LocalPrefix.remove
    named: list[Path] = []

    def slow(prefix: LocalPrefix, place: Location) -> bool:
        gone = remove(prefix, place)
        if place.local in paths and not named:
            named.extend(path for path in paths if path != place.local)
            files = [write(path, ROWS) for path in named]
            bench.write_snapshot("sums", SALES, "other", files, role=Role.PRODUCER)
        return gone

    monkeypatch.setattr(LocalPrefix, "remove", slow)
    return named


def test_an_orphan_that_comes_to_be_named_while_others_are_removed_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bench_at(tmp_path, shown=ROWS[:3]) as bench:
        named = name_the_other(bench, monkeypatch, left_files(bench, 3))
        bench.orphans.remove(bench.state().row)
        assert len(named) == 2
        assert all(path.is_file() for path in named)


def test_a_staged_file_that_comes_to_be_named_while_others_are_cleaned_away_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bench_at(tmp_path, shown=ROWS[:3]) as bench:
        attempt = bench.attempt()
        paths = bench.stage(attempt, ROWS[:50], ROWS[50:60], ROWS[60:])
        give_up(bench, attempt)
        named = name_the_other(bench, monkeypatch, paths)
        bench.disposal.dispose(attempt.attempt_id)
        assert len(named) == 2
        assert all(path.is_file() for path in named)
