"""Verifies one attempt in a new process, like a Steward that has just started, and measures time and peak memory."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from bench.job_services import job_services_of
from bench.memory import own_peak_memory_mb
from pvdm.steward.config.steward import load_config
from pvdm.steward.notary import open_notary
from pvdm.verify.job import verify


@dataclass(frozen=True, slots=True)
class NewProcess:
    """The time and memory that a new process needed to verify both sides of an attempt."""

    seconds: float
    peak_memory_mb: float
    memory_before_mb: float


def measure_in_new_process(config: Path, attempt_id: str) -> NewProcess:
    """Run the measurement in another process; no other process may use the Steward's folder."""
    command = [sys.executable, "-m", "bench.spark_memory", str(config), attempt_id]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return NewProcess(**json.loads(done.stdout.splitlines()[-1]))


def main(config: Path, attempt_id: str) -> None:
    """Verify the attempt with the Steward's services, and print time and memory; the ledger records nothing."""
    notary = open_notary(load_config(config))
    try:
        services, tools = job_services_of(notary)
        before, begun = own_peak_memory_mb(), time.perf_counter()
        found = verify(services.verification.load_job(attempt_id), tools)
        took = time.perf_counter() - begun
        assert found.core.verdict.passed, found.findings
        print(json.dumps({"seconds": took, "peak_memory_mb": own_peak_memory_mb(), "memory_before_mb": before}))
    finally:
        notary.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
