"""Keys of requests are remembered as long as clients are told, and forgotten in small steps afterwards."""

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

KEPT = REQUEST_KEPT_MAX_SECONDS * SECOND


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


def kept(yard: Yard) -> int:
    with yard.stand.notary.ledger.read() as unit:
        found: int = unit.execute(select(func.count()).select_from(catalog_requests)).scalar_one()
    return found


def forgotten(yard: Yard) -> int:
    before = kept(yard)
    yard.stand.notary.catalog.requests.forget_old(yard.stand.time.wall)
    return before - kept(yard)


def test_a_request_is_forgotten_when_its_time_is_over_and_not_before(yard: Yard) -> None:
    yard.keyed("t", str(uuid.uuid4()), "first")
    yard.stand.time.pass_by(KEPT // 2)
    yard.keyed("t", str(uuid.uuid4()), "second")
    yard.stand.time.pass_by(KEPT // 2)
    assert (forgotten(yard), kept(yard)) == (0, 2)
    yard.stand.time.pass_by(SECOND)
    assert (forgotten(yard), kept(yard)) == (1, 1)
    assert set(yard.document(yard.row("t"))["refs"]) == {"main", "first", "second"}


def test_forgetting_goes_in_steps_each_of_which_is_a_short_transaction(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "REQUESTS_FORGOTTEN_MAX", 2)
    for number in range(5):
        yard.keyed("t", str(uuid.uuid4()), f"b{number}")
    yard.stand.time.pass_by(2 * KEPT)
    steps: list[int] = []
    with fault.armed("ledger.before_commit", fault.Call(lambda: steps.append(1))):
        assert forgotten(yard) == 5
    assert (len(steps), kept(yard)) == (3, 0)


def test_forgetting_ends_when_all_that_is_old_is_forgotten(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one caller could add them faster than they go."""
    monkeypatch.setattr(requests, "REQUESTS_FORGOTTEN_MAX", 2)
    notary, many = yard.stand.notary, 201

    def work(unit: Unit) -> None:
        for number in range(many):
            rows.add(unit, rows.Request("somebody", f"key-{number}", "ab" * 32, 200, "{}"))

    notary.ledger.transact(work, at_micros=notary.clock.now_micros())
    yard.stand.time.pass_by(2 * KEPT)
    assert (forgotten(yard), kept(yard)) == (many, 0)


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


def test_a_key_with_other_words_is_refused_as_long_as_it_is_remembered(yard: Yard) -> None:
    key = str(uuid.uuid4())
    yard.keyed("t", key, "first")
    catalog, producer = yard.stand.notary.catalog, yard.stand.grant(Role.PRODUCER, "sales", "job")
    again = catalog.requests.identify(producer, key, b"other words")
    with pytest.raises(InputError) as caught:
        catalog.requests.find_earlier(again)
    assert caught.value.reason == "idempotency_key_reused"


def test_clients_are_told_how_long_a_key_is_remembered(lake: Lake) -> None:
    told = lake.caller().done("GET", "/config")["idempotency-key-lifetime"]
    hours = re.fullmatch(r"PT(\d+)H", told)
    assert hours is not None
    assert int(hours[1]) * 3_600 == REQUEST_KEPT_MAX_SECONDS


def test_a_table_that_was_renamed_meanwhile_never_makes_a_repeated_commit_look_undone(lake: Lake) -> None:
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


def test_many_with_one_key_at_once_do_it_once(lake: Lake) -> None:
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
