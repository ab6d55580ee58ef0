"""One run through a workload's chunks, from where they stand to how they end."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from pvdm.client import AttemptView, ChunkView, StewardClient, WorkloadView
from pvdm.durable import lost
from pvdm.durable.chunk import Chunk, Source
from pvdm.durable.outcome import ChunkOutcome, Committed, Outcome, RolledBack, SourceMoved, VerificationFailed
from pvdm.durable.progress import Doing, Step, Watch
from pvdm.errors import ConflictError, PvdmError, RolledBackError, UnavailableError, VerificationError
from pvdm.model.branch import is_stewards
from pvdm.model.claim import WAY_TO_CORRECT
from pvdm.model.contract import BoundContract
from pvdm.model.core import Operation
from pvdm.model.located import LocatedClass
from pvdm.model.located_words import counted, fields_that_differ, files_of, first_keys, rest_of_keys, who_sees
from pvdm.model.states import ROLLED_BACK_MAX, AttemptState, WorkloadState, needs_reason
from pvdm.model.verdict import FailureClass
from pvdm.physical.stager import Destination, Stager
from pvdm.physical.watchdog import Terminated, termination_raised, watched

CHUNKS_PAGE: Final = 500
PROBLEM_TRIES: Final = 5
LOOK_SECONDS: Final = 20.0
_FIRST: Final = "the first attempt"
_AGAIN: Final = "taken up again"
_CORRECTION_OF_APPEND: Final = (
    f"rows of a claim are appended once; to correct what is published, {WAY_TO_CORRECT}, "
    "and you run it under a new workload id"
)
_CORRECTION_OF_OVERWRITE: Final = "run it under a new workload id: it replaces what is published"

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

    def outcome(self) -> Outcome:
        """Run to the end, or to what stops it."""
        if self._workload.state is WorkloadState.ABANDONED:
            return self._rolled_back(
                ConflictError(
                    "workload_abandoned",
                    "the workload was given up by an operator, and never goes on",
                    expected="an open workload",
                    got=f"abandoned: {self._workload.reason}",
                    hint="publish under another workload id; trying this one again changes nothing",
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
        return Committed(self._workload.workload_id, self._table, self._chunks(), self._source_moved())

    def _source_moved(self) -> SourceMoved | None:
        """The Steward tells the newest snapshot only of a workload that was complete when this run began."""
        pinned, newest = self._workload.source_snapshot_id, self._workload.source_newest_snapshot_id
        if pinned is None or newest is None or pinned == newest:
            return None
        adds = self._bound.contract.boundary.operation is Operation.APPEND
        return SourceMoved(pinned, newest, _CORRECTION_OF_APPEND if adds else _CORRECTION_OF_OVERWRITE)

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
                self._client.abort_attempt(_there(last).attempt_id, lost.TAKEN_OVER)
                reason = _AGAIN
            case ended:
                refused = _there(last).refusal is not None
                if self._settings.repair is None and needs_reason(ended, refused=refused):
                    return _there(last)
                reason = self._settings.repair or _AGAIN
        self._settings.stager()  # before an attempt is opened that cannot be staged
        opened = self._client.next_attempt(self._workload.workload_id, chunk.chunk_id, reason)
        self._found[chunk.chunk_id] = opened
        self._tell(chunk, Doing.STAGING, opened)
        self._stage(chunk, opened)
        return self._awaited(chunk, self._staged(chunk, opened))

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
        reason = lost.reason_for(error)
        found = self._aborted(attempt, reason)
        now = found if isinstance(found, AttemptView) else None
        told = (
            lost.unreported_error(error, attempt, found)
            if isinstance(found, PvdmError)
            else lost.error_of(error, reason, found)
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
            raise lost.taken(now) from error

    def _no_way_on(self, chunk: ChunkView, attempt: AttemptView) -> str:
        """What to do where the chunk may not be attempted again; empty where it may."""
        most = self._bound.contract.governance.attempts_max
        if attempt.number < min(most, ROLLED_BACK_MAX):
            return ""
        workload_id, place = self._workload.workload_id, self._places[chunk.chunk_id]
        try:
            tried = self._client.workload(workload_id, chunks_after=place, limit=1).attempts
        except PvdmError:
            return f"`pvdm status --workload-id {workload_id}` shows whether the chunk may be attempted again"
        return lost.used_up(workload_id, tried, failed_max=most, rolled_back_max=ROLLED_BACK_MAX)

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
        workload = self._client.workload(self._workload.workload_id, limit=1).workload
        if not _UNPUBLISHED & {each.state for each in workload.chunk_states}:
            return None
        last = ((chunk, chunk.attempt) for chunk in self._plan())
        return next(((chunk, found) for chunk, found in last if found and found.state in _UNPUBLISHED), None)

    def _ended_badly(self, chunk: ChunkView, attempt: AttemptView) -> Outcome:
        if attempt.state is AttemptState.VERIFICATION_FAILED:
            error = failure(attempt, chunk.chunk_id, self._no_way_on(chunk, attempt))
            return VerificationFailed(self._workload.workload_id, self._table, self._chunks(), error)
        if attempt.refusal is not None:
            return self._rolled_back(given_up(attempt))
        return self._rolled_back(lost.taken(attempt))

    def _rolled_back(self, error: PvdmError) -> RolledBack:
        return RolledBack(self._workload.workload_id, self._table, self._chunks(), error)

    def _chunks(self) -> tuple[ChunkOutcome, ...]:
        return tuple(
            ChunkOutcome(chunk_id, attempt, chunk_id in self._before) for chunk_id, attempt in self._found.items()
        )

    def _tell(self, chunk: ChunkView, doing: Doing, attempt: AttemptView | None, *, problem: str | None = None) -> None:
        done = sum(1 for each in self._found.values() if each is not None and each.state is AttemptState.COMMITTED)
        number = None if attempt is None else attempt.number
        workload = self._workload
        self._settings.watch(
            Step(workload.workload_id, chunk.chunk_id, doing, done, workload.chunk_count, number, problem)
        )


_WITH_STEWARD: Final = frozenset({AttemptState.VERIFYING, AttemptState.COMMITTING})
_DOING: Final = {
    AttemptState.COMMITTED: Doing.PUBLISHED,
    AttemptState.VERIFICATION_FAILED: Doing.FAILED,
    AttemptState.ROLLED_BACK: Doing.ROLLED_BACK,
}


_UNPUBLISHED: Final = frozenset({AttemptState.VERIFICATION_FAILED, AttemptState.ROLLED_BACK})
_FAILED: Final = "verification_failed"


def failure(attempt: AttemptView, chunk_id: str, no_way_on: str = "") -> VerificationError:
    """Why nothing was published, in the Steward's words; the way on beside it, which is a repair as a rule."""
    refusal = attempt.refusal
    classes = ", ".join(each.value for each in attempt.classes)
    details: dict[str, str | int] = {"chunk": chunk_id, "attempt": attempt.number, "attempt_id": attempt.attempt_id}
    details |= {"classes": classes} if classes else {}
    details |= _located(attempt)
    details |= {f"finding_{number}": str(each) for number, each in enumerate(attempt.findings, 1)}
    details |= {"findings_more": attempt.findings_more} if attempt.findings_more else {}
    details |= {"proof_id": attempt.proof_id} if attempt.proof_id is not None else {}
    # Where the gate refused, the job need not be at fault.
    by_gate = None if refusal is None or refusal.code == _FAILED else refusal.hint
    if no_way_on:
        hint = no_way_on if by_gate is None else f"{by_gate}; {no_way_on}"
    else:
        way = again(attempt)
        hint = f"fix the job, then: {way}" if by_gate is None else f"{by_gate}; to try again: {way}"
    return VerificationError(
        _FAILED if refusal is None else refusal.code,
        f"nothing was published: {_why(attempt)}",
        expected=None if refusal is None else refusal.expected,
        got=_got(attempt),
        hint=hint if is_own(attempt) else f"{hint}; {kept_branch(attempt)}",
        **details,
    )


