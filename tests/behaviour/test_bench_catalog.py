"""The catalog's benchmark with tiny sizes: its record has the promised form, and a lost commit stops it."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from bench.catalog import TINY, ratios, shapes
from bench.catalog_work import ConflictError, Connection, Facts, Figure, Json, Run, Shape, StateUnknownError, run

ROOT = Path(__file__).parents[2]
# The measured systems by the part that they need; a part that is not there is listed under `left_out`.
SYSTEMS = {
    None: {"steward_sqlite", "pyiceberg_sqlite"},
    "postgresql": {"steward_postgresql", "pyiceberg_postgresql"},
    "java": {"java_sqlite", "java_memory"},
}
Record = dict[str, Any]


class BenchmarkRun(NamedTuple):
    """One run of the benchmark as a command; `folder` is where it wrote its record."""

    record: Record
    printed: str
    folder: Path


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory: pytest.TempPathFactory) -> BenchmarkRun:
    """One run for all tests; with `--no-fetch` the Java server takes part only if its jar was fetched before."""
    out = tmp_path_factory.mktemp("bench") / "catalog.json"
    command = [sys.executable, "-m", "bench.catalog", "--tiny", "--no-fetch", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return BenchmarkRun(json.loads(out.read_text()), done.stdout, out.parent)


@pytest.mark.long
def test_every_system_has_a_figure_for_each_shape_or_is_left_out(benchmark: BenchmarkRun) -> None:
    disk = benchmark.record["places"]["disk"]
    measured = set().union(*(names for part, names in SYSTEMS.items() if part not in disk["left_out"]))
    assert set(disk["figures"]) == {f"{name}_{shape.name}" for name in measured for shape in shapes(TINY)}


@pytest.mark.long
def test_each_median_follows_from_its_repetitions(benchmark: BenchmarkRun) -> None:
    for name, figure in benchmark.record["places"]["disk"]["figures"].items():
        medians = figure["medians_ms"]
        assert len(medians) == benchmark.record["repetitions"], name
        assert figure["median_ms"] == statistics.median(medians), name
        assert 0 < figure["median_ms_min"] == min(medians), name
        assert figure["median_ms_max"] == max(medians), name


@pytest.mark.long
def test_our_median_is_divided_by_the_better_of_the_others(benchmark: BenchmarkRun) -> None:
    disk = benchmark.record["places"]["disk"]
    for shape in shapes(TINY):
        ratio = disk["ratios"][f"steward_sqlite_{shape.name}"]
        others = [f"{name}_{shape.name}" for name in ("pyiceberg_sqlite", "java_sqlite")]
        best = min(disk["figures"][name]["median_ms"] for name in others if name in disk["figures"])
        assert ratio["median"] == disk["figures"][f"steward_sqlite_{shape.name}"]["median_ms"] / best


@pytest.mark.long
def test_durability_machine_versions_and_seed_are_printed(benchmark: BenchmarkRun) -> None:
    record, printed, _ = benchmark
    assert all(f"{name}: {words}" in printed for name, words in record["durability"].items())
    assert all(f"{name}: " in printed for name in ("machine", "versions", "seed", "sizes"))
    assert {"python", "pvdm", "sqlite", "pyiceberg", "iceberg-open-api", "java"} <= set(record["versions"])


@pytest.mark.long
def test_the_benchmark_leaves_nothing_but_its_record(benchmark: BenchmarkRun) -> None:
    assert [path.name for path in benchmark.folder.iterdir()] == ["catalog.json"]


class CountingCatalog:
    """A catalog that only counts snapshots. Its first commits raise the errors `failing`; with `loses` none counts."""

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


def test_a_conflict_is_counted_and_the_commit_is_made_again() -> None:
    found = run(CountingCatalog([ConflictError()]), ONE, 3, "t", Random(0))
    assert (len(found.latencies), found.conflicts, found.unsure) == (3, 1, 0)


def test_a_commit_that_turns_out_to_have_happened_is_not_made_again() -> None:
    found = run(CountingCatalog([StateUnknownError()]), ONE, 3, "t", Random(0))
    assert (len(found.latencies), found.conflicts, found.unsure) == (3, 0, 1)


def test_a_lost_commit_stops_the_benchmark() -> None:
    with pytest.raises(AssertionError):
        run(CountingCatalog(loses=True), ONE, 3, "t", Random(0))


def test_writers_get_branches_of_one_shared_table_or_tables_of_their_own() -> None:
    assert Shape("", True, 2).places("t") == [("t_0", "stage-0"), ("t_0", "stage-1")]
    assert Shape("", False, 2).places("t") == [("t_0", "stage-0"), ("t_1", "stage-0")]


def figure_of(*latencies: float) -> Figure:
    return Figure.of(1, [Run(latencies, sum(latencies), 0, 0)])


def test_the_mean_counts_writers_that_waited_long() -> None:
    figure = figure_of(0.001, 0.001, 0.010)
    assert [figure.median_ms, figure.mean_ms] == pytest.approx([1, 4])


def test_a_figure_without_another_to_compare_with_has_no_ratio() -> None:
    alone = {"steward_sqlite_own_tables_1": figure_of(1), "java_memory_own_tables_1": figure_of(1)}
    assert ratios(alone, TINY) == {}
