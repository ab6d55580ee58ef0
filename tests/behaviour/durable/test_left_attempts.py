"""Attempts that are rolled back after a refused hand-in or the death of their run; openings that come late."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pvdm import Coordinator
from pvdm.api import work
from pvdm.api.work import AttemptView
from pvdm.client import StewardClient
from pvdm.client.calls import build_request, new_post
from pvdm.durable.outcome import Activity, Step
from pvdm.errors import PvdmError
from pvdm.ledger.work import attempts, nonces
from pvdm.model.states import LEASE_MAX_SECONDS, AttemptState, NonceState
from pvdm.physical.small import SmallStager
from pvdm.steward.work.opening import Workloads
from pvdm.steward.work.stale import GRACE_SECONDS
from tests.support.steward.leases import lease, open_attempt
from tests.support.steward.pipeline import ROWS, Line, contract, line_at, table_of
from tests.support.waiting import eventually

SECOND = 1_000_000
WAIT = 30
ATTEMPT_ID = "ab" * 16
ONE_DAY = [row for row in ROWS if row[1] == "2026-11-14"]


@pytest.fixture
def line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Line]:
    with line_at(tmp_path) as made:
        made.protect()
        # The commits of the job have the times of the Steward's clock, which the test moves.
        monkeypatch.setattr(
            "pvdm.durable.coordinator.SmallStager", lambda client: SmallStager(client, now_ms=made.now_ms)
        )
        yield made


def migrate(line: Line) -> None:
    """Migrate the table to another contract."""
    line.served.stand.time.pass_by(SECOND)
    update = {"action": "set-properties", "updates": {"owner": "another team"}}
    line.scene.migrate(line.scene.migration([update], contract=contract("limits:\n  chunks: 7")))


def state_of(line: Line) -> tuple[AttemptState, NonceState | None]:
    """The state of the only attempt of `run-1`, and of its nonce."""
    with line.notary.ledger.read() as unit:
        (attempt,) = attempts.list_by_chunk(unit, "run-1", "all")
        nonce = nonces.find_current(unit, attempt.attempt_id)
    return attempt.state, None if nonce is None else nonce.state


def is_cleaned_up(line: Line) -> bool:
    """Wait until no branch is left. Returns whether the attempt is then rolled back, with an aborted nonce."""
    return eventually(lambda: set(line.refs()) <= {"main"}) and state_of(line) == (AttemptState.ROLLED_BACK, None)


def reason_of(call: Callable[[], object]) -> str:
    with pytest.raises(PvdmError) as caught:
        call()
    return caught.value.reason


def call_before_hand_in(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Call `action` between the end of staging and the hand-in."""
    real = StewardClient.staged

    def staged(client: StewardClient, attempt_id: str) -> AttemptView:
        action()
        return real(client, attempt_id)

    monkeypatch.setattr(StewardClient, "staged", staged)


def honest(_spark: object, _chunk: object) -> pa.Table:
    return table_of(ROWS)


