"""Opens and aborts attempts without a coordinator, under a lease that the test holds."""

from __future__ import annotations

import hashlib

from pvdm.api.leases import LeaseRequest, LeaseView
from pvdm.api.work import AttemptView
from pvdm.client import StewardClient
from pvdm.model.states import LEASE_MAX_SECONDS


def run_id_of(workload_id: str) -> str:
    """The run id of tests for a workload: always the same id, so that a repeated request renews the lease."""
    return hashlib.sha256(workload_id.encode()).hexdigest()[:32]


def lease(client: StewardClient, workload_id: str) -> LeaseView:
    """Acquire or renew the test's lease of the workload."""
    request = LeaseRequest(run_id=run_id_of(workload_id), runner="a test", seconds=LEASE_MAX_SECONDS)
    return client.acquire_lease(workload_id, request)


def open_attempt(client: StewardClient, workload_id: str, chunk_id: str, reason: str) -> AttemptView:
    """Open an attempt at a chunk under the test's lease."""
    return client.next_attempt(workload_id, chunk_id, reason, lease(client, workload_id).lease_number)


def abort_attempt(client: StewardClient, attempt: AttemptView, reason: str) -> AttemptView:
    """Abort an attempt under the test's lease."""
    return client.abort_attempt(attempt.attempt_id, reason, lease(client, attempt.workload_id).lease_number)


def release(client: StewardClient, workload_id: str) -> None:
    """Release the test's lease, as a run does at its end."""
    client.release_lease(workload_id, run_id_of(workload_id), lease(client, workload_id).lease_number)
