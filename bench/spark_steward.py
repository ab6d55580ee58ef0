"""An embedded Steward whose jobs stand still: each step of a chunk's way is taken by hand, and can be timed alone."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pvdm
from bench.spark_desks import workers_of
from pvdm.api.work import ChunkView, WorkloadView
from pvdm.client import StewardClient
from pvdm.ledger.record.tokens import Grant
from pvdm.model.contract import BoundContract, parse_contract
from pvdm.model.role import Role
from pvdm.physical.stager import Destination
from pvdm.steward.embedded.embedded import Person
from pvdm.steward.notary import Notary
from pvdm.steward.pipeline.assemble import PipelineWorkers
from pvdm.trust.keys.operator import create_key_pair
from pvdm.trust.root import RootRole
from pvdm.verify.job import Tools
from tests.support.steward.shop import Shop

TOKEN_SECONDS = 24 * 3600


@dataclass(frozen=True, slots=True)
class Opened:
    """An attempt that waits for its rows."""

    workload: WorkloadView
    chunk: ChunkView
    bound: BoundContract
    to: Destination


@dataclass(frozen=True, slots=True)
class House:
    """The Steward, an operator's hand for its tables, and the producer who asks it."""

    shop: Shop
    producer: StewardClient
    operator: Grant
    desks: PipelineWorkers
    tools: Tools

    @property
    def notary(self) -> Notary:
        """The Steward itself."""
        return self.shop.steward.notary

    def open(self, workload_id: str, table: str, parameters: dict[str, str]) -> Opened:
        """A workload of one chunk, and the first attempt at it."""
        client = self.producer
        workload = client.open_workload(workload_id, table, parameters)
        bound = parse_contract(client.contract(workload.contract_hash)).bind(dict(workload.parameters))
        (chunk,) = client.chunks(workload_id)
        attempt = client.next_attempt(workload_id, chunk.chunk_id, "measured")
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
        return Opened(workload, chunk, bound, to)


@contextlib.contextmanager
def house_at(folder: Path) -> Iterator[House]:
    """A Steward in a folder, with the namespaces `raw` and `sales`, and nothing that works behind its answers."""
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
            yield House(shop, producer, operator, *workers_of(notary))


def seconds(work: Callable[[], object]) -> float:
    """What one call took, by the wall."""
    gc.collect()  # what others left is not this one's to clear away
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun
