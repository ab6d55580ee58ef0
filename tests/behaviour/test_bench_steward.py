"""The Steward's benchmark with tiny sizes: its record has the promised form, and its rates follow from its clock."""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from bench.steward import ratios
from bench.steward_ledger import reservation_cases
from bench.steward_log import Growth, InclusionFigure, growth
from bench.steward_measure import Case, Elapsed, Figure, Ratio, measure, quantile, time_call, time_steps
from pvdm.ledger.work import nonces
from tests.support.ledger.databases import ledger_at

ROOT = Path(__file__).parents[2]
# Figures that every record has.
ALWAYS = {
    "disk_syncs",
    "reservations_sqlite_1",
    "reservations_sqlite_8",
    "signed_file_ed25519",
    "signed_file_ed25519_1000_files",
    "bare_ed25519_signatures",
    "checked_3_files",
    "checked_1000_files",
    "recorded_1",
    "recorded_8",
    "log_entries_single",
    "log_entries_batch_256",
}
# Figures by the part that they need; a part that is not there is listed under `left_out`.
OPTIONAL = {
    "postgresql": {"reservations_postgresql_1", "reservations_postgresql_8"},
    "pkcs11": {"signed_pkcs11_ed25519", "signed_pkcs11_p256"},
    "http": {
        f"http_{name}_{connections}"
        for name in ("get_healthz", "get_log_checkpoint", "post_challenge")
        for connections in (1, 8)
    },
}
Record = dict[str, Any]


