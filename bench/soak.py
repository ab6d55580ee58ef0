"""Measures the cost of publications while a table's history grows, and the throughput of many writers on one table."""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from bench.soak_steward import TABLE, ProcessUsage, RunningSteward, day_of, rows_of, run_steward
from bench.stolen import Moment
from pvdm import Chunk, Committed, Coordinator
from pvdm.client import StewardClient
from pvdm.errors import PvdmError
from pvdm.evaluation.record import machine, require_writable, versions, write_json
from tests.support.ledger.databases import running_postgresql

RATIO_MAX: Final = 1.5
"""The bound for the last window's cost, divided by the second window's."""
LONGEST_WAIT_RATIO_MAX: Final = 2.0
"""The bound for the longest wait, divided by the mean wait."""
STOLEN_MAX: Final = 0.02
"""A pair of measurements, with few and many writers, is quiet if at most this share of the processors is stolen."""
_MB: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is done; a `window` is the number of publications that are measured together."""

    publications: int = 2_000
    window: int = 100
    few_writers: int = 8
    many_writers: int = 32
    workloads_each: int = 4
    """For each of the many writers. The few publish as many in all, so that both tables get equal histories."""
    repetitions: int = 7
    """How many quiet pairs (`STOLEN_MAX`) of few and many writers are wanted."""
    pairs_max: int = 21
    """How many pairs are measured at most to get the quiet ones."""
    snapshots_kept: int | None = 100
    """How many snapshots of `main` the table keeps; None: all of them."""
    seed: int = 18


TINY: Final = Sizes(
    publications=6, window=2, few_writers=2, many_writers=4, workloads_each=1, repetitions=1, pairs_max=1
)


@dataclass(frozen=True, slots=True)
class Window:
    """The cost of one publication in a window: means, except for the medians `p50_ms` and `reference_ms`.

    `written_bytes` went to files; `kept_metadata_bytes` is how much the metadata files together grew. `rss_mb` is the
    memory after the window.
    """

    cpu_ms: float
    client_cpu_ms: float
    p50_ms: float
    written_bytes: int
    kept_metadata_bytes: int
    rss_mb: float
    reference_ms: float
    """The processor time of a fixed calculation in between. If it differs, the speed of the processors changed."""


@dataclass(frozen=True, slots=True)
class Writers:
    """The figures of several producers at once on one table, each with its workloads one after the other."""

    writers: int
    per_second: float
    failed: int
    failures: tuple[str, ...]
    mean_wait_seconds: float
    longest_wait_seconds: float
    cpu_ms: float
    stolen: float | None
    """The share of the processors that other guests of the host used; None if the system does not report it."""

    @property
    def longest_wait_by_mean(self) -> float:
        """The longest wait, divided by the mean."""
        return self.longest_wait_seconds / self.mean_wait_seconds if self.mean_wait_seconds else 0.0


def publish(client: StewardClient, workload: int) -> str | None:
    """Stage, verify and publish one workload of six rows; returns the error if that failed."""

    def build(_spark: object, _chunk: Chunk) -> pa.Table:
        return rows_of(workload)

    try:
        with Coordinator(client) as coordinator:
            outcome = coordinator.execute_workload(f"soak-{workload}", build, table=TABLE, day=day_of(workload))
    except PvdmError as error:
        return error.reason
    return None if isinstance(outcome, Committed) else str(outcome)


def soak(steward: RunningSteward, sizes: Sizes, say: Callable[[str], None]) -> list[Window]:
    """Publish one workload after the other; returns the figures of each window."""
    found: list[Window] = []
    with steward.client() as client:
        for first in range(0, sizes.publications, sizes.window):
            before, own, kept = steward.usage(), ProcessUsage.read(), steward.metadata_bytes()
            took, references = [], []
            for workload in range(first, first + sizes.window):
                references.append(_reference_seconds())
                begun = time.perf_counter()
                failed = publish(client, workload)
                took.append(time.perf_counter() - begun)
                if failed is not None:
                    raise AssertionError(f"publication {workload} failed: {failed}")
            after, own_after = steward.usage(), ProcessUsage.read()
            own_seconds = own_after.cpu_seconds - own.cpu_seconds - sum(references)
            window = Window(
                1e3 * (after.cpu_seconds - before.cpu_seconds) / sizes.window,
                1e3 * own_seconds / sizes.window,
                1e3 * statistics.median(took),
                (after.written_bytes - before.written_bytes) // sizes.window,
                (steward.metadata_bytes() - kept) // sizes.window,
                after.rss_bytes / _MB,
                1e3 * statistics.median(references),
            )
            found.append(window)
            say(
                f"{first + sizes.window:,} published: {window.cpu_ms:.0f} ms CPU, p50 {window.p50_ms:.0f} ms,"
                f" {window.written_bytes:,} bytes written, {window.kept_metadata_bytes:,} kept, {window.rss_mb:.0f} MB,"
                f" reference {window.reference_ms:.1f} ms, client {window.client_cpu_ms:.0f} ms"
            )
    return found


def _reference_seconds() -> float:
    begun = time.thread_time()
    sum(number * number for number in range(50_000))
    return time.thread_time() - begun


def contend(steward: RunningSteward, writers: int, workloads_each: int) -> Writers:
    """Let all writers start at the same moment; each publishes `workloads_each` workloads."""
    ready = threading.Barrier(writers)

    def work(writer: int) -> list[tuple[float, str | None]]:
        took = []
        with steward.client(writer) as client:
            ready.wait()
            for number in range(workloads_each):
                begun = time.perf_counter()
                failed = publish(client, writer * workloads_each + number)
                took.append((time.perf_counter() - begun, failed))
        return took

    before, begun, moment = steward.usage(), time.perf_counter(), Moment.now()
    with ThreadPoolExecutor(writers) as pool:
        done = [result for results in pool.map(work, range(writers)) for result in results]
    seconds, after = time.perf_counter() - begun, steward.usage()
    waits = [took for took, failed in done if failed is None]
    failures = tuple(sorted(failed for _, failed in done if failed is not None))
    return Writers(
        writers,
        len(waits) / seconds,
        len(failures),
        failures,
        statistics.fmean(waits) if waits else 0.0,
        max(waits, default=0.0),
        1e3 * (after.cpu_seconds - before.cpu_seconds) / max(1, len(waits)),
        moment.share(),
    )


def compete(sizes: Sizes, folder: Path, ledgers: Callable[[], str], say: Callable[[str], None]) -> dict[str, Any]:
    """Measure pairs of few and many writers, in alternating order, each on a table without a history.

    Pairs are added until enough are quiet, or there are `pairs_max`. Throughput is that of the quiet pairs, or of all
    if none is quiet; failures and waits are those of all pairs.
    """
    pairs: list[tuple[Writers, Writers]] = []
    quiet: list[tuple[Writers, Writers]] = []
    while len(quiet) < sizes.repetitions and len(pairs) < sizes.pairs_max:
        pair = _measure_pair(sizes, len(pairs), folder, ledgers, say)
        pairs.append(pair)
        if is_quiet(pair):
            quiet.append(pair)
    found: dict[str, Any] = {"pairs": len(pairs), "quiet_pairs": len(quiet)}
    counted = quiet or pairs
    # The names of few and many writers in the record, also with other `sizes`.
    for at, name in enumerate(("writers_8", "writers_32")):
        several = [pair[at] for pair in pairs]
        found |= {
            f"{name}_per_second": statistics.median(pair[at].per_second for pair in counted),
            f"{name}_cpu_ms": statistics.median(pair[at].cpu_ms for pair in counted),
            f"{name}_failed": sum(writers.failed for writers in several),
            f"{name}_longest_wait_by_mean": max(writers.longest_wait_by_mean for writers in several),
            name: [asdict(writers) for writers in several],
        }
    ratios = sorted(many.per_second / few.per_second for few, many in counted)
    return found | {"writers_ratios": ratios, "writers_ratio": statistics.median(ratios)}


def _measure_pair(
    sizes: Sizes, number: int, folder: Path, ledgers: Callable[[], str], say: Callable[[str], None]
) -> tuple[Writers, Writers]:
    """Measure few and many writers, one after the other; in every second pair the many come first."""
    in_all = sizes.many_writers * sizes.workloads_each
    done: dict[int, Writers] = {}
    order = (sizes.few_writers, sizes.many_writers)
    for writers in order if number % 2 == 0 else reversed(order):
        place = folder / f"pair-{number}-writers-{writers}"
        place.mkdir()
        with run_steward(place, workloads=in_all, producers=writers, ledger=ledgers()) as steward:
            done[writers] = found = contend(steward, writers, in_all // writers)
        stolen = "an unknown share" if found.stolen is None else f"{found.stolen:.1%}"
        say(
            f"{writers} writers: {found.per_second:.2f} publications a second, {found.failed} failed,"
            f" wait {found.mean_wait_seconds:.1f} s on average, {found.longest_wait_seconds:.1f} s at most,"
            f" {found.cpu_ms:.0f} ms CPU, others had {stolen} of the processors"
        )
    return done[sizes.few_writers], done[sizes.many_writers]


def is_quiet(pair: tuple[Writers, Writers]) -> bool:
    """Whether other guests used almost nothing of the processors in both measurements; an unknown share counts as 0."""
    return all((writers.stolen or 0.0) <= STOLEN_MAX for writers in pair)


def measure(sizes: Sizes, folder: Path, ledgers: Callable[[], str], say: Callable[[str], None]) -> dict[str, Any]:
    """Measure the long history first, then few and many writers, each on a table without a history."""
    moment = Moment.now()
    (folder / "soak").mkdir()
    kept = sizes.snapshots_kept
    with run_steward(folder / "soak", workloads=sizes.publications, ledger=ledgers(), snapshots_kept=kept) as steward:
        windows = soak(steward, sizes, say)
        metadata_bytes = steward.metadata_bytes()
    found = compete(sizes, folder, ledgers, say)
    early, late = windows[1], windows[-1]
    return {
        **{f"early_{key}": value for key, value in asdict(early).items()},
        **{f"late_{key}": value for key, value in asdict(late).items()},
        "metadata_mb": metadata_bytes / _MB,
        "rss_mb": late.rss_mb,
        **found,
        "windows": [asdict(window) for window in windows],
        "stolen": moment.share(),
    }


def check_bounds(figures: dict[str, Any], sizes: Sizes) -> dict[str, bool]:
    """For each bound, whether it holds."""
    bounds = {
        f"late {key} at most {RATIO_MAX} times early": figures[f"late_{key}"] <= RATIO_MAX * figures[f"early_{key}"]
        for key in ("cpu_ms", "p50_ms", "written_bytes", "kept_metadata_bytes", "rss_mb")
    }
    return bounds | {
        "no writer failed": figures["writers_8_failed"] == figures["writers_32_failed"] == 0,
        "enough pairs of writers were quiet": figures["quiet_pairs"] >= sizes.repetitions,
        "many writers are as fast as few": figures["writers_32_per_second"] >= figures["writers_8_per_second"],
        f"the longest wait is at most {LONGEST_WAIT_RATIO_MAX:g} times the mean": (
            figures["writers_32_longest_wait_by_mean"] <= LONGEST_WAIT_RATIO_MAX
        ),
    }


@contextlib.contextmanager
def _new_ledgers(*, postgresql: bool) -> Iterator[Callable[[], str]]:
    """A function that returns the URL of a new ledger: SQLite in the Steward's folder, or a PostgreSQL database."""
    if not postgresql:
        yield lambda: "sqlite:///ledger.sqlite"
        return
    with running_postgresql() as database:
        yield lambda: database.create_database("template0")


