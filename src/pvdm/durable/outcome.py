"""The outcomes of a run with their exit codes, and its progress reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, Final, TypeAlias

from pvdm.api.work import AttemptView, ExtentView, PlanningView, WorkloadView
from pvdm.durable.chunk_counts import ChunkCounts
from pvdm.errors import PvdmError, RolledBackError, SegmentEndedError, VerificationError, comparison
from pvdm.model.filter.claim import WAY_TO_CORRECT
from pvdm.model.printable import counted, printable, utc_time, view_json
from pvdm.model.states import AttemptState, WorkloadState


class Activity(Enum):
    """What a run does with a chunk now. PLANNING is about the whole workload."""

    PLANNING = "reading the source to plan the chunks"
    SKIPPED = "published before"
    FAILED_BEFORE = "failed before, not tried again"
    ABORTING_EARLIER = "rolling back the attempt that an earlier run left"
    STAGING = "staging"
    VERIFYING = "verifying"
    WAITING = "proved, waits for the other chunks"
    PUBLISHED = "published"
    FAILED = "failed"
    ROLLED_BACK = "rolled back"
    LEFT = "left as it is"


@dataclass(frozen=True, slots=True)
class Step:
    """A progress report about a chunk. With PLANNING, `chunk_id` is empty, and the numbers count source files."""

    workload_id: str
    chunk_id: str
    activity: Activity
    done: int  # the number of published chunks
    total: int
    attempt: int | None = None  # the attempt's number
    problem: str | None = None  # why the attempt does not advance or was not staged
    note: str | None = None


Watch: TypeAlias = Callable[[Step], None]


def planning_watch(watch: Watch) -> Callable[[PlanningView], None]:
    """Return a function that reports the progress of a plan to `watch`."""

    def report(found: PlanningView) -> None:
        problem = None if found.problem is None else found.problem.message
        watch(Step(found.workload_id, "", Activity.PLANNING, found.files_read, found.files, problem=problem))

    return report


def ignore_progress(step: Step) -> None:
    """Ignore the progress report."""
    del step


_CORRECT_APPEND: Final = (
    f"rows of a claim are appended once; to correct what is published, {WAY_TO_CORRECT}, "
    "and you run the job under a new workload id"
)
_CORRECT_OVERWRITE: Final = "run the job under a new workload id: the new run replaces what is published"
_CORRECT_EMPTY: Final = (
    "this workload published 0 rows, so nothing is claimed: publish newer rows under a new workload id"
)


class PublicationTime(Enum):
    """Which runs published a workload's rows: this run, earlier runs, or both."""

    NOW = "now"
    BEFORE = "before"
    PARTLY_NOW = "partly now"


@dataclass(frozen=True, slots=True)
class SourceMoved:
    """The source has a newer snapshot than the one that the workload reads.

    `correction` says how to publish newer rows. `opened_at` is when the workload was opened and pinned its snapshot;
    None if the workload had ended when the run last read it.
    """

    pinned_snapshot_id: int
    newest_snapshot_id: int
    correction: str
    opened_at: int | None = None

    def __str__(self) -> str:
        pinned, newest = self.pinned_snapshot_id, self.newest_snapshot_id
        if self.opened_at is None:
            text = f"the source has newer snapshots: its snapshot {pinned} is published, its newest is {newest}"
        else:
            text = f"the workload was opened at {utc_time(self.opened_at)} and reads snapshot {pinned} of its source"
            text += f"; the source is at {newest}"
        return f"{text}; it is not checked whether rows under the workload's filter changed; if so: {self.correction}"

    def to_json(self) -> dict[str, object]:
        """As JSON."""
        return {
            "pinned_snapshot_id": str(self.pinned_snapshot_id),
            "newest_snapshot_id": str(self.newest_snapshot_id),
            "opened_at": self.opened_at,
            "correction": self.correction,
        }


