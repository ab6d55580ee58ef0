"""`pvdm run`, `publish`, `repair`, `abandon`, `orphans` and `status`, against an embedded Steward and without a JVM."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pvdm import Chunk
from pvdm.cli.common.output import output_to_stderr
from pvdm.lake.paths import parse_location
from pvdm.model.role import Role
from tests.support.steward.leases import abort_attempt, open_attempt
from tests.support.steward.shop import ROWS, Shop, contract, shop_at, table_of

SORTED = sorted(ROWS, key=repr)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with shop_at(tmp_path_factory.mktemp("shop")) as made:
        yield made


@pytest.fixture(autouse=True)
def jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = types.ModuleType("small_jobs")
    module.honest = lambda _spark, _chunk: table_of(ROWS)
    module.lossy = lambda _spark, _chunk: table_of(ROWS[1:])
    module.number = 7

    def raising(_spark: object, chunk: Chunk) -> pa.Table:
        raise RuntimeError(f"no rows for {chunk.chunk_id}")

    module.raising = raising
    module.leaving = lambda _spark, _chunk: sys.exit(0)
    monkeypatch.setitem(sys.modules, "small_jobs", module)


def run(shop: Shop, table: str, job: str, *more: str) -> tuple[int, str]:
    words = ["run", table, "--workload-id", f"{table}-1", "--small", "--job", f"small_jobs:{job}", *more]
    return shop.command(words)


def protected_table(shop: Shop, name: str) -> str:
    """Make a table and protect it; returns its name."""
    shop.make(f"sales.{name}")
    shop.protect(contract(f"sales.{name}"))
    return f"sales.{name}"


def test_a_run_says_what_is_published_and_ends_with_0(shop: Shop) -> None:
    table = protected_table(shop, "clean")
    code, output = run(shop, table, "honest")
    assert code == 0, output
    assert "chunk all: staging" in output
    assert "COMMITTED  sales.clean-1: 1 chunk of sales.clean" in output
    assert shop.visible_rows(table) == SORTED


def test_a_run_as_json_has_the_outcome_and_its_chunks(shop: Shop) -> None:
    table = protected_table(shop, "told")
    code, output = run(shop, table, "honest", "--json")
    found = json.loads(output)
    assert (code, found["outcome"], found["exit_code"]) == (0, "COMMITTED", 0)
    (chunk,) = found["chunks"]
    assert (chunk["state"], chunk["verdict"], chunk["snapshot_id"]) == (
        "COMMITTED",
        "PASS",
        str(shop.metadata(table).current_snapshot_id),
    )


def test_lost_rows_end_with_3_and_a_repair_with_0(shop: Shop) -> None:
    table = protected_table(shop, "lossy")
    code, output = run(shop, table, "lossy")
    assert code == 3, output
    assert "VERIFICATION_FAILED" in output
    assert "classes: missing" in output
    assert "pvdm repair sales.lossy-1 --reason TEXT" in output
    assert shop.visible_rows(table) == []
    words = ["repair", f"{table}-1", "--reason", "mended", "--small", "--job", "small_jobs:honest"]
    assert shop.command(words)[0] == 0
    assert shop.visible_rows(table) == SORTED


def test_a_job_that_fails_ends_with_4(shop: Shop) -> None:
    table = protected_table(shop, "raising")
    code, output = run(shop, table, "raising", "--json")
    found = json.loads(output)
    assert (code, found["outcome"], found["error"]["reason"]) == (4, "ROLLED_BACK", "job_failed")
    assert "no rows for all" in found["error"]["got"]


def test_a_job_that_exits_with_0_ends_with_4_and_publishes_nothing(shop: Shop) -> None:
    table = protected_table(shop, "leaving")
    code, output = run(shop, table, "leaving", "--json")
    found = json.loads(output)
    assert (code, found["outcome"], found["error"]["reason"]) == (4, "ROLLED_BACK", "job_failed")
    assert found["error"]["got"] == "SystemExit: 0"
    assert shop.visible_rows(table) == []


def test_a_module_that_exits_when_it_is_imported_ends_with_2(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = protected_table(shop, "script")
    (tmp_path / "exiting_script.py").write_text("import sys\nsys.exit(0)\n")
    monkeypatch.syspath_prepend(tmp_path)
    words = ["run", table, "--workload-id", "script-1", "--small", "--job", "exiting_script:main", "--json"]
    code, output = shop.command(words)
    assert (code, json.loads(output)["error"]["reason"]) == (2, "job_not_importable")


JOB = """
import os, subprocess
print("imported")

