"""Limits of size, speed, rate and concurrency: a caller above one is refused early, and other callers are served."""

from __future__ import annotations

import contextlib
import resource
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from pvdm.ledger.record.tokens import Grant
from pvdm.model.role import Role
from pvdm.steward.access import Access
from pvdm.steward.config.steward import Limits
from pvdm.steward.http import limits, listener
from pvdm.steward.http.listener import StewardProtocol
from tests.support.steward.http import (
    REASON,
    RawConnection,
    bearer,
    blocked_commits,
    error_of,
    head,
    limited,
    refusal,
    served,
)


def test_a_declared_size_above_the_limit_is_refused_before_a_byte_is_sent(tmp_path: Path) -> None:
    with served(tmp_path, changed=limited(body_max_bytes=2_000)) as steward, RawConnection(steward.server.port) as rude:
        token = steward.headers()["authorization"]
        rude.send(
            head("POST", "/v1/epochs", authorization=token, content_type="application/json", content_length="2001")
        )
        status, error = rude.answer()
    assert (status, error["reason"], error["expected"]) == (413, "body_too_large", "at most 2000 bytes")


def test_a_body_of_unknown_size_is_refused_as_soon_as_it_is_too_large(tmp_path: Path) -> None:
    sent = 0

    def pieces() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(1_000):
            sent += 65_536
            yield b"x" * 65_536

    with served(tmp_path, changed=limited(body_max_bytes=2_000)) as steward:
        headers = {**steward.headers(), "content-type": "application/json"}
        response = steward.http.post("/v1/epochs", content=pieces(), headers=headers)
    assert refusal(response) == (413, "body_too_large")
    assert sent < 30_000_000


def test_a_body_of_just_the_limit_is_read(tmp_path: Path) -> None:
    body = b'{"reason": "x"}'
    with served(tmp_path, changed=limited(body_max_bytes=len(body))) as steward:
        headers = {**steward.headers(), "content-type": "application/json"}
        assert steward.http.post("/v1/epochs", content=body, headers=headers).status_code == 200
        assert refusal(steward.http.post("/v1/epochs", content=body + b" ", headers=headers)) == (413, "body_too_large")


def envelope(size: int) -> dict[str, object]:
    signature = {"keyid": "0" * 64, "sig": "AAAA"}
    return {"envelope": {"payload": "A" * size, "payloadType": "x", "signatures": [signature]}}


def test_an_envelope_may_be_larger_than_other_bodies(tmp_path: Path) -> None:
    with served(tmp_path, changed=limited(body_max_bytes=2_000, envelope_max_bytes=5_000)) as steward:
        response = steward.http.post("/v1/overrides", json=envelope(4_000), headers=steward.headers())
        assert error_of(response)["reason"] == "payload_type_wrong"
        response = steward.http.post("/v1/overrides", json=envelope(8_000), headers=steward.headers())
        assert refusal(response) == (413, "body_too_large")


def test_a_body_that_comes_too_slowly_is_refused(tmp_path: Path) -> None:
    with served(tmp_path, changed=limited(request_seconds=1)) as steward, RawConnection(steward.server.port) as rude:
        token = steward.headers()["authorization"]
        rude.send(
            head("POST", "/v1/epochs", authorization=token, content_type="application/json", content_length="500")
        )
        begun = time.monotonic()
        stopped = threading.Event()

        def drip() -> None:
            with contextlib.suppress(OSError):
                while not stopped.wait(0.1):
                    rude.send(b" ")

        dripping = threading.Thread(target=drip)
        dripping.start()
        status, error = rude.answer()
        stopped.set()
        dripping.join()
    assert (status, error["reason"]) == (408, "body_too_slow")
    assert time.monotonic() - begun < 8


def test_a_connection_whose_headers_come_too_slowly_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StewardProtocol, "headers_seconds", 0.3)
    with served(tmp_path) as steward:
        with RawConnection(steward.server.port) as silent:
            assert silent.read() == b""
        with RawConnection(steward.server.port) as slow:
            slow.send(b"GET /healthz HTT")
            assert slow.read() == b""
        with RawConnection(steward.server.port) as second_request:
            second_request.send(head("GET", "/healthz"))
            time.sleep(0.1)
            second_request.send(b"GET /heal")
            assert second_request.read().count(b"HTTP/1.1 200") == 1


def test_a_connection_beyond_the_limit_is_closed_and_the_others_stay_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "CONNECTIONS_MAX", 2)
    with served(tmp_path) as steward, httpx.Client(base_url=steward.server.url, trust_env=False) as other:
        assert other.get("/healthz").status_code == 200
        with RawConnection(steward.server.port), RawConnection(steward.server.port) as third:
            third.send(head("GET", "/healthz"))
            assert third.read() == b""
            assert other.get("/healthz").status_code == 200


