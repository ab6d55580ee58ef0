"""The report of an audit: its snapshots, the approvals of the table, and all findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Annotated, ParamSpec

from pvdm.errors import InputError, NotAllowedError, VerificationError
from pvdm.model.canonical_json import Value
from pvdm.model.codec import NOT_STORED, Count, Document, UncheckedDecimalText, UncheckedDecimalTexts
from pvdm.model.statements.table import TableRef

_P = ParamSpec("_P")


class Standing(Enum):
    """The audit's result for one snapshot. BEFORE (the first protection) and IN_GAP need no proof."""

    OK = "ok"
    BREAK_GLASS = "break-glass"
    UNPROVED = "unproved"
    CHANGED = "changed"
    BEFORE = "before-protection"
    IN_GAP = "in-gap"


@dataclass(frozen=True, slots=True)
class AuditFinding(Document, title="a finding"):
    """One failed check. `changed` says that a file's bytes are not those that were published."""

    code: str
    message: str
    expected: str | None = None
    got: str | None = None
    changed: Annotated[bool, NOT_STORED] = False


class Notes:
    """Collects findings, so that an audit goes on after a failed check."""

    def __init__(self) -> None:
        self.findings: list[AuditFinding] = []

    def collect(self, *, changed: bool = False) -> _Collector:
        """A context that notes a refusal as a finding, `changed` if a file was changed. Other errors are raised."""
        return _Collector(self, changed)

    def check(self, require: Callable[_P, object], *arguments: _P.args, **named: _P.kwargs) -> None:
        """Run one check and note its refusal, if it refuses."""
        with self.collect():
            require(*arguments, **named)


class _Collector:
    """The context of `Notes.collect`."""

    def __init__(self, notes: Notes, changed: bool) -> None:
        self._notes = notes
        self._changed = changed

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, VerificationError | InputError | NotAllowedError):
            return False
        found = AuditFinding(error.reason, error.message, error.expected, error.got, self._changed)
        self._notes.findings.append(found)
        return True


@dataclass(frozen=True, slots=True)
class AuditedSnapshot(Document, title="a snapshot"):
    """One snapshot of `main`. A count is None if it is unknown. Operator and reason are those of the override."""

    snapshot_id: UncheckedDecimalText
    parent_id: UncheckedDecimalText | None
    timestamp_ms: Count
    standing: Standing
    rows_added: Count | None = None
    rows_removed: Count | None = None
    files_added: Count | None = None
    files_removed: Count | None = None
    receipt_id: str | None = None
    workload_id: str | None = None
    proof_ids: tuple[str, ...] = ()
    override_id: str | None = None
    operator: str | None = None
    reason: str | None = None
    findings: tuple[AuditFinding, ...] = ()


@dataclass(frozen=True, slots=True)
class ApprovalEntry(Document, title="an approval"):
    """An approval in the report: a protection, its end, or a migration, with operator and reason.

    `snapshot_id` is the head of `main` when protection began or ended; None for an empty table, and for a migration.
    """

    kind: str
    statement_id: str
    logged_at: Count
    log_index: Count
    operator: str
    reason: str
    contract_sha256: str
    snapshot_id: UncheckedDecimalText | None = None
    changes: tuple[str, ...] = ()  # what a migration changed, as text


@dataclass(frozen=True, slots=True)
class ReleaseEntry(Document, title="a claim release"):
    """A claim release in the report. `publication_id` is the receipt, or the proof, whose lost claim it releases."""

    statement_id: str
    logged_at: Count
    log_index: Count
    operator: str
    reason: str
    workload_id: str
    publication_id: str
    restore_id: str


@dataclass(frozen=True, slots=True)
class CountedFiles(Document, title="counted files"):
    """Numbers of files and of their rows. `rows` is None if it is unknown."""

    files: Count
    rows: Count | None


@dataclass(frozen=True, slots=True)
class Gap(Document, title="a gap"):
    """A time without protection. Counts are None if unknown. What may belong to two gaps is only in `UndecidedGaps`."""

    gap_id: str
    accepted: bool
    ended: ApprovalEntry  # the statement that ended the protection
    begun: ApprovalEntry | None  # the statement that began the next protection; None while there is none
    snapshot_ids: UncheckedDecimalTexts  # of the snapshots without a receipt that came in the gap
    snapshots_expired: bool  # whether `main` no longer has the snapshot that was its head at the gap's begin
    same_snapshot: bool  # whether both ends have the same head, which a receipt binds, or both have no snapshot
    publications_expired: Count  # publications before the gap whose snapshots `main` no longer has
    uncovered: CountedFiles | None  # live files that no proof covers
    bytes_proved: CountedFiles | None  # uncovered files that have path and size of a proved file
    lost: CountedFiles | None  # files that are gone without a proof; the number of rows is an upper bound
    delete_files: Count | None  # delete files that came since the gap's begin


@dataclass(frozen=True, slots=True)
class UndecidedGaps(Document, title="undecided gaps"):
    """What came or went in one of several gaps. It is unknown in which, as no receipt binds the head between them."""

    gap_ids: tuple[str, ...]
    snapshot_ids: UncheckedDecimalTexts
    uncovered: CountedFiles | None
    bytes_proved: CountedFiles | None
    lost: CountedFiles | None


@dataclass(frozen=True, slots=True)
class RehashCounts(Document, title="files read again"):
    """How many files were read again, and how many bytes they have."""

    data_files: Count
    manifests: Count  # and manifest lists
    bytes: Count


@dataclass(frozen=True, slots=True)
class AuditReport(Document, title="the report of an audit"):
    """Snapshots, approvals, gaps and claim releases, oldest first, and findings about the table as a whole."""

    table: TableRef
    log_size: Count
    snapshots: tuple[AuditedSnapshot, ...]
    approvals: tuple[ApprovalEntry, ...]
    gaps: tuple[Gap, ...]
    findings: tuple[AuditFinding, ...]
    rehashed: RehashCounts | None
    proved: tuple[str, ...] = ()  # sentences about what the audit shows
    not_proved: tuple[str, ...] = ()  # sentences about what the audit does not show
    undecided_gaps: UndecidedGaps | None = None
    claim_releases: tuple[ReleaseEntry, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether there is no finding. Break-glass publications are allowed, and gaps must be accepted."""
        return not self.all_findings

    @property
    def all_findings(self) -> tuple[AuditFinding, ...]:
        """The findings about the table, and those about its snapshots."""
        return (*self.findings, *(finding for snapshot in self.snapshots for finding in snapshot.findings))

    @property
    def counts(self) -> dict[str, int]:
        """The number of snapshots by standing."""
        found = Counter(each.standing for each in self.snapshots)
        return {standing.value: found[standing] for standing in Standing}

    def to_json(self) -> dict[str, Value]:
        """The JSON object: all fields, `holds` and `counts`."""
        return {"holds": self.holds, "counts": self.counts, **Document.to_json(self)}
