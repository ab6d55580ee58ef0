"""Automatic repair: after a FAIL, a run attempts the chunk again, as often as the contract allows. Without a JVM."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from pvdm import Chunk, Committed, Coordinator, Outcome, VerificationFailed
from pvdm.durable.run import Run
from pvdm.model.states import AttemptState
from tests.support.steward.pipeline import BY_DAY
from tests.support.steward.shop import ROWS, Shop, shop_at, table_of

Job = Callable[[object, Chunk], pa.Table]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with shop_at(tmp_path_factory.mktemp("shop")) as made:
        yield made


class FaultyJob:
    """A job that leaves out a row at its first `faults` calls for each chunk."""

    def __init__(self, faults: int) -> None:
        self.faults, self.calls = faults, list[str]()

    def __call__(self, _spark: object, chunk: Chunk) -> pa.Table:
        self.calls.append(chunk.chunk_id)
        rows = table_of([row for row in ROWS if chunk.chunk_id in {"all", f"day={row[1]}"}])
        return rows.slice(1) if self.calls.count(chunk.chunk_id) <= self.faults else rows


def allow_repairs(repairs: int) -> str:
    return f"governance:\n  repair: {{automatic: {repairs}}}"


def run(shop: Shop, table: str, job: Job) -> Outcome:
    with Coordinator(shop.steward) as coordinator:
        return coordinator.execute_workload("run-1" + table, job, table=table)


def test_after_a_fail_the_whole_chunk_is_staged_again_and_each_attempt_has_a_proof(shop: Shop) -> None:
    table, job = shop.target("repaired", allow_repairs(2)), FaultyJob(2)
    assert isinstance(run(shop, table, job), Committed)
    assert job.calls == ["all"] * 3
    assert shop.visible_rows(table) == sorted(ROWS, key=repr)
    with shop.client() as client:
        attempts = client.workload("run-1" + table, look_up_source=False).attempts
    failed, passed = AttemptState.VERIFICATION_FAILED, AttemptState.COMMITTED
    assert [each.state for each in sorted(attempts, key=lambda each: each.number)] == [failed, failed, passed]
    assert len({each.proof_id for each in attempts}) == 3  # two FAIL proofs and a PASS proof


def test_a_repair_is_shown_by_the_run_and_by_the_status(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    table = shop.target("shown", allow_repairs(1))
    module: Any = types.ModuleType("faulty_jobs")
    module.build = FaultyJob(1)
    monkeypatch.setitem(sys.modules, "faulty_jobs", module)
    words = ["run", table, "--workload-id", "shown-1", "--small", "--job", "faulty_jobs:build"]
    code, output = shop.command(words)
    line = "    attempt 1 failed (missing); its repair is published as attempt 2"
    assert (code, line in output.splitlines()) == (0, True), output
    assert "*** 1 chunk failed verification first, and a repair was published ***" in output
    (chunk,) = json.loads(shop.command([*words, "--json"])[1])["chunks"]
    assert [(each["attempt"], each["classes"]) for each in chunk["failed_attempts"]] == [("1", ["missing"])]
    status = ["status", "--workload-id", "shown-1"]
    assert line in shop.command(status)[1].splitlines()
    (failed,) = json.loads(shop.command([*status, "--json"])[1])["failed_attempts"]
    assert (failed["number"], failed["state"]) == ("1", "VERIFICATION_FAILED")


def test_no_try_is_left_after_as_many_repairs_as_the_contract_allows(shop: Shop) -> None:
    table, job = shop.target("used_up", allow_repairs(1)), FaultyJob(2)
    outcome = run(shop, table, job)
    assert isinstance(outcome, VerificationFailed)
    assert job.calls == ["all"] * 2
    assert shop.visible_rows(table) == []
    again = run(shop, table, job)  # another run makes no further attempt
    assert isinstance(again, VerificationFailed)
    assert (again.before, job.calls) == (True, ["all"] * 2)
    with Coordinator(shop.steward) as coordinator:
        assert isinstance(coordinator.repair("run-1" + table, job, reason="the job is fixed"), Committed)
    assert shop.visible_rows(table) == sorted(ROWS, key=repr)


def test_a_run_makes_a_repair_that_an_earlier_run_did_not_make(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    table, job = shop.target("continued", allow_repairs(1)), FaultyJob(1)
    with monkeypatch.context() as patched:
        patched.setattr(Run, "_find_automatic_repair", lambda *_: None)
        assert isinstance(run(shop, table, job), VerificationFailed)
    assert isinstance(run(shop, table, job), Committed)
    assert job.calls == ["all"] * 2


def test_a_chunk_is_staged_once_if_the_contract_allows_no_repair(shop: Shop) -> None:
    table, job = shop.target("by_hand"), FaultyJob(1)
    assert isinstance(run(shop, table, job), VerificationFailed)
    assert job.calls == ["all"]


def test_repairs_are_counted_for_each_chunk(shop: Shop) -> None:
    table, job = shop.target("chunks", BY_DAY, allow_repairs(1)), FaultyJob(1)
    assert isinstance(run(shop, table, job), Committed)
    assert max(job.calls.count(each) for each in set(job.calls)) == 2
    assert shop.visible_rows(table) == sorted(ROWS, key=repr)