@dataclass(frozen=True, slots=True)
class ChunkOutcome:
    """One chunk and its last attempt. `before`: an earlier run published the chunk.

    `failed_attempts` are earlier VERIFICATION_FAILED attempts, if the contract allows automatic repairs.
    """

    chunk_id: str
    attempt: AttemptView
    before: bool = False
    failed_attempts: tuple[AttemptView, ...] = ()

    @property
    def state(self) -> AttemptState:
        """The attempt's state."""
        return self.attempt.state

    @property
    def published(self) -> PublicationTime | None:
        """Whether this run or an earlier run published the chunk; None if the chunk is not published."""
        if self.state is not AttemptState.COMMITTED:
            return None
        return PublicationTime.BEFORE if self.before else PublicationTime.NOW

    def to_json(self) -> dict[str, object]:
        """As JSON; the Steward's numbers are decimal strings."""
        attempt = self.attempt
        return {
            "chunk_id": self.chunk_id,
            "attempt_id": attempt.attempt_id,
            "attempt": str(attempt.number),
            "state": attempt.state.value,
            "published": None if self.published is None else self.published.value,
            "failed_attempts": [
                {
                    "attempt": str(each.number),
                    "attempt_id": each.attempt_id,
                    "classes": [found.value for found in each.classes],
                    "proof_id": each.proof_id,
                }
                for each in self.failed_attempts
            ],
            "verdict": None if attempt.verdict is None else attempt.verdict.value,
            "classes": [each.value for each in attempt.classes],
            "findings": [view_json(each) for each in attempt.findings],
            "findings_more": str(attempt.findings_more),
            "located": None if attempt.located is None else view_json(attempt.located),
            "proof_id": attempt.proof_id,
            "override_id": attempt.override_id,
            "snapshot_id": None if attempt.snapshot_id is None else str(attempt.snapshot_id),
            "rows_added": None if attempt.extent is None else str(attempt.extent.rows_added),
            "files_added": None if attempt.extent is None else str(attempt.extent.files_added),
            "refusal": None if attempt.refusal is None else attempt.refusal.model_dump(),
        }


@dataclass(frozen=True, slots=True)
class Committed:
    """Every chunk is published. `source_moved` is set if the source has a newer snapshot than the workload reads.

    `note` says what an overwrite without rows has left unchanged.
    """

    name: ClassVar[str] = "COMMITTED"
    exit_code: ClassVar[int] = 0
    workload_id: str
    table: str
    chunks: tuple[ChunkOutcome, ...]
    source_moved: SourceMoved | None = None
    note: str | None = None

    @property
    def published(self) -> PublicationTime:
        """Whether this run published all chunks, or earlier runs did, or each published a part of them."""
        if self.chunks and all(each.before for each in self.chunks):
            return PublicationTime.BEFORE
        return PublicationTime.PARTLY_NOW if any(each.before for each in self.chunks) else PublicationTime.NOW

    @property
    def snapshot_id(self) -> int | None:
        """The snapshot that published the last chunk."""
        return self.chunks[-1].attempt.snapshot_id if self.chunks else None

    @property
    def extent(self) -> ExtentView | None:
        """How many rows and files were added and removed; None if a chunk's counts are unknown."""
        return extent_of(self.chunks)

    @property
    def overridden(self) -> tuple[ChunkOutcome, ...]:
        """The chunks that an override published."""
        return tuple(each for each in self.chunks if each.attempt.overridden)

    def __str__(self) -> str:
        state = "ALREADY PUBLISHED" if self.published is PublicationTime.BEFORE else self.name
        extent = "how many rows is not known" if self.extent is None else str(self.extent)
        summary = f"{state}  {self.workload_id}: {counted(len(self.chunks), 'chunk')} of {self.table}, {extent}"
        return "\n".join([summary, *(f"*** {each} ***" for each in self.alerts)])

    @property
    def alerts(self) -> list[str]:
        """What a caller could overlook: no row, an earlier publication, a newer source, or a repair."""
        found = [] if self.source_moved is None else [str(self.source_moved)]
        when = "has no row for these parameters"
        if self.published is PublicationTime.BEFORE:
            found.insert(0, "nothing was published now: an earlier run of this workload id published it")
            when = "had no row for these parameters at its publication"
        if self.extent is not None and not self.extent.rows_added and not self.overridden:
            found.append(f"0 rows: the source {when}" + ("" if self.note is None else f"; {self.note}"))
        repaired = sum(1 for each in self.chunks if each.failed_attempts)
        if repaired:
            found.append(f"{counted(repaired, 'chunk')} failed verification first, and a repair was published")
        return found

    def require(self) -> Committed:
        """Return this outcome. In the other classes, `require` raises the outcome's error."""
        return self

    def to_json(self) -> dict[str, object]:
        """As JSON."""
        return _json(self) | {"published": self.published.value, "note": self.note}