def build(spark, chunk):
    print("printed")
    os.write(1, b"written\\n")
    subprocess.run(["echo", "by a child"], check=True)
    {job}
"""


@pytest.mark.parametrize(
    ("job", "code", "state"),
    [
        ("import pyarrow as pa; return pa.table({'id': [1]})", 2, None),
        ("raise RuntimeError('no rows')", 4, "ROLLED_BACK"),
    ],
)
def test_the_output_of_a_job_is_not_in_the_json_document(
    shop: Shop, tmp_path: Path, job: str, code: int, state: str | None
) -> None:
    table = protected_table(shop, f"printed_{code}")
    (tmp_path / "loud.py").write_text(JOB.replace("{job}", job), "utf-8")
    words = ["run", table, "--workload-id", f"{table}-1", "--small", "--job", "loud:build", "--json"]
    done = run_in_process(shop, tmp_path, words)
    found = json.loads(done.stdout)
    assert (done.returncode, found.get("outcome")) == (code, state)
    for word in ("imported", "printed", "written", "by a child"):
        assert word in done.stderr


def test_output_goes_to_standard_error_even_if_standard_output_was_replaced() -> None:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        with output_to_stderr():
            sys.stdout.write("a job's words")
        sys.stdout.write("the document")
    assert (out.getvalue(), err.getvalue()) == ("the document", "a job's words")


def test_without_json_the_output_of_a_job_goes_to_standard_output(shop: Shop, tmp_path: Path) -> None:
    table = protected_table(shop, "printed")
    (tmp_path / "loud.py").write_text(JOB.replace("{job}", "raise RuntimeError('no rows')"), "utf-8")
    words = ["run", table, "--workload-id", f"{table}-1", "--small", "--job", "loud:build"]
    assert "by a child" in run_in_process(shop, tmp_path, words).stdout


def run_in_process(shop: Shop, folder: Path, words: list[str]) -> subprocess.CompletedProcess[str]:
    token = shop.steward.token_for(Role.PRODUCER, "sales")
    env = {**os.environ, "PVDM_URL": shop.steward.url, "PVDM_TOKEN": token.text}
    return subprocess.run(
        [sys.executable, "-m", "pvdm.cli", *words], cwd=folder, env=env, capture_output=True, text=True, check=False
    )


def test_a_workload_that_an_operator_abandoned_stays_abandoned(shop: Shop) -> None:
    table = protected_table(shop, "given_up")
    run(shop, table, "raising")
    words = ["abandon", f"{table}-1", "--reason", "nobody needs it"]
    code, output = shop.command(words, Role.OPERATOR)
    assert (code, "ABANDONED  sales.given_up-1 of sales.given_up" in output) == (0, True)
    again = ["abandon", f"{table}-1", "--reason", "once more", "--json"]
    code, output = shop.command(again, Role.OPERATOR)
    found = json.loads(output)
    assert (code, found["state"], found["reason"]) == (0, "ABANDONED", "nobody needs it")
    code, output = run(shop, table, "honest", "--json")
    error = json.loads(output)["error"]
    assert (code, error["reason"]) == (4, "workload_abandoned")
    assert "another workload id" in error["hint"]
    words = ["publish", table, "etl", "--workload-id", f"{table}-1", "--json"]
    for more in ([], ["--reason", "the job is mended"]):
        code, output = shop.command([*words, *more])
        assert (code, json.loads(output)["error"]["reason"]) == (4, "workload_abandoned")


def test_a_producer_cannot_abandon_a_workload(shop: Shop) -> None:
    table = protected_table(shop, "kept")
    run(shop, table, "raising")
    code, output = shop.command(["abandon", f"{table}-1", "--reason", "mine", "--json"])
    assert (code, json.loads(output)["error"]["reason"]) == (5, "role_wrong")


def test_a_complete_workload_cannot_be_abandoned(shop: Shop) -> None:
    table = protected_table(shop, "complete")
    run(shop, table, "honest")
    code, output = shop.command(["abandon", f"{table}-1", "--reason", "too late", "--json"], Role.OPERATOR)
    assert (code, json.loads(output)["error"]["reason"]) == (4, "workload_moved")
    assert shop.visible_rows(table) == SORTED


@pytest.mark.parametrize("workload_id", ["orders 1", "a/b", "x" * 129, "..", ""])
def test_an_invalid_workload_id_is_refused_with_the_allowed_form(shop: Shop, workload_id: str) -> None:
    words = ["run", "sales.refused", "--workload-id", workload_id, "--small", "--job", "small_jobs:honest", "--json"]
    code, output = shop.command(words)
    error = json.loads(output)["error"]
    assert (code, error["reason"]) == (2, "identifier_invalid")
    letters = "1 to 128 letters (A to Z, a to z), digits, dots, underscores and hyphens"
    assert error["expected"] == f"{letters}, not dots alone"


def test_a_staged_branch_is_published(shop: Shop) -> None:
    table = protected_table(shop, "adopted")
    shop.write(ROWS, table, "etl")
    code, output = shop.command(["publish", table, "etl", "--workload-id", "adopted-1"])
    assert code == 0, output
    assert shop.visible_rows(table) == SORTED


def test_a_staged_branch_that_fails_stays_and_is_tried_again_with_a_reason(shop: Shop) -> None:
    table = protected_table(shop, "adopted_badly")
    shop.write(ROWS[1:], table, "etl")
    words = ["publish", table, "etl", "--workload-id", "adopted-2"]
    for _ in range(2):
        code, output = shop.command(words)
        assert code == 3, output
    assert "pvdm publish sales.adopted_badly BRANCH --workload-id adopted-2 --reason TEXT" in " ".join(output.split())
    assert "DROP BRANCH `etl`" in " ".join(output.split())
    assert shop.branches(table) == {"etl"}
    assert shop.visible_rows(table) == []
    shop.write(ROWS, table, "etl_2")
    other = ["publish", table, "etl_2", "--workload-id", "adopted-2"]
    code, output = shop.command([*other, "--json"])
    assert (code, json.loads(output)["error"]["reason"]) == (2, "reason_missing")
    code, output = shop.command([*other, "--reason", "the lost row is back"])
    assert code == 0, output
    assert "`pvdm orphans` lists them" in " ".join(output.split())
    assert shop.visible_rows(table) == SORTED


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--small"], "job_missing"),
        (["--small", "--job", "small_jobs"], "job_invalid"),
        (["--small", "--job", "small_jobs:none"], "job_invalid"),
        (["--small", "--job", "small_jobs:number"], "job_invalid"),
        (["--small", "--job", "no_such_module:build"], "job_not_importable"),
        (["--small", "--job", "small_jobs:honest", "--param", "date"], "usage"),
        (["--small", "--job", "small_jobs:honest", "--param", "a=1", "--param", "a=2"], "usage"),
        (["--small", "--job", "small_jobs:honest", "--param", "date=2026-11-15"], "parameters_differ"),
    ],
)
def test_a_run_with_an_invalid_job_or_parameter_ends_with_2(shop: Shop, words: list[str], code: str) -> None:
    if "sales.refused" not in shop.made:
        protected_table(shop, "refused")
    exit_code, output = shop.command(["run", "sales.refused", "--workload-id", "refused-1", *words, "--json"])
    assert (exit_code, json.loads(output)["error"]["reason"]) == (2, code)


def test_a_misspelled_function_is_answered_with_those_of_its_module(shop: Shop) -> None:
    if "sales.refused" not in shop.made:
        protected_table(shop, "refused")
    words = ["run", "sales.refused", "--workload-id", "refused-1", "--small", "--job", "small_jobs:onest", "--json"]
    _, output = shop.command(words)
    hint = json.loads(output)["error"]["hint"]
    assert hint.startswith("its functions: ")
    assert "honest" in hint.removeprefix("its functions: ").split(", ")


def test_a_run_without_a_workload_id_is_a_usage_error(shop: Shop) -> None:
    code, output = shop.command(["run", "sales.refused", "--json"])
    assert (code, json.loads(output)["error"]["reason"]) == (2, "usage")


def test_a_consumer_cannot_run(shop: Shop) -> None:
    words = ["run", "sales.refused", "--workload-id", "c-1", "--small", "--job", "small_jobs:honest", "--json"]
    code, output = shop.command(words, Role.CONSUMER)
    assert (code, json.loads(output)["error"]["reason"]) == (5, "lent_role_wrong")


def test_files_that_a_killed_job_left_are_found_and_removed(shop: Shop) -> None:
    table = protected_table(shop, "orphaned")
    with shop.client() as client:
        client.open_workload("orphaned-1", table, {})
        left = open_attempt(client, "orphaned-1", "all", "killed")
        abort_attempt(client, left, "killed")
    # A file that is written after the Steward cleaned up is an orphan; the last task of a killed job may write one.
    assert shop.command(["orphans", table, "--remove"])[0] == 0
    time.sleep(0.5)
    place = parse_location(left.prefix).local / "data"
    place.mkdir(parents=True, exist_ok=True)
    (place / "left.parquet").write_bytes(b"left")
    code, output = shop.command(["orphans", table, "--json"])
    found = json.loads(output)
    assert (code, [each["location"].rpartition("/")[2] for each in found["orphans"]]) == (0, ["left.parquet"])
    assert "1 file, 4 bytes" in shop.command(["orphans", table])[1]
    assert "1 file, 4 bytes removed" in shop.command(["orphans", table, "--remove"])[1]
    assert json.loads(shop.command(["orphans", table, "--json"])[1])["orphans"] == []
    assert not (place / "left.parquet").exists()


def test_the_status_of_a_table_and_of_a_workload_is_shown(shop: Shop) -> None:
    table = protected_table(shop, "looked_at")
    run(shop, table, "lossy")
    code, output = shop.command(["status", table])
    assert (code, "sales.looked_at: 1 workload shown" in output, f"{table}-1" in output) == (0, True, True)
    code, output = shop.command(["status", "--workload-id", f"{table}-1"])
    assert (code, "VERIFICATION_FAILED" in output) == (0, True)
    found = json.loads(shop.command(["status", "--workload-id", f"{table}-1", "--json"])[1])
    assert found["chunks"][0]["attempt"]["state"] == "VERIFICATION_FAILED"
    assert shop.command(["status", table, "--workload-id", "x"])[0] == 2
    assert shop.command(["status"])[0] == 0


def test_the_status_of_a_table_says_how_many_of_its_workloads_are_shown(shop: Shop) -> None:
    table = protected_table(shop, "many")
    for number in ("1", "2"):
        command = ["run", table, "--workload-id", f"{table}-{number}", "--small", "--job", "small_jobs:lossy"]
        shop.command(command)
    assert "sales.many: 1 of 2 workloads shown" in shop.command(["status", table, "--rows", "1"])[1]
    assert json.loads(shop.command(["status", table, "--rows", "1", "--json"])[1])["workloads_total"] == "2"
