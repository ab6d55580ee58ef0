"""SIGKILL of the served catalog at every step of a change: all or nothing happens, and a retry makes it once."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import httpx
import pytest

from tests.support.catalog.changes import CHANGES, kill_cases, require_settled
from tests.support.catalog.killed_stewards import Yard, yard_at
from tests.support.catalog.processes import Starter, starter
from tests.support.ledger.databases import Postgresql, memory_folder

# The points at which the database matters. tests/long has all points on PostgreSQL.
LEDGER_CASES = [each for each in kill_cases() if each[1].startswith("ledger.")]


@pytest.fixture(scope="module")
def stewards() -> Iterator[Starter]:
    with starter() as made:
        yield made


@pytest.fixture(scope="module")
def yard(stewards: Starter) -> Iterator[Yard]:
    with memory_folder() as folder, yard_at(folder, stewards) as made:
        yield made


@pytest.fixture(scope="module")
def postgresql_yard(stewards: Starter, postgresql: Postgresql) -> Iterator[Yard]:
    with memory_folder() as folder, yard_at(folder, stewards, ledger_url=postgresql.create_database()) as made:
        yield made


@pytest.fixture
def name() -> str:
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.mark.parametrize(("act", "point", "passes"), kill_cases())
def test_a_steward_killed_at_any_step_leaves_all_or_nothing_and_the_same_key_makes_it_once(
    yard: Yard, name: str, act: str, point: str, passes: int
) -> None:
    require_settled(yard, name, act, point, passes)


@pytest.mark.parametrize(
    ("act", "point", "passes"),
    [pytest.param(*case, marks=pytest.mark.long) if at % 3 else case for at, case in enumerate(LEDGER_CASES)],
)
def test_a_steward_killed_at_a_commit_on_postgresql_leaves_all_or_nothing(
    postgresql_yard: Yard, name: str, act: str, point: str, passes: int
) -> None:
    require_settled(postgresql_yard, name, act, point, passes)


# After each change: the one name under which a table exists. A transaction changes `NAME-one` and `NAME-two`.
@pytest.mark.parametrize(
    ("act", "existing"),
    [("create", ""), ("commit", ""), ("transaction", "-one"), ("drop", None), ("rename", "-new")],
)
def test_without_a_key_a_reload_shows_what_a_killed_steward_did(
    yard: Yard, name: str, act: str, existing: str | None
) -> None:
    CHANGES[act].prepare(yard, name)
    with yard.serving() as serving, yard.caller(serving) as caller:
        serving.arm("ledger.after_commit")
        with pytest.raises(httpx.TransportError):
            CHANGES[act].send(caller, name, {})
    with yard.serving() as serving, yard.caller(serving) as caller:
        for suffix in ("", "-new", "-one"):
            answer = caller.ask("GET", f"/namespaces/sales/tables/{name}{suffix}")
            assert answer.status_code == (200 if suffix == existing else 404), suffix
    assert CHANGES[act].happened(yard, name)
