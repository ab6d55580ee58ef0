"""The outcome of a workload as text and JSON: published rows and files, findings, and the errors of stuck jobs."""

from __future__ import annotations

import json
import re
import sys
import time
import types
from collections.abc import Iterator
from typing import Any

import pytest

from pvdm import Chunk, Committed, Coordinator, VerificationFailed
from pvdm.api.work import ExtentView
from pvdm.durable.outcome import Activity, Step
from pvdm.errors import UnavailableError
from pvdm.model.role import Role
from pvdm.model.statements.verdict import FailureClass
from pvdm.steward.pipeline import verification
from pvdm.verify.findings import Finding
from tests.support.steward.leases import open_attempt
from tests.support.steward.shop import BY_DAY, ROWS, Row, Shop, contract, shop_at, table_of

CHUNKED = "chunking:\n  by: partition\n  columns: [day]"
DATED = "parameters:\n  date:\n    type: date"
OLD: list[Row] = [(9, "2026-11-14", "old"), (10, "2026-11-14", "old"), (11, "2026-11-13", "old")]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with shop_at(tmp_path_factory.mktemp("shop")) as made:
        yield made


def correct_job(_spark: object, chunk: Chunk) -> Any:
    """A job that writes the right rows: those of the parameter's day, or of the chunk's day, or all."""
    day = chunk.parameters.get("date") or chunk.chunk_id.partition("=")[2]
    return table_of([] if "*" in chunk.chunk_id else [row for row in ROWS if not day or row[1] == day])


@pytest.fixture(autouse=True)
def jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = types.ModuleType("word_jobs")
    module.right = correct_job
    module.lossy = lambda _spark, _chunk: table_of(ROWS[1:])
    monkeypatch.setitem(sys.modules, "word_jobs", module)


def run(shop: Shop, table: str, job: str, *more: str, workload_id: str | None = None) -> tuple[int, str]:
    words = ["run", table, "--workload-id", workload_id or f"{table}-1", "--small", "--job", f"word_jobs:{job}"]
    return shop.command([*words, *more])


def append_table(shop: Shop, name: str, *more: str) -> str:
    """Make a target to which workloads append; returns its name."""
    shop.make(f"sales.{name}", BY_DAY)
    shop.protect(contract(f"sales.{name}", *more))
    return f"sales.{name}"


def overwrite_table(shop: Shop, name: str) -> str:
    """Make a target with rows of two days, whose workloads each replace one day."""
    shop.make(f"sales.{name}", BY_DAY)
    shop.write(OLD, f"sales.{name}")
    where = {"where": "day = ${date}", "partition": "{day: '${date}'}"}
    shop.protect(contract(f"sales.{name}", DATED, operation="overwrite-partitions", **where))
    return f"sales.{name}"


def test_the_output_counts_the_rows_and_files_that_were_added(shop: Shop) -> None:
    table = append_table(shop, "added")
    code, output = run(shop, table, "right")
    assert code == 0, output
    assert f"COMMITTED  {table}-1: 1 chunk of {table}, +5 rows in 2 files\n" in output
    assert "  all  +5 rows in 2 files  snapshot " in output


def test_the_output_counts_the_rows_and_files_that_an_overwrite_replaced(shop: Shop) -> None:
    table = overwrite_table(shop, "replaced")
    code, output = run(shop, table, "right", "--param", "date=2026-11-14")
    assert (code, f"1 chunk of {table}, +3 rows in 1 file, replacing 2 rows in 1 file\n" in output) == (0, True), output
    found = json.loads(run(shop, table, "right", "--param", "date=2026-11-14", "--json")[1])
    counts = [found[key] for key in ("rows_added", "files_added", "rows_removed", "files_removed")]
    assert (counts, found["chunks"][0]["rows_added"]) == (["3", "1", "2", "1"], "3")


def test_the_output_of_a_publication_without_rows_says_so_loudly(shop: Shop) -> None:
    table = overwrite_table(shop, "emptied")
    code, output = run(shop, table, "right", "--param", "date=2026-11-13")
    assert (code, "0 rows:" in output) == (0, False), output
    code, output = run(shop, table, "right", "--param", "date=2026-11-12", workload_id="emptied-2")
    assert code == 0, output
    assert "+0 rows in 0 files" in output
    assert "*** 0 rows: the source has no row for these parameters ***" in output