class BenchmarkRun(NamedTuple):
    """One run of the benchmark as a command; `folder` is where it wrote its record."""

    record: Record
    printed: str
    folder: Path


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory: pytest.TempPathFactory) -> BenchmarkRun:
    """One run for all tests, in its own process: a PKCS#11 library can be set up only once in a process."""
    out = tmp_path_factory.mktemp("bench") / "steward.json"
    command = [sys.executable, "-m", "bench.steward", "--tiny", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return BenchmarkRun(json.loads(out.read_text()), done.stdout, out.parent)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Moves the benchmark's clock by so many seconds; the processor's clock moves half as fast."""
    now = [0.0]
    monkeypatch.setattr("bench.steward_measure.perf_counter", lambda: now[0])
    monkeypatch.setattr("bench.steward_measure.process_time", lambda: now[0] / 2)

    def move(seconds: float) -> None:
        now[0] += seconds

    return move


def test_every_promised_figure_is_in_the_record_or_left_out(benchmark: BenchmarkRun) -> None:
    record = benchmark.record
    measured = (figures for part, figures in OPTIONAL.items() if part not in record["left_out"])
    assert set(record["figures"]) == ALWAYS.union(*measured)


def test_each_rate_follows_from_its_measured_seconds(benchmark: BenchmarkRun) -> None:
    record = benchmark.record
    for name, figure in record["figures"].items():
        seconds, operations = figure["seconds"], figure["operations"]
        assert len(seconds) == record["repetitions"], name
        assert min(seconds) > 0, name
        assert figure["per_second"] == operations / statistics.median(seconds), name
        assert (figure["per_second_min"], figure["per_second_max"]) == (
            operations / max(seconds),
            operations / min(seconds),
        ), name


def test_no_two_figures_have_the_same_seconds(benchmark: BenchmarkRun) -> None:
    record = benchmark.record
    seconds = [each for figure in record["figures"].values() for each in figure["seconds"]]
    assert len(set(seconds)) == len(seconds)


def test_the_record_names_machine_versions_seed_and_sizes(benchmark: BenchmarkRun) -> None:
    record, printed, _ = benchmark
    assert record["machine"]["cores"] >= 1
    assert {"python", "pvdm", "sqlite", "postgresql", "cryptography", "SQLAlchemy"} <= set(record["versions"])
    assert (record["seed"], record["repetitions"]) == (0, record["sizes"]["repetitions"])
    assert all(f"{name}: " in printed for name in ("machine", "versions", "seed", "sizes", "file_system"))


def test_inclusion_proofs_are_timed_at_every_size(benchmark: BenchmarkRun) -> None:
    record, printed, _ = benchmark
    assert [each["size"] for each in record["inclusion"]] == record["sizes"]["log_sizes"]
    for each in record["inclusion"]:
        assert each["samples"] == record["repetitions"] * record["sizes"]["proofs"]
        assert 0 < each["median_micros_min"] <= each["median_micros_max"]
        assert 0 < each["median_micros"] <= each["p99_micros"]
        assert f"{each['size']:,} entries" in printed


def test_growth_is_the_ratio_of_times_divided_by_the_ratio_of_logarithms(benchmark: BenchmarkRun) -> None:
    record, printed, _ = benchmark
    medians = {each["size"]: each["median_micros"] for each in record["inclusion"]}
    assert len(record["growth"]) == 3
    for each in record["growth"]:
        small, large = each["smaller"], each["larger"]
        expected = medians[large] / medians[small] / (math.log2(large) / math.log2(small))
        assert each["over_logarithm"] == pytest.approx(expected)
        assert each["no_faster_than_logarithm"] == (expected <= 1)
    verdicts = sum(printed.count(words) for words in ("no faster than the logarithm", "FASTER THAN THE LOGARITHM"))
    assert verdicts == len(record["growth"])


def test_every_part_that_is_left_out_is_printed_with_its_reason(benchmark: BenchmarkRun) -> None:
    record, printed, _ = benchmark
    assert all(f"left out: {name}: {reason}" in printed for name, reason in record["left_out"].items())


def test_the_benchmark_leaves_nothing_but_its_record(benchmark: BenchmarkRun) -> None:
    assert [path.name for path in benchmark.folder.iterdir()] == ["steward.json"]


def test_a_rate_is_operations_divided_by_seconds_of_the_clock(clock: Callable[[float], None]) -> None:
    case = Case("slow", 6, lambda: time_steps([partial(clock, 0.5)] * 6, 1))
    figure = measure([case], 5)["slow"]
    assert (figure.per_second, figure.processor_share) == (2, 0.5)


def test_a_figure_is_the_median_repetition_without_the_warm_up(clock: Callable[[float], None]) -> None:
    lengths = iter([100.0, 1.0, 8.0, 2.0])
    figure = measure([Case("one", 8, lambda: time_call(lambda: clock(next(lengths))))], 3)["one"]
    assert (figure.seconds, figure.per_second) == ((1, 8, 2), 4)
    assert (figure.per_second_min, figure.per_second_max) == (1, 8)


def test_cases_run_in_turns() -> None:
    order: list[str] = []

    def note_turn(name: str) -> Elapsed:
        order.append(name)
        return Elapsed(1.0, 1.0)

    measure([Case("a", 1, lambda: note_turn("a")), Case("b", 1, lambda: note_turn("b"))], 2)
    assert order == ["a", "b"] * 3


@pytest.mark.parametrize("threads", [1, 8])
def test_every_step_is_done_once(threads: int) -> None:
    done: list[int] = []
    time_steps([partial(done.append, number) for number in range(20)], threads)
    assert sorted(done) == list(range(20))


@pytest.mark.parametrize("threads", [1, 8])
def test_a_step_that_fails_stops_the_measurement(threads: int) -> None:
    def fail() -> None:
        raise RuntimeError("refused")

    with pytest.raises(RuntimeError, match="refused"):
        time_steps([fail] * 8, threads)


def test_a_reservation_that_is_not_in_the_ledger_stops_the_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nonces, "reserve", lambda *_args, **_more: None)
    with ledger_at(f"sqlite:///{tmp_path}/ledger.db") as ledger, pytest.raises(AssertionError):
        reservation_cases(ledger, 2, Random(0))[0].run()


def test_growth_in_proportion_to_the_size_does_not_hold() -> None:
    figures = [InclusionFigure(size, 1, float(size), size, size, size) for size in (1_000, 1_000_000)]
    (found,) = growth(figures)
    assert (found.time_ratio, found.holds) == (1_000, False)


def test_growth_with_the_logarithm_holds() -> None:
    assert Growth(1_000, 1_000_000, time_ratio=2.0, logarithm_ratio=2.0).holds


def figure_of(*seconds: float) -> Figure:
    return Figure.of(Case("any", 8, lambda: Elapsed(1.0, 1.0)), [Elapsed(each, each) for each in seconds])


def test_a_ratio_without_both_sides_is_left_out() -> None:
    figures = {name: figure_of(1) for name in ("recorded_1", "recorded_8", "reservations_postgresql_8")}
    assert set(ratios(figures)) == {"eight_threads_over_one_recorded"}


def test_a_ratio_is_taken_repetition_by_repetition() -> None:
    fast, slow = figure_of(1, 10, 2), figure_of(2, 20, 8)
    assert Ratio.of(fast, slow) == Ratio(median=2, least=2, most=4)


@pytest.mark.parametrize(("share", "expected"), [(0.5, 50), (0.99, 99), (1.0, 100)])
def test_a_quantile_is_one_of_the_samples(share: float, expected: int) -> None:
    assert quantile(list(range(100, 0, -1)), share) == expected
