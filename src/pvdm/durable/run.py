"""Runs the chunks of a workload to their end, and publishes overrides."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from pvdm.api.work import AttemptView, ChunkView, WorkloadView
from pvdm.client import StewardClient
from pvdm.durable.chunk import Chunk, Source
from pvdm.durable.failure_text import (
    TAKEN_OVER,
    abandoned_error,
    attempts_exhausted_hint,
    failure_error,
    interrupted_error,
    no_verdict_error,
    reason_for,
    retry_command,
    staging_error,
    stuck_error,
    taken_over_error,
    unreported_error,
)
from pvdm.durable.outcome import (
    ChunkOutcome,
    Committed,
    Doing,
    Outcome,
    RolledBack,
    SourceMoved,
    Step,
    VerificationFailed,
    Watch,
    extent_of,
    source_moved,
    unwatched,
)
from pvdm.errors import Code, ConflictError, PvdmError, RolledBackError
from pvdm.model.contract import BoundContract
from pvdm.model.statements.core import Operation
from pvdm.model.states import ROLLED_BACK_MAX, AttemptState, WorkloadState, needs_reason
from pvdm.physical.stager import Destination, Stager
from pvdm.physical.watchdog import Terminated, termination_raised, watched

CHUNKS_PAGE: Final = 500
PROBLEM_TRIES: Final = 5
LOOK_SECONDS: Final = 20.0
_FIRST: Final = "the first attempt"
_AGAIN: Final = "taken up again"
_STAYS: Final = "partitions without a selected row stay as they are; declare boundary.partition to empty one"

Make = Callable[[Chunk], Any]
"""Makes a chunk's rows, in the form that the stager needs."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a run; with `repair`, the reason, failed chunks are tried again.

    `stager` is called when there is a chunk to stage, since it may start Spark. `handed_in` is an attempt that the
    caller has just opened: its publication counts as this run's.
    """

    make: Make
    stager: Callable[[], Stager[Any]]
    source: Source | None
    watch: Watch
    stage_seconds: float | None
    repair: str | None = None
    handed_in: str | None = None


class Run:
    """Runs the chunks in the plan's order; a failed chunk ends the run, since the same job makes the others."""

    def __init__(self, client: StewardClient, workload: WorkloadView, bound: BoundContract, settings: Settings) -> None:
        self._client = client
        self._workload = workload
        self._bound = bound
        self._settings = settings
        self._table = workload.table or bound.contract.boundary.target
        self._found: dict[str, AttemptView] = {}
        self._before: set[str] = set()
        self._failed: tuple[ChunkView, AttemptView] | None = None
        self._places: dict[str, int] = {}
        self._ended_before = False
        self._noted = False

    def outcome(self) -> Outcome:
        """Run to the end, or until an error stops it."""
        if self._workload.state is WorkloadState.ABANDONED:
            return self._rolled_back(abandoned_error(self._workload))
        try:
            with termination_raised():
                return self._run_chunks()
        except (KeyboardInterrupt, Terminated):
            staged = any(each.state in _WITH_STEWARD for each in self._found.values())
            return self._rolled_back(interrupted_error(staged=staged))
        except RolledBackError as error:
            return self._rolled_back(error)

    def _run_chunks(self) -> Outcome:
        waiting: list[tuple[ChunkView, AttemptView]] = []
        for chunk in self._plan():
            attempt = self._complete_chunk(chunk)
            self._found[chunk.chunk_id] = attempt
            if attempt.waiting:
                waiting.append((chunk, attempt))
            elif attempt.state is not AttemptState.COMMITTED:
                return self._failed_outcome(chunk, attempt)
        # Once all are proved, the Steward publishes them together.
        for chunk, attempt in waiting:
            ended = self._await_attempt(chunk, attempt, through=True)
            of, ended = (chunk, ended) if self._failed is None else self._failed
            self._found[of.chunk_id] = ended
            if ended.state is not AttemptState.COMMITTED:
                return self._failed_outcome(of, ended)
        moved, note = self._source_moved(), self._unchanged_note()
        return Committed(self._workload.workload_id, self._table, self._chunks(), moved, note)

    def _unchanged_note(self) -> str | None:
        """A note where an overwrite of partitions had no rows and so replaced nothing."""
        by_rows = (
            self._bound.contract.boundary.operation is Operation.OVERWRITE_PARTITIONS and not self._bound.partition
        )
        extent = extent_of(self._chunks())
        return _STAYS if by_rows and extent is not None and not extent.rows_added | extent.files_removed else None

    def _source_moved(self) -> SourceMoved | None:
        """Whether the source has newer snapshots, by the Steward's last answer."""
        appends = self._bound.contract.boundary.operation is Operation.APPEND
        return source_moved(self._workload, self._chunks(), appends=appends)

    def _plan(self) -> Iterator[ChunkView]:
        seen = 0
        while page := self._client.chunks(self._workload.workload_id, after=seen, limit=CHUNKS_PAGE):
            self._places |= {chunk.chunk_id: place for place, chunk in enumerate(page, seen)}
            yield from page
            seen += len(page)

    def _complete_chunk(self, chunk: ChunkView) -> AttemptView:
        """Bring the chunk's last attempt, or a new one, to its end; returns it."""
        last, reason = chunk.attempt, _FIRST
        if last is not None:
            before = last.attempt_id != self._settings.handed_in
            match last.state:
                case AttemptState.COMMITTED:
                    self._found[chunk.chunk_id] = last
                    if before:
                        self._before.add(chunk.chunk_id)
                    self._report(chunk, Doing.SKIPPED, last)
                    return last
                case AttemptState.VERIFYING | AttemptState.COMMITTING:
                    if last.problem is not None:
                        last = self._client.staged(last.attempt_id)  # it tries again at once: the cause may be gone
                    return self._await_attempt(chunk, last)
                case AttemptState.STAGING:
                    self._report(chunk, Doing.TAKEN_BACK, last)
                    self._client.abort_attempt(last.attempt_id, TAKEN_OVER)
                    reason = _AGAIN
                case ended:
                    if self._settings.repair is None and needs_reason(ended, refused=last.refusal is not None):
                        self._ended_before = before
                        self._report(chunk, Doing.FAILED_BEFORE if before else Doing.FAILED, last)
                        return last
                    reason = self._settings.repair or _AGAIN
        self._settings.stager()  # first, so that no attempt is opened that cannot be staged
        opened = self._client.next_attempt(self._workload.workload_id, chunk.chunk_id, reason)
        self._found[chunk.chunk_id] = opened
        self._report(chunk, Doing.STAGING, opened, note=self._note())
        self._stage(chunk, opened)
        return self._await_attempt(chunk, self._hand_over(chunk, opened))

    def _note(self) -> str | None:
        """A note before the first chunk is staged, where the source has newer rows than will be published."""
        moved = None if self._noted else self._source_moved()
        self._noted = True
        return None if moved is None else str(moved)

    def _stage(self, chunk: ChunkView, attempt: AttemptView) -> None:
        """Stage the rows on the branch; after an error the attempt is aborted."""
        try:
            given = self._client.attempt_token(attempt.attempt_id)
            operation, partition = self._bound.contract.boundary.operation, self._bound.partition
            ids = (attempt.workload_id, attempt.chunk_id, attempt.attempt_id)
            place = (self._client.url, self._table, attempt.branch, attempt.prefix)
            to = Destination(*place, *ids, given.token, operation, partition)
            settings, stager = self._settings, self._settings.stager()
            shown = Chunk.of(self._workload, chunk, settings.source)
            watched(
                lambda: stager.stage(lambda: settings.make(shown), to),
                cancel=lambda: stager.cancel(to),
                seconds=_stage_limit(settings.stage_seconds, given.identity.expires_at),
            )
        except BaseException as error:
            failure = self._abort_after(chunk, attempt, error)
            if failure is error:
                raise
            raise failure from error

    def _abort_after(self, chunk: ChunkView, attempt: AttemptView, error: BaseException) -> BaseException:
        """Abort the attempt after an error; returns the error for the caller."""
        reason = reason_for(error)
        found = self._abort(attempt, reason)
        failure: BaseException
        if isinstance(found, PvdmError):
            now, failure = attempt, unreported_error(error, attempt, found)
        else:
            now, failure = found, staging_error(error, reason, found)
            self._found[chunk.chunk_id] = now
        self._report(chunk, _DOING.get(now.state, Doing.LEFT), attempt, problem=str(failure)[:200])
        if isinstance(failure, RolledBackError) and failure.code != Code.ATTEMPT_TAKEN_OVER:
            failure.hint = self._attempts_exhausted_hint(chunk, now) or failure.hint
        return failure

    def _abort(self, attempt: AttemptView, reason: str) -> AttemptView | PvdmError:
        """Abort the attempt; returns its state, or the error if the Steward cannot be reached.

        The attempt then stays STAGING until the next run aborts it; an interrupted run does not wait for the Steward.
        """
        client = self._client.with_patience(False)
        with contextlib.suppress(PvdmError):
            return client.abort_attempt(attempt.attempt_id, reason)
        try:
            found = client.attempt(attempt.attempt_id)
        except PvdmError as error:
            return error
        if found.state is AttemptState.STAGING:
            return Code.ATTEMPT_LEFT_STAGING("the attempt could not be given up", got="STAGING")
        return found

    def _hand_over(self, chunk: ChunkView, attempt: AttemptView) -> AttemptView:
        try:
            return self._client.staged(attempt.attempt_id)
        except ConflictError as error:
            if error.code != Code.ATTEMPT_MOVED:
                raise
            now = self._client.attempt(attempt.attempt_id)
            self._found[chunk.chunk_id] = now
            raise taken_over_error(now) from error

    def _attempts_exhausted_hint(self, chunk: ChunkView, attempt: AttemptView) -> str:
        """The next step where no attempt at the chunk is left; empty where one is."""
        most = self._bound.contract.governance.attempts_max
        if attempt.number < min(most, ROLLED_BACK_MAX):
            return ""
        workload_id, place = self._workload.workload_id, self._places[chunk.chunk_id]
        try:
            tried = self._client.workload(workload_id, chunks_after=place, limit=1, newest=False).attempts
        except PvdmError:
            return f"`pvdm status --workload-id {workload_id}` shows whether the chunk may be attempted again"
        return attempts_exhausted_hint(workload_id, tried, failed_max=most, rolled_back_max=ROLLED_BACK_MAX)

    def _await_attempt(self, chunk: ChunkView, attempt: AttemptView, *, through: bool = False) -> AttemptView:
        """Wait until the attempt has ended or waits for the other chunks.

        `through`: wait until it has ended, or until another chunk has failed and blocks the publication of all.
        """
        self._found[chunk.chunk_id] = attempt
        while not attempt.settled or (through and attempt.waiting):
            problem = attempt.problem
            if problem is not None or not through:  # of a proved attempt only the end is reported
                self._report(chunk, Doing.VERIFYING, attempt, problem=None if problem is None else problem.message)
            require_progress(attempt)
            if through and attempt.waiting:
                self._failed = self._find_failed()
                if self._failed is not None:
                    return attempt
                time.sleep(0.2)
            attempt = self._client.await_attempt(attempt.attempt_id, seconds=LOOK_SECONDS)
        if attempt.state not in _DOING and not attempt.waiting:
            raise stuck_error(attempt)
        self._found[chunk.chunk_id] = attempt  # before the report, which counts published chunks
        self._report(chunk, _DOING.get(attempt.state, Doing.WAITING), attempt)
        return attempt

    def _find_failed(self) -> tuple[ChunkView, AttemptView] | None:
        """A chunk whose last attempt has ended unpublished; the gate may refuse any of them."""
        workload = self._client.workload(self._workload.workload_id, limit=1, newest=False).workload
        if not _UNPUBLISHED & {each.state for each in workload.chunk_states}:
            return None
        last = ((chunk, chunk.attempt) for chunk in self._plan())
        return next(((chunk, found) for chunk, found in last if found and found.state in _UNPUBLISHED), None)

    def _failed_outcome(self, chunk: ChunkView, attempt: AttemptView) -> Outcome:
        if attempt.state is AttemptState.VERIFICATION_FAILED:
            moved, before = self._moved_now(), self._ended_before
            error = failure_error(
                attempt, chunk.chunk_id, self._attempts_exhausted_hint(chunk, attempt), before=before, moved=moved
            )
            return VerificationFailed(self._workload.workload_id, self._table, self._chunks(), error, moved, before)
        if attempt.refusal is not None:
            return self._rolled_back(no_verdict_error(attempt, before=self._ended_before))
        return self._rolled_back(taken_over_error(attempt))

    def _moved_now(self) -> SourceMoved | None:
        """Read the source's newest snapshot again: rows may have come after the run began."""
        with contextlib.suppress(PvdmError):
            self._workload = self._client.workload(self._workload.workload_id, limit=1).workload
        return self._source_moved()

    def _rolled_back(self, error: PvdmError) -> RolledBack:
        return RolledBack(self._workload.workload_id, self._table, self._chunks(), error, self._source_moved())

    def _chunks(self) -> tuple[ChunkOutcome, ...]:
        return tuple(
            ChunkOutcome(chunk_id, attempt, chunk_id in self._before) for chunk_id, attempt in self._found.items()
        )

    def _report(
        self,
        chunk: ChunkView,
        doing: Doing,
        attempt: AttemptView,
        *,
        problem: str | None = None,
        note: str | None = None,
    ) -> None:
        done = sum(each.state is AttemptState.COMMITTED for each in self._found.values())
        workload = self._workload
        self._settings.watch(
            Step(workload.workload_id, chunk.chunk_id, doing, done, workload.chunk_count, attempt.number, problem, note)
        )


