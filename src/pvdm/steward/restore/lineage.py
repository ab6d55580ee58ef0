"""Publications that the ledger's backup lacks, in the order of their snapshots, and those that have no receipt.

A late receipt is logged after younger ones, so the log's order is not that of the snapshots. A crash between commit and
receipt leaves a publication without a receipt; an archive may also have lost the receipt's envelope. Proofs then tell
which workload made the publication: this workload must not publish the rows again.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pvdm.errors import Code, PvdmError
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import Snapshot
from pvdm.lake.read.entries import load_manifest_list, read_listed
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.record import proofs, statements
from pvdm.ledger.work import attempts
from pvdm.metadata.gate.gate import SUMMARY_PROOF, SUMMARY_STATEMENT
from pvdm.metadata.gate.state import state_changes, state_of
from pvdm.model.printable import counted, list_first
from pvdm.model.statements.core import ProofCore
from pvdm.model.statements.kind import StatementKind
from pvdm.model.statements.migration import Migration, Protection, ProtectionAction, TableTarget
from pvdm.model.statements.proof import Proof, WorkloadStatement
from pvdm.model.statements.receipt import Receipt
from pvdm.model.statements.table import TableRef
from pvdm.steward.restore.refill import ArchivedEntry, statements_of
from pvdm.trust.refusal import refused
from pvdm.trust.statement import read_unchecked
from pvdm.verify.fetch import Files

ArchivedMigration = tuple[ArchivedEntry, Migration]


@dataclass(frozen=True, slots=True)
class Publication:
    """A receipt that the backup lacks, and the cores of its proofs by proof id; None for a lost proof.

    `index` is the receipt's log index. `proof_index` is the log index of its last proof, or -1 if no proof is from
    after the backup. The publication was made after that proof was logged, and before the receipt was.
    """

    index: int
    receipt_id: str
    receipt: Receipt
    cores: Mapping[str, ProofCore | None]
    proof_index: int

    @property
    def paths(self) -> set[str]:
        """The data files that it added, as far as its proofs are known."""
        cores = [core for core in self.cores.values() if core is not None]
        return {file.published_path for core in cores for file in core.files.added}


@dataclass(frozen=True, slots=True)
class LostPublication:
    """A publication that its table does not show after the restore; `chunk_ids` are to be published again.

    `code` and `why` are the error's reason and message; `file` is the file that the error is about, if any.
    """

    table: str
    table_uuid: str
    snapshot_id: str
    workload_id: str
    chunk_ids: tuple[str, ...]
    receipt_id: str
    metadata_path: str
    code: str
    why: str
    file: str | None = None


@dataclass(frozen=True, slots=True)
class ProtectionChanges:
    """The snapshots of `main` at which protections of the table began, and at which they ended."""

    begun: frozenset[int] = frozenset()
    ended: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Lineage:
    """The snapshots from the backup to a publication (`reached`), as far as receipts and metadata tell.

    `receipted` have a receipt from after the backup; `gaps` have none and came while the table was protected.
    `is_complete`: it reaches a snapshot of the backup, or the table's first snapshot. `was_unprotected`: it includes
    a time in which the table was not protected.
    """

    reached: frozenset[int]
    receipted: frozenset[int]
    gaps: tuple[int, ...]
    is_complete: bool
    was_unprotected: bool


def trace(
    published: Sequence[Publication],
    metadata: TableMetadata,
    changes: ProtectionChanges,
    is_in_backup: Callable[[int], bool],
) -> Lineage:
    """Walk back from the last publication to a snapshot of the backup, by receipts, else by the metadata."""
    parents = {each.receipt.new_snapshot_id: each.receipt.old_snapshot_id for each in published}
    reached: set[int] = set()
    gaps: list[int] = []
    unprotected = was_unprotected = False
    current: int | None = published[-1].receipt.new_snapshot_id  # None once the walk has reached its end
    while current is not None and current not in reached:
        reached.add(current)
        if is_in_backup(current):
            current = None
        elif current in parents:
            unprotected = False
            current = parents[current]
        else:
            # Backwards in time, an unprotected time begins where a protection began.
            unprotected = current in changes.begun or (unprotected and current not in changes.ended)
            was_unprotected = was_unprotected or unprotected
            if not unprotected:
                gaps.append(current)
            snapshot = metadata.snapshot(current)
            if snapshot is None:
                break
            current = snapshot.parent_id
    return Lineage(frozenset(reached), frozenset(parents), tuple(gaps), current is None, was_unprotected)


def publications_by_table(ledger: Ledger, archived: Sequence[ArchivedEntry]) -> dict[str, list[Publication]]:
    """The publications whose receipts the backup lacks, by table, oldest first."""
    archived_proofs = {each.statement_id(): (each.index, proof.core) for each, proof in statements_of(archived, Proof)}
    by_table: dict[str, list[Publication]] = {}
    with ledger.read() as unit:
        for each, receipt in statements_of(archived, Receipt):
            # The log index and the core of each proof; the index is -1 if the proof is not from after the backup.
            found = {key: archived_proofs.get(key) or (-1, stored_core(unit, key)) for key in receipt.proof_ids}
            proof_index = max(index for index, _ in found.values())
            cores = {proof_id: core for proof_id, (_, core) in found.items()}
            publication = Publication(each.index, each.statement_id(), receipt, cores, proof_index)
            by_table.setdefault(receipt.table.uuid, []).append(publication)
    return {uuid: _sort_publications(of_table) for uuid, of_table in by_table.items()}


def migrations_by_table(archived: Sequence[ArchivedEntry]) -> dict[str, list[ArchivedMigration]]:
    """The migrations that the backup lacks, by table, in the order of the log."""
    by_table: dict[str, list[ArchivedMigration]] = {}
    for entry, migration in statements_of(archived, Migration):
        by_table.setdefault(migration.table.uuid, []).append((entry, migration))
    return by_table


def protection_changes(archived: Sequence[ArchivedEntry], table_uuid: str) -> ProtectionChanges:
    """The beginnings and ends of the table's protections after the backup."""
    targets = ((each.target, each.action) for _, each in statements_of(archived, Protection))
    changes = [
        (target.snapshot_id, action)
        for target, action in targets
        if isinstance(target, TableTarget) and target.table.uuid == table_uuid and target.snapshot_id is not None
    ]
    begun = frozenset(at for at, action in changes if action is ProtectionAction.PROTECT)
    return ProtectionChanges(begun, frozenset(at for at, action in changes if action is ProtectionAction.UNPROTECT))


