"""A clock that has jumped: the Steward says so, does nothing that needs the time, and lets an operator confirm."""

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


def test_readiness_tells_every_reason(tmp_path: Path) -> None:
    with served(tmp_path, rooted=False) as steward:
        steward.stand.time.jump(YEAR)
        (tmp_path / "outside" / "checkpoint").write_bytes(b"no note")
        response = steward.http.get("/readyz")
        told = response.json()
        assert (response.status_code, told["ready"]) == (503, False)
        assert {reason["reason"] for reason in told["reasons"]} == {
            "clock_jumped",
            "steward_without_root",
            "note_malformed",
        }
        assert "retry-after" in response.headers


def test_strangers_are_told_the_codes_and_whoever_watches_the_whole(tmp_path: Path) -> None:
    with served(tmp_path) as steward:
        (tmp_path / "outside").rename(tmp_path / "gone")
        stranger = steward.http.get("/readyz")
        others = [steward.headers(Role.PRODUCER), steward.headers(Role.OPERATOR, "sales"), bearer("pvdm_nobody")]
        watching = steward.http.get("/readyz", headers=steward.headers(Role.AUDITOR))
        (reason,) = stranger.json()["reasons"]
        (whole,) = watching.json()["reasons"]
        assert (reason["code"], reason["kind"]) == (whole["code"], whole["kind"])
        assert str(tmp_path) not in stranger.text
        assert (reason["expected"], reason["got"], reason["details"]) == (None, None, {})
        assert whole["message"] != reason["message"]
        for headers in others:
            assert steward.http.get("/readyz", headers=headers).json()["reasons"][0]["message"] == reason["message"]


def test_readiness_comes_back_when_the_operator_has_confirmed(steward: Served) -> None:
    headers = steward.headers()
    assert steward.http.get("/readyz").json() == {"ready": True, "reasons": []}
    steward.stand.time.jump(10 * DAY)
    assert steward.http.get("/readyz").status_code == 503
    confirmed = steward.http.post("/v1/clock/confirm", json=REASON, headers=headers)
    assert confirmed.json() == {"at": steward.stand.time.wall, "confirmed": True}
    assert steward.http.get("/readyz").status_code == 200


def test_the_process_is_healthy_though_it_is_not_ready(steward: Served) -> None:
    steward.stand.time.jump(YEAR)
    assert steward.http.get("/healthz").json() == {"alive": True}


def test_what_needs_the_time_is_refused_and_nothing_happens(steward: Served) -> None:
    headers, producer = steward.headers(), steward.headers(Role.PRODUCER, "sales")
    path = f"/v1/attempts/{steward.stand.verifying().attempt.attempt_id}"
    steward.stand.time.jump(YEAR)
    for response in (
        steward.http.post(f"{path}/abort", json=REASON, headers=producer),
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
    noted = [event for event in events if event["kind"] == "clock_confirmed"]
    assert [(each["new"]["operator"], each["new"]["reason"]) for each in noted] == [("operator-ruth", REASON["reason"])]


def test_the_wrong_time_of_the_jump_is_in_the_step_log(steward: Served) -> None:
    headers = steward.headers(name="operator-ruth")
    before = steward.stand.time.wall
    steward.stand.time.jump(YEAR)
    wrong = steward.stand.time.wall
    assert steward.http.get("/readyz").status_code == 503
    steward.stand.time.jump(-YEAR)
    steward.http.post("/v1/clock/confirm", json=REASON, headers=headers)
    events = steward.http.get("/v1/events?limit=1000", headers=headers).json()["events"]
    (noted,) = [event["new"] for event in events if event["kind"] == "clock_confirmed"]
    assert (noted["from_micros"], noted["jumped_to_micros"], noted["to_micros"]) == (before, wrong, before)


def test_readiness_shows_the_hosts_time_of_now_beside_that_of_the_jump(steward: Served) -> None:
    headers = steward.headers()
    right = format_micros(steward.stand.time.wall)
    steward.stand.time.jump(YEAR)
    wrong = format_micros(steward.stand.time.wall)
    assert steward.http.get("/readyz").status_code == 503
    steward.stand.time.jump(-YEAR)
    (reason,) = steward.http.get("/readyz", headers=headers).json()["reasons"]
    assert reason["got"] == f"{wrong} at the jump; the host's clock is at {right} now"
    assert "`pvdm steward confirm-clock --reason TEXT`" in reason["hint"]


def test_a_jump_makes_no_expired_token_good_again(steward: Served) -> None:
    token, _ = steward.stand.notary.access.issue(Role.OPERATOR, domain="*", name="short", lifetime_seconds=60)
    steward.stand.time.pass_by(61 * SECOND)
    steward.stand.time.jump(-DAY)
    assert refusal(steward.http.get("/v1/identity", headers=bearer(token.reveal()))) == (401, "token_expired")


def test_a_jump_forward_neither_ends_tokens_nor_stops_their_time(steward: Served) -> None:
    token, _ = steward.stand.notary.access.issue(Role.OPERATOR, domain="*", name="short", lifetime_seconds=60)
    steward.stand.time.jump(YEAR)
    assert steward.http.get("/v1/identity", headers=bearer(token.reveal())).status_code == 200
    steward.stand.time.pass_by(61 * SECOND)
    response = steward.http.post("/v1/clock/confirm", json=REASON, headers=bearer(token.reveal()))
    assert refusal(response) == (401, "token_expired")


@pytest.mark.parametrize("role", sorted(set(Role) - {Role.OPERATOR}))
def test_nobody_else_confirms_the_clock(steward: Served, role: Role) -> None:
    headers = steward.headers(role)
    steward.stand.time.jump(YEAR)
    assert refusal(steward.http.post("/v1/clock/confirm", json=REASON, headers=headers)) == (403, "role_wrong")


def test_an_hour_back_is_not_even_noticed(steward: Served) -> None:
    headers = steward.headers()
    before = steward.http.post("/v1/epochs", json=REASON, headers=headers)
    steward.stand.time.jump(-3_600 * SECOND)
    after = steward.http.post("/v1/epochs", json=REASON, headers=headers)
    assert (before.status_code, after.status_code) == (200, 200)
    times = [event["at"] for event in steward.http.get("/v1/events?limit=1000", headers=headers).json()["events"]]
    assert times == sorted(times)


def test_the_error_of_a_jump_tells_the_kind_and_the_next_step(steward: Served) -> None:
    headers = steward.headers()
    steward.stand.time.jump(YEAR)
    error = error_of(steward.http.post("/v1/epochs", json=REASON, headers=headers))
    assert (error["kind"], error["reason"]) == ("unavailable", "clock_jumped")
    assert error["hint"]