_WITH_STEWARD: Final = frozenset({AttemptState.VERIFYING, AttemptState.COMMITTING})
_DOING: Final = {
    AttemptState.COMMITTED: Doing.PUBLISHED,
    AttemptState.VERIFICATION_FAILED: Doing.FAILED,
    AttemptState.ROLLED_BACK: Doing.ROLLED_BACK,
}


_UNPUBLISHED: Final = frozenset({AttemptState.VERIFICATION_FAILED, AttemptState.ROLLED_BACK})


def require_progress(attempt: AttemptView) -> None:
    """Raise once the Steward has retried a problem `PROBLEM_TRIES` times."""
    if attempt.job is not None and attempt.problem is not None and attempt.job.tries >= PROBLEM_TRIES:
        raise stuck_error(attempt)


def _stage_limit(seconds: float | None, expires_at: int) -> float | None:
    """The time limit of staging, at most the lifetime of the attempt's token: a later commit would be refused."""
    left = expires_at / 1_000_000 - time.time()
    if left <= 0:
        return seconds
    return left if seconds is None else min(seconds, left)


def publish_override(client: StewardClient, override_id: str, watch: Watch = unwatched) -> Outcome:
    """Publish the bytes that an accepted override names, and wait for the outcome; the same call again waits on.

    The client is an operator's.
    """
    attempt = client.publish_override(override_id)
    before = attempt.state is AttemptState.COMMITTED
    while not attempt.settled:
        _report_step(watch, attempt, Doing.VERIFYING, None if attempt.problem is None else attempt.problem.message)
        require_progress(attempt)
        attempt = client.await_attempt(attempt.attempt_id, seconds=LOOK_SECONDS)
    if attempt.state in _DOING:
        _report_step(watch, attempt, Doing.SKIPPED if before else _DOING[attempt.state])
    workload_id, table = attempt.workload_id, attempt.table or ""
    chunks = (ChunkOutcome(attempt.chunk_id, attempt, before),)
    match attempt.state:
        case AttemptState.COMMITTED:
            return Committed(workload_id, table, chunks)
        case AttemptState.VERIFICATION_FAILED:
            way = f"where the contract allows one more attempt, `{retry_command(attempt)}` makes it"
            return VerificationFailed(workload_id, table, chunks, failure_error(attempt, attempt.chunk_id, way))
        case AttemptState.ROLLED_BACK:
            hint = "the same call brings the bytes back once more"
            error = Code.ATTEMPT_ROLLED_BACK("the attempt was rolled back", got=attempt.reason, hint=hint)
            return RolledBack(workload_id, table, chunks, error)
    if not attempt.waiting:
        raise stuck_error(attempt)
    raise Code.ATTEMPT_WAITING(
        got=f"chunk {attempt.chunk_id} waits",
        hint=f"`pvdm status --workload-id {workload_id}` shows the others; with the last of them it is published",
        attempt_id=attempt.attempt_id,
    )


def _report_step(watch: Watch, attempt: AttemptView, doing: Doing, problem: str | None = None) -> None:
    done = int(attempt.state is AttemptState.COMMITTED)
    watch(Step(attempt.workload_id, attempt.chunk_id, doing, done, 1, attempt.number, problem))
