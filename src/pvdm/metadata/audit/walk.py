"""The walk over the history of `main`: whose receipt a snapshot has, who had to have one, and what it rests on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from pvdm.errors import VerificationError
from pvdm.lake.format.manifest.manifest import MANIFEST_MAX_BYTES
from pvdm.lake.format.manifest.manifest_list import MANIFEST_LIST_MAX_BYTES, ManifestFile, ManifestList
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import Snapshot
from pvdm.lake.read.manifest_root import FOUND_KEY
from pvdm.metadata.audit import checks
from pvdm.metadata.audit.changes import Changed, Manifests, Step
from pvdm.metadata.audit.evidence import AUDIT_SNAPSHOTS_MAX, Evidence, HashedFiles
from pvdm.metadata.audit.heads import BEFORE_ALL, Past, owed
from pvdm.metadata.audit.proofs import Proofs, Rested
from pvdm.metadata.audit.protection import Protected
from pvdm.metadata.audit.report import Notes
from pvdm.metadata.audit.statements import ProvedChunk, Said, Statements
from pvdm.model.statements.break_glass import BreakGlass
from pvdm.model.statements.core import ProofCore
from pvdm.model.statements.files import AddedFile
from pvdm.model.statements.receipt import Receipt
from pvdm.trust.refusal import refused


@dataclass(slots=True)
class Walked:
    """One snapshot on the way; `receipt` is one that holds."""

    snapshot: Snapshot
    notes: Notes = field(default_factory=Notes)
    receipt: Said[Receipt] | None = None
    wanted: bool = False
    written: tuple[ManifestFile, ...] = ()
    shown: tuple[ManifestFile, ...] = ()
    changed: Changed | None = None
    chunks: tuple[ProvedChunk, ...] = ()
    override: BreakGlass | None = None
    files: dict[str, AddedFile] = field(default_factory=dict)

    @property
    def judged(self) -> bool:
        """Whether there is anything to hold it to."""
        return self.receipt is not None or self.wanted or bool(self.notes.findings)


def history(metadata: TableMetadata) -> list[Snapshot]:
    """Main's snapshots, oldest first, as far back as the table has them."""
    head = metadata.current_snapshot_id
    found: list[Snapshot] = []
    for snapshot in () if head is None else metadata.ancestry(head):
        found.append(snapshot)
        if len(found) > AUDIT_SNAPSHOTS_MAX:
            raise VerificationError(
                "audit_too_large",
                "the history has too many snapshots",
                expected=f"at most {AUDIT_SNAPSHOTS_MAX}",
                got="more",
            )
    return found[::-1]


