"""The report of an audit: its snapshots, the approvals of the table, and all findings."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType

from pvdm.errors import InputError, NotAllowedError, VerificationError
from pvdm.model.statements.table import TableRef


class Standing(Enum):
    """The result for a snapshot. The last two have no proof, and none was required.

    BEFORE came before the first protection, IN_GAP while the table was not protected.
    """

    OK = "ok"
    BREAK_GLASS = "break-glass"
    UNPROVED = "unproved"
    CHANGED = "changed"
    BEFORE = "before-protection"
    IN_GAP = "in-gap"


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """One failed check. `changed` means that bytes are not those that were published."""

    code: str
    message: str
    expected: str | None = None
    got: str | None = None
    changed: bool = False

    def to_json(self) -> dict[str, object]:
        """The finding as JSON."""
        return {"code": self.code, "message": self.message, "expected": self.expected, "got": self.got}


class Notes:
    """Collects findings, so that an audit goes on after a failed check."""

    def __init__(self) -> None:
        self.findings: list[AuditFinding] = []

    def collect(self, *, changed: bool = False) -> _Collector:
        """Note a refusal that is raised inside. Other errors, such as an unreachable store, end the audit."""
        return _Collector(self, changed)


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
class AuditedSnapshot:
    """One snapshot of `main`, oldest first in the report."""

    snapshot_id: int
    parent_id: int | None
    timestamp_ms: int
    standing: Standing
    rows_added: int | None = None
    rows_removed: int | None = None
    files_added: int | None = None
    files_removed: int | None = None
    receipt_id: str | None = None
    workload_id: str | None = None
    proof_ids: tuple[str, ...] = ()
    override_id: str | None = None
    operator: str | None = None
    reason: str | None = None
    findings: tuple[AuditFinding, ...] = ()

    def to_json(self) -> dict[str, object]:
        """The snapshot as JSON. 64-bit numbers are strings."""
        return {
            "snapshot_id": str(self.snapshot_id),
            "parent_id": None if self.parent_id is None else str(self.parent_id),
            "timestamp_ms": self.timestamp_ms,
            "standing": self.standing.value,
            "rows_added": self.rows_added,
            "rows_removed": self.rows_removed,
            "files_added": self.files_added,
            "files_removed": self.files_removed,
            "receipt_id": self.receipt_id,
            "workload_id": self.workload_id,
            "proof_ids": list(self.proof_ids),
            "override_id": self.override_id,
            "operator": self.operator,
            "reason": self.reason,
            "findings": [each.to_json() for each in self.findings],
        }


@dataclass(frozen=True, slots=True)
class ApprovalEntry:
    """An approval in the report: a protection, its end, or a migration, with operator and reason.

    `snapshot_id` is the head of `main` when protection began or ended, None for an empty table.
    """

    kind: str
    statement_id: str
    logged_at: int
    index: int
    operator: str
    reason: str
    contract_sha256: str
    snapshot_id: int | None = None
    changes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """The approval as JSON."""
        return {
            "kind": self.kind,
            "statement_id": self.statement_id,
            "logged_at": self.logged_at,
            "log_index": self.index,
            "operator": self.operator,
            "reason": self.reason,
            "contract_sha256": self.contract_sha256,
            "snapshot_id": None if self.snapshot_id is None else str(self.snapshot_id),
            "changes": list(self.changes),
        }


@dataclass(frozen=True, slots=True)
class CountedFiles:
    """Numbers of files and rows, by the manifests' counts. None rows are unknown."""

    files: int
    rows: int | None

    def to_json(self) -> dict[str, object]:
        """The counts as JSON."""
        return {"files": self.files, "rows": self.rows}


