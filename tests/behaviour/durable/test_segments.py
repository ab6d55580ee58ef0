"""Segments: `pvdm run --segment-timeout` runs a workload in processes that may be killed at any time. Without a JVM."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pvdm import Coordinator
from pvdm.api.work import WorkloadDetail
from pvdm.durable import supervisor
from pvdm.durable.progress import FAILURES_MAX
from pvdm.model.role import Role
from pvdm.model.states import AttemptState
from tests.support.steward.pipeline import BY_DAY
from tests.support.steward.shop import ROWS, Shop, shop_at
from tests.support.waiting import eventually

# A module of jobs. For each chunk, a file in the folder of the command counts the calls.
JOBS = """
import atexit, datetime, json, multiprocessing.util, os, pathlib, signal, time
import pyarrow as pa
import pvdm

def rows_of(chunk):
    given = json.loads(pathlib.Path("rows.json").read_text())
    rows = [row for row in given if chunk.chunk_id in ("all", "day=" + row[1])]
    ids = pa.array([key for key, _, _ in rows], pa.int64())
    days = pa.array([datetime.date.fromisoformat(day) for _, day, _ in rows], pa.date32())
    towns = pa.array([town for _, _, town in rows], pa.string())
    return pa.table({"id": ids, "day": days, "town": towns})

def is_first_call(chunk):
    marker = pathlib.Path("called-" + chunk.chunk_id)
    first = not marker.exists()
    with marker.open("a") as lines:
        lines.write(f"{os.getpid()}\\n")
    return first

def honest(_spark, chunk):
    is_first_call(chunk)
    return rows_of(chunk)

def killed_at_each_first_call(_spark, chunk):
    if is_first_call(chunk):
        os.kill(os.getpid(), signal.SIGKILL)
    return rows_of(chunk)

def slow_exit(_spark, chunk):
    atexit.register(time.sleep, 2)
    return rows_of(chunk)

def always_killed(_spark, chunk):
    is_first_call(chunk)
    os.kill(os.getpid(), signal.SIGKILL)

def slow_at_first(_spark, chunk):
    if is_first_call(chunk):
        time.sleep(600)
    return rows_of(chunk)

if multiprocessing.parent_process() is not None and pathlib.Path("slow-start").exists():
    pathlib.Path("starting").touch()
    time.sleep(5)  # like a segment whose process and job take long to start

def suspended_at_first(_spark, chunk):
    # A suspended process cannot end itself by its own clock.
    if is_first_call(chunk):
        os.kill(os.getpid(), signal.SIGSTOP)
    return rows_of(chunk)

def out_of_time_at_first(_spark, chunk):
    # While the second chunk is staged, the workload's deadline passes.
    if is_first_call(chunk) and chunk.chunk_id == "day=2026-11-14":
        with pvdm.Steward.connect(os.environ["PVDM_URL"], os.environ["PVDM_TOKEN"]) as steward:
            steward.open_workload(chunk.workload_id, chunk.table, {}, 1)
        time.sleep(600)
    return rows_of(chunk)

def wrong(_spark, chunk):
    is_first_call(chunk)
    return rows_of(chunk).slice(1)

