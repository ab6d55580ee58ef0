"""Workloads, chunks, attempts and jobs, with located rows, orphans and quarantined files."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field, ValidationInfo
from pydantic_core import PydanticCustomError

from pvdm.api.base import (
    PLAIN,
    WORKLOAD_ID,
    Count,
    Decimal,
    Flag,
    Micros,
    Random,
    Reason,
    RequestModel,
    ResponseModel,
    SentAs,
    Sha256,
    TableName,
)
from pvdm.api.errors import RefusalView
from pvdm.errors import InputError, comparison
from pvdm.model.chunk import CHUNK_ID_MAX_CHARACTERS
from pvdm.model.located import WrongRows
from pvdm.model.printable import counted
from pvdm.model.role import Role
from pvdm.model.statements.verdict import FailureClass, Outcome
from pvdm.model.states import ATTEMPT, AttemptState, WorkloadState

PARAMETERS_MAX: Final = 64
BRANCH_MAX_CHARACTERS: Final = 255
QUARANTINE_REMOVED_MAX: Final = 100


class RowsInView(ResponseModel):
    """The number of rows in one file or partition, or with one field that differs."""

    name: str
    rows: Decimal


class KeyColumnView(ResponseModel):
    """One column of a key, as text."""

    column: str
    value: str | None


class SampleKeyView(ResponseModel):
    """A key of wrong rows: in how many rows, where it was first seen, and which fields differ in a modified one."""

    key: tuple[KeyColumnView, ...]
    rows: Decimal
    file: str
    partition: str | None
    fields: tuple[str, ...] | None


class LocatedClassView(ResponseModel):
    """The wrong rows of one class; files and partitions are the staged ones, for missing rows the source's."""

    failure: Literal["missing", "added", "duplicated", "modified"]
    rows: Decimal
    files: tuple[RowsInView, ...]
    files_more: Count
    partitions: tuple[RowsInView, ...]
    partitions_more: Count
    samples: tuple[SampleKeyView, ...]


class LocatedView(ResponseModel):
    """Which rows are wrong, or why they were not located; keys, fields and partitions for roles that may see them.

    `withheld` says that the token's role may not; `keys_for` are the roles that may.
    """

    classes: tuple[LocatedClassView, ...]
    fields: tuple[RowsInView, ...]
    compared: Decimal
    problem_code: str | None
    problem: str | None
    withheld: Flag
    keys_for: tuple[Literal["producer", "operator", "auditor"], ...]


def _read_located(view: LocatedView, _: ValidationInfo) -> WrongRows:
    document = view.model_dump(exclude={"withheld", "keys_for"})
    try:
        found = WrongRows.from_json(document)
    except InputError as error:
        code = error.reason
    else:
        return replace(found, withheld=view.withheld, keys_for=tuple(Role(each) for each in view.keys_for))
    raise PydanticCustomError("located", "Input should be located rows ({code})", {"code": code})


def _write_located(found: WrongRows) -> LocatedView:
    more = {"withheld": found.withheld, "keys_for": tuple(role.value for role in found.keys_for)}
    return LocatedView.model_validate({**found.to_json(), **more})


LocatedField: TypeAlias = Annotated[WrongRows, SentAs(LocatedView, _read_located, _write_located)]


_Parameters = Annotated[
    dict[
        Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]{0,63}$")],
        Annotated[str, Field(max_length=4_096, pattern=r"^[^\u0000]*$")],
    ],
    Field(max_length=PARAMETERS_MAX, json_schema_extra={"additionalProperties": False}),
]


class OpenWorkloadRequest(RequestModel):
    """The table to publish to, the workload's id, and the values of the contract's parameters."""

    workload_id: Annotated[str, Field(pattern=WORKLOAD_ID)]
    table: TableName
    parameters: Annotated[_Parameters, Field(default_factory=dict)]


class OpenAttemptRequest(RequestModel):
    """The chunk to attempt, and why. With an id of its own choice the caller may send the same request again."""

    chunk_id: Annotated[str, Field(min_length=1, max_length=CHUNK_ID_MAX_CHARACTERS, pattern=PLAIN)]
    reason: Reason
    attempt_id: Random | None = None


class PublishBranchRequest(OpenWorkloadRequest):
    """The branch that holds the staged rows; after a branch that failed, the reason for another attempt."""

    branch: Annotated[str, Field(min_length=1, max_length=BRANCH_MAX_CHARACTERS, pattern=PLAIN)]
    reason: Reason | None = None


