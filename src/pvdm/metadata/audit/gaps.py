"""Times without protection: which snapshots came in them, and what `main` shows or lost that no proof covers."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pvdm.lake.format.manifest.entry import DataFile, FileContent
from pvdm.metadata.audit.carried import read_live
from pvdm.metadata.audit.changes import EntryFacts, entry_facts
from pvdm.metadata.audit.rehash import Bound
from pvdm.metadata.audit.report import CountedFiles, Explained, Gap, Notes, UndecidedGaps
from pvdm.metadata.audit.statements import ProvedChunk, Said
from pvdm.metadata.audit.walk import Walk, Walked
from pvdm.model.statements.files import AddedFile
from pvdm.model.statements.receipt import Receipt
from pvdm.trust.refusal import refused

GAP_ID_HEX_DIGITS: Final = 32
_DOMAIN: Final = b"pvdm/gap/v1\x00"


@dataclass(frozen=True, slots=True)
class Unprotected:
    """A time without protection, from its end to the next beginning; None while the table is not protected."""

    ended: Explained
    begun: Explained | None

    def gap_id(self, head: str) -> str:
        """Both ends of the gap; of one that goes on, also what `main` shows: each change needs a new acceptance."""
        until = bytes.fromhex(self.begun.statement_id) if self.begun is not None else head.encode()
        said = _DOMAIN + bytes.fromhex(self.ended.statement_id) + until
        return hashlib.sha256(said).hexdigest()[:GAP_ID_HEX_DIGITS]


@dataclass(frozen=True, slots=True)
class _LiveEntries:
    """The live entries of one snapshot with their facts, data and deletes apart; a file may be listed twice."""

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
class _Published:
    """A receipt that holds, and its proofs; `rows` has the row counts of its files where its manifests are bound."""

    said: Said[Receipt]
    chunks: tuple[ProvedChunk, ...]
    rows: Mapping[str, int]

    @property
    def added(self) -> Iterator[AddedFile]:
        """Every file that its proofs bind."""
        return (file for chunk in self.chunks for file in chunk.proof.core.files.added)

    @property
    def removed(self) -> set[str]:
        """Every path that its proofs remove."""
        return {path for chunk in self.chunks for path in chunk.proof.core.files.removed}


@dataclass(frozen=True, slots=True)
class _GapContents:
    """What may be of one gap: snapshots, places of files in what `main` shows now, and paths of files that are lost."""

    snapshots: frozenset[int] = frozenset()
    uncovered: frozenset[int] = frozenset()
    lost: frozenset[str] = frozenset()

    def without(self, other: _GapContents) -> _GapContents:
        """What is not of the other."""
        return _GapContents(self.snapshots - other.snapshots, self.uncovered - other.uncovered, self.lost - other.lost)


def find_unprotected(approvals: Iterable[Explained], *, born_protected: bool) -> list[Unprotected]:
    """The times without protection behind the first protection, in the log's order."""
    found: list[Unprotected] = []
    protected, ended = born_protected, None
    for each in approvals:
        if each.kind == "unprotect" and protected:
            protected, ended = False, each
        elif each.kind == "protect":
            if ended is not None:
                found.append(Unprotected(ended, each))
            protected, ended = True, None
    if ended is not None:
        found.append(Unprotected(ended, None))
    return found


