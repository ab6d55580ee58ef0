"""The benchmark of storage `copied`, on a few rows: its record has the promised form."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.long, pytest.mark.usefixtures("kernel")]


def test_the_record_has_seconds_and_bytes_of_both_storages(tmp_path: Path) -> None:
    out = tmp_path / "storage.json"
    command = [sys.executable, "-m", "bench.storage", "--tiny", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    record = json.loads(out.read_text())
    assert {"machine", "versions", "sizes", "ratios", "most"} <= record.keys()
    for storage in ("open", "copied"):
        assert {part: len(seconds_taken) for part, seconds_taken in record["seconds"][storage].items()} == {
            "verify": 1,
            "gate": 1,
            "dispose": 1,
            "whole": 1,
        }
    assert len(record["seconds"]["plain copy"]["whole"]) == 1
    assert record["bytes"]["open"] == record["bytes"]["staged"] > 0
    assert record["bytes"]["copied"] != record["bytes"]["staged"]
    assert "copied / open of the whole publication at most 1.25" in done.stdout
