"""Runs while the Steward is unreachable, or answers are lost: no rows are staged twice, and no job counts as failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pyarrow as pa
import pytest

from pvdm import Chunk, Committed, Coordinator, Outcome, RolledBack
from pvdm.client import Retries, StewardClient
from pvdm.client.wire import Call, Wire
from pvdm.errors import StateUnknownError, UnavailableError
from pvdm.model.role import Role
from tests.support.steward.shop import ROWS, Shop, contract, shop_at, table_of


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with shop_at(tmp_path_factory.mktemp("shop")) as made:
        yield made


class Job:
    """Returns the rows, and counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, _spark: object, _chunk: Chunk) -> pa.Table:
        self.calls += 1
        return table_of(ROWS)


def run(shop: Shop, name: str, job: Any) -> Outcome:
    shop.make(f"sales.{name}")
    shop.protect(contract(f"sales.{name}"))
    with shop.client() as client, Coordinator(client) as coordinator:
        return coordinator.execute_workload(f"{name}-1", job, table=f"sales.{name}")


def test_a_hand_in_is_sent_again_until_the_steward_is_back(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    real, failures, job = Wire._exchange, [0], Job()

    def exchange(wire: Wire, call: Call, *more: Any) -> Any:
        if call.path.endswith("/staged") and failures[0] < 6:
            failures[0] += 1
            raise httpx.ConnectError("connection refused")
        return real(wire, call, *more)

    monkeypatch.setattr(Wire, "_exchange", exchange)
    outcome = run(shop, "handed_in", job)
    assert isinstance(outcome, Committed), outcome
    assert (failures, job.calls, len(outcome.chunks)) == ([6], 1, 1)


def test_every_call_of_a_run_waits_until_the_steward_is_back(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    real, job = Wire._exchange, Job()
    refused: Counter[tuple[str, str]] = Counter()
    shop.make("sales.all_calls")
    shop.protect(contract("sales.all_calls"))

    def exchange(wire: Wire, call: Call, *more: Any) -> Any:
        refused[call.method, call.path] += 1
        if refused[call.method, call.path] <= 5:  # more often than `Retries` sends a call that is not a job's
            raise httpx.ConnectError("connection refused")
        return real(wire, call, *more)

    quick = Retries(first_wait_seconds=0.01)
    token = shop.steward.token_for(Role.PRODUCER, "sales")
    monkeypatch.setattr(Wire, "_exchange", exchange)
    with StewardClient(shop.steward.url, token, retries=quick) as client, Coordinator(client) as coordinator:
        outcome = coordinator.execute_workload("all-calls-1", job, table="sales.all_calls")
    assert isinstance(outcome, Committed), outcome
    assert (job.calls, outcome.chunks[0].attempt.number) == (1, 1)
    assert {"/v1/identity", "/catalog/v1/namespaces/sales/tables/all_calls"} <= {path for _, path in refused}


def test_a_run_that_is_interrupted_does_not_wait_for_the_steward(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    real, sent = Wire._exchange, Counter[str]()

    def exchange(wire: Wire, call: Call, *more: Any) -> Any:
        if sent["away"]:
            sent[call.path.rpartition("/")[2]] += 1
            raise httpx.ConnectError("connection refused")
        return real(wire, call, *more)

    def interrupt(_spark: object, _chunk: Chunk) -> pa.Table:
        sent["away"] += 1
        raise KeyboardInterrupt

    monkeypatch.setattr(Wire, "_exchange", exchange)
    with pytest.raises(UnavailableError, match="could not be reached"):
        run(shop, "interrupted", interrupt)
    assert sent["abort"] == Retries().tries


def test_a_run_continues_with_an_attempt_whose_opening_was_not_answered(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, lost_status, job = Wire._exchange, [0], Job()

    def exchange(wire: Wire, call: Call, *more: Any) -> Any:
        answer: Any = real(wire, call, *more)
        if call.path.endswith("/attempts") and not lost_status[0]:
            lost_status[0] = answer.status
            raise httpx.ReadError("connection reset")
        return answer

    monkeypatch.setattr(Wire, "_exchange", exchange)
    outcome = run(shop, "unanswered", job)
    assert isinstance(outcome, Committed), outcome
    attempt = outcome.chunks[0].attempt
    assert attempt is not None
    assert (lost_status, attempt.number, job.calls) == ([200], 1, 1)


def test_a_commit_whose_answer_was_lost_does_not_count_as_a_failed_job(shop: Shop) -> None:
    def lose_answer(_spark: object, _chunk: Chunk) -> pa.Table:
        raise StateUnknownError("answer_lost", "POST was sent and its answer was lost")

    outcome = run(shop, "unknown", lose_answer)
    assert isinstance(outcome, RolledBack), outcome
    assert (outcome.error.reason, outcome.error.hint) == (
        "staging_unknown",
        "the same call continues the workload",
    )
