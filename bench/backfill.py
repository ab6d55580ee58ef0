"""Measures a backfill on Spark: a workload of 12 chunks, in turn with one chunk and with several at a time."""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from bench.stolen import Moment
from pvdm import Committed, Coordinator
from pvdm.evaluation.record import machine, require_writable, versions, write_json
from pvdm.evaluation.shop import open_session
from tests.support.steward.pipeline import BY_DAY
from tests.support.steward.shop import Shop, shop_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RATIO_MAX: Final = 0.8
"""The bound for the ratio: the time with several chunks at a time, divided by the time with one."""
SEED: Final = 20
FIRST_DAY: Final = date(2026, 1, 1)


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of the benchmark. One more repetition comes first, to warm up; its times do not count."""

    chunks: int = 12
    rows_of_a_chunk: int = 170_000
    parallel: int = 2
    repetitions: int = 3


TINY: Final = Sizes(chunks=3, rows_of_a_chunk=100, repetitions=1)


@dataclass(frozen=True, slots=True)
class Figures:
    """Seconds of every repetition, by the number of chunks at a time, and the stolen share of processor time."""

    seconds: dict[int, list[float]]
    stolen: float | None

    @property
    def ratios(self) -> list[float]:
        """For each repetition: the seconds with several chunks at a time, divided by the seconds with one."""
        (_, one), (_, several) = sorted(self.seconds.items())
        return [several_at / one_at for one_at, several_at in zip(one, several, strict=True)]


@contextlib.contextmanager
def start(sizes: Sizes, folder: Path) -> Iterator[tuple[Shop, SparkSession]]:
    """Start a Steward whose source has a file of random rows for each chunk, and a Spark session."""
    rng = np.random.default_rng(SEED)
    with shop_at(folder, rows=()) as shop:
        for number in range(sizes.chunks):
            rows = sizes.rows_of_a_chunk
            ids = pa.array(np.arange(number * rows, (number + 1) * rows), pa.int64())
            days = pa.array([FIRST_DAY + timedelta(days=number)] * rows, pa.date32())
            towns = pa.array([f"town {each}" for each in rng.integers(0, 1_000_000, rows)], pa.string())
            shop.write_table(pa.table({"id": ids, "day": days, "town": towns}), "raw.orders")
        with open_session(folder, app_name="pvdm backfill", config={"spark.driver.memory": "2g"}) as session:
            yield shop, session


def run(shop: Shop, spark: SparkSession, table: str, parallel: int) -> float:
    """Run a workload. Returns the seconds from its opening until all of its chunks are published."""
    target = shop.target(table, BY_DAY)
    begun = time.perf_counter()
    with Coordinator(shop.steward, spark, parallel=parallel) as coordinator:
        outcome = coordinator.execute_workload(table, table=target)
    took = time.perf_counter() - begun
    if not isinstance(outcome, Committed):
        raise SystemExit(str(outcome))
    return took


def measure(sizes: Sizes, folder: Path) -> Figures:
    """In each repetition, measure one chunk at a time and several; every second repetition begins with several."""
    taken: dict[int, list[float]] = {1: [], sizes.parallel: []}
    with start(sizes, folder) as (shop, spark):
        moment = Moment.now()
        for number in range(sizes.repetitions + 1):
            for parallel in sorted(taken, reverse=bool(number % 2)):
                took = run(shop, spark, f"backfill_{number}_{parallel}", parallel)
                if number:
                    taken[parallel].append(took)
        return Figures(taken, moment.share())


def report(sizes: Sizes, out: Path) -> None:
    """Measure, print the figures, and write them to `out`."""
    require_writable(out)
    with tempfile.TemporaryDirectory(prefix="pvdm-bench-") as folder:
        figures = measure(sizes, Path(folder))
    print(f"{sizes.chunks} chunks of {sizes.rows_of_a_chunk:,} rows, seed {SEED}, {sizes.repetitions} repetitions")
    for parallel, seconds in figures.seconds.items():
        print(f"{parallel} at a time: {', '.join(f'{each:.1f} s' for each in seconds)}")
    ratio = statistics.median(figures.ratios)
    print(f"{sizes.parallel} / 1 at a time: {ratio:.2f} [{min(figures.ratios):.2f}-{max(figures.ratios):.2f}]")
    print(f"at most {RATIO_MAX}: {'holds' if ratio <= RATIO_MAX else 'does not hold'}")
    record = {
        "machine": machine(),
        "versions": versions(),
        "seed": SEED,
        "sizes": asdict(sizes),
        **asdict(figures),
        "ratio": ratio,
        "most": RATIO_MAX,
    }
    write_json(out, record)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/bench/backfill.json"), help="file for the figures")
    parser.add_argument("--repetitions", type=int, default=Sizes().repetitions, help="measured repetitions")
    parser.add_argument("--parallel", type=int, default=Sizes().parallel, help="chunks at a time")
    parser.add_argument("--tiny", action="store_true", help="very small sizes, one repetition: a test")
    options = parser.parse_args(arguments)
    if options.parallel < 2:
        parser.error("--parallel is at least 2: it is compared with one chunk at a time")
    sizes = TINY if options.tiny else replace(Sizes(), repetitions=options.repetitions)
    report(replace(sizes, parallel=options.parallel), options.out)


if __name__ == "__main__":
    main()
