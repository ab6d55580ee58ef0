"""A hostile REST upstream: it can run no code, send the credential nowhere else, and block the Steward only briefly."""

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
import requests

from pvdm.errors import PvdmError, StateUnknownError, UnavailableError, VerificationError
from pvdm.lake.format.table.new_table import new_table
from pvdm.lake.stores import circuit_breaker
from pvdm.lake.upstream import CommitRequest, TableIdentifier, UpstreamState
from pvdm.lake.upstream.rest import RestSettings, RestUpstream
from pvdm.lake.upstream.sessions import limit_session
from pvdm.model.secret import Secret
from tests.support.catalog.core import NOW_MS, request
from tests.support.lake.metadata import document_of

TIMEOUT_SECONDS = 3
"""The time-out of the upstreams: an honest answer comes sooner, also on a busy machine."""
PLACE = TableIdentifier(("sales",), "orders")
TABLE = new_table(request(2), location="/lake/t", table_uuid="9f1c6f0e-7d0b-4a67-9a3e-2d6d0f3d9a11", now_ms=NOW_MS)
LOADED = {"metadata-location": "/lake/t/metadata/0.metadata.json", "metadata": document_of(TABLE)}


@dataclass
class HostileServer:
    """What the server answers to each path; `seen` lists the path and credential of each request."""

    config: dict[str, Any] = field(default_factory=dict)
    dripping: str = "nothing"
    """Which part of an answer is sent byte by byte: `head`, `body` or `nothing`."""
    pages: int | None = 0
    """How many pages a list has; None: it never ends."""
    slow_seconds: float = 0
    """How long each page takes."""
    redirect_to: str | None = None
    """Where all requests except those for the configuration are redirected to."""
    seen: list[tuple[str, str | None]] = field(default_factory=list)
    url: str = ""

    def answer(self, path: str) -> bytes:
        if "/config" in path:
            return json.dumps({"defaults": {}, "overrides": self.config}).encode()
        if "/tokens" in path:
            return json.dumps({"access_token": "from-here", "token_type": "bearer"}).encode()
        if self.pages != 0 and path.partition("?")[0].endswith("/tables"):
            return self.page(int(path.rpartition("pageToken=")[2] or 1) if "pageToken" in path else 1)
        return json.dumps(LOADED).encode()

    def page(self, number: int) -> bytes:
        time.sleep(self.slow_seconds)
        more = {} if number == self.pages else {"next-page-token": str(number + 1)}
        return json.dumps({"identifiers": [{"namespace": ["sales"], "name": f"t{number}"}], **more}).encode()