def describe_lost(lost: Publication, error: PvdmError) -> LostPublication:
    """The report about a lost publication."""
    receipt, file = lost.receipt, error.details.get("file")
    chunk_ids = tuple(sorted({core.attempt.chunk_id for core in lost.cores.values() if core is not None}))
    snapshot_id, path = str(receipt.new_snapshot_id), receipt.metadata_path
    table, workload_id, file_text = receipt.table, receipt.workload_id, None if file is None else str(file)
    return LostPublication(
        table.name,
        table.uuid,
        snapshot_id,
        workload_id,
        chunk_ids,
        lost.receipt_id,
        path,
        error.reason,
        error.message,
        file_text,
    )


def publications_lost_error(lost: Sequence[LostPublication]) -> PvdmError:
    """The error of a restore that cannot show every publication, with a hint for each kind of reason."""
    described = [
        f"{each.table} snapshot {each.snapshot_id} of {each.workload_id}"
        f" ({each.code if each.file is None else f'{each.code}: {each.file}'})"
        for each in lost
    ]
    hints = ["nothing was changed"]
    if any(each.code != Code.NAMESPACE_UNKNOWN for each in lost):
        hints.append("bring metadata, vault and warehouse back, or go on with --accept-lost, and publish them again")
    if any(each.code == Code.NAMESPACE_UNKNOWN for each in lost):
        hints.append(
            "namespace_unknown: the namespace was made after the backup, and no file brings it back; go on with"
            " --accept-lost, make the namespace, then register the table's metadata as an operator, or publish again"
        )
    return Code.RESTORE_REFUSED(
        f"{counted(len(lost), 'publication')} with a receipt cannot be shown again",
        reason="restore_publications_lost",
        got=list_first(described),
        hint="; ".join(hints),
        lost=len(lost),
    )


