"""Requests and responses about workloads, chunks, attempts and jobs, with wrong rows, orphans and quarantine."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field, ValidationInfo
from pydantic_core import PydanticCustomError

from pvdm.api.base import (
    PLAIN,
    Count,
    DecimalText,
    Flag,
    Micros,
    RandomHex,
    Reason,
    RequestModel,
    ResponseModel,
    SentAs,
    Sha256,
    TableName,
    WorkloadId,
)
from pvdm.api.errors import RefusalView
from pvdm.api.leases import LeaseNumber, LeaseView
from pvdm.errors import InputError, comparison
from pvdm.model.chunk import CHUNK_ID_MAX_CHARACTERS
from pvdm.model.located import WrongRows
from pvdm.model.printable import counted
from pvdm.model.role import Role
from pvdm.model.statements.verdict import FailureClass, Outcome
from pvdm.model.states import (
    ATTEMPT,
    WORKLOAD_TIMEOUT_MAX_SECONDS,
    AttemptState,
    WorkloadState,
)

PARAMETERS_MAX: Final = 64
BRANCH_MAX_CHARACTERS: Final = 255
QUARANTINE_REMOVED_MAX: Final = 100


class RowsInView(ResponseModel):
    """A number of wrong rows: those in the file or partition `name`, or those that differ in the field `name`."""

    name: str
    rows: DecimalText


class KeyColumnView(ResponseModel):
    """One column of a key, as text."""

    column: str
    value: str | None


class SampleKeyView(ResponseModel):
    """A key of wrong rows: how many rows have it, where it was seen first, and which fields differ in modified rows."""

    key: tuple[KeyColumnView, ...]
    rows: DecimalText
    file: str
    partition: str | None
    fields: tuple[str, ...] | None


class LocatedClassView(ResponseModel):
    """The wrong rows of one class. Files and partitions are the staged ones, or the source's for missing rows."""

    failure: Literal["missing", "added", "duplicated", "modified"]
    rows: DecimalText
    files: tuple[RowsInView, ...]
    files_more: Count  # files that are not listed
    partitions: tuple[RowsInView, ...]
    partitions_more: Count
    samples: tuple[SampleKeyView, ...]


class LocatedView(ResponseModel):
    """The wrong rows, or why they were not located. Keys, fields and partitions are only for roles in `keys_for`."""

    classes: tuple[LocatedClassView, ...]
    fields: tuple[RowsInView, ...]  # for each field, the number of modified rows that differ in it
    compared: DecimalText  # modified rows whose fields were compared
    problem_code: str | None
    problem: str | None
    withheld: Flag  # keys, fields and partitions were left out for the token's role
    keys_for: tuple[Literal["producer", "operator", "auditor"], ...]


def _read_located(view: LocatedView, _: ValidationInfo) -> WrongRows:
    document = view.model_dump(exclude={"withheld", "keys_for"})
    try:
        rows = WrongRows.from_json(document)
    except InputError as error:
        code = {"code": error.reason}
        raise PydanticCustomError("located", "Input should be located rows ({code})", code) from None
    return replace(rows, withheld=view.withheld, keys_for=tuple(Role(each) for each in view.keys_for))


def _write_located(rows: WrongRows) -> LocatedView:
    keys_for = tuple(role.value for role in rows.keys_for)
    return LocatedView.model_validate({**rows.to_json(), "withheld": rows.withheld, "keys_for": keys_for})


LocatedField: TypeAlias = Annotated[WrongRows, SentAs(LocatedView, _read_located, _write_located)]

_ParameterValues = Annotated[
    dict[
        Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]{0,63}$")],
        Annotated[str, Field(max_length=4_096, pattern=r"^[^\u0000]*$")],
    ],
    Field(max_length=PARAMETERS_MAX, json_schema_extra={"additionalProperties": False}),
]


class _WorkloadRequest(RequestModel):
    workload_id: WorkloadId
    table: TableName
    parameters: Annotated[_ParameterValues, Field(default_factory=dict)]


class OpenWorkloadRequest(_WorkloadRequest):
    """The table to publish to, the workload's id, and the values of the contract's parameters.

    `timeout_seconds` is how long after the opening runs may stage chunks; a later request can change it.
    `waits` is true in the repetitions of a caller that waits for the plan. Only a request without `waits` begins a new
    plan after a reported error, and runs the plan's job at once if the job waits or has failed.
    """

    timeout_seconds: Annotated[int, Field(ge=1, le=WORKLOAD_TIMEOUT_MAX_SECONDS)] | None = None
    waits: bool = False


class OpenAttemptRequest(RequestModel):
    """The chunk to try, why, and under which lease. A caller that chooses the attempt's id may repeat the request."""

    chunk_id: Annotated[str, Field(min_length=1, max_length=CHUNK_ID_MAX_CHARACTERS, pattern=PLAIN)]
    reason: Reason
    lease_number: LeaseNumber
    attempt_id: RandomHex | None = None


class AbortAttemptRequest(RequestModel):
    """Why the attempt is aborted, and under which lease."""

    reason: Reason
    lease_number: LeaseNumber


