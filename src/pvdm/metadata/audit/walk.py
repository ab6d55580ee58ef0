"""Walks the history of `main`: finds the receipt of each snapshot and checks its manifests and proofs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from pvdm.errors import Code
from pvdm.lake.format.manifest.manifest import MANIFEST_MAX_BYTES
from pvdm.lake.format.manifest.manifest_list import MANIFEST_LIST_MAX_BYTES, ManifestFile, ManifestList
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import Snapshot
from pvdm.lake.read.found_manifests import FOUND_KEY
from pvdm.metadata.audit import checks
from pvdm.metadata.audit.changes import Manifests, SnapshotChanges, Step
from pvdm.metadata.audit.checks import Proofs, PublicationProofs
from pvdm.metadata.audit.evidence import AUDIT_SNAPSHOTS_MAX, Evidence, HashedFiles
from pvdm.metadata.audit.protection import BEFORE_ALL, Past, ProtectionHistory, find_required_spans
from pvdm.metadata.audit.report import Notes
from pvdm.metadata.audit.statements import ProvedChunk, Statements, UnverifiedStatement
from pvdm.model.statements.break_glass import BreakGlass
from pvdm.model.statements.core import AddedFile, ProofCore
from pvdm.model.statements.receipt import Receipt
from pvdm.trust.refusal import refused


@dataclass(slots=True)
class WalkedSnapshot:
    """One snapshot of the walk."""

    snapshot: Snapshot
    notes: Notes = field(default_factory=Notes)
    receipt: UnverifiedStatement[Receipt] | None = None  # its valid receipt
    needs_receipt: bool = False  # whether it must have a receipt, but has none
    written: tuple[ManifestFile, ...] = ()  # the manifests that it wrote
    shown: tuple[ManifestFile, ...] = ()  # all manifests that it lists; set for the head only
    changes: SnapshotChanges | None = None
    chunks: tuple[ProvedChunk, ...] = ()
    override: BreakGlass | None = None
    files: dict[str, AddedFile] = field(default_factory=dict)  # the added files as the proofs bind them, by path

    @property
    def is_judged(self) -> bool:
        """Whether the snapshot is checked: it has a receipt, needs one, or has a finding."""
        return self.receipt is not None or self.needs_receipt or bool(self.notes.findings)


def list_history(metadata: TableMetadata) -> list[Snapshot]:
    """The snapshots of `main`, oldest first, as far back as the table has them."""
    head = metadata.current_snapshot_id
    snapshots: list[Snapshot] = []
    for snapshot in () if head is None else metadata.ancestry(head):
        snapshots.append(snapshot)
        if len(snapshots) > AUDIT_SNAPSHOTS_MAX:
            message, most = "the history has too many snapshots", f"at most {AUDIT_SNAPSHOTS_MAX}"
            raise Code.AUDIT_FAILED(message, reason="audit_too_large", expected=most, got="more")
    return snapshots[::-1]


class Walk:
    """Checks the snapshots one by one. Findings are noted at the snapshot."""

    def __init__(
        self,
        evidence: Evidence,
        metadata: TableMetadata,
        files: HashedFiles,
        statements: Statements,
        protected: ProtectionHistory,
        notes: Notes,
    ) -> None:
        """`notes` takes findings about the table as a whole."""
        self._evidence = evidence
        self._metadata = metadata
        self.files = files
        self.statements = statements
        self._protected = protected
        self._notes = notes
        self.manifests = Manifests(metadata, files)
        self._fingerprints = checks.schema_fingerprints(metadata)
        self._listed: tuple[int | None, ManifestList | None] = (None, None)  # id and list of the snapshot read last
        self._proofs = Proofs(statements, protected, evidence)
        self.walked = [WalkedSnapshot(snapshot) for snapshot in list_history(metadata)]
        self.positions = {each.snapshot.snapshot_id: at for at, each in enumerate(self.walked)}
        for each in self.walked:
            self._find_receipt(each)
        self.expired: list[UnverifiedStatement[Receipt]] = []  # receipts of expired ancestors, newest first
        self.expired_proofs: list[PublicationProofs] = []  # of the same publications, oldest first
        self._expired_is_valid = True
        self.past = self._find_past()
        self._required = find_required_spans(protected.edges, self.past, notes)
        self._require_receipts()

    def _find_receipt(self, each: WalkedSnapshot) -> None:
        """Set the first valid receipt of the snapshot, or the findings about the first invalid one."""
        for receipt in self.statements.receipts.get(each.snapshot.snapshot_id, ()):
            notes = self._check_receipt(receipt, each.snapshot)
            if not notes.findings:
                each.receipt, each.notes = receipt, notes
                return
            each.notes.findings = each.notes.findings or notes.findings

    def _check_receipt(self, receipt: UnverifiedStatement[Receipt], snapshot: Snapshot | None) -> Notes:
        """The findings about a receipt of this table. `snapshot` is None if it has expired."""
        notes = Notes()
        notes.check(checks.require_receipt_table, receipt.predicate, self._evidence)
        notes.check(checks.require_receipt_branch, receipt.predicate)
        if snapshot is not None:
            notes.check(checks.require_receipt_snapshot, receipt.predicate, snapshot)
        notes.check(self.statements.verify_receipt, receipt)
        return notes

    def _find_past(self) -> Past:
        """Find the expired ancestors of the oldest snapshot, as far back as receipts lead; set `expired`."""
        older: set[int] = set()
        snapshot_id = self.walked[0].snapshot.parent_id if self.walked else None
        while snapshot_id is not None and snapshot_id not in older and snapshot_id not in self.positions:
            older.add(snapshot_id)
            receipts = self.statements.receipts.get(snapshot_id, ())
            valid = next((each for each in receipts if not self._check_receipt(each, None).findings), None)
            if valid is None:
                return Past(self.positions, older, first_without_receipt=snapshot_id)
            self.expired.append(valid)
            snapshot_id = valid.predicate.old_snapshot_id
        if snapshot_id is not None:
            with self._notes.collect():
                message = "the receipts of snapshots that have expired lead in a circle"
                raise refused("audit_receipt_wrong_snapshot", "a snapshot that is older", snapshot_id, message=message)
        return Past(self.positions, older, first_without_receipt=None)

    def _require_receipts(self) -> None:
        """Note each snapshot without a receipt that was added under a protection, whatever its timestamp."""
        for at, each in enumerate(self.walked):
            if each.receipt is not None:
                continue
            each.needs_receipt = self._required.covers(at)
            if each.needs_receipt and not each.notes.findings:
                with each.notes.collect():
                    raise refused("audit_receipt_missing", "a receipt", "none")

    def lost(self) -> list[UnverifiedStatement[Receipt]]:
        """The receipts of this table whose snapshots `main` lacks, although they cannot have expired."""
        history = self.positions.keys() | self.past.older
        return [
            receipt
            for receipt in self.statements.all_receipts()
            if receipt.predicate.table.uuid == self._evidence.table.uuid
            and receipt.logged.index > self._required.last_untraceable
            and receipt.predicate.new_snapshot_id not in history
        ]

    def position_before(self, index: int) -> int:
        """The position of the newest known head at which protection began or ended before this log index."""
        heads = (each.snapshot_id for each in self._protected.edges if each.index < index)
        return max((at for each in heads if (at := self.past.position(each)) is not None), default=BEFORE_ALL)

    def own_receipts(self) -> Iterator[UnverifiedStatement[Receipt]]:
        """Every valid receipt of this table's `main`, also of snapshots that `main` no longer has."""
        for receipt in self.statements.all_receipts():
            if not self._check_receipt(receipt, None).findings:
                yield receipt

    def judge_expired(self) -> None:
        """Check the proofs of the expired publications, oldest first. Findings are noted for the table."""
        for receipt in reversed(self.expired):
            notes = Notes()
            self.expired_proofs.append(self._proofs.judge(receipt, notes))
            where = f"snapshot {receipt.predicate.new_snapshot_id}, which has expired"
            self._notes.findings += [replace(each, message=f"{where}: {each.message}") for each in notes.findings]
            self._expired_is_valid = self._expired_is_valid and not notes.findings

    @property
    def has_expired(self) -> bool:
        """Whether `main` has ancestors that the table no longer has."""
        return bool(self.walked) and self.walked[0].snapshot.parent_id is not None

    @property
    def older_history_is_clean(self) -> bool:
        """Whether the oldest snapshot and all expired publications before it have no finding so far."""
        first = self.walked[0]
        return first.receipt is not None and not first.notes.findings and self._expired_is_valid

    def judge(self, each: WalkedSnapshot) -> None:
        """Check the snapshot's manifests, its changes, and their proofs."""
        if not each.is_judged:
            return
        self._read(each)
        if each.receipt is None:
            return
        with each.notes.collect(changed=True):
            checks.require_metadata(each.receipt.predicate, self._evidence)
        each.notes.check(
            checks.require_metadata_known, each.receipt.predicate, each.snapshot, self._evidence, self._metadata
        )
        proofs = self._proofs.judge(each.receipt, each.notes)
        each.chunks, each.override = proofs.chunks, proofs.override
        for chunk in each.chunks:
            each.notes.check(self._require_base, chunk.proof.core, each)
            each.notes.check(checks.require_schema, chunk.proof.core, each.snapshot, self._fingerprints)
        if each.chunks and each.changes is not None:
            self._compare_with_proofs(each, each.changes)

    def _read(self, each: WalkedSnapshot) -> None:
        """Read the snapshot's list and the manifests that it wrote, and set its changes."""
        snapshot, notes = each.snapshot, each.notes
        own: ManifestList | None = None
        with notes.collect(changed=True):
            if each.receipt is not None and snapshot.manifest_list is not None:
                data = self.files.read(snapshot.snapshot_id, snapshot.manifest_list, max_bytes=MANIFEST_LIST_MAX_BYTES)
                checks.require_published_list(each.receipt.predicate, data)
            own = self.manifests.load_list(snapshot)
        before: ManifestList | None = None
        with notes.collect(changed=True):
            before = self._list_before(snapshot)
        self._listed = (snapshot.snapshot_id, own)
        if own is None:
            return
        if_unknown = () if snapshot.parent_id is None else None
        step = Step(snapshot, own.manifests, if_unknown if before is None else before.manifests)
        each.written = step.written
        # A manifest that cannot be read counts as changed. A contradiction between manifests does not.
        with notes.collect():
            replaced = step.find_replaced()
            with notes.collect(changed=True):
                entries = self.manifests.read_entries(snapshot.snapshot_id, each.written)
                old = self.manifests.read_entries(snapshot.parent_id or 0, replaced)  # no entries without a parent
                with notes.collect():
                    each.changes = step.find_changes(entries, old)
        if each.receipt is not None:
            self._require_bound_manifests(each, own, before, step.kept)

    def _require_bound_manifests(
        self, each: WalkedSnapshot, own: ManifestList, before: ManifestList | None, kept: Sequence[ManifestFile]
    ) -> None:
        """The receipt binds every listed manifest, and also the parent's manifests if the parent has no receipt."""
        parent, seen = self._find_parent(each), self.files.seen
        with each.notes.collect(changed=True):
            bound = checks.require_manifest_hashes(own)
            written = [path for path in _paths(each.written) if path in seen]
            checks.require_manifests(bound, ((path, seen[path].sha256) for path in written))
            if before is not None and parent is not None and parent.receipt is not None:
                known = checks.require_manifest_hashes(before)
                checks.require_manifests(bound, ((path, known[path]) for path in _paths(kept) if path in known))
        if parent is None or parent.receipt is not None:
            return
        with each.notes.collect(changed=True):
            found_sha256 = checks.require_taken_over(kept, own.file.text(FOUND_KEY))
            if before is not None:
                checks.require_found_unchanged(found_sha256, self.manifests.check_found(parent.snapshot))

    def _find_parent(self, each: WalkedSnapshot) -> WalkedSnapshot | None:
        """The parent, if the table still has it."""
        at = self.positions.get(each.snapshot.parent_id) if each.snapshot.parent_id is not None else None
        return None if at is None else self.walked[at]

    def judge_head(self) -> None:
        """Hash every manifest of the head. If it is from before the protection, repeat the protection's checks."""
        head = self.walked[-1] if self.walked else None
        if head is None:
            return
        if head.receipt is None:
            if self._protected.is_protected and not head.is_judged:
                with self._notes.collect():
                    self.manifests.check_found(head.snapshot)
            return
        known, own = self._listed
        if own is None or known != head.snapshot.snapshot_id or head.notes.findings:
            return
        head.shown = own.manifests
        with head.notes.collect(changed=True):
            bound = checks.require_manifest_hashes(own)
            for path in _paths(own.manifests):
                if path not in self.files.seen:
                    self.files.read(head.snapshot.snapshot_id, path, max_bytes=MANIFEST_MAX_BYTES)
                checks.require_manifests(bound, [(path, self.files.seen[path].sha256)])

    def _list_before(self, snapshot: Snapshot) -> ManifestList | None:
        """The parent's manifest list; None for a first snapshot, and if the table no longer has the parent."""
        if snapshot.parent_id is None:
            return None
        known, listed = self._listed
        if known == snapshot.parent_id:
            return listed
        parent = self._metadata.snapshot(snapshot.parent_id)
        return None if parent is None else self.manifests.load_list(parent)

    def _compare_with_proofs(self, each: WalkedSnapshot, changed: SnapshotChanges) -> None:
        with each.notes.collect():
            each.files = checks.require_added(each.chunks, changed)
        each.notes.check(checks.require_removed, each.chunks, changed)
        each.notes.check(checks.require_rows, each.chunks, changed)
        for chunk in each.chunks:
            each.notes.check(checks.require_spec, chunk.proof.core, changed)

    def _require_base(self, core: ProofCore, each: WalkedSnapshot) -> None:
        """The proof's base is an ancestor of the snapshot, as far back as the table's history goes."""
        base, at = core.target.base_snapshot_id, self.positions[each.snapshot.snapshot_id]
        # An unknown base may be an expired ancestor, if `main` has expired ancestors.
        position_if_unknown = BEFORE_ALL if self.has_expired else at
        if base is not None and self.positions.get(base, position_if_unknown) >= at:
            raise refused("audit_base_not_ancestor", "an ancestor", base)


def _paths(listed: Sequence[ManifestFile]) -> list[str]:
    return [each.manifest_path for each in listed]
