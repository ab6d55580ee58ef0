"""Gaps: times from an end of protection to its next begin, or to now. Finds what came or was lost without a proof."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pvdm.lake.format.manifest.entry import DataFile, FileContent
from pvdm.metadata.audit.changes import EntryFacts, entry_facts
from pvdm.metadata.audit.oldest_snapshot import read_live
from pvdm.metadata.audit.rehash import BoundFile
from pvdm.metadata.audit.report import ApprovalEntry, CountedFiles, Gap, Notes, UndecidedGaps
from pvdm.metadata.audit.statements import ProvedChunk, UnverifiedStatement, added_files, removed_paths
from pvdm.metadata.audit.walk import Walk, WalkedSnapshot
from pvdm.model.statements.receipt import Receipt
from pvdm.trust.refusal import refused

GAP_ID_HEX_DIGITS: Final = 32
_HASH_DOMAIN: Final = b"pvdm/gap/v1\x00"


@dataclass(frozen=True, slots=True)
class UnprotectedTime:
    """A time without protection: `ended` ended the protection, and `begun` began the next one, if there is one."""

    ended: ApprovalEntry
    begun: ApprovalEntry | None

    def gap_id(self, head: str) -> str:
        """The id, from both ends of the gap. An open gap ends at `head`, so that each change needs a new acceptance."""
        end = head.encode() if self.begun is None else bytes.fromhex(self.begun.statement_id)
        message = _HASH_DOMAIN + bytes.fromhex(self.ended.statement_id) + end
        return hashlib.sha256(message).hexdigest()[:GAP_ID_HEX_DIGITS]


@dataclass(frozen=True, slots=True)
class _LiveEntries:
    """The live entries of one snapshot, data files and delete files separately. A file may be listed twice."""

    data: tuple[tuple[EntryFacts, DataFile], ...] = ()
    deletes: tuple[tuple[EntryFacts, DataFile], ...] = ()

    @property
    def paths(self) -> set[str]:
        """The paths of its data files."""
        return {file.file_path for _, file in self.data}

    @property
    def data_facts(self) -> Counter[EntryFacts]:
        """How often each data file is listed."""
        return Counter(facts for facts, _ in self.data)

    @property
    def delete_facts(self) -> Counter[EntryFacts]:
        """How often each delete file is listed."""
        return Counter(facts for facts, _ in self.deletes)


@dataclass(frozen=True, slots=True)
class _ProvedReceipt:
    """A valid receipt and its proofs. `rows`: row counts by path, of files whose manifests the walk has checked."""

    receipt: UnverifiedStatement[Receipt]
    chunks: tuple[ProvedChunk, ...]
    rows: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _GapContents:
    """What may belong to one gap."""

    snapshots: frozenset[int] = frozenset()  # the ids of snapshots without a receipt
    uncovered: frozenset[int] = frozenset()  # positions in `_shown_now.data` of live files that no proof covers
    lost: frozenset[str] = frozenset()  # paths of files that are gone without a proof

    def without(self, other: _GapContents) -> _GapContents:
        """The contents without those of the other."""
        return _GapContents(self.snapshots - other.snapshots, self.uncovered - other.uncovered, self.lost - other.lost)


def find_unprotected(approvals: Iterable[ApprovalEntry], *, created_protected: bool) -> list[UnprotectedTime]:
    """The times without protection after the first protection, in the log's order."""
    found: list[UnprotectedTime] = []
    protected, ended = created_protected, None
    for each in approvals:
        if each.kind == "unprotect" and protected:
            protected, ended = False, each
        elif each.kind == "protect":
            if ended is not None:
                found.append(UnprotectedTime(ended, each))
            protected, ended = True, None
    if ended is not None:
        found.append(UnprotectedTime(ended, None))
    return found


class GapJudge:
    """Counts what each gap left without a proof. A file whose proof is not found counts as uncovered."""

    def __init__(self, walk: Walk, gaps: Sequence[UnprotectedTime], notes: Notes) -> None:
        """Must run after the walk, because a snapshot with a finding is not used as a reference."""
        self._walk = walk
        self._gaps = gaps
        self._published = list(self._read_published(notes))
        self._shown_now: _LiveEntries | None = None  # what `main` shows; None if it cannot be read
        with notes.collect():
            self._shown_now = self._read_shown(walk.walked[-1], check_receipt=False) if walk.walked else _LiveEntries()
        self._shown_before = [self._read_before(each) for each in gaps]  # what `main` showed when each gap began
        self._contents = [self._find_contents(at) for at in range(len(gaps))]
        self._shared = self._find_shared()

    def gaps(self, accepted: Collection[str]) -> tuple[Gap, ...]:
        """All gaps, oldest first."""
        return tuple(self._count_gap(at, accepted) for at in range(len(self._gaps)))

    def files_of_expired_proofs(self, notes: Notes) -> Iterator[BoundFile]:
        """The live files that only proofs of expired snapshots bind, for the re-hash."""
        walked = {path for each in self._walk.walked for path in each.files}
        live = set() if self._shown_now is None else self._shown_now.paths
        proved = {file.published_path: file for each in self._published for file in added_files(each.chunks)}
        for path in sorted((live & proved.keys()) - walked):
            yield BoundFile(path, *proved[path].published_size_and_hash, notes, proved[path].version_id)

    def undecided(self) -> UndecidedGaps | None:
        """What came or was lost in one of several gaps, if it cannot be known in which; None if there is nothing."""
        shared = self._shared
        if shared == _GapContents():
            return None
        sharing = [at for at, each in enumerate(self._contents) if each.without(shared) != each]
        uncovered, bytes_proved = self._count_uncovered(shared.uncovered)
        lost, counted = list[CountedFiles](), set[str]()
        for at in sharing:
            paths = (self._contents[at].lost & shared.lost) - counted
            lost.append(self._count_lost(at, paths))
            counted |= paths
        return UndecidedGaps(
            gap_ids=tuple(self._gaps[at].gap_id(self._head_text()) for at in sharing),
            snapshot_ids=self._sort_snapshots(shared.snapshots),
            uncovered=uncovered,
            bytes_proved=bytes_proved,
            lost=None if self._shown_now is None else _add_up(lost),
        )

    def _count_gap(self, at: int, accepted: Collection[str]) -> Gap:
        gap, own = self._gaps[at], self._contents[at].without(self._shared)
        gap_id = gap.gap_id(self._head_text())
        now = self._shown_now
        uncovered, bytes_proved = self._count_uncovered(own.uncovered)
        return Gap(
            gap_id=gap_id,
            accepted=gap_id in accepted,
            ended=gap.ended,
            begun=gap.begun,
            snapshot_ids=self._sort_snapshots(own.snapshots),
            snapshots_expired=gap.ended.snapshot_id is not None and gap.ended.snapshot_id not in self._walk.positions,
            same_snapshot=self._is_same_snapshot(gap),
            publications_expired=self._count_expired(gap),
            uncovered=uncovered,
            bytes_proved=bytes_proved,
            lost=None if now is None else self._count_lost(at, own.lost),
            delete_files=None if now is None else self._count_new_deletes(at, now),
        )

    # Reads the evidence

    def _read_published(self, notes: Notes) -> Iterator[_ProvedReceipt]:
        """Every valid receipt of the table with its proofs, also of snapshots that are gone."""
        positions = self._walk.positions
        for receipt in sorted(self._walk.own_receipts(), key=lambda each: each.logged.index):
            snapshot_id = receipt.predicate.new_snapshot_id
            if snapshot_id in positions:
                each = self._walk.walked[positions[snapshot_id]]
                if each.receipt is receipt and not each.notes.findings:
                    added = () if each.changes is None else each.changes.added
                    yield _ProvedReceipt(receipt, each.chunks, {file.file_path: file.record_count for file in added})
                continue
            # A missing proof would make the loss look smaller. It is noted here unless the walk has noted it.
            notes_of_proofs = Notes() if snapshot_id in self._walk.past.older else notes
            with notes_of_proofs.collect():
                yield _ProvedReceipt(receipt, self._walk.statements.verify_proofs(receipt.predicate.proof_ids), {})

    def _read_before(self, gap: UnprotectedTime) -> _LiveEntries | None:
        """The live entries when protection ended, or None if no receipt binds them."""
        if gap.ended.snapshot_id is None:
            return _LiveEntries()
        position = self._walk.positions.get(gap.ended.snapshot_id)
        each = None if position is None else self._walk.walked[position]
        if each is None or each.receipt is None or each.notes.findings:
            return None
        with Notes().collect():  # a refusal means None
            return self._read_shown(each, check_receipt=True)
        return None

    def _read_shown(self, each: WalkedSnapshot, *, check_receipt: bool) -> _LiveEntries:
        """The live entries of a snapshot. `check_receipt`: its receipt must bind the hash of each manifest."""
        data: list[tuple[EntryFacts, DataFile]] = []
        deletes: list[tuple[EntryFacts, DataFile]] = []
        for entry in read_live(self._walk, each, check_receipt=check_receipt):
            file = entry.data_file
            entries = data if file.content is FileContent.DATA else deletes
            entries.append((entry_facts(entry), file))
        return _LiveEntries(tuple(data), tuple(deletes))

    def _head_text(self) -> str:
        """The head of `main`: its id, and the hash of its list, because an id can be used again."""
        if not self._walk.walked:
            return "none"
        head = self._walk.walked[-1].snapshot
        manifest_list = self._walk.files.seen.get(head.manifest_list or "")
        return f"{head.snapshot_id} {'unread' if manifest_list is None else manifest_list.sha256}"

    # Finds and counts

    def _find_contents(self, at: int) -> _GapContents:
        snapshots, now = self._find_snapshots(self._gaps[at]), self._shown_now
        if now is None:
            return _GapContents(snapshots)
        return _GapContents(snapshots, frozenset(self._find_uncovered(at, now)), self._find_lost(at, now))

    def _find_shared(self) -> _GapContents:
        """What may belong to several gaps, because no receipt binds the head at which the later gap began."""
        shared = _GapContents()
        for at, later in enumerate(self._contents):
            if self._shown_before[at] is not None:
                continue
            for earlier in self._contents[:at]:
                shared = _GapContents(
                    shared.snapshots | (later.snapshots & earlier.snapshots),
                    shared.uncovered | (later.uncovered & earlier.uncovered),
                    shared.lost | (later.lost & earlier.lost),
                )
        return shared

    def _sort_snapshots(self, snapshots: Collection[int]) -> tuple[int, ...]:
        """These snapshot ids, the oldest first."""
        walked = (each.snapshot.snapshot_id for each in self._walk.walked)
        return tuple(each for each in walked if each in snapshots)

    def _find_snapshots(self, gap: UnprotectedTime) -> frozenset[int]:
        """The snapshots without a receipt that came in the gap."""
        first = self._walk.position_before(gap.ended.log_index + 1) + 1
        end = len(self._walk.walked) - 1
        if gap.begun is not None:
            position = self._walk.past.position(gap.begun.snapshot_id)
            end = end if position is None else position
        since = self._walk.walked[first : end + 1]
        return frozenset(each.snapshot.snapshot_id for each in since if each.receipt is None and not each.needs_receipt)

    def _is_same_snapshot(self, gap: UnprotectedTime) -> bool:
        """Whether both ends of the gap have the same head, which a valid receipt binds, or both have no snapshot."""
        head = self._walk.walked[-1].snapshot.snapshot_id if self._walk.walked else None
        after = head if gap.begun is None else gap.begun.snapshot_id
        if after != gap.ended.snapshot_id:
            return False
        position = None if after is None else self._walk.positions.get(after)
        if position is None:
            return after is None
        each = self._walk.walked[position]
        return each.receipt is not None and not each.notes.findings

    def _count_expired(self, gap: UnprotectedTime) -> int:
        """The number of publications before the gap whose snapshots have expired."""
        before = self._published_before(gap)
        return sum(1 for each in before if each.receipt.predicate.new_snapshot_id not in self._walk.positions)

    def _published_after(self, gap: UnprotectedTime) -> list[_ProvedReceipt]:
        """The publications since protection began again, in the history of `main`."""
        if gap.begun is None:
            return []
        history, index = self._walk.positions.keys() | self._walk.past.older, gap.begun.log_index
        return [
            each
            for each in self._published
            if each.receipt.logged.index > index and each.receipt.predicate.new_snapshot_id in history
        ]

    def _find_uncovered(self, at: int, now: _LiveEntries) -> Iterator[int]:
        """Positions in `now.data` of files that no later proof covers and `main` did not show when the gap began."""
        proved = Counter(_sizes(self._published_after(self._gaps[at])))
        before = self._shown_before[at]
        kept = before.data_facts if before is not None and not _deletes_changed(before, now) else Counter()
        later = [each.data_facts for each in self._shown_before[at + 1 :] if each is not None]
        for position, (facts, file) in enumerate(now.data):
            named = (file.file_path, file.file_size_in_bytes)
            if proved[named]:
                proved[named] -= 1
            elif kept[facts]:
                kept[facts] -= 1
            elif all(facts in each for each in later):
                # A file that was missing when a later gap began belongs to that later gap.
                yield position

    def _count_uncovered(self, positions: Collection[int]) -> tuple[CountedFiles | None, CountedFiles | None]:
        """Two counts: of these files, and of the files among them that have path and size of a proved file."""
        if self._shown_now is None:
            return None, None
        proved = set(_sizes(self._published))
        files = [file for position, (_, file) in enumerate(self._shown_now.data) if position in positions]
        return _count(files), _count([each for each in files if (each.file_path, each.file_size_in_bytes) in proved])

    def _count_new_deletes(self, at: int, now: _LiveEntries) -> int:
        before = self._shown_before[at]
        return (now.delete_facts - (Counter() if before is None else before.delete_facts)).total()

    def _find_lost(self, at: int, now: _LiveEntries) -> frozenset[str]:
        """Paths gone without a proof: of the files of `main` at the gap's begin; if unknown, of files proved before."""
        not_lost = set(now.paths)
        for each in self._published_after(self._gaps[at]):
            not_lost |= removed_paths(each.chunks)
        for later in self._shown_before[at + 1 :]:
            not_lost |= set() if later is None else later.paths
        before = self._shown_before[at]
        if before is not None:
            return frozenset(before.paths - not_lost)
        chunks = [chunk for each in self._published_before(self._gaps[at]) for chunk in each.chunks]
        return frozenset({file.published_path for file in added_files(chunks)} - removed_paths(chunks) - not_lost)

    def _count_lost(self, at: int, lost: Collection[str]) -> CountedFiles:
        """The counts of these files, by what `main` showed at the gap's begin; if unknown, by the earlier proofs."""
        before = self._shown_before[at]
        if before is not None:
            return _count([file for _, file in before.data if file.file_path in lost])
        counts: list[CountedFiles] = []
        for published in self._published_before(self._gaps[at]):
            for chunk in published.chunks:
                paths = {each.published_path for each in chunk.proof.core.files.added if each.published_path in lost}
                counts.append(CountedFiles(len(paths), _rows_at_most(paths, published, chunk)))
        return _add_up(counts)

    def _published_before(self, gap: UnprotectedTime) -> list[_ProvedReceipt]:
        return [each for each in self._published if each.receipt.logged.index < gap.ended.log_index]