def _why(attempt: AttemptView) -> str:
    """The Steward's words; where a verdict's rows were located, they are counted in them."""
    if attempt.refusal is None:
        return attempt.reason
    if attempt.refusal.code != _FAILED or attempt.located is None or not attempt.located.classes:
        return attempt.refusal.message
    others = [each.value for each in attempt.classes if each not in attempt.located.failures]
    return f"the verdict is FAIL: {', '.join([counted(attempt.located), *others])}"


def _got(attempt: AttemptView) -> str | None:
    """What was got, with the first keys of wrong rows where the token may see them."""
    refusal, located = attempt.refusal, attempt.located
    if refusal is None or refusal.code != _FAILED or located is None:
        return None if refusal is None else refusal.got
    return "; ".join(part for part in (refusal.got, *(first_keys(each) for each in located.classes)) if part) or None


def _located(attempt: AttemptView) -> dict[str, str | int]:
    located = attempt.located
    if located is None:
        return {}
    if located.problem_code is not None:
        return {"not_located": located.problem_code}
    told: dict[str, str | int] = {f"rows_{each.failure.value}": each.rows for each in located.classes}
    told |= {_files_name(each): files_of(each) for each in located.classes if each.files}
    withheld = who_sees(located)
    if withheld is not None and located.keys_for:
        withheld += f"; see `pvdm status --workload-id {attempt.workload_id}`"
    said = {
        "fields_that_differ": fields_that_differ(located),
        "withheld": withheld,
        "more": rest_of_keys(located, attempt.workload_id),
    }
    return told | {name: words for name, words in said.items() if words}


def _files_name(each: LocatedClass) -> str:
    of = "source_files" if each.failure is FailureClass.MISSING else "files"
    return f"{of}_with_{each.failure.value}_rows"


def given_up(attempt: AttemptView) -> RolledBackError:
    """Why the Steward ended an attempt without a verdict, and never will give one; the way on beside it."""
    refusal = attempt.refusal
    if refusal is None:
        raise AssertionError("who calls this has seen the refusal")
    way = f"to try again all the same: {again(attempt)}"
    return RolledBackError(
        refusal.code,
        f"nothing was published, and there is no verdict: {refusal.message}",
        expected=refusal.expected,
        got=refusal.got,
        hint=way if refusal.hint is None else f"{refusal.hint}; {way}",
        chunk=attempt.chunk_id,
        attempt=attempt.number,
        attempt_id=attempt.attempt_id,
    )


def again(attempt: AttemptView) -> str:
    """The command that opens another attempt after one that failed; each wants a reason."""
    if is_own(attempt):
        return f"pvdm repair {attempt.workload_id} --reason TEXT"
    table = attempt.table or "TABLE"
    return f"pvdm publish {table} BRANCH --workload-id {attempt.workload_id} --reason TEXT (and its --param)"


def is_own(attempt: AttemptView) -> bool:
    """Whether the Steward made the attempt's branch; another one, which has no such name, was taken over."""
    return is_stewards(attempt.branch)


def kept_branch(attempt: AttemptView) -> str:
    """What became of a branch that was taken over and not published."""
    table, branch = attempt.table or "TABLE", attempt.branch
    return (
        f"your branch is as it was: read it as {table}.branch_{branch}, "
        f"drop it with ALTER TABLE {table} DROP BRANCH `{branch}`"
    )


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
