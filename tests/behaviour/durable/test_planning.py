"""Plans that need the source's rows: a job of the Steward makes them, also after a restart. Without a JVM."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pvdm import Coordinator
from pvdm.api.work import PlanningView
from pvdm.client import StewardClient
from pvdm.durable.outcome import Activity, Outcome, RolledBack, Step
from pvdm.durable.progress import may_continue
from pvdm.errors import InputError, PvdmError, UnavailableError
from pvdm.ledger.work import plannings, workloads
from pvdm.ledger.work.plannings import PLAN_STARTS_MAX, Planning
from pvdm.model.role import Role
from pvdm.model.states import AttemptState, WorkloadState
from pvdm.steward.http import app
from pvdm.steward.http.v1 import work as routes
from pvdm.steward.work import planning
from pvdm.verify.chunk_values import ChunkValues
from tests.support.steward.leases import open_attempt
from tests.support.steward.pipeline import BY_DAY, RAW, REASON, Line, contract, line_at, table_of
from tests.support.stores.places import file_at
from tests.support.waiting import eventually, wait_for_jobs

WAIT = 30
DAYS = ("2026-11-13", "2026-11-14", "2026-11-15")
CHUNKS = [f"day={day}" for day in DAYS]
TOWNS = ("Aue", "Ulm", "Zug")
BY_TOWN = "chunking:\n  by: partition\n  columns: [town]"
SINCE = "parameters:\n  since: {type: date}"
ALL = {"since": DAYS[0]}


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    """A Steward whose source has three files, one for each day."""
    with line_at(tmp_path, rows=()) as made:
        for number, day in enumerate(DAYS):
            made.write([(number, day, "Ulm")])
        made.protect(contract(BY_DAY, SINCE, "limits:\n  chunks: 4", where="day >= ${since}"))
        yield made


class GatedReads:
    """Lets the Steward read as many source files as `allow` permits, one at a time. Keeps their locations."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.may_read = threading.Semaphore(0)
        self.read: list[str] = []
        self.error: Exception | None = None
        self.real = real = ChunkValues.read

        def read(values: ChunkValues, file: Any, fetch: Any) -> Iterator[pa.Table]:
            assert self.may_read.acquire(timeout=WAIT)
            if self.error is not None:
                raise self.error
            self.read.append(file.location)
            return real(values, file, fetch)

        monkeypatch.setattr(ChunkValues, "read", read)
        monkeypatch.setattr(planning, "_FILES_AT_ONCE", 1)
        monkeypatch.setattr(planning, "_STORE_SECONDS", 0)
        monkeypatch.setattr(routes, "PLAN_WAIT_SECONDS", 0.05)

    def allow(self, files: int) -> None:
        self.may_read.release(files)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> GatedReads:
    return GatedReads(monkeypatch)


class Opening(threading.Thread):
    """Opens a workload in a thread, and keeps the progress that the client reports."""

    def __init__(self, client: StewardClient, workload_id: str = "run-1") -> None:
        super().__init__(daemon=True)
        self.client, self.workload_id = client, workload_id
        self.seen: list[PlanningView] = []
        self.error: PvdmError | None = None
        self.start()

    def run(self) -> None:
        try:
            self.client.open_workload(self.workload_id, "sales.orders", ALL, watch=self.seen.append)
        except PvdmError as error:
            self.error = error

    def has_read(self, files: int) -> bool:
        return bool(self.seen) and self.seen[-1].files_read == files


def chunk_ids(client: StewardClient, workload_id: str = "run-1") -> list[str]:
    return [each.chunk_id for each in client.chunks(workload_id)]


def reason_of(call: Callable[[], object]) -> str:
    with pytest.raises(PvdmError) as caught:
        call()
    return caught.value.reason


def test_the_caller_sees_the_progress_of_a_plan_and_then_the_workload(line: Line, reads: GatedReads) -> None:
    with line.client() as client:
        opening = Opening(client)
        for read in range(3):
            assert eventually(partial(opening.has_read, read))
            with pytest.raises(InputError, match=f"{read} of 3 source files are read") as caught:
                client.workload("run-1")
            assert caught.value.reason == "workload_unknown"  # nothing can be staged yet
            reads.allow(1)
        opening.join(WAIT)
        assert opening.error is None
        assert {each.files for each in opening.seen} == {3}
        assert chunk_ids(client) == CHUNKS
    with line.notary.ledger.read() as unit:
        assert plannings.find(unit, "run-1") is None


