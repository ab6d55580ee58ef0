"""Chunks in parallel: a run works on several chunks at a time, and each is published once. Without a JVM."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from pvdm import Chunk, Committed, Coordinator, Outcome, RolledBack, VerificationFailed
from pvdm.durable.outcome import Activity, Step
from pvdm.durable.parallel import WorkThreads
from pvdm.errors import Code, InputError, SegmentEndedError
from pvdm.model.states import AttemptState
from tests.support.steward.pipeline import BY_DAY
from tests.support.steward.shop import Row, Shop, shop_at, table_of
from tests.support.waiting import eventually

DAYS = ("2026-11-13", "2026-11-14", "2026-11-15", "2026-11-16")
ORDERS: tuple[Row, ...] = tuple((number, DAYS[number % 4], "Ulm") for number in range(12))
CHUNKS = [f"day={day}" for day in DAYS]
WAIT = 30

Job = Callable[[object, Chunk], pa.Table]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with shop_at(tmp_path_factory.mktemp("shop"), rows=ORDERS) as made:
        yield made


def rows_of(chunk: Chunk) -> pa.Table:
    return table_of([row for row in ORDERS if f"day={row[1]}" == chunk.chunk_id])


def run(shop: Shop, table: str, job: Job, *, parallel: int = 2, **settings: Any) -> Outcome:
    with Coordinator(shop.steward, parallel=parallel, **settings) as coordinator:
        return coordinator.execute_workload("run-1" + table, job, table=table)


class CountedJob:
    """Counts the chunks that are built at the same time. Each call waits until `together` calls run."""

    def __init__(self, together: int) -> None:
        self.meeting = threading.Barrier(together)
        self.lock = threading.Lock()
        self.running: set[str] = set()
        self.most_running = 0
        self.built: list[str] = []

    def __call__(self, _spark: object, chunk: Chunk) -> pa.Table:
        with self.lock:
            self.running.add(chunk.chunk_id)
            self.built.append(chunk.chunk_id)
            self.most_running = max(self.most_running, len(self.running))
        self.meeting.wait(WAIT)
        with self.lock:
            self.running.remove(chunk.chunk_id)
        return rows_of(chunk)


def test_two_chunks_are_staged_at_a_time_and_never_more(shop: Shop) -> None:
    table, job = shop.target("two", BY_DAY), CountedJob(2)
    outcome = run(shop, table, job)
    assert isinstance(outcome, Committed), outcome
    assert (job.most_running, sorted(job.built)) == (2, CHUNKS)
    assert [each.chunk_id for each in outcome.chunks] == CHUNKS  # in the order of the plan, not of their ends
    assert shop.visible_rows(table) == sorted(ORDERS, key=repr)


def test_by_default_one_chunk_is_staged_at_a_time(shop: Shop) -> None:
    table, job = shop.target("one", BY_DAY), CountedJob(1)
    with Coordinator(shop.steward) as coordinator:
        assert isinstance(coordinator.execute_workload("run-1", job, table=table), Committed)
    assert (job.most_running, job.built) == (1, CHUNKS)


def test_after_a_fail_no_chunk_is_begun_and_the_chunk_in_progress_is_published(shop: Shop) -> None:
    table, failed, built = shop.target("failing", BY_DAY), threading.Event(), list[str]()

    def watch(step: Step) -> None:
        if step.activity is Activity.FAILED:
            failed.set()

    def job(_spark: object, chunk: Chunk) -> pa.Table:
        built.append(chunk.chunk_id)
        if chunk.chunk_id == CHUNKS[0]:
            return rows_of(chunk).slice(1)
        assert failed.wait(WAIT)
        return rows_of(chunk)

    outcome = run(shop, table, job, watch=watch)
    assert isinstance(outcome, VerificationFailed)
    assert [(each.chunk_id, each.state) for each in outcome.chunks] == [
        (CHUNKS[0], AttemptState.VERIFICATION_FAILED),
        (CHUNKS[1], AttemptState.COMMITTED),
    ]
    assert sorted(built) == CHUNKS[:2]
    assert shop.visible_rows(table) == sorted((row for row in ORDERS if row[1] == DAYS[1]), key=repr)


def test_after_an_error_of_the_job_the_chunk_in_progress_is_published_and_a_new_run_builds_the_rest(shop: Shop) -> None:
    table, may_end = shop.target("erring", BY_DAY), threading.Event()

    def watch(step: Step) -> None:
        if step.activity is Activity.ROLLED_BACK:
            may_end.set()

    def job(_spark: object, chunk: Chunk) -> pa.Table:
        if chunk.chunk_id == CHUNKS[0]:
            raise RuntimeError("the network is down")
        assert may_end.wait(WAIT)
        return rows_of(chunk)

    outcome = run(shop, table, job, watch=watch)
    assert isinstance(outcome, RolledBack)
    assert outcome.error.reason == "job_failed"
    assert [each.state for each in outcome.chunks] == [AttemptState.ROLLED_BACK, AttemptState.COMMITTED]
    built: list[str] = []

    def honest(_spark: object, chunk: Chunk) -> pa.Table:
        built.append(chunk.chunk_id)
        return rows_of(chunk)

    assert isinstance(run(shop, table, honest), Committed)
    assert sorted(built) == [CHUNKS[0], *CHUNKS[2:]]
    assert shop.visible_rows(table) == sorted(ORDERS, key=repr)


@pytest.mark.parametrize("how", ["SIGTERM", "SIGINT"])
def test_an_interruption_rolls_back_every_chunk_that_is_being_staged(shop: Shop, how: str) -> None:
    table, both = shop.target(f"stopped_{how.lower()}", BY_DAY), threading.Barrier(2)

    def slow(_spark: object, _chunk: Chunk) -> pa.Table:
        if both.wait(WAIT) == 0:
            os.kill(os.getpid(), getattr(signal, how))
        threading.Event().wait(1)
        raise RuntimeError("stopped")

    outcome = run(shop, table, slow)
    assert isinstance(outcome, RolledBack), outcome
    assert outcome.error.reason == "attempt_interrupted"
    assert [each.state for each in outcome.chunks] == [AttemptState.ROLLED_BACK] * 2
    assert eventually(lambda: shop.branches(table) == set() and shop.staged_files(table) == [])
    assert isinstance(run(shop, table, lambda _, chunk: rows_of(chunk)), Committed)
    assert shop.visible_rows(table) == sorted(ORDERS, key=repr)


def test_the_end_of_a_segment_rolls_back_every_chunk_that_is_being_staged(shop: Shop) -> None:
    table = shop.target("short", BY_DAY)

    def slow(_spark: object, _chunk: Chunk) -> pa.Table:
        threading.Event().wait(3)
        raise RuntimeError("stopped")

    outcome = run(shop, table, slow, segment_timeout=2, rollback_threshold=1)
    assert isinstance(outcome, RolledBack), outcome
    assert outcome.error.reason == "segment_timed_out"
    assert [each.state for each in outcome.chunks] == [AttemptState.ROLLED_BACK] * 2


def test_with_two_chunks_at_a_time_a_segment_stages_no_more_than_max_chunks(shop: Shop) -> None:
    table = shop.target("full", BY_DAY)
    outcome = run(shop, table, lambda _, chunk: rows_of(chunk), max_chunks=3)
    assert isinstance(outcome, RolledBack)
    assert outcome.error.reason == "segment_ended"
    assert [each.state for each in outcome.chunks] == [AttemptState.COMMITTED] * 3


def test_chunks_that_are_published_together_are_staged_in_parallel(shop: Shop) -> None:
    table, job = shop.target("together", "atomicity: workload", BY_DAY), CountedJob(4)
    outcome = run(shop, table, job, parallel=4)
    assert isinstance(outcome, Committed), outcome
    assert job.most_running == 4
    assert len({each.attempt.snapshot_id for each in outcome.chunks}) == 1


def test_progress_is_reported_by_one_thread_at_a_time(shop: Shop) -> None:
    table, lock, overlaps = shop.target("watched", BY_DAY), threading.Lock(), list[Step]()

    def watch(step: Step) -> None:
        if not lock.acquire(blocking=False):
            overlaps.append(step)
            return
        threading.Event().wait(0.02)
        lock.release()

    assert isinstance(run(shop, table, CountedJob(4), parallel=4, watch=watch), Committed)
    assert overlaps == []


@pytest.mark.parametrize("parallel", [0, 65])
def test_a_number_of_chunks_that_is_not_allowed_is_refused(shop: Shop, parallel: int) -> None:
    with pytest.raises(InputError, match="1 to 64") as caught:
        Coordinator(shop.steward, parallel=parallel)
    assert caught.value.reason == "usage"


def test_the_command_stages_in_parallel(shop: Shop, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    table = shop.target("command", BY_DAY)
    (tmp_path / "meeting_job.py").write_text(
        "from tests.behaviour.durable.test_parallel import CountedJob\nbuild = CountedJob(4)\n"
    )
    monkeypatch.chdir(tmp_path)
    words = ["run", table, "--workload-id", "command-1", "--small", "--job", "meeting_job:build", "--parallel", "4"]
    code, output = shop.command(words)
    assert code == 0, output
    assert shop.visible_rows(table) == sorted(ORDERS, key=repr)


@pytest.mark.parametrize("error_index", [0, 1])
def test_of_a_failure_and_an_error_the_one_of_the_earlier_item_is_reported(error_index: int) -> None:
    raised = threading.Event()

    def work(index: int) -> str:
        if index == error_index:
            raised.set()
            raise Code.SEGMENT_ENDED()
        assert raised.wait(WAIT)
        return "failed"

    threads = WorkThreads(work, threads=2, is_failure=lambda result: result == "failed")
    if error_index == 1:
        assert threads.run(iter(range(2))) == [(0, "failed")]
    else:
        with pytest.raises(SegmentEndedError):
            threads.run(iter(range(2)))
