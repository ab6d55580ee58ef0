"""How tests are scheduled on workers: which run together, which run first, and what happens after a worker crashed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import DURATIONS, TOGETHER, Together

SHARED = next(iter(TOGETHER))


@dataclass(eq=False)
class Worker:
    """A fake worker: it records the tests that the scheduler sends."""

    gateway: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(id="gw"))
    handed_out: list[int] = field(default_factory=list)
    shutting_down: bool = False

    def send_runtest_some(self, indices: list[int]) -> None:
        self.handed_out += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def schedule(config: pytest.Config, monkeypatch: pytest.MonkeyPatch, tests: list[str]) -> tuple[Together, list[Worker]]:
    """Schedule these tests on two workers."""
    monkeypatch.setattr(config.option, "tx", ["popen", "popen"])
    together, workers = Together(config), [Worker(), Worker()]
    for worker in workers:
        add_worker(together, worker, tests)
    together.schedule()
    return together, workers


def add_worker(together: Together, worker: Worker, tests: list[str]) -> None:
    together.add_node(worker)
    together.add_node_collection(worker, tests)


def run_all(together: Together, worker: Worker) -> list[int]:
    """Complete every test that the worker gets until it gets no more; return them in order."""
    done: list[int] = []
    while len(done) < len(worker.handed_out):
        done.append(worker.handed_out[len(done)])
        together.mark_test_complete(worker, done[-1])
    return done


@pytest.mark.parametrize("folder", ["tests/unit/", SHARED], ids=["one by one", "together"])
def test_a_test_that_crashed_its_worker_is_reported_and_the_others_run(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    tests = [f"{folder}test_a.py::test_{number}" for number in range(5)] + ["tests/unit/test_b.py::test_b"]
    together, (crashed, other) = schedule(pytestconfig, monkeypatch, tests)
    first = crashed.handed_out[0]
    assert together.remove_node(crashed) == tests[first]
    new = Worker()
    add_worker(together, new, tests)
    together.schedule()
    assert sorted([*run_all(together, other), *run_all(together, new), first]) == list(range(6))
    assert (together.has_pending, other.shutting_down, new.shutting_down) == (False, True, True)


def test_a_worker_that_ends_without_work_reports_no_test(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    tests = ["tests/unit/test_a.py::a", "tests/unit/test_a.py::b"]
    together, (one, other) = schedule(pytestconfig, monkeypatch, tests)
    assert (run_all(together, one), together.remove_node(one)) == ([0], None)
    assert run_all(together, other) == [1]


def test_a_module_with_a_shared_set_up_goes_to_one_worker(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, single = "tests/behaviour/steward/test_routes.py", "tests/unit/test_handing_out.py"
    tests = [f"{path}::test_{number}" for path in (single, shared) for number in range(4)]
    _, (one, other) = schedule(pytestconfig, monkeypatch, tests)
    assert one.handed_out == [4, 5, 6, 7]
    assert set(other.handed_out) < {0, 1, 2, 3}


def test_the_longest_modules_are_scheduled_first(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / DURATIONS[1]).parent.mkdir()
    (tmp_path / DURATIONS[1]).write_text(json.dumps({"tests/unit/test_c.py": 9.5, "tests/unit/test_b.py": 4.5}))
    monkeypatch.setattr(type(pytestconfig), "rootpath", tmp_path)
    tests = [f"tests/unit/test_{letter}.py::test_it" for letter in "abc"]
    _, (one, other) = schedule(pytestconfig, monkeypatch, tests)
    assert (one.handed_out[0], other.handed_out[0]) == (2, 1)