def count_contained(
    metadata: TableMetadata, newest: Publication | None, migrations: Sequence[ArchivedMigration]
) -> int:
    """How many of the migrations the publication's metadata contains.

    The metadata has each migration that was logged before the publication's last proof, and none logged after its
    receipt. A receipt may be late, so the signed target state of a migration in between is compared with the metadata.
    """
    if newest is None:
        return 0
    contained = sum(entry.index < newest.proof_index for entry, _ in migrations)
    for number, (entry, migration) in enumerate(migrations, start=1):
        if newest.proof_index <= entry.index < newest.index:
            has_state = not state_changes(migration.after, state_of(metadata, migration.after.contract_sha256))
            contained = number if has_state else contained
    return contained


def _sort_publications(published: Collection[Publication]) -> list[Publication]:
    """Sort each publication after its parent; publications whose parents have no receipt here are sorted by time."""
    by_snapshot = {each.receipt.new_snapshot_id: each for each in published}
    children: dict[int, list[Publication]] = {}
    ready: list[tuple[int, int, Publication]] = []
    for each in published:
        old = each.receipt.old_snapshot_id
        if old in by_snapshot:
            children.setdefault(old, []).append(each)
        else:
            heapq.heappush(ready, (each.receipt.published_at, each.index, each))
    ordered: list[Publication] = []
    while ready:
        *_, each = heapq.heappop(ready)
        ordered.append(each)
        for child in children.pop(each.receipt.new_snapshot_id, ()):
            heapq.heappush(ready, (child.receipt.published_at, child.index, child))
    # The parents of the others form a circle. No Steward signs such receipts, and checks of their metadata refuse them.
    circular = [child for of_parent in children.values() for child in of_parent]
    return ordered + sorted(circular, key=lambda each: each.index)


def stored_core(unit: Unit, proof_id: str) -> ProofCore | None:
    """The core of a proof in the ledger; None if the ledger lacks the proof."""
    stored = statements.find(unit, proof_id)
    return None if stored is None else read_unchecked(stored.envelope, Proof).core


@dataclass(frozen=True, slots=True)
class UnreceiptedProof:
    """A proof whose rows a table shows without a receipt. If not `certain`, the table may or may not show them."""

    table: TableRef
    snapshot_id: str
    proof_id: str
    core: ProofCore
    certain: bool


@dataclass(frozen=True, slots=True)
class FilledGaps:
    """The proofs that were found for the gaps of a lineage; `open_gaps` are snapshots without a proof."""

    shown: tuple[UnreceiptedProof, ...] = ()
    open_gaps: tuple[int, ...] = ()


