"""A caller that does not read its answer, and strangers that send theirs slowly, keep nobody else out."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from pvdm.steward.http.app import create_app
from tests.steward_examples import stand_at
from tests.steward_http import Rude, head, limited, served


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


async def _empty() -> dict[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _stuck(_: Any) -> None:
    await asyncio.Event().wait()


def test_an_answer_that_nobody_reads_is_given_up(tmp_path: Path) -> None:
    with stand_at(tmp_path, changed=limited(request_seconds=1)) as stand:
        app = create_app(stand.notary)
        begun = time.monotonic()
        asyncio.run(asyncio.wait_for(app(scope_of("/v1/openapi.json"), _empty, _stuck), 10))
        assert time.monotonic() - begun < 5


def test_strangers_with_slow_bodies_leave_room_for_those_with_a_token(tmp_path: Path) -> None:
    with served(tmp_path, changed=limited(in_flight=4)) as steward, Rude(steward.server.port) as stranger:
        kind = "application/x-www-form-urlencoded"
        stranger.send(head("POST", "/catalog/v1/oauth/tokens", content_type=kind, content_length="500") + b"g")
        time.sleep(0.2)
        second = steward.http.post("/catalog/v1/oauth/tokens", data={"grant_type": "client_credentials"})
        assert (second.status_code, second.json()["error"]) == (503, "temporarily_unavailable")
        assert steward.http.get("/v1/identity", headers=steward.headers()).status_code == 200
        assert steward.http.get("/readyz").status_code == 200
