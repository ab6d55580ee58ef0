"""Metrics of work by domain, product and producer: their values, their bounded number and their use of indexes."""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import event

import pvdm
from pvdm import Committed, Coordinator, VerificationFailed
from pvdm.errors import Code
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.work import attempts, leases, statistics
from pvdm.ledger.work.leases import Runner
from pvdm.model.role import Role
from pvdm.model.states import CRASH_LOOP_LEASES, AttemptState
from pvdm.steward.http import work_metrics
from pvdm.steward.http.work_metrics import WorkMetrics
from tests.support.ledger.databases import Postgresql
from tests.support.ledger.rows import attempt_in_state, open_workload
from tests.support.steward.http import Served, served
from tests.support.steward.shop import ROWS, Shop, contract, shop_at, table_of
from tests.support.waiting import eventually

NIGHTLY = {"domain": "sales", "product": "orders", "producer": "nightly"}


@pytest.fixture
def steward(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as made:
        yield made


@dataclass(frozen=True)
class Sample:
    """One sample of a metric."""

    name: str
    labels: dict[str, str]
    value: float


def parse(text: str) -> list[Sample]:
    families = text_string_to_metric_families(text)
    return [
        Sample(each.name.removeprefix("pvdm_steward_"), each.labels, each.value)
        for family in families
        for each in family.samples
    ]


def scrape(steward: Served) -> list[Sample]:
    response = steward.http.get("/metrics", headers=steward.headers(Role.AUDITOR))
    assert response.status_code == 200
    return parse(response.text)


def values(samples: list[Sample], name: str, **labels: str) -> list[float]:
    """The values of the samples with this name and these labels."""
    return [each.value for each in samples if each.name == name and labels.items() <= each.labels.items()]


def domains(samples: list[Sample], name: str) -> set[str]:
    """The domain labels of the samples with this name; the shared label `other` counts too."""
    return {each.labels["domain"] for each in samples if each.name == name}


def shop_metrics(shop: Shop) -> list[Sample]:
    code, text = shop.metrics()
    assert code == 200
    return parse(text)


def run(shop: Shop, workload_id: str, rows: int, producer: str = "nightly") -> object:
    with shop.steward.as_role(Role.PRODUCER, "sales", name=producer) as client, Coordinator(client) as coordinator:
        return coordinator.execute_workload(workload_id, lambda _s, _c: table_of(ROWS[:rows]), table="sales.orders")


def test_ended_attempts_are_counted_by_product_and_producer_and_equally_after_a_restart(tmp_path: Path) -> None:
    with shop_at(tmp_path) as shop:
        shop.make("sales.orders")
        shop.protect(contract("sales.orders"))
        assert isinstance(run(shop, "a", 2), VerificationFailed)
        assert isinstance(run(shop, "b", 5), Committed)
        before = shop_metrics(shop)
        folder = shop.steward.folder
    assert values(before, "attempts_ended_total", **NIGHTLY, state="COMMITTED", verdict="PASS") == [1]
    assert values(before, "attempts_ended_total", **NIGHTLY, state="VERIFICATION_FAILED", verdict="FAIL") == [1]
    assert values(before, "attempt_failures_total", **NIGHTLY, **{"class": "missing"}) == [1]
    assert values(before, "rows_published_total", **NIGHTLY) == [5]
    assert values(before, "verdict_seconds_count", **NIGHTLY) == [2]
    assert values(before, "publication_seconds_count", **NIGHTLY) == [1]
    [verdicts], [publication] = (
        values(before, f"{name}_seconds_sum", **NIGHTLY) for name in ("verdict", "publication")
    )
    assert 0 < publication < 600
    assert 0 < verdicts < 600
    with pvdm.Steward.embedded(folder) as steward:
        again = shop_metrics(Shop(steward, tmp_path, tmp_path / "tom.pem"))
    names = ("attempts_ended_total", "attempt_failures_total", "rows_published_total", "verdict_seconds_bucket")
    for name in (*names, "verdict_seconds_sum", "publication_seconds_sum", "publication_seconds_bucket"):
        assert [each for each in again if each.name == name] == [each for each in before if each.name == name]


def test_an_attempt_is_counted_once_however_often_metrics_are_read(steward: Served) -> None:
    for name in ("one", "two", "three"):
        steward.stand.give_up(steward.stand.staging(name))
        for _ in range(2):
            found = values(scrape(steward), "attempts_ended_total", state="ROLLED_BACK")
    assert found == [3]


class BlockedCount:
    """Blocks each count of ended attempts and proofs until a test sets `released`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.released = threading.Event(), threading.Event()
        self.threads = list[str]()
        count = WorkMetrics._count_new

        def wait_and_count(work: WorkMetrics, ledger: Ledger) -> None:
            self.threads.append(threading.current_thread().name)
            self.reached.set()
            assert self.released.wait(20)
            count(work, ledger)

        monkeypatch.setattr(WorkMetrics, "_count_new", wait_and_count)


def test_a_scrape_does_not_wait_for_a_long_first_count(steward: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_metrics, "_COUNT_WAIT_SECONDS", 0.05)
    steward.stand.give_up(steward.stand.staging("one"))
    blocked = BlockedCount(monkeypatch)
    for _ in range(2):
        found = scrape(steward)
        assert values(found, "attempts_ended_total") == values(found, "proofs_total") == []
        assert (values(found, "facts_readable"), values(found, "active_epoch")) == ([0], [1])
    assert blocked.threads == ["pvdm-metrics"]
    blocked.released.set()
    assert eventually(lambda: values(scrape(steward), "attempts_ended_total", state="ROLLED_BACK") == [1])
    assert values(scrape(steward), "facts_readable") == [1]


def test_a_scrape_does_not_wait_for_another_scrape(steward: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    steward.stand.give_up(steward.stand.staging("one"))
    notary, work = steward.stand.notary, WorkMetrics()
    before = [each.name for each in work.collect(notary)]
    monkeypatch.setattr(work_metrics, "_COUNT_WAIT_SECONDS", 20)
    blocked = BlockedCount(monkeypatch)
    first = threading.Thread(target=lambda: list(work.collect(notary)))
    first.start()
    assert blocked.reached.wait(20)
    assert [each.name for each in work.collect(notary)] == before
    assert first.is_alive()
    blocked.released.set()
    first.join(20)


def test_a_count_that_failed_at_the_ledger_continues_at_the_next_scrape(
    steward: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    steward.stand.give_up(steward.stand.staging("one"))

    def fail(*_: object) -> None:
        raise Code.LEDGER_UNAVAILABLE()

    with monkeypatch.context() as patched:
        patched.setattr(statistics, "page_proofs", fail)
        assert values(scrape(steward), "facts_readable") == [0]
    found = scrape(steward)
    assert values(found, "attempts_ended_total", state="ROLLED_BACK") == values(found, "facts_readable") == [1]


def test_an_attempt_whose_transaction_was_committed_late_is_counted(steward: Served) -> None:
    late = steward.stand.staging("late")
    steward.stand.give_up(steward.stand.staging("soon"))
    begun = steward.stand.notary.clock.now_micros()
    steward.stand.time.pass_by(60 * 1_000_000)
    steward.stand.give_up(steward.stand.staging("after"))
    assert values(scrape(steward), "attempts_ended_total", state="ROLLED_BACK") == [2]

    def end(unit: Unit) -> None:
        attempts.end(unit, late.attempt.attempt_id, AttemptState.ROLLED_BACK, reason="given up")

    steward.stand.notary.ledger.transact(end, at_micros=begun)
    assert values(scrape(steward), "attempts_ended_total", state="ROLLED_BACK") == [3]


def test_owners_beyond_the_limit_share_the_label_other(steward: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_metrics, "METRIC_OWNERS_MAX", 2)
    for domain in ("a", "b", "c", "d"):
        steward.stand.give_up(steward.stand.staging(f"ended-{domain}", domain=domain))
        steward.stand.time.pass_by(1_000_000)
        steward.stand.staging(f"live-{domain}", domain=domain)
    found = scrape(steward)
    assert domains(found, "attempts_ended_total") == domains(found, "attempts") == {"a", "b", "other"}
    assert values(found, "attempts_ended_total", producer="other") == [2]
    assert values(found, "attempts", domain="other", state="STAGING") == [2]


def test_owners_with_only_live_attempts_have_their_own_labels_up_to_the_limit(
    steward: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_metrics, "METRIC_OWNERS_MAX", 2)
    for domain in ("a", "b", "c"):
        steward.stand.staging(f"live-{domain}", domain=domain)
    assert domains(scrape(steward), "attempts") == {"a", "b", "other"}


def lease(steward: Served, workload_id: str, *, seconds: int = 60) -> int:
    """Acquire a lease as a new run that takes over, and return its number."""
    runner = Runner(secrets.token_hex(16), "nightly", "process 1", None)
    ledger, clock = steward.stand.notary.ledger, steward.stand.notary.clock

    def work(unit: Unit) -> int:
        last = leases.find_newest(unit, workload_id)
        number = None if last is None else last.lease_number
        return leases.acquire(unit, workload_id, runner, seconds=seconds, take_over_from=number).lease_number

    return ledger.transact(work, at_micros=clock.now_micros())


def test_a_workload_counts_as_leased_once_until_its_newest_lease_expires(steward: Served) -> None:
    workload_id = steward.stand.staging().attempt.workload_id
    lease(steward, workload_id)
    lease(steward, workload_id, seconds=30)  # replaces the first lease, which would expire later
    assert values(scrape(steward), "leases", producer="nightly") == [1]
    steward.stand.time.pass_by(31 * 1_000_000)
    assert values(scrape(steward), "leases") == []


def test_runs_in_a_row_that_hand_nothing_in_are_shown_as_a_crash_loop(steward: Served) -> None:
    core = steward.stand.staging()
    for _ in range(CRASH_LOOP_LEASES - 1):
        lease(steward, core.attempt.workload_id)
    assert values(scrape(steward), "crash_loops") == []
    lease(steward, core.attempt.workload_id)
    assert values(scrape(steward), "crash_loops", producer="nightly") == [1]


def test_runs_that_wait_for_the_steward_are_not_shown_as_a_crash_loop(steward: Served) -> None:
    core = steward.stand.verifying()
    for _ in range(CRASH_LOOP_LEASES + 1):
        lease(steward, core.attempt.workload_id)
    assert values(scrape(steward), "crash_loops") == []


def test_metrics_of_a_ledger_on_postgresql_are_read(tmp_path: Path, postgresql: Postgresql) -> None:
    with served(tmp_path, ledger_url=postgresql.create_database()) as steward:
        core = steward.stand.staging("live")
        steward.stand.give_up(steward.stand.staging("ended"))
        for _ in range(CRASH_LOOP_LEASES):
            lease(steward, core.attempt.workload_id)
        found = scrape(steward)
    assert values(found, "facts_readable") == [1]
    assert values(found, "attempts", state="STAGING") == values(found, "leases") == values(found, "crash_loops") == [1]
    assert values(found, "attempts_ended_total", state="ROLLED_BACK", verdict="none") == [1]


def test_the_queries_of_the_metrics_and_the_search_for_live_attempts_use_an_index(steward: Served) -> None:
    ledger = steward.stand.notary.ledger

    def fill(unit: Unit) -> None:
        open_workload(unit)
        attempt_in_state(unit, AttemptState.COMMITTED)

    ledger.transact(fill, at_micros=steward.stand.notary.clock.now_micros())
    with ledger.read() as unit, query_plans(unit) as plans:
        ended = statistics.page_ended(unit, after=(0, ""))
        statistics.page_proofs(unit, after=(0, ""))
        statistics.count_verdicts(unit, ["00" * 32])
        assert statistics.read_ends(unit, [attempt_id for _, attempt_id in ended])
        statistics.count_live_attempts(unit)
        statistics.count_live_leases(unit, 0)
        statistics.list_without_progress(unit, CRASH_LOOP_LEASES)
        attempts.list_live(unit)
    assert len(plans) > 4
    scans = [line for plan in plans for line in plan if line.startswith("SCAN") and "INDEX" not in line]
    assert scans == []


@contextlib.contextmanager
def query_plans(unit: Unit) -> Iterator[list[list[str]]]:
    """Collects SQLite's plan of each query that the unit runs."""
    plans: list[list[str]] = []
    connection = unit._connection.as_sqlalchemy()

    def explain(_connection: object, cursor: object, statement: str, parameters: Any, *_: object) -> None:
        raw = connection.connection.cursor()
        raw.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
        plans.append([row[3] for row in raw.fetchall()])

    event.listen(connection, "before_cursor_execute", explain)
    try:
        yield plans
    finally:
        event.remove(connection, "before_cursor_execute", explain)
