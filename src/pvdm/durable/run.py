"""One run through a workload's chunks, from where they stand to how they end."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from pvdm.client import AttemptView, ChunkView, StewardClient, WorkloadView
from pvdm.durable import staging_errors
from pvdm.durable.chunk import Chunk, Source
from pvdm.durable.failure_text import failure, given_up
from pvdm.durable.moved_source import source_moved
from pvdm.durable.outcome import (
    ChunkOutcome,
    Committed,
    Outcome,
    RolledBack,
    SourceMoved,
    VerificationFailed,
    extent_of,
)
from pvdm.durable.progress import Doing, Step, Watch
from pvdm.errors import ConflictError, PvdmError, RolledBackError, UnavailableError
from pvdm.model.contract import BoundContract
from pvdm.model.filter.claim import way_to_publish_rest
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
"""Makes a chunk's rows, in the form that the stager takes."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a run is done; `repair` is the reason for which failed chunks are tried again.

    `stager` is asked for when there is a chunk to stage: it may have to start Spark first. `handed_in` is an attempt
    that the caller opened itself just now: if it is published by now, this run did it.
    """

    make: Make
    stager: Callable[[], Stager[Any]]
    source: Source | None
    watch: Watch
    stage_seconds: float | None
    repair: str | None = None
    handed_in: str | None = None


class Run:
    """Walks the plan in its order; a chunk that fails ends the run, for the rest would come from the same job."""

    def __init__(self, client: StewardClient, workload: WorkloadView, bound: BoundContract, settings: Settings) -> None:
        self._client = client
        self._workload = workload
        self._bound = bound
        self._settings = settings
        self._table = workload.table or bound.contract.boundary.target
        self._found: dict[str, AttemptView | None] = {}
        self._before: set[str] = set()
        self._failed: tuple[ChunkView, AttemptView] | None = None
        self._places: dict[str, int] = {}
        self._ended_before = False
        self._noted = False

    def outcome(self) -> Outcome:
        """Run to the end, or to what stops it."""
        if self._workload.state is WorkloadState.ABANDONED:
            claim = self._workload.claim
            way = "publish under another workload id" if claim is None else way_to_publish_rest(claim)
            return self._rolled_back(
                ConflictError(
                    "workload_abandoned",
                    "the workload was given up, and never goes on",
                    expected="an open workload",
                    got=f"abandoned: {self._workload.reason}",
                    hint=f"trying this one again changes nothing; {way}",
                )
            )
        try:
            with termination_raised():
                return self._walk()
        except (KeyboardInterrupt, Terminated):
            hint = "the same call takes the workload up again"
            if any(each is not None and each.state in _WITH_STEWARD for each in self._found.values()):
                hint = f"the Steward goes on with what was handed in; {hint}"
            return self._rolled_back(RolledBackError("interrupted", "the run was interrupted", hint=hint))
        except RolledBackError as error:
            return self._rolled_back(error)

    def _walk(self) -> Outcome:
        waiting: list[tuple[ChunkView, AttemptView]] = []
        for chunk in self._plan():
            attempt = self._carried(chunk)
            self._found[chunk.chunk_id] = attempt
            if attempt.waiting:
                waiting.append((chunk, attempt))
            elif attempt.state is not AttemptState.COMMITTED:
                return self._ended_badly(chunk, attempt)
        # The last of them lets the Steward publish all at once.
        for chunk, attempt in waiting:
            ended = self._awaited(chunk, attempt, through=True)
            of, ended = (chunk, ended) if self._failed is None else self._failed
            self._found[of.chunk_id] = ended
            if ended.state is not AttemptState.COMMITTED:
                return self._ended_badly(of, ended)
        moved, note = self._source_moved(), self._what_stays()
        return Committed(self._workload.workload_id, self._table, self._chunks(), moved, note)

    def _what_stays(self) -> str | None:
        """An overwrite of partitions without a row replaces none of them, unless the contract declares one."""
        by_rows = (
            self._bound.contract.boundary.operation is Operation.OVERWRITE_PARTITIONS and not self._bound.partition
        )
        extent = extent_of(self._chunks())
        return _STAYS if by_rows and extent is not None and not extent.rows_added | extent.files_removed else None

    def _source_moved(self) -> SourceMoved | None:
        """By what the Steward told when this run began; after a FAIL, by what it tells now."""
        appends = self._bound.contract.boundary.operation is Operation.APPEND
        return source_moved(self._workload, self._chunks(), appends=appends)

    def _plan(self) -> Iterator[ChunkView]:
        seen = 0
        while page := self._client.chunks(self._workload.workload_id, after=seen, limit=CHUNKS_PAGE):
            self._places |= {chunk.chunk_id: place for place, chunk in enumerate(page, seen)}
            yield from page
            seen += len(page)

    def _carried(self, chunk: ChunkView) -> AttemptView:
        """The chunk's last attempt once it is settled; a new one where there is none, or none that goes on."""
        last = chunk.attempt
        match None if last is None else last.state:
            case None:
                reason = _FIRST
            case AttemptState.COMMITTED:
                self._found[chunk.chunk_id] = last
                if _there(last).attempt_id != self._settings.handed_in:
                    self._before.add(chunk.chunk_id)
                self._tell(chunk, Doing.SKIPPED, last)
                return _there(last)
            case AttemptState.VERIFYING | AttemptState.COMMITTING:
                return self._awaited(chunk, self._hurried(_there(last)))
            case AttemptState.STAGING:
                self._tell(chunk, Doing.TAKEN_BACK, last)
                self._client.abort_attempt(_there(last).attempt_id, staging_errors.TAKEN_OVER)
                reason = _AGAIN
            case ended:
                refused = _there(last).refusal is not None
                if self._settings.repair is None and needs_reason(ended, refused=refused):
                    self._ended_before = _there(last).attempt_id != self._settings.handed_in
                    self._tell(chunk, Doing.FAILED_BEFORE if self._ended_before else Doing.FAILED, last)
                    return _there(last)
                reason = self._settings.repair or _AGAIN
        self._settings.stager()  # before an attempt is opened that cannot be staged
        opened = self._client.next_attempt(self._workload.workload_id, chunk.chunk_id, reason)
        self._found[chunk.chunk_id] = opened
        self._tell(chunk, Doing.STAGING, opened, note=self._note())
        self._stage(chunk, opened)
        return self._awaited(chunk, self._staged(chunk, opened))

    def _note(self) -> str | None:
        """Told before the first chunk is staged: the rows that will be published are not the source's newest."""
        moved = None if self._noted else self._source_moved()
        self._noted = True
        return None if moved is None else str(moved)

    def _hurried(self, attempt: AttemptView) -> AttemptView:
        """An attempt whose last try met a problem is tried at once: it may be mended by now."""
        return attempt if attempt.problem is None else self._client.staged(attempt.attempt_id)

    def _stage(self, chunk: ChunkView, attempt: AttemptView) -> None:
        """Rows on the branch, or the attempt given up and nothing left of it."""
        try:
            given = self._client.attempt_token(attempt.attempt_id)
            contract = self._bound.contract
            to = Destination(
                self._client.url,
                self._table,
                attempt.branch,
                attempt.prefix,
                attempt.workload_id,
                attempt.chunk_id,
                attempt.attempt_id,
                given.token,
                contract.boundary.operation,
                self._bound.partition,
            )
            settings, stager = self._settings, self._settings.stager()
            shown = Chunk.of(self._workload, chunk, settings.source)
            watched(
                lambda: stager.stage(lambda: settings.make(shown), to),
                cancel=lambda: stager.cancel(to),
                seconds=_bounded(settings.stage_seconds, given.identity.expires_at),
            )
        except BaseException as error:
            told = self._given_up(chunk, attempt, error)
            if told is error:
                raise
            raise told from error

    def _given_up(self, chunk: ChunkView, attempt: AttemptView, error: BaseException) -> BaseException:
        """What the caller hears, once the Steward has said what became of the attempt."""
        reason = staging_errors.reason_for(error)
        found = self._aborted(attempt, reason)
        now = found if isinstance(found, AttemptView) else None
        told = (
            staging_errors.unreported_error(error, attempt, found)
            if isinstance(found, PvdmError)
            else staging_errors.error_of(error, reason, found)
        )
        if now is not None:
            self._found[chunk.chunk_id] = now
        doing = _DOING.get((now or attempt).state, Doing.LEFT)
        self._tell(chunk, doing, attempt, problem=str(told)[:200])
        if isinstance(told, RolledBackError) and told.code != "attempt_taken_over":
            told.hint = self._no_way_on(chunk, now or attempt) or told.hint
        return told

    def _aborted(self, attempt: AttemptView, reason: str) -> AttemptView | PvdmError:
        """Abort the attempt; gives its state, also if it had ended before, or the error if the Steward does not answer.

        The next run aborts it then: the attempt is STAGING until that. So a run that was interrupted does not wait for
        a Steward that is away.
        """
        client = self._client.with_patience(False)
        with contextlib.suppress(PvdmError):
            return client.abort_attempt(attempt.attempt_id, reason)
        try:
            found = client.attempt(attempt.attempt_id)
        except PvdmError as error:
            return error
        if found.state is AttemptState.STAGING:
            return UnavailableError("attempt_left_staging", "the attempt could not be given up", got="STAGING")
        return found

    def _staged(self, chunk: ChunkView, attempt: AttemptView) -> AttemptView:
        try:
            return self._client.staged(attempt.attempt_id)
        except ConflictError as error:
            if error.code != "attempt_moved":
                raise
            now = self._client.attempt(attempt.attempt_id)
            self._found[chunk.chunk_id] = now
            raise staging_errors.taken(now) from error

    def _no_way_on(self, chunk: ChunkView, attempt: AttemptView) -> str:
        """What to do where the chunk may not be attempted again; empty where it may."""
        most = self._bound.contract.governance.attempts_max
        if attempt.number < min(most, ROLLED_BACK_MAX):
            return ""
        workload_id, place = self._workload.workload_id, self._places[chunk.chunk_id]
        try:
            tried = self._client.workload(workload_id, chunks_after=place, limit=1, newest=False).attempts
        except PvdmError:
            return f"`pvdm status --workload-id {workload_id}` shows whether the chunk may be attempted again"
        return staging_errors.used_up(workload_id, tried, failed_max=most, rolled_back_max=ROLLED_BACK_MAX)

    def _awaited(self, chunk: ChunkView, attempt: AttemptView, *, through: bool = False) -> AttemptView:
        """The attempt when it has ended, or waits for the other chunks.

        `through`: when it has ended, or another chunk has failed and keeps all of them from being published.
        """
        self._found[chunk.chunk_id] = attempt
        while not attempt.settled or (through and attempt.waiting):
            problem = attempt.problem
            if problem is not None or not through:  # of one that is proved nothing more is told than its end
                self._tell(chunk, Doing.VERIFYING, attempt, problem=None if problem is None else problem.message)
            require_going(attempt)
            if through and attempt.waiting:
                self._failed = self._find_failed()
                if self._failed is not None:
                    return attempt
                time.sleep(0.2)
            attempt = self._client.await_attempt(attempt.attempt_id, seconds=LOOK_SECONDS)
        if attempt.state not in _DOING and not attempt.waiting:
            raise stuck(attempt)
        self._found[chunk.chunk_id] = attempt  # first: what is published counts among what is done
        self._tell(chunk, _DOING.get(attempt.state, Doing.WAITING), attempt)
        return attempt

    def _find_failed(self) -> tuple[ChunkView, AttemptView] | None:
        """A chunk whose last attempt has ended unpublished, if there is one: the gate may refuse any of them."""
        workload = self._client.workload(self._workload.workload_id, limit=1, newest=False).workload
        if not _UNPUBLISHED & {each.state for each in workload.chunk_states}:
            return None
        last = ((chunk, chunk.attempt) for chunk in self._plan())
        return next(((chunk, found) for chunk, found in last if found and found.state in _UNPUBLISHED), None)

    def _ended_badly(self, chunk: ChunkView, attempt: AttemptView) -> Outcome:
        if attempt.state is AttemptState.VERIFICATION_FAILED:
            moved, before = self._moved_now(), self._ended_before
            error = failure(attempt, chunk.chunk_id, self._no_way_on(chunk, attempt), before=before, moved=moved)
            return VerificationFailed(self._workload.workload_id, self._table, self._chunks(), error, moved, before)
        if attempt.refusal is not None:
            return self._rolled_back(given_up(attempt, before=self._ended_before))
        return self._rolled_back(staging_errors.taken(attempt))

    def _moved_now(self) -> SourceMoved | None:
        """A job that reads the newest rows may have met some that came after the run began."""
        with contextlib.suppress(PvdmError):
            self._workload = self._client.workload(self._workload.workload_id, limit=1).workload
        return self._source_moved()

    def _rolled_back(self, error: PvdmError) -> RolledBack:
        return RolledBack(self._workload.workload_id, self._table, self._chunks(), error, self._source_moved())

    def _chunks(self) -> tuple[ChunkOutcome, ...]:
        return tuple(
            ChunkOutcome(chunk_id, attempt, chunk_id in self._before) for chunk_id, attempt in self._found.items()
        )

    def _tell(
        self,
        chunk: ChunkView,
        doing: Doing,
        attempt: AttemptView | None,
        *,
        problem: str | None = None,
        note: str | None = None,
    ) -> None:
        done = sum(1 for each in self._found.values() if each is not None and each.state is AttemptState.COMMITTED)
        number = None if attempt is None else attempt.number
        workload = self._workload
        self._settings.watch(
            Step(workload.workload_id, chunk.chunk_id, doing, done, workload.chunk_count, number, problem, note)
        )


