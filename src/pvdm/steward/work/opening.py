"""Opens workloads under the contract of their table, plans them once, and opens the attempts at their chunks."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, NamedTuple

from pvdm.catalog.catalog import Catalog
from pvdm.catalog.commit import Change
from pvdm.catalog.names import parse_full_name
from pvdm.errors import Code, ConflictError, PvdmError
from pvdm.lake.format.json_document import Json
from pvdm.lake.format.schema.logical import to_model
from pvdm.lake.paths import parse_location
from pvdm.lake.stores.seal import Seals
from pvdm.ledger import Ledger, Unit, ids
from pvdm.ledger.catalog import tables
from pvdm.ledger.catalog.tables import TableRow
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record import restores
from pvdm.ledger.record.tokens import Grant, require_domain
from pvdm.ledger.work import attempts, chunks, claims, leases, plannings, workloads
from pvdm.ledger.work.attempts import Attempt, AttemptOpening
from pvdm.ledger.work.plannings import Planning
from pvdm.ledger.work.workloads import Opening, Workload
from pvdm.model import canonical_json
from pvdm.model.chunk import ChunkDefinition, branch_of
from pvdm.model.contract import BoundContract, Chunking, ChunkingBy
from pvdm.model.statements.core import ExtractionPath, Operation
from pvdm.model.statements.proof import Storage
from pvdm.model.states import WORKLOAD_TIMEOUT_SECONDS, AttemptState, WorkloadState
from pvdm.steward.access import STEWARD_GRANT, refuse_attempt_token
from pvdm.steward.locks import ThreadLocks
from pvdm.steward.work.contracts import require_for_table, require_target_fit
from pvdm.steward.work.opened import (
    bound_contract,
    contract_of,
    get_workload,
    require_adoptable,
    require_not_published_after_backup,
    retry_needs_reason,
    staged_head,
)
from pvdm.steward.work.planning import Planner, require_contract
from pvdm.steward.work.sources import Sources, levels_of, load_row
from pvdm.steward.work.spent import find_spent_table, spent_error
from pvdm.verify.fetch import Files
from pvdm.verify.fit import require_partition_values, require_usable
from pvdm.verify.planning import claim_of, with_source_column, with_target_column
from pvdm.verify.spark.extracting import SparkExtraction, require_extraction

PREFIX_FOLDER: Final = "pvdm"
_ONE_CHUNK: Final = Chunking(ChunkingBy.NONE, (), None, None, ())
# States in which `end_staging` calls `_begin_verifying`, which raises for ROLLED_BACK. Later states need no call.
_BEFORE_VERIFYING: Final = frozenset({AttemptState.STAGING, AttemptState.ROLLED_BACK})


class PlannedChunk(NamedTuple):
    """A chunk of the plan, and the last attempt at it."""

    definition: ChunkDefinition
    attempt: Attempt | None


@dataclass(frozen=True, slots=True)
class Queue:
    """Passes work on to the Steward's job threads; each call returns at once."""

    hurry: Callable[[Attempt], None]  # makes the attempt's job due now
    dispose: Callable[[str], None]  # queues the clean-up after the attempt of this id
    changed: Callable[[str], None]  # wakes the threads that wait for the attempt of this id

    def clean_up_after(self, attempt_id: str) -> None:
        """Queue the clean-up after an aborted attempt, and wake the threads that wait for the attempt."""
        self.dispose(attempt_id)
        self.changed(attempt_id)


