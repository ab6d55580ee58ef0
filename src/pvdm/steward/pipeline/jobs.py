"""Runs the Steward's jobs: a few threads verify, publish and clean up, and waiters are woken after each change."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from pvdm.api.work import JobState
from pvdm.errors import Code, PvdmError, RolledBackError, StateUnknownError, UnavailableError
from pvdm.ledger import Ledger
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record import receipts
from pvdm.ledger.work import attempts, chunks, disposals, plannings, workloads
from pvdm.ledger.work.attempts import Attempt
from pvdm.ledger.work.plannings import UnfinishedPlan
from pvdm.model.contract import Atomicity
from pvdm.model.states import AttemptState
from pvdm.steward.locks import is_work_held
from pvdm.steward.logs import LOGGER, log_event, log_failure, log_warning
from pvdm.steward.work.opened import Facts, describe_work
from pvdm.steward.work.planning import plan_lock_subject
from pvdm.steward.work.queries import JobKind, JobStatus

JOB_THREADS_MAX: Final = 2
JOB_RETRY_MAX_SECONDS: Final = 60
SEARCH_INTERVAL_SECONDS: Final = 15
_HELD_SECONDS: Final = 5  # the wait before a retry while another Steward does the work
_STOP_SECONDS: Final = 20  # for running jobs to end
# Every search after the first looks back only this far, because the searches before it found all older work.
_SEARCH_BACK_MICROS: Final = 3_600 * 1_000_000

Listener = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Tasks:
    """The functions that the threads call. Each is idempotent and stores its result in the ledger."""

    verify: Callable[[str], object]  # gets an attempt id
    publish: Callable[[str, Sequence[str]], object]  # gets a workload id and attempt ids
    dispose: Callable[[str], object]  # gets an attempt id, and cleans up after that attempt
    settle: Callable[[], object]  # makes the receipts and clean-ups that a crash prevented
    plan: Callable[[str], object]  # gets a workload id, and makes that workload's plan
    end_stale: Callable[[], object]  # rolls back staging that no run can finish


@dataclass(slots=True)
class _Job:
    kind: JobKind
    subject: str  # an attempt's id; a workload's for PLAN, or if chunks are published together; empty for SETTLE
    domain: str = ""  # the workload's, for PLAN
    state: JobState = JobState.QUEUED
    tries: int = 0
    due: float = 0.0  # when the job may run, on the monotonic clock; 0.0: at once
    requested_again: bool = False  # whether the job was requested while it ran
    error: PvdmError | None = None
    error_is_current: bool = False  # false after the job was requested again
    since: float = field(default_factory=time.monotonic)  # when the job was first requested
    position: float = field(default_factory=time.monotonic)  # jobs that are due run in the order of these positions

    def view(self) -> JobStatus:
        now = time.monotonic()
        retry_seconds = max(0, math.ceil(self.due - now)) if self.state is JobState.WAITING else None
        error = self.error if self.error_is_current else None
        return JobStatus(self.kind, self.subject, self.state, self.tries, error, retry_seconds, now - self.since)


class Jobs:
    """Runs jobs in a few threads; after a restart the jobs are found again in the ledger."""

    def __init__(
        self,
        ledger: Ledger,
        clock: LedgerClock,
        tasks: Tasks,
        *,
        changed: Callable[[str], None],
        threads: int = JOB_THREADS_MAX,
        retry_seconds: float = 1.0,
        search_interval_seconds: float = SEARCH_INTERVAL_SECONDS,
    ) -> None:
        """`changed` is called with the id of each attempt or workload that a job may have changed.

        The first retry waits `retry_seconds`, and each further retry twice as long as the retry before. The ledger is
        searched every `search_interval_seconds` for unfinished work that has no job in this process.
        """
        self._ledger = ledger
        self._clock = clock
        self._unfinished = UnfinishedWork(ledger)
        self._search_interval_seconds = search_interval_seconds
        self._tasks = tasks
        self._changed = changed
        self._thread_count = threads
        self._retry_seconds = retry_seconds
        self._jobs: dict[tuple[JobKind, str], _Job] = {}
        self._plan_begun: dict[str, float] = {}  # when the last plan of each domain was begun
        self._condition = threading.Condition()  # protects the jobs, and is notified of every change
        self._stopping = False
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start the threads and continue interrupted work; a second call does nothing."""
        with self._condition:
            if self._threads:
                return
            self._stopping = False
            self._threads = [
                threading.Thread(target=self._work, name=f"pvdm-job-{number}", daemon=True)
                for number in range(self._thread_count)
            ]
            self._threads.append(threading.Thread(target=self._search_repeatedly, name="pvdm-job-search", daemon=True))
        self._queue(JobKind.SETTLE, "")
        for thread in self._threads:
            thread.start()

    def stop(self, seconds: float = _STOP_SECONDS) -> None:
        """Start no further job and wait for running jobs. Unfinished work continues after the next start."""
        with self._condition:
            self._stopping = True
            self._condition.notify_all()
            threads, self._threads = self._threads, []
        deadline = time.monotonic() + seconds
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def hurry(self, attempt: Attempt) -> None:
        """Run the attempt's job now if it waits for a retry, has failed, or is missing."""
        found = self.find_job(attempt)
        if found is None or found.state in (JobState.WAITING, JobState.FAILED):
            self._queue_job(attempt)

    def plan(self, wanted: UnfinishedPlan) -> None:
        """Queue the job that makes the workload's plan, unless this job exists."""
        with self._condition:
            if (JobKind.PLAN, wanted.workload_id) not in self._jobs:
                self._queue(JobKind.PLAN, wanted.workload_id, domain=wanted.domain)

    def hurry_plan(self, workload_id: str) -> None:
        """Run the job that makes the workload's plan now if it waits for a retry, or has failed."""
        found = self.find_plan(workload_id)
        if found is not None and found.state in (JobState.WAITING, JobState.FAILED):
            self._queue(JobKind.PLAN, workload_id)

    def dispose(self, attempt_id: str) -> None:
        """Queue the clean-up after an ended attempt, at the queue position of the attempt's job, if it has one."""
        with self._condition:
            optional = [self._jobs.get((kind, attempt_id)) for kind in (JobKind.VERIFY, JobKind.PUBLISH)]
            position = min((job.position for job in optional if job is not None), default=None)
        self._queue(JobKind.DISPOSE, attempt_id, position=position)

    def find_job(self, attempt: Attempt) -> JobStatus | None:
        """The job that the attempt waits for, or None."""
        with self._condition:
            found = (
                self._jobs.get((JobKind.VERIFY, attempt.attempt_id))
                or self._jobs.get((JobKind.PUBLISH, attempt.attempt_id))
                or self._jobs.get((JobKind.PUBLISH, attempt.workload_id))
            )
            return None if found is None else found.view()

    def find_plan(self, workload_id: str) -> JobStatus | None:
        """The job that makes the plan of the workload, or None."""
        with self._condition:
            found = self._jobs.get((JobKind.PLAN, workload_id))
            return None if found is None else found.view()

    def list_jobs(self) -> list[JobStatus]:
        """Every job that is not finished."""
        with self._condition:
            return [job.view() for job in self._jobs.values()]

    def _queue(self, kind: JobKind, subject: str, *, position: float | None = None, domain: str = "") -> None:
        """Make the job due now. A new job is the last in the queue, unless a position is given.

        An attempt's publication and clean-up get the position of its verification, so that the attempt is finished
        before another attempt is begun. Otherwise many staging branches would be live at once, and each branch makes
        every change of the table slower. A repeated verification is last, so that it does not delay other attempts.
        """
        with self._condition:
            job = self._jobs.get((kind, subject))
            if job is None:
                job = self._jobs[kind, subject] = _Job(kind, subject, domain)
                if position is not None:
                    job.position = position
            if job.state is JobState.RUNNING:
                job.requested_again = True
            else:
                job.state, job.due, job.tries, job.error_is_current = JobState.QUEUED, 0.0, 0, False
            self._condition.notify_all()

    def _work(self) -> None:
        while (job := self._take_next()) is not None:
            try:
                self._run(job)
            except Exception as error:
                log_failure("job_met_a_bug", error, **self._describe(job))
                bug = Code.BUG("the Steward met a bug", got=type(error).__name__, hint="its log has more")
                self._finish(job, JobState.FAILED, bug)

    def _search_repeatedly(self) -> None:
        while True:
            with self._condition:
                if self._condition.wait_for(lambda: self._stopping, self._search_interval_seconds):
                    return
            try:
                self._tasks.end_stale()
                self._queue_unfinished()
                if self._unfinished.is_settling_due(self._clock.now_micros()):
                    self._queue(JobKind.SETTLE, "")
            except PvdmError as error:
                log_warning("unfinished_work_not_known", code=error.reason)

    def _take_next(self) -> _Job | None:
        """Wait for the next job that is due, and mark it as running; None when the service stops."""
        with self._condition:
            while not self._stopping:
                now = time.monotonic()
                waiting = [job for job in self._jobs.values() if job.state in (JobState.QUEUED, JobState.WAITING)]
                waiting = self._without_later_plans(waiting, now)
                first = min(waiting, key=lambda job: (job.due, job.position), default=None)
                if first is not None and first.due <= now:
                    first.state, first.tries = JobState.RUNNING, first.tries + 1
                    if first.kind is JobKind.PLAN:
                        self._plan_begun[first.domain] = now
                    return first
                self._condition.wait(None if first is None else first.due - now)
        return None

    def _without_later_plans(self, waiting: list[_Job], now: float) -> list[_Job]:
        """Leave out the plans that must wait for another plan, so that they wake no thread.

        Only one plan runs at a time, since a plan may take long and the other threads have to verify and publish. The
        next plan is of the domain whose last plan began longest ago. So no domain waits for all plans of another.
        """
        others = [job for job in waiting if job.kind is not JobKind.PLAN]
        if any(job.kind is JobKind.PLAN and job.state is JobState.RUNNING for job in self._jobs.values()):
            return others
        plans = [job for job in waiting if job.kind is JobKind.PLAN]
        due = [job for job in plans if job.due <= now]
        begun = self._plan_begun
        next_plan = min(due, key=lambda job: (begun.get(job.domain, 0.0), job.position), default=None)
        return others + (plans if next_plan is None else [next_plan])

    def _run(self, job: _Job) -> None:
        try:
            self._execute(job)
        except PvdmError as error:
            is_held = error.code == Code.WORK_HELD  # another Steward does the work
            log = log_event if is_held else log_warning
            if self._has_work(job) is False:
                log("job_refused", code=error.reason, **self._describe(job))
                self._finish(job, None, None)  # nothing is left to do, and the ledger has the refusal
                may_be_published = not is_held and isinstance(error, UnavailableError | StateUnknownError)
                if job.kind is JobKind.PUBLISH and may_be_published:
                    # The commit may be done without its receipt and clean-up.
                    self._queue(JobKind.SETTLE, "")
            elif isinstance(error, UnavailableError | RolledBackError | StateUnknownError):
                log("job_waits", code=error.reason, **self._describe(job))
                self._finish(job, JobState.WAITING, error)
            else:
                log_failure("job_cannot_go_on", error, **self._describe(job))
                self._finish(job, JobState.FAILED, error)
        else:
            if job.kind in (JobKind.VERIFY, JobKind.PUBLISH) and self._has_work(job):
                raise AssertionError("the job ended without an error, but its attempt is in the same state")
            if job.kind is not JobKind.SETTLE:  # SETTLE runs often and logs its own failures
                log_event("job_done", **self._describe(job))
            self._finish(job, None, None)

    def _describe(self, job: _Job) -> Facts:
        """The facts for log lines about the job; those from the ledger only if the log shows INFO."""
        facts: Facts = {"job": job.kind.value, "tries": job.tries}
        if job.subject and LOGGER.isEnabledFor(logging.INFO):
            facts |= describe_work(self._ledger, job.subject, is_plan=job.kind is JobKind.PLAN)
        return facts

    def _execute(self, job: _Job) -> None:
        match job.kind:
            case JobKind.VERIFY:
                if self._has_work(job) is not False:
                    self._tasks.verify(job.subject)
            case JobKind.PUBLISH:
                if job.error is not None:  # the last try may have committed before its error
                    self._tasks.settle()
                if ready := self._list_publishable(job.subject):
                    self._tasks.publish(ready[0].workload_id, [each.attempt_id for each in ready])
            case JobKind.DISPOSE:
                self._tasks.dispose(job.subject)
            case JobKind.PLAN:
                self._tasks.plan(job.subject)
            case JobKind.SETTLE:
                try:
                    self._tasks.settle()
                finally:
                    self._queue_unfinished()

    def _finish(self, job: _Job, state: JobState | None, error: PvdmError | None) -> None:
        """Forget the job if `state` is None, after its successors are queued; else keep it with its error."""
        moved = self._queue_next(job) if state is None else []
        with self._condition:
            requested_again, job.requested_again = job.requested_again, False
            if state is None:
                del self._jobs[job.kind, job.subject]
            else:
                job.state, job.error, job.error_is_current = state, error, True
                # Twice as long after each try, but constant while another Steward does the work.
                is_held = error is not None and error.code == Code.WORK_HELD
                wait = min(JOB_RETRY_MAX_SECONDS, self._retry_seconds * 2.0 ** min(job.tries - 1, 16))
                job.due = time.monotonic() + (_HELD_SECONDS if is_held else wait)
            self._condition.notify_all()
        if requested_again:
            self._queue(job.kind, job.subject)
        for subject in dict.fromkeys((job.subject, *moved)):
            self._changed(subject)

    def _queue_next(self, job: _Job) -> list[str]:
        """Queue the job's successors. Returns the ids of the attempts whose state the job may have changed."""
        if job.kind not in (JobKind.VERIFY, JobKind.PUBLISH):
            return []
        try:
            with self._ledger.read() as unit:
                only_attempt = attempts.find(unit, job.subject)
                moved = attempts.list_live(unit, job.subject) if only_attempt is None else [only_attempt]
            for attempt in moved:
                self._queue_job(attempt, position=job.position)
        except PvdmError as error:
            # The ledger cannot be read now. The job SETTLE is retried until it succeeds, and queues unfinished work.
            log_warning("job_followed_later", code=error.reason, **self._describe(job))
            self._queue(JobKind.SETTLE, "")
            return []
        return [attempt.attempt_id for attempt in moved]

    def _queue_job(self, attempt: Attempt, *, position: float | None = None) -> None:
        """Queue the verification or publication that the attempt is ready for, if there is one."""
        if attempt.state is AttemptState.VERIFYING:
            self._queue(JobKind.VERIFY, attempt.attempt_id)
        elif attempt.state is AttemptState.COMMITTING and (ready := self._list_publishable(attempt.attempt_id)):
            subject = publication_id(attempt.workload_id, [each.attempt_id for each in ready])
            self._queue(JobKind.PUBLISH, subject, position=position)

    def _queue_unfinished(self) -> None:
        """Queue jobs for unfinished work that has no job in this process and that no other Steward does."""
        with self._ledger.read() as unit:
            plans = plannings.list_unfinished(unit)
            live = [each for each in attempts.list_live(unit) if each.state is not AttemptState.STAGING]
        for attempt in live:
            # A publication of all chunks holds the lock of the workload.
            subjects = [attempt.attempt_id]
            subjects += [attempt.workload_id] if attempt.state is AttemptState.COMMITTING else []
            if self.find_job(attempt) is None and not any(is_work_held(self._ledger, each) for each in subjects):
                self._queue_job(attempt)
        for each in plans:
            if not is_work_held(self._ledger, plan_lock_subject(each.workload_id)):
                self.plan(each)

    def _has_work(self, job: _Job) -> bool | None:
        """Whether the job still has something to do; None if the ledger cannot be read."""
        try:
            match job.kind:
                case JobKind.VERIFY:
                    with self._ledger.read() as unit:
                        found = attempts.find(unit, job.subject)
                    return found is not None and found.state is AttemptState.VERIFYING
                case JobKind.PUBLISH:
                    return bool(self._list_publishable(job.subject))
                case JobKind.PLAN:
                    with self._ledger.read() as unit:
                        return any(job.subject == each.workload_id for each in plannings.list_unfinished(unit))
                case _:
                    return True
        except PvdmError:
            return None

    def _list_publishable(self, subject: str) -> list[Attempt]:
        """The attempts to publish together for an attempt's or a workload's id; empty until all of them are proved."""
        with self._ledger.read() as unit:
            attempt = attempts.find(unit, subject)
            opening = workloads.get(unit, subject if attempt is None else attempt.workload_id).opening
            if opening.atomicity is Atomicity.CHUNK:
                return [attempt] if attempt is not None and attempt.state is AttemptState.COMMITTING else []
            live = attempts.list_live(unit, opening.workload_id)
            proved = [each for each in live if each.state is AttemptState.COMMITTING]
            return proved if len(proved) == chunks.count(unit, opening.workload_id) else []


