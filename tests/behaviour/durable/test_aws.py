"""A workload in an AWS Lambda durable function, under the local runner of the SDK's testing package. Without a JVM."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from threading import Event
from typing import Any

import pyarrow as pa
import pytest
from aws_durable_execution_sdk_python import DurableContext, durable_execution
from aws_durable_execution_sdk_python.lambda_service import InvocationStatus
from aws_durable_execution_sdk_python_testing.model import LambdaContext
from aws_durable_execution_sdk_python_testing.runner import DurableFunctionTestResult, DurableFunctionTestRunner

from pvdm import Chunk, Coordinator
from pvdm.api.leases import LeaseRequest
from pvdm.durable import aws, segment
from pvdm.durable.aws import run_workload
from pvdm.durable.progress import FAILURES_MAX
from pvdm.errors import Code, InputError, UnavailableError
from pvdm.model.states import AttemptState
from pvdm.verify.chunk_values import ChunkValues
from tests.support.steward.pipeline import BY_DAY
from tests.support.steward.shop import ROWS, Shop, shop_at, table_of
from tests.support.waiting import eventually

Job = Callable[[object, Chunk], pa.Table]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with shop_at(tmp_path_factory.mktemp("shop")) as made:
        yield made


class Clock:
    """The clock of segments. `outlive` moves it by 900 seconds: to the end of the invocation."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000.0
        monkeypatch.setattr(segment, "elapsed_seconds", lambda: self.now)

    def outlive(self) -> None:
        self.now += 900
        time.sleep(1)  # the run checks the clock five times a second
        raise RuntimeError("the job was not stopped")


def rows_of(chunk: Chunk) -> pa.Table:
    return table_of([row for row in ROWS if chunk.chunk_id in {"all", f"day={row[1]}"}])


def execute(shop: Shop, table: str, job: Job, **settings: Any) -> tuple[DurableFunctionTestResult, int]:
    """Run a workload in a durable function. Returns the result and the number of invocations."""
    invocations = 0

    @durable_execution
    def handler(event: dict[str, str], context: DurableContext) -> dict[str, Any]:
        nonlocal invocations
        invocations += 1
        return run_workload(context, shop.steward, event["workload"], event["table"], job, **settings)

    with DurableFunctionTestRunner(handler, poll_interval=0.01) as runner:
        result = runner.run(json.dumps({"workload": "run-1" + table, "table": table}), execution_timeout=100)
    runner._scheduler._loop.close()  # the runner stops its event loop, but does not close it
    return result, invocations


def list_steps(result: DurableFunctionTestResult) -> list[str]:
    return [str(each.name) for each in result.operations if str(each.name).startswith("segment")]


def test_a_workload_is_published_in_one_segment_if_there_is_time(shop: Shop) -> None:
    table = shop.target("plain", BY_DAY)
    result, invocations = execute(shop, table, lambda _spark, chunk: rows_of(chunk))
    assert (result.status, invocations, list_steps(result)) == (InvocationStatus.SUCCEEDED, 1, ["segment 1"])
    summary = json.loads(str(result.result))
    assert (summary["outcome"], summary["chunks"], summary["rows_added"]) == ("COMMITTED", 2, "5")
    assert shop.visible_rows(table) == sorted(ROWS, key=repr)


