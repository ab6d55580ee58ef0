"""Hypothesis profiles and the engines under test."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

from pvdm.digest import Engine, kernel_engine, reference_engine
from pvdm.errors import UnavailableError
from tests.databases import (
    ledger,
    ledger_url,
    migrated_file,
    migrated_url,
    postgresql,
    scratch,
    shared_ledger,
)

__all__ = ["ledger", "ledger_url", "migrated_file", "migrated_url", "postgresql", "scratch", "shared_ledger"]

_COMMON = settings(
    deadline=None,
    derandomize=False,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
settings.register_profile("default", _COMMON, max_examples=200)
settings.register_profile("long", _COMMON, max_examples=5_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_configure(config: pytest.Config) -> None:
    # A shell that starts the tests in the background has them ignore Ctrl-C, and their children too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line(
        "markers", "property: holds for all inputs; HYPOTHESIS_PROFILE=long tries many more of them"
    )


def _kernel() -> Engine:
    try:
        return kernel_engine()
    except UnavailableError as error:
        if os.environ.get("PVDM_REQUIRE_SERVICES") == "1":
            pytest.fail(f"PVDM_REQUIRE_SERVICES=1, but {error}")
        pytest.skip(f"{error.message}; {error.hint}")


@pytest.fixture(scope="session", params=["reference", "kernel"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """Each implementation in turn; without the kernel its tests are skipped, or fail where everything is required."""
    return reference_engine() if request.param == "reference" else _kernel()


@pytest.fixture(scope="session")
def kernel() -> Engine:
    """The kernel alone, where the test is about it."""
    return _kernel()
