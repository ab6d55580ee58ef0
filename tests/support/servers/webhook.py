"""A webhook on a loopback port: it keeps every POST request, and answers as a test says."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class WebhookRequest:
    """One request. The names of the headers are in lower case."""

    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Webhook:
    """The received requests. `statuses` are the statuses of the next answers; after them every answer is 204.

    While `hanging` is set, no POST request is answered.
    """

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/alerts"
        self.received: list[WebhookRequest] = []
        self.statuses: list[int] = []
        self.hanging = threading.Event()
        self.released = threading.Event()

    def list_received(self, kind: str) -> list[Any]:
        """The bodies of the received alerts of this kind."""
        return [body for each in self.received if (body := each.json())["kind"] == kind]


@contextlib.contextmanager
def webhook() -> Iterator[Webhook]:
    """A webhook that listens until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            made.received.append(WebhookRequest({name.lower(): text for name, text in self.headers.items()}, body))
            if made.hanging.is_set():
                made.released.wait(60)
                return
            status = made.statuses.pop(0) if made.statuses else 204
            self.send_response(status)
            if status == 302:
                self.send_header("location", made.url)
            self.send_header("content-length", "0")
            self.end_headers()

        def do_GET(self) -> None:
            """The page of a log-in, to which the answer 302 leads."""
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        made = Webhook(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield made
        finally:
            made.released.set()
            server.shutdown()
            thread.join()
