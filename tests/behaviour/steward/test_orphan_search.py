"""Orphans: what unmodified jobs leave once their branch is published, what is never one, and how much is read."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pvdm.api.work import OrphanView
from pvdm.lake.paths import parse_location
from pvdm.ledger import Unit
from pvdm.ledger.catalog.tables import TableRow
from pvdm.ledger.work import attempts
from pvdm.ledger.work.attempts import Attempt
from pvdm.model.role import Role
from pvdm.model.states import AttemptState
from pvdm.steward.cleanup.orphan_search import OrphanRequests
from pvdm.steward.cleanup.quarantine import QuarantineFiles
from tests.support.verify.attempts import RAW, ROWS, SALES, Bench, bench_at, write

pytest.importorskip("pvdm_kernel")

STORAGE = ("copied", "open")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with bench_at(tmp_path, shown=ROWS[:3]) as made:
        yield made


def data_folder(bench: Bench) -> Path:
    return parse_location(bench.state().metadata.location).local / "data"


def taken_over(bench: Bench, name: str = "own", branch: str = "mine", rows: object = ROWS) -> tuple[Attempt, Path]:
    """A branch that an unmodified job staged in the table's own folder."""
    path = data_folder(bench) / "day=x" / f"{name}.parquet"
    bench.write_snapshot("sums", SALES, branch, [write(path, rows)], role=Role.PRODUCER)  # type: ignore[arg-type]
    producer = bench.scene.grant(Role.PRODUCER, "sales")
    return bench.workloads.adopt(producer, f"job-{name}", "sales.sums", branch, {}), path


def published(bench: Bench, name: str = "own") -> tuple[Attempt, Path]:
    attempt, path = taken_over(bench, name)
    bench.verify(attempt)
    bench.publish(attempt)
    bench.disposal.dispose(attempt.attempt_id)
    return attempt, path


def listed(bench: Bench) -> list[str]:
    return [each.location for each in bench.orphans.find(bench.state().row)]


def drop_branch(bench: Bench, branch: str = "mine") -> None:
    head = bench.state().metadata.refs[branch].snapshot_id
    updates = [
        {"action": "remove-snapshot-ref", "ref-name": branch},
        {"action": "remove-snapshots", "snapshot-ids": [head]},
    ]
    bench.commit("sums", SALES, updates, Role.PRODUCER)


# What an unmodified job leaves behind


@pytest.mark.parametrize("storage", STORAGE)
def test_the_files_of_a_published_branch_are_listed_and_removed(storage: str, tmp_path: Path) -> None:
    """A branch is published as the Steward's copies whatever storage the contract has."""
    with bench_at(tmp_path, shown=ROWS[:3], storage=storage) as bench:
        attempt, path = published(bench)
        found = bench.orphans.find(bench.state().row)
        assert (attempt.attempt_id, f"file://{path}", path.stat().st_size) in [
            (each.attempt_id, each.location, each.size) for each in found
        ]
        assert bench.orphans.remove(bench.state().row) == found
        assert not path.exists()
        assert listed(bench) == []
        assert bench.copies(attempt)


def test_files_of_a_branch_that_its_owner_wrote_to_since_are_named_by_it(bench: Bench) -> None:
    attempt, path = taken_over(bench)
    bench.verify(attempt)
    more = write(data_folder(bench) / "more.parquet", ROWS[:1])
    bench.write_snapshot("sums", SALES, "mine", [more], role=Role.PRODUCER)
    bench.publish(attempt)
    bench.disposal.dispose(attempt.attempt_id)
    assert listed(bench) == []
    bench.orphans.remove(bench.state().row)
    assert path.is_file()


def test_a_file_that_another_table_names_is_no_orphan(bench: Bench) -> None:
    """However long ago that table took it in: a job's files may be older than the attempt."""
    path = data_folder(bench) / "day=x" / "own.parquet"
    bench.write_snapshot("orders", RAW, "kept", [write(path, ROWS)])
    bench.scene.stand.time.pass_by(3_600 * 1_000_000)
    _, path = published(bench)
    assert f"file://{path}" not in listed(bench)
    bench.orphans.remove(bench.state().row)
    assert path.is_file()


