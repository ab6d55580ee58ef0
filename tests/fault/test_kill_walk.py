"""SIGKILL of the owner of each fault point at this point: afterwards nothing is lost, doubled, unproved or left.

`make test-kill` runs this module alone. The figures are in build/kill.json.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pvdm.model.role import Role
from tests.random_kills.restoring import kill_restore, kill_restore_that_gives_up_entries
from tests.random_kills.walk import PRODUCER_POINTS, Walk
from tests.random_kills.world import contract, opened_world
from tests.support.fault import POINTS
from tests.support.ledger.databases import memory_folder
from tests.support.steward.shop import shop_at

pytest.importorskip("pvdm_kernel")

NEW_EPOCH_POINTS = ("keys.after_make", "keys.disk.after_rename", "keys.disk.after_temp", "steward.after_epoch_step")
OVERRIDE_POINTS = ("stores.after_file",)
RESTORE_POINTS = tuple(name for name in POINTS if name.startswith("steward.restore."))
SEAL_POINTS = ("lake.seal.after_policy",)
UPSTREAM_POINTS = tuple(name for name in POINTS if name.startswith("upstream."))
OTHERS = {*NEW_EPOCH_POINTS, *OVERRIDE_POINTS, *PRODUCER_POINTS, *RESTORE_POINTS, *SEAL_POINTS, *UPSTREAM_POINTS}
STEWARD_POINTS = tuple(name for name in POINTS if name not in OTHERS)
UPSTREAM_TABLE = "there.orders"
# A point that the Steward reaches only after a crash at another one.
EARLIER_POINTS = {"upstream.before_fence": ("upstream.after_announce",)}


@pytest.fixture(scope="module")
def walk() -> Iterator[Walk]:
    """The walk in a world that has a table of an upstream, the catalog of another Steward."""
    with memory_folder() as folder, shop_at(folder) as upstream:
        upstream.make("sales.orders")
        token = folder / "upstream.token"
        token.write_text(upstream.steward.token_for(Role.OPERATOR).text)
        token.chmod(0o600)
        lines = (
            '[[catalog.upstreams]]\nkind = "rest"\nname = "up"\nnamespace = ["there"]\nthere = ["sales"]\n'
            f'uri = "{upstream.steward.url}/catalog"\ntoken_file = "{token}"\n'
        )
        with opened_world("sqlite", loses_power=False, upstream=lines) as world:
            made = Walk(world)
            made.begin()
            try:
                yield made
            finally:
                made.write_summary()


@pytest.mark.parametrize("point", PRODUCER_POINTS)
def test_a_producer_killed_at_a_point_leaves_nothing_wrong(walk: Walk, point: str) -> None:
    assert walk.kill_producer(point) == []


@pytest.mark.parametrize("point", STEWARD_POINTS)
def test_a_steward_killed_at_a_point_leaves_nothing_wrong(walk: Walk, point: str) -> None:
    assert walk.kill_steward(point) == []


@pytest.mark.parametrize("point", NEW_EPOCH_POINTS)
def test_a_steward_killed_while_it_creates_keys_leaves_nothing_wrong(walk: Walk, point: str) -> None:
    assert walk.kill_steward_at_new_epoch(point) == []


@pytest.mark.parametrize("point", OVERRIDE_POINTS)
def test_a_steward_killed_while_it_publishes_an_override_leaves_nothing_wrong(walk: Walk, point: str) -> None:
    assert walk.kill_steward_at_override(point) == []


@pytest.fixture(scope="module")
def upstream_walk(walk: Walk) -> Walk:
    """The walk, with the upstream's table protected."""
    walk.world.make_namespace("there")
    walk.world.protect(UPSTREAM_TABLE, contract(UPSTREAM_TABLE))
    return walk


@pytest.mark.parametrize("point", UPSTREAM_POINTS)
def test_a_steward_killed_while_it_publishes_to_an_upstream_leaves_nothing_wrong(
    upstream_walk: Walk, point: str
) -> None:
    assert upstream_walk.kill_steward(*EARLIER_POINTS.get(point, ()), point, table=UPSTREAM_TABLE) == []


def test_a_restore_killed_at_its_points_leaves_nothing_wrong(walk: Walk) -> None:
    assert kill_restore(walk, ("steward.restore.after_refill", "steward.restore.after_epoch")) == []


def test_a_restore_that_gives_up_entries_killed_at_its_points_leaves_nothing_wrong(walk: Walk) -> None:
    points = ("steward.restore.before_swap", "steward.restore.after_keep")
    assert kill_restore_that_gives_up_entries(walk, points) == []
