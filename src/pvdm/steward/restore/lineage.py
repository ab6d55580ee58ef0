"""Publications that the backup lacks, in the order of their snapshots, and those that have no receipt.

A late receipt is logged after younger ones, so the log's order is not that of the snapshots. A crash between commit and
receipt leaves a publication without a receipt, or an archive without the envelope. Its proofs tell which workload it
belongs to, since it must not publish its rows again.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pvdm.errors import Code, PvdmError
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.read.entries import manifest_list, read_listed
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.record import proofs, statements
from pvdm.ledger.schema.record import StatementKind
from pvdm.ledger.work import attempts
from pvdm.metadata.gate.gate import SUMMARY_PROOF, SUMMARY_STATEMENT
from pvdm.metadata.gate.state import state_changes, state_of
from pvdm.model.printable import counted, list_first
from pvdm.model.statements.core import ProofCore
from pvdm.model.statements.migration import Migration, Protection, ProtectionAction, TableTarget
from pvdm.model.statements.proof import Proof, WorkloadStatement
from pvdm.model.statements.receipt import Receipt
from pvdm.model.statements.table import TableRef
from pvdm.steward.restore.refill import ArchivedEntry, statements_of
from pvdm.trust.refusal import refused
from pvdm.trust.statement import read_signed
from pvdm.verify.fetch import Files


@dataclass(frozen=True, slots=True)
class Publication:
    """A receipt that the backup lacks, and the cores of its proofs; None for a lost proof.

    `proved` is the log index of its last proof, -1 where the backup has it, and `index` that of the receipt. The
    publication came between the two.
    """

    index: int
    receipt_id: str
    said: Receipt
    cores: Mapping[str, ProofCore | None]
    proved: int

    @property
    def paths(self) -> set[str]:
        """The data files that it added, as far as its proofs are known."""
        cores = [core for core in self.cores.values() if core is not None]
        return {file.published_path for core in cores for file in core.files.added}


@dataclass(frozen=True, slots=True)
class LostPublication:
    """A publication that its table does not show after the restore; `chunk_ids` are to be published again.

    `file` is the first missing or changed file; None where no file is the reason.
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
class UnprotectedTimes:
    """The snapshots of `main` at which protections of the table began, and at which they ended."""

    begun: frozenset[int] = frozenset()
    ended: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Lineage:
    """The snapshots from the backup to a publication, as far as receipts and metadata tell.

    `receipted` have a receipt from after the backup; `gaps` have none and came while the table was protected. `closed`:
    it is complete. `free`: it includes a time in which the table was not protected.
    """

    reached: frozenset[int]
    receipted: frozenset[int]
    gaps: tuple[int, ...]
    closed: bool
    free: bool


def trace(
    newest: Publication,
    published: Sequence[Publication],
    metadata: TableMetadata,
    times: UnprotectedTimes,
    is_known: Callable[[int], bool],
) -> Lineage:
    """Walk back from this publication to a snapshot of the backup, by receipts, else by the metadata."""
    parents = {each.said.new_snapshot_id: each.said.old_snapshot_id for each in published}
    reached: set[int] = set()
    gaps: list[int] = []
    free = was_free = False
    at: int | None = newest.said.new_snapshot_id
    while at is not None and at not in reached:
        reached.add(at)
        if is_known(at):
            return Lineage(frozenset(reached), frozenset(parents), tuple(gaps), closed=True, free=was_free)
        if at in parents:
            free = False
            at = parents[at]
            continue
        free = at in times.begun or (free and at not in times.ended)
        was_free = was_free or free
        if not free:
            gaps.append(at)
        snapshot = metadata.snapshot(at)
        if snapshot is None:
            return Lineage(frozenset(reached), frozenset(parents), tuple(gaps), closed=False, free=was_free)
        at = snapshot.parent_id
    return Lineage(frozenset(reached), frozenset(parents), tuple(gaps), closed=at is None, free=was_free)


