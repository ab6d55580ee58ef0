"""The same workload id again: what is said of rows that are published already, and of a source that has moved."""

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
    """One whose source may be changed."""
    with shop_at(tmp_path) as made:
        yield made


@pytest.fixture(autouse=True)
def jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = types.ModuleType("rerun_jobs")
    module.honest = lambda _spark, chunk: table_of(rows_of(chunk))

    def first_day_only(_spark: object, chunk: Chunk) -> Any:
        if chunk.chunk_id.endswith("14"):
            raise RuntimeError("the network is down")
        return table_of(rows_of(chunk))

    def down(_spark: object, _chunk: Chunk) -> Any:
        raise RuntimeError("the network is down")

    module.first_day_only = first_day_only
    module.down = down
    module.newest = lambda _spark, _chunk: table_of([*ROWS, NEW])
    module.jena = lambda _spark, _chunk: table_of([NEW])
    module.nothing = lambda _spark, _chunk: table_of([])
    monkeypatch.setitem(sys.modules, "rerun_jobs", module)


def rows_of(chunk: Chunk) -> list[Row]:
    day = chunk.chunk_id.partition("=")[2]
    return [row for row in ROWS if not day or row[1] == day]


def run(shop: Shop, table: str, *more: str, job: str = "honest") -> tuple[int, str]:
    return shop.command(["run", table, "--workload-id", f"{table}-1", "--small", "--job", f"rerun_jobs:{job}", *more])


def publish(shop: Shop, table: str, *more: str) -> tuple[int, str]:
    return shop.command(["publish", table, "etl", "--workload-id", f"{table}-1", *more])


def target(shop: Shop, name: str, *lines: str, **boundary: str) -> str:
    shop.make(f"sales.{name}", BY_DAY)
    shop.protect(contract(f"sales.{name}", *lines, **boundary))
    return f"sales.{name}"


def test_a_run_of_what_is_published_says_that_it_published_nothing(shop: Shop) -> None:
    table = target(shop, "twice")
    code, told = run(shop, table, "--json")
    first = json.loads(told)
    assert (code, first["published"], first["chunks"][0]["published"]) == (0, "now", "now")
    code, told = run(shop, table)
    assert code == 0
    assert f"ALREADY PUBLISHED  {table}-1: 1 chunk of {table}, +5 rows" in told
    assert "*** nothing was published now: an earlier run of this workload id published it ***" in told
    assert "COMMITTED" not in told
    assert "the source has newer snapshots" not in told
    again = json.loads(run(shop, table, "--json")[1])
    assert (again["outcome"], again["published"], again["source_moved"]) == ("COMMITTED", "before", None)
    assert (again["chunks"][0]["published"], shop.seen(table)) == ("before", sorted(ROWS, key=repr))


def test_a_run_that_takes_up_the_rest_says_what_was_there_before(shop: Shop) -> None:
    table = target(shop, "resumed", CHUNKED)
    code, told = run(shop, table, "--json", job="first_day_only")
    assert (code, [each["published"] for each in json.loads(told)["chunks"]]) == (4, ["now", None])
    code, told = run(shop, table, "--json")
    found = json.loads(told)
    assert (code, found["published"]) == (0, "partly now")
    assert [each["published"] for each in found["chunks"]] == ["before", "now", "now"]


@pytest.mark.parametrize(
    ("operation", "way"),
    [
        ("append", "an operator migrates the table to a contract that overwrites"),
        ("overwrite", "run it under a new workload id: it replaces what is published"),
    ],
)
def test_a_source_that_has_moved_since_is_named_with_both_snapshots_and_the_way_on(
    own_shop: Shop, operation: str, way: str
) -> None:
    table = target(own_shop, "moved", operation=operation)
    assert run(own_shop, table)[0] == 0
    pinned = own_shop.metadata("raw.orders").current_snapshot_id
    own_shop.write([NEW])
    newest = own_shop.metadata("raw.orders").current_snapshot_id
    code, told = run(own_shop, table)
    assert code == 0
    line = next(line for line in told.splitlines() if "the source has newer snapshots" in line)
    assert f"its snapshot {pinned} is published, its newest is {newest}; {NOT_CHECKED}" in line
    assert way in line
    moved = json.loads(run(own_shop, table, "--json")[1])["source_moved"]
    assert (moved["pinned_snapshot_id"], moved["newest_snapshot_id"]) == (str(pinned), str(newest))
    assert way in moved["correction"]


def moved_on(shop: Shop) -> tuple[str, str]:
    """The source's snapshot before and after it got another row."""
    pinned = shop.metadata("raw.orders").current_snapshot_id
    shop.write([NEW])
    return str(pinned), str(shop.metadata("raw.orders").current_snapshot_id)


def test_after_a_publication_of_no_rows_late_ones_come_under_a_new_id(own_shop: Shop) -> None:
    table = target(own_shop, "late", where="town = 'Jena'")
    assert run(own_shop, table, job="nothing")[0] == 0
    assert "0 rows: the source had no row for these parameters when they were published" in run(own_shop, table)[1]
    moved_on(own_shop)
    code, told = run(own_shop, table)
    way = "0 rows were published then, so nothing is claimed: publish what came since under a new workload id"
    assert (code, way in told, "an operator" in told) == (0, True, False), told
    assert "the source has no row" not in told
    assert json.loads(run(own_shop, table, "--json")[1])["source_moved"]["correction"] == way
    code, told = own_shop.command(
        ["run", table, "--workload-id", "late-2", "--small", "--job", "rerun_jobs:jena"],
    )
    assert (code, own_shop.seen(table)) == (0, [NEW]), told


