"""What commands tell an operator of open workloads: when their table is migrated, and when one is abandoned."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pvdm import Chunk
from pvdm.api.work import PlanningView
from pvdm.model.role import Role
from pvdm.steward.http.v1 import work as routes
from pvdm.steward.pipeline.jobs import Jobs
from tests.support.steward.shop import BY_DAY, ROWS, Shop, contract, shop_at, table_of

TABLE = "sales.orders"
PARAMETERS = "parameters:\n  from:\n    type: date\n  to:\n    type: date"
CHUNKED = "chunking:\n  by: partition\n  columns: [day]"
RANGE = "day >= ${from} and day < ${to}"
APPENDING = contract(TABLE, PARAMETERS, CHUNKED, where=RANGE, claim="{column: day}")
OVERWRITING = contract(TABLE, PARAMETERS, CHUNKED, "atomicity: workload", operation="overwrite-partitions", where=RANGE)
CLAIM = "2026-11-13 <= day < 2026-11-15"
WAY_ON = (
    f"the claim on {CLAIM} stays, also on what is not published: no other workload can append to it; to publish the "
    "rest, an operator migrates the table to a contract that overwrites, and you run the whole part under a new "
    "workload id"
)


def first_day(_spark: object, chunk: Chunk) -> pa.Table:
    """A job that fails on the second day."""
    if "2026-11-14" in chunk.chunk_id:
        raise RuntimeError("the second day is not there yet")
    return table_of(ROWS[:2])


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """A shop with the open workload orders-1 of two days, of which the first is published."""
    module: Any = types.ModuleType("daily_job")
    module.first_day = first_day
    module.all_days = lambda _spark, chunk: table_of([row for row in ROWS if row[1] in chunk.chunk_id])
    monkeypatch.setitem(sys.modules, "daily_job", module)
    with shop_at(tmp_path) as made:
        made.make(TABLE, BY_DAY)
        made.protect(APPENDING)
        code, output = run(made, "orders-1", "first_day")
        assert code == 4, output
        yield made


def run(shop: Shop, workload_id: str, job: str, *more: str) -> tuple[int, str]:
    days = ["--param", "from=2026-11-13", "--param", "to=2026-11-15"]
    return shop.command(
        ["run", TABLE, "--workload-id", workload_id, *days, "--small", "--job", f"daily_job:{job}", *more]
    )


def run_as_operator(shop: Shop, *words: str) -> str:
    """The output of a command that must end with 0, with single spaces."""
    code, output = shop.command(words, Role.OPERATOR, "*")
    assert code == 0, output
    return " ".join(output.split())


def propose(shop: Shop, *words: str) -> str:
    return run_as_operator(shop, "migrate", "propose", TABLE, *words)


def sign(shop: Shop, *words: str) -> str:
    signing = ("--key", str(shop.key), "--operator", "tom", "--reason", "corrections", "--yes")
    return run_as_operator(shop, "migrate", "sign", str(shop.folder / "proposal.json"), *signing, *words)


def test_a_migration_names_the_open_workloads_that_it_ends_before_it_is_signed(shop: Shop) -> None:
    path = shop.folder / "overwriting.yaml"
    path.write_text(OVERWRITING, "utf-8")
    proposal = str(shop.folder / "proposal.json")
    proposed = propose(shop, "--contract", str(path), "--out", proposal)
    signed = sign(shop, "--out", str(shop.folder / "migration.json"))
    for output in (proposed, signed):
        assert "1 workload open when this was proposed; the migration ends them (contract_moved)" in output
        assert f"orders-1 1 of 2 chunks published, 1 left after that, {WAY_ON}" in output
    found = json.loads(sign(shop, "--out", str(shop.folder / "again.json"), "--json"))
    assert found["open_workloads_effect"] == "ends"
    assert found["open_workloads"] == [
        {"workload_id": "orders-1", "chunks_published": 1, "chunks_left": 1, "claim": CLAIM}
    ]


def test_a_migration_of_columns_says_that_open_workloads_stage_again(shop: Shop) -> None:
    found = propose(shop, "--add-column", "channel:string")
    assert "what they have staged is refused after the migration: run each of them again" in found
    assert "the claim on" not in found


def test_a_migration_of_properties_names_no_open_workload(shop: Shop) -> None:
    found = json.loads(propose(shop, "--set-property", "owner=shop", "--json"))
    assert (found["open_workloads_effect"], found["open_workloads"]) == ("none", [])


def test_a_migration_without_open_workloads_says_so(shop: Shop) -> None:
    run_as_operator(shop, "abandon", "orders-1", "--reason", "it is not needed")
    assert "no workload of the table was open when this was proposed" in propose(shop, "--add-column", "channel:string")


def test_abandoning_a_partly_published_append_shows_its_claim_and_the_way_on(shop: Shop) -> None:
    output = run_as_operator(shop, "abandon", "orders-1", "--reason", "the job is gone")
    assert "chunks 1 of 2 chunks published, 1 left" in output
    assert f"hint: {WAY_ON}" in output
    found = json.loads(run_as_operator(shop, "abandon", "orders-1", "--reason", "the job is gone", "--json"))
    assert (found["claim"], found["way_on"]) == (CLAIM, WAY_ON)
    code, text = run(shop, "orders-1", "all_days", "--json")
    assert (code, WAY_ON in json.loads(text)["error"]["hint"]) == (4, True)


def test_the_way_on_publishes_the_rest_of_an_abandoned_append(shop: Shop) -> None:
    run_as_operator(shop, "abandon", "orders-1", "--reason", "the job is gone")
    code, output = run(shop, "orders-2", "all_days", "--json")
    assert (code, json.loads(output)["error"]["reason"]) == (3, "claim_overlaps")
    path, proposal = shop.folder / "overwriting.yaml", str(shop.folder / "proposal.json")
    path.write_text(OVERWRITING, "utf-8")
    propose(shop, "--contract", str(path), "--out", proposal)
    sign(shop, "--out", str(shop.folder / "migration.json"))
    run_as_operator(shop, "migrate", "submit", str(shop.folder / "migration.json"))
    code, output = run(shop, "orders-2", "all_days")
    assert code == 0, output
    assert [row[0] for row in shop.visible_rows(TABLE)] == [1, 2, 3, 4, 5]


def test_a_workload_that_published_nothing_keeps_no_claim(shop: Shop) -> None:
    with shop.client() as client:
        client.open_workload("orders-3", TABLE, {"from": "2026-11-20", "to": "2026-11-21"})
    found = json.loads(run_as_operator(shop, "abandon", "orders-3", "--reason", "it is not needed", "--json"))
    assert (found["claim"], found["way_on"]) == (None, None)


def test_a_workload_is_abandoned_while_its_plan_is_made(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Jobs, "plan", lambda *_: None)
    monkeypatch.setattr(routes, "PLAN_WAIT_SECONDS", 0.0)

    def stop_waiting(_: PlanningView) -> None:
        raise RuntimeError

    with shop.client() as client, pytest.raises(RuntimeError):
        client.open_workload("orders-5", TABLE, {"from": "2026-11-20", "to": "2026-11-22"}, watch=stop_waiting)
    words = ("abandon", "orders-5", "--reason", "it is not needed")
    assert "its plan is abandoned, and the id is free" in run_as_operator(shop, *words)
    found = json.loads(run_as_operator(shop, *words, "--json"))
    assert (found["workload_id"], found["state"], found["way_on"]) == ("orders-5", "ABANDONED", None)


@pytest.mark.parametrize(("first", "last"), [("2026-11-21", "2026-11-20"), ("2026-11-20", "2026-11-20")])
def test_a_workload_whose_range_is_empty_is_not_opened(shop: Shop, first: str, last: str) -> None:
    words = ["run", TABLE, "--workload-id", "orders-4", "--param", f"from={first}", "--param", f"to={last}"]
    code, output = shop.command([*words, "--small", "--job", "daily_job:all_days", "--json"])
    error = json.loads(output)["error"]
    assert (code, error["reason"], error["got"]) == (2, "claim_empty", f"day >= '{first}' and day < '{last}'")
    assert "no row can pass the filter" in error["message"]
    assert "orders-4" not in run_as_operator(shop, "status", TABLE)
