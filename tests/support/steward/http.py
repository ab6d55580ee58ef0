"""The Steward's service as tests talk to it: a running server over a real notary, and raw sockets for rude callers."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from pvdm.model.role import Role
from pvdm.steward.config.steward import Limits, StewardConfig
from pvdm.steward.server import RunningServer, start
from tests.support import fault
from tests.support.steward.notary import Stand, Time, stand_at

REASON = {"reason": "because the test says so"}
NO_SUCH_ATTEMPT = "00" * 16
NO_SUCH_PROOF = "00" * 32


@dataclass(slots=True)
class Served:
    """A running service and what is behind it."""

    stand: Stand
    server: RunningServer
    http: httpx.Client

    def headers(self, role: Role = Role.OPERATOR, domain: str = "*", name: str = "operator-tom") -> dict[str, str]:
        """The header of a new token."""
        return bearer(self.stand.token(role, domain, name)[0])


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def error_of(response: httpx.Response) -> dict[str, Any]:
    """The envelope's inner part; that it is whole is judged on the way."""
    assert response.headers["content-type"] == "application/json"
    told: dict[str, Any] = response.json()
    assert set(told) == {"error"}
    error: dict[str, Any] = told["error"]
    if "pvdm-code" in error:
        return _catalog_error(error, response)
    assert set(error) == {"code", "reason", "message", "expected", "got", "hint", "details", "kind", "request_id"}
    assert error["request_id"] == response.headers["x-request-id"]
    return error


def _catalog_error(error: dict[str, Any], response: httpx.Response) -> dict[str, Any]:
    """The same facts from the envelope of Iceberg's protocol."""
    assert set(error) == {"message", "type", "code", "pvdm-code"}
    assert error["code"] == response.status_code
    kind = "not_allowed" if error["type"] in ("NotAuthorizedException", "ForbiddenException") else "input"
    return {"reason": error["pvdm-code"], "message": error["message"], "type": error["type"], "kind": kind}


def refusal(response: httpx.Response) -> tuple[int, str]:
    """Status and code."""
    return response.status_code, error_of(response)["reason"]


def limited(**limits: int) -> Callable[[StewardConfig], StewardConfig]:
    """A change of the configuration's limits."""
    return lambda config: replace(config, service=replace(config.service, limits=Limits(**limits)))


@contextlib.contextmanager
def served(
    folder: Path,
    *,
    rooted: bool = True,
    changed: Callable[[StewardConfig], StewardConfig] = lambda config: config,
    ledger_url: str | None = None,
    clock: Time | None = None,
) -> Iterator[Served]:
    """A Steward in this folder, served on a free loopback port."""
    with (
        stand_at(folder, rooted=rooted, changed=changed, ledger_url=ledger_url, clock=clock) as stand,
        start(stand.notary) as server,
        httpx.Client(base_url=server.url, timeout=20, trust_env=False) as http,
    ):
        yield Served(stand, server, http)


@contextlib.contextmanager
def blocked_commits() -> Iterator[tuple[threading.Event, threading.Event]]:
    """Whoever commits waits: gives what is set when one does, and what lets it go."""
    reached, go = threading.Event(), threading.Event()

    def wait() -> None:
        reached.set()
        go.wait(20)

    with fault.armed("ledger.before_commit", fault.Call(wait)):
        try:
            yield reached, go
        finally:
            go.set()


class Rude:
    """A caller that writes bytes as it likes."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=10)

    def __enter__(self) -> Rude:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def read(self) -> bytes:
        """Everything until the server closes."""
        found = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := self._socket.recv(65_536):
                found += piece
        return found

    def answer(self) -> tuple[int, dict[str, Any]]:
        """Status and envelope of an answer after which the server closes."""
        head, _, body = self.read().partition(b"\r\n\r\n")
        told = json.loads(body)
        return int(head.split(b" ")[1]), told["error"]


def head(method: str, path: str, **headers: str) -> bytes:
    """The first lines of a request."""
    named = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([f"{method} {path} HTTP/1.1", "host: steward", *named, "", ""]).encode()
