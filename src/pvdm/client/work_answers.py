"""What the Steward answers about workloads, chunks and attempts, as frozen values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from pvdm.client.located_answers import read_located
from pvdm.client.reading import Reading
from pvdm.errors import comparison
from pvdm.model.located import Located
from pvdm.model.plain import counted
from pvdm.model.statements.verdict import FailureClass, Outcome
from pvdm.model.states import AttemptState, WorkloadState

_T = TypeVar("_T")


class JobState(Enum):
    """Where the Steward's own work for an attempt stands."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class RefusalView:
    """Why verify or the gate refused, or what keeps the Steward from its work just now."""

    code: str
    message: str
    expected: str | None
    got: str | None
    hint: str | None

    @classmethod
    def read(cls, value: object) -> RefusalView:
        """The answer's value."""
        fields = Reading(value, "the refusal")
        return cls(
            fields.text("code"),
            fields.text("message"),
            fields.optional_text("expected"),
            fields.optional_text("got"),
            fields.optional_text("hint"),
        )


@dataclass(frozen=True, slots=True)
class FindingView:
    """One thing that verification found wrong; `withheld` says that the role may not see its values of rows."""

    failure: FailureClass
    code: str
    message: str
    expected: str | None
    got: str | None
    file: str | None
    withheld: bool = False

    def __str__(self) -> str:
        tail = comparison(self.expected, self.got)
        place = f" ({self.file})" if self.file else ""
        return f"{self.code}: {self.message}" + (f": {tail}" if tail else "") + place

    @classmethod
    def read(cls, value: object) -> FindingView:
        """The answer's value."""
        fields = Reading(value, "the finding")
        return cls(
            fields.choice("failure", FailureClass),
            fields.text("code"),
            fields.text("message"),
            fields.optional_text("expected"),
            fields.optional_text("got"),
            fields.optional_text("file"),
            fields.flag("withheld"),
        )


@dataclass(frozen=True, slots=True)
class KeptFileView:
    """A staged file by its old path, and where its bytes are."""

    file: str
    location: str

    @classmethod
    def read(cls, value: object) -> KeptFileView:
        """The answer's value."""
        fields = Reading(value, "a file in quarantine")
        return cls(fields.text("file"), fields.text("location"))


@dataclass(frozen=True, slots=True)
class QuarantineView:
    """The folder where the files of a failed attempt are, and where in it those that are spoken of."""

    folder: str
    files: tuple[KeptFileView, ...]

    @classmethod
    def read(cls, value: object) -> QuarantineView:
        """The answer's value."""
        fields = Reading(value, "the quarantine")
        return cls(fields.text("folder"), fields.items("files", KeptFileView.read))


@dataclass(frozen=True, slots=True)
class ExtentView:
    """How much was published: the chunk's own rows and files, and those that its whole snapshot took away."""

    rows_added: int
    files_added: int
    rows_removed: int
    files_removed: int

    @property
    def added(self) -> str:
        """`+3 rows in 1 file`: what was added."""
        return f"+{counted(self.rows_added, 'row')} in {counted(self.files_added, 'file')}"

    def __str__(self) -> str:
        if not self.files_removed:
            return self.added
        return f"{self.added}, replacing {counted(self.rows_removed, 'row')} in {counted(self.files_removed, 'file')}"

    @classmethod
    def read(cls, value: object) -> ExtentView:
        """The answer's value."""
        fields = Reading(value, "the extent")
        return cls(
            fields.decimal("rows_added"),
            fields.decimal("files_added"),
            fields.decimal("rows_removed"),
            fields.decimal("files_removed"),
        )


@dataclass(frozen=True, slots=True)
class ChunkStateView:
    """How many chunks' last attempts stand so."""

    state: AttemptState
    chunks: int

    @classmethod
    def read(cls, value: object) -> ChunkStateView:
        """The answer's value."""
        fields = Reading(value, "the chunks' states")
        return cls(fields.choice("state", AttemptState), fields.number("chunks"))


@dataclass(frozen=True, slots=True)
class JobView:
    """The Steward's own work for an attempt; `problem` is nobody's verdict, and keeps it from going on.

    `again_seconds`: how long it is until the Steward tries again by itself, where it does.
    """

    state: JobState
    tries: int
    problem: RefusalView | None
    again_seconds: int | None = None

    @classmethod
    def read(cls, value: object) -> JobView:
        """The answer's value."""
        fields = Reading(value, "the job")
        return cls(
            fields.choice("state", JobState),
            fields.number("tries"),
            _optional(fields, "problem", RefusalView.read),
            None if fields.value("again_seconds") is None else fields.number("again_seconds"),
        )


@dataclass(frozen=True, slots=True)
class ListedJob:
    """A job of the Steward that is not done; `subject` is an attempt, or a workload that is published whole."""

    kind: str
    subject: str
    state: JobState
    tries: int
    problem: RefusalView | None
    table: str | None = None
    workload_id: str | None = None

    @classmethod
    def read(cls, value: object) -> ListedJob:
        """The answer's value."""
        fields = Reading(value, "the job")
        job = JobView.read(value)
        return cls(
            fields.text("kind"),
            fields.text("subject"),
            job.state,
            job.tries,
            job.problem,
            fields.optional_text("table"),
            fields.optional_text("workload_id"),
        )


@dataclass(frozen=True, slots=True)
class WorkloadView:
    """One workload as the ledger has it; `table` is the target's full name, `parameters` its own, by name.

    `source_newest_snapshot_id` is where the source stands now; None in lists, of an abandoned workload, and where the
    Steward cannot tell. `source_newer_columns` is Iceberg's JSON of the columns that the source had when the workload
    was opened, and its pinned snapshot had not.
    `chunk_states` tells of the last attempt at each chunk that was tried, `problem` what keeps the Steward from going
    on with one, and `override_ids` which overrides it was published by. `claim` is the part of the table that it has
    published rows of, and that no other workload can append to.
    """

    workload_id: str
    domain: str
    state: WorkloadState
    contract_hash: str
    table_uuid: str
    table: str | None
    source: str
    source_snapshot_id: int | None
    source_newest_snapshot_id: int | None
    source_newer_columns: str
    plan_hash: str
    chunk_count: int
    chunk_states: tuple[ChunkStateView, ...]
    problem: RefusalView | None
    override_ids: tuple[str, ...]
    claim: str | None
    parameters: tuple[tuple[str, str], ...]
    atomicity: str
    epoch: int
    reason: str
    changed_at: int

    @classmethod
    def read(cls, value: object) -> WorkloadView:
        """The answer's value."""
        fields = Reading(value, "the workload")
        parameters = fields.reading("parameters")
        return cls(
            fields.text("workload_id"),
            fields.text("domain"),
            fields.choice("state", WorkloadState),
            fields.hex("contract_hash", 32),
            fields.text("table_uuid"),
            fields.optional_text("table"),
            fields.text("source"),
            fields.optional_decimal("source_snapshot_id"),
            fields.optional_decimal("source_newest_snapshot_id"),
            fields.text("source_newer_columns"),
            fields.hex("plan_hash", 32),
            fields.number("chunk_count"),
            fields.items("chunk_states", ChunkStateView.read),
            _optional(fields, "problem", RefusalView.read),
            fields.texts("override_ids"),
            fields.optional_text("claim"),
            tuple((name, parameters.text(name)) for name, _ in fields.pairs("parameters")),
            fields.text("atomicity"),
            fields.decimal("epoch"),
            fields.text("reason"),
            fields.number("changed_at"),
        )


@dataclass(frozen=True, slots=True)
class NewestWorkloads:
    """The workloads that were opened or ended last, the latest first, and how many there are in all."""

    workloads: tuple[WorkloadView, ...]
    total: int

    @classmethod
    def read(cls, value: object) -> NewestWorkloads:
        """The answer's value."""
        fields = Reading(value, "the newest workloads")
        return cls(fields.items("workloads", WorkloadView.read), fields.decimal("total"))


