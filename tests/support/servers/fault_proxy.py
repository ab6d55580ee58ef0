"""An HTTP proxy in front of a catalog that loses, delays and changes requests and answers, for tests of upstreams."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

# Headers that the proxy does not pass on: they are about one connection, or ask for a compressed answer.
_HOPS = frozenset({"connection", "transfer-encoding", "content-length", "host", "keep-alive", "accept-encoding"})


@dataclass(slots=True)
class ProxiedRequest:
    """One request that the proxy received, and the client's socket."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    client: socket.socket

    def wait_until_client_leaves(self) -> None:
        """Wait until the client has closed its connection, because it waits no longer for the answer."""
        with contextlib.suppress(OSError):
            self.client.recv(1, socket.MSG_PEEK)

    @property
    def is_commit(self) -> bool:
        """Whether the request changes a table of a REST catalog or of Glue."""
        if self.headers.get("X-Amz-Target", "").endswith("UpdateTable"):
            return True
        return self.method == "POST" and "/tables/" in self.path and not self.path.endswith("/metrics")

    def body_contains(self, text: str) -> bool:
        return text.encode() in self.body


@dataclass(slots=True)
class ProxiedResponse:
    status: int
    headers: dict[str, str]
    body: bytes


class ConnectionLost(Exception):  # noqa: N818 - a lost connection is what the test asks for, no error
    """The proxy closes the client's connection without an answer."""


# What happens to one commit: forwarded or not, and which answer the client gets.
Fault = Callable[["FaultProxy", ProxiedRequest], ProxiedResponse]


def lose_answer(proxy: FaultProxy, request: ProxiedRequest) -> ProxiedResponse:
    """The server receives the commit; the client gets no answer."""
    proxy.forward(request)
    raise ConnectionLost


def lose_request(proxy: FaultProxy, request: ProxiedRequest) -> ProxiedResponse:
    """The server does not receive the commit; the client gets no answer."""
    raise ConnectionLost


def hold_request(proxy: FaultProxy, request: ProxiedRequest) -> ProxiedResponse:
    """The client gets no answer. The server receives the commit only when the test calls `deliver`."""
    proxy.held.append(request)
    raise ConnectionLost


def answer_late(proxy: FaultProxy, request: ProxiedRequest) -> ProxiedResponse:
    """The server receives the commit; its answer is sent only after the client has stopped waiting."""
    response = proxy.forward(request)
    request.wait_until_client_leaves()
    return response


def do_and_answer(status: int) -> Fault:
    """The server receives the commit; the client gets an error with this status."""

    def fault(proxy: FaultProxy, request: ProxiedRequest) -> ProxiedResponse:
        proxy.forward(request)
        return _error(status)

    return fault


def answer_without_doing(status: int) -> Fault:
    """The server does not receive the commit; the client gets an error with this status."""
    return lambda *_: _error(status)


def after_doing(work: Callable[[], object]) -> Fault:
    """The commit arrives after `work`, for example after another writer's commit."""

    def fault(proxy: FaultProxy, request: ProxiedRequest) -> ProxiedResponse:
        work()
        return proxy.forward(request)

    return fault


def _error(status: int) -> ProxiedResponse:
    document = {"error": {"message": "said by the test", "type": "CommitStateUnknownException", "code": status}}
    return ProxiedResponse(status, {"Content-Type": "application/json"}, json.dumps(document).encode())


@dataclass(slots=True)
class FaultProxy:
    """A proxy that forwards every request, except the next commits: `plan` has one fault for each of them.

    - `applies_to` selects the commits that take a fault from the plan.
    - `guard` can answer a request in place of the server; without an answer from it the server gets the request.
    - `change_load` changes the document of each table load.
    - `down` makes the proxy close every connection without an answer.
    - `commits` has each commit that was forwarded, with the status of its answer.
    """

    target: str
    plan: deque[Fault] = field(default_factory=deque)
    held: list[ProxiedRequest] = field(default_factory=list)
    commits: list[tuple[ProxiedRequest, int | None]] = field(default_factory=list)
    change_load: Callable[[ProxiedRequest, dict[str, Any]], dict[str, Any]] | None = None
    guard: Callable[[FaultProxy, ProxiedRequest], ProxiedResponse | None] | None = None
    applies_to: Callable[[ProxiedRequest], bool] = lambda _: True
    down: bool = False
    url: str = ""

    def forward(self, request: ProxiedRequest) -> ProxiedResponse:
        """Send the request to the server, unless `guard` answers it; returns the answer."""
        guarded = None if self.guard is None else self.guard(self, request)
        response = guarded or self.send(request)
        if request.is_commit:
            self.commits.append((request, response.status))
        return response

    def send(self, request: ProxiedRequest) -> ProxiedResponse:
        """Send the request to the server and return its answer."""
        parts = urlsplit(self.target)
        connection = http.client.HTTPConnection(parts.netloc, timeout=20)
        with contextlib.closing(connection):
            headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOPS}
            connection.request(request.method, request.path, request.body, {**headers, "Host": parts.netloc})
            answer = connection.getresponse()
            return ProxiedResponse(answer.status, dict(answer.getheaders()), answer.read())

    def deliver(self) -> list[int]:
        """Forward the requests that were held; returns the status of each answer."""
        late, self.held = self.held, []
        return [self.forward(each).status for each in late]

    def commit_statuses(self) -> list[int | None]:
        """The status of the answer to each commit that was forwarded."""
        return [status for _, status in self.commits]

    def answer(self, request: ProxiedRequest) -> ProxiedResponse:
        """The answer for the client, with the planned fault. Raises `ConnectionLost` if there is none."""
        if self.down:
            raise ConnectionLost
        if request.is_commit and self.plan and self.applies_to(request):
            fault = self.plan.popleft()
            return fault(self, request)
        response = self.forward(request)
        is_load = request.method == "GET" and "/tables/" in request.path and response.status == 200
        if self.change_load is not None and is_load:
            response.body = json.dumps(self.change_load(request, json.loads(response.body))).encode()
        return response


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: FaultProxy

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = ProxiedRequest(self.command, self.path, dict(self.headers.items()), body, self.connection)
        try:
            response = self.proxy.answer(request)
        except ConnectionLost:
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
            return
        with contextlib.suppress(OSError):
            self.send_response(response.status)
            for name, value in response.headers.items():
                if name.lower() not in _HOPS:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(response.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(response.body)

    do_GET = do_POST = do_HEAD = do_DELETE = _pass  # noqa: N815 - the names that http.server calls

    def log_message(self, *_: object) -> None:
        """Write no log; tests report failures themselves."""


@contextlib.contextmanager
def fault_proxy(target: str) -> Iterator[FaultProxy]:
    """Run a proxy to `target` on a free loopback port."""
    proxy = FaultProxy(target)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"proxy": proxy}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    proxy.url = f"http://127.0.0.1:{server.server_port}{urlsplit(target).path}"
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
