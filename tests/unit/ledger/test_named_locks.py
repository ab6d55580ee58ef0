"""Named locks of a ledger: only one Steward holds a name, and a killed process or lost connection releases it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError

from pvdm.errors import UnavailableError
from pvdm.ledger import Ledger
from tests.support.ledger.databases import Postgresql, ledger_at
from tests.support.waiting import eventually

SECONDS = 20.0
HOLDER = """
import sys, time
from pvdm.ledger import open_ledger
with open_ledger(sys.argv[1]).try_lock(sys.argv[2]) as held:
    print(held, flush=True)
    time.sleep(600)
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/ledger.db"
    fresh: str = request.getfixturevalue("postgresql").create_database()
    return fresh


def is_free(ledger: Ledger, name: str) -> bool:
    with ledger.try_lock(name) as held:
        return held


def test_a_lock_is_held_once_and_free_afterwards(url: str) -> None:
    with ledger_at(url) as ledger, ledger_at(url) as other:
        with ledger.try_lock("work") as held:
            assert held
            assert not is_free(other, "work")
            assert not is_free(ledger, "work"), "the same process is no exception"
            assert is_free(other, "other work")
        assert is_free(other, "work")


def test_the_lock_of_a_killed_process_is_free(url: str) -> None:
    with (
        ledger_at(url) as ledger,
        subprocess.Popen([sys.executable, "-c", HOLDER, url, "work"], stdout=subprocess.PIPE, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "True\n"
            assert not is_free(ledger, "work")
        finally:
            process.kill()
        assert eventually(lambda: is_free(ledger, "work"))


def test_locks_leave_no_file_beside_the_ledger(tmp_path: Path) -> None:
    with ledger_at(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        for number in range(3):
            assert is_free(ledger, f"work {number}")
        with ledger.hold_lock("policy"):
            pass
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.db"]


def test_the_next_holder_does_not_lock_the_removed_file(tmp_path: Path) -> None:
    """A lock on the removed file would not exclude any other process."""
    with ledger_at(f"sqlite:///{tmp_path}/ledger.db") as ledger, ledger_at(f"sqlite:///{tmp_path}/ledger.db") as other:

        def lock_and_look() -> bool:
            with other.hold_lock("policy"):
                return is_free(ledger, "policy")

        with ThreadPoolExecutor(1) as pool:
            with ledger.hold_lock("policy"):
                waiting = pool.submit(lock_and_look)
                time.sleep(0.2)  # until the other ledger waits for the lock of the present file
            assert waiting.result(timeout=SECONDS) is False


def end_connections(url: str) -> None:
    """End every connection to the database, as a restart of the server does."""
    engine = create_engine(url)
    ending = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
    with contextlib.suppress(OperationalError), engine.connect() as connection:
        connection.execute(text(ending + " AND pid <> pg_backend_pid()"))
    engine.dispose()


def test_a_lock_that_is_lost_while_the_holder_works_is_reported(postgresql: Postgresql) -> None:
    url = postgresql.create_database()
    with ledger_at(url) as ledger, pytest.raises(UnavailableError) as caught, ledger.hold_lock("policy"):
        end_connections(url)
    assert caught.value.reason == "ledger_unreachable"


def test_losing_a_try_lock_raises_nothing(postgresql: Postgresql) -> None:
    url = postgresql.create_database()
    with ledger_at(url) as ledger, ledger.try_lock("work") as held:
        end_connections(url)
    assert held
