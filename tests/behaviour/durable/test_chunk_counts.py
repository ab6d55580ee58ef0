"""The last line of a run without success: how many chunks are published, failed and not begun. Without a JVM."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest

from pvdm import Chunk
from pvdm.durable.chunk_counts import ChunkCounts
from tests.support.for_each import for_each
from tests.support.steward.pipeline import BY_DAY
from tests.support.steward.shop import Row, Shop, shop_at, table_of

DAYS: list[Row] = [(1, "2026-11-13", "a"), (2, "2026-11-14", "b"), (3, "2026-11-15", "c")]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with shop_at(tmp_path_factory.mktemp("shop"), rows=DAYS) as made:
        yield made


def copy_rows(_spark: object, chunk: Chunk) -> Any:
    return table_of([row for row in DAYS if chunk.chunk_id == f"day={row[1]}"])


def drop_the_second_day(_spark: object, chunk: Chunk) -> Any:
    return table_of([]) if chunk.chunk_id == "day=2026-11-14" else copy_rows(None, chunk)


def raise_on_the_second_day(_spark: object, chunk: Chunk) -> Any:
    if chunk.chunk_id == "day=2026-11-14":
        raise RuntimeError("no rows today")
    return copy_rows(None, chunk)


@pytest.fixture(autouse=True)
def jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = types.ModuleType("count_jobs")
    for job in (copy_rows, drop_the_second_day, raise_on_the_second_day):
        setattr(module, job.__name__, job)
    monkeypatch.setitem(sys.modules, "count_jobs", module)


def run(shop: Shop, table: str, job: str, *more: str, workload_id: str) -> tuple[int, str]:
    words = ["run", table, "--workload-id", workload_id, "--small", "--job", f"count_jobs:{job}", *more]
    return shop.command(words)


@for_each(
    ("counts", "text"),
    [
        ((3, 1, 1, 0, 0, 0), "1 of 3 chunks is published, 1 failed, 1 was not begun"),
        ((9, 2, 2, 1, 0, 0), "2 of 9 chunks are published, 2 failed, 1 was rolled back, 4 were not begun"),
        ((3, 0, 1, 0, 0, 0), "nothing was published: 1 of 3 chunks failed, 2 were not begun"),
        ((3, 0, 1, 0, 2, 0), "nothing is published yet: 1 of 3 chunks failed, 2 are with the Steward"),
        ((1, 0, 1, 0, 0, 0), "nothing was published: the chunk failed"),
        ((1, 0, 0, 0, 0, 1), "nothing was published: the chunk is left in STAGING"),
    ],
)
def test_the_counts_are_written_as_a_sentence(counts: tuple[int, ...], text: str) -> None:
    total, published, failed, rolled_back, with_steward, staging = counts
    assert str(ChunkCounts(total, published, failed, rolled_back, with_steward, staging)) == text


@pytest.mark.parametrize(
    ("job", "exit_code", "message", "line"),
    [
        (
            "drop_the_second_day",
            3,
            "chunk day=2026-11-14 was not published: the verdict is FAIL: 1 row missing",
            "1 of 3 chunks is published, 1 failed, 1 was not begun",
        ),
        (
            "raise_on_the_second_day",
            4,
            "the job failed and its attempt was rolled back",
            "1 of 3 chunks is published, 1 was rolled back, 1 was not begun",
        ),
    ],
)
def test_an_outcome_after_a_published_chunk_does_not_say_that_nothing_was_published(
    shop: Shop, job: str, exit_code: int, message: str, line: str
) -> None:
    table = shop.target(job, BY_DAY)
    code, output = run(shop, table, job, workload_id=f"{job}-1")
    assert (code, output.splitlines()[-1]) == (exit_code, line)
    assert f"error: {message}" in output
    assert "nothing was published" not in output
    code, output = run(shop, table, job, "--json", workload_id=f"{job}-1")
    document = json.loads(output[output.index("{") :])
    assert (code, document["rows_added"]) == (exit_code, "1")
    assert document["error"]["message"].startswith(message)
    assert document["chunk_counts"]["published"] == document["chunk_counts"]["not_begun"] == 1


def test_an_outcome_without_a_published_chunk_says_that_nothing_was_published(shop: Shop) -> None:
    table = shop.target("nothing", BY_DAY, "atomicity: workload")
    code, output = run(shop, table, "drop_the_second_day", workload_id="nothing-1")
    line = "nothing was published: 1 of 3 chunks failed, 1 is with the Steward, 1 was not begun"
    assert (code, output.splitlines()[-1]) == (3, line)


def test_a_run_of_some_chunks_says_how_many_are_left_and_has_its_own_exit_code(shop: Shop) -> None:
    table = shop.target("some", BY_DAY)
    with shop.client() as client:
        client.open_workload("some-1", table, {})
    words = ["resume", "some-1", "--small", "--job", "count_jobs:copy_rows", "--max-chunks", "1"]
    code, output = shop.command(words)
    assert (code, output.splitlines()[-3:]) == (
        8,
        [
            "SEGMENT_ENDED  some-1 of sales.some",
            "1 chunk was published; 2 are left; run the same command again (segment_ended)",
            "1 of 3 chunks is published, 2 were not begun",
        ],
    )
    code, output = shop.command([*words, "--json"])
    document = json.loads(output[output.index("{") :])
    assert (code, document["outcome"], document["exit_code"]) == (8, "SEGMENT_ENDED", 8)
    assert (document["error"]["reason"], document["error"]["message"]) == (
        "segment_ended",
        "1 chunk was published; 1 is left",
    )
    assert shop.command(words)[0] == 0
