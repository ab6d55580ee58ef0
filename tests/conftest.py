"""Hypothesis profiles and the engines under test."""

from __future__ import annotations

import functools
import gc
import json
import os
import shutil
import signal
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from httpx._config import DEFAULT_TIMEOUT_CONFIG
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from pvdm.digest import Engine, kernel_engine, reference_engine
from pvdm.errors import UnavailableError
from pvdm.lake.stores import circuit_breaker
from tests.support.ledger.databases import (
    ledger,
    ledger_url,
    memory_file_system,
    migrated_file,
    migrated_url,
    postgresql,
    sampled_ledger_url,
    scratch,
    shared_ledger,
)
from tests.support.process_wide import share_in_process
from tests.support.services import SHORT_LIVED

__all__ = [
    "ledger",
    "ledger_url",
    "migrated_file",
    "migrated_url",
    "postgresql",
    "sampled_ledger_url",
    "scratch",
    "shared_ledger",
]

_COMMON = settings(
    deadline=None,
    derandomize=False,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
settings.register_profile("default", _COMMON, max_examples=12)
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
    share_in_process()
    if (memory := memory_file_system()) is not None and shutil.disk_usage(memory).free >= MEMORY_BYTES:
        # Ledgers and logs wait for the disk at every step; what the tests are about is not how long it takes.
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))
    os.environ.setdefault("SPARK_SUBMIT_OPTS", SHORT_LIVED)
    config.addinivalue_line(
        "markers", "property: holds for all inputs; HYPOTHESIS_PROFILE=long tries many more of them"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get("PVDM_TEST_FAST") != "1":
        return
    left_out = [
        item for item in items if "postgresql" in item.name or "postgresql" in getattr(item, "fixturenames", ())
    ]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]


def pytest_collectstart() -> None:
    gc.disable()  # until all tests are collected: what is made for them stays


def pytest_collection_finish() -> None:
    # Thousands of collected tests stay to the end: the garbage collector need not look through them again and again.
    gc.collect()
    gc.freeze()
    gc.enable()
    # Most objects of a test die with it: to look for garbage less often costs little memory.
    gc.set_threshold(20_000, 20, 20)


# What one worker of a parallel run does alone, for all: one Spark session, one Go program that is compiled, one
# measurement that many tests look at.
TOGETHER = {
    "tests/vectors/": "vectors",
    "tests/unit/verify/test_verification_page.py": "findings",
    "tests/integration/": "spark",
    "tests/long/test_catalog_model.py": "spark",
    "tests/long/test_readers_long.py": "spark",
    "tests/behaviour/test_log_go.py": "go",
    "tests/behaviour/test_bench_catalog.py": "bench-catalog",
    "tests/behaviour/test_bench_steward.py": "bench-steward",
    "tests/behaviour/steward/test_many_files.py": "bench-publish",
}
# Long modules whose tests are worth a second set-up on another worker.
APART = ("tests/long/",)
# Seconds of the modules that took longest: of the last `make test` here, or as they are kept in the repository.
DURATIONS = (Path("build/test/durations.json"), Path("tests/durations.json"))


class Together(LoadScopeScheduling):  # type: ignore[misc]
    """Hands out modules that set something up once, and other tests one by one; what takes longest goes first."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        self._root = config.rootpath
        self._scopes: dict[str, str | None] = {}
        self._places: dict[Any, dict[str, int]] = {}
        self._ordered = False

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        if path not in self._scopes:
            self._scopes[path] = self._scope_of(path)
        return self._scopes[path] or nodeid

    def _scope_of(self, path: str) -> str | None:
        """The scope of all tests of a module; None where each is its own."""
        named = next((scope for prefix, scope in TOGETHER.items() if path.startswith(prefix)), None)
        if named is not None or path.startswith(APART):
            return named
        file = self._root / path
        return path if file.is_file() and 'scope="module"' in file.read_text("utf-8") else None

    @functools.cached_property
    def _seconds(self) -> dict[str, float]:
        """The seconds of modules, and of scopes of several modules."""
        file = next((path for path in (self._root / each for each in DURATIONS) if path.is_file()), None)
        found: defaultdict[str, float] = defaultdict(float)
        for path, seconds in ({} if file is None else json.loads(file.read_text("utf-8"))).items():
            found[self._split_scope(path) if path.startswith(tuple(TOGETHER)) else path] += seconds
        return found

    def _assign_work_unit(self, node: Any) -> None:
        """Do what the base class does, longest first; it looks through the whole collection for each test."""
        if not self._ordered:
            for each in sorted(self.workqueue, key=lambda scope: -self._seconds.get(scope.partition("::")[0], 0)):
                self.workqueue.move_to_end(each)
            self._ordered = True
        scope, unit = self.workqueue.popitem(last=False)
        self.assigned_work.setdefault(node, {})[scope] = unit
        if node not in self._places:
            self._places[node] = {nodeid: at for at, nodeid in enumerate(self.registered_collections[node])}
        node.send_runtest_some([self._places[node][nodeid] for nodeid, done in unit.items() if not done])

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
def _breakers_forgotten() -> None:
    """A server that one test found silent is asked by the next: at its address there may be another by then."""
    circuit_breaker._breakers.clear()


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