def require_accepted(gap: Gap) -> None:
    """Raise `audit_protection_gap` unless the gap is accepted."""
    if not gap.accepted:
        expected = f"gap {gap.gap_id} named with --accept-gap, or no gap"
        raise refused("audit_protection_gap", expected, "a gap that is not accepted")


def require_known(accepted: Iterable[str], gaps: Collection[Gap]) -> None:
    """Every accepted gap exists. If one does not, statements about it may have been left out."""
    if unknown := sorted(set(accepted) - {each.gap_id for each in gaps}):
        raise refused("audit_gap_unknown", f"gap {unknown[0]}", ", ".join(each.gap_id for each in gaps) or "no gap")


def _sizes(published: Iterable[_ProvedReceipt]) -> Iterator[tuple[str, int]]:
    """Path and size of every file that the proofs of these publications bind."""
    files = (file for each in published for file in added_files(each.chunks))
    return ((file.published_path, file.published_size_bytes) for file in files)


def _count(files: Sequence[DataFile]) -> CountedFiles:
    return CountedFiles(len(files), sum(each.record_count for each in files))


def _add_up(counts: Sequence[CountedFiles]) -> CountedFiles:
    """The sum of the counts. The rows are None (unknown) if they are None in any count."""
    rows = [each.rows for each in counts]
    return CountedFiles(sum(each.files for each in counts), None if None in rows else sum(each or 0 for each in rows))


def _rows_at_most(paths: Collection[str], published: _ProvedReceipt, chunk: ProvedChunk) -> int | None:
    """An upper bound of these files' rows: if a file's count is unknown, all rows of the chunk. None: unknown."""
    if not paths:
        return 0
    if all(path in published.rows for path in paths):
        return sum(published.rows[path] for path in paths)
    return chunk.proof.core.rows.staged


def _deletes_changed(before: _LiveEntries, now: _LiveEntries) -> bool:
    """Whether a delete file was added, or was removed although its data file is live or is not known."""
    if now.delete_facts - before.delete_facts:
        return True
    gone, paths = before.delete_facts - now.delete_facts, now.paths
    about = [file.referenced_data_file for facts, file in before.deletes if facts in gone]
    return any(each is None or each in paths for each in about)
