"""Finds publications after the backup that have no receipt, and that a table shows because later ones built on them.

A crash between commit and receipt leaves such a gap, or an archive without the envelope. Their proofs tell which
workload they belong to, since it must not publish its rows again.
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
from pvdm.model.statements.proof import Proof, WorkloadStatement
from pvdm.model.statements.receipt import Receipt
from pvdm.model.statements.table import TableRef
from pvdm.steward.restore.lineage import Lineage, LostPublication, Publication, UnprotectedTimes, stored_core
from pvdm.steward.restore.refill_check import ArchivedEntry, statements_of
from pvdm.trust.refusal import refused
from pvdm.trust.statement import read_signed
from pvdm.verify.fetch import Files


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
        made = {}
        for proof_id in proof_ids:
            core = _require_pass(proof_id, self._core(newest.said.table.uuid, proof_id))
            made[proof_id] = Unreceipted(newest.said.table, str(gap), proof_id, core, certain=True)
        return made

    def _possible_proofs(
        self, newest: Publication, gap: int, shown: Mapping[str, Unreceipted]
    ) -> dict[str, Unreceipted]:
        """Proofs that may have been published in the gap and replaced since; they must not be published again."""
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
    said = newest.said
    error = refused("restore_receipt_missing", f"a receipt of snapshot {gap}, or its files", "none")
    return LostPublication(
        said.table.name,
        said.table.uuid,
        str(gap),
        "unknown",
        (),
        newest.receipt_id,
        said.metadata_path,
        error.reason,
        error.message,
    )


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
    held = {}
    for attempt in attempts.list_live(unit):
        for record in proofs.of_attempt(unit, attempt.attempt_id):
            core = stored_core(unit, record.proof_id)
            if core is not None:
                held[record.proof_id] = core
    return held