class GapJudge:
    """Counts what each gap left without a proof; what cannot be decided counts as without one."""

    def __init__(self, walk: Walk, gaps: Sequence[Unprotected], notes: Notes) -> None:
        """After the walk: a snapshot with a finding is nothing to rely on."""
        self._walk = walk
        self._gaps = gaps
        self._published = list(self._read_published(notes))
        self._now: _LiveEntries | None = None
        with notes.held():
            self._now = self._read_head()
        self._before = [self._read_before(each) for each in gaps]
        self._found = [self._find(at) for at in range(len(gaps))]
        self._shared = self._find_shared()

    def gaps(self, accepted: Collection[str]) -> tuple[Gap, ...]:
        """All of them, oldest first."""
        return tuple(self._count_gap(at, accepted) for at in range(len(self._gaps)))

    def covered_elsewhere(self, notes: Notes) -> Iterator[Bound]:
        """The live files that proofs of expired snapshots bind, to be read again as those of the walk are."""
        walked = {path for each in self._walk.walked for path in each.files}
        shown = set() if self._now is None else self._now.paths
        proved = {file.published_path: file for each in self._published for file in each.added}
        for path in sorted((shown & proved.keys()) - walked):
            yield Bound(path, *proved[path].published_bytes, notes, proved[path].version)

    def undecided(self) -> UndecidedGaps | None:
        """What came or went in one of several gaps, and nothing tells in which; None if there is no such thing."""
        shared = self._shared
        if shared == _GapContents():
            return None
        of = [at for at, each in enumerate(self._found) if each.without(shared) != each]
        counts = None if self._now is None else self._count_uncovered(shared.uncovered, self._now)
        lost, seen = list[CountedFiles](), frozenset[str]()
        for at in of:
            paths = (self._found[at].lost & shared.lost) - seen
            lost.append(self._count_lost(at, paths))
            seen |= paths
        return UndecidedGaps(
            tuple(self._gaps[at].gap_id(self._head_text()) for at in of),
            self._in_order(shared.snapshots),
            None if counts is None else counts[0],
            None if counts is None else counts[1],
            None if self._now is None else _sum_of(lost),
        )

    def _count_gap(self, at: int, accepted: Collection[str]) -> Gap:
        gap, own = self._gaps[at], self._found[at].without(self._shared)
        gap_id = gap.gap_id(self._head_text())
        made = Gap(
            gap_id,
            gap.ended,
            gap.begun,
            self._in_order(own.snapshots),
            self._may_have_expired(gap),
            same_snapshot=self._is_same(gap),
            publications_expired=self._expired(gap),
            uncovered=None,
            bytes_proved=None,
            lost=None,
            delete_files=None,
            accepted=gap_id in accepted,
        )
        if self._now is None:
            return made
        uncovered, bytes_proved = self._count_uncovered(own.uncovered, self._now)
        return replace(
            made,
            uncovered=uncovered,
            bytes_proved=bytes_proved,
            lost=self._count_lost(at, own.lost),
            delete_files=self._new_deletes(at, self._now),
        )

    # What is known

    def _read_published(self, notes: Notes) -> Iterator[_Published]:
        """Every receipt of the table that holds, with its proofs; those of snapshots that are gone too."""
        places = self._walk.places
        for said in sorted(self._walk.own_receipts(), key=lambda each: each.logged.index):
            snapshot_id = said.predicate.new_snapshot_id
            if snapshot_id in places:
                each = self._walk.walked[places[snapshot_id]]
                if each.receipt is said and not each.notes.findings:
                    yield _Published(said, each.chunks, _row_counts(each))
                continue
            # A proof that is missing would make what was lost look smaller: it is noted, unless the walk has done so.
            with (Notes() if snapshot_id in self._walk.past.older else notes).held():
                yield _Published(said, self._walk.chunks(said), {})

    def _read_head(self) -> _LiveEntries:
        """What `main` shows now."""
        if not self._walk.walked:
            return _LiveEntries()
        return self._read_shown(self._walk.walked[-1], bound=False)

    def _read_before(self, gap: Unprotected) -> _LiveEntries | None:
        """What `main` showed when protection ended, where a receipt binds it; None where nothing does."""
        if gap.ended.snapshot_id is None:
            return _LiveEntries()
        place = self._walk.places.get(gap.ended.snapshot_id)
        each = None if place is None else self._walk.walked[place]
        if each is None or each.receipt is None or each.notes.findings:
            return None
        with Notes().held():
            return self._read_shown(each, bound=True)
        return None

    def _read_shown(self, each: Walked, *, bound: bool) -> _LiveEntries:
        """The live entries of a snapshot; with `bound` from the very manifests that its receipt binds."""
        data: list[tuple[EntryFacts, DataFile]] = []
        deletes: list[tuple[EntryFacts, DataFile]] = []
        for entry in read_live(self._walk, each, bound=bound):
            file = entry.data_file
            (data if file.content is FileContent.DATA else deletes).append((entry_facts(entry), file))
        return _LiveEntries(tuple(data), tuple(deletes))

    def _head_text(self) -> str:
        """What `main` shows: the snapshot, and the hash of its list, since an id can be used again."""
        if not self._walk.walked:
            return "none"
        head = self._walk.walked[-1].snapshot
        seen = self._walk.files.seen.get(head.manifest_list or "")
        return f"{head.snapshot_id} {'unread' if seen is None else seen[1]}"

    # What follows from it

    def _find(self, at: int) -> _GapContents:
        snapshots = self._snapshots(self._gaps[at])
        if self._now is None:
            return _GapContents(snapshots)
        return _GapContents(snapshots, frozenset(self._uncovered(at, self._now)), self._lost(at, self._now))

    def _find_shared(self) -> _GapContents:
        """What may be of several gaps: no receipt binds what `main` showed when the later one began."""
        shared = _GapContents()
        for at, later in enumerate(self._found):
            for earlier in self._found[:at] if self._before[at] is None else ():
                shared = _GapContents(
                    shared.snapshots | (later.snapshots & earlier.snapshots),
                    shared.uncovered | (later.uncovered & earlier.uncovered),
                    shared.lost | (later.lost & earlier.lost),
                )
        return shared

    def _in_order(self, snapshots: Collection[int]) -> tuple[int, ...]:
        walked = (each.snapshot.snapshot_id for each in self._walk.walked)
        return tuple(each for each in walked if each in snapshots)

    def _snapshots(self, gap: Unprotected) -> frozenset[int]:
        """The snapshots without a receipt that came in the gap."""
        first = self._walk.place_before(gap.ended.index + 1) + 1
        end = len(self._walk.walked) - 1
        if gap.begun is not None:
            place = self._walk.past.place(gap.begun.snapshot_id)
            end = end if place is None else place
        free = [each for each in self._walk.walked[first : end + 1] if each.receipt is None and not each.wanted]
        return frozenset(each.snapshot.snapshot_id for each in free)

    def _may_have_expired(self, gap: Unprotected) -> bool:
        """Whether snapshots of the gap may have expired."""
        return gap.ended.snapshot_id is not None and gap.ended.snapshot_id not in self._walk.places

    def _is_same(self, gap: Unprotected) -> bool:
        """Whether the gap began and ended with one snapshot, which a receipt binds to the byte."""
        shown = self._walk.walked[-1].snapshot.snapshot_id if self._walk.walked else None
        after = shown if gap.begun is None else gap.begun.snapshot_id
        if after != gap.ended.snapshot_id:
            return False
        place = None if after is None else self._walk.places.get(after)
        if place is None:
            return after is None
        each = self._walk.walked[place]
        return each.receipt is not None and not each.notes.findings

    def _expired(self, gap: Unprotected) -> int:
        """How many publications from before the gap the table has no snapshot of any more."""
        before = self._published_before(gap)
        return sum(1 for each in before if each.said.predicate.new_snapshot_id not in self._walk.places)

    def _after(self, gap: Unprotected) -> list[_Published]:
        """The publications since protection began again, in the history of `main`."""
        if gap.begun is None:
            return []
        seen, index = self._walk.places.keys() | self._walk.past.older, gap.begun.index
        return [
            each
            for each in self._published
            if each.said.logged.index > index and each.said.predicate.new_snapshot_id in seen
        ]

    def _uncovered(self, at: int, now: _LiveEntries) -> Iterator[int]:
        """What `main` shows and neither a proof since then nor the list of the last publication before it covers.

        Gives places in `now.data`.
        """
        proved = Counter(
            (file.published_path, file.published_size_bytes)
            for each in self._after(self._gaps[at])
            for file in each.added
        )
        before = self._before[at]
        kept = before.data_facts if before is not None and not _deletes_changed(before, now) else Counter()
        later = [each.data_facts for each in self._before[at + 1 :] if each is not None]
        for place, (facts, file) in enumerate(now.data):
            named = (file.file_path, file.file_size_in_bytes)
            if proved[named]:
                proved[named] -= 1
            elif kept[facts]:
                kept[facts] -= 1
            elif all(facts in each for each in later):
                # Otherwise it was not there yet when a later gap began: that one has it.
                yield place

    def _count_uncovered(self, places: Collection[int], now: _LiveEntries) -> tuple[CountedFiles, CountedFiles]:
        """These files of `main`, and those of them that have path and size of a proved file."""
        proved = {(file.published_path, file.published_size_bytes) for each in self._published for file in each.added}
        found = [now.data[place][1] for place in sorted(places)]
        return _counted(found), _counted(
            [each for each in found if (each.file_path, each.file_size_in_bytes) in proved]
        )

    def _new_deletes(self, at: int, now: _LiveEntries) -> int:
        before = self._before[at]
        return (now.delete_facts - (Counter() if before is None else before.delete_facts)).total()

    def _lost(self, at: int, now: _LiveEntries) -> frozenset[str]:
        """What is shown no more and no proof removed: by the last publication's list, or else by all proofs."""
        still = set(now.paths)
        for each in self._after(self._gaps[at]):
            still |= each.removed
        for later in self._before[at + 1 :]:
            still |= set() if later is None else later.paths
        before = self._before[at]
        if before is not None:
            return frozenset(before.paths - still)
        earlier = self._published_before(self._gaps[at])
        removed = {path for each in earlier for path in each.removed}
        return frozenset({file.published_path for each in earlier for file in each.added} - removed - still)

    def _count_lost(self, at: int, lost: Collection[str]) -> CountedFiles:
        """These files, by the list of the last publication before the gap, or else by the proofs before it."""
        before = self._before[at]
        if before is not None:
            return _counted([file for _, file in before.data if file.file_path in lost])
        found: list[CountedFiles] = []
        for published in self._published_before(self._gaps[at]):
            for chunk in published.chunks:
                paths = {each.published_path for each in chunk.proof.core.files.added if each.published_path in lost}
                found.append(CountedFiles(len(paths), _rows_at_most(paths, published, chunk)))
        return _sum_of(found)

    def _published_before(self, gap: Unprotected) -> list[_Published]:
        return [each for each in self._published if each.said.logged.index < gap.ended.index]