def test_a_file_that_comes_to_be_named_while_orphans_are_looked_for_stays(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, path = published(bench)
    counted = _Counted(bench.files)
    bench.orphans._files = counted  # type: ignore[assignment]
    look = bench.orphans._search

    def slow(*words: object) -> object:
        done = look(*words)  # type: ignore[arg-type]
        bench.write_snapshot("sums", SALES, "other", [write(path, ROWS)], role=Role.PRODUCER)
        return done

    monkeypatch.setattr(bench.orphans, "_search", slow)
    bench.orphans.remove(bench.state().row)
    assert path.is_file()
    assert max(counted.reads.values()) == 1, "the second look reads what is new, and nothing again"


def test_a_file_with_another_size_is_another_file(bench: Bench) -> None:
    _, path = published(bench)
    write(path, ROWS[:7])
    assert f"file://{path}" not in listed(bench)


def test_a_file_that_a_waiting_attempt_was_proved_with_is_no_orphan(bench: Bench) -> None:
    """Two workloads took over branches with one file; the second has its proof and waits for its turn."""
    _, path = published(bench)
    second = bench.write_snapshot("sums", SALES, "late", [write(path, ROWS)], role=Role.PRODUCER)
    assert second
    producer = bench.scene.grant(Role.PRODUCER, "sales")
    waiting = bench.workloads.adopt(producer, "late", "sales.sums", "late", {})
    bench.verify(waiting)
    drop_branch(bench, "late")
    assert bench.now(waiting).state in (AttemptState.VERIFYING, AttemptState.COMMITTING)
    assert f"file://{path}" not in listed(bench)


def test_what_failed_is_listed_once_its_branch_is_dropped_and_its_bytes_are_in_quarantine(bench: Bench) -> None:
    attempt, path = taken_over(bench, rows=ROWS[:50])
    bench.verify(attempt)
    assert listed(bench) == []
    drop_branch(bench)
    assert listed(bench) == [f"file://{path}"]
    for kept in bench.quarantined(attempt):
        kept.unlink()
    assert listed(bench) == []


def test_what_failed_is_listed_once_an_operator_has_removed_it_from_quarantine(bench: Bench) -> None:
    attempt, path = taken_over(bench, rows=ROWS[:50])
    bench.verify(attempt)
    bench.disposal.dispose(attempt.attempt_id)
    drop_branch(bench)
    notary = bench.scene.notary
    bench.workloads.abandon(bench.scene.grant(), attempt.workload_id, "it is not wanted")
    desk = QuarantineFiles(notary.ledger, notary.clock, notary.catalog, bench.vault)
    desk.remove(bench.scene.grant(), [attempt.attempt_id], "personal data")
    assert bench.quarantined(attempt) == []
    assert listed(bench) == [f"file://{path}"]
    bench.orphans.remove(bench.state().row)
    assert not path.exists()


def test_lists_and_manifests_of_the_job_are_listed_too(bench: Bench) -> None:
    attempt, _ = taken_over(bench)
    staged = bench.state().metadata.snapshot(int(attempt.staged_snapshot_id or 0))
    assert staged is not None
    folder = parse_location(bench.state().metadata.location).local / "metadata"
    folder.mkdir(exist_ok=True)
    list_file = folder / f"snap-{staged.snapshot_id}-1-abc.avro"
    list_file.write_bytes(parse_location(str(staged.manifest_list)).local.read_bytes())
    (folder / "snap-77-1-other.avro").write_bytes(b"of another writer")
    bench.verify(attempt)
    bench.publish(attempt)
    bench.disposal.dispose(attempt.attempt_id)
    found = [Path(each).name for each in listed(bench)]
    assert list_file.name in found
    assert "snap-77-1-other.avro" not in found


# How much is read


class _Counted:
    """Counts how often each file is read."""

    def __init__(self, inner: object) -> None:
        self._inner = inner
        self.reads: Counter[str] = Counter()

    def read(self, location: str, *, most: int) -> bytes:
        self.reads[location] += 1
        data: bytes = self._inner.read(location, most=most)  # type: ignore[attr-defined]
        return data

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


def give_up(bench: Bench, attempt: Attempt) -> None:
    notary = bench.scene.notary

    def work(unit: Unit) -> None:
        attempts.end(unit, attempt.attempt_id, AttemptState.ROLLED_BACK, reason="interrupted")

    notary.ledger.transact(work, at_micros=notary.clock.now_micros())


def left_files(bench: Bench, count: int) -> list[Path]:
    """As many attempts that were given up, each with a file that came late."""
    paths = []
    for number in range(count):
        attempt = bench.attempt(workload_id=f"late-{number}")
        give_up(bench, attempt)
        bench.disposal.dispose(attempt.attempt_id)
        path = parse_location(attempt.prefix).local / "data" / "late.parquet"
        write(path, ROWS[:2])
        paths.append(path)
    return paths


@pytest.mark.parametrize("act", ["find", "remove"])
def test_each_list_and_manifest_is_read_at_most_once_however_many_attempts_there_are(act: str, bench: Bench) -> None:
    paths = left_files(bench, 5)
    counted = _Counted(bench.files)
    bench.orphans._files = counted  # type: ignore[assignment]
    found = getattr(bench.orphans, act)(bench.state().row)
    assert sorted(each.location for each in found) == sorted(f"file://{path}" for path in paths)
    assert counted.reads
    assert max(counted.reads.values()) == 1


def test_what_was_published_in_place_is_no_reason_to_read_any_manifest(bench: Bench) -> None:
    attempt, _ = bench.staged(ROWS)
    bench.verify(attempt)
    bench.publish(attempt)
    bench.disposal.dispose(attempt.attempt_id)
    counted = _Counted(bench.files)
    bench.orphans._files = counted  # type: ignore[assignment]
    assert listed(bench) == []
    assert counted.reads == Counter()


def test_who_asks_while_a_search_runs_is_given_its_result(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that lost patience and asks again does not start a copy of the work."""
    (path,) = left_files(bench, 1)
    requests = OrphanRequests(bench.scene.notary.catalog, bench.orphans)
    find, begun, go = bench.orphans.find, threading.Semaphore(0), threading.Event()

    def slow(row: TableRow) -> list[OrphanView]:
        begun.release()
        assert go.wait(60)
        return find(row)

    monkeypatch.setattr(bench.orphans, "find", slow)
    grant = bench.scene.grant(Role.PRODUCER, "sales")
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(requests.find, grant, "sales.sums")
        assert begun.acquire(timeout=60)
        others = [pool.submit(requests.find, grant, "sales.sums") for _ in range(2)]
        started_again = begun.acquire(timeout=2)
        go.set()
        answers = [each.result(60) for each in (first, *others)]
    assert not started_again
    assert [[each.location for each in answer] for answer in answers] == [[f"file://{path}"]] * 3
    go.set()
    assert requests.find(grant, "sales.sums") == answers[0]