def publications_by_table(ledger: Ledger, found: Sequence[ArchivedEntry]) -> dict[str, list[Publication]]:
    """The publications that the backup lacks, by table, oldest first."""
    archived = {each.statement_id(): (each.index, proof.core) for each, proof in statements_of(found, Proof)}
    by_table: dict[str, list[Publication]] = {}
    with ledger.read() as unit:
        for each, said in statements_of(found, Receipt):
            parts = {key: archived.get(key) or (-1, stored_core(unit, key)) for key in said.proof_ids}
            proved = max(index for index, _ in parts.values())
            cores = {proof_id: core for proof_id, (_, core) in parts.items()}
            made = Publication(each.index, each.statement_id(), said, cores, proved)
            by_table.setdefault(said.table.uuid, []).append(made)
    return {uuid: _sort_publications(of_table) for uuid, of_table in by_table.items()}


def migrations_by_table(found: Sequence[ArchivedEntry]) -> dict[str, list[tuple[int, str, Migration]]]:
    """The migrations that the backup lacks, by table, in the order of the log."""
    by_table: dict[str, list[tuple[int, str, Migration]]] = {}
    for each, said in statements_of(found, Migration):
        by_table.setdefault(said.table.uuid, []).append((each.index, each.statement_id(), said))
    return by_table


def unprotected_times(found: Sequence[ArchivedEntry]) -> dict[str, UnprotectedTimes]:
    """The beginnings and ends of protections after the backup, by table."""
    begun: dict[str, set[int]] = {}
    ended: dict[str, set[int]] = {}
    for _, said in statements_of(found, Protection):
        if isinstance(said.target, TableTarget) and said.target.snapshot_id is not None:
            # Read backwards, the unprotected time begins at the start of a protection.
            of = begun if said.action is ProtectionAction.PROTECT else ended
            of.setdefault(said.target.table.uuid, set()).add(said.target.snapshot_id)
    return {
        uuid: UnprotectedTimes(frozenset(begun.get(uuid, ())), frozenset(ended.get(uuid, ())))
        for uuid in begun.keys() | ended.keys()
    }


def describe_lost(each: Publication, error: PvdmError) -> LostPublication:
    """The report about a lost publication."""
    said = each.said
    chunk_ids = {core.attempt.chunk_id for core in each.cores.values() if core is not None}
    file = error.details.get("file")
    return LostPublication(
        said.table.name,
        said.table.uuid,
        str(said.new_snapshot_id),
        said.workload_id,
        tuple(sorted(chunk_ids)),
        each.receipt_id,
        said.metadata_path,
        error.reason,
        error.message,
        None if file is None else str(file),
    )


def publications_lost_error(lost: Sequence[LostPublication]) -> PvdmError:
    """The error of a restore that cannot show every publication, with a hint for each kind of reason."""
    reasons = [each.code if each.file is None else f"{each.code}: {each.file}" for each in lost]
    named = [
        f"{each.table} snapshot {each.snapshot_id} of {each.workload_id} ({reason})"
        for each, reason in zip(lost, reasons, strict=True)
    ]
    ways = []
    if any(each.code != Code.NAMESPACE_UNKNOWN for each in lost):
        ways.append("bring metadata, vault and warehouse back, or go on with --accept-lost, and publish them again")
    if any(each.code == Code.NAMESPACE_UNKNOWN for each in lost):
        ways.append(
            "namespace_unknown: the namespace was made after the backup, and no file brings it back; go on with"
            " --accept-lost, make the namespace, then register the table's document as an operator, or publish again"
        )
    return Code.RESTORE_REFUSED(
        f"{counted(len(named), 'publication')} with a receipt cannot be shown again",
        reason="restore_publications_lost",
        got=list_first(named),
        hint="; ".join(["nothing was changed", *ways]),
        lost=len(named),
    )


def count_contained(
    metadata: TableMetadata, newest: Publication | None, migrations: Sequence[tuple[int, str, Migration]]
) -> int:
    """How many of the migrations the publication's metadata contains.

    It contains those before its last proof and none after its receipt. For those in between, the signed target states
    are compared with the metadata, since a receipt may be late.
    """
    if newest is None:
        return 0
    contained = sum(index < newest.proved for index, _, _ in migrations)
    for at, (index, _, said) in enumerate(migrations):
        if newest.proved <= index < newest.index:
            has_state = not state_changes(said.after, state_of(metadata, said.after.contract_sha256))
            contained = at + 1 if has_state else contained
    return contained