class Walk:
    """Judges one snapshot after the other; what does not hold is noted there."""

    def __init__(
        self,
        evidence: Evidence,
        metadata: TableMetadata,
        files: HashedFiles,
        statements: Statements,
        protected: Protected,
        notes: Notes,
    ) -> None:
        """`notes` takes what concerns the table as a whole."""
        self._evidence = evidence
        self._metadata = metadata
        self.files = files
        self._statements = statements
        self._protected = protected
        self._notes = notes
        self.manifests = Manifests(metadata, files)
        self._fingerprints = checks.schema_fingerprints(metadata)
        self._listed: tuple[int | None, ManifestList | None] = (None, None)
        self._proofs = Proofs(statements, protected, evidence)
        self.walked = [Walked(snapshot) for snapshot in history(metadata)]
        self.places = {each.snapshot.snapshot_id: at for at, each in enumerate(self.walked)}
        for each in self.walked:
            self._find_receipt(each)
        self.expired: list[Said[Receipt]] = []
        self.expired_proofs: list[Rested] = []
        self._expired_hold = True
        self.past = self._find_past()
        self._owed = owed(protected.edges, self.past, notes)
        self._mark_wanted()

    def _find_receipt(self, each: Walked) -> None:
        """The snapshot's receipt, if one of those that name it holds; else what is wrong with the first."""
        for said in self._statements.receipts.get(each.snapshot.snapshot_id, ()):
            notes = self._judged_receipt(said, each.snapshot)
            if not notes.findings:
                each.receipt, each.notes = said, notes
                return
            each.notes.findings = each.notes.findings or notes.findings

    def _judged_receipt(self, said: Said[Receipt], snapshot: Snapshot | None) -> Notes:
        """What is wrong with a receipt of this table; without a snapshot it is of one that has expired."""
        notes = Notes()
        with notes.held():
            checks.require_receipt_table(said.predicate, self._evidence)
        with notes.held():
            checks.require_receipt_branch(said.predicate)
        if snapshot is not None:
            with notes.held():
                checks.require_receipt_snapshot(said.predicate, snapshot)
        with notes.held():
            self._statements.receipt(said)
        return notes

    def _find_past(self) -> Past:
        """What the oldest snapshot goes back to: its parent, and from there as far as receipts lead, newest first."""
        older: set[int] = set()
        at = self.walked[0].snapshot.parent_id if self.walked else None
        while at is not None and at not in older and at not in self.places:
            older.add(at)
            said = self._statements.receipts.get(at, ())
            good = next((each for each in said if not self._judged_receipt(each, None).findings), None)
            if good is None:
                return Past(self.places, older, cut_at=at)
            self.expired.append(good)
            at = good.predicate.old_snapshot_id
        if at is not None:
            with self._notes.held():
                raise refused(
                    "audit_receipt_wrong_snapshot",
                    "the receipts of snapshots that have expired lead in a circle",
                    "a snapshot that is older",
                    at,
                )
        return Past(self.places, older, cut_at=None)

    def _mark_wanted(self) -> None:
        """What came after the snapshot that a protection binds has to have a receipt, whatever time it says."""
        for at, each in enumerate(self.walked):
            if each.receipt is not None:
                continue
            each.wanted = self._owed.at(at)
            if each.wanted and not each.notes.findings:
                with each.notes.held():
                    raise refused(
                        "audit_receipt_missing", "nothing says that the snapshot was proved", "a receipt", "none"
                    )

    def lost(self) -> list[Said[Receipt]]:
        """The receipts of this table whose snapshots `main` does not descend from.

        Snapshots that the table no longer has, but that its oldest one goes back to, may be gone.
        """
        shown = self.places.keys() | self.past.older
        return [
            said
            for said in self._statements.all_receipts()
            if said.predicate.table.uuid == self._evidence.table.uuid
            and said.logged.index > self._owed.unseen
            and said.predicate.new_snapshot_id not in shown
        ]

    def place_before(self, index: int) -> int:
        """The place of the newest head that an approval before this entry of the log binds, and that is in sight."""
        heads = (each.snapshot_id for each in self._protected.edges if each.index < index)
        return max((place for each in heads if (place := self.past.place(each)) is not None), default=BEFORE_ALL)

    def own_receipts(self) -> Iterator[Said[Receipt]]:
        """Every receipt of this table's `main` that holds, also of a snapshot that is gone."""
        for said in self._statements.all_receipts():
            if not self._judged_receipt(said, None).findings:
                yield said

    def chunks(self, said: Said[Receipt]) -> tuple[ProvedChunk, ...]:
        """The proofs that a receipt names, once they hold."""
        return self._statements.chunks(said.predicate.proof_ids)

    def judge_expired(self) -> None:
        """The proofs of the publications that have expired and that receipts lead back to, oldest first."""
        for said in reversed(self.expired):
            own = Notes()
            self.expired_proofs.append(self._proofs.judge(said, own))
            where = f"snapshot {said.predicate.new_snapshot_id}, which has expired"
            self._notes.findings += [replace(each, message=f"{where}: {each.message}") for each in own.findings]
            self._expired_hold = self._expired_hold and not own.findings

    @property
    def has_expired(self) -> bool:
        """Whether `main` goes back to snapshots that the table no longer has."""
        return bool(self.walked) and self.walked[0].snapshot.parent_id is not None

    @property
    def leads_back(self) -> bool:
        """Whether the oldest snapshot, and everything that receipts lead back to from it, holds so far."""
        first = self.walked[0]
        return first.receipt is not None and not first.notes.findings and self._expired_hold

    def judge(self, each: Walked) -> None:
        """Its bytes, what it changed, and the proofs of that."""
        if not each.judged:
            return
        self._read(each)
        if each.receipt is None:
            return
        with each.notes.held(changed=True):
            checks.require_metadata(each.receipt.predicate, self._evidence)
        with each.notes.held():
            checks.require_metadata_known(each.receipt.predicate, each.snapshot, self._evidence, self._metadata)
        rested = self._proofs.judge(each.receipt, each.notes)
        each.chunks, each.override = rested.chunks, rested.override
        for chunk in each.chunks:
            with each.notes.held():
                self._require_base(chunk.proof.core, each)
            with each.notes.held():
                checks.require_schema(chunk.proof.core, each.snapshot, self._fingerprints)
        if each.chunks and each.changed is not None:
            self._compare(each, each.changed)

    def _read(self, each: Walked) -> None:
        """The snapshot's list, the manifests that it wrote, and what they changed."""
        snapshot, notes = each.snapshot, each.notes
        own: ManifestList | None = None
        with notes.held(changed=True):
            if each.receipt is not None and snapshot.manifest_list is not None:
                data = self.files.read(snapshot.snapshot_id, snapshot.manifest_list, most=MANIFEST_LIST_MAX_BYTES)
                checks.require_list(each.receipt.predicate, data)
            own = self.manifests.listed(snapshot)
        before: ManifestList | None = None
        with notes.held(changed=True):
            before = self._list_before(snapshot)
        self._listed = (snapshot.snapshot_id, own)
        if own is None:
            return
        first = snapshot.parent_id is None
        step = Step(snapshot, own.manifests, () if first else None if before is None else before.manifests)
        each.written = step.written
        with notes.held():
            replaced = step.replaced()
            with notes.held(changed=True):
                entries = self.manifests.entries(snapshot.snapshot_id, each.written)
                old = self.manifests.entries(snapshot.parent_id or 0, replaced)
                with notes.held():
                    each.changed = step.changed(entries, old)
        if each.receipt is not None:
            self._require_bound(each, own, before, step.kept)

    def _require_bound(
        self, each: Walked, own: ManifestList, before: ManifestList | None, kept: Sequence[ManifestFile]
    ) -> None:
        """Every manifest that the snapshot lists is bound by its receipt, and what it took over is as it was found."""
        parent, seen = self._parent(each), self.files.seen
        with each.notes.held(changed=True):
            bound = checks.require_bound(own)
            checks.require_manifests(bound, ((path, seen[path][1]) for path in _paths(each.written) if path in seen))
            if before is not None and parent is not None and parent.receipt is not None:
                known = checks.require_bound(before)
                checks.require_manifests(bound, ((path, known[path]) for path in _paths(kept) if path in known))
        if parent is None or parent.receipt is not None:
            return
        with each.notes.held(changed=True):
            root = checks.require_taken_over(kept, own.file.text(FOUND_KEY))
            if before is not None:
                checks.require_found(root, self.manifests.found(parent.snapshot))

    def _parent(self, each: Walked) -> Walked | None:
        """The snapshot before it, where the table still has it."""
        at = self.places.get(each.snapshot.parent_id) if each.snapshot.parent_id is not None else None
        return None if at is None else self.walked[at]

    def judge_head(self) -> None:
        """Hash every manifest that `main` shows; if nothing is published yet, repeat the checks of the protection."""
        head = self.walked[-1] if self.walked else None
        if head is None:
            return
        if head.receipt is None:
            if self._protected.stands and not head.judged:
                with self._notes.held():
                    self.manifests.found(head.snapshot)
            return
        known, own = self._listed
        if own is None or known != head.snapshot.snapshot_id or head.notes.findings:
            return
        head.shown = own.manifests
        with head.notes.held(changed=True):
            bound = checks.require_bound(own)
            for path in _paths(own.manifests):
                if path not in self.files.seen:
                    self.files.read(head.snapshot.snapshot_id, path, most=MANIFEST_MAX_BYTES)
                checks.require_manifests(bound, [(path, self.files.seen[path][1])])

    def _list_before(self, snapshot: Snapshot) -> ManifestList | None:
        """The parent's list; None before a first snapshot, and where the parent, or its list as it was, is gone."""
        if snapshot.parent_id is None:
            return None
        known, listed = self._listed
        if known == snapshot.parent_id:
            return listed
        parent = self._metadata.snapshot(snapshot.parent_id)
        return None if parent is None else self.manifests.listed(parent)

    def _compare(self, each: Walked, changed: Changed) -> None:
        with each.notes.held():
            each.files = checks.require_added(each.chunks, changed)
        with each.notes.held():
            checks.require_removed(each.chunks, changed)
        with each.notes.held():
            checks.require_rows(each.chunks, changed)
        for chunk in each.chunks:
            with each.notes.held():
                checks.require_spec(chunk.proof.core, changed)

    def _require_base(self, core: ProofCore, each: Walked) -> None:
        """The proof was judged on an ancestor of the snapshot, as far back as the table remembers."""
        base, at = core.target.base_snapshot_id, self.places[each.snapshot.snapshot_id]
        whole = self.walked[0].snapshot.parent_id is None
        if base is not None and self.places.get(base, at if whole else BEFORE_ALL) >= at:
            raise refused(
                "audit_base_not_ancestor",
                "the proof was judged on a snapshot that this one does not follow",
                "an ancestor",
                base,
            )


def _paths(listed: Sequence[ManifestFile]) -> list[str]:
    return [each.manifest_path for each in listed]