def slow_after_its_result(_spark, chunk):
    # Like Spark, the process takes seconds to end after the segment has sent its result.
    def wait():
        pathlib.Path("ending").touch()
        time.sleep(20)
    multiprocessing.util.Finalize(None, wait, exitpriority=100)
    return rows_of(chunk)
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with shop_at(tmp_path_factory.mktemp("shop")) as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "segment_jobs.py").write_text(JOBS, "utf-8")
    (tmp_path / "rows.json").write_text(json.dumps(ROWS), "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(supervisor, "_WAIT_FIRST_SECONDS", 0.01)
    return tmp_path


def build_words(table: str, job: str, *more: str, timeout: str = "300s") -> list[str]:
    named = ["--workload-id", "run-1" + table, "--small", "--job", f"segment_jobs:{job}"]
    return ["run", table, *named, "--segment-timeout", timeout, "--json", *more]


def run(shop: Shop, table: str, job: str, *more: str, timeout: str = "300s") -> tuple[int, dict[str, Any]]:
    code, output = shop.command(build_words(table, job, *more, timeout=timeout))
    return code, json.loads(output[output.index("{") :])


def count_calls(folder: Path) -> dict[str, int]:
    """Count the calls of the job for each chunk."""
    return {path.name.removeprefix("called-"): len(path.read_text().split()) for path in folder.glob("called-*")}


def read_workload(shop: Shop, table: str) -> WorkloadDetail:
    with shop.client() as client:
        return client.workload("run-1" + table, look_up_source=False)


def show_status(shop: Shop, table: str) -> str:
    return shop.command(["status", "--workload-id", "run-1" + table])[1]


def nothing_is_left(shop: Shop, table: str) -> bool:
    return eventually(lambda: shop.branches(table) == set() and shop.staged_files(table) == [])


def test_a_run_survives_the_death_of_each_of_its_processes(shop: Shop, folder: Path) -> None:
    table = shop.target("killed", BY_DAY)
    code, document = run(shop, table, "killed_at_each_first_call")
    assert (code, document["outcome"], document["published"]) == (0, "COMMITTED", "now")
    assert {chunk["published"] for chunk in document["chunks"]} == {"now"}
    assert shop.visible_rows(table) == sorted(ROWS, key=repr)
    assert set(count_calls(folder).values()) == {2}  # one call was killed, one returned its rows
    assert {(chunk["state"], chunk["attempt"]) for chunk in document["chunks"]} == {("COMMITTED", "2")}
    assert nothing_is_left(shop, table)


def test_segments_that_die_without_progress_stop_the_run_and_a_later_run_publishes(shop: Shop, folder: Path) -> None:
    table = shop.target("loop")
    code, output = shop.command(build_words(table, "always_killed"))
    document = json.loads(output[output.index("{") :])
    error = document["error"]
    assert f"notice: segment {FAILURES_MAX - 1} ended (its process was ended by SIGKILL)" in output
    assert (document["outcome"], document["exit_code"]) == ("ROLLED_BACK", 4)
    assert [chunk["state"] for chunk in document["chunks"]] == ["STAGING"]
    assert document["chunk_counts"]["staging"] == 1
    assert (code, error["code"], count_calls(folder)) == (4, "crash_loop", {"all": FAILURES_MAX})
    assert "SIGKILL" in error["got"]
    assert shop.visible_rows(table) == []
    assert f"STAGING             all  attempt {FAILURES_MAX}" in show_status(shop, table)
    assert run(shop, table, "honest")[0] == 0
    assert shop.visible_rows(table) == sorted(ROWS, key=repr)
    assert nothing_is_left(shop, table)


def test_a_chunk_that_outlives_its_segment_is_rolled_back_and_staged_in_the_next_one(shop: Shop, folder: Path) -> None:
    (folder / "slow-start").touch()  # the slow start takes a part of the segment's time
    table = shop.target("outlived")
    code, document = run(shop, table, "slow_at_first", "--rollback-threshold", "6s", timeout="16s")
    assert (code, count_calls(folder)) == (0, {"all": 2})
    assert shop.visible_rows(table) == sorted(ROWS, key=repr)
    attempts = sorted(read_workload(shop, table).attempts, key=lambda each: each.number)
    assert [each.state for each in attempts] == [AttemptState.ROLLED_BACK, AttemptState.COMMITTED]
    assert "end of its segment" in attempts[0].reason
    assert document["chunks"][0]["attempt"] == "2"


def test_a_segment_that_hangs_is_killed_at_its_end(shop: Shop, folder: Path) -> None:
    table = shop.target("deaf")
    code, _ = run(shop, table, "suspended_at_first", timeout="25s")
    assert (code, count_calls(folder)) == (0, {"all": 2})
    assert shop.visible_rows(table) == sorted(ROWS, key=repr)
    assert nothing_is_left(shop, table)


def test_a_run_ends_at_the_workloads_deadline_and_publishes_after_a_longer_time_out(shop: Shop, folder: Path) -> None:
    table = shop.target("late", BY_DAY, "atomicity: workload")
    for _ in range(2):
        code, document = run(shop, table, "out_of_time_at_first")
        assert (code, document["error"]["code"]) == (4, "workload_timed_out")
    status = show_status(shop, table)
    assert "its time ran out at" in status
    assert "COMMITTING          day=2026-11-13  attempt 1" in status
    assert "ROLLED_BACK         day=2026-11-14  attempt 1" in status
    assert shop.visible_rows(table) == []
    assert run(shop, table, "out_of_time_at_first", "--workload-timeout", "10m")[0] == 0
    assert shop.visible_rows(table) == sorted(ROWS, key=repr)
    assert count_calls(folder) == {"day=2026-11-13": 1, "day=2026-11-14": 2}
    assert nothing_is_left(shop, table)


def test_a_failed_verdict_ends_the_run_at_once(shop: Shop, folder: Path) -> None:
    table = shop.target("lie")
    code, document = run(shop, table, "wrong")
    assert (code, document["outcome"], count_calls(folder)) == (3, "VERIFICATION_FAILED", {"all": 1})
    assert shop.visible_rows(table) == []


def test_an_input_error_ends_the_run_at_once(shop: Shop, folder: Path) -> None:
    table = shop.target("errors")
    assert run(shop, table, "no_such_job")[1]["error"]["code"] == "job_invalid"
    assert run(shop, table, "honest", "--rollback-threshold", "20s", timeout="10s")[1]["error"]["code"] == (
        "segment_invalid"
    )
    assert run(shop, "sales.nowhere", "honest")[1]["error"]["code"] == "table_unknown"
    assert count_calls(folder) == {}


@contextlib.contextmanager
def command_process(
    shop: Shop, folder: Path, table: str, job: str, *, segments: bool = True
) -> Iterator[subprocess.Popen[str]]:
    """Start the command in its own process. Without segments, the job runs in the same process."""
    token = shop.steward.token_for(Role.PRODUCER, "sales").text
    path = os.pathsep.join([str(Path(__file__).parents[3]), str(folder)])
    env = {**os.environ, "PVDM_URL": shop.steward.url, "PVDM_TOKEN": token, "PYTHONPATH": path}
    named = build_words(table, job)
    if not segments:
        named.remove("--segment-timeout")
        named.remove("300s")
    command = [sys.executable, "-m", "pvdm.cli", *named]
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command, cwd=folder, env=env, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def segment_is_starting(command: int) -> bool:
    """Whether the command has started the process of a segment."""
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = path.joinpath("stat").read_text("utf-8").rpartition(")")[2].split()[1]
            if int(parent) == command and b"spawn_main" in path.joinpath("cmdline").read_bytes():
                return True
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_rolls_the_chunk_back_and_ends_the_run(shop: Shop, folder: Path, number: signal.Signals) -> None:
    table = shop.target(f"ended_{number.name.lower()}")
    with command_process(shop, folder, table, "slow_at_first") as process:
        assert eventually(lambda: count_calls(folder) == {"all": 1})
        process.send_signal(number)
        output, errors = process.communicate(timeout=120)
    document = json.loads(output)
    assert (process.returncode, document["outcome"]) == (4, "ROLLED_BACK"), errors
    assert document["error"]["code"] in {"attempt_interrupted", "interrupted"}
    assert [chunk["state"] for chunk in document["chunks"]] == ["ROLLED_BACK"]
    assert nothing_is_left(shop, table)
    assert run(shop, table, "honest")[0] == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_the_start_of_a_segment_ends_the_run(shop: Shop, folder: Path, number: signal.Signals) -> None:
    table = shop.target(f"starting_{number.name.lower()}")
    with command_process(shop, folder, table, "honest") as process:
        assert eventually(lambda: segment_is_starting(process.pid))
        os.killpg(process.pid, number)  # as Ctrl-C does; the new process is still in the group
        output, errors = process.communicate(timeout=120)
    assert (process.returncode, json.loads(output)["error"]["code"]) == (4, "interrupted"), errors
    assert "Traceback" not in errors
    assert count_calls(folder) == {}
    assert shop.visible_rows(table) == []


def test_a_signal_while_a_segment_imports_its_job_ends_the_run(shop: Shop, folder: Path) -> None:
    (folder / "slow-start").touch()
    table = shop.target("importing")
    with command_process(shop, folder, table, "honest") as process:
        assert eventually((folder / "starting").exists)
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=120)
    assert (process.returncode, json.loads(output)["error"]["code"]) == (4, "interrupted"), errors
    assert "Traceback" not in errors
    assert count_calls(folder) == {}


