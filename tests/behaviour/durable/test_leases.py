"""Leases of workloads: one run at a time, and a run that has lost its lease can change nothing. Without a JVM."""

from __future__ import annotations

import datetime
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pvdm import Chunk, Committed, Coordinator, Outcome, RolledBack
from pvdm.api.leases import LeaseRequest, LeaseView
from pvdm.client import StewardClient
from pvdm.client.table import TableClient
from pvdm.durable import lease as lease_module
from pvdm.durable.lease import has_ended, process_identity
from pvdm.errors import ConflictError, NotAllowedError, PvdmError
from pvdm.ledger.work import leases
from pvdm.model.role import Role
from pvdm.model.states import AttemptState, WorkloadState
from tests.support.steward.pipeline import ROWS as LINE_ROWS
from tests.support.steward.pipeline import Line, line_at
from tests.support.steward.shop import ROWS, Shop, shop_at, table_of
from tests.support.waiting import eventually

SECOND = 1_000_000
MINUTE = 60 * SECOND
FIRST, OTHER = "11" * 16, "22" * 16
Job = Callable[[object, Chunk], pa.Table]

# A run in its own process. Its job writes the file `begun`, and returns the rows once the file `go` exists.
RUNNER = """
import datetime, pathlib, sys, time
import pyarrow as pa
from pvdm import Coordinator
from pvdm.client import StewardClient
url, token_file, table, workload_id, folder, lease_seconds = sys.argv[1:]
def job(_spark, _chunk):
    pathlib.Path(folder, "begun").touch()
    while not pathlib.Path(folder, "go").exists():
        time.sleep(0.02)
    days = [datetime.date.fromisoformat(day) for day in ("2026-11-13", "2026-11-13", "2026-11-14")]
    return pa.table({"id": pa.array([1, 2, 3], pa.int64()), "day": days, "town": ["Ulm", "Bonn", "Kiel"]})
with StewardClient(url, token_file=pathlib.Path(token_file)) as client:
    with Coordinator(client, lease_seconds=int(lease_seconds)) as coordinator:
        outcome = coordinator.execute_workload(workload_id, job, table=table)
print(outcome.name, "" if outcome.name == "COMMITTED" else outcome.error.reason)
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with shop_at(tmp_path_factory.mktemp("shop")) as made:
        yield made


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    with line_at(tmp_path) as made:
        made.protect()
        yield made


@pytest.fixture
def producer(line: Line) -> Iterator[StewardClient]:
    with line.client() as client:
        client.open_workload("run-1", "sales.orders", {})
        yield client


def honest(_spark: object, _chunk: Chunk) -> pa.Table:
    return table_of(ROWS)


def run(shop: Shop, table: str, job: Job = honest, **settings: Any) -> Outcome:
    with Coordinator(shop.steward, **settings) as coordinator:
        return coordinator.execute_workload("run-1" + table, job, table=table)


def acquire(client: StewardClient, run_id: str, *, seconds: int = 60, take_over_from: int | None = None) -> LeaseView:
    request = LeaseRequest(run_id=run_id, runner=f"run {run_id[0]}", seconds=seconds, take_over_from=take_over_from)
    return client.acquire_lease("run-1", request)


def refusal(call: Callable[[], object]) -> tuple[type[PvdmError], str]:
    with pytest.raises(PvdmError) as caught:
        call()
    return type(caught.value), caught.value.reason


def leave_lease_of_crashed_run(shop: Shop, table: str, monkeypatch: pytest.MonkeyPatch, *, runs: int) -> None:
    """Open the workload with a lease of an ended process. Later, `runs` runs detect this end at the same time."""
    boot, namespace, pid, started = str(process_identity(os.getpid())).split(" ")
    crashed = f"{boot} {namespace} {pid} {int(started) - 1} {FIRST}"
    with shop.client() as client:
        client.open_workload("run-1" + table, table, {})
        client.acquire_lease("run-1" + table, LeaseRequest(run_id=FIRST, runner="crashed", process=crashed))
    meeting, real = threading.Barrier(runs), lease_module._has_ended

    def check_together(process_and_run: str) -> bool:
        if process_and_run == crashed:
            meeting.wait(60)
        return real(process_and_run)

    monkeypatch.setattr(lease_module, "_has_ended", check_together)


# One run at a time


def test_a_second_run_is_refused_with_holder_and_expiry_and_the_first_one_publishes(shop: Shop) -> None:
    table, refused = shop.target("twice"), list[ConflictError]()

    def run_again_meanwhile(_spark: object, _chunk: Chunk) -> pa.Table:
        with pytest.raises(ConflictError) as caught:
            run(shop, table)
        refused.append(caught.value)
        return table_of(ROWS)

    assert isinstance(run(shop, table, run_again_meanwhile), Committed)
    (error,) = refused
    assert (error.exit_code, error.code) == (4, "workload_leased")
    assert f"process {os.getpid()} on " in str(error.details["runner"])
    assert error.details["holder"] == "embedded"
    expires = datetime.datetime.fromtimestamp(int(error.details["expires_at"]) / SECOND, datetime.UTC)
    assert 0 < (expires - datetime.datetime.now(datetime.UTC)).total_seconds() <= 60
    assert shop.visible_rows(table) == sorted(ROWS, key=repr)


@pytest.mark.parametrize("crashed", [False, True])
def test_of_ten_runs_of_one_workload_one_works_and_nine_are_refused(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, *, crashed: bool
) -> None:
    table, started, may_end = shop.target(f"ten_{crashed}".lower()), threading.Event(), threading.Event()
    if crashed:
        leave_lease_of_crashed_run(shop, table, monkeypatch, runs=10)

    def wait(_spark: object, _chunk: Chunk) -> pa.Table:
        started.set()
        assert may_end.wait(60)
        return table_of(ROWS)

    def run_or_refuse() -> str:
        try:
            return run(shop, table, wait).name
        except ConflictError as error:
            return error.reason

    with ThreadPoolExecutor(10) as pool:
        runs = [pool.submit(run_or_refuse) for _ in range(10)]
        assert started.wait(60)
        assert eventually(lambda: sum(each.done() for each in runs) == 9)
        may_end.set()
        found = sorted(each.result(60) for each in runs)
    assert found == ["COMMITTED"] + ["workload_leased"] * 9
    assert shop.visible_rows(table) == sorted(ROWS, key=repr)


def test_a_run_releases_its_lease_at_its_end_also_after_an_error(shop: Shop) -> None:
    table = shop.target("released")

    def fail(_spark: object, _chunk: Chunk) -> pa.Table:
        raise RuntimeError("no source")

    assert isinstance(run(shop, table, fail), RolledBack)
    with shop.client() as client:
        lease = client.workload("run-1" + table).lease
    assert lease is not None
    assert (lease.lease_number, lease.live) == (1, False)
    assert isinstance(run(shop, table), Committed)
    with shop.client() as client:
        released = client.workload("run-1" + table).lease
    assert released is not None
    assert (released.lease_number, released.live) == (2, False)


def test_a_complete_workload_needs_no_lease(shop: Shop) -> None:
    table = shop.target("complete")
    assert isinstance(run(shop, table), Committed)
    with shop.client() as client:
        before = client.workload("run-1" + table).lease
        assert isinstance(run(shop, table), Committed)
        assert client.workload("run-1" + table).lease == before
        workload = client.workload("run-1" + table)
        assert workload.state is WorkloadState.COMPLETE
        request = LeaseRequest(run_id=FIRST, runner="late")
        assert refusal(lambda: client.acquire_lease(workload.workload_id, request)) == (ConflictError, "workload_moved")


def test_a_workload_is_resumed_by_its_id_alone(shop: Shop) -> None:
    table = shop.target("resumed")

    def stop(_spark: object, _chunk: Chunk) -> pa.Table:
        raise KeyboardInterrupt

    assert isinstance(run(shop, table, stop), RolledBack)
    with Coordinator(shop.steward) as coordinator:
        assert isinstance(coordinator.resume_workload("run-1" + table, honest), Committed)
    assert shop.visible_rows(table) == sorted(ROWS, key=repr)


# What a run without its lease cannot do


def test_a_run_that_was_taken_over_can_neither_open_nor_hand_in_nor_renew_nor_abort(
    line: Line, producer: StewardClient
) -> None:
    lease = acquire(producer, FIRST)
    attempt = producer.next_attempt("run-1", "all", "the first", lease.lease_number)
    line.stage(producer, attempt, LINE_ROWS)
    token = producer.attempt_token(attempt.attempt_id).token
    newer = acquire(producer, OTHER, take_over_from=1)
    assert (lease.lease_number, newer.lease_number) == (1, 2)
    lost = (ConflictError, "lease_taken_over")
    assert refusal(lambda: producer.staged(attempt.attempt_id)) == lost
    assert refusal(lambda: producer.abort_attempt(attempt.attempt_id, "mine", lease.lease_number)) == lost
    assert refusal(lambda: producer.renew_lease("run-1", FIRST, lease.lease_number)) == lost
    assert refusal(lambda: producer.next_attempt("run-1", "all", "again", lease.lease_number)) == lost
    assert refusal(lambda: producer.attempt_token(attempt.attempt_id)) == lost
    with producer.with_token(token) as own:
        assert refusal(lambda: own.staged(attempt.attempt_id)) == lost
        assert refusal(lambda: TableClient(own, ("sales",), "orders").load()) == lost
    # The old run can read. It cannot end the lease of the other run.
    assert producer.attempt(attempt.attempt_id).state is AttemptState.STAGING
    assert producer.release_lease("run-1", FIRST, lease.lease_number).lease_number == newer.lease_number
    assert refusal(lambda: producer.renew_lease("run-1", FIRST, newer.lease_number)) == (
        ConflictError,
        "lease_taken_over",
    )
    assert producer.renew_lease("run-1", OTHER, newer.lease_number).live
    # The new run ends the old attempt, and stages the chunk again.
    assert (
        producer.abort_attempt(attempt.attempt_id, "taken over", newer.lease_number).state is AttemptState.ROLLED_BACK
    )
    again = producer.next_attempt("run-1", "all", "again", newer.lease_number)
    line.stage(producer, again, LINE_ROWS)
    producer.staged(again.attempt_id)
    assert producer.await_attempt(again.attempt_id, seconds=60).state is AttemptState.COMMITTED


def test_a_lease_that_has_expired_by_the_ledgers_clock_cannot_be_used_or_renewed(
    line: Line, producer: StewardClient
) -> None:
    lease = acquire(producer, FIRST)
    attempt = producer.next_attempt("run-1", "all", "the first", lease.lease_number)
    line.stage(producer, attempt, LINE_ROWS)
    line.served.stand.time.pass_by(61 * SECOND)
    lost = (ConflictError, "lease_expired")
    assert refusal(lambda: producer.staged(attempt.attempt_id)) == lost
    assert refusal(lambda: producer.renew_lease("run-1", FIRST, lease.lease_number)) == lost
    # The same run may acquire a new lease, but it cannot hand in what it staged under the old one.
    newer = acquire(producer, FIRST)
    assert newer.lease_number == 2
    assert refusal(lambda: producer.staged(attempt.attempt_id)) == (ConflictError, "lease_taken_over")
    # After a rollback the error is about the attempt's state, not about the run's own newer lease.
    producer.abort_attempt(attempt.attempt_id, "staged under an old lease", newer.lease_number)
    assert refusal(lambda: producer.staged(attempt.attempt_id)) == (ConflictError, "attempt_moved")


def test_a_run_whose_lease_has_only_expired_may_abort_its_attempt(line: Line, producer: StewardClient) -> None:
    lease = acquire(producer, FIRST)
    attempt = producer.next_attempt("run-1", "all", "the first", lease.lease_number)
    line.served.stand.time.pass_by(61 * SECOND)
    aborted = producer.abort_attempt(attempt.attempt_id, "no time", lease.lease_number)
    assert aborted.state is AttemptState.ROLLED_BACK


def test_a_commit_to_the_attempts_branch_after_the_lease_was_lost_changes_nothing(
    line: Line, producer: StewardClient
) -> None:
    lease = acquire(producer, FIRST)
    attempt = producer.next_attempt("run-1", "all", "the first", lease.lease_number)
    acquire(producer, OTHER, take_over_from=1)
    with pytest.raises(PvdmError) as caught:
        line.stage(producer, attempt, LINE_ROWS)
    assert caught.value.code == "lease_lost"
    assert line.scene.table_state().metadata.refs.get(attempt.branch) is None


def test_a_token_of_the_producer_itself_writes_to_no_branch_of_an_attempt(line: Line, producer: StewardClient) -> None:
    """The producer's token is valid without a lease, so a run that was taken over could write with it."""
    old_lease = acquire(producer, FIRST)
    old = producer.next_attempt("run-1", "all", "the first", old_lease.lease_number)
    lease = acquire(producer, OTHER, take_over_from=old_lease.lease_number)
    refused = (NotAllowedError, "branch_of_attempt")
    assert refusal(lambda: line.write(LINE_ROWS, "sales.orders", old.branch)) == refused
    producer.abort_attempt(old.attempt_id, "taken over", lease.lease_number)
    new = producer.next_attempt("run-1", "all", "again", lease.lease_number)
    assert refusal(lambda: line.write(LINE_ROWS, "sales.orders", new.branch)) == refused
    line.stage(producer, new, LINE_ROWS)
    assert refusal(lambda: line.write(LINE_ROWS, "sales.orders", new.branch)) == refused
    producer.staged(new.attempt_id)
    assert producer.await_attempt(new.attempt_id, seconds=60).state is AttemptState.COMMITTED