@dataclass(frozen=True, slots=True)
class _UnpublishedOutcome:
    """The common part of the two outcomes of a run that has not published every chunk.

    `chunk_counts` are those of the whole workload; None if they could not be read.
    """

    workload_id: str
    table: str
    chunks: tuple[ChunkOutcome, ...]
    error: PvdmError
    source_moved: SourceMoved | None = None
    chunk_counts: ChunkCounts | None = field(default=None, kw_only=True)

    @property
    def name(self) -> str:
        """The outcome in one word."""
        raise NotImplementedError

    @property
    def exit_code(self) -> int:
        """The exit code of the command."""
        raise NotImplementedError

    @property
    def counts_text(self) -> str:
        """How many chunks of the workload are published, failed and not begun."""
        if self.chunk_counts is not None:
            return str(self.chunk_counts)
        return f"the Steward did not say what is published; `pvdm status --workload-id {self.workload_id}` shows it"

    def __str__(self) -> str:
        """The lines that the command prints."""
        error = self.error
        if isinstance(error, SegmentEndedError):  # shown without `error:`, since another run continues
            texts = (f"{self.name}  {self.workload_id} of {self.table}", segment_end_text(error), self.counts_text)
            return "\n".join(map(printable, texts))
        lines = [f"{self.name}  {self.workload_id} of {self.table}", f"error: {error.message} ({error.reason})"]
        if tail := comparison(error.expected, error.got):
            lines.append(f"  {tail}")
        if error.hint is not None:
            lines.append(f"hint: {error.hint}")
        lines.append(self.counts_text)
        return "\n".join(map(printable, lines))

    def require(self) -> Committed:
        """Raise the error."""
        raise self.error


@dataclass(frozen=True, slots=True)
class VerificationFailed(_UnpublishedOutcome):
    """A verdict was FAIL, or the gate refused; the chunk was not published. The next step is `repair`.

    `before`: the chunk failed in an earlier run, and this run has not tried it again.
    """

    error: VerificationError
    before: bool = False

    @property
    def name(self) -> str:
        """The outcome in one word."""
        return "VERIFICATION_FAILED"

    @property
    def exit_code(self) -> int:
        """The exit code of the command."""
        return VerificationError.exit_code

    def to_json(self) -> dict[str, object]:
        """As JSON."""
        return _unpublished_json(self) | {"judged": "before" if self.before else "now"}


@dataclass(frozen=True, slots=True)
class RolledBack(_UnpublishedOutcome):
    """The run ended before all chunks were published, but not by a failed verification; `error` has the next step.

    If `error` is a `SegmentEndedError`, the run stopped in time, and another run continues.
    """

    @property
    def name(self) -> str:
        """The outcome in one word."""
        return "SEGMENT_ENDED" if isinstance(self.error, SegmentEndedError) else "ROLLED_BACK"

    @property
    def exit_code(self) -> int:
        """The exit code of the command."""
        ended = isinstance(self.error, SegmentEndedError)
        return SegmentEndedError.exit_code if ended else RolledBackError.exit_code

    def to_json(self) -> dict[str, object]:
        """As JSON."""
        return _unpublished_json(self)


Outcome: TypeAlias = Committed | VerificationFailed | RolledBack


