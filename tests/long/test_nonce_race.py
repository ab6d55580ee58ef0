"""Sixteen processes reserve 20,000 nonces, on disk: each is won once, whatever is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fault.test_nonce_race import run_and_find_violations, run_and_kill_the_server
from tests.support.ledger.databases import ledger_at, running_postgresql
from tests.support.ledger.nonce_race import Race

pytestmark = pytest.mark.long

NONCES = 20_000


@pytest.mark.parametrize("kills", [0, 100])
def test_each_nonce_is_won_once_on_sqlite(tmp_path: Path, kills: int) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    with ledger_at(url):
        pass
    assert run_and_find_violations(Race(url, str(tmp_path), NONCES, kills=kills)) == []


@pytest.mark.parametrize("kills", [0, 100])
def test_each_nonce_is_won_once_on_postgresql(tmp_path: Path, kills: int) -> None:
    with running_postgresql() as server:
        url = server.create_database()
        with ledger_at(url):
            pass
        race = Race(url, str(tmp_path), NONCES, kills=kills, seed=2)
        assert run_and_kill_the_server(race, server, kills=8 if kills else 0) == []
