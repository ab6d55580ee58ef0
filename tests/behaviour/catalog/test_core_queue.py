"""Several Stewards on one PostgreSQL ledger: commits to one table wait in turn, and no file is written in vain."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from pvdm.lake.files import FoundFile, MetadataFiles
from pvdm.lake.paths import Pointer
from tests.support.catalog.core import PRODUCER, Core, core_at, set_ref
from tests.support.ledger.databases import Postgresql, ledger_at

STEWARDS = 3
COMMITS = 8


@pytest.fixture
def stewards(tmp_path: Path, postgresql: Postgresql) -> Iterator[list[Core]]:
    """Cores with connections of their own to one ledger."""
    url = postgresql.create_database()
    with core_at(tmp_path, url) as first, ledger_at(url) as second, ledger_at(url) as third:
        first.table(protected=False)
        yield [first, Core(tmp_path, second, counter=1_000_000), Core(tmp_path, third, counter=2_000_000)]


def write(core: Core, branch: str) -> None:
    """Set a branch to main's head and remove it, repeatedly: commits that need no sequence number of their own."""
    for _ in range(COMMITS):
        head = core.get().metadata.current_snapshot_id or 0
        core.commit("orders", [set_ref(branch, head)], by=PRODUCER)
        core.commit("orders", [{"action": "remove-snapshot-ref", "ref-name": branch}], by=PRODUCER)


def test_concurrent_commits_of_several_stewards_all_succeed_at_the_first_try(
    stewards: list[Core], monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[str] = []
    original_remove = MetadataFiles.remove

    def remove(files: MetadataFiles, stored: Pointer | FoundFile) -> None:
        removed.append(stored.location)
        original_remove(files, stored)

    monkeypatch.setattr(MetadataFiles, "remove", remove)
    before = stewards[0].get().row.revision
    threads = [threading.Thread(target=write, args=(core, f"b{at}")) for at, core in enumerate(stewards)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stewards[0].get().row.revision == before + 2 * COMMITS * STEWARDS
    assert removed == []


def test_turns_at_the_database_are_taken_in_order(stewards: list[Core]) -> None:
    order: list[int] = []
    ready = [threading.Event() for _ in stewards]

    def wait(at: int) -> None:
        ready[at].set()
        with stewards[at].ledger.take_turn(["orders"]):
            order.append(at)

    threads = []
    with stewards[0].ledger.take_turn(["orders"]):
        for at in (2, 1):
            threads.append(threading.Thread(target=wait, args=(at,)))
            threads[-1].start()
            ready[at].wait()
            _wait_for_waiters(stewards[0], len(threads))
        assert order == []
    for thread in threads:
        thread.join()
    assert order == [2, 1]


def test_a_turn_without_a_free_connection_goes_on_without_waiting(
    stewards: list[Core], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pvdm.ledger.engine.TURNS_AT_ONCE_MAX", 1)
    ledger, through = stewards[1].ledger, []
    with ledger.take_turn(["one"]), ledger.take_turn(["two"]):
        through.append("two")
    assert through == ["two"]


def test_after_a_turn_lost_its_connection_the_next_turn_and_commit_succeed(stewards: list[Core]) -> None:
    with stewards[1].ledger.take_turn(["orders"]):
        with stewards[0].ledger.read() as unit:
            ended = unit.rows(
                text("SELECT pg_terminate_backend(pid) AS ended FROM pg_locks WHERE locktype = 'advisory' AND granted")
            )
        assert [row["ended"] for row in ended] == [True]
    with stewards[1].ledger.take_turn(["orders"]):
        stewards[1].commit("orders", [set_ref("b", stewards[1].get().metadata.current_snapshot_id or 0)], by=PRODUCER)


def _wait_for_waiters(core: Core, count: int) -> None:
    ends = time.monotonic() + 20
    while time.monotonic() < ends:
        with core.ledger.read() as unit:
            (found,) = unit.rows(text("SELECT count(*) AS n FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"))
        if found["n"] == count:
            return
        time.sleep(0.02)
    raise AssertionError("the expected number of waiters was not reached")
