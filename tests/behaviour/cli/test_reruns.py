"""Running a workload id again: what commands say if rows are published already, or if the source has new snapshots."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pvdm import Chunk
from tests.support.steward.shop import BY_DAY, ROWS, Row, Shop, contract, shop_at, table_of

NEW: Row = (6, "2026-11-14", "Jena")
NOT_CHECKED = "it is not checked whether rows under the workload's filter changed; if so: "
CHUNKED = "chunking:\n  by: partition\n  columns: [day]"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with shop_at(tmp_path_factory.mktemp("shop")) as made:
        yield made


@pytest.fixture
def own_shop(tmp_path: Path) -> Iterator[Shop]:
    """A shop for one test, which may write to its source."""
    with shop_at(tmp_path) as made:
        yield made


@pytest.fixture(autouse=True)
def jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = types.ModuleType("rerun_jobs")
    module.honest = lambda _spark, chunk: table_of(source_rows_of(chunk))

    def first_day_only(_spark: object, chunk: Chunk) -> Any:
        if chunk.chunk_id.endswith("14"):
            raise RuntimeError("the network is down")
        return table_of(source_rows_of(chunk))

    def down(_spark: object, _chunk: Chunk) -> Any:
        raise RuntimeError("the network is down")

    module.first_day_only = first_day_only
    module.down = down
    module.newest = lambda _spark, _chunk: table_of([*ROWS, NEW])
    module.jena = lambda _spark, _chunk: table_of([NEW])
    module.nothing = lambda _spark, _chunk: table_of([])
    monkeypatch.setitem(sys.modules, "rerun_jobs", module)


def source_rows_of(chunk: Chunk) -> list[Row]:
    day = chunk.chunk_id.partition("=")[2]
    return [row for row in ROWS if not day or row[1] == day]


def run(shop: Shop, table: str, *more: str, job: str = "honest") -> tuple[int, str]:
    return shop.command(["run", table, "--workload-id", f"{table}-1", "--small", "--job", f"rerun_jobs:{job}", *more])


def publish(shop: Shop, table: str, *more: str) -> tuple[int, str]:
    return shop.command(["publish", table, "etl", "--workload-id", f"{table}-1", *more])


def protected_table(shop: Shop, name: str, *lines: str, **boundary: str) -> str:
    """Make a table and protect it; returns its name."""
    shop.make(f"sales.{name}", BY_DAY)
    shop.protect(contract(f"sales.{name}", *lines, **boundary))
    return f"sales.{name}"


def test_a_run_of_a_published_workload_says_that_it_published_nothing(shop: Shop) -> None:
    table = protected_table(shop, "twice")
    code, output = run(shop, table, "--json")
    first = json.loads(output)
    assert (code, first["published"], first["chunks"][0]["published"]) == (0, "now", "now")
    code, output = run(shop, table)
    assert code == 0
    assert f"ALREADY PUBLISHED  {table}-1: 1 chunk of {table}, +5 rows" in output
    assert "*** nothing was published now: an earlier run of this workload id published it ***" in output
    assert "COMMITTED" not in output
    assert "the source has newer snapshots" not in output
    again = json.loads(run(shop, table, "--json")[1])
    assert (again["outcome"], again["published"], again["source_moved"]) == ("COMMITTED", "before", None)
    assert (again["chunks"][0]["published"], shop.visible_rows(table)) == ("before", sorted(ROWS, key=repr))


def test_a_run_that_resumes_a_workload_says_which_chunks_were_published_before(shop: Shop) -> None:
    table = protected_table(shop, "resumed", CHUNKED)
    code, output = run(shop, table, "--json", job="first_day_only")
    assert (code, [each["published"] for each in json.loads(output)["chunks"]]) == (4, ["now", None])
    code, output = run(shop, table, "--json")
    found = json.loads(output)
    assert (code, found["published"]) == (0, "partly now")
    assert [each["published"] for each in found["chunks"]] == ["before", "now"]


@pytest.mark.parametrize(
    ("operation", "way"),
    [
        ("append", "an operator migrates the table to a contract that overwrites"),
        ("overwrite", "run the job under a new workload id: the new run replaces what is published"),
    ],
)
def test_a_rerun_names_both_snapshots_of_a_source_that_has_moved_and_the_way_on(
    own_shop: Shop, operation: str, way: str
) -> None:
    table = protected_table(own_shop, "moved", operation=operation)
    assert run(own_shop, table)[0] == 0
    pinned = own_shop.metadata("raw.orders").current_snapshot_id
    own_shop.write([NEW])
    newest = own_shop.metadata("raw.orders").current_snapshot_id
    code, output = run(own_shop, table)
    assert code == 0
    line = next(line for line in output.splitlines() if "the source has newer snapshots" in line)
    assert f"its snapshot {pinned} is published, its newest is {newest}; {NOT_CHECKED}" in line
    assert way in line
    moved = json.loads(run(own_shop, table, "--json")[1])["source_moved"]
    assert (moved["pinned_snapshot_id"], moved["newest_snapshot_id"]) == (str(pinned), str(newest))
    assert way in moved["correction"]


def add_row_to_source(shop: Shop) -> tuple[str, str]:
    """Add a row to the source; returns its snapshot ids before and after."""
    pinned = shop.metadata("raw.orders").current_snapshot_id
    shop.write([NEW])
    return str(pinned), str(shop.metadata("raw.orders").current_snapshot_id)


def test_after_a_publication_without_rows_late_rows_are_published_under_a_new_id(own_shop: Shop) -> None:
    table = protected_table(own_shop, "late", where="town = 'Jena'")
    assert run(own_shop, table, job="nothing")[0] == 0
    assert "0 rows: the source had no row for these parameters at its publication" in run(own_shop, table)[1]
    add_row_to_source(own_shop)
    code, output = run(own_shop, table)
    way = "this workload published 0 rows, so nothing is claimed: publish newer rows under a new workload id"
    assert (code, way in output, "an operator" in output) == (0, True, False), output
    assert "the source has no row" not in output
    assert json.loads(run(own_shop, table, "--json")[1])["source_moved"]["correction"] == way
    code, output = own_shop.command(
        ["run", table, "--workload-id", "late-2", "--small", "--job", "rerun_jobs:jena"],
    )
    assert (code, own_shop.visible_rows(table)) == (0, [NEW]), output


def test_a_resumed_workload_says_before_and_after_it_publishes_that_its_source_has_moved(
    own_shop: Shop,
) -> None:
    table = protected_table(own_shop, "pinned")
    assert run(own_shop, table, job="down")[0] == 4
    pinned, newest = add_row_to_source(own_shop)
    code, output = run(own_shop, table, "--json", job="down")
    assert output.startswith("notice: the workload was opened at ")  # on standard error, before the document
    moved = json.loads(output[output.index("{") :])["source_moved"]
    assert (code, moved["pinned_snapshot_id"], moved["newest_snapshot_id"]) == (4, pinned, newest)
    assert moved["correction"] == (
        f"to publish {newest}: an operator abandons {table}-1, of which nothing is published, "
        "and you run the job under a new workload id"
    )
    shown = own_shop.command(["status", "--workload-id", f"{table}-1"])[1]
    assert f"  source at snapshot {pinned}, which the workload has pinned; its newest is {newest}\n" in shown
    code, output = run(own_shop, table)
    words = f" and reads snapshot {pinned} of its source; the source is at {newest}; {NOT_CHECKED}"
    before, after = output.split("[0/1] chunk all: staging")
    assert (code, f"{words}{moved['correction']}" in before) == (0, True), output
    assert "notice: the workload was opened at 20" in before
    assert f"{words}rows of a claim are appended once" in after.partition("COMMITTED")[2]


def test_a_source_that_has_not_moved_is_not_mentioned(shop: Shop) -> None:
    table = protected_table(shop, "still")
    assert run(shop, table, job="down")[0] == 4
    assert "its newest is" not in shop.command(["status", "--workload-id", f"{table}-1"])[1]
    code, output = run(shop, table)
    assert (code, "the source is at" in output) == (0, False), output


def test_a_workload_shows_the_newest_snapshot_of_its_source_only_on_request(shop: Shop) -> None:
    table = protected_table(shop, "unasked")
    assert run(shop, table, job="down")[0] == 4
    with shop.client() as client:
        asked = [client.workload(f"{table}-1", look_up_source=each).workload for each in (True, False)]
    assert [each.source_newest_snapshot_id for each in asked] == [asked[0].source_snapshot_id, None]


def test_the_error_for_a_job_that_read_newer_rows_names_the_pinned_snapshot(own_shop: Shop) -> None:
    table = protected_table(own_shop, "newer")
    assert run(own_shop, table, job="down")[0] == 4
    pinned, newest = add_row_to_source(own_shop)
    code, output = run(own_shop, table, "--json", job="newest")
    found = json.loads(output[output.index("{") :])
    assert (code, found["judged"], found["source_moved"]["newest_snapshot_id"]) == (3, "now", newest)
    assert found["error"]["hint"] == (
        f"the job must read snapshot {pinned} of the source, which the workload has pinned; the source is at {newest}; "
        f"fix the job, then: pvdm repair {table}-1 --reason TEXT"
    )


def test_an_earlier_verdict_is_shown_as_such_and_the_job_is_not_run(shop: Shop) -> None:
    table = protected_table(shop, "judged")
    assert json.loads(run(shop, table, "--json", job="newest")[1])["judged"] == "now"
    code, output = run(shop, table)
    assert code == 3
    assert "[0/1] chunk all: failed before, not tried again" in output
    (hint,) = [line for line in output.splitlines() if line.startswith("hint: ")]
    assert hint.startswith("hint: this is the verdict of attempt 1 at 20")
    assert hint.endswith(f"Z; the job was not run; fix the job, then: pvdm repair {table}-1 --reason TEXT")
    assert json.loads(run(shop, table, "--json")[1])["judged"] == "before"


def test_publishing_a_failed_branch_again_says_that_it_was_not_read_again(shop: Shop) -> None:
    table = protected_table(shop, "judged_branch")
    shop.write(ROWS[1:], table, "etl")
    assert "attempt 1 at" not in publish(shop, table)[1]
    code, output = publish(shop, table)
    assert (code, "this is the verdict of attempt 1 at 20" in output) == (3, True), output
    assert "; the branch was not read again; fix the job, then: pvdm publish" in output


def test_publishing_a_published_branch_again_says_that_it_is_already_published(shop: Shop) -> None:
    table = protected_table(shop, "branch")
    shop.write(ROWS, table, "etl")
    code, output = publish(shop, table)
    assert (code, "branch etl is deleted" in output) == (0, True)
    code, output = publish(shop, table)
    assert code == 0
    assert "ALREADY PUBLISHED" in output
    assert "is deleted" not in output
    assert json.loads(publish(shop, table, "--json")[1])["published"] == "before"


@pytest.mark.parametrize("rows", [ROWS, (NEW,)], ids=["the same rows", "other rows"])
def test_a_branch_that_was_staged_again_is_not_published_under_the_finished_id(
    shop: Shop, rows: tuple[Row, ...]
) -> None:
    """Even with the same rows: the branch is not read, so nobody knows that they are the same."""
    table = protected_table(shop, f"staged_{len(rows)}")
    shop.write(ROWS, table, "etl")
    assert publish(shop, table)[0] == 0
    before = shop.visible_rows(table)
    shop.write(rows, table, "etl")
    code, output = publish(shop, table, "--json")
    error = json.loads(output)["error"]
    assert (code, error["reason"]) == (4, "branch_staged_since")
    assert error["hint"] == "nothing was changed; publish the branch under another workload id"
    assert (shop.visible_rows(table), "etl" in shop.branches(table)) == (before, True)