def _sort_publications(published: Collection[Publication]) -> list[Publication]:
    """Each publication after its parent; where no receipt names the parent, by time."""
    by_snapshot = {each.said.new_snapshot_id: each for each in published}
    children: dict[int, list[Publication]] = {}
    ready: list[tuple[int, int, Publication]] = []
    for each in published:
        old = each.said.old_snapshot_id
        if old in by_snapshot:
            children.setdefault(old, []).append(each)
        else:
            heapq.heappush(ready, _sort_key(each))
    ordered: list[Publication] = []
    while ready:
        *_, each = heapq.heappop(ready)
        ordered.append(each)
        for child in children.pop(each.said.new_snapshot_id, ()):
            heapq.heappush(ready, _sort_key(child))
    # No Steward makes receipts that form a circle; they come last, and their metadata refuses them.
    return ordered + sorted((each for of in children.values() for each in of), key=lambda each: each.index)


def _sort_key(each: Publication) -> tuple[int, int, Publication]:
    return each.said.published_at, each.index, each


def stored_core(unit: Unit, proof_id: str) -> ProofCore | None:
    """The core of a proof in the ledger."""
    held = statements.find(unit, proof_id)
    return None if held is None else read_signed(held.envelope, Proof).core


@dataclass(frozen=True, slots=True)
class Unreceipted:
    """A proof whose rows a table shows without a receipt; unless `certain`, the table only may show them."""

    table: TableRef
    snapshot_id: str
    proof_id: str
    core: ProofCore
    certain: bool


@dataclass(frozen=True, slots=True)
class FilledGaps:
    """The proofs found for the gaps of a lineage; `open_gaps` are snapshots without any."""

    shown: tuple[Unreceipted, ...] = ()
    open_gaps: tuple[int, ...] = ()


class LooseProofs:
    """The proofs that no receipt from after the backup names, by table."""

    def __init__(self, ledger: Ledger, found: Sequence[ArchivedEntry]) -> None:
        self._ledger = ledger
        self._by_table: dict[str, dict[str, ProofCore]] = {}
        receipted = {proof_id for _, said in statements_of(found, Receipt) for proof_id in said.proof_ids}
        held = {each.statement_id(): said.core for each, said in statements_of(found, Proof)}
        self._workloads = {each.statement_id(): said for each, said in statements_of(found, WorkloadStatement)}
        with ledger.read() as unit:
            held |= _proofs_of_live_attempts(unit)
        for proof_id, core in held.items():
            if proof_id not in receipted:
                self._by_table.setdefault(core.target.table.uuid, {})[proof_id] = core

    def find(self, table_uuid: str) -> Mapping[str, ProofCore]:
        """The loose proofs of one table."""
        return self._by_table.get(table_uuid, {})

    def fill(
        self, newest: Publication, metadata: TableMetadata, lineage: Lineage, live: Mapping[str, int | None]
    ) -> FilledGaps:
        """Find the proofs of snapshots without a receipt; raises where such a snapshot has no PASS."""
        uuid = newest.said.table.uuid
        shown: dict[str, Unreceipted] = {}
        for gap in lineage.gaps:
            if metadata.snapshot(gap) is not None:
                shown |= self._proofs_in_summary(newest, metadata, gap)
        without = {path: at for path, at in live.items() if at is not None and at not in lineage.receipted}
        for proof_id, core in self.find(uuid).items():
            found_at = {without[file.published_path] for file in core.files.added if file.published_path in without}
            if found_at and proof_id not in shown:
                at = str(min(found_at))
                shown[proof_id] = Unreceipted(
                    newest.said.table, at, proof_id, _require_pass(proof_id, core), certain=True
                )
        gaps = [gap for gap in lineage.gaps if str(gap) not in {each.snapshot_id for each in shown.values()}]
        if gaps:
            shown |= self._possible_proofs(newest, gaps[0], shown)
        return FilledGaps(tuple(shown.values()), tuple(gaps))

    def _proofs_in_summary(self, newest: Publication, metadata: TableMetadata, gap: int) -> dict[str, Unreceipted]:
        """The proofs that the snapshot's summary names, in metadata that a receipt binds."""
        snapshot = metadata.snapshot(gap)
        summary = {} if snapshot is None else snapshot.summary
        if SUMMARY_STATEMENT in summary:
            said = self._workload(summary[SUMMARY_STATEMENT])
            proof_ids = [chunk.proof_ids[0] for chunk in said.chunks]
        else:
            proof_ids = [summary.get(SUMMARY_PROOF, "none")]
        table = newest.said.table
        cores = {each: _require_pass(each, self._core(table.uuid, each)) for each in proof_ids}
        return {each: Unreceipted(table, str(gap), each, core, certain=True) for each, core in cores.items()}

    def _possible_proofs(
        self, newest: Publication, gap: int, shown: Mapping[str, Unreceipted]
    ) -> dict[str, Unreceipted]:
        """Proofs that may have been published in the gap and replaced since; they must not be published again."""
        return {
            proof_id: Unreceipted(newest.said.table, str(gap), proof_id, core, certain=False)
            for proof_id, core in self.find(newest.said.table.uuid).items()
            if proof_id not in shown and core.verdict.passed
        }

    def _workload(self, statement_id: str) -> WorkloadStatement:
        if statement_id in self._workloads:
            return self._workloads[statement_id]
        with self._ledger.read() as unit:
            held = statements.find(unit, statement_id)
        if held is None or held.kind is not StatementKind.WORKLOAD:
            raise refused(
                "audit_proof_missing",
                statement_id,
                "none",
                message="a snapshot has no receipt, and the statement of the workload that it names is not there",
            )
        return read_signed(held.envelope, WorkloadStatement)

    def _core(self, table_uuid: str, proof_id: str) -> ProofCore | None:
        loose = self.find(table_uuid).get(proof_id)
        if loose is not None:
            return loose
        with self._ledger.read() as unit:
            return stored_core(unit, proof_id)


