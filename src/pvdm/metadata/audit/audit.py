"""The audit: checks every snapshot in the history of `main` against its receipt and proofs. Needs no ledger."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from pvdm.errors import Code
from pvdm.metadata.audit.claim_releases import read_releases
from pvdm.metadata.audit.evidence import Evidence, HashedFiles, ManifestFiles, parse_table_metadata
from pvdm.metadata.audit.gaps import GapJudge, find_unprotected, require_accepted, require_known
from pvdm.metadata.audit.oldest_snapshot import NO_FILES, check_oldest_snapshot
from pvdm.metadata.audit.protection import ProtectionHistory, read_protection
from pvdm.metadata.audit.rehash import BoundFile, Progress, rehash
from pvdm.metadata.audit.report import (
    ApprovalEntry,
    AuditedSnapshot,
    AuditReport,
    CountedFiles,
    Gap,
    Notes,
    RehashCounts,
    ReleaseEntry,
    Standing,
    UndecidedGaps,
)
from pvdm.metadata.audit.statements import Statements, UnverifiedStatement
from pvdm.metadata.audit.walk import Walk, WalkedSnapshot
from pvdm.model.printable import counted
from pvdm.model.statements.receipt import Receipt
from pvdm.trust.refusal import refused
from pvdm.trust.root import TrustRoot
from pvdm.verify.fetch import Files


@dataclass(frozen=True, slots=True)
class AuditTrust:
    """What an audit trusts: a trust root, the log's name (`origin`), and the time of the audit (`at`, microseconds)."""

    root: TrustRoot
    origin: str
    at: int


def audit(
    evidence: Evidence,
    files: ManifestFiles,
    trust: AuditTrust,
    *,
    data_files: Files | None = None,
    accepted: Collection[str] = (),
    watch: Progress = lambda _part, _done, _total: None,
    accept_lost: AbstractSet[int] = frozenset(),
) -> AuditReport:
    """Audit the table, and report its progress to `watch`. The report has every check that failed.

    With `data_files` the published files are read and hashed. `accepted` has the ids of accepted gaps in protection.
    `accept_lost` has the ids of snapshots that receipts name and `main` lacks, if the auditor accepts their loss.
    """
    metadata = parse_table_metadata(evidence)
    notes, hashed = Notes(), HashedFiles(files)
    statements = Statements(evidence, trust.root, trust.origin, trust.at, notes)
    protected, approvals = read_protection(evidence, metadata, statements, notes)
    releases = read_releases(evidence, statements, notes)
    walk = Walk(evidence, metadata, hashed, statements, protected, notes)
    walk.judge_expired()
    older_files = NO_FILES
    for done, each in enumerate(walk.walked, start=1):
        walk.judge(each)
        if done == 1:
            older_files = check_oldest_snapshot(walk)  # now, because this snapshot may expire during the walk
        watch("walking the history", done, len(walk.walked))
    walk.judge_head()
    lost = _judge_lost(walk.lost(), statements, notes, accept_lost)
    gaps, undecided, of_expired = _judge_gaps(
        walk, approvals, protected, accepted, notes, rehashes=data_files is not None
    )
    data = (*_collect_proved_files(walk.walked), *of_expired)
    manifests = _collect_manifests(walk.walked, hashed)
    rehashed = None if data_files is None else rehash(data, manifests, data_files, watch)
    in_gaps = {snapshot_id for each in gaps for snapshot_id in each.snapshot_ids}
    in_gaps.update(() if undecided is None else undecided.snapshot_ids)
    snapshots = tuple(_report_snapshot(each, in_gaps) for each in walk.walked)
    return AuditReport(
        table=evidence.table,
        log_size=statements.checkpoint.size,
        snapshots=snapshots,
        approvals=approvals,
        gaps=gaps,
        findings=tuple(notes.findings),
        rehashed=rehashed,
        proved=tuple(_proved_lines(walk.walked, trust, rehashed)),
        not_proved=(*lost, *_release_lines(releases), *_unproved_lines(snapshots, gaps, rehashed, older_files)),
        undecided_gaps=undecided,
        claim_releases=releases,
    )


def _judge_lost(
    lost: Sequence[UnverifiedStatement[Receipt]], statements: Statements, notes: Notes, accepted: AbstractSet[int]
) -> Sequence[str]:
    """Note each receipt of a lost snapshot; return a sentence for an accepted loss. Raises for other accepted ids."""
    by_snapshot = {receipt.predicate.new_snapshot_id: receipt for receipt in lost}
    not_lost = sorted(accepted - by_snapshot.keys())
    if not_lost:
        missing = f"snapshots that a receipt names and main lacks: {', '.join(map(str, sorted(by_snapshot))) or 'none'}"
        raise Code.AUDIT_REQUEST_INVALID(reason="audit_not_lost", expected=missing, got=", ".join(map(str, not_lost)))
    sentences = []
    for snapshot_id, receipt in sorted(by_snapshot.items()):
        workload = f"workload {receipt.predicate.workload_id}"
        if snapshot_id in accepted:
            lacking = "main lacks it, and that was accepted"
            sentences.append(f"snapshot {snapshot_id}, which {workload} published: {lacking}")
            continue
        with notes.collect():
            statements.verify_receipt(receipt)
            message = f"main does not show what {workload} has published"
            expected = f"snapshot {snapshot_id} in the history of main"
            raise refused("audit_receipt_without_snapshot", expected, "none", message=message)
    return sentences


def _judge_gaps(
    walk: Walk,
    approvals: Sequence[ApprovalEntry],
    protected: ProtectionHistory,
    accepted: Collection[str],
    notes: Notes,
    *,
    rehashes: bool,
) -> tuple[tuple[Gap, ...], UndecidedGaps | None, tuple[BoundFile, ...]]:
    """The gaps in protection, what may belong to several gaps, and live files that only expired publications proved."""
    unprotected = find_unprotected(approvals, created_protected=protected.created_protected)
    if not unprotected and not (rehashes and walk.has_expired):
        notes.check(require_known, accepted, ())
        return (), None, ()
    judge = GapJudge(walk, unprotected, notes)
    gaps = judge.gaps(accepted)
    for each in gaps:
        notes.check(require_accepted, each)
    notes.check(require_known, accepted, gaps)
    return gaps, judge.undecided(), tuple(judge.files_of_expired_proofs(notes))


def _collect_proved_files(walked: Sequence[WalkedSnapshot]) -> Iterator[BoundFile]:
    """The data files whose hash a proof has (*binds*), and that `main` still shows."""
    live: dict[str, BoundFile] = {}
    for each in walked:
        for file in () if each.changes is None else each.changes.removed:
            live.pop(file.file_path, None)
        for path, proved in each.files.items():
            live[path] = BoundFile(path, *proved.published_size_and_hash, each.notes, proved.version_id)
    yield from live.values()


def _collect_manifests(walked: Sequence[WalkedSnapshot], hashed: HashedFiles) -> Iterator[BoundFile]:
    """The lists of the checked snapshots, the manifests that these snapshots wrote, and all manifests of the head."""
    returned: set[str] = set()
    for each in walked:
        if not each.is_judged:
            continue
        manifests = (*each.written, *each.shown)
        for location in (each.snapshot.manifest_list, *(manifest.manifest_path for manifest in manifests)):
            if location is not None and location in hashed.seen and location not in returned:
                returned.add(location)
                seen = hashed.seen[location]
                yield BoundFile(location, seen.size, seen.sha256, each.notes)


def _report_snapshot(each: WalkedSnapshot, in_gaps: Collection[int]) -> AuditedSnapshot:
    snapshot, receipt = each.snapshot, each.receipt
    rows_added, rows_removed, files_added, files_removed = _count_changes(each)
    return AuditedSnapshot(
        snapshot_id=snapshot.snapshot_id,
        parent_id=snapshot.parent_id,
        timestamp_ms=snapshot.timestamp_ms,
        standing=_classify(each, in_gaps),
        rows_added=rows_added,
        rows_removed=rows_removed,
        files_added=files_added,
        files_removed=files_removed,
        receipt_id=None if receipt is None else receipt.statement_id,
        workload_id=None if receipt is None else receipt.predicate.workload_id,
        proof_ids=() if receipt is None else receipt.predicate.proof_ids,
        override_id=None if receipt is None else receipt.predicate.override_id,
        operator=None if each.override is None else each.override.operator,
        reason=None if each.override is None else each.override.reason,
        findings=tuple(each.notes.findings),
    )


def _count_changes(each: WalkedSnapshot) -> tuple[int | None, ...]:
    """Rows added, rows removed, files added, files removed: by the manifests, else by the unchecked summary."""
    if each.changes is not None:
        changed = each.changes
        return changed.rows_added, changed.rows_removed, len(changed.added), len(changed.removed)
    names = ("added-records", "deleted-records", "added-data-files", "deleted-data-files")
    texts = [each.snapshot.summary.get(name, "0") for name in names]
    return tuple(int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None for text in texts)


def _classify(each: WalkedSnapshot, in_gaps: Collection[int] = ()) -> Standing:
    """The snapshot's standing. `in_gaps` has the ids of all snapshots that were committed in gaps."""
    if each.notes.findings:
        return Standing.CHANGED if any(finding.changed for finding in each.notes.findings) else Standing.UNPROVED
    if each.receipt is None:
        return Standing.IN_GAP if each.snapshot.snapshot_id in in_gaps else Standing.BEFORE
    return Standing.OK if each.receipt.predicate.override_id is None else Standing.BREAK_GLASS


def _proved_lines(walked: Sequence[WalkedSnapshot], trust: AuditTrust, rehashed: RehashCounts | None) -> Iterator[str]:
    valid = sum(1 for each in walked if _classify(each) in (Standing.OK, Standing.BREAK_GLASS))
    have = "has" if len(walked) == 1 else "have"
    total = counted(len(walked), "snapshot")
    yield f"{valid:,} of {total} of main {have} a receipt and proofs that hold, in the log {trust.origin}"
    yield "each of these adds and removes exactly the files that its proofs bind, and carries on all others"
    if walked and walked[-1].shown:
        listed = counted(len(walked[-1].shown), "manifest")
        have = "has the hash" if len(walked[-1].shown) == 1 else "have the hashes"
        yield f"the {listed} that main shows {have} that its receipt binds"
    if rehashed is not None:
        files = counted(rehashed.data_files, "data file was read, and", "data files were read, and")
        yield f"{files} compared with what the proofs bind, by SHA-256"


def _release_lines(releases: Sequence[ReleaseEntry]) -> Iterator[str]:
    for each in releases:
        yield (
            f"that rows of workload {each.workload_id} were not published a second time: {each.operator} has released"
            " its claim"
        )


def _unproved_lines(
    snapshots: Sequence[AuditedSnapshot], gaps: Sequence[Gap], rehashed: RehashCounts | None, older_files: CountedFiles
) -> Iterator[str]:
    before = sum(1 for each in snapshots if each.standing is Standing.BEFORE)
    if before:
        older = counted(before, "snapshot")
        yield f"anything about the {older} from before the protection: the table began with what they show"
    if older_files.files:
        yield (
            f"anything about {counted(older_files.files, 'file')} that the oldest snapshot shows and no proof binds:"
            " the table had them before the oldest receipt"
        )
    for each in gaps:
        yield f"what main showed in gap {each.gap_id}, and what came or went in it: the table was not protected"
    if rehashed is None:
        yield "that data files still hold the bytes that were published: they were not read (--rehash reads them)"
    commands = "`pvdm log export`, `pvdm log fsck`"
    yield f"that no statement about this table was left out: the whole log shows it ({commands})"
    yield "that digests of intent and staged were equal: the notary signed that (`pvdm proof open`)"
    yield "that other readers get the same log: a monitor compares that"
