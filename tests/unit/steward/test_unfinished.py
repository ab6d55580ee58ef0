"""A running Steward finds attempts that have no job, for example those of a killed Steward, and works on them."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pvdm.api.work import JobState
from pvdm.errors import Code, InputError, UnavailableError
from pvdm.model.states import AttemptState
from pvdm.steward.locks import hold_work
from tests.support.steward.job_tasks import JobTasks, queue_verification
from tests.support.waiting import eventually, wait_for_jobs
from tests.unit.ledger.test_named_locks import HOLDER
from tests.unit.steward.test_jobs import SECONDS, only_job, run_jobs
from tests.unit.steward.test_jobs import desk as desk  # noqa: PLC0414 - the fixture


def test_an_attempt_without_a_job_is_found_without_a_restart(desk: JobTasks) -> None:
    desk.verify, desk.publish = desk.passed, desk.published
    with run_jobs(desk, search_interval_seconds=0.05) as jobs:
        assert wait_for_jobs(jobs, SECONDS)
        (one,) = desk.attempts("a")
        assert eventually(lambda: desk.attempt(one).state is AttemptState.COMMITTED)


def test_the_attempt_of_a_killed_steward_is_continued_by_another(desk: JobTasks, tmp_path: Path) -> None:
    desk.verify, desk.publish = desk.passed, desk.published
    ledger = desk.stand.notary.ledger
    with run_jobs(desk, search_interval_seconds=0.05) as jobs:
        assert wait_for_jobs(jobs, SECONDS)
        (one,) = desk.staging("a")
        arguments = [sys.executable, "-c", HOLDER, f"sqlite:///{ledger.file}", f"work on {one}"]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as other:
            try:
                assert other.stdout is not None
                assert other.stdout.readline() == "True\n"
                desk.hand_in(one)
                time.sleep(0.5)  # ten searches
                assert desk.calls("verify") == []
            finally:
                other.kill()
        assert eventually(lambda: desk.attempt(one).state is AttemptState.COMMITTED)
    assert desk.calls("verify") == [one]


def test_a_job_waits_while_another_steward_works_on_it(desk: JobTasks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pvdm.steward.pipeline.jobs._HELD_SECONDS", 0.05)
    (one,) = desk.attempts("a")
    ledger = desk.stand.notary.ledger

    def verify(attempt_id: str) -> None:
        with hold_work(ledger, attempt_id):
            desk.passed(attempt_id)

    desk.verify, desk.publish = verify, desk.published
    with hold_work(ledger, one), run_jobs(desk, retry_seconds=600) as jobs:
        assert wait_for_jobs(jobs, SECONDS)
        assert jobs.list_jobs() == [], "a start leaves it to the other Steward"
        queue_verification(jobs, one)
        assert eventually(lambda: only_job(jobs).tries > 2)
        view = only_job(jobs)
        assert (view.kind.value, view.error and view.error.reason) == ("verify", Code.WORK_HELD)
    with run_jobs(desk) as jobs:
        assert wait_for_jobs(jobs, SECONDS)
    assert desk.attempt(one).state is AttemptState.COMMITTED


def test_only_one_steward_at_a_time_works_on_an_attempt(desk: JobTasks) -> None:
    ledger = desk.stand.notary.ledger
    with hold_work(ledger, "one"):
        with pytest.raises(UnavailableError) as caught, hold_work(ledger, "one"):
            pass
        with hold_work(ledger, "two"):
            pass
    assert caught.value.reason == Code.WORK_HELD


def test_a_failed_job_is_not_retried_by_every_search(desk: JobTasks) -> None:
    (one,) = desk.attempts("a")

    def fail(_: str) -> None:
        raise InputError("wrong", "this way it never works")

    desk.verify = fail
    with run_jobs(desk, search_interval_seconds=0.02) as jobs:
        assert eventually(lambda: any(job.state is JobState.FAILED for job in jobs.list_jobs()))
        time.sleep(0.3)
    assert desk.calls("verify") == [one]


def test_a_receipt_or_clean_up_that_is_missing_in_two_searches_is_settled_once(desk: JobTasks) -> None:
    """At the first search the Steward that committed it may be about to create it."""
    settled = threading.Event()
    with run_jobs(desk, search_interval_seconds=0.05) as jobs:
        assert wait_for_jobs(jobs, SECONDS)
        before = len(desk.calls("settle"))
        (one,) = desk.staging("a")
        desk.settle = settled.set
        desk.end(one, AttemptState.ROLLED_BACK)
        assert settled.wait(SECONDS)
        time.sleep(0.3)
        assert len(desk.calls("settle")) == before + 1, "what settling cannot repair is not tried at every look"
