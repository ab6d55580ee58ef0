"""How a test says that it needs something this machine may lack, where it is skipped or fails, and how Java starts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_ARCHIVE = Path(__file__).parents[2] / "build" / "test" / "spark.jsa"
# An archive that does not fit the Java at hand is not used; what Java says about that is left out of Spark's output.
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"
SHORT_LIVED = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {_QUIET}"
"""Options of Java for a Spark that lives for seconds: one quick compiler, one thread to collect garbage."""
if _ARCHIVE.exists():  # tools/spark_archive.py made it
    SHORT_LIVED += f" -XX:SharedArchiveFile={_ARCHIVE}"


def require(condition: object, reason: str) -> None:
    """Skip the test unless `condition` holds; with PVDM_REQUIRE_SERVICES=1 that is a failure."""
    if condition:
        return
    if os.environ.get("PVDM_REQUIRE_SERVICES") == "1":
        pytest.fail(f"PVDM_REQUIRE_SERVICES=1, but {reason}")
    pytest.skip(reason)