def test_segments_that_outlive_their_invocations_are_rolled_back_and_no_chunk_is_published_twice(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, clock, built = shop.target("replayed", BY_DAY), Clock(monkeypatch), list[str]()

    def slow_at_first(_spark: object, chunk: Chunk) -> pa.Table:
        built.append(chunk.chunk_id)
        if built.count(chunk.chunk_id) == 1:
            clock.outlive()
        return rows_of(chunk)

    result, invocations = execute(shop, table, slow_at_first)
    assert (result.status, list_steps(result)) == (InvocationStatus.SUCCEEDED, [f"segment {n}" for n in (1, 2, 3)])
    assert invocations == 3  # each segment had a new invocation; the earlier steps were replayed from checkpoints
    assert sorted(built) == sorted([*set(built)] * 2)
    assert shop.visible_rows(table) == sorted(ROWS, key=repr)
    with shop.client() as client:
        attempts = client.workload("run-1" + table, look_up_source=False).attempts
    assert sorted(each.state for each in attempts) == [AttemptState.COMMITTED] * 2 + [AttemptState.ROLLED_BACK] * 2
    assert eventually(lambda: shop.branches(table) == set() and shop.staged_files(table) == [])


def test_an_execution_whose_verdict_is_fail_fails_and_publishes_nothing(shop: Shop) -> None:
    table = shop.target("lie")
    result, invocations = execute(shop, table, lambda _spark, chunk: rows_of(chunk).slice(1))
    assert (result.status, invocations) == (InvocationStatus.FAILED, 1)
    assert "nothing was published" in str(result.error)
    assert shop.visible_rows(table) == []


def test_segments_without_progress_end_the_execution(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    table, clock = shop.target("loop"), Clock(monkeypatch)

    def always_slow(_spark: object, chunk: Chunk) -> pa.Table:
        clock.outlive()
        return rows_of(chunk)

    result, _ = execute(shop, table, always_slow)
    assert (result.status, len(list_steps(result))) == (InvocationStatus.FAILED, FAILURES_MAX)
    assert "without progress" in str(result.error)
    assert shop.visible_rows(table) == []
    assert execute(shop, table, lambda _spark, chunk: rows_of(chunk))[0].status is InvocationStatus.SUCCEEDED


def test_a_step_is_repeated_while_the_steward_cannot_be_reached(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    table, calls = shop.target("unreachable"), list[str]()
    resume = Coordinator.resume_workload

    def fail_twice(self: Coordinator, workload_id: str, build: Any = None) -> Any:
        calls.append(workload_id)
        if len(calls) < 3:
            raise UnavailableError(Code.STEWARD_UNREACHABLE, "the Steward cannot be reached")
        return resume(self, workload_id, build)

    monkeypatch.setattr(Coordinator, "resume_workload", fail_twice)
    result, _ = execute(shop, table, lambda _spark, chunk: rows_of(chunk))
    assert (result.status, len(calls), list_steps(result)) == (InvocationStatus.SUCCEEDED, 3, ["segment 1"])


def test_a_step_is_repeated_while_the_lease_of_a_killed_invocation_is_live(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, calls, killed_run_id = shop.target("killed"), list[str](), "11" * 16
    monkeypatch.setattr(aws, "LEASE_SECONDS", 1)  # the pause before a step is repeated
    with shop.client() as client:
        client.open_workload("run-1" + table, table, {})
        lease = client.acquire_lease("run-1" + table, LeaseRequest(run_id=killed_run_id, runner="a killed invocation"))
        resume = Coordinator.resume_workload

        def resume_after_expiry(self: Coordinator, workload_id: str, build: Any = None) -> Any:
            calls.append(workload_id)
            if len(calls) == 2:
                client.release_lease(workload_id, killed_run_id, lease.lease_number)  # as if the lease had expired
            return resume(self, workload_id, build)

        monkeypatch.setattr(Coordinator, "resume_workload", resume_after_expiry)
        result, _ = execute(shop, table, lambda _spark, chunk: rows_of(chunk))
    assert (result.status, len(calls), list_steps(result)) == (InvocationStatus.SUCCEEDED, 2, ["segment 1"])


def test_an_invocation_ends_while_the_plan_is_made_and_the_next_one_waits_again(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, clock = shop.target("planned", BY_DAY), Clock(monkeypatch)
    real_read, real_open, opened, may_read = ChunkValues.read, Coordinator.open_workload, list[str](), Event()

    def read(*arguments: Any) -> Iterator[pa.Table]:
        clock.now += 900  # planning takes longer than the first invocation
        assert may_read.wait(60)
        return real_read(*arguments)

    def open_workload(self: Coordinator, workload_id: str, *arguments: Any) -> Any:
        opened.append(workload_id)
        if len(opened) == 2:
            may_read.set()
        return real_open(self, workload_id, *arguments)

    monkeypatch.setattr(ChunkValues, "read", read)
    monkeypatch.setattr(Coordinator, "open_workload", open_workload)
    result, invocations = execute(shop, table, lambda _spark, chunk: rows_of(chunk))
    assert (result.status, invocations, len(opened)) == (InvocationStatus.SUCCEEDED, 2, 2)
    assert shop.visible_rows(table) == sorted(ROWS, key=repr)


def test_a_segment_without_time_is_repeated_in_another_invocation_up_to_a_limit(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, times_left = shop.target("short"), iter([900_000, 30_000])  # planning took nearly all of the first
    monkeypatch.setattr(LambdaContext, "get_remaining_time_in_millis", lambda _self: next(times_left, 900_000))
    result, invocations = execute(shop, table, lambda _spark, chunk: rows_of(chunk), rollback_threshold=30)
    assert (result.status, invocations, list_steps(result)) == (InvocationStatus.SUCCEEDED, 2, ["segment 1"])
    assert shop.visible_rows(table) == sorted(ROWS, key=repr)
    assert not aws._retry(Code.SEGMENT_ENDED(), FAILURES_MAX).should_retry


def test_a_step_is_not_repeated_after_an_input_error(shop: Shop) -> None:
    result, invocations = execute(shop, "sales.nowhere", lambda _spark, chunk: rows_of(chunk))
    assert (result.status, invocations) == (InvocationStatus.FAILED, 1)
    assert not aws._retry(InputError(Code.TABLE_UNKNOWN, "no such table"), 1).should_retry
