"""The part of the Steward's benchmark about the service: requests over loopback to a service in its own process."""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

from bench.steward_measure import Case, Elapsed, time_steps
from pvdm.model.role import Role
from pvdm.steward.config.steward import Limits, ServiceConfig, StewardConfig
from tests.support.steward.notary import stand_at
from tools.proof_kit import SOURCE, fixed

# The service's limits for one caller would slow the benchmark, so they are very high.
OPEN_LIMITS = Limits(rate_per_second=100_000, burst=1_000_000, concurrent=1_000)


def serve(folder: Path) -> None:
    """Run the service until standard input ends; its address and tokens go to standard output."""
    from pvdm.steward.server import start

    def with_open_limits(config: StewardConfig) -> StewardConfig:
        return replace(config, service=ServiceConfig(port=0, limits=OPEN_LIMITS))

    with stand_at(folder, changed=with_open_limits) as stand, start(stand.notary) as running:
        reader, _ = stand.token(Role.OPERATOR)
        attestor, _ = stand.token(Role.ATTESTOR, "payments", "source-payments")
        print(json.dumps({"url": running.url, "reader": reader, "attestor": attestor}), flush=True)
        sys.stdin.read()


@contextlib.contextmanager
def service(folder: Path, left_out: dict[str, str]) -> Iterator[dict[str, str] | None]:
    """Run the service for the block; yields its address and tokens, or None if it does not start (`left_out`: why)."""
    command = [sys.executable, "-m", "bench.steward", "--serve", str(folder)]
    log = folder.with_name("service.log")
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            lines = log.read_text().strip().splitlines()
            left_out["http"] = f"the service did not start: {lines[-1] if lines else 'its log is empty'}"
        try:
            yield json.loads(line) if line else None
        finally:
            process.stdin.close()


class HttpClient:
    """Has one connection for each thread."""

    def __init__(self, url: str) -> None:
        self._address = urlsplit(url).netloc
        self._own = threading.local()
        self._all: list[http.client.HTTPConnection] = []

    def request(self, method: str, path: str, token: str | None, body: bytes | None = None) -> bytes:
        """Send a request and return the response's body. Raises unless the status is 200."""
        connection = getattr(self._own, "connection", None)
        if connection is None:
            connection = self._own.connection = http.client.HTTPConnection(self._address, timeout=60)
            self._all.append(connection)
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        if body is not None:
            headers["content-type"] = "application/json"
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        data: bytes = response.read()
        assert response.status == http.HTTPStatus.OK, (response.status, data[:500])
        return data

    def close(self) -> None:
        """Close every connection."""
        for connection in self._all:
            connection.close()
        self._all.clear()
        self._own = threading.local()


def request_cases(started: dict[str, str], operations: int, random: Random) -> list[Case]:
    """A request without work, one that reads from the ledger, and one that writes; over one connection and eight."""

    def health(client: HttpClient) -> bytes:
        return client.request("GET", "/healthz", None)

    def checkpoint(client: HttpClient) -> bytes:
        return client.request("GET", "/v1/log/checkpoint", started["reader"])

    def challenge(client: HttpClient) -> bytes:
        body = {
            "nonce": random.randbytes(16).hex(),
            "catalog": SOURCE.catalog,
            "table_uuid": SOURCE.uuid,
            "snapshot_id": "1206533119840177310",
            "mode": "stored",
            "fingerprints": {"content": fixed("fingerprint source")},
        }
        return client.request("POST", "/v1/attestations/challenges", started["attestor"], json.dumps(body).encode())

    def run(request: Callable[[HttpClient], bytes], connections: int) -> Elapsed:
        with contextlib.closing(HttpClient(started["url"])) as client:
            return time_steps([partial(request, client)] * operations, connections)

    return [
        Case(f"http_{name}_{connections}", operations, partial(run, request, connections), connections)
        for name, request in (
            ("get_healthz", health),
            ("get_log_checkpoint", checkpoint),
            ("post_challenge", challenge),
        )
        for connections in (1, 8)
    ]
