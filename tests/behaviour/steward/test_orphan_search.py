"""Orphans: the files that ended attempts and published branches leave, which files are none, and how much is read."""

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


def stage_and_adopt(bench: Bench, name: str = "own", branch: str = "mine", rows: object = ROWS) -> tuple[Attempt, Path]:
    """Stage rows on a branch, in the table's own folder, as a job without an attempt does; open a workload for it."""
    path = data_folder(bench) / "day=x" / f"{name}.parquet"
    bench.write_snapshot("sums", SALES, branch, [write(path, rows)], role=Role.PRODUCER)  # type: ignore[arg-type]
    producer = bench.scene.grant(Role.PRODUCER, "sales")
    return bench.workloads.adopt(producer, f"job-{name}", "sales.sums", branch, {}), path


def publish_adopted(bench: Bench, name: str = "own") -> tuple[Attempt, Path]:
    """Stage, adopt, verify, publish and clean up a branch; returns its attempt and its data file."""
    attempt, path = stage_and_adopt(bench, name)
    bench.verify(attempt)
    bench.publish(attempt)
    bench.disposal.dispose(attempt.attempt_id)
    return attempt, path


def list_orphans(bench: Bench) -> list[str]:
    return [each.location for each in bench.orphans.find(bench.state().row)]


def drop_branch(bench: Bench, branch: str = "mine") -> None:
    head = bench.state().metadata.refs[branch].snapshot_id
    updates = [
        {"action": "remove-snapshot-ref", "ref-name": branch},
        {"action": "remove-snapshots", "snapshot-ids": [head]},
    ]
    bench.commit("sums", SALES, updates, Role.PRODUCER)


# Which files are orphans


@pytest.mark.parametrize("storage", STORAGE)
def test_the_files_of_a_published_branch_are_listed_and_removed(storage: str, tmp_path: Path) -> None:
    """An adopted branch is always published as the Steward's copies, whatever storage the contract has."""
    with bench_at(tmp_path, shown=ROWS[:3], storage=storage) as bench:
        attempt, path = publish_adopted(bench)
        found = bench.orphans.find(bench.state().row)
        assert (attempt.attempt_id, f"file://{path}", path.stat().st_size) in [
            (each.attempt_id, each.location, each.size) for each in found
        ]
        assert bench.orphans.remove(bench.state().row) == found
        assert not path.exists()
        assert list_orphans(bench) == []
        assert bench.copies(attempt)


def test_files_of_a_branch_that_its_job_wrote_to_again_are_no_orphans(bench: Bench) -> None:
    attempt, path = stage_and_adopt(bench)
    bench.verify(attempt)
    more = write(data_folder(bench) / "more.parquet", ROWS[:1])
    bench.write_snapshot("sums", SALES, "mine", [more], role=Role.PRODUCER)
    bench.publish(attempt)
    bench.disposal.dispose(attempt.attempt_id)
    assert list_orphans(bench) == []
    bench.orphans.remove(bench.state().row)
    assert path.is_file()


def test_a_file_that_another_table_names_is_no_orphan(bench: Bench) -> None:
    """Even if that table has named it for a long time: a job's files may be older than the attempt."""
    path = data_folder(bench) / "day=x" / "own.parquet"
    bench.write_snapshot("orders", RAW, "kept", [write(path, ROWS)])
    bench.scene.stand.time.pass_by(3_600 * 1_000_000)
    _, path = publish_adopted(bench)
    assert f"file://{path}" not in list_orphans(bench)
    bench.orphans.remove(bench.state().row)
    assert path.is_file()


