"""Plays rounds of random kills, and checks and counts each; the sums of a series go to build/<series>.json."""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.random_kills.check import Findings, check_round
from tests.random_kills.disk import why_no_image
from tests.random_kills.play import Play, Played
from tests.random_kills.schedule import Round
from tests.random_kills.world import World, opened_world
from tests.support.servers.starter import ROOT
from tests.support.services import require

ROUNDS = "PVDM_RANDOM_KILLS_ROUNDS"


@dataclass(frozen=True, slots=True)
class Series:
    """A series of rounds: its name in build/, and the variable and module that play a single round."""

    name: str
    seed_variable: str
    module: str

    @property
    def folder(self) -> Path:
        """The folder with one file for each round."""
        return ROOT / "build" / self.name

    @property
    def summary(self) -> Path:
        """The file with the sums over all rounds."""
        return ROOT / "build" / f"{self.name}.json"

    def command(self, seed: int) -> str:
        """The command that plays the round of this seed again."""
        return f"{self.seed_variable}={seed} .venv/bin/pytest -s {self.module}"


RANDOM_KILLS = Series("random_kills", "PVDM_RANDOM_KILLS_SEED", "tests/long/test_random_kills.py")


def play_round(world: World, plan: Round) -> tuple[Played, Findings]:
    """Play one round on a fresh copy of the disk; returns what happened, and the findings of the check."""
    if plan.cuts_power and not world.disk.can_lose_power:
        require(False, why_no_image() or "the disk cannot be shut down")
    world.begin()
    try:
        played = Play(world, plan).run()
        return played, check_round(world, plan, played)
    finally:
        world.end()


def require_clean(world: World, plan: Round, series: Series = RANDOM_KILLS) -> None:
    """Play the round and count it. If there are findings, fail with them and the command that plays the round again."""
    faults = [(each.at_seconds, each.kind.value, each.seconds, each.point) for each in plan.faults]
    sys.stdout.write(f"round {plan.seed} on {plan.database}: {faults}\n")
    began = time.monotonic()
    played, found = play_round(world, plan)
    count_round(series, plan, played, found, time.monotonic() - began)
    wrong = found.list_all()
    if wrong:
        shutil.copyfile(world.log, series.folder / f"{plan.seed}.steward.log")
    assert wrong == [], (
        f"round {plan.seed}: {len(wrong)} findings; play it again: {series.command(plan.seed)}\n"
        + "\n".join(wrong[:40])
        + f"\nthe producers' notes: {played.notes}"
    )


def count_round(series: Series, plan: Round, played: Played, found: Findings, seconds: float) -> None:
    """Write the round's figures and findings, and update the sums of the series."""
    series.folder.mkdir(parents=True, exist_ok=True)
    figures = {
        "seed": plan.seed,
        "database": plan.database,
        "faults": dict(played.faults),
        "victim_was_down": dict(played.missed),
        "workloads": len(plan.works),
        "acknowledged": len(played.acknowledged),
        **{name: len(each) if isinstance(each, list) else each for name, each in asdict(found).items()},
        "seconds": round(seconds, 1),
        "findings": found.list_all(),
    }
    with (series.folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (series.folder / f"{plan.seed}.json").write_text(json.dumps(figures, indent=1))
        series.summary.write_text(json.dumps(sum_rounds(series.folder), indent=1) + "\n")


def sum_rounds(folder: Path) -> dict[str, Any]:
    """The sums over the rounds in the folder."""
    rounds = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    sums: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    databases = Counter(each["database"] for each in rounds)
    for each in rounds:
        kinds.update(each["faults"])
        sums.update({name: each[name] for name in _COUNTS})
    failed = [each["seed"] for each in rounds if any(each[name] for name in ("lost", "doubled", "stuck", "wrong"))]
    return {
        "rounds": len(rounds),
        "rounds_by_database": dict(databases),
        "faults_by_kind": dict(sorted(kinds.items())),
        **{name: sums[name] for name in _COUNTS},
        "seeds_with_findings": sorted(failed),
    }


_COUNTS = ("workloads", "acknowledged", "published", "reruns", "repairs", "lost", "doubled", "stuck", "wrong")


class Worlds:
    """One world for each kind of ledger, created at its first use."""

    def __init__(self, stack: contextlib.ExitStack, *, loses_power: bool = True) -> None:
        self._stack = stack
        self._loses_power = loses_power
        self._made: dict[str, World] = {}

    def get(self, database: str) -> World:
        """The world with this kind of ledger."""
        if database not in self._made:
            self._made[database] = self._stack.enter_context(opened_world(database, loses_power=self._loses_power))
        return self._made[database]