def test_one_address_has_a_limit_of_connections_and_closed_ones_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "peer_identity", lambda _: "peer 10.1.2.3")
    with served(tmp_path, changed=limited(peer_connections=2)) as steward:
        for _ in range(3):
            port = steward.server.port
            with RawConnection(port), RawConnection(port) as second, RawConnection(port) as third:
                assert third.read() == b""
                second.send(head("GET", "/healthz", connection="close"))
                assert second.read().startswith(b"HTTP/1.1 200")
            time.sleep(0.2)
        assert steward.http.get("/healthz").status_code == 200


def test_connections_from_the_same_machine_have_no_limit_for_one_address(tmp_path: Path) -> None:
    with served(tmp_path, changed=limited(peer_connections=2)) as steward, contextlib.ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(RawConnection(steward.server.port))
        assert steward.http.get("/healthz").status_code == 200


@pytest.mark.parametrize(
    ("files", "expected"),
    [(resource.RLIM_INFINITY, 2_048), (1_000_000, 2_048), (1_024, 768), (256, 128), (2, 1)],
)
def test_the_limit_of_connections_leaves_file_descriptors_for_the_ledger(
    monkeypatch: pytest.MonkeyPatch, files: int, expected: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    assert listener.connection_limit() == expected


def test_a_caller_above_its_rate_is_refused_with_retry_after(tmp_path: Path) -> None:
    with served(tmp_path, changed=limited(rate_per_second=1, burst=3)) as steward:
        headers = steward.headers()
        answers = [steward.http.get("/v1/identity", headers=headers) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        assert refusal(answers[3]) == (429, "rate_limited")
        assert answers[3].headers["retry-after"] == "1"
        assert error_of(answers[3])["kind"] == "unavailable"
        assert steward.http.get("/v1/identity", headers=steward.headers()).status_code == 200


def test_a_refused_caller_is_accepted_again_after_the_time_in_retry_after(tmp_path: Path) -> None:
    with served(tmp_path, changed=limited(rate_per_second=2, burst=1)) as steward:
        headers = steward.headers()
        assert steward.http.get("/v1/identity", headers=headers).status_code == 200
        refused = steward.http.get("/v1/identity", headers=headers)
        assert refused.status_code == 429
        time.sleep(int(refused.headers["retry-after"]))
        assert steward.http.get("/v1/identity", headers=headers).status_code == 200


def test_guessed_tokens_do_not_use_up_the_rate_of_other_callers_at_the_same_address(tmp_path: Path) -> None:
    with served(tmp_path, changed=limited(rate_per_second=1, burst=3)) as steward:
        guess = {"authorization": "Bearer pvdm_guessed"}
        for path in ("/v1/identity", "/v1/openapi.json"):
            for _ in range(8):
                steward.http.get(path, headers=guess)
        fresh, grant = steward.stand.token(Role.PRODUCER, "sales", "job")
        form = {"grant_type": "client_credentials", "client_id": grant.token_id, "client_secret": fresh}
        assert steward.http.get("/v1/identity", headers=bearer(fresh)).status_code == 200
        assert steward.http.post("/catalog/v1/oauth/tokens", data=form).status_code == 200
        assert {steward.http.get("/readyz").status_code for _ in range(20)} == {200}


def test_derived_tokens_share_the_rate_limit_of_their_parent(tmp_path: Path) -> None:
    with served(tmp_path, changed=limited(rate_per_second=1, burst=4)) as steward:
        token, grant = steward.stand.token(Role.PRODUCER, "sales", "job")
        form = {"grant_type": "client_credentials", "client_id": grant.token_id, "client_secret": token}
        answers = [steward.http.post("/catalog/v1/oauth/tokens", data=form) for _ in range(2)]
        derived = [answer.json()["access_token"] for answer in answers]
        statuses = [steward.http.get("/v1/identity", headers=bearer(each)).status_code for each in (*derived, *derived)]
        assert statuses == [200, 200, 429, 429]
        assert steward.http.post("/catalog/v1/oauth/tokens", data=form).status_code == 429


def test_only_two_unknown_tokens_are_looked_up_at_a_time_and_known_callers_do_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(tmp_path) as steward, ThreadPoolExecutor(20) as pool:
        known = steward.headers()
        assert steward.http.get("/v1/identity", headers=known).status_code == 200
        go, looked_up = threading.Event(), []
        real = Access.authenticate

        def authenticate_slowly(access: Access, text: str) -> Grant:
            if text == "pvdm_guessed":
                looked_up.append(text)
                go.wait(20)
            return real(access, text)

        monkeypatch.setattr(Access, "authenticate", authenticate_slowly)
        guesses = [pool.submit(steward.http.get, "/v1/identity", headers=bearer("pvdm_guessed")) for _ in range(20)]
        time.sleep(0.5)
        assert len(looked_up) == 2
        assert steward.http.get("/v1/identity", headers=known).status_code == 200
        go.set()
        assert {guess.result().status_code for guess in guesses} == {401}


def test_a_caller_without_a_token_has_a_rate_limit_too(tmp_path: Path) -> None:
    with served(tmp_path, changed=limited(rate_per_second=1, burst=3)) as steward:
        answers = [steward.http.get("/v1/identity").status_code for _ in range(6)]
    assert answers[:3] == [401, 401, 401]
    assert 429 in answers[3:]


def test_a_body_beyond_the_memory_limit_of_all_bodies_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BODIES_MAX_BYTES", 1_000)
    with served(tmp_path) as steward:
        body = {"reason": "x" * 1_000}
        response = steward.http.post("/v1/epochs", json=body, headers=steward.headers())
        assert refusal(response) == (429, "too_many_requests_at_once")
        assert steward.http.post("/v1/epochs", json=REASON, headers=steward.headers()).status_code == 200


def test_healthz_has_no_rate_limit(tmp_path: Path) -> None:
    with served(tmp_path, changed=limited(rate_per_second=1, burst=1)) as steward:
        assert {steward.http.get("/healthz").status_code for _ in range(20)} == {200}


def test_a_callers_request_beyond_its_concurrency_waits_and_is_then_refused(tmp_path: Path) -> None:
    with served(tmp_path, changed=limited(concurrent=1, wait_seconds=1)) as steward, ThreadPoolExecutor(1) as pool:
        core = steward.stand.staging()
        headers = steward.headers(Role.PRODUCER, "sales")
        other = steward.headers()
        path = f"/v1/attempts/{core.attempt.attempt_id}"
        with blocked_commits() as (reached, go):
            blocked = pool.submit(
                steward.http.post, f"{path}/abort", json={**REASON, "lease_number": 1}, headers=headers
            )
            assert reached.wait(5)
            refused = steward.http.get(path, headers=headers)
            assert refusal(refused) == (429, "too_many_requests_at_once")
            assert refused.headers["retry-after"] == "1"
            assert steward.http.get(path, headers=other).status_code == 200
            go.set()
        assert blocked.result().json()["state"] == "ROLLED_BACK"
        assert steward.http.get(path, headers=headers).status_code == 200


def test_a_request_that_waits_is_answered_when_the_first_one_ends(tmp_path: Path) -> None:
    with served(tmp_path, changed=limited(concurrent=1, wait_seconds=10)) as steward, ThreadPoolExecutor(2) as pool:
        core = steward.stand.staging()
        headers = steward.headers(Role.PRODUCER, "sales")
        path = f"/v1/attempts/{core.attempt.attempt_id}"
        with blocked_commits() as (reached, go):
            blocked = pool.submit(
                steward.http.post, f"{path}/abort", json={**REASON, "lease_number": 1}, headers=headers
            )
            assert reached.wait(5)
            waiting = pool.submit(steward.http.get, path, headers=headers)
            time.sleep(0.3)
            assert not waiting.done()
            go.set()
        assert (blocked.result().status_code, waiting.result().json()["state"]) == (200, "ROLLED_BACK")


def test_all_callers_together_have_a_limit_that_does_not_apply_to_healthz(tmp_path: Path) -> None:
    with served(tmp_path, changed=limited(in_flight=1)) as steward, ThreadPoolExecutor(1) as pool:
        path = f"/v1/attempts/{steward.stand.staging().attempt.attempt_id}/abort"
        headers = steward.headers(Role.PRODUCER, "sales")
        other = steward.headers()
        with blocked_commits() as (reached, _):
            blocked = pool.submit(steward.http.post, path, json={**REASON, "lease_number": 1}, headers=headers)
            assert reached.wait(5)
            refused = steward.http.get("/v1/identity", headers=other)
            assert refusal(refused) == (503, "service_busy")
            assert "retry-after" in refused.headers
            assert steward.http.get("/healthz").status_code == 200
        assert blocked.result().status_code == 200


def test_a_caller_that_disconnects_during_its_body_does_not_keep_its_slot(tmp_path: Path) -> None:
    with served(tmp_path, changed=limited(concurrent=1, wait_seconds=0)) as steward:
        headers = steward.headers()
        with RawConnection(steward.server.port) as rude:
            token = headers["authorization"]
            kind = "application/json"
            rude.send(head("POST", "/v1/epochs", authorization=token, content_type=kind, content_length="500") + b"{")
        time.sleep(0.2)
        assert steward.http.get("/v1/epochs", headers=headers).status_code == 200


def test_the_default_size_limits_are_the_documented_ones() -> None:
    assert (Limits().body_max_bytes, Limits().envelope_max_bytes) == (65_536, 2_097_152)
