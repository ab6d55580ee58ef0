"""After a clock jump the Steward reports it and refuses requests that need the time, until an operator confirms."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pvdm.ledger.clock import format_micros
from pvdm.model.role import Role
from tests.support.steward.http import REASON, Served, bearer, error_of, refusal, served
from tools.proof_kit import DAY, SECOND

YEAR = 365 * DAY


@pytest.fixture
def steward(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as made:
        yield made


def test_readiness_lists_every_reason(tmp_path: Path) -> None:
    with served(tmp_path, rooted=False) as steward:
        steward.stand.time.jump(YEAR)
        (tmp_path / "outside" / "checkpoint").write_bytes(b"no note")
        response = steward.http.get("/readyz")
        body = response.json()
        assert (response.status_code, body["ready"]) == (503, False)
        assert {reason["reason"] for reason in body["reasons"]} == {
            "clock_jumped",
            "steward_without_root",
            "note_malformed",
        }
        assert "retry-after" in response.headers


def test_readiness_shows_details_to_an_auditor_and_only_codes_to_others(tmp_path: Path) -> None:
    with served(tmp_path) as steward:
        (tmp_path / "outside").rename(tmp_path / "gone")
        anonymous = steward.http.get("/readyz")
        others = [steward.headers(Role.PRODUCER), steward.headers(Role.OPERATOR, "sales"), bearer("pvdm_nobody")]
        auditor = steward.http.get("/readyz", headers=steward.headers(Role.AUDITOR))
        (reason,) = anonymous.json()["reasons"]
        (whole,) = auditor.json()["reasons"]
        assert (reason["code"], reason["kind"]) == (whole["code"], whole["kind"])
        assert str(tmp_path) not in anonymous.text
        assert (reason["expected"], reason["got"], reason["details"]) == (None, None, {})
        assert whole["message"] != reason["message"]
        for headers in others:
            assert steward.http.get("/readyz", headers=headers).json()["reasons"][0]["message"] == reason["message"]


def test_the_steward_is_ready_again_after_an_operator_has_confirmed(steward: Served) -> None:
    headers = steward.headers()
    assert steward.http.get("/readyz").json() == {"ready": True, "reasons": []}
    steward.stand.time.jump(10 * DAY)
    assert steward.http.get("/readyz").status_code == 503
    confirmed = steward.http.post("/v1/clock/confirm", json=REASON, headers=headers)
    assert confirmed.json() == {"at": steward.stand.time.wall, "confirmed": True}
    assert steward.http.get("/readyz").status_code == 200


def test_the_process_is_healthy_even_if_it_is_not_ready(steward: Served) -> None:
    steward.stand.time.jump(YEAR)
    assert steward.http.get("/healthz").json() == {"alive": True}


def test_requests_that_need_the_time_are_refused_and_change_nothing(steward: Served) -> None:
    headers, producer = steward.headers(), steward.headers(Role.PRODUCER, "sales")
    path = f"/v1/attempts/{steward.stand.verifying().attempt.attempt_id}"
    steward.stand.time.jump(YEAR)
    for response in (
        steward.http.post(f"{path}/abort", json={**REASON, "lease_number": 1}, headers=producer),
        steward.http.post(f"{path}/tokens", json={"secret_sha256": "ab" * 32}, headers=producer),
    ):
        assert refusal(response) == (503, "clock_jumped")
        assert "retry-after" in response.headers
    assert steward.http.get(path, headers=headers).json()["state"] == "VERIFYING"


def test_the_confirmation_names_the_tokens_owner_in_the_step_log(steward: Served) -> None:
    headers = steward.headers(name="operator-ruth")
    steward.stand.time.jump(10 * DAY)
    steward.http.post("/v1/clock/confirm", json=REASON, headers=headers)
    events = steward.http.get("/v1/events?limit=1000", headers=headers).json()["events"]
    recorded = [event for event in events if event["kind"] == "clock_confirmed"]
    assert [(each["new"]["operator"], each["new"]["reason"]) for each in recorded] == [
        ("operator-ruth", REASON["reason"])
    ]


def test_the_wrong_time_of_the_jump_is_in_the_step_log(steward: Served) -> None:
    headers = steward.headers(name="operator-ruth")
    before = steward.stand.time.wall
    steward.stand.time.jump(YEAR)
    wrong = steward.stand.time.wall
    assert steward.http.get("/readyz").status_code == 503
    steward.stand.time.jump(-YEAR)
    steward.http.post("/v1/clock/confirm", json=REASON, headers=headers)
    events = steward.http.get("/v1/events?limit=1000", headers=headers).json()["events"]
    (recorded,) = [event["new"] for event in events if event["kind"] == "clock_confirmed"]
    assert (recorded["from_micros"], recorded["jumped_to_micros"], recorded["to_micros"]) == (before, wrong, before)


def test_readiness_shows_the_hosts_time_at_the_jump_and_now(steward: Served) -> None:
    headers = steward.headers()
    right = format_micros(steward.stand.time.wall)
    steward.stand.time.jump(YEAR)
    wrong = format_micros(steward.stand.time.wall)
    assert steward.http.get("/readyz").status_code == 503
    steward.stand.time.jump(-YEAR)
    (reason,) = steward.http.get("/readyz", headers=headers).json()["reasons"]
    assert reason["got"] == f"{wrong} at the jump; the host's clock is at {right} now"
    assert "`pvdm steward confirm-clock --reason TEXT`" in reason["hint"]


def test_a_jump_back_does_not_make_an_expired_token_valid_again(steward: Served) -> None:
    token, _ = steward.stand.notary.access.issue(Role.OPERATOR, domain="*", name="short", lifetime_seconds=60)
    steward.stand.time.pass_by(61 * SECOND)
    steward.stand.time.jump(-DAY)
    assert refusal(steward.http.get("/v1/identity", headers=bearer(token.reveal()))) == (401, "token_expired")


def test_a_jump_forward_neither_ends_a_token_nor_extends_its_lifetime(steward: Served) -> None:
    token, _ = steward.stand.notary.access.issue(Role.OPERATOR, domain="*", name="short", lifetime_seconds=60)
    steward.stand.time.jump(YEAR)
    assert steward.http.get("/v1/identity", headers=bearer(token.reveal())).status_code == 200
    steward.stand.time.pass_by(61 * SECOND)
    response = steward.http.post("/v1/clock/confirm", json=REASON, headers=bearer(token.reveal()))
    assert refusal(response) == (401, "token_expired")


@pytest.mark.parametrize("role", sorted(set(Role) - {Role.OPERATOR}))
def test_no_other_role_confirms_the_clock(steward: Served, role: Role) -> None:
    headers = steward.headers(role)
    steward.stand.time.jump(YEAR)
    assert refusal(steward.http.post("/v1/clock/confirm", json=REASON, headers=headers)) == (403, "role_wrong")


def test_after_a_jump_back_by_an_hour_requests_succeed_and_times_do_not_run_back(steward: Served) -> None:
    headers = steward.headers()
    before = steward.http.post("/v1/epochs", json=REASON, headers=headers)
    steward.stand.time.jump(-3_600 * SECOND)
    after = steward.http.post("/v1/epochs", json=REASON, headers=headers)
    assert (before.status_code, after.status_code) == (200, 200)
    times = [event["at"] for event in steward.http.get("/v1/events?limit=1000", headers=headers).json()["events"]]
    assert times == sorted(times)


def test_the_error_after_a_jump_has_a_kind_and_a_next_step(steward: Served) -> None:
    headers = steward.headers()
    steward.stand.time.jump(YEAR)
    error = error_of(steward.http.post("/v1/epochs", json=REASON, headers=headers))
    assert (error["kind"], error["reason"]) == ("unavailable", "clock_jumped")
    assert error["hint"]
