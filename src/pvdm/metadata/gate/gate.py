"""The gate: `validate_then_commit`, the numbered checks in their order, and the one way in which `main` moves.

spec/gate.md says what each check is for, which are repeated inside the transaction, and which code tells of it.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from typing import Final

from pvdm import fault
from pvdm.errors import PvdmError, StateUnknownError
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.format.table.metadata import TableMetadata
from pvdm.lake.format.table.snapshots import MAIN
from pvdm.lake.read.found_manifests import SteadyFiles
from pvdm.lake.read.history import expired_history
from pvdm.lake.vault import VaultKind
from pvdm.lake.write.branches import BranchRemoval
from pvdm.lake.write.next_snapshot import Publication, Wanted
from pvdm.ledger import Unit
from pvdm.ledger.catalog import pending_deletes
from pvdm.ledger.catalog.tables import TableRow
from pvdm.ledger.record import protections, receipts
from pvdm.ledger.work.chunks import Extent
from pvdm.metadata.gate import checks_ledger
from pvdm.metadata.gate.context import Gate, about, check
from pvdm.metadata.gate.judging import (
    Judged,
    JudgedPart,
    judge_again,
    judge_base,
    judge_boundary,
    judge_bytes,
    judge_log,
    judge_words,
    wanted_removals,
)
from pvdm.metadata.gate.order import Order, OrderPart
from pvdm.metadata.gate.proposal import Proposal, Published, Shown
from pvdm.metadata.gate.publication import permit_publication, publication
from pvdm.metadata.gate.target import Base, Next
from pvdm.verify.claim_columns import with_target_column

SUMMARY_WORKLOAD: Final = "pvdm.workload"
SUMMARY_PROOF: Final = "pvdm.proof"
SUMMARY_STATEMENT: Final = "pvdm.statement"


def validate_then_commit(proposal: Proposal, gate: Gate) -> Published:
    """Every check, then the swap and what follows it; whatever does not hold is raised, and nothing is shown."""
    judged = judge_words(proposal, gate)
    base = gate.target.load()
    judge_base(judged, base, gate)
    judge_bytes(judged, gate)
    fault.point("gate.after_rehash")
    judge_log(judged, gate)
    return _Swap(judged, base, gate).run()


class _Swap:
    """Checks 12 to 15: nothing shows before the transaction, and nothing after it is undone."""

    def __init__(self, judged: Judged, base: Base, gate: Gate) -> None:
        self._judged = judged
        self._gate = gate
        self._judged_on = base.row
        self._tried: tuple[Base, Publication] | None = None
        self._written: list[str] = []
        self._expired: frozenset[int] = frozenset()
        self._done: Published | None = None

    def run(self) -> Published:
        """Publish, read back, sign the receipt."""
        try:
            self._gate.target.publish(self._make, self._in_transaction, self._finish)
        except StateUnknownError:
            raise  # it may have happened: what was written stays
        except PvdmError:
            self._forget()
            raise
        if self._done is None:
            raise AssertionError("a target that published has called what comes then")
        return self._done

    def _make(self, base: Base) -> Next:
        """Check 13, before the transaction: the Steward's own snapshot on this base, its files in the vault, synced."""
        self._forget()
        if base.row != self._judged_on:
            judge_base(self._judged, base, self._gate)
            self._judged_on = base.row
        metadata, vault, uuid = base.metadata, self._gate.vault, base.row.table_uuid
        steady = SteadyFiles(self._gate.files)
        made = publication(
            metadata,
            self._wanted(),
            snapshot_id=_new_id(metadata),
            now_ms=max(self._gate.clock.now_micros() // 1_000, metadata.last_updated_ms),
            place=lambda name: vault.place(uuid, VaultKind.METADATA, name),
            reader=steady,
            found_sha256=self._found_sha256(uuid),
        )
        if made.found_sha256 is not None:
            # Others could write the manifests since check 9: it holds for the very bytes that are taken over.
            judge_boundary(self._judged, metadata, steady)
        for file in made.files:
            self._written.append(file.location)
            vault.write(uuid, VaultKind.METADATA, file.name, file.data)
        self._tried = base, made
        fault.point("gate.after_files")
        branches = tuple(each.core.staged.branch for each in self._judged.parts)
        # Each commit is another document: what is published needs its branch no more.
        gone = BranchRemoval()
        if self._gate.target.removes_branches:
            own = BranchRemoval.plan(metadata, branches)
            expired = self._expired = self._history_that_goes(base)
            gone = BranchRemoval(own.refs, tuple(sorted({*own.snapshot_ids, *expired})), expired)
        return Next(
            (*made.updates, *gone.updates()),
            lambda after, data: permit_publication(base, made, after, data, gone),
            branches,
        )

    def _history_that_goes(self, base: Base) -> frozenset[int]:
        """What the table keeps no longer; everything since the oldest publication without a receipt stays."""
        now_ms = self._gate.clock.now_micros() // 1_000
        expired = expired_history(base.metadata, now_ms)
        if not expired:
            return expired
        with self._gate.ledger.read() as unit:
            held = receipts.missing_among(unit, base.row.table_uuid, expired)
        return expired_history(base.metadata, now_ms, held=held)

    def _found_sha256(self, table_uuid: str) -> str | None:
        with self._gate.ledger.read() as unit:
            return protections.found_sha256(unit, table_uuid)

    def _in_transaction(self, unit: Unit, row: TableRow) -> Order:
        """Checks 2, 5 and 6 again, and the nonces of 12; the order that comes of it does the rest, or nothing shows."""
        if self._tried is None:
            raise AssertionError("a target swaps what was made")
        (base, made), judged = self._tried, self._judged
        # Who slept since the files were written may find them swept away: then they are written anew.
        pending_deletes.require_none(unit, [file.name for file in made.files])
        receipts.require_made(unit, base.row.table_uuid, self._expired)
        judge_again(judged, unit, base, row, now=max(unit.at_micros, self._gate.clock.now_micros()))
        unit.lock_name(f"workload {judged.proposal.workload.opening.workload_id}")
        with check(12):
            for each in judged.parts:
                with about(each.part):
                    checks_ledger.check_12_nonce(unit, each.core)
        cores, bound = [each.core for each in judged.parts], judged.proposal.bound
        # By the columns of the very base that is swapped: a name may be another column's since the workload was opened.
        claim = with_target_column(bound, judged.proposal.claim, to_model(base.metadata.current_schema))
        return Order(
            tuple(_ordered(each, made) for each in judged.parts),
            bound.contract.boundary.source,
            checks_ledger.claim_taken(cores, claim),
            None if judged.override is None else judged.override.predicate.nonce,
            made.manifest_list,
            self._as_shown(base, made, row, unit.at_micros),
        )

    def _finish(self, shown: Shown) -> None:
        """Checks 14 and 15; a crash before the receipt is made good at the next start."""
        with committed():
            self._done = witnessed(shown, self._gate)

    def _wanted(self) -> Wanted:
        parts, statement = self._judged.parts, self._judged.statement
        added = tuple(file for each in parts for file in each.part.files)
        summary = {SUMMARY_WORKLOAD: self._judged.proposal.workload.opening.workload_id}
        if statement is None:
            summary[SUMMARY_PROOF] = parts[0].proof.proof_ids[0]
        else:
            summary[SUMMARY_STATEMENT] = statement.statement_id
        return Wanted(added, wanted_removals(parts), summary)

    def _as_shown(self, base: Base, made: Publication, row: TableRow, at_micros: int) -> Shown:
        override = self._judged.override
        return Shown(
            self._judged.proposal.workload.opening.workload_id,
            tuple(sorted(proof_id for each in self._judged.parts for proof_id in each.proof.proof_ids)),
            None if override is None else override.statement_id,
            base.table,
            MAIN,
            base.metadata.current_snapshot_id,
            made.snapshot_id,
            made.manifest_list_sha256,
            row.pointer.location,
            row.pointer.sha256,
            at_micros,
        )

    def _forget(self) -> None:
        """Files of tries that surely did not happen; one that cannot be removed does no harm."""
        while self._written:
            with contextlib.suppress(PvdmError):
                self._gate.vault.remove(self._written.pop())


def _ordered(each: JudgedPart, made: Publication) -> OrderPart:
    files = each.part.files
    rows = sum(file.record_count for file in files)
    extent = Extent(rows, len(files), made.removed_rows, made.removed_files)
    return OrderPart(each.part.attempt.attempt_id, each.core.attempt.nonce, extent)


def witnessed(shown: Shown, gate: Gate) -> Published:
    """Check 14 on what was committed, then 15: its receipt, signed and logged."""
    with check(14):
        checks_ledger.check_14_shown(shown, gate.target.read_back(), gate.files)
    fault.point("gate.before_receipt")
    with check(15):
        return Published(shown, gate.witness(shown))


@contextlib.contextmanager
def committed() -> Iterator[None]:
    """What comes after a commit: whatever fails here, nobody may hear that nothing was published."""
    try:
        yield
    except StateUnknownError:
        raise
    except PvdmError as error:
        raise StateUnknownError(
            "receipt_not_signed",
            "the publication was committed, but its receipt could not be made",
            expected="a receipt",
            got=error.code,
            hint="ask for the attempt's state; the receipt is made good as soon as it can be",
            **error.details,
        ) from error


def _new_id(metadata: TableMetadata) -> int:
    """An id that no snapshot of the table has."""
    while True:
        found = secrets.randbits(63)
        if found and metadata.snapshot(found) is None:
            return found
