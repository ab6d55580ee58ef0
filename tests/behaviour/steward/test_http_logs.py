"""The service's log: one JSON line for each request, and no token, header, body, query value or exception message."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from pvdm.errors import PvdmError
from pvdm.model.role import Role
from pvdm.steward.logs import JsonFormatter
from pvdm.steward.record.log import LogQueries
from tests.support.steward.http import REASON, Served, bearer, error_of, served
from tests.support.steward.log_lines import LogLines, collected_lines


@pytest.fixture
def lines() -> Iterator[LogLines]:
    with collected_lines() as made:
        yield made


@pytest.fixture
def steward(tmp_path: Path, lines: LogLines) -> Iterator[Served]:
    with served(tmp_path) as made:
        yield made


def test_a_request_is_one_line_with_these_fields(steward: Served, lines: LogLines) -> None:
    text, grant = steward.stand.token(Role.AUDITOR, "*", "anna")
    before = len(lines.texts)
    steward.http.get("/v1/workloads/nobody", headers={**bearer(text), "x-request-id": "mine"})
    assert len(lines.texts) == before + 1
    line = lines.select("request")[-1]
    assert line.pop("milliseconds") > 0
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "INFO",
        "event": "request",
        "request_id": "mine",
        "method": "GET",
        "route": "/v1/workloads/{workload_id}",
        "status": 404,
        "token_id": grant.token_id,
        "role": "auditor",
        "domain": "*",
    }


def test_the_line_of_a_request_without_a_token_has_no_token_id_role_and_domain(
    steward: Served, lines: LogLines
) -> None:
    steward.http.get("/v1/identity")
    line = lines.select("request")[-1]
    assert (line["status"], line["token_id"], line["role"], line["domain"]) == (401, None, None, None)


def test_an_unknown_path_and_a_long_method_are_not_in_the_log(steward: Served, lines: LogLines) -> None:
    steward.http.request("FORGED", "/secret-path-4711")
    line = lines.select("request")[-1]
    assert (line["route"], line["method"]) == ("(none)", "FORGED")
    steward.http.request("SECRET-METHOD-OF-MORE-THAN-SIXTEEN", "/x")
    assert lines.select("request")[-1]["method"] == "(other)"


def test_nothing_that_the_caller_sends_is_in_the_log(steward: Served, lines: LogLines) -> None:
    text, grant = steward.stand.token()
    planted = ["planted-query", "planted-header", "planted-body", "planted-path", "pvdm_planted-token", text]
    steward.http.get("/v1/workloads?after=planted-query", headers={**bearer(text), "x-own": "planted-header"})
    steward.http.get("/v1/workloads/planted-path", headers=bearer(text))
    steward.http.post("/v1/epochs", json={"reason": "planted-body"}, headers=bearer(text))
    steward.http.post("/v1/epochs", json={"planted-body": "planted-body"}, headers=bearer(text))
    steward.http.get("/v1/identity", headers=bearer("pvdm_planted-token"))
    form = {"grant_type": "client_credentials", "client_id": grant.token_id, "client_secret": text}
    derived = steward.http.post("/catalog/v1/oauth/tokens", data=form).json()["access_token"]
    log = "\n".join(lines.texts)
    assert len(lines.texts) >= 6
    assert [secret for secret in [*planted, derived] if secret in log] == []


def test_an_unexpected_exception_is_logged_with_type_and_frames_but_without_its_message(
    steward: Served, lines: LogLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: LogQueries) -> bytes:
        local_secret = "planted-local"
        raise RuntimeError(f"planted-message {local_secret}")

    monkeypatch.setattr(LogQueries, "checkpoint", fail)
    response = steward.http.get("/v1/log/checkpoint", headers=steward.headers())
    error = error_of(response)
    assert (response.status_code, error["reason"], error["kind"]) == (500, "bug", "bug")
    line = lines.select("exception")[-1]
    assert (line["type"], line["code"], line["request_id"]) == ("RuntimeError", None, error["request_id"])
    assert any("v1/audit.py:" in frame for frame in line["frames"])
    assert "planted" not in "\n".join(lines.texts) + response.text


def test_a_bug_that_has_a_code_is_logged_with_it_and_answered_without_it(
    steward: Served, lines: LogLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: LogQueries) -> bytes:
        raise PvdmError("ledger_misused", "the ledger was used wrongly", got="planted-statement")

    monkeypatch.setattr(LogQueries, "checkpoint", fail)
    response = steward.http.get("/v1/log/checkpoint", headers=steward.headers())
    assert error_of(response)["reason"] == "bug"
    assert lines.select("exception")[-1]["code"] == "ledger_misused"
    assert "planted" not in "\n".join(lines.texts) + response.text


def test_uvicorns_own_lines_are_json_without_the_message_of_an_exception() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logger = logging.Logger("uvicorn.error")
    logger.addHandler(handler)
    try:
        raise RuntimeError("planted")
    except RuntimeError:
        logger.exception("Exception in ASGI application\n")
    line = json.loads(stream.getvalue())
    assert (line["event"], line["type"], line["message"]) == (
        "uvicorn.error",
        "RuntimeError",
        "Exception in ASGI application",
    )
    assert "planted" not in stream.getvalue()


def test_a_successful_request_has_no_exception_line(steward: Served, lines: LogLines) -> None:
    steward.http.post("/v1/epochs", json=REASON, headers=steward.headers())
    assert [line for line in lines.texts if '"exception"' in line] == []