def test_an_overwrite_without_rows_says_that_partitions_stay_unless_one_is_declared(shop: Shop) -> None:
    stays = "partitions without a selected row stay as they are; declare boundary.partition to delete all rows of one"
    shop.make("sales.corrected", BY_DAY)
    shop.write(OLD, "sales.corrected")
    dated = {"operation": "overwrite-partitions", "where": "day = ${date}"}
    shop.protect(contract("sales.corrected", DATED, **dated))
    day = ("--param", "date=2026-11-12")
    code, output = run(shop, "sales.corrected", "right", *day)
    assert (code, len(shop.visible_rows("sales.corrected"))) == (0, 3), output
    assert f"*** 0 rows: the source has no row for these parameters; {stays} ***" in output
    assert json.loads(run(shop, "sales.corrected", "right", *day, "--json")[1])["note"] == stays
    found = json.loads(run(shop, overwrite_table(shop, "declared"), "right", *day, "--json")[1])
    assert (found["rows_added"], found["note"]) == ("0", None)


def test_rows_that_chunks_replace_together_are_counted_once(shop: Shop) -> None:
    shop.make("sales.at_once", BY_DAY)
    shop.write(OLD, "sales.at_once")
    shop.protect(contract("sales.at_once", CHUNKED, "atomicity: workload", operation="overwrite"))
    with Coordinator(shop.steward) as coordinator:
        outcome = coordinator.execute_workload("at-once-1", correct_job, table="sales.at_once")
    assert isinstance(outcome, Committed), outcome
    assert len(outcome.chunks) > 1
    assert outcome.extent == ExtentView(rows_added=5, files_added=2, rows_removed=3, files_removed=2)


@pytest.mark.parametrize("atomicity", ["chunk", "workload"])
def test_every_chunk_is_reported_as_published_once_with_a_rising_count(shop: Shop, atomicity: str) -> None:
    table = append_table(shop, f"counted_{atomicity}", CHUNKED, f"atomicity: {atomicity}")
    steps: list[Step] = []
    with Coordinator(shop.steward, watch=steps.append) as coordinator:
        outcome = coordinator.execute_workload(f"{table}-1", correct_job, table=table)
    count = len(outcome.chunks)
    published = [step for step in steps if step.activity is Activity.PUBLISHED]
    assert [step.done for step in published] == list(range(1, count + 1))
    assert {step.chunk_id for step in published} == {each.chunk_id for each in outcome.chunks}
    after = steps[steps.index(published[0]) :]
    if atomicity == "workload":
        assert [step.activity for step in after] == [Activity.PUBLISHED] * count


def test_a_chunk_that_was_published_before_is_counted_as_done(shop: Shop) -> None:
    table = append_table(shop, "again")
    run(shop, table, "right")
    assert "[1/1] chunk all: published before" in run(shop, table, "right")[1]


def test_a_structural_failure_is_shown_with_its_code_and_sentence(shop: Shop) -> None:
    """An overwrite whose branch was not made from `main`: no row is read, so the output says nothing of rows."""
    table = overwrite_table(shop, "structural")
    for branch in ("etl_1", "etl_2"):
        shop.write(ROWS[2:], table, branch)
    words = ["publish", table, "etl_1", "--workload-id", "structural-1", "--param", "date=2026-11-14"]
    code, output = shop.command(words)
    sentence = "boundary_moved: what it replaces was changed in main since it was staged: expected an empty main"
    assert code == 3, output
    assert f"finding 1: {sentence}" in output
    assert "unknown" not in output
    assert "rows" not in output.partition("error:")[2].partition("hint:")[0]
    words = ["publish", table, "etl_2", "--workload-id", "structural-2", "--param", "date=2026-11-14", "--json"]
    found = json.loads(shop.command(words)[1])
    assert found["error"]["details"]["finding_1"].startswith(sentence)
    (finding,) = found["chunks"][0]["findings"]
    assert (finding["failure"], finding["code"], found["chunks"][0]["findings_more"]) == (
        "metadata",
        "boundary_moved",
        "0",
    )
    assert sentence in shop.command(["status", "--workload-id", "structural-1"])[1]
    shown = json.loads(shop.command(["status", "--workload-id", "structural-1", "--json"])[1])
    assert shown["chunks"][0]["attempt"]["findings"][0]["code"] == "boundary_moved"


