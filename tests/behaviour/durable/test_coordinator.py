"""Workloads from their opening to their outcome on an embedded Steward, with jobs that need no Spark."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pvdm import Chunk, Committed, Coordinator, Outcome, RolledBack, VerificationFailed
from pvdm.api.work import AttemptView
from pvdm.client import StewardClient
from pvdm.durable.outcome import Activity, PublicationTime, Step
from pvdm.errors import InputError, NotAllowedError, VerificationError
from pvdm.model.role import Role
from pvdm.model.states import AttemptState
from tests.support.steward.leases import open_attempt, release
from tests.support.steward.shop import BY_DAY, ROWS, Row, Shop, contract, shop_at, table_of
from tests.support.waiting import eventually

CHUNKED = "chunking:\n  by: partition\n  columns: [day]"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with shop_at(tmp_path_factory.mktemp("shop")) as made:
        yield made


def rows_of(chunk: Chunk, rows: Sequence[Row] = ROWS) -> list[Row]:
    """The rows that belong to the chunk: those of the day in its id, or all."""
    day = chunk.chunk_id.partition("=")[2]
    return [row for row in rows if not day or row[1] == day]


def honest(_spark: object, chunk: Chunk) -> pa.Table:
    return table_of(rows_of(chunk))


def lossy(_spark: object, chunk: Chunk) -> pa.Table:
    return table_of(rows_of(chunk)[1:])


def run(shop: Shop, table: str, workload_id: str, build: Any = honest, **more: Any) -> Outcome:
    with Coordinator(shop.steward, **more) as coordinator:
        return coordinator.execute_workload(workload_id, build, table=table)


def test_the_rows_of_a_correct_job_are_published(shop: Shop) -> None:
    shop.make("sales.clean", BY_DAY)
    shop.protect(contract("sales.clean"))
    outcome = run(shop, "sales.clean", "clean-1")
    assert isinstance(outcome, Committed), outcome
    assert shop.visible_rows("sales.clean") == sorted(ROWS, key=repr)
    assert outcome.snapshot_id == shop.metadata("sales.clean").current_snapshot_id


def test_the_same_call_again_publishes_nothing_twice(shop: Shop) -> None:
    shop.make("sales.again")
    shop.protect(contract("sales.again"))
    first = run(shop, "sales.again", "again-1")
    steps: list[Step] = []
    second = run(shop, "sales.again", "again-1", _must_not_run, watch=steps.append)
    assert [step.activity for step in steps] == [Activity.SKIPPED]
    assert _chunk_snapshots(second) == _chunk_snapshots(first)
    assert shop.visible_rows("sales.again") == sorted(ROWS, key=repr)


def test_dropped_rows_fail_and_consumers_see_nothing(shop: Shop) -> None:
    shop.make("sales.lossy")
    shop.protect(contract("sales.lossy"))
    outcome = run(shop, "sales.lossy", "lossy-1", lossy)
    assert isinstance(outcome, VerificationFailed), outcome
    assert (outcome.exit_code, outcome.error.details["classes"]) == (3, "missing")
    assert shop.visible_rows("sales.lossy") == []
    with pytest.raises(VerificationError, match="nothing was published"):
        outcome.require()
    assert eventually(lambda: shop.branches("sales.lossy") == set())


def test_after_a_failure_only_a_repair_tries_again(shop: Shop) -> None:
    shop.make("sales.repaired")
    shop.protect(contract("sales.repaired"))
    failed = run(shop, "sales.repaired", "repaired-1", lossy)
    again = run(shop, "sales.repaired", "repaired-1", _must_not_run)
    assert isinstance(again, VerificationFailed)
    assert _first_chunk(again)["attempt_id"] == _first_chunk(failed)["attempt_id"]
    with Coordinator(shop.steward) as coordinator:
        repaired = coordinator.repair("repaired-1", honest, reason="the join lost a row")
    assert isinstance(repaired, Committed), repaired
    attempt = repaired.chunks[0].attempt
    assert attempt is not None
    assert attempt.number == 2
    assert shop.visible_rows("sales.repaired") == sorted(ROWS, key=repr)


def test_a_failed_job_is_rolled_back_and_the_next_run_continues_at_its_chunk(shop: Shop) -> None:
    shop.make("sales.resumed", BY_DAY)
    shop.protect(contract("sales.resumed", CHUNKED))
    built: list[str] = []
    fails = [False, True]

    def job(_spark: object, chunk: Chunk) -> pa.Table:
        built.append(chunk.chunk_id)
        if fails and fails.pop(0):
            raise RuntimeError("the network is down")
        return table_of(rows_of(chunk))

    outcome = run(shop, "sales.resumed", "resumed-1", job)
    assert isinstance(outcome, RolledBack)
    assert (outcome.exit_code, outcome.error.reason) == (4, "job_failed")
    assert [each.state for each in outcome.chunks] == [AttemptState.COMMITTED, AttemptState.ROLLED_BACK]
    assert eventually(lambda: shop.branches("sales.resumed") == set() and shop.staged_of_ended("resumed-1") == [])
    first = built[0]
    built.clear()
    whole = run(shop, "sales.resumed", "resumed-1", job)
    assert isinstance(whole, Committed), whole
    assert first not in built
    assert shop.visible_rows("sales.resumed") == sorted(ROWS, key=repr)


@pytest.mark.parametrize("how", ["SIGTERM", "SIGINT", "time-out"])
def test_an_interrupted_job_leaves_neither_branch_nor_files(shop: Shop, how: str) -> None:
    table = f"sales.stopped_{how.lower().replace('-', '_')}"
    shop.make(table)
    shop.protect(contract(table))
    begun = threading.Event()

    def slow(_spark: object, chunk: Chunk) -> pa.Table:
        begun.set()
        threading.Event().wait(1.5)
        raise RuntimeError("stopped")

    def send() -> None:
        begun.wait(30)
        os.kill(os.getpid(), getattr(signal, how))

    if how != "time-out":
        threading.Thread(target=send).start()
    outcome = run(shop, table, f"{table}-1", slow, segment_timeout=0.5 if how == "time-out" else None)
    assert isinstance(outcome, RolledBack), outcome
    assert outcome.error.reason == ("segment_timed_out" if how == "time-out" else "attempt_interrupted")
    assert eventually(lambda: shop.branches(table) == set() and shop.staged_files(table) == [])
    assert isinstance(run(shop, table, f"{table}-1"), Committed)


@pytest.mark.parametrize("how", ["SIGTERM", "SIGINT"])
def test_rows_that_a_job_returns_after_an_interruption_are_not_published(shop: Shop, how: str) -> None:
    table = f"sales.late_{how.lower()}"
    shop.make(table)
    shop.protect(contract(table))
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def ignore_interruption(_spark: object, chunk: Chunk) -> pa.Table:
        begun.set()
        may_end.wait(30)
        ended.set()
        return table_of(ROWS)

    def send() -> None:
        begun.wait(30)
        os.kill(os.getpid(), getattr(signal, how))

    threading.Thread(target=send).start()
    outcome = run(shop, table, f"{table}-1", ignore_interruption)
    assert isinstance(outcome, RolledBack), outcome
    assert outcome.error.reason == "attempt_interrupted"
    assert not ended.is_set()  # the job was not waited for
    may_end.set()
    assert ended.wait(30)
    assert eventually(lambda: shop.branches(table) == set() and shop.staged_files(table) == [])
    assert shop.visible_rows(table) == []


def test_an_attempt_that_a_killed_run_left_staging_is_rolled_back(shop: Shop) -> None:
    shop.make("sales.dead")
    shop.protect(contract("sales.dead"))
    with shop.client() as client:
        client.open_workload("dead-1", "sales.dead", {})
        left = open_attempt(client, "dead-1", "all", "a run that was killed")
        release(client, "dead-1")
        outcome = run(shop, "sales.dead", "dead-1")
        assert isinstance(outcome, Committed), outcome
        assert client.attempt(left.attempt_id).state is AttemptState.ROLLED_BACK


def test_the_next_run_waits_for_staged_chunks_and_does_not_build_them_again(shop: Shop) -> None:
    shop.make("sales.waited")
    shop.protect(contract("sales.waited"))
    with pytest.MonkeyPatch.context() as patch, Coordinator(shop.steward) as coordinator:
        patch.setattr(type(shop.steward).__mro__[1], "await_attempt", _interrupt)
        outcome = coordinator.execute_workload("waited-1", honest, table="sales.waited")
    assert isinstance(outcome, RolledBack)
    assert outcome.error.reason == "interrupted"
    assert outcome.error.hint == ("the Steward continues with the staged chunks; the same call continues the workload")
    assert isinstance(run(shop, "sales.waited", "waited-1", _must_not_run), Committed)
    assert shop.visible_rows("sales.waited") == sorted(ROWS, key=repr)


def test_a_run_that_is_interrupted_before_any_hand_in_does_not_say_that_the_steward_continues(
    shop: Shop,
) -> None:
    shop.make("sales.early")
    shop.protect(contract("sales.early"))
    with pytest.MonkeyPatch.context() as patch, Coordinator(shop.steward) as coordinator:
        patch.setattr(type(shop.steward).__mro__[1], "next_attempt", _interrupt)
        outcome = coordinator.execute_workload("early-1", honest, table="sales.early")
    assert isinstance(outcome, RolledBack)
    assert (outcome.error.reason, outcome.error.hint) == ("interrupted", "the same call continues the workload")


def test_all_chunks_are_published_together_if_the_contract_says_so(shop: Shop) -> None:
    shop.make("sales.whole", BY_DAY)
    shop.protect(contract("sales.whole", CHUNKED, "atomicity: workload"))
    shown: list[list[Row]] = []

    def read_then_build(spark: object, chunk: Chunk) -> pa.Table:
        shown.append(shop.visible_rows("sales.whole"))
        return honest(spark, chunk)

    outcome = run(shop, "sales.whole", "whole-1", read_then_build)
    assert isinstance(outcome, Committed), outcome
    assert len(shown) > 1
    assert shown == [[] for _ in shown]
    assert len({each.attempt.snapshot_id for each in outcome.chunks}) == 1
    assert shop.visible_rows("sales.whole") == sorted(ROWS, key=repr)


def test_an_overwrite_replaces_only_its_declared_partition(shop: Shop) -> None:
    shop.make("sales.days", BY_DAY)
    where = {"where": "day = ${date}", "partition": "{day: '${date}'}"}
    parameters = "parameters:\n  date:\n    type: date"
    shop.write([(9, "2026-11-13", "old"), (10, "2026-11-14", "old")], "sales.days")
    shop.protect(contract("sales.days", parameters, operation="overwrite-partitions", **where))

    def build_day(_spark: object, chunk: Chunk) -> pa.Table:
        return table_of([row for row in ROWS if row[1] == chunk.parameters["date"]])

    from datetime import date

    with Coordinator(shop.steward) as coordinator:
        outcome = coordinator.execute_workload("days-1", build_day, table="sales.days", date=date(2026, 11, 14))
        assert isinstance(outcome, Committed), outcome
        assert shop.visible_rows("sales.days") == sorted([(9, "2026-11-13", "old"), *ROWS[2:]], key=repr)
        empty = coordinator.execute_workload("days-2", build_day, table="sales.days", date="2026-11-12")
        assert isinstance(empty, Committed), empty


def test_a_branch_that_was_staged_without_an_attempt_is_published(shop: Shop) -> None:
    shop.make("sales.adopted")
    shop.protect(contract("sales.adopted"))
    shop.write(ROWS, "sales.adopted", "etl_1")
    with Coordinator(shop.steward) as coordinator:
        outcome = coordinator.publish("adopted-1", "sales.adopted", "etl_1")
    assert isinstance(outcome, Committed), outcome
    assert shop.visible_rows("sales.adopted") == sorted(ROWS, key=repr)


def test_a_branch_that_is_published_before_the_plan_is_read_is_reported_as_published_now(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.make("sales.quick", BY_DAY)
    shop.protect(contract("sales.quick"))
    shop.write(ROWS, "sales.quick", "etl")
    whole = StewardClient.publish_branch

    def publish_and_wait(client: StewardClient, *words: Any) -> AttemptView:
        """The attempt as it was opened, after its publication."""
        opened = whole(client, *words)
        while client.await_attempt(opened.attempt_id, seconds=20).state is not AttemptState.COMMITTED:
            pass
        return opened

    monkeypatch.setattr(StewardClient, "publish_branch", publish_and_wait)
    steps: list[Step] = []
    with Coordinator(shop.steward, watch=steps.append) as coordinator:
        outcome = coordinator.publish("quick-1", "sales.quick", "etl")
    assert isinstance(outcome, Committed), outcome
    assert ([step.activity for step in steps], outcome.published) == ([Activity.PUBLISHED], PublicationTime.NOW)


def test_only_the_contract_that_protects_the_table_is_accepted(shop: Shop) -> None:
    from pvdm.model.contract import parse_contract

    shop.make("sales.other")
    shop.protect(contract("sales.other"))
    other_contract = parse_contract(contract("sales.other", "storage: copied").encode())
    with Coordinator(shop.steward) as coordinator:
        with pytest.raises(NotAllowedError) as caught:
            coordinator.execute_workload("other-1", honest, contract=other_contract)
        assert caught.value.reason == "contract_not_protecting"
        own = parse_contract(contract("sales.other").encode())
        assert isinstance(coordinator.execute_workload("other-1", honest, contract=own), Committed)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({}, "target_missing"),
        ({"table": "sales.none"}, "table_unknown"),
        ({"table": "raw.orders"}, "not_protected"),
        ({"table": "raw.orders", "day": 1.5}, "parameter_invalid"),
    ],
)
def test_a_workload_that_cannot_be_opened_is_reported(shop: Shop, arguments: dict[str, Any], code: str) -> None:
    with Coordinator(shop.steward) as coordinator:
        with pytest.raises((InputError, NotAllowedError)) as caught:
            coordinator.execute_workload("refused-1", honest, **arguments)
        assert caught.value.reason == code


def test_without_spark_a_job_must_be_given(shop: Shop) -> None:
    with Coordinator(shop.steward) as coordinator:
        with pytest.raises(InputError) as caught:
            coordinator.execute_workload("jobless-1", table="raw.orders")
        assert caught.value.reason == "job_missing"
        with pytest.raises(InputError) as caught:
            coordinator.repair("jobless-1", reason="a reason")
        assert caught.value.reason == "job_missing"


def test_rows_that_do_not_fit_are_an_error_of_the_job_and_are_rolled_back(shop: Shop) -> None:
    shop.make("sales.unfit")
    shop.protect(contract("sales.unfit"))
    with pytest.raises(InputError) as caught:
        run(shop, "sales.unfit", "unfit-1", lambda *_: table_of(ROWS).drop_columns(["town"]))
    assert caught.value.reason == "rows_columns_differ"
    assert "add, as null, a column" in str(caught.value.hint)
    with shop.client() as client:
        (chunk,) = client.chunks("unfit-1")
    assert chunk.attempt is not None
    assert chunk.attempt.state is AttemptState.ROLLED_BACK


def test_an_abandoned_workload_is_not_run(shop: Shop) -> None:
    shop.make("sales.given_up")
    shop.protect(contract("sales.given_up"))
    with shop.client() as client, shop.client(Role.OPERATOR) as operator:
        client.open_workload("given-up-1", "sales.given_up", {})
        operator.abandon_workload("given-up-1", "nobody needs it")
    outcome = run(shop, "sales.given_up", "given-up-1", _must_not_run)
    assert isinstance(outcome, RolledBack)
    assert outcome.error.reason == "workload_abandoned"


def test_a_job_without_spark_gets_no_data_frame_of_the_source(shop: Shop) -> None:
    shop.make("sales.frameless")
    shop.protect(contract("sales.frameless"))
    with pytest.raises(InputError) as caught:
        run(shop, "sales.frameless", "frameless-1", lambda _spark, chunk: chunk.rows())
    assert caught.value.reason == "chunk_without_spark"


def test_the_job_of_the_client_page_is_published(shop: Shop) -> None:
    shop.make("sales.paged")
    shop.protect(contract("sales.paged", "parameters:\n  day:\n    type: date", where="day = ${day}"))
    page = (Path(__file__).parents[3] / "docs" / "client.md").read_text("utf-8")
    (block,) = re.findall(r"^```python\n(def build\(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"steward": shop.steward, "Role": Role}
    exec(compile(block, "docs/client.md", "exec"), names)
    with Coordinator(shop.steward) as coordinator:
        outcome = coordinator.execute_workload("paged-1", names["build"], table="sales.paged", day="2026-11-14")
    assert isinstance(outcome, Committed), outcome
    assert shop.visible_rows("sales.paged") == sorted(ROWS[2:], key=repr)


def test_only_a_producer_runs_workloads(shop: Shop) -> None:
    with shop.client(Role.CONSUMER) as client, pytest.raises(NotAllowedError) as caught:
        Coordinator(client)
    assert caught.value.reason == "lent_role_wrong"
    assert (caught.value.expected, caught.value.got) == ("producer of sales", "consumer of sales")


def _first_chunk(outcome: Outcome) -> dict[str, object]:
    return outcome.chunks[0].to_json()


def _chunk_snapshots(outcome: Outcome) -> list[tuple[str, int | None]]:
    return [(each.chunk_id, each.attempt.snapshot_id) for each in outcome.chunks]


def _must_not_run(_spark: object, chunk: Chunk) -> pa.Table:
    raise AssertionError(f"chunk {chunk.chunk_id} was built again")


def _interrupt(*_: object, **__: object) -> Any:
    raise KeyboardInterrupt
