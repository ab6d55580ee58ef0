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

SOON = 3
"""Seconds after which a test gives up an upstream: no honest answer takes as long, however busy the machine is."""
PLACE = TableIdentifier(("sales",), "orders")
TABLE = new_table(request(2), location="/lake/t", table_uuid="9f1c6f0e-7d0b-4a67-9a3e-2d6d0f3d9a11", now_ms=NOW_MS)
LOADED = {"metadata-location": "/lake/t/metadata/0.metadata.json", "metadata": document_of(TABLE)}


@dataclass
class Hostile:
    """Answers each path with a document, whole or byte by byte."""

    config: dict[str, Any] = field(default_factory=dict)
    dripping: str = "nothing"
    pages: int | None = 0
    """How many pages a list has; None: no end of them."""
    slow_seconds: float = 0
    """How long each page takes."""
    sent_to: str | None = None
    """Where everything but the configuration is redirected to."""
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
def hostile() -> Iterator[Hostile]:
    found, stop = Hostile(), threading.Event()

    class Door(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            found.seen.append((self.path, self.headers.get("Authorization")))
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            data = found.answer(self.path)
            if found.sent_to is not None and "/config" not in self.path:
                self.send_response(307)
                self.send_header("Location", found.sent_to)
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
            """A tunnel that is never finished."""
            self.drip(b"x" * 1_000)

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
def asked(there: Hostile, *, seconds: int = 30, **more: Any) -> Iterator[RestUpstream]:
    upstream = RestUpstream("prod", RestSettings(there.url, timeout_seconds=seconds, **more))
    try:
        yield upstream
    finally:
        upstream.close()


def test_nothing_that_an_upstream_names_is_run_by_the_steward(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    with hostile() as there, asked(there) as upstream:
        run = {"type": "custom", "impl": "subprocess.Popen", "custom": {"args": ["touch", str(mark)]}}
        there.config = {"auth": run}
        assert upstream.load(PLACE).metadata_location == LOADED["metadata-location"]
    time.sleep(0.2)
    assert not mark.exists()


def test_the_stewards_credential_goes_nowhere_else() -> None:
    secrets: tuple[dict[str, Any], ...] = ({"token": Secret(b"s3cret")}, {"credential": Secret(b"id:s3cret")})
    with hostile() as other:
        for given in secrets:
            for key in ("uri", "oauth2-server-uri"):
                with hostile() as there, asked(there, **given) as upstream:
                    there.config = {key: f"{other.url}/v1/oauth/tokens"}
                    if key == "uri":
                        with pytest.raises(VerificationError) as caught:
                            upstream.load(PLACE)
                        assert caught.value.reason == "upstream_elsewhere"
                    else:
                        assert upstream.load(PLACE).metadata_location == LOADED["metadata-location"]
                    asked_for = {path for path, _ in there.seen if "oauth" in path}
                    assert asked_for == ({"/v1/oauth/tokens"} if "credential" in given else set())
        assert other.seen == []


def test_its_own_prefix_is_an_upstreams_to_say() -> None:
    with hostile() as there, asked(there, token=Secret(b"s3cret")) as upstream:
        there.config = {"prefix": "main", "uri": f"{there.url}/", "token": "another", "header.Authorization": "x"}
        upstream.load(PLACE)
        assert there.seen[-1] == ("/v1/main/namespaces/sales/tables/orders?snapshots=all", "Bearer s3cret")


@pytest.mark.parametrize("part", ["head", "body"])
def test_an_answer_that_never_ends_is_given_up_in_time(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(circuit_breaker, "OPEN_SECONDS", 0)
    commit = CommitRequest(UpstreamState("", TABLE), [{"type": "assert-table-uuid", "uuid": str(TABLE.table_uuid)}], [])
    with hostile() as there, asked(there, seconds=SOON) as upstream:
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
            assert time.monotonic() - began < 20


def test_a_list_without_an_end_is_given_up_in_time() -> None:
    with hostile() as there, asked(there, seconds=SOON) as upstream:
        there.pages = 3
        assert upstream.names(PLACE.levels) == ["t1", "t2", "t3"]
        there.pages = None
        began = time.monotonic()
        with pytest.raises(UnavailableError):
            upstream.names(PLACE.levels)
        assert time.monotonic() - began < 20
        there.slow_seconds = 0.4
        with pytest.raises(UnavailableError):
            upstream.names(PLACE.levels)
        assert upstream.load(PLACE).metadata_location  # who has no time left has not met a silent server


@pytest.mark.parametrize("part", ["head", "body"])
def test_an_answer_that_never_ends_is_given_up_behind_a_proxy_too(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with hostile() as there:
        monkeypatch.setenv("http_proxy", there.url)
        monkeypatch.setenv("no_proxy", "")
        upstream = RestUpstream("prod", RestSettings(f"http://{part}.example", timeout_seconds=SOON))
        assert upstream.load(PLACE).metadata_location == LOADED["metadata-location"]
        there.dripping = part
        began = time.monotonic()
        with pytest.raises(UnavailableError):
            upstream.load(PLACE)
        assert time.monotonic() - began < 20
        upstream.close()


@pytest.mark.parametrize("part", ["head", "body"])
def test_nobody_waits_for_an_upstream_that_was_silent_just_now(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with hostile() as there, asked(there, seconds=SOON) as upstream:
        upstream.load(PLACE)
        there.dripping = part
        with pytest.raises(UnavailableError):
            upstream.load(PLACE)
        count = len(there.seen)
        with pytest.raises(UnavailableError):
            upstream.load(PLACE)
        assert len(there.seen) == count
        there.dripping = "nothing"
        again = upstream.reconnect()
        assert again.load(PLACE).metadata_location == LOADED["metadata-location"]  # it is asked whatever others found
        again.close()
        assert upstream.load(PLACE).metadata_location == LOADED["metadata-location"]  # and tells them
        there.dripping = part
        with pytest.raises(UnavailableError):
            upstream.load(PLACE)
        there.dripping = "nothing"
        monkeypatch.setattr(circuit_breaker, "OPEN_SECONDS", 0)
        assert upstream.load(PLACE).metadata_location == LOADED["metadata-location"]


def test_a_proxy_that_never_finishes_its_tunnel_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with hostile() as there:
        monkeypatch.setenv("https_proxy", there.url)
        monkeypatch.setenv("no_proxy", "")
        upstream = RestUpstream("prod", RestSettings("https://tunnel.example", timeout_seconds=SOON))
        began = time.monotonic()
        with pytest.raises(UnavailableError):
            upstream.load(PLACE)
        assert time.monotonic() - began < 20


def test_a_commit_without_an_answer_keeps_nobody_from_looking_what_came_of_it() -> None:
    commit = CommitRequest(UpstreamState("", TABLE), [{"type": "assert-table-uuid", "uuid": str(TABLE.table_uuid)}], [])
    with hostile() as there, asked(there, seconds=SOON) as upstream:
        upstream.load(PLACE)
        there.dripping = "body"
        with pytest.raises(StateUnknownError):
            upstream.commit(PLACE, commit)
        there.dripping = "nothing"
        assert upstream.load(PLACE).metadata_location


def test_no_redirect_is_followed_with_a_credential_or_a_commit() -> None:
    commit = CommitRequest(UpstreamState("", TABLE), [{"type": "assert-table-uuid", "uuid": str(TABLE.table_uuid)}], [])
    with hostile() as other, hostile() as there, asked(there, token=Secret(b"s3cret")) as upstream:
        there.sent_to = f"{other.url}/v1/namespaces/sales/tables/orders"
        with pytest.raises(UnavailableError):
            upstream.load(PLACE)
        with pytest.raises(StateUnknownError):
            upstream.commit(PLACE, commit)
        assert other.seen == []


def test_an_answer_is_read_as_far_as_it_may_be_long() -> None:
    with hostile() as there, requests.Session() as session:
        there.config = {"long": "x" * 8_000_000}
        limit_session(session, seconds=5, max_bytes=1_000_000, breaker=circuit_breaker.CircuitBreaker())
        assert 1_000_000 < len(session.get(f"{there.url}/v1/config").content) < 4_000_000
