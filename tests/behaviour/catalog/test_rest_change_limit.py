"""One caller's changes of one table run one at a time. No other caller, table or reader waits for that."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pvdm.steward.http import limits as module
from pvdm.steward.http.limits import Limiter
from tests.support import fault
from tests.support.catalog.http import V1, Caller, Lake, lake_at, refusal
from tests.support.ledger.databases import memory_folder
from tests.support.steward.http import RawConnection, head

TOO_MANY = (429, "TooManyRequestsException")
TABLES = "/namespaces/sales/tables"
SOON = 10.0


@pytest.fixture
def lake() -> Iterator[Lake]:
    with memory_folder() as folder, lake_at(folder, wait_seconds=1) as made:
        made.caller().make("t")
        made.caller().make("other")
        yield made


@pytest.fixture
def patient_lake() -> Iterator[Lake]:
    with memory_folder() as folder, lake_at(folder) as made:
        made.caller().make("t")
        yield made


def set_property(name: str, value: str = "x") -> list[Any]:
    return [{"action": "set-properties", "updates": {name: value}}]


def limiter(lake: Lake) -> Limiter:
    found = lake.steward.server._server.config.app.state.lookup.limiter  # type: ignore[union-attr]
    assert isinstance(found, Limiter)
    return found


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


def waiting_count(lake: Lake) -> int:
    """How many requests wait in the limiter's queues."""
    return sum(len(queue.waiting) for queue in list(limiter(lake)._queues.values()))


def partial_request(caller: Caller, path: str, body: bytes, *, sent: bytes) -> bytes:
    """The bytes of a change of which only the part `sent` of the body is there."""
    more = {"content_type": "application/json", "content_length": str(len(body)), **caller.headers}
    return head("POST", f"{V1}{path}", **more) + sent


@contextlib.contextmanager
def hold_turn(lake: Lake, caller: Caller, path: str = f"{TABLES}/t") -> Iterator[RawConnection]:
    """A change by the caller that has its turn, and keeps it: the rest of its body does not arrive."""
    with RawConnection(lake.steward.server.port) as rude:
        wait_until(lambda: limiter(lake)._in_flight == 0)
        rude.send(partial_request(caller, path, b"x" * 100, sent=b"{"))
        wait_until(lambda: limiter(lake)._in_flight == 1)
        yield rude


def properties(lake: Lake, name: str = "t") -> dict[str, str]:
    found: dict[str, str] = lake.caller().done("GET", f"{TABLES}/{name}")["metadata"].get("properties", {})
    return found


def revisions(lake: Lake, name: str = "t") -> int:
    """How many changes have been made."""
    return len(lake.caller().done("GET", f"{TABLES}/{name}")["metadata"].get("metadata-log", []))


def test_a_second_concurrent_change_by_one_caller_is_refused_and_may_be_retried(lake: Lake) -> None:
    caller = lake.caller()
    with hold_turn(lake, caller):
        answer = caller.commit("t", set_property("a"))
    assert (refusal(answer), answer.headers["retry-after"]) == (TOO_MANY, "1")
    assert "a" not in properties(lake)


def test_another_spelling_of_the_tables_path_is_the_same_table(lake: Lake) -> None:
    caller = lake.caller()
    with hold_turn(lake, caller):
        answer = caller.ask("POST", "/namespaces/s%61les/tables/%74", json={"requirements": [], "updates": []})
    assert refusal(answer) == TOO_MANY


def test_a_change_by_another_caller_does_not_wait(lake: Lake) -> None:
    with hold_turn(lake, lake.caller()):
        assert lake.caller(name="another").commit("t", set_property("a")).status_code == 200


def test_a_change_of_another_table_does_not_wait(lake: Lake) -> None:
    caller = lake.caller()
    with hold_turn(lake, caller):
        assert caller.commit("other", set_property("a")).status_code == 200


def test_a_load_of_the_table_does_not_wait(lake: Lake) -> None:
    caller = lake.caller()
    with hold_turn(lake, caller):
        assert caller.ask("GET", f"{TABLES}/t").status_code == 200


@pytest.mark.parametrize("path", ["/transactions/commit", TABLES, "/namespaces"])
def test_changes_whose_path_names_no_table_do_not_wait(lake: Lake, path: str) -> None:
    caller = lake.caller()
    bodies = {
        "/transactions/commit": {
            "table-changes": [{"identifier": {"namespace": ["sales"], "name": "other"}, "updates": set_property("a")}]
        },
        TABLES: {"name": "new", "schema": {"type": "struct", "fields": []}},
        "/namespaces": {"namespace": ["more"]},
    }
    with hold_turn(lake, caller, path):
        assert caller.ask("POST", path, json=bodies[path]).status_code in (200, 204)


