"""Leases of runs that race, lose an answer, cannot see each other, or are interrupted at their end. Without a JVM."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from pvdm import Committed, Coordinator, Outcome, VerificationFailed
from pvdm.api.leases import LeaseRequest, LeaseView
from pvdm.client import StewardClient
from pvdm.durable import coordinator, lease
from pvdm.durable.lease import has_ended, process_identity
from pvdm.errors import Code, ConflictError
from pvdm.physical.watchdog import SigtermReceived
from tests.support.steward.pipeline import line_at
from tests.support.steward.shop import ROWS, Row, Shop, shop_at, table_of
from tests.support.waiting import eventually

FIRST, OTHER, THIRD = "11" * 16, "22" * 16, "33" * 16


@pytest.fixture
def producer(tmp_path: Path) -> Iterator[StewardClient]:
    with line_at(tmp_path) as line:
        line.protect()
        with line.client() as client:
            client.open_workload("run-1", "sales.orders", {})
            yield client


def acquire(client: StewardClient, run_id: str, *, take_over_from: int | None = None) -> LeaseView:
    request = LeaseRequest(run_id=run_id, runner=f"run {run_id[0]}", take_over_from=take_over_from)
    return client.acquire_lease("run-1", request)


def test_a_take_over_ends_only_the_lease_that_it_names_also_if_it_is_repeated(producer: StewardClient) -> None:
    assert acquire(producer, FIRST).lease_number == 1
    for _ in range(2):  # a client repeats the request after a lost answer
        assert acquire(producer, OTHER, take_over_from=1).lease_number == 2
    assert acquire(producer, THIRD, take_over_from=2).lease_number == 3
    for late in (OTHER, FIRST):
        with pytest.raises(ConflictError) as caught:
            acquire(producer, late, take_over_from=1)
        assert (caught.value.code, str(caught.value.details["lease_number"])) == ("workload_leased", "3")
    assert producer.renew_lease("run-1", THIRD, 3).live


@pytest.mark.parametrize(("code", "is_loss"), [(Code.LEDGER_SERIALIZATION, False), (Code.WORKLOAD_MOVED, True)])
def test_renewals_end_only_after_an_error_which_says_that_the_lease_is_lost(
    producer: StewardClient, monkeypatch: pytest.MonkeyPatch, code: Code, *, is_loss: bool
) -> None:
    renew, renewals = StewardClient.renew_lease, list[str]()

    def refuse_twice(self: StewardClient, workload_id: str, run_id: str, lease_number: int) -> LeaseView:
        renewals.append(workload_id)
        if len(renewals) <= 2:
            raise code("refused")
        return renew(self, workload_id, run_id, lease_number)

    monkeypatch.setattr(StewardClient, "renew_lease", refuse_twice)
    monkeypatch.setattr(lease, "RENEWALS_PER_LEASE", 1_000)
    with lease.hold_lease(producer, "run-1", seconds=60, take_over_from=None) as held:
        assert eventually(lambda: len(renewals) > 3 or held._lost is not None)
        assert (held._lost is not None) is is_loss
        renewals.clear()
        earlier = Code.LEASE_LOST(reason="lease_expired")
        assert (held.find_loss(earlier) is not earlier) is is_loss


def test_a_process_that_is_not_visible_in_proc_has_ended_only_if_no_process_has_its_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mine = str(process_identity(os.getpid()))
    boot, namespace, _, _ = mine.split(" ")
    ended = subprocess.Popen(["true"])
    ended.wait()
    monkeypatch.setattr(lease, "process_identity", lambda pid: mine if pid == os.getpid() else None)
    assert not has_ended(f"{boot} {namespace} {os.getppid()} 1")
    assert not has_ended(f"{boot} {namespace} 1 1")  # of another user, so a signal to it is not permitted
    assert not has_ended(f"{boot} {namespace} {'9' * 30} 1")
    assert has_ended(f"{boot} {namespace} {ended.pid} 1")


def test_an_interruption_during_the_release_of_the_lease_or_the_count_of_chunks_does_not_change_the_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise SigtermReceived

    def run(shop: Shop, table: str, rows: Sequence[Row]) -> Outcome:
        with Coordinator(shop.steward) as opened:
            return opened.execute_workload("run-1" + table, lambda _spark, _chunk: table_of(rows), table=table)

    with shop_at(tmp_path) as shop:
        monkeypatch.setattr(StewardClient, "release_lease", interrupt)
        assert isinstance(run(shop, shop.target("good"), ROWS), Committed)
        monkeypatch.setattr(coordinator, "complete_outcome", interrupt)
        assert isinstance(run(shop, shop.target("wrong"), ROWS[1:]), VerificationFailed)
