"""Plans workloads and opens them. A job, which may take long, makes each plan that depends on the source's rows."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeVar

import pyarrow as pa

from pvdm.api.errors import kind_of
from pvdm.digest.sharing import map_in_threads
from pvdm.errors import Code, PvdmError, RolledBackError, StateUnknownError, UnavailableError
from pvdm.errors.kinds import KINDS
from pvdm.lake.read.deletes import ScanFile
from pvdm.lake.read.scan import dump_columns
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.catalog import tables
from pvdm.ledger.catalog.tables import TableRow
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.work import plannings, workloads
from pvdm.ledger.work.chunks import Chunk
from pvdm.ledger.work.plannings import Planning, UnfinishedPlan
from pvdm.ledger.work.workloads import Opening, PinnedWorkload, Workload
from pvdm.model.chunk import ChunkPlan
from pvdm.model.contract import BoundContract
from pvdm.steward.locks import hold_work
from pvdm.steward.work.opened import bound_contract
from pvdm.steward.work.sources import Sources
from pvdm.verify.chunk_files import FILE_HASH_BYTES, hash_file
from pvdm.verify.chunk_values import ChunkValues, FoundValues, reads_rows
from pvdm.verify.fetch import Files, HashedFile
from pvdm.verify.planning import ReadSource, plan_workload
from pvdm.verify.source import PinnedSource

PLAN_THREADS_MAX: Final = 4
_FILES_AT_ONCE: Final = 16
_STORE_SECONDS: Final = 2.0
# For this time, the next caller gets an error that no caller has got yet.
_ERROR_MICROS: Final = 600 * 1_000_000
_T = TypeVar("_T")
_RETRIED: Final = (UnavailableError, RolledBackError, StateUnknownError)
_MOVED_HINT: Final = "no workload was opened: run it again, and it is planned under the contract that the table has now"


class _NotWantedError(Exception):
    """The plan was abandoned, or another plan is made in its place."""


def plan_lock_subject(workload_id: str) -> str:
    """The subject of the lock on a plan in the making."""
    return f"the plan of {workload_id}"


@dataclass(eq=False)
class Planner:
    """Opens workloads with their plans. If a plan depends on rows, a job calls `run`, which reads them."""

    ledger: Ledger
    clock: LedgerClock
    sources: Sources
    files: Files
    epoch: Callable[[], int]  # the active epoch of keys
    begin: Callable[[UnfinishedPlan], None]  # queues the job that calls `run` for the workload, unless it exists

    def open(
        self, opening: Opening, bound: BoundContract, source: PinnedSource, timeout_seconds: int | None
    ) -> Workload | Planning:
        """Open the workload, or begin its plan: the workload is opened when the plan is made."""
        newer = dump_columns(source.newer_columns)  # columns added to the source since its snapshot was written
        planning = Planning(opening, str(source.snapshot_id), newer, timeout_seconds, len(source.scan.files))
        if not reads_rows(bound.contract.chunking):
            return self._store(planning, plan_workload(bound, source, None))
        begun = self._change(partial(plannings.begin, planning=planning))
        self.begin(UnfinishedPlan(opening.workload_id, opening.domain))
        return begun

    def find(self, wanted: Opening, *, again: bool) -> Planning | None:
        """The plan in the making for this opening; None if the caller has to begin a plan.

        Raises for a plan in the making for another opening, and raises the error that ended a plan for this opening.
        With `again`, this returns None instead of that error if a caller has got the error, or if the error is old. A
        new error is raised even then, since a run in segments calls with `again` in each segment.
        """
        with self.ledger.read() as unit:
            found = plannings.find(unit, wanted.workload_id)
        if found is None:
            return None
        # Compared without source and contract: the caller lacks the source's UUID, and the contract may have changed.
        comparable = replace(found.opening, source=wanted.source, contract_hash=wanted.contract_hash)
        if found.error is not None:
            is_new = not found.error_reported and self.clock.now_micros() - found.at_micros < _ERROR_MICROS
            if wanted != comparable or (again and not is_new):
                return None
            self._change(partial(plannings.note_reported, workload_id=wanted.workload_id))
            raise _decode_error(found.error)
        if found.opening.table_uuid == wanted.table_uuid and found.opening.contract_hash != wanted.contract_hash:
            moved = _moved_error(found.opening.contract_hash, wanted.contract_hash, _MOVED_HINT)
            # A plan under an old contract can never be used, so it is ended at once.
            self._change(partial(self._fail, planning=found, error=moved))
            self._change(partial(plannings.note_reported, workload_id=wanted.workload_id))
            raise moved
        workloads.require_same_opening(wanted, comparable)
        self.begin(UnfinishedPlan(wanted.workload_id, wanted.domain))
        return found

    def abandon(self, unit: Unit, planning: Planning, reason: str) -> None:
        """End the plan: its job stops, and callers that wait for it get the reason."""
        self._fail(unit, planning, Code.WORKLOAD_ABANDONED(reason="plan_abandoned", got=f"abandoned: {reason}"))

    def run(self, workload_id: str) -> None:
        """Read the source's files that were not read yet, then open the workload.

        An error that a repetition cannot correct ends the plan, and is stored for the callers that wait for the plan.
        The plan also ends if the Steward's process ended too often during this job (`plan_stopped_too_often`).
        """
        with hold_work(self.ledger, plan_lock_subject(workload_id)):
            with self.ledger.read() as unit:
                planning = plannings.find(unit, workload_id)
            if planning is None or planning.error is not None:
                return
            try:
                self._change(partial(plannings.note_start, workload_id=workload_id))
                self._run(planning)
            except _NotWantedError:
                return
            except Exception as error:
                if isinstance(error, PvdmError) and not isinstance(error, _RETRIED):
                    self._change(partial(self._fail, planning=planning, error=error))
                    return
                with contextlib.suppress(PvdmError):
                    self._change(partial(plannings.forget_start, workload_id=workload_id, starts=planning.starts))
                raise

    def _fail(self, unit: Unit, planning: Planning, error: PvdmError) -> None:
        if plannings.is_unfinished(unit, planning):
            plannings.fail(unit, planning.opening.workload_id, _encode_error(error))

    def _run(self, planning: Planning) -> None:
        with self.ledger.read() as unit:
            bound = bound_contract(unit, planning)
        source = self.sources.pin_again(planning, bound)
        values = ChunkValues(bound, source)
        self._store(planning, plan_workload(bound, source, self._read(planning, source, values)), by_job=True)

    def _read(self, planning: Planning, source: PinnedSource, values: ChunkValues) -> ReadSource:
        """The values in all files, and the hash of each file, continued after the files that were read before."""
        done = planning.files_read
        hashes = [planning.file_hashes[at * FILE_HASH_BYTES : (at + 1) * FILE_HASH_BYTES] for at in range(done)]
        found = FoundValues(values, _from_bytes(planning.found) if planning.found else values.none)
        stored = time.monotonic()

        def read(file: ScanFile) -> bytes:
            fetched: set[HashedFile] = set()

            def fetch(location: str) -> bytes:
                found_file = self.files.fetch(location)
                fetched.add(HashedFile(location, len(found_file.data), found_file.sha256))
                return found_file.data

            found.add(values.read(file, fetch))
            return hash_file(source.listing_sha256, fetched)

        while done < len(values.files):
            next_files = values.files[done : done + _FILES_AT_ONCE]
            hashes += map_in_threads(PLAN_THREADS_MAX, read, next_files)
            done += len(next_files)
            if time.monotonic() - stored >= _STORE_SECONDS:
                progress = ReadSource(found.table, hashes)
                self._change(partial(self._note_progress, planning=planning, read=progress))
                stored = time.monotonic()
        return ReadSource(found.table, hashes)

    def _note_progress(self, unit: Unit, planning: Planning, read: ReadSource) -> None:
        _require_unfinished(unit, planning)
        found, hashes = _to_bytes(read.values), b"".join(read.file_hashes)
        plannings.note_progress(unit, planning.opening.workload_id, len(read.file_hashes), found, hashes)

    def _store(self, planning: Planning, plan: ChunkPlan, *, by_job: bool = False) -> Workload:
        """Open the workload with its plan. Raises `contract_moved` if its table has another contract now.

        Also raises for a plan that was made `by_job`, and that was abandoned or replaced meanwhile.
        """
        opening, chunks = planning.opening, [Chunk(each.chunk_id, each.to_bytes()) for each in plan]
        pinned = PinnedWorkload(
            planning.source_snapshot_id,
            plan.sha256,
            self.epoch(),
            chunks,
            planning.newer_columns,
            planning.timeout_seconds,
        )

        def work(unit: Unit) -> Workload:
            if by_job:
                _require_unfinished(unit, planning)
            row = tables.find_by_uuid(unit, opening.table_uuid)
            require_contract(row, opening.contract_hash, hint=_MOVED_HINT)
            plannings.remove(unit, opening.workload_id)
            return workloads.open_once(unit, opening, pinned)

        return self._change(work)

    def _change(self, work: Callable[[Unit], _T]) -> _T:
        return self.ledger.transact(work, at_micros=self.clock.now_micros())


def _require_unfinished(unit: Unit, planning: Planning) -> None:
    if not plannings.is_unfinished(unit, planning):
        raise _NotWantedError


def require_contract(row: TableRow | None, contract_hash: str, *, hint: str | None = None) -> None:
    """Raise `contract_moved` unless the table is protected under this contract."""
    found = None if row is None else row.contract_hash
    if found != contract_hash:
        raise _moved_error(contract_hash, found, hint)


def _moved_error(expected: str, got: str | None, hint: str | None) -> PvdmError:
    return Code.CONTRACT_NOT_APPLICABLE(reason="contract_moved", expected=expected, got=got or "none", hint=hint)


def _encode_error(error: PvdmError) -> str:
    facts = {name: getattr(error, name) for name in ("reason", "message", "expected", "got", "hint", "details")}
    return json.dumps({"kind": kind_of(error), **facts})


def _decode_error(text: str) -> PvdmError:
    facts = json.loads(text)
    details = facts.pop("details")
    return KINDS[facts.pop("kind")](facts.pop("reason"), facts.pop("message"), **facts, **details)


def _to_bytes(values: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, values.schema) as stream:
        stream.write_table(values)
    return sink.getvalue().to_pybytes()


def _from_bytes(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()
