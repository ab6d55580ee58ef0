"""Rounds of kills, power cuts and database restarts at random times (`make test-long`), and tests of their check."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from pvdm.errors import PvdmError
from tests.random_kills.check import Findings, check_rows
from tests.random_kills.conditions import visible_rows
from tests.random_kills.disk import ImageDisk, short_folder, why_no_image
from tests.random_kills.rounds import Worlds, require_clean
from tests.random_kills.schedule import Kind, Work, kills_of, round_of, small_round
from tests.random_kills.world import SERVE, World
from tests.support.services import require


@pytest.fixture(scope="module")
def worlds() -> Iterator[Worlds]:
    with contextlib.ExitStack() as stack:
        yield Worlds(stack)


def test_a_round_is_a_pure_function_of_its_seed() -> None:
    assert [round_of(seed) for seed in range(50)] == [round_of(seed) for seed in range(50)]
    assert len({round_of(seed).faults for seed in range(50)}) == 50
    assert {fault.kind for seed in range(50) for fault in round_of(seed).faults} == set(Kind) - {Kind.KILL_AT_POINT}


def test_a_schedule_of_kills_is_a_pure_function_of_its_seed_with_two_workloads_and_several_kills() -> None:
    schedules = [kills_of(seed) for seed in range(50)]
    assert schedules == [kills_of(seed) for seed in range(50)]
    assert {len(each.works) for each in schedules} == {2}
    assert {len(each.faults) for each in schedules} == {2, 3, 4, 5, 6}
    assert {each.database for each in schedules} == {"sqlite", "postgresql"}


@pytest.mark.parametrize(
    ("seed", "database", "kind"),
    [
        # The test below cuts the power too.
        pytest.param(1, "sqlite", Kind.POWER_CUT, marks=pytest.mark.long),
        pytest.param(2, "sqlite", Kind.KILL_STEWARD, marks=pytest.mark.long),  # other modules kill it point by point
        # test_nonce_race.py kills PostgreSQL while nonces are reserved.
        pytest.param(3, "postgresql", Kind.RESTART_POSTGRESQL, marks=pytest.mark.long),
    ],
)
def test_after_a_fault_at_a_random_time_nothing_is_lost_doubled_or_stuck(
    worlds: Worlds, seed: int, database: str, kind: Kind
) -> None:
    require_clean(worlds.get(database), small_round(seed, database, kind))


def test_a_power_cut_finds_what_a_steward_acknowledged_without_a_sync(worlds: Worlds, tmp_path: Path) -> None:
    """The same cut after the same acknowledgement, with and without syncs: only the first Steward has lost nothing."""
    world, work = worlds.get("sqlite"), Work("run-1", "sales.open", "2026-09-02")
    require(world.disk.can_lose_power, why_no_image() or "")
    has_rows = {}
    for syncs in (True, False):
        world.begin()
        world.serve = SERVE if syncs else "tests.random_kills.producer:serve_without_sync"
        try:
            assert world.wait_until_ready() is None
            producer = world.start_producer((work,), tmp_path / f"{syncs}.notes")
            assert producer.has_ended(60)
            assert "COMMITTED" in (tmp_path / f"{syncs}.notes").read_text()
            world.lose_power([])
            has_rows[syncs] = _has_rows(world, work)
        finally:
            world.serve = SERVE
            world.end()
    assert has_rows == {True: True, False: False}


def _has_rows(world: World, work: Work) -> bool:
    """Whether a consumer still sees the rows. A Steward that does not start, or cannot read the table, shows none."""
    if world.wait_until_ready(5) is not None:
        return False
    try:
        return set(visible_rows(world, work.table)) == set(work.rows)
    except (PvdmError, OSError, pa.ArrowException):
        return False


def test_a_power_cut_loses_content_that_was_not_synced_and_keeps_synced_content() -> None:
    require(why_no_image() is None, why_no_image() or "")
    with short_folder() as folder, contextlib.closing(ImageDisk(folder)) as disk:
        _write(disk.place / "synced", sync=True)
        _write(disk.place / "unsynced", sync=False)
        disk.cut()
        disk.unmount()
        disk.mount()
        assert (disk.place / "synced").read_text() == "rows"
        left = disk.place / "unsynced"
        assert not left.exists() or left.read_text() == ""


def _write(path: Path, *, sync: bool) -> None:
    with path.open("w") as file:
        file.write("rows")
        file.flush()
        if sync:
            os.fsync(file.fileno())
    if sync:
        folder = os.open(path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)


def test_the_check_reports_a_missing_row_as_lost_and_a_row_seen_twice_as_doubled() -> None:
    work, found = Work("run-1", "sales.open", "2026-09-02"), Findings()
    first, *others = work.rows
    check_rows(Counter(dict.fromkeys(others, 1)) + Counter(others[:1]), work, found, "acknowledged")
    assert found.lost == [f"acknowledged run-1: {first} is not in sales.open"]
    assert found.doubled == [f"acknowledged run-1: {others[0]} is 2 times in sales.open"]
