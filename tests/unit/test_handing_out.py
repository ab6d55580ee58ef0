"""How tests are handed out to workers: what goes together, what goes first, and what is done when a worker dies."""

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
    """A worker's side of what the scheduler asks of it."""

    gateway: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(id="gw"))
    handed_out: list[int] = field(default_factory=list)
    shutting_down: bool = False

    def send_runtest_some(self, indices: list[int]) -> None:
        self.handed_out += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def scheduled(
    config: pytest.Config, monkeypatch: pytest.MonkeyPatch, tests: list[str]
) -> tuple[Together, list[Worker]]:
    monkeypatch.setattr(config.option, "tx", ["popen", "popen"])
    together, workers = Together(config), [Worker(), Worker()]
    for worker in workers:
        begin(together, worker, tests)
    together.schedule()
    return together, workers


def begin(together: Together, worker: Worker, tests: list[str]) -> None:
    together.add_node(worker)
    together.add_node_collection(worker, tests)


def finish(together: Together, worker: Worker) -> list[int]:
    """Pass every test that the worker is given, until there is none left for it."""
    done: list[int] = []
    while len(done) < len(worker.handed_out):
        done.append(worker.handed_out[len(done)])
        together.mark_test_complete(worker, done[-1])
    return done


@pytest.mark.parametrize("folder", ["tests/unit/", SHARED], ids=["one by one", "together"])
def test_a_test_that_ended_its_worker_is_reported_and_the_others_go_on(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    tests = [f"{folder}test_a.py::test_{number}" for number in range(5)] + ["tests/unit/test_b.py::test_b"]
    together, (dead, other) = scheduled(pytestconfig, monkeypatch, tests)
    first = dead.handed_out[0]
    assert together.remove_node(dead) == tests[first]
    new = Worker()
    begin(together, new, tests)
    together.schedule()
    assert sorted([*finish(together, other), *finish(together, new), first]) == list(range(6))
    assert (together.has_pending, other.shutting_down, new.shutting_down) == (False, True, True)


def test_a_worker_that_ends_with_nothing_to_do_ended_in_no_test(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    together, (one, other) = scheduled(
        pytestconfig, monkeypatch, ["tests/unit/test_a.py::a", "tests/unit/test_a.py::b"]
    )
    assert (finish(together, one), together.remove_node(one)) == ([0], None)
    assert finish(together, other) == [1]


def test_a_module_that_sets_something_up_once_is_one_workers(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, single = "tests/behaviour/steward/test_routes.py", "tests/unit/test_handing_out.py"
    tests = [f"{path}::test_{number}" for path in (single, shared) for number in range(4)]
    _, (one, other) = scheduled(pytestconfig, monkeypatch, tests)
    assert one.handed_out == [4, 5, 6, 7]
    assert set(other.handed_out) < {0, 1, 2, 3}


def test_what_took_longest_goes_first(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / DURATIONS[1]).parent.mkdir()
    (tmp_path / DURATIONS[1]).write_text(json.dumps({"tests/unit/test_c.py": 9.5, "tests/unit/test_b.py": 4.5}))
    monkeypatch.setattr(type(pytestconfig), "rootpath", tmp_path)
    tests = [f"tests/unit/test_{letter}.py::test_it" for letter in "abc"]
    _, (one, other) = scheduled(pytestconfig, monkeypatch, tests)
    assert (one.handed_out[0], other.handed_out[0]) == (2, 1)