_WITH_STEWARD: Final = frozenset({AttemptState.VERIFYING, AttemptState.COMMITTING})
_DOING: Final = {
    AttemptState.COMMITTED: Doing.PUBLISHED,
    AttemptState.VERIFICATION_FAILED: Doing.FAILED,
    AttemptState.ROLLED_BACK: Doing.ROLLED_BACK,
}


_UNPUBLISHED: Final = frozenset({AttemptState.VERIFICATION_FAILED, AttemptState.ROLLED_BACK})


def require_going(attempt: AttemptView) -> None:
    """Where the Steward has met a problem often enough, a person is told."""
    if attempt.job is not None and attempt.problem is not None and attempt.job.tries >= PROBLEM_TRIES:
        raise stuck(attempt)


def stuck(attempt: AttemptView) -> UnavailableError:
    """What keeps the Steward from going on, which is nobody's verdict, and when it tries again."""
    problem = attempt.problem
    seconds = None if attempt.job is None else attempt.job.again_seconds
    itself = "" if seconds is None else f"the Steward tries again by itself in {max(1, seconds)} s; "
    mend = "" if problem is None or problem.hint is None else f"{problem.hint}; "
    return UnavailableError(
        "attempt_stuck" if problem is None else problem.code,
        "the Steward cannot go on with the attempt" + ("" if problem is None else f": {problem.message}"),
        expected=None if problem is None else problem.expected,
        got=None if problem is None else problem.got,
        hint=f"{mend}{itself}the same call makes it try at once, and waits on",
        attempt_id=attempt.attempt_id,
    )


def _bounded(seconds: float | None, expires_at: int) -> float | None:
    """No longer than the attempt's token is good: a commit after that would be refused, and hours be lost."""
    left = expires_at / 1_000_000 - time.time()
    if left <= 0:
        return seconds
    return left if seconds is None else min(seconds, left)


def _there(attempt: AttemptView | None) -> AttemptView:
    if attempt is None:
        raise AssertionError("a state has an attempt")
    return attempt
