"""Skips or fails tests that need a service which this machine lacks, and has Java's options for Spark."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# The classes that Spark loads, archived by tools/spark_archive.py: with them Java starts in half the time.
_CLASS_ARCHIVE = Path(__file__).parents[2] / "build" / "test" / "spark.jsa"
# Java ignores an archive of another Java version. Its warnings about that are kept out of Spark's output.
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"
SHORT_LIVED = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {_QUIET}"
"""Java's options for a Spark that runs for seconds: only the quick compiler, and one thread to collect garbage."""
if _CLASS_ARCHIVE.exists():
    SHORT_LIVED += f" -XX:SharedArchiveFile={_CLASS_ARCHIVE}"


def require(condition: object, reason: str) -> None:
    """Skip the test unless `condition` holds; with PVDM_REQUIRE_SERVICES=1, fail it instead."""
    if condition:
        return
    if os.environ.get("PVDM_REQUIRE_SERVICES") == "1":
        pytest.fail(f"PVDM_REQUIRE_SERVICES=1, but {reason}")
    pytest.skip(reason)
