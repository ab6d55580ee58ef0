"""Kills `pvdm steward restore` at its fault points, repeats it, and publishes again (docs/restore.md)."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from pvdm.model.role import Role
from tests.random_kills.producer import publish
from tests.random_kills.walk import STEWARDS_TABLE, Walk
from tests.random_kills.world import LOG_ORIGIN, World

_RESTORE = ("steward", "restore", "--yes", "--operator", "ruth", "--reason", "the disk failed", "--json")
_NEW_ORIGIN = "steward-one/log-2"


def kill_restore(walk: Walk, points: Sequence[str]) -> list[str]:
    """Lose a publication from the ledger, and kill the restore at each of the points; returns what is wrong then."""
    world = walk.world
    with walk.measured(*points) as found:
        back_up(world)
        work = walk.next_work(STEWARDS_TABLE)
        walk.finish(work, found)
        _return_to_backup(world)
        _kill_and_repeat_restore(walk, points, found)
        again = publish(world.url, str(world.token(Role.PRODUCER)), work)
        if again["code"] != "workload_spent":
            found.append(f"a publication of the lost time was not refused as spent: {again}")
        walk.finish(walk.next_work(STEWARDS_TABLE), found)
    return found


def kill_restore_that_gives_up_entries(walk: Walk, points: Sequence[str]) -> list[str]:
    """Lose an entry of the log and the archive, and kill the restore at each of the points; returns what is wrong."""
    world = walk.world
    with walk.measured(*points) as found:
        walk.finish(walk.next_work(STEWARDS_TABLE), found)
        back_up(world)
        with world.client(Role.OPERATOR) as client:
            client.create_epoch("it will be lost")
        _return_to_backup(world)
        config = world.home / "steward.toml"
        text = config.read_text().replace(f'origin = "{LOG_ORIGIN}"', f'origin = "{_NEW_ORIGIN}"')
        config.write_text(text.replace('archive = "archive"', 'archive = "archive-2"'))
        _kill_and_repeat_restore(walk, points, found, "--lost-origin", LOG_ORIGIN, origin=_NEW_ORIGIN)
        walk.finish(walk.next_work(STEWARDS_TABLE), found)
    return found


def back_up(world: World) -> Path:
    """Back the ledger up while the Steward runs; returns the backup."""
    path = world.folder / "backup.db"
    with (
        contextlib.closing(sqlite3.connect(world.home / "ledger.db")) as ledger,
        contextlib.closing(sqlite3.connect(path)) as backup,
    ):
        ledger.backup(backup)
    return path


def _return_to_backup(world: World) -> None:
    """Kill the Steward, and replace its ledger by the backup."""
    assert world.steward is not None
    world.steward.kill()
    for leftover in world.home.glob("ledger.db-*"):
        leftover.unlink()
    (world.home / "ledger.db").write_bytes((world.folder / "backup.db").read_bytes())


def _kill_and_repeat_restore(
    walk: Walk, points: Sequence[str], found: list[str], *words: str, origin: str = LOG_ORIGIN
) -> None:
    world = walk.world
    command = [str(word) for word in (*_RESTORE, *words, *world.config_option)]
    for point in points:
        world.order.write_text(point)
        arguments = (command, str(world.order))
        log = world.folder / "restore.log"
        walk.await_death(world.starter.start("tests.random_kills.killing:run_command", *arguments, log=log), found)
    epoch = int(world.run_ok(*command).json["new_epoch"])
    world.issue_tokens()
    world.trust_epoch(epoch, origin)
    world.start_steward()
    if origin == LOG_ORIGIN:  # with a new origin, the restore has activated the epoch
        with world.client(Role.OPERATOR) as client:
            client.with_patience().activate_epoch(epoch, "restored")
    walk.start_steward()
