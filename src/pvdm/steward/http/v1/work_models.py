"""Workloads, chunks and attempts on the wire."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from pvdm.model.chunk import CHUNK_ID_MAX_CHARACTERS
from pvdm.steward.http.v1.located_models import LocatedPart
from pvdm.steward.http.v1.models import PLAIN, WORKLOAD_ID, Asked, Decimal, Micros, Random, Reason, Sha256, Told

QUARANTINE_REMOVED_MAX: Final = 100
TABLE_NAME_MAX_CHARACTERS: Final = 4_096
PARAMETERS_MAX: Final = 64
BRANCH_MAX_CHARACTERS: Final = 255

_Parameters = Annotated[
    dict[
        Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]{0,63}$")],
        Annotated[str, Field(max_length=4_096, pattern=r"^[^\u0000]*$")],
    ],
    Field(max_length=PARAMETERS_MAX, json_schema_extra={"additionalProperties": False}),
]
_Table = Annotated[str, Field(min_length=1, max_length=TABLE_NAME_MAX_CHARACTERS, pattern=PLAIN)]


class OpeningBody(Asked):
    """Which table is published to under which id, and the values of its contract's parameters."""

    workload_id: Annotated[str, Field(pattern=WORKLOAD_ID)]
    table: _Table
    parameters: Annotated[_Parameters, Field(default_factory=dict)]


class AttemptBody(Asked):
    """Which chunk is tried, and why; by an id of the caller's own the same request may be sent again."""

    chunk_id: Annotated[str, Field(min_length=1, max_length=CHUNK_ID_MAX_CHARACTERS, pattern=PLAIN)]
    reason: Reason
    attempt_id: Random | None = None


class PublicationBody(OpeningBody):
    """Which branch holds what was staged; after a branch that failed, the reason for another try."""

    branch: Annotated[str, Field(min_length=1, max_length=BRANCH_MAX_CHARACTERS, pattern=PLAIN)]
    reason: Reason | None = None


class TableBody(Asked):
    """One table."""

    table: _Table


class QuarantineRemovalBody(Asked):
    """Which failed attempts' files are removed, and why."""

    attempt_ids: Annotated[list[Random], Field(min_length=1, max_length=QUARANTINE_REMOVED_MAX)]
    reason: Reason


class RefusalPart(Told):
    """Why something was refused, or what keeps the Steward from going on."""

    code: str
    message: str
    expected: str | None
    got: str | None
    hint: str | None


class FindingPart(Told):
    """One thing that verification found wrong; `withheld` says that the token's role may not see its values of rows."""

    failure: str
    code: str
    message: str
    expected: str | None
    got: str | None
    file: str | None
    withheld: bool


class KeptFilePart(Told):
    """A staged file by its old path, and where its bytes are."""

    file: str
    location: str


class QuarantinePart(Told):
    """Where the files of a failed attempt are now, and where in it those that are spoken of."""

    folder: str
    files: list[KeptFilePart]


class ExtentPart(Told):
    """How much was published: the chunk's own rows and files, and those that its whole snapshot took away."""

    rows_added: Decimal
    files_added: Decimal
    rows_removed: Decimal
    files_removed: Decimal


class ChunkStatePart(Told):
    """How many chunks' last attempts stand so."""

    state: Literal["STAGING", "VERIFYING", "COMMITTING", "COMMITTED", "VERIFICATION_FAILED", "ROLLED_BACK"]
    chunks: int


class JobPart(Told):
    """The Steward's own work for an attempt; a problem is nobody's verdict, and tried again by itself in so long."""

    state: Literal["queued", "running", "waiting", "failed"]
    tries: int
    problem: RefusalPart | None
    again_seconds: int | None


class ListedJob(JobPart):
    """One job; `subject` is an attempt, or a workload that is published whole, or empty: then it is about no table."""

    kind: Literal["verify", "publish", "dispose", "settle"]
    subject: str
    table: str | None
    workload_id: str | None


class JobsAnswer(Told):
    """The jobs of this Steward that are not done: failed ones first, then those that wait for another try."""

    jobs: list[ListedJob]


