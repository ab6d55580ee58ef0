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
def shared_yard(stewards: Starter, postgresql: Postgresql) -> Iterator[Yard]:
    """A yard for several Stewards, on PostgreSQL: a ledger in SQLite serves only one."""
    with memory_folder() as folder, yard_at(folder, stewards, ledger_url=postgresql.create_database()) as made:
        yield made


def test_writers_on_branches_of_one_table_lose_and_double_nothing_while_main_is_attacked(yard: Yard) -> None:
    yard.table("one")
    branches = [("one", f"b{number}") for number in range(WRITERS)]
    with yard.serving() as serving:
        reports, attacks = write(yard, lambda: [serving.url], branches, COMMITS, attacked="one")
    require_exact(yard, reports)
    assert (403, "ForbiddenException") in attacks
    assert {status for status, _ in attacks} <= {403, 409}


def test_writers_on_tables_of_their_own_lose_and_double_nothing(yard: Yard) -> None:
    places = [(f"t{number}", "stage") for number in range(WRITERS)]
    for name, _ in places:
        yard.table(name)
    with yard.serving() as serving:
        reports, _ = write(yard, lambda: [serving.url], places, COMMITS)
    require_exact(yard, reports)
    assert [each for each in reports if each.refused or each.unknown] == [], "writers on own tables do not conflict"


def test_writers_at_two_stewards_of_one_ledger_lose_and_double_nothing(shared_yard: Yard) -> None:
    shared_yard.table("both")
    branches = [("both", f"b{number}") for number in range(WRITERS)]
    with shared_yard.serving() as first, shared_yard.serving() as second:
        reports, attacks = write(shared_yard, lambda: [first.url, second.url], branches, COMMITS, attacked="both")
    require_exact(shared_yard, reports)
    assert {status for status, _ in attacks} <= {403, 409}


def test_writers_at_a_steward_that_is_killed_again_and_again_lose_and_double_nothing(
    yard: Yard, stewards: Starter
) -> None:
    """A writer that got no answer reloads the table. It must never find a commit that a 409 or 503 had denied."""
    yard.table("shaken")
    branches = [("shaken", f"b{number}") for number in range(4)]
    unsteady = RestartedSteward(stewards, yard.stand.config, kills=3)
    unsteady.start()
    try:
        reports, _ = write(yard, unsteady.urls, branches, 8)
    finally:
        unsteady.stop()
    require_exact(yard, reports)
    assert unsteady.kills > 0