def test_openings_that_wait_for_plans_hold_no_thread(
    tmp_path: Path, reads: GatedReads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "THREADS_MAX", 2)
    monkeypatch.setattr(routes, "PLAN_WAIT_SECONDS", WAIT)
    ids = ["run-1", "run-2", "run-3"]
    with line_at(tmp_path, rows=[(1, DAYS[0], "Ulm")]) as line, contextlib.ExitStack() as stack:
        line.protect(contract(BY_DAY, SINCE, where="day >= ${since}"))
        openings = [Opening(stack.enter_context(line.client()), workload_id) for workload_id in ids]
        assert eventually(lambda: unfinished_plans(line) == ids)
        stack.enter_context(line.client()).identity()  # is answered while the openings wait
        assert all(each.is_alive() and not each.seen for each in openings)
        reads.allow(3)
        for each in openings:
            each.join(WAIT)
        assert [each.error for each in openings] == [None, None, None]


def unfinished_plans(line: Line) -> list[str]:
    with line.notary.ledger.read() as unit:
        return [each.workload_id for each in plannings.list_unfinished(unit)]


def test_a_run_reports_the_progress_of_its_plan(line: Line, reads: GatedReads) -> None:
    steps: list[Step] = []
    with line.client() as client, Coordinator(client, watch=steps.append) as coordinator:
        opening = threading.Thread(target=coordinator.open_workload, args=("run-1", "sales.orders", ALL), daemon=True)
        opening.start()
        assert eventually(lambda: bool(steps))  # no file is read before
        reads.allow(3)
        opening.join(WAIT)
        assert not opening.is_alive()
    planned = [step for step in steps if step.activity is Activity.PLANNING]
    assert {(step.chunk_id, step.total) for step in planned} == {("", 3)}


def test_two_callers_of_one_workload_wait_for_the_same_plan(line: Line, reads: GatedReads) -> None:
    with line.client() as client, line.client() as other:
        openings = [Opening(client), Opening(other)]
        assert eventually(lambda: all(each.has_read(0) for each in openings))
        reads.allow(3)
        for each in openings:
            each.join(WAIT)
        assert [each.error for each in openings] == [None, None]
    assert len(reads.read) == 3


def test_other_parameters_under_the_same_id_are_refused_while_the_plan_is_made(line: Line, reads: GatedReads) -> None:
    with line.client() as client:
        opening = Opening(client)
        assert eventually(lambda: opening.has_read(0))
        refused = reason_of(lambda: client.open_workload("run-1", "sales.orders", {"since": DAYS[1]}))
        assert refused == "workload_parameters_differ"
        reads.allow(3)
        opening.join(WAIT)
        assert opening.error is None


def test_a_branch_cannot_be_published_under_the_id_of_an_unfinished_plan(line: Line, reads: GatedReads) -> None:
    with line.client() as client:
        opening = Opening(client)
        assert eventually(lambda: opening.has_read(0))
        refused = reason_of(lambda: client.publish_branch("run-1", "sales.orders", "mine", ALL, None))
        assert refused == "workload_parameters_differ"
        reads.allow(3)
        opening.join(WAIT)


def test_after_a_failure_a_plan_does_not_read_the_same_files_again(line: Line, reads: GatedReads) -> None:
    with line.client() as client:
        opening = Opening(client)
        reads.allow(2)
        assert eventually(lambda: opening.has_read(2))
        reads.error = UnavailableError("store_unreachable", "the store cannot be reached")
        reads.allow(1)
        assert eventually(lambda: opening.seen[-1].problem is not None)
        reads.error = None
        reads.allow(1)
        opening.join(WAIT)
        assert opening.error is None
        assert chunk_ids(client) == CHUNKS
    assert len(reads.read) == len(set(reads.read)) == 3  # no file was read twice