def test_a_request_for_the_lease_may_be_repeated(producer: StewardClient) -> None:
    first = acquire(producer, FIRST)
    assert acquire(producer, FIRST).lease_number == first.lease_number
    assert refusal(lambda: acquire(producer, OTHER)) == (ConflictError, "workload_leased")
    released = producer.release_lease("run-1", FIRST, first.lease_number)
    assert (released.live, producer.release_lease("run-1", FIRST, first.lease_number)) == (False, released)
    assert acquire(producer, OTHER).lease_number == first.lease_number + 1


def test_a_renewal_that_a_release_has_overtaken_is_refused(line: Line, producer: StewardClient) -> None:
    """A renewal reads the time, and then waits for its turn to write. A release can come between."""
    lease, before = acquire(producer, FIRST), line.notary.clock.now_micros()
    line.served.stand.time.pass_by(SECOND)
    producer.release_lease("run-1", FIRST, lease.lease_number)
    renew = partial(leases.renew, workload_id="run-1", run_id=FIRST, lease_number=lease.lease_number)
    renewal = lambda: line.notary.ledger.transact(renew, at_micros=before)  # noqa: E731
    assert refusal(renewal) == (ConflictError, "lease_expired")
    assert acquire(producer, OTHER).lease_number == lease.lease_number + 1


