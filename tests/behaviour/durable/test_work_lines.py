"""Every log line about a job of the Steward names its table, workload and verdict, and no value of the data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pvdm import Committed, Coordinator, VerificationFailed
from pvdm.errors import UnavailableError
from pvdm.ledger import Ledger
from pvdm.steward.work.opened import describe_work
from tests.support.steward.log_lines import LogLines, collected_lines
from tests.support.steward.shop import ROWS, Shop, contract, shop_at, table_of
from tests.support.waiting import wait_for_jobs

FACTS = {"table", "table_uuid", "workload_id", "attempt_id", "state", "verdict"}


@pytest.fixture
def lines() -> Iterator[LogLines]:
    with collected_lines() as made:
        yield made


@pytest.fixture
def shop(tmp_path: Path, lines: LogLines) -> Iterator[Shop]:
    with shop_at(tmp_path) as made:
        made.make("sales.orders")
        made.protect(contract("sales.orders"))
        yield made


def run(shop: Shop, workload_id: str, rows: Any) -> Any:
    with Coordinator(shop.steward) as coordinator:
        return coordinator.execute_workload(workload_id, lambda _s, _c: table_of(rows), table="sales.orders")


def test_a_publication_logs_one_line_for_each_job_with_table_workload_and_verdict(shop: Shop, lines: LogLines) -> None:
    assert isinstance(run(shop, "orders-1", ROWS), Committed)
    assert wait_for_jobs(shop.steward.notary.jobs, 30)
    for job, state in (("verify", "COMMITTING"), ("publish", "COMMITTED"), ("dispose", "COMMITTED")):
        (line,) = (each for each in lines.select("job_done") if each["job"] == job)
        assert (line["table"], line["workload_id"], line["state"], line["verdict"]) == (
            "sales.orders",
            "orders-1",
            state,
            "PASS",
        )


def test_a_fail_is_in_the_line_of_its_verification(shop: Shop, lines: LogLines) -> None:
    assert isinstance(run(shop, "orders-1", ROWS[:2]), VerificationFailed)
    (line,) = (each for each in lines.select("job_done") if each["job"] == "verify")
    assert (line["table"], line["workload_id"], line["state"], line["verdict"]) == (
        "sales.orders",
        "orders-1",
        "VERIFICATION_FAILED",
        "FAIL",
    )


def test_the_lines_of_a_waiting_job_and_of_one_with_a_bug_name_table_and_workload(shop: Shop, lines: LogLines) -> None:
    jobs = shop.steward.notary.jobs
    errors: list[Exception] = [UnavailableError("vault_unavailable", "away"), RuntimeError("a bug")]

    def fail(_: str) -> None:
        raise errors.pop(0)

    jobs._tasks = replace(jobs._tasks, verify=fail)
    with pytest.raises(UnavailableError):
        run(shop, "orders-1", ROWS)
    (waits,), (bug,) = lines.select("job_waits"), lines.select("job_met_a_bug")
    for line in (waits, bug):
        assert (line["table"], line["workload_id"], line["state"], line["verdict"]) == (
            "sales.orders",
            "orders-1",
            "VERIFYING",
            None,
        )
    assert (waits["code"], bug["type"]) == ("vault_unavailable", "RuntimeError")


def test_every_line_about_a_job_has_all_facts_and_no_value_of_a_row(shop: Shop, lines: LogLines) -> None:
    run(shop, "orders-1", ROWS[:2])
    run(shop, "orders-2", ROWS)
    job_lines = [each for each in lines.parsed if each["event"].startswith("job_") and each["job"] != "settle"]
    assert job_lines
    assert [each for each in job_lines if not each.keys() >= FACTS] == []
    assert not [each for each in lines.parsed if "Ulm" in json.dumps(each) or "2026-11-13" in json.dumps(each)]


def test_a_line_has_empty_facts_if_the_ledger_cannot_be_read(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_to_read(_: Ledger) -> Any:
        raise UnavailableError("ledger_unreachable", "the ledger cannot be read or written")

    monkeypatch.setattr(Ledger, "read", fail_to_read)
    assert describe_work(shop.steward.notary.ledger, "0" * 32, is_plan=False) == dict.fromkeys(FACTS)
