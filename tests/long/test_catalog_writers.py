"""Sixteen writers with many commits each, on one table and on sixteen, while Stewards are killed and started again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.catalog.killed_stewards import Yard, yard_at
from tests.support.catalog.processes import RestartedSteward, Starter, starter
from tests.support.catalog.writers import WRITERS, require_exact, write
from tests.support.ledger.databases import Postgresql, memory_folder

pytestmark = pytest.mark.long

COMMITS = 25
KILLS = 20


@pytest.fixture(scope="module")
def stewards() -> Iterator[Starter]:
    with starter() as made:
        yield made


@pytest.fixture(params=["sqlite", "postgresql"])
def yard(request: pytest.FixtureRequest, stewards: Starter) -> Iterator[Yard]:
    url = request.getfixturevalue("postgresql").create_database() if request.param == "postgresql" else None
    with memory_folder() as folder, yard_at(folder, stewards, ledger_url=url) as made:
        yield made


@pytest.fixture
def shared_yard(stewards: Starter, postgresql: Postgresql) -> Iterator[Yard]:
    """A catalog for two Stewards, on PostgreSQL: a ledger in SQLite can have only one."""
    with memory_folder() as folder, yard_at(folder, stewards, ledger_url=postgresql.create_database()) as made:
        yield made


@pytest.mark.parametrize("tables", [1, WRITERS])
def test_many_commits_of_many_writers_at_two_stewards_are_exact(shared_yard: Yard, tables: int) -> None:
    places = [(f"t{number % tables}", f"b{number}") for number in range(WRITERS)]
    for name in sorted({name for name, _ in places}):
        shared_yard.table(name)
    with shared_yard.serving() as first, shared_yard.serving() as second:
        outcomes, attacks = write(shared_yard, lambda: [first.url, second.url], places, COMMITS, attacked="t0")
    require_exact(shared_yard, outcomes)
    assert {status for status, _ in attacks} <= {403, 409}


def test_many_commits_at_a_steward_that_is_killed_again_and_again_are_exact(yard: Yard, stewards: Starter) -> None:
    yard.table("shaken")
    places = [("shaken", f"b{number}") for number in range(WRITERS)]
    unsteady = RestartedSteward(stewards, yard.stand.config, kills=KILLS)
    unsteady.start()
    try:
        outcomes, attacks = write(yard, unsteady.urls, places, COMMITS, attacked="shaken")
    finally:
        unsteady.stop()
    require_exact(yard, outcomes)
    assert unsteady.kills == KILLS
    assert {status for status, _ in attacks} <= {403, 409}
