"""A fake server on a loopback port: it answers each request by the next behaviour of a script, and records it."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TypeAlias


@dataclass(frozen=True)
class Request:
    """One request as it was received."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


Behaviour: TypeAlias = Callable[[socket.socket, Request], None]


class Peer:
    """Answers the first request by the first behaviour of the script, and so on; the last one answers all further."""

    def __init__(self, *script: Behaviour, context: ssl.SSLContext | None = None) -> None:
        self._script = list(script)
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._stopped = False
        self.requests: list[Request] = []
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"{'http' if self._context is None else 'https'}://127.0.0.1:{self.port}"

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped = True
        # Wakes the thread that waits for a connection: closing alone would leave it there.
        with socket.create_connection(("127.0.0.1", self.port)):
            pass
        self._thread.join(10)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            if self._stopped:
                connection.close()
                return
            threading.Thread(target=self._handle, args=(connection,), daemon=True).start()

    def _handle(self, connection: socket.socket) -> None:
        try:
            if self._context is not None:
                connection = self._context.wrap_socket(connection, server_side=True)
            with connection:
                request = _read(connection)
                if request is not None:
                    behaviour = self._script[min(len(self.requests), len(self._script) - 1)]
                    self.requests.append(request)
                    behaviour(connection, request)
        except OSError:
            connection.close()


def _read(connection: socket.socket) -> Request | None:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65_536)
        if not piece:
            return None
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers.get("content-length", "0")):
        body += connection.recv(65_536)
    method, target, _ = first.split(" ")
    return Request(method, target, headers, body)


def raw(data: bytes) -> Behaviour:
    """Send these bytes and close."""
    return lambda connection, _: connection.sendall(data)


def answer(
    value: object = None, *, status: int = 200, headers: Mapping[str, str] | None = None, body: bytes | None = None
) -> Behaviour:
    """Send a whole HTTP response with this value as JSON, or with this body."""
    content = json.dumps(value).encode() if body is None else body
    lines = {"content-type": "application/json", "content-length": str(len(content)), "connection": "close"}
    lines |= dict(headers or {})
    head = "".join(f"{name}: {text}\r\n" for name, text in lines.items())
    return raw(f"HTTP/1.1 {status} Said\r\n{head}\r\n".encode("latin-1") + content)


def error(status: int, kind: str, code: str = "some_code", **more: object) -> Behaviour:
    """Send an error in the form of the Steward."""
    fields: dict[str, object] = {
        "code": code,
        "reason": code,
        "message": "some message",
        "expected": None,
        "got": None,
        "hint": None,
        "details": {},
    }
    headers = more.pop("headers", None)
    assert headers is None or isinstance(headers, Mapping)
    return answer(
        {"error": {**fields, "kind": kind, "request_id": "from-the-steward", **more}}, status=status, headers=headers
    )


def drop(connection: socket.socket, request: Request) -> None:
    """Close without an answer."""


def silence(seconds: float) -> Behaviour:
    """Keep the connection open without an answer."""
    return lambda _, __: time.sleep(seconds)


def trickle(data: bytes, *, every_seconds: float) -> Behaviour:
    """Send one byte at a time."""

    def behave(connection: socket.socket, request: Request) -> None:
        for byte in data:
            connection.sendall(bytes([byte]))
            time.sleep(every_seconds)

    return behave


def endless(connection: socket.socket, request: Request) -> None:
    """Send a body that never ends."""
    connection.sendall(b"HTTP/1.1 200 Said\r\ncontent-type: application/json\r\n\r\n")
    while True:
        connection.sendall(b" " * 65_536)
