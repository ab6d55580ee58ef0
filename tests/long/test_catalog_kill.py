"""SIGKILL of the served catalog at every step of every change, on PostgreSQL, several times on one catalog."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.catalog.changes import kill_cases, require_settled
from tests.support.catalog.killed_stewards import Yard, yard_at
from tests.support.catalog.processes import starter
from tests.support.ledger.databases import Postgresql, memory_folder

pytestmark = pytest.mark.long

ROUNDS = 5


@pytest.fixture(scope="module")
def yard(postgresql: Postgresql) -> Iterator[Yard]:
    url = postgresql.create_database()
    with memory_folder() as folder, starter() as stewards, yard_at(folder, stewards, ledger_url=url) as yard:
        yield yard


@pytest.mark.parametrize(("act", "point", "passes"), kill_cases())
def test_a_steward_killed_at_any_step_leaves_all_or_nothing(yard: Yard, act: str, point: str, passes: int) -> None:
    for number in range(ROUNDS):
        require_settled(yard, f"{act}-{point.replace('.', '-')}-{passes}-{number}", act, point, passes)
