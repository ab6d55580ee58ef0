"""Chunks that are published together: a run ends when the gate refuses any of them, whichever it waits for."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

from pvdm import Chunk, Committed, Coordinator, VerificationFailed
from tests.support.steward.shop import ROWS, Shop, contract, shop_at, table_of

TABLE = "sales.together"
ORDERS = (*ROWS, (6, "2026-11-15", "Kiel"))
SLEEPS_MAX = 100


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with shop_at(tmp_path_factory.mktemp("shop"), ORDERS) as made:
        made.make(TABLE)
        made.protect(contract(TABLE, "atomicity: workload", "chunking:\n  by: partition\n  columns: [day]"))
        yield made


def build_right(_spark: object, chunk: Chunk) -> pa.Table:
    return table_of([row for row in ORDERS if chunk.chunk_id == f"day={row[1]}"])


def test_a_run_ends_when_the_gate_refuses_one_of_the_chunks_that_it_waits_for(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a power cut that lost manifest lists: those of the second chunk are empty when the third is staged."""
    real, slept = time.sleep, [0]

    def sleep(seconds: float) -> None:
        slept[0] += seconds == 0.2  # how long a run waits between two polls
        assert slept[0] < SLEEPS_MAX, "the run waits for ever"
        real(seconds)

    def build(spark: object, chunk: Chunk) -> pa.Table:
        if chunk.chunk_id == "day=2026-11-15":
            empty_lists(shop, "day=2026-11-14")
        return build_right(spark, chunk)

    monkeypatch.setattr("pvdm.durable.run.time.sleep", sleep)
    with shop.client() as client, Coordinator(client) as coordinator:
        refused = coordinator.execute_workload("together-1", build, table=TABLE)
        assert isinstance(refused, VerificationFailed), refused
        assert refused.error.details["chunk"] == "day=2026-11-14"
        repaired = coordinator.repair("together-1", build_right, reason="the lists were lost")
    assert isinstance(repaired, Committed), repaired
    assert shop.visible_rows(TABLE) == sorted(ORDERS, key=repr)


def empty_lists(shop: Shop, chunk_id: str) -> None:
    with shop.client() as client:
        (attempt,) = (each for each in client.workload("together-1").attempts if each.chunk_id == chunk_id)
    lists = [path for path in shop.staged_files(TABLE) if attempt.attempt_id in path.parts and path.suffix == ".avro"]
    assert lists
    for path in lists:
        path.write_bytes(b"")
