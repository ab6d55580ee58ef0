"""Two Stewards on one PostgreSQL ledger: when one Steward dies, the other continues its work. Without a JVM."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pvdm.api.work import AttemptView
from pvdm.client import StewardClient
from pvdm.model.role import Role
from pvdm.model.states import AttemptState
from tests.support.catalog.processes import Starter, StewardProcess, starter
from tests.support.ledger.databases import Postgresql
from tests.support.steward.pipeline import Line, Row, contract, line_at

WORKLOADS = 20
SECONDS = 60.0
ROWS: tuple[Row, ...] = tuple((number, "2026-11-13", "Ulm") for number in range(WORKLOADS))
CONTRACT = contract("parameters:\n  n: {type: long}", where="id = ${n}", claim="{column: id}")


@pytest.fixture(scope="module")
def stewards() -> Iterator[Starter]:
    with starter() as made:
        yield made


@pytest.fixture
def line(tmp_path: Path, postgresql: Postgresql) -> Iterator[Line]:
    with line_at(tmp_path, rows=ROWS, ledger_url=postgresql.create_database()) as made:
        made.protect(CONTRACT)
        yield made


def client_of(line: Line, process: StewardProcess) -> StewardClient:
    return StewardClient(process.url, line.token(Role.PRODUCER))


def stage(line: Line, client: StewardClient, number: int) -> AttemptView:
    """Open a workload of one row and an attempt, stage the row, and return the attempt."""
    _, attempt = line.attempt(client, f"run-{number}", n=str(number))
    line.stage(client, attempt, [ROWS[number]])
    return attempt


def test_attempts_that_a_killed_steward_left_are_published_by_the_other_steward(line: Line, stewards: Starter) -> None:
    line.served.server.stop()  # the Steward of this process only prepares the tables
    config = line.served.stand.config
    with (
        stewards.serving(config) as dying,
        stewards.serving(config) as living,
        client_of(line, dying) as first,
        client_of(line, living) as second,
    ):
        attempts = [stage(line, first, number) for number in range(WORKLOADS)]
        for attempt in attempts:
            first.staged(attempt.attempt_id)
        before = [second.attempt(attempt.attempt_id).state for attempt in attempts]
        dying.kill()
        with ThreadPoolExecutor(WORKLOADS) as pool:
            ended = list(pool.map(lambda each: second.await_attempt(each.attempt_id, seconds=SECONDS), attempts))
    assert AttemptState.VERIFYING in before  # the Steward was killed before it had verified every attempt
    assert [each.state for each in ended] == [AttemptState.COMMITTED] * WORKLOADS