def test_a_file_that_a_commit_names_during_the_search_stays(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    _, path = publish_adopted(bench)
    files = CountingFiles(bench.files)
    bench.orphans._files = files  # type: ignore[assignment]
    look = bench.orphans._search

    def search_then_commit(*words: object) -> object:
        done = look(*words)  # type: ignore[arg-type]
        bench.write_snapshot("sums", SALES, "other", [write(path, ROWS)], role=Role.PRODUCER)
        return done

    monkeypatch.setattr(bench.orphans, "_search", search_then_commit)
    bench.orphans.remove(bench.state().row)
    assert path.is_file()
    assert max(files.reads.values()) == 1, "the second look reads only new files"


def test_a_file_whose_size_has_changed_is_no_orphan(bench: Bench) -> None:
    _, path = publish_adopted(bench)
    write(path, ROWS[:7])
    assert f"file://{path}" not in list_orphans(bench)


def test_a_file_in_the_proof_of_a_waiting_attempt_is_no_orphan(bench: Bench) -> None:
    """Two workloads adopted branches with the same file. The second has its proof, and is not published yet."""
    _, path = publish_adopted(bench)
    second = bench.write_snapshot("sums", SALES, "late", [write(path, ROWS)], role=Role.PRODUCER)
    assert second
    producer = bench.scene.grant(Role.PRODUCER, "sales")
    waiting = bench.workloads.adopt(producer, "late", "sales.sums", "late", {})
    bench.verify(waiting)
    drop_branch(bench, "late")
    assert bench.now(waiting).state in (AttemptState.VERIFYING, AttemptState.COMMITTING)
    assert f"file://{path}" not in list_orphans(bench)


def test_failed_files_are_listed_only_if_their_branch_is_dropped_and_they_are_in_quarantine(bench: Bench) -> None:
    attempt, path = stage_and_adopt(bench, rows=ROWS[:50])
    bench.verify(attempt)
    assert list_orphans(bench) == []
    drop_branch(bench)
    assert list_orphans(bench) == [f"file://{path}"]
    for kept in bench.quarantined(attempt):
        kept.unlink()
    assert list_orphans(bench) == []


def test_failed_files_are_listed_after_an_operator_has_removed_them_from_quarantine(bench: Bench) -> None:
    attempt, path = stage_and_adopt(bench, rows=ROWS[:50])
    bench.verify(attempt)
    bench.disposal.dispose(attempt.attempt_id)
    drop_branch(bench)
    notary = bench.scene.notary
    bench.workloads.abandon(bench.scene.grant(), attempt.workload_id, "it is not wanted")
    quarantine = QuarantineFiles(notary.ledger, notary.clock, notary.catalog, bench.vault)
    quarantine.remove(bench.scene.grant(), [attempt.attempt_id], "personal data")
    assert bench.quarantined(attempt) == []
    assert list_orphans(bench) == [f"file://{path}"]
    bench.orphans.remove(bench.state().row)
    assert not path.exists()


def test_the_manifest_list_of_a_job_is_listed_and_that_of_another_writer_is_not(bench: Bench) -> None:
    attempt, _ = stage_and_adopt(bench)
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
    found = [Path(each).name for each in list_orphans(bench)]
    assert list_file.name in found
    assert "snap-77-1-other.avro" not in found


# How much is read


class CountingFiles:
    """Counts how often each file is read."""

    def __init__(self, inner: object) -> None:
        self._inner = inner
        self.reads: Counter[str] = Counter()

    def read(self, location: str, *, max_bytes: int) -> bytes:
        self.reads[location] += 1
        data: bytes = self._inner.read(location, max_bytes=max_bytes)  # type: ignore[attr-defined]
        return data

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


def give_up(bench: Bench, attempt: Attempt) -> None:
    notary = bench.scene.notary

    def work(unit: Unit) -> None:
        attempts.end(unit, attempt.attempt_id, AttemptState.ROLLED_BACK, reason="interrupted")

    notary.ledger.transact(work, at_micros=notary.clock.now_micros())


def leave_late_files(bench: Bench, count: int) -> list[Path]:
    """Give up this many attempts, and write a file to the folder of each after its clean-up. Returns the files."""
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
    paths = leave_late_files(bench, 5)
    files = CountingFiles(bench.files)
    bench.orphans._files = files  # type: ignore[assignment]
    found = getattr(bench.orphans, act)(bench.state().row)
    assert sorted(each.location for each in found) == sorted(f"file://{path}" for path in paths)
    assert files.reads
    assert max(files.reads.values()) == 1


def test_files_that_were_published_in_place_cause_no_read_of_any_manifest(bench: Bench) -> None:
    attempt, _ = bench.staged(ROWS)
    bench.verify(attempt)
    bench.publish(attempt)
    bench.disposal.dispose(attempt.attempt_id)
    files = CountingFiles(bench.files)
    bench.orphans._files = files  # type: ignore[assignment]
    assert list_orphans(bench) == []
    assert files.reads == Counter()


def test_a_request_during_a_search_gets_its_result(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that times out and asks again does not start a second search."""
    (path,) = leave_late_files(bench, 1)
    requests = OrphanRequests(bench.scene.notary.catalog, bench.orphans)
    find, begun, go = bench.orphans.find, threading.Semaphore(0), threading.Event()

    def wait_and_find(row: TableRow) -> list[OrphanView]:
        begun.release()
        assert go.wait(60)
        return find(row)

    monkeypatch.setattr(bench.orphans, "find", wait_and_find)
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
