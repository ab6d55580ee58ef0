"""Measures what a proof costs on Spark: TPC-H lineitem is written, staged, frozen, verified and published in one run.

Spark's plain write is the baseline. Other ways to compare two tables are measured in the same run. CONTRIBUTING.md
explains each figure.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from bench import steward_ledger, tpch
from bench.publish import FEW, Shape
from bench.spark_application import application_of, on_spark
from bench.spark_commits import Commits
from bench.spark_lineitem import Lineitem
from bench.spark_memory import NewProcess, measure_in_new_process
from bench.spark_steward import start_bench_steward
from bench.steward_measure import Ratio
from bench.stolen import Moment
from pvdm.evaluation.record import machine, require_writable, versions, write_json
from pvdm.evaluation.shop import open_session
from pvdm.lake.spark import ICEBERG_RUNTIME

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEED = 0
MANY = Shape("many", 10_000, 1_000)
SLOW_STEPS_MAX = 1.0
"""Above this scale factor HMAC from SQL functions, the multiset difference and the Steward's own Spark application are
left out: they would take hours."""
SPARK = {"spark.driver.memory": "4g", "spark.sql.shuffle.partitions": "8"}
RECORDED_SETTINGS = ("spark.master", *SPARK, "spark.sql.adaptive.enabled", "spark.sql.files.maxPartitionBytes")
STEPS = ("write", "stage", "freeze", "verify", "verify_both", "publish", "xxhash64", "hmac_builtin", "except_all")
ON_SPARK = ("verify_spark", "verify_spark_extraction")
"""Steps of the Steward's own Spark application, measured once: after the repetitions, and after a warm-up."""
COMMITS = ("plain_commit", "gate_commit", "gate_commit_10000_files")
RATIOS = (
    ("stage", "write"),
    ("freeze", "write"),
    ("verify", "write"),
    ("verify_both", "write"),
    ("publish", "write"),
    ("gate", "write"),
    ("xxhash64", "write"),
    ("hmac_builtin", "write"),
    ("except_all", "write"),
    ("verify", "xxhash64"),
    ("verify", "hmac_builtin"),
    ("verify_both", "except_all"),
    ("gate_commit", "plain_commit"),
    ("gate_commit_10000_files", "gate_commit"),
)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is done: `commits` of each kind in every repetition; `many` is the shape of the larger table.

    Warm-ups are made only before the smallest scale factor, which comes first.
    """

    scale_factors: tuple[float, ...] = (1.0,)
    repetitions: int = 5
    warm_ups: int = 1
    commits: int = 4
    many: Shape = MANY
    on_spark: bool = True


TINY = Sizes(scale_factors=(0.001,), repetitions=1, warm_ups=1, commits=2, many=Shape("many", 20, 10))
TINIEST = replace(TINY, warm_ups=0, on_spark=False)


@dataclass(frozen=True, slots=True)
class Measurements:
    """The measurements of one scale factor: every single time in seconds, in the order of the repetitions."""

    scale_factor: float
    rows: int
    seconds: Mapping[str, Sequence[float]]
    fresh: Sequence[NewProcess]
    file_system: str
    load_before_and_after: tuple[float, float]
    stolen: float | None

    def run(self) -> dict[str, float | None]:
        """The medians, under the names that CONTRIBUTING.md lists."""
        found: dict[str, float | None] = {f"{name}_seconds": self.median(name) for name in (*STEPS, *ON_SPARK)}
        for name, key in zip(COMMITS, ("plain_commit_ms", "gate_commit_ms", "gate_commit_ms_10000_files"), strict=True):
            took = self.median(name)
            found[key] = None if took is None else 1e3 * took
        return found | {"verify_peak_memory_mb": max(process.peak_memory_mb for process in self.fresh)}

    def median(self, name: str) -> float | None:
        """The median of a step; None if it was left out."""
        taken = self.seconds[name]
        return statistics.median(taken) if taken else None

    def ratios(self) -> dict[str, Ratio]:
        """Ratios of two times of one repetition: their median, minimum and maximum."""
        ratios = {}
        for over, under in RATIOS:
            pairs = list(zip(self.seconds[over], self.seconds[under], strict=False))
            if pairs:
                found = [numerator / denominator for numerator, denominator in pairs]
                ratios[f"{over} / {under}"] = Ratio(statistics.median(found), min(found), max(found))
        for name, took in self._after_the_repetitions():
            found = [seconds / write for seconds in took for write in self.seconds["write"]]
            ratios[f"{name} / write"] = Ratio(statistics.median(found), min(found), max(found))
        return ratios

    def _after_the_repetitions(self) -> Iterator[tuple[str, Sequence[float]]]:
        """Times that were measured after the repetitions; each is compared with the writes of all repetitions."""
        yield "verify_both in a fresh process", [process.seconds for process in self.fresh]
        yield from ((name, self.seconds[name]) for name in ON_SPARK if self.seconds[name])


def measure(scale_factor: float, sizes: Sizes, spark: SparkSession, folder: Path, home: Path) -> Measurements:
    """Make the warm-ups and all repetitions at one scale factor, on a new Steward."""
    warm_ups = sizes.warm_ups if scale_factor == min(sizes.scale_factors) else 0
    load, begun, rounds = os.getloadavg()[0], Moment.now(), warm_ups + sizes.repetitions
    with_slow_steps = scale_factor <= SLOW_STEPS_MAX
    taken: dict[str, list[float]] = {name: [] for name in (*STEPS, *ON_SPARK, "gate", *COMMITS)}
    with start_bench_steward(folder) as steward:
        lineitem = Lineitem(steward, spark, SEED, with_slow_steps)
        commits = Commits(steward, sizes.many)
        try:
            lineitem.create_source(tpch.lineitem(scale_factor, home=home))
            commits.create_tables(rounds * sizes.commits)
            for number in range(rounds):
                found = {name: [took] for name, took in lineitem.repetition(number).items()}
                found |= _time_commits(commits, sizes, number)
                warm_up = number < warm_ups
                note_repetition(taken, found, warm_up=warm_up)
                suffix = " (warm-up)" if warm_up else ""
                print(f"scale factor {scale_factor:g}: repetition {number + 1} of {rounds}{suffix}", flush=True)
            attempt_id, config = lineitem.stage_attempt(), steward.shop.steward.config
            if with_slow_steps and sizes.on_spark:
                with application_of(steward, folder) as tools:
                    taken |= {name: [took] for name, took in on_spark(steward, tools, attempt_id).items()}
        finally:
            lineitem.close()
    # The Steward is closed now, so that the measured processes can use its folder, one after the other.
    fresh = [measure_in_new_process(config, attempt_id) for _ in range(sizes.repetitions)]
    loads = (load, os.getloadavg()[0])
    file_system = steward_ledger.filesystem(folder)
    return Measurements(scale_factor, lineitem.rows, taken, fresh, file_system, loads, begun.share())


def note_repetition(taken: dict[str, list[float]], found: Mapping[str, Sequence[float]], *, warm_up: bool) -> None:
    """Add the times of a repetition, unless it was a warm-up."""
    if not warm_up:
        for name, took in found.items():
            taken[name] += took


def _time_commits(commits: Commits, sizes: Sizes, number: int) -> dict[str, list[float]]:
    """The seconds of one repetition's commits; the kinds take turns, each time with another kind first."""
    found: dict[str, list[float]] = {name: [] for name in COMMITS}
    for at in range(number * sizes.commits, (number + 1) * sizes.commits):
        work = {
            "plain_commit": lambda at=at: commits.plain(at),
            "gate_commit": lambda at=at: commits.gate(FEW, at),
            "gate_commit_10000_files": lambda at=at: commits.gate(sizes.many, at),
        }
        first = at % len(COMMITS)
        for name in (*COMMITS[first:], *COMMITS[:first]):
            found[name].append(work[name]())
    return found