def require_rows_proved(
    live: Iterable[str], proved: Iterable[ProofCore], backup: frozenset[str] | None, times: UnprotectedTimes
) -> bool:
    """Whether a proof or the backup accounts for every file that is shown; False where that is unknown.

    Raises `restore_rows_unproved` for a file that came while the table was protected and that nothing proves.
    """
    unproved = set(live) - {file.published_path for core in proved for file in core.files.added} - (backup or set())
    if not unproved:
        return True
    if backup is None or times.begun or times.ended:
        return False
    raise refused("restore_rows_unproved", "files that a proof names", min(unproved))


def live_files(metadata: TableMetadata, files: Files) -> frozenset[str]:
    """The data files of the metadata's `main`."""
    head = metadata.current_snapshot
    if head is None:
        return frozenset()
    listed = manifest_list(metadata, head, files).manifests
    entries = (entry for each in listed for entry in read_listed(metadata, each, files).entries)
    return frozenset(entry.data_file.file_path for entry in entries if entry.is_live)


def describe_gap(newest: Publication, gap: int) -> LostPublication:
    """The report about a snapshot without a receipt and without a proof."""
    error = refused("restore_receipt_missing", f"a receipt of snapshot {gap}, or its files", "none")
    return replace(describe_lost(newest, error), snapshot_id=str(gap), workload_id="unknown", chunk_ids=())


def _require_pass(proof_id: str, core: ProofCore | None) -> ProofCore:
    if core is None:
        raise refused(
            "audit_proof_missing",
            proof_id,
            "none",
            message="a snapshot has no receipt, and the proof that it names is not there",
        )
    if not core.verdict.passed:
        raise refused(
            "audit_verdict_not_pass",
            "PASS",
            "FAIL",
            message="a proof says FAIL, and there is no receipt that names an override",
        )
    return core


def _proofs_of_live_attempts(unit: Unit) -> dict[str, ProofCore]:
    """The proofs of the backup's live attempts, which may have been published after it."""
    live = attempts.list_live(unit)
    ids = [record.proof_id for attempt in live for record in proofs.of_attempt(unit, attempt.attempt_id)]
    return {proof_id: core for proof_id in ids if (core := stored_core(unit, proof_id)) is not None}
