"""A proxy in front of a real catalog that loses, delays and changes what passes, for tests of upstreams."""

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

_HOPS = frozenset({"connection", "transfer-encoding", "content-length", "host", "keep-alive", "accept-encoding"})


@dataclass(slots=True)
class Passing:
    """One request on its way."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    asker: socket.socket

    def given_up(self) -> None:
        """Comes back once nobody waits for the answer any more."""
        with contextlib.suppress(OSError):
            self.asker.recv(1, socket.MSG_PEEK)

    @property
    def is_commit(self) -> bool:
        """Whether it changes a table: of a REST catalog, or of Glue."""
        if self.headers.get("X-Amz-Target", "").endswith("UpdateTable"):
            return True
        return self.method == "POST" and "/tables/" in self.path and not self.path.endswith("/metrics")

    def says(self, text: str) -> bool:
        return text.encode() in self.body


@dataclass(slots=True)
class Answered:
    status: int
    headers: dict[str, str]
    body: bytes


class Lost(Exception):  # noqa: N818 - the connection ends without an answer
    """Nothing comes back."""


Way = Callable[["FaultProxy", Passing], Answered]


def lost_after(proxy: FaultProxy, passing: Passing) -> Answered:
    """It is done, and nobody hears of it."""
    proxy.forward(passing)
    raise Lost


def lost_before(proxy: FaultProxy, passing: Passing) -> Answered:
    """It never arrives."""
    raise Lost


def held(proxy: FaultProxy, passing: Passing) -> Answered:
    """It arrives later, when the test says so; until then nobody hears anything."""
    proxy.held.append(passing)
    raise Lost


def late_answer(proxy: FaultProxy, passing: Passing) -> Answered:
    """It is done, and the answer comes when nobody waits for it any more."""
    found = proxy.forward(passing)
    passing.given_up()
    return found


def says_after(status: int) -> Way:
    """It is done, and the answer says something else."""

    def way(proxy: FaultProxy, passing: Passing) -> Answered:
        proxy.forward(passing)
        return _error(status)

    return way


def says_before(status: int) -> Way:
    """It is not done, and the answer is this."""
    return lambda *_: _error(status)


def first(work: Callable[[], object]) -> Way:
    """Somebody else is faster."""

    def way(proxy: FaultProxy, passing: Passing) -> Answered:
        work()
        return proxy.forward(passing)

    return way


def _error(status: int) -> Answered:
    said = {"error": {"message": "said by the test", "type": "CommitStateUnknownException", "code": status}}
    return Answered(status, {"Content-Type": "application/json"}, json.dumps(said).encode())


@dataclass(slots=True)
class FaultProxy:
    """Everything passes as it is, but for the next commits, for which `plan` says what happens."""

    target: str
    plan: deque[Way] = field(default_factory=deque)
    held: list[Passing] = field(default_factory=list)
    seen: list[tuple[Passing, int | None]] = field(default_factory=list)
    told: Callable[[Passing, dict[str, Any]], dict[str, Any]] | None = None
    guard: Callable[[FaultProxy, Passing], Answered | None] | None = None
    picks: Callable[[Passing], bool] = lambda _: True
    down: bool = False
    url: str = ""
    _lock: Any = field(default_factory=threading.Lock)

    def forward(self, passing: Passing) -> Answered:
        """To the real server, whose answer is the one that counts."""
        refused = None if self.guard is None else self.guard(self, passing)
        found = refused or self._forwarded(passing)
        if passing.is_commit:
            self.seen.append((passing, found.status))
        return found

    def _forwarded(self, passing: Passing) -> Answered:
        parts = urlsplit(self.target)
        connection = http.client.HTTPConnection(parts.netloc, timeout=20)
        with contextlib.closing(connection):
            headers = {name: value for name, value in passing.headers.items() if name.lower() not in _HOPS}
            connection.request(passing.method, passing.path, passing.body, {**headers, "Host": parts.netloc})
            answer = connection.getresponse()
            return Answered(answer.status, dict(answer.getheaders()), answer.read())

    def deliver(self) -> list[int]:
        """What was held arrives now; gives what the server says to it."""
        late, self.held = self.held, []
        return [self.forward(each).status for each in late]

    def commits(self) -> list[int | None]:
        """What the server said to each commit that arrived."""
        return [status for _, status in self.seen]

    def passed(self, passing: Passing) -> Answered:
        if self.down:
            raise Lost
        if passing.is_commit and self.plan and self.picks(passing):
            return self.plan.popleft()(self, passing)
        found = self.forward(passing)
        if self.told is not None and passing.method == "GET" and "/tables/" in passing.path and found.status == 200:
            found.body = json.dumps(self.told(passing, json.loads(found.body))).encode()
        return found


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: FaultProxy

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            found = self.proxy.passed(
                Passing(self.command, self.path, dict(self.headers.items()), body, self.connection)
            )
        except Lost:
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
            return
        with contextlib.suppress(OSError):
            self.send_response(found.status)
            for name, value in found.headers.items():
                if name.lower() not in _HOPS:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(found.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(found.body)

    do_GET = do_POST = do_HEAD = do_DELETE = _pass  # noqa: N815 - the names that http.server asks for

    def log_message(self, *_: object) -> None:
        """Tests say what they see themselves."""


@contextlib.contextmanager
def proxied(target: str) -> Iterator[FaultProxy]:
    """A proxy on a free loopback port."""
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