def publication_id(workload_id: str, attempt_ids: Sequence[str]) -> str:
    """The id of a publication: the attempt's id if there is only one attempt, else the workload's id."""
    return attempt_ids[0] if len(attempt_ids) == 1 else workload_id


class UnfinishedWork:
    """Finds missing receipts and clean-ups in the ledger. Only the first search reads the whole history."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._missing_before: frozenset[str] = frozenset()
        self._reported: frozenset[str] = frozenset()
        self._since_micros = 0

    def is_settling_due(self, now_micros: int) -> bool:
        """Whether a receipt or a clean-up is missing that was missing at the previous call too.

        An item that is missing for the first time may be under way. Each item makes settling due once. Otherwise an
        item that settling cannot repair would make settling due at every call.
        """
        with self._ledger.read() as unit:
            publications = receipts.list_missing(unit, since_micros=self._since_micros)
            ended_attempts = disposals.list_undisposed(unit, since_micros=self._since_micros)
        missing = frozenset(f"{each.table_uuid}/{each.snapshot_id}" for each in publications)
        missing |= {each.attempt_id for each in ended_attempts}
        due = (missing & self._missing_before) - self._reported
        self._missing_before = missing
        self._reported = (self._reported & missing) | due
        self._since_micros = max(0, now_micros - _SEARCH_BACK_MICROS)
        return bool(due)


class Changes:
    """Wakes listeners when this process changes the attempt or workload that they wait for; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[str, list[Listener]] = {}
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether the service stops: no listener may wait any more."""
        return self._closed

    def notify(self, *subjects: str) -> None:
        """Wake the listeners of these attempts or workloads."""
        with self._lock:
            listeners = [each for subject in subjects for each in self._listeners.get(subject, ())]
        for listener in listeners:
            listener()

    def close(self) -> None:
        """Wake all listeners for the last time."""
        self._closed = True
        with self._lock:
            subjects = list(self._listeners)
        self.notify(*subjects)

    @contextlib.contextmanager
    def listen(self, subject: str, listener: Listener) -> Iterator[None]:
        """Call `listener` at every change of the subject, from any thread, until the context ends."""
        with self._lock:
            self._listeners.setdefault(subject, []).append(listener)
        try:
            yield
        finally:
            with self._lock:
                remaining = self._listeners[subject]
                remaining.remove(listener)
                if not remaining:
                    del self._listeners[subject]
