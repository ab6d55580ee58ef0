"""The Steward's HTTP service for tests: a running server, its errors, and raw connections to it."""

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
    """A running HTTP service, the Steward behind it, and a client."""

    stand: Stand
    server: RunningServer
    http: httpx.Client

    def headers(self, role: Role = Role.OPERATOR, domain: str = "*", name: str = "operator-tom") -> dict[str, str]:
        """The request headers with a new token."""
        return bearer(self.stand.token(role, domain, name)[0])


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def error_of(response: httpx.Response) -> dict[str, Any]:
    """The error of a response; it must have all fields of an error and no other."""
    assert response.headers["content-type"] == "application/json"
    body: dict[str, Any] = response.json()
    assert set(body) == {"error"}
    error: dict[str, Any] = body["error"]
    if "pvdm-code" in error:
        return _catalog_error(error, response)
    assert set(error) == {"code", "reason", "message", "expected", "got", "hint", "details", "kind", "request_id"}
    assert error["request_id"] == response.headers["x-request-id"]
    return error


def _catalog_error(error: dict[str, Any], response: httpx.Response) -> dict[str, Any]:
    """The same facts from an error of Iceberg's REST protocol."""
    assert set(error) == {"message", "type", "code", "pvdm-code"}
    assert error["code"] == response.status_code
    kind = "not_allowed" if error["type"] in ("NotAuthorizedException", "ForbiddenException") else "input"
    return {"reason": error["pvdm-code"], "message": error["message"], "type": error["type"], "kind": kind}


def refusal(response: httpx.Response) -> tuple[int, str]:
    """The status and the error code of a response that refuses a request."""
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
    """Make every commit of the ledger wait. Yields an event that a waiting commit sets, and one that lets it go on."""
    reached, go = threading.Event(), threading.Event()

    def wait() -> None:
        reached.set()
        go.wait(20)

    with fault.armed("ledger.before_commit", fault.Call(wait)):
        try:
            yield reached, go
        finally:
            go.set()


class RawConnection:
    """A connection to which a test writes any bytes."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=10)

    def __enter__(self) -> RawConnection:
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
        """Status and error of a response after which the server closes."""
        head, _, body = self.read().partition(b"\r\n\r\n")
        return int(head.split(b" ")[1]), json.loads(body)["error"]


def head(method: str, path: str, **headers: str) -> bytes:
    """The request line and the headers of a request."""
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([f"{method} {path} HTTP/1.1", "host: steward", *lines, "", ""]).encode()
