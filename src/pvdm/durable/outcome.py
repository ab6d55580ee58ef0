"""How a workload ended: typed outcomes with the design's exit codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, TypeAlias

from pvdm.client import AttemptView, ExtentView
from pvdm.errors import PvdmError, RolledBackError, VerificationError, comparison
from pvdm.model.plain import counted, view_json
from pvdm.model.printable import printable, utc_time
from pvdm.model.states import AttemptState


class Published(Enum):
    """Whether this run published a workload's rows, or an earlier one had."""

    NOW = "now"
    BEFORE = "before"
    PARTLY_NOW = "partly now"


@dataclass(frozen=True, slots=True)
class SourceMoved:
    """The source has another snapshot by now than the one that the workload reads.

    `correction` says how rows are published that came or changed since. `opened_at` is when the workload pinned its
    snapshot; None where the workload was complete when the run began.
    """

    pinned_snapshot_id: int
    newest_snapshot_id: int
    correction: str
    opened_at: int | None = None

    def __str__(self) -> str:
        pinned, newest = self.pinned_snapshot_id, self.newest_snapshot_id
        if self.opened_at is None:
            told = (
                f"other snapshots came to the source since: published is its snapshot {pinned}, its newest is {newest}"
            )
        else:
            told = f"the workload was opened at {utc_time(self.opened_at)} and reads snapshot {pinned} of its source"
            told += f"; the source is at {newest}"
        return f"{told}; whether rows under the workload's filter changed was not looked at; if so: {self.correction}"

    def to_json(self) -> dict[str, object]:
        """For programs."""
        return {
            "pinned_snapshot_id": str(self.pinned_snapshot_id),
            "newest_snapshot_id": str(self.newest_snapshot_id),
            "opened_at": self.opened_at,
            "correction": self.correction,
        }


@dataclass(frozen=True, slots=True)
class ChunkOutcome:
    """One chunk and the last attempt at it; none where the run ended before its turn.

    `before`: it was published when the run began.
    """

    chunk_id: str
    attempt: AttemptView | None
    before: bool = False

    @property
    def state(self) -> AttemptState | None:
        """Where the attempt stands."""
        return None if self.attempt is None else self.attempt.state

    @property
    def published(self) -> Published | None:
        """Now or before; None where the chunk is not published."""
        if self.state is not AttemptState.COMMITTED:
            return None
        return Published.BEFORE if self.before else Published.NOW

    def to_json(self) -> dict[str, object]:
        """For programs; the Steward's numbers as decimal strings, as in every other JSON."""
        found = self.attempt
        if found is None:
            return {"chunk_id": self.chunk_id, "state": None, "published": None}
        return {
            "chunk_id": self.chunk_id,
            "attempt_id": found.attempt_id,
            "attempt": str(found.number),
            "state": found.state.value,
            "published": None if self.published is None else self.published.value,
            "verdict": None if found.verdict is None else found.verdict.value,
            "classes": [each.value for each in found.classes],
            "findings": [view_json(each) for each in found.findings],
            "findings_more": str(found.findings_more),
            "located": None if found.located is None else view_json(found.located),
            "proof_id": found.proof_id,
            "override_id": found.override_id,
            "snapshot_id": None if found.snapshot_id is None else str(found.snapshot_id),
            "rows_added": None if found.extent is None else str(found.extent.rows_added),
            "files_added": None if found.extent is None else str(found.extent.files_added),
            "refusal": None if found.refusal is None else found.refusal.model_dump(),
        }


