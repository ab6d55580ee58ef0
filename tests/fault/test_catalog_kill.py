"""SIGKILL of the served catalog at every step of a change: all or nothing, and a reload or the same key settles it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import httpx
import pytest

from tests.support.catalog.changes import CHANGES, kill_cases, require_settled
from tests.support.catalog.killed_stewards import Yard, yard_at
from tests.support.catalog.processes import Starter, starter
from tests.support.ledger.databases import Postgresql, memory_folder

# Where the database has a part in it; the other points are on PostgreSQL too in tests/long.
LEDGER = [each for each in kill_cases() if each[1].startswith("ledger.")]


@pytest.fixture(scope="module")
def stewards() -> Iterator[Starter]:
    with starter() as made:
        yield made


@pytest.fixture(scope="module")
def yard(stewards: Starter) -> Iterator[Yard]:
    with memory_folder() as folder, yard_at(folder, stewards) as made:
        yield made


@pytest.fixture(scope="module")
def large_yard(stewards: Starter, postgresql: Postgresql) -> Iterator[Yard]:
    with memory_folder() as folder, yard_at(folder, stewards, ledger_url=postgresql.create_database()) as made:
        yield made


@pytest.fixture
def name() -> str:
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.mark.parametrize(("act", "point", "passes"), kill_cases())
def test_a_steward_killed_at_any_step_leaves_all_or_nothing_and_the_same_key_does_it_once(
    yard: Yard, name: str, act: str, point: str, passes: int
) -> None:
    require_settled(yard, name, act, point, passes)


@pytest.mark.parametrize(("act", "point", "passes"), LEDGER)
def test_a_steward_killed_beside_postgresql_leaves_all_or_nothing_too(
    large_yard: Yard, name: str, act: str, point: str, passes: int
) -> None:
    require_settled(large_yard, name, act, point, passes)


# The answers to a load of the table, of its new name and of one of two.
@pytest.mark.parametrize(
    ("act", "loaded"),
    [
        ("create", (200, 404, 404)),
        ("commit", (200, 404, 404)),
        ("transaction", (404, 404, 200)),
        ("drop", (404, 404, 404)),
        ("rename", (404, 200, 404)),
    ],
)
def test_without_a_key_a_reload_tells_what_a_killed_steward_did(
    yard: Yard, name: str, act: str, loaded: tuple[int, ...]
) -> None:
    CHANGES[act].prepare(yard, name)
    with yard.serving() as serving, yard.caller(serving) as caller:
        serving.arm("ledger.after_commit")
        with pytest.raises(httpx.TransportError):
            CHANGES[act].send(caller, name, {})
    with yard.serving() as serving, yard.caller(serving) as caller:
        asked = [f"/namespaces/sales/tables/{each}" for each in (name, f"{name}-new", f"{name}-one")]
        assert tuple(caller.ask("GET", path).status_code for path in asked) == loaded
    assert CHANGES[act].happened(yard, name)