def test_a_started_steward_continues_unfinished_plans(
    line: Line, reads: GatedReads, monkeypatch: pytest.MonkeyPatch
) -> None:
    with line.client() as client:
        with monkeypatch.context() as patched:
            patched.setattr(type(line.notary.jobs), "plan", lambda *_: None)
            opening = Opening(client)
            assert eventually(lambda: bool(opening.seen))
        line.notary.jobs.stop()
        reads.allow(3)
        line.notary.jobs.start()
        opening.join(WAIT)
        assert opening.error is None
        assert chunk_ids(client) == CHUNKS


def test_a_plan_with_too_many_chunks_is_refused_and_its_id_stays_free(line: Line) -> None:
    line.write([(8, "2026-11-16", "Ulm"), (9, "2026-11-17", "Ulm")])  # makes five days; the contract allows four chunks
    with line.client() as client:
        for _ in range(2):  # the second call plans again
            assert reason_of(lambda: client.open_workload("run-1", "sales.orders", ALL)) == "chunks_too_many"
        assert client.open_workload("run-1", "sales.orders", {"since": DAYS[1]}).chunk_count == 4


def test_an_old_error_that_no_caller_fetched_is_not_raised_to_the_next_caller(line: Line, reads: GatedReads) -> None:
    with line.client() as client:
        opening = Opening(client)
        assert eventually(lambda: opening.has_read(0))
        opening.client.close()  # the caller is gone
        opening.join(WAIT)
    reads.error = InputError("source_file_unreadable", "a file of the source cannot be read")
    reads.allow(1)
    assert eventually(lambda: _find_error(line) is not None)
    reads.error = None
    line.served.stand.time.wall += 601_000_000
    line.served.stand.time.monotonic += 601_000_000
    reads.allow(3)
    with line.client() as client:
        assert client.open_workload("run-1", "sales.orders", ALL).chunk_count == 3


class ProcessEndError(BaseException):
    """Ends a start of the planning job as the death of the process does: no code handles this error."""


def die_while_planning(line: Line, reads: GatedReads, *, allowed_files: int = 0) -> None:
    """Start the planning job, and let it die when `allowed_files` files are read in all."""
    real = reads.real

    def read(values: ChunkValues, file: Any, fetch: Any) -> Iterator[pa.Table]:
        if len(reads.read) >= allowed_files:
            raise ProcessEndError
        reads.read.append(file.location)
        return real(values, file, fetch)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ChunkValues, "read", read)
        with pytest.raises(ProcessEndError):
            line.notary.workloads.planner.run("run-1")


def begin_without_jobs(line: Line, workload_id: str = "run-1") -> None:
    line.notary.jobs.stop()
    opened = line.notary.workloads.open(line.scene.grant(Role.PRODUCER, "sales"), workload_id, "sales.orders", ALL)
    assert isinstance(opened, Planning)


def test_a_plan_in_which_the_steward_dies_at_each_start_fails_with_an_error(line: Line, reads: GatedReads) -> None:
    begin_without_jobs(line)
    for _ in range(PLAN_STARTS_MAX):
        die_while_planning(line, reads)
    reads.allow(3)
    line.notary.workloads.planner.run("run-1")  # as at the next start of the Steward
    assert reads.read == []
    assert "plan_stopped_too_often" in str(_find_error(line))
    line.notary.jobs.start()
    with line.client() as client:
        assert reason_of(lambda: client.open_workload("run-1", "sales.orders", ALL)) == "plan_stopped_too_often"
        assert client.open_workload("run-1", "sales.orders", ALL).chunk_count == 3


def test_starts_that_store_progress_or_end_with_an_error_do_not_count(line: Line, reads: GatedReads) -> None:
    begin_without_jobs(line)
    planner = line.notary.workloads.planner
    for allowed_files in (0, 0, 1, 1, 1):
        die_while_planning(line, reads, allowed_files=allowed_files)
    reads.error = UnavailableError("store_unreachable", "the store cannot be reached")
    for _ in range(PLAN_STARTS_MAX + 1):
        reads.allow(1)
        with pytest.raises(UnavailableError):
            planner.run("run-1")
    reads.error = None
    reads.allow(2)
    planner.run("run-1")
    with line.notary.ledger.read() as unit:
        assert workloads.get(unit, "run-1").plan_hash