def test_of_many_findings_the_first_ten_and_the_number_of_the_others_are_shown(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values of rows, here of a bound, are withheld from the producer and shown to the operator."""
    table = append_table(shop, "many")
    lies = tuple(Finding(FailureClass.METADATA, "lower_bound_lies", f"lie {at}", "5345", "4352") for at in range(112))
    monkeypatch.setattr("pvdm.verify.job.find_changed_base", lambda *_: lies)
    with Coordinator(shop.steward) as coordinator:
        outcome = coordinator.execute_workload("many-1", correct_job, table=table)
    assert isinstance(outcome, VerificationFailed), outcome
    found = outcome.chunks[0].attempt
    assert found is not None
    assert [str(each) for each in found.findings] == [f"lower_bound_lies: lie {at}" for at in range(10)]
    assert {each.withheld for each in found.findings} == {True}
    with shop.client(Role.OPERATOR) as client:
        first = client.attempt(found.attempt_id).findings[0]
    assert (first.expected, first.got, first.withheld) == ("5345", "4352", False)
    assert (found.findings_more, outcome.error.details["findings_more"]) == (102, 102)
    assert "and 102 findings more" in shop.command(["status", "--workload-id", "many-1"])[1]


def test_the_status_of_a_table_shows_that_a_workload_failed(shop: Shop) -> None:
    table = append_table(shop, "failed")
    run(shop, table, "lossy")
    assert f"  {table}-1  OPEN, 1 of 1 chunks VERIFICATION_FAILED" in shop.command(["status", table])[1]
    (shown,) = json.loads(shop.command(["status", table, "--json"])[1])["workloads"]
    assert shown["chunk_states"] == [{"state": "VERIFICATION_FAILED", "chunks": "1"}]


def test_the_status_of_a_table_counts_only_the_last_attempt_at_a_chunk(shop: Shop) -> None:
    table = append_table(shop, "mended")
    run(shop, table, "lossy")
    assert shop.command(["repair", f"{table}-1", "--reason", "mended", "--small", "--job", "word_jobs:right"])[0] == 0
    assert f"  {table}-1  COMPLETE, 1 of 1 chunks COMMITTED" in shop.command(["status", table])[1]


def test_the_status_of_a_workload_that_was_only_opened_shows_no_begun_chunk(shop: Shop) -> None:
    table = append_table(shop, "opened")
    assert "0 workloads shown" in shop.command(["status", table])[1]
    with shop.client() as client:
        client.open_workload("opened-1", table, {})
    assert "  opened-1  OPEN, 0 of 1 chunks begun" in shop.command(["status", table])[1]


def test_the_last_error_of_a_stuck_job_is_shown(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    table = append_table(shop, "stuck")
    gone = UnavailableError(
        "source_unreadable", "the pinned source cannot be read", expected="a disk", got="none", hint="mount it"
    )

    def fail_to_read(*_: object) -> None:
        raise gone

    monkeypatch.setattr(verification, "verify", fail_to_read)
    with shop.client() as client:
        client.open_workload("stuck-1", table, {})
        attempt = client.staged(open_attempt(client, "stuck-1", "all", "the first").attempt_id)
        while attempt.job is None or attempt.job.problem is None:
            time.sleep(0.05)
            attempt = client.attempt(attempt.attempt_id)
    output = shop.command(["status", table])[1]
    assert "  stuck-1  OPEN, 1 of 1 chunks VERIFYING" in output
    assert "the Steward cannot continue: source_unreadable: the pinned source cannot be read" in output
    output = shop.command(["status", "--workload-id", "stuck-1"])[1]
    words = r"the Steward cannot continue \(\d+ tries, job \w+\): source_unreadable: the pinned source cannot be read"
    assert re.search(rf"{words}\n      expected a disk, got none\n      hint: mount it\n", output)
    (shown,) = json.loads(shop.command(["status", table, "--json"])[1])["workloads"]
    assert shown["problem"]["reason"] == "source_unreadable"


def test_the_status_of_an_unknown_table_is_an_error(shop: Shop) -> None:
    code, output = shop.command(["status", "sales.ordres", "--json"])
    assert (code, json.loads(output)["error"]["reason"]) == (2, "table_unknown")
