"""Kills the owner of each fault point at this point. Afterwards all conditions of `conditions.py` must hold.

`make test-kill` runs this module alone. The figures are in build/kill.json.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing

import pytest
from pyiceberg.catalog.rest import RestCatalog

from pvdm.lake.paths import parse_location
from pvdm.model.role import Role
from tests.random_kills.conditions import await_conditions, find_unproved, find_violations
from tests.random_kills.restoring import back_up, kill_restore, kill_restore_that_gives_up_entries
from tests.random_kills.walk import PRODUCER_POINTS, PRODUCERS_TABLE, SETTLE_SECONDS, STEWARDS_TABLE, Walk
from tests.random_kills.world import contract, opened_world
from tests.support.fault import POINTS
from tests.support.ledger.databases import memory_folder
from tests.support.steward.leases import open_attempt
from tests.support.steward.shop import shop_at
from tests.support.stores.s3_server import S3Server, s3_server

__all__ = ["s3_server"]

pytest.importorskip("pvdm_kernel")
# The warnings are PyIceberg's own.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:pyiceberg")

NEW_EPOCH_POINTS = ("keys.after_make", "keys.disk.after_rename", "keys.disk.after_temp", "steward.after_epoch_step")
OVERRIDE_POINTS = ("stores.after_file",)
RESTORE_POINTS = tuple(name for name in POINTS if name.startswith("steward.restore."))
SEAL_POINTS = ("lake.seal.after_policy",)
UPSTREAM_POINTS = tuple(name for name in POINTS if name.startswith("upstream."))
OTHERS = {*NEW_EPOCH_POINTS, *OVERRIDE_POINTS, *PRODUCER_POINTS, *RESTORE_POINTS, *SEAL_POINTS, *UPSTREAM_POINTS}
STEWARD_POINTS = tuple(name for name in POINTS if name not in OTHERS)
LAST_DAY = "2026-10-30"  # the last day of the source; no workload of a kill has this day
UPSTREAM_TABLE, SEALED_TABLE = "there.orders", "sales.sealed"
UPSTREAM = """
[[catalog.upstreams]]
kind = "rest"
name = "up"
namespace = ["there"]
there = ["sales"]
places = ["{folder}"]
uri = "{url}/catalog"
token_file = "{token}"
"""
# For points that the Steward reaches only after a crash: where it has to crash first.
EARLIER_POINTS = {"upstream.before_fence": ("upstream.after_announce",)}


@pytest.fixture(scope="module")
def walk(s3_server: S3Server) -> Iterator[Walk]:
    """A walk in a world with an object store, and with an upstream: the catalog of another Steward."""
    with memory_folder() as folder, shop_at(folder) as upstream, pytest.MonkeyPatch.context() as patch:
        upstream.make("sales.orders")
        token = folder / "upstream.token"
        token.write_text(upstream.steward.token_for(Role.OPERATOR).text)
        token.chmod(0o600)
        s3_server.lend_to(patch)
        catalog = UPSTREAM.format(url=upstream.steward.url, token=token, folder=folder) + s3_server.config_lines()
        with opened_world("sqlite", loses_power=False, catalog=catalog) as world:
            world.stores = s3_server.stores
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


@pytest.mark.parametrize("point", SEAL_POINTS)
def test_a_steward_killed_while_it_seals_a_folder_leaves_nothing_wrong(
    walk: Walk, s3_server: S3Server, point: str
) -> None:
    walk.world.make_table(SEALED_TABLE, location=f"{s3_server.bucket().root}/sealed")
    walk.world.protect(SEALED_TABLE, contract(SEALED_TABLE, "storage: sealed\n"))
    assert walk.kill_steward(point, table=SEALED_TABLE) == []


def test_a_restore_killed_at_its_points_leaves_nothing_wrong(walk: Walk) -> None:
    assert kill_restore(walk, ("steward.restore.after_refill", "steward.restore.after_epoch")) == []


def test_a_restore_that_accepts_lost_entries_killed_at_its_points_leaves_nothing_wrong(walk: Walk) -> None:
    points = ("steward.restore.before_swap", "steward.restore.after_keep")
    assert kill_restore_that_gives_up_entries(walk, points) == []


def test_pyiceberg_reads_the_intended_rows(walk: Walk) -> None:
    walk.finish(walk.next_work(STEWARDS_TABLE), [])
    token = walk.world.token("consumer").read_text().strip()
    catalog = RestCatalog("lake", uri=f"{walk.world.url}/catalog", token=token)
    for table in {PRODUCERS_TABLE, STEWARDS_TABLE} & walk.intended.keys():  # not at the upstream or on S3
        rows = catalog.load_table(table).scan().to_arrow().to_pylist()
        seen = Counter((row["id"], row["day"].isoformat(), row["town"]) for row in rows)
        assert seen == Counter(walk.intended[table])


def test_a_wrong_row_and_a_leftover_file_branch_or_nonce_are_reported(walk: Walk) -> None:
    world = walk.world
    work = walk.next_work(STEWARDS_TABLE)
    walk.finish(work, [])
    rows = walk.intended[work.table]
    assert find_violations(world, {work.table: rows}) == []
    missing, doubled = find_violations(world, {work.table: [*rows[1:], (-1, work.day, "Ulm")]})
    assert (missing, doubled) == (
        f"{work.table} lacks the row {(-1, work.day, 'Ulm')}",
        f"{work.table} has the row {rows[0]} 1 times",
    )
    stray = parse_location(world.metadata(work.table).location).local / "pvdm" / "stray"
    stray.write_text("rows")
    assert find_violations(world, {work.table: rows}) == [f"file://{stray} of {work.table} is named by nothing"]
    stray.unlink()
    with world.client(Role.PRODUCER) as client:
        client.open_workload("left", work.table, {"day": LAST_DAY})
        attempt = open_attempt(client, "left", "all", "the run dies")
        branch, nonce = find_violations(world, {work.table: rows})
        assert branch == f"{work.table} has the branch {attempt.branch}"
        assert nonce.endswith(f" of {attempt.attempt_id} is RESERVED")
    with world.client(Role.OPERATOR) as client:
        client.abandon_workload("left", "for the next test")
    assert await_conditions(world, {work.table: rows}, seconds=SETTLE_SECONDS) == []


def test_a_visible_snapshot_without_a_pass_proof_or_receipt_is_reported(walk: Walk) -> None:
    world, work = walk.world, walk.next_work(STEWARDS_TABLE)
    walk.finish(work, [])
    metadata, copy = world.metadata(work.table), back_up(world)
    found = f"the snapshot {metadata.current_snapshot_id} of {work.table} has no"
    with closing(sqlite3.connect(copy)) as ledger:
        for (name,) in ledger.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            ledger.execute(f"DROP TRIGGER {name}")
        ledger.execute("UPDATE proofs SET verdict = 'FAIL' WHERE workload_id = ?", (work.workload_id,))
        ledger.commit()
        (unproved,) = find_unproved(f"sqlite:///{copy}", metadata, work.table)
        assert unproved.startswith(f"{found} PASS proof ")
        ledger.execute("DELETE FROM receipts WHERE workload_id = ?", (work.workload_id,))
        ledger.commit()
    assert find_unproved(f"sqlite:///{copy}", metadata, work.table) == [f"{found} receipt"]


def test_every_point_was_walked_and_no_kill_violated_a_condition(walk: Walk) -> None:
    """Needs the kills of the tests above. This test fails if it runs alone."""
    summary = walk.summary()
    assert (summary["not_walked"], summary["violations"]) == ([], 0)
    assert await_conditions(walk.world, walk.intended, seconds=SETTLE_SECONDS) == []
