"""The service's share of the Steward's benchmark: requests over loopback to the real one in its own process."""

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

from bench.steward_measure import Case, Taken, timed_each
from pvdm.model.role import Role
from pvdm.steward.config.steward import Limits, ServiceConfig, StewardConfig
from tests.support.steward.notary import stand_at
from tools.proof_kit import SOURCE, fixed

# The door's limits for one caller are there to hold it back; here they must not.
OPEN_LIMITS = Limits(rate_per_second=100_000, burst=1_000_000, concurrent=1_000)


def serve(folder: Path) -> None:
    """Run the service until standard input ends; its address and tokens go to standard output."""
    from pvdm.steward.server import start

    def opened(config: StewardConfig) -> StewardConfig:
        return replace(config, service=ServiceConfig(port=0, limits=OPEN_LIMITS))

    with stand_at(folder, changed=opened) as stand, start(stand.notary) as running:
        reader, _ = stand.token(Role.OPERATOR)
        attestor, _ = stand.token(Role.ATTESTOR, "payments", "source-payments")
        print(json.dumps({"url": running.url, "reader": reader, "attestor": attestor}), flush=True)
        sys.stdin.read()


@contextlib.contextmanager
def service(folder: Path, left_out: dict[str, str]) -> Iterator[dict[str, str] | None]:
    """The service's address and tokens; None, with the reason, where it does not start."""
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
            said = log.read_text().strip().splitlines()
            left_out["http"] = f"the service did not start: {said[-1] if said else 'silence'}"
        try:
            yield json.loads(line) if line else None
        finally:
            process.stdin.close()


class Visitor:
    """Keeps one connection for each thread, as a client does."""

    def __init__(self, url: str) -> None:
        self._address = urlsplit(url).netloc
        self._own = threading.local()
        self._all: list[http.client.HTTPConnection] = []

    def ask(self, method: str, path: str, token: str | None, body: bytes | None = None) -> bytes:
        """The answer's body; anything but 200 is an error."""
        connection = getattr(self._own, "connection", None)
        if connection is None:
            connection = self._own.connection = http.client.HTTPConnection(self._address, timeout=60)
            self._all.append(connection)
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        if body is not None:
            headers["content-type"] = "application/json"
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        data: bytes = answer.read()
        assert answer.status == http.HTTPStatus.OK, (answer.status, data[:500])
        return data

    def close(self) -> None:
        """Hang up everywhere."""
        for connection in self._all:
            connection.close()
        self._all.clear()
        self._own = threading.local()


def request_cases(found: dict[str, str], operations: int, random: Random) -> list[Case]:
    """The bare door, an answer read from the ledger, and one written to it; over one connection and over eight."""

    def health(visitor: Visitor) -> bytes:
        return visitor.ask("GET", "/healthz", None)

    def checkpoint(visitor: Visitor) -> bytes:
        return visitor.ask("GET", "/v1/log/checkpoint", found["reader"])

    def challenge(visitor: Visitor) -> bytes:
        asked = {
            "nonce": random.randbytes(16).hex(),
            "catalog": SOURCE.catalog,
            "table_uuid": SOURCE.uuid,
            "snapshot_id": "1206533119840177310",
            "mode": "stored",
            "fingerprints": {"content": fixed("fingerprint source")},
        }
        return visitor.ask("POST", "/v1/attestations/challenges", found["attestor"], json.dumps(asked).encode())

    def run(request: Callable[[Visitor], bytes], connections: int) -> Taken:
        with contextlib.closing(Visitor(found["url"])) as visitor:
            return timed_each([partial(request, visitor)] * operations, connections)

    return [
        Case(f"http_{name}_{connections}", operations, partial(run, request, connections), connections)
        for name, request in (
            ("get_healthz", health),
            ("get_log_checkpoint", checkpoint),
            ("post_challenge", challenge),
        )
        for connections in (1, 8)
    ]
