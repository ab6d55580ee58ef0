"""The benchmark of publications to tables with many files, at its smallest sizes: its record has the expected form.

Its times are not judged here: they depend on how busy the machine is. `python -m bench.publish` prints them.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.publish import FEW, PARTS, TINY, Figure, ratios

pytest.importorskip("pvdm_kernel")
ROOT = Path(__file__).parents[3]
Record = dict[str, Any]


@pytest.fixture(scope="module")
def benchmark_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Record, str]:
    out = tmp_path_factory.mktemp("bench") / "publish.json"
    command = [sys.executable, "-m", "bench.publish", "--tiny", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(out.read_text()), done.stdout


@pytest.mark.long
def test_the_record_has_every_part_of_every_table_with_its_median(benchmark_run: tuple[Record, str]) -> None:
    found = benchmark_run[0]["cpu_ms"]
    assert set(found) == {shape.name for shape in TINY.shapes}
    for name, pair in found.items():
        assert set(pair) == {FEW.name, name}
        for parts in pair.values():
            assert set(parts) == set(PARTS)
            for figure in parts.values():
                assert len(figure["times_ms"]) == TINY.repetitions
                assert figure["median_ms"] == statistics.median(figure["times_ms"]) > 0


@pytest.mark.long
def test_the_bound_is_printed_and_the_record_names_machine_and_sizes(benchmark_run: tuple[Record, str]) -> None:
    record, printed = benchmark_run
    assert record["most"] == 1.2
    assert "many / few of the gate at most 1.2: " in printed
    assert {"machine", "versions", "sizes", "few"} <= set(record)


def test_a_ratio_divides_the_time_with_many_files_by_the_time_with_few() -> None:
    def parts(milliseconds: float) -> dict[str, Figure]:
        return dict.fromkeys(PARTS, Figure(milliseconds, (milliseconds,)))

    assert ratios({"many": {"few": parts(2.0), "many": parts(3.0)}}) == {"many": dict.fromkeys(PARTS, 1.5)}
