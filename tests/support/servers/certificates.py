"""A private certificate authority for tests, and a server certificate that it issued."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True, slots=True)
class Authority:
    """Paths of three files: the authority's certificate, and the certificate and key of a server at 127.0.0.1."""

    certificate: Path
    server_certificate: Path
    server_key: Path

    @classmethod
    def create(cls, folder: Path) -> Authority:
        """Create keys and certificates, and write them to files in the folder."""
        authority_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
        authority_name, host = _name("a private authority"), _name("127.0.0.1")
        root = (
            _certificate(authority_name, authority_name, authority_key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(authority_key, hashes.SHA256())
        )
        leaf = (
            _certificate(host, authority_name, server_key)
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
            )
            .sign(authority_key, hashes.SHA256())
        )
        files = cls(folder / "ca.pem", folder / "server.pem", folder / "server.key")
        pem = serialization.Encoding.PEM
        files.certificate.write_bytes(root.public_bytes(pem))
        files.server_certificate.write_bytes(leaf.public_bytes(pem))
        files.server_key.write_bytes(
            server_key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        )
        files.server_key.chmod(0o600)
        return files

    @contextlib.contextmanager
    def serve(self, target: str) -> Iterator[str]:
        """Give the HTTP service at `target` a second address, with TLS and the server certificate; returns its URL.

        A proxy does this, since a second Steward cannot serve the same ledger.
        """
        address = urlsplit(target)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.server_certificate, self.server_key)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            server = (str(address.hostname), int(address.port or 80))
            threading.Thread(target=_accept, args=(listener, context, server), daemon=True).start()
            yield f"https://127.0.0.1:{listener.getsockname()[1]}"


def _accept(listener: socket.socket, context: ssl.SSLContext, server: tuple[str, int]) -> None:
    with contextlib.suppress(OSError):  # the listener is closed
        while True:
            plain, _ = listener.accept()
            threading.Thread(target=_connect, args=(plain, context, server), daemon=True).start()


def _connect(plain: socket.socket, context: ssl.SSLContext, address: tuple[str, int]) -> None:
    """Copy the bytes of one connection in both directions until one side ends it."""
    with (
        contextlib.suppress(OSError),
        context.wrap_socket(plain, server_side=True) as client,
        socket.create_connection(address) as server,
    ):
        back = threading.Thread(target=_copy, args=(server, client), daemon=True)
        back.start()
        _copy(client, server)
        back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(65_536):
            target.sendall(piece)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=2))
    )