@dataclass(frozen=True, slots=True)
class Committed:
    """Every chunk is published; `source_moved` where the source has moved since the workload was opened.

    `note` says what stays as it is, where an overwrite found no row.
    """

    name: ClassVar[str] = "COMMITTED"
    exit_code: ClassVar[int] = 0
    workload_id: str
    table: str
    chunks: tuple[ChunkOutcome, ...]
    source_moved: SourceMoved | None = None
    note: str | None = None

    @property
    def published(self) -> Published:
        """Whether this run published the rows, or an earlier one had."""
        found = {each.before for each in self.chunks}
        if found == {True}:
            return Published.BEFORE
        return Published.PARTLY_NOW if True in found else Published.NOW

    @property
    def snapshot_id(self) -> int | None:
        """The last snapshot that `main` came to show by it."""
        found = [each.attempt.snapshot_id for each in self.chunks if each.attempt is not None]
        return found[-1] if found else None

    @property
    def extent(self) -> ExtentView | None:
        """How many rows and files were added, and how many were taken away; None where the Steward does not know."""
        return extent_of(self.chunks)

    @property
    def overridden(self) -> tuple[ChunkOutcome, ...]:
        """The chunks that were published by an override, and not by proof."""
        return tuple(each for each in self.chunks if each.attempt is not None and each.attempt.overridden)

    def __str__(self) -> str:
        word = "ALREADY PUBLISHED" if self.published is Published.BEFORE else self.name
        much = "how many rows is not known" if self.extent is None else str(self.extent)
        return f"{word}  {self.workload_id}: {counted(len(self.chunks), 'chunk')} of {self.table}, {much}"

    def require(self) -> Committed:
        """Itself; the other outcomes raise."""
        return self

    def to_json(self) -> dict[str, object]:
        """For programs."""
        return _json(self) | {"published": self.published.value, "note": self.note}


@dataclass(frozen=True, slots=True)
class VerificationFailed:
    """A verdict was FAIL, or the gate refused; consumers see what they saw before. The way on is `repair`.

    `before`: an earlier run ended so, and this one has tried nothing.
    """

    name: ClassVar[str] = "VERIFICATION_FAILED"
    exit_code: ClassVar[int] = VerificationError.exit_code
    workload_id: str
    table: str
    chunks: tuple[ChunkOutcome, ...]
    error: VerificationError
    source_moved: SourceMoved | None = None
    before: bool = False

    def __str__(self) -> str:
        return _failure_text(self)

    def require(self) -> Committed:
        """Raises."""
        raise self.error

    def to_json(self) -> dict[str, object]:
        """For programs."""
        return _json(self) | {"judged": "before" if self.before else "now", "error": self.error.to_json()}


@dataclass(frozen=True, slots=True)
class RolledBack:
    """The run ended before its end and left nothing half done; the same call takes it up again."""

    name: ClassVar[str] = "ROLLED_BACK"
    exit_code: ClassVar[int] = RolledBackError.exit_code
    workload_id: str
    table: str
    chunks: tuple[ChunkOutcome, ...]
    error: PvdmError
    source_moved: SourceMoved | None = None

    def __str__(self) -> str:
        return _failure_text(self)

    def require(self) -> Committed:
        """Raises."""
        raise self.error

    def to_json(self) -> dict[str, object]:
        """For programs."""
        return _json(self) | {"error": self.error.to_json()}


Outcome: TypeAlias = Committed | VerificationFailed | RolledBack


def _failure_text(outcome: VerificationFailed | RolledBack) -> str:
    """The same lines as the command prints."""
    error = outcome.error
    lines = [f"{outcome.name}  {outcome.workload_id} of {outcome.table}", f"error: {error.message} ({error.code})"]
    if tail := comparison(error.expected, error.got):
        lines.append(f"  {tail}")
    if error.hint is not None:
        lines.append(f"hint: {error.hint}")
    return "\n".join(map(printable, lines))


def extent_of(chunks: Sequence[ChunkOutcome]) -> ExtentView | None:
    """All that is published of these chunks; a snapshot that shows several of them takes away once."""
    shown = [each.attempt for each in chunks if each.attempt is not None and each.attempt.snapshot_id is not None]
    known = {each.snapshot_id: each.extent for each in shown if each.extent is not None}
    if any(each.extent is None for each in shown):
        return None
    added = [each.extent for each in shown if each.extent is not None]
    return ExtentView(
        rows_added=sum(each.rows_added for each in added),
        files_added=sum(each.files_added for each in added),
        rows_removed=sum(each.rows_removed for each in known.values()),
        files_removed=sum(each.files_removed for each in known.values()),
    )


def _json(outcome: Outcome) -> dict[str, object]:
    """Null counts: something is published of which the Steward does not know how much it is."""
    extent = extent_of(outcome.chunks)
    counts = ("rows_added", "files_added", "rows_removed", "files_removed")
    overrides = {each.attempt.override_id for each in outcome.chunks if each.attempt is not None}
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
