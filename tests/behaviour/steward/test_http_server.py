"""Start and stop of the service: loopback, TLS, signals, and requests that are running when it stops."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pvdm.errors import InputError, NotAllowedError, UnavailableError
from pvdm.model.role import Role
from pvdm.steward import server as server_module
from pvdm.steward.config.steward import ServiceConfig, StewardConfig
from pvdm.steward.http import listener
from pvdm.steward.logs import LOGGER
from pvdm.steward.server import start, tls_context
from tests.support.steward.http import REASON, RawConnection, bearer, blocked_commits, error_of, limited, served
from tests.support.steward.notary import stand_at

ROOT = Path(__file__).parents[3]


def create_certificate(folder: Path, *, passphrase: bytes | None = None) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1 and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "steward")])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), 4711, now - timedelta(1), now + timedelta(1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    secrecy = serialization.NoEncryption() if passphrase is None else serialization.BestAvailableEncryption(passphrase)
    (folder / "tls.crt").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    (folder / "tls.key").write_bytes(key.private_bytes(serialization.Encoding.PEM, form, secrecy))
    (folder / "tls.key").chmod(0o600)
    return folder / "tls.crt", folder / "tls.key"


def with_tls(config: StewardConfig, crt: Path, key: Path) -> StewardConfig:
    return replace(config, service=replace(config.service, tls_certificate=crt, tls_key=key))


def test_port_zero_takes_a_free_port_on_loopback(tmp_path: Path) -> None:
    with served(tmp_path) as steward:
        assert steward.server.port > 0
        assert steward.server.url == f"http://127.0.0.1:{steward.server.port}"
        assert steward.http.get("/healthz").status_code == 200


def test_a_stopped_service_accepts_no_connection_and_can_be_stopped_again(tmp_path: Path) -> None:
    with served(tmp_path) as steward:
        steward.server.stop()
        steward.server.stop()
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{steward.server.url}/healthz", trust_env=False)


def test_a_service_can_be_started_again_on_the_same_notary(tmp_path: Path) -> None:
    with stand_at(tmp_path) as stand:
        for _ in range(2):
            with start(stand.notary) as server:
                assert httpx.get(f"{server.url}/healthz", trust_env=False).status_code == 200


def test_a_port_that_is_in_use_is_an_error_that_names_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            stand_at(tmp_path, changed=lambda config: with_port(config, port)) as stand,
            pytest.raises(UnavailableError) as raised,
        ):
            start(stand.notary)
    assert raised.value.reason == "address_unavailable"
    assert str(port) in str(raised.value)


def with_port(config: StewardConfig, port: int) -> StewardConfig:
    return replace(config, service=replace(config.service, port=port))


def test_a_service_beyond_loopback_does_not_start_without_tls(tmp_path: Path) -> None:
    with stand_at(tmp_path) as stand:
        config = replace(stand.config, service=replace(stand.config.service, host="0.0.0.0"))
        with pytest.raises(InputError) as raised:
            start(replace(stand.notary, config=config))
    assert raised.value.reason == "tls_missing"


def test_the_service_uses_tls_with_the_configured_certificate(tmp_path: Path) -> None:
    crt, key = create_certificate(tmp_path)
    with stand_at(tmp_path / "steward", changed=lambda config: with_tls(config, crt, key)) as stand:
        token, _ = stand.token()
        with start(stand.notary) as server:
            context = ssl.create_default_context(cafile=str(crt))
            with httpx.Client(base_url=server.url, verify=context, trust_env=False) as http:
                assert server.url.startswith("https://")
                assert http.get("/v1/identity", headers=bearer(token)).status_code == 200
            with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                httpx.get(f"{server.url}/healthz", trust_env=False)
            with pytest.raises(httpx.RemoteProtocolError):
                httpx.get(f"{server.url.replace('https', 'http')}/healthz", trust_env=False)


def test_the_oldest_accepted_version_of_tls_is_1_2(tmp_path: Path) -> None:
    crt, key = create_certificate(tmp_path)
    context = tls_context(ServiceConfig(tls_certificate=crt, tls_key=key))
    assert context is not None
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602, 0o700])
def test_a_tls_key_with_a_wrong_file_mode_is_refused(tmp_path: Path, mode: int) -> None:
    crt, key = create_certificate(tmp_path)
    key.chmod(mode)
    with pytest.raises(NotAllowedError) as raised:
        tls_context(ServiceConfig(tls_certificate=crt, tls_key=key))
    assert raised.value.reason == "key_file_mode"


def test_a_tls_key_that_is_read_only_and_behind_a_link_is_accepted(tmp_path: Path) -> None:
    crt, key = create_certificate(tmp_path)
    key.chmod(0o400)
    (tmp_path / "live.key").symlink_to(key)
    assert tls_context(ServiceConfig(tls_certificate=crt, tls_key=tmp_path / "live.key")) is not None


def test_a_tls_key_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crt, key = create_certificate(tmp_path)
    monkeypatch.setattr(server_module, "_ROOT_USER_ID", -1)  # a key of root is accepted, and this test may run as root
    monkeypatch.setattr(os, "geteuid", lambda: key.stat().st_uid + 1)
    with pytest.raises(NotAllowedError) as raised:
        tls_context(ServiceConfig(tls_certificate=crt, tls_key=key))
    assert raised.value.reason == "key_file_owner"


def test_a_connection_without_a_tls_handshake_counts_for_the_limit_and_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "HANDSHAKE_MAX_SECONDS", 4)
    # Loopback has no limit for each address, so the clients look like one from elsewhere.
    monkeypatch.setattr(listener, "peer_identity", lambda _: "peer 10.1.2.3")
    crt, key = create_certificate(tmp_path)

    def changed(config: StewardConfig) -> StewardConfig:
        return limited(peer_connections=2)(with_tls(config, crt, key))

    with stand_at(tmp_path / "steward", changed=changed) as stand, start(stand.notary) as server:
        with RawConnection(server.port) as first, RawConnection(server.port), RawConnection(server.port) as third:
            begun = time.monotonic()
            assert third.read() == b""
            assert time.monotonic() - begun < 3
            assert first.read() == b""
            assert 3 < time.monotonic() - begun < 20
        context = ssl.create_default_context(cafile=str(crt))
        assert httpx.get(f"{server.url}/healthz", verify=context, trust_env=False).status_code == 200


@pytest.mark.parametrize("fault", ["missing", "garbage", "other key", "passphrase"])
def test_a_service_with_an_unusable_certificate_does_not_start(tmp_path: Path, fault: str) -> None:
    crt, key = create_certificate(tmp_path, passphrase=b"x" if fault == "passphrase" else None)
    match fault:
        case "missing":
            crt.unlink()
        case "garbage":
            crt.write_text("no certificate")
        case "other key":
            (tmp_path / "other").mkdir()
            _, key = create_certificate(tmp_path / "other")
    with (
        stand_at(tmp_path / "steward", changed=lambda config: with_tls(config, crt, key)) as stand,
        pytest.raises(InputError) as raised,
    ):
        start(stand.notary)
    assert raised.value.reason == "tls_invalid"


def test_a_stop_completes_running_requests_and_refuses_new_connections(tmp_path: Path) -> None:
    with served(tmp_path) as steward, ThreadPoolExecutor(2) as pool:
        path = f"/v1/attempts/{steward.stand.staging().attempt.attempt_id}/abort"
        headers = steward.headers(Role.PRODUCER, "sales")
        with blocked_commits() as (reached, go):
            blocked = pool.submit(steward.http.post, path, json={**REASON, "lease_number": 1}, headers=headers)
            assert reached.wait(20)
            stopping = pool.submit(steward.server.stop)
            wait_until_refused(steward.server.port)
            assert not stopping.done()
            go.set()
            stopping.result(10)
        assert (blocked.result().status_code, blocked.result().json()["state"]) == (200, "ROLLED_BACK")


def test_a_stop_has_a_time_limit_and_a_request_cut_off_gets_state_unknown(tmp_path: Path) -> None:
    with (
        served(tmp_path, changed=limited(shutdown_seconds=1)) as steward,
        ThreadPoolExecutor(1) as pool,
    ):
        path = f"/v1/attempts/{steward.stand.staging().attempt.attempt_id}/abort"
        headers = steward.headers(Role.PRODUCER, "sales")
        with blocked_commits() as (reached, _):
            blocked = pool.submit(steward.http.post, path, json={**REASON, "lease_number": 1}, headers=headers)
            assert reached.wait(20)
            begun = time.monotonic()
            steward.server.stop()
            assert time.monotonic() - begun < 15
            response = blocked.result(20)
        error = error_of(response)
        assert (response.status_code, error["kind"], error["reason"]) == (500, "state_unknown", "service_stopped")


def wait_until_refused(port: int) -> None:
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except ConnectionRefusedError:
            return
        time.sleep(0.05)
    raise AssertionError("new connections are still accepted")


SCRIPT = """
import sys, time
from pathlib import Path
from pvdm.model.role import Role
from pvdm.steward import server
from tests.support.steward.notary import Stand, Time, config_at, created
config, clock = config_at(Path(sys.argv[1])), Time()
stand = Stand(Path(sys.argv[1]), config, clock, created(config, clock))
core = stand.staging()
print(stand.token(Role.PRODUCER, "sales", "job")[0], core.attempt.attempt_id, flush=True)
abort = stand.notary.work.abort
def slow_abort(*arguments, **named):
    print("slow", flush=True)
    time.sleep(1.5)
    return abort(*arguments, **named)
