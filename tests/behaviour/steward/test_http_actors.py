"""Who did what: a change by an operator and the name of the token's owner are recorded in one transaction."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from pvdm.client import StewardClient
from pvdm.ledger.record import statements
from pvdm.model.role import Role
from pvdm.model.statements.proof import Proof
from pvdm.model.states import AttemptState
from pvdm.steward.logs import LOGGER
from pvdm.steward.record.proofs import RecordedProof
from pvdm.trust.statement import read_unchecked
from tests.support.ledger.databases import memory_folder
from tests.support.steward.http import REASON
from tests.support.steward.notary import override_of, signed_override
from tests.support.steward.pipeline import REASON as WHY
from tests.support.steward.pipeline import ROWS, Line, line_at
from tests.support.waiting import wait_for_jobs
from tools.proof_kit import SECOND

SECONDS = 60.0


@pytest.fixture
def line() -> Iterator[Line]:
    with memory_folder() as folder, line_at(folder) as made:
        made.served.stand.time.pass_by(SECOND)
        yield made


def post(line: Line, path: str, body: dict[str, Any] | None, headers: dict[str, str]) -> dict[str, Any]:
    response = line.served.http.post(path, json=body, headers=headers)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def events_about(line: Line, name: str, kind: str = "asked") -> list[dict[str, Any]]:
    headers = line.served.headers(Role.AUDITOR, name="anna")
    found = line.served.http.get("/v1/events", params={"about": name, "limit": 1000}, headers=headers).json()["events"]
    return [each for each in found if each["kind"] == kind]


def requested_routes(line: Line, name: str) -> set[str]:
    return {each["new"]["route"] for each in events_about(line, name)}


def test_who_abandoned_a_workload_is_found_by_name_and_by_the_workloads_id(line: Line) -> None:
    line.protect()
    with line.client() as producer:
        line.attempt(producer)
    ruth = line.served.headers(name="ruth")
    post(line, "/v1/workloads/run-1/abandon", REASON, ruth)
    (request,) = events_about(line, "ruth")
    assert request["subject"] == "requests"
    assert (request["new"]["actor"], request["new"]["workload_id"]) == ("ruth", "run-1")
    assert {"workloads", "attempts"} <= set(request["new"]["changed"])
    assert request["event_id"] in {each["event_id"] for each in events_about(line, "run-1")}
    (abandoned,) = [each for each in events_about(line, "run-1", "update") if each["subject"] == "workloads"]
    assert abandoned["at"] == request["at"]


def test_a_request_that_changes_nothing_is_not_recorded(line: Line) -> None:
    line.protect()
    with line.client() as producer:
        line.attempt(producer)
    ruth = line.served.headers(name="ruth")
    for _ in range(2):
        post(line, "/v1/workloads/run-1/abandon", REASON, ruth)
    assert line.served.http.get("/v1/epochs", headers=ruth).status_code == 200
    assert line.served.http.post("/v1/epochs/9/retire", json=REASON, headers=ruth).status_code == 404
    assert len(events_about(line, "ruth")) == 1


def test_who_changed_an_epoch_is_found_by_name(line: Line) -> None:
    ruth = line.served.headers(name="ruth")
    post(line, "/v1/epochs", REASON, ruth)
    post(line, "/v1/epochs/1/retire", REASON, ruth)
    assert requested_routes(line, "ruth") == {"POST /v1/epochs", "POST /v1/epochs/{number}/retire"}
    assert {each["new"]["number"] for each in events_about(line, "ruth") if "number" in each["new"]} == {"1"}


def test_who_submitted_and_who_published_an_override_is_found_by_name_and_by_its_id(line: Line) -> None:
    line.protect()
    with line.client() as producer:
        chunk, attempt = line.attempt(producer)
        line.stage(producer, attempt, ROWS[:-1])
        producer.staged(attempt.attempt_id)
        failed = producer.await_attempt(attempt.attempt_id, seconds=SECONDS)
    assert wait_for_jobs(line.notary.jobs, SECONDS)
    assert failed.state is AttemptState.VERIFICATION_FAILED
    line.served.stand.time.pass_by(SECOND)
    with line.notary.ledger.read() as unit:
        stored = statements.get(unit, str(failed.proof_id))
    core = read_unchecked(stored.envelope, Proof).core
    recorded = RecordedProof(str(failed.proof_id), stored.envelope, stored.log_index)
    override = override_of(recorded, core, line.served.stand.time.wall)
    ruth, tom = line.served.headers(name="ruth"), line.served.headers(name="tom")
    submitted = post(line, "/v1/overrides", {"envelope": json.loads(signed_override(override))}, ruth)
    post(line, f"/v1/overrides/{submitted['override_id']}/publish", None, tom)
    assert requested_routes(line, "ruth") == {"POST /v1/overrides"}
    assert requested_routes(line, "tom") == {"POST /v1/overrides/{override_id}/publish"}
    assert {each["new"]["actor"] for each in events_about(line, submitted["override_id"])} == {"ruth", "tom"}
    assert chunk.chunk_id == "all"


def test_requests_of_a_producer_are_not_recorded(line: Line) -> None:
    line.protect()
    with StewardClient(line.url, line.token(Role.PRODUCER, name="nightly")) as producer:
        line.attempt(producer)
    assert events_about(line, "nightly") == []


def test_after_a_path_that_cannot_be_stored_the_next_request_is_recorded(line: Line) -> None:
    ruth = line.served.headers(name="ruth")
    path = "/v1/catalog/v1/pvdm/namespaces/n%1Fm%00"
    refused = line.served.http.post(f"{path}/properties", json={"updates": {"a": "b"}}, headers=ruth)
    assert 400 <= refused.status_code < 500
    post(line, "/v1/epochs", REASON, ruth)
    assert "POST /v1/epochs" in requested_routes(line, "ruth")


def test_the_services_log_names_the_workload_that_was_abandoned(line: Line, caplog: pytest.LogCaptureFixture) -> None:
    line.protect()
    with line.client() as producer:
        line.attempt(producer)
    with caplog.at_level(logging.INFO, LOGGER.name):
        post(line, "/v1/workloads/run-1/abandon", {"reason": WHY}, line.served.headers(name="ruth"))
    lines = [json.loads(each.getMessage()) for each in caplog.records if each.name == LOGGER.name]
    (request,) = [each for each in lines if each.get("route") == "/v1/workloads/{workload_id}/abandon"]
    assert request["workload_id"] == "run-1"
