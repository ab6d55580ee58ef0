"""An embedded Steward without running jobs: the benchmark calls each step of a chunk itself, and can time it alone."""

from __future__ import annotations

import contextlib
import gc
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pvdm
from bench.job_services import job_services_of
from pvdm.api.leases import LeaseRequest
from pvdm.api.work import ChunkView, WorkloadView
from pvdm.client import StewardClient
from pvdm.ledger.record.tokens import Grant
from pvdm.model.contract import BoundContract, parse_contract
from pvdm.model.role import Role
from pvdm.model.states import LEASE_MAX_SECONDS
from pvdm.physical.stager import Destination
from pvdm.steward.embedded.embedded import Person
from pvdm.steward.notary import Notary
from pvdm.steward.pipeline.assemble import JobServices
from pvdm.trust.keys.pem import create_key_pair
from pvdm.trust.root import RootRole
from pvdm.verify.job import Tools
from tests.support.steward.shop import Shop

TOKEN_SECONDS = 24 * 3600


@dataclass(frozen=True, slots=True)
class OpenAttempt:
    """A new attempt, and the destination of its rows."""

    workload: WorkloadView
    chunk: ChunkView
    bound: BoundContract
    to: Destination


@dataclass(frozen=True, slots=True)
class BenchSteward:
    """The Steward with its services, a producer's client, and an operator's grant to create tables."""

    shop: Shop
    producer: StewardClient
    operator: Grant
    services: JobServices
    tools: Tools

    @property
    def notary(self) -> Notary:
        """The Steward itself."""
        return self.shop.steward.notary

    def open(self, workload_id: str, table: str, parameters: dict[str, str]) -> OpenAttempt:
        """Open a workload of one chunk, and the first attempt at it."""
        client = self.producer
        workload = client.open_workload(workload_id, table, parameters)
        bound = parse_contract(client.contract(workload.contract_hash)).bind(dict(workload.parameters))
        (chunk,) = client.chunks(workload_id)
        request = LeaseRequest(run_id=secrets.token_hex(16), runner="the benchmark", seconds=LEASE_MAX_SECONDS)
        lease_number = client.acquire_lease(workload_id, request).lease_number
        attempt = client.next_attempt(workload_id, chunk.chunk_id, "measured", lease_number)
        to = Destination(
            client.url,
            table,
            attempt.branch,
            attempt.prefix,
            workload_id,
            chunk.chunk_id,
            attempt.attempt_id,
            client.attempt_token(attempt.attempt_id).token,
            bound.contract.boundary.operation,
            bound.partition,
        )
        return OpenAttempt(workload, chunk, bound, to)


@contextlib.contextmanager
def start_bench_steward(folder: Path) -> Iterator[BenchSteward]:
    """Run a Steward in a folder, with the namespaces `raw` and `sales`; its background jobs are stopped."""
    key = folder / "tom.pem"
    create_key_pair(key)
    tom = Person.from_file("tom", RootRole.OPERATOR, key.with_name("tom.pem.pub"))
    with pvdm.Steward.embedded(folder / "steward", people=[tom]) as steward:
        notary = steward.notary
        notary.jobs.stop()
        shop = Shop(steward, folder, key)
        shop.space("raw")
        shop.space("sales")
        _, operator = notary.access.issue(Role.OPERATOR, domain="*", name="bench", lifetime_seconds=TOKEN_SECONDS)
        with steward.with_token(steward.lend(Role.PRODUCER).token) as producer:
            yield BenchSteward(shop, producer, operator, *job_services_of(notary))


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    gc.collect()  # so that garbage of earlier work does not count
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun
