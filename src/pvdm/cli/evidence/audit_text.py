"""Shows an audit as text: one line for each snapshot and approval, with its findings below."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from pvdm.cli.common.screen import ALERT, Line
from pvdm.cli.common.times import utc
from pvdm.cli.evidence.proof import proved_lines
from pvdm.cli.table.approvals import snapshot_text
from pvdm.errors import comparison
from pvdm.metadata.audit.report import (
    ApprovalEntry,
    AuditedSnapshot,
    AuditFinding,
    AuditReport,
    CountedFiles,
    Gap,
    ReleaseEntry,
    Standing,
    UndecidedGaps,
)
from pvdm.model.printable import counted

_STANDING_LABELS = {
    Standing.OK: ("OK", "green"),
    Standing.BREAK_GLASS: ("*** BREAK-GLASS ***", ALERT),
    Standing.UNPROVED: ("*** UNPROVED ***", ALERT),
    Standing.CHANGED: ("*** CHANGED ***", ALERT),
    Standing.BEFORE: ("unproved: before the protection", "yellow"),
    Standing.IN_GAP: ("unproved: while not protected", "bold yellow"),
}
_APPROVAL_LABELS = {"protect": "PROTECTED", "unprotect": "UNPROTECTED", "migration": "MIGRATED"}
_WORKLOAD_WIDTH = 20
_COUNT_LABELS = {"before-protection": "older than the protection (not covered)"}


def report_lines(report: AuditReport) -> Iterator[Line]:
    """The whole report."""
    yield f"audit of {report.table.name} in {report.table.catalog}, {report.table.uuid}", "bold"
    yield (
        f"{'time':<21} {'snapshot':<19}  {'rows':<16} {'files':<12} {'workload':<{_WORKLOAD_WIDTH}} {'proof':<10} ",
        "bold",
    )
    approvals = list(report.approvals)
    not_printed = {snapshot.snapshot_id for snapshot in report.snapshots}
    for snapshot in report.snapshots:
        while approvals and _is_due(approvals[0], snapshot, not_printed):
            yield from _approval_lines(approvals.pop(0))
        yield from _snapshot_lines(snapshot)
        not_printed.discard(snapshot.snapshot_id)
    for approval in approvals:
        yield from _approval_lines(approval)
    for release in report.claim_releases:
        yield _release_line(release)
    for gap in report.gaps:
        yield from _gap_lines(gap)
    if report.undecided_gaps is not None:
        yield from _undecided_lines(report.undecided_gaps)
    yield from _finding_lines(report.findings)
    yield "", None
    yield from _summary_lines(report)


def _is_due(approval: ApprovalEntry, next_snapshot: AuditedSnapshot, not_printed: Collection[int]) -> bool:
    """Whether to print the approval now: a migration before the first later snapshot, others after their snapshot."""
    if approval.kind == "migration":
        last_microsecond = next_snapshot.timestamp_ms * 1_000 + 999
        return approval.logged_at <= last_microsecond
    return approval.snapshot_id not in not_printed


def _snapshot_lines(snapshot: AuditedSnapshot) -> Iterator[Line]:
    label, style = _STANDING_LABELS[snapshot.standing]
    rows = _change_text(snapshot.rows_added, snapshot.rows_removed)
    files = _change_text(snapshot.files_added, snapshot.files_removed)
    proof = "-" if not snapshot.proof_ids else snapshot.proof_ids[0][:8]
    other_proofs = "" if len(snapshot.proof_ids) < 2 else f"+{len(snapshot.proof_ids) - 1}"
    yield (
        f"{_time_text(snapshot.timestamp_ms * 1_000)}  {snapshot.snapshot_id:<19}  {rows:<16} {files:<12}"
        f" {snapshot.workload_id or '-':<{_WORKLOAD_WIDTH}} {proof + other_proofs:<10}  {label}",
        style,
    )
    if snapshot.operator is not None:
        yield f"    {snapshot.operator} waived a FAIL: {snapshot.reason}", "red"
    yield from _finding_lines(snapshot.findings)


def _approval_lines(approval: ApprovalEntry) -> Iterator[Line]:
    label, contract = _APPROVAL_LABELS[approval.kind], approval.contract_sha256[:8]
    style = "bold red" if approval.kind == "unprotect" else "bold"
    showed = "" if approval.kind == "migration" else f", main showed {snapshot_text(approval.snapshot_id)}"
    facts = f"{label} by {approval.operator}, contract {contract}{showed}: {approval.reason}"
    yield f"{_time_text(approval.logged_at)}  {facts}", style
    for change in approval.changes:
        yield f"    {change}", None


def _release_line(release: ReleaseEntry) -> Line:
    facts = f"CLAIM RELEASED by {release.operator}, workload {release.workload_id}: {release.reason}"
    return f"{_time_text(release.logged_at)}  {facts}", "bold yellow"


def _gap_lines(gap: Gap) -> Iterator[Line]:
    # The gap starts with the end of a protection, and ends when the next one begins.
    since = _time_text(gap.ended.logged_at)
    until = "now" if gap.begun is None else _time_text(gap.begun.logged_at)
    style = "bold yellow" if gap.accepted else ALERT
    accepted = " (accepted)" if gap.accepted else ""
    yield f"GAP {gap.gap_id}{accepted}: not protected from {since} to {until}", style
    for fact in _gap_facts(gap):
        yield f"    {fact}", None


def _undecided_lines(undecided: UndecidedGaps) -> Iterator[Line]:
    """Lines about what cannot be assigned to one of several gaps, printed below all gaps."""
    yield f"IN ONE OF THE GAPS {', '.join(undecided.gap_ids)}: no proof shows in which", ALERT
    if undecided.snapshot_ids:
        yield f"    snapshots without a proof: {len(undecided.snapshot_ids)}", None
    if undecided.uncovered is not None and undecided.uncovered.files:
        yield f"    main shows {_counts_text(undecided.uncovered)} that no proof covers", None
    if undecided.bytes_proved is not None and undecided.bytes_proved.files:
        yield f"      {_same_files_text(undecided.bytes_proved)}", None
    if undecided.lost is not None and undecided.lost.files:
        lost = _counts_text(undecided.lost)
        yield f"    at most {lost} that main showed before are gone; no proof removed them", None


def _same_files_text(files: CountedFiles) -> str:
    counts = _counts_text(files)
    return f"of these, {counts} have the path and size of proved files; no receipt covers their manifest entries"


def _time_text(micros: int) -> str:
    return f"{utc(micros)[:19]}Z"


def _gap_facts(gap: Gap) -> Iterator[str]:
    if gap.same_snapshot:
        shown = snapshot_text(gap.ended.snapshot_id)
        yield f"main showed {shown} before and after; what it showed in between is unknown"
    elif gap.snapshots_expired:
        yield f"snapshots in this gap without a proof: {len(gap.snapshot_ids)}, and others may have expired"
    else:
        yield f"snapshots in this gap without a proof: {len(gap.snapshot_ids)}"
    if gap.publications_expired:
        verb = "has" if gap.publications_expired == 1 else "have"
        yield f"{counted(gap.publications_expired, 'publication')} older than the gap {verb} expired"
    if gap.uncovered is None or gap.lost is None:
        yield "unknown how many rows lack a proof: main's manifests cannot be read"
        return
    yield f"main shows {_counts_text(gap.uncovered)} that no proof covers"
    if gap.bytes_proved is not None and gap.bytes_proved.files:
        yield f"  {_same_files_text(gap.bytes_proved)}"
    if gap.delete_files:
        yield f"  {counted(gap.delete_files, 'delete file')} without a proof may hide rows"
    if gap.lost.files:
        at_most = "at most " if gap.snapshots_expired else ""
        yield f"{at_most}{_counts_text(gap.lost)} that main showed before are gone; no proof removed them"


def _counts_text(files: CountedFiles) -> str:
    rows = "an unknown number of rows" if files.rows is None else counted(files.rows, "row")
    return f"{rows} in {counted(files.files, 'file')}"


def _finding_lines(findings: Iterable[AuditFinding]) -> Iterator[Line]:
    for finding in findings:
        yield f"    {finding.code}: {finding.message}", "red"
        if tail := comparison(finding.expected, finding.got):
            yield f"      {tail}", None


def _change_text(added: int | None, removed: int | None) -> str:
    plus = "?" if added is None else f"+{added:,}"
    minus = "?" if removed is None else f"-{removed:,}"
    return plus if removed == 0 else f"{plus} {minus}"


def _summary_lines(report: AuditReport) -> Iterator[Line]:
    counts = ", ".join(f"{count:,} {_COUNT_LABELS.get(name, name)}" for name, count in report.counts.items() if count)
    if report.gaps:
        counts = f"{counts}, {counted(len(report.gaps), 'gap')} in protection"
    if report.holds:
        yield f"no violations in the history of main: {counts or 'no snapshot'}", "bold green"
    else:
        yield f"*** violations in the history of main; its snapshots: {counts or 'none'} ***", ALERT
    if report.rehashed is not None:
        rehashed = report.rehashed
        files, manifests = counted(rehashed.data_files, "data file"), counted(rehashed.manifests, "manifest")
        yield f"{files} and {manifests} read, {rehashed.bytes:,} bytes", None
    yield from proved_lines(report.proved, report.not_proved)