def test_an_attempt_whose_hand_in_comes_after_a_migration_is_rolled_back(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    call_before_hand_in(monkeypatch, lambda: migrate(line))
    with line.client() as client, Coordinator(client) as coordinator:
        refused = reason_of(lambda: coordinator.execute_workload("run-1", honest, table="sales.orders"))
    assert refused == "contract_moved"
    assert is_cleaned_up(line)


def test_an_attempt_whose_hand_in_comes_after_the_deadline_is_rolled_back(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    call_before_hand_in(monkeypatch, lambda: line.served.stand.time.pass_by(130 * SECOND))  # too early for `end_stale`
    with line.client() as client, Coordinator(client, workload_timeout=100) as coordinator:
        refused = reason_of(lambda: coordinator.execute_workload("run-1", honest, table="sales.orders").require())
    assert refused == "workload_timed_out"
    assert is_cleaned_up(line)


def test_an_attempt_is_rolled_back_if_the_callers_progress_function_raises(line: Line) -> None:
    def watch(step: Step) -> None:
        if step.activity is Activity.STAGING:
            raise ZeroDivisionError

    with line.client() as client, Coordinator(client, watch=watch) as coordinator, pytest.raises(ZeroDivisionError):
        coordinator.execute_workload("run-1", honest, table="sales.orders")
    assert is_cleaned_up(line)


def stage_and_disappear(line: Line, timeout: int | None = None) -> None:
    """Stage rows as a run does that is killed before the hand-in."""
    with line.client() as client:
        client.open_workload("run-1", "sales.orders", {}, timeout)
        line.stage(client, open_attempt(client, "run-1", "all", "the first run"), ROWS)


@pytest.mark.parametrize("why", ["deadline", "contract"])
def test_the_attempt_of_a_killed_run_is_rolled_back_if_no_run_can_take_it_over(line: Line, why: str) -> None:
    stage_and_disappear(line, 100 if why == "deadline" else None)
    if why == "contract":
        migrate(line)
    end_stale, time = line.notary.jobs._tasks.end_stale, line.served.stand.time
    end_stale()
    assert state_of(line) == (AttemptState.STAGING, NonceState.RESERVED)  # the run could still be alive
    time.pass_by((LEASE_MAX_SECONDS + GRACE_SECONDS + 1) * SECOND)
    end_stale()
    assert is_cleaned_up(line)


def test_the_attempt_of_a_killed_run_stays_if_another_run_can_take_it_over(line: Line) -> None:
    stage_and_disappear(line, 10 * LEASE_MAX_SECONDS)
    line.served.stand.time.pass_by((LEASE_MAX_SECONDS + GRACE_SECONDS + 1) * SECOND)
    line.notary.jobs._tasks.end_stale()
    assert state_of(line) == (AttemptState.STAGING, NonceState.RESERVED)


@pytest.mark.parametrize("when", ["while it is staged", "once it is published", "once it is rolled back"])
def test_a_late_repetition_of_an_opening_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    with line_at(tmp_path) as line:
        line.protect(contract("parameters:\n  day: {type: date}", where="day = ${day}", claim="{column: day}"))
        publish_first_day(line)  # so that the next branch begins at a snapshot
        with line.client() as client, line.client() as other:
            client.open_workload("run-1", "sales.orders", {"day": "2026-11-14"})
            (chunk,) = client.chunks("run-1")
            number = lease(client, "run-1").lease_number
            request = build_request(
                work.OpenAttemptRequest,
                chunk_id=chunk.chunk_id,
                reason="the nightly run",
                lease_number=number,
                attempt_id=ATTEMPT_ID,
            )

            def send(by: StewardClient) -> AttemptView:
                return by._read(new_post("/v1/workloads/run-1/attempts", request, repeatable=True), work.AttemptView)

            delay = Delay(monkeypatch)
            answers: list[AttemptView] = []
            late = threading.Thread(target=lambda: answers.append(send(other)))
            late.start()
            assert delay.begun.wait(WAIT)
            attempt = send(client)
            line.stage(client, attempt, ONE_DAY)
            if when == "once it is published":
                client.staged(attempt.attempt_id)
                assert client.await_attempt(attempt.attempt_id, seconds=WAIT).state is AttemptState.COMMITTED
            elif when == "once it is rolled back":
                client.abort_attempt(attempt.attempt_id, "a change of plan", number)
            if when != "while it is staged":
                assert eventually(lambda: attempt.branch not in line.refs())
            before = line.refs()
            delay.ended.set()
            late.join(WAIT)
            assert [each.attempt_id for each in answers] == [ATTEMPT_ID]
            assert line.refs() == before
            if when == "while it is staged":
                client.staged(attempt.attempt_id)
                assert client.await_attempt(attempt.attempt_id, seconds=WAIT).state is AttemptState.COMMITTED


class Delay:
    """Delays the first opening of an attempt after the Steward has found no attempt with its id."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.ended = threading.Event(), threading.Event()
        real = Workloads._new_attempt

        def new_attempt(*arguments: Any) -> Any:
            made = real(*arguments)
            if not self.begun.is_set():
                self.begun.set()
                assert self.ended.wait(WAIT)
            return made

        monkeypatch.setattr(Workloads, "_new_attempt", new_attempt)


def publish_first_day(line: Line) -> None:
    with line.client() as client:
        _, attempt = line.attempt(client, "first", day="2026-11-13")
        line.stage(client, attempt, [row for row in ROWS if row[1] == "2026-11-13"])
        client.staged(attempt.attempt_id)
        assert client.await_attempt(attempt.attempt_id, seconds=WAIT).state is AttemptState.COMMITTED