@contextlib.contextmanager
def run_hostile_server() -> Iterator[HostileServer]:
    found, stop = HostileServer(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            found.seen.append((self.path, self.headers.get("Authorization")))
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            data = found.answer(self.path)
            if found.redirect_to is not None and "/config" not in self.path:
                self.send_response(307)
                self.send_header("Location", found.redirect_to)
            else:
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

        def do_CONNECT(self) -> None:
            """Never finish opening a tunnel."""
            self.drip(b"x" * 1_000)

        def drip(self, data: bytes) -> None:
            with contextlib.suppress(OSError):
                self.flush_headers()
                for at in range(len(data)):
                    self.wfile.write(data[at : at + 1])
                    if stop.wait(0.1):
                        return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
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
def upstream_at(server: HostileServer, *, seconds: int = 30, **more: Any) -> Iterator[RestUpstream]:
    upstream = RestUpstream("prod", RestSettings(server.url, timeout_seconds=seconds, **more))
    try:
        yield upstream
    finally:
        upstream.close()


def test_code_that_an_upstream_names_is_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    with run_hostile_server() as server, upstream_at(server) as upstream:
        run = {"type": "custom", "impl": "subprocess.Popen", "custom": {"args": ["touch", str(mark)]}}
        server.config = {"auth": run}
        assert upstream.load(PLACE).metadata_location == LOADED["metadata-location"]
    time.sleep(0.2)
    assert not mark.exists()


def test_the_stewards_credential_is_not_sent_to_another_server() -> None:
    secrets: tuple[dict[str, Any], ...] = ({"token": Secret(b"s3cret")}, {"credential": Secret(b"id:s3cret")})
    with run_hostile_server() as other:
        for options in secrets:
            for key in ("uri", "oauth2-server-uri"):
                with run_hostile_server() as server, upstream_at(server, **options) as upstream:
                    server.config = {key: f"{other.url}/v1/oauth/tokens"}
                    if key == "uri":
                        with pytest.raises(VerificationError) as caught:
                            upstream.load(PLACE)
                        assert caught.value.reason == "upstream_elsewhere"
                    else:
                        assert upstream.load(PLACE).metadata_location == LOADED["metadata-location"]
                    token_requests = {path for path, _ in server.seen if "oauth" in path}
                    assert token_requests == ({"/v1/oauth/tokens"} if "credential" in options else set())
        assert other.seen == []


def test_an_upstream_may_set_its_prefix_but_not_the_credential() -> None:
    with run_hostile_server() as server, upstream_at(server, token=Secret(b"s3cret")) as upstream:
        server.config = {"prefix": "main", "uri": f"{server.url}/", "token": "another", "header.Authorization": "x"}
        upstream.load(PLACE)
        assert server.seen[-1] == ("/v1/main/namespaces/sales/tables/orders?snapshots=all", "Bearer s3cret")


@pytest.mark.parametrize("part", ["head", "body"])
def test_an_answer_that_never_ends_is_ended_by_the_time_out(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(circuit_breaker, "OPEN_SECONDS", 0)
    commit = CommitRequest(UpstreamState("", TABLE), [{"type": "assert-table-uuid", "uuid": str(TABLE.table_uuid)}], [])
    with run_hostile_server() as server, upstream_at(server, seconds=TIMEOUT_SECONDS) as upstream:
        server.dripping = part
        for work, kind in (
            (lambda: upstream.load(PLACE), UnavailableError),
            (lambda: upstream.names(PLACE.levels), UnavailableError),
            (lambda: upstream.commit(PLACE, commit), StateUnknownError),
        ):
            start = time.monotonic()
            with pytest.raises(PvdmError) as caught:
                work()
            assert isinstance(caught.value, kind), caught.value
            assert time.monotonic() - start < 20


def test_a_list_without_an_end_is_ended_by_the_time_out() -> None:
    with run_hostile_server() as server, upstream_at(server, seconds=TIMEOUT_SECONDS) as upstream:
        server.pages = 3
        assert upstream.names(PLACE.levels) == ["t1", "t2", "t3"]
        server.pages = None
        start = time.monotonic()
        with pytest.raises(UnavailableError):
            upstream.names(PLACE.levels)
        assert time.monotonic() - start < 20
        server.slow_seconds = 0.4
        with pytest.raises(UnavailableError):
            upstream.names(PLACE.levels)
        assert upstream.load(PLACE).metadata_location  # a call that ran out of time does not open the circuit breaker


@pytest.mark.parametrize("part", ["head", "body"])
def test_an_answer_that_never_ends_is_ended_behind_a_proxy_too(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with run_hostile_server() as server:
        monkeypatch.setenv("http_proxy", server.url)
        monkeypatch.setenv("no_proxy", "")
        upstream = RestUpstream("prod", RestSettings(f"http://{part}.example", timeout_seconds=TIMEOUT_SECONDS))
        assert upstream.load(PLACE).metadata_location == LOADED["metadata-location"]
        server.dripping = part
        start = time.monotonic()
        with pytest.raises(UnavailableError):
            upstream.load(PLACE)
        assert time.monotonic() - start < 20
        upstream.close()


@pytest.mark.parametrize("part", ["head", "body"])
def test_an_upstream_that_was_just_silent_is_not_asked_again(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with run_hostile_server() as server, upstream_at(server, seconds=TIMEOUT_SECONDS) as upstream:
        upstream.load(PLACE)
        server.dripping = part
        with pytest.raises(UnavailableError):
            upstream.load(PLACE)
        count = len(server.seen)
        with pytest.raises(UnavailableError):
            upstream.load(PLACE)
        assert len(server.seen) == count
        server.dripping = "nothing"
        again = upstream.reconnect()  # ignores the circuit breaker, and closes it by an answer
        assert again.load(PLACE).metadata_location == LOADED["metadata-location"]
        again.close()
        assert upstream.load(PLACE).metadata_location == LOADED["metadata-location"]
        server.dripping = part
        with pytest.raises(UnavailableError):
            upstream.load(PLACE)
        server.dripping = "nothing"
        monkeypatch.setattr(circuit_breaker, "OPEN_SECONDS", 0)
        assert upstream.load(PLACE).metadata_location == LOADED["metadata-location"]


def test_a_proxy_that_never_opens_its_tunnel_is_ended_by_the_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with run_hostile_server() as server:
        monkeypatch.setenv("https_proxy", server.url)
        monkeypatch.setenv("no_proxy", "")
        upstream = RestUpstream("prod", RestSettings("https://tunnel.example", timeout_seconds=TIMEOUT_SECONDS))
        start = time.monotonic()
        with pytest.raises(UnavailableError):
            upstream.load(PLACE)
        assert time.monotonic() - start < 20


def test_the_table_can_be_loaded_after_a_commit_without_an_answer() -> None:
    commit = CommitRequest(UpstreamState("", TABLE), [{"type": "assert-table-uuid", "uuid": str(TABLE.table_uuid)}], [])
    with run_hostile_server() as server, upstream_at(server, seconds=TIMEOUT_SECONDS) as upstream:
        upstream.load(PLACE)
        server.dripping = "body"
        with pytest.raises(StateUnknownError):
            upstream.commit(PLACE, commit)
        server.dripping = "nothing"
        assert upstream.load(PLACE).metadata_location


def test_no_redirect_of_a_load_or_commit_is_followed() -> None:
    commit = CommitRequest(UpstreamState("", TABLE), [{"type": "assert-table-uuid", "uuid": str(TABLE.table_uuid)}], [])
    with (
        run_hostile_server() as other,
        run_hostile_server() as server,
        upstream_at(server, token=Secret(b"s3cret")) as upstream,
    ):
        server.redirect_to = f"{other.url}/v1/namespaces/sales/tables/orders"
        with pytest.raises(UnavailableError):
            upstream.load(PLACE)
        with pytest.raises(StateUnknownError):
            upstream.commit(PLACE, commit)
        assert other.seen == []


def test_an_answer_is_read_up_to_its_limit() -> None:
    with run_hostile_server() as server, requests.Session() as session:
        server.config = {"long": "x" * 8_000_000}
        limit_session(session, seconds=5, max_bytes=1_000_000, breaker=circuit_breaker.CircuitBreaker())
        assert 1_000_000 < len(session.get(f"{server.url}/v1/config").content) < 4_000_000
