"""Shows an audit as text: one line for each snapshot and approval, with its findings below."""

from __future__ import annotations

from collections.abc import Collection, Iterator

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
    Standing,
    UndecidedGaps,
)
from pvdm.model.printable import counted

_WORDS = {
    Standing.OK: ("OK", "green"),
    Standing.BREAK_GLASS: ("*** BREAK-GLASS ***", ALERT),
    Standing.UNPROVED: ("*** UNPROVED ***", ALERT),
    Standing.CHANGED: ("*** CHANGED ***", ALERT),
    Standing.BEFORE: ("unproved: before the protection", "yellow"),
    Standing.IN_GAP: ("unproved: while not protected", "bold yellow"),
}
_APPROVALS = {"protect": "PROTECTED", "unprotect": "UNPROTECTED", "migration": "MIGRATED"}
_WIDTH = 20
_COUNT_LABELS = {"before-protection": "older than the protection (not covered)"}


def report_lines(report: AuditReport) -> Iterator[Line]:
    """The whole report."""
    yield f"audit of {report.table.name} in {report.table.catalog}, {report.table.uuid}", "bold"
    yield f"{'time':<21} {'snapshot':<19}  {'rows':<16} {'files':<12} {'workload':<{_WIDTH}} {'proof':<10} ", "bold"
    approvals = list(report.approvals)
    to_come = {each.snapshot_id for each in report.snapshots}
    for each in report.snapshots:
        while approvals and _is_due(approvals[0], each, to_come):
            yield from _approval(approvals.pop(0))
        yield from _snapshot(each)
        to_come.discard(each.snapshot_id)
    for approval in approvals:
        yield from _approval(approval)
    for gap in report.gaps:
        yield from _gap(gap)
    if report.undecided is not None:
        yield from _undecided(report.undecided)
    for finding in report.findings:
        yield from _finding(finding)
    yield "", None
    yield from _summary(report)


def _is_due(approval: ApprovalEntry, next_snapshot: AuditedSnapshot, to_come: Collection[int]) -> bool:
    """A protection is due once its snapshot has been printed, a migration once its time has passed."""
    if approval.kind == "migration":
        return approval.logged_at <= next_snapshot.timestamp_ms * 1_000 + 999
    return approval.snapshot_id not in to_come


def _snapshot(each: AuditedSnapshot) -> Iterator[Line]:
    words, style = _WORDS[each.standing]
    rows, files = _change(each.rows_added, each.rows_removed), _change(each.files_added, each.files_removed)
    proof = "-" if not each.proof_ids else each.proof_ids[0][:8]
    more = "" if len(each.proof_ids) < 2 else f"+{len(each.proof_ids) - 1}"
    workload = each.workload_id or "-"
    yield (
        f"{utc(each.timestamp_ms * 1_000)[:19]}Z  {each.snapshot_id:<19}  {rows:<16} {files:<12}"
        f" {workload:<{_WIDTH}} {proof + more:<10}  {words}",
        style,
    )
    if each.operator is not None:
        yield f"    {each.operator} waived a FAIL: {each.reason}", "red"
    for finding in each.findings:
        yield from _finding(finding)


def _approval(each: ApprovalEntry) -> Iterator[Line]:
    name, contract = _APPROVALS[each.kind], each.contract_sha256[:8]
    style = "bold red" if each.kind == "unprotect" else "bold"
    shown = "" if each.kind == "migration" else f", main showed {snapshot_text(each.snapshot_id)}"
    words = f"{name} by {each.operator}, contract {contract}{shown}: {each.reason}"
    yield f"{utc(each.logged_at)[:19]}Z  {words}", style
    for change in each.changes:
        yield f"    {change}", None


def _gap(gap: Gap) -> Iterator[Line]:
    # The gap starts with the end of a protection, and ends when the next one begins.
    since, until = _moment(gap.ended), "now" if gap.begun is None else _moment(gap.begun)
    style = "bold yellow" if gap.accepted else ALERT
    accepted = " (accepted)" if gap.accepted else ""
    yield f"GAP {gap.gap_id}{accepted}: not protected from {since} to {until}", style
    for words in _gap_facts(gap):
        yield f"    {words}", None


def _undecided(found: UndecidedGaps) -> Iterator[Line]:
    """What cannot be assigned to one of several gaps, below all of them."""
    yield f"IN ONE OF THE GAPS {', '.join(found.gap_ids)}: no proof shows in which", ALERT
    if found.snapshot_ids:
        yield f"    snapshots without a proof: {len(found.snapshot_ids)}", None
    if found.uncovered is not None and found.uncovered.files:
        yield f"    main shows {_counts(found.uncovered)} that no proof covers", None
    if found.bytes_proved is not None and found.bytes_proved.files:
        yield f"      {_proved_words(found.bytes_proved)}", None
    if found.lost is not None and found.lost.files:
        yield f"    at most {_counts(found.lost)} that main showed before are gone; no proof removed them", None


def _proved_words(found: CountedFiles) -> str:
    return (
        f"of these, {_counts(found)} have the path and size of proved files; no receipt covers their manifest entries"
    )


def _moment(approval: ApprovalEntry) -> str:
    return f"{utc(approval.logged_at)[:19]}Z"


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
    yield f"main shows {_counts(gap.uncovered)} that no proof covers"
    if gap.bytes_proved is not None and gap.bytes_proved.files:
        yield f"  {_proved_words(gap.bytes_proved)}"
    if gap.delete_files:
        yield f"  {counted(gap.delete_files, 'delete file')} without a proof may hide rows"
    if gap.lost.files:
        at_most = "at most " if gap.snapshots_expired else ""
        yield f"{at_most}{_counts(gap.lost)} that main showed before are gone; no proof removed them"


def _counts(found: CountedFiles) -> str:
    rows = "an unknown number of rows" if found.rows is None else counted(found.rows, "row")
    return f"{rows} in {counted(found.files, 'file')}"


def _finding(finding: AuditFinding) -> Iterator[Line]:
    yield f"    {finding.code}: {finding.message}", "red"
    if tail := comparison(finding.expected, finding.got):
        yield f"      {tail}", None


def _change(added: int | None, removed: int | None) -> str:
    plus = "?" if added is None else f"+{added:,}"
    return plus if removed == 0 else f"{plus} {'?' if removed is None else f'-{removed:,}'}"


def _summary(report: AuditReport) -> Iterator[Line]:
    counts = ", ".join(f"{count:,} {_COUNT_LABELS.get(name, name)}" for name, count in report.counts.items() if count)
    if report.gaps:
        counts = f"{counts}, {counted(len(report.gaps), 'gap')} in protection"
    if report.holds:
        yield f"no violations in the history of main: {counts or 'no snapshot'}", "bold green"
    else:
        yield f"*** violations in the history of main; its snapshots: {counts or 'none'} ***", ALERT
    if report.rehashed is not None:
        found = report.rehashed
        files, manifests = counted(found.data_files, "data file"), counted(found.manifests, "manifest")
        yield f"{files} and {manifests} read, {found.bytes:,} bytes", None
    yield from proved_lines(report.proved, report.not_proved)
