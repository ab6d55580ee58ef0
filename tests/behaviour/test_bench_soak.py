"""The soak benchmark, with a few publications: its record has the promised form, and no writer fails."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.long, pytest.mark.usefixtures("kernel")]


def test_the_record_has_early_and_late_figures_and_no_writer_failed(tmp_path: Path) -> None:
    out = tmp_path / "soak.json"
    command = [sys.executable, "-m", "bench.soak", "--tiny", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    record = json.loads(out.read_text())
    for when in ("early", "late"):
        for figure in ("cpu_ms", "p50_ms", "written_bytes", "kept_metadata_bytes", "rss_mb"):
            assert record[f"{when}_{figure}"] > 0, (when, figure)
    assert min(record["metadata_mb"], record["rss_mb"]) > 0
    assert (record["writers_8_failed"], record["writers_32_failed"]) == (0, 0)
    assert min(record["writers_8_per_second"], record["writers_32_per_second"]) > 0
    assert record["writers_32_longest_wait_by_mean"] >= 1
    assert [len(record[name]) for name in ("writers_8", "writers_32")] == [record["sizes"]["repetitions"]] * 2
    assert {"machine", "versions", "sizes", "seed", "windows", "bounds", "ledger"} <= record.keys()
    assert len(record["windows"]) == record["sizes"]["publications"] / record["sizes"]["window"]
