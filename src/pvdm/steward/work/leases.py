"""Gives runs the leases of their workloads: only the run with the lease may stage a workload's chunks."""

from __future__ import annotations

from dataclasses import dataclass

from pvdm.api import leases as api
from pvdm.ledger import Ledger, Unit
from pvdm.ledger.clock import LedgerClock
from pvdm.ledger.record.tokens import Grant
from pvdm.ledger.work import leases
from pvdm.ledger.work.leases import Lease, Runner
from pvdm.steward.access import refuse_attempt_token
from pvdm.steward.work.notices import Notices
from pvdm.steward.work.opened import get_workload


@dataclass(eq=False)
class Leases:
    """Acquires, renews and releases leases for producers of the workload's domain, by the ledger's clock."""

    ledger: Ledger
    clock: LedgerClock
    notices: Notices

    def acquire(self, grant: Grant, workload_id: str, request: api.LeaseRequest) -> api.LeaseView:
        """Acquire the lease of an open workload. Raises `workload_leased` while another run holds the lease."""
        refuse_attempt_token(grant)
        runner = Runner(request.run_id, grant.name, request.runner, request.process)

        def work(unit: Unit) -> Lease:
            get_workload(unit, grant, workload_id)
            seconds, take_over_from = request.seconds, request.take_over_from
            lease = leases.acquire(unit, workload_id, runner, seconds=seconds, take_over_from=take_over_from)
            self.notices.add_crash_loop(unit, lease)
            return lease

        now = self.clock.now_micros()
        return lease_view(self.ledger.transact(work, at_micros=now), now)

    def renew(self, grant: Grant, workload_id: str, held: api.HeldLeaseRequest) -> api.LeaseView:
        """Renew the lease that the run holds. Raises `lease_lost` if the run does not hold it any more."""
        refuse_attempt_token(grant)

        def work(unit: Unit) -> Lease:
            get_workload(unit, grant, workload_id)
            return leases.renew(unit, workload_id, held.run_id, held.lease_number)

        now = self.clock.now_micros()
        return lease_view(self.ledger.transact(work, at_micros=now), now)

    def release(self, grant: Grant, workload_id: str, held: api.HeldLeaseRequest) -> api.LeaseView:
        """End the run's lease, so that another run need not wait. Returns the workload's newest lease."""
        refuse_attempt_token(grant)

        def work(unit: Unit) -> Lease:
            get_workload(unit, grant, workload_id)
            return leases.release(unit, workload_id, held.run_id, held.lease_number)

        now = self.clock.now_micros()
        return lease_view(self.ledger.transact(work, at_micros=now), now)


def lease_view(lease: Lease, now_micros: int) -> api.LeaseView:
    """The lease as responses show it."""
    return api.LeaseView(
        lease_number=lease.lease_number,
        holder=lease.holder,
        runner=lease.runner,
        live=lease.is_live(now_micros),
        expires_at=lease.expires_micros,
        seconds=lease.seconds,
    )
