"""Kills a Spark driver at each fault point that it passes, and then runs its workload again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.random_kills.walk import PRODUCER_POINTS, Walk
from tests.random_kills.world import opened_world
from tests.support.spark.session import spark

__all__ = ["spark"]
pytest.importorskip("pvdm_kernel")
pytestmark = pytest.mark.long
# Last words of points that no driver passes: of Spark's own writes and commits, failed staging, and `pvdm publish`.
OTHERS = {"abort", "commit", "file", "publish", "remove", "sync", "temp"}
SPARK_POINTS = tuple(name for name in PRODUCER_POINTS if name.rpartition("_")[2] not in OTHERS)


@pytest.fixture(scope="module")
def walk(spark: object) -> Iterator[Walk]:
    with opened_world("sqlite", loses_power=False) as world:
        made = Walk(world, spark)  # type: ignore[arg-type]
        made.begin()
        yield made


@pytest.mark.parametrize("point", SPARK_POINTS)
def test_a_spark_driver_killed_at_a_point_leaves_nothing_wrong(walk: Walk, point: str) -> None:
    assert walk.kill_producer(point) == []