class FindingView(ResponseModel):
    """One thing that verification found wrong; `withheld` says that the role may not see its values of rows."""

    failure: FailureClass
    code: str
    message: str
    expected: str | None
    got: str | None
    file: str | None
    withheld: Flag

    def __str__(self) -> str:
        tail = comparison(self.expected, self.got)
        place = f" ({self.file})" if self.file else ""
        return f"{self.code}: {self.message}" + (f": {tail}" if tail else "") + place


class KeptFileView(ResponseModel):
    """A staged file by its old path, and where its bytes are."""

    file: str
    location: str


class QuarantineView(ResponseModel):
    """The folder with the files of a failed attempt, and the places of those files that the findings name."""

    folder: str
    files: tuple[KeptFileView, ...]


class ExtentView(ResponseModel):
    """How much was published: the chunk's own rows and files, and those that its whole snapshot removed."""

    rows_added: Decimal
    files_added: Decimal
    rows_removed: Decimal
    files_removed: Decimal

    @property
    def added(self) -> str:
        """`+3 rows in 1 file`: what was added."""
        return f"+{counted(self.rows_added, 'row')} in {counted(self.files_added, 'file')}"

    def __str__(self) -> str:
        if not self.files_removed:
            return self.added
        return f"{self.added}, replacing {counted(self.rows_removed, 'row')} in {counted(self.files_removed, 'file')}"


class ChunkStateView(ResponseModel):
    """The number of chunks whose last attempt is in this state."""

    state: AttemptState
    chunks: Count


class JobState(Enum):
    """The state of the Steward's own work for an attempt."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"  # after an error that is no verdict; the Steward tries again by itself
    FAILED = "failed"  # after a bug, or an error that another try does not cure; due at the next start or on request


class JobView(ResponseModel):
    """The Steward's own work for an attempt; `problem` is what stopped its last try, and is no verdict.

    `again_seconds` is the time until the Steward tries again by itself, where it does.
    """

    state: JobState
    tries: Count
    problem: RefusalView | None
    again_seconds: Count | None


class ListedJob(JobView):
    """One job; `subject` is an attempt, or a workload that is published whole, or empty: then it is about no table."""

    kind: Literal["verify", "publish", "dispose", "settle"]
    subject: str
    table: str | None
    workload_id: str | None


class JobList(ResponseModel):
    """The jobs of this Steward that are not done: failed ones first, then those that wait for another try."""

    jobs: tuple[ListedJob, ...]


class WorkloadView(ResponseModel):
    """One workload in the ledger; `table` is the target's full name, `source` the source's UUID.

    `source_newest_snapshot_id` is the newest snapshot of the source. It is null in lists, for an abandoned workload,
    and where the Steward cannot find out. `source_newer_columns` is Iceberg's JSON of the columns that the source had
    when the workload was opened, and its pinned snapshot had not. `chunk_states` counts the last attempts at each
    chunk that was tried. `problem` is what stops the Steward's work at one of them. `override_ids` are the overrides
    that it was published by. `claim` is the part of the table that it has published rows of, and that no other
    workload can append to.
    """

    workload_id: str
    domain: str
    state: WorkloadState
    contract_hash: Sha256
    table_uuid: str
    table: str | None
    source: str
    source_snapshot_id: Decimal | None
    source_newest_snapshot_id: Decimal | None
    source_newer_columns: str
    plan_hash: Sha256
    chunk_count: Count
    chunk_states: tuple[ChunkStateView, ...]
    problem: RefusalView | None
    override_ids: tuple[Sha256, ...]
    claim: str | None
    parameters: dict[str, str]
    atomicity: Literal["chunk", "workload"]
    epoch: Decimal
    reason: str
    changed_at: Micros


class WorkloadList(ResponseModel):
    """Workloads in order of their ids; `after` the last one gives the next."""

    workloads: tuple[WorkloadView, ...]


class NewestWorkloads(ResponseModel):
    """Workloads by the time of their opening or end, the latest first; `total` is how many there are."""

    workloads: tuple[WorkloadView, ...]
    total: Decimal


class AttemptView(ResponseModel):
    """One attempt; `waiting` says that it is proved and waits for the other chunks of its workload.

    `verdict`, `classes`, `findings` and `proof_id` are of the newest proof. `findings_more` is the number of findings
    that are not listed. `snapshot_id` and `extent` are what was published, `override_id` the override that published
    it where the verdict is FAIL. `refusal` is why it ended, `job` what the Steward does for it. `located` are the wrong
    rows, as far as the token's role may see them. `quarantine` is where the files of a FAIL are.
    """

    attempt_id: Random
    workload_id: str
    chunk_id: str
    number: Count
    state: AttemptState
    table: str | None
    target_branch: str
    branch: str
    prefix: str
    staged_snapshot_id: Decimal | None
    reason: str
    changed_at: Micros
    waiting: Flag
    verdict: Outcome | None
    classes: tuple[FailureClass, ...]
    findings: tuple[FindingView, ...]
    findings_more: Count
    proof_id: Sha256 | None
    override_id: Sha256 | None
    snapshot_id: Decimal | None
    extent: ExtentView | None
    refusal: RefusalView | None
    job: JobView | None
    located: LocatedField | None
    quarantine: QuarantineView | None

    @property
    def problem(self) -> RefusalView | None:
        """What stops the Steward's work for it, if anything does."""
        return None if self.job is None else self.job.problem

    @property
    def overridden(self) -> bool:
        """Whether an override published it although its verdict is FAIL."""
        return self.state is AttemptState.COMMITTED and self.verdict is Outcome.FAIL

    @property
    def settled(self) -> bool:
        """Whether waiting for it is over: it has ended, or waits for other chunks, or its job has failed."""
        failed = self.job is not None and self.job.state is JobState.FAILED
        return is_attempt_settled(self.state, waiting=self.waiting, failed=failed)


