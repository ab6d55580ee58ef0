"""Reads the peak memory of this process."""

from __future__ import annotations

import resource
from pathlib import Path


def own_peak_memory_mb() -> float:
    """Peak memory of this process; on Linux not by `getrusage`, whose figure includes the parent's before `exec`."""
    status = Path("/proc/self/status")
    if status.exists():
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(lines["VmHWM"].split()[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
