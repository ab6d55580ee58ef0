"""The benchmark of a publication beside many files, a few of everything: its record has the promised form.

What it measures is printed and written by `python -m bench.publish`; a busy machine makes no test of it.
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
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Record, str]:
    out = tmp_path_factory.mktemp("bench") / "publish.json"
    command = [sys.executable, "-m", "bench.publish", "--tiny", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(out.read_text()), done.stdout


def test_every_part_of_every_table_is_there_and_its_median_follows(ran: tuple[Record, str]) -> None:
    found = ran[0]["cpu_ms"]
    assert set(found) == {shape.name for shape in TINY.shapes}
    for name, pair in found.items():
        assert set(pair) == {FEW.name, name}
        for parts in pair.values():
            assert set(parts) == set(PARTS)
            for figure in parts.values():
                assert len(figure["times_ms"]) == TINY.repetitions
                assert figure["median_ms"] == statistics.median(figure["times_ms"]) > 0


def test_ratios_machine_and_verdict_are_printed(ran: tuple[Record, str]) -> None:
    record, printed = ran
    assert record["most"] == 1.2
    assert "many / few of the gate at most 1.2: " in printed
    assert {"machine", "versions", "sizes", "few"} <= set(record)


def test_a_ratio_is_of_the_table_that_took_turns() -> None:
    def parts(took: float) -> dict[str, Figure]:
        return dict.fromkeys(PARTS, Figure(took, (took,)))

    assert ratios({"many": {"few": parts(2.0), "many": parts(3.0)}}) == {"many": dict.fromkeys(PARTS, 1.5)}
