"""Workloads over HTTP: what a producer's client sends and gets, and requests that wait for a change (long polls)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from pvdm.api.work import AttemptView, JobState, WorkloadView
from pvdm.client import StewardClient
from pvdm.errors import ConflictError, InputError, NotAllowedError, PvdmError, UnavailableError
from pvdm.model.role import Role
from pvdm.model.states import AttemptState, WorkloadState
from pvdm.steward.http.long_poll import WAITS_AT_ONCE_MAX
from pvdm.steward.pipeline.jobs import Jobs
from pvdm.steward.work.queries import JobKind, JobStatus
from tests.support.gate.approvals import reason_of
from tests.support.ledger.databases import memory_folder
from tests.support.steward.http import bearer
from tests.support.steward.leases import open_attempt
from tests.support.steward.pipeline import BY_DAY_AND_NONE, DAY_CHUNKS, REASON, Line, contract, line_at, without_jobs
from tests.support.waiting import wait_for_jobs

PROMPTLY = 10.0


@pytest.fixture
def line() -> Iterator[Line]:
    with memory_folder() as folder, line_at(folder) as made:
        without_jobs(made)
        made.protect(contract(BY_DAY_AND_NONE))
        yield made


@pytest.fixture
def producer(line: Line) -> Iterator[StewardClient]:
    with line.client() as client:
        yield client


def test_a_workload_is_opened_listed_and_attempted(line: Line, producer: StewardClient) -> None:
    opened = producer.open_workload("run-1", "sales.orders", {})
    assert (opened.state, opened.table, opened.chunk_count) == (WorkloadState.OPEN, "sales.orders", 3)
    assert producer.open_workload("run-1", "sales.orders", {}) == opened
    # Lists do not ask each source for its newest snapshot.
    assert producer.workloads() == (opened.model_copy(update={"source_newest_snapshot_id": None}),)
    first, *_ = producer.chunks("run-1")
    assert (first.where, first.files, first.attempt) == ("day < '2026-11-14'", None, None)
    attempt = open_attempt(producer, "run-1", first.chunk_id, REASON)
    assert (attempt.table, attempt.target_branch, attempt.state) == ("sales.orders", "main", AttemptState.STAGING)
    assert producer.chunks("run-1", limit=1)[0].attempt == attempt
    assert producer.workload("run-1").attempts == (attempt,)


def test_after_a_lost_answer_the_same_request_gives_the_live_attempt_or_the_same_answer(
    producer: StewardClient,
) -> None:
    producer.open_workload("run-1", "sales.orders", {})
    attempt = open_attempt(producer, "run-1", DAY_CHUNKS[2], REASON)
    with pytest.raises(ConflictError) as caught:
        open_attempt(producer, "run-1", DAY_CHUNKS[2], REASON)
    assert caught.value.details["attempt_id"] == attempt.attempt_id
    staged = producer.staged(attempt.attempt_id)
    assert (staged.state, producer.staged(attempt.attempt_id)) == (AttemptState.VERIFYING, staged)


def test_an_attempts_own_token_ends_its_staging(line: Line, producer: StewardClient) -> None:
    _, attempt = line.attempt(producer)
    with producer.with_token(producer.attempt_token(attempt.attempt_id).token) as own:
        assert own.staged(attempt.attempt_id).state is AttemptState.VERIFYING
        assert reason_of(lambda: own.open_workload("run-2", "sales.orders", {}), NotAllowedError) == (
            "token_of_other_attempt"
        )


def test_an_operator_abandons_a_workload(line: Line, producer: StewardClient) -> None:
    _, attempt = line.attempt(producer)
    with line.client(Role.OPERATOR) as operator:
        abandoned = operator.abandon_workload("run-1", "no more")
    assert isinstance(abandoned, WorkloadView)
    assert abandoned.state is WorkloadState.ABANDONED
    assert producer.attempt(attempt.attempt_id).state is AttemptState.ROLLED_BACK


def test_a_producer_cannot_abandon_a_workload(line: Line, producer: StewardClient) -> None:
    line.attempt(producer)
    assert reason_of(lambda: producer.abandon_workload("run-1", "no more"), NotAllowedError) == "role_wrong"


def test_a_consumer_is_refused_by_the_routes_of_workloads(line: Line) -> None:
    with line.client(Role.CONSUMER) as consumer:
        for call in (
            lambda: consumer.open_workload("run-1", "sales.orders", {}),
            lambda: consumer.chunks("run-1"),
            lambda: consumer.publish_branch("run-1", "sales.orders", "wap", {}),
            lambda: consumer.orphans("sales.orders"),
            consumer.workloads,
        ):
            assert reason_of(call, NotAllowedError) == "role_wrong"


@pytest.mark.parametrize(
    "body",
    [
        {"workload_id": "a/b", "table": "sales.orders"},
        {"workload_id": "run-1", "table": ""},
        {"workload_id": "run-1", "table": "sales.orders", "parameters": {"1": "x"}},
        {"workload_id": "run-1", "table": "sales.orders", "parameters": {"day": 7}},
        {"workload_id": "run-1", "table": "sales.orders", "contract": "mine"},
        {"table": "sales.orders"},
    ],
    ids=str,
)
def test_an_invalid_body_of_an_opening_is_refused(line: Line, body: dict[str, Any]) -> None:
    headers = line.served.headers(Role.PRODUCER, "sales")
    answer = line.served.http.post("/v1/workloads", json=body, headers=headers)
    assert (answer.status_code, answer.json()["error"]["reason"]) == (400, "request_invalid")


def test_a_workload_of_an_unknown_table_is_refused(producer: StewardClient) -> None:
    assert reason_of(lambda: producer.open_workload("run-1", "sales.nothing", {}), InputError) == "table_unknown"


# Waiting


def start_waiting(client: StewardClient, attempt_id: str, found: list[AttemptView]) -> threading.Thread:
    """Wait for the attempt in a thread, which adds the answer to `found`."""
    thread = threading.Thread(target=lambda: found.append(client.attempt(attempt_id, wait_seconds=25)))
    thread.start()
    return thread


def wait_for_listeners(line: Line, attempt_id: str, count: int = 1) -> None:
    """Return once so many requests wait for the attempt."""
    ends = time.monotonic() + PROMPTLY
    while len(line.notary.changes._listeners.get(attempt_id, ())) < count:
        assert time.monotonic() < ends
        time.sleep(0.01)


def test_a_waiting_request_is_answered_as_soon_as_the_attempt_ends(line: Line, producer: StewardClient) -> None:
    _, attempt = line.attempt(producer)
    found: list[AttemptView] = []
    waiting = start_waiting(producer, attempt.attempt_id, found)
    wait_for_listeners(line, attempt.attempt_id)
    begun = time.monotonic()
    line.notary.workloads.abandon(line.scene.grant(), "run-1", "no more")
    waiting.join(PROMPTLY)
    assert [each.state for each in found] == [AttemptState.ROLLED_BACK]
    assert time.monotonic() - begun < PROMPTLY


def test_a_wait_ends_after_its_seconds(line: Line, producer: StewardClient) -> None:
    _, attempt = line.attempt(producer)
    begun = time.monotonic()
    assert producer.attempt(attempt.attempt_id, wait_seconds=1).state is AttemptState.STAGING
    assert 0.9 <= time.monotonic() - begun < PROMPTLY


def test_a_wait_is_not_longer_than_the_time_limit_of_a_request(tmp_path: Path) -> None:
    def with_short_requests(config: Any) -> Any:
        limits = replace(config.service.limits, request_seconds=1)
        return replace(config, service=replace(config.service, limits=limits))

    with line_at(tmp_path, changed=with_short_requests) as line, line.client() as client:
        line.notary.jobs.stop()
        line.protect()
        _, attempt = line.attempt(client)
        begun = time.monotonic()
        client.attempt(attempt.attempt_id, wait_seconds=20)
        assert time.monotonic() - begun < PROMPTLY


def test_waiting_requests_beyond_the_limit_are_answered_at_once(line: Line, producer: StewardClient) -> None:
    _, attempt = line.attempt(producer)
    token = line.served.stand.token(Role.PRODUCER, "sales")[0]
    found: list[int] = []

    def wait() -> None:
        with httpx.Client(base_url=line.url, trust_env=False, timeout=30, headers=bearer(token)) as http:
            found.append(http.get(f"/v1/attempts/{attempt.attempt_id}", params={"wait": "25"}).status_code)

    threads = [threading.Thread(target=wait) for _ in range(WAITS_AT_ONCE_MAX + 3)]
    for thread in threads:
        thread.start()
    wait_for_listeners(line, attempt.attempt_id, WAITS_AT_ONCE_MAX)
    ends = time.monotonic() + PROMPTLY
    while len(found) < 3:
        assert time.monotonic() < ends
        time.sleep(0.01)
    assert len(found) == 3
    line.notary.workloads.abandon(line.scene.grant(), "run-1", "no more")
    for thread in threads:
        thread.join(PROMPTLY)
    assert found == [200] * len(threads)


def test_a_service_that_stops_answers_waiting_requests(line: Line, producer: StewardClient) -> None:
    _, attempt = line.attempt(producer)
    found: list[AttemptView] = []
    waiting = start_waiting(producer, attempt.attempt_id, found)
    wait_for_listeners(line, attempt.attempt_id)
    begun = time.monotonic()
    line.served.server.stop()
    waiting.join(PROMPTLY)
    assert [each.state for each in found] == [AttemptState.STAGING]
    assert time.monotonic() - begun < PROMPTLY


def test_await_attempt_polls_until_its_time_is_over_if_the_steward_allows_no_waits(
    line: Line, producer: StewardClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, attempt = line.attempt(producer)
    monkeypatch.setattr("pvdm.steward.http.long_poll.WAITS_AT_ONCE_MAX", 0)
    calls: list[None] = []
    real = StewardClient.attempt

    def count_call(self: StewardClient, attempt_id: str, *, wait_seconds: float = 0) -> AttemptView:
        calls.append(None)
        return real(self, attempt_id, wait_seconds=wait_seconds)

    monkeypatch.setattr(StewardClient, "attempt", count_call)
    assert producer.await_attempt(attempt.attempt_id, seconds=2).state is AttemptState.STAGING
    assert 2 <= len(calls) <= 6


def test_the_problem_that_delays_a_job_is_shown_with_the_attempt(
    line: Line, producer: StewardClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: str) -> None:
        raise UnavailableError("vault_unavailable", "the vault cannot be reached")

    monkeypatch.setattr(line.notary.jobs, "_tasks", replace(line.notary.jobs._tasks, verify=fail))
    _, attempt = line.attempt(producer)
    producer.staged(attempt.attempt_id)
    line.notary.jobs.start()
    assert wait_for_jobs(line.notary.jobs, PROMPTLY)
    job = producer.attempt(attempt.attempt_id).job
    assert job is not None
    assert job.problem is not None
    assert (job.state, job.problem.reason) == (JobState.WAITING, "vault_unavailable")


def test_jobs_are_shown_to_an_auditor_but_not_to_a_producer_or_a_token_of_one_domain(
    line: Line, producer: StewardClient
) -> None:
    _, attempt = line.attempt(producer)
    producer.staged(attempt.attempt_id)
    with line.client(Role.AUDITOR, "*") as auditor:
        (queued,) = auditor.jobs()
        assert (queued.kind, queued.subject, queued.state) == ("verify", attempt.attempt_id, JobState.QUEUED)
        assert (queued.table, queued.workload_id) == ("sales.orders", attempt.workload_id)
    assert reason_of(producer.jobs, NotAllowedError) == "role_wrong"
    with line.client(Role.OPERATOR, "sales") as operator:
        assert reason_of(operator.jobs, NotAllowedError) == "domain_wrong"


def test_failed_jobs_are_counted_in_the_metrics(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    bug = PvdmError("bug", "the Steward met a bug")
    jobs = [JobStatus(JobKind.VERIFY, f"{at:032x}", JobState.FAILED, 1, bug) for at in range(2)]
    monkeypatch.setattr(Jobs, "list_jobs", lambda _: jobs)
    with line.client(Role.OPERATOR, "*") as operator:
        metrics = operator.metrics()
        assert 'pvdm_steward_jobs{state="failed"} 2.0' in metrics
        assert 'pvdm_steward_jobs{state="waiting"} 0.0' in metrics
        assert [each.problem.reason for each in operator.jobs(limit=1) if each.problem] == ["bug"]
