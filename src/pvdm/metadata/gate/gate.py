"""The gate: `validate_then_commit` is the only function that moves `main` of a protected table.

spec/gate.md lists the numbered checks, those that are repeated in the transaction, and the code of each refusal.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator
from typing import Final

from pvdm import fault
from pvdm.errors import Code, PvdmError, StateUnknownError, expect
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import MAIN
from pvdm.lake.next_snapshot import NewSnapshot, SnapshotChange
from pvdm.lake.read.found_manifests import UnchangingFiles
from pvdm.lake.snapshot_removal import BranchRemoval, expired_history
from pvdm.lake.vault import VaultKind
from pvdm.ledger import Unit
from pvdm.ledger.catalog import tables
from pvdm.ledger.catalog.tables import TableRow
from pvdm.ledger.record import protections, receipts
from pvdm.ledger.work.chunks import Extent
from pvdm.metadata.gate import checks_statements, checks_table
from pvdm.metadata.gate.checks_statements import SignedChunk, SignedProposal, TrustState
from pvdm.metadata.gate.context import Gate, check
from pvdm.metadata.gate.ledger_changes import LedgerChanges, PublishedAttempt, select_claim
from pvdm.metadata.gate.proposal import Proposal, PublicationResult, PublishedSnapshot
from pvdm.metadata.gate.publication import make_publication, permit_publication
from pvdm.metadata.gate.target import Base, NextCommit
from pvdm.verify.planning import with_target_column

SUMMARY_WORKLOAD: Final = "pvdm.workload"  # properties of the summary of a published snapshot
SUMMARY_PROOF: Final = "pvdm.proof"
SUMMARY_STATEMENT: Final = "pvdm.statement"


def validate_then_commit(proposal: Proposal, gate: Gate) -> PublicationResult:
    """Publish what the proofs allow and nothing else (spec/gate.md).

    Raises the refusal of the first check that fails, with its number (`error.check`). Then nothing is published, with
    two exceptions: checks 14 and 15 run after the commit, and a `StateUnknownError` leaves open what happened.
    """
    trust = TrustState.read(gate)
    envelopes = checks_statements.check_1_envelopes(proposal)  # 1 envelope
    keys = checks_statements.check_2_signatures(proposal, envelopes, trust)  # 2 signatures: trusted keys
    statements = checks_statements.check_3_statements(proposal, envelopes, keys)  # 3 statement
    signed = checks_statements.check_2_notaries(proposal, statements, trust)  # 2 signatures: enough notaries
    signed = checks_statements.check_4_verdict(signed, gate)  # 4 verdict
    checks_statements.check_6_expiry(signed, now=trust.now)  # 6 expiry

    def check_base(base: Base) -> None:
        checks_statements.check_5_target(signed, base, base.row)  # 5 target
        checks_table.check_7_structure(signed, base)  # 7 structure
        checks_table.check_8_branch(signed, base)  # 8 branch
        checks_table.check_9_files(signed, base, gate)  # 9 files

    base = gate.target.load()
    check_base(base)
    checks_table.check_10_bytes(signed, gate)  # 10 bytes
    fault.point("gate.after_rehash")
    checks_table.check_11_logged(signed, gate)  # 11 log

    swap = _Swap(signed, base, gate, check_base)
    with swap.removing_files_on_error(), check(13):  # in the table's queue
        gate.target.publish(
            swap.make_snapshot,  # 13 swap: makes the snapshot; checks 5 and 7 to 9 again if the base has moved
            swap.check_in_transaction,  # 12 once; checks 2, 5 and 6 again
            swap.finish,  # 14 read back, 15 receipt
        )
    return swap.result


class _Swap:
    """Checks 12 to 15, as functions that a target calls before, in and after its transaction. The swap is check 13."""

    def __init__(self, signed: SignedProposal, base: Base, gate: Gate, check_base: Callable[[Base], None]) -> None:
        self._signed = signed
        self._gate = gate
        self._check_base = check_base
        self._checked_row = base.row  # the row for which `check_base` last passed
        self._tried: tuple[Base, NewSnapshot] | None = None  # base and snapshot of the newest try to commit
        self._written: list[str] = []  # locations of the files of the newest try
        self._expired: frozenset[int] = frozenset()  # ids of the snapshots of `main` that this commit expires
        self._result: PublicationResult | None = None

    @property
    def result(self) -> PublicationResult:
        """What was published."""
        return expect(self._result, "a target that published calls `finish`")

    @contextlib.contextmanager
    def removing_files_on_error(self) -> Iterator[None]:
        """On an error, remove the files that were written, unless the commit may have happened."""
        try:
            yield
        except StateUnknownError:
            raise
        except PvdmError:
            self._remove_written()
            raise

    def make_snapshot(self, base: Base) -> NextCommit:
        """Check 13, before the transaction: make the Steward's snapshot on this base, and write it into the vault."""
        self._remove_written()
        if base.row != self._checked_row:
            self._check_base(base)
            self._checked_row = base.row
        metadata, vault, uuid = base.metadata, self._gate.vault, base.row.table_uuid
        reader = UnchangingFiles(self._gate.files)  # raises if a second read gives other bytes
        with self._gate.ledger.read() as unit:
            found_sha256 = protections.found_sha256(unit, uuid)  # of the manifests that the table had when protected
        made = make_publication(
            metadata,
            self._plan_change(),
            snapshot_id=_draw_snapshot_id(metadata),
            now_ms=max(self._gate.clock.now_micros() // 1_000, metadata.last_updated_ms),
            place=lambda name: vault.location(uuid, VaultKind.METADATA, name),
            reader=reader,
            found_sha256=found_sha256,
        )
        if made.found_sha256 is not None:
            # Entries of manifests that others wrote were copied. Check 9 must hold for the bytes that were copied.
            checks_table.check_9_boundary(self._signed, metadata, reader)
        for file in made.files:
            self._written.append(file.location)
            vault.write(uuid, VaultKind.METADATA, file.name, file.data)
        self._tried = base, made
        fault.point("gate.after_files")
        branches = tuple(chunk.core.staged.branch for chunk in self._signed.chunks)
        removal = BranchRemoval()
        if self._gate.target.removes_branches:
            staged = BranchRemoval.plan(metadata, branches)
            self._expired = self._find_expired(base)
            snapshot_ids = tuple(sorted({*staged.snapshot_ids, *self._expired}))
            removal = BranchRemoval(staged.refs, snapshot_ids, self._expired)
        return NextCommit(
            (*made.updates, *removal.updates()),
            lambda after, data: permit_publication(base, made, after, data, removal),
            branches,
        )

    def _find_expired(self, base: Base) -> frozenset[int]:
        """The snapshots beyond the table's retention that are older than every publication without a receipt."""
        now_ms = self._gate.clock.now_micros() // 1_000
        expired = expired_history(base.metadata, now_ms)
        if not expired:
            return expired
        with self._gate.ledger.read() as unit:
            without_receipt = receipts.find_without_receipt(unit, base.row.table_uuid, expired)
        return expired_history(base.metadata, now_ms, held=without_receipt)

    def check_in_transaction(self, unit: Unit, row: TableRow) -> LedgerChanges:
        """Repeat checks 2, 5 and 6, and check the nonces. Applying the returned changes makes the rest of check 12."""
        base, made = expect(self._tried, "a target calls `make_snapshot` first")
        signed = self._signed
        now = max(unit.at_micros, self._gate.clock.now_micros())
        # Both calls raise `table_moved`, and the target tries again. A cleanup can have scheduled the written files for
        # deletion while this process paused. A snapshot may not expire while its publication lacks a receipt.
        tables.require_not_scheduled_for_deletion(unit, [file.name for file in made.files])
        receipts.require_receipts(unit, base.row.table_uuid, self._expired)
        checks_statements.check_2_again(signed, unit, now=now)
        checks_statements.check_5_target(signed, base, row)
        checks_statements.check_6_expiry(signed, now=now)
        # Until the transaction ends, the workload cannot be abandoned and gets no new attempt.
        unit.lock_name(f"workload {signed.proposal.workload.opening.workload_id}")
        checks_table.check_12_nonces(signed, unit)
        bound = signed.proposal.bound
        # The base's schema says which column has the claimed name. At the workload's opening it can have been another.
        claim = with_target_column(bound, signed.proposal.claim, to_model(base.metadata.current_schema))
        return LedgerChanges(
            tuple(_describe_attempt(chunk, made) for chunk in signed.chunks),
            bound.contract.boundary.source,
            select_claim([chunk.core for chunk in signed.chunks], claim),
            None if signed.override is None else signed.override.predicate.nonce,
            made.manifest_list,
            self._describe_snapshot(base, made, row, unit.at_micros),
        )

    def finish(self, shown: PublishedSnapshot) -> None:
        """Checks 14 and 15, after the commit."""
        with translate_errors_after_commit():
            self._result = confirm_publication(shown, self._gate)

    def _plan_change(self) -> SnapshotChange:
        signed = self._signed
        added = tuple(file for chunk in signed.chunks for file in chunk.part.files)
        summary = {SUMMARY_WORKLOAD: signed.proposal.workload.opening.workload_id}
        if signed.statement is None:
            summary[SUMMARY_PROOF] = signed.chunks[0].proof.proof_ids[0]
        else:
            summary[SUMMARY_STATEMENT] = signed.statement.statement_id
        return SnapshotChange(added, signed.removed, summary)

    def _describe_snapshot(self, base: Base, made: NewSnapshot, row: TableRow, at_micros: int) -> PublishedSnapshot:
        signed = self._signed
        return PublishedSnapshot(
            workload_id=signed.proposal.workload.opening.workload_id,
            proof_ids=tuple(sorted(proof_id for chunk in signed.chunks for proof_id in chunk.proof.proof_ids)),
            override_id=None if signed.override is None else signed.override.statement_id,
            table=base.table,
            branch=MAIN,
            old_snapshot_id=base.metadata.current_snapshot_id,
            new_snapshot_id=made.snapshot_id,
            manifest_list_sha256=made.manifest_list_sha256,
            metadata_path=row.pointer.location,
            metadata_sha256=row.pointer.sha256,
            published_at=at_micros,
        )

    def _remove_written(self) -> None:
        """Remove the files of a try that did not commit. A file that cannot be removed is left to a later cleanup."""
        while self._written:
            with contextlib.suppress(PvdmError):
                self._gate.vault.remove(self._written.pop())


def _describe_attempt(chunk: SignedChunk, made: NewSnapshot) -> PublishedAttempt:
    rows = sum(file.record_count for file in chunk.part.files)
    extent = Extent(rows, len(chunk.part.files), made.removed_rows, made.removed_files)
    return PublishedAttempt(chunk.part.attempt.attempt_id, chunk.core.attempt.nonce, extent)


def confirm_publication(shown: PublishedSnapshot, gate: Gate) -> PublicationResult:
    """Read a committed publication back, then sign and log its receipt: checks 14 and 15."""
    checks_table.check_14_shown(shown, gate)
    fault.point("gate.before_receipt")
    return checks_table.check_15_receipt(shown, gate)


@contextlib.contextmanager
def translate_errors_after_commit() -> Iterator[None]:
    """Turn errors, except a StateUnknownError, into `receipt_not_signed`. The publication is already committed."""
    try:
        yield
    except StateUnknownError:
        raise
    except PvdmError as error:
        translated = Code.RECEIPT_NOT_SIGNED(got=error.reason)
        translated.details.update(error.details)
        raise translated from error


def _draw_snapshot_id(metadata: TableMetadata) -> int:
    """A random id, not 0, that no snapshot of the table has."""
    while True:
        snapshot_id = secrets.randbits(63)
        if snapshot_id and metadata.snapshot(snapshot_id) is None:
            return snapshot_id
