"""A starting Steward extends leases by the time in which no Steward served. Without a JVM."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from pvdm.api.leases import HeldLeaseRequest, LeaseRequest
from pvdm.client import StewardClient
from pvdm.errors import ConflictError
from pvdm.ledger.clock import last_served_micros
from pvdm.ledger.work import leases
from pvdm.model.role import Role
from tests.behaviour.durable.test_leases import FIRST, MINUTE, OTHER, SECOND, acquire, line, producer, refusal
from tests.support.steward.notary import opened, stand_at
from tests.support.steward.pipeline import Line

__all__ = ["line", "producer"]


def test_a_live_lease_outlives_a_longer_stop_of_the_steward_and_an_expired_lease_does_not(
    tmp_path: Path,
) -> None:
    with stand_at(tmp_path) as stand:
        grant = stand.grant(Role.PRODUCER, "sales")
        live, expired = stand.staging("live").attempt.workload_id, stand.staging("expired").attempt.workload_id
        request = LeaseRequest(run_id=FIRST, runner="a run")
        stand.notary.leases.acquire(grant, expired, request)
        stand.time.pass_by(2 * MINUTE)
        acquired = stand.notary.leases.acquire(grant, live, request)
        stand.time.pass_by(50 * SECOND)
        stand.notary.close()
        stand.time.pass_by(10 * MINUTE)
        stand.notary = opened(stand.config, stand.time)
        stand.notary.start_work()
        leases = stand.notary.leases
        held = HeldLeaseRequest(run_id=FIRST, lease_number=1)
        stand.time.pass_by(50 * SECOND)
        renewed = leases.renew(grant, live, held)
        assert (renewed.lease_number, renewed.live) == (acquired.lease_number, True)
        assert refusal(lambda: leases.renew(grant, expired, held)) == (ConflictError, "lease_expired")


def extend(line: Line, *, recent_micros: int = 0) -> int:
    """Extend leases as a starting Steward does. Returns when the first lease of the workload expires."""
    notary = line.notary
    notary.ledger.transact(partial(leases.extend, recent_micros=recent_micros), at_micros=notary.clock.now_micros())
    with notary.ledger.read() as unit:
        found = leases.find_newest(unit, "run-1")
    assert found is not None
    return found.expires_micros


def test_a_starting_steward_extends_a_lease_by_the_time_without_a_steward(line: Line, producer: StewardClient) -> None:
    expires = acquire(producer, FIRST).expires_at
    line.served.stand.time.pass_by(50 * SECOND)
    line.notary.mark_time(serving=True)
    line.served.stand.time.pass_by(10 * MINUTE)
    line.notary.mark_time()  # as a command does
    assert [extend(line), extend(line)] == [expires + 10 * MINUTE] * 2


def test_a_service_stores_the_time_of_its_end(line: Line) -> None:
    line.served.stand.time.pass_by(MINUTE)
    line.served.server.stop()
    now = line.notary.clock.now_micros()
    line.notary.mark_time()  # as a command does
    with line.notary.ledger.read() as unit:
        assert last_served_micros(unit) == now


def test_a_starting_steward_extends_no_lease_while_another_may_serve(line: Line, producer: StewardClient) -> None:
    expires = acquire(producer, FIRST).expires_at
    line.served.stand.time.pass_by(2 * MINUTE)
    assert extend(line, recent_micros=3 * MINUTE) == expires
    line.served.stand.time.pass_by(MINUTE)
    assert extend(line, recent_micros=3 * MINUTE) == expires + 3 * MINUTE


def test_a_command_that_opens_the_ledger_extends_no_lease(tmp_path: Path) -> None:
    with stand_at(tmp_path) as stand:
        grant, workload_id = stand.grant(Role.PRODUCER, "sales"), stand.staging("dead").attempt.workload_id
        stand.notary.leases.acquire(grant, workload_id, LeaseRequest(run_id=FIRST, runner="a run"))
        for _ in range(2):
            stand.time.pass_by(50 * SECOND)
            stand.reopen()
        taken = stand.notary.leases.acquire(grant, workload_id, LeaseRequest(run_id=OTHER, runner="another run"))
        assert taken.lease_number == 2