@pytest.mark.parametrize("is_restarted", [False, True], ids=["in one process", "continued after a restart"])
def test_a_plan_that_was_made_from_other_bytes_of_the_source_publishes_nothing(
    tmp_path: Path, reads: GatedReads, is_restarted: bool
) -> None:
    """During planning, a source file has the bytes of another file with the same number of rows."""
    rows = [(at, DAYS[0], town) for at, town in enumerate(TOWNS)]
    with line_at(tmp_path, rows=()) as line, line.client() as client:
        for row in rows:
            line.write([row])
        line.protect(contract(BY_TOWN, SINCE, where="day >= ${since}"))
        files = source_files(line)
        pinned_bytes, other_bytes = files["Ulm"].read_bytes(), files["Aue"].read_bytes()
        assert len(pinned_bytes) == len(other_bytes)
        files["Ulm"].write_bytes(other_bytes)
        begin_without_jobs(line)
        if is_restarted:
            die_while_planning(line, reads, allowed_files=2)
            assert files["Ulm"].name in " ".join(reads.read)
            files["Ulm"].write_bytes(pinned_bytes)
        reads.allow(3)
        line.notary.workloads.planner.run("run-1")
        files["Ulm"].write_bytes(pinned_bytes)
        line.notary.jobs.start()
        assert chunk_ids(client) == ["town=Aue", "town=Zug"]  # the row with Ulm is in no chunk
        attempt = open_attempt(client, "run-1", "town=Aue", REASON)
        line.stage(client, attempt, rows[:1])
        client.staged(attempt.attempt_id)
        assert wait_for_jobs(line.notary.jobs, WAIT)
        found = client.attempt(attempt.attempt_id)
        assert found.refusal is not None
        assert (found.state, found.refusal.reason) == (AttemptState.ROLLED_BACK, "source_unusable")
        assert "not those that the workload was planned from" in found.refusal.message
        assert client.workload("run-1").state is WorkloadState.OPEN


def source_files(line: Line) -> dict[str, Path]:
    """The source's data files by the town of their first row."""
    folder = file_at(line.scene.table_state("orders", RAW).metadata.location)
    return {str(pq.read_table(BytesIO(each.read_bytes()))["town"][0]): each for each in folder.rglob("*.parquet")}


def test_if_the_job_of_a_plan_fails_all_callers_get_an_error_and_the_next_call_plans_again(
    line: Line, reads: GatedReads
) -> None:
    reads.error = MemoryError()
    with line.client() as client, line.client() as other:
        openings = [Opening(client), Opening(other)]
        assert eventually(lambda: all(each.has_read(0) for each in openings))
        reads.allow(1)
        for each in openings:
            each.join(WAIT)
        assert [each.error is not None and each.error.reason for each in openings] == ["bug", "bug"]
        reads.error = None
        reads.allow(3)
        assert client.open_workload("run-1", "sales.orders", ALL).chunk_count == 3


def test_the_job_of_a_plan_is_listed_with_its_table_and_workload(line: Line, reads: GatedReads) -> None:
    with line.client() as client, line.client(Role.AUDITOR, "*") as auditor:
        opening = Opening(client)
        assert eventually(partial(opening.has_read, 0))
        listed = [(each.subject, each.table, each.workload_id) for each in auditor.jobs() if each.kind == "plan"]
        reads.allow(3)
        opening.join(WAIT)
    assert listed == [("run-1", "sales.orders", "run-1")]


@pytest.mark.parametrize("store_seconds", [0, 1_000], ids=["noticed when progress is stored", "noticed at the end"])
def test_an_abandoned_plan_opens_no_workload_and_its_id_stays_free(
    line: Line, reads: GatedReads, monkeypatch: pytest.MonkeyPatch, store_seconds: int
) -> None:
    monkeypatch.setattr(planning, "_STORE_SECONDS", store_seconds)
    with line.client() as client, line.client(Role.OPERATOR) as operator:
        openings = [Opening(client), Opening(client)]
        assert eventually(lambda: all(each.has_read(0) for each in openings))
        for _ in range(2):  # the second call changes nothing
            assert isinstance(operator.abandon_workload("run-1", "too large"), PlanningView)
        for each in openings:
            each.join(WAIT)
            assert each.error is not None
            assert (each.error.reason, each.error.got) == ("plan_abandoned", "abandoned: too large")
        reads.allow(3)
        assert wait_for_jobs(line.notary.jobs, WAIT)
        assert reason_of(lambda: client.workload("run-1")) == "workload_unknown"
        reads.allow(3)
        assert client.open_workload("run-1", "sales.orders", ALL).chunk_count == 3


