"""Runs the chunks of a workload to their end."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

from pvdm.api.work import AttemptView, ChunkView, WorkloadView
from pvdm.client import StewardClient
from pvdm.durable import failure_text
from pvdm.durable.chunk import Chunk, Source
from pvdm.durable.lease import HeldLease, hold_lease
from pvdm.durable.outcome import (
    Activity,
    ChunkOutcome,
    Committed,
    Outcome,
    RolledBack,
    SourceMoved,
    Step,
    VerificationFailed,
    Watch,
    extent_of,
    find_source_move,
)
from pvdm.durable.parallel import WorkThreads
from pvdm.durable.progress import count_handed_in
from pvdm.durable.segment import Segment
from pvdm.errors import Code, ConflictError, PvdmError, RolledBackError, StateUnknownError, UnavailableError
from pvdm.model.contract import BoundContract
from pvdm.model.statements.core import Operation
from pvdm.model.states import LEASE_SECONDS, ROLLED_BACK_MAX, WITH_STEWARD, AttemptState, WorkloadState, needs_reason
from pvdm.physical.stager import Destination, Stager
from pvdm.physical.watchdog import STOP_SECONDS, SigtermReceived, raise_on_sigterm, run_watched

CHUNKS_PAGE: Final = 500
PROBLEM_TRIES: Final = 5
WAIT_SECONDS: Final = 20.0  # how long one call waits for the end of an attempt
# After an interruption: the longest time for stopping Spark and for rolling the attempts back.
_ROLLBACK_SECONDS: Final = 1.5 * STOP_SECONDS
_FIRST_REASON: Final = "the first attempt"
_RETRY_REASON: Final = "continued by another run"
_UNCHANGED_NOTE: Final = (
    "partitions without a selected row stay as they are; declare boundary.partition to delete all rows of one"
)

MakeRows = Callable[[Chunk], Any]
"""Makes a chunk's rows, in the form that the stager needs."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a run. `repair_reason` says why failed chunks are tried again; None if they are not.

    `get_stager` is called when there is a chunk to stage, since it may start Spark. `opened_attempt` is the id of an
    attempt that the caller has just opened: this run counts as its publisher. The run renews its lease within
    `lease_seconds`. With `take_over` it ends the lease that another run had when this run began. `stages_rows` is
    False if the rows are staged already. `parallel` is the number of chunks that the run works on at a time.
    """

    make_rows: MakeRows
    get_stager: Callable[[], Stager[Any]]
    source: Source | None
    watch: Watch
    segment: Segment
    lease_seconds: int = LEASE_SECONDS
    take_over: bool = False
    stages_rows: bool = True
    parallel: int = 1
    repair_reason: str | None = None
    opened_attempt: str | None = None


class Run:
    """Begins the chunks in the plan's order. After a failed chunk it begins no other: all chunks have the same job.

    Threads work on the chunks, and the lock protects what the threads share. The calling thread can be interrupted.
    """

    def __init__(self, client: StewardClient, workload: WorkloadView, bound: BoundContract, settings: Settings) -> None:
        self._client = client
        self._workload = workload
        self._bound = bound
        self._settings = settings
        self._table = workload.table or bound.contract.boundary.target
        self._attempts: dict[str, AttemptView] = {}  # the last attempt at each chunk, by the chunk's id
        self._published_before: set[str] = set()
        self._failed: tuple[ChunkView, AttemptView] | None = None  # a chunk that failed while others waited
        self._plan_indexes: dict[str, int] = {}
        self._failed_before: set[str] = set()  # failed in an earlier run, and not tried again in this run
        self._source_noted = False
        self._staged = 0  # how many attempts this run has begun
        self._staging: set[str] = set()  # the chunks that are being staged
        self._interrupted = False
        self._lease: HeldLease | None = None
        self._lock = threading.RLock()
        self._at_end = contextlib.ExitStack()

    def execute(self) -> Outcome:
        """Run to the end, or until an interruption or a rollback. Raises other errors.

        Raises `workload_leased` if another run holds the workload's lease.
        """
        if self._workload.state is WorkloadState.ABANDONED:
            return self._rolled_back_outcome(failure_text.abandoned_error(self._workload))
        outcome: Outcome | None = None
        try:
            with raise_on_sigterm(), self._at_end:
                if self._settings.stages_rows:
                    self._hold_lease_if_needed()
                outcome = self._run_chunks()
        except (KeyboardInterrupt, SigtermReceived):  # perhaps while the lease was released
            outcome = outcome or self._rolled_back_outcome(self._interrupted_error())
        except RolledBackError as error:
            if error.code == Code.WORKLOAD_LEASED:
                raise
            outcome = self._rolled_back_outcome(error)
        return outcome

    def _hold_lease_if_needed(self) -> None:
        """Acquire the lease at the start, so that a second run ends before it has staged anything.

        If every chunk is handed in, the run waits without a lease, since the workload's deadline may have passed.
        """
        workload = self._workload
        if workload.state is WorkloadState.OPEN and count_handed_in(workload) < workload.chunk_count:
            try:
                self._hold_lease()
            except ConflictError as error:
                if error.code != Code.WORKLOAD_MOVED:  # another run has just completed it
                    raise

    def _hold_lease(self) -> HeldLease:
        """The lease of this run, acquired at the first call and released at the end of the run."""
        with self._lock:
            if self._lease is None:
                settings, workload = self._settings, self._workload
                ended = workload.lease.lease_number if settings.take_over and workload.lease is not None else None
                seconds = settings.lease_seconds
                lease = hold_lease(self._client, workload.workload_id, seconds=seconds, take_over_from=ended)
                self._lease = self._at_end.enter_context(lease)
            return self._lease

    def _run_chunks(self) -> Outcome:
        completed = self._complete_chunks()
        for chunk, attempt in completed:
            if _is_failure(attempt):
                return self._failed_outcome(chunk, attempt)
        # With `atomicity: workload`, a proved chunk waits until all chunks are proved.
        for chunk, attempt in (each for each in completed if each[1].waiting):
            ended_chunk, ended = chunk, self._await_attempt(chunk, attempt, until_published=True)
            if self._failed is not None:
                ended_chunk, ended = self._failed
            self._attempts[ended_chunk.chunk_id] = ended
            if ended.state is not AttemptState.COMMITTED:
                return self._failed_outcome(ended_chunk, ended)
        moved, note = self._find_source_move(), self._unchanged_note()
        return Committed(self._workload.workload_id, self._table, self._outcomes(), moved, note)

    def _complete_chunks(self) -> list[tuple[ChunkView, AttemptView]]:
        """Bring the chunks to their ends, in the plan's order, until one of them fails."""
        threads = WorkThreads(self._complete_chunk, threads=self._settings.parallel, is_failure=_is_failure)
        try:
            return threads.run(self._read_plan())
        except (KeyboardInterrupt, SigtermReceived):
            self._interrupted = True
            error = threads.stop(while_needed=lambda: bool(self._staging), seconds=_ROLLBACK_SECONDS)
            if isinstance(error, PvdmError):
                raise error from None  # this error says what happened to the rows
            raise

    def _unchanged_note(self) -> str | None:
        """A note if an overwrite of partitions had no rows and so replaced nothing."""
        operation, extent = self._bound.contract.boundary.operation, extent_of(self._outcomes())
        if operation is not Operation.OVERWRITE_PARTITIONS or self._bound.partition or extent is None:
            return None
        return None if extent.rows_added or extent.files_removed else _UNCHANGED_NOTE

    def _find_source_move(self) -> SourceMoved | None:
        """The source's newest snapshot if it is not the pinned one, by the workload as it was last read; else None."""
        appends = self._bound.contract.boundary.operation is Operation.APPEND
        return find_source_move(self._workload, self._outcomes(), appends=appends)

    def _read_plan(self) -> Iterator[ChunkView]:
        read = 0
        while page := self._client.chunks(self._workload.workload_id, after=read, limit=CHUNKS_PAGE):
            self._plan_indexes |= {chunk.chunk_id: index for index, chunk in enumerate(page, read)}
            yield from page
            read += len(page)

    def _complete_chunk(self, chunk: ChunkView) -> AttemptView:
        """Bring the chunk's last attempt, or new attempts, to their end; returns the last attempt."""
        settled = self._settle_last(chunk)
        attempt = settled if isinstance(settled, AttemptView) else self._try_chunk(chunk, settled)
        while (reason := self._find_automatic_repair(chunk, attempt)) is not None:
            self._failed_before.discard(chunk.chunk_id)
            attempt = self._try_chunk(chunk, reason)
        self._attempts[chunk.chunk_id] = attempt
        return attempt

    def _settle_last(self, chunk: ChunkView) -> AttemptView | str:
        """End the chunk's last attempt. Returns the attempt if it decides the chunk; else the reason for a new one."""
        last, reason = chunk.attempt, _FIRST_REASON
        if last is not None:
            is_of_earlier_run = last.attempt_id != self._settings.opened_attempt
            match last.state:
                case AttemptState.COMMITTED:
                    self._attempts[chunk.chunk_id] = last
                    if is_of_earlier_run:
                        self._published_before.add(chunk.chunk_id)
                    self._report(chunk, Activity.SKIPPED if is_of_earlier_run else Activity.PUBLISHED, last)
                    return last
                case AttemptState.VERIFYING | AttemptState.COMMITTING:
                    if last.problem is not None:
                        # If the attempt is handed in again, the Steward tries at once: the cause may be gone.
                        last = self._client.staged(last.attempt_id)
                    return self._await_attempt(chunk, last)
                case AttemptState.STAGING:
                    self._report(chunk, Activity.ABORTING_EARLIER, last)
                    self._client.abort_attempt(
                        last.attempt_id, failure_text.TAKEN_OVER, self._hold_lease().lease_number
                    )
                    reason = _RETRY_REASON
                case ended:
                    if self._settings.repair_reason is None and needs_reason(ended, refused=last.refusal is not None):
                        if is_of_earlier_run:
                            self._failed_before.add(chunk.chunk_id)
                        self._report(chunk, Activity.FAILED_BEFORE if is_of_earlier_run else Activity.FAILED, last)
                        return last
                    reason = self._settings.repair_reason or _RETRY_REASON
        return reason

    def _find_automatic_repair(self, chunk: ChunkView, attempt: AttemptView) -> str | None:
        """The reason for a new attempt after a failure, if the contract allows an automatic repair; else None."""
        allowed = self._bound.contract.governance.automatic_repairs
        if not allowed or attempt.state is not AttemptState.VERIFICATION_FAILED or not self._settings.stages_rows:
            return None
        if attempt.refusal is not None and attempt.refusal.code == Code.CLAIM_REFUSED:
            return None  # another workload has published these rows
        failed = sum(1 for each in self._read_attempts(chunk) if each.state is AttemptState.VERIFICATION_FAILED)
        return f"automatic repair {failed} of {allowed}" if failed <= allowed else None

    def _read_attempts(self, chunk: ChunkView) -> tuple[AttemptView, ...]:
        """Every attempt at the chunk."""
        workload_id, index = self._workload.workload_id, self._plan_indexes[chunk.chunk_id]
        found = self._client.workload(workload_id, chunks_after=index, limit=1, look_up_source=False)
        return found.attempts

    def _try_chunk(self, chunk: ChunkView, reason: str) -> AttemptView:
        """Stage the chunk in a new attempt, and wait for its end."""
        self._staging.add(chunk.chunk_id)  # before the check: an interrupted run waits for these chunks
        try:
            self._require_time()
            with self._lock:
                self._settings.segment.require_room(self._staged)
                self._settings.get_stager()  # first, so that no attempt is opened that cannot be staged
                self._staged += 1
            self._require_time()  # again, since Spark takes long to start
            lease = self._hold_lease()
            opened = self._client.next_attempt(self._workload.workload_id, chunk.chunk_id, reason, lease.lease_number)
            self._attempts[chunk.chunk_id] = opened
            handed_in = self._stage_and_hand_in(chunk, opened)
        finally:
            self._staging.discard(chunk.chunk_id)
        return self._await_attempt(chunk, handed_in)

    def _source_note(self) -> str | None:
        """A note before the first chunk is staged, if the source has newer rows than will be published."""
        with self._lock:
            moved = None if self._source_noted else self._find_source_move()
            self._source_noted = True
        return None if moved is None else str(moved)

    def _stage_and_hand_in(self, chunk: ChunkView, attempt: AttemptView) -> AttemptView:
        """Stage the rows and hand in the attempt. After an error, abort it unless it may have been handed in."""
        try:
            self._report(chunk, Activity.STAGING, attempt, note=self._source_note())
        except BaseException as error:
            self._abort_after(chunk, attempt, error)
            raise
        try:
            self._stage(chunk, attempt)
        except BaseException as error:
            failure = self._abort_after(chunk, attempt, error)
            if failure is error:
                raise
            raise failure from error
        return self._hand_in(chunk, attempt)

    def _stage(self, chunk: ChunkView, attempt: AttemptView) -> None:
        destination = Destination(
            steward_url=self._client.url,
            table=self._table,
            branch=attempt.branch,
            prefix=attempt.prefix,
            workload_id=attempt.workload_id,
            chunk_id=attempt.chunk_id,
            attempt_id=attempt.attempt_id,
            token=self._client.attempt_token(attempt.attempt_id).token,
            operation=self._bound.contract.boundary.operation,
            partition=self._bound.partition,
        )
        settings, stager = self._settings, self._settings.get_stager()
        chunk_for_job = Chunk.of(self._workload, chunk, settings.source)
        run_watched(
            lambda: stager.stage(lambda: settings.make_rows(chunk_for_job), destination),
            cancel=lambda: stager.cancel(destination),
            check=self._require_time_and_lease,
        )

    def _require_time(self) -> None:
        """Raise if the run is interrupted, or its segment has to stop."""
        if self._interrupted:
            raise self._interrupted_error()
        self._settings.segment.require_time()

    def _require_time_and_lease(self) -> None:
        """Raise as `_require_time`, for an attempt that is being staged; raise also if the lease is lost."""
        if self._interrupted:
            raise Code.ATTEMPT_INTERRUPTED("the attempt was interrupted and stopped")
        self._require_time()
        self._hold_lease().require()

    def _interrupted_error(self) -> PvdmError:
        staged = any(each.state in WITH_STEWARD for each in tuple(self._attempts.values()))
        return failure_text.interrupted_error(staged=staged)

    def _abort_after(self, chunk: ChunkView, attempt: AttemptView, error: BaseException) -> BaseException:
        """Abort the attempt after an error; returns the error for the caller."""
        reason = failure_text.reason_for(error)
        aborted = self._abort(attempt, reason)
        failure: BaseException
        lost = next((each for each in (error, aborted) if _is_lease_over(each)), None)
        if lost is not None:
            failure = self._hold_lease().find_loss(lost)
            attempt = attempt if isinstance(aborted, PvdmError) else aborted
            self._attempts[chunk.chunk_id] = attempt
        elif isinstance(aborted, PvdmError):
            failure = failure_text.unreported_error(error, attempt, aborted)
        else:
            attempt, failure = aborted, failure_text.staging_error(error, reason, aborted)
            self._attempts[chunk.chunk_id] = attempt
        self._report(chunk, FINAL_ACTIVITIES.get(attempt.state, Activity.LEFT), attempt, problem=str(failure)[:200])
        if isinstance(failure, RolledBackError) and failure.code != Code.ATTEMPT_TAKEN_OVER:
            failure.hint = self._attempts_exhausted_hint(chunk, attempt) or failure.hint
        return failure

    def _abort(self, attempt: AttemptView, reason: str) -> AttemptView | PvdmError:
        """Abort the attempt; returns the attempt as it is now, or the error if it may still be STAGING.

        This does not wait for a restarting Steward: the user may have interrupted the run. The next run tries again.
        """
        client = self._client.with_patience(patient=False)
        try:
            return client.abort_attempt(attempt.attempt_id, reason, self._hold_lease().lease_number)
        except PvdmError as error:
            if _is_lease_over(error):
                return error
        try:
            found = client.attempt(attempt.attempt_id)
        except PvdmError as error:
            return error
        if found.state is AttemptState.STAGING:
            return Code.ATTEMPT_LEFT_STAGING("the attempt could not be aborted", got="STAGING")
        return found

    def _hand_in(self, chunk: ChunkView, attempt: AttemptView) -> AttemptView:
        try:
            return self._client.staged(attempt.attempt_id)
        except (StateUnknownError, UnavailableError):
            raise  # the Steward may have got the hand-in
        except PvdmError as error:
            if error.code != Code.ATTEMPT_MOVED:
                self._abort_after(chunk, attempt, error)
                raise
            attempt = self._client.attempt(attempt.attempt_id)
            self._attempts[chunk.chunk_id] = attempt
            raise failure_text.ended_elsewhere_error(attempt) from error

    def _attempts_exhausted_hint(self, chunk: ChunkView, attempt: AttemptView) -> str:
        """The next step if no attempt at the chunk is left; else empty."""
        failed_max = self._bound.contract.governance.attempts_max
        if attempt.number < min(failed_max, ROLLED_BACK_MAX):
            return ""  # neither failed nor rolled back attempts can have reached their limit
        workload_id = self._workload.workload_id
        try:
            attempts = self._read_attempts(chunk)
        except PvdmError:
            return f"`pvdm status --workload-id {workload_id}` shows whether the chunk may be attempted again"
        return failure_text.attempts_exhausted_hint(workload_id, attempts, failed_max=failed_max)

    def _await_attempt(self, chunk: ChunkView, attempt: AttemptView, *, until_published: bool = False) -> AttemptView:
        """Wait until the attempt has ended, or is proved and waits for the other chunks.

        With `until_published`, wait until it has ended, or until a failure of another chunk, which goes to `_failed`.
        """
        self._attempts[chunk.chunk_id] = attempt
        while not attempt.settled or (until_published and attempt.waiting):
            problem = attempt.problem
            if problem is not None or not until_published:  # while chunks wait, only problems are reported
                self._report(chunk, Activity.VERIFYING, attempt, problem=None if problem is None else problem.message)
            require_progress(attempt)
            self._require_time()
            if until_published and attempt.waiting:
                self._failed = self._find_failed()
                if self._failed is not None:
                    return attempt
                time.sleep(0.2)  # `await_attempt` returns at once for a waiting attempt
            seconds = min(WAIT_SECONDS, self._settings.segment.remaining_seconds)
            attempt = self._client.await_attempt(attempt.attempt_id, seconds=seconds)
        if attempt.state not in FINAL_ACTIVITIES and not attempt.waiting:
            raise failure_text.stuck_error(attempt)  # the Steward's job has failed
        self._attempts[chunk.chunk_id] = attempt  # before the report, which counts published chunks
        self._report(chunk, FINAL_ACTIVITIES.get(attempt.state, Activity.WAITING), attempt)
        return attempt

    def _find_failed(self) -> tuple[ChunkView, AttemptView] | None:
        """The first chunk whose last attempt has ended unpublished, and that attempt; else None."""
        workload = self._client.workload(self._workload.workload_id, limit=1, look_up_source=False).workload
        if not _UNPUBLISHED & {each.state for each in workload.chunk_states}:
            return None
        for chunk in self._read_plan():  # all chunks, since the gate may refuse any of them
            if chunk.attempt is not None and chunk.attempt.state in _UNPUBLISHED:
                return chunk, chunk.attempt
        return None

    def _failed_outcome(self, chunk: ChunkView, attempt: AttemptView) -> Outcome:
        if attempt.state is AttemptState.VERIFICATION_FAILED:
            moved, before = self._refresh_source_move(), chunk.chunk_id in self._failed_before
            error = failure_text.failure_error(
                attempt, chunk.chunk_id, self._attempts_exhausted_hint(chunk, attempt), earlier=before, moved=moved
            )
            return VerificationFailed(self._workload.workload_id, self._table, self._outcomes(), error, moved, before)
        if attempt.refusal is not None:
            earlier = chunk.chunk_id in self._failed_before
            return self._rolled_back_outcome(failure_text.no_verdict_error(attempt, earlier=earlier))
        return self._rolled_back_outcome(failure_text.ended_elsewhere_error(attempt))

    def _refresh_source_move(self) -> SourceMoved | None:
        """Read the source's newest snapshot again, since the source may have changed after the run began."""
        with contextlib.suppress(PvdmError):
            self._workload = self._client.workload(self._workload.workload_id, limit=1).workload
        return self._find_source_move()

    def _rolled_back_outcome(self, error: PvdmError) -> RolledBack:
        return RolledBack(self._workload.workload_id, self._table, self._outcomes(), error, self._find_source_move())

    def _outcomes(self) -> tuple[ChunkOutcome, ...]:
        """The chunks that this run has read, in the plan's order."""
        attempts = sorted(self._attempts.items(), key=lambda each: self._plan_indexes[each[0]])
        return tuple(
            ChunkOutcome(chunk_id, attempt, chunk_id in self._published_before) for chunk_id, attempt in attempts
        )

    def _report(
        self,
        chunk: ChunkView,
        activity: Activity,
        attempt: AttemptView,
        *,
        problem: str | None = None,
        note: str | None = None,
    ) -> None:
        ids, total = (self._workload.workload_id, chunk.chunk_id), self._workload.chunk_count
        with self._lock:  # the caller's function need not be ready for calls from several threads
            done = sum(each.state is AttemptState.COMMITTED for each in tuple(self._attempts.values()))
            self._settings.watch(Step(*ids, activity, done, total, attempt.number, problem, note))


def _is_failure(attempt: AttemptView) -> bool:
    return attempt.state is not AttemptState.COMMITTED and not attempt.waiting


def _is_lease_over(error: object) -> TypeGuard[PvdmError]:
    return isinstance(error, PvdmError) and error.code in (Code.LEASE_LOST, Code.WORKLOAD_TIMED_OUT)


FINAL_ACTIVITIES: Final = {
    AttemptState.COMMITTED: Activity.PUBLISHED,
    AttemptState.VERIFICATION_FAILED: Activity.FAILED,
    AttemptState.ROLLED_BACK: Activity.ROLLED_BACK,
}
_UNPUBLISHED: Final = frozenset({AttemptState.VERIFICATION_FAILED, AttemptState.ROLLED_BACK})


def require_progress(attempt: AttemptView) -> None:
    """Raise if the Steward's work still has a problem after `PROBLEM_TRIES` tries."""
    if attempt.job is not None and attempt.problem is not None and attempt.job.tries >= PROBLEM_TRIES:
        raise failure_text.stuck_error(attempt)
