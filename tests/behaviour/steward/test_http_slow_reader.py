"""Callers that do not read their answers, or send their requests slowly, do not block other callers."""

from __future__ import annotations

import asyncio
import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pvdm.model.role import Role
from pvdm.steward.http import body
from pvdm.steward.http.app import create_app
from tests.support.steward.http import NO_SUCH_ATTEMPT, REASON, RawConnection, blocked_commits, head, limited, served
from tests.support.steward.notary import stand_at


def scope_of(path: str) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
    }


async def _receive_empty_body() -> dict[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _send_forever(_: Any) -> None:
    await asyncio.Event().wait()


def test_an_answer_that_the_caller_does_not_read_is_given_up(tmp_path: Path) -> None:
    with stand_at(tmp_path, changed=limited(request_seconds=1)) as stand:
        app = create_app(stand.notary)
        begun = time.monotonic()
        asyncio.run(asyncio.wait_for(app(scope_of("/v1/openapi.json"), _receive_empty_body, _send_forever), 10))
        assert time.monotonic() - begun < 5


def test_anonymous_callers_with_slow_bodies_leave_room_for_callers_with_a_token(tmp_path: Path) -> None:
    with served(tmp_path, changed=limited(in_flight=4)) as steward, RawConnection(steward.server.port) as anonymous:
        kind = "application/x-www-form-urlencoded"
        anonymous.send(head("POST", "/catalog/v1/oauth/tokens", content_type=kind, content_length="500") + b"g")
        time.sleep(0.2)
        second = steward.http.post("/catalog/v1/oauth/tokens", data={"grant_type": "client_credentials"})
        assert (second.status_code, second.json()["error"]) == (503, "temporarily_unavailable")
        assert steward.http.get("/v1/identity", headers=steward.headers()).status_code == 200
        assert steward.http.get("/readyz").status_code == 200


def test_an_anonymous_callers_slow_body_is_refused_after_its_own_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body, "ANONYMOUS_BODY_MAX_SECONDS", 1)
    with served(tmp_path) as steward, RawConnection(steward.server.port) as anonymous:
        kind = "application/x-www-form-urlencoded"
        begun = time.monotonic()
        anonymous.send(head("POST", "/catalog/v1/oauth/tokens", content_type=kind, content_length="500") + b"g")
        assert b" 408 " in anonymous.read()
        assert time.monotonic() - begun < 8


def test_anonymous_callers_that_announce_an_unexpected_body_do_not_block_others(tmp_path: Path) -> None:
    with served(tmp_path, changed=limited(in_flight=8)) as steward, contextlib.ExitStack() as stack:
        headers = steward.headers()
        for path in ("/readyz", "/v1/openapi.json", "/healthz") * 10:
            rude = stack.enter_context(RawConnection(steward.server.port))
            rude.send(head("GET", path, transfer_encoding="chunked"))
        assert steward.http.get("/v1/identity", headers=headers).status_code == 200
        assert steward.http.get("/readyz").status_code == 200


def test_two_callers_with_many_slow_bodies_do_not_block_others(tmp_path: Path) -> None:
    with served(tmp_path, changed=limited(in_flight=8, concurrent=2)) as steward, contextlib.ExitStack() as stack:
        for _ in range(2):
            token = steward.headers(Role.PRODUCER, "sales")["authorization"]
            for _ in range(10):
                rude = stack.enter_context(RawConnection(steward.server.port))
                path = f"/v1/attempts/{NO_SUCH_ATTEMPT}/abort"
                kind = "application/json"
                rude.send(head("POST", path, authorization=token, content_type=kind, content_length="100"))
        time.sleep(0.5)
        assert steward.http.get("/v1/identity", headers=steward.headers()).status_code == 200


def test_healthz_is_answered_while_every_thread_is_busy(tmp_path: Path) -> None:
    with served(tmp_path) as steward, ThreadPoolExecutor(20) as pool:
        headers = steward.headers()
        assert steward.http.get("/v1/identity", headers=headers).status_code == 200
        with blocked_commits() as (reached, _):
            for _ in range(20):
                pool.submit(steward.http.post, "/v1/epochs", json=REASON, headers=headers)
            assert reached.wait(5)
            time.sleep(0.3)
            begun = time.monotonic()
            assert steward.http.get("/healthz").status_code == 200
            assert time.monotonic() - begun < 5
