"""Which segments make progress, and after which outcomes a call is repeated. Without a JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pyarrow as pa
import pytest

from pvdm import Chunk, Coordinator, Outcome
from pvdm.durable.progress import FAILURES_MAX, Progress, may_be_repeated, may_continue, waits_for_steward
from pvdm.model.role import Role
from pvdm.model.states import AttemptState
from tests.support.steward.http import bearer
from tests.support.steward.pipeline import BY_DAY
from tests.support.steward.shop import ROWS, Shop, shop_at, table_of

Job = Callable[[object, Chunk], pa.Table]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with shop_at(tmp_path_factory.mktemp("shop")) as made:
        yield made


def run(shop: Shop, table: str, job: Job, **settings: Any) -> Outcome:
    with Coordinator(shop.steward, **settings) as coordinator:
        return coordinator.execute_workload("run-1" + table, job, table=table)


def run_segments(shop: Shop, table: str, job: Job, count: int, **settings: Any) -> Progress:
    """Run `count` segments, and count the segments without progress as a supervisor does."""
    progress = Progress(0)
    for _ in range(count):
        outcome = run(shop, table, job, **settings)
        with shop.client() as client:
            handed_in = client.workload("run-1" + table, look_up_source=False).handed_in
        progress.note(handed_in, waits=waits_for_steward(outcome))
    return progress


def test_a_crash_loop_is_found_although_a_proved_chunk_waits_for_other_chunks(shop: Shop) -> None:
    table = shop.target("together", BY_DAY, "atomicity: workload")

    def fail_second(_spark: object, chunk: Chunk) -> pa.Table:
        if chunk.chunk_id == "day=2026-11-14":
            raise RuntimeError("no time")
        return table_of(ROWS[:2])

    assert run_segments(shop, table, fail_second, FAILURES_MAX + 1).failures == FAILURES_MAX
    with shop.client() as client:
        (waiting,) = (each for each in client.workload("run-1" + table).attempts if each.waiting)
    assert waiting.state is AttemptState.COMMITTING
    token = shop.steward.token_for(Role.AUDITOR).text
    metrics = httpx.get(f"{shop.steward.url}/metrics", headers=bearer(token)).text
    (line,) = (each for each in metrics.splitlines() if each.startswith("pvdm_steward_crash_loops{"))
    assert 'product="together"' in line


def test_segments_whose_attempts_get_a_fail_are_no_crash_loop(shop: Shop) -> None:
    count = FAILURES_MAX + 1
    table = shop.target("failing", f"governance:\n  attempts: {count + 1}\n  repair: {{automatic: {count}}}")
    progress = run_segments(shop, table, lambda _spark, _chunk: table_of(ROWS[1:]), count, max_chunks=1)
    assert (progress.failures, progress.handed_in) == (0, count)


@pytest.mark.parametrize("staged", [False, True])
def test_a_scheduler_repeats_an_interrupted_call_but_a_supervisor_ends(shop: Shop, *, staged: bool) -> None:
    def stop(_spark: object, _chunk: Chunk) -> pa.Table:
        raise KeyboardInterrupt

    def interrupt(_step: object) -> None:
        raise KeyboardInterrupt

    table = shop.target(f"interrupted_{staged}".lower())
    outcome = run(shop, table, stop) if staged else run(shop, table, stop, watch=interrupt)
    assert outcome.name == "ROLLED_BACK"
    assert (may_be_repeated(outcome), may_continue(outcome)) == (True, False)
