"""The audit: walks the history of `main` and holds every snapshot to a receipt and to proofs. Needs no ledger."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from pvdm.metadata.audit.carried import NONE_FOUND, judge_carried
from pvdm.metadata.audit.changes import Changed
from pvdm.metadata.audit.evidence import Evidence, HashedFiles, ManifestFiles, table_document
from pvdm.metadata.audit.gaps import GapJudge, find_unprotected, require_accepted, require_known
from pvdm.metadata.audit.lost import judge_lost
from pvdm.metadata.audit.protection import Protected, read_protection
from pvdm.metadata.audit.rehash import Bound, Progress, rehash
from pvdm.metadata.audit.report import (
    AuditedSnapshot,
    AuditReport,
    CountedFiles,
    Explained,
    Gap,
    Notes,
    Rehashed,
    Standing,
    UndecidedGaps,
)
from pvdm.metadata.audit.statements import Statements
from pvdm.metadata.audit.walk import Walk, Walked
from pvdm.model.plain import counted
from pvdm.trust.root import TrustRoot
from pvdm.verify.fetch import Files


@dataclass(frozen=True, slots=True)
class AuditJudge:
    """By what the audit judges: a trust root, the log that it names, and the time."""

    root: TrustRoot
    origin: str
    at: int


def unwatched(part: str, done: int, total: int) -> None:
    """Nobody watches."""


def audit(
    evidence: Evidence,
    files: ManifestFiles,
    judge: AuditJudge,
    *,
    again: Files | None = None,
    accepted: Collection[str] = (),
    watch: Progress = unwatched,
    accept_lost: AbstractSet[int] = frozenset(),
) -> AuditReport:
    """The whole walk; what does not hold is in the report.

    With `again` bytes are read from where they lie, too. `accepted` has the ids of gaps in protection that are known.
    `accept_lost` are snapshots that receipts name, that `main` lacks, and that the auditor knows to be lost.
    """
    metadata = table_document(evidence)
    notes, hashed = Notes(), HashedFiles(files)
    statements = Statements(evidence, judge.root, judge.origin, judge.at, notes)
    protected, explained = read_protection(evidence, metadata, statements, notes)
    walk = Walk(evidence, metadata, hashed, statements, protected, notes)
    walk.judge_expired()
    before = NONE_FOUND
    for done, each in enumerate(walk.walked):
        walk.judge(each)
        if done == 0:
            before = judge_carried(walk)  # now, since the oldest snapshot is the next that expires
        watch("walking the history", done + 1, len(walk.walked))
    walk.judge_head()
    lost = judge_lost(walk.lost(), statements, notes, accept_lost)
    gaps, undecided, elsewhere = _gaps(walk, explained, protected, accepted, notes, reads=again is not None)
    data = (*_data(walk.walked), *elsewhere)
    rehashed = None if again is None else rehash(data, _manifests(walk.walked, hashed), again, watch)
    in_gaps = {snapshot_id for each in gaps for snapshot_id in each.snapshot_ids}
    in_gaps.update(() if undecided is None else undecided.snapshot_ids)
    snapshots = tuple(_reported(each, in_gaps) for each in walk.walked)
    return AuditReport(
        evidence.table,
        statements.checkpoint.size,
        snapshots,
        explained,
        gaps,
        tuple(notes.findings),
        rehashed,
        tuple(_shown(walk.walked, judge, rehashed)),
        (*lost, *_not_shown(snapshots, gaps, rehashed, before)),
        undecided,
    )


def _gaps(
    walk: Walk,
    explained: Sequence[Explained],
    protected: Protected,
    accepted: Collection[str],
    notes: Notes,
    *,
    reads: bool,
) -> tuple[tuple[Gap, ...], UndecidedGaps | None, tuple[Bound, ...]]:
    """The gaps in protection, what may be of several of them, and live files that only expired proofs bind."""
    unprotected = find_unprotected(explained, born_protected=protected.born)
    if not unprotected and not (reads and walk.has_expired):
        with notes.held():
            require_known(accepted, ())
        return (), None, ()
    judge = GapJudge(walk, unprotected, notes)
    gaps = judge.gaps(accepted)
    for each in gaps:
        with notes.held():
            require_accepted(each)
    with notes.held():
        require_known(accepted, gaps)
    return gaps, judge.undecided(), tuple(judge.covered_elsewhere(notes))


def _data(walked: Sequence[Walked]) -> Iterator[Bound]:
    """The data files that proofs bind and that `main` still shows."""
    live: dict[str, Bound] = {}
    for each in walked:
        for file in () if each.changed is None else each.changed.removed:
            live.pop(file.file_path, None)
        for path, proved in each.files.items():
            live[path] = Bound(path, *proved.published_bytes, each.notes, proved.version)
    yield from live.values()


def _manifests(walked: Sequence[Walked], hashed: HashedFiles) -> Iterator[Bound]:
    """The lists and manifests that the snapshots since protection wrote, and all manifests that `main` shows."""
    named: set[str] = set()
    for each in walked:
        if not each.judged:
            continue
        listed = (*each.written, *each.shown)
        for location in (each.snapshot.manifest_list, *(one.manifest_path for one in listed)):
            if location is not None and location in hashed.seen and location not in named:
                named.add(location)
                yield Bound(location, *hashed.seen[location], each.notes)


def _reported(each: Walked, in_gaps: Collection[int]) -> AuditedSnapshot:
    snapshot, receipt, changed = each.snapshot, each.receipt, each.changed
    rows_added, rows_removed, files_added, files_removed = _counts(changed) if changed else _summed(each)
    return AuditedSnapshot(
        snapshot.snapshot_id,
        snapshot.parent_id,
        snapshot.timestamp_ms,
        _classify(each, in_gaps),
        rows_added,
        rows_removed,
        files_added,
        files_removed,
        receipt_id=None if receipt is None else receipt.statement_id,
        workload_id=None if receipt is None else receipt.predicate.workload_id,
        proof_ids=() if receipt is None else receipt.predicate.proof_ids,
        override_id=None if receipt is None else receipt.predicate.override_id,
        operator=None if each.override is None else each.override.operator,
        reason=None if each.override is None else each.override.reason,
        findings=tuple(each.notes.findings),
    )


def _counts(changed: Changed) -> tuple[int | None, ...]:
    return changed.rows_added, changed.rows_removed, len(changed.added), len(changed.removed)


def _summed(each: Walked) -> tuple[int | None, ...]:
    """What the snapshot says of itself; nobody checked it."""
    names = ("added-records", "deleted-records", "added-data-files", "deleted-data-files")
    said = [each.snapshot.summary.get(name, "0") for name in names]
    return tuple(int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None for text in said)


def _classify(each: Walked, in_gaps: Collection[int] = ()) -> Standing:
    if each.notes.findings:
        changed = any(finding.changed for finding in each.notes.findings)
        return Standing.CHANGED if changed else Standing.UNPROVED
    if each.receipt is None:
        return Standing.IN_GAP if each.snapshot.snapshot_id in in_gaps else Standing.BEFORE
    return Standing.OK if each.receipt.predicate.override_id is None else Standing.BREAK_GLASS


def _shown(walked: Sequence[Walked], judge: AuditJudge, rehashed: Rehashed | None) -> Iterator[str]:
    good = sum(1 for each in walked if _classify(each) in (Standing.OK, Standing.BREAK_GLASS))
    have = "has" if len(walked) == 1 else "have"
    whole = counted(len(walked), "snapshot")
    yield f"{good:,} of {whole} of main {have} a receipt and proofs that hold, in the log {judge.origin}"
    yield "each of these adds and removes exactly the files that its proofs bind, and carries on all others"
    if walked and walked[-1].shown:
        listed = counted(len(walked[-1].shown), "manifest")
        have = "has the hash" if len(walked[-1].shown) == 1 else "have the hashes"
        yield f"the {listed} that main shows {have} that its receipt binds"
    if rehashed is not None:
        files = counted(rehashed.data_files, "data file was read, and", "data files were read, and")
        yield f"{files} compared with what the proofs bind, by SHA-256"


def _not_shown(
    snapshots: Sequence[AuditedSnapshot], gaps: Sequence[Gap], rehashed: Rehashed | None, carried: CountedFiles
) -> Iterator[str]:
    before = sum(1 for each in snapshots if each.standing is Standing.BEFORE)
    if before:
        came = counted(before, "snapshot")
        yield f"anything about the {came} from before the protection: the table began with what they show"
    if carried.files:
        yield (
            f"anything about {counted(carried.files, 'file')} that the oldest snapshot shows and no proof binds:"
            " the table had them before the oldest receipt"
        )
    for each in gaps:
        yield f"what main showed in gap {each.gap_id}, and what came or went in it: the table was not protected"
    if rehashed is None:
        yield "that data files still hold the bytes that were published: they were not read (--rehash reads them)"
    yield (
        "that no statement about this table was left out: the whole log shows it (`pvdm log export`, `pvdm log fsck`)"
    )
    yield "that digests of intent and staged were equal: that is the notary's signed word (`pvdm proof open`)"
    yield "that others are shown the same log: that is for a monitor to compare"
