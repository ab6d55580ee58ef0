"""Attempts that tests open by hand, under a lease of their own."""

from __future__ import annotations

import hashlib

from pvdm.api.leases import LeaseRequest, LeaseView
from pvdm.api.work import AttemptView
from pvdm.client import StewardClient
from pvdm.model.states import LEASE_MAX_SECONDS


def run_id_of(workload_id: str) -> str:
    """The id under which tests work on a workload: always the same, so that a repeated request renews the lease."""
    return hashlib.sha256(workload_id.encode()).hexdigest()[:32]


def lease(client: StewardClient, workload_id: str) -> LeaseView:
    """The lease of the test's own run of the workload, acquired or renewed."""
    request = LeaseRequest(run_id=run_id_of(workload_id), runner="a test", seconds=LEASE_MAX_SECONDS)
    return client.acquire_lease(workload_id, request)


def open_attempt(client: StewardClient, workload_id: str, chunk_id: str, reason: str) -> AttemptView:
    """Open an attempt at a chunk under the test's lease."""
    return client.next_attempt(workload_id, chunk_id, reason, lease(client, workload_id).lease_number)


def abort_attempt(client: StewardClient, attempt: AttemptView, reason: str) -> AttemptView:
    """Abort an attempt under the test's lease."""
    return client.abort_attempt(attempt.attempt_id, reason, lease(client, attempt.workload_id).lease_number)


def release(client: StewardClient, workload_id: str) -> None:
    """End the test's lease, as at the end of a run."""
    client.release_lease(workload_id, run_id_of(workload_id), lease(client, workload_id).lease_number)
