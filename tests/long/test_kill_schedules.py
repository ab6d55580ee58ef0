"""A thousand random schedules: several kills, at random times and at fault points, during two workloads.

`PVDM_KILL_SEED=17 pytest -s tests/long/test_kill_schedules.py` plays the schedule of one seed again. The figures are in
build/kill_schedules.json. `PVDM_KILL_SCHEDULES` is the number of schedules.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest

from tests.random_kills.rounds import Series, Worlds, require_clean
from tests.random_kills.schedule import kills_of

pytestmark = pytest.mark.long
SERIES = Series("kill_schedules", "PVDM_KILL_SEED", "tests/long/test_kill_schedules.py")


def _list_seeds() -> list[int]:
    one = os.environ.get(SERIES.seed_variable)
    return [int(one)] if one else list(range(1, int(os.environ.get("PVDM_KILL_SCHEDULES", "1000")) + 1))


@pytest.fixture(scope="module")
def worlds() -> Iterator[Worlds]:
    with contextlib.ExitStack() as stack:
        yield Worlds(stack, loses_power=False)


@pytest.mark.parametrize("seed", _list_seeds())
def test_after_several_kills_during_two_workloads_nothing_is_lost_doubled_or_stuck(worlds: Worlds, seed: int) -> None:
    plan = kills_of(seed)
    require_clean(worlds.get(plan.database), plan, SERIES)