def test_a_signal_after_the_result_of_a_segment_does_not_change_the_outcome(shop: Shop, folder: Path) -> None:
    table = shop.target("ending")
    with command_process(shop, folder, table, "slow_after_its_result") as process:
        assert eventually((folder / "ending").exists)
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=60)
    assert (process.returncode, json.loads(output)["outcome"]) == (0, "COMMITTED"), errors


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_after_the_printed_outcome_does_not_change_the_exit_code(
    shop: Shop, folder: Path, number: signal.Signals
) -> None:
    table = shop.target(f"printed_{number.name.lower()}")
    with command_process(shop, folder, table, "slow_exit", segments=False) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.send_signal(number)
        outcome = json.loads(first + process.stdout.read())["outcome"]
        assert (process.wait(60), outcome) == (0, "COMMITTED")


@pytest.mark.parametrize(("job", "code"), [("honest", 0), ("wrong", 3)])
def test_a_signal_while_a_command_closes_its_coordinator_does_not_change_the_outcome(
    shop: Shop, folder: Path, monkeypatch: pytest.MonkeyPatch, job: str, code: int
) -> None:
    table, close = shop.target(f"closing_{job}"), Coordinator.close

    def interrupt(self: Coordinator) -> None:
        signal.raise_signal(signal.SIGINT)
        close(self)

    monkeypatch.setattr(Coordinator, "close", interrupt)
    named = ["--workload-id", "run-1" + table, "--small", "--job", f"segment_jobs:{job}"]
    ended, output = shop.command(["run", table, *named])
    assert ended == code, output


