"""Sixteen processes reserve the same nonces: each is won once, and no acknowledged win is lost by a kill -9."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

from tests.support.ledger.databases import Postgresql, ledger_at, memory_folder, running_postgresql
from tests.support.ledger.nonce_race import Race, find_violations, run_race

NONCES = 500
NONCES_WITH_KILLS = 1_200
"""So many that the race still runs when the last process or server is killed."""
KILLS = 8
SERVER_KILLS = 1
"""The race of `make test-long` has more."""


def run_and_find_violations(race: Race) -> list[str]:
    with run_race(race) as process:
        assert process.wait() == 0
    return find_violations(race)


def run_and_kill_the_server(race: Race, server: Postgresql, *, kills: int) -> list[str]:
    random = Random(race.seed)
    with run_race(race) as process:
        for _ in range(kills):
            time.sleep(random.uniform(2, 4))
            server.kill()
            server.restart()
        assert process.wait() == 0
    return find_violations(race)


def test_each_nonce_is_won_once_on_sqlite(tmp_path: Path) -> None:
    with memory_folder() as folder, ledger_at(f"sqlite:///{folder}/ledger.db"):
        assert run_and_find_violations(Race(f"sqlite:///{folder}/ledger.db", str(tmp_path), NONCES)) == []


def test_each_nonce_is_won_once_on_postgresql(tmp_path: Path, postgresql: Postgresql) -> None:
    assert run_and_find_violations(Race(postgresql.create_database(), str(tmp_path), NONCES)) == []


def test_killed_processes_lose_nothing_acknowledged_on_sqlite(tmp_path: Path) -> None:
    with memory_folder() as folder, ledger_at(f"sqlite:///{folder}/ledger.db"):
        assert (
            run_and_find_violations(
                Race(f"sqlite:///{folder}/ledger.db", str(tmp_path), NONCES_WITH_KILLS, kills=KILLS)
            )
            == []
        )


def test_killed_processes_and_servers_lose_nothing_acknowledged_on_postgresql(tmp_path: Path) -> None:
    with running_postgresql() as server:
        url = server.create_database()
        with ledger_at(url):
            pass
        race = Race(url, str(tmp_path), NONCES_WITH_KILLS, kills=KILLS, seed=1)
        assert run_and_kill_the_server(race, server, kills=SERVER_KILLS) == []