def test_the_step_log_says_who_worked_on_a_workload_and_who_took_it_over(line: Line, producer: StewardClient) -> None:
    acquire(producer, FIRST)
    acquire(producer, OTHER, take_over_from=1)
    with line.client(Role.AUDITOR, "*") as auditor:
        found = [dict(each.new or ()) for each in auditor.events(limit=100, about="run-1") if each.kind == "leased"]
    assert [(each["lease_number"], each["runner"], each.get("taken_over_from")) for each in found] == [
        (1, "run 1", None),
        (2, "run 2", "run 1"),
    ]


def test_a_producer_of_another_domain_gets_no_lease(line: Line, producer: StewardClient) -> None:
    assert acquire(producer, FIRST).lease_number == 1
    with line.client(Role.PRODUCER, "risk") as other:
        assert refusal(lambda: acquire(other, OTHER, take_over_from=1))[1] == "domain_wrong"
        assert refusal(lambda: other.renew_lease("run-1", FIRST, 1))[1] == "domain_wrong"
        assert refusal(lambda: other.release_lease("run-1", FIRST, 1))[1] == "domain_wrong"


# Long stagings


def test_a_chunk_that_takes_seventy_minutes_can_be_staged_while_the_lease_is_renewed(
    line: Line, producer: StewardClient
) -> None:
    lease = acquire(producer, FIRST)
    attempt = producer.next_attempt("run-1", "all", "the first", lease.lease_number)
    token = producer.attempt_token(attempt.attempt_id).token
    for _ in range(70 * 3):
        line.served.stand.time.pass_by(20 * SECOND)
        producer.renew_lease("run-1", FIRST, lease.lease_number)
    with producer.with_token(token) as own:
        assert own.attempt(attempt.attempt_id).state is AttemptState.STAGING
        TableClient(own, ("sales",), "orders").load()
    line.stage(producer, attempt, LINE_ROWS)
    producer.staged(attempt.attempt_id)
    assert producer.await_attempt(attempt.attempt_id, seconds=60).state is AttemptState.COMMITTED


# Real processes


@contextmanager
def start_run(shop: Shop, table: str, folder: Path, *, lease_seconds: int) -> Iterator[subprocess.Popen[str]]:
    """Start a run in its own process, and wait until its job has begun."""
    folder.mkdir()
    token_file = folder / "token"
    token_file.touch(mode=0o600)
    token_file.write_text(shop.steward.token_for(Role.PRODUCER, "sales").text)
    words = [shop.steward.url, str(token_file), table, "run-1" + table, str(folder), str(lease_seconds)]
    process = subprocess.Popen([sys.executable, "-c", RUNNER, *words], stdout=subprocess.PIPE, text=True)
    try:
        assert eventually((folder / "begun").exists)
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_suspended_run_cannot_hand_in_after_its_lease_has_expired(shop: Shop, tmp_path: Path) -> None:
    table = shop.target("suspended")
    with start_run(shop, table, tmp_path / "run", lease_seconds=3) as process:
        process.send_signal(signal.SIGSTOP)
        time.sleep(4)
        (tmp_path / "run" / "go").touch()
        process.send_signal(signal.SIGCONT)
        output = process.communicate(timeout=60)[0]
    assert output.split() == ["ROLLED_BACK", "lease_expired"]
    assert shop.visible_rows(table) == []
    assert isinstance(run(shop, table), Committed)
    assert eventually(lambda: shop.branches(table) == set() and shop.staged_files(table) == [])
    assert shop.visible_rows(table) == sorted(ROWS, key=repr)