def require_accepted(gap: Gap) -> None:
    """The gap is named on the command line."""
    if not gap.accepted:
        raise refused(
            "audit_protection_gap",
            "the table was not protected for a time, and the gap is not accepted",
            f"gap {gap.gap_id} named with --accept-gap, or no gap",
            "a gap that is not accepted",
        )


def require_known(accepted: Iterable[str], gaps: Collection[Gap]) -> None:
    """Every gap that is accepted is there: if one is not, statements about it may have been left out."""
    for gap_id in sorted(set(accepted) - {each.gap_id for each in gaps}):
        raise refused(
            "audit_gap_unknown",
            "a gap that is accepted is not there",
            f"gap {gap_id}",
            ", ".join(each.gap_id for each in gaps) or "no gap",
        )


def _counted(files: Sequence[DataFile]) -> CountedFiles:
    return CountedFiles(len(files), sum(each.record_count for each in files))


def _sum_of(counts: Sequence[CountedFiles]) -> CountedFiles:
    rows = [each.rows for each in counts]
    return CountedFiles(sum(each.files for each in counts), None if None in rows else sum(each or 0 for each in rows))


def _row_counts(each: Walked) -> dict[str, int]:
    added = () if each.changed is None else each.changed.added
    return {file.file_path: file.record_count for file in added}


def _rows_at_most(paths: Collection[str], published: _Published, chunk: ProvedChunk) -> int | None:
    """The rows of files that are gone; all rows of their chunk where no manifest tells which file had how many."""
    if not paths:
        return 0
    if all(path in published.rows for path in paths):
        return sum(published.rows[path] for path in paths)
    return chunk.proof.core.rows.staged


def _deletes_changed(before: _LiveEntries, now: _LiveEntries) -> bool:
    """Whether other rows of the same files are shown: a delete file came, or one is gone whose data file is not."""
    if now.delete_facts - before.delete_facts:
        return True
    gone, paths = before.delete_facts - now.delete_facts, now.paths
    about = [file.referenced_data_file for facts, file in before.deletes if facts in gone]
    return any(each is None or each in paths for each in about)
