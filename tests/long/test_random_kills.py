"""Two hundred rounds of kills, stops, power cuts and database restarts at random times: nothing lost, doubled, stuck.

`PVDM_RANDOM_KILLS_SEED=17 pytest -s tests/long/test_random_kills.py` plays the round of one seed again, and
`PVDM_RANDOM_KILLS_ROUNDS=1000` more rounds than two hundred. The figures are in build/random_kills.json.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest

from tests.random_kills.rounds import RANDOM_KILLS, ROUNDS, Worlds, require_clean
from tests.random_kills.schedule import round_of

pytestmark = pytest.mark.long


def _seeds() -> list[int]:
    one = os.environ.get(RANDOM_KILLS.seed_variable)
    return [int(one)] if one else list(range(1, int(os.environ.get(ROUNDS, "200")) + 1))


@pytest.fixture(scope="module")
def worlds() -> Iterator[Worlds]:
    with contextlib.ExitStack() as stack:
        yield Worlds(stack)


@pytest.mark.parametrize("seed", _seeds())
def test_after_kills_at_random_times_nothing_is_lost_doubled_or_stuck(worlds: Worlds, seed: int) -> None:
    plan = round_of(seed)
    require_clean(worlds.get(plan.database), plan)
