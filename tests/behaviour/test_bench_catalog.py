"""The catalog's benchmark, a few of everything: its record has the promised form, and no commit of it is lost."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bench.catalog import TINY, ratios, shapes
from bench.catalog_work import ConflictError, Connection, Facts, Figure, Json, Run, Shape, StateUnknownError, run

ROOT = Path(__file__).parents[2]
SYSTEMS = {
    None: {"steward_sqlite", "pyiceberg_sqlite"},
    "postgresql": {"steward_postgresql", "pyiceberg_postgresql"},
    "java": {"java_sqlite", "java_memory"},
}
Record = dict[str, Any]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Record, str, Path]:
    """The record, what was printed, and the folder; the Java server takes part where its jar was brought before."""
    out = tmp_path_factory.mktemp("bench") / "catalog.json"
    command = [sys.executable, "-m", "bench.catalog", "--tiny", "--no-fetch", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(out.read_text()), done.stdout, out.parent


def test_every_system_and_shape_is_there_or_named_as_left_out(ran: tuple[Record, str, Path]) -> None:
    disk = ran[0]["places"]["disk"]
    there = set().union(*(names for part, names in SYSTEMS.items() if part not in disk["left_out"]))
    assert set(disk["figures"]) == {f"{name}_{shape.name}" for name in there for shape in shapes(TINY)}


def test_each_median_follows_from_its_repetitions(ran: tuple[Record, str, Path]) -> None:
    for name, figure in ran[0]["places"]["disk"]["figures"].items():
        medians = figure["medians_ms"]
        assert len(medians) == ran[0]["repetitions"], name
        assert figure["median_ms"] == statistics.median(medians), name
        assert 0 < figure["median_ms_min"] == min(medians), name
        assert figure["median_ms_max"] == max(medians), name


def test_ours_is_held_to_the_better_of_the_others(ran: tuple[Record, str, Path]) -> None:
    disk = ran[0]["places"]["disk"]
    for shape in shapes(TINY):
        told = disk["ratios"][f"steward_sqlite_{shape.name}"]
        others = [f"{name}_{shape.name}" for name in ("pyiceberg_sqlite", "java_sqlite")]
        best = min(disk["figures"][name]["median_ms"] for name in others if name in disk["figures"])
        assert told["median"] == disk["figures"][f"steward_sqlite_{shape.name}"]["median_ms"] / best


def test_durability_machine_versions_and_seed_are_printed(ran: tuple[Record, str, Path]) -> None:
    record, printed, _ = ran
    assert all(f"{name}: {words}" in printed for name, words in record["durability"].items())
    assert all(f"{name}: " in printed for name in ("machine", "versions", "seed", "sizes"))
    assert {"python", "pvdm", "sqlite", "pyiceberg", "iceberg-open-api", "java"} <= set(record["versions"])


def test_the_benchmark_leaves_nothing_but_its_record(ran: tuple[Record, str, Path]) -> None:
    assert [path.name for path in ran[2].iterdir()] == ["catalog.json"]


class Counting:
    """A catalog of nothing but counters, which fails now and then as it is told to."""

    name = "counting"

    def __init__(self, failing: Sequence[Exception] = (), *, loses: bool = False) -> None:
        self._failing = list(failing)
        self._loses = loses
        self._facts = Facts("file:/t", 0, 0, 0, {}, 0)

    def connect(self) -> Connection:
        return self

    def create_table(self, _table: str) -> None:
        self._facts = Facts("file:/t", 0, 0, 0, {}, 0)

    def finish_table(self, _table: str) -> None:
        return

    def load(self, _table: str) -> Facts:
        return self._facts

    def commit(self, _table: str, requirements: list[Json], updates: list[Json]) -> Facts:
        error = self._failing.pop(0) if requirements and self._failing else None
        if not isinstance(error, ConflictError):
            moved = {update["ref-name"]: update["snapshot-id"] for update in updates[1:]}
            added = 0 if self._loses and requirements else 1
            heads = {**self._facts.heads, **moved}
            self._facts = replace(self._facts, heads=heads, snapshots=self._facts.snapshots + added)
        if error is not None:
            raise error
        return self._facts


ONE = Shape("one", True, 1)


def test_a_conflict_is_counted_and_the_commit_made_once_more() -> None:
    found = run(Counting([ConflictError()]), ONE, 3, "t", Random(0))
    assert (len(found.latencies), found.conflicts, found.unsure) == (3, 1, 0)


def test_a_commit_that_turns_out_to_have_happened_is_not_made_again() -> None:
    found = run(Counting([StateUnknownError()]), ONE, 3, "t", Random(0))
    assert (len(found.latencies), found.conflicts, found.unsure) == (3, 0, 1)


def test_a_lost_commit_stops_the_benchmark() -> None:
    with pytest.raises(AssertionError):
        run(Counting(loses=True), ONE, 3, "t", Random(0))


def test_writers_of_one_table_have_branches_of_their_own_and_others_tables() -> None:
    assert Shape("", True, 2).places("t") == [("t_0", "stage-0"), ("t_0", "stage-1")]
    assert Shape("", False, 2).places("t") == [("t_0", "stage-0"), ("t_1", "stage-0")]


def figure_of(*latencies: float) -> Figure:
    return Figure.of(1, [Run(latencies, sum(latencies), 0, 0)])


def test_the_mean_counts_those_who_waited_long() -> None:
    figure = figure_of(0.001, 0.001, 0.010)
    assert [figure.median_ms, figure.mean_ms] == pytest.approx([1, 4])


def test_a_ratio_needs_somebody_to_be_held_to() -> None:
    alone = {"steward_sqlite_own_tables_1": figure_of(1), "java_memory_own_tables_1": figure_of(1)}
    assert ratios(alone, TINY) == {}