def report(sizes: Sizes, out: Path, *, postgresql: bool) -> None:
    """Measure, print and write the record."""
    require_writable(out)
    with tempfile.TemporaryDirectory(prefix="pvdm-soak-") as folder, _new_ledgers(postgresql=postgresql) as ledgers:
        figures = measure(sizes, Path(folder), ledgers, lambda line: print(line, flush=True))
    bounds = check_bounds(figures, sizes)
    for bound, holds in bounds.items():
        print(f"{bound}: {'holds' if holds else 'does not hold'}")
    record = {
        **figures,
        "bounds": bounds,
        "ledger": "postgresql" if postgresql else "sqlite",
        "sizes": asdict(sizes),
        "seed": sizes.seed,
        "machine": machine(),
        "versions": versions(),
    }
    write_json(out, record)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/bench/soak.json"), help="where the figures go")
    parser.add_argument("--publications", type=int, default=Sizes().publications, help="on the table with a history")
    parser.add_argument("--postgresql", action="store_true", help="ledgers on a new PostgreSQL server, not on SQLite")
    parser.add_argument("--all-history", action="store_true", help="let the table keep every snapshot of main")
    parser.add_argument("--tiny", action="store_true", help="very small sizes, to test whether the benchmark runs")
    options = parser.parse_args(arguments)
    sizes = TINY if options.tiny else replace(Sizes(), publications=options.publications)
    if options.all_history:
        sizes = replace(sizes, snapshots_kept=None)
    report(sizes, options.out, postgresql=options.postgresql)


if __name__ == "__main__":
    main()
