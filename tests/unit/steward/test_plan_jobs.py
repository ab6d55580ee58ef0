"""The jobs that make plans: one at a time, beside those that verify."""

from __future__ import annotations

import threading
from pathlib import Path

from pvdm.model.states import AttemptState
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
            jobs.plan(workload_id)
        assert eventually(lambda: desk.calls("plan") == ["large-1"])
        queue_verification(jobs, one)
        assert eventually(lambda: desk.attempt(one).state is AttemptState.COMMITTED)
        assert desk.calls("plan") == ["large-1"]
        may_end.set()
        assert wait_for_jobs(jobs, SECONDS)
        jobs.stop()
    assert desk.calls("plan") == ["large-1", "large-2"]
