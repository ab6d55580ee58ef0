"""Time limits of a segment (by its process's clock) and of a workload (by the ledger's clock). Without a JVM."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pvdm import Chunk, Committed, Coordinator, Outcome, RolledBack
from pvdm.api.leases import LeaseRequest
from pvdm.client import StewardClient
from pvdm.durable import segment
from pvdm.durable.outcome import Activity, Step
from pvdm.durable.segment import Segment
from pvdm.errors import InputError, PvdmError, RolledBackError
from pvdm.model.role import Role
from pvdm.model.states import AttemptState, WorkloadState
from pvdm.steward.pipeline import verification
from pvdm.verify.job import verify
from tests.support.for_each import for_each
from tests.support.steward.pipeline import BY_DAY, Line, line_at
from tests.support.steward.shop import ROWS, Shop, shop_at, table_of
from tests.support.waiting import eventually

SECOND = 1_000_000
RUN = "11" * 16
Job = Callable[[object, Chunk], pa.Table]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with shop_at(tmp_path_factory.mktemp("shop")) as made:
        yield made


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    with line_at(tmp_path) as made:
        made.protect()
        yield made


@pytest.fixture
def producer(line: Line) -> Iterator[StewardClient]:
    with line.client() as client:
        yield client


def honest(_spark: object, _chunk: Chunk) -> pa.Table:
    return table_of(ROWS)


def run(shop: Shop, table: str, job: Job = honest, **settings: Any) -> Outcome:
    with Coordinator(shop.steward, **settings) as coordinator:
        return coordinator.execute_workload("run-1" + table, job, table=table)


def reason_of(call: Callable[[], object]) -> str:
    with pytest.raises(PvdmError) as caught:
        call()
    return caught.value.reason


# The clock of a segment


class Clock:
    """A clock for segments. It moves by 10 seconds at each progress step of this activity."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, activity: Activity) -> None:
        self.now, self.activity = 1_000.0, activity
        monkeypatch.setattr(segment, "elapsed_seconds", lambda: self.now)

    def watch(self, step: Step) -> None:
        if step.activity is self.activity:
            self.now += 10


