"""The jobs that make plans: they run one at a time, beside the jobs that verify."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

import pytest

from pvdm.api.work import JobState
from pvdm.errors import UnavailableError
from pvdm.ledger.work import plannings
from pvdm.ledger.work.plannings import Planning, UnfinishedPlan
from pvdm.ledger.work.workloads import Opening
from pvdm.model.contract import Atomicity
from pvdm.model.states import AttemptState
from pvdm.steward.pipeline.jobs import Jobs
from tests.support.steward.job_tasks import JobTasks, queue_verification
from tests.support.steward.notary import stand_at
from tests.support.waiting import eventually, wait_for_jobs

SECONDS = 20.0


def test_plans_are_made_one_at_a_time_so_that_attempts_are_verified_meanwhile(tmp_path: Path) -> None:
    may_end = threading.Event()

    def plan(_: str) -> None:
        may_end.wait(SECONDS)

    with stand_at(tmp_path, rooted=False) as stand:
        desk = JobTasks(stand)
        (one,) = desk.attempts("a")
        desk.verify, desk.publish, desk.plan = desk.passed, desk.published, plan
        jobs = desk.jobs(threads=2)
        jobs.start()
        for workload_id in ("large-1", "large-2"):
            jobs.plan(UnfinishedPlan(workload_id, "sales"))
        assert eventually(lambda: desk.calls("plan") == ["large-1"])
        queue_verification(jobs, one)
        assert eventually(lambda: desk.attempt(one).state is AttemptState.COMMITTED)
        assert desk.calls("plan") == ["large-1"]
        may_end.set()
        assert wait_for_jobs(jobs, SECONDS)
        jobs.stop()
    assert desk.calls("plan") == ["large-1", "large-2"]


def test_the_next_plan_is_of_the_domain_that_has_waited_longest(tmp_path: Path) -> None:
    with stand_at(tmp_path, rooted=False) as stand:
        desk = JobTasks(stand)
        jobs = desk.jobs(threads=2)
        for at in range(4):
            jobs.plan(UnfinishedPlan(f"many-{at}", "sales"))
        for at in range(2):
            jobs.plan(UnfinishedPlan(f"few-{at}", "risk"))
        jobs.start()
        assert wait_for_jobs(jobs, SECONDS)
        jobs.stop()
    assert desk.calls("plan") == ["many-0", "few-0", "many-1", "few-1", "many-2", "many-3"]


@pytest.mark.parametrize("error", [UnavailableError("store_unreachable", "gone"), ValueError()])
def test_a_plan_that_waits_or_has_failed_is_made_at_once_when_hurried(tmp_path: Path, error: Exception) -> None:
    errors = [error]

    def plan(_: str) -> None:
        if errors:
            raise errors.pop()

    with stand_at(tmp_path, rooted=False) as stand:
        desk = JobTasks(stand)
        desk.plan = plan
        jobs = desk.jobs(threads=2, retry_seconds=600.0)
        store_planning(desk)
        jobs.plan(UnfinishedPlan("large", "sales"))
        jobs.start()
        assert eventually(lambda: _state_of(jobs) in {JobState.WAITING, JobState.FAILED})
        jobs.plan(UnfinishedPlan("large", "sales"))  # queued again, as by a caller that waits for the plan
        assert desk.calls("plan") == ["large"]
        jobs.hurry_plan("large")
        assert wait_for_jobs(jobs, SECONDS)
        jobs.stop()
    assert desk.calls("plan")[:2] == ["large", "large"]


def store_planning(desk: JobTasks) -> None:
    opening = Opening("large", "ab" * 32, "t", "s", b"{}", Atomicity.CHUNK, "sales")
    desk.change(partial(plannings.begin, planning=Planning(opening, "7", b"[]", None, 1)))


def _state_of(jobs: Jobs) -> JobState | None:
    found = jobs.find_plan("large")
    return None if found is None else found.state
