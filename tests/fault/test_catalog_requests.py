"""Idempotency keys are remembered for the time that clients are told, and then forgotten in short transactions."""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections.abc import Iterator

import httpx
import pytest
from sqlalchemy import func, select

from pvdm.catalog import requests
from pvdm.catalog.requests import REQUEST_KEPT_MAX_SECONDS
from pvdm.errors import InputError
from pvdm.ledger import Unit
from pvdm.ledger.catalog import requests as rows
from pvdm.ledger.catalog.requests import REQUEST_ANSWER_MAX_BYTES
from pvdm.ledger.schema.catalog import catalog_requests
from pvdm.model.role import Role
from tests.support import fault
from tests.support.catalog.http import Lake, lake_at
from tests.support.catalog.killed_stewards import Yard, yard_at
from tests.support.ledger.databases import memory_folder
from tools.proof_kit import SECOND

KEPT_MICROS = REQUEST_KEPT_MAX_SECONDS * SECOND


@pytest.fixture(params=["sqlite", "postgresql"])
def yard(request: pytest.FixtureRequest) -> Iterator[Yard]:
    url = request.getfixturevalue("postgresql").create_database() if request.param == "postgresql" else None
    with memory_folder() as folder, yard_at(folder, ledger_url=url) as made:
        made.table("t")
        yield made


@pytest.fixture
def lake() -> Iterator[Lake]:
    with memory_folder() as folder, lake_at(folder) as made:
        yield made


def count_requests(yard: Yard) -> int:
    with yard.stand.notary.ledger.read() as unit:
        found: int = unit.execute(select(func.count()).select_from(catalog_requests)).scalar_one()
    return found


def forget_old_requests(yard: Yard) -> int:
    """Forget the requests whose time is over; returns their number."""
    before = count_requests(yard)
    yard.stand.notary.catalog.requests.forget_old(yard.stand.time.wall)
    return before - count_requests(yard)


def test_a_request_is_forgotten_when_its_time_is_over_and_not_before(yard: Yard) -> None:
    yard.commit_with_key("t", str(uuid.uuid4()), "first")
    yard.stand.time.pass_by(KEPT_MICROS // 2)
    yard.commit_with_key("t", str(uuid.uuid4()), "second")
    yard.stand.time.pass_by(KEPT_MICROS // 2)
    assert (forget_old_requests(yard), count_requests(yard)) == (0, 2)
    yard.stand.time.pass_by(SECOND)
    assert (forget_old_requests(yard), count_requests(yard)) == (1, 1)
    assert set(yard.document(yard.row("t"))["refs"]) == {"main", "first", "second"}


def test_old_requests_are_forgotten_in_transactions_of_a_limited_size(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "REQUESTS_FORGOTTEN_MAX", 2)
    for number in range(5):
        yard.commit_with_key("t", str(uuid.uuid4()), f"b{number}")
    yard.stand.time.pass_by(2 * KEPT_MICROS)
    steps: list[int] = []
    with fault.armed("ledger.before_commit", fault.Call(lambda: steps.append(1))):
        assert forget_old_requests(yard) == 5
    assert len(steps) == 3, "two, two and one"
    assert count_requests(yard) == 0


def test_all_old_requests_are_forgotten_at_once(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a limit, one caller could add requests faster than they are forgotten."""
    monkeypatch.setattr(requests, "REQUESTS_FORGOTTEN_MAX", 2)
    notary, many = yard.stand.notary, 201  # a hundred transactions of two, and one more

    def work(unit: Unit) -> None:
        for number in range(many):
            rows.add(unit, rows.Request("somebody", f"key-{number}", "ab" * 32, 200, "{}"))

    notary.ledger.transact(work, at_micros=notary.clock.now_micros())
    yard.stand.time.pass_by(2 * KEPT_MICROS)
    assert (forget_old_requests(yard), count_requests(yard)) == (many, 0)


def test_a_request_whose_answer_is_too_large_to_keep_is_refused_and_not_done(lake: Lake) -> None:
    caller, removal = lake.caller(), {"removals": ["x" * REQUEST_ANSWER_MAX_BYTES]}
    answer = caller.ask(
        "POST",
        "/namespaces/sales/properties",
        json={**removal, "updates": {"a": "b"}},
        headers={"idempotency-key": str(uuid.uuid4())},
    )
    assert (answer.status_code, answer.json()["error"]["pvdm-code"]) == (400, "request_answer_too_large")
    assert "a" not in caller.done("GET", "/namespaces/sales")["properties"]
    assert caller.ask("POST", "/namespaces/sales/properties", json=removal).status_code == 200


def test_a_remembered_key_with_another_request_is_refused(yard: Yard) -> None:
    key = str(uuid.uuid4())
    yard.commit_with_key("t", key, "first")
    catalog, producer = yard.stand.notary.catalog, yard.stand.grant(Role.PRODUCER, "sales", "job")
    again = catalog.requests.identify(producer, key, b"another request")
    with pytest.raises(InputError) as caught:
        catalog.requests.find_earlier(again)
    assert caught.value.reason == "idempotency_key_reused"


def test_clients_are_told_how_long_a_key_is_remembered(lake: Lake) -> None:
    lifetime = lake.caller().done("GET", "/config")["idempotency-key-lifetime"]
    hours = re.fullmatch(r"PT(\d+)H", lifetime)  # a duration of ISO 8601
    assert hours is not None
    assert int(hours[1]) * 3_600 == REQUEST_KEPT_MAX_SECONDS


def test_a_commit_repeated_after_a_rename_is_never_answered_as_not_found(lake: Lake) -> None:
    """To a client a 404 means that nothing happened, and that it may delete the files that it wrote."""
    caller = lake.caller()
    caller.make("t")
    key = {"idempotency-key": str(uuid.uuid4())}
    update = [{"action": "set-properties", "updates": {"a": "b"}}]
    assert caller.commit("t", update, headers=key).status_code == 200
    source, target = ({"namespace": ["sales"], "name": name} for name in ("t", "new"))
    caller.done("POST", "/tables/rename", json={"source": source, "destination": target})
    answer = caller.commit("t", update, headers=key)
    assert answer.status_code in (200, 500), answer.text
    if answer.status_code == 500:
        assert json.loads(answer.content)["error"]["type"] == "CommitStateUnknownException"


def test_concurrent_commits_with_one_key_happen_once_and_get_the_same_answer(lake: Lake) -> None:
    caller = lake.caller()
    caller.make("t")
    key = {"idempotency-key": str(uuid.uuid4()), **caller.headers}
    body = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"a": "b"}}]}
    answers: list[httpx.Response] = []

    def send() -> None:
        with httpx.Client(base_url=lake.steward.server.url, timeout=30, trust_env=False) as http:
            answers.append(http.post("/catalog/v1/namespaces/sales/tables/t", json=body, headers=key))

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answer.status_code for answer in answers] == [200] * 8
    assert len({answer.content for answer in answers}) == 1
    assert len(answers[0].json()["metadata"]["metadata-log"]) == 1