def test_a_segment_ends_when_its_supervisor_is_killed(shop: Shop, folder: Path) -> None:
    table = shop.target("orphaned")
    with command_process(shop, folder, table, "slow_at_first") as process:
        assert eventually(lambda: count_calls(folder) == {"all": 1})
        process.kill()
        _, errors = process.communicate(timeout=60)  # until the segment, which writes to the same pipe, ends
    assert "Traceback" not in errors
    assert nothing_is_left(shop, table)
    assert [each.state for each in read_workload(shop, table).attempts] == [AttemptState.ROLLED_BACK]


def test_a_segment_stages_at_most_max_chunks(shop: Shop, folder: Path) -> None:
    table = shop.target("counted", BY_DAY)
    with shop.client() as client:
        client.open_workload("run-1" + table, table, {})
    resume = ["resume", "run-1" + table, "--small", "--job", "segment_jobs:honest", "--max-chunks", "1", "--json"]
    ends = [shop.command(resume) for _ in range(2)]
    assert [code for code, _ in ends] == [8, 0]
    assert ['"reason": "segment_ended"' in output for _, output in ends] == [True, False]
    assert set(count_calls(folder).values()) == {1}
    assert shop.visible_rows(table) == sorted(ROWS, key=repr)


def test_one_segment_can_be_run_by_itself(shop: Shop, folder: Path) -> None:
    table = shop.target("resumed", BY_DAY)
    with shop.client() as client:
        client.open_workload("run-1" + table, table, {})
    resume = ["resume", "run-1" + table, "--small", "--job", "segment_jobs:honest", "--segment-timeout", "300s"]
    code, output = shop.command(resume)
    assert (code, "COMMITTED" in output) == (0, True), output
    assert shop.visible_rows(table) == sorted(ROWS, key=repr)
    assert shop.command(resume)[0] == 0  # nothing is left to do
    code, output = shop.command([*resume[:1], "run-2", *resume[2:], "--json"])
    assert (code, "workload_unknown" in output) == (2, True), output