def report(sizes: Sizes, out: Path, home: Path = tpch.HOME) -> None:
    """Measure, then print and write the figures after each scale factor, since the next may take an hour."""
    require_writable(out)
    with tempfile.TemporaryDirectory(prefix="spark-", dir=out.parent) as name:
        folder = Path(name).resolve()
        with open_session(folder, app_name="pvdm bench", config=SPARK) as spark:
            circumstances = _circumstances(spark, sizes)
            found = []
            for scale_factor in sorted(sizes.scale_factors):
                place = folder / f"sf{scale_factor:g}"
                place.mkdir()
                found.append(measure(scale_factor, sizes, spark, place, home))
                _show(found[-1], sizes)
                write_json(out, _results(found) | circumstances)
    print()
    for name in ("machine", "versions", "spark", "seed", "repetitions", "sizes"):
        print(f"{name}: {json.dumps(circumstances[name])}")
    print(f"written to {out}")


def _results(found: Sequence[Measurements]) -> dict[str, object]:
    return {
        "runs": [taken.run() for taken in found],
        "measured": [
            asdict(taken) | {"ratios": {name: asdict(ratio) for name, ratio in taken.ratios().items()}}
            for taken in found
        ],
    }


def _circumstances(spark: SparkSession, sizes: Sizes) -> dict[str, object]:
    return {
        "table": "TPC-H lineitem, 16 columns; identity: l_orderkey, l_linenumber",
        "seed": SEED,
        "repetitions": sizes.repetitions,
        "sizes": asdict(sizes),
        "spark": {key: spark.conf.get(key) for key in RECORDED_SETTINGS},
        "machine": machine(),
        "versions": _versions(spark),
    }


