"""Waits for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable

from pvdm.api.work import JobState
from pvdm.steward.pipeline.jobs import Jobs

SECONDS = 20.0


def eventually(holds: Callable[[], bool]) -> bool:
    """Wait until `holds()` is true, at most `SECONDS`; returns whether it became true."""
    ends = time.monotonic() + SECONDS
    while not (is_true := holds()) and time.monotonic() < ends:
        time.sleep(0.01)
    return is_true


def wait_for_jobs(jobs: Jobs, seconds: float) -> bool:
    """Wait until no job is queued or running; returns whether that happened in time."""
    ends = time.monotonic() + seconds
    while is_busy := any(each.state in (JobState.QUEUED, JobState.RUNNING) for each in jobs.list_jobs()):
        if time.monotonic() >= ends:
            break
        time.sleep(0.01)
    return not is_busy
