"""The Steward's jobs: their order of verifying, publishing and cleaning up, and which errors they retry or show."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pvdm.api.work import JobState
from pvdm.errors import ConflictError, PvdmError, StateUnknownError, UnavailableError, VerificationError
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.work import attempts
from pvdm.model.contract import Atomicity
from pvdm.model.states import AttemptState
from pvdm.steward.pipeline.jobs import Jobs
from pvdm.steward.work.queries import JobStatus
from tests.support.steward.job_tasks import JobTasks, queue_verification
from tests.support.steward.notary import stand_at
from tests.support.waiting import eventually, wait_for_jobs
from tools.proof_kit import fixed

SECONDS = 20.0


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[JobTasks]:
    with stand_at(tmp_path, rooted=False) as stand:
        yield JobTasks(stand)


@contextlib.contextmanager
def run_jobs(desk: JobTasks, **options: float) -> Iterator[Jobs]:
    jobs = desk.jobs(threads=2, **options)
    jobs.start()
    try:
        yield jobs
    finally:
        jobs.stop()


def only_job(jobs: Jobs) -> JobStatus:
    (found,) = jobs.list_jobs()
    return found


def test_an_attempt_that_passes_is_published_and_its_job_removed(desk: JobTasks) -> None:
    (one,) = desk.attempts("a")
    desk.verify, desk.publish = desk.passed, desk.published
    with run_jobs(desk) as jobs:
        queue_verification(jobs, one)
        assert wait_for_jobs(jobs, SECONDS)
        assert (desk.attempt(one).state, jobs.list_jobs()) == (AttemptState.COMMITTED, [])
    assert desk.calls("publish") == [(one,)]
    assert one in desk.changed_attempts


def test_an_attempt_is_published_and_cleaned_up_before_the_next_one_begins(desk: JobTasks) -> None:
    ids = desk.attempts("a", "b", "c")
    jobs = desk.jobs(threads=1)

    def publish(attempt_ids: Sequence[str]) -> None:
        desk.published(attempt_ids)
        jobs.dispose(attempt_ids[0])

    desk.verify, desk.publish = desk.passed, publish
    for each in ids:
        queue_verification(jobs, each)
    jobs.start()
    assert wait_for_jobs(jobs, SECONDS)
    jobs.stop()
    steps = [each for each in desk.calls_made if each[0] != "settle"]
    assert steps == [step for each in ids for step in (("verify", each), ("publish", (each,)), ("dispose", each))]


def test_a_clean_up_waits_for_earlier_jobs(desk: JobTasks) -> None:
    rolled_back, waiting = desk.attempts("a", "b")
    desk.end(rolled_back, AttemptState.ROLLED_BACK)
    desk.verify = desk.failed
    jobs = desk.jobs(threads=1)
    queue_verification(jobs, waiting)
    jobs.dispose(rolled_back)
    jobs.start()
    assert wait_for_jobs(jobs, SECONDS)
    jobs.stop()
    assert [each for each in desk.calls_made if each[0] != "settle"] == [("verify", waiting), ("dispose", rolled_back)]


def test_an_attempt_that_is_sent_back_is_verified_after_the_waiting_ones(desk: JobTasks) -> None:
    sent_back, waiting = desk.attempts("a", "b")
    jobs = desk.jobs(threads=1)

    def publish(attempt_ids: Sequence[str]) -> None:
        if desk.calls("publish").count((sent_back,)) == 1 and attempt_ids[0] == sent_back:
            nonce = fixed("third", 16)
            desk.change(
                lambda unit: attempts.begin_verifying(
                    unit, sent_back, nonce=nonce, staged_snapshot_id="8", reason="moved"
                )
            )
            desk.verify = desk.failed
            raise ConflictError("base_moved", "main has moved")
        desk.published(attempt_ids)

    desk.verify, desk.publish = desk.passed, publish
    for each in (sent_back, waiting):
        queue_verification(jobs, each)
    jobs.start()
    assert wait_for_jobs(jobs, SECONDS)
    jobs.stop()
    assert desk.calls("verify") == [sent_back, waiting, sent_back]


def test_the_end_of_a_job_reports_one_change_of_its_attempt(desk: JobTasks) -> None:
    (one,) = desk.attempts("a")
    desk.verify = desk.failed
    jobs = desk.jobs(threads=1)
    queue_verification(jobs, one)
    jobs.start()
    assert wait_for_jobs(jobs, SECONDS)
    jobs.stop()
    assert desk.changed_attempts.count(one) == 1


def test_a_second_request_retries_at_once_and_clears_the_old_problem(desk: JobTasks) -> None:
    (one,) = desk.attempts("a")
    looked, seen = threading.Event(), list[JobStatus | None]()

    def fail_to_read(_: str) -> None:
        raise UnavailableError("source_unreadable", "the source is gone")

    def verify_and_look(attempt_id: str) -> None:
        seen.append(jobs.find_job(desk.attempt(attempt_id)))
        desk.passed(attempt_id)
        looked.set()

    desk.verify, desk.publish = fail_to_read, desk.published
    with run_jobs(desk, retry_seconds=600) as jobs:
        queue_verification(jobs, one)
        assert wait_for_jobs(jobs, SECONDS)
        waiting = only_job(jobs)
        assert (waiting.state, waiting.tries, waiting.error is not None) == (JobState.WAITING, 1, True)
        assert waiting.again_seconds is not None
        assert 0 < waiting.again_seconds <= 60
        desk.verify = verify_and_look
        jobs.hurry(desk.attempt(one))
        assert looked.wait(SECONDS)
        assert wait_for_jobs(jobs, SECONDS)
    (running,) = seen
    assert running is not None
    assert (running.state, running.tries, running.error, running.again_seconds) == (JobState.RUNNING, 1, None, None)
    assert desk.attempt(one).state is AttemptState.COMMITTED


def test_a_waiting_publication_is_retried_at_once_when_hurried(desk: JobTasks) -> None:
    (one,) = desk.attempts("a")

    def fail(_: Sequence[str]) -> None:
        raise UnavailableError("vault_unreachable", "not now")

    desk.verify, desk.publish = desk.passed, fail
    with run_jobs(desk, retry_seconds=600) as jobs:
        queue_verification(jobs, one)
        assert wait_for_jobs(jobs, SECONDS)
        desk.publish = desk.published
        jobs.hurry(desk.attempt(one))
        assert wait_for_jobs(jobs, SECONDS)
    assert desk.attempt(one).state is AttemptState.COMMITTED


def test_an_attempt_that_fails_is_not_published(desk: JobTasks) -> None:
    (one,) = desk.attempts("a")
    desk.verify = desk.failed
    with run_jobs(desk) as jobs:
        queue_verification(jobs, one)
        assert wait_for_jobs(jobs, SECONDS)
        assert (desk.calls("publish"), jobs.list_jobs()) == ([], [])


def test_a_workload_is_published_when_all_its_chunks_are_proved(desk: JobTasks) -> None:
    one, two = desk.attempts("a", "b", atomicity=Atomicity.WORKLOAD)
    ready = threading.Event()

    def verify(attempt_id: str) -> None:
        if attempt_id == two:
            ready.wait(SECONDS)
        desk.passed(attempt_id)

    desk.verify, desk.publish = verify, desk.published
    with run_jobs(desk) as jobs:
        queue_verification(jobs, one)
        queue_verification(jobs, two)
        while desk.attempt(one).state is not AttemptState.COMMITTING:
            pass
        assert desk.calls("publish") == []
        ready.set()
        assert wait_for_jobs(jobs, SECONDS)
    assert desk.calls("publish") == [tuple(sorted((one, two)))]


def test_a_start_settles_first_and_continues_interrupted_attempts(desk: JobTasks) -> None:
    one, two = desk.attempts("a", "b")
    desk.passed(two)
    desk.verify, desk.publish = desk.passed, desk.published
    with run_jobs(desk) as jobs:
        assert wait_for_jobs(jobs, SECONDS)
    assert desk.calls_made[0] == ("settle", None)
    assert desk.calls("verify") == [one]
    assert sorted(map(str, desk.calls("publish"))) == sorted(map(str, [(one,), (two,)]))


@pytest.mark.parametrize(
    "error",
    [UnavailableError("ledger_busy", "busy"), ConflictError("table_moved", "moved"), StateUnknownError("lost", "lost")],
    ids=lambda error: type(error).__name__,
)
def test_an_error_that_is_no_verdict_is_shown_and_retried(desk: JobTasks, error: PvdmError) -> None:
    (one,) = desk.attempts("a")
    tries: list[None] = []
    broken = threading.Event()

    def verify(attempt_id: str) -> None:
        tries.append(None)
        if not broken.is_set():
            raise error
        desk.passed(attempt_id)

    desk.verify, desk.publish = verify, desk.published
    with run_jobs(desk, retry_seconds=60) as jobs:
        assert wait_for_jobs(jobs, SECONDS)
        seen = jobs.find_job(desk.attempt(one))
        assert seen is not None
        assert (seen.state, seen.tries, seen.error) == (JobState.WAITING, 1, error)
        assert desk.attempt(one).state is AttemptState.VERIFYING
    broken.set()
    with run_jobs(desk) as jobs:
        assert wait_for_jobs(jobs, SECONDS)
    assert (len(tries), desk.attempt(one).state) == (2, AttemptState.COMMITTED)


def test_a_waiting_job_is_retried_when_it_is_due(desk: JobTasks) -> None:
    (one,) = desk.attempts("a")
    done = threading.Event()

    def verify(attempt_id: str) -> None:
        if len(desk.calls("verify")) < 3:
            raise UnavailableError("ledger_busy", "busy")
        desk.failed(attempt_id)
        done.set()

    desk.verify = verify
    with run_jobs(desk, retry_seconds=0.01):
        assert done.wait(SECONDS)
    assert desk.calls("verify") == [one] * 3


def test_a_publication_with_an_unknown_outcome_is_settled_before_it_is_retried(desk: JobTasks) -> None:
    (one,) = desk.attempts("a")
    desk.passed(one)

    def publish(attempt_ids: Sequence[str]) -> None:
        if len(desk.calls("publish")) == 1:
            raise StateUnknownError("commit_unknown", "no answer")
        desk.published(attempt_ids)

    desk.publish = publish
    with run_jobs(desk, retry_seconds=0.01) as jobs:
        while desk.attempt(one).state is not AttemptState.COMMITTED:
            pass
        assert wait_for_jobs(jobs, SECONDS)
    assert [what for what, _ in desk.calls_made] == ["settle", "publish", "settle", "publish"]


def test_a_publication_that_committed_before_the_ledger_was_lost_gets_its_receipt_at_the_next_try(
    desk: JobTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is of the look-up after the commit, so it does not say that the state is unknown."""
    (one,) = desk.attempts("a")
    desk.passed(one)
    ledger_away = threading.Event()
    has_work = Jobs._has_work

    def publish(attempt_ids: Sequence[str]) -> None:
        desk.published(attempt_ids)
        ledger_away.set()
        raise UnavailableError("ledger_unreachable", "the database restarts")

    def look_again(jobs: Jobs, job: Any) -> bool | None:
        return None if ledger_away.is_set() else has_work(jobs, job)

    desk.publish, desk.settle = publish, ledger_away.clear
    monkeypatch.setattr(Jobs, "_has_work", look_again)
    with run_jobs(desk, retry_seconds=0.01) as jobs:
        assert eventually(lambda: len(desk.calls("settle")) == 2)
        assert wait_for_jobs(jobs, SECONDS)
    assert [what for what, _ in desk.calls_made] == ["settle", "publish", "settle"]


