"""Segments of a workload: their options, one segment in this process, and several in processes of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from pvdm.cli.common.commands import wants_json
from pvdm.cli.common.options import Service, option_group
from pvdm.cli.common.screen import notice
from pvdm.cli.common.times import DURATION_TYPE
from pvdm.cli.work.jobs import Job, job_output, open_coordinator, watch_steps
from pvdm.model.fields import MICROS_PER_SECOND

if TYPE_CHECKING:
    from pvdm.durable.outcome import Outcome


@dataclass(frozen=True, slots=True)
class SegmentTimes:
    """How long a segment lives, and how long before its end it stops working; in microseconds."""

    segment_timeout: int | None
    rollback_threshold: int | None

    @property
    def timeout_seconds(self) -> float | None:
        """How long a segment lives; None without a limit."""
        return seconds_of(self.segment_timeout)

    def end_from_now(self) -> float | None:
        """When a segment that begins now ends, by `elapsed_seconds`; None without a limit. Raises for invalid times."""
        from pvdm.durable.segment import Segment, elapsed_seconds

        Segment.start(self.timeout_seconds, seconds_of(self.rollback_threshold))
        return None if self.timeout_seconds is None else elapsed_seconds() + self.timeout_seconds


segment_options = option_group(
    "segment",
    SegmentTimes,
    click.option(
        "--segment-timeout",
        type=DURATION_TYPE,
        metavar="TIME",
        help="How long a process may work, such as 15m. It rolls back what it cannot hand in.  [default: no limit]",
    ),
    click.option(
        "--rollback-threshold",
        type=DURATION_TYPE,
        metavar="TIME",
        help="How long before the time-out the process stops.  [default: a tenth of the time, at most 30s]",
    ),
)


def seconds_of(micros: int | None) -> float | None:
    """The duration in seconds; None for None."""
    return None if micros is None else micros / MICROS_PER_SECOND


@dataclass(frozen=True, slots=True)
class SegmentOfCommand:
    """A segment with the options of a command. It can be pickled, so that another process can run it."""

    workload_id: str
    service: Service
    job: Job
    times: SegmentTimes
    json: bool
    max_chunks: int | None = None

    def __call__(self, number: int, ends_at: float) -> Outcome:
        """Run the segment with this number. Only the first one may end the lease of another run."""
        first = number == 1
        return (self if first else replace(self, job=replace(self.job, take_over=False))).run(ends_at)

    def run(self, ends_at: float | None) -> Outcome:
        """Continue the workload until `ends_at`, a time by `elapsed_seconds`, or without a limit."""
        with job_output(json=self.json):
            build = self.job.load_build()
            timeout = self.times.timeout_seconds
            opened = open_coordinator(
                self.service,
                self.job,
                segment_timeout=timeout,
                rollback_threshold=seconds_of(self.times.rollback_threshold),
                # The start of the process and the import of the job take a part of the segment's time.
                segment_started_at=None if ends_at is None or timeout is None else ends_at - timeout,
                max_chunks=self.max_chunks,
                shows_progress=not self.json,
            )
            with opened as coordinator:
                return coordinator.resume_workload(self.workload_id, build)


def run_in_segments(
    service: Service,
    job: Job,
    times: SegmentTimes,
    workload_id: str,
    table: str,
    parameters: Mapping[str, str],
    *,
    workload_timeout: float | None,
) -> Outcome:
    """Open the workload, and run it in processes, one after the other, each for the time of a segment."""
    from pvdm.durable.outcome import ignore_progress, planning_watch
    from pvdm.durable.supervisor import Supervisor

    seconds = times.timeout_seconds or 0.0
    job.load_build()  # first, so that a misspelled name is reported once, not by each segment
    with service.connect() as client:
        patient = client.with_patience()
        timeout = None if workload_timeout is None else int(workload_timeout)
        watch = ignore_progress if wants_json() else watch_steps()
        workload = patient.open_workload(workload_id, table, parameters, timeout, watch=planning_watch(watch))
        segment = SegmentOfCommand(workload_id, service, job, times, json=wants_json())
        return Supervisor(patient, workload, segment, segment_timeout=seconds, notify=notice).run()