def test_a_workload_that_is_taken_up_says_that_its_source_has_moved_before_and_after_it_publishes(
    own_shop: Shop,
) -> None:
    table = target(own_shop, "pinned")
    assert run(own_shop, table, job="down")[0] == 4
    pinned, newest = moved_on(own_shop)
    code, told = run(own_shop, table, "--json", job="down")
    moved = json.loads(told)["source_moved"]
    assert (code, moved["pinned_snapshot_id"], moved["newest_snapshot_id"]) == (4, pinned, newest)
    assert moved["correction"] == (
        f"to publish {newest}: an operator abandons {table}-1, of which nothing is published, "
        "and you run it under a new workload id"
    )
    shown = own_shop.command(["status", "--workload-id", f"{table}-1"])[1]
    assert f"  source at snapshot {pinned}, which the workload has pinned; its newest is {newest}\n" in shown
    code, told = run(own_shop, table)
    words = f" and reads snapshot {pinned} of its source; the source is at {newest}; {NOT_CHECKED}"
    before, after = told.split("[0/1] chunk all: staging")
    assert (code, f"{words}{moved['correction']}" in before) == (0, True), told
    assert "notice: the workload was opened at 20" in before
    assert f"{words}rows of a claim are appended once" in after.partition("COMMITTED")[2]


def test_a_source_that_has_not_moved_is_not_spoken_of(shop: Shop) -> None:
    table = target(shop, "still")
    assert run(shop, table, job="down")[0] == 4
    assert "its newest is" not in shop.command(["status", "--workload-id", f"{table}-1"])[1]
    code, told = run(shop, table)
    assert (code, "the source is at" in told) == (0, False), told


def test_where_the_source_is_not_to_be_looked_at_its_newest_snapshot_is_not_told(shop: Shop) -> None:
    table = target(shop, "unasked")
    assert run(shop, table, job="down")[0] == 4
    with shop.client() as client:
        asked = [client.workload(f"{table}-1", newest=newest).workload for newest in (True, False)]
    assert [each.source_newest_snapshot_id for each in asked] == [asked[0].source_snapshot_id, None]


def test_a_fail_of_a_job_that_read_newer_rows_names_the_pinned_snapshot(own_shop: Shop) -> None:
    table = target(own_shop, "newer")
    assert run(own_shop, table, job="down")[0] == 4
    pinned, newest = moved_on(own_shop)
    code, told = run(own_shop, table, "--json", job="newest")
    found = json.loads(told)
    assert (code, found["judged"], found["source_moved"]["newest_snapshot_id"]) == (3, "now", newest)
    assert found["error"]["hint"] == (
        f"the job must read snapshot {pinned} of the source, which the workload has pinned; the source is at {newest}; "
        f"fix the job, then: pvdm repair {table}-1 --reason TEXT"
    )


def test_a_verdict_of_before_is_told_as_that_and_the_job_is_not_run(shop: Shop) -> None:
    table = target(shop, "judged")
    assert json.loads(run(shop, table, "--json", job="newest")[1])["judged"] == "now"
    code, told = run(shop, table)
    assert code == 3
    assert "[0/1] chunk all: failed before, not tried again" in told
    (hint,) = [line for line in told.splitlines() if line.startswith("hint: ")]
    assert hint.startswith("hint: this is the verdict of attempt 1 at 20")
    assert hint.endswith(f"Z; the job was not run; fix the job, then: pvdm repair {table}-1 --reason TEXT")
    assert json.loads(run(shop, table, "--json")[1])["judged"] == "before"


def test_a_failed_branch_is_told_as_not_read_again(shop: Shop) -> None:
    table = target(shop, "judged_branch")
    shop.write(ROWS[1:], table, "etl")
    assert "attempt 1 at" not in publish(shop, table)[1]
    code, told = publish(shop, table)
    assert (code, "this is the verdict of attempt 1 at 20" in told) == (3, True), told
    assert "; the branch was not read again; fix the job, then: pvdm publish" in told


def test_a_branch_that_is_published_is_not_said_to_be_published_again(shop: Shop) -> None:
    table = target(shop, "branch")
    shop.write(ROWS, table, "etl")
    code, told = publish(shop, table)
    assert (code, "branch etl is deleted" in told) == (0, True)
    code, told = publish(shop, table)
    assert code == 0
    assert "ALREADY PUBLISHED" in told
    assert "is deleted" not in told
    assert json.loads(publish(shop, table, "--json")[1])["published"] == "before"


@pytest.mark.parametrize("rows", [ROWS, (NEW,)], ids=["the same rows", "other rows"])
def test_a_branch_that_was_staged_again_is_not_published_under_the_finished_id(
    shop: Shop, rows: tuple[Row, ...]
) -> None:
    """Whether its rows are the same is not known: they were not read."""
    table = target(shop, f"staged_{len(rows)}")
    shop.write(ROWS, table, "etl")
    assert publish(shop, table)[0] == 0
    before = shop.seen(table)
    shop.write(rows, table, "etl")
    code, told = publish(shop, table, "--json")
    error = json.loads(told)["error"]
    assert (code, error["reason"]) == (4, "branch_staged_since")
    assert error["hint"] == "nothing was changed; publish the branch under another workload id"
    assert (shop.seen(table), "etl" in shop.branches(table)) == (before, True)