@dataclass(eq=False)
class Workloads:
    """Opens workloads and attempts for producers of the table's domain, and queues the verification of attempts."""

    ledger: Ledger
    clock: LedgerClock
    catalog: Catalog
    sources: Sources
    queue: Queue
    planner: Planner
    files: Files
    spark_extraction: SparkExtraction | None = None  # Spark's reader
    seals: Seals | None = None  # ends a producer's write access at the store
    _opening: ThreadLocks = field(default_factory=ThreadLocks, init=False)

    def open(
        self,
        grant: Grant,
        workload_id: str,
        table: str,
        parameters: Mapping[str, str],
        timeout_seconds: int | None = None,
        *,
        plan_again: bool = False,
    ) -> Workload | Planning:
        """Open the workload: pin its source, fix plan and deadline. Returns a `Planning` while a job makes the plan.

        A repeated call returns the workload unchanged; another `timeout_seconds` changes the deadline of an open one.
        If the plan of an earlier call has failed, the call raises the plan's error. With `plan_again` it begins another
        plan instead if some caller has got that error, or if the error is old.
        """
        refuse_attempt_token(grant)
        ids.require_workload_id(workload_id)
        with self._opening.hold(workload_id):
            row = load_row(self.catalog, grant, table)
            complete = self._find_of_old_contract(row, workload_id, parameters)
            if complete is not None:
                return complete
            bound = self._bind_contract(row, table, parameters)
            if bound.contract.storage is Storage.SEALED and self.seals is not None:
                self.seals.require_sealable(parse_location(row.location))
            limit = WORKLOAD_TIMEOUT_SECONDS if timeout_seconds is None else timeout_seconds
            opened = self._open(workload_id, row, bound, timeout_seconds=limit, plan_again=plan_again)
            if isinstance(opened, Planning):
                return opened
            if timeout_seconds is not None and opened.state is WorkloadState.OPEN:
                change = partial(leases.set_timeout, workload_id=workload_id, seconds=timeout_seconds)
                self.ledger.transact(change, at_micros=self.clock.now_micros())
            return opened

    def next_attempt(
        self,
        grant: Grant,
        workload_id: str,
        chunk_id: str,
        reason: str,
        attempt_id: str | None = None,
        *,
        lease_number: int | None = None,
        failed_max: int | None = None,
    ) -> Attempt:
        """Open a new attempt at the chunk, STAGING, and create its branch from main's head, in one transaction.

        A repeated call with the same `attempt_id` returns the same attempt. Raises if `failed_max` attempts at the
        chunk have failed; the default is the contract's limit. `lease_number` is that of the caller's lease. Only the
        Steward itself opens attempts without a lease.
        """
        refuse_attempt_token(grant)
        attempt_id = attempt_id or secrets.token_hex(16)
        with self.ledger.read() as unit:
            workload = get_workload(unit, grant, workload_id)
            contract = contract_of(unit, workload.opening.contract_hash)
            earlier = attempts.find_opened(unit, attempt_id, workload_id, chunk_id)
        if earlier is not None:
            return earlier
        row = self._row_of(workload)
        branch = branch_of(attempt_id)
        opening = self._new_attempt(grant, workload, row, chunk_id, attempt_id, branch, reason, lease_number)
        head = self.catalog.states.load(row).metadata.current_snapshot_id
        opened: list[Attempt] = []
        opened_before: list[Attempt] = []

        def open_attempt(unit: Unit, rows: Sequence[TableRow]) -> None:
            found = attempts.find_opened(unit, attempt_id, workload_id, chunk_id)
            opened_before[:] = [] if found is None else [found]
            if found is not None:
                # An earlier request with this id has committed since `earlier` was read. The branch may have rows now,
                # or be removed again, so this transaction must not set it.
                raise Code.ATTEMPT_MOVED("the attempt is open already", expected="a new attempt", got=found.state)
            require_contract(rows[0], workload.opening.contract_hash)
            opened[:] = [attempts.open_next(unit, opening, most=failed_max or contract.governance.attempts_max)]

        with self.ledger.read() as unit:
            levels = levels_of(unit, row)
        # If `main` has no snapshot, the first write creates the branch.
        ref: Json = {"action": "set-snapshot-ref", "ref-name": opening.branch, "type": "branch", "snapshot-id": head}
        same_table: Json = {"type": "assert-table-uuid", "uuid": row.table_uuid}
        change = Change(levels, row.name, [same_table], [] if head is None else [ref])
        try:
            self.catalog.commits.commit(STEWARD_GRANT, [change], hook=open_attempt)
        except ConflictError:
            if not opened_before:
                raise
            return opened_before[0]
        self.queue.changed(attempt_id)
        return opened[0]

    def find_newest_source(self, workload_id: str) -> int | None:
        """The id of the source's newest snapshot; None if this id cannot be read or the workload is ABANDONED."""
        try:
            with self.ledger.read() as unit:
                workload = workloads.get(unit, workload_id)
                bound = bound_contract(unit, workload)
        except PvdmError:
            return None  # the workload is shown without the id of the newest snapshot
        return None if workload.state is WorkloadState.ABANDONED else self.sources.find_newest(workload, bound)

    def end_staging(self, grant: Grant, attempt_id: str) -> Attempt:
        """End staging: the attempt becomes VERIFYING with the branch's present head, and its verification is queued."""
        refuse_attempt_token(grant, allowed_attempt_id=attempt_id)
        with self.ledger.read() as unit:
            found = attempts.get(unit, attempt_id)
            workload = workloads.get(unit, found.workload_id)
        require_domain(grant, workload.opening.domain)
        if found.state in _BEFORE_VERIFYING:
            found = self._begin_verifying(found, self._row_of(workload))
        self.queue.hurry(found)
        return found

    def abandon(self, grant: Grant, workload_id: str, reason: str) -> Workload | Planning:
        """Abandon a workload: its live attempts become ROLLED_BACK and are cleaned up; published chunks stay.

        If the workload is not open yet, its plan is abandoned and returned. The id stays free.
        """
        refuse_attempt_token(grant)
        ended: list[Attempt] = []

        def work(unit: Unit) -> Workload | Planning:
            planning = None if workloads.find(unit, workload_id) is not None else plannings.find(unit, workload_id)
            if planning is not None:
                require_domain(grant, planning.opening.domain)
                self.planner.abandon(unit, planning, ids.require_reason(reason))
                return planning
            get_workload(unit, grant, workload_id)
            moved = workloads.move(unit, workload_id, WorkloadState.ABANDONED, reason=reason)
            ended[:] = [
                attempts.end(unit, each.attempt_id, AttemptState.ROLLED_BACK, reason=f"workload abandoned: {reason}")
                for each in attempts.list_live(unit, workload_id)
            ]
            return moved

        moved = self.ledger.transact(work, at_micros=self.clock.now_micros())
        for each in ended:
            self.queue.clean_up_after(each.attempt_id)
        return moved

    def list_chunks(self, grant: Grant, workload_id: str, *, after: int, count: int) -> list[PlannedChunk]:
        """At most `count` chunks of the plan, without the first `after` chunks; each chunk with its last attempt."""
        refuse_attempt_token(grant)
        with self.ledger.read() as unit:
            get_workload(unit, grant, workload_id)
            planned = chunks.page_with_definitions(unit, workload_id, start=after, rows=count)
            attempts_by_chunk = attempts.list_by_chunks(unit, workload_id, [each.chunk_id for each in planned])
        last = {chunk_id: found[-1] if found else None for chunk_id, found in attempts_by_chunk.items()}
        return [
            PlannedChunk(ChunkDefinition.from_bytes(each.definition), last[each.chunk_id])
            for each in planned
            if each.chunk_id in last
        ]

    def adopt(
        self,
        grant: Grant,
        workload_id: str,
        table: str,
        branch: str,
        parameters: Mapping[str, str],
        reason: str | None = None,
    ) -> Attempt:
        """Open a workload of one chunk for a branch that was staged before, and queue the verification of its attempt.

        After a failed attempt, a new attempt needs a `reason`, which says what was corrected.
        """
        refuse_attempt_token(grant)
        ids.require_workload_id(workload_id)
        with self._opening.hold(workload_id):
            row = load_row(self.catalog, grant, table)
            workload: Workload | Planning | None = self._find_of_old_contract(row, workload_id, parameters)
            if workload is None:
                bound = self._bind_contract(row, table, parameters)
                in_one_chunk = BoundContract(replace(bound.contract, chunking=_ONE_CHUNK), bound.parameters)
                workload = self._open(workload_id, row, in_one_chunk, branch, plan_again=True)
            if isinstance(workload, Planning):
                raise _chunked_error("a plan in the making")
            found = self._adopt_branch(grant, workload, branch, reason)
        self.queue.hurry(found)
        return found

    def _find_of_old_contract(self, row: TableRow, workload_id: str, parameters: Mapping[str, str]) -> Workload | None:
        """The workload of this id if it is complete and the table has another contract now; else None.

        Raises `contract_moved` if the workload was opened under another contract and is not complete.
        """
        with self.ledger.read() as unit:
            earlier = workloads.find(unit, workload_id)
            if earlier is None or earlier.opening.table_uuid != row.table_uuid or row.contract_hash is None:
                return None
            if earlier.opening.contract_hash == row.contract_hash:
                return None
            bound = contract_of(unit, earlier.opening.contract_hash).bind(parameters)
            wanted = replace(earlier.opening, parameters=canonical_json.dump(dict(bound.parameters)), domain=row.domain)
            workloads.require_same_opening(wanted, earlier.opening)
        if earlier.state is not WorkloadState.COMPLETE:
            require_contract(row, earlier.opening.contract_hash)
        return earlier

    def _bind_contract(self, row: TableRow, table: str, parameters: Mapping[str, str]) -> BoundContract:
        """The contract that the table is protected under, with these parameters."""
        if row.contract_hash is None:
            message = f"{table} is not protected: there is no contract to publish under"
            hint, got = "an operator protects it with `pvdm protect`", "a table without protection"
            raise Code.NOT_PROTECTED(message, expected="a protected table", got=got, hint=hint)
        with self.ledger.read() as unit:
            contract = contract_of(unit, row.contract_hash)
        require_for_table(contract, parse_full_name(table), row.domain)
        return contract.bind(parameters)

    def _open(
        self,
        workload_id: str,
        row: TableRow,
        bound: BoundContract,
        branch: str | None = None,
        *,
        timeout_seconds: int | None = None,
        plan_again: bool,
    ) -> Workload | Planning:
        """Open the workload, or return the workload or planning of this id with the same contract and parameters.

        Raises, and opens no workload, if `branch` is given and cannot be adopted.
        """
        contract = bound.contract
        metadata = self.catalog.states.load(row).metadata
        require_target_fit(contract, metadata, self.spark_extraction)
        source_uuid = ""  # the source is not pinned yet
        parameters = canonical_json.dump(dict(bound.parameters))
        opening = Opening(
            workload_id, contract.sha256, row.table_uuid, source_uuid, parameters, contract.atomicity, row.domain
        )
        with self.ledger.read() as unit:
            earlier = workloads.find(unit, workload_id)
            if earlier is not None:
                # The source was pinned when the workload was opened, so the source's state now does not count.
                workloads.require_same_opening(replace(opening, source=earlier.opening.source), earlier.opening)
                require_not_published_after_backup(unit, earlier)
                return earlier
            spent_on = find_spent_table(unit, workload_id)
            if spent_on is not None and spent_on.uuid == row.table_uuid:
                raise spent_error(unit, workload_id, spent_on)
            restores.require_not_published_in_lost_time(unit, workload_id)
        begun = self.planner.find(opening, again=plan_again)
        if begun is not None:
            return begun
        if branch is not None:
            require_adoptable(self.catalog.states.load_newest(row).metadata, branch)
            with self.ledger.read() as unit:
                _require_not_taken(unit, row, branch)
        require_partition_values(bound, metadata)
        source = self.sources.pin(bound, row.table_uuid)
        if contract.extraction is ExtractionPath.SPARK:
            require_extraction(self.spark_extraction).require_reach(source.scan.locations())
        target = to_model(metadata.current_schema)
        if contract.boundary.operation is Operation.APPEND:
            # A claim that is not free is refused here, before anything is staged. The gate checks the claim too.
            schema = source.scan.schema
            claim = with_source_column(bound, claim_of(bound, schema), source.ref.uuid, schema)
            claim = with_target_column(bound, claim, target)
            with self.ledger.read() as unit:
                claims.require_free(unit, workload_id, target=row.table_uuid, claim=claim)
        require_usable(bound, source, target, self.files)
        return self.planner.open(replace(opening, source=source.ref.uuid), bound, source, timeout_seconds)

    def _row_of(self, workload: Workload) -> TableRow:
        """The workload's table. Raises `contract_moved` if the table has another contract than the workload."""
        with self.ledger.read() as unit:
            row = tables.find_by_uuid(unit, workload.opening.table_uuid)
        if row is None:
            raise Code.TABLE_UNKNOWN("the workload's table is gone", got=workload.opening.table_uuid)
        require_contract(row, workload.opening.contract_hash)
        return row

    def _new_attempt(
        self,
        grant: Grant,
        workload: Workload,
        row: TableRow,
        chunk_id: str,
        attempt_id: str,
        branch: str,
        reason: str,
        lease_number: int | None = None,
    ) -> AttemptOpening:
        with self.ledger.read() as unit:
            if chunks.find(unit, workload.opening.workload_id, chunk_id) is None:
                raise Code.RECORD_UNKNOWN(reason="chunk_unknown", got=ascii(chunk_id[:80]))
        prefix = f"{row.location.rstrip('/')}/{PREFIX_FOLDER}/{attempt_id}"
        nonce = secrets.token_hex(16)
        workload_id = workload.opening.workload_id
        return AttemptOpening(
            attempt_id, workload_id, chunk_id, branch, prefix, nonce, reason, lease_number, producer=grant.name
        )

    def _begin_verifying(self, found: Attempt, row: TableRow) -> Attempt:
        head = staged_head(self.catalog.states.load_newest(row).metadata, found.branch)

        def work(unit: Unit) -> Attempt:
            locked = attempts.lock(unit, found.attempt_id)
            if locked.state not in _BEFORE_VERIFYING:
                return locked  # a concurrent call was first
            if locked.state is AttemptState.STAGING:  # `begin_verifying` refuses ROLLED_BACK with any lease
                attempts.require_leased(unit, locked, now_micros=unit.at_micros)
            return attempts.begin_verifying(
                unit, found.attempt_id, nonce=secrets.token_hex(16), staged_snapshot_id=head, reason="staged"
            )

        begun = self.ledger.transact(work, at_micros=self.clock.now_micros())
        self.queue.changed(found.attempt_id)
        return begun

    def _adopt_branch(self, grant: Grant, workload: Workload, branch: str, reason: str | None) -> Attempt:
        """Open a new attempt that adopts the branch, or return the last attempt if it does not permit a new one yet."""
        workload_id = workload.opening.workload_id
        with self.ledger.read() as unit:
            contract = contract_of(unit, workload.opening.contract_hash)
            planned = chunks.list_by_workload(unit, workload_id)
            earlier = attempts.list_by_chunk(unit, workload_id, planned[0].chunk_id)
        if len(planned) != 1:  # a staged branch cannot be one chunk of several
            raise _chunked_error(f"a plan of {len(planned)} chunks")
        last = earlier[-1] if earlier else None
        if last is not None and last.state not in (AttemptState.VERIFICATION_FAILED, AttemptState.ROLLED_BACK):
            self._require_as_staged(workload, last, branch)
            return last
        if last is not None and reason is None and retry_needs_reason(last):
            if last.branch != branch:
                raise Code.IDENTIFIER_INVALID(
                    f"branch {last.branch[:80]} failed under this workload id, and this call publishes another one",
                    reason="reason_missing",
                    expected="the reason: what was corrected (--reason)",
                    got="none",
                    workload_id=workload_id,
                )
            return last
        row = self._row_of(workload)
        metadata = self.catalog.states.load_newest(row).metadata
        require_adoptable(metadata, branch)
        attempt_id = secrets.token_hex(16)
        why = reason or f"branch {branch} taken over"
        opening = self._new_attempt(grant, workload, row, planned[0].chunk_id, attempt_id, branch, why)
        head = staged_head(metadata, branch)

        def work(unit: Unit) -> Attempt:
            unit.lock_name(f"branches {row.table_uuid}")
            _require_not_taken(unit, row, branch)
            attempts.open_next(unit, opening, most=contract.governance.attempts_max)
            return attempts.begin_verifying(
                unit, attempt_id, nonce=secrets.token_hex(16), staged_snapshot_id=head, reason=opening.reason
            )

        return self.ledger.transact(work, at_micros=self.clock.now_micros())

    def _require_as_staged(self, workload: Workload, found: Attempt, branch: str) -> None:
        """Refuse another branch than the adopted one, and a branch that was written since its adoption."""
        if found.branch != branch:
            raise Code.WORKLOAD_INVALID(
                f"workload {found.workload_id} publishes another branch",
                reason="workload_parameters_differ",
                expected=found.branch,
                got=ascii(branch[:80]),
                hint="use another workload id",
                workload_id=found.workload_id,
            )
        with self.ledger.read() as unit:
            row = tables.find_by_uuid(unit, workload.opening.table_uuid)
        head = None if row is None else staged_head(self.catalog.states.load_newest(row).metadata, branch)
        if head in (None, found.staged_snapshot_id):
            return
        is_published = found.state is AttemptState.COMMITTED
        raise Code.BRANCH_STAGED_SINCE(
            f"branch {branch[:80]} holds something else than workload {found.workload_id} "
            f"{'has published' if is_published else 'is publishing'}; the new data was not read",
            expected=f"snapshot {found.staged_snapshot_id}" if found.staged_snapshot_id else "no row of its own",
            got=f"snapshot {head}",
            workload_id=found.workload_id,
        )


def _require_not_taken(unit: Unit, row: TableRow, branch: str) -> None:
    """Raise if an attempt that has not ended uses this branch."""
    other = attempts.find_live_on_branch(unit, row.table_uuid, branch)
    if other is not None:
        raise Code.BRANCH_TAKEN(got=other.workload_id, attempt_id=other.attempt_id)


def _chunked_error(got: str) -> PvdmError:
    """The error for a branch that would be one chunk of several."""
    message, expected = "the workload was opened to be staged chunk by chunk", "another workload id"
    return Code.WORKLOAD_INVALID(message, reason="workload_parameters_differ", expected=expected, got=got)