def _versions(spark: SparkSession) -> dict[str, str | None]:
    java = spark.sparkContext._jvm
    assert java is not None
    return versions() | {
        "spark": spark.version,
        "iceberg": ICEBERG_RUNTIME.rpartition(":")[2],
        "java": java.java.lang.System.getProperty("java.version"),
        "tpchgen-cli": metadata.version("tpchgen-cli"),
    }


def _line(name: str, taken: Sequence[float]) -> str:
    unit, scale, digits = ("ms", 1e3, 1) if name in COMMITS else ("s", 1.0, 3)
    spread = f"[{scale * min(taken):.{digits}f} - {scale * max(taken):.{digits}f}]"
    return f"{name:<26} {scale * statistics.median(taken):>9.{digits}f} {unit:<2} {spread:<20} {len(taken)} times"


def _show(measured: Measurements, sizes: Sizes) -> None:
    """Print the figures as text."""
    print(
        f"\nTPC-H lineitem, scale factor {measured.scale_factor:g}, {measured.rows:,} rows, local[2]: median of"
        f" {sizes.repetitions} repetitions in turn after {sizes.warm_ups} that did not count; range in brackets"
    )
    for name, taken in measured.seconds.items():
        print(_line(name, taken) if taken else f"{name:<26} left out")
    print(_line("verify_both, fresh process", [fresh.seconds for fresh in measured.fresh]))
    print(f"{'verify_peak_memory':<26} {max(fresh.peak_memory_mb for fresh in measured.fresh):>9.0f} MB, of which")
    print(f"{'  before it began':<26} {max(fresh.memory_before_mb for fresh in measured.fresh):>9.0f} MB\n")
    for name, ratio in measured.ratios().items():
        print(f"{name:<40} {ratio.median:>7.3f} [{ratio.least:.3f} - {ratio.most:.3f}]")
    before, after = measured.load_before_and_after
    stolen = "unknown" if measured.stolen is None else f"{measured.stolen:.0%}"
    print(f"file system: {measured.file_system}; load before and after: {before:.1f}, {after:.1f}", end="")
    print(f"; share of the processors' time that other guests of the host had: {stolen}")
    if sizes.many.files != MANY.files:
        print(f"(gate_commit_10000_files: on {sizes.many.files} files only.)")
    print(flush=True)


def main() -> None:
    """Run the benchmark as the command line says."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="The first run generates lineitem into build/tpch. CONTRIBUTING.md explains the figures.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--out", type=Path, default=Path("build/bench/spark.json"), help="where the figures go")
    parser.add_argument("--scale-factors", type=float, nargs="+", default=[1.0], help="sizes of lineitem")
    parser.add_argument("--repetitions", type=int, default=5, help="how often each step is measured, all in turn")
    parser.add_argument("--warm-ups", type=int, default=1, help="repetitions before these, which do not count")
    parser.add_argument("--tiny", action="store_true", help="very small sizes, to test whether the benchmark runs")
    options = parser.parse_args()
    sizes = replace(
        Sizes(),
        scale_factors=tuple(options.scale_factors),
        repetitions=options.repetitions,
        warm_ups=options.warm_ups,
    )
    report(TINY if options.tiny else sizes, options.out)


if __name__ == "__main__":
    main()