class PublishBranchRequest(_WorkloadRequest):
    """The workload to open, and the branch with its staged rows. After a failed attempt, `reason` is required."""

    branch: Annotated[str, Field(min_length=1, max_length=BRANCH_MAX_CHARACTERS, pattern=PLAIN)]
    reason: Reason | None = None


class FindingView(ResponseModel):
    """One finding of verification. `withheld`: the token's role may not see `expected` and `got`, so they are null."""

    failure: FailureClass
    code: str
    message: str
    expected: str | None
    got: str | None
    file: str | None
    withheld: Flag

    def __str__(self) -> str:
        tail = comparison(self.expected, self.got)
        file = f" ({self.file})" if self.file else ""
        return f"{self.code}: {self.message}" + (f": {tail}" if tail else "") + file


class KeptFileView(ResponseModel):
    """The path of a staged file, and where its bytes are kept now."""

    file: str
    location: str


class QuarantineView(ResponseModel):
    """The folder with the files of a failed attempt, and the places of those files that the findings name."""

    folder: str
    files: tuple[KeptFileView, ...]


class ExtentView(ResponseModel):
    """Rows and files that a chunk added, and those that its snapshot removed. Other chunks may share the snapshot."""

    rows_added: DecimalText
    files_added: DecimalText
    rows_removed: DecimalText
    files_removed: DecimalText

    @property
    def added(self) -> str:
        """The rows and files that were added, as in `+3 rows in 1 file`."""
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
    WAITING = "waiting"  # an error that is no verdict stopped it; the Steward tries again by itself
    FAILED = "failed"  # a bug, or an error that a retry does not fix; it runs again at the next start or on request


class JobView(ResponseModel):
    """The Steward's own work for an attempt. `problem` is the error that stopped its last try; it is no verdict.

    `again_seconds` is the time until the next try; null if the Steward does not try again by itself.
    """

    state: JobState
    tries: Count
    problem: RefusalView | None
    again_seconds: Count | None


class ListedJob(JobView):
    """One job; `subject` is the id of an attempt, or of a workload that is published whole or planned; else empty."""

    # dispose: clean up; settle: finish what was interrupted; plan: make the plan of a workload that is being opened
    kind: Literal["verify", "publish", "dispose", "settle", "plan"]
    subject: str
    table: str | None
    workload_id: str | None


class JobList(ResponseModel):
    """The jobs of this Steward that are not done: failed ones first, then those that wait for another try."""

    jobs: tuple[ListedJob, ...]


class WorkloadView(ResponseModel):
    """One workload in the ledger; `table` is the target's full name, `source` the source's UUID.

    `source_newest_snapshot_id` is null in lists, for an abandoned workload, and if it was not or cannot be looked up.
    `source_newer_columns` is Iceberg's JSON of the columns that the source had when the workload was opened, but not in
    the pinned snapshot. `chunk_states` counts the last attempts at the chunks. `problem` is an error that stops one of
    these attempts. `handed_in` counts the attempts that were handed in, including failed ones, and never falls.
    `override_ids` are the overrides that published chunks of the workload. `claim` is the part of the table that no
    other workload can append to. `lease` is the newest lease, live or not.
    Runs may stage chunks until `deadline`; `timed_out` says whether the deadline has passed.
    """

    workload_id: str
    domain: str
    state: WorkloadState
    contract_hash: Sha256
    table_uuid: str
    table: str | None
    source: str
    source_snapshot_id: DecimalText | None
    source_newest_snapshot_id: DecimalText | None
    source_newer_columns: str
    plan_hash: Sha256
    chunk_count: Count
    chunk_states: tuple[ChunkStateView, ...]
    handed_in: Count
    problem: RefusalView | None
    override_ids: tuple[Sha256, ...]
    claim: str | None
    parameters: dict[str, str]
    atomicity: Literal["chunk", "workload"]
    epoch: DecimalText
    reason: str
    changed_at: Micros
    lease: LeaseView | None
    deadline: Micros | None
    timed_out: Flag


class PlanningView(ResponseModel):
    """A workload's plan in the making: `files_read` of `files` source files are read. `problem` delays the plan.

    A plan's job that has `failed` runs again when another caller opens the workload, or when the Steward starts again.
    """

    workload_id: str
    files_read: Count
    files: Count
    problem: RefusalView | None
    failed: Flag


class OpenedWorkload(ResponseModel):
    """The open workload; or, while the workload is not open, its plan in the making."""

    workload: WorkloadView | None
    planning: PlanningView | None


class AbandonedWorkload(ResponseModel):
    """The abandoned workload; or its abandoned plan, if the workload was not open yet."""

    workload: WorkloadView | None
    planning: PlanningView | None


class WorkloadList(ResponseModel):
    """Workloads in order of their ids; the next page begins `after` the last id."""

    workloads: tuple[WorkloadView, ...]


class NewestWorkloads(ResponseModel):
    """The workloads that were opened or ended last, the latest first; `total` is the number of all workloads."""

    workloads: tuple[WorkloadView, ...]
    total: DecimalText