def test_a_suspended_run_is_taken_over_only_with_the_option_and_then_cannot_hand_in(shop: Shop, tmp_path: Path) -> None:
    table = shop.target("stopped")
    with start_run(shop, table, tmp_path / "run", lease_seconds=60) as process:
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(ConflictError) as caught:
            run(shop, table)
        assert (caught.value.code, caught.value.exit_code) == ("workload_leased", 4)
        assert isinstance(run(shop, table, take_over=True), Committed)
        (tmp_path / "run" / "go").touch()
        process.send_signal(signal.SIGCONT)
        output = process.communicate(timeout=60)[0]
    assert output.split() == ["ROLLED_BACK", "lease_taken_over"]
    assert shop.visible_rows(table) == sorted(ROWS, key=repr)


def test_the_lease_of_a_killed_process_of_this_host_is_taken_over_at_once(shop: Shop, tmp_path: Path) -> None:
    table = shop.target("killed")
    with start_run(shop, table, tmp_path / "run", lease_seconds=900) as process:
        process.kill()
        process.wait()
        assert isinstance(run(shop, table), Committed)
    assert shop.visible_rows(table) == sorted(ROWS, key=repr)


def test_a_process_is_known_to_have_ended_only_on_its_own_host(tmp_path: Path) -> None:
    mine = process_identity(os.getpid())
    assert mine is not None
    assert not has_ended(mine)
    boot, namespace, pid, started = mine.split(" ")
    assert has_ended(f"{boot} {namespace} {pid} {int(started) - 1}")  # an earlier process with the same id
    assert not has_ended(f"other-boot {namespace} {pid} {int(started) - 1}")
    assert not has_ended(f"{boot} pid:[1] {pid} {int(started) - 1}")
    for broken in ("", "x", f"{boot} {namespace} x y", f"{mine} more"):
        assert not has_ended(broken)


def test_the_command_names_the_run_that_works_and_takes_over_with_the_option(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module: Any = types.ModuleType("small_jobs")
    module.honest = honest
    monkeypatch.setitem(sys.modules, "small_jobs", module)
    table = shop.target("by_command")
    words = ["run", table, "--workload-id", "run-1" + table, "--small", "--job", "small_jobs:honest"]
    with start_run(shop, table, tmp_path / "run", lease_seconds=60) as process:
        code, output = shop.command([*words, "--json"])
        error = json.loads(output)["error"]
        assert (code, error["code"], error["details"]["runner"].split()[:2]) == (
            4,
            "workload_leased",
            ["process", str(process.pid)],
        )
        assert "--take-over" in error["hint"]
        assert "process" not in error["details"]
        text = shop.command(words)[1]
        assert re.search(r"^  expires at: \d{4}-\d\d-\d\d", text, re.MULTILINE), text
        status = shop.command(["status", "--workload-id", "run-1" + table])[1]
        assert f"a run works on it: process {process.pid} on " in status
        code, output = shop.command([*words, "--take-over"])
        assert code == 0, output
    assert "a run works on it" not in shop.command(["status", "--workload-id", "run-1" + table])[1]