def test_an_ended_segment_begins_no_chunk_and_the_next_segment_stages_the_rest(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, built, clock = shop.target("segments", BY_DAY), list[str](), Clock(monkeypatch, Activity.PUBLISHED)

    def build(_spark: object, chunk: Chunk) -> pa.Table:
        built.append(chunk.chunk_id)
        return table_of([row for row in ROWS if f"day={row[1]}" == chunk.chunk_id])

    settings = {"segment_timeout": 15, "rollback_threshold": 6, "watch": clock.watch}
    outcomes = [run(shop, table, build, **settings) for _ in range(2)]
    assert [each.name for each in outcomes] == ["SEGMENT_ENDED", "COMMITTED"]
    assert [len(each.chunks) for each in outcomes] == [1, 2]
    assert {(each.exit_code, each.error.reason) for each in outcomes[:1] if isinstance(each, RolledBack)} == {
        (8, "segment_timed_out")
    }
    assert (len(built), len(set(built))) == (2, 2)  # no chunk was built twice
    assert shop.visible_rows(table) == sorted(ROWS, key=repr)


def test_a_chunk_that_is_being_staged_at_the_segments_end_is_rolled_back(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, clock = shop.target("threshold"), Clock(monkeypatch, Activity.STAGING)

    def slow(_spark: object, _chunk: Chunk) -> pa.Table:
        time.sleep(1)
        raise RuntimeError("stopped")

    outcome = run(shop, table, slow, segment_timeout=15, rollback_threshold=6, watch=clock.watch)
    assert isinstance(outcome, RolledBack)
    assert outcome.error.reason == "segment_timed_out"
    assert [each.state for each in outcome.chunks] == [AttemptState.ROLLED_BACK]
    assert eventually(lambda: shop.branches(table) == set() and shop.staged_files(table) == [])
    assert isinstance(run(shop, table), Committed)


def test_a_segment_does_not_wait_for_a_verdict_beyond_its_end(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    table, clock, go = shop.target("waiting"), Clock(monkeypatch, Activity.VERIFYING), threading.Event()

    def wait_first(*given: Any, **named: Any) -> Any:
        assert go.wait(60)
        return verify(*given, **named)

    monkeypatch.setattr(verification, "verify", wait_first)
    outcome = run(shop, table, segment_timeout=15, rollback_threshold=6, watch=clock.watch)
    assert isinstance(outcome, RolledBack)
    assert outcome.error.reason == "segment_timed_out"
    assert [each.state for each in outcome.chunks] == [AttemptState.VERIFYING]
    go.set()
    assert isinstance(run(shop, table), Committed)


@for_each(("timeout", "threshold"), [(10, 10), (10, 11), (10, -1), (0, None), (-1, None), (math.nan, 1)])
def test_times_of_a_segment_that_do_not_fit_together_are_refused(timeout: float, threshold: float | None) -> None:
    with pytest.raises(InputError) as caught:
        Segment.start(timeout, threshold)
    assert caught.value.code == "segment_invalid"


def test_a_segment_keeps_a_tenth_of_its_time_and_at_most_half_a_minute_for_the_roll_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(segment, "elapsed_seconds", lambda: 1_000.0)
    assert [Segment.start(each).remaining_seconds for each in (1, 100, 900, None)] == pytest.approx(
        [0.9, 90, 870, math.inf]
    )
    ended = Segment.start(100, 10)
    monkeypatch.setattr(segment, "elapsed_seconds", lambda: 1_090.0)
    assert ended.remaining_seconds == 0
    with pytest.raises(RolledBackError, match="near the end of its segment"):
        ended.require_time()


# The clock of the workload


def test_a_workload_has_ninety_minutes_that_later_openings_do_not_change(line: Line, producer: StewardClient) -> None:
    clock = line.served.stand.time
    opened = producer.open_workload("run-1", "sales.orders", {})
    assert (opened.deadline, opened.timed_out) == (clock.wall + 5_400 * SECOND, False)
    clock.pass_by(60 * SECOND)
    assert producer.open_workload("run-1", "sales.orders", {}).deadline == opened.deadline
    other = producer.open_workload("run-2", "sales.orders", {}, 31_536_000)
    assert other.deadline == clock.wall + 31_536_000 * SECOND


def test_after_the_workloads_deadline_leases_and_hand_ins_are_refused(line: Line, producer: StewardClient) -> None:
    clock = line.served.stand.time
    producer.open_workload("run-1", "sales.orders", {}, 100)
    lease = producer.acquire_lease("run-1", LeaseRequest(run_id=RUN, runner="a run"))
    attempt = producer.next_attempt("run-1", "all", "the first", lease.lease_number)
    clock.pass_by(50 * SECOND)
    renewed = producer.renew_lease("run-1", RUN, lease.lease_number)
    assert renewed.expires_at == clock.wall + 50 * SECOND
    clock.pass_by(50 * SECOND)
    assert reason_of(lambda: producer.renew_lease("run-1", RUN, lease.lease_number)) == "workload_timed_out"
    assert reason_of(lambda: producer.staged(attempt.attempt_id)) == "workload_timed_out"
    assert reason_of(lambda: producer.acquire_lease("run-1", LeaseRequest(run_id=RUN, runner="b"))) == (
        "workload_timed_out"
    )
    assert producer.workload("run-1").timed_out
    # The run may still abort its attempt. With a longer time-out, the workload continues.
    aborted = producer.abort_attempt(attempt.attempt_id, "no time is left", lease.lease_number)
    assert aborted.state is AttemptState.ROLLED_BACK
    assert producer.open_workload("run-1", "sales.orders", {}, 100).timed_out  # the same time-out changes nothing
    extended = producer.open_workload("run-1", "sales.orders", {}, 150)
    assert (extended.state, extended.deadline, extended.timed_out) == (
        WorkloadState.OPEN,
        clock.wall + 50 * SECOND,
        False,
    )
    assert producer.acquire_lease("run-1", LeaseRequest(run_id=RUN, runner="c")).lease_number == 2


def test_a_hand_in_after_a_deadline_that_was_brought_forward_is_refused(line: Line, producer: StewardClient) -> None:
    clock = line.served.stand.time
    producer.open_workload("run-1", "sales.orders", {})
    lease = producer.acquire_lease("run-1", LeaseRequest(run_id=RUN, runner="a run"))
    attempt = producer.next_attempt("run-1", "all", "the first", lease.lease_number)
    producer.open_workload("run-1", "sales.orders", {}, 10)
    clock.pass_by(10 * SECOND)
    assert reason_of(lambda: producer.staged(attempt.attempt_id)) == "workload_timed_out"


def test_a_workload_times_out_although_no_request_reaches_the_steward(line: Line, producer: StewardClient) -> None:
    deadline = producer.open_workload("run-1", "sales.orders", {}, 100).deadline
    line.served.stand.time.pass_by(101 * SECOND)
    with line.client(Role.AUDITOR) as auditor:
        found = auditor.workload("run-1")
    assert (found.deadline, found.timed_out) == (deadline, True)


def test_a_run_rolls_back_at_the_workloads_deadline_and_publishes_after_a_longer_time_out(shop: Shop) -> None:
    table = shop.target("timed_out")

    def slow(_spark: object, _chunk: Chunk) -> pa.Table:
        with shop.client() as client:
            client.open_workload("run-1" + table, table, {}, 1)
        time.sleep(1.5)
        return table_of(ROWS)

    outcome = run(shop, table, slow)
    assert isinstance(outcome, RolledBack)
    assert (outcome.exit_code, outcome.error.reason) == (4, "workload_timed_out")
    assert "--workload-timeout" in str(outcome.error.hint)
    assert [each.state for each in outcome.chunks] == [AttemptState.ROLLED_BACK]
    again = run(shop, table)
    assert isinstance(again, RolledBack)
    assert again.error.reason == "workload_timed_out"
    assert "its time ran out at" in shop.command(["status", "--workload-id", "run-1" + table])[1]
    assert shop.visible_rows(table) == []
    assert isinstance(run(shop, table, workload_timeout=600), Committed)
    assert shop.visible_rows(table) == sorted(ROWS, key=repr)
    assert eventually(lambda: shop.branches(table) == set() and shop.staged_files(table) == [])


def test_after_the_deadline_a_run_still_waits_for_chunks_if_all_were_handed_in(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, clock, go = shop.target("handed_in"), Clock(monkeypatch, Activity.VERIFYING), threading.Event()

    def wait_first(*given: Any, **named: Any) -> Any:
        assert go.wait(60)
        return verify(*given, **named)

    monkeypatch.setattr(verification, "verify", wait_first)
    assert run(shop, table, segment_timeout=15, rollback_threshold=6, watch=clock.watch).name == "SEGMENT_ENDED"
    with shop.client() as client:
        lease = client.open_workload("run-1" + table, table, {}, 1).lease
        assert eventually(lambda: client.workload("run-1" + table).timed_out)
        try:
            assert isinstance(run(shop, table, watch=lambda _step: go.set()), Committed)
        finally:
            go.set()
        assert client.workload("run-1" + table).lease == lease
    assert shop.visible_rows(table) == sorted(ROWS, key=repr)


def test_a_time_of_a_command_without_a_unit_is_refused(shop: Shop) -> None:
    table = shop.target("durations")
    words = ["run", table, "--workload-id", "run-1" + table, "--small", "--job", "missing_module:job"]
    code, output = shop.command([*words, "--segment-timeout", "15", "--json"])
    assert (code, "a number and s, m, h or d" in output) == (2, True)