object.__setattr__(stand.notary.work, "abort", slow_abort)
server.run(stand.notary)
stand.notary.close()
print("closed", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_after_a_signal_requests_complete_and_the_process_exits_with_0(tmp_path: Path, number: signal.Signals) -> None:
    folder = tmp_path / "steward"
    folder.mkdir()
    with (
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(folder)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
        ThreadPoolExecutor(1) as pool,
    ):
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            token, attempt_id = process.stdout.readline().split()
            started = parse_event(process.stderr.readline(), "started")
            assert (started["catalog"], started["warehouse"]) == ("lake", f"file://{folder}/warehouse")
            address = started["address"]
            blocked = pool.submit(
                httpx.post,
                f"{address}/v1/attempts/{attempt_id}/abort",
                json={**REASON, "lease_number": 1},
                headers=bearer(token),
                timeout=20,
                trust_env=False,
            )
            assert process.stdout.readline() == "slow\n"
            process.send_signal(number)
            assert blocked.result(20).json()["state"] == "ROLLED_BACK"
            assert process.wait(20) == 0
        finally:
            process.kill()
        assert process.stdout.read() == "closed\n"
        logged = [json.loads(line) for line in process.stderr.read().splitlines()]
    # The clean-up of the attempt fails, because the ledger lacks its contract; its line can come at any time.
    assert [line["event"] for line in logged if line["event"] != "job_cannot_go_on"] == [
        "stopping",
        "request",
        "stopped",
    ]
    assert token not in json.dumps(logged)


def parse_event(line: str, name: str) -> dict[str, Any]:
    logged: dict[str, Any] = json.loads(line)
    assert logged["event"] == name
    return logged


def test_a_service_does_not_change_the_callers_logging(tmp_path: Path) -> None:
    before = (list(LOGGER.handlers), LOGGER.propagate)
    with served(tmp_path) as steward:
        steward.http.get("/healthz")
        assert (list(LOGGER.handlers), LOGGER.propagate) == before
