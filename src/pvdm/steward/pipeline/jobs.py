"""The Steward's work behind its answers: bounded threads verify, publish and clean up; the ledger says what is due."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from pvdm.api.work import JobState
from pvdm.errors import PvdmError, RolledBackError, StateUnknownError, UnavailableError
from pvdm.ledger import Ledger
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.schema.work import Atomicity
from pvdm.ledger.work import attempts, chunks, workloads
from pvdm.ledger.work.attempts import Attempt
from pvdm.ledger.work.workloads import Workload
from pvdm.model.states import AttemptState
from pvdm.steward.logs import LOGGER, log_event, log_failure, log_warning
from pvdm.steward.pipeline.unfinished import WORK_HELD, Unfinished, publication_of
from pvdm.steward.work.log_lines import Facts, describe_work

JOB_THREADS_MAX: Final = 2
JOB_RETRY_MAX_SECONDS: Final = 60
LOOK_SECONDS: Final = 15
_HELD_SECONDS: Final = 5
_STOP_SECONDS: Final = 20


class JobKind(Enum):
    """What is done."""

    VERIFY = "verify"
    PUBLISH = "publish"
    DISPOSE = "dispose"
    SETTLE = "settle"


@dataclass(frozen=True, slots=True)
class JobStatus:
    """One job and the error of its last try; `subject` is an attempt, or a whole workload."""

    kind: JobKind
    subject: str
    state: JobState
    tries: int
    error: PvdmError | None
    again_seconds: int | None = None
    """How long it is until the next try, where there is one without being asked for."""
    age_seconds: float = 0.0
    """How long ago it was asked for."""


@dataclass(frozen=True, slots=True)
class Tasks:
    """What the threads call; each is idempotent, and leaves what it decided in the ledger."""

    verify: Callable[[str], object]
    publish: Callable[[str, Sequence[str]], object]
    dispose: Callable[[str], object]
    settle: Callable[[], object]


@dataclass(slots=True)
class _Job:
    kind: JobKind
    subject: str
    state: JobState = JobState.QUEUED
    tries: int = 0
    due: float = 0.0
    again: bool = False  # asked for once more while it ran
    error: PvdmError | None = None
    told: bool = False  # whether the error is of this round of tries
    since: float = field(default_factory=time.monotonic)
    place: float = field(default_factory=time.monotonic)  # jobs that are due run in the order of their places

    def view(self) -> JobStatus:
        waits = self.state is JobState.WAITING
        again = max(0, math.ceil(self.due - time.monotonic())) if waits else None
        # What an earlier round met says nothing about the one that somebody asked for.
        error, age = self.error if self.told else None, time.monotonic() - self.since
        return JobStatus(self.kind, self.subject, self.state, self.tries, error, again, age)


@dataclass(slots=True)
class _Book:
    """The jobs there are, by what they do and to what; its condition is told of every change."""

    jobs: dict[tuple[JobKind, str], _Job] = field(default_factory=dict)
    told: threading.Condition = field(default_factory=threading.Condition)
    stopping: bool = False


class Jobs:
    """Worker threads over one book of jobs; what is in it follows from the ledger, so nothing is lost with it."""

    def __init__(
        self,
        ledger: Ledger,
        clock: LedgerClock,
        tasks: Tasks,
        *,
        changed: Callable[[str], None],
        threads: int = JOB_THREADS_MAX,
        retry_seconds: float = 1.0,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        """Calls `changed` for each attempt that changed; a retry waits `retry_seconds`, then twice that.

        Every `look_seconds` the ledger is asked for unfinished work without a job, which another Steward may have left.
        """
        self._ledger = ledger
        self._clock = clock
        self._unfinished = Unfinished(ledger)
        self._look_seconds = look_seconds
        self._tasks = tasks
        self._changed = changed
        self._count = threads
        self._retry_seconds = retry_seconds
        self._book = _Book()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Take up what the ledger says was interrupted, and begin to work; a second time does nothing."""
        with self._book.told:
            if self._threads:
                return
            self._book.stopping = False
            self._threads = [
                threading.Thread(target=self._work, name=f"pvdm-job-{number}", daemon=True)
                for number in range(self._count)
            ]
            self._threads.append(threading.Thread(target=self._keep_looking, name="pvdm-job-look", daemon=True))
        self._put(JobKind.SETTLE, "")
        for thread in self._threads:
            thread.start()

    def stop(self, seconds: float = _STOP_SECONDS) -> None:
        """Begin nothing more, and wait for what runs; what is left is taken up at the next start."""
        with self._book.told:
            self._book.stopping = True
            self._book.told.notify_all()
            threads, self._threads = self._threads, []
        ends = time.monotonic() + seconds
        for thread in threads:
            thread.join(max(0.0, ends - time.monotonic()))

    def verify(self, attempt_id: str) -> None:
        """Verify the attempt, soon."""
        self._put(JobKind.VERIFY, attempt_id)

    def hurry(self, attempt: Attempt) -> None:
        """Do now what stands between the attempt and its next state, if it waits for another try or has failed."""
        found = self.of_attempt(attempt)
        if found is None or found.state in (JobState.WAITING, JobState.FAILED):
            self._follow_up(attempt)

    def dispose(self, attempt_id: str) -> None:
        """Clean up after an attempt that has ended, soon; a job that asks for it while it runs passes its place on."""
        with self._book.told:
            running = [self._book.jobs.get((kind, attempt_id)) for kind in (JobKind.VERIFY, JobKind.PUBLISH)]
            place = min((job.place for job in running if job is not None), default=None)
        self._put(JobKind.DISPOSE, attempt_id, place=place)

    def of_attempt(self, attempt: Attempt) -> JobStatus | None:
        """The job that stands between the attempt and its next state."""
        with self._book.told:
            for key in (
                (JobKind.VERIFY, attempt.attempt_id),
                (JobKind.PUBLISH, attempt.attempt_id),
                (JobKind.PUBLISH, attempt.workload_id),
            ):
                found = self._book.jobs.get(key)
                if found is not None:
                    return found.view()
        return None

    def listed(self) -> list[JobStatus]:
        """Every job that is not done."""
        with self._book.told:
            return [job.view() for job in self._book.jobs.values()]

    def wait(self, seconds: float) -> bool:
        """Wait until nothing is queued or runs; says whether that came in time."""
        busy = (JobState.QUEUED, JobState.RUNNING)
        with self._book.told:
            return self._book.told.wait_for(
                lambda: not any(job.state in busy for job in self._book.jobs.values()), seconds
            )

    def _put(self, kind: JobKind, subject: str, *, place: float | None = None) -> None:
        """Make the job due now. A new one is put last, or at the place of the job that it follows.

        A publication follows its verification, and a clean-up both, so that an attempt is finished before the next one
        is begun. Else the staging branches of all that wait would be live at once, and each change of the table costs
        more with every one of them. A second verification is put last, so that no attempt keeps the others waiting.
        """
        with self._book.told:
            job = self._book.jobs.get((kind, subject))
            if job is None:
                job = self._book.jobs[kind, subject] = _Job(kind, subject)
                if place is not None:
                    job.place = place
            if job.state is JobState.RUNNING:
                job.again = True
            else:
                job.state, job.due, job.tries, job.told = JobState.QUEUED, 0.0, 0, False
            self._book.told.notify_all()

    def _work(self) -> None:
        while (job := self._next()) is not None:
            try:
                self._run(job)
            except Exception as error:
                log_failure("job_met_a_bug", error, **self._facts(job))
                bug = PvdmError("bug", "the Steward met a bug", got=type(error).__name__, hint="its log has more")
                self._ended(job, JobState.FAILED, bug)

    def _keep_looking(self) -> None:
        while not self._stops_within(self._look_seconds):
            try:
                self._take_up()
                if self._unfinished.settling_is_due(self._clock.now_micros()):
                    self._put(JobKind.SETTLE, "")
            except PvdmError as error:
                log_warning("unfinished_work_not_known", code=error.code)

    def _stops_within(self, seconds: float) -> bool:
        with self._book.told:
            return self._book.told.wait_for(lambda: self._book.stopping, seconds)

    def _next(self) -> _Job | None:
        """The job that is due longest, once there is one; None when the service stops."""
        with self._book.told:
            while not self._book.stopping:
                now = time.monotonic()
                waiting = [job for job in self._book.jobs.values() if job.state in (JobState.QUEUED, JobState.WAITING)]
                due = min(waiting, key=lambda job: (job.due, job.place), default=None)
                if due is not None and due.due <= now:
                    due.state, due.tries = JobState.RUNNING, due.tries + 1
                    return due
                self._book.told.wait(None if due is None else due.due - now)
        return None

    def _run(self, job: _Job) -> None:
        try:
            self._done(job)
        except PvdmError as error:
            if not self._is_due(job):
                _log_of(error)("job_refused", code=error.code, **self._facts(job))
                self._ended(job, None, None)  # the refusal is in the ledger
                if job.kind is JobKind.PUBLISH and _is_unfinished(error):
                    # Or the commit is, and not what comes after it: the receipt, and the clean-up.
                    self._put(JobKind.SETTLE, "")
            elif isinstance(error, UnavailableError | RolledBackError | StateUnknownError):
                _log_of(error)("job_waits", code=error.code, **self._facts(job))
                self._ended(job, JobState.WAITING, error)
            else:
                log_failure("job_cannot_go_on", error, **self._facts(job))
                self._ended(job, JobState.FAILED, error)
        else:
            if job.kind in (JobKind.VERIFY, JobKind.PUBLISH) and self._is_due(job):
                raise AssertionError("a job that is done has moved its attempt")
            if job.kind is not JobKind.SETTLE:  # it is done all the time, and says itself what it could not do
                log_event("job_done", **self._facts(job))
            self._ended(job, None, None)

    def _facts(self, job: _Job) -> Facts:
        """What every line about the job says of it."""
        facts: Facts = {"job": job.kind.value, "tries": job.tries}
        if job.subject and LOGGER.isEnabledFor(logging.INFO):
            facts |= describe_work(self._ledger, job.subject)
        return facts

    def _done(self, job: _Job) -> None:
        match job.kind:
            case JobKind.VERIFY:
                if self._is_due(job):
                    self._tasks.verify(job.subject)
            case JobKind.PUBLISH:
                if isinstance(job.error, StateUnknownError):
                    self._tasks.settle()
                if due := self._due(job.subject):
                    self._tasks.publish(due[0].workload_id, [each.attempt_id for each in due])
            case JobKind.DISPOSE:
                self._tasks.dispose(job.subject)
            case JobKind.SETTLE:
                try:
                    self._tasks.settle()
                finally:
                    self._take_up()

    def _ended(self, job: _Job, state: JobState | None, error: PvdmError | None) -> None:
        """Forget the job, or keep it with its error; what follows from the ledger is due before it is forgotten."""
        touched = self._follow(job) if state is None else []
        with self._book.told:
            again, job.again = job.again, False
            if state is None:
                del self._book.jobs[job.kind, job.subject]
            else:
                job.state, job.error, job.told = state, error, True
                job.due = time.monotonic() + self._wait_seconds(job)
            self._book.told.notify_all()
        if again:
            self._put(job.kind, job.subject)
        for subject in dict.fromkeys((job.subject, *touched)):
            self._changed(subject)

    def _wait_seconds(self, job: _Job) -> float:
        """Twice as long each time; only another Steward's work may end at any moment, and with it the job here."""
        if job.error is not None and job.error.code == WORK_HELD:
            return _HELD_SECONDS
        return min(JOB_RETRY_MAX_SECONDS, self._retry_seconds * 2.0 ** min(job.tries - 1, 16))

    def _follow(self, job: _Job) -> list[str]:
        """Make due what follows from the job; gives the attempts that it may have moved."""
        if job.kind not in (JobKind.VERIFY, JobKind.PUBLISH):
            return []
        try:
            touched = self._touched(job.subject)
            for attempt in touched:
                self._follow_up(attempt, place=job.place)
        except PvdmError as error:
            # The ledger cannot be asked just now: settling is tried until it can, and takes everything up again.
            log_warning("job_followed_later", code=error.code, **self._facts(job))
            self._put(JobKind.SETTLE, "")
            return []
        return [attempt.attempt_id for attempt in touched]

    def _follow_up(self, attempt: Attempt, *, place: float | None = None) -> None:
        if attempt.state is AttemptState.VERIFYING:
            self._put(JobKind.VERIFY, attempt.attempt_id)
        elif attempt.state is AttemptState.COMMITTING and (due := self._due(attempt.attempt_id)):
            subject = publication_of(attempt.workload_id, [each.attempt_id for each in due])
            self._put(JobKind.PUBLISH, subject, place=place)

    def _take_up(self) -> None:
        """What is unfinished, has no job here, and no other Steward is working on."""
        for attempt in self._unfinished.attempts():
            if self.of_attempt(attempt) is None and not self._unfinished.is_worked_on(attempt):
                self._follow_up(attempt)

    def _touched(self, subject: str) -> list[Attempt]:
        """The attempts that a job about an attempt, or about a workload, may have moved."""
        with self._ledger.read() as unit:
            one = attempts.find(unit, subject)
            return attempts.list_live_of_workload(unit, subject) if one is None else [one]

    def _is_due(self, job: _Job) -> bool:
        """Whether the ledger still waits for it; who cannot ask the ledger goes by the job itself."""
        try:
            match job.kind:
                case JobKind.VERIFY:
                    with self._ledger.read() as unit:
                        found = attempts.find(unit, job.subject)
                    return found is not None and found.state is AttemptState.VERIFYING
                case JobKind.PUBLISH:
                    return bool(self._due(job.subject))
                case _:
                    return True
        except PvdmError:
            return True

    def _due(self, subject: str) -> list[Attempt]:
        """The attempts that are published together, if all that belong together are proved."""
        with self._ledger.read() as unit:
            one = attempts.find(unit, subject)
            workload: Workload = workloads.get(unit, subject if one is None else one.workload_id)
            if workload.opening.atomicity is Atomicity.CHUNK:
                return [one] if one is not None and one.state is AttemptState.COMMITTING else []
            live = attempts.list_live_of_workload(unit, workload.opening.workload_id)
            proved = [each for each in live if each.state is AttemptState.COMMITTING]
            return proved if len(proved) == chunks.count(unit, workload.opening.workload_id) else []


def _log_of(error: PvdmError) -> Callable[..., None]:
    """Work that another Steward does is nothing to look at; anything else is."""
    return log_event if error.code == WORK_HELD else log_warning


def _is_unfinished(error: PvdmError) -> bool:
    """Whether a commit may be done and its receipt not; what another Steward does is that Steward's to finish."""
    return isinstance(error, UnavailableError | StateUnknownError) and error.code != WORK_HELD
