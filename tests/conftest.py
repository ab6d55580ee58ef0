"""Hypothesis profiles and the engines under test."""

from __future__ import annotations

import gc
import os
import shutil
import signal
from typing import Any

import pytest
from httpx._config import DEFAULT_TIMEOUT_CONFIG
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from pvdm.digest import Engine, kernel_engine, reference_engine
from pvdm.errors import UnavailableError
from pvdm.lake.stores import circuit_breaker
from tests.support.ledger.databases import (
    in_memory,
    ledger,
    ledger_url,
    migrated_file,
    migrated_url,
    postgresql,
    scratch,
    shared_ledger,
)
from tests.support.services import SHORT_LIVED

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

MEMORY_BYTES = 4 << 30
"""Folders of tests are in memory where there is so much room for them."""
ANSWER_SECONDS = 60.0
"""How long tests wait for an answer where they say nothing of it: a busy machine needs more than httpx's five."""


def pytest_configure(config: pytest.Config) -> None:
    # A shell that starts the tests in the background has them ignore Ctrl-C, and their children too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for each in ("connect", "read", "write", "pool"):
        setattr(DEFAULT_TIMEOUT_CONFIG, each, ANSWER_SECONDS)
    if (memory := in_memory()) is not None and shutil.disk_usage(memory).free >= MEMORY_BYTES:
        # Ledgers and logs wait for the disk at every step; what the tests are about is not how long it takes.
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))
    os.environ.setdefault("SPARK_SUBMIT_OPTS", SHORT_LIVED)
    config.addinivalue_line(
        "markers", "property: holds for all inputs; HYPOTHESIS_PROFILE=long tries many more of them"
    )


def pytest_collection_finish() -> None:
    # Twenty thousand collected tests stay to the end: the garbage collector need not look through them again and again.
    gc.collect()
    gc.freeze()


# What one worker of a parallel run does alone, for all: one Spark session, one measurement that many tests look at,
# thousands of tests that take less than their handing out.
TOGETHER = {
    "tests/vectors/": "vectors",
    "tests/unit/test_errors_doc.py": "errors",
    "tests/unit/verify/test_verification_page.py": "findings",
    "tests/integration/": "spark",
    "tests/long/test_catalog_model.py": "spark",
    "tests/long/test_readers_long.py": "spark",
    "tests/behaviour/test_bench_catalog.py": "bench-catalog",
    "tests/behaviour/test_bench_steward.py": "bench-steward",
    "tests/behaviour/steward/test_many_files.py": "bench-publish",
}


class Together(LoadScopeScheduling):  # type: ignore[misc]
    """Hands out tests one by one, but those that share something dear to one worker."""

    def _split_scope(self, nodeid: str) -> str:
        return next((scope for prefix, scope in TOGETHER.items() if nodeid.startswith(prefix)), nodeid)

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """Forget a scope that is done: the base class counts all that it ever handed out, after every single test."""
        scope = self._split_scope(self.registered_collections[node][item_index])
        super().mark_test_complete(node, item_index, duration)
        if all(self.assigned_work[node][scope].values()):
            del self.assigned_work[node][scope]

    def remove_node(self, node: Any) -> str | None:
        """Hand out what a dead worker left, but the test that it died in: it would end every other worker too."""
        left = {scope: unit for scope, unit in self.assigned_work.pop(node).items() if not all(unit.values())}
        if not left:
            return None
        unit = next(iter(left.values()))
        died_in: str = next(nodeid for nodeid, done in unit.items() if not done)
        unit[died_in] = True
        self.workqueue.update({scope: unit for scope, unit in left.items() if not all(unit.values())})
        for other in self.nodes:
            self._reschedule(other)
        return died_in


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Together:
    return Together(config, log)


@pytest.fixture(autouse=True)
def _lines_forgotten() -> None:
    """A server that one test found silent is asked by the next: at its address there may be another by then."""
    circuit_breaker._lines.clear()


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