class WorkloadPart(Told):
    """One workload as the ledger has it; its source is named by its UUID.

    `source_newest_snapshot_id` is where the source stands now; null in lists, of an abandoned workload, and where the
    Steward cannot tell. `source_newer_columns` is Iceberg's JSON of the columns that the source had when the workload
    was opened, and its pinned snapshot had not. `chunk_states` tells of the last attempt at each chunk that was tried,
    `problem` what keeps the Steward from going on with one, and `override_ids` which overrides it was published by.
    `claim` is the part of the table that it has published rows of, and that no other workload can append to.
    """

    workload_id: str
    domain: str
    state: Literal["OPEN", "COMPLETE", "ABANDONED"]
    contract_hash: Sha256
    table_uuid: str
    table: str | None
    source: str
    source_snapshot_id: Decimal | None
    source_newest_snapshot_id: Decimal | None
    source_newer_columns: str
    plan_hash: Sha256
    chunk_count: int
    chunk_states: list[ChunkStatePart]
    problem: RefusalPart | None
    override_ids: list[Sha256]
    claim: str | None
    parameters: dict[str, str]
    atomicity: Literal["chunk", "workload"]
    epoch: Decimal
    reason: str
    changed_at: Micros


class WorkloadsAnswer(Told):
    """Workloads in order of their ids; `after` the last one gives the next."""

    workloads: list[WorkloadPart]


class NewestWorkloadsAnswer(Told):
    """Workloads by the time of their opening or end, the latest first; `total` is how many there are."""

    workloads: list[WorkloadPart]
    total: Decimal


class AttemptAnswer(Told):
    """One attempt; `waiting` says that it is proved and waits for the other chunks of its workload.

    `verdict`, `classes`, `findings` and `proof_id` are of the newest proof, `findings_more` is how many findings are
    not listed; `snapshot_id` and `extent` are what was published, `override_id` what it was published by where the
    verdict is FAIL; `refusal` is why it ended, `job` is what the Steward is doing for it, and `located` are the rows
    that are wrong, as far as the token's role may see them; `quarantine` is where the files of a FAIL are by now.
    """

    attempt_id: Random
    workload_id: str
    chunk_id: str
    number: int
    state: Literal["STAGING", "VERIFYING", "COMMITTING", "COMMITTED", "VERIFICATION_FAILED", "ROLLED_BACK"]
    table: str | None
    target_branch: str
    branch: str
    prefix: str
    staged_snapshot_id: Decimal | None
    reason: str
    changed_at: Micros
    waiting: bool
    verdict: Literal["PASS", "FAIL"] | None
    classes: list[str]
    findings: list[FindingPart]
    findings_more: int
    proof_id: Sha256 | None
    override_id: Sha256 | None
    snapshot_id: Decimal | None
    extent: ExtentPart | None
    refusal: RefusalPart | None
    job: JobPart | None
    located: LocatedPart | None
    quarantine: QuarantinePart | None


class PublishedPart(Told):
    """What made a chunk visible."""

    chunk_id: str
    attempt_id: Random
    snapshot_id: Decimal


class WorkloadAnswer(WorkloadPart):
    """A workload with a page of its plan, in its order, every attempt at those chunks, and what is published of them.

    A page may be shorter than asked for, where many attempts were made; `chunks_after` the chunks seen so far gives the
    next one, until `chunk_count` of them were seen.
    """

    chunk_ids: list[str]
    attempts: list[AttemptAnswer]
    published: list[PublishedPart]


class ChunkPart(Told):
    """One chunk of the plan: the rows of the source for which `where` is true, or those of `files`."""

    chunk_id: str
    where: str | None
    files: list[str] | None
    attempt: AttemptAnswer | None


class ChunksAnswer(Told):
    """Chunks in the plan's order; a page may be shorter than asked for, and is empty behind the last one."""

    chunks: list[ChunkPart]


class OrphanPart(Told):
    """A file that an attempt left behind, and that nothing refers to."""

    location: str
    size: Decimal
    attempt_id: Random


class OrphansAnswer(Told):
    """Files that nothing refers to."""

    orphans: list[OrphanPart]


class QuarantinedAttemptPart(Told):
    """A failed attempt whose files are kept; `undecided` says why they cannot be removed yet.

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
    age_seconds: int
    files: int
    bytes: Decimal
    folder: str
    undecided: str | None


class QuarantineAnswer(Told):
    """Failed attempts whose files are kept, oldest first; empty behind the last one."""

    quarantine: list[QuarantinedAttemptPart]


class QuarantineRemovalPart(Told):
    """What was removed of one attempt, by whom and why."""

    attempt_id: Random
    files: int
    bytes: Decimal
    name: str
    reason: str


class QuarantineRemovalsAnswer(Told):
    """What was removed."""

    removed: list[QuarantineRemovalPart]
