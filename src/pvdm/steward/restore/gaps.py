"""Publications of a lost time that have no receipt, and that a table shows because later ones were made on them.

A crash between commit and receipt leaves one; so does an archive that lacks the envelope. Their proofs tell whose they
are: a workload whose rows are shown must not publish them once more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.read.entries import manifest_list, read_listed
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.record import proofs, statements
from pvdm.ledger.schema.record import StatementKind
from pvdm.ledger.work import attempts
from pvdm.metadata.gate.gate import SUMMARY_PROOF, SUMMARY_STATEMENT
from pvdm.model.statements.core import ProofCore
from pvdm.model.statements.proof import Proof
from pvdm.model.statements.receipt import Receipt
from pvdm.model.statements.table import TableRef
from pvdm.model.statements.workload import WorkloadStatement
from pvdm.steward.restore.lineage import FreeTimes, Lineage, LostPublication, Publication, stored_core
from pvdm.steward.restore.refill_check import Found
from pvdm.trust.log.entry import EntryKind
from pvdm.trust.refusal import refused
from pvdm.trust.statement import read_signed
from pvdm.verify.fetch import Files


@dataclass(frozen=True, slots=True)
class Unreceipted:
    """A proof whose rows a table shows without a receipt; without `certain` it is only known that it may."""

    table: TableRef
    snapshot_id: str
    proof_id: str
    core: ProofCore
    certain: bool


@dataclass(frozen=True, slots=True)
class Filled:
    """What was found for the gaps of a lineage; `open_gaps` are snapshots for which nothing was."""

    shown: tuple[Unreceipted, ...] = ()
    open_gaps: tuple[int, ...] = ()


class LooseProofs:
    """The proofs that no receipt of the lost time names, by their tables."""

    def __init__(self, ledger: Ledger, found: Sequence[Found]) -> None:
        self._ledger = ledger
        self._by_table: dict[str, dict[str, ProofCore]] = {}
        self._workloads: dict[str, WorkloadStatement] = {}
        receipted: set[str] = set()
        held: dict[str, ProofCore] = {}
        for each in found:
            if each.envelope is None:
                continue
            if each.entry.kind is EntryKind.RECEIPT:
                receipted.update(read_signed(each.envelope, Receipt).proof_ids)
            elif each.entry.kind is EntryKind.PROOF:
                held[each.statement_id()] = read_signed(each.envelope, Proof).core
            elif each.entry.kind is EntryKind.WORKLOAD:
                self._workloads[each.statement_id()] = read_signed(each.envelope, WorkloadStatement)
        with ledger.read() as unit:
            held |= _of_live_attempts(unit)
        for proof_id, core in held.items():
            if proof_id not in receipted:
                self._by_table.setdefault(core.target.table.uuid, {})[proof_id] = core

    def find(self, table_uuid: str) -> Mapping[str, ProofCore]:
        """Those of one table."""
        return self._by_table.get(table_uuid, {})

    def fill(
        self, newest: Publication, metadata: TableMetadata, lineage: Lineage, live: Mapping[str, int | None]
    ) -> Filled:
        """Find whose the snapshots without a receipt are; refuse those that no proof of a PASS stands for."""
        uuid = newest.said.table.uuid
        shown: dict[str, Unreceipted] = {}
        for gap in lineage.gaps:
            if metadata.snapshot(gap) is not None:
                shown |= self._find_named(newest, metadata, gap)
        without = {path: at for path, at in live.items() if at is not None and at not in lineage.receipted}
        for proof_id, core in self.find(uuid).items():
            found_at = {without[file.published_path] for file in core.files.added if file.published_path in without}
            if found_at and proof_id not in shown:
                at = str(min(found_at))
                shown[proof_id] = Unreceipted(newest.said.table, at, proof_id, _passed(proof_id, core), certain=True)
        gaps = [gap for gap in lineage.gaps if str(gap) not in {each.snapshot_id for each in shown.values()}]
        if gaps:
            shown |= self._doubtful(newest, gaps[0], shown)
        return Filled(tuple(shown.values()), tuple(gaps))

    def _find_named(self, newest: Publication, metadata: TableMetadata, gap: int) -> dict[str, Unreceipted]:
        """The proofs that the snapshot itself names, in a document whose bytes a receipt binds."""
        snapshot = metadata.snapshot(gap)
        summary = {} if snapshot is None else snapshot.summary
        if SUMMARY_STATEMENT in summary:
            said = self._workload(summary[SUMMARY_STATEMENT])
            proof_ids = [chunk.proof_ids[0] for chunk in said.chunks]
        else:
            proof_ids = [summary.get(SUMMARY_PROOF, "none")]
        made = {}
        for proof_id in proof_ids:
            core = _passed(proof_id, self._core(newest.said.table.uuid, proof_id))
            made[proof_id] = Unreceipted(newest.said.table, str(gap), proof_id, core, certain=True)
        return made

    def _doubtful(self, newest: Publication, gap: int, shown: Mapping[str, Unreceipted]) -> dict[str, Unreceipted]:
        """Proofs that may have been published there, and replaced since: none of them is published again unseen."""
        left = {proof_id: core for proof_id, core in self.find(newest.said.table.uuid).items() if proof_id not in shown}
        return {
            proof_id: Unreceipted(newest.said.table, str(gap), proof_id, core, certain=False)
            for proof_id, core in left.items()
            if core.verdict.passed
        }

    def _workload(self, statement_id: str) -> WorkloadStatement:
        if statement_id in self._workloads:
            return self._workloads[statement_id]
        with self._ledger.read() as unit:
            held = statements.find(unit, statement_id)
        if held is None or held.kind is not StatementKind.WORKLOAD:
            raise refused(
                "audit_proof_missing",
                "a snapshot has no receipt, and the statement of the workload that it names is not there",
                statement_id,
                "none",
            )
        return read_signed(held.envelope, WorkloadStatement)

    def _core(self, table_uuid: str, proof_id: str) -> ProofCore | None:
        loose = self.find(table_uuid).get(proof_id)
        if loose is not None:
            return loose
        with self._ledger.read() as unit:
            return stored_core(unit, proof_id)


def require_rows_proved(
    live: Iterable[str], proved: Iterable[ProofCore], backup: frozenset[str] | None, times: FreeTimes
) -> bool:
    """Whether a proof or the backup has every file that is shown; False where that cannot be told.

    Raise `restore_rows_unproved` where one came while the table was protected, and nothing proves it.
    """
    strange = set(live) - {file.published_path for core in proved for file in core.files.added} - (backup or set())
    if not strange:
        return True
    if backup is None or times.begun or times.ended:
        return False
    raise refused(
        "restore_rows_unproved",
        "the document shows files of a publication that has no receipt and no proof",
        "files that a proof names",
        min(strange),
    )


def live_files(metadata: TableMetadata, files: Files) -> frozenset[str]:
    """The data files that `main` of the document shows."""
    head = metadata.current_snapshot
    if head is None:
        return frozenset()
    listed = manifest_list(metadata, head, files).manifests
    entries = (entry for each in listed for entry in read_listed(metadata, each, files).entries)
    return frozenset(entry.data_file.file_path for entry in entries if entry.is_live)


def describe_gap(newest: Publication, gap: int) -> LostPublication:
    """A snapshot without a receipt, and without a proof that could be told to be its own."""
    said = newest.said
    error = refused(
        "restore_receipt_missing",
        "a publication without a receipt led to what the table shows, and nothing tells whose it was; proofs that may"
        " have been published there stay used up, and claims on the table are blocked until somebody has compared it",
        f"a receipt of snapshot {gap}, or its files",
        "none",
    )
    return LostPublication(
        said.table.name,
        said.table.uuid,
        str(gap),
        "unknown",
        (),
        newest.receipt_id,
        said.metadata_path,
        error.code,
        error.message,
    )


def _passed(proof_id: str, core: ProofCore | None) -> ProofCore:
    if core is None:
        raise refused(
            "audit_proof_missing",
            "a snapshot has no receipt, and the proof that it names is not there",
            proof_id,
            "none",
        )
    if not core.verdict.passed:
        raise refused(
            "audit_verdict_not_pass",
            "a proof says FAIL, and there is no receipt that names an override",
            "PASS",
            "FAIL",
        )
    return core


def _of_live_attempts(unit: Unit) -> dict[str, ProofCore]:
    """The proofs of the backup that could still be published after it was made."""
    held = {}
    for attempt in attempts.list_live(unit):
        for record in proofs.of_attempt(unit, attempt.attempt_id):
            core = stored_core(unit, record.proof_id)
            if core is not None:
                held[record.proof_id] = core
    return held