def test_a_client_that_goes_away_lets_the_next_change_start_at_once(patient_lake: Lake) -> None:
    caller = patient_lake.caller()
    began = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        with hold_turn(patient_lake, caller):
            second = pool.submit(caller.commit, "t", set_property("a"))
            wait_until(lambda: waiting_count(patient_lake) == 1)
        assert second.result().status_code == 200
    assert time.monotonic() - began < SOON / 2
    # The answer is sent before the request leaves its queue.
    wait_until(lambda: not limiter(patient_lake)._queues)


def test_a_waiter_whose_client_went_away_changes_nothing_and_lets_the_next_one_through(
    patient_lake: Lake, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.0)
    caller = patient_lake.caller()
    body = json.dumps({"requirements": [], "updates": set_property("gone")}).encode()
    with caplog.at_level(logging.INFO, "pvdm.steward"), ThreadPoolExecutor(1) as pool:
        with hold_turn(patient_lake, caller):
            with RawConnection(patient_lake.steward.server.port) as waiter:
                waiter.send(partial_request(caller, f"{TABLES}/t", body, sent=body))
                wait_until(lambda: waiting_count(patient_lake) == 1)
            third = pool.submit(caller.commit, "t", set_property("there"))
            wait_until(lambda: waiting_count(patient_lake) == 2)
        assert third.result().status_code == 200
    assert set(properties(patient_lake)) & {"gone", "there"} == {"there"}
    lines = [json.loads(record.message) for record in caplog.records]
    assert sorted(str(line["status"]) for line in lines if line.get("method") == "POST") == ["200", "None", "None"]


@pytest.mark.parametrize(("patience", "order"), [(60.0, "adcb"), (0.0, "abcd")])
def test_of_waiting_changes_the_newest_is_next_unless_one_waited_long(
    patient_lake: Lake, monkeypatch: pytest.MonkeyPatch, patience: float, order: str
) -> None:
    monkeypatch.setattr(module, "PATIENCE_SECONDS", patience)
    caller, reached, go = patient_lake.caller(), threading.Event(), threading.Event()

    def wait() -> None:
        reached.set()
        go.wait(SOON)

    with ThreadPoolExecutor(4) as pool, fault.armed("catalog.after_metadata_file", fault.Call(wait)):
        answers = [pool.submit(caller.commit, "t", set_property("a"))]
        assert reached.wait(SOON)
        for position, name in enumerate("bcd", start=1):
            answers.append(pool.submit(caller.commit, "t", set_property(name)))
            wait_until(lambda wanted=position: waiting_count(patient_lake) == wanted)  # type: ignore[misc]
        go.set()
        found = {name: answer.result().json()["metadata"] for name, answer in zip("abcd", answers, strict=True)}
    # Each change was checked on the state that the one before it had left.
    assert sorted("abcd", key=lambda name: len(found[name]["metadata-log"])) == list(order)
    assert [len(found[name]["metadata-log"]) for name in order] == [1, 2, 3, 4]


def test_a_change_that_waited_is_checked_on_the_new_state(patient_lake: Lake) -> None:
    caller, reached, go = patient_lake.caller(), threading.Event(), threading.Event()

    def wait() -> None:
        reached.set()
        go.wait(SOON)

    schema = {"action": "add-schema", "schema": {"type": "struct", "fields": []}}
    first = [schema, {"action": "set-current-schema", "schema-id": -1}]
    stale = [{"type": "assert-current-schema-id", "current-schema-id": 0}]
    with ThreadPoolExecutor(2) as pool, fault.armed("catalog.after_metadata_file", fault.Call(wait)):
        changed = pool.submit(caller.commit, "t", first)
        assert reached.wait(SOON)
        second = pool.submit(caller.commit, "t", set_property("a"), stale)
        wait_until(lambda: waiting_count(patient_lake) == 1)
        go.set()
    assert changed.result().status_code == 200
    assert refusal(second.result()) == (409, "CommitFailedException")
    assert revisions(patient_lake) == 1


def test_every_change_of_many_at_once_is_made_once_or_refused_and_not_made(lake: Lake) -> None:
    caller = lake.caller()
    names = [f"p{number}" for number in range(24)]
    with (
        ThreadPoolExecutor(len(names)) as pool,
        fault.armed("catalog.after_metadata_file", fault.Call(lambda: time.sleep(0.1))),
    ):
        answers = list(pool.map(lambda name: caller.commit("t", set_property(name)), names))
    statuses = {name: answer.status_code for name, answer in zip(names, answers, strict=True)}
    made = {name for name, status in statuses.items() if status == 200}
    assert set(statuses.values()) == {200, 429}
    assert set(properties(lake)) & set(names) == made
    assert revisions(lake) == len(made)


def test_one_change_sent_many_times_at_once_under_one_key_is_made_once(patient_lake: Lake) -> None:
    caller, key = patient_lake.caller(), {"idempotency-key": str(uuid.uuid4())}
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(caller.commit, "t", set_property("a"), headers=key) for _ in range(8)]
    assert {each.result().status_code for each in asked} == {200}
    assert len({each.result().content for each in asked}) == 1
    assert revisions(patient_lake) == 1