class AttemptView(ResponseModel):
    """One attempt; `waiting` means that it is proved and waits for the other chunks of its workload.

    `verdict`, `classes`, `findings` and `proof_id` are of the newest proof; a VERIFYING attempt shows no proof.
    `findings_more` findings are not listed. `located` has the wrong rows, as far as the token's role may see them.
    `snapshot_id` and `extent` are what was published. `override_id` is the override that published a FAIL.
    `refusal` is the Steward's error that ended the attempt. `prefix` is the folder for the attempt's staged files.
    """

    attempt_id: RandomHex
    workload_id: str
    chunk_id: str
    number: Count
    state: AttemptState
    table: str | None
    target_branch: str
    branch: str
    prefix: str
    staged_snapshot_id: DecimalText | None
    reason: str
    changed_at: Micros
    waiting: Flag
    verdict: Outcome | None
    classes: tuple[FailureClass, ...]
    findings: tuple[FindingView, ...]
    findings_more: Count
    proof_id: Sha256 | None
    override_id: Sha256 | None
    snapshot_id: DecimalText | None
    extent: ExtentView | None
    refusal: RefusalView | None
    job: JobView | None
    located: LocatedField | None
    quarantine: QuarantineView | None

    @property
    def problem(self) -> RefusalView | None:
        """The error that stops the Steward's work for the attempt, or None."""
        return None if self.job is None else self.job.problem

    @property
    def overridden(self) -> bool:
        """Whether an override published the attempt although its verdict is FAIL."""
        return self.state is AttemptState.COMMITTED and self.verdict is Outcome.FAIL

    @property
    def settled(self) -> bool:
        """Whether waiting for the attempt is over: it has ended, waits for other chunks, or its job has failed."""
        failed = self.job is not None and self.job.state is JobState.FAILED
        return is_attempt_settled(self.state, waiting=self.waiting, failed=failed)


def is_attempt_settled(state: AttemptState, *, waiting: bool, failed: bool) -> bool:
    """Whether waiting for an attempt is over; `failed`: its job has failed."""
    return state not in ATTEMPT.live() or waiting or failed


class PublishedView(ResponseModel):
    """The attempt and the snapshot that published a chunk."""

    chunk_id: str
    attempt_id: RandomHex
    snapshot_id: DecimalText


class WorkloadDetail(WorkloadView):
    """A workload with a page of its plan's chunks, every attempt at these chunks, and their publications.

    A page with many attempts may be shorter than requested. A request for the next page has `chunks_after`, the number
    of chunks read so far. `chunk_count` is the number of all chunks.
    """

    chunk_ids: tuple[str, ...]
    attempts: tuple[AttemptView, ...]
    published: tuple[PublishedView, ...]

    @property
    def workload(self) -> WorkloadView:
        """The workload without its plan."""
        return WorkloadView.model_construct(**{name: getattr(self, name) for name in WorkloadView.model_fields})


class ChunkView(ResponseModel):
    """One chunk of the plan: the source's rows for which `where` is true, or those of `files`; and its last attempt."""

    chunk_id: str
    where: str | None
    files: tuple[str, ...] | None
    attempt: AttemptView | None


class ChunkList(ResponseModel):
    """Chunks in the plan's order; a page may be shorter than requested, and is empty after the last chunk."""

    chunks: tuple[ChunkView, ...]


class RemoveOrphansRequest(RequestModel):
    """The table whose orphans are removed."""

    table: TableName


class RemoveQuarantinedRequest(RequestModel):
    """The failed attempts whose files are removed, and why."""

    attempt_ids: Annotated[list[RandomHex], Field(min_length=1, max_length=QUARANTINE_REMOVED_MAX)]
    reason: Reason


class OrphanView(ResponseModel):
    """A file that an ended attempt or a published branch left behind, and that nothing refers to."""

    location: str
    size: DecimalText
    attempt_id: RandomHex


class OrphanList(ResponseModel):
    """Files that nothing refers to."""

    orphans: tuple[OrphanView, ...]


class QuarantinedView(ResponseModel):
    """A failed attempt whose files are kept. `undecided` is why they cannot be removed yet; null if they can.

    If the ledger lacks the attempt, workload, chunk, verdict and proof are null; `failed_at` is the newest file's time.
    """

    attempt_id: RandomHex
    workload_id: str | None
    chunk_id: str | None
    table: str | None
    table_uuid: str
    verdict: str | None
    proof_id: Sha256 | None
    failed_at: Micros
    age_seconds: Count
    files: Count
    bytes: DecimalText
    folder: str
    undecided: str | None


class QuarantinedList(ResponseModel):
    """Failed attempts whose files are kept, oldest first; a page after the last attempt is empty."""

    quarantine: tuple[QuarantinedView, ...]


class QuarantineRemovalView(ResponseModel):
    """What was removed of one attempt, who removed it (`name`), and why."""

    attempt_id: RandomHex
    files: Count
    bytes: DecimalText
    name: str
    reason: str


class QuarantineRemovalList(ResponseModel):
    """The files that were removed, by attempt."""

    removed: tuple[QuarantineRemovalView, ...]
