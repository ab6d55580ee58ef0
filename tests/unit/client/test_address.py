"""What the client accepts before it sends a token: addresses, certificates, ids in paths, and settings."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from pvdm.client import Retries, StewardClient, TimeOuts
from pvdm.errors import InputError, NotAllowedError, PvdmError, UnavailableError
from tests.support.for_each import for_each
from tests.unit.client.examples import INFO, client
from tests.unit.client.peer import Peer, answer


@for_each("url", ["https://steward.example", "http://127.0.0.1:1", "http://[::1]:1", "http://localhost"])
def test_an_https_or_loopback_address_is_accepted(url: str) -> None:
    assert StewardClient(url, "pvdm_x").url.startswith(url)


@for_each(
    "url", ["http://steward.example", "http://10.0.0.1", "http://127.0.0.1.example", "http://0.0.0.0", "http://[::]"]
)
def test_a_plain_http_address_is_refused(url: str) -> None:
    with pytest.raises(NotAllowedError) as caught:
        StewardClient(url, "pvdm_x")
    assert caught.value.reason == "steward_address_insecure"


def test_a_plain_http_address_is_accepted_with_insecure() -> None:
    assert StewardClient("http://steward.example", "pvdm_x", insecure=True).url == "http://steward.example"


@for_each(
    "url",
    [
        "",
        "steward.example",
        "ftp://steward.example",
        "https://",
        "https://a.example?x=1",
        "https://a.example#x",
        "https://a:b:c",
        None,
    ],
)
def test_an_invalid_address_is_refused(url: Any) -> None:
    with pytest.raises(InputError) as caught:
        StewardClient(url, "pvdm_x")
    assert caught.value.reason == "steward_address_invalid"


def test_an_address_with_a_password_is_refused_and_not_shown() -> None:
    with pytest.raises(InputError) as caught:
        StewardClient("https://someone:hunter22@steward.example", "pvdm_x")
    assert caught.value.reason == "steward_address_invalid"
    assert "hunter22" not in f"{caught.value} {caught.value.to_json()}"


@for_each("value", ["", ".", "..", "...", "a/b", "a b", "ä", "a?b", "a#b", "a%2e", "a" * 129, None])
def test_an_id_that_would_lead_to_another_path_is_refused(value: Any) -> None:
    with pytest.raises(InputError) as caught:
        client("http://127.0.0.1:1").workload(value)
    assert caught.value.reason == "identifier_invalid"


@for_each("path", ["", "../../v1/epochs", "0//1", "/0/1", "0/1/"])
def test_a_tile_that_would_lead_to_another_path_is_refused(path: str) -> None:
    with pytest.raises(InputError) as caught:
        client("http://127.0.0.1:1").log_tile(path)
    assert caught.value.reason == "identifier_invalid"


@for_each("number", [-1, 2**63, True, 1.5, "1"])
def test_an_epoch_that_is_not_a_number_in_range_is_refused(number: Any) -> None:
    with pytest.raises(InputError) as caught:
        client("http://127.0.0.1:1").revoke_epoch(number, "r")
    assert caught.value.reason == "identifier_invalid"


@for_each("limit", [0, -1, 1001, True, None])
def test_a_page_size_out_of_range_is_refused(limit: Any) -> None:
    with pytest.raises(InputError) as caught:
        client("http://127.0.0.1:1").events(limit=limit)
    assert caught.value.reason == "page_size_invalid"


@for_each("value", [0, -1, 86_401, float("nan"), float("inf"), True, "5", None])
@for_each("name", ["connect_seconds", "read_seconds", "total_seconds", "long_seconds"])
def test_a_time_out_out_of_range_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InputError) as caught:
        TimeOuts(**{name: value})
    assert caught.value.reason == "client_setting_invalid"


@for_each(
    "options",
    [{"tries": 0}, {"tries": 101}, {"tries": 1.5}, {"tries": True}, {"total_seconds": 0}, {"first_wait_seconds": -1}],
)
def test_retries_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        Retries(**options)
    assert caught.value.reason == "client_setting_invalid"


@for_each("size", [0, -1, 134_217_729, 1.0, True])
def test_an_answer_size_out_of_range_is_refused(size: Any) -> None:
    with pytest.raises(InputError) as caught:
        client("http://127.0.0.1:1", answer_max_bytes=size)
    assert caught.value.reason == "client_setting_invalid"


def create_certificate(tmp_path: Path) -> tuple[Path, ssl.SSLContext]:
    """A self-signed certificate for 127.0.0.1, and the server's TLS context that uses it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "steward")])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, SHA256())
    )
    ca, private = tmp_path / "ca.pem", tmp_path / "key.pem"
    ca.write_bytes(signed.public_bytes(Encoding.PEM))
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(ca, private)
    return ca, context


def test_a_steward_with_a_certificate_of_the_given_file_is_accepted(tmp_path: Path) -> None:
    ca, context = create_certificate(tmp_path)
    with Peer(answer(INFO), context=context) as peer, client(peer.url, ca_file=ca) as steward:
        assert steward.info().notary == "notary-1"


def test_a_client_with_another_token_uses_the_same_certificates(tmp_path: Path) -> None:
    ca, context = create_certificate(tmp_path)
    with Peer(answer(INFO), context=context) as peer, client(peer.url, ca_file=ca) as steward:
        with steward.with_token("pvdm_other") as other:
            other.info()
        assert peer.requests[0].headers["authorization"] == "Bearer pvdm_other"


def test_the_token_is_not_sent_to_a_steward_with_an_unknown_certificate(tmp_path: Path) -> None:
    _, context = create_certificate(tmp_path)
    with Peer(answer(INFO), context=context) as peer:
        with client(peer.url) as steward, pytest.raises(UnavailableError) as caught:
            steward.info()
        assert caught.value.reason == "steward_unreachable"
        assert peer.requests == []


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_missing_or_invalid_file_of_certificates_is_refused(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(PvdmError) as caught:
        client("https://steward.example", ca_file=path)
    assert caught.value.reason == "ca_file_invalid"