class LooseProofs:
    """The proofs that no receipt from after the backup names, by table."""

    def __init__(self, ledger: Ledger, archived: Sequence[ArchivedEntry]) -> None:
        self._ledger = ledger
        self._by_table: dict[str, dict[str, ProofCore]] = {}
        receipted = {proof_id for _, receipt in statements_of(archived, Receipt) for proof_id in receipt.proof_ids}
        cores = {each.statement_id(): proof.core for each, proof in statements_of(archived, Proof)}
        self._workloads = {each.statement_id(): signed for each, signed in statements_of(archived, WorkloadStatement)}
        with ledger.read() as unit:
            cores |= _proofs_of_live_attempts(unit)
        for proof_id, core in cores.items():
            if proof_id not in receipted:
                self._by_table.setdefault(core.target.table.uuid, {})[proof_id] = core

    def find(self, table_uuid: str) -> Mapping[str, ProofCore]:
        """The loose proofs of one table."""
        return self._by_table.get(table_uuid, {})

    def fill(
        self, newest: Publication, metadata: TableMetadata, lineage: Lineage, live: Mapping[str, int | None]
    ) -> FilledGaps:
        """Find the proofs of snapshots without a receipt. Raises if a snapshot names a missing proof, or a FAIL."""
        table = newest.receipt.table
        shown: dict[str, UnreceiptedProof] = {}
        for gap in lineage.gaps:
            snapshot = metadata.snapshot(gap)
            if snapshot is not None:
                shown |= self._proofs_in_summary(table, snapshot)
        # `live` has the data files of `main`, each with the snapshot that added it.
        unreceipted = {path: at for path, at in live.items() if at is not None and at not in lineage.receipted}
        for proof_id, core in self.find(table.uuid).items():
            paths = [file.published_path for file in core.files.added if file.published_path in unreceipted]
            if paths and proof_id not in shown:
                at = str(min(unreceipted[path] for path in paths))
                shown[proof_id] = UnreceiptedProof(table, at, proof_id, _require_pass(proof_id, core), certain=True)
        gaps = [gap for gap in lineage.gaps if str(gap) not in {each.snapshot_id for each in shown.values()}]
        if gaps:
            # Rows of other proofs may have been published in a gap and replaced since, so they count as used.
            shown |= {
                proof_id: UnreceiptedProof(table, str(gaps[0]), proof_id, core, certain=False)
                for proof_id, core in self.find(table.uuid).items()
                if proof_id not in shown and core.verdict.passed
            }
        return FilledGaps(tuple(shown.values()), tuple(gaps))

    def _proofs_in_summary(self, table: TableRef, snapshot: Snapshot) -> dict[str, UnreceiptedProof]:
        """The proofs that the snapshot's summary names. The summary can be trusted: a receipt binds its metadata."""
        if SUMMARY_STATEMENT in snapshot.summary:
            workload = self._get_workload(snapshot.summary[SUMMARY_STATEMENT])
            proof_ids = [chunk.proof_ids[0] for chunk in workload.chunks]
        else:
            proof_ids = [snapshot.summary.get(SUMMARY_PROOF, "none")]
        found: dict[str, UnreceiptedProof] = {}
        for proof_id in proof_ids:
            with self._ledger.read() as unit:
                core = self.find(table.uuid).get(proof_id) or stored_core(unit, proof_id)
            passed = _require_pass(proof_id, core)
            found[proof_id] = UnreceiptedProof(table, str(snapshot.snapshot_id), proof_id, passed, certain=True)
        return found

    def _get_workload(self, statement_id: str) -> WorkloadStatement:
        if statement_id in self._workloads:
            return self._workloads[statement_id]
        with self._ledger.read() as unit:
            stored = statements.find(unit, statement_id)
        if stored is None or stored.kind is not StatementKind.WORKLOAD:
            message = "a snapshot has no receipt, and the statement of the workload that it names is missing"
            raise refused("audit_proof_missing", statement_id, "none", message=message)
        return read_unchecked(stored.envelope, WorkloadStatement)


def are_rows_proved(
    live: Iterable[str], proved: Iterable[ProofCore], backup: frozenset[str] | None, changes: ProtectionChanges
) -> bool:
    """Whether each shown file (`live`) is in a proof or in the backup.

    If a file is in neither: False if the backup's files are unknown, or if a protection of the table began or ended
    after the backup, since an unprotected table needs no proofs. Otherwise raises `restore_rows_unproved`.
    """
    unproved = set(live) - {file.published_path for core in proved for file in core.files.added} - (backup or set())
    if not unproved:
        return True
    if backup is None or changes.begun or changes.ended:
        return False
    raise refused("restore_rows_unproved", "files that a proof names", min(unproved))


def live_files(metadata: TableMetadata, files: Files) -> frozenset[str]:
    """The data files of the metadata's `main`."""
    head = metadata.current_snapshot
    if head is None:
        return frozenset()
    listed = load_manifest_list(metadata, head, files).manifests
    entries = (entry for each in listed for entry in read_listed(metadata, each, files).entries)
    return frozenset(entry.data_file.file_path for entry in entries if entry.is_live)


def describe_gap(newest: Publication, gap: int) -> LostPublication:
    """The report about a snapshot without a receipt and without a proof."""
    error = refused("restore_receipt_missing", f"a receipt of snapshot {gap}, or its files", "none")
    return replace(describe_lost(newest, error), snapshot_id=str(gap), workload_id="unknown", chunk_ids=())


def _require_pass(proof_id: str, core: ProofCore | None) -> ProofCore:
    if core is None:
        message = "a snapshot has no receipt, and the proof that it names is missing"
        raise refused("audit_proof_missing", proof_id, "none", message=message)
    if not core.verdict.passed:
        message = "a proof says FAIL, and there is no receipt that names an override"
        raise refused("audit_verdict_not_pass", "PASS", "FAIL", message=message)
    return core


def _proofs_of_live_attempts(unit: Unit) -> dict[str, ProofCore]:
    """The proofs of the backup's live attempts, which may have been published after it."""
    live = attempts.list_live(unit)
    ids = [record.proof_id for attempt in live for record in proofs.list_by_attempt(unit, attempt.attempt_id)]
    return {proof_id: core for proof_id in ids if (core := stored_core(unit, proof_id)) is not None}