def test_the_plan_of_another_domain_cannot_be_abandoned(line: Line, reads: GatedReads) -> None:
    begin_without_jobs(line)
    with line.client(Role.OPERATOR, "risk") as operator:
        assert reason_of(lambda: operator.abandon_workload("run-1", "not mine")) == "domain_wrong"
    assert _find_error(line) is None


def test_a_domain_with_too_many_unfinished_plans_begins_no_other_plan(
    line: Line, reads: GatedReads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plannings, "DOMAIN_PLANS_MAX", 2)
    for workload_id in ("run-1", "run-2"):
        begin_without_jobs(line, workload_id)
    with pytest.raises(UnavailableError, match="2 plans of domain sales") as caught:
        begin_without_jobs(line, "run-3")
    assert caught.value.reason == "plans_too_many"
    assert "abandon" in str(caught.value.hint)
    begin_without_jobs(line, "run-2")  # an unfinished plan is found again
    with line.client(Role.OPERATOR) as operator:
        operator.abandon_workload("run-1", "not needed")
    begin_without_jobs(line, "run-3")


def test_a_segment_ends_while_the_plan_is_made_and_the_next_one_gets_the_plan(line: Line, reads: GatedReads) -> None:
    def run(client: StewardClient, seconds: float) -> Outcome:
        with Coordinator(client, segment_timeout=seconds) as coordinator:
            return coordinator.run("run-1", "sales.orders", ALL, lambda *_: table_of([]))

    with line.client() as client:
        ended = run(client, 0.5)
        assert isinstance(ended, RolledBack)
        assert (ended.error.reason, ended.chunks) == ("segment_timed_out", ())
        assert may_continue(ended)
        reads.allow(3)
        assert not isinstance(run(client, WAIT), RolledBack)
    assert len(reads.read) == 3


def test_an_error_of_a_plan_is_raised_in_the_next_segment(line: Line, reads: GatedReads) -> None:
    with line.client() as client, Coordinator(client, segment_timeout=0.5) as coordinator:
        assert reason_of(lambda: coordinator.open_workload("run-1", "sales.orders", ALL)) == "segment_timed_out"
        reads.error = InputError("source_file_unreadable", "a file of the source cannot be read")
        reads.allow(1)
        assert eventually(lambda: _find_error(line) is not None)
        assert reason_of(lambda: coordinator.open_workload("run-1", "sales.orders", ALL)) == "source_file_unreadable"


def test_a_contract_that_is_migrated_while_a_plan_is_made_ends_the_plan(line: Line, reads: GatedReads) -> None:
    with line.client() as client:
        opening = Opening(client)
        assert eventually(lambda: opening.has_read(0))
        line.served.stand.time.pass_by(1_000_000)
        text = contract(BY_DAY, SINCE, "limits:\n  chunks: 5", where="day >= ${since}")
        statement = line.scene.migration([{"action": "set-properties", "updates": {"owner": "x"}}], contract=text)
        line.scene.migrate(statement)
        opening.join(WAIT)
        assert opening.error is not None
        assert opening.error.reason == "contract_moved"
        assert "run it again" in str(opening.error.hint)
        reads.allow(6)
        assert client.open_workload("run-1", "sales.orders", ALL).chunk_count == 3


def test_a_second_caller_after_a_migration_gets_the_error_about_the_contract(line: Line, reads: GatedReads) -> None:
    begin_without_jobs(line)
    line.served.stand.time.pass_by(1_000_000)
    text = contract(BY_DAY, SINCE, "limits:\n  chunks: 5", where="day >= ${since}")
    line.scene.migrate(line.scene.migration([{"action": "set-properties", "updates": {"owner": "x"}}], contract=text))
    with line.client() as client:
        assert reason_of(lambda: client.open_workload("run-1", "sales.orders", ALL)) == "contract_moved"
        line.notary.jobs.start()
        reads.allow(6)
        assert client.open_workload("run-1", "sales.orders", ALL).chunk_count == 3


def _find_error(line: Line) -> str | None:
    with line.notary.ledger.read() as unit:
        found = plannings.find(unit, "run-1")
    return None if found is None else found.error
