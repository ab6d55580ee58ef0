"""The benchmark on Spark at its smallest size: the form of its record, its ratios, and what it is compared with."""

from __future__ import annotations

import hmac
import json
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from bench.spark import COMMITS, ON_SPARK, STEPS, TINIEST, Measurements, note_repetition, report
from bench.spark_hashes import differing_rows, sum_hmac, sum_xxhash64
from bench.spark_memory import NewProcess

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

pytest.importorskip("pvdm_kernel")
KEYS = {
    "write_seconds",
    "stage_seconds",
    "freeze_seconds",
    "verify_seconds",
    "verify_both_seconds",
    "verify_spark_seconds",
    "verify_spark_extraction_seconds",
    "publish_seconds",
    "xxhash64_seconds",
    "hmac_builtin_seconds",
    "except_all_seconds",
    "plain_commit_ms",
    "gate_commit_ms",
    "gate_commit_ms_10000_files",
    "verify_peak_memory_mb",
}
ROWS = ("(1, 'a')", "(1, 'a')", "(2, null)", "(3, 'Grüße')")
Record = dict[str, Any]


class BenchRun(NamedTuple):
    """The record of a run, what the run printed, and the folder of the record."""

    record: Record
    printed: str
    folder: Path


@pytest.fixture(scope="module")
def bench_run(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> BenchRun:
    """A run of the smallest benchmark, on the session of all tests."""
    folder = tmp_path_factory.mktemp("bench")
    with pytest.MonkeyPatch.context() as patch:
        printed: list[str] = []
        patch.setattr("builtins.print", lambda *words, **_: printed.append(" ".join(map(str, words))))
        report(TINIEST, folder / "out" / "spark.json", tmp_path_factory.mktemp("tpch"))
    return BenchRun(json.loads((folder / "out" / "spark.json").read_text()), "\n".join(printed), folder / "out")


@pytest.mark.long
def test_each_scale_factor_has_exactly_the_promised_medians(bench_run: BenchRun) -> None:
    (run,) = bench_run.record["runs"]
    assert set(run) == KEYS
    left_out = {name for name, value in run.items() if value is None}
    assert left_out == {f"{name}_seconds" for name in ON_SPARK}, "no second application is started here"
    assert all(value > 0 for value in run.values() if value is not None), run


@pytest.mark.long
def test_each_median_follows_from_its_repetitions(bench_run: BenchRun) -> None:
    (run,), (measured,) = bench_run.record["runs"], bench_run.record["measured"]
    for name in STEPS:
        assert len(measured["seconds"][name]) == TINIEST.repetitions, name
        assert run[f"{name}_seconds"] == statistics.median(measured["seconds"][name]), name
    assert [len(measured["seconds"][name]) for name in COMMITS] == [TINIEST.repetitions * TINIEST.commits] * len(
        COMMITS
    )
    assert run["gate_commit_ms"] == 1e3 * statistics.median(measured["seconds"]["gate_commit"])


@pytest.mark.long
def test_machine_versions_seed_repetitions_and_ratios_are_printed(bench_run: BenchRun) -> None:
    record, printed, _ = bench_run
    assert all(f"{name}: {json.dumps(record[name])}" in printed for name in ("machine", "versions", "seed", "sizes"))
    assert f"repetitions: {TINIEST.repetitions}" in printed
    assert all(name in printed for name in record["measured"][0]["ratios"])
    assert 0 <= (record["measured"][0]["stolen"] or 0) < 1
    assert {"spark", "iceberg", "java", "pvdm-kernel", "tpchgen-cli"} <= set(record["versions"])


@pytest.mark.long
def test_the_benchmark_leaves_nothing_but_its_record(bench_run: BenchRun) -> None:
    assert [path.name for path in bench_run.folder.iterdir()] == ["spark.json"]


def frame(spark: SparkSession, rows: Sequence[str]) -> DataFrame:
    return spark.sql(f"select * from values {', '.join(rows)} as rows (a, b)")


@pytest.mark.long
def test_hmac_from_built_ins_is_hmac(spark: SparkSession) -> None:
    texts = ["1:11:a", "1:11:a", "1:2-", "1:35:Grüße"]
    wanted = sum(int.from_bytes(hmac.digest(b"k" * 32, text.encode(), "sha256"), "big") for text in texts) % 2**256
    assert sum_hmac(frame(spark, ROWS), b"k" * 32) == wanted


@pytest.mark.long
def test_the_checks_that_it_is_compared_with_notice_a_missing_duplicate(spark: SparkSession) -> None:
    whole, part = frame(spark, ROWS), frame(spark, ROWS[1:])
    assert differing_rows(whole, part) == 1
    assert sum_xxhash64(whole) != sum_xxhash64(part)


FRESH = NewProcess(1.0, 100.0, 50.0)  # seconds and memory in MB


def measured(*fresh: NewProcess, **seconds: list[float]) -> Measurements:
    taken = {name: [1.0] for name in (*STEPS, *ON_SPARK, "gate", *COMMITS)} | seconds
    return Measurements(1, 10, taken, fresh, "ext4", (0.0, 0.0), None)


def test_a_ratio_is_the_median_of_the_ratios_of_each_repetition() -> None:
    found = measured(FRESH, verify=[1.0, 9.0, 2.0], write=[2.0, 3.0, 8.0]).ratios()["verify / write"]
    assert (found.median, found.least, found.most) == (0.5, 0.25, 3.0)


def test_a_warm_up_does_not_count() -> None:
    taken = {"write": [1.0]}
    note_repetition(taken, {"write": [7.0]}, warm_up=True)
    assert taken == {"write": [1.0]}
    note_repetition(taken, {"write": [2.0]}, warm_up=False)
    assert taken == {"write": [1.0, 2.0]}


def test_a_step_that_was_left_out_is_null_and_in_no_ratio() -> None:
    found = measured(FRESH, hmac_builtin=[], except_all=[])
    assert (found.run()["hmac_builtin_seconds"], found.run()["except_all_seconds"]) == (None, None)
    assert not any("hmac" in name or "except" in name for name in found.ratios())


def test_a_time_measured_after_the_repetitions_is_divided_by_every_write_time() -> None:
    fresh = [NewProcess(seconds, memory, 50.0) for seconds, memory in ((1.0, 100.0), (2.0, 300.0), (9.0, 200.0))]
    found = measured(*fresh, verify_spark=[6.0], write=[2.0, 3.0, 6.0])
    on_spark, both = found.ratios()["verify_spark / write"], found.ratios()["verify_both in a fresh process / write"]
    assert (on_spark.median, on_spark.least, on_spark.most) == (2.0, 1.0, 3.0)
    assert (both.median, both.least, both.most) == (2 / 3, 1 / 6, 4.5)
    assert found.run()["verify_peak_memory_mb"] == 300