@dataclass(frozen=True, slots=True)
class AttemptView:
    """One attempt; `waiting` says that it is proved and waits for the other chunks of its workload.

    `findings` are the first things that verification found wrong, and `findings_more` says how many there are besides;
    `extent` is how much was published, and `override_id` what it was published by where that was no proof. `located`
    are the rows that are wrong, as far as the token's role may see them, and `quarantine` is where the files are.
    """

    attempt_id: str
    workload_id: str
    chunk_id: str
    number: int
    state: AttemptState
    table: str | None
    target_branch: str
    branch: str
    prefix: str
    staged_snapshot_id: int | None
    reason: str
    changed_at: int
    waiting: bool
    verdict: Outcome | None
    classes: tuple[FailureClass, ...]
    findings: tuple[FindingView, ...]
    findings_more: int
    proof_id: str | None
    override_id: str | None
    snapshot_id: int | None
    extent: ExtentView | None
    refusal: RefusalView | None
    job: JobView | None
    located: Located | None = None
    quarantine: QuarantineView | None = None

    @property
    def problem(self) -> RefusalView | None:
        """What keeps the Steward from going on with it, if anything does."""
        return None if self.job is None else self.job.problem

    @property
    def overridden(self) -> bool:
        """Whether it was published although its verdict is FAIL: by an override, and not by proof."""
        return self.state is AttemptState.COMMITTED and self.verdict is Outcome.FAIL

    @property
    def settled(self) -> bool:
        """Whether waiting for it is over: it has ended, or waits for others, or a bug holds it."""
        stuck = self.job is not None and self.job.state is JobState.FAILED
        ended = self.state in (AttemptState.COMMITTED, AttemptState.VERIFICATION_FAILED, AttemptState.ROLLED_BACK)
        return ended or self.waiting or stuck

    @classmethod
    def read(cls, value: object) -> AttemptView:
        """The answer's value."""
        fields = Reading(value, "the attempt")
        return cls(
            fields.hex("attempt_id", 16),
            fields.text("workload_id"),
            fields.text("chunk_id"),
            fields.number("number"),
            fields.choice("state", AttemptState),
            fields.optional_text("table"),
            fields.text("target_branch"),
            fields.text("branch"),
            fields.text("prefix"),
            fields.optional_decimal("staged_snapshot_id"),
            fields.text("reason"),
            fields.number("changed_at"),
            fields.flag("waiting"),
            None if fields.value("verdict") is None else fields.choice("verdict", Outcome),
            fields.items("classes", lambda item: Reading({"class": item}, "the classes").choice("class", FailureClass)),
            fields.items("findings", FindingView.read),
            fields.number("findings_more"),
            fields.optional_hex("proof_id", 32),
            fields.optional_hex("override_id", 32),
            fields.optional_decimal("snapshot_id"),
            _optional(fields, "extent", ExtentView.read),
            _optional(fields, "refusal", RefusalView.read),
            _optional(fields, "job", JobView.read),
            read_located(fields.value("located")) if fields.has("located") else None,
            _optional(fields, "quarantine", QuarantineView.read),
        )


@dataclass(frozen=True, slots=True)
class ChunkView:
    """One chunk of the plan: rows for which `where` is true, or those of `files`; and the last attempt at it."""

    chunk_id: str
    where: str | None
    files: tuple[str, ...] | None
    attempt: AttemptView | None

    @classmethod
    def read(cls, value: object) -> ChunkView:
        """The answer's value."""
        fields = Reading(value, "the chunk")
        return cls(
            fields.text("chunk_id"),
            fields.optional_text("where"),
            None if fields.value("files") is None else fields.texts("files"),
            _optional(fields, "attempt", AttemptView.read),
        )


@dataclass(frozen=True, slots=True)
class OrphanView:
    """A file that an attempt left behind and that nothing refers to."""

    location: str
    size: int
    attempt_id: str

    @classmethod
    def read(cls, value: object) -> OrphanView:
        """The answer's value."""
        fields = Reading(value, "the orphan")
        return cls(fields.text("location"), fields.decimal("size"), fields.hex("attempt_id", 16))


@dataclass(frozen=True, slots=True)
class PublishedView:
    """What made a chunk visible."""

    chunk_id: str
    attempt_id: str
    snapshot_id: int

    @classmethod
    def read(cls, value: object) -> PublishedView:
        """The answer's value."""
        fields = Reading(value, "what is published")
        return cls(fields.text("chunk_id"), fields.hex("attempt_id", 16), fields.decimal("snapshot_id"))


@dataclass(frozen=True, slots=True)
class WorkloadDetail:
    """A workload with a page of its plan, every attempt at those chunks, and what is published of them."""

    workload: WorkloadView
    chunk_count: int
    chunk_ids: tuple[str, ...]
    attempts: tuple[AttemptView, ...]
    published: tuple[PublishedView, ...]

    @classmethod
    def read(cls, value: object) -> WorkloadDetail:
        """The answer's value."""
        fields = Reading(value, "the workload")
        return cls(
            WorkloadView.read(value),
            fields.number("chunk_count"),
            fields.texts("chunk_ids"),
            fields.items("attempts", AttemptView.read),
            fields.items("published", PublishedView.read),
        )


def _optional(fields: Reading, key: str, read: Callable[[object], _T]) -> _T | None:
    value = fields.value(key)
    return None if value is None else read(value)
