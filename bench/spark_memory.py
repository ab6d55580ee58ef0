"""Verifies one attempt in a process of its own, as a Steward does that has just started: time and peak memory."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from bench.memory import own_peak_memory_mb
from bench.spark_desks import workers_of
from pvdm.steward.config.steward import load_config
from pvdm.steward.notary import open_notary
from pvdm.verify.job import verify


@dataclass(frozen=True, slots=True)
class Fresh:
    """What a fresh process needed for both sides of an attempt."""

    seconds: float
    peak_memory_mb: float
    memory_before_mb: float


def in_a_fresh_process(config: Path, attempt_id: str) -> Fresh:
    """The measurement, in another process; nobody else may have the Steward's folder."""
    command = [sys.executable, "-m", "bench.spark_memory", str(config), attempt_id]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return Fresh(**json.loads(done.stdout.splitlines()[-1]))


def main(config: Path, attempt_id: str) -> None:
    """Open the Steward's desks, verify the attempt, print what it took; nothing is recorded."""
    notary = open_notary(load_config(config))
    try:
        desks, tools = workers_of(notary)
        before, begun = own_peak_memory_mb(), time.perf_counter()
        found = verify(desks.verification.load_job(attempt_id), tools)
        took = time.perf_counter() - begun
        assert found.core.verdict.passed, found.findings
        print(json.dumps({"seconds": took, "peak_memory_mb": own_peak_memory_mb(), "memory_before_mb": before}))
    finally:
        notary.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
