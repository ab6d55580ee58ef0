"""Workloads over HTTP: what a producer's client sends and gets, what waits, and what ends a wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from pvdm.api.work import AttemptView, JobState
from pvdm.client import StewardClient
from pvdm.errors import ConflictError, InputError, NotAllowedError, PvdmError, UnavailableError
from pvdm.model.role import Role
from pvdm.model.states import AttemptState, WorkloadState
from pvdm.steward.http.long_poll import WAITS_AT_ONCE_MAX
from pvdm.steward.pipeline.jobs import Jobs
from pvdm.steward.work.queries import JobKind, JobStatus
from tests.support.gate.approvals import code_of
from tests.support.ledger.databases import memory_folder
from tests.support.steward.http import bearer
from tests.support.steward.pipeline import BY_DAY, REASON, Line, contract, line_at
from tests.support.waiting import wait_for_jobs

PROMPTLY = 10.0


@pytest.fixture
def line() -> Iterator[Line]:
    with memory_folder() as folder, line_at(folder) as made:
        made.notary.jobs.stop()
        made.protect(contract(BY_DAY))
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
    assert (first.where, first.files, first.attempt) == ("day = '2026-11-13'", None, None)
    tried = producer.next_attempt("run-1", first.chunk_id, REASON)
    assert (tried.table, tried.target_branch, tried.state) == ("sales.orders", "main", AttemptState.STAGING)
    assert producer.chunks("run-1", limit=1)[0].attempt == tried
    assert producer.workload("run-1").attempts == (tried,)


def test_a_lost_answer_is_asked_for_again(producer: StewardClient) -> None:
    producer.open_workload("run-1", "sales.orders", {})
    tried = producer.next_attempt("run-1", "day=~other", REASON)
    with pytest.raises(ConflictError) as caught:
        producer.next_attempt("run-1", "day=~other", REASON)
    assert caught.value.details["attempt_id"] == tried.attempt_id
    staged = producer.staged(tried.attempt_id)
    assert (staged.state, producer.staged(tried.attempt_id)) == (AttemptState.VERIFYING, staged)


def test_an_attempts_own_token_says_that_it_is_staged(line: Line, producer: StewardClient) -> None:
    _, tried = line.attempt(producer)
    with producer.with_token(producer.attempt_token(tried.attempt_id).token) as own:
        assert own.staged(tried.attempt_id).state is AttemptState.VERIFYING
        assert code_of(lambda: own.open_workload("run-2", "sales.orders", {}), NotAllowedError) == (
            "token_of_other_attempt"
        )


def test_an_operator_gives_a_workload_up(line: Line, producer: StewardClient) -> None:
    _, tried = line.attempt(producer)
    with line.client(Role.OPERATOR) as operator:
        assert operator.abandon_workload("run-1", "no more").state is WorkloadState.ABANDONED
    assert producer.attempt(tried.attempt_id).state is AttemptState.ROLLED_BACK


def test_a_producer_gives_no_workload_up(line: Line, producer: StewardClient) -> None:
    line.attempt(producer)
    assert code_of(lambda: producer.abandon_workload("run-1", "no more"), NotAllowedError) == "role_wrong"


def test_a_consumer_does_nothing_here(line: Line) -> None:
    with line.client(Role.CONSUMER) as consumer:
        for call in (
            lambda: consumer.open_workload("run-1", "sales.orders", {}),
            lambda: consumer.chunks("run-1"),
            lambda: consumer.publish_branch("run-1", "sales.orders", "wap", {}),
            lambda: consumer.orphans("sales.orders"),
            consumer.workloads,
        ):
            assert code_of(call, NotAllowedError) == "role_wrong"


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
def test_a_body_that_is_none_of_an_opening_is_refused(line: Line, body: dict[str, Any]) -> None:
    headers = line.served.headers(Role.PRODUCER, "sales")
    answer = line.served.http.post("/v1/workloads", json=body, headers=headers)
    assert (answer.status_code, answer.json()["error"]["reason"]) == (400, "request_invalid")


def test_another_tables_name_is_unknown(producer: StewardClient) -> None:
    assert code_of(lambda: producer.open_workload("run-1", "sales.nothing", {}), InputError) == "table_unknown"


# Waiting


def waited(client: StewardClient, attempt_id: str, found: list[AttemptView]) -> threading.Thread:
    thread = threading.Thread(target=lambda: found.append(client.attempt(attempt_id, wait_seconds=25)))
    thread.start()
    return thread


def until(line: Line, attempt_id: str, count: int = 1) -> None:
    """So many wait for the attempt."""
    ends = time.monotonic() + PROMPTLY
    while len(line.notary.changes._listeners.get(attempt_id, ())) < count:
        assert time.monotonic() < ends
        time.sleep(0.01)


def test_who_waits_is_told_of_the_end_at_once(line: Line, producer: StewardClient) -> None:
    _, tried = line.attempt(producer)
    found: list[AttemptView] = []
    waiting = waited(producer, tried.attempt_id, found)
    until(line, tried.attempt_id)
    begun = time.monotonic()
    line.notary.workloads.abandon(line.scene.grant(), "run-1", "no more")
    waiting.join(PROMPTLY)
    assert [each.state for each in found] == [AttemptState.ROLLED_BACK]
    assert time.monotonic() - begun < PROMPTLY


def test_a_wait_is_over_when_its_time_is(line: Line, producer: StewardClient) -> None:
    _, tried = line.attempt(producer)
    begun = time.monotonic()
    assert producer.attempt(tried.attempt_id, wait_seconds=1).state is AttemptState.STAGING
    assert 0.9 <= time.monotonic() - begun < PROMPTLY


def test_a_wait_is_no_longer_than_a_request_may_be(tmp_path: Path) -> None:
    def short(config: Any) -> Any:
        limits = replace(config.service.limits, request_seconds=1)
        return replace(config, service=replace(config.service, limits=limits))

    with line_at(tmp_path, changed=short) as line, line.client() as client:
        line.notary.jobs.stop()
        line.protect()
        _, tried = line.attempt(client)
        begun = time.monotonic()
        client.attempt(tried.attempt_id, wait_seconds=20)
        assert time.monotonic() - begun < PROMPTLY


def test_who_waits_too_often_is_answered_at_once(line: Line, producer: StewardClient) -> None:
    _, tried = line.attempt(producer)
    token = line.served.stand.token(Role.PRODUCER, "sales")[0]
    found: list[int] = []

    def wait() -> None:
        with httpx.Client(base_url=line.url, trust_env=False, timeout=30, headers=bearer(token)) as http:
            found.append(http.get(f"/v1/attempts/{tried.attempt_id}", params={"wait": "25"}).status_code)

    threads = [threading.Thread(target=wait) for _ in range(WAITS_AT_ONCE_MAX + 3)]
    for thread in threads:
        thread.start()
    until(line, tried.attempt_id, WAITS_AT_ONCE_MAX)
    ends = time.monotonic() + PROMPTLY
    while len(found) < 3:
        assert time.monotonic() < ends
        time.sleep(0.01)
    assert len(found) == 3
    line.notary.workloads.abandon(line.scene.grant(), "run-1", "no more")
    for thread in threads:
        thread.join(PROMPTLY)
    assert found == [200] * len(threads)


def test_a_service_that_stops_answers_who_waits(line: Line, producer: StewardClient) -> None:
    _, tried = line.attempt(producer)
    found: list[AttemptView] = []
    waiting = waited(producer, tried.attempt_id, found)
    until(line, tried.attempt_id)
    begun = time.monotonic()
    line.served.server.stop()
    waiting.join(PROMPTLY)
    assert [each.state for each in found] == [AttemptState.STAGING]
    assert time.monotonic() - begun < PROMPTLY


def test_waiting_ends_by_itself_where_the_steward_lets_nobody_wait(
    line: Line, producer: StewardClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, tried = line.attempt(producer)
    monkeypatch.setattr("pvdm.steward.http.long_poll.WAITS_AT_ONCE_MAX", 0)
    asked: list[None] = []
    first = StewardClient.attempt

    def counted(self: StewardClient, attempt_id: str, *, wait_seconds: float = 0) -> AttemptView:
        asked.append(None)
        return first(self, attempt_id, wait_seconds=wait_seconds)

    monkeypatch.setattr(StewardClient, "attempt", counted)
    assert producer.await_attempt(tried.attempt_id, seconds=2).state is AttemptState.STAGING
    assert 2 <= len(asked) <= 6


def test_what_keeps_the_steward_from_its_work_is_told(
    line: Line, producer: StewardClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: str) -> None:
        raise UnavailableError("vault_unavailable", "the vault cannot be reached")

    monkeypatch.setattr(line.notary.jobs, "_tasks", replace(line.notary.jobs._tasks, verify=broken))
    _, tried = line.attempt(producer)
    producer.staged(tried.attempt_id)
    line.notary.jobs.start()
    assert wait_for_jobs(line.notary.jobs, PROMPTLY)
    job = producer.attempt(tried.attempt_id).job
    assert job is not None
    assert job.problem is not None
    assert (job.state, job.problem.reason) == (JobState.WAITING, "vault_unavailable")


def test_operators_and_auditors_see_jobs_that_do_not_get_on(line: Line, producer: StewardClient) -> None:
    _, tried = line.attempt(producer)
    producer.staged(tried.attempt_id)
    with line.client(Role.AUDITOR, "*") as auditor:
        (queued,) = auditor.jobs()
        assert (queued.kind, queued.subject, queued.state) == ("verify", tried.attempt_id, JobState.QUEUED)
        assert (queued.table, queued.workload_id) == ("sales.orders", tried.workload_id)
    assert code_of(producer.jobs, NotAllowedError) == "role_wrong"
    with line.client(Role.OPERATOR, "sales") as operator:
        assert code_of(operator.jobs, NotAllowedError) == "domain_wrong"


def test_failed_jobs_are_counted_for_prometheus(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    bug = PvdmError("bug", "the Steward met a bug")
    jobs = [JobStatus(JobKind.VERIFY, f"{at:032x}", JobState.FAILED, 1, bug) for at in range(2)]
    monkeypatch.setattr(Jobs, "listed", lambda _: jobs)
    with line.client(Role.OPERATOR, "*") as operator:
        told = operator.metrics()
        assert 'pvdm_steward_jobs{state="failed"} 2.0' in told
        assert 'pvdm_steward_jobs{state="waiting"} 0.0' in told
        assert [each.problem.reason for each in operator.jobs(limit=1) if each.problem] == ["bug"]
