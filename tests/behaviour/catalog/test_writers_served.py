"""Sixteen writers over HTTP at Stewards in processes of their own: no commit is lost and none is made twice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.catalog.killed_stewards import Yard, yard_at
from tests.support.catalog.processes import RestartedSteward, Starter, starter
from tests.support.catalog.writers import WRITERS, require_exact, write
from tests.support.ledger.databases import Postgresql, memory_folder

COMMITS = 2


@pytest.fixture(scope="module")
def stewards() -> Iterator[Starter]:
    with starter() as made:
        yield made


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def yard(request: pytest.FixtureRequest, stewards: Starter) -> Iterator[Yard]:
    url = request.getfixturevalue("postgresql").create_database() if request.param == "postgresql" else None
    with memory_folder() as folder, yard_at(folder, stewards, ledger_url=url) as made:
        yield made


@pytest.fixture(scope="module")
def shared(stewards: Starter, postgresql: Postgresql) -> Iterator[Yard]:
    """On PostgreSQL: a ledger in SQLite has one Steward."""
    with memory_folder() as folder, yard_at(folder, stewards, ledger_url=postgresql.create_database()) as made:
        yield made


def test_writers_on_branches_of_one_table_lose_and_double_nothing_while_main_is_attacked(yard: Yard) -> None:
    yard.table("one")
    branches = [("one", f"b{number}") for number in range(WRITERS)]
    with yard.serving() as serving:
        told, attacks = write(yard, lambda: [serving.url], branches, COMMITS, attacked="one")
    require_exact(yard, told)
    assert (403, "ForbiddenException") in attacks
    assert {status for status, _ in attacks} <= {403, 409}


def test_writers_on_tables_of_their_own_lose_and_double_nothing(yard: Yard) -> None:
    places = [(f"t{number}", "stage") for number in range(WRITERS)]
    for name, _ in places:
        yard.table(name)
    with yard.serving() as serving:
        told, _ = write(yard, lambda: [serving.url], places, COMMITS)
    require_exact(yard, told)
    assert [each for each in told if each.refused or each.unknown] == [], "nobody is in the way of another"


def test_writers_at_two_stewards_of_one_ledger_lose_and_double_nothing(shared: Yard) -> None:
    shared.table("both")
    branches = [("both", f"b{number}") for number in range(WRITERS)]
    with shared.serving() as first, shared.serving() as second:
        told, attacks = write(shared, lambda: [first.url, second.url], branches, COMMITS, attacked="both")
    require_exact(shared, told)
    assert {status for status, _ in attacks} <= {403, 409}


def test_writers_at_a_steward_that_is_killed_again_and_again_lose_and_double_nothing(
    yard: Yard, stewards: Starter
) -> None:
    """What a writer was not told it finds out by a reload; and it never finds what a 409 or a 503 had denied."""
    yard.table("shaken")
    branches = [("shaken", f"b{number}") for number in range(4)]
    unsteady = RestartedSteward(stewards, yard.stand.config, kills=3)
    unsteady.start()
    try:
        told, _ = write(yard, unsteady.urls, branches, 8)
    finally:
        unsteady.stop()
    require_exact(yard, told)
    assert unsteady.kills > 0
