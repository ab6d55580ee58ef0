"""A REST upstream that turns on the Steward: it runs nothing, gets no credential elsewhere, and holds nobody up."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from pvdm.errors import PvdmError, StateUnknownError, UnavailableError, VerificationError
from pvdm.lake.format.new_table import new_table
from pvdm.lake.upstream import Asked, Place, Seen
from pvdm.lake.upstream.rest import RestSettings, RestUpstream
from pvdm.model.secret import Secret
from tests.catalog_examples import NOW_MS, request

PLACE = Place(("sales",), "orders")
TABLE = new_table(request(2), location="/lake/t", table_uuid="9f1c6f0e-7d0b-4a67-9a3e-2d6d0f3d9a11", now_ms=NOW_MS)
LOADED = {"metadata-location": "/lake/t/metadata/0.metadata.json", "metadata": TABLE.to_json()}


@dataclass
class Hostile:
    """Answers each path with a document, whole or byte by byte."""

    config: dict[str, Any] = field(default_factory=dict)
    dripping: str = "nothing"
    seen: list[tuple[str, str | None]] = field(default_factory=list)
    url: str = ""

    def answer(self, path: str) -> bytes:
        if "/config" in path:
            return json.dumps({"defaults": {}, "overrides": self.config}).encode()
        if "/tokens" in path:
            return json.dumps({"access_token": "from-here", "token_type": "bearer"}).encode()
        return json.dumps(LOADED).encode()


@contextlib.contextmanager
def hostile() -> Iterator[Hostile]:
    found, stop = Hostile(), threading.Event()

    class Door(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            found.seen.append((self.path, self.headers.get("Authorization")))
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            data = found.answer(self.path)
            self.send_response(200)
            if found.dripping == "head" and "/config" not in self.path:
                self.drip(b"x-more: " + b"x" * 1_000)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if found.dripping == "body" and "/config" not in self.path:
                self.drip(b" " * len(data))
            self.wfile.write(data)

        def do_POST(self) -> None:
            self.do_GET()

        def drip(self, data: bytes) -> None:
            with contextlib.suppress(OSError):
                self.flush_headers()
                for at in range(len(data)):
                    self.wfile.write(data[at : at + 1])
                    if stop.wait(0.1):
                        return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Door)
    server.daemon_threads = True
    found.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def asked(there: Hostile, **more: Any) -> Iterator[RestUpstream]:
    upstream = RestUpstream("prod", RestSettings(there.url, timeout_seconds=1, **more))
    try:
        yield upstream
    finally:
        upstream.close()


def test_nothing_that_an_upstream_names_is_run_by_the_steward(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    with hostile() as there, asked(there) as upstream:
        run = {"type": "custom", "impl": "subprocess.Popen", "custom": {"args": ["touch", str(mark)]}}
        there.config = {"auth": run}
        assert upstream.load(PLACE).location == LOADED["metadata-location"]
    time.sleep(0.2)
    assert not mark.exists()


def test_the_stewards_credential_goes_nowhere_else() -> None:
    secrets = ({"token": Secret(b"s3cret")}, {"credential": Secret(b"id:s3cret")})
    with hostile() as other:
        for given in secrets:
            for key in ("uri", "oauth2-server-uri"):
                with hostile() as there, asked(there, **given) as upstream:
                    there.config = {key: f"{other.url}/v1/oauth/tokens"}
                    if key == "uri":
                        with pytest.raises(VerificationError) as caught:
                            upstream.load(PLACE)
                        assert caught.value.code == "upstream_elsewhere"
                    else:
                        assert upstream.load(PLACE).location == LOADED["metadata-location"]
                    asked_for = {path for path, _ in there.seen if "oauth" in path}
                    assert asked_for == ({"/v1/oauth/tokens"} if "credential" in given else set())
        assert other.seen == []


def test_its_own_prefix_is_an_upstreams_to_say() -> None:
    with hostile() as there, asked(there, token=Secret(b"s3cret")) as upstream:
        there.config = {"prefix": "main", "uri": f"{there.url}/", "token": "another", "header.Authorization": "x"}
        upstream.load(PLACE)
        assert there.seen[-1] == ("/v1/main/namespaces/sales/tables/orders?snapshots=all", "Bearer s3cret")


@pytest.mark.parametrize("part", ["head", "body"])
def test_an_answer_that_never_ends_is_given_up_in_time(part: str) -> None:
    commit = Asked(Seen("", TABLE), [{"type": "assert-table-uuid", "uuid": str(TABLE.table_uuid)}], [])
    with hostile() as there, asked(there) as upstream:
        there.dripping = part
        for work, kind in (
            (lambda: upstream.load(PLACE), UnavailableError),
            (lambda: upstream.names(PLACE.levels), UnavailableError),
            (lambda: upstream.commit(PLACE, commit), StateUnknownError),
        ):
            began = time.monotonic()
            with pytest.raises(PvdmError) as caught:
                work()
            assert isinstance(caught.value, kind), caught.value
            assert time.monotonic() - began < 10
