"""PostgreSQL ends the Steward's connections during a commit: its answer is true, and the next commit works."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pvdm.ledger import Unit
from pvdm.ledger.catalog import tables
from tests.support import fault
from tests.support.catalog.http import Lake, lake_at, refusal
from tests.support.ledger.databases import Postgresql, memory_folder

T = "/namespaces/sales/tables/t"
UNAVAILABLE = (503, "ServiceUnavailableException")
UNKNOWN = (500, "CommitStateUnknownException")


@pytest.fixture
def database(postgresql: Postgresql) -> str:
    return postgresql.create_database()


@pytest.fixture
def lake(database: str) -> Iterator[Lake]:
    with memory_folder() as folder, lake_at(folder, ledger_url=database) as made:
        made.caller().make("t")
        yield made


@pytest.fixture
def end_all(database: str, postgresql: Postgresql) -> Callable[[], None]:
    """A function whose first call ends every connection of the Steward, as a failover does. Later calls do nothing."""
    name = database.partition("?")[0].rpartition("/")[2]
    was_called = False

    def end_once() -> None:
        nonlocal was_called
        if not was_called:
            was_called = True
            with psycopg.connect(postgresql.url()) as other:
                other.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", [name])

    return end_once


def set_property(name: str) -> list[Any]:
    return [{"action": "set-properties", "updates": {name: "x"}}]


def changes_made(lake: Lake) -> tuple[set[str], int]:
    """The properties of this test that the table has, and the number of commits since it was created."""
    document = lake.caller().done("GET", T)["metadata"]
    return set(document.get("properties", {})) & {"one", "two"}, len(document.get("metadata-log", []))


def files(lake: Lake) -> set[Path]:
    return {path for path in (lake.folder / "catalog").rglob("*.metadata.json") if path.is_file()}


def end_all_at(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, end_all: Callable[[], None], *, after: bool
) -> None:
    """Call `end_all` before or after the function `name` of a module or class, inside its transaction."""
    step = getattr(owner, name)

    def step_with_end(unit: Unit, *given: Any, **more: Any) -> Any:
        if not after:
            end_all()
        found = step(unit, *given, **more)
        if after:
            end_all()
        return found

    monkeypatch.setattr(owner, name, step_with_end)


STEPS = [(tables, "lock"), (tables, "require_not_scheduled_for_deletion"), (tables, "swap"), (Unit, "_log_request")]
"""The steps of a commit's last transaction, in order. The last one records the request's id in the ledger."""


@pytest.mark.parametrize(("owner", "step"), STEPS)
@pytest.mark.parametrize("after", [False, True])
def test_a_connection_lost_inside_the_swap_is_answered_as_unavailable_or_unknown_and_changes_nothing(
    lake: Lake, end_all: Callable[[], None], monkeypatch: pytest.MonkeyPatch, owner: Any, step: str, after: bool
) -> None:
    caller, before = lake.caller(), files(lake)
    assert before
    end_all_at(monkeypatch, owner, step, end_all, after=after)
    answer = caller.commit("t", set_property("one"))
    # After the last statement only the database's commit can fail, and then its outcome is unknown.
    assert refusal(answer) == (UNKNOWN if (step, after) == ("_log_request", True) else UNAVAILABLE)
    assert changes_made(lake) == (set(), 0)
    if answer.status_code != 500:
        assert files(lake) == before
    assert caller.commit("t", set_property("two")).status_code == 200
    assert changes_made(lake) == ({"two"}, 1)


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
def test_a_connection_lost_before_the_look_up_is_answered_as_unavailable_and_the_next_request_works(
    lake: Lake, end_all: Callable[[], None], monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    caller = lake.caller()
    caller.done("GET", T)
    end_all_at(monkeypatch, tables, "find_with_namespace", end_all, after=False)
    body = {"json": {"requirements": [], "updates": set_property("one")}} if method == "POST" else {}
    assert caller.ask(method, T, **body).status_code == 503
    assert caller.ask(method, T, **body).status_code in (200, 204)
    assert changes_made(lake) == (({"one"}, 1) if method == "POST" else (set(), 0))


def test_a_connection_lost_before_the_commit_is_answered_as_unknown_and_a_reload_shows_no_change(
    lake: Lake, end_all: Callable[[], None]
) -> None:
    caller = lake.caller()
    with fault.armed("ledger.before_commit", fault.Call(end_all)):
        assert refusal(caller.commit("t", set_property("one"))) == UNKNOWN
    assert changes_made(lake) == (set(), 0)
    assert caller.commit("t", set_property("one")).status_code == 200
    assert changes_made(lake) == ({"one"}, 1)


@pytest.mark.parametrize("point", ["catalog.after_metadata_file", "ledger.after_commit", "catalog.before_answer"])
def test_a_connection_lost_between_transactions_fails_no_request_and_the_change_is_made_once(
    lake: Lake, end_all: Callable[[], None], point: str
) -> None:
    with fault.armed(point, fault.Call(end_all)):
        assert lake.caller().commit("t", set_property("one")).status_code == 200
    assert changes_made(lake) == ({"one"}, 1)


@pytest.mark.parametrize("point", ["ledger.before_commit", "ledger.after_commit"])
def test_a_change_sent_again_under_its_key_after_a_lost_connection_is_made_once(
    lake: Lake, end_all: Callable[[], None], point: str
) -> None:
    caller, key = lake.caller(), {"idempotency-key": str(uuid.uuid4())}
    with fault.armed(point, fault.Call(end_all)):
        first = caller.commit("t", set_property("one"), headers=key)
    assert first.status_code in (200, 500)
    again = [caller.commit("t", set_property("one"), headers=key) for _ in range(2)]
    assert [answer.status_code for answer in again] == [200, 200]
    assert again[0].content == again[1].content
    assert changes_made(lake) == ({"one"}, 1)