@pytest.mark.parametrize("error", [UnavailableError("disk_full", "full"), StateUnknownError("unknown", "unknown")])
def test_a_committed_publication_that_is_not_finished_is_settled_until_it_is(desk: JobTasks, error: PvdmError) -> None:
    """Receipt and clean-up come after the commit, when the state of the attempt no longer shows that work is left."""
    (one,) = desk.attempts("a")
    desk.passed(one)
    done = threading.Event()

    def publish(attempt_ids: Sequence[str]) -> None:
        desk.published(attempt_ids)
        raise error

    def settle() -> None:
        if len(desk.calls("settle")) in (2, 3):
            raise UnavailableError("disk_full", "still")
        if len(desk.calls("settle")) == 4:
            done.set()

    desk.publish, desk.settle = publish, settle
    with run_jobs(desk, retry_seconds=0.01):
        assert done.wait(SECONDS)
    assert [what for what, _ in desk.calls_made] == ["settle", "publish", "settle", "settle", "settle"]


@pytest.mark.parametrize("step", ["verify", "publish"])
def test_a_ledger_that_cannot_be_read_after_a_step_leaves_no_failed_job(
    desk: JobTasks, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    (one,) = desk.attempts("a")
    steps: dict[str, Callable[[Any], None]] = {"verify": desk.passed, "publish": desk.published}
    ledger_away = threading.Event()

    def take_ledger_away(subject: Any) -> None:
        steps[step](subject)
        ledger_away.set()

    steps_with_fault = {**steps, step: take_ledger_away}
    desk.verify, desk.publish = steps_with_fault["verify"], steps_with_fault["publish"]
    read, failures = Ledger.read, itertools.count()

    def read_or_fail(ledger: Ledger) -> contextlib.AbstractContextManager[Unit]:
        if ledger_away.is_set() and threading.current_thread() is not threading.main_thread():
            if next(failures) == 3:
                ledger_away.clear()
            raise UnavailableError("ledger_unreachable", "the database restarts")
        return read(ledger)

    monkeypatch.setattr(Ledger, "read", read_or_fail)
    with run_jobs(desk, retry_seconds=0.01) as jobs:
        assert eventually(lambda: desk.attempt(one).state is AttemptState.COMMITTED and not ledger_away.is_set())
        assert wait_for_jobs(jobs, SECONDS)
        assert [job for job in jobs.list_jobs() if job.state is JobState.FAILED] == []


def test_a_start_that_cannot_settle_still_continues_interrupted_attempts(desk: JobTasks) -> None:
    (one,) = desk.attempts("a")

    def settle() -> None:
        if len(desk.calls("settle")) == 1:
            raise UnavailableError("disk_full", "full")

    desk.verify, desk.publish, desk.settle = desk.passed, desk.published, settle
    with run_jobs(desk, retry_seconds=60) as jobs:
        assert wait_for_jobs(jobs, SECONDS)
    assert desk.attempt(one).state is AttemptState.COMMITTED


def test_a_bug_fails_the_job_and_leaves_the_attempt(desk: JobTasks) -> None:
    one, two = desk.attempts("a", "b")

    def verify(attempt_id: str) -> None:
        if attempt_id == one:
            raise ZeroDivisionError
        desk.failed(attempt_id)

    desk.verify = verify
    with run_jobs(desk) as jobs:
        assert wait_for_jobs(jobs, SECONDS)
        assert (only_job(jobs).subject, only_job(jobs).state) == (one, JobState.FAILED)
        error = only_job(jobs).error
        assert error is not None
        assert (error.reason, error.got) == ("bug", "ZeroDivisionError")
    assert desk.attempt(one).state is AttemptState.VERIFYING
    assert desk.attempt(two).state is AttemptState.VERIFICATION_FAILED


def test_a_permanent_error_fails_the_job_without_a_retry(desk: JobTasks) -> None:
    (one,) = desk.attempts("a")

    def verify(_: str) -> None:
        raise VerificationError("metadata_file_changed", "somebody changed it")

    desk.verify = verify
    with run_jobs(desk, retry_seconds=0.001) as jobs:
        assert wait_for_jobs(jobs, SECONDS)
        assert (only_job(jobs).state, only_job(jobs).tries) == (JobState.FAILED, 1)
        desk.verify = desk.failed
        queue_verification(jobs, one)
        assert wait_for_jobs(jobs, SECONDS)
        assert jobs.list_jobs() == []


def test_a_refusal_that_moved_the_attempt_ends_the_job(desk: JobTasks) -> None:
    (one,) = desk.attempts("a")

    def publish(_: Sequence[str]) -> None:
        desk.failed(one)
        raise VerificationError("chunk_published", "published before")

    desk.verify, desk.publish = desk.passed, publish
    with run_jobs(desk) as jobs:
        assert wait_for_jobs(jobs, SECONDS)
        assert jobs.list_jobs() == []
    assert desk.attempt(one).state is AttemptState.VERIFICATION_FAILED


def test_an_attempt_that_the_gate_sends_back_is_verified_again(desk: JobTasks) -> None:
    (one,) = desk.attempts("a")

    def verify_again(unit: Unit) -> None:
        nonce = fixed("third", 16)
        attempts.begin_verifying(unit, one, nonce=nonce, staged_snapshot_id="8", reason="main moved")

    def publish(_: Sequence[str]) -> None:
        desk.verify = desk.failed
        desk.change(verify_again)
        raise VerificationError("boundary_moved", "main has moved")

    desk.verify, desk.publish = desk.passed, publish
    with run_jobs(desk) as jobs:
        assert wait_for_jobs(jobs, SECONDS)
    assert desk.calls("verify") == [one, one]
    assert desk.attempt(one).state is AttemptState.VERIFICATION_FAILED


def test_a_job_that_does_not_change_its_attempt_fails_without_a_loop(desk: JobTasks) -> None:
    desk.attempts("a")
    with run_jobs(desk) as jobs:
        assert wait_for_jobs(jobs, SECONDS)
        assert only_job(jobs).state is JobState.FAILED
    assert len(desk.calls("verify")) == 1


def test_the_job_of_an_attempt_that_was_rolled_back_meanwhile_ends(desk: JobTasks) -> None:
    (one,) = desk.attempts("a")

    def verify(attempt_id: str) -> None:
        desk.end(attempt_id, AttemptState.ROLLED_BACK)
        raise ConflictError("attempt_moved", "the attempt is not being verified")

    desk.verify = verify
    with run_jobs(desk) as jobs:
        assert wait_for_jobs(jobs, SECONDS)
        assert jobs.list_jobs() == []
    assert desk.attempt(one).state is AttemptState.ROLLED_BACK


def test_a_stop_waits_for_running_jobs_and_begins_no_more(desk: JobTasks) -> None:
    ids = desk.attempts("a", "b", "c")
    running, go = threading.Semaphore(0), threading.Event()

    def verify(attempt_id: str) -> None:
        running.release()
        go.wait(SECONDS)
        desk.failed(attempt_id)

    desk.verify = verify
    jobs = desk.jobs(threads=2)
    jobs.start()
    for _ in range(2):
        assert running.acquire(timeout=SECONDS)
    stopping = threading.Thread(target=jobs.stop)
    stopping.start()
    go.set()
    stopping.join(SECONDS)
    states = sorted(desk.attempt(each).state for each in ids)
    assert states == [AttemptState.VERIFICATION_FAILED] * 2 + [AttemptState.VERIFYING]


def test_two_requests_before_a_job_runs_are_done_once(desk: JobTasks) -> None:
    jobs = desk.jobs(threads=2)
    jobs.dispose("x")
    jobs.dispose("x")
    jobs.start()
    try:
        assert wait_for_jobs(jobs, SECONDS)
    finally:
        jobs.stop()
    assert desk.calls("dispose") == ["x"]