def is_attempt_settled(state: AttemptState, *, waiting: bool, failed: bool) -> bool:
    """Whether waiting for an attempt is over; `failed` is its job."""
    return state not in ATTEMPT.live() or waiting or failed


class PublishedView(ResponseModel):
    """The attempt and the snapshot that published a chunk."""

    chunk_id: str
    attempt_id: Random
    snapshot_id: Decimal


class WorkloadDetail(WorkloadView):
    """A workload with a page of its plan, in its order, every attempt at those chunks, and what is published of them.

    A page may be shorter than asked for where many attempts were made. `chunks_after` the chunks seen so far gives the
    next one, until `chunk_count` of them were seen.
    """

    chunk_ids: tuple[str, ...]
    attempts: tuple[AttemptView, ...]
    published: tuple[PublishedView, ...]

    @property
    def workload(self) -> WorkloadView:
        """The workload without its plan."""
        return WorkloadView.model_construct(**{name: getattr(self, name) for name in WorkloadView.model_fields})


class ChunkView(ResponseModel):
    """One chunk of the plan, and the last attempt at it: the source's rows for which `where` is true, or of `files`."""

    chunk_id: str
    where: str | None
    files: tuple[str, ...] | None
    attempt: AttemptView | None


class ChunkList(ResponseModel):
    """Chunks in the plan's order; a page may be shorter than asked for, and is empty after the last one."""

    chunks: tuple[ChunkView, ...]


class RemoveOrphansRequest(RequestModel):
    """The table whose orphans are removed."""

    table: TableName


class RemoveQuarantinedRequest(RequestModel):
    """The failed attempts whose files are removed, and why."""

    attempt_ids: Annotated[list[Random], Field(min_length=1, max_length=QUARANTINE_REMOVED_MAX)]
    reason: Reason


class OrphanView(ResponseModel):
    """A file that an attempt left behind, and that nothing refers to."""

    location: str
    size: Decimal
    attempt_id: Random


class OrphanList(ResponseModel):
    """Files that nothing refers to."""

    orphans: tuple[OrphanView, ...]


class QuarantinedView(ResponseModel):
    """A failed attempt whose files are kept; `undecided` says why they cannot be removed yet, and is null if they can.

    Workload and chunk are null where the ledger does not know the attempt; `failed_at` is when its files were written.
    """

    attempt_id: Random
    workload_id: str | None
    chunk_id: str | None
    table: str | None
    table_uuid: str
    verdict: str | None
    proof_id: Sha256 | None
    failed_at: Micros
    age_seconds: Count
    files: Count
    bytes: Decimal
    folder: str
    undecided: str | None


class QuarantinedList(ResponseModel):
    """Failed attempts whose files are kept, oldest first; empty after the last one."""

    quarantine: tuple[QuarantinedView, ...]


class QuarantineRemovalView(ResponseModel):
    """What was removed of one attempt, by whom and why."""

    attempt_id: Random
    files: Count
    bytes: Decimal
    name: str
    reason: str


class QuarantineRemovalList(ResponseModel):
    """What was removed."""

    removed: tuple[QuarantineRemovalView, ...]
