"""How a test says that it needs something this machine may lack: it is skipped with the reason, or fails."""

from __future__ import annotations

import os

import pytest


def require(condition: object, reason: str) -> None:
    """Skip the test unless `condition` holds; with PVDM_REQUIRE_SERVICES=1 that is a failure."""
    if condition:
        return
    if os.environ.get("PVDM_REQUIRE_SERVICES") == "1":
        pytest.fail(f"PVDM_REQUIRE_SERVICES=1, but {reason}")
    pytest.skip(reason)
