"""Requests and responses about leases: the right of one run to work on a workload."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from pydantic import Field

from pvdm.api.base import PLAIN, Count, Flag, Micros, RandomHex, RequestModel, ResponseModel
from pvdm.model.fields import LONG_MAX
from pvdm.model.states import LEASE_MAX_SECONDS, LEASE_MIN_SECONDS, LEASE_SECONDS

RUNNER_MAX_CHARACTERS: Final = 256

LeaseNumber: TypeAlias = Annotated[int, Field(ge=1, le=LONG_MAX)]


class LeaseRequest(RequestModel):
    """The request of a run for the lease of a workload. If the run `run_id` holds the lease, the lease is renewed.

    `runner` names the run's process and host. `process` identifies the process on its host, so that a later run on the
    same host can find out that the process has ended. `take_over_from` is the number of another run's lease, which the
    request ends. The request ends no other lease, so it may be repeated.
    """

    run_id: RandomHex
    runner: Annotated[str, Field(min_length=1, max_length=RUNNER_MAX_CHARACTERS, pattern=PLAIN)]
    process: Annotated[str, Field(min_length=1, max_length=RUNNER_MAX_CHARACTERS, pattern=PLAIN)] | None = None
    seconds: Annotated[int, Field(ge=LEASE_MIN_SECONDS, le=LEASE_MAX_SECONDS)] = LEASE_SECONDS
    take_over_from: LeaseNumber | None = None


class HeldLeaseRequest(RequestModel):
    """A lease that a run holds: the run's id, and the lease's number."""

    run_id: RandomHex
    lease_number: LeaseNumber


class LeaseView(ResponseModel):
    """The right of one run to work on a workload, until `expires_at`. `lease_number` grows with each new lease.

    `holder` is the name of the run's token, `runner` its process and host. `seconds` is the time that a renewal gives.
    """

    lease_number: Count
    holder: str
    runner: str
    live: Flag
    expires_at: Micros
    seconds: Count