def failed_text(failed: AttemptView, last: AttemptView) -> str:
    """A text about an attempt that failed before the `last` attempt at the same chunk."""
    classes = ", ".join(each.value for each in failed.classes)
    repaired = f"; its repair is published as attempt {last.number}" if last.state is AttemptState.COMMITTED else ""
    return f"attempt {failed.number} failed{f' ({classes})' if classes else ''}{repaired}"


def extent_of(chunks: Sequence[ChunkOutcome]) -> ExtentView | None:
    """The sum over the published chunks; removals count once for each snapshot. None if a chunk's extent is unknown."""
    published = [each.attempt for each in chunks if each.attempt.snapshot_id is not None]
    extents = [each.extent for each in published if each.extent is not None]
    if len(extents) < len(published):
        return None
    by_snapshot = {each.snapshot_id: extent for each, extent in zip(published, extents, strict=True)}
    return ExtentView(
        rows_added=sum(each.rows_added for each in extents),
        files_added=sum(each.files_added for each in extents),
        rows_removed=sum(each.rows_removed for each in by_snapshot.values()),
        files_removed=sum(each.files_removed for each in by_snapshot.values()),
    )


def _json(outcome: Outcome) -> dict[str, object]:
    """The common JSON fields. Row and file counts are null if a chunk's counts are unknown."""
    extent = extent_of(outcome.chunks)
    counts = ("rows_added", "files_added", "rows_removed", "files_removed")
    overrides = {each.attempt.override_id for each in outcome.chunks}
    return {
        "outcome": outcome.name,
        "exit_code": outcome.exit_code,
        "workload_id": outcome.workload_id,
        "table": outcome.table,
        **(dict.fromkeys(counts) if extent is None else view_json(extent)),
        "source_moved": None if outcome.source_moved is None else outcome.source_moved.to_json(),
        "override_ids": sorted(each for each in overrides if each is not None),
        "chunks": [each.to_json() for each in outcome.chunks],
    }


def segment_end_text(error: SegmentEndedError) -> str:
    """Why the segment has ended, and what continues the workload."""
    return f"{error.message}; {error.hint} ({error.reason})"


def _unpublished_json(outcome: VerificationFailed | RolledBack) -> dict[str, object]:
    counts = outcome.chunk_counts
    return _json(outcome) | {
        "chunk_counts": None if counts is None else counts.to_json(),
        "error": outcome.error.to_json(),
    }


def find_source_move(workload: WorkloadView, chunks: Sequence[ChunkOutcome], *, appends: bool) -> SourceMoved | None:
    """The pinned and the newest snapshot of the source; None if both are equal, or one is unknown."""
    pinned, newest = workload.source_snapshot_id, workload.source_newest_snapshot_id
    if pinned is None or newest is None or pinned == newest:
        return None
    # The ledger's row of an open workload has not changed since the workload was opened.
    opened_at = workload.changed_at if workload.state is WorkloadState.OPEN else None
    return SourceMoved(pinned, newest, _correction(workload, chunks, newest, appends=appends), opened_at)


def _correction(workload: WorkloadView, chunks: Sequence[ChunkOutcome], newest: int, *, appends: bool) -> str:
    """How to publish the source's newer rows."""
    published = sum(1 for each in chunks if each.state is AttemptState.COMMITTED)
    if published < workload.chunk_count:
        if not published and AttemptState.COMMITTED not in {each.state for each in workload.chunk_states}:
            return (
                f"to publish {newest}: an operator abandons {workload.workload_id}, of which nothing is published, "
                "and you run the job under a new workload id"
            )
        return f"publish the rest of this workload first; then: {_CORRECT_APPEND if appends else _CORRECT_OVERWRITE}"
    if not appends:
        return _CORRECT_OVERWRITE
    extent = extent_of(chunks)
    return _CORRECT_EMPTY if extent is not None and not extent.rows_added else _CORRECT_APPEND


def must_read_hint(moved: SourceMoved) -> str:
    """The hint about the snapshot that the job has to read."""
    return (
        f"the job must read snapshot {moved.pinned_snapshot_id} of the source, which the workload has pinned; "
        f"the source is at {moved.newest_snapshot_id}"
    )