@dataclass(frozen=True, slots=True)
class Gap:
    """A time without protection after a protection. Counts are None if they are unknown.

    `begun` is None while the table is not protected. `uncovered` counts live files that no proof covers. Of these,
    `bytes_proved` counts files with path and size of a proved file. `lost` counts files that are gone without a proof;
    its rows are an upper bound. What may belong to another gap is counted in `UndecidedGaps` only.
    """

    gap_id: str
    ended: ApprovalEntry
    begun: ApprovalEntry | None
    snapshot_ids: tuple[int, ...]
    snapshots_expired: bool
    same_snapshot: bool
    publications_expired: int
    uncovered: CountedFiles | None
    bytes_proved: CountedFiles | None
    lost: CountedFiles | None
    delete_files: int | None
    accepted: bool

    def to_json(self) -> dict[str, object]:
        """The gap as JSON."""
        return {
            "gap_id": self.gap_id,
            "accepted": self.accepted,
            "ended": self.ended.to_json(),
            "begun": None if self.begun is None else self.begun.to_json(),
            "snapshot_ids": [str(each) for each in self.snapshot_ids],
            "snapshots_expired": self.snapshots_expired,
            "same_snapshot": self.same_snapshot,
            "publications_expired": self.publications_expired,
            "uncovered": None if self.uncovered is None else self.uncovered.to_json(),
            "bytes_proved": None if self.bytes_proved is None else self.bytes_proved.to_json(),
            "lost": None if self.lost is None else self.lost.to_json(),
            "delete_files": self.delete_files,
        }


@dataclass(frozen=True, slots=True)
class UndecidedGaps:
    """What came or went in one of these gaps, counted once. No receipt binds the head between them."""

    gap_ids: tuple[str, ...]
    snapshot_ids: tuple[int, ...]
    uncovered: CountedFiles | None
    bytes_proved: CountedFiles | None
    lost: CountedFiles | None

    def to_json(self) -> dict[str, object]:
        """The counts as JSON."""
        return {
            "gap_ids": list(self.gap_ids),
            "snapshot_ids": [str(each) for each in self.snapshot_ids],
            "uncovered": None if self.uncovered is None else self.uncovered.to_json(),
            "bytes_proved": None if self.bytes_proved is None else self.bytes_proved.to_json(),
            "lost": None if self.lost is None else self.lost.to_json(),
        }


@dataclass(frozen=True, slots=True)
class RehashCounts:
    """The numbers of files that were read again: data files that proofs bind, and manifests with lists."""

    data_files: int
    manifests: int
    total_bytes: int

    def to_json(self) -> dict[str, object]:
        """The counts as JSON."""
        return {"data_files": self.data_files, "manifests": self.manifests, "bytes": self.total_bytes}


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The snapshots, oldest first, and the findings about the table as a whole."""

    table: TableRef
    log_size: int
    snapshots: tuple[AuditedSnapshot, ...]
    approvals: tuple[ApprovalEntry, ...]
    gaps: tuple[Gap, ...]
    findings: tuple[AuditFinding, ...]
    rehashed: RehashCounts | None
    shown: tuple[str, ...] = field(default=())
    not_shown: tuple[str, ...] = field(default=())
    undecided: UndecidedGaps | None = None

    @property
    def holds(self) -> bool:
        """Whether there is no finding. Break-glass publications are allowed, and gaps must be accepted."""
        return not self.findings and not any(each.findings for each in self.snapshots)

    @property
    def counts(self) -> dict[str, int]:
        """The number of snapshots by standing."""
        found = Counter(each.standing for each in self.snapshots)
        return {standing.value: found[standing] for standing in Standing}

    def to_json(self) -> dict[str, object]:
        """The report as JSON."""
        return {
            "holds": self.holds,
            "table": self.table.to_json(),
            "log_size": self.log_size,
            "counts": self.counts,
            "snapshots": [each.to_json() for each in self.snapshots],
            "approvals": [each.to_json() for each in self.approvals],
            "gaps": [each.to_json() for each in self.gaps],
            "undecided_gaps": None if self.undecided is None else self.undecided.to_json(),
            "findings": [each.to_json() for each in self.findings],
            "rehashed": None if self.rehashed is None else self.rehashed.to_json(),
            "proved": list(self.shown),
            "not_proved": list(self.not_shown),
        }
